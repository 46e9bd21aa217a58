/* Makes random granularities for tests of DequantizeLinear and QuantizeLinear. A granularity says
 * which elements of a tensor share a scale: all of them, those at one index of an axis, or a block
 * of an axis. */
#pragma once

#include "tests/support/kernels/qk_test.h"

#define WHOLE UINT32_MAX

struct granularity {
    uint32_t rank;      /* rank of the tensor */
    const size_t *dims; /* dims of the tensor, borrowed */
    uint32_t axis;      /* the axis, counted from the front; WHOLE: one scale */
    size_t block;       /* how many indices of the axis share a scale; 0: each has its own */
};

enum { GRANULARITY_RANK_MAX = 6 };

/* Returns a random granularity of a random shape, which it writes to `dims`. The tensor may be
 * empty. */
struct granularity granularity_random(uint64_t *random, size_t dims[GRANULARITY_RANK_MAX]);

/* Sets `dims` to the shape of the scale, and returns its rank. If there is one scale, the shape is
 * [] or [1], at random. */
uint32_t granularity_scale_shape(const struct granularity *granularity, uint64_t *random,
                                 size_t dims[QK_RANK_MAX]);

/* Adds the attributes axis and block_size to the call. Writes the axis in any way that means the
 * same: an axis of 1, the default, may be left out, and any axis may be counted from the end. If
 * there is one scale, adds an axis that is out of range, because operators must not read it. */
void granularity_add(const struct granularity *granularity, struct qk_call *call, uint64_t *random);

/* Returns the index of the scale of a flattened element, computed from its coordinates. */
size_t granularity_scale_index(const struct granularity *granularity, const size_t *scale_dims,
                               size_t element);
