/* Prints the metadata of the server and of its models, from their signatures.
 *
 * cJSON builds these texts, because they are small (a signature's ports and attributes bound them),
 * rare, and more deeply nested than any other answer. Every string in them is UTF-8 already
 * (signature.h). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>

#include "server/base/version.h"
#include "server/oip/encode.h"

/* A tree whose nodes come from malloc. If an allocation fails, the node is missing and `failed` is
 * set. */
struct sheet {
    cJSON *root;
    bool failed;
};

static cJSON *check(struct sheet *sheet, cJSON *item)
{
    sheet->failed |= item == NULL;
    return item;
}

static void add_string(struct sheet *sheet, cJSON *to, const char *key, const char *string)
{
    check(sheet, cJSON_AddStringToObject(to, key, string));
}

static void add_bool(struct sheet *sheet, cJSON *to, const char *key, bool flag)
{
    check(sheet, cJSON_AddBoolToObject(to, key, flag));
}

static cJSON *add_object(struct sheet *sheet, cJSON *to, const char *key)
{
    return check(sheet, cJSON_AddObjectToObject(to, key));
}

static cJSON *add_array(struct sheet *sheet, cJSON *to, const char *key)
{
    return check(sheet, cJSON_AddArrayToObject(to, key));
}

/* Appends an item and takes ownership of it. */
static cJSON *append(struct sheet *sheet, cJSON *array, cJSON *item)
{
    if (check(sheet, item) != NULL && !cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        sheet->failed = true;
        return NULL;
    }
    return item;
}

static cJSON *open(struct sheet *sheet)
{
    sheet->failed = false;
    sheet->root = cJSON_CreateObject();
    return check(sheet, sheet->root);
}

static void print(struct sheet *sheet, struct qd_text *text)
{
    char *json = sheet->failed ? NULL : cJSON_PrintUnformatted(sheet->root);
    if (json == NULL)
        text->failed = true;
    else
        qd_text_string(text, json);
    cJSON_free(json);
    cJSON_Delete(sheet->root);
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
static void add_dims(struct sheet *sheet, cJSON *to, const char *key, const struct qd_port *port,
                     uint32_t first)
{
    cJSON *dims = add_array(sheet, to, key);
    if (!port->shaped)
        append(sheet, dims, cJSON_CreateNumber(-1));
    for (uint32_t i = first; port->shaped && i < port->rank; i++) {
        char number[24]; /* cJSON's doubles could not hold every number */
        snprintf(number, sizeof(number), "%" PRId64, port->dims[i]);
        append(sheet, dims, cJSON_CreateRaw(number));
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

static void add_tensors(struct sheet *sheet, cJSON *to, const char *key,
                        const struct qd_port *ports, size_t count)
{
    cJSON *tensors = add_array(sheet, to, key);
    for (size_t i = 0; i < count; i++) {
        cJSON *tensor = append(sheet, tensors, cJSON_CreateObject());
        add_string(sheet, tensor, "name", ports[i].name);
        add_string(sheet, tensor, "datatype", shown_type(ports[i].types));
        add_dims(sheet, tensor, "shape", &ports[i], 0);
    }
}

/* "x.types": "UINT8, INT8" */
static void add_property(struct sheet *sheet, cJSON *to, const struct qd_port *port,
                         const char *what, const char *value)
{
    char key[QD_PORT_NAME_BYTES_MAX + 16];
    snprintf(key, sizeof(key), "%s.%s", port->name, what);
    add_string(sheet, to, key, value);
}

static void add_port(struct sheet *sheet, cJSON *to, const struct qd_port *port)
{
    char types[320];
    qk_print_types(port->types, types, sizeof(types));
    add_property(sheet, to, port, "types", types);
    if (port->shape_text != NULL)
        add_property(sheet, to, port, "shape", port->shape_text);
}

static void add_properties(struct sheet *sheet, cJSON *to, const struct qd_signature *signature)
{
    char key[64], about[512];
    const char *name;
    size_t next = 0;
    add_string(sheet, to, "about", signature->about);
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qd_port *port = &signature->inputs[i];
        add_port(sheet, to, port);
        add_property(sheet, to, port, "optional", port->optional ? "true" : "false");
    }
    for (size_t i = 0; i < signature->output_count; i++)
        add_port(sheet, to, &signature->outputs[i]);
    while ((name = next_attribute(signature, &next, about, sizeof(about))) != NULL) {
        snprintf(key, sizeof(key), "parameters.%s", name);
        add_string(sheet, to, key, about);
    }
}

void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count,
                                  size_t resident_bytes)
{
    struct sheet sheet;
    cJSON *root = open(&sheet);
    add_string(&sheet, root, "name", signature->name);
    cJSON *list = add_array(&sheet, root, "versions");
    for (size_t i = 0; i < version_count; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%" PRIu64, versions[i]);
        append(&sheet, list, cJSON_CreateString(number));
    }
    add_string(&sheet, root, "platform", signature->platform);
    add_tensors(&sheet, root, "inputs", signature->inputs, signature->input_count);
    add_tensors(&sheet, root, "outputs", signature->outputs, signature->output_count);
    cJSON *properties = add_object(&sheet, root, "properties");
    add_properties(&sheet, properties, signature);
    if (resident_bytes > 0) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", resident_bytes);
        add_string(&sheet, properties, "bytes", number);
    }
    print(&sheet, text);
}

/* ---- Configuration ----------------------------------------------------------------------- */

static cJSON *add_config_port(struct sheet *sheet, cJSON *list,
                              const struct qd_signature *signature, const struct qd_port *port,
                              const char *format)
{
    char type[32];
    cJSON *item = append(sheet, list, cJSON_CreateObject());
    snprintf(type, sizeof(type), "TYPE_%s", shown_type(port->types));
    add_string(sheet, item, "name", port->name);
    add_string(sheet, item, "data_type", type);
    if (format != NULL)
        add_string(sheet, item, "format", format);
    add_dims(sheet, item, "dims", port,
             signature->batch_max > 0 ? 1 : 0); /* Triton leaves the batch out */
    return item;
}

static void add_config_ports(struct sheet *sheet, cJSON *to, const struct qd_signature *signature)
{
    cJSON *inputs = add_array(sheet, to, "input");
    for (size_t i = 0; i < signature->input_count; i++) {
        const struct qd_port *port = &signature->inputs[i];
        cJSON *input = add_config_port(sheet, inputs, signature, port, "FORMAT_NONE");
        add_bool(sheet, input, "is_shape_tensor", false);
        add_bool(sheet, input, "allow_ragged_batch", false);
        add_bool(sheet, input, "optional", port->optional);
    }
    cJSON *outputs = add_array(sheet, to, "output");
    for (size_t i = 0; i < signature->output_count; i++) {
        cJSON *output = add_config_port(sheet, outputs, signature, &signature->outputs[i], NULL);
        const char *label_file = signature->outputs[i].label_file;
        add_string(sheet, output, "label_filename", label_file == NULL ? "" : label_file);
        add_bool(sheet, output, "is_shape_tensor", false);
    }
}

static void add_config_parameters(struct sheet *sheet, cJSON *to,
                                  const struct qd_signature *signature)
{
    char about[512];
    const char *name;
    size_t next = 0;
    while ((name = next_attribute(signature, &next, about, sizeof(about))) != NULL)
        add_string(sheet, add_object(sheet, to, name), "string_value", about);
}

/* Adds a list of names, unless it is empty. */
static void add_names(struct sheet *sheet, cJSON *to, const char *key, const char *const *names,
                      size_t count)
{
    cJSON *list = count == 0 ? NULL : add_array(sheet, to, key);
    for (size_t i = 0; i < count; i++)
        append(sheet, list, cJSON_CreateString(names[i]));
}

/* Prints the fields of Triton's ModelConfig that clients read, and where the configuration cuts the
 * file, so that a client can load the model again with what it got. A field with another JSON type
 * than Triton's would abort perf_analyzer. */
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature)
{
    struct sheet sheet;
    cJSON *root = open(&sheet);
    add_string(&sheet, root, "name", signature->name);
    add_string(&sheet, root, "platform", signature->platform);
    add_string(&sheet, root, "backend", "quantd");
    char number[24];
    snprintf(number, sizeof(number), "%" PRIu64, signature->batch_max);
    check(&sheet, cJSON_AddRawToObject(root, "max_batch_size", number));
    const char *policy = signature->version_policy; /* the JSON of the model's configuration */
    check(&sheet,
          cJSON_AddRawToObject(root, "version_policy", policy == NULL ? "{\"all\":{}}" : policy));
    add_config_ports(&sheet, root, signature);
    cJSON *group = append(&sheet, add_array(&sheet, root, "instance_group"), cJSON_CreateObject());
    add_string(&sheet, group, "name", signature->name);
    add_string(&sheet, group, "kind", "KIND_CPU");
    check(&sheet, cJSON_AddNumberToObject(group, "count", 1));
    add_array(&sheet, group, "gpus");
    if (signature->file_name != NULL)
        add_string(&sheet, root, "default_model_filename", signature->file_name);
    add_names(&sheet, root, "inputs", signature->cut_inputs, signature->cut_input_count);
    add_names(&sheet, root, "outputs", signature->cut_outputs, signature->cut_output_count);
    add_config_parameters(&sheet, add_object(&sheet, root, "parameters"), signature);
    print(&sheet, text);
}
