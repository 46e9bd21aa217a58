#include "tests/support/kernels/granularity.h"

struct granularity granularity_random(uint64_t *random, size_t dims[GRANULARITY_RANK_MAX])
{
    struct granularity made = {.dims = dims};
    made.rank = (uint32_t)qk_test_random_below(random, GRANULARITY_RANK_MAX + 1);
    for (uint32_t i = 0; i < made.rank; i++)
        dims[i] = qk_test_random_below(random, 20) ? 1 + qk_test_random_below(random, 6) : 0;
    if (made.rank > 0 && qk_test_random_below(random, 2)) /* rows of a length that kernels take */
        dims[made.rank - 1] = 1 + qk_test_random_below(random, 50);
    const uint32_t axis = (uint32_t)qk_test_random_below(random, made.rank + 1);
    made.axis = axis == made.rank ? WHOLE : axis;
    if (made.axis != WHOLE && qk_test_random_below(random, 2))
        made.block = 1 + qk_test_random_below(random, dims[axis] + 2);
    return made;
}

uint32_t granularity_scale_shape(const struct granularity *granularity, uint64_t *random,
                                 size_t dims[QK_RANK_MAX])
{
    const uint32_t axis = granularity->axis;
    dims[0] = 1;
    if (axis == WHOLE)
        return (uint32_t)qk_test_random_below(random, 2);
    dims[0] = granularity->dims[axis];
    if (granularity->block == 0)
        return 1;
    for (uint32_t i = 0; i < granularity->rank; i++)
        dims[i] = granularity->dims[i];
    dims[axis] = (dims[axis] + granularity->block - 1) / granularity->block;
    return granularity->rank;
}

void granularity_add(const struct granularity *granularity, struct qk_call *call, uint64_t *random)
{
    const int64_t axis = granularity->axis;
    const int64_t from_behind = axis - granularity->rank;
    if (granularity->axis == WHOLE)
        qk_test_call_int(call, "axis", 9); /* out of range, but not read */
    else if (axis != 1 || qk_test_random_below(random, 2))
        qk_test_call_int(call, "axis", qk_test_random_below(random, 2) ? axis : from_behind);
    if (granularity->block > 0)
        qk_test_call_int(call, "block_size", (int64_t)granularity->block);
}

size_t granularity_scale_index(const struct granularity *granularity, const size_t *scale_dims,
                               size_t element)
{
    const uint32_t axis = granularity->axis;
    size_t at[QK_RANK_MAX];
    size_t index = 0;
    if (axis == WHOLE)
        return 0;
    for (uint32_t i = granularity->rank; i-- > 0;) {
        at[i] = element % granularity->dims[i];
        element /= granularity->dims[i];
    }
    if (granularity->block == 0)
        return at[axis];
    at[axis] /= granularity->block;
    for (uint32_t i = 0; i < granularity->rank; i++)
        index = index * scale_dims[i] + at[i];
    return index;
}
