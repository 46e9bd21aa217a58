#include "kernels/floats/sums.h"

#include <string.h>

#include "kernels/element/load.h"

#define LANES 4
#define ROWS ((size_t)4)

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

void qk_means(enum qk_sum_kind kind, const void *x, size_t count, size_t rows, size_t index,
              void *means)
{
    const char *from = x;
    size_t step;
    for (size_t row = 0; row < rows; row += step, from += step * count * sizeof(float)) {
        float sums[ROWS];
        step = kind == QK_SUM_POOL && rows - row >= ROWS ? ROWS : 1;
        if (step == ROWS)
            pool_sums(from, count, sums);
        else
            sums[0] = kind == QK_SUM_POOL ? pool_sum(from, count)
                                          : aligned_sum(from, count, index + row * count);
        for (size_t i = 0; i < step; i++) {
            const float mean = sums[i] / (float)count;
            memcpy((char *)means + (row + i) * sizeof(mean), &mean, sizeof(mean));
        }
    }
}
