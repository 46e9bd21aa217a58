#include "kernels/lookup/table_operator.h"

#include "kernels/dispatch.h"

struct instance {
    struct qk_instance base;
    struct qk_lookup_table table;
};

enum qk_status qk_table_prepare(const struct qk_call *call, qk_table_entry_fn entry,
                                const void *context, struct qk_memory memory,
                                struct qk_instance **instance, struct qk_error *error)
{
    const enum qk_type type = call->inputs[0].type;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    made->base = (struct qk_instance){.output_types = {type}};
    for (int32_t bits = 0; bits < QK_LOOKUP_ENTRIES; bits++)
        made->table.entries[bits] =
            entry(context, type == QK_INT8 && bits > 127 ? bits - 256 : bits);
    *instance = &made->base;
    return QK_OK;
}

enum qk_status qk_table_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    return qk_lookup_plan(&made->table, instance->kernels->lookup,
                          &instance->kernels->choice.elementwise, &inputs[0],
                          instance->output_types[0], memory, plan, error);
}
