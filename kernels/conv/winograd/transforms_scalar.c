#include "kernels/conv/winograd/winograd.h"

#include <string.h>

#include "kernels/wrap.h"

enum { SIDE_MAX = 6, INVERSE_OF_9 = 0x38E38E39 };

/* Multiplies a matrix of `rows` x `columns` by a vector of numbers that are `stride` apart. The
 * results are to_stride apart, and may overwrite the vector. */
QK_WRAPS static void apply(const int8_t *matrix, size_t rows, size_t columns, const uint32_t *from,
                           size_t stride, uint32_t *to, size_t to_stride)
{
    uint32_t made[SIDE_MAX];
    for (size_t i = 0; i < rows; i++) {
        made[i] = 0;
        for (size_t j = 0; j < columns; j++)
            made[i] += (uint32_t)(int32_t)matrix[i * columns + j] * from[j * stride];
    }
    for (size_t i = 0; i < rows; i++)
        to[i * to_stride] = made[i];
}

/* Multiplies by the matrix from the left, and by its transpose from the right. `from` is a square
 * of columns x columns, and `to` a square of rows x rows. */
static void apply_twice(const int8_t *matrix, size_t rows, size_t columns, const uint32_t *from,
                        uint32_t *to)
{
    uint32_t half[SIDE_MAX * SIDE_MAX];
    for (size_t i = 0; i < columns; i++)
        apply(matrix, rows, columns, from + i, columns, half + i, columns);
    for (size_t i = 0; i < rows; i++)
        apply(matrix, rows, columns, half + i * columns, 1, to + i * rows, 1);
}

/* ---- x ----------------------------------------------------------------------------------- */

static const int8_t x_2[] = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1};
static const int8_t x_4[] = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
                             0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1};

static void transform_tile(size_t n, const struct qk_winograd_x *job, const uint8_t *x,
                           uint32_t d[QK_WINOGRAD_POINTS_MAX])
{
    const size_t side = n + 2;
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            const uint8_t byte = x[i * job->row_bytes + j];
            d[side * i + j] = (uint32_t)((uint8_t)(byte ^ job->flip) - QK_WINOGRAD_X_CENTRE);
        }
    apply_twice(n == 2 ? x_2 : x_4, side, side, d, d);
}

void qk_winograd_x_scalar(size_t n, const struct qk_winograd_x *job)
{
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j++) {
            uint8_t *to = job->quads + (i * job->tile_columns + j) * QK_IGEMM_QUAD_BYTES;
            uint32_t d[2][QK_WINOGRAD_POINTS_MAX];
            for (size_t channel = 0; channel < 2; channel++)
                transform_tile(n, job, job->x[channel] + n * i * job->row_bytes + n * j,
                               d[channel]);
            for (size_t point = 0; point < (n + 2) * (n + 2); point++) {
                const uint16_t quad[2] = {(uint16_t)d[0][point], (uint16_t)d[1][point]};
                memcpy(to + point * job->point_bytes, quad, sizeof(quad));
            }
        }
}

/* ---- Weights ----------------------------------------------------------------------------- */

void qk_winograd_weights_scalar(size_t n, const int8_t *weights, size_t count, int16_t *to,
                                size_t to_stride)
{
    static const int8_t matrix_2[] = {2, 0, 0, 1, 1, 1, 1, -1, 1, 0, 0, 2};
    static const int8_t matrix_4[] = {1, 0, 0, 1, 1, 1, 1, -1, 1, 1, 2, 4, 1, -2, 4, 0, 0, 1};
    for (size_t at = 0; at < count; at++) {
        uint32_t g[QK_WINOGRAD_TAPS], u[QK_WINOGRAD_POINTS_MAX];
        for (size_t tap = 0; tap < QK_WINOGRAD_TAPS; tap++)
            g[tap] = (uint32_t)weights[tap * count + at];
        apply_twice(n == 2 ? matrix_2 : matrix_4, n + 2, 3, g, u);
        for (size_t point = 0; point < (n + 2) * (n + 2); point++)
            to[point * to_stride + at] = (int16_t)u[point];
    }
}

struct qk_winograd_row qk_winograd_row_scalar(const uint8_t *weights, size_t count, uint8_t flip)
{
    struct qk_winograd_row row = {0, 0};
    for (size_t i = 0; i < count; i++) {
        const int32_t weight = (int8_t)(weights[i] ^ flip);
        row.sum += weight;
        row.size += (uint32_t)(weight < 0 ? -weight : weight);
    }
    return row;
}

/* ---- Sums -------------------------------------------------------------------------------- */

/* The matrices A^T F, with rows that are divided by powers of 2, and how many more powers of 2
 * their results still are too large by. */
static const int8_t sums_2[] = {1, 1, 1, 0, 0, 1, -1, -1};
static const int8_t sums_4[] = {6, -4, -4, 1, 1, 0, 0, -2, 2, 1, -1, 0,
                                0, -1, -1, 1, 1, 0, 0, -1, 1, 2, -2, 6};
static const uint8_t shifts_2[] = {1, 1};
static const uint8_t shifts_4[] = {3, 2, 1, 1};

QK_WRAPS static int32_t divide(size_t n, uint32_t sum, size_t row, size_t column)
{
    const uint8_t *shifts = n == 2 ? shifts_2 : shifts_4;
    return (int32_t)(n == 2 ? sum : sum * INVERSE_OF_9) >> (shifts[row] + shifts[column]);
}

/* Returns the index of a sum in tiles of `nr` positions that follow each other. */
static size_t sum_at(const struct qk_igemm *igemm, size_t nr, size_t row, size_t position)
{
    const size_t tile = position / nr, column = position % nr;
    return igemm->by_position ? (tile * nr + column) * igemm->mr + row
                              : (tile * igemm->mr + row) * nr + column;
}

void qk_winograd_sums_scalar(size_t n, const struct qk_winograd_sums *job)
{
    const struct qk_igemm *igemm = job->igemm;
    const size_t nr = igemm->by_position ? igemm->nr : QK_IGEMM_NR;
    const size_t pitch =
        igemm->by_position ? n * job->tile_columns : QK_WINOGRAD_PITCH(n, job->tile_columns);
    for (size_t row = 0; row < job->rows; row++)
        for (size_t t = 0; t < job->tile_rows * job->tile_columns; t++) {
            const size_t first = t / job->tile_columns * n * pitch + t % job->tile_columns * n;
            uint32_t m[QK_WINOGRAD_POINTS_MAX], y[16];
            for (size_t point = 0; point < (n + 2) * (n + 2); point++)
                m[point] =
                    (uint32_t)job->products[point * igemm->mr * nr + sum_at(igemm, nr, row, t)];
            apply_twice(n == 2 ? sums_2 : sums_4, n, n + 2, m, y);
            for (size_t i = 0; i < n * n; i++)
                job->sums[sum_at(igemm, nr, row, first + i / n * pitch + i % n)] =
                    divide(n, y[i], i / n, i % n);
        }
}
