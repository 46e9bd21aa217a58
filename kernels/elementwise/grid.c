#include "kernels/elementwise/grid.h"

void qk_grid_init(struct qk_grid *grid, const struct qk_tensor *x)
{
    size_t stride = 1;
    grid->rank = x->rank;
    for (uint32_t left = x->rank; left > 0; left--) {
        const size_t size = x->dims[left - 1];
        grid->axes[left - 1] = (struct qk_grid_axis){.size = size, .block = 1, .x_stride = stride};
        stride *= size;
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
    for (uint32_t left = grid->rank; left > 0; left--) {
        grid->axes[left - 1].scale_stride = stride;
        grid->axes[left - 1].zero_point_stride = stride;
        stride *= scale->dims[left - 1];
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

static bool is_whole(const struct qk_grid_axis *axis)
{
    return axis->scale_stride == 0 && axis->zero_point_stride == 0;
}

/* Merges `inner` into `outer`, if stepping through `inner` arrives where one step of `outer` does,
 * and the parameters either repeat within `inner` or go on. */
static bool merge(struct qk_grid_axis *outer, const struct qk_grid_axis *inner)
{
    const size_t blocks = inner->size / inner->block;
    if (outer->x_stride != inner->size * inner->x_stride)
        return false;
    if (is_whole(inner)) {
        outer->size *= inner->size;
        outer->block = is_whole(outer) ? 1 : outer->block * inner->size;
        outer->x_stride = inner->x_stride;
        return true;
    }
    if (outer->block != 1 || inner->size % inner->block != 0 ||
        outer->scale_stride != blocks * inner->scale_stride ||
        outer->zero_point_stride != blocks * inner->zero_point_stride)
        return false;
    const size_t size = outer->size * inner->size;
    *outer = *inner;
    outer->size = size;
    return true;
}

void qk_grid_simplify(struct qk_grid *grid)
{
    uint32_t rank = 0; /* of the simple grid, which takes the place of the other from the front */
    for (uint32_t i = 0; i < grid->rank; i++) {
        struct qk_grid_axis axis = grid->axes[i];
        if (axis.size == 1)
            continue;
        if (axis.block >= axis.size) {
            axis.scale_stride = 0;
            axis.zero_point_stride = 0;
        }
        if (is_whole(&axis))
            axis.block = 1;
        if (rank == 0 || !merge(&grid->axes[rank - 1], &axis))
            grid->axes[rank++] = axis;
    }
    if (rank == 0)
        grid->axes[rank++] = (struct qk_grid_axis){.size = 1, .block = 1, .x_stride = 1};
    grid->rank = rank;
}

static size_t block_at(const struct qk_grid_axis *axis, size_t index)
{
    return axis->block == 1 ? index : index / axis->block; /* a division costs more than all else */
}

/* Moves along an axis from one index to a later one. */
static void move_row(struct qk_grid_piece *row, const struct qk_grid_axis *axis, size_t from,
                     size_t to)
{
    const size_t blocks = block_at(axis, to) - block_at(axis, from);
    row->x += (to - from) * axis->x_stride;
    row->scale += blocks * axis->scale_stride;
    row->zero_point += blocks * axis->zero_point_stride;
}

/* Moves back from an index to the first element of an axis. */
static void rewind_row(struct qk_grid_piece *row, const struct qk_grid_axis *axis, size_t from)
{
    const size_t blocks = block_at(axis, from);
    row->x -= from * axis->x_stride;
    row->scale -= blocks * axis->scale_stride;
    row->zero_point -= blocks * axis->zero_point_stride;
}

/* Finds the row that the indices of all outer axes name. */
static void find_row(struct qk_grid_cursor *cursor)
{
    const struct qk_grid *grid = cursor->grid;
    const struct qk_grid_axis *inner = &grid->axes[grid->rank - 1];
    struct qk_grid_piece row = {.count = inner->size,
                                .block = inner->block,
                                .x_stride = inner->x_stride,
                                .scale_stride = inner->scale_stride,
                                .zero_point_stride = inner->zero_point_stride};
    for (uint32_t i = 0; i + 1 < grid->rank; i++)
        move_row(&row, &grid->axes[i], 0, cursor->index[i]);
    cursor->row = row;
}

void qk_grid_seek(struct qk_grid_cursor *cursor, const struct qk_grid *grid, size_t i)
{
    cursor->grid = grid;
    for (uint32_t left = grid->rank; left > 0; left--) {
        const size_t size = grid->axes[left - 1].size;
        const size_t outer = i < size ? 0 : i / size;
        cursor->index[left - 1] = i - outer * size;
        i = outer;
    }
    find_row(cursor);
}

static void next_row(struct qk_grid_cursor *cursor)
{
    const struct qk_grid *grid = cursor->grid;
    cursor->index[grid->rank - 1] = 0;
    for (uint32_t left = grid->rank - 1; left > 0; left--) {
        const struct qk_grid_axis *axis = &grid->axes[left - 1];
        size_t *index = &cursor->index[left - 1];
        if (*index + 1 < axis->size) {
            move_row(&cursor->row, axis, *index, *index + 1);
            ++*index;
            return;
        }
        rewind_row(&cursor->row, axis, *index);
        *index = 0;
    }
}

void qk_grid_next(struct qk_grid_cursor *cursor, size_t count_max, struct qk_grid_piece *piece)
{
    const struct qk_grid_piece *row = &cursor->row;
    size_t *index = &cursor->index[cursor->grid->rank - 1];
    const size_t step = row->block == 1 ? *index : *index < row->block ? 0 : *index / row->block;
    *piece = *row;
    piece->block_done = *index - step * row->block;
    piece->count = row->count - *index < count_max ? row->count - *index : count_max;
    piece->x += *index * row->x_stride;
    piece->scale += step * row->scale_stride;
    piece->zero_point += step * row->zero_point_stride;
    *index += piece->count;
    if (*index == row->count)
        next_row(cursor);
}
