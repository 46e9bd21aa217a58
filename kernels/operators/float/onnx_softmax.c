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
#include "kernels/operators/rules.h"

enum { INPUT };
enum { AXIS };

/* Before this version, the softmax is over all axes from `axis` on. Since then, it is over one
 * axis. */
#define ONE_AXIS_SINCE 13

#define LANES 16
#define CHUNK (8 * LANES) /* elements whose exponentials one call of a kernel computes */

struct instance {
    struct qk_instance base;
    int64_t axis;
    bool is_one_axis;
};

/* The elements of a row are `stride` apart. `stride` neighbouring elements begin as many rows. */
struct state {
    qk_float_unary_fn exp;
    size_t length;
    size_t stride;
    size_t row_count;
    size_t unit_rows;
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
    float largest = -FLT_MAX;
    for (size_t i = 0; i < state->length; i++) {
        const float value = qk_load_f32(x, i * state->stride);
        largest = value > largest ? value : largest;
    }
    for (size_t first = 0; first < state->length; first += CHUNK) {
        const size_t left = state->length - first;
        const size_t count = left < CHUNK ? left : CHUNK;
        float results[CHUNK];
        for (size_t i = 0; i < count; i++)
            values[i] = qk_load_f32(x, (first + i) * state->stride) - largest;
        state->exp(none, values, results, count);
        for (size_t i = 0; i < count; i++) {
            lanes[i % LANES] += results[i];
            store(y, (first + i) * state->stride, results[i]);
        }
    }
    return add_lanes(lanes);
}

static void compute_row(const struct state *state, const void *x, void *y)
{
    const float factor = 1.0F / exponentials(state, x, y);
    for (size_t i = 0; i < state->length; i++)
        store(y, i * state->stride, qk_load_f32(y, i * state->stride) * factor);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit_rows : state->row_count;
    (void)workspace;
    for (size_t row = begin * state->unit_rows; row < last; row++) {
        const size_t at = row / state->stride * state->stride * state->length + row % state->stride;
        compute_row(state, (const char *)inputs[INPUT] + at * sizeof(float),
                    (char *)outputs[0] + at * sizeof(float));
    }
}

/* ---- Prepare and plan ---------------------------------------------------------------------- */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const bool is_one_axis = call->version->number >= ONE_AXIS_SINCE;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    (void)kernels;
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {QK_FP32}},
        .axis = qk_int_or(&call->attributes[AXIS], is_one_axis ? -1 : 1),
        .is_one_axis = is_one_axis,
    };
    *instance = &made->base;
    return QK_OK;
}

/* Finds the rows of x. Their number and length fit, because x does. */
static enum qk_status find_rows(const struct instance *instance, const struct qk_tensor *x,
                                struct state *state, struct qk_error *error)
{
    const int64_t rank = x->rank;
    if (instance->axis < -rank || instance->axis >= rank)
        return qk_fail(error, QK_INVALID, "axis: expected one of input's %lld axes, got %lld",
                       (long long)rank, (long long)instance->axis);
    const uint32_t axis = (uint32_t)(instance->axis < 0 ? instance->axis + rank : instance->axis);
    *state = (struct state){.length = 1, .stride = 1};
    for (uint32_t i = axis; i < x->rank; i++)
        if (i == axis || !instance->is_one_axis)
            state->length *= x->dims[i];
        else
            state->stride *= x->dims[i];
    state->row_count = x->count > 0 ? x->count / state->length : 0;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const struct qk_float_kernels *kernels = instance->kernels->floats;
    const struct qk_tensor *x = &inputs[INPUT];
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const enum qk_status status = find_rows((const struct instance *)instance, x, state, error);
    if (status != QK_OK)
        return status;
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = x->count * sizeof(float); /* as many bytes as x has */
    plan->kernel = "softmax";
    plan->run = run;
    plan->state = state;
    state->exp = kernels->unary[QK_FLOAT_exp];
    if (state->row_count == 0)
        return QK_OK;
    /* The maximum, the lanes and the product take about as long as the exponential. */
    const double cycles = 2 * kernels->element_cycles * kernels->costs[QK_FLOAT_exp];
    const double row_ns = cycles * tuning->cycle_ns * (double)state->length;
    const double rows = tuning->unit_ns / row_ns;
    state->unit_rows = rows < 1                          ? 1
                       : rows > (double)state->row_count ? state->row_count
                                                         : (size_t)rows;
    plan->unit_count =
        state->row_count / state->unit_rows + (state->row_count % state->unit_rows != 0);
    plan->unit_cost_ns = (uint64_t)(row_ns * (double)state->unit_rows);
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
