/* onnx.Squeeze and onnx.Unsqueeze remove and insert dimensions of size 1. Before opset 13, the axes
 * are an attribute, and since then an input (onnx/defs/tensor/defs.cc and old.cc). */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/shape_text.h"

enum { DATA, AXES };
enum { AXES_ATTRIBUTE };

#define AXES_ARE_INPUT_SINCE 13

struct instance {
    struct qk_instance base;
    struct qk_integers axes; /* of the attribute */
};

/* Reads the axes: the input, or the attribute that `made` has. */
static enum qk_status read_axes(const struct instance *made, const struct qk_tensor *input,
                                struct qk_integers *axes, struct qk_error *error)
{
    *axes = made->axes;
    return axes->present ? QK_OK : qk_read_list(input, "axes", QK_RANK_MAX, axes, error);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    if (call->version->number >= AXES_ARE_INPUT_SINCE && call->attributes[AXES_ATTRIBUTE].present)
        return qk_fail(error, QK_INVALID,
                       "axes: expected an input since version %d of %s, got an attribute",
                       AXES_ARE_INPUT_SINCE, call->op->name);
    struct qk_integers axes;
    const enum qk_status status =
        qk_read_attribute_list(call, AXES_ATTRIBUTE, QK_RANK_MAX, &made->axes, error);
    return status != QK_OK || qk_is_planned(call, 1U << AXES)
               ? status
               : read_axes(made, &call->inputs[AXES], &axes, error);
}

/* ---- Squeeze ------------------------------------------------------------------------------- */

/* Without axes, removes all dimensions of size 1. */
static enum qk_status plan_squeeze(const struct qk_instance *instance,
                                   const struct qk_tensor *inputs, struct qk_memory memory,
                                   struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_integers list;
    struct qk_shape_text text;
    size_t dims[QK_RANK_MAX];
    uint32_t rank = 0;
    uint32_t axes;
    enum qk_status status =
        read_axes((const struct instance *)instance, &inputs[AXES], &list, error);
    if (status == QK_OK)
        status = qk_find_axes("axes", &list, x->rank, true, &axes, error);
    if (status != QK_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++) {
        const bool removed = list.count > 0 ? axes >> i & 1 : x->dims[i] == 1;
        if (removed && x->dims[i] != 1)
            return qk_fail(error, QK_INVALID,
                           "axes: expected dimensions of size 1, got axis %u of shape %s", i,
                           qk_shape_text(x, &text));
        if (!removed)
            dims[rank++] = x->dims[i];
    }
    return qk_move_plan_alias(instance, x, rank, dims, memory, plan, error);
}

/* ---- Unsqueeze ----------------------------------------------------------------------------- */

static enum qk_status prepare_unsqueeze(const struct qk_kernels *kernels,
                                        const struct qk_call *call, struct qk_memory memory,
                                        struct qk_instance **instance, struct qk_error *error)
{
    const enum qk_status status = prepare(kernels, call, memory, instance, error);
    if (status != QK_OK || ((struct instance *)*instance)->axes.present ||
        call->inputs[AXES].type != QK_NONE)
        return status;
    return qk_fail(error, QK_INVALID, "axes: expected a list of axes, got none");
}

/* The axes are those of the output. */
static enum qk_status plan_unsqueeze(const struct qk_instance *instance,
                                     const struct qk_tensor *inputs, struct qk_memory memory,
                                     struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_integers list;
    size_t dims[QK_RANK_MAX];
    uint32_t axes;
    enum qk_status status =
        read_axes((const struct instance *)instance, &inputs[AXES], &list, error);
    if (status != QK_OK)
        return status;
    const uint32_t rank = x->rank + (uint32_t)list.count;
    if (rank > QK_RANK_MAX)
        return qk_fail(error, QK_INVALID, "axes: expected at most %d dimensions, got %u",
                       QK_RANK_MAX, rank);
    status = qk_find_axes("axes", &list, rank, false, &axes, error);
    if (status != QK_OK)
        return status;
    for (uint32_t i = 0, k = 0; i < rank; i++)
        dims[i] = axes >> i & 1 ? 1 : x->dims[k++];
    return qk_move_plan_alias(instance, x, rank, dims, memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

/* Before opset 13, the input `axes` does not exist. */
#define VERSION(number, types, axes_types, optional) \
    QK_MOVING_VERSION(number, types, [AXES] = {axes_types, optional})
#define VERSIONS(optional)                                                   \
    VERSION(1, QK_MOVE_TYPES, 0, true), VERSION(11, QK_MOVE_TYPES, 0, true), \
        VERSION(13, QK_MOVE_TYPES_13, QK_BIT(QK_INT64), optional),           \
        VERSION(21, QK_MOVE_TYPES_13, QK_BIT(QK_INT64), optional),           \
        VERSION(23, QK_MOVE_TYPES_13, QK_BIT(QK_INT64), optional),           \
        VERSION(24, QK_MOVE_TYPES_13, QK_BIT(QK_INT64), optional),           \
        VERSION(25, QK_MOVE_TYPES_13, QK_BIT(QK_INT64), optional)

static const struct qk_version squeeze_versions[] = {VERSIONS(true)};
static const struct qk_version unsqueeze_versions[] = {VERSIONS(false)};

static const struct qk_attribute_def squeeze_attributes[] = {
    [AXES_ATTRIBUTE] = QK_ATTRIBUTE("axes", INTS, 1,
                                    "before version 13, which has an input: the dimensions to "
                                    "remove, in [-rank, rank-1]; default: all of size 1"),
};

static const struct qk_attribute_def unsqueeze_attributes[] = {
    [AXES_ATTRIBUTE] = QK_ATTRIBUTE("axes", INTS, 1,
                                    "before version 13, which has an input: the dimensions of "
                                    "expanded that have size 1; required"),
};

const struct qk_operator qk_onnx_squeeze = {
    .name = "onnx.Squeeze",
    .platform = QK_ONNX_PLATFORM,
    .about = "data without dimensions of size 1: those in axes, or all",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}, [AXES] = {"axes", "[number of axes]"}},
    .input_count = 2,
    .variable_inputs = 1U << DATA,
    .planned_inputs = 1U << AXES,
    .outputs = {{"squeezed", "the other dimensions of data"}},
    .output_count = 1,
    QK_ATTRIBUTES(squeeze_attributes),
    QK_VERSIONS(squeeze_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan_squeeze},
};

const struct qk_operator qk_onnx_unsqueeze = {
    .name = "onnx.Unsqueeze",
    .platform = QK_ONNX_PLATFORM,
    .about = "data with further dimensions of size 1 at axes",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}, [AXES] = {"axes", "[number of axes]"}},
    .input_count = 2,
    .variable_inputs = 1U << DATA,
    .planned_inputs = 1U << AXES,
    .outputs = {{"expanded", "data's, and 1 at axes"}},
    .output_count = 1,
    QK_ATTRIBUTES(unsqueeze_attributes),
    QK_VERSIONS(unsqueeze_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_unsqueeze, .plan = plan_unsqueeze},
};
