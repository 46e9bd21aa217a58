#include "kernels/elementwise/broadcast.h"

void qk_broadcast_init(struct qk_broadcast *broadcast, const struct qk_tensor *x)
{
    size_t stride = 1;
    broadcast->rank = x->rank;
    for (uint32_t left = x->rank; left > 0; left--) {
        const size_t size = x->dims[left - 1];
        broadcast->axes[left - 1] =
            (struct qk_broadcast_axis){.size = size, .block = 1, .x_stride = stride};
        stride *= size;
    }
}

void qk_broadcast_slice(struct qk_broadcast *broadcast, uint32_t axis)
{
    broadcast->axes[axis].scale_stride = 1;
    broadcast->axes[axis].zero_point_stride = 1;
}

void qk_broadcast_block(struct qk_broadcast *broadcast, const struct qk_tensor *scale,
                        uint32_t axis, size_t block)
{
    size_t stride = 1;
    for (uint32_t left = broadcast->rank; left > 0; left--) {
        broadcast->axes[left - 1].scale_stride = stride;
        broadcast->axes[left - 1].zero_point_stride = stride;
        stride *= scale->dims[left - 1];
    }
    broadcast->axes[axis].block = block;
}

void qk_broadcast_element(struct qk_broadcast *broadcast, const int64_t *x_strides,
                          const int64_t *scale_strides, const int64_t *zero_point_strides)
{
    for (uint32_t i = 0; i < broadcast->rank; i++) {
        struct qk_broadcast_axis *axis = &broadcast->axes[i];
        const size_t packed = axis->x_stride;
        axis->x_stride = x_strides ? (size_t)x_strides[i] : packed;
        axis->scale_stride = scale_strides ? (size_t)scale_strides[i] : packed;
        axis->zero_point_stride = zero_point_strides ? (size_t)zero_point_strides[i] : packed;
    }
}

static bool is_whole(const struct qk_broadcast_axis *axis)
{
    return axis->scale_stride == 0 && axis->zero_point_stride == 0;
}

/* Merges `inner` into `outer`, if stepping through all of `inner` arrives where one step of `outer`
 * does, and the parameters either stay the same within `inner` or go on in `outer`. Returns false
 * if they cannot be merged. */
static bool merge(struct qk_broadcast_axis *outer, const struct qk_broadcast_axis *inner)
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

void qk_broadcast_simplify(struct qk_broadcast *broadcast)
{
    uint32_t rank = 0; /* of the simplified axes, which replace the others from the front */
    for (uint32_t i = 0; i < broadcast->rank; i++) {
        struct qk_broadcast_axis axis = broadcast->axes[i];
        if (axis.size == 1)
            continue;
        if (axis.block >= axis.size) {
            axis.scale_stride = 0;
            axis.zero_point_stride = 0;
        }
        if (is_whole(&axis))
            axis.block = 1;
        if (rank == 0 || !merge(&broadcast->axes[rank - 1], &axis))
            broadcast->axes[rank++] = axis;
    }
    if (rank == 0)
        broadcast->axes[rank++] = (struct qk_broadcast_axis){.size = 1, .block = 1, .x_stride = 1};
    broadcast->rank = rank;
}

static size_t block_at(const struct qk_broadcast_axis *axis, size_t index)
{
    return axis->block == 1 ? index : index / axis->block; /* a division costs more than the rest */
}

/* Moves along an axis from one index to a later one. */
static void move_row(struct qk_row_segment *row, const struct qk_broadcast_axis *axis, size_t from,
                     size_t to)
{
    const size_t blocks = block_at(axis, to) - block_at(axis, from);
    row->x += (to - from) * axis->x_stride;
    row->scale += blocks * axis->scale_stride;
    row->zero_point += blocks * axis->zero_point_stride;
}

/* Moves back from an index to the first element of an axis. */
static void rewind_row(struct qk_row_segment *row, const struct qk_broadcast_axis *axis,
                       size_t from)
{
    const size_t blocks = block_at(axis, from);
    row->x -= from * axis->x_stride;
    row->scale -= blocks * axis->scale_stride;
    row->zero_point -= blocks * axis->zero_point_stride;
}

/* Finds the row at the cursor's indices on the outer axes. */
static void find_row(struct qk_broadcast_cursor *cursor)
{
    const struct qk_broadcast *broadcast = cursor->broadcast;
    const struct qk_broadcast_axis *inner = &broadcast->axes[broadcast->rank - 1];
    struct qk_row_segment row = {.count = inner->size,
                                 .block = inner->block,
                                 .x_stride = inner->x_stride,
                                 .scale_stride = inner->scale_stride,
                                 .zero_point_stride = inner->zero_point_stride};
    for (uint32_t i = 0; i + 1 < broadcast->rank; i++)
        move_row(&row, &broadcast->axes[i], 0, cursor->index[i]);
    cursor->row = row;
}

void qk_broadcast_seek(struct qk_broadcast_cursor *cursor, const struct qk_broadcast *broadcast,
                       size_t i)
{
    cursor->broadcast = broadcast;
    for (uint32_t left = broadcast->rank; left > 0; left--) {
        const size_t size = broadcast->axes[left - 1].size;
        const size_t outer = i < size ? 0 : i / size;
        cursor->index[left - 1] = i - outer * size;
        i = outer;
    }
    find_row(cursor);
}

static void next_row(struct qk_broadcast_cursor *cursor)
{
    const struct qk_broadcast *broadcast = cursor->broadcast;
    cursor->index[broadcast->rank - 1] = 0;
    for (uint32_t left = broadcast->rank - 1; left > 0; left--) {
        const struct qk_broadcast_axis *axis = &broadcast->axes[left - 1];
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

void qk_broadcast_next(struct qk_broadcast_cursor *cursor, size_t count_max,
                       struct qk_row_segment *segment)
{
    const struct qk_row_segment *row = &cursor->row;
    size_t *index = &cursor->index[cursor->broadcast->rank - 1];
    const size_t step = row->block == 1 ? *index : *index < row->block ? 0 : *index / row->block;
    *segment = *row;
    segment->block_done = *index - step * row->block;
    segment->count = row->count - *index < count_max ? row->count - *index : count_max;
    segment->x += *index * row->x_stride;
    segment->scale += step * row->scale_stride;
    segment->zero_point += step * row->zero_point_stride;
    *index += segment->count;
    if (*index == row->count)
        next_row(cursor);
}
