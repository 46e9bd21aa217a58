#include "kernels/floats/sums.h"

#include <string.h>

#include "kernels/element/load.h"

#define LANES 4
#define ROWS ((size_t)4)
#define GROUPS ((size_t)4)
#define ROWS_MAX (GROUPS * LANES)

/* Four floats, with any alignment. */
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static vector load(const void *x, size_t index)
{
    vector value;
    memcpy(&value, (const char *)x + index * sizeof(float), sizeof(value));
    return value;
}

static float add_lanes(vector lanes)
{
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

static float add_all(float sum, const void *x, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        sum += qk_load_f32(x, i);
    return sum;
}

static float pool_sum(const void *x, size_t count)
{
    const size_t whole = count - count % LANES;
    vector sum = {0};
    for (size_t i = 0; i < whole; i += LANES)
        sum += load(x, i);
    return add_all(add_lanes(sum), x, whole, count);
}

/* Adds up ROWS rows side by side, because each addition to a sum waits for the one before. */
static void pool_sums(const void *x, size_t count, float sums[ROWS])
{
    const size_t whole = count - count % LANES;
    vector a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < whole; i += LANES) {
        a += load(x, i);
        b += load(x, count + i);
        c += load(x, 2 * count + i);
        d += load(x, 3 * count + i);
    }
    sums[0] = add_all(add_lanes(a), x, whole, count);
    sums[1] = add_all(add_lanes(b), x, count + whole, 2 * count);
    sums[2] = add_all(add_lanes(c), x, 2 * count + whole, 3 * count);
    sums[3] = add_all(add_lanes(d), x, 3 * count + whole, 4 * count);
}

static vector low(vector a, vector b)
{
    return (vector){a[0], b[0], a[1], b[1]};
}

static vector high(vector a, vector b)
{
    return (vector){a[2], b[2], a[3], b[3]};
}

/* Adds up LANES rows for each of `groups` vectors of sums, which is 1 or GROUPS. The elements of
 * four rows are transposed, so that a vector has one element of each row. */
static inline void ordered_sums(const char *x, size_t count, size_t groups, float *sums)
{
    const size_t whole = count - count % LANES;
    const size_t pitch = count * sizeof(float);
    vector sum[GROUPS] = {{0}};
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < groups; k++) {
            const char *row = x + k * LANES * pitch;
            const vector a = load(row, i), b = load(row + pitch, i);
            const vector c = load(row + 2 * pitch, i), d = load(row + 3 * pitch, i);
            const vector ac = low(a, c), bd = low(b, d);
            const vector ac_high = high(a, c), bd_high = high(b, d);
            sum[k] += low(ac, bd);
            sum[k] += high(ac, bd);
            sum[k] += low(ac_high, bd_high);
            sum[k] += high(ac_high, bd_high);
        }
    for (size_t row = 0; row < groups * LANES; row++)
        sums[row] =
            add_all(sum[row / LANES][row % LANES], x, row * count + whole, (row + 1) * count);
}

static float aligned_sum(const void *x, size_t count, size_t index)
{
    const size_t before = (LANES - index % LANES) % LANES;
    const size_t begin = before < count ? before : count;
    const size_t whole = (count - begin) / LANES * LANES;
    const size_t twice = whole / (2 * LANES) * (2 * LANES);
    const size_t end = begin + whole;
    if (whole == 0)
        return add_all(qk_load_f32(x, 0), x, 1, count);
    vector sum = load(x, begin);
    if (twice > 0) {
        vector other = load(x, begin + LANES);
        for (size_t i = begin + 2 * LANES; i < begin + twice; i += 2 * LANES) {
            sum += load(x, i);
            other += load(x, i + LANES);
        }
        sum += other;
        if (whole > twice)
            sum += load(x, begin + twice);
    }
    return add_all(add_all(add_lanes(sum), x, 0, begin), x, end, count);
}

/* Returns how many rows are added up side by side. */
static size_t add_rows(enum qk_sum_kind kind, const char *x, size_t count, size_t rows,
                       size_t index, float sums[ROWS_MAX])
{
    if (kind == QK_SUM_IN_ORDER && rows >= ROWS_MAX) {
        ordered_sums(x, count, GROUPS, sums);
        return ROWS_MAX;
    }
    if (kind != QK_SUM_ALIGNED && rows >= ROWS) {
        if (kind == QK_SUM_POOL)
            pool_sums(x, count, sums);
        else
            ordered_sums(x, count, 1, sums);
        return ROWS;
    }
    sums[0] = kind == QK_SUM_POOL      ? pool_sum(x, count)
              : kind == QK_SUM_ALIGNED ? aligned_sum(x, count, index)
                                       : add_all(0, x, 0, count);
    return 1;
}

void qk_means(enum qk_sum_kind kind, const void *x, size_t count, size_t rows, size_t index,
              void *means)
{
    size_t step;
    for (size_t row = 0; row < rows; row += step) {
        float sums[ROWS_MAX];
        step = add_rows(kind, (const char *)x + row * count * sizeof(float), count, rows - row,
                        index + row * count, sums);
        for (size_t i = 0; i < step; i++) {
            const float mean = sums[i] / (float)count;
            memcpy((char *)means + (row + i) * sizeof(mean), &mean, sizeof(mean));
        }
    }
}
