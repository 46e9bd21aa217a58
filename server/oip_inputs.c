#include "server/oip_inputs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/json_tensor.h"
#include "server/json_tree.h"
#include "server/refusal.h"

/* ---- One input --------------------------------------------------------------------------- */

/* An input, on its way into the call. */
struct input {
    const struct cJSON *json;
    size_t position;  /* in the request's array */
    size_t index;     /* in the operator's */
    const char *name; /* the operator's */
    struct qk_tensor *tensor;
    const struct qd_oip_carrier *carrier; /* NULL: not in carrier form */
    const struct qk_attribute *strides;   /* NULL: none */
    struct qk_tensor wire; /* what its data is written as: other than `tensor` for these two */
};

/* "inputs[1].shape (\"x_scale\")" */
static struct qd_json_path label(const struct input *input, const char *field)
{
    struct qd_json_path path;
    snprintf(path.text, sizeof(path.text), "inputs[%zu]%s (\"%s\")", input->position, field,
             input->name);
    return path;
}

static enum qd_status find_field(const struct qd_oip_decoder *decoder, const struct input *input,
                                 const char *key, const struct cJSON **value)
{
    return qd_json_field(input->json, qd_json_path("inputs", input->position, ".").text, key, value,
                         decoder->error);
}

/* "x, x_scale, x_zero_point (optional)" */
static void list_inputs(const struct qk_call *call, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < call->op->input_count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", i == 0 ? "" : ", ",
                                 call->op->input_names[i],
                                 call->version->inputs[i].optional ? " (optional)" : "");
    }
}

static const struct qk_attribute *find_strides(const struct qk_call *call, size_t index)
{
    for (size_t i = 0; i < call->op->attribute_count; i++) {
        const struct qk_attribute_def *def = &call->op->attributes[i];
        if (def->kind == QK_ATTRIBUTE_STRIDES && def->input == index && call->attributes[i].present)
            return &call->attributes[i];
    }
    return NULL;
}

static enum qd_status read_name(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_call *call = &decoder->infer->call;
    const struct cJSON *value;
    enum qd_status status = find_field(decoder, input, "name", &value);
    if (status != QD_OK)
        return status;
    const char *name = value == NULL ? NULL : qd_json_string(value);
    if (name == NULL) {
        return qd_fail(decoder->error, QD_INVALID, "inputs[%zu].name: expected a string, got %s",
                       input->position, value == NULL ? "none" : qd_json_show(value).text);
    }
    input->index = 0;
    while (input->index < call->op->input_count &&
           strcmp(name, call->op->input_names[input->index]) != 0)
        input->index++;
    if (input->index == call->op->input_count) {
        char known[256];
        list_inputs(call, known, sizeof(known));
        return qd_fail(decoder->error, QD_INVALID, "inputs[%zu].name: %s is unknown; %s takes %s",
                       input->position, qd_show_string(name).text, call->op->name, known);
    }
    input->name = call->op->input_names[input->index];
    input->tensor = &call->inputs[input->index];
    input->carrier = &decoder->carriers[input->index];
    if (input->carrier->tensor.type == QK_NONE)
        input->carrier = NULL;
    input->strides = find_strides(call, input->index);
    input->wire = (struct qk_tensor){.type = QK_NONE};
    if (input->tensor->type != QK_NONE) {
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs[%zu].name: \"%s\" is a duplicate: expected each input once",
                       input->position, input->name);
    }
    return QD_OK;
}

static enum qd_status read_datatype(const struct qd_oip_decoder *decoder, struct input *input)
{
    const struct qk_call *call = &decoder->infer->call;
    const struct cJSON *value;
    enum qd_status status = find_field(decoder, input, "datatype", &value);
    if (status != QD_OK)
        return status;
    const char *name = value == NULL ? NULL : qd_json_string(value);
    struct qd_shown shown = value == NULL ? (struct qd_shown){"none"} : qd_json_show(value);
    input->wire.type = name == NULL ? QK_NONE : qk_type_by_name(name);
    if (input->carrier != NULL && input->wire.type != QK_UINT8)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected UINT8, for the bytes of parameters.%s.datatype, got %s",
                       label(input, ".datatype").text, input->name, shown.text);
    if (input->carrier == NULL &&
        (input->wire.type == QK_NONE ||
         (call->version->inputs[input->index].types & QK_BIT(input->wire.type)) == 0))
        return qd_oip_refuse_type(call, input->index, label(input, ".datatype").text, shown.text,
                                  decoder->error);
    return QD_OK;
}

static enum qd_status read_shape(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = &input->wire;
    const struct cJSON *shape;
    enum qd_status status = find_field(decoder, input, "shape", &shape);
    if (status != QD_OK)
        return status;
    if (shape == NULL || !qd_json_is_array(shape)) {
        return qd_fail(decoder->error, QD_INVALID, "%s: expected an array of integers, got %s",
                       label(input, ".shape").text,
                       shape == NULL ? "none" : qd_json_show(shape).text);
    }
    for (const struct cJSON *dim = qd_json_first(shape); dim != NULL; dim = qd_json_next(dim)) {
        int64_t size;
        if (tensor->rank == QK_RANK_MAX) {
            return qd_fail(decoder->error, QD_INVALID, "%s: expected at most %d dimensions",
                           label(input, ".shape").text, QK_RANK_MAX);
        }
        if (!qd_json_whole(dim, &size) || size < 0) {
            return qd_fail(decoder->error, QD_INVALID,
                           "%s: expected an integer in [0, 2^53) for dimension %u, got %s",
                           label(input, ".shape").text, tensor->rank, qd_json_show(dim).text);
        }
        tensor->dims[tensor->rank++] = (size_t)size;
    }
    size_t bytes;
    if (!qk_tensor_set_count(tensor) || !qk_type_bytes(tensor->type, tensor->count, &bytes)) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: the product of the dimensions overflows 64 bits",
                       label(input, ".shape").text);
    }
    return QD_OK;
}

/* The tensor's strides say how many elements its data has: these come as a flat list. */
static enum qd_status apply_strides(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = input->tensor;
    size_t bytes;
    if (!qk_tensor_set_strides(tensor, input->strides->list, input->strides->list_count) ||
        !qk_type_bytes(tensor->type, tensor->stored, &bytes))
        return qd_fail(decoder->error, QD_INVALID,
                       "parameters.%s.strides: expected %u integers >= 0, one for each dimension, "
                       "that reach less than 2^64 bytes",
                       input->name, tensor->rank);
    if (input->carrier == NULL)
        input->wire = (struct qk_tensor){.type = tensor->type,
                                         .rank = 1,
                                         .dims = {tensor->stored},
                                         .count = tensor->stored,
                                         .stored = tensor->stored};
    return QD_OK;
}

/* From what the data is written as to what it means. */
static enum qd_status make_tensor(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = input->tensor;
    *tensor = input->carrier == NULL ? input->wire : input->carrier->tensor;
    if (input->strides != NULL) {
        enum qd_status status = apply_strides(decoder, input);
        if (status != QD_OK)
            return status;
    }
    size_t bytes;
    qk_type_bytes(tensor->type, tensor->stored, &bytes); /* fits: its reader has seen it */
    if (input->carrier != NULL && input->wire.count != bytes)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes, for the %zu elements of %s in parameters.%s, got "
                       "%zu",
                       label(input, ".shape").text, bytes, tensor->stored,
                       qk_type_info(tensor->type)->name, input->name, input->wire.count);
    return QD_OK;
}

/* The bytes of a blob as its size parameter has them. DirectML's buffers end at a multiple of
 * four bytes, so one with strides may. */
static enum qd_status read_blob_bytes(const struct qd_oip_decoder *decoder,
                                      const struct input *input, const struct cJSON *size,
                                      size_t *bytes)
{
    const struct qk_tensor *wire = &input->wire;
    struct qd_json_path where = label(input, ".parameters.binary_data_size");
    int64_t given;
    size_t wanted;
    char rounded[40] = "";
    if (!qd_json_whole(size, &given) || given < 0)
        return qd_fail(decoder->error, QD_INVALID, "%s: expected an integer >= 0, got %s",
                       where.text, qd_json_show(size).text);
    qk_type_bytes(wire->type, wire->count, &wanted); /* fits: read_shape has seen it */
    *bytes = (size_t)given;
    size_t padding = input->strides != NULL && input->carrier == NULL ? -wanted % 4 : 0;
    if (*bytes == wanted || (*bytes > wanted && *bytes - wanted == padding))
        return QD_OK;
    if (padding > 0)
        snprintf(rounded, sizeof(rounded), " or %zu", wanted + padding);
    return qd_fail(decoder->error, QD_INVALID,
                   "%s: expected %zu%s bytes for %zu elements of %s, got %zu", where.text, wanted,
                   rounded, wire->count, qk_type_info(wire->type)->name, *bytes);
}

/* The next blob becomes the tensor's data, where it lies. */
static enum qd_status take_blob(struct qd_oip_decoder *decoder, const struct input *input,
                                const struct cJSON *size)
{
    struct qd_json_path where = label(input, ".parameters.binary_data_size");
    size_t bytes = 0;
    enum qd_status status = read_blob_bytes(decoder, input, size, &bytes);
    if (status != QD_OK)
        return status;
    if (decoder->json_bytes_header == NULL && bytes > 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: binary tensor data needs the header " QD_OIP_JSON_BYTES_HEADER,
                       where.text);
    if (bytes > decoder->blobs_bytes)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes of binary data, the body has only %zu left",
                       where.text, bytes, decoder->blobs_bytes);
    input->tensor->data = decoder->blobs;
    decoder->blobs += bytes;
    decoder->blobs_bytes -= bytes;
    return QD_OK;
}

static enum qd_status read_numbers(const struct qd_oip_decoder *decoder, const struct input *input,
                                   struct qd_json_slice slice)
{
    const struct qk_tensor *wire = &input->wire;
    struct qd_json_path where =
        label(input, input->strides == NULL ? ".data" : ".data, as far as its strides reach");
    size_t room = QD_JSON_ELEMENTS_MAX(slice.count);
    size_t bytes;
    qk_type_bytes(wire->type, wire->count < room ? wire->count : room, &bytes);
    void *out = qd_arena_alloc(decoder->arena, bytes);
    if (out == NULL)
        return qd_refuse_memory(decoder->arena, where.text, decoder->error);
    input->tensor->data = out;
    return qd_json_tensor_read(slice, wire, where.text, out, decoder->error);
}

/* The cut data of an input, or false: it has none, or null. */
static bool find_slice(const struct qd_oip_decoder *decoder, const struct cJSON *data,
                       struct qd_json_slice *slice)
{
    int64_t index;
    if (data == NULL || !qd_json_whole(data, &index))
        return false;
    assert((uint64_t)index < decoder->envelope.data_count); /* each such data was cut */
    *slice = decoder->envelope.data[index];
    return slice->count != 4 || memcmp(slice->bytes, "null", 4) != 0;
}

static enum qd_status read_content(struct qd_oip_decoder *decoder, const struct input *input)
{
    const struct cJSON *parameters;
    const struct cJSON *data = NULL;
    const struct cJSON *blob = NULL;
    const struct cJSON *shared = NULL;
    struct qd_json_slice slice;
    struct qd_json_path path = qd_json_path("inputs", input->position, ".parameters.");
    enum qd_status status = find_field(decoder, input, "parameters", &parameters);
    if (status == QD_OK)
        status = find_field(decoder, input, "data", &data);
    if (status == QD_OK && parameters != NULL && !qd_json_is_object(parameters)) {
        return qd_fail(decoder->error, QD_INVALID, "%s: expected an object, got %s",
                       label(input, ".parameters").text, qd_json_show(parameters).text);
    }
    if (status == QD_OK && parameters != NULL)
        status = qd_json_field(parameters, path.text, "binary_data_size", &blob, decoder->error);
    if (status == QD_OK && parameters != NULL) {
        status =
            qd_json_field(parameters, path.text, "shared_memory_region", &shared, decoder->error);
    }
    if (status != QD_OK)
        return status;
    if (shared != NULL) {
        return qd_fail(decoder->error, QD_INVALID, "%s: shared memory is not supported",
                       label(input, ".parameters.shared_memory_region").text);
    }
    bool has_data = find_slice(decoder, data, &slice);
    if (has_data == (blob != NULL)) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected one of data and parameters.binary_data_size, got %s",
                       label(input, "").text, has_data ? "both" : "neither");
    }
    return has_data ? read_numbers(decoder, input, slice) : take_blob(decoder, input, blob);
}

static enum qd_status read_input(struct qd_oip_decoder *decoder, struct input *input)
{
    if (!qd_json_is_object(input->json)) {
        return qd_fail(decoder->error, QD_INVALID, "inputs[%zu]: expected an object, got %s",
                       input->position, qd_json_show(input->json).text);
    }
    enum qd_status status = read_name(decoder, input);
    if (status == QD_OK)
        status = read_datatype(decoder, input);
    if (status == QD_OK)
        status = read_shape(decoder, input);
    if (status == QD_OK)
        status = make_tensor(decoder, input);
    return status == QD_OK ? read_content(decoder, input) : status;
}

/* ---- All inputs -------------------------------------------------------------------------- */

/* What else would describe an input that did not come. */
static enum qd_status refuse_absent(const struct qd_oip_decoder *decoder, size_t index)
{
    const struct qk_call *call = &decoder->infer->call;
    const char *name = call->op->input_names[index];
    bool carried = decoder->carriers[index].shaped;
    if (!carried && find_strides(call, index) == NULL)
        return QD_OK;
    return qd_fail(decoder->error, QD_INVALID,
                   "parameters.%s.%s: expected together with the input \"%s\", got none", name,
                   carried ? "datatype" : "strides", name);
}

static enum qd_status check_complete(const struct qd_oip_decoder *decoder)
{
    const struct qk_call *call = &decoder->infer->call;
    for (size_t i = 0; i < call->op->input_count; i++) {
        if (call->inputs[i].type != QK_NONE)
            continue;
        if (!call->version->inputs[i].optional) {
            char known[256];
            list_inputs(call, known, sizeof(known));
            return qd_fail(decoder->error, QD_INVALID, "inputs: \"%s\" is missing; %s takes %s",
                           call->op->input_names[i], call->op->name, known);
        }
        enum qd_status status = refuse_absent(decoder, i);
        if (status != QD_OK)
            return status;
    }
    if (decoder->blobs_bytes > 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "the body has %zu bytes after the last binary tensor, expected none",
                       decoder->blobs_bytes);
    return QD_OK;
}

enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder, const struct cJSON *inputs)
{
    if (inputs == NULL || !qd_json_is_array(inputs)) {
        return qd_fail(decoder->error, QD_INVALID, "inputs: expected an array, got %s",
                       inputs == NULL ? "none" : qd_json_show(inputs).text);
    }
    struct input input = {.json = qd_json_first(inputs)};
    for (; input.json != NULL; input.json = qd_json_next(input.json)) {
        enum qd_status status = read_input(decoder, &input);
        if (status != QD_OK)
            return status;
        input.position++;
    }
    return check_complete(decoder);
}
