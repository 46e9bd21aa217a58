/* What the server says about itself and its models, from their signatures. */
#include <inttypes.h>
#include <stdio.h>

#include "server/base/version.h"
#include "server/oip/encode.h"

/* OIP has one datatype for a tensor: FP32 or the first of those accepted, which is one of OIP's
 * where it is a built-in model's, as clients know no others. All are in the properties. */
static const char *shown_type(uint32_t types)
{
    enum qk_type first = (enum qk_type)__builtin_ctz(types);
    return qk_type_info((types & QK_BIT(QK_FP32)) != 0 ? QK_FP32 : first)->name;
}

static void print_types(struct qd_text *text, uint32_t types)
{
    bool any = false;
    for (int i = QK_NONE + 1; i < QK_TYPE_COUNT; i++) {
        if ((types & QK_BIT(i)) != 0) {
            qd_text_format(text, "%s%s", any ? ", " : "", qk_type_info((enum qk_type)i)->name);
            any = true;
        }
    }
}

/* "x.types":" */
static void print_key(struct qd_text *text, const struct qd_port *port, const char *what)
{
    char key[QD_PORT_NAME_BYTES_MAX + 16];
    snprintf(key, sizeof(key), "%s.%s", port->name, what);
    qd_text_string(text, ",");
    qd_text_json_string(text, key);
    qd_text_string(text, ":");
}

static void print_about(struct qd_text *text, const struct qk_attribute_def *def)
{
    static const char *const kinds[] = {[QK_ATTRIBUTE_INT] = "integer",
                                        [QK_ATTRIBUTE_INTS] = "integers",
                                        [QK_ATTRIBUTE_STRING] = "string",
                                        [QK_ATTRIBUTE_BOOL] = "true or false",
                                        [QK_ATTRIBUTE_TYPE] = "datatype, by name or ONNX number",
                                        [QK_ATTRIBUTE_STRIDES] = "integers"};
    char about[512];
    snprintf(about, sizeof(about), "%s: %s", kinds[def->kind], def->about);
    qd_text_json_string(text, about);
}

void qd_oip_encode_server_metadata(struct qd_text *text)
{
    qd_text_string(text, "{\"name\":\"quantd\",\"version\":\"" QD_VERSION "\",\"extensions\":["
                         "\"binary_tensor_data\",\"parameters\",\"model_repository\","
                         "\"model_configuration\",\"statistics\",\"logging\"]}");
}

/* ---- Metadata ---------------------------------------------------------------------------- */

/* Nothing is known, or what is known, from dimension `first` on. A rank below 1 stops
 * perf_analyzer, but only a port that is known to be a scalar has it. */
static void print_dims(struct qd_text *text, const struct qd_port *port, uint32_t first)
{
    qd_text_string(text, "[");
    for (uint32_t i = first; port->shaped && i < port->rank; i++)
        qd_text_format(text, "%s%" PRId64, i == first ? "" : ",", port->dims[i]);
    qd_text_string(text, port->shaped ? "]" : "-1]");
}

static void print_tensors(struct qd_text *text, const struct qd_port *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        qd_text_string(text, i == 0 ? "{\"name\":" : ",{\"name\":");
        qd_text_json_string(text, ports[i].name);
        qd_text_format(text, ",\"datatype\":\"%s\",\"shape\":", shown_type(ports[i].types));
        print_dims(text, &ports[i], 0);
        qd_text_string(text, "}");
    }
}

static void print_port(struct qd_text *text, const struct qd_port *port)
{
    print_key(text, port, "types");
    qd_text_string(text, "\"");
    print_types(text, port->types);
    qd_text_string(text, "\"");
    if (port->shape_text != NULL) {
        print_key(text, port, "shape");
        qd_text_json_string(text, port->shape_text);
    }
}

static void print_properties(struct qd_text *text, const struct qd_signature *signature)
{
    const struct qk_operator *op = signature->op;
    qd_text_string(text, "{\"about\":");
    qd_text_json_string(text, signature->about);
    for (size_t i = 0; i < signature->input_count; i++) {
        print_port(text, &signature->inputs[i]);
        print_key(text, &signature->inputs[i], "optional");
        qd_text_string(text, signature->inputs[i].optional ? "\"true\"" : "\"false\"");
    }
    for (size_t i = 0; i < signature->output_count; i++)
        print_port(text, &signature->outputs[i]);
    for (size_t i = 0; op != NULL && i < op->attribute_count; i++) {
        const struct qk_attribute_def *def = &op->attributes[i];
        if (def->since <= signature->version) {
            qd_text_format(text, ",\"parameters.%s\":", def->name);
            print_about(text, def);
        }
    }
    qd_text_string(text, "}");
}

void qd_oip_encode_model_metadata(struct qd_text *text, const struct qd_signature *signature,
                                  const uint64_t *versions, size_t version_count)
{
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, signature->name);
    qd_text_string(text, ",\"versions\":[");
    for (size_t i = 0; i < version_count; i++)
        qd_text_format(text, "%s\"%" PRIu64 "\"", i == 0 ? "" : ",", versions[i]);
    qd_text_format(text, "],\"platform\":\"%s\",\"inputs\":[", signature->platform);
    print_tensors(text, signature->inputs, signature->input_count);
    qd_text_string(text, "],\"outputs\":[");
    print_tensors(text, signature->outputs, signature->output_count);
    qd_text_string(text, "],\"properties\":");
    print_properties(text, signature);
    qd_text_string(text, "}");
}

/* ---- Configuration ----------------------------------------------------------------------- */

/* `{"name":"x","data_type":"TYPE_UINT8",` and what comes before the dims, and these: without the
 * first where that is the batch. */
static void print_config_port(struct qd_text *text, const struct qd_signature *signature,
                              const struct qd_port *port, const char *format)
{
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, port->name);
    qd_text_format(text, ",\"data_type\":\"TYPE_%s\",%s\"dims\":", shown_type(port->types), format);
    print_dims(text, port, signature->batch_max > 0 ? 1 : 0);
}

static void print_config_ports(struct qd_text *text, const struct qd_signature *signature)
{
    qd_text_string(text, "\"input\":[");
    for (size_t i = 0; i < signature->input_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_config_port(text, signature, &signature->inputs[i], "\"format\":\"FORMAT_NONE\",");
        qd_text_format(text,
                       ",\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
                       "\"optional\":%s}",
                       signature->inputs[i].optional ? "true" : "false");
    }
    qd_text_string(text, "],\"output\":[");
    for (size_t i = 0; i < signature->output_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_config_port(text, signature, &signature->outputs[i], "");
        qd_text_string(text, ",\"label_filename\":\"\",\"is_shape_tensor\":false}");
    }
    qd_text_string(text, "],");
}

static void print_config_parameters(struct qd_text *text, const struct qd_signature *signature)
{
    const struct qk_operator *op = signature->op;
    bool any = false;
    for (size_t i = 0; op != NULL && i < op->attribute_count; i++) {
        const struct qk_attribute_def *def = &op->attributes[i];
        if (def->since <= signature->version) {
            qd_text_format(text, "%s\"%s\":{\"string_value\":", any ? "," : "", def->name);
            print_about(text, def);
            qd_text_string(text, "}");
            any = true;
        }
    }
}

/* Triton's ModelConfig, as far as clients read it; a field of another JSON type would abort
 * perf_analyzer. */
void qd_oip_encode_model_config(struct qd_text *text, const struct qd_signature *signature)
{
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, signature->name);
    qd_text_format(text,
                   ",\"platform\":\"%s\",\"backend\":\"quantd\","
                   "\"max_batch_size\":%" PRIu64 ",\"version_policy\":%s,",
                   signature->platform, signature->batch_max,
                   signature->version_policy == NULL ? "{\"all\":{}}" : signature->version_policy);
    print_config_ports(text, signature);
    qd_text_string(text, "\"instance_group\":[{\"name\":");
    qd_text_json_string(text, signature->name);
    qd_text_string(text, ",\"kind\":\"KIND_CPU\",\"count\":1,\"gpus\":[]}],\"parameters\":{");
    print_config_parameters(text, signature);
    qd_text_string(text, "}}");
}
