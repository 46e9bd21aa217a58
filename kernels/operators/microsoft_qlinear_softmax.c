/* com.microsoft.QLinearSoftmax: the softmax of each row of a quantized tensor, quantized again.
 *
 * The rules are those of onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc of 1.32. The
 * exponentials of all 256 differences from a row's maximum are a table. They are scaled so that the
 * sum of a row cannot overflow, which depends on the row's length, so each plan has a table of its
 * own. */
#include <float.h>
#include <math.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/softmax_rows.h"

enum { X, X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, INPUT_COUNT };
enum { AXIS, OPSET };

/* The exponentials are this factor below the largest that a sum of FP32 can hold: e^5. */
#define HEADROOM 5

#define ELEMENT_CYCLES 12.0 /* a rough guess: the maximum, the sum, and a division of doubles */

struct instance {
    struct qk_instance base;
    float x_scale;
    float y_scale;
    int32_t y_zero;
    struct qk_attribute axis;
    int64_t opset;
    bool is_signed;
};

struct state {
    const struct instance *instance;
    struct qk_softmax_rows rows;
    float exponentials[256]; /* [255 + code - the row's largest code] */
};

/* ---- Rows ---------------------------------------------------------------------------------- */

static void fill_table(struct state *state)
{
    const double scale = (double)state->instance->x_scale;
    const double room = (double)logf(FLT_MAX / (float)state->rows.length) - HEADROOM;
    const double shift = (room > 0 ? room : 0) / scale;
    for (int i = 0; i < 256; i++)
        state->exponentials[i] = (float)exp((i - 255 + shift) * scale);
}

static int32_t code_at(const struct state *state, const uint8_t *x, size_t index)
{
    return state->instance->is_signed ? (int8_t)x[index] : x[index];
}

/* Returns the quantized probability, saturated. A NaN becomes the smallest code, as in ONNX Runtime
 * on x86. */
static uint8_t quantize(const struct instance *instance, double probability)
{
    const int32_t low = instance->is_signed ? INT8_MIN : 0;
    const int32_t high = low + UINT8_MAX;
    const double code = rint(probability) + instance->y_zero;
    return (uint8_t)(code >= high ? high : code >= low ? (int32_t)code : low);
}

static void compute_row(const struct state *state, const uint8_t *x, uint8_t *y)
{
    const struct instance *instance = state->instance;
    const size_t stride = state->rows.stride;
    const size_t length = state->rows.length;
    const float factor = floorf(1.0F / instance->y_scale);
    int32_t largest = INT32_MIN;
    float sum = 0;
    for (size_t i = 0; i < length; i++) {
        const int32_t code = code_at(state, x, i * stride);
        largest = code > largest ? code : largest;
    }
    const int32_t shift = 255 - largest;
    for (size_t i = 0; i < length; i++)
        sum += state->exponentials[code_at(state, x, i * stride) + shift];
    for (size_t i = 0; i < length; i++) {
        const int32_t at = code_at(state, x, i * stride) + shift;
        const double exponential = (double)state->exponentials[at];
        y[i * stride] = quantize(instance, exponential * (double)factor / (double)sum);
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->rows.unit : state->rows.count;
    (void)workspace;
    for (size_t row = begin * state->rows.unit; row < last; row++) {
        const size_t at = qk_softmax_row_start(&state->rows, row);
        compute_row(state, (const uint8_t *)inputs[X] + at, (uint8_t *)outputs[0] + at);
    }
}

/* ---- Prepare and plan ---------------------------------------------------------------------- */

/* ONNX Runtime refuses an x_scale that is not above 0. An infinite one leaves its output unwritten,
 * and it converts quotients by a y_scale that is not above 0 to integers that cannot hold them. */
static enum qk_status check_scales(const struct qk_call *call, struct qk_error *error)
{
    const float x_scale = qk_load_f32(call->inputs[X_SCALE].data, 0);
    const float y_scale = qk_load_f32(call->inputs[Y_SCALE].data, 0);
    if (!(x_scale > 0 && x_scale <= FLT_MAX))
        return qk_fail(error, QK_INVALID, "X_scale: expected a finite number above 0, got %g",
                       (double)x_scale);
    if (!(y_scale > 0))
        return qk_fail(error, QK_INVALID, "y_scale: expected a number above 0, got %g",
                       (double)y_scale);
    return QK_OK;
}

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    static const size_t single[] = {X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT};
    const struct qk_attribute *opset = &call->attributes[OPSET];
    enum qk_status status = qk_check_same_type(call, X_ZERO_POINT, X, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, Y_ZERO_POINT, X, error);
    for (size_t i = 0; i < QK_LENGTH_OF(single) && status == QK_OK; i++)
        status = qk_check_single(call, single[i], error);
    if (status == QK_OK)
        status = check_scales(call, error);
    if (status == QK_OK && (!opset->present || opset->number < 1))
        return qk_fail(error, QK_INVALID,
                       "opset: expected the opset of Softmax, at least 1, got %lld",
                       (long long)opset->number);
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const enum qk_type type = call->inputs[X].type;
    const enum qk_status status = check(call, error);
    (void)kernels;
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {type}},
        .x_scale = qk_load_f32(call->inputs[X_SCALE].data, 0),
        .y_scale = qk_load_f32(call->inputs[Y_SCALE].data, 0),
        .y_zero = qk_zero_point_or_0(&call->inputs[Y_ZERO_POINT]),
        .axis = call->attributes[AXIS],
        .opset = call->attributes[OPSET].number,
        .is_signed = type == QK_INT8,
    };
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const struct instance *made = (const struct instance *)instance;
    state->instance = made;
    const enum qk_status status =
        qk_softmax_rows_find(&made->axis, made->opset, &inputs[X], &state->rows, error);
    if (status != QK_OK)
        return status;
    qk_tensor_copy(&plan->outputs[0], &inputs[X]);
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = inputs[X].count;
    plan->kernel = "softmax";
    plan->run = run;
    plan->state = state;
    if (state->rows.count == 0)
        return QK_OK;
    fill_table(state);
    state->rows.unit =
        qk_set_units(state->rows.count,
                     (double)state->rows.length * ELEMENT_CYCLES * tuning->cycle_ns, tuning, plan);
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_attribute_def attributes[] = {
    [AXIS] =
        QK_ATTRIBUTE("axis", INT, 1,
                     "the axis of the softmax, from -rank(X) to rank(X)-1; before opset 13 the "
                     "first of its axes; default -1, and 1 before opset 13"),
    [OPSET] = QK_ATTRIBUTE("opset", INT, 1, "the opset whose Softmax this is; required"),
};

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[X] = {CODES, false},
                [X_SCALE] = {QK_BIT(QK_FP32), false},
                [X_ZERO_POINT] = {CODES, true},
                [Y_SCALE] = {QK_BIT(QK_FP32), false},
                [Y_ZERO_POINT] = {CODES, false}},
     .output_types = {CODES}},
};

const struct qk_operator qk_microsoft_qlinear_softmax = {
    .name = "com.microsoft.QLinearSoftmax",
    .platform = QK_ONNX_PLATFORM,
    .about =
        "Y = saturate(round(softmax(X) / Y_scale) + Y_zero_point), where X stands for its real "
        "values",
    .inputs = {[X] = {"X", QK_ANY_SHAPE},
               [X_SCALE] = {"X_scale", QK_SINGLE_SHAPE},
               [X_ZERO_POINT] = {"x_zero_point", QK_SINGLE_SHAPE},
               [Y_SCALE] = {"y_scale", QK_SINGLE_SHAPE},
               [Y_ZERO_POINT] = {"y_zero_point", QK_SINGLE_SHAPE}},
    .input_count = INPUT_COUNT,
    .variable_inputs = 1U << X,
    .outputs = {{"Y", "as X"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
