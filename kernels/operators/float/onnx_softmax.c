/* onnx.Softmax of FP32, as networks end with it behind their last DequantizeLinear. One that lies
 * between DequantizeLinear and QuantizeLinear becomes com.microsoft.QLinearSoftmax
 * (network/fuse.c).
 *
 * The bits are those of ONNX Runtime on CPUs with AVX-512 (onnxruntime/core/mlas/lib/compute.cpp
 * and x86_64/TransKernelAvx512F.S): the exponentials of the differences from the largest element
 * are added in 16 lanes, and multiplied by the reciprocal of the sum. */
#include <float.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/floats/kernels.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/softmax_rows.h"
#include "kernels/sizes.h"

enum { INPUT };
enum { AXIS };

#define LANES 16
#define CHUNK (8 * LANES) /* elements whose exponentials one call of a kernel computes */
/* Neighbouring rows, of which a kernel computes one element each, and how many make that faster
 * than one row after the other. All sums of a block fit into the L1 cache. */
#define BLOCK 256
#define BLOCK_LEAST 16

struct instance {
    struct qk_instance base;
    struct qk_attribute axis;
    int64_t version;
};

struct state {
    const struct qk_float_kernels *kernels;
    struct qk_softmax_rows rows;
};

/* ---- Rows ---------------------------------------------------------------------------------- */

static void store(void *y, size_t index, float value)
{
    memcpy((char *)y + index * sizeof(value), &value, sizeof(value));
}

static float add_lanes(const float lanes[LANES])
{
    float half[LANES / 2];
    for (size_t i = 0; i < LANES / 2; i++)
        half[i] = lanes[i + LANES / 2] + lanes[i];
    return ((half[0] + half[1]) + (half[2] + half[3])) +
           ((half[4] + half[5]) + (half[6] + half[7]));
}

/* Writes the exponentials to y, and returns their sum. */
static float exponentials(const struct state *state, const void *x, void *y)
{
    static const float none[2] = {0};
    float lanes[LANES] = {0};
    float values[CHUNK];
    const size_t stride = state->rows.stride;
    const size_t length = state->rows.length;
    float largest = -FLT_MAX;
    for (size_t i = 0; i < length; i++) {
        const float value = qk_load_f32(x, i * stride);
        largest = value > largest ? value : largest;
    }
    for (size_t first = 0; first < length; first += CHUNK) {
        const size_t left = length - first;
        const size_t count = left < CHUNK ? left : CHUNK;
        float results[CHUNK];
        for (size_t i = 0; i < count; i++)
            values[i] = qk_load_f32(x, (first + i) * stride) - largest;
        state->kernels->unary[QK_FLOAT_exp](none, values, results, count);
        for (size_t i = 0; i < count; i++) {
            lanes[i % LANES] += results[i];
            store(y, (first + i) * stride, results[i]);
        }
    }
    return add_lanes(lanes);
}

static void compute_row(const struct state *state, const void *x, void *y)
{
    const float factor = 1.0F / exponentials(state, x, y);
    const size_t stride = state->rows.stride;
    for (size_t i = 0; i < state->rows.length; i++)
        store(y, i * stride, qk_load_f32(y, i * stride) * factor);
}

/* Adds `lanes` up in the order of add_lanes, into the first one. */
static void add_lanes_of_rows(qk_float_fold_fn add, float lanes[LANES][BLOCK], size_t count)
{
    for (size_t i = 0; i < LANES / 2; i++)
        add(lanes[i], lanes[i + LANES / 2], 1, 0, 1, count);
    for (size_t step = 1; step < LANES / 2; step *= 2)
        for (size_t i = 0; i < LANES / 2; i += 2 * step)
            add(lanes[i], lanes[i + step], 1, 0, 1, count);
}

/* Computes `count` neighbouring rows, with the operations of compute_row for each. */
static void compute_rows(const struct state *state, const uint8_t *x, uint8_t *y, size_t count)
{
    static const float none[2] = {0};
    static const float one = 1;
    const struct qk_float_kernels *kernels = state->kernels;
    const qk_float_fold_fn add = kernels->fold[QK_FLOAT_FOLD_ADD];
    const size_t stride = state->rows.stride;
    const size_t length = state->rows.length;
    const size_t step = stride * sizeof(float);
    float lanes[LANES][BLOCK];
    float values[BLOCK];
    float each[BLOCK]; /* the largest element of each row, and later the reciprocal of its sum */
    for (size_t i = 0; i < LANES; i++)
        memset(lanes[i], 0, count * sizeof(float));
    for (size_t row = 0; row < count; row++)
        each[row] = -FLT_MAX;
    kernels->fold[QK_FLOAT_FOLD_MAX_SCALAR](each, x, length, stride, 1, count);
    for (size_t i = 0; i < length; i++) {
        kernels->binary[QK_FLOAT_SUB][QK_BINARY_NONE_REPEATS](
            NULL, x + i * step, (const uint8_t *)each, (uint8_t *)values, count);
        kernels->unary[QK_FLOAT_exp](none, values, y + i * step, count);
    }
    for (size_t i = 0; i < LANES && i < length; i++)
        add(lanes[i], y + i * step, qk_divide_up(length - i, LANES), LANES * stride, 1, count);
    add_lanes_of_rows(add, lanes, count);
    kernels->binary[QK_FLOAT_DIV][QK_BINARY_FIRST_REPEATS](
        NULL, (const uint8_t *)&one, (const uint8_t *)lanes[0], (uint8_t *)each, count);
    for (size_t i = 0; i < length; i++) {
        kernels->binary[QK_FLOAT_MUL][QK_BINARY_NONE_REPEATS](
            NULL, y + i * step, (const uint8_t *)each, (uint8_t *)values, count);
        memcpy(y + i * step, values, count * sizeof(float));
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->rows.unit : state->rows.count;
    (void)workspace;
    for (size_t row = begin * state->rows.unit, count; row < last; row += count) {
        const size_t at = qk_softmax_row_start(&state->rows, row);
        const size_t neighbours =
            qk_size_min(last - row, state->rows.stride - row % state->rows.stride);
        count = neighbours < BLOCK_LEAST ? 1 : qk_size_min(neighbours, BLOCK);
        const uint8_t *x = (const uint8_t *)inputs[INPUT] + at * sizeof(float);
        uint8_t *y = (uint8_t *)outputs[0] + at * sizeof(float);
        count == 1 ? compute_row(state, x, y) : compute_rows(state, x, y, count);
    }
}

/* ---- Prepare and plan ---------------------------------------------------------------------- */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    (void)kernels;
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {QK_FP32}},
        .axis = call->attributes[AXIS],
        .version = call->version->number,
    };
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const struct qk_float_kernels *kernels = instance->kernels->floats;
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[INPUT];
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const enum qk_status status =
        qk_softmax_rows_find(&made->axis, made->version, x, &state->rows, error);
    if (status != QK_OK)
        return status;
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = x->count * sizeof(float); /* as many bytes as x has */
    plan->kernel = "softmax";
    plan->run = run;
    plan->state = state;
    state->kernels = kernels;
    /* In a single row, the maximum, the lanes and the product take about as long as the
     * exponential. */
    const double passes = state->rows.stride < BLOCK_LEAST ? 2 : 1;
    const double cycles = passes * kernels->element_cycles * kernels->costs[QK_FLOAT_exp];
    state->rows.unit = qk_set_units(
        state->rows.count, cycles * tuning->cycle_ns * (double)state->rows.length, tuning, plan);
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(since)                                                             \
    {                                                                              \
        .number = (since), .inputs = {{QK_BIT(QK_FP32), false}}, .output_types = { \
            QK_BIT(QK_FP32)                                                        \
        }                                                                          \
    }

static const struct qk_version versions[] = {VERSION(1), VERSION(11), VERSION(13)};

static const struct qk_attribute_def attributes[] = {
    [AXIS] =
        QK_ATTRIBUTE("axis", INT, 1,
                     "the axis of the softmax, from -rank to rank-1; before version 13 the first "
                     "of its axes; default -1, and 1 before version 13"),
};

const struct qk_operator qk_onnx_softmax = {
    .name = "onnx.Softmax",
    .platform = QK_ONNX_PLATFORM,
    .about = "exp(input) divided by its sum over an axis",
    .inputs = {{"input", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "as input"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
