/* Why an operator stays on floats that quantd has only on codes. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* The place of the reason in a call, behind the attributes that a file can give these operators:
 * `string` is the text, which begins with "expected", and `number` the input that it is about,
 * op->input_count for the output, or QK_UNFUSED_FILE for the whole file. */
#define QK_UNFUSED (QK_ATTRIBUTE_COUNT_MAX - 1)
#define QK_UNFUSED_FILE QK_INPUT_COUNT_MAX
