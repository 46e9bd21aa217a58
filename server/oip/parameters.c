#include "server/oip/inputs.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "server/json/number.h"

#define INTEGER "an integer in [-2^63, 2^63)"

static enum qd_status expected(const struct qd_oip_decoder *decoder,
                               const struct qd_json_value *value, const char *what)
{
    return qd_fail(decoder->error, QD_INVALID, "parameters.%s: expected %s, got %s",
                   qd_show_name(value->key).text, what, qd_json_show(value).text);
}

static enum qd_status twice(const struct qd_oip_decoder *decoder, const char *key)
{
    return qd_fail(decoder->error, QD_INVALID, "parameters.%s: expected once, got twice",
                   qd_show_name(key).text);
}

/* ---- Attributes -------------------------------------------------------------------------- */

static const char *skip_spaces(const char *at)
{
    return at + strspn(at, " ");
}

/* Reads one integer of a text such as "1, 1". Returns its end, or NULL if there is none. */
static const char *scan_integer(const char *at, int64_t *number)
{
    struct qd_json_number scanned;
    at = skip_spaces(at);
    at = qd_json_number_scan(at, at + strlen(at), &scanned);
    return at != NULL && qd_json_number_to_int64(&scanned, number) ? skip_spaces(at) : NULL;
}

static bool parse_int(const struct qd_json_value *value, int64_t *number)
{
    const char *text = qd_json_string(value);
    if (text == NULL)
        return qd_json_int64(value, number);
    const char *end = scan_integer(text, number);
    return end != NULL && *end == '\0';
}

static enum qd_status read_text_list(const struct qd_oip_decoder *decoder,
                                     const struct qd_json_value *value, int64_t *list,
                                     size_t *count)
{
    const char *at = skip_spaces(qd_json_string(value));
    *count = 0;
    while (*at != '\0') {
        at = scan_integer(at, &list[*count]);
        if (at == NULL || (*at != ',' && *at != '\0') || (*at == ',' && at[1] == '\0'))
            return expected(decoder, value, "integers in [-2^63, 2^63) such as \"1,1,1,1\"");
        ++*count;
        at += *at == ',';
    }
    return QD_OK;
}

static enum qd_status read_array(const struct qd_oip_decoder *decoder,
                                 const struct qd_json_value *array, int64_t *list, size_t *count)
{
    *count = 0;
    for (const struct qd_json_value *item = array->first; item != NULL; item = item->next) {
        if (!qd_json_int64(item, &list[*count])) {
            return qd_fail(decoder->error, QD_INVALID,
                           "parameters.%s[%zu]: expected " INTEGER ", got %s", array->key, *count,
                           qd_json_show(item).text);
        }
        ++*count;
    }
    return QD_OK;
}

static enum qd_status read_ints(const struct qd_oip_decoder *decoder,
                                const struct qd_json_value *value, struct qk_attribute *attribute)
{
    const char *text = qd_json_string(value);
    if (text == NULL && !qd_json_is_array(value))
        return expected(decoder, value, "an array of integers, or a string such as \"1,1,1,1\"");
    size_t room = 1; /* at most one integer more than commas */
    for (const char *at = text; at != NULL && *at != '\0'; at++)
        room += *at == ',';
    for (const struct qd_json_value *item = text == NULL ? value->first : NULL; item != NULL;
         item = item->next)
        room++;
    int64_t *list = qd_arena_alloc(decoder->arena, room * sizeof(*list));
    if (list == NULL)
        return qd_refuse_memory(decoder->arena, "the parameters", decoder->error);
    attribute->list = list;
    return text != NULL ? read_text_list(decoder, value, list, &attribute->list_count)
                        : read_array(decoder, value, list, &attribute->list_count);
}

static bool parse_type(const struct qd_json_value *value, int64_t *number)
{
    const char *name = qd_json_string(value);
    enum qk_type type = name == NULL ? QK_NONE : qk_type_by_name(name);
    if (type == QK_NONE)
        return parse_int(value, number);
    *number = qk_type_info(type)->onnx;
    return true;
}

/* Parses a number, or a text that is one: some clients send all parameters as texts. */
static bool parse_float(const struct qd_json_value *value, float *real)
{
    struct qd_json_number scanned;
    const char *end = value->text + value->bytes;
    if ((value->kind != QD_JSON_NUMBER && value->kind != QD_JSON_STRING) ||
        qd_json_number_scan(value->text, end, &scanned) != end)
        return false;
    *real = qd_json_number_to_float(&scanned);
    return !isinf(*real);
}

static enum qd_status read_attribute(const struct qd_oip_decoder *decoder,
                                     const struct qd_json_value *value, size_t index)
{
    const struct qk_call *call = &decoder->asked->call;
    const struct qk_attribute_def *def = &call->op->attributes[index];
    struct qk_attribute *attribute = &decoder->asked->call.attributes[index];
    const char *wanted = NULL;
    bool is_read = false, flag = false;
    if (def->since > call->version->number) {
        return qd_fail(decoder->error, QD_INVALID,
                       "parameters.%s: expected version %u or later of %s, got version %u",
                       def->name, def->since, call->op->name, call->version->number);
    }
    if (attribute->present)
        return twice(decoder, def->name);
    attribute->present = true;
    switch (def->kind) {
    case QK_ATTRIBUTE_INT:
        wanted = INTEGER;
        is_read = parse_int(value, &attribute->number);
        break;
    case QK_ATTRIBUTE_INTS:
    case QK_ATTRIBUTE_STRIDES:
        return read_ints(decoder, value, attribute);
    case QK_ATTRIBUTE_BOOL:
        wanted = "true or false";
        is_read = qd_json_bool(value, &flag);
        attribute->number = flag;
        break;
    case QK_ATTRIBUTE_TYPE:
        wanted = "a datatype such as \"FP16\", or its number in ONNX's TensorProto";
        is_read = parse_type(value, &attribute->number);
        break;
    case QK_ATTRIBUTE_FLOAT:
        wanted = "a number in the range of FP32";
        is_read = parse_float(value, &attribute->real);
        break;
    case QK_ATTRIBUTE_STRING:
        wanted = "a string";
        attribute->string = qd_json_string(value);
        is_read = attribute->string != NULL;
        break;
    }
    return is_read ? QD_OK : expected(decoder, value, wanted);
}

/* ---- The carrier form -------------------------------------------------------------------- */

static enum qd_status read_carried_type(const struct qd_oip_decoder *decoder,
                                        const struct qd_json_value *value, size_t input)
{
    const struct qd_signature *signature = decoder->asked->signature;
    struct qk_tensor *tensor = &decoder->carriers[input].tensor;
    const char *key = value->key;
    const char *name = qd_json_string(value);
    if (tensor->type != QK_NONE)
        return twice(decoder, key);
    tensor->type = name == NULL ? QK_NONE : qk_type_by_name(name);
    if ((signature->inputs[input].types & ~QK_BIT(QK_NONE) & QK_BIT(tensor->type)) != 0)
        return QD_OK;
    char field[96];
    snprintf(field, sizeof(field), "parameters.%s", qd_show_name(key).text);
    return qd_refuse_type(signature->name, signature->version, signature->inputs[input].types,
                          field, qd_json_show(value).text, decoder->error);
}

static enum qd_status read_carried_shape(const struct qd_oip_decoder *decoder,
                                         const struct qd_json_value *value, size_t input)
{
    struct qd_oip_carrier *carrier = &decoder->carriers[input];
    struct qk_tensor *tensor = &carrier->tensor;
    struct qk_attribute shape;
    if (carrier->shaped)
        return twice(decoder, value->key);
    carrier->shaped = true;
    if (read_ints(decoder, value, &shape) != QD_OK)
        return decoder->error->status;
    bool valid = shape.list_count <= QK_RANK_MAX;
    for (size_t i = 0; i < shape.list_count && valid; i++) {
        valid = shape.list[i] >= 0;
        tensor->dims[tensor->rank++] = (size_t)shape.list[i];
    }
    if (!valid || !qk_tensor_set_count(tensor))
        return expected(decoder, value,
                        "up to 32 integers >= 0 whose product fits 64 bits, such as \"2,3\"");
    return QD_OK;
}

/* Finds the input that "<input>.datatype" or "<input>.shape" is about. */
static bool find_carried(const struct qd_signature *signature, const char *key, size_t *input,
                         bool *is_type)
{
    for (*input = 0; *input < signature->input_count; ++*input) {
        const char *name = signature->inputs[*input].name;
        size_t length = strlen(name);
        if (strncmp(key, name, length) != 0)
            continue;
        *is_type = strcmp(key + length, ".datatype") == 0;
        if (*is_type || strcmp(key + length, ".shape") == 0)
            return true;
    }
    return false;
}

static enum qd_status read_carrier(struct qd_oip_decoder *decoder,
                                   const struct qd_json_value *value, size_t input, bool is_type)
{
    const size_t count = decoder->asked->signature->input_count;
    if (decoder->carriers == NULL)
        decoder->carriers = qd_arena_calloc(decoder->arena, count, sizeof(*decoder->carriers));
    if (decoder->carriers == NULL)
        return qd_refuse_memory(decoder->arena, "the parameters", decoder->error);
    return is_type ? read_carried_type(decoder, value, input)
                   : read_carried_shape(decoder, value, input);
}

static enum qd_status check_carriers(const struct qd_oip_decoder *decoder)
{
    const struct qd_signature *signature = decoder->asked->signature;
    for (size_t i = 0; decoder->carriers != NULL && i < signature->input_count; i++) {
        const struct qd_oip_carrier *carrier = &decoder->carriers[i];
        const struct qd_shown shown = qd_show_name(signature->inputs[i].name);
        const char *name = shown.text;
        size_t bytes;
        if (carrier->shaped != (carrier->tensor.type != QK_NONE))
            return qd_fail(decoder->error, QD_INVALID,
                           "parameters.%s.%s: expected together with %s.%s, got none", name,
                           carrier->shaped ? "datatype" : "shape", name,
                           carrier->shaped ? "shape" : "datatype");
        if (carrier->shaped && !qk_type_bytes(carrier->tensor.type, carrier->tensor.count, &bytes))
            return qd_fail(decoder->error, QD_INVALID,
                           "parameters.%s.shape: expected less than 2^64 bytes of %s", name,
                           qk_type_info(carrier->tensor.type)->name);
    }
    return QD_OK;
}

/* ---- OIP's own keys ---------------------------------------------------------------------- */

enum own_kind { IGNORED, FLAG, NUMBER, BINARY_OUTPUT };

static const struct own_key {
    const char *name;
    enum own_kind kind;
    size_t offset; /* in struct qd_oip_asked */
    const char *expected;
} own_keys[] = {
    {"binary_data_output", BINARY_OUTPUT, 0, "true or false"},
    {"timeout", NUMBER, offsetof(struct qd_oip_asked, timeout_us),
     "microseconds, an integer in [0, 2^64)"},
    {"priority", NUMBER, offsetof(struct qd_oip_asked, priority), "an integer in [0, 2^64)"},
    {"profile", FLAG, offsetof(struct qd_oip_asked, profiles), "true or false"},
    {"sequence_id", IGNORED, 0, NULL},
    {"sequence_start", IGNORED, 0, NULL},
    {"sequence_end", IGNORED, 0, NULL},
    {"headers", IGNORED, 0, NULL},
    {"content_type", IGNORED, 0, NULL}, /* clients of MLServer send it */
};

static enum qd_status read_own(const struct qd_oip_decoder *decoder, const struct own_key *key,
                               const struct qd_json_value *value)
{
    void *const field = (char *)decoder->asked + key->offset;
    bool is_read = true;
    bool binary;
    switch (key->kind) {
    case IGNORED:
        break;
    case FLAG:
        is_read = qd_json_bool(value, field);
        break;
    case NUMBER:
        is_read = qd_json_uint64(value, field);
        break;
    case BINARY_OUTPUT:
        is_read = qd_json_bool(value, &binary);
        decoder->asked->binary_outputs = binary ? UINT32_MAX : 0;
        break;
    }
    return is_read ? QD_OK : expected(decoder, value, key->expected);
}

/* ---- All of them ------------------------------------------------------------------------- */

static enum qd_status refuse_unknown(const struct qd_oip_decoder *decoder, const char *key)
{
    const struct qd_signature *signature = decoder->asked->signature;
    const size_t count = signature->op->attribute_count;
    char known[160] = "no parameters";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof(known); i++) {
        const struct qk_attribute_def *def = &signature->op->attributes[i];
        if (def->since <= signature->version) {
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                     used == 0 ? "" : ", ", def->name);
        }
    }
    return qd_fail(decoder->error, QD_INVALID,
                   "parameters: expected an attribute of version %" PRIu64
                   " of %s, got %s; it has %s",
                   signature->version, signature->name, qd_show_string(key).text, known);
}

/* Takes a custom parameter (Triton's "parameters" extension) and ignores it. A loaded model's
 * attributes are in its file, so no parameter can change its answer. Strides and lists are refused,
 * because a client that sends them expects an effect. */
static enum qd_status read_custom(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *value)
{
    const struct qd_signature *signature = decoder->asked->signature;
    for (size_t i = 0; i < signature->input_count; i++) {
        const char *name = signature->inputs[i].name;
        const size_t length = strlen(name);
        if (strncmp(value->key, name, length) == 0 && strcmp(value->key + length, ".strides") == 0)
            return expected(decoder, value,
                            "none, as a loaded model has its strides from its load");
    }
    const bool is_text = value->kind == QD_JSON_DATA && *value->text == '"';
    if (is_text || value->kind == QD_JSON_NUMBER || value->kind == QD_JSON_STRING ||
        value->kind == QD_JSON_TRUE || value->kind == QD_JSON_FALSE)
        return QD_OK;
    return expected(decoder, value, "a number, a string, true or false");
}

static enum qd_status read_parameter(struct qd_oip_decoder *decoder,
                                     const struct qd_json_value *value)
{
    const struct qk_operator *op = decoder->asked->signature->op;
    const char *key = value->key;
    for (size_t i = 0; op != NULL && i < op->attribute_count; i++)
        if (strcmp(key, op->attributes[i].name) == 0)
            return read_attribute(decoder, value, i);
    for (size_t i = 0; i < sizeof(own_keys) / sizeof(own_keys[0]); i++) {
        if (strcmp(key, own_keys[i].name) == 0) {
            bool again = (decoder->seen_keys >> i & 1) != 0;
            decoder->seen_keys |= 1u << i;
            return again ? twice(decoder, key) : read_own(decoder, &own_keys[i], value);
        }
    }
    size_t input;
    bool is_type;
    if (find_carried(decoder->asked->signature, key, &input, &is_type))
        return read_carrier(decoder, value, input, is_type);
    if (strncmp(key, "triton_", 7) == 0) {
        return qd_fail(
            decoder->error, QD_INVALID,
            "parameters: expected no key that begins with triton_, which is reserved, got %s",
            qd_show_string(key).text);
    }
    return op == NULL ? read_custom(decoder, value) : refuse_unknown(decoder, key);
}

enum qd_status qd_oip_read_parameters(struct qd_oip_decoder *decoder,
                                      const struct qd_json_value *parameters)
{
    if (!qd_json_is_object(parameters))
        return qd_json_expected(NULL, "parameters", "an object", parameters, decoder->error);
    for (const struct qd_json_value *value = parameters->first; value != NULL;
         value = value->next) {
        enum qd_status status =
            value->kind == QD_JSON_NULL ? QD_OK : read_parameter(decoder, value);
        if (status != QD_OK)
            return status;
    }
    return check_carriers(decoder);
}
