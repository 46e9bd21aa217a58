/* Fuzzes everything from an ONNX file's bytes, over the lowering of its graph, to its run. run.sh
 * builds and runs this target. An input is a file. */
#include <assert.h>
#include <string.h>

#include "server/models/build.h"
#include "server/models/cut_hint.h"
#include "server/models/explain/explain.h"
#include "server/models/onnx/onnx.h"
#include "tests/fuzz/fuzz_kernels.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

/* So little memory that files are refused for lack of it, at many places. */
enum { MEMORY_BYTES = 2 << 20, EXTERNAL_BYTES_MAX = 1 << 16, RUN_BYTES_MAX = 1 << 18 };
/* Of a run, as the plans guess it. The scalar kernels and the sanitizers take some hundred times as
 * long. */
enum { RUN_NS_MAX = 500000 };

static volatile unsigned char sink;

static void touch(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sink = (unsigned char)(sink ^ ((const unsigned char *)data)[i]);
}

/* Plays a folder in which every file has the wanted length, up to a limit, and is full of ones. */
static enum qd_status read_external(void *context, const char *location, uint64_t offset,
                                    uint64_t length, struct qd_arena *arena, const void **data,
                                    struct qd_error *error)
{
    (void)context;
    touch(location, strlen(location));
    if (offset > EXTERNAL_BYTES_MAX || length > EXTERNAL_BYTES_MAX)
        return qd_fail(error, QD_INVALID, "the file ends before");
    void *made = qd_arena_alloc(arena, length);
    if (made == NULL)
        return qd_fail(error, QD_TOO_LARGE, "no memory");
    *data = memset(made, 1, length);
    return QD_OK;
}

/* ---- What was read ------------------------------------------------------------------------- */

/* Reads every byte of every constant, and checks that every number is valid. */
static void check_node(const struct qk_graph_call *call, const struct qk_node *node)
{
    const struct qk_operator *op = node->call.op;
    touch(node->name, strlen(node->name));
    for (size_t i = 0; i < op->input_count; i++) {
        const struct qk_tensor *tensor = &node->call.inputs[i];
        size_t bytes;
        if ((node->call.variable >> i & 1) != 0) {
            assert(node->inputs[i] < call->value_count);
        } else if (tensor->type == QK_NONE) {
            assert(node->call.version->inputs[i].optional);
        } else if (tensor->data == NULL) { /* a deferred constant */
            assert(node->inputs[i] < call->input_count);
        } else {
            assert(qk_type_bytes(tensor->type, tensor->stored, &bytes));
            touch(tensor->data, bytes);
        }
    }
    for (size_t i = 0; i < op->output_count; i++)
        assert(node->outputs[i] < call->value_count || node->outputs[i] == QK_VALUE_NONE);
    for (size_t i = 0; i < op->attribute_count; i++)
        touch(node->call.attributes[i].list, node->call.attributes[i].list_count * sizeof(int64_t));
}

static void check_graph(const struct qd_onnx_graph *graph)
{
    const struct qk_graph_call *call = &graph->call;
    assert(call->node_count >= 1 && call->node_count <= QK_GRAPH_NODE_COUNT_MAX);
    assert(call->input_count <= QK_GRAPH_PORT_COUNT_MAX && call->output_count >= 1);
    for (size_t i = 0; i < call->value_count; i++)
        touch(call->value_names[i], strlen(call->value_names[i]));
    for (size_t i = 0; i < call->input_count; i++) {
        assert(graph->inputs[i].types == QK_BIT(call->inputs[i].type));
        assert(call->inputs[i].value < call->value_count);
    }
    for (size_t i = 0; i < call->output_count; i++) {
        assert(call->outputs[i] < call->value_count);
        touch(graph->outputs[i].name, strlen(graph->outputs[i].name));
    }
    for (size_t i = 0; i < call->node_count; i++)
        check_node(call, &call->nodes[i]);
    touch(graph->graph_name, strlen(graph->graph_name));
    touch(graph->producer, strlen(graph->producer));
}

/* ---- What it computes ---------------------------------------------------------------------- */

struct run {
    const struct qk_kernels *kernels;
    struct qd_model_config config;
    struct qd_arena arena;
    struct qd_build_work work;
    struct qd_build build;
    struct qk_tensor inputs[QK_GRAPH_PORT_COUNT_MAX];
    const void *input_data[QK_GRAPH_PORT_COUNT_MAX];
};

static void *take(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

/* Makes a tensor full of ones for each input. Free dimensions are 1. */
static bool make_inputs(struct run *run)
{
    for (size_t i = 0; i < run->build.graph.call.input_count; i++) {
        const struct qd_port *port = &run->build.graph.inputs[i];
        struct qk_tensor *tensor = &run->inputs[i];
        size_t bytes;
        *tensor =
            (struct qk_tensor){.type = run->build.graph.call.inputs[i].type, .rank = port->rank};
        for (uint32_t j = 0; j < port->rank; j++)
            tensor->dims[j] = port->dims[j] == QD_DIM_FREE ? 1 : (size_t)port->dims[j];
        if (!qk_tensor_set_count(tensor) || !qk_type_bytes(tensor->type, tensor->count, &bytes) ||
            bytes > RUN_BYTES_MAX)
            return false;
        void *made = qd_arena_alloc(&run->arena, bytes);
        if (made == NULL)
            return false;
        run->input_data[i] = tensor->data = memset(made, 1, bytes);
    }
    return true;
}

static void run_plan(struct run *run, const struct qk_graph_plan *plan)
{
    void *outputs[QK_GRAPH_PORT_COUNT_MAX];
    size_t bytes = plan->scratch_bytes;
    for (size_t i = 0; i < plan->output_count; i++)
        bytes = plan->output_bytes[i] > RUN_BYTES_MAX ? SIZE_MAX : bytes + plan->output_bytes[i];
    if (bytes > RUN_BYTES_MAX)
        return;
    for (size_t i = 0; i < plan->output_count; i++)
        outputs[i] = qd_arena_alloc(&run->arena, plan->output_bytes[i]);
    void *scratch = qd_arena_alloc(&run->arena, plan->scratch_bytes);
    void *workspace = qd_arena_alloc(&run->arena, plan->workspace_bytes);
    if (workspace == NULL || scratch == NULL)
        return;
    for (size_t i = 0; i < plan->output_count; i++)
        if (outputs[i] == NULL)
            return;
    uint64_t left_ns = RUN_NS_MAX;
    for (size_t i = 0; i < plan->node_count; i++) {
        const struct qk_plan *node = &plan->nodes[i].plan;
        if (node->unit_count > left_ns / (node->unit_cost_ns + 1))
            return;
        left_ns -= node->unit_count * (node->unit_cost_ns + 1);
        qk_graph_run(plan, i, run->input_data, outputs, scratch, workspace, 0, node->unit_count);
    }
    for (size_t i = 0; i < plan->output_count; i++)
        touch(outputs[i], plan->output_bytes[i]);
}

/* Runs a model that was loaded. `graph` is NULL if it has deferred constants: the inputs then bring
 * scales and weights, as a request does. */
static void run_model(struct run *run, const struct qd_model *model, struct qk_graph *graph)
{
    struct qk_memory memory = {take, &run->arena};
    struct qk_graph_plan plan;
    struct qk_error refusal;
    if (!make_inputs(run))
        return;
    if (graph == NULL && qd_deferred_prepare(model->deferred, run->kernels, run->inputs, memory,
                                             &graph, &refusal) != QK_OK)
        return;
    qk_graph_pack(graph, 0, graph->pack_unit_count);
    if (qk_graph_plan(graph, run->inputs, memory, &plan, &refusal) == QK_OK)
        run_plan(run, &plan);
}

/* Forgets the shapes that a file declares of its outputs. Most changes of a file make them wrong,
 * and the file would be refused before its graph runs. */
static bool forget_shapes(struct run *run)
{
    const size_t count = run->build.graph.call.output_count;
    struct qd_port *outputs = qd_arena_alloc(&run->arena, (count + 1) * sizeof(*outputs));
    if (outputs == NULL)
        return false;
    memcpy(outputs, run->build.graph.outputs, count * sizeof(*outputs));
    for (size_t i = 0; i < count; i++)
        outputs[i].shaped = false;
    run->build.graph.outputs = outputs;
    return true;
}

/* Loads a file as the server does. If that refuses it, the server looks for a part that runs. */
static void load(struct run *run, const struct qd_source *source)
{
    struct qd_error error = {.text = ""};
    struct qd_model *model;
    struct qk_graph *graph;
    if (qd_build_read(&run->build, source, &error) != QD_OK) {
        assert(error.status != QD_OK);
        qd_foreign_name(source->content.bytes, source->content.count);
        static struct qd_cut_hints hints;
        qd_cut_hints_find(&run->build, source, &error, &hints);
        qd_cut_hints_print(&hints, sizeof(error.text), &error);
        touch(error.text, strlen(error.text));
        return;
    }
    assert(qd_foreign_name(source->content.bytes, source->content.count) == NULL);
    check_graph(&run->build.graph);
    if (source->content.count % 2 != 0 &&
        !forget_shapes(run)) /* keeps those of half of the files */
        return;
    if (qd_build_prepare(&run->build, &model, &graph, &error) != QD_OK) {
        assert(error.status != QD_OK);
        touch(error.text, strlen(error.text));
        return;
    }
    static struct qd_explanation made;
    made = (struct qd_explanation){.name = ""};
    if (qd_explain_keep(&run->build, model, graph, &made, &error) == QD_OK)
        touch(model->nodes.bytes, model->nodes.count);
    run_model(run, model, graph);
    qd_model_release(model);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct qk_kernels *kernels;
    static struct run run;
    if (kernels == NULL)
        kernels = make_kernels();
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_source source = {
        .kind = QD_SOURCE_ONNX,
        .content = {.bytes = (const char *)data, .count = bytes, .external = read_external}};
    run.kernels = kernels;
    run.work = (struct qd_build_work){.tried_nodes = 0};
    qd_model_config_init(&run.config);
    qd_arena_init(&run.arena, memory);
    run.build = (struct qd_build){.kernels = kernels,
                                  .name = "fuzzed",
                                  .version = 1,
                                  .config = &run.config,
                                  .scratch = &run.arena,
                                  .memory = memory,
                                  .work = &run.work,
                                  .lists_nodes = true};
    load(&run, &source);
    qd_arena_deinit(&run.arena);
    qd_memory_destroy(memory);
    return 0;
}
