/* Prints the metadata of the server and of its models, from their signatures.
 *
 * cJSON builds these texts, because they are small (a signature's ports and attributes bound them),
 * rare, and more deeply nested than any other answer. Every string in them is UTF-8 already
 * (signature.h). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/base/version.h"
#include "server/oip/encode.h"

/* Whether an allocation has failed since begin_tree. What could not be allocated is missing in the
 * tree, so the tree is not printed then. cJSON's hooks are global; no other file of the server uses
 * cJSON. */
static _Thread_local bool failed;

static void *allocate(size_t bytes)
{
    void *made = malloc(bytes);
    failed |= made == NULL;
    return made;
}

static void set_hooks(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){allocate, free});
}

static cJSON *begin_tree(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_hooks);
    failed = false;
    return cJSON_CreateObject();
}

/* Appends an item and takes ownership of it. */
static cJSON *append(cJSON *array, cJSON *item)
{
    if (cJSON_AddItemToArray(array, item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

/* Prints a tree and frees it. */
static void print(cJSON *root, struct qd_text *text)
{
    char *json = failed ? NULL : cJSON_PrintUnformatted(root);
    if (json == NULL)
        text->failed = true;
    else
        qd_text_string(text, json);
    cJSON_free(json);
    cJSON_Delete(root);
}

/* Returns the datatype to show for a port, because OIP allows only one: FP32 if accepted, otherwise
 * the first accepted type. A built-in model shows one of OIP's datatypes, because clients know no
 * others. The properties list all accepted types. */
static const char *shown_type(uint32_t types)
{
    enum qk_type first = (enum qk_type)__builtin_ctz(types);
    return qk_type_info((types & QK_BIT(QK_FP32)) != 0 ? QK_FP32 : first)->name;
}

/* Adds the dimensions from `first` on, or [-1] if the rank is unknown. perf_analyzer stops at a
 * rank of 0, so only a port that is known to be a scalar has it. */
static void add_dims(cJSON *to, const char *key, const struct qd_port *port, uint32_t first)
{
    cJSON *dims = cJSON_AddArrayToObject(to, key);
    if (!port->shaped)
        append(dims, cJSON_CreateNumber(-1));
    for (uint32_t i = first; port->shaped && i < port->rank; i++) {
        char number[24]; /* cJSON's doubles could not hold every number */
        snprintf(number, sizeof(number), "%" PRId64, port->dims[i]);
        append(dims, cJSON_CreateRaw(number));
    }
}

/* Finds the next attribute that the signature's version has, from *index on, and describes it.
 * Returns NULL if there is none. */
static const char *next_attribute(const struct qd_signature *signature, size_t *index, char *about,
                                  size_t bytes)
{
    static const char *const kinds[] = {[QK_ATTRIBUTE_INT] = "integer",
                                        [QK_ATTRIBUTE_INTS] = "integers",
                                        [QK_ATTRIBUTE_FLOAT] = "number",
                                        [QK_ATTRIBUTE_STRING] = "string",
                                        [QK_ATTRIBUTE_BOOL] = "true or false",
                                        [QK_ATTRIBUTE_TYPE] = "datatype, by name or ONNX number",
                                        [QK_ATTRIBUTE_STRIDES] = "integers"};
    const struct qk_operator *op = signature->op;
    while (op != NULL && *index < op->attribute_count) {
        const struct qk_attribute_def *def = &op->attributes[(*index)++];
        if (def->since <= signature->version) {
            snprintf(about, bytes, "%s: %s", kinds[def->kind], def->about);
            return def->name;
        }
    }
    return NULL;
}

void qd_oip_encode_server_metadata(struct qd_text *text, const struct qd_config *config,
                                   const char *kernels)
{
    qd_text_string(text, "{\"name\":\"quantd\",\"version\":\"" QD_VERSION "\",\"extensions\":["
                         "\"binary_tensor_data\",\"classification\",\"parameters\","
                         "\"model_repository\",\"model_configuration\",\"statistics\","
                         "\"logging\"");
    if (config != NULL && config->shared_memory_prefix[0] != '\0')
        qd_text_string(text, ",\"system_shared_memory\"");
    qd_text_string(text, "]");
    if (config != NULL) {
        qd_text_string(text, ",\"properties\":{\"kernels\":");
        qd_text_json_string(text, kernels);
        qd_config_print_limits(config, text);
        qd_text_string(text, "}");
    }
    qd_text_string(text, "}");
}

/* ---- Metadata ---------------------------------------------------------------------------- */

static void add_tensors(cJSON *to, const char *key, const struct qd_port *ports, size_t count)
{
    cJSON *tensors = cJSON_AddArrayToObject(to, key);
    for (size_t i = 0; i < count; i++) {
        cJSON *tensor = append(tensors, cJSON_CreateObject());
        cJSON_AddStringToObject(tensor, "name", ports[i].name);
        cJSON_AddStringToObject(tensor, "datatype", shown_type(ports[i].types));
        add_dims(tensor, "shape", &ports[i], 0);
    }
}

/* "x.types": "UINT8, INT8" */
static void add_property(cJSON *to, const struct qd_port *port, const char *what, const char *value)
{
    char key[QD_PORT_NAME_BYTES_MAX + 16];
    snprintf(key, sizeof(key), "%s.%s", port->name, what);
    cJSON_AddStringToObject(to, key, value);
}

static void add_port(cJSON *to, const struct qd_port *port)
{
    char types[320];
    qk_print_types(port->types, types, sizeof(types));
    add_property(to, port, "types", types);
    if (port->shape_text != NULL)
        add_property(to, port, "shape", port->shape_text);
}

static void add_properties(cJSON *to, const struct qd_signature *signature)
{
    char key[64], about[512];
    const char *name;
    size_t next = 0;
    cJSON_AddStringToObject(to, "about", signature->about);
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qd_port *port = &signature->inputs[i];
        add_port(to, port);
        add_property(to, port, "optional", port->optional ? "true" : "false");
    }
    for (size_t i = 0; i < signature->output_count; i++)
        add_port(to, &signature->outputs[i]);
    while ((name = next_attribute(signature, &next, about, sizeof(about))) != NULL) {
        snprintf(key, sizeof(key), "parameters.%s", name);
        cJSON_AddStringToObject(to, key, about);
    }
}

void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count,
                                  size_t resident_bytes)
{
    cJSON *root = begin_tree();
    cJSON_AddStringToObject(root, "name", signature->name);
    cJSON *list = cJSON_AddArrayToObject(root, "versions");
    for (size_t i = 0; i < version_count; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%" PRIu64, versions[i]);
        append(list, cJSON_CreateString(number));
    }
    cJSON_AddStringToObject(root, "platform", signature->platform);
    add_tensors(root, "inputs", signature->inputs, signature->input_count);
    add_tensors(root, "outputs", signature->outputs, signature->output_count);
    cJSON *properties = cJSON_AddObjectToObject(root, "properties");
    add_properties(properties, signature);
    if (resident_bytes > 0) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", resident_bytes);
        cJSON_AddStringToObject(properties, "bytes", number);
    }
    print(root, text);
}

/* ---- Configuration ----------------------------------------------------------------------- */

static cJSON *add_config_port(cJSON *list, const struct qd_signature *signature,
                              const struct qd_port *port, const char *format)
{
    char type[32];
    cJSON *item = append(list, cJSON_CreateObject());
    snprintf(type, sizeof(type), "TYPE_%s", shown_type(port->types));
    cJSON_AddStringToObject(item, "name", port->name);
    cJSON_AddStringToObject(item, "data_type", type);
    if (format != NULL)
        cJSON_AddStringToObject(item, "format", format);
    add_dims(item, "dims", port,
             signature->batch_max > 0 ? 1 : 0); /* Triton leaves the batch out */
    return item;
}

static void add_config_ports(cJSON *to, const struct qd_signature *signature)
{
    cJSON *inputs = cJSON_AddArrayToObject(to, "input");
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qd_port *port = &signature->inputs[i];
        cJSON *input = add_config_port(inputs, signature, port, "FORMAT_NONE");
        cJSON_AddBoolToObject(input, "is_shape_tensor", false);
        cJSON_AddBoolToObject(input, "allow_ragged_batch", false);
        cJSON_AddBoolToObject(input, "optional", port->optional);
    }
    cJSON *outputs = cJSON_AddArrayToObject(to, "output");
    for (size_t i = 0; i < signature->output_count; i++) {
        cJSON *output = add_config_port(outputs, signature, &signature->outputs[i], NULL);
        const char *label_file = signature->outputs[i].label_file;
        cJSON_AddStringToObject(output, "label_filename", label_file == NULL ? "" : label_file);
        cJSON_AddBoolToObject(output, "is_shape_tensor", false);
    }
}

static void add_config_parameters(cJSON *to, const struct qd_signature *signature)
{
    char about[512];
    const char *name;
    size_t next = 0;
    while ((name = next_attribute(signature, &next, about, sizeof(about))) != NULL)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(to, name), "string_value", about);
}

/* Adds a list of names, unless it is empty. */
static void add_names(cJSON *to, const char *key, const char *const *names, size_t count)
{
    cJSON *list = count == 0 ? NULL : cJSON_AddArrayToObject(to, key);
    for (size_t i = 0; i < count; i++)
        append(list, cJSON_CreateString(names[i]));
}

/* Prints the fields of Triton's ModelConfig that clients read, and where the configuration cuts the
 * file, so that a client can load the model again with what it got. A field with another JSON type
 * than Triton's would abort perf_analyzer. */
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature)
{
    cJSON *root = begin_tree();
    cJSON_AddStringToObject(root, "name", signature->name);
    cJSON_AddStringToObject(root, "platform", signature->platform);
    cJSON_AddStringToObject(root, "backend", "quantd");
    char number[24];
    snprintf(number, sizeof(number), "%" PRIu64, signature->batch_max);
    cJSON_AddRawToObject(root, "max_batch_size", number);
    const char *policy = signature->version_policy; /* the JSON of the model's configuration */
    cJSON_AddRawToObject(root, "version_policy", policy == NULL ? "{\"all\":{}}" : policy);
    add_config_ports(root, signature);
    cJSON *group = append(cJSON_AddArrayToObject(root, "instance_group"), cJSON_CreateObject());
    cJSON_AddStringToObject(group, "name", signature->name);
    cJSON_AddStringToObject(group, "kind", "KIND_CPU");
    cJSON_AddNumberToObject(group, "count", 1);
    cJSON_AddArrayToObject(group, "gpus");
    if (signature->file_name != NULL)
        cJSON_AddStringToObject(root, "default_model_filename", signature->file_name);
    add_names(root, "inputs", signature->cut_inputs, signature->cut_input_count);
    add_names(root, "outputs", signature->cut_outputs, signature->cut_output_count);
    add_config_parameters(cJSON_AddObjectToObject(root, "parameters"), signature);
    print(root, text);
}
