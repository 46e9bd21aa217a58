/* Packs weights for sgemm. These are functions of struct qk_conv_algorithm
 * (kernels/conv/algorithm.h). Private to conv/. */
#ifndef KERNELS_CONV_SGEMM_PACK_H
#define KERNELS_CONV_SGEMM_PACK_H

#include "kernels/conv/conv.h"

bool qk_conv_prepare_sgemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
void qk_conv_pack_sgemm(const struct qk_conv *conv, size_t begin, size_t end);

#endif
