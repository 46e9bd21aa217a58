/* quantd.Lookup: Y = table[X], for 8 bits, with one table or a table for each index of an axis. No
 * file names this operator: network/tables.c puts it into a graph. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/lookup/lookup.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

enum { X, TABLE };
enum { X_TYPE, RANK, INNER_RANK };

struct instance {
    struct qk_instance base;
    uint32_t rank; /* the output has at least this many dims */
    bool has_channels;
    struct qk_lookup_channels channels; /* its first table is the only one without channels */
};

static enum qk_status check_shapes(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *table = &call->inputs[TABLE];
    const struct qk_attribute *inner = &call->attributes[INNER_RANK];
    const int64_t rank = qk_int_or(&call->attributes[RANK], 0);
    if (inner->present
            ? table->rank != 2 || table->count == 0 || table->dims[1] != QK_LOOKUP_ENTRIES
            : table->rank != 1 || table->count != QK_LOOKUP_ENTRIES)
        return qk_fail(error, QK_INVALID, "table: expected shape %s, got another",
                       inner->present ? "[C,256]" : "[256]");
    if (inner->present && (inner->number < 0 || inner->number >= QK_RANK_MAX))
        return qk_fail(error, QK_INVALID, "inner_rank: expected 0 to %d, got %lld", QK_RANK_MAX - 1,
                       (long long)inner->number);
    if (rank < 0 || rank > QK_RANK_MAX)
        return qk_fail(error, QK_INVALID, "rank: expected 0 to %d, got %lld", QK_RANK_MAX,
                       (long long)rank);
    return QK_OK;
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
    const enum qk_status status = check_shapes(call, error);
    if (status != QK_OK)
        return status;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    struct qk_lookup_table *tables = memory.alloc(memory.context, table->count + 1);
    if (!made || !tables)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    made->base = (struct qk_instance){.output_types = {table->type}};
    made->rank = (uint32_t)qk_int_or(&call->attributes[RANK], 0);
    made->has_channels = call->attributes[INNER_RANK].present;
    made->channels = (struct qk_lookup_channels){
        .tables = tables,
        .count = table->count / QK_LOOKUP_ENTRIES,
        .inner_rank = (uint32_t)qk_int_or(&call->attributes[INNER_RANK], 0)};
    memcpy(tables, table->data, table->count);
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_lookup_kernel *kernel = instance->kernels->lookup;
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const enum qk_type type = instance->output_types[0];
    struct qk_tensor *y = &plan->outputs[0];
    const enum qk_status status =
        made->has_channels ? qk_lookup_plan_channels(&made->channels, kernel, tuning, &inputs[X],
                                                     type, memory, plan, error)
                           : qk_lookup_plan(made->channels.tables, kernel, tuning, &inputs[X], type,
                                            memory, plan, error);
    if (status != QK_OK || y->rank >= made->rank)
        return status;
    const uint32_t ones = made->rank - y->rank;
    memmove(&y->dims[ones], &y->dims[0], y->rank * sizeof(y->dims[0]));
    for (uint32_t i = 0; i < ones; i++)
        y->dims[i] = 1;
    y->rank = made->rank;
    return QK_OK;
}

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[X] = {CODES, false}, [TABLE] = {CODES, false}},
     .output_types = {CODES}},
};

static const struct qk_attribute_def attributes[] = {
    [X_TYPE] = QK_ATTRIBUTE("x_type", TYPE, 1, "the datatype of X that the table is for"),
    [RANK] = QK_ATTRIBUTE("rank", INT, 1, "the least rank of Y; its first dims are 1 then"),
    [INNER_RANK] = QK_ATTRIBUTE("inner_rank", INT, 1,
                                "the number of axes behind the one with a table for each index; "
                                "default: there is one table"),
};

const struct qk_operator qk_quantd_lookup = {
    .name = "quantd.Lookup",
    .is_table = true,
    .platform = QK_ONNX_PLATFORM,
    .about = "Y = table[X]; the bits of an element are the index",
    .inputs = {[X] = {"X", QK_ANY_SHAPE}, [TABLE] = {"table", "[256] or [C,256]"}},
    .input_count = 2,
    .variable_inputs = 1U << X,
    .outputs = {{"Y",
                 "as X; with ones in front up to rank, and C elements in the axis of the tables"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
