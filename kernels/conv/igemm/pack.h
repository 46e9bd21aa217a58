/* Packs the weights of igemm convolutions into panels (kernels/gemm/igemm.h). Private to conv/. */
#pragma once

#include "kernels/conv/igemm/slabs.h"

/* The functions of struct qk_conv_algorithm (kernels/conv/algorithm.h). */
bool qk_conv_prepare_igemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
void qk_conv_pack_igemm(const struct qk_conv *conv, size_t begin, size_t end);

/* Returns the offset of stored activations in igemm's sums if x has this zero point. It is 0 if
 * quads are words, because these hold x less its zero point. */
int32_t qk_conv_igemm_x_offset(const struct qk_conv *conv, int32_t x_zero_point);

/* Returns the share of wide weights (kernels/gemm/igemm.h), from 0 to 1: in the part of a slab that
 * has `wide_rows` rows, either no weights are wide or all weights count as wide. The share is
 * estimated from a sample of the weights, by the rule of `mark_wide`. The backend's kernel must
 * have `mark_wide`, and there must be weights. */
double qk_conv_wide_share(const struct qk_conv *conv, const struct qk_conv_backend *backend);
