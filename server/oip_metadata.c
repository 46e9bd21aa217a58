/* What the server says about itself and its operators, all of it from the registry. */
#include <stdio.h>

#include "server/oip_encode.h"
#include "server/version.h"

static const struct qk_version *newest(const struct qk_operator *op)
{
    return &op->versions[op->version_count - 1];
}

/* OIP has one datatype for a tensor: FP32 or the first of those accepted, which is one of OIP's, as
 * clients know no others. All are in the properties. */
static const char *shown_type(uint32_t types)
{
    enum qk_type first = (enum qk_type)__builtin_ctz(types);
    return qk_type_info((types & QK_BIT(QK_FP32)) != 0 ? QK_FP32 : first)->name;
}

static void print_versions(struct qd_text *text, const struct qk_operator *op)
{
    for (size_t i = 0; i < op->version_count; i++)
        qd_text_format(text, "%s\"%u\"", i == 0 ? "" : ",", op->versions[i].number);
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
                         "\"binary_tensor_data\",\"parameters\",\"model_configuration\","
                         "\"statistics\"]}");
}

/* ---- Metadata ---------------------------------------------------------------------------- */

/* A rank below 1 stops perf_analyzer; the real shapes are in the properties. */
static void print_tensor(struct qd_text *text, const char *name, uint32_t types)
{
    qd_text_format(text, "{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[-1]}", name,
                   shown_type(types));
}

static void print_properties(struct qd_text *text, const struct qk_operator *op,
                             const struct qk_version *row)
{
    qd_text_string(text, "{\"about\":");
    qd_text_json_string(text, op->about);
    for (size_t i = 0; i < op->input_count; i++) {
        const struct qk_input_def *def = &row->inputs[i];
        qd_text_format(text, ",\"%s.types\":\"", op->input_names[i]);
        print_types(text, def->types);
        qd_text_format(text, "\",\"%s.shape\":", op->input_names[i]);
        qd_text_json_string(text, op->input_shapes[i]);
        qd_text_format(text, ",\"%s.optional\":\"%s\"", op->input_names[i],
                       def->optional ? "true" : "false");
    }
    for (size_t i = 0; i < op->output_count; i++) {
        qd_text_format(text, ",\"%s.types\":\"", op->output_names[i]);
        print_types(text, row->output_types[i]);
        qd_text_format(text, "\",\"%s.shape\":", op->output_names[i]);
        qd_text_json_string(text, op->output_shapes[i]);
    }
    for (size_t i = 0; i < op->attribute_count; i++) {
        const struct qk_attribute_def *def = &op->attributes[i];
        if (def->since <= row->number) {
            qd_text_format(text, ",\"parameters.%s\":", def->name);
            print_about(text, def);
        }
    }
    qd_text_string(text, "}");
}

void qd_oip_encode_model_metadata(struct qd_text *text, const struct qk_operator *op,
                                  const struct qk_version *row)
{
    const struct qk_version *shown = row == NULL ? newest(op) : row;
    qd_text_format(text, "{\"name\":\"%s\",\"versions\":[", op->name);
    if (row == NULL)
        print_versions(text, op);
    else
        qd_text_format(text, "\"%u\"", row->number);
    qd_text_format(text, "],\"platform\":\"%s\",\"inputs\":[", op->platform);
    for (size_t i = 0; i < op->input_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_tensor(text, op->input_names[i], shown->inputs[i].types);
    }
    qd_text_string(text, "],\"outputs\":[");
    for (size_t i = 0; i < op->output_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_tensor(text, op->output_names[i], shown->output_types[i]);
    }
    qd_text_string(text, "],\"properties\":");
    print_properties(text, op, shown);
    qd_text_string(text, "}");
}

/* ---- Configuration ----------------------------------------------------------------------- */

static void print_config_input(struct qd_text *text, const char *name,
                               const struct qk_input_def *def)
{
    qd_text_format(text,
                   "{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"format\":\"FORMAT_NONE\","
                   "\"dims\":[-1],\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
                   "\"optional\":%s}",
                   name, shown_type(def->types), def->optional ? "true" : "false");
}

static void print_config_output(struct qd_text *text, const char *name, uint32_t types)
{
    qd_text_format(text,
                   "{\"name\":\"%s\",\"data_type\":\"TYPE_%s\",\"dims\":[-1],"
                   "\"label_filename\":\"\",\"is_shape_tensor\":false}",
                   name, shown_type(types));
}

static void print_config_parameters(struct qd_text *text, const struct qk_operator *op,
                                    const struct qk_version *row)
{
    bool any = false;
    for (size_t i = 0; i < op->attribute_count; i++) {
        const struct qk_attribute_def *def = &op->attributes[i];
        if (def->since <= row->number) {
            qd_text_format(text, "%s\"%s\":{\"string_value\":", any ? "," : "", def->name);
            print_about(text, def);
            qd_text_string(text, "}");
            any = true;
        }
    }
}

/* Triton's ModelConfig, as far as clients read it; a field of another JSON type would abort
 * perf_analyzer. */
void qd_oip_encode_model_config(struct qd_text *text, const struct qk_operator *op,
                                const struct qk_version *row)
{
    const struct qk_version *shown = row == NULL ? newest(op) : row;
    qd_text_format(text,
                   "{\"name\":\"%s\",\"platform\":\"%s\",\"backend\":\"quantd\","
                   "\"max_batch_size\":0,\"version_policy\":{\"all\":{}},\"input\":[",
                   op->name, op->platform);
    for (size_t i = 0; i < op->input_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_config_input(text, op->input_names[i], &shown->inputs[i]);
    }
    qd_text_string(text, "],\"output\":[");
    for (size_t i = 0; i < op->output_count; i++) {
        qd_text_string(text, i == 0 ? "" : ",");
        print_config_output(text, op->output_names[i], shown->output_types[i]);
    }
    qd_text_format(text,
                   "],\"instance_group\":["
                   "{\"name\":\"%s\",\"kind\":\"KIND_CPU\",\"count\":1,\"gpus\":[]}],"
                   "\"parameters\":{",
                   op->name);
    print_config_parameters(text, op, shown);
    qd_text_string(text, "}}");
}

/* ---- Repository -------------------------------------------------------------------------- */

void qd_oip_encode_repository_index(struct qd_text *text)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    bool any = false;
    qd_text_string(text, "[");
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < ops[i]->version_count; j++) {
            qd_text_format(text, "%s{\"name\":\"%s\",\"version\":\"%u\",\"state\":\"READY\"}",
                           any ? "," : "", ops[i]->name, ops[i]->versions[j].number);
            any = true;
        }
    }
    qd_text_string(text, "]");
}
