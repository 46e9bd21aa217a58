/* Finds which loads of x make the quads of a channel. The vectors of a kernel decide how one load
 * becomes quads; what all kernels share is here. */
#include <string.h>

#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/window.h"
#include "kernels/sizes.h"

/* Finds the rows of quads of a stride phase that read rows inside x. Returns false if there are
 * none. */
static bool find_quad_rows(const struct qk_depthwise_job *job, size_t plane, size_t phase,
                           size_t quad_row, struct qk_depthwise_quad_rows *quad_rows)
{
    const struct qk_conv_axis *rows = &job->geometry->axis[QK_AXIS_ROW];
    const size_t columns = (size_t)job->geometry->axis[QK_AXIS_COLUMN].in;
    struct qk_window window = {.in_rows = rows->in,
                               .row_first = qk_conv_input_index(rows, job->row, phase),
                               .row_stride = rows->stride,
                               .column_stride = 1,
                               .rows = job->rows + job->layout->row.span};
    qk_window_fit(&window);
    const struct qk_window_range inside = window.inside_rows;
    if (inside.begin >= inside.end)
        return false;
    const size_t count = inside.end - inside.begin;
    *quad_rows = (struct qk_depthwise_quad_rows){
        .quad_row = quad_row + inside.begin,
        .row = plane + (size_t)qk_conv_input_index(rows, job->row + inside.begin, phase) * columns,
        .row_step =
            count > 1 ? (size_t)rows->stride * columns : 0, /* for a single row it could overflow */
        .count = count,
    };
    return true;
}

/* Merges `pattern` into `behind`, which makes the next vector of the same single row, if both have
 * the same permutation and the loads of `behind` begin `step` bytes further on. Returns false if
 * they cannot be merged. */
static bool join_pattern(const struct qk_depthwise_load_pattern *pattern,
                         struct qk_depthwise_load_pattern *behind, size_t step, size_t lanes)
{
    if (memcmp(pattern->order, behind->order, sizeof(pattern->order)) != 0 ||
        pattern->offset + step != behind->offset || pattern->apart != behind->apart)
        return false;
    behind->offset = pattern->offset;
    behind->offset_step = step;
    behind->to = pattern->to;
    behind->to_step = lanes * QK_DEPTHWISE_TAPS;
    behind->count++;
    return true;
}

/* Returns true if a vector has only quads of its row, and if these read only columns inside x. */
static bool is_inside(const struct qk_depthwise_job *job, size_t array, size_t quad, size_t lanes)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t first_tap = array * job->layout->taps;
    const size_t taps = qk_size_min(job->layout->taps, (size_t)axis->kernel - first_tap);
    const size_t last = job->column + quad + lanes - 1;
    return quad + lanes <= job->layout->width &&
           qk_conv_input_index(axis, job->column + quad, first_tap) >= 0 &&
           qk_conv_input_index(axis, last, first_tap + taps - 1) < axis->in;
}

/* Adds the load patterns of some rows of quads, and returns how many. Vectors go from the last to
 * the first: the last vector writes fill behind its row, which the beginning of the next row then
 * overwrites. Vectors that lie inside x have the same permutation as the vector behind, so it is
 * worked out once for all neighbours. */
static size_t add_quad_rows(const struct qk_depthwise_job *job, size_t array,
                            const struct qk_depthwise_quad_rows *quad_rows, size_t lanes,
                            qk_depthwise_add_vector *add_vector,
                            struct qk_depthwise_load_pattern *patterns)
{
    const size_t step = lanes * (size_t)job->geometry->axis[QK_AXIS_COLUMN].stride;
    size_t count = 0, added = 0;
    bool behind_is_inside = false;
    for (size_t left = qk_divide_up(job->layout->width, lanes); left > 0; left--) {
        const size_t quad = (left - 1) * lanes;
        const bool inside = is_inside(job, array, quad, lanes);
        if (inside && behind_is_inside && added == 1) {
            patterns[count] = patterns[count - 1];
            patterns[count].offset -= step;
            patterns[count].to -= lanes * QK_DEPTHWISE_TAPS;
        } else {
            added = add_vector(job, array, quad, quad_rows, patterns + count);
        }
        behind_is_inside = inside;
        if (added != 1 || quad_rows->count > 1 || count == 0 ||
            !join_pattern(&patterns[count], &patterns[count - 1], step, lanes))
            count += added;
    }
    return count;
}

size_t qk_depthwise_find_patterns(const struct qk_depthwise_job *job, size_t lanes,
                                  qk_depthwise_add_vector *add_vector)
{
    const struct qk_depthwise_layout *layout = job->layout;
    struct qk_depthwise_load_pattern *patterns = job->work.patterns;
    struct qk_depthwise_quad_rows quad_rows;
    size_t quad_row = 0;
    for (size_t a = 0; a < layout->arrays; a++)
        for (size_t p = 0; p < layout->planes; p++) {
            size_t plane;
            const bool there = qk_conv_find_plane(job->geometry, job->outer, p, &plane);
            for (size_t c = 0; c < layout->row.phases; c++, quad_row += layout->quad_rows)
                if (there && find_quad_rows(job, plane, c, quad_row, &quad_rows))
                    patterns += add_quad_rows(job, a, &quad_rows, lanes, add_vector, patterns);
        }
    return (size_t)(patterns - job->work.patterns);
}
