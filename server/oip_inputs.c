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
    if (input->tensor->type != QK_NONE) {
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs[%zu].name: \"%s\" is a duplicate: expected each input once",
                       input->position, input->name);
    }
    return QD_OK;
}

static enum qd_status read_datatype(const struct qd_oip_decoder *decoder, const struct input *input)
{
    const struct qk_call *call = &decoder->infer->call;
    uint32_t accepted = call->version->inputs[input->index].types;
    const struct cJSON *value;
    enum qd_status status = find_field(decoder, input, "datatype", &value);
    if (status != QD_OK)
        return status;
    const char *name = value == NULL ? NULL : qd_json_string(value);
    enum qk_type type = name == NULL ? QK_NONE : qk_type_by_name(name);
    if (type != QK_NONE && (accepted & QK_BIT(type)) != 0) {
        input->tensor->type = type;
        return QD_OK;
    }
    char types[160];
    size_t used = 0;
    for (int i = QK_NONE + 1; i < QK_TYPE_COUNT && used < sizeof(types); i++) {
        if ((accepted & QK_BIT(i)) != 0) {
            used += (size_t)snprintf(types + used, sizeof(types) - used, "%s%s",
                                     used == 0 ? "" : ", ", qk_type_info((enum qk_type)i)->name);
        }
    }
    return qd_fail(decoder->error, QD_INVALID, "%s: version %u of %s takes %s, got %s",
                   label(input, ".datatype").text, call->version->number, call->op->name, types,
                   value == NULL ? "none" : qd_json_show(value).text);
}

static enum qd_status read_shape(const struct qd_oip_decoder *decoder, const struct input *input)
{
    struct qk_tensor *tensor = input->tensor;
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

/* The next blob becomes the tensor's data, where it lies. */
static enum qd_status take_blob(struct qd_oip_decoder *decoder, const struct input *input,
                                const struct cJSON *size)
{
    struct qk_tensor *tensor = input->tensor;
    struct qd_json_path where = label(input, ".parameters.binary_data_size");
    int64_t given;
    size_t wanted;
    if (!qd_json_whole(size, &given) || given < 0) {
        return qd_fail(decoder->error, QD_INVALID, "%s: expected an integer >= 0, got %s",
                       where.text, qd_json_show(size).text);
    }
    qk_type_bytes(tensor->type, tensor->count, &wanted); /* read_shape saw that it fits */
    if ((uint64_t)given != wanted) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes for %zu elements of %s, got %lld", where.text,
                       wanted, tensor->count, qk_type_info(tensor->type)->name, (long long)given);
    }
    if (decoder->json_bytes_header == NULL && wanted > 0) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: binary tensor data needs the header " QD_OIP_JSON_BYTES_HEADER,
                       where.text);
    }
    if (wanted > decoder->blobs_bytes) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes of binary data, the body has only %zu left",
                       where.text, wanted, decoder->blobs_bytes);
    }
    tensor->data = decoder->blobs;
    decoder->blobs += wanted;
    decoder->blobs_bytes -= wanted;
    return QD_OK;
}

static enum qd_status read_numbers(const struct qd_oip_decoder *decoder, const struct input *input,
                                   struct qd_json_slice slice)
{
    struct qk_tensor *tensor = input->tensor;
    size_t room = QD_JSON_ELEMENTS_MAX(slice.count);
    size_t bytes;
    qk_type_bytes(tensor->type, tensor->count < room ? tensor->count : room, &bytes);
    void *out = qd_arena_alloc(decoder->arena, bytes);
    if (out == NULL)
        return qd_refuse_memory(decoder->arena, label(input, ".data").text, decoder->error);
    tensor->data = out;
    return qd_json_tensor_read(slice, tensor, label(input, ".data").text, out, decoder->error);
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
    return status == QD_OK ? read_content(decoder, input) : status;
}

/* ---- All inputs -------------------------------------------------------------------------- */

static enum qd_status check_complete(const struct qd_oip_decoder *decoder)
{
    const struct qk_call *call = &decoder->infer->call;
    for (size_t i = 0; i < call->op->input_count; i++) {
        if (call->inputs[i].type == QK_NONE && !call->version->inputs[i].optional) {
            char known[256];
            list_inputs(call, known, sizeof(known));
            return qd_fail(decoder->error, QD_INVALID, "inputs: \"%s\" is missing; %s takes %s",
                           call->op->input_names[i], call->op->name, known);
        }
    }
    if (decoder->blobs_bytes > 0) {
        return qd_fail(decoder->error, QD_INVALID,
                       "the body has %zu bytes after the last binary tensor, expected none",
                       decoder->blobs_bytes);
    }
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
