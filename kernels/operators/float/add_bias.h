/* An operator that no file names, for graphs that fusing makes. Private to kernels/. */
#ifndef KERNELS_OPERATORS_FLOAT_ADD_BIAS_H
#define KERNELS_OPERATORS_FLOAT_ADD_BIAS_H

#include "kernels/qk.h"

/* The Add of Gemm: refuses a second operand of a larger shape than the first. */
extern const struct qk_operator qk_onnx_add_bias;

#endif
