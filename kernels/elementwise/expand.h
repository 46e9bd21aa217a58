/* Prepares the operands of kernel calls for a traversal. Expands parameters, which means writing
 * them out for each element, if blocks are too short for a kernel call each. Gathers elements of x
 * that are strides apart. */
#pragma once

#include "kernels/elementwise/broadcast.h"

/* How many elements are expanded at a time; their parameters stay in the L1 cache. */
#define QK_EXPAND_COUNT 1024

/* The parameters of all blocks, as 32-bit words whose meaning only the kernel knows. NULL: there
 * are none. */
struct qk_parameters {
    const uint32_t *scales;
    const uint32_t *zeros;
    const uint32_t *offsets; /* one for each scale, at the same index */
};

/* Repeats a parameter for each element of its block, for `count` elements. Writes from[0] `block -
 * done` times, then from[stride] `block` times, then from[2 * stride] `block` times, and so on.
 * Also writes up to QK_REPEAT_SLACK - 1 words behind the last one. */
typedef void (*qk_repeat_fn)(uint32_t *to, size_t count, const uint32_t *from, size_t stride,
                             size_t block, size_t done);

#define QK_REPEAT_SLACK ((size_t)16)

/* Where expanded parameters are written. */
struct qk_expanded {
    uint32_t *scales;
    uint32_t *zeros;
    uint32_t *offsets;
};

/* Expands the parameters of a segment to to->scales[at], to->scales[at + 1] and so on, and to the
 * same indices of zeros and offsets. Also writes up to QK_REPEAT_SLACK - 1 words behind the last
 * one. */
void qk_expand_parameters(qk_repeat_fn repeat, const struct qk_parameters *parameters,
                          const struct qk_row_segment *segment, const struct qk_expanded *to,
                          size_t at);

/* Copies a segment's elements, of `bytes` bytes each (1, 2 or 4), to `to`. */
void qk_gather_elements(const void *x, size_t bytes, const struct qk_row_segment *segment,
                        void *to);
