/* onnx.DequantizeLinear: y = (x - x_zero_point) * x_scale, with one scale, or one for each slice
 * of x on an axis.
 *
 * Flattened, x falls into rows of equal length. Either a row has one scale, or, where the axis is
 * the last one, each of its elements has its own. */
#include "kernels/dispatch.h"
#include "kernels/element/load.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/shape_text.h"

enum { INPUT_X, INPUT_SCALE, INPUT_ZERO_POINT };
enum { ATTRIBUTE_AXIS };

/* Large enough to hide a call's costs, small enough to stop soon and to keep in a cache. */
#define UNIT_ELEMENTS ((size_t)64 * 1024)
#define UNIT_COST_NS 30000 /* from memory and back; a few thousand from a cache */

struct dequantize {
    struct qk_instance base;
    enum qk_type x_type;
    size_t scale_count;
    bool per_tensor;
    const float *scales; /* scale_count of both */
    const int32_t *zero_points;
};

/* What a plan knows besides: how x falls into rows. */
struct rows {
    const struct dequantize *dequantize;
    qk_dequantize_fn kernel;
    const char *x;
    size_t element_bytes; /* of x */
    size_t count;         /* elements of x */
    size_t length;        /* elements of a row */
    bool scale_each;      /* each element of a row has its own scale */
};

/* ---- create ------------------------------------------------------------------------------ */

static bool is_single(const struct qk_tensor *tensor)
{
    return tensor->rank == 0 || (tensor->rank == 1 && tensor->dims[0] == 1);
}

static enum qk_status check_scale(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *scale = &call->inputs[INPUT_SCALE];
    struct qk_shape_text shape;
    if (is_single(scale))
        return QK_OK;
    if (call->version->number < call->op->attributes[ATTRIBUTE_AXIS].since)
        return qk_fail(error, QK_INVALID,
                       "x_scale: %s %u expects one scale, of shape [] or [1], got shape %s",
                       call->op->name, call->version->number, qk_shape_text(scale, &shape));
    if (scale->rank != 1)
        return qk_fail(error, QK_INVALID,
                       "x_scale: expected shape [] or [1], or one scale for each slice of x on "
                       "the axis, got shape %s",
                       qk_shape_text(scale, &shape));
    return QK_OK;
}

static enum qk_status check_zero_point(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *x = &call->inputs[INPUT_X];
    const struct qk_tensor *scale = &call->inputs[INPUT_SCALE];
    const struct qk_tensor *zero_point = &call->inputs[INPUT_ZERO_POINT];
    struct qk_shape_text shape;
    struct qk_shape_text scale_shape;
    if (zero_point->type == QK_NONE)
        return QK_OK;
    if (zero_point->type != x->type)
        return qk_fail(error, QK_INVALID, "x_zero_point: expected the datatype of x, %s, got %s",
                       qk_type_info(x->type)->name, qk_type_info(zero_point->type)->name);
    if (is_single(scale) && !is_single(zero_point))
        return qk_fail(error, QK_INVALID,
                       "x_zero_point: expected shape [] or [1] as for x_scale, got shape %s",
                       qk_shape_text(zero_point, &shape));
    if (!is_single(scale) && (zero_point->rank != 1 || zero_point->dims[0] != scale->dims[0]))
        return qk_fail(error, QK_INVALID,
                       "x_zero_point: expected the shape of x_scale, %s, got shape %s",
                       qk_shape_text(scale, &scale_shape), qk_shape_text(zero_point, &shape));
    return QK_OK;
}

/* Gives `made` aligned copies of the scales and, widened, of the zero points. */
static enum qk_status copy_scales(struct dequantize *made, const struct qk_call *call,
                                  struct qk_memory memory, struct qk_error *error)
{
    const struct qk_tensor *scale = &call->inputs[INPUT_SCALE];
    const struct qk_tensor *zero_point = &call->inputs[INPUT_ZERO_POINT];
    const size_t count = scale->count;
    size_t bytes;
    float *scales = NULL;
    int32_t *zero_points = NULL;
    if (count == 0)
        return QK_OK;
    if (qk_mul_size(count, sizeof(*scales), &bytes)) {
        scales = memory.alloc(memory.context, bytes);
        zero_points = memory.alloc(memory.context, bytes);
    }
    if (!scales || !zero_points)
        return qk_fail(error, QK_NO_MEMORY, "x_scale: out of memory for %zu scales", count);
    for (size_t i = 0; i < count; i++) {
        scales[i] = qk_load_f32(scale->data, i);
        zero_points[i] = zero_point->type == QK_NONE
                             ? 0
                             : (int32_t)qk_load_integer(zero_point->type, zero_point->data, i);
    }
    made->scales = scales;
    made->zero_points = zero_points;
    return QK_OK;
}

static enum qk_status create(const struct qk_kernels *kernels, const struct qk_call *call,
                             struct qk_memory memory, struct qk_instance **instance,
                             struct qk_error *error)
{
    (void)kernels;
    enum qk_status status = check_scale(call, error);
    if (status == QK_OK)
        status = check_zero_point(call, error);
    if (status != QK_OK)
        return status;

    struct dequantize *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct dequantize){.x_type = call->inputs[INPUT_X].type,
                                .scale_count = call->inputs[INPUT_SCALE].count,
                                .per_tensor = is_single(&call->inputs[INPUT_SCALE])};
    *instance = &made->base;
    return copy_scales(made, call, memory, error);
}

/* ---- plan -------------------------------------------------------------------------------- */

/* Finds the axis of x, counted from the front, that the scales belong to. */
static enum qk_status resolve_axis(const struct qk_call *call, size_t scale_count, uint32_t *axis,
                                   struct qk_error *error)
{
    const struct qk_tensor *x = &call->inputs[INPUT_X];
    const struct qk_attribute *attribute = &call->attributes[ATTRIBUTE_AXIS];
    const int64_t rank = x->rank;
    const int64_t number = attribute->present ? attribute->number : 1;
    struct qk_shape_text shape;
    if (rank == 0)
        return qk_fail(error, QK_INVALID,
                       "x_scale: x of shape [] expects one scale, of shape [] or [1], got [%zu]",
                       scale_count);
    if (number < -rank || number >= rank)
        return qk_fail(error, QK_INVALID,
                       "axis: expected %lld to %lld for x of shape %s, got %lld%s",
                       (long long)-rank, (long long)rank - 1, qk_shape_text(x, &shape),
                       (long long)number, attribute->present ? "" : " (the default)");
    *axis = (uint32_t)(number < 0 ? number + rank : number);
    if (x->dims[*axis] != scale_count)
        return qk_fail(error, QK_INVALID,
                       "x_scale: expected shape [%zu], as long as axis %u of x of shape %s, "
                       "got [%zu]",
                       x->dims[*axis], *axis, qk_shape_text(x, &shape), scale_count);
    return QK_OK;
}

static qk_dequantize_fn pick_kernel(const struct qk_dequantize_kernels *kernels, enum qk_type type)
{
    switch (type) {
    case QK_UINT8:
        return kernels->u8;
    case QK_INT8:
        return kernels->s8;
    default:
        return kernels->s32;
    }
}

/* The scale of a row's first element. */
static size_t scale_of_row(const struct rows *rows, size_t row)
{
    return rows->scale_each ? 0 : row % rows->dequantize->scale_count;
}

/* `count` elements, from x and y on, each with its own scale. */
static void run_scale_each(const struct dequantize *d, const char *x, size_t count, size_t scale,
                           float *y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = qk_dequantize_one((int32_t)qk_load_integer(d->x_type, x, i),
                                 d->zero_points[scale + i], d->scales[scale + i]);
}

static void run_elements(const struct rows *rows, float *y, size_t begin, size_t end)
{
    const struct dequantize *d = rows->dequantize;
    for (size_t i = begin; i < end;) {
        size_t row = i / rows->length;
        size_t offset = i - row * rows->length;
        size_t scale = scale_of_row(rows, row);
        size_t left = rows->length - offset;
        size_t count = left < end - i ? left : end - i;
        const char *x = rows->x + i * rows->element_bytes;
        if (rows->scale_each)
            run_scale_each(d, x, count, scale + offset, y + i);
        else
            rows->kernel(x, count, d->zero_points[scale], d->scales[scale], y + i);
        i += count;
    }
}

static void run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    const struct rows *rows = plan->state;
    (void)workspace;
    size_t last = end < plan->unit_count ? end * UNIT_ELEMENTS : rows->count;
    run_elements(rows, output, begin * UNIT_ELEMENTS, last);
}

/* Says how x falls into rows: around the axis, or in a single row. */
static void split(struct rows *rows, const struct qk_tensor *x, uint32_t axis)
{
    rows->length = x->count;
    rows->scale_each = false;
    if (rows->dequantize->per_tensor)
        return;
    rows->length = 1;
    for (uint32_t i = axis + 1; i < x->rank; i++)
        rows->length *= x->dims[i];
    if (rows->length == 1) {
        rows->length = x->dims[axis];
        rows->scale_each = true;
    }
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_call *call,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct dequantize *d = (const struct dequantize *)instance;
    const struct qk_tensor *x = &call->inputs[INPUT_X];
    const struct qk_dequantize_kernels *kernels = &instance->kernels->dequantize;
    uint32_t axis = 0;
    if (!d->per_tensor) {
        enum qk_status status = resolve_axis(call, d->scale_count, &axis, error);
        if (status != QK_OK)
            return status;
    }
    plan->output = *x;
    plan->output.type = QK_FP32;
    plan->output.data = NULL;
    if (!qk_type_bytes(QK_FP32, x->count, &plan->output_bytes))
        return qk_fail(error, QK_INVALID, "x: too large, its output has more bytes than memory");

    struct rows *rows = memory.alloc(memory.context, sizeof(*rows));
    if (!rows)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *rows = (struct rows){.dequantize = d,
                          .kernel = pick_kernel(kernels, d->x_type),
                          .x = x->data,
                          .element_bytes = qk_type_info(d->x_type)->bits / 8,
                          .count = x->count};
    split(rows, x, axis);
    plan->kernel = rows->scale_each ? "dequantize_scale_each" : kernels->name;
    plan->unit_count = x->count / UNIT_ELEMENTS + (x->count % UNIT_ELEMENTS != 0);
    plan->unit_cost_ns =
        x->count < UNIT_ELEMENTS ? 100 + UNIT_COST_NS * x->count / UNIT_ELEMENTS : UNIT_COST_NS;
    plan->run = run;
    plan->state = rows;
    return QK_OK;
}

/* ---- the descriptor ---------------------------------------------------------------------- */

#define X_TYPES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8) | QK_BIT(QK_INT32))
#define INPUTS                                                                      \
    {                                                                               \
        [INPUT_X] = {.types = X_TYPES}, [INPUT_SCALE] = {.types = QK_BIT(QK_FP32)}, \
        [INPUT_ZERO_POINT] = {.types = X_TYPES, .optional = true},                  \
    }

static const struct qk_attribute_def attributes[] = {
    [ATTRIBUTE_AXIS] = {"axis", QK_ATTRIBUTE_INT, 13, 0,
                        "the axis of x that x_scale runs along; default 1, in "
                        "[-rank(x), rank(x)-1]; not read where there is one scale"},
};

static const struct qk_version versions[] = {
    {.number = 10, .inputs = INPUTS, .output_types = QK_BIT(QK_FP32)},
    {.number = 13, .inputs = INPUTS, .output_types = QK_BIT(QK_FP32)},
};

static const struct qk_operator_code code = {.create = create, .plan = plan};

const struct qk_operator qk_onnx_dequantize_linear = {
    .name = "onnx.DequantizeLinear",
    .platform = "onnx_onnxv1",
    .about = "y = (x - x_zero_point) * x_scale, for the whole tensor or slice by slice on an axis",
    .input_names =
        {[INPUT_X] = "x", [INPUT_SCALE] = "x_scale", [INPUT_ZERO_POINT] = "x_zero_point"},
    .input_shapes = {[INPUT_X] = "any",
                     [INPUT_SCALE] = "[], [1] or [length of the axis]",
                     [INPUT_ZERO_POINT] = "as x_scale"},
    .input_count = 3,
    .output_name = "y",
    .output_shape = "as x",
    .attributes = attributes,
    .attribute_count = sizeof(attributes) / sizeof(attributes[0]),
    .versions = versions,
    .version_count = sizeof(versions) / sizeof(versions[0]),
    .version_last = 18, /* opset 19 changed it */
    .code = &code,
};
