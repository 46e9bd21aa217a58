#include "kernels/dequantize/grid.h"

void qk_grid_init(struct qk_grid *grid, const struct qk_tensor *x)
{
    size_t stride = 1;
    grid->rank = x->rank;
    for (uint32_t i = x->rank; i-- > 0;) {
        grid->axes[i] = (struct qk_grid_axis){.size = x->dims[i], .block = 1, .x_stride = stride};
        stride *= x->dims[i];
    }
}

void qk_grid_slice(struct qk_grid *grid, uint32_t axis)
{
    grid->axes[axis].scale_stride = 1;
    grid->axes[axis].zero_point_stride = 1;
}

void qk_grid_block(struct qk_grid *grid, const struct qk_tensor *scale, uint32_t axis, size_t block)
{
    size_t stride = 1;
    for (uint32_t i = grid->rank; i-- > 0;) {
        grid->axes[i].scale_stride = stride;
        grid->axes[i].zero_point_stride = stride;
        stride *= scale->dims[i];
    }
    grid->axes[axis].block = block;
}

void qk_grid_element(struct qk_grid *grid, const int64_t *x_strides, const int64_t *scale_strides,
                     const int64_t *zero_point_strides)
{
    for (uint32_t i = 0; i < grid->rank; i++) {
        struct qk_grid_axis *axis = &grid->axes[i];
        const size_t packed = axis->x_stride;
        axis->x_stride = x_strides ? (size_t)x_strides[i] : packed;
        axis->scale_stride = scale_strides ? (size_t)scale_strides[i] : packed;
        axis->zero_point_stride = zero_point_strides ? (size_t)zero_point_strides[i] : packed;
    }
}

/* Whether `inner`, walked through, arrives where one step of `outer` does. */
static bool acts_as_one(const struct qk_grid_axis *outer, const struct qk_grid_axis *inner)
{
    return outer->block == 1 && inner->block == 1 &&
           outer->x_stride == inner->size * inner->x_stride &&
           outer->scale_stride == inner->size * inner->scale_stride &&
           outer->zero_point_stride == inner->size * inner->zero_point_stride;
}

void qk_grid_simplify(struct qk_grid *grid)
{
    struct qk_grid simple = {.rank = 0};
    for (uint32_t i = 0; i < grid->rank; i++) {
        struct qk_grid_axis axis = grid->axes[i];
        if (axis.size == 1)
            continue;
        if (axis.block >= axis.size) {
            axis.scale_stride = 0;
            axis.zero_point_stride = 0;
        }
        if (axis.scale_stride == 0 && axis.zero_point_stride == 0)
            axis.block = 1;
        struct qk_grid_axis *outer = simple.rank ? &simple.axes[simple.rank - 1] : NULL;
        if (outer && acts_as_one(outer, &axis)) {
            axis.size *= outer->size;
            *outer = axis;
        } else {
            simple.axes[simple.rank++] = axis;
        }
    }
    if (simple.rank == 0)
        simple.axes[simple.rank++] = (struct qk_grid_axis){.size = 1, .block = 1, .x_stride = 1};
    *grid = simple;
}

size_t qk_grid_run(const struct qk_grid *grid)
{
    const struct qk_grid_axis *inner = &grid->axes[grid->rank - 1];
    return inner->scale_stride == 0 && inner->zero_point_stride == 0 ? inner->size : inner->block;
}

/* The row that the indices of all outer axes name. */
static void find_row(struct qk_grid_cursor *cursor)
{
    const struct qk_grid *grid = cursor->grid;
    const struct qk_grid_axis *inner = &grid->axes[grid->rank - 1];
    struct qk_grid_piece row = {.count = inner->size,
                                .x_stride = inner->x_stride,
                                .scale_stride = inner->scale_stride,
                                .zero_point_stride = inner->zero_point_stride};
    for (uint32_t i = 0; i + 1 < grid->rank; i++) {
        const struct qk_grid_axis *axis = &grid->axes[i];
        const size_t index = cursor->index[i];
        const size_t step = axis->block == 1 ? index : index / axis->block;
        row.x += index * axis->x_stride;
        row.scale += step * axis->scale_stride;
        row.zero_point += step * axis->zero_point_stride;
    }
    cursor->row = row;
}

void qk_grid_seek(struct qk_grid_cursor *cursor, const struct qk_grid *grid, size_t i)
{
    cursor->grid = grid;
    for (uint32_t axis = grid->rank; axis-- > 0;) {
        cursor->index[axis] = i % grid->axes[axis].size;
        i /= grid->axes[axis].size;
    }
    find_row(cursor);
}

static void next_row(struct qk_grid_cursor *cursor)
{
    const struct qk_grid *grid = cursor->grid;
    uint32_t axis = grid->rank - 1;
    cursor->index[axis] = 0;
    while (axis-- > 0) {
        if (++cursor->index[axis] < grid->axes[axis].size)
            break;
        cursor->index[axis] = 0;
    }
    find_row(cursor);
}

void qk_grid_next(struct qk_grid_cursor *cursor, size_t count_max, struct qk_grid_piece *piece)
{
    const uint32_t last = cursor->grid->rank - 1;
    const size_t block = cursor->grid->axes[last].block;
    const size_t index = cursor->index[last];
    const size_t step = block == 1 ? index : index / block;
    *piece = cursor->row;
    piece->count -= index;
    if (block > 1) {
        const size_t left = block - index % block;
        piece->count = left < piece->count ? left : piece->count;
        piece->scale_stride = 0;
        piece->zero_point_stride = 0;
    }
    piece->count = count_max < piece->count ? count_max : piece->count;
    piece->x += index * cursor->row.x_stride;
    piece->scale += step * cursor->row.scale_stride;
    piece->zero_point += step * cursor->row.zero_point_stride;
    cursor->index[last] += piece->count;
    if (cursor->index[last] == cursor->row.count)
        next_row(cursor);
}
