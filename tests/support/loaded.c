#include "tests/support/loaded.h"

#include <criterion/criterion.h>
#include <string.h>

static void *alloc(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

static char *copy(struct qd_arena *arena, const char *text)
{
    char *copied = qd_arena_alloc(arena, strlen(text) + 1);
    cr_assert_not_null(copied);
    return strcpy(copied, text);
}

static struct qd_port *make_ports(const struct graph_case *made, struct qd_arena *arena,
                                  size_t count, bool outputs)
{
    struct qd_port *ports = qd_arena_calloc(arena, count, sizeof(*ports));
    cr_assert_not_null(ports);
    for (size_t i = 0; i < count; i++) {
        const uint32_t value = outputs ? made->call.outputs[i] : made->call.inputs[i].value;
        const struct qk_tensor *tensor = &made->values[value];
        ports[i] = (struct qd_port){.name = copy(arena, made->value_names[value]),
                                    .types = QK_BIT(tensor->type),
                                    .shaped = !outputs,
                                    .rank = outputs ? 0 : tensor->rank};
        for (uint32_t k = 0; k < ports[i].rank; k++)
            ports[i].dims[k] = k == 0 ? QD_DIM_FREE : (int64_t)tensor->dims[k];
    }
    return ports;
}

struct qd_model *loaded_create(const struct graph_case *made, const struct qk_kernels *kernels,
                               struct qd_memory *memory, const char *name, uint64_t version)
{
    struct qk_error error;
    struct qd_model *model = qd_model_create(memory);
    cr_assert_not_null(model);
    struct qd_arena *arena = &model->arena;
    cr_assert_eq(
        graph_case_prepare(made, kernels, (struct qk_memory){alloc, arena}, &model->graph, &error),
        QK_OK, "%s", error.text);
    model->signature = (struct qd_signature){
        .name = copy(arena, name),
        .platform = "quantd_graph",
        .about = "a graph for tests",
        .version = version,
        .inputs = make_ports(made, arena, made->call.input_count, false),
        .input_count = made->call.input_count,
        .outputs = make_ports(made, arena, made->call.output_count, true),
        .output_count = made->call.output_count,
    };
    model->plans = qd_plans_create(model->graph, memory);
    cr_assert_not_null(model->plans);
    model->resident_bytes = arena->bytes;
    return model;
}
