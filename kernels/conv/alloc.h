/* Allocates arrays from the caller's memory. Private to conv/. */
#ifndef KERNELS_CONV_ALLOC_H
#define KERNELS_CONV_ALLOC_H

#include "kernels/qk.h"

/* Returns memory for `count` elements of `size` bytes, or NULL if there is none or the size
 * overflows. */
void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size);

#endif
