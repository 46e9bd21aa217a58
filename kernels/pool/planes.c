#include "kernels/pool/planes.h"

/* Bytes of scratch memory that the rows of a band take, at most. Maxima read and write all of it
 * twice, so it is a part of the L1 cache. Averages read each element as often as there are taps,
 * and neighbouring bands dequantize some rows twice. */
#define MAX_BYTES ((size_t)16384)
#define AVERAGE_BYTES ((size_t)65536)

/* Elements beyond the last row that vectors may touch. */
#define SLACK QK_POOL_ROUND

/* Rows begin at cache lines. */
#define LINE ((size_t)64)

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round_up(size_t count, size_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

static bool is_small(const struct qk_pool_axis *axis)
{
    return axis->kernel <= QK_POOL_KERNEL_MAX && axis->stride <= QK_POOL_STRIDE_MAX &&
           axis->dilation <= QK_POOL_REACH_MAX &&
           (axis->kernel - 1) * axis->dilation <= QK_POOL_REACH_MAX &&
           axis->pad <= QK_POOL_REACH_MAX && axis->pad >= -QK_POOL_REACH_MAX && axis->out > 0;
}

bool qk_pool_planes_init(struct qk_pool_planes *planes, const struct qk_pool_geometry *geometry,
                         bool average)
{
    const struct qk_pool_axis *depth = &geometry->axis[0];
    const struct qk_pool_axis *row = &geometry->axis[1];
    const struct qk_pool_axis *column = &geometry->axis[QK_POOL_COLUMN];
    if (geometry->inner != 1 || depth->kernel != 1 || depth->stride != 1 || depth->pad != 0 ||
        depth->out != depth->in || !is_small(row) || !is_small(column) ||
        column->in > QK_POOL_COLUMNS_MAX || column->out > QK_POOL_COLUMNS_MAX)
        return false;
    *planes = (struct qk_pool_planes){.row = *row, .column = *column};
    planes->lead = column->pad > 0 ? (size_t)column->pad : 0;
    const size_t stride = (size_t)column->stride;
    const size_t skipped = column->pad < 0 ? (size_t)-column->pad : 0;
    const size_t read = skipped + ((size_t)column->out - 1) * stride +
                        (size_t)(column->kernel - 1) * (size_t)column->dilation + 1;
    /* A row that is shorter than a vector is written as one: of 32 bytes or, with a phase for each
     * of two columns, of 32 floats with as many zeros behind them. */
    const size_t vector = average ? QK_POOL_ROUND : QK_POOL_ROUND / 2;
    const size_t width = more(planes->lead + more((size_t)column->in, vector), read);
    const size_t out = (size_t)row->out;
    if (!average) {
        planes->pitch = round_up(width, LINE);
        planes->rows = MAX_BYTES / planes->pitch;
        if (planes->rows == 0)
            return false;
        planes->band = planes->rows < out ? planes->rows : out;
        planes->scratch = planes->rows * planes->pitch + SLACK;
        return true;
    }
    planes->phase = round_up((width - 1) / stride + 1, LINE / sizeof(float));
    planes->pitch = planes->phase * stride;
    const size_t rows = AVERAGE_BYTES / sizeof(float) / planes->pitch;
    const size_t span = (size_t)(row->kernel - 1) * (size_t)row->dilation + 1;
    if (rows < span)
        return false;
    planes->band = (rows - span) / (size_t)row->stride + 1;
    planes->band = planes->band < out ? planes->band : out;
    const size_t used = (planes->band - 1) * (size_t)row->stride + span;
    planes->scratch =
        (used * planes->pitch + round_up((size_t)column->out, SLACK) + 2 * SLACK) * sizeof(float);
    return true;
}

bool qk_pool_is_tame(float x_scale, float y_scale)
{
    const float least = 0x1p-30F;
    const float most = 0x1p30F;
    return x_scale >= least && x_scale <= most && y_scale >= least && y_scale <= most &&
           x_scale <= y_scale * 0x1p20F;
}
