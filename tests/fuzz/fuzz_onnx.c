/* Fuzzes everything from an ONNX file's bytes to the run of its graph. run.sh builds and runs this
 * target. An input is a file. */
#include <assert.h>
#include <string.h>

#include "server/models/onnx/foreign.h"
#include "server/models/onnx/onnx.h"
#include "tests/fuzz/fuzz_kernels.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

/* So little memory that files are refused for lack of it, at many places. */
enum { MEMORY_BYTES = 2 << 20, EXTERNAL_BYTES_MAX = 1 << 16, RUN_BYTES_MAX = 1 << 18 };
enum { UNIT_COUNT_MAX = 256, UNIT_NS_MAX = 1000000 };

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
        } else if (tensor->data != NULL) { /* not a deferred constant */
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
    for (size_t i = 0; i < graph->deferred_count; i++)
        assert(graph->deferred[i].node < call->node_count &&
               graph->deferred[i].port < call->input_count);
    touch(graph->graph_name, strlen(graph->graph_name));
    touch(graph->producer, strlen(graph->producer));
}

/* ---- What it computes ---------------------------------------------------------------------- */

struct run {
    const struct qk_kernels *kernels;
    struct qd_arena arena;
    struct qd_onnx_graph graph;
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
    for (size_t i = 0; i < run->graph.call.input_count; i++) {
        const struct qd_port *port = &run->graph.inputs[i];
        struct qk_tensor *tensor = &run->inputs[i];
        size_t bytes;
        *tensor = (struct qk_tensor){.type = run->graph.call.inputs[i].type, .rank = port->rank};
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

/* Binds deferred constants, like a request that brings scales and weights. */
static bool bind_deferred(struct run *run, struct qk_graph_call *call)
{
    *call = run->graph.call;
    if (run->graph.deferred_count == 0)
        return true;
    struct qk_node *nodes = qd_arena_alloc(&run->arena, call->node_count * sizeof(*nodes));
    if (nodes == NULL)
        return false;
    memcpy(nodes, call->nodes, call->node_count * sizeof(*nodes));
    for (size_t i = 0; i < run->graph.deferred_count; i++) {
        const struct qd_onnx_deferred *deferred = &run->graph.deferred[i];
        nodes[deferred->node].call.inputs[deferred->input] = run->inputs[deferred->port];
    }
    call->nodes = nodes;
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
    for (size_t i = 0; i < plan->node_count; i++) {
        const struct qk_plan *node = &plan->nodes[i].plan;
        if (node->unit_count > UNIT_COUNT_MAX || node->unit_cost_ns > UNIT_NS_MAX)
            return;
        qk_graph_run(plan, i, run->input_data, outputs, scratch, workspace, 0, node->unit_count);
    }
    for (size_t i = 0; i < plan->output_count; i++)
        touch(outputs[i], plan->output_bytes[i]);
}

static void run_graph(struct run *run)
{
    struct qk_memory memory = {take, &run->arena};
    struct qk_graph_call call;
    struct qk_graph *graph;
    struct qk_graph_plan plan;
    struct qk_error refusal;
    struct qd_error error;
    if (!make_inputs(run) || !bind_deferred(run, &call) ||
        qk_graph_prepare(run->kernels, &call, memory, &graph, &refusal) != QK_OK)
        return;
    qk_graph_pack(graph, 0, graph->pack_unit_count);
    if (qd_onnx_settle_outputs(&run->graph, graph->output_types, &error) == QD_OK &&
        qk_graph_plan(graph, run->inputs, memory, &plan, &refusal) == QK_OK)
        run_plan(run, &plan);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct qk_kernels *kernels;
    static struct run run;
    if (kernels == NULL)
        kernels = make_kernels();
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_error error = {.text = ""};
    struct qd_onnx_source source = {
        .bytes = (const char *)data, .count = bytes, .external = read_external};
    run.kernels = kernels;
    qd_arena_init(&run.arena, memory);
    if (qd_onnx_read(&source, &run.arena, &run.graph, &error) == QD_OK) {
        assert(qd_foreign_name(source.bytes, bytes) == NULL);
        check_graph(&run.graph);
        run_graph(&run);
    } else {
        assert(error.status != QD_OK);
        touch(error.text, strlen(error.text));
        qd_foreign_name(source.bytes, bytes);
    }
    qd_arena_deinit(&run.arena);
    qd_memory_destroy(memory);
    return 0;
}
