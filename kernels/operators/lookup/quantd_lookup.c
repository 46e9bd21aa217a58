/* quantd.Lookup: Y = table[X], for 8 bits. No file names this operator: network/tables.c puts it
 * into a graph. */
#include "kernels/lookup/table_operator.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { X, TABLE };
enum { X_TYPE };

static uint8_t entry(const void *context, int32_t x)
{
    const struct qk_tensor *table = context;
    return ((const uint8_t *)table->data)[(uint8_t)x];
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *table = &call->inputs[TABLE];
    const enum qk_type type = call->inputs[X].type;
    const int64_t expected = qk_int_or(&call->attributes[X_TYPE], qk_type_info(type)->onnx);
    (void)kernels;
    if (expected != qk_type_info(type)->onnx)
        return qk_fail(error, QK_INVALID, "X: expected the datatype of its zero point, got %s",
                       qk_type_info(type)->name);
    if (table->rank != 1 || table->count != QK_LOOKUP_ENTRIES)
        return qk_fail(error, QK_INVALID, "table: expected shape [256], got another");
    const enum qk_status status = qk_table_prepare(call, entry, table, memory, instance, error);
    if (status == QK_OK)
        (*instance)->output_types[0] = table->type;
    return status;
}

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[X] = {CODES, false}, [TABLE] = {CODES, false}},
     .output_types = {CODES}},
};

static const struct qk_attribute_def attributes[] = {
    [X_TYPE] = QK_ATTRIBUTE("x_type", TYPE, 1, "the datatype of X that the table is for"),
};

const struct qk_operator qk_quantd_lookup = {
    .name = "quantd.Lookup",
    .platform = QK_ONNX_PLATFORM,
    .about = "Y = table[X]; the bits of an element are the index",
    .inputs = {[X] = {"X", QK_ANY_SHAPE}, [TABLE] = {"table", "[256]"}},
    .input_count = 2,
    .variable_inputs = 1U << X,
    .outputs = {{"Y", "as X"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = qk_table_plan},
};
