/* Prints the shapes of tensors for error texts. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* A buffer for one shape. A shape that is too long for it ends in "...]". Two buffers fit an
 * error's text. */
struct qk_shape_text {
    char text[72];
};

/* Prints the tensor's shape as "[2,3]" into `buffer` and returns its text. */
const char *qk_shape_text(const struct qk_tensor *tensor, struct qk_shape_text *buffer);
