/* onnx.Cast: x in another datatype (onnx/defs/tensor/defs.cc). kernels/cast/cast.h says what
 * becomes of values that the other type cannot hold. ONNX Runtime has Cast since opset 6; before,
 * `to` was a string. UINT32 is not here, because ONNX Runtime gives two different results if floats
 * do not fit into it. */
#include "kernels/cast/cast.h"
#include "kernels/dispatch.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { INPUT };
enum { TO, SATURATE, ROUND_MODE };

static enum qk_status read_type(const struct qk_call *call, enum qk_type *type,
                                struct qk_error *error)
{
    const struct qk_attribute *to = &call->attributes[TO];
    char types[192];
    for (*type = QK_NONE + 1; *type < QK_TYPE_COUNT && to->present; (*type)++)
        if (QK_CAST_TYPES & QK_BIT(*type) && to->number == qk_type_info(*type)->onnx)
            return QK_OK;
    qk_print_types(QK_CAST_TYPES, types, sizeof(types));
    if (!to->present)
        return qk_fail(error, QK_INVALID, "to: expected %s, got none", types);
    return qk_fail(error, QK_INVALID, "to: expected %s, got %lld", types, (long long)to->number);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    enum qk_type type;
    const int64_t saturate = qk_int_or(&call->attributes[SATURATE], 1);
    const enum qk_status status = read_type(call, &type, error);
    (void)kernels;
    if (status != QK_OK)
        return status;
    if (saturate != 1)
        return qk_fail(error, QK_INVALID,
                       "saturate: expected 1 for all but floats of 8 bits, got %lld",
                       (long long)saturate);
    struct qk_instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct qk_instance){.output_types = {type}};
    *instance = made;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    return qk_cast_plan(instance->kernels->cast, &instance->kernels->choice.elementwise,
                        &inputs[INPUT], instance->output_types[0], memory, plan, error);
}

#define VERSION(opset)                                                                           \
    {                                                                                            \
        .number = (opset), .inputs = {{QK_CAST_TYPES, false}}, .output_types = { QK_CAST_TYPES } \
    }

static const struct qk_version versions[] = {
    VERSION(6),  VERSION(9),  VERSION(13), VERSION(19),
    VERSION(21), VERSION(23), VERSION(24), VERSION(25),
};

static const struct qk_attribute_def attributes[] = {
    [TO] = QK_ATTRIBUTE("to", TYPE, 6, "the datatype of output; required"),
    [SATURATE] = QK_ATTRIBUTE("saturate", INT, 19, "1, which is the default"),
    [ROUND_MODE] = QK_ATTRIBUTE("round_mode", STRING, 24, "not read: only for FP8E8M0"),
};

const struct qk_operator qk_onnx_cast = {
    .name = "onnx.Cast",
    .platform = QK_ONNX_PLATFORM,
    .about = "input in the datatype `to`",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "as input"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
