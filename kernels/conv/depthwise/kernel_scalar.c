/* What a depthwise kernel computes, in plain C: every other one gives these bytes. It reads x and
 * the weights as they come, and needs neither cells nor a workspace. */
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/requantize.h"

/* The plane that a tap of the outer axes sees, or NULL: it is padding. */
static const uint8_t *find_plane(const struct qk_depthwise_job *job, const uint8_t *channel,
                                 size_t tap)
{
    size_t offset;
    return qk_conv_find_plane(job->geometry, job->outer, tap, &offset) ? channel + offset : NULL;
}

/* sum x * (w - zero_point) over a row of taps, where x and what is outside of it are made unsigned.
 * `line`: the row of x that they look at; NULL: it is outside. */
static uint32_t add_row(const struct qk_depthwise_job *job, const uint8_t *line,
                        const uint8_t *weights, int32_t zero_point, size_t column)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    uint32_t sum = 0;
    for (size_t tap = 0; tap < (size_t)axis->kernel; tap++) {
        const int64_t at = qk_conv_look(axis, column, tap);
        const bool inside = line && at >= 0 && at < axis->in;
        const int32_t x = (inside ? line[at] : job->fill) ^ job->flip;
        sum += (uint32_t)(x * ((int8_t)weights[tap] - zero_point));
    }
    return sum;
}

static uint32_t add_taps(const struct qk_depthwise_job *job, const uint8_t *channel,
                         const uint8_t *weights, int32_t zero_point, size_t row, size_t column)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_ROW];
    const size_t height = (size_t)axis->kernel;
    const size_t width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].kernel;
    uint32_t sum = 0;
    for (size_t tap = 0; tap < job->depth / width; tap++, weights += width) {
        const uint8_t *plane = find_plane(job, channel, tap / height);
        const int64_t at = qk_conv_look(axis, row, tap % height);
        const bool inside = plane && at >= 0 && at < axis->in;
        const uint8_t *line = inside ? plane + at * job->geometry->axis[QK_AXIS_COLUMN].in : NULL;
        sum += add_row(job, line, weights, zero_point, column);
    }
    return sum;
}

static void run(const struct qk_depthwise_job *job)
{
    const size_t y_width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].out;
    for (size_t m = 0; m < job->channels * job->multiplicity; m++) {
        const uint8_t *channel = job->x + m / job->multiplicity * job->geometry->channel_size;
        const uint8_t *weights = job->weights + m * job->depth;
        uint8_t *y = job->y + m * job->y_stride;
        for (size_t row = 0; row < job->rows; row++)
            for (size_t column = 0; column < job->columns; column++) {
                const uint32_t sum = add_taps(job, channel, weights, job->w_zero_point[m],
                                              job->row + row, job->column + column);
                y[row * y_width + column] = qk_requantize_one(
                    *job->requantize, (int32_t)(sum + (uint32_t)job->bias[m]), job->multiplier[m]);
            }
    }
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
    .run = run,
    .sum = sum_weights,
};
