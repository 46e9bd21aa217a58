/* onnx.Mod on integers: the remainder with the sign of the divisor (onnx/defs/math/defs.cc). */
#include "kernels/operators/integer/integer_arithmetic.h"
#include "kernels/operators/rules.h"

enum { A, B };
enum { FMOD };

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    const int64_t fmod = qk_int_or(&call->attributes[FMOD], 0);
    if (fmod != 0)
        return qk_fail(error, QK_INVALID, "fmod: expected 0, got %lld", (long long)fmod);
    const enum qk_status status = qk_check_same_type(call, B, A, error);
    if (status != QK_OK)
        return status;
    struct qk_instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct qk_instance){.output_types = {call->inputs[A].type}};
    *instance = made;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    return qk_integer_plan(instance, QK_INTEGER_MOD, inputs, memory, plan, error);
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(since)                                                                \
    {                                                                                 \
        .number = (since),                                                            \
        .inputs = {[A] = {QK_INTEGER_TYPES, false}, [B] = {QK_INTEGER_TYPES, false}}, \
        .output_types = {QK_INTEGER_TYPES},                                           \
    }

static const struct qk_version versions[] = {VERSION(10), VERSION(13)};

static const struct qk_attribute_def attributes[] = {
    [FMOD] = QK_ATTRIBUTE("fmod", INT, 10,
                          "default 0, the only value here: the remainder has the "
                          "sign of B"),
};

const struct qk_operator qk_onnx_mod = {
    .name = "onnx.Mod",
    .platform = QK_ONNX_PLATFORM,
    .about = "the remainder of A / B",
    .inputs = {[A] = {"A", QK_ANY_SHAPE}, [B] = {"B", "broadcasts with A"}},
    .input_count = 2,
    .variable_inputs = 1U << A | 1U << B,
    .outputs = {{"C", "to which A and B broadcast"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
