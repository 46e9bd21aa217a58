/* tensorflow.Dequantize: the range [min_range, max_range] back from integers, in three modes.
 *
 * The arithmetic is that of tensorflow/core/kernels/dequantize_op.cc and quantization_utils.h on
 * x86, not that of the documentation: each written operation rounds once to FP32. */
#include <math.h>
#include <string.h>

#include "kernels/dequantize/affine.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { INPUT, MIN_RANGE, MAX_RANGE };
enum { MODE, NARROW_RANGE, AXIS, DTYPE };
enum mode { MIN_COMBINED, MIN_FIRST, SCALED };

/* What pack makes the affine's parameters of, and where. */
struct ranges {
    enum mode mode;
    bool narrow;
    const void *min, *max;
    size_t count;
    float *scales;
    float *zeros;   /* NULL: there are none */
    float *offsets; /* NULL: there are none */
};

struct instance {
    struct qk_instance base;
    struct qk_affine affine;
    struct qk_attribute axis;
    struct ranges ranges;
};

/* ---- Attributes -------------------------------------------------------------------------- */

static enum qk_status read_mode(const struct qk_call *call, enum mode *mode, struct qk_error *error)
{
    static const char *const names[] = {"MIN_COMBINED", "MIN_FIRST", "SCALED"};
    const struct qk_attribute *given = &call->attributes[MODE];
    const char *name = given->present ? given->string : names[MIN_COMBINED];
    for (*mode = MIN_COMBINED; *mode <= SCALED; (*mode)++)
        if (strcmp(name, names[*mode]) == 0)
            return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "mode: expected MIN_COMBINED, MIN_FIRST or SCALED, got \"%.64s\"", name);
}

static enum qk_status read_dtype(const struct qk_call *call, enum mode mode, enum qk_type *type,
                                 struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[DTYPE];
    const char *name = given->present ? given->string : "float32";
    *type = QK_FP32;
    if (strcmp(name, "float32") == 0 || strcmp(name, "FP32") == 0)
        return QK_OK;
    *type = QK_BF16;
    if (strcmp(name, "bfloat16") != 0 && strcmp(name, "BF16") != 0)
        return qk_fail(error, QK_INVALID, "dtype: expected float32 or bfloat16, got \"%.64s\"",
                       name);
    if (mode != MIN_COMBINED)
        return qk_fail(error, QK_INVALID,
                       "dtype: expected float32, since mode is not MIN_COMBINED, got \"%s\"", name);
    return QK_OK;
}

static enum qk_status check_axis(const struct qk_call *call, enum mode mode, struct qk_error *error)
{
    const int64_t axis = qk_int_or(&call->attributes[AXIS], -1);
    if (axis < -1 || axis >= QK_RANK_MAX) /* the rank of input comes later */
        return qk_fail(error, QK_INVALID, "axis: expected -1 (none) to %d, got %lld",
                       QK_RANK_MAX - 1, (long long)axis);
    if (axis >= 0 && mode == MIN_FIRST && call->inputs[MIN_RANGE].count != 1)
        return qk_fail(
            error, QK_INVALID,
            "axis: expected -1 or an axis of length 1, since mode is MIN_FIRST, got %lld",
            (long long)axis);
    return QK_OK;
}

/* One range, or one for each slice on the axis. */
static enum qk_status check_range(const struct qk_call *call, size_t input, struct qk_error *error)
{
    const struct qk_tensor *range = &call->inputs[input];
    const int64_t axis = qk_int_or(&call->attributes[AXIS], -1);
    struct qk_shape_text shape;
    if (axis >= 0 ? range->rank == 1 : qk_is_single(range))
        return QK_OK;
    const char *name = call->op->inputs[input].name;
    const char *came = qk_shape_text(range, &shape);
    return axis >= 0
               ? qk_fail(error, QK_INVALID,
                         "%s: expected one dimension, of the length of axis %lld, got shape %s",
                         name, (long long)axis, came)
               : qk_fail(error, QK_INVALID,
                         "%s: expected shape [] or [1], since there is no axis, got %s", name,
                         came);
}

static enum qk_status check_ranges(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_status status = check_range(call, MIN_RANGE, error);
    if (status == QK_OK)
        status = check_range(call, MAX_RANGE, error);
    if (status == QK_OK && inputs[MIN_RANGE].count != inputs[MAX_RANGE].count)
        status = qk_fail(error, QK_INVALID,
                         "min_range and max_range: expected the same length, that of axis %lld of "
                         "input, got [%zu] and [%zu]",
                         (long long)qk_int_or(&call->attributes[AXIS], -1), inputs[MIN_RANGE].count,
                         inputs[MAX_RANGE].count);
    return status;
}

/* ---- The three modes --------------------------------------------------------------------- */

/* What a type's limits are as floats; 2147483647 becomes 2147483648. */
struct limits {
    float low;
    float high;
    float steps;      /* high - low */
    double steps_all; /* 2^bits - 1, which a float may not hold */
    float low_scaled; /* what SCALED divides min_range by; 0: unsigned, it does not */
};

static struct limits limits_of(enum qk_type type, bool narrow_range)
{
    const struct qk_type_info *info = qk_type_info(type);
    const float low = (float)info->min;
    const float high = (float)info->max;
    return (struct limits){.low = low,
                           .high = high,
                           .steps = high - low,
                           .steps_all = (double)(info->max - info->min),
                           .low_scaled = info->min < 0 ? (float)(info->min + narrow_range) : 0.0F};
}

/* The larger one, as std::max has it: of 0 and -0, or where one is NaN, the first. */
static float larger(float a, float b)
{
    return a < b ? b : a;
}

static float scale_of(enum mode mode, const struct limits *limits, float min, float max)
{
    const float span = max - min;
    switch (mode) {
    case MIN_COMBINED:
        return span / limits->steps;
    case MIN_FIRST:
        return (float)((double)span / limits->steps_all);
    default:
        if (limits->low_scaled == 0.0F)
            return max / limits->high;
        return larger(min / limits->low_scaled, max / limits->high);
    }
}

/* MIN_FIRST moves min_range to a multiple of the scale, half way away from zero. */
static float base_of(const struct limits *limits, float min, float max, float scale)
{
    const float rounded = max == min ? min : roundf(min / scale) * scale;
    return rounded - limits->low * scale;
}

/* Parameters [begin, end). */
static void make(const struct instance *made, size_t begin, size_t end)
{
    const struct ranges *ranges = &made->ranges;
    const enum mode mode = ranges->mode;
    const enum qk_type x_type = made->affine.x_type;
    const struct limits limits = limits_of(x_type, ranges->narrow);
    for (size_t i = begin; i < end; i++) {
        const float min = qk_load_f32(ranges->min, i);
        const float max = qk_load_f32(ranges->max, i);
        ranges->scales[i] = scale_of(mode, &limits, min, max);
        if (ranges->zeros)
            ranges->zeros[i] = qk_affine_zero(x_type, limits.low);
        if (ranges->offsets)
            ranges->offsets[i] =
                mode == MIN_COMBINED ? min : base_of(&limits, min, max, ranges->scales[i]);
    }
    qk_affine_canonical(made->affine.y_type, ranges->scales + begin, end - begin);
    if (ranges->offsets)
        qk_affine_canonical(made->affine.y_type, ranges->offsets + begin, end - begin);
}

/* ---- Prepare and pack -------------------------------------------------------------------- */

static enum qk_status take_parameters(struct instance *made, struct qk_memory memory,
                                      struct qk_error *error)
{
    struct qk_affine *affine = &made->affine;
    struct ranges *ranges = &made->ranges;
    const size_t count = ranges->count;
    const bool has_zeros =
        ranges->mode == MIN_COMBINED && limits_of(affine->x_type, false).low != 0.0F;
    const bool has_offsets = ranges->mode != SCALED;
    affine->scales = ranges->scales = qk_alloc_words(count, memory);
    affine->zeros = ranges->zeros = has_zeros ? qk_alloc_words(count, memory) : NULL;
    affine->offsets = ranges->offsets = has_offsets ? qk_alloc_words(count, memory) : NULL;
    if (!affine->scales || (has_zeros && !affine->zeros) || (has_offsets && !affine->offsets))
        return qk_fail(error, QK_NO_MEMORY, "min_range: out of memory for %zu ranges", count);
    /* With one range, the kernel's cast of a qint32 goes through float back to int, as run in
     * TensorFlow 2.21 on x86; with a range for each slice it does not. */
    if (ranges->mode == SCALED && affine->x_type == QK_INT32 && count == 1)
        affine->form = QK_AFFINE_RECAST;
    made->base.pack_unit_cost_ns = QK_AFFINE_UNIT_NS;
    made->base.pack_unit_count = qk_affine_units(count);
    affine->whole = made->base.pack_unit_count == 0;
    if (affine->whole)
        make(made, 0, count);
    return QK_OK;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum mode mode;
    enum qk_type y_type;
    (void)kernels;
    enum qk_status status = read_mode(call, &mode, error);
    if (status == QK_OK)
        status = read_dtype(call, mode, &y_type, error);
    if (status == QK_OK)
        status = check_axis(call, mode, error);
    if (status == QK_OK)
        status = check_ranges(call, error);
    if (status != QK_OK)
        return status;

    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {y_type}},
        .affine = {.form = QK_AFFINE_FLOAT, .x_type = inputs[INPUT].type, .y_type = y_type},
        .axis = call->attributes[AXIS],
        .ranges = {.mode = mode,
                   .narrow = qk_int_or(&call->attributes[NARROW_RANGE], 0) != 0,
                   .min = inputs[MIN_RANGE].data,
                   .max = inputs[MAX_RANGE].data,
                   .count = inputs[MIN_RANGE].count},
    };
    *instance = &made->base;
    return take_parameters(made, memory, error);
}

static void pack(struct qk_instance *instance, size_t begin, size_t end)
{
    const struct instance *made = (const struct instance *)instance;
    const size_t last = end < instance->pack_unit_count ? end * QK_AFFINE_UNIT : made->ranges.count;
    make(made, begin * QK_AFFINE_UNIT, last);
}

/* ---- Plan -------------------------------------------------------------------------------- */

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[INPUT];
    const int64_t axis = qk_int_or(&made->axis, -1);
    struct qk_shape_text shape;
    struct qk_broadcast broadcast;
    qk_broadcast_init(&broadcast, x);
    if (axis >= 0) {
        if (axis >= x->rank)
            return qk_fail(error, QK_INVALID,
                           "axis: expected -1 to %d for input of shape %s, got %lld",
                           (int)x->rank - 1, qk_shape_text(x, &shape), (long long)axis);
        if (x->dims[axis] != made->ranges.count)
            return qk_fail(error, QK_INVALID,
                           "min_range: expected shape [%zu], as long as axis %lld of input of "
                           "shape %s, got [%zu]",
                           x->dims[axis], (long long)axis, qk_shape_text(x, &shape),
                           made->ranges.count);
        qk_broadcast_slice(&broadcast, (uint32_t)axis);
    }
    return qk_affine_plan(&made->affine, instance, x, &broadcast, memory, plan, error);
}

/* ---- The descriptor ---------------------------------------------------------------------- */

/* quint8, qint8, quint16, qint16 and qint32. */
#define X_TYPES \
    (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8) | QK_BIT(QK_UINT16) | QK_BIT(QK_INT16) | QK_BIT(QK_INT32))

static const struct qk_attribute_def attributes[] = {
    [MODE] = QK_ATTRIBUTE("mode", STRING, 1, "MIN_COMBINED (default), MIN_FIRST or SCALED"),
    [NARROW_RANGE] =
        QK_ATTRIBUTE("narrow_range", BOOL, 1,
                     "default false; for SCALED and signed datatypes: the lowest value is "
                     "one more"),
    [AXIS] = QK_ATTRIBUTE("axis", INT, 1,
                          "the axis that min_range and max_range run along, below rank(input); "
                          "default -1: there is one range; MIN_FIRST only if its length is 1"),
    [DTYPE] = QK_ATTRIBUTE("dtype", STRING, 1,
                           "of output: float32 (default), or with MIN_COMBINED bfloat16"),
};

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[INPUT] = {.types = X_TYPES},
                [MIN_RANGE] = {.types = QK_BIT(QK_FP32)},
                [MAX_RANGE] = {.types = QK_BIT(QK_FP32)}},
     .output_types = {QK_BIT(QK_FP32) | QK_BIT(QK_BF16)}},
};

const struct qk_operator qk_tensorflow_dequantize = {
    .name = "tensorflow.Dequantize",
    .platform = "tensorflow_graphdef",
    .about = "input back into the range from min_range to max_range, as one or slice by slice",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE},
               [MIN_RANGE] = {"min_range", "[] or [1], with an axis [length of the axis]"},
               [MAX_RANGE] = {"max_range", "as min_range"}},
    .input_count = 3,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "as input"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .pack = pack, .plan = plan},
};
