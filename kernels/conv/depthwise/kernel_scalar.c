/* The reference of all depthwise kernels, in plain C: every other kernel gives the same bytes. It
 * reads x and the weights as they are stored, and needs neither quads nor a workspace. */
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/requantize.h"
#include "kernels/sizes.h"

enum { CHUNK = 64 };

/* Returns the row of x that row `tap_row` of taps reads for row `row` of y, or NULL if it is
 * outside x. `tap_row` counts over all outer taps. */
static const uint8_t *find_x_row(const struct qk_depthwise_job *job, const uint8_t *channel,
                                 size_t row, size_t tap_row)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_ROW];
    const size_t height = (size_t)axis->kernel;
    const int64_t at = qk_conv_input_index(axis, row, tap_row % height);
    size_t plane;
    if (!qk_conv_find_plane(job->geometry, job->outer, tap_row / height, &plane) || at < 0 ||
        at >= axis->in)
        return NULL;
    return channel + plane + at * job->geometry->axis[QK_AXIS_COLUMN].in;
}

/* Adds (x ^ turned) * weight to the sums of `count` columns from `column` on. `turned` is 0x80 if x
 * is INT8, and otherwise 0. x_row is NULL if the tap reads only padding. */
static void add_tap(const struct qk_depthwise_job *job, const uint8_t *x_row, size_t column,
                    size_t count, size_t tap_column, int32_t turned, int32_t weight,
                    uint32_t sums[CHUNK])
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const int32_t fill = job->fill;
    const uint64_t inside = x_row ? (uint64_t)axis->in : 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t at = (uint64_t)qk_conv_input_index(axis, column + i, tap_column);
        const int32_t x = at < inside ? x_row[at] : fill;
        sums[i] += (uint32_t)((x ^ turned) * weight);
    }
}

/* Computes up to CHUNK columns of a row of output channel m. Signed operands have their sign bits
 * flipped, which adds 128 to each. The products of these 128 are subtracted from the bias. */
static void run_chunk(const struct qk_depthwise_job *job, size_t m, size_t row, size_t column,
                      size_t count, uint8_t *y)
{
    const uint8_t *channel = job->x + m / job->multiplicity * job->geometry->channel_size;
    const uint8_t *weights = job->weights + m * job->depth;
    const size_t width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].kernel;
    const int32_t sign = job->x_signed ? 0x80 : 0;
    uint32_t bias = (uint32_t)job->bias[m];
    uint32_t sums[CHUNK] = {0};
    for (size_t tap = 0; tap < job->depth; tap++) {
        const int32_t weight = (int8_t)weights[tap] - job->w_zero_point[m];
        add_tap(job, find_x_row(job, channel, row, tap / width), column, count, tap % width,
                job->flip ^ sign, weight, sums);
        bias -= (uint32_t)(sign * weight);
    }
    for (size_t i = 0; i < count; i++)
        y[i] = qk_requantize_one(job->epilogue->requantize, (int32_t)(sums[i] + bias),
                                 job->multiplier[m]);
}

static void run(const struct qk_depthwise_job *job)
{
    const size_t y_width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].out;
    for (size_t m = 0; m < job->channels * job->multiplicity; m++)
        for (size_t row = 0; row < job->rows; row++)
            for (size_t column = 0; column < job->columns; column += CHUNK)
                run_chunk(job, m, job->row + row, job->column + column,
                          qk_size_min(job->columns - column, CHUNK),
                          job->y + m * job->y_stride + row * y_width + column);
}

static void sum_weights(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums)
{
    for (size_t m = 0; m < channels; m++) {
        uint32_t sum = 0;
        for (size_t i = 0; i < depth; i++) {
            const int32_t weight = (int8_t)weights[m * depth + i];
            sum += (uint32_t)weight;
        }
        sums[m] = (int32_t)sum;
    }
}

const struct qk_depthwise qk_depthwise_u8s8_1x1__scalar = {
    .kernel = "conv_depthwise_scalar",
    .load_bytes = QK_DEPTHWISE_BYTES,
    .cycles = 100,
    .run = {[QK_EPILOGUE_BYTES] = run},
    .sum = sum_weights,
};
