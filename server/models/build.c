#include "server/models/build.h"

#include <stdio.h>
#include <string.h>

#include "server/json/number.h"
#include "server/json/reader.h"
#include "server/memory/text.h"
#include "server/oip/decode.h"

/* ---- A stored request --------------------------------------------------------------------- */

/* Finds the version that model_version names: a number, or a string that is a number. Without it,
 * finds the newest version. */
static enum qd_status find_version(const struct qk_operator *op, const struct qd_json_value *value,
                                   const struct qk_version **row, struct qd_error *error)
{
    int64_t whole;
    uint64_t number = 0;
    *row = &op->versions[op->version_count - 1];
    if (value == NULL)
        return QD_OK;
    const char *text = qd_json_string(value);
    bool known =
        text != NULL ? qd_read_decimal(text, &number) : qd_json_whole(value, &whole) && whole > 0;
    if (known && text == NULL)
        number = (uint64_t)whole;
    *row = known ? qk_operator_version(op, number) : NULL;
    if (*row == NULL) {
        return qd_fail(error, QD_INVALID,
                       "model_version: expected a version of %s from %u to %u, "
                       "got %s",
                       op->name, op->versions[0].number, op->version_last,
                       qd_json_show(value).text);
    }
    return QD_OK;
}

static enum qd_status find_operator(const struct qd_json_value *request,
                                    const struct qk_operator **op, const struct qk_version **row,
                                    struct qd_error *error)
{
    const struct qd_json_value *name, *version;
    if (!qd_json_is_object(request)) {
        return qd_fail(error, QD_INVALID, "the request: expected a JSON object, got %s",
                       qd_json_show(request).text);
    }
    if (qd_json_field(request, NULL, "model_name", &name, error) != QD_OK ||
        qd_json_field(request, NULL, "model_version", &version, error) != QD_OK)
        return error->status;
    const char *text = name == NULL ? NULL : qd_json_string(name);
    *op = text == NULL ? NULL : qk_operator_by_name(text);
    if (*op == NULL) {
        return qd_fail(error, QD_INVALID,
                       "model_name: expected the operator that the model keeps, "
                       "such as \"%s\", got %s",
                       qk_operators(&(size_t){0})[0]->name,
                       name == NULL ? "none" : qd_json_show(name).text);
    }
    return find_version(*op, version, row, error);
}

/* Refuses a request that is not JSON. Keeps the JSON reader's error if the file begins like a JSON
 * object or is of no known kind. */
static enum qd_status refuse_request(const struct qd_source *source, struct qd_error *error)
{
    const char *bytes = source->content.bytes;
    const bool is_json = source->json_bytes > 0 && *bytes == '{';
    const char *name = is_json ? NULL : qd_foreign_name(bytes, source->json_bytes);
    return name == NULL ? error->status
                        : qd_fail(error, QD_INVALID, "expected a request in JSON, got %s", name);
}

/* Finds the operator that the JSON names. qd_oip_decode reads the rest of the JSON later. */
static enum qd_status read_operator(const struct qd_build *build, const struct qd_source *source,
                                    const struct qk_operator **op, const struct qk_version **row,
                                    struct qd_error *error)
{
    const struct qd_json_value *tree;
    enum qd_status status =
        qd_json_read(source->content.bytes, source->json_bytes, build->scratch, &tree, error);
    if (status == QD_INVALID && source->is_file)
        return refuse_request(source, error);
    return status == QD_OK ? find_operator(tree, op, row, error) : status;
}

/* Makes the call a graph of one node. The graph's values are the node's variable inputs and its
 * outputs. */
static enum qd_status make_call(struct qd_build *build, const struct qd_oip_asked *asked,
                                const struct qd_signature *signature, struct qd_error *error)
{
    const struct qk_operator *op = asked->call.op;
    struct qk_graph_call *call = &build->graph.call;
    struct qk_node *node = qd_arena_calloc(build->scratch, 1, sizeof(*node));
    struct qd_port *inputs = qd_arena_calloc(build->scratch, op->input_count, sizeof(*inputs));
    const char **names =
        qd_arena_calloc(build->scratch, op->input_count + op->output_count, sizeof(*names));
    if (node == NULL || inputs == NULL || names == NULL)
        return qd_refuse_memory(build->scratch, "the model", error);
    *call = (struct qk_graph_call){.nodes = node, .node_count = 1, .value_names = names};
    *node = (struct qk_node){.name = NULL, .call = asked->call};
    for (size_t i = 0; i < op->input_count; i++) {
        node->inputs[i] = QK_VALUE_NONE;
        if ((asked->call.variable >> i & 1) == 0)
            continue;
        size_t port = call->input_count++;
        uint32_t value = (uint32_t)call->value_count++;
        inputs[port] = asked->declared[i];
        if (asked->declared[i].types == 0) {
            inputs[port] = signature->inputs[i];
            build->untyped |= UINT32_C(1) << port;
        }
        call->inputs[port] = (struct qk_graph_input){value, asked->inputs[i].type};
        names[value] = op->inputs[i].name;
        node->inputs[i] = value;
    }
    for (size_t i = 0; i < op->output_count; i++) {
        uint32_t value = (uint32_t)call->value_count++;
        names[value] = op->outputs[i].name;
        node->outputs[i] = call->outputs[call->output_count++] = value;
    }
    build->graph.inputs = inputs;
    return QD_OK;
}

static enum qd_status read_request(struct qd_build *build, const struct qd_source *source,
                                   struct qd_error *error)
{
    const struct qk_operator *op = NULL;
    const struct qk_version *row = NULL;
    enum qd_status status = read_operator(build, source, &op, &row, error);
    if (status != QD_OK)
        return status;
    struct qd_builtin *builtin = qd_arena_alloc(build->scratch, sizeof(*builtin));
    struct qd_oip_asked *asked = qd_arena_alloc(build->scratch, sizeof(*asked));
    char *json_bytes = qd_arena_alloc(build->scratch, QD_PRINT_BYTES_MAX);
    if (builtin == NULL || asked == NULL || json_bytes == NULL)
        return qd_refuse_memory(build->scratch, "the request", error);
    qd_builtin_init(builtin, op, row);
    snprintf(json_bytes, QD_PRINT_BYTES_MAX, "%zu", source->json_bytes);
    bool has_blobs = source->json_bytes < source->content.count;
    const struct qd_oip_message message = {
        .signature = &builtin->signature,
        .declares = true,
        .body = source->content.bytes,
        .body_bytes = source->content.count,
        .json_bytes_header = has_blobs || source->is_file ? json_bytes : NULL,
        .json_bytes = source->json_bytes,
        .blobs_source = source->is_file ? "request.bin" : NULL,
    };
    status = qd_oip_decode(&message, build->scratch, asked, error);
    if (status != QD_OK)
        return status;
    build->graph.outputs = builtin->ports + op->input_count;
    build->platform = op->platform;
    snprintf(build->about, sizeof(build->about), "%s, version %u, with constants of its own",
             op->name, row->number);
    return make_call(build, asked, &builtin->signature, error);
}

/* ---- An ONNX file ------------------------------------------------------------------------- */

static enum qd_status read_onnx(struct qd_build *build, const struct qd_source *source,
                                struct qd_error *error)
{
    struct qd_onnx_graph *graph = &build->graph;
    struct qd_onnx_source content = source->content;
    content.cut = build->config->cut;
    content.list = build->lists_nodes ? &build->listed : NULL;
    if (qd_onnx_read(&content, build->scratch, graph, error) != QD_OK)
        return error->status;
    if (build->lists_nodes) {
        graph->call.fate_count = build->listed.count;
        graph->call.fates =
            qd_arena_calloc(build->scratch, build->listed.count, sizeof(*graph->call.fates));
        if (graph->call.fates == NULL)
            return qd_refuse_memory(build->scratch, "the list of nodes", error);
    }
    build->platform = "onnx_onnxv1";
    snprintf(build->about, sizeof(build->about),
             "ONNX graph \"%.64s\" of %zu nodes that compute its outputs, opset %llu",
             graph->graph_name, graph->call.node_count, (unsigned long long)graph->opset);
    return QD_OK;
}

enum qd_status qd_build_read(struct qd_build *build, const struct qd_source *source,
                             struct qd_error *error)
{
    const struct qd_onnx_cut *cut = &build->config->cut;
    build->untyped = 0;
    build->computed = (struct qk_graph_memory){0};
    build->graph = (struct qd_onnx_graph){.refused_node = QK_VALUE_NONE};
    build->is_onnx = source->kind == QD_SOURCE_ONNX;
    if (build->is_onnx)
        return read_onnx(build, source, error);
    if (cut->input_count > 0 || cut->output_count > 0)
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s: expected an ONNX file to cut, got a request",
                       cut->input_count > 0 ? "inputs" : "outputs");
    return read_request(build, source, error);
}

/* ---- The model ---------------------------------------------------------------------------- */

bool qd_build_try(struct qd_build_work *work, size_t node_count, size_t constant_bytes)
{
    const size_t nodes = node_count + constant_bytes / QD_TRIED_NODE_BYTES;
    if (nodes > QD_TRIED_NODES_MAX - work->tried_nodes)
        return false;
    work->tried_nodes += nodes;
    return true;
}

/* Lowers the graph of a file, or does only the part of it that is the same for all types. */
static enum qd_status lower(struct qd_build *build, bool once, struct qd_error *error)
{
    struct qk_error cause = {.status = QK_OK};
    const struct qk_memory memory = {qd_arena_alloc_any, build->scratch};
    const uint32_t *origins;
    if (!build->is_onnx)
        return QD_OK;
    build->graph.call.memory = &build->computed;
    const enum qk_status status = (once ? qk_graph_lower_once : qk_graph_lower)(
        build->kernels, &build->graph.call, memory, &origins, &cause);
    if (status == QK_OK)
        return QD_OK;
    if (status == QK_NO_MEMORY)
        return qd_refuse_memory(build->scratch, "constants that nodes compute", error);
    build->graph.refused_node = cause.node;
    return qd_fail(error, QD_INVALID, "%s", cause.text);
}

/* Creates a model and prepares its graph. If some constants come with each request, the model keeps
 * the graph's call instead. The caller releases the model, also after a failure. */
static enum qd_status prepare_graph(struct qd_build *build, struct qd_model **model,
                                    struct qk_graph **graph, struct qd_error *error)
{
    struct qk_error cause = {.status = QK_NO_MEMORY, .node = QK_VALUE_NONE};
    *model = qd_model_create(build->memory);
    if (*model == NULL)
        return qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                           "no memory for the model; try again later");
    struct qd_arena *arena = &(*model)->arena;
    arena->together = build->scratch->together;
    if (build->graph.has_deferred) {
        (*model)->deferred = qd_deferred_copy(&build->graph.call, arena);
        if ((*model)->deferred != NULL)
            return QD_OK;
    } else if (qk_graph_prepare(build->kernels, &build->graph.call,
                                (struct qk_memory){qd_arena_alloc_any, arena}, graph,
                                &cause) == QK_OK) {
        (*model)->graph = *graph;
        return QD_OK;
    }
    build->graph.refused_node = cause.node;
    return cause.status == QK_NO_MEMORY
               ? qd_refuse_memory(arena, "the model's weights", error)
               : qd_fail(error, cause.status == QK_INVALID ? QD_INVALID : QD_INTERNAL, "%s",
                         cause.text);
}

/* ---- Types of inputs ---------------------------------------------------------------------- */

/* Refuses an input whose type nothing says. */
static enum qd_status refuse_untyped(const struct qd_build *build, size_t port,
                                     struct qd_error *error)
{
    const struct qd_port *input = &build->graph.inputs[port];
    char types[160];
    if (!build->is_onnx)
        return qd_fail(error, QD_INVALID,
                       "inputs: expected %s with its datatype and shape, "
                       "without data, as several datatypes are possible",
                       qd_show_string(input->name).text);
    qk_print_types(input->types, types, sizeof(types));
    return qd_fail(error, QD_INVALID,
                   "the configuration's input: expected %s with its data_type, because the file "
                   "does not say which it has of %s",
                   qd_show_string(input->name).text, types);
}

/* Gives deferred constants the types of the inputs that bring them. */
static void type_deferred(struct qd_build *build)
{
    const struct qk_graph_call *call = &build->graph.call;
    struct qk_node *nodes = (struct qk_node *)(uintptr_t)call->nodes; /* the reader made them */
    for (size_t i = 0; i < call->node_count; i++)
        for (size_t k = 0; k < nodes[i].call.op->input_count; k++)
            if (nodes[i].call.inputs[k].type == QK_NONE && nodes[i].inputs[k] < call->input_count)
                nodes[i].call.inputs[k].type = call->inputs[nodes[i].inputs[k]].type;
}

/* Sets the types of inputs that an ONNX file does not declare, where the configuration's `input`
 * has them, or where the nodes take only one type. The others become `untyped`. */
static enum qd_status declare_types(struct qd_build *build, struct qd_error *error)
{
    const struct qd_model_config *config = build->config;
    for (size_t i = 0; build->is_onnx && i < build->graph.call.input_count; i++) {
        enum qk_type *type = &build->graph.call.inputs[i].type;
        const uint32_t types = build->graph.inputs[i].types;
        if (*type != QK_NONE)
            continue;
        for (size_t k = 0; k < config->input_count; k++)
            if (strcmp(config->inputs[k].name, build->graph.inputs[i].name) == 0)
                *type = config->inputs[k].type;
        if (*type == QK_NONE && (types & (types - 1)) == 0)
            *type = (enum qk_type)__builtin_ctz(types);
        else if (*type == QK_NONE && build->graph.has_deferred)
            return refuse_untyped(build, i, error);
        else if (*type == QK_NONE)
            build->untyped |= UINT32_C(1) << i;
        else if ((types & QK_BIT(*type)) == 0)
            return qd_model_config_refuse_type(build->graph.inputs[i].name, types, *type, error);
    }
    if (build->graph.has_deferred)
        type_deferred(build);
    return QD_OK;
}

/* Returns how many bytes the constants of all nodes have. */
static size_t constant_bytes(const struct qk_graph_call *call)
{
    size_t sum = 0;
    for (size_t i = 0; i < call->node_count; i++)
        for (size_t k = 0; k < call->nodes[i].call.op->input_count; k++) {
            const struct qk_tensor *tensor = &call->nodes[i].call.inputs[k];
            size_t bytes;
            if ((call->nodes[i].call.variable >> k & 1) != 0 || tensor->type == QK_NONE)
                continue;
            if (!qk_type_bytes(tensor->type, tensor->stored, &bytes) ||
                __builtin_add_overflow(sum, bytes, &sum))
                return SIZE_MAX;
        }
    return sum;
}

/* Refuses an input whose type would take too much work to find. */
static enum qd_status refuse_work(const struct qd_build *build, struct qd_error *error)
{
    const size_t port = (size_t)__builtin_ctz(build->untyped);
    return qd_fail(error, QD_INVALID,
                   "the configuration's input: expected %s and all other inputs with their "
                   "data_type, because the file does not say which they have, and it takes too "
                   "long to try all types",
                   qd_show_string(build->graph.inputs[port].name).text);
}

/* Lowers and prepares a copy of the graph. Sets *works to whether it has no fault. Sets *why if it
 * has one. Fails if that cannot be found out. */
static enum qd_status try_types(struct qd_build *build, bool *works, struct qd_error *why,
                                struct qd_error *error)
{
    struct qd_arena scratch;
    struct qd_build trial = *build;
    struct qd_model *model = NULL;
    struct qk_graph *graph;
    if (!qd_build_try(build->work, build->graph.call.node_count,
                      constant_bytes(&build->graph.call)))
        return refuse_work(build, error);
    qd_arena_init_beside(&scratch, build->scratch);
    trial.scratch = &scratch;
    trial.graph.call.fates = NULL; /* a trial says nothing of what becomes of the nodes */
    build->work->computed.is_refused = false;
    enum qd_status status = lower(&trial, false, why);
    if (status == QD_OK)
        status = prepare_graph(&trial, &model, &graph, why);
    build->graph.refused_node = trial.graph.refused_node;
    qd_model_release(model);
    qd_arena_deinit(&scratch);
    *works = status == QD_OK;
    if (status == QD_OK || (status == QD_INVALID && !build->work->computed.is_refused))
        return QD_OK;
    *error = *why;
    return status;
}

/* Sets the inputs that have no type to this one. Returns false if one of them cannot have it. */
static bool set_types(struct qd_build *build, enum qk_type type)
{
    bool all = true;
    for (size_t i = 0; i < build->graph.call.input_count; i++) {
        if ((build->untyped >> i & 1) == 0)
            continue;
        build->graph.call.inputs[i].type = type;
        all &= (build->graph.inputs[i].types & QK_BIT(type)) != 0;
    }
    return all;
}

/* Finds an input that could also have a type other than `type`, while the other inputs have that
 * one. Sets *port to call.input_count if there is none. */
static enum qd_status find_ambiguous(struct qd_build *build, enum qk_type type, size_t *port,
                                     struct qd_error *error)
{
    struct qk_graph_call *call = &build->graph.call;
    for (*port = 0; *port < call->input_count; ++*port) {
        uint32_t others = build->graph.inputs[*port].types & ~QK_BIT(type);
        if ((build->untyped >> *port & 1) == 0)
            continue;
        for (; others != 0; others &= others - 1) {
            struct qd_error why;
            bool works;
            call->inputs[*port].type = (enum qk_type)__builtin_ctz(others);
            const enum qd_status status = try_types(build, &works, &why, error);
            if (status != QD_OK || works)
                return status;
        }
        call->inputs[*port].type = type;
    }
    return QD_OK;
}

/* Finds the types of undeclared inputs: the one type that all of them can have. Exactly one must
 * work. A request that is a model may leave only one type out. */
static enum qd_status find_types(struct qd_build *build, struct qd_error *error)
{
    const size_t first = (size_t)__builtin_ctz(build->untyped);
    const bool several = (build->untyped & (build->untyped - 1)) != 0;
    struct qd_error last = {.status = QD_OK};
    enum qk_type found = QK_NONE;
    if (several && !build->is_onnx)
        return refuse_untyped(build, first, error);
    /* Constants are folded once, before types are tried. The nodes may be elsewhere then, in memory
     * that has room for no more. */
    enum qd_status status = lower(build, true, error);
    build->graph.node_room = build->graph.call.node_count;
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT && status == QD_OK; type++) {
        bool works = false;
        if (set_types(build, type))
            status = try_types(build, &works, &last, error);
        if (!works)
            continue;
        if (found != QK_NONE)
            return refuse_untyped(build, first, error);
        found = type;
    }
    if (status != QD_OK)
        return status;
    if (found == QK_NONE) {
        if (last.status == QD_OK)
            return refuse_untyped(build, first, error);
        *error = last;
        return last.status;
    }
    set_types(build, found);
    size_t port = build->graph.call.input_count;
    if (several)
        status = find_ambiguous(build, found, &port, error);
    return status == QD_OK && port < build->graph.call.input_count
               ? refuse_untyped(build, port, error)
               : status;
}

/* ---- What the model keeps ------------------------------------------------------------------ */

static bool copy_strides(struct qd_arena *arena, struct qd_port *port)
{
    if (port->strides == NULL)
        return true;
    struct qk_attribute *strides = qd_arena_alloc(arena, sizeof(*strides));
    size_t bytes = port->strides->list_count * sizeof(*port->strides->list);
    int64_t *list = strides == NULL ? NULL : qd_arena_alloc(arena, bytes);
    if (list == NULL)
        return false;
    *strides = *port->strides;
    strides->list = memcpy(list, port->strides->list, bytes);
    port->strides = strides;
    return true;
}

/* Copies ports out of the scratch arena. Returns NULL if the arena has no room. */
static struct qd_port *copy_ports(struct qd_arena *arena, const struct qd_port *ports, size_t count)
{
    struct qd_port *copies = qd_arena_calloc(arena, count, sizeof(*copies));
    for (size_t i = 0; copies != NULL && i < count; i++) {
        copies[i] = ports[i];
        copies[i].optional = false;
        copies[i].name = qd_arena_copy(arena, ports[i].name);
        if (ports[i].shape_text != NULL)
            copies[i].shape_text = qd_arena_copy(arena, ports[i].shape_text);
        if (copies[i].name == NULL ||
            (ports[i].shape_text != NULL && copies[i].shape_text == NULL) ||
            !copy_strides(arena, &copies[i]))
            return NULL;
    }
    return copies;
}

/* Copies a list of names out of the scratch arena. Returns NULL if the arena has no room. */
static const char *const *copy_names(struct qd_arena *arena, const char *const *names, size_t count)
{
    const char **copies = qd_arena_calloc(arena, count, sizeof(*copies));
    for (size_t i = 0; copies != NULL && i < count; i++) {
        copies[i] = qd_arena_copy(arena, names[i]);
        if (copies[i] == NULL)
            return NULL;
    }
    return copies;
}

/* Fills in the parts of the signature that repeat the configuration. */
static bool keep_config(const struct qd_model_config *config, struct qd_arena *arena,
                        struct qd_signature *signature)
{
    const struct qd_onnx_cut *cut = &config->cut;
    signature->version_policy = qd_model_config_print_policy(config, arena);
    signature->batch_max = config->batch_max;
    signature->cut_inputs = copy_names(arena, cut->inputs, cut->input_count);
    signature->cut_input_count = cut->input_count;
    signature->cut_outputs = copy_names(arena, cut->outputs, cut->output_count);
    signature->cut_output_count = cut->output_count;
    if (config->file_name != NULL)
        signature->file_name = qd_arena_copy(arena, config->file_name);
    return signature->version_policy != NULL && signature->cut_inputs != NULL &&
           signature->cut_outputs != NULL &&
           (config->file_name == NULL || signature->file_name != NULL);
}

/* Copies the labels of the outputs' classes, each text once, and the names of their files. */
static bool copy_labels(const struct qd_build *build, struct qd_arena *arena,
                        struct qd_port *outputs, size_t count)
{
    const struct qd_model_config *config = build->config;
    const struct qd_labels *sources[QK_GRAPH_PORT_COUNT_MAX];
    for (size_t i = 0; i < count; i++) {
        sources[i] = build->labels;
        for (size_t k = 0; k < config->output_count; k++) {
            const char *file = config->outputs[k].label_file;
            if (file == NULL || strcmp(config->outputs[k].name, outputs[i].name) != 0)
                continue;
            sources[i] = build->output_labels[k];
            outputs[i].label_file = qd_arena_copy(arena, file);
            if (outputs[i].label_file == NULL)
                return false;
        }
        size_t same = 0;
        while (sources[same] != sources[i])
            same++;
        if (sources[i] != NULL)
            outputs[i].labels = same < i ? outputs[same].labels : qd_labels_copy(sources[i], arena);
        if (sources[i] != NULL && outputs[i].labels == NULL)
            return false;
    }
    return true;
}

/* Fills in the model's signature. `types` are the outputs' types, or NULL if the ports have them
 * already. */
static enum qd_status make_signature(struct qd_build *build, const enum qk_type *types,
                                     struct qd_model *model, struct qd_error *error)
{
    const struct qk_graph_call *call = &build->graph.call;
    struct qd_port *inputs = copy_ports(&model->arena, build->graph.inputs, call->input_count);
    struct qd_port *outputs = copy_ports(&model->arena, build->graph.outputs, call->output_count);
    model->signature = (struct qd_signature){
        .name = qd_arena_copy(&model->arena, build->name),
        .platform = build->platform,
        .about = qd_arena_copy(&model->arena, build->about),
        .version = build->version,
        .inputs = inputs,
        .input_count = call->input_count,
        .outputs = outputs,
        .output_count = call->output_count,
    };
    if (inputs == NULL || outputs == NULL || model->signature.name == NULL ||
        model->signature.about == NULL ||
        !copy_labels(build, &model->arena, outputs, call->output_count) ||
        !keep_config(build->config, &model->arena, &model->signature))
        return qd_refuse_memory(&model->arena, "the model's signature", error);
    for (size_t i = 0; i < call->input_count; i++)
        inputs[i].types = QK_BIT(call->inputs[i].type);
    for (size_t i = 0; types != NULL && i < call->output_count; i++)
        outputs[i].types = QK_BIT(types[i]);
    if (qd_signature_check(&model->signature, error) != QD_OK ||
        qd_model_config_apply(build->config, inputs, call->input_count, outputs, call->output_count,
                              error) != QD_OK)
        return error->status;
    return model->graph == NULL
               ? QD_OK
               : qd_shapes_settle(model->plans, model->graph, inputs, outputs, build->memory,
                                  &build->work->planned_bytes, &build->graph.refused_node, error);
}

/* Lists, with their reasons, all nodes that are refused as the first one is because they compute
 * floats. */
static void list_unfused(struct qd_build *build)
{
    const struct qk_graph_call *call = &build->graph.call;
    struct qk_error why;
    size_t count = 0;
    for (size_t i = 0; i < call->node_count; i++) {
        const size_t number = call->nodes[i].number; /* one more than the index in the file, or 0 */
        if (number == 0 || number > build->listed.count ||
            !qk_node_is_unfused(&call->nodes[i], &why))
            continue;
        struct qd_onnx_listed *node = &build->listed.nodes[number - 1];
        node->fate = QD_FATE_REFUSED;
        if (count++ < QD_ONNX_REFUSALS_MAX)
            node->refusal = qd_arena_copy(build->scratch, why.text);
    }
}

enum qd_status qd_build_prepare(struct qd_build *build, struct qd_model **model,
                                struct qk_graph **graph, struct qd_error *error)
{
    enum qd_status status = QD_OK;
    *model = NULL;
    *graph = NULL;
    build->graph.call.work = &build->work->computed;
    status = declare_types(build, error);
    if (status == QD_OK && build->untyped != 0)
        status = find_types(build, error);
    build->graph.call.node_room = build->graph.node_room; /* nothing reads them again */
    if (status == QD_OK)
        status = lower(build, false, error);
    if (status == QD_OK) {
        status = prepare_graph(build, model, graph, error);
        if (status == QD_INVALID && build->lists_nodes)
            list_unfused(build);
    }
    const enum qk_type *types = status == QD_OK && *graph != NULL ? (*graph)->output_types : NULL;
    if (status == QD_OK && build->is_onnx)
        status = qd_onnx_settle_outputs(&build->graph, types, error);
    if (status == QD_OK && *graph != NULL) {
        (*model)->plans = qd_plans_create(*graph, build->memory);
        if ((*model)->plans == NULL)
            status = qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                                 "no memory for the model; try again later");
    }
    if (status == QD_OK)
        status = make_signature(build, types, *model, error);
    if (status == QD_OK)
        (*model)->resident_bytes = (*model)->arena.bytes;
    if (status != QD_OK) {
        qd_model_release(*model);
        *model = NULL;
        *graph = NULL; /* the model had it */
    }
    return status;
}

enum qd_status qd_build_part(const struct qd_build *whole, const struct qd_source *source,
                             const struct qd_onnx_cut *cut, uint64_t batch_max,
                             struct qd_arena *arena, struct qd_model **model,
                             uint32_t *refused_node)
{
    struct qd_error error = {.status = QD_OK};
    struct qd_source inner = *source;
    struct qd_model_config config;
    struct qd_build build = *whole;
    struct qk_graph *graph;
    inner.content.external = NULL; /* data of other files have not been read yet */
    qd_model_config_init(&config);
    config.batch_max = batch_max;
    config.cut = *cut;
    build.config = &config;
    build.scratch = arena;
    build.lists_nodes = false;
    *model = NULL;
    enum qd_status status = qd_build_read(&build, &inner, &error);
    if (status == QD_OK)
        status = qd_build_prepare(&build, model, &graph, &error);
    *refused_node = build.graph.refused_node;
    return status;
}
