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
#include "kernels/sizes.h"

enum { X, X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, INPUT_COUNT };
enum { AXIS, OPSET };

/* The exponentials are this factor below the largest that a sum of FP32 can hold: e^5. */
#define HEADROOM 5

/* Rows that are computed together, element by element: neighbouring rows are read and written in
 * order, and the sum of one row does not wait for its own last step. */
#define BLOCK 64
/* The same for long rows that lie one behind the other. If their length is a power of two, all
 * compete for the same few lines of the L1 cache: 64 rows of 4096 took 2.7 times as long as one by
 * one. */
#define BLOCK_APART 4

/* In longer rows, what becomes of each code is computed once. Shorter ones are quantized together,
 * as many as have no more elements. */
#define CODES 256

/* Rough guesses: cycles for an element. */
#define SHORT_CYCLES 6.0
#define LONG_CYCLES 2.0

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
    struct qk_float_shares shares;
    const struct qk_float_kernels *kernels;
    qk_lookup_fn lookup;
    float exponentials[CODES]; /* [255 + code - the row's largest code] */
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

/* Computes up to BLOCK neighbouring rows, whose elements are rows.stride apart. */
static void compute_neighbours(const struct state *state, const uint8_t *x, uint8_t *y,
                               size_t count)
{
    const uint8_t flip = state->instance->is_signed ? 0x80 : 0; /* makes codes unsigned */
    const size_t size = state->rows.length * state->rows.stride;
    const float *from[BLOCK]; /* the exponential of code 0 */
    uint8_t largest[BLOCK] = {0};
    float sums[BLOCK] = {0};
    float exponentials[BLOCK];
    for (size_t i = 0; i < size; i += state->rows.stride)
        for (size_t r = 0; r < count; r++) {
            const uint8_t code = x[i + r] ^ flip;
            largest[r] = code > largest[r] ? code : largest[r];
        }
    for (size_t r = 0; r < count; r++)
        from[r] = state->exponentials + UINT8_MAX - largest[r];
    for (size_t i = 0; i < size; i += state->rows.stride)
        for (size_t r = 0; r < count; r++)
            sums[r] += from[r][x[i + r] ^ flip];
    for (size_t i = 0; i < size; i += state->rows.stride) {
        for (size_t r = 0; r < count; r++)
            exponentials[r] = from[r][x[i + r] ^ flip];
        state->kernels->quantize_shares(&state->shares, exponentials, sums, y + i, count);
    }
}

static uint8_t largest_code(const uint8_t *x, size_t count, uint8_t flip)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = (x[i] ^ flip) > largest ? x[i] ^ flip : largest;
    return largest;
}

/* Computes rows that lie one behind the other and have up to CODES elements in all. */
static void compute_short_rows(const struct state *state, const uint8_t *x, uint8_t *y,
                               size_t count)
{
    const uint8_t flip = state->instance->is_signed ? 0x80 : 0;
    const size_t length = state->rows.length;
    float exponentials[CODES], sums[CODES];
    for (size_t first = 0; first < count * length; first += length) {
        const float *from = state->exponentials + UINT8_MAX - largest_code(x + first, length, flip);
        float sum = 0;
        for (size_t i = first; i < first + length; i++) {
            exponentials[i] = from[x[i] ^ flip];
            sum += exponentials[i];
        }
        for (size_t i = first; i < first + length; i++)
            sums[i] = sum;
    }
    state->kernels->quantize_shares(&state->shares, exponentials, sums, y, count * length);
}

/* Quantizes one row, whose elements lie side by side. */
static void quantize_row(const struct state *state, const float *from, float sum, uint8_t largest,
                         const uint8_t *x, uint8_t *y)
{
    const uint8_t flip = state->instance->is_signed ? 0x80 : 0;
    /* Aligned by hand: with the address sanitizer, GCC 12 aligns variables to 32 bytes at most. */
    uint8_t room[sizeof(struct qk_lookup_table) + _Alignof(struct qk_lookup_table)];
    struct qk_lookup_table *table =
        (void *)(room + -(uintptr_t)room % _Alignof(struct qk_lookup_table));
    uint8_t codes[CODES] = {0};
    state->kernels->quantize_shares_of_one(&state->shares, from, &sum, codes, (size_t)largest + 1);
    for (size_t i = 0; i < CODES; i++)
        table->entries[i] = codes[i ^ flip];
    qk_lookup_run(state->lookup, table, x, y, state->rows.length);
}

/* Computes up to BLOCK_APART rows that lie one behind the other. Inlined with a constant count. */
__attribute__((always_inline)) static inline void
compute_rows(const struct state *state, const uint8_t *x, uint8_t *y, const size_t count)
{
    const uint8_t flip = state->instance->is_signed ? 0x80 : 0;
    const size_t length = state->rows.length;
    const float *from[BLOCK_APART];
    uint8_t largest[BLOCK_APART];
    float sums[BLOCK_APART] = {0};
    for (size_t r = 0; r < count; r++) {
        largest[r] = largest_code(x + r * length, length, flip);
        from[r] = state->exponentials + UINT8_MAX - largest[r];
    }
    for (size_t i = 0; i < length; i++)
        for (size_t r = 0; r < count; r++)
            sums[r] += from[r][x[i + r * length] ^ flip];
    for (size_t r = 0; r < count; r++)
        quantize_row(state, from[r], sums[r], largest[r], x + r * length, y + r * length);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->rows.unit : state->rows.count;
    (void)workspace;
    const size_t stride = state->rows.stride;
    for (size_t row = begin * state->rows.unit, count; row < last; row += count) {
        const size_t at = qk_softmax_row_start(&state->rows, row);
        const uint8_t *x = (const uint8_t *)inputs[X] + at;
        uint8_t *y = (uint8_t *)outputs[0] + at;
        if (stride > 1) {
            count = qk_size_min(qk_size_min(last - row, stride - row % stride), BLOCK);
            compute_neighbours(state, x, y, count);
        } else if (state->rows.length <= CODES) {
            count = qk_size_min(last - row, CODES / state->rows.length);
            compute_short_rows(state, x, y, count);
        } else if (last - row >= BLOCK_APART) {
            count = BLOCK_APART;
            compute_rows(state, x, y, BLOCK_APART);
        } else {
            count = 1;
            compute_rows(state, x, y, 1);
        }
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
        .axis = {.present = true, .number = qk_int_or(&call->attributes[AXIS], -1)},
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
    state->shares = (struct qk_float_shares){.factor = (double)floorf(1.0F / made->y_scale),
                                             .low = made->is_signed ? INT8_MIN : 0,
                                             .zero = made->y_zero};
    state->kernels = instance->kernels->floats;
    state->lookup = instance->kernels->lookup->run;
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
    const double cycles = state->rows.length > CODES ? LONG_CYCLES : SHORT_CYCLES;
    state->rows.unit = qk_set_units(
        state->rows.count, (double)state->rows.length * cycles * tuning->cycle_ns, tuning, plan);
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define TYPES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_attribute_def attributes[] = {
    [AXIS] =
        QK_ATTRIBUTE("axis", INT, 1,
                     "the axis of the softmax, from -rank(X) to rank(X)-1; before opset 13 the "
                     "first of its axes; default -1"),
    [OPSET] = QK_ATTRIBUTE("opset", INT, 1, "the opset whose Softmax this is; required"),
};

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[X] = {TYPES, false},
                [X_SCALE] = {QK_BIT(QK_FP32), false},
                [X_ZERO_POINT] = {TYPES, true},
                [Y_SCALE] = {QK_BIT(QK_FP32), false},
                [Y_ZERO_POINT] = {TYPES, false}},
     .output_types = {TYPES}},
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
