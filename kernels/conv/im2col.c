#include "kernels/conv/im2col.h"

#include "kernels/conv/sizes.h"

#include <string.h>

enum { LAST = QK_CONV_SPATIAL_MAX - 1 }; /* the axis whose elements are neighbours */

/* One row of the block: a channel and a tap of the kernel, the same for all its positions. */
struct row {
    const uint8_t *channel;
    int64_t first[QK_CONV_SPATIAL_MAX]; /* where position 0 looks, on each axis */
    size_t inside_begin, inside_end;    /* the positions of the last axis that look inside x */
};

/* The first o >= 0 with first + o * stride >= bound, at most out. */
static size_t first_reaching(const struct qk_conv_axis *axis, int64_t first, int64_t bound)
{
    if (first >= bound)
        return 0;
    int64_t o = (bound - first - 1) / axis->stride + 1;
    return (size_t)(o < axis->out ? o : axis->out);
}

static struct row locate_row(const struct qk_im2col *job, size_t k)
{
    const struct qk_conv_axis *axis = job->geometry->axis;
    struct row row;
    for (int i = LAST; i >= job->geometry->lead; i--) {
        int64_t tap = (int64_t)(k % (size_t)axis[i].kernel);
        k /= (size_t)axis[i].kernel;
        row.first[i] = tap * axis[i].dilation - axis[i].pad;
    }
    row.channel = job->x + k * job->geometry->channel_size;
    row.inside_begin = first_reaching(&axis[LAST], row.first[LAST], 0);
    row.inside_end = first_reaching(&axis[LAST], row.first[LAST], axis[LAST].in);
    return row;
}

static void fill(float value, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

/* The line of x that the positions with these outer coordinates look at; NULL: it is padding, as
 * all is around an empty x, some of whose axes may multiply beyond 63 bits. */
static const uint8_t *find_line(const struct qk_conv_geometry *geometry, const struct row *row,
                                const int64_t position[QK_CONV_SPATIAL_MAX])
{
    if (geometry->channel_size == 0)
        return NULL;
    int64_t line = 0;
    for (int i = geometry->lead; i < LAST; i++) {
        const struct qk_conv_axis *axis = &geometry->axis[i];
        int64_t in = row->first[i] + position[i] * axis->stride;
        if (in < 0 || in >= axis->in)
            return NULL;
        line = line * axis->in + in;
    }
    return row->channel + line * geometry->axis[LAST].in;
}

/* To the first position of the next line. */
static void advance(const struct qk_conv_geometry *geometry, int64_t position[QK_CONV_SPATIAL_MAX])
{
    position[LAST] = 0;
    for (int i = LAST - 1; i >= geometry->lead && ++position[i] == geometry->axis[i].out; i--)
        position[i] = 0;
}

/* Every second of 32 bytes; words are what compilers make vector code of. */
static inline void take_even(const uint8_t *from, uint8_t to[QK_WIDEN_CHUNK])
{
    uint16_t words[QK_WIDEN_CHUNK];
    memcpy(words, from, sizeof(words));
    for (size_t i = 0; i < QK_WIDEN_CHUNK; i++)
        to[i] = (uint8_t)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? words[i] : words[i] >> 8);
}

/* Elements 1 or 2 apart. A chunk may read more than there are, where x goes on, and write more,
 * which what comes behind overwrites: the next line, row, or in the end the sums. */
static void widen_elements(const struct qk_im2col *job, const uint8_t *from, size_t stride,
                           size_t count, float *to)
{
    if (stride == 1 && count >= QK_WIDEN_CHUNK) {
        qk_widen_row(job->widen, from, count, to);
        return;
    }
    for (; count > 0 && (size_t)(job->x_end - from) >= QK_WIDEN_CHUNK * stride;
         from += QK_WIDEN_CHUNK * stride, to += QK_WIDEN_CHUNK) {
        uint8_t even[QK_WIDEN_CHUNK];
        if (stride == 2)
            take_even(from, even);
        qk_widen_chunk(job->widen, stride == 2 ? even : from, to);
        count -= qk_size_min(count, QK_WIDEN_CHUNK);
    }
    for (size_t i = 0; i < count; i++)
        to[i] = (float)qk_widen_one(job->widen, from[i * stride]);
}

/* `count` positions from `begin` on, which are not 0 and look inside. */
static void write_inside(const struct qk_im2col *job, const struct row *row, const uint8_t *line,
                         size_t begin, size_t count, float *to)
{
    const int64_t stride = job->geometry->axis[LAST].stride;
    const uint8_t *from = line + (row->first[LAST] + (int64_t)begin * stride);
    if (stride <= 2)
        widen_elements(job, from, (size_t)stride, count, to);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = (float)qk_widen_one(job->widen, from[(int64_t)i * stride]);
}

/* Positions [begin, end) of one line: padding, inside, padding. */
static void write_line(const struct qk_im2col *job, const struct row *row, const uint8_t *line,
                       size_t begin, size_t end, float *to)
{
    size_t inside_begin = qk_size_min(row->inside_begin < begin ? begin : row->inside_begin, end);
    size_t inside_end =
        qk_size_min(row->inside_end < inside_begin ? inside_begin : row->inside_end, end);
    fill(job->fill, inside_begin - begin, to);
    to += inside_begin - begin;
    if (inside_begin < inside_end)
        write_inside(job, row, line, inside_begin, inside_end - inside_begin, to);
    fill(job->fill, end - inside_end, to + (inside_end - inside_begin));
}

static void write_row(const struct qk_im2col *job, const struct row *row,
                      const int64_t start[QK_CONV_SPATIAL_MAX], float *to)
{
    const struct qk_conv_geometry *geometry = job->geometry;
    const size_t line_size = (size_t)geometry->axis[LAST].out;
    int64_t position[QK_CONV_SPATIAL_MAX];
    memcpy(position, start, sizeof(position));
    size_t left = job->position_count;
    while (left > 0) {
        size_t at = (size_t)position[LAST];
        size_t count = qk_size_min(line_size - at, left);
        const uint8_t *line = find_line(geometry, row, position);
        if (line)
            write_line(job, row, line, at, at + count, to);
        else
            fill(job->fill, count, to);
        to += count;
        left -= count;
        advance(geometry, position);
    }
}

void qk_im2col_block(const struct qk_im2col *job)
{
    const struct qk_conv_axis *axis = job->geometry->axis;
    int64_t start[QK_CONV_SPATIAL_MAX] = {0};
    size_t position = job->position_begin;
    for (int i = LAST; i >= job->geometry->lead; i--) {
        start[i] = (int64_t)(position % (size_t)axis[i].out);
        position /= (size_t)axis[i].out;
    }
    for (size_t k = 0; k < job->k_count; k++) {
        struct row row = locate_row(job, job->k_begin + k);
        write_row(job, &row, start, job->block + k * job->row_stride);
    }
}
