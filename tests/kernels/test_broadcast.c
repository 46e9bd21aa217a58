/* Checks the broadcast strides against plain index computation. */
#include <criterion/criterion.h>

#include "kernels/elementwise/broadcast.h"
#include "tests/support/kernels/qk_test.h"

/* The indices of x, the scale and the zero point for element i of y. */
struct place {
    size_t x;
    size_t scale;
    size_t zero_point;
};

static struct place place_of(const struct qk_broadcast *broadcast, size_t i)
{
    struct place place = {0};
    for (uint32_t a = broadcast->rank; a-- > 0;) {
        const struct qk_broadcast_axis *axis = &broadcast->axes[a];
        const size_t index = i % axis->size;
        i /= axis->size;
        place.x += index * axis->x_stride;
        place.scale += index / axis->block * axis->scale_stride;
        place.zero_point += index / axis->block * axis->zero_point_stride;
    }
    return place;
}

static size_t count_of(const struct qk_broadcast *broadcast)
{
    size_t count = 1;
    for (uint32_t i = 0; i < broadcast->rank; i++)
        count *= broadcast->axes[i].size;
    return count;
}

/* Traverses [begin, end) of the simplified strides, in segments of random sizes. */
static void check_traversal(const struct qk_broadcast *plain, const struct qk_broadcast *simple,
                            size_t begin, size_t end, uint64_t *random)
{
    struct qk_broadcast_cursor cursor;
    struct qk_row_segment segment;
    qk_broadcast_seek(&cursor, simple, begin);
    for (size_t i = begin; i < end; i += segment.count) {
        const size_t most = 1 + qk_test_random_below(random, end - i);
        qk_broadcast_next(&cursor, most, &segment);
        cr_assert_gt(segment.count, 0);
        cr_assert_leq(segment.count, most);
        cr_assert_lt(segment.block_done, segment.block);
        for (size_t k = 0; k < segment.count; k++) {
            const struct place place = place_of(plain, i + k);
            cr_assert_eq(segment.x + k * segment.x_stride, place.x);
            const size_t step = (segment.block_done + k) / segment.block;
            cr_assert_eq(segment.scale + step * segment.scale_stride, place.scale);
            cr_assert_eq(segment.zero_point + step * segment.zero_point_stride, place.zero_point);
        }
    }
}

static void check_broadcast(const struct qk_broadcast *plain, uint64_t *random)
{
    const size_t count = count_of(plain);
    struct qk_broadcast simple = *plain;
    qk_broadcast_simplify(&simple);
    cr_assert_geq(simple.rank, 1);
    cr_assert_leq(simple.rank, plain->rank > 0 ? plain->rank : 1);
    cr_assert_eq(count_of(&simple), count);
    if (count == 0)
        return;
    check_traversal(plain, &simple, 0, count, random);
    for (int round = 0; round < 4; round++) {
        const size_t begin = qk_test_random_below(random, count);
        check_traversal(plain, &simple, begin,
                        begin + 1 + qk_test_random_below(random, count - begin), random);
    }
}

static void random_shape(uint64_t *random, struct qk_tensor *x)
{
    *x = (struct qk_tensor){.rank = (uint32_t)qk_test_random_below(random, 7)};
    for (uint32_t i = 0; i < x->rank; i++)
        x->dims[i] = qk_test_random_below(random, 30) ? 1 + qk_test_random_below(random, 5) : 0;
    cr_assert(qk_tensor_set_count(x));
}

Test(broadcast, one_for_all_and_slices)
{
    uint64_t random = 11;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_broadcast broadcast;
        random_shape(&random, &x);
        qk_broadcast_init(&broadcast, &x);
        const uint32_t axis = (uint32_t)qk_test_random_below(&random, x.rank + 1);
        if (axis < x.rank)
            qk_broadcast_slice(&broadcast, axis);
        for (size_t i = 0; i < x.count; i++) {
            size_t index = i; /* index on the axis */
            for (uint32_t k = x.rank; k-- > axis + 1;)
                index /= x.dims[k];
            const struct place place = place_of(&broadcast, i);
            cr_assert_eq(place.x, i);
            cr_assert_eq(place.scale, axis < x.rank ? index % x.dims[axis] : 0);
            cr_assert_eq(place.zero_point, place.scale);
        }
        check_broadcast(&broadcast, &random);
    }
}

Test(broadcast, blocks)
{
    uint64_t random = 12;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_broadcast broadcast;
        random_shape(&random, &x);
        if (x.rank == 0)
            continue;
        const uint32_t axis = (uint32_t)qk_test_random_below(&random, x.rank);
        x.dims[axis] = 1 + qk_test_random_below(&random, 40);
        const size_t block = 1 + qk_test_random_below(&random, x.dims[axis] + 2);
        struct qk_tensor scale = x;
        scale.dims[axis] = (x.dims[axis] + block - 1) / block;
        cr_assert(qk_tensor_set_count(&x) && qk_tensor_set_count(&scale));
        qk_broadcast_init(&broadcast, &x);
        qk_broadcast_block(&broadcast, &scale, axis, block);
        for (size_t i = 0; i < x.count; i++) {
            size_t inner = 1; /* x is seen as [outer, axis, inner], and so is the scale */
            for (uint32_t k = axis + 1; k < x.rank; k++)
                inner *= x.dims[k];
            const size_t outer = i / inner / x.dims[axis];
            const size_t step = i / inner % x.dims[axis] / block;
            cr_assert_eq(place_of(&broadcast, i).scale,
                         (outer * scale.dims[axis] + step) * inner + i % inner);
            cr_assert_eq(place_of(&broadcast, i).x, i);
        }
        check_broadcast(&broadcast, &random);
    }
}

/* Draws strides: packed, padded, transposed or repeating. */
static void random_strides(uint64_t *random, const struct qk_tensor *x, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t i = x->rank; i-- > 0;) {
        const size_t kind = qk_test_random_below(random, 8);
        strides[i] = kind == 0   ? 0
                     : kind == 1 ? (int64_t)qk_test_random_below(random, 9)
                                 : stride + (kind == 2);
        stride = kind == 0 ? stride : strides[i] * (int64_t)x->dims[i];
    }
}

Test(broadcast, strides)
{
    uint64_t random = 13;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_broadcast broadcast;
        int64_t strides[3][QK_RANK_MAX];
        const int64_t *given[3];
        random_shape(&random, &x);
        for (int k = 0; k < 3; k++) {
            random_strides(&random, &x, strides[k]);
            given[k] = qk_test_random_below(&random, 3) ? strides[k] : NULL;
        }
        qk_broadcast_init(&broadcast, &x);
        qk_broadcast_element(&broadcast, given[0], given[1], given[2]);
        for (size_t i = 0; i < x.count; i++) {
            size_t at[3] = {given[0] ? 0 : i, given[1] ? 0 : i, given[2] ? 0 : i};
            size_t rest = i;
            for (uint32_t axis = x.rank; axis-- > 0;) {
                for (int k = 0; k < 3; k++)
                    at[k] += given[k] ? rest % x.dims[axis] * (size_t)given[k][axis] : 0;
                rest /= x.dims[axis];
            }
            const struct place place = place_of(&broadcast, i);
            cr_assert(place.x == at[0] && place.scale == at[1] && place.zero_point == at[2]);
        }
        check_broadcast(&broadcast, &random);
    }
}

static bool is_axis(const struct qk_broadcast_axis *axis, size_t size, size_t block,
                    size_t scale_stride)
{
    return axis->size == size && axis->block == block && axis->scale_stride == scale_stride &&
           axis->zero_point_stride == scale_stride;
}

Test(broadcast, becomes_as_flat_as_can_be)
{
    struct qk_tensor x = {.rank = 4, .dims = {2, 3, 4, 5}};
    struct qk_broadcast broadcast;
    cr_assert(qk_tensor_set_count(&x));
    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 1 && is_axis(&broadcast.axes[0], 120, 1, 0));

    /* Slices of several elements become blocks. */
    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_slice(&broadcast, 1);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 2 && is_axis(&broadcast.axes[0], 2, 1, 0));
    cr_assert(is_axis(&broadcast.axes[1], 60, 20, 1));

    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_slice(&broadcast, 3);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 2 && is_axis(&broadcast.axes[1], 5, 1, 1));

    /* The last block of a row is short, so rows are not joined. */
    struct qk_tensor scale = {.rank = 4, .dims = {2, 3, 4, 2}};
    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_block(&broadcast, &scale, 3, 3);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 2 && is_axis(&broadcast.axes[0], 24, 1, 2));
    cr_assert(is_axis(&broadcast.axes[1], 5, 3, 1));

    /* No block is short, so rows are joined. */
    x.dims[3] = 1;
    scale = (struct qk_tensor){.rank = 4, .dims = {2, 3, 2, 1}};
    cr_assert(qk_tensor_set_count(&x));
    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_block(&broadcast, &scale, 2, 2);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 1 && is_axis(&broadcast.axes[0], 24, 2, 1));

    x.dims[3] = 5;
    cr_assert(qk_tensor_set_count(&x));
    qk_broadcast_init(&broadcast, &x);
    qk_broadcast_element(&broadcast, NULL, NULL, NULL);
    qk_broadcast_simplify(&broadcast);
    cr_assert(broadcast.rank == 1 && is_axis(&broadcast.axes[0], 120, 1, 1));
}
