/* Convolutions by sgemm. Weights are packed as floats, less their zero points. y is cut into tiles.
 * Each tile takes one product of floats for each K block, whose sums are exact integers. */
#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/sgemm/im2col_kernels.h"
#include "kernels/conv/widen.h"
#include "kernels/sizes.h"
#include "kernels/wrap.h"

/* ---- Pack -------------------------------------------------------------------------------- */

/* Rough guesses: the cycles that packing one weight takes, and the cycles that everything else of
 * an output channel takes. */
#define WEIGHT_CYCLES 0.8
#define CHANNEL_CYCLES 8.0

/* Returns the number that is subtracted from x, so that |x| <= 128. */
static int32_t centre_of(enum qk_type type)
{
    return type == QK_UINT8 ? 128 : 0;
}

/* Returns the length of a K block. Floats add up the terms of a K block exactly, even if each |x|
 * is 128 and each |w - w_zp| is the largest possible. K is cut into as few K blocks as possible, of
 * about the same length. The loop goes over the zero points that are in memory, not over the output
 * channels: if there are no weights, a shape may claim any number of channels. */
static size_t choose_k_block(const struct qk_conv *conv)
{
    const struct qk_type_info *info = qk_type_info(conv->constants.w_type);
    int64_t largest = 128;
    for (size_t i = 0; i < conv->constants.w_zero_point_count; i++) {
        int64_t zero_point = qk_w_zero_point(conv, i);
        int64_t above = info->max - zero_point;
        int64_t below = zero_point - info->min;
        largest = above > largest ? above : largest;
        largest = below > largest ? below : largest;
    }
    return qk_even_part(conv->depth, QK_SGEMM_EXACT_K * 128 / (size_t)largest);
}

static bool prepare(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    conv->sgemm = (struct qk_conv_sgemm){
        .x_centre = centre_of(conv->x_type),
        .x_fill = conv->x_zero_point - centre_of(conv->x_type),
        .k_block = choose_k_block(conv),
        .weights = qk_conv_alloc(memory, conv->constants.w_count, sizeof(float)),
    };
    conv->packing.items = conv->desc.out_channels;
    *item_cycles =
        CHANNEL_CYCLES + (conv->constants.w_count == 0 ? 0 : WEIGHT_CYCLES * (double)conv->depth);
    return conv->sgemm.weights != NULL;
}

/* Packs the weights of one output channel, which are a row in each K block of its group. */
static void pack_row(const struct qk_conv *conv, size_t m)
{
    const size_t k_block = conv->sgemm.k_block;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const uint8_t *w = conv->constants.w + m * conv->depth;
    const struct qk_widen widen = qk_widen_from(conv->constants.w_type, qk_w_zero_point(conv, m));
    float *group = conv->sgemm.weights + m / rows * rows * conv->depth;
    for (size_t begin = 0; begin < conv->depth; begin += k_block) {
        const size_t left = conv->depth - begin;
        const size_t count = left < k_block ? left : k_block;
        qk_widen_row(widen, w + begin, count, group + rows * begin + m % rows * count);
    }
}

static void pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const bool empty = conv->constants.w_count == 0;
    for (size_t m = begin; m < end; m++) {
        if (!empty)
            pack_row(conv, m);
        conv->bias[m] = empty ? 0 : qk_conv_weight_sum(conv, m);
    }
    qk_conv_pack_channels(conv, conv->sgemm.x_fill, begin, end);
}

/* ---- Plan and run ------------------------------------------------------------------------ */

/* A unit is one tile, which usually has at most this many output channels and positions. */
#define TILE_ROWS 256
#define TILE_COLUMNS 2048
/* Each part of the workspace has at most the tuning's sgemm_floats. The parts are one K block of
 * the im2col matrix, the sums of this K block, and the sums of all K blocks before it. */

/* The floats of a cache line. Rows of floats begin on cache lines. */
#define LINE_FLOATS 16

/* y is not cut into tiles of fewer columns than this, even for short units, because sgemm slows
 * down with fewer. */
#define TILE_COLUMNS_LEAST 96

struct state {
    const struct qk_conv *conv;
    const struct qk_epilogue *epilogue;
    const struct qk_openblas *openblas;
    const struct qk_im2col_kernels *im2col;
    struct qk_conv_geometry geometry;
    size_t rows;         /* output channels of a group */
    size_t tile_rows;    /* output channels of a full tile; the last tile may have fewer */
    size_t tile_columns; /* positions of a full tile; a multiple of LINE_FLOATS, as stride is */
    size_t stride;       /* floats from one row to the next */
    size_t row_tiles;    /* tiles of one image and group */
    size_t column_tiles;
};

struct tile {
    size_t image, group;
    size_t row_begin, row_count; /* output channels of the group */
    size_t position_begin, position_count;
};

/* The tensors of a run, and the parts of the workspace. `carried` is NULL if K has only one block.
 * `bias` has room for the biases of a tile. */
struct work {
    const uint8_t *x;
    uint8_t *y;
    int32_t x_fill; /* the value of padding: x's zero point less x_centre */
    float *matrix;
    float *sums;
    int32_t *carried;
    int32_t *bias;
};

static struct tile locate_tile(const struct state *state, size_t unit)
{
    struct tile tile;
    tile.position_begin = unit % state->column_tiles * state->tile_columns;
    unit /= state->column_tiles;
    tile.row_begin = unit % state->row_tiles * state->tile_rows;
    unit /= state->row_tiles;
    tile.group = unit % state->conv->desc.group;
    tile.image = unit / state->conv->desc.group;
    tile.row_count = qk_size_min(state->rows - tile.row_begin, state->tile_rows);
    tile.position_count =
        qk_size_min(state->geometry.positions - tile.position_begin, state->tile_columns);
    return tile;
}

static void multiply_k_block(const struct state *state, const struct tile *tile,
                             const struct work *work, size_t k_begin, size_t k_count)
{
    const struct qk_conv *conv = state->conv;
    const size_t stride = state->stride;
    const size_t channels = conv->desc.group * conv->desc.group_channels;
    const size_t image_stride = channels * state->geometry.channel_size;
    state->im2col->im2col(&(struct qk_im2col){
        .geometry = &state->geometry,
        .x = work->x + tile->image * image_stride +
             tile->group * conv->desc.group_channels * state->geometry.channel_stride,
        .x_end = work->x + state->geometry.images * image_stride,
        .widen = qk_widen_from(conv->x_type, conv->sgemm.x_centre),
        .fill = (float)work->x_fill,
        .taps = conv->depth / conv->desc.group_channels,
        .k_begin = k_begin,
        .k_count = k_count,
        .position_begin = tile->position_begin,
        .position_count = tile->position_count,
        .matrix = work->matrix,
        .row_stride = stride,
    });
    const float *group = conv->sgemm.weights + tile->group * state->rows * conv->depth;
    /* All numbers here are at most QK_SGEMM_EXACT_K or a side of a tile, so they fit in an int. */
    qk_openblas_sgemm(state->openblas,
                      &(struct qk_sgemm_args){
                          .m = (int)tile->row_count,
                          .n = (int)tile->position_count,
                          .k = (int)k_count,
                          .a = group + state->rows * k_begin + tile->row_begin * k_count,
                          .b = work->matrix,
                          .c = work->sums,
                          .lda = (int)k_count,
                          .ldb = (int)stride,
                          .ldc = (int)stride,
                      });
}

QK_WRAPS static inline void carry_one(float sum, int32_t *carried)
{
    *carried = (int32_t)((uint32_t)*carried + (uint32_t)(int32_t)sum);
}

/* Adds sums to `carried`, modulo 2^32. At -O2 compilers vectorize only inner loops of a constant
 * length. */
static void carry(const float *restrict sums, size_t count, int32_t *restrict carried)
{
    size_t i = 0;
    for (; count - i >= LINE_FLOATS; i += LINE_FLOATS)
        for (size_t j = 0; j < LINE_FLOATS; j++)
            carry_one(sums[i + j], &carried[i + j]);
    for (; i < count; i++)
        carry_one(sums[i], &carried[i]);
}

static void run_tile(const struct state *state, const struct tile *tile, const struct work *work)
{
    const struct qk_conv *conv = state->conv;
    const size_t stride = state->stride;
    const size_t channel = tile->group * state->rows + tile->row_begin;

    if (conv->depth == 0) /* there are no channels to add up */
        memset(work->sums, 0, tile->row_count * stride * sizeof(*work->sums));
    if (work->carried)
        memset(work->carried, 0, tile->row_count * stride * sizeof(*work->carried));
    for (size_t k = 0; k < conv->depth; k += conv->sgemm.k_block) {
        multiply_k_block(state, tile, work, k, qk_size_min(conv->depth - k, conv->sgemm.k_block));
        if (conv->depth - k <= conv->sgemm.k_block)
            break; /* the epilogue adds the last K block */
        for (size_t row = 0; row < tile->row_count; row++)
            carry(work->sums + row * stride, tile->position_count, work->carried + row * stride);
    }
    const size_t channels = conv->desc.out_channels;
    const size_t positions = state->geometry.positions;
    const bool last = conv->desc.channels_last;
    const size_t first =
        last ? (tile->image * positions + tile->position_begin) * channels + channel
             : (tile->image * channels + channel) * positions + tile->position_begin;
    const struct qk_epilogue_floats job = {
        .epilogue = state->epilogue,
        .rows = tile->row_count,
        .columns = tile->position_count,
        .sums = work->sums,
        .carried = work->carried,
        .stride = stride,
        .bias = qk_conv_bias(conv, work->x_fill, channel, tile->row_count, work->bias),
        .multiplier = state->epilogue->multiplier + channel,
        .y = work->y + first * state->epilogue->y_bytes,
        .y_stride = last ? 1 : positions,
        .position_stride = last ? channels : 1,
    };
    if (last)
        qk_im2col_epilogue_scalar(&job);
    else
        state->im2col->epilogues[state->epilogue->kind](&job);
}

/* The sizes of the parts of a workspace, in floats. Carried sums take as much room as sums. */
static size_t matrix_floats(const struct state *state)
{
    return state->conv->sgemm.k_block * state->stride;
}

static size_t sum_floats(const struct state *state)
{
    return state->tile_rows * state->stride;
}

static bool carries(const struct state *state)
{
    return state->conv->depth > state->conv->sgemm.k_block;
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    struct work work = {.x = qk_conv_x(inputs), .y = outputs[0], .matrix = workspace};
    work.x_fill = qk_conv_x_zero_point(state->conv, inputs) - state->conv->sgemm.x_centre;
    work.sums = work.matrix + matrix_floats(state);
    if (carries(state))
        work.carried = (int32_t *)workspace + matrix_floats(state) + sum_floats(state);
    work.bias =
        (int32_t *)workspace + matrix_floats(state) + sum_floats(state) * (carries(state) ? 2 : 1);
    for (size_t unit = begin; unit < end; unit++) {
        struct tile tile = locate_tile(state, unit);
        run_tile(state, &tile, &work);
    }
}

static void choose_tiles(struct state *state)
{
    const struct qk_conv *conv = state->conv;
    const size_t unit_terms = conv->tuning->sgemm_unit_terms;
    const size_t floats = conv->tuning->sgemm_floats;
    const size_t positions = qk_size_max(state->geometry.positions, 1);
    /* If there are few positions, a tile may have more rows than TILE_ROWS, because each tile makes
     * its im2col matrix again. */
    const size_t few = qk_divide_up(qk_size_min(positions, TILE_COLUMNS_LEAST), LINE_FLOATS);
    const size_t quick_rows = unit_terms / qk_size_max(conv->depth, 1) / (few * LINE_FLOATS);
    const size_t fit_rows = floats / (few * LINE_FLOATS + QK_IM2COL_SLACK);
    state->tile_rows =
        qk_even_part(state->rows, qk_size_max(qk_size_min(quick_rows, fit_rows), TILE_ROWS));
    size_t most = floats / qk_size_max(conv->sgemm.k_block, state->tile_rows) - QK_IM2COL_SLACK;
    most = qk_size_min(most, TILE_COLUMNS);
    size_t quick = unit_terms / qk_size_max(conv->depth * state->tile_rows, 1);
    most = qk_size_min(most, qk_size_max(quick, TILE_COLUMNS_LEAST)) / LINE_FLOATS * LINE_FLOATS;
    state->tile_columns =
        qk_divide_up(qk_even_part(state->geometry.positions, most), LINE_FLOATS) * LINE_FLOATS;
    state->stride = state->tile_columns + QK_IM2COL_SLACK;
    state->row_tiles = qk_divide_up(state->rows, state->tile_rows);
    state->column_tiles = qk_divide_up(state->geometry.positions, state->tile_columns);
}

/* Returns a rough guess of the time of one unit. Returns 0 if there are no output channels: then
 * there are no units, and nothing in memory bounds the depth. */
static uint64_t guess_unit_ns(const struct state *state)
{
    if (state->rows == 0)
        return 0;
    const struct qk_conv_tuning *tuning = state->conv->tuning;
    double depth = (double)state->conv->depth;
    double columns = (double)state->tile_columns;
    double rows = (double)state->tile_rows;
    return (uint64_t)(columns *
                      (depth * rows / tuning->sgemm_terms_per_ns + depth / tuning->im2col_per_ns +
                       rows / tuning->requantized_per_ns)) +
           1;
}

static bool make_plan(const struct qk_conv_plan_args *args, struct qk_memory memory,
                      struct qk_plan *plan)
{
    const struct qk_conv *conv = args->conv;
    struct state *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    *state = (struct state){
        .conv = conv,
        .epilogue = args->epilogue,
        .openblas = args->openblas,
        .im2col = args->im2col,
        .geometry = *args->geometry,
        .rows = conv->desc.out_channels / conv->desc.group,
    };
    qk_conv_geometry_squeeze(&state->geometry, 1);
    qk_conv_geometry_interleave(&state->geometry, &conv->desc);
    choose_tiles(state);
    /* Without weights no product is ever computed. */
    plan->kernel = conv->depth == 0 || state->rows == 0 ? "conv_without_weights" : "conv_sgemm";
    plan->workspace_bytes =
        (matrix_floats(state) + sum_floats(state) * (carries(state) ? 2 : 1) + state->tile_rows) *
        sizeof(float);
    /* This cannot overflow: there is at most one unit for each byte of output. */
    plan->unit_count = plan->outputs[0].count == 0 ? 0
                                                   : state->geometry.images * conv->desc.group *
                                                         state->row_tiles * state->column_tiles;
    plan->unit_cost_ns = guess_unit_ns(state);
    plan->run = run;
    plan->state = state;
    return true;
}

const struct qk_conv_algorithm qk_conv_algorithm_sgemm = {
    .prepare = prepare,
    .pack = pack,
    .plan = make_plan,
};
