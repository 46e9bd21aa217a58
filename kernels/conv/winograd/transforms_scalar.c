#include "kernels/conv/winograd/winograd.h"

#include <string.h>

#include "kernels/wrap.h"

/* ---- x ----------------------------------------------------------------------------------- */

/* Computes B^T of 4 elements that are `stride` apart, in place. */
static void transform_4(int32_t *d, size_t stride)
{
    const int32_t a = d[0], b = d[stride], c = d[2 * stride], e = d[3 * stride];
    d[0] = a - c;
    d[stride] = b + c;
    d[2 * stride] = c - b;
    d[3 * stride] = b - e;
}

static void transform_tile(const struct qk_winograd_x *job, size_t channel, size_t row,
                           size_t column, int32_t d[QK_WINOGRAD_POINTS])
{
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            const uint8_t byte = job->x[channel][(2 * row + i) * job->row_bytes + 2 * column + j];
            d[4 * i + j] = (uint8_t)(byte ^ job->flip) - job->x_zero_point;
        }
    for (size_t i = 0; i < 4; i++)
        transform_4(d + 4 * i, 1);
    for (size_t j = 0; j < 4; j++)
        transform_4(d + j, 4);
}

void qk_winograd_x_scalar(const struct qk_winograd_x *job)
{
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j++) {
            uint8_t *to = job->quads + (i * job->tile_columns + j) * QK_IGEMM_QUAD_BYTES;
            int32_t d[2][QK_WINOGRAD_POINTS];
            for (size_t channel = 0; channel < 2; channel++)
                transform_tile(job, channel, i, j, d[channel]);
            for (size_t point = 0; point < QK_WINOGRAD_POINTS; point++) {
                const int16_t quad[2] = {(int16_t)d[0][point], (int16_t)d[1][point]};
                memcpy(to + point * job->point_bytes, quad, sizeof(quad));
            }
        }
}

/* ---- Weights ----------------------------------------------------------------------------- */

/* Computes 2G of 3 elements that are `stride` apart. The results are to_stride apart. */
static void double_3(const int32_t *g, size_t stride, int32_t *to, size_t to_stride)
{
    to[0] = 2 * g[0];
    to[to_stride] = g[0] + g[stride] + g[2 * stride];
    to[2 * to_stride] = g[0] - g[stride] + g[2 * stride];
    to[3 * to_stride] = 2 * g[2 * stride];
}

void qk_winograd_weights_scalar(const int8_t *weights, size_t count, int16_t *to)
{
    for (size_t at = 0; at < count; at++) {
        int32_t g[QK_WINOGRAD_TAPS], columns[12], u[QK_WINOGRAD_POINTS];
        for (size_t tap = 0; tap < QK_WINOGRAD_TAPS; tap++)
            g[tap] = weights[tap * count + at];
        for (size_t j = 0; j < 3; j++)
            double_3(g + j, 3, columns + j, 3);
        for (size_t i = 0; i < 4; i++)
            double_3(columns + 3 * i, 1, u + 4 * i, 1);
        for (size_t point = 0; point < QK_WINOGRAD_POINTS; point++)
            to[point * count + at] = (int16_t)u[point];
    }
}

/* ---- Sums -------------------------------------------------------------------------------- */

/* Computes A^T of 4 numbers that are `stride` apart, in place. */
QK_WRAPS static void sum_4(uint32_t *m, size_t stride)
{
    const uint32_t a = m[0], b = m[stride], c = m[2 * stride], d = m[3 * stride];
    m[0] = a + b + c;
    m[stride] = b - c - d;
}

void qk_winograd_sums_scalar(const struct qk_winograd_sums *job)
{
    const size_t pitch = QK_WINOGRAD_PITCH(job->tile_columns);
    for (size_t row = 0; row < job->rows; row++)
        for (size_t t = 0; t < job->tile_rows * job->tile_columns; t++) {
            const size_t first = t / job->tile_columns * 2 * pitch + t % job->tile_columns * 2;
            uint32_t m[QK_WINOGRAD_POINTS];
            for (size_t point = 0; point < QK_WINOGRAD_POINTS; point++)
                m[point] = (uint32_t)job->products[(point * job->mr + row) * QK_IGEMM_NR + t];
            for (size_t i = 0; i < 4; i++)
                sum_4(m + 4 * i, 1);
            for (size_t j = 0; j < 2; j++)
                sum_4(m + j, 4);
            for (size_t i = 0; i < 4; i++) {
                const size_t at = first + i / 2 * pitch + i % 2;
                job->sums[(at / QK_IGEMM_NR * job->mr + row) * QK_IGEMM_NR + at % QK_IGEMM_NR] =
                    (int32_t)m[i / 2 * 4 + i % 2] >> 2;
            }
        }
}
