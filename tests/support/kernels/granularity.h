/* Which elements of a tensor share a scale in ONNX's linear operators: all of them, those at one
 * index of an axis, or a block of these. For calls with random ones. */
#ifndef TESTS_SUPPORT_KERNELS_GRANULARITY_H
#define TESTS_SUPPORT_KERNELS_GRANULARITY_H

#include "tests/support/kernels/qk_test.h"

#define WHOLE UINT32_MAX

struct granularity {
    uint32_t rank;      /* of the tensor */
    const size_t *dims; /* of it, borrowed */
    uint32_t axis;      /* from the front; WHOLE: one scale */
    size_t block;       /* indices of the axis with one scale; 0: one index */
};

enum { GRANULARITY_RANK_MAX = 6 };

/* Any, also of an empty tensor, whose dims become those of the granularity. */
struct granularity granularity_random(uint64_t *random, size_t dims[GRANULARITY_RANK_MAX]);

/* Returns the scales' rank. One scale is [] or [1]. */
uint32_t granularity_scale_shape(const struct granularity *granularity, uint64_t *random,
                                 size_t dims[QK_RANK_MAX]);

/* The attributes axis and block_size, or none where the operator's default does. */
void granularity_add(const struct granularity *granularity, struct qk_call *call, uint64_t *random);

/* Which of the scales the flattened element has, by its coordinates. */
size_t granularity_scale_index(const struct granularity *granularity, const size_t *scale_dims,
                               size_t element);

#endif
