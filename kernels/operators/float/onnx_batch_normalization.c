/* onnx.BatchNormalization of FP32, as networks have it after training: y = x * factor + offset, for
 * each channel. A quantizer leaves it in floats where no convolution comes before it, as in
 * DenseNet.
 *
 * Each operation is rounded to FP32, in the order of ONNX Runtime (onnxruntime/core/providers/cpu/
 * nn/batch_norm.h). */
#include <math.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { X, SCALE, B, MEAN, VAR, INPUT_COUNT };
enum { EPSILON, MOMENTUM, SPATIAL, TRAINING_MODE };

struct channel {
    float factor;
    float offset;
};

struct instance {
    struct qk_instance base;
    size_t count;
    struct channel *channels;
};

struct state {
    size_t inner; /* elements of a channel, one after another */
    size_t count;
    size_t unit; /* elements of a unit */
};

/* ---- Prepare ------------------------------------------------------------------------------- */

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    static const int64_t only[] = {[SPATIAL] = 1, [TRAINING_MODE] = 0};
    const struct qk_tensor *scale = &call->inputs[SCALE];
    struct qk_shape_text text;
    for (size_t i = SPATIAL; i <= TRAINING_MODE; i++)
        if (qk_int_or(&call->attributes[i], only[i]) != only[i])
            return qk_fail(error, QK_INVALID, "%s: expected %lld, got %lld",
                           call->op->attributes[i].name, (long long)only[i],
                           (long long)call->attributes[i].number);
    for (size_t i = SCALE; i < INPUT_COUNT; i++)
        if (call->inputs[i].rank != 1 || call->inputs[i].count != scale->count)
            return qk_fail(error, QK_INVALID, "%s: expected shape [%zu], got %s",
                           call->op->inputs[i].name, scale->count,
                           qk_shape_text(&call->inputs[i], &text));
    return QK_OK;
}

static void fill(const struct qk_call *call, struct instance *made)
{
    const struct qk_attribute *given = &call->attributes[EPSILON];
    const float epsilon = given->present ? given->real : 1e-5F;
    for (size_t i = 0; i < made->count; i++) {
        const float deviation = sqrtf(qk_load_f32(call->inputs[VAR].data, i) + epsilon);
        const float factor = 1 / deviation * qk_load_f32(call->inputs[SCALE].data, i);
        const float shift = qk_load_f32(call->inputs[MEAN].data, i) * factor;
        made->channels[i] = (struct channel){factor, qk_load_f32(call->inputs[B].data, i) - shift};
    }
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const enum qk_status status = check(call, error);
    const size_t count = call->inputs[SCALE].count;
    (void)kernels;
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    /* As many bytes as scale and B have, and never none. */
    struct channel *channels =
        made ? memory.alloc(memory.context, count * sizeof(*channels) + 1) : NULL;
    if (!channels)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {QK_FP32}}, .count = count, .channels = channels};
    fill(call, made);
    *instance = &made->base;
    return QK_OK;
}

/* ---- Plan and run -------------------------------------------------------------------------- */

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct instance *made = (const struct instance *)plan->instance;
    const struct state *state = plan->state;
    const qk_float_unary_fn affine = made->base.kernels->floats->unary[QK_FLOAT_affine];
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    for (size_t at = begin * state->unit; at < last;) {
        const size_t row = at / state->inner;
        const size_t left = (row + 1) * state->inner - at;
        const size_t count = left < last - at ? left : last - at;
        const struct channel *channel = &made->channels[row % made->count];
        const float parameters[2] = {channel->factor, channel->offset};
        affine(parameters, (const char *)inputs[0] + at * sizeof(float),
               (char *)outputs[0] + at * sizeof(float), count);
        at += count;
    }
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const struct qk_float_kernels *kernels = instance->kernels->floats;
    const struct qk_tensor *x = &inputs[X];
    struct qk_shape_text text;
    if (x->rank < 2 || x->dims[1] != made->count)
        return qk_fail(error, QK_INVALID, "X: expected %zu channels, as scale has, got shape %s",
                       made->count, qk_shape_text(x, &text));
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.inner = 1, .count = x->count};
    for (uint32_t i = 2; i < x->rank; i++)
        state->inner *= x->dims[i];
    /* A call of the kernel takes about as long as 20 elements. */
    const double elements = state->inner > 0 ? 1 + 20 / (double)state->inner : 1;
    state->unit = qk_elementwise_set_units(
        state->count, elements * kernels->element_cycles * tuning->cycle_ns, tuning, plan);
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = x->count * sizeof(float); /* as many bytes as X has */
    plan->kernel = kernels->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define REAL                   \
    {                          \
        QK_BIT(QK_FP32), false \
    }
#define VERSION(since)                                               \
    {                                                                \
        .number = (since), .inputs = {REAL, REAL, REAL, REAL, REAL}, \
        .output_types = {QK_BIT(QK_FP32)},                           \
    }

static const struct qk_version versions[] = {VERSION(7), VERSION(9), VERSION(14), VERSION(15)};

static const struct qk_attribute_def attributes[] = {
    [EPSILON] = QK_ATTRIBUTE("epsilon", FLOAT, 7, "default 1e-5: what is added to var"),
    [MOMENTUM] = QK_ATTRIBUTE("momentum", FLOAT, 7, "not used after training"),
    [SPATIAL] = QK_ATTRIBUTE("spatial", INT, 7, "must be 1, the default"),
    [TRAINING_MODE] = QK_ATTRIBUTE("training_mode", INT, 14, "must be 0, the default"),
};

const struct qk_operator qk_onnx_batch_normalization = {
    .name = "onnx.BatchNormalization",
    .platform = QK_ONNX_PLATFORM,
    .about = "Y = (X - input_mean) / sqrt(input_var + epsilon) * scale + B, for each channel",
    .inputs = {[X] = {"X", "[N, C, D1..Dn]"},
               [SCALE] = {"scale", "[C]"},
               [B] = {"B", "[C]"},
               [MEAN] = {"input_mean", "[C]"},
               [VAR] = {"input_var", "[C]"}},
    .input_count = INPUT_COUNT,
    .variable_inputs = 1U << X,
    .outputs = {{"Y", "as X"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
