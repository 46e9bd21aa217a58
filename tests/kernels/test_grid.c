/* The granularity plan against plain index computation. */
#include <criterion/criterion.h>

#include "kernels/elementwise/grid.h"
#include "tests/support/kernels/qk_test.h"

/* Where element i of y finds x, its scale and its zero point. */
struct place {
    size_t x;
    size_t scale;
    size_t zero_point;
};

static struct place place_of(const struct qk_grid *grid, size_t i)
{
    struct place place = {0};
    for (uint32_t a = grid->rank; a-- > 0;) {
        const struct qk_grid_axis *axis = &grid->axes[a];
        const size_t index = i % axis->size;
        i /= axis->size;
        place.x += index * axis->x_stride;
        place.scale += index / axis->block * axis->scale_stride;
        place.zero_point += index / axis->block * axis->zero_point_stride;
    }
    return place;
}

static size_t count_of(const struct qk_grid *grid)
{
    size_t count = 1;
    for (uint32_t i = 0; i < grid->rank; i++)
        count *= grid->axes[i].size;
    return count;
}

/* A traversal over [begin, end) of the simplified grid, in pieces of random sizes. */
static void check_traversal(const struct qk_grid *plain, const struct qk_grid *simple, size_t begin,
                            size_t end, uint64_t *random)
{
    struct qk_grid_cursor cursor;
    struct qk_grid_piece piece;
    qk_grid_seek(&cursor, simple, begin);
    for (size_t i = begin; i < end; i += piece.count) {
        const size_t most = 1 + qk_test_random_below(random, end - i);
        qk_grid_next(&cursor, most, &piece);
        cr_assert_gt(piece.count, 0);
        cr_assert_leq(piece.count, most);
        cr_assert_lt(piece.block_done, piece.block);
        for (size_t k = 0; k < piece.count; k++) {
            const struct place place = place_of(plain, i + k);
            cr_assert_eq(piece.x + k * piece.x_stride, place.x);
            const size_t step = (piece.block_done + k) / piece.block;
            cr_assert_eq(piece.scale + step * piece.scale_stride, place.scale);
            cr_assert_eq(piece.zero_point + step * piece.zero_point_stride, place.zero_point);
        }
    }
}

static void check_grid(const struct qk_grid *plain, uint64_t *random)
{
    const size_t count = count_of(plain);
    struct qk_grid simple = *plain;
    qk_grid_simplify(&simple);
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

Test(grid, one_for_all_and_slices)
{
    uint64_t random = 11;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_grid grid;
        random_shape(&random, &x);
        qk_grid_init(&grid, &x);
        const uint32_t axis = (uint32_t)qk_test_random_below(&random, x.rank + 1);
        if (axis < x.rank)
            qk_grid_slice(&grid, axis);
        for (size_t i = 0; i < x.count; i++) {
            size_t index = i; /* on the axis */
            for (uint32_t k = x.rank; k-- > axis + 1;)
                index /= x.dims[k];
            const struct place place = place_of(&grid, i);
            cr_assert_eq(place.x, i);
            cr_assert_eq(place.scale, axis < x.rank ? index % x.dims[axis] : 0);
            cr_assert_eq(place.zero_point, place.scale);
        }
        check_grid(&grid, &random);
    }
}

Test(grid, blocks)
{
    uint64_t random = 12;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_grid grid;
        random_shape(&random, &x);
        if (x.rank == 0)
            continue;
        const uint32_t axis = (uint32_t)qk_test_random_below(&random, x.rank);
        x.dims[axis] = 1 + qk_test_random_below(&random, 40);
        const size_t block = 1 + qk_test_random_below(&random, x.dims[axis] + 2);
        struct qk_tensor scale = x;
        scale.dims[axis] = (x.dims[axis] + block - 1) / block;
        cr_assert(qk_tensor_set_count(&x) && qk_tensor_set_count(&scale));
        qk_grid_init(&grid, &x);
        qk_grid_block(&grid, &scale, axis, block);
        for (size_t i = 0; i < x.count; i++) {
            size_t inner = 1; /* x falls into [outer, axis, inner], and scale as well */
            for (uint32_t k = axis + 1; k < x.rank; k++)
                inner *= x.dims[k];
            const size_t outer = i / inner / x.dims[axis];
            const size_t step = i / inner % x.dims[axis] / block;
            cr_assert_eq(place_of(&grid, i).scale,
                         (outer * scale.dims[axis] + step) * inner + i % inner);
            cr_assert_eq(place_of(&grid, i).x, i);
        }
        check_grid(&grid, &random);
    }
}

/* Packed, padded, transposed, repeating. */
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

Test(grid, strides)
{
    uint64_t random = 13;
    for (int round = 0; round < 2000; round++) {
        struct qk_tensor x;
        struct qk_grid grid;
        int64_t strides[3][QK_RANK_MAX];
        const int64_t *given[3];
        random_shape(&random, &x);
        for (int k = 0; k < 3; k++) {
            random_strides(&random, &x, strides[k]);
            given[k] = qk_test_random_below(&random, 3) ? strides[k] : NULL;
        }
        qk_grid_init(&grid, &x);
        qk_grid_element(&grid, given[0], given[1], given[2]);
        for (size_t i = 0; i < x.count; i++) {
            size_t at[3] = {given[0] ? 0 : i, given[1] ? 0 : i, given[2] ? 0 : i};
            size_t rest = i;
            for (uint32_t axis = x.rank; axis-- > 0;) {
                for (int k = 0; k < 3; k++)
                    at[k] += given[k] ? rest % x.dims[axis] * (size_t)given[k][axis] : 0;
                rest /= x.dims[axis];
            }
            const struct place place = place_of(&grid, i);
            cr_assert(place.x == at[0] && place.scale == at[1] && place.zero_point == at[2]);
        }
        check_grid(&grid, &random);
    }
}

static bool is_axis(const struct qk_grid_axis *axis, size_t size, size_t block, size_t scale_stride)
{
    return axis->size == size && axis->block == block && axis->scale_stride == scale_stride &&
           axis->zero_point_stride == scale_stride;
}

Test(grid, becomes_as_flat_as_can_be)
{
    struct qk_tensor x = {.rank = 4, .dims = {2, 3, 4, 5}};
    struct qk_grid grid;
    cr_assert(qk_tensor_set_count(&x));
    qk_grid_init(&grid, &x);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 1 && is_axis(&grid.axes[0], 120, 1, 0));

    /* Slices of several elements are blocks. */
    qk_grid_init(&grid, &x);
    qk_grid_slice(&grid, 1);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 2 && is_axis(&grid.axes[0], 2, 1, 0));
    cr_assert(is_axis(&grid.axes[1], 60, 20, 1));

    qk_grid_init(&grid, &x);
    qk_grid_slice(&grid, 3);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 2 && is_axis(&grid.axes[1], 5, 1, 1));

    /* The last block of a row is short: rows stay. */
    struct qk_tensor scale = {.rank = 4, .dims = {2, 3, 4, 2}};
    qk_grid_init(&grid, &x);
    qk_grid_block(&grid, &scale, 3, 3);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 2 && is_axis(&grid.axes[0], 24, 1, 2));
    cr_assert(is_axis(&grid.axes[1], 5, 3, 1));

    /* None is short: rows go on in one another. */
    x.dims[3] = 1;
    scale = (struct qk_tensor){.rank = 4, .dims = {2, 3, 2, 1}};
    cr_assert(qk_tensor_set_count(&x));
    qk_grid_init(&grid, &x);
    qk_grid_block(&grid, &scale, 2, 2);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 1 && is_axis(&grid.axes[0], 24, 2, 1));

    x.dims[3] = 5;
    cr_assert(qk_tensor_set_count(&x));
    qk_grid_init(&grid, &x);
    qk_grid_element(&grid, NULL, NULL, NULL);
    qk_grid_simplify(&grid);
    cr_assert(grid.rank == 1 && is_axis(&grid.axes[0], 120, 1, 1));
}
