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

enum { INPUT };
enum { AXIS };

#define LANES 16
#define CHUNK (8 * LANES) /* elements whose exponentials one call of a kernel computes */

struct instance {
    struct qk_instance base;
    struct qk_attribute axis;
    int64_t version;
};

struct state {
    qk_float_unary_fn exp;
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
        state->exp(none, values, results, count);
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

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->rows.unit : state->rows.count;
    (void)workspace;
    for (size_t row = begin * state->rows.unit; row < last; row++) {
        const size_t at = qk_softmax_row_start(&state->rows, row);
        compute_row(state, (const char *)inputs[INPUT] + at * sizeof(float),
                    (char *)outputs[0] + at * sizeof(float));
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
    state->exp = kernels->unary[QK_FLOAT_exp];
    /* The maximum, the lanes and the product take about as long as the exponential. */
    const double cycles = 2 * kernels->element_cycles * kernels->costs[QK_FLOAT_exp];
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
