/* An operator that no file names, for graphs that fusing makes. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* The Add of Gemm: refuses a second operand of a larger shape than the first. */
extern const struct qk_operator qk_onnx_add_bias;
