#include "server/oip/decode.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/base/refusal.h"
#include "server/json/envelope.h"
#include "server/json/number.h"
#include "server/json/tree.h"
#include "server/oip/inputs.h"
#include "server/oip/parameters.h"

/* ---- The body's two parts ---------------------------------------------------------------- */

static enum qd_status split_body(const struct qd_oip_message *message,
                                 struct qd_oip_decoder *decoder, size_t *json_bytes)
{
    uint64_t count = message->body_bytes;
    if (message->json_bytes_header != NULL) {
        bool parsed = qd_read_decimal(message->json_bytes_header, &count);
        const struct qd_signature *signature = message->signature;
        if (parsed && count == 0 && signature->input_count != 1) {
            return qd_fail(decoder->error, QD_INVALID,
                           QD_OIP_JSON_BYTES_HEADER
                           ": 0 means a raw binary request, which takes a model "
                           "with one input; %s has %zu",
                           signature->name, signature->input_count);
        }
        if (parsed && count == 0) {
            return qd_fail(decoder->error, QD_INVALID,
                           QD_OIP_JSON_BYTES_HEADER
                           ": 0 means a raw binary request; expected JSON that says the shape");
        }
        if (!parsed || count > message->body_bytes) {
            return qd_fail(decoder->error, QD_INVALID,
                           QD_OIP_JSON_BYTES_HEADER
                           ": expected decimal digits in the range [1, %zu], the "
                           "bytes of the body, got %s",
                           message->body_bytes, qd_show_string(message->json_bytes_header).text);
        }
    }
    *json_bytes = (size_t)count;
    decoder->blobs = message->body + *json_bytes;
    decoder->blobs_source = message->blobs_source == NULL ? "the body" : message->blobs_source;
    decoder->blobs_bytes = message->body_bytes - *json_bytes;
    return QD_OK;
}

/* ---- Outputs ----------------------------------------------------------------------------- */

static enum qd_status read_output_parameters(const struct qd_oip_decoder *decoder,
                                             const struct cJSON *parameters, size_t position,
                                             bool *binary)
{
    static const char *const refused[] = {"classification", "shared_memory_region"};
    struct qd_json_path path = qd_json_path("outputs", position, ".parameters.");
    if (!qd_json_is_object(parameters)) {
        return qd_fail(decoder->error, QD_INVALID, "%.*s: expected an object, got %s",
                       (int)strlen(path.text) - 1, path.text, qd_json_show(parameters).text);
    }
    const struct cJSON *value;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        enum qd_status status =
            qd_json_field(parameters, path.text, refused[i], &value, decoder->error);
        if (status != QD_OK)
            return status;
        if (value != NULL) {
            return qd_fail(decoder->error, QD_INVALID, "%s%s: not supported", path.text,
                           refused[i]);
        }
    }
    enum qd_status status =
        qd_json_field(parameters, path.text, "binary_data", &value, decoder->error);
    if (status == QD_OK && value != NULL && !qd_json_bool(value, binary)) {
        return qd_fail(decoder->error, QD_INVALID, "%sbinary_data: expected true or false, got %s",
                       path.text, qd_json_show(value).text);
    }
    return status;
}

/* Finds the output that outputs[position] names. */
static enum qd_status find_output(const struct qd_oip_decoder *decoder, const struct cJSON *value,
                                  size_t position, size_t *output)
{
    const struct qd_signature *signature = decoder->infer->signature;
    const char *given = value == NULL ? NULL : qd_json_string(value);
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < signature->output_count; i++) {
        const char *name = signature->outputs[i].name;
        if (given != NULL && strcmp(given, name) == 0) {
            *output = i;
            return QD_OK;
        }
        if (used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s\"%s\"",
                                     i == 0 ? "" : " or ", name);
    }
    return qd_fail(decoder->error, QD_INVALID, "outputs[%zu].name: expected %s, got %s", position,
                   known, value == NULL ? "none" : qd_json_show(value).text);
}

/* A listed output is binary only if it says so itself: as Triton and KServe have it, the request's
 * binary_data_output is then of no account. */
static enum qd_status read_output(const struct qd_oip_decoder *decoder, const struct cJSON *output,
                                  size_t position)
{
    struct qd_infer *infer = decoder->infer;
    const struct cJSON *name;
    const struct cJSON *parameters = NULL;
    struct qd_json_path path = qd_json_path("outputs", position, ".");
    bool binary = false;
    size_t i = 0;
    if (!qd_json_is_object(output)) {
        return qd_fail(decoder->error, QD_INVALID, "outputs[%zu]: expected an object, got %s",
                       position, qd_json_show(output).text);
    }
    enum qd_status status = qd_json_field(output, path.text, "name", &name, decoder->error);
    if (status == QD_OK)
        status = qd_json_field(output, path.text, "parameters", &parameters, decoder->error);
    if (status == QD_OK)
        status = find_output(decoder, name, position, &i);
    if (status != QD_OK)
        return status;
    if ((infer->outputs >> i & 1) != 0) {
        return qd_fail(decoder->error, QD_INVALID,
                       "outputs[%zu].name: \"%s\" is a duplicate: expected each output once",
                       position, infer->signature->outputs[i].name);
    }
    if (parameters != NULL)
        status = read_output_parameters(decoder, parameters, position, &binary);
    infer->outputs |= UINT32_C(1) << i;
    infer->binary_outputs |= (uint32_t)binary << i;
    return status;
}

/* The answer has those that are listed. */
static enum qd_status read_outputs(const struct qd_oip_decoder *decoder,
                                   const struct cJSON *outputs)
{
    struct qd_infer *infer = decoder->infer;
    if (!qd_json_is_array(outputs)) {
        return qd_fail(decoder->error, QD_INVALID, "outputs: expected an array, got %s",
                       qd_json_show(outputs).text);
    }
    const struct cJSON *output = qd_json_first(outputs);
    if (output == NULL) /* an empty list is none */
        return QD_OK;
    infer->outputs = infer->binary_outputs = 0;
    for (size_t position = 0; output != NULL; output = qd_json_next(output)) {
        enum qd_status status = read_output(decoder, output, position++);
        if (status != QD_OK)
            return status;
    }
    return QD_OK;
}

/* ---- The request ------------------------------------------------------------------------- */

static enum qd_status read_id(const struct qd_oip_decoder *decoder, const struct cJSON *id)
{
    const char *text = qd_json_string(id);
    if (text == NULL) {
        return qd_fail(decoder->error, QD_INVALID, "id: expected a string, got %s",
                       qd_json_show(id).text);
    }
    if (text[0] == '\0')
        return QD_OK;
    size_t bytes = strlen(text) + 1;
    char *copy = qd_arena_alloc(decoder->arena, bytes);
    if (copy == NULL)
        return qd_refuse_memory(decoder->arena, "the id", decoder->error);
    decoder->infer->id = memcpy(copy, text, bytes);
    return QD_OK;
}

/* Fields that are not ours, such as KServe's model_name, are ignored. */
static enum qd_status read_request(struct qd_oip_decoder *decoder, const struct cJSON *request)
{
    static const char *const keys[] = {"id", "parameters", "inputs", "outputs"};
    const struct cJSON *values[4];
    if (!qd_json_is_object(request)) {
        return qd_fail(decoder->error, QD_INVALID, "the request: expected a JSON object, got %s",
                       qd_json_show(request).text);
    }
    enum qd_status status = QD_OK;
    for (size_t i = 0; i < 4 && status == QD_OK; i++)
        status = qd_json_field(request, "", keys[i], &values[i], decoder->error);
    if (status == QD_OK && values[0] != NULL)
        status = read_id(decoder, values[0]);
    if (status == QD_OK && values[1] != NULL)
        status = qd_oip_read_parameters(values[1], decoder->arena, decoder->infer,
                                        &decoder->carriers, decoder->error);
    if (status == QD_OK)
        status = qd_oip_read_inputs(decoder, values[2]);
    if (status == QD_OK && values[3] != NULL)
        status = read_outputs(decoder, values[3]);
    return status;
}

/* Room for the inputs: a built-in model's are its call's. */
static enum qd_status make_inputs(const struct qd_oip_message *message, struct qd_arena *arena,
                                  struct qd_infer *infer, struct qd_error *error)
{
    const struct qd_signature *signature = message->signature;
    infer->inputs = infer->call.inputs;
    if (signature->op == NULL)
        infer->inputs = qd_arena_calloc(arena, signature->input_count, sizeof(*infer->inputs));
    if (message->declares)
        infer->declared = qd_arena_calloc(arena, signature->input_count, sizeof(*infer->declared));
    return infer->inputs != NULL && (infer->declared != NULL || !message->declares)
               ? QD_OK
               : qd_refuse_memory(arena, "the inputs", error);
}

/* ---- Steps and units --------------------------------------------------------------------- */

struct qd_oip_reader {
    const struct qd_oip_message *message;
    struct qd_arena *arena;
    struct qd_infer *infer;
    struct qd_error *error;
};

static enum qd_status read_all(const struct qd_oip_reader *reader)
{
    const struct qd_oip_message *message = reader->message;
    struct qd_arena *arena = reader->arena;
    struct qd_infer *infer = reader->infer;
    struct qd_error *error = reader->error;
    const struct qd_signature *signature = message->signature;
    const struct qk_operator *op = signature->op;
    assert(op != NULL || !message->declares);
    *infer = (struct qd_infer){
        .signature = signature,
        .outputs = (uint32_t)((UINT64_C(1) << signature->output_count) - 1),
        .call = {.op = op,
                 .version = signature->row,
                 .variable = op != NULL && !message->declares ? op->variable_inputs : 0,
                 .constants_stay = !message->declares},
    };
    struct qd_oip_decoder decoder = {.arena = arena,
                                     .infer = infer,
                                     .error = error,
                                     .json_bytes_header = message->json_bytes_header};
    if (message->body_bytes == 0)
        return qd_fail(error, QD_INVALID, "the body is empty, expected a JSON object");
    size_t json_bytes = message->body_bytes;
    enum qd_status status = split_body(message, &decoder, &json_bytes);
    if (status == QD_OK)
        status = qd_json_envelope_cut(message->body, json_bytes, arena, &decoder.envelope, error);
    if (status == QD_OK)
        status = make_inputs(message, arena, infer, error);
    if (status != QD_OK)
        return status;
    struct cJSON *request = qd_json_parse(decoder.envelope.text, decoder.envelope.text_bytes);
    if (request == NULL)
        return qd_fail(error, QD_UNAVAILABLE, "no memory for the request's JSON; try again later");
    status = read_request(&decoder, request);
    qd_json_free(request);
    return status;
}

struct qd_oip_reader *qd_oip_reader_create(const struct qd_oip_message *message,
                                           struct qd_arena *arena, struct qd_infer *infer,
                                           struct qd_error *error)
{
    struct qd_oip_reader *reader = qd_arena_alloc(arena, sizeof(*reader));
    if (reader == NULL)
        qd_refuse_memory(arena, "the request's JSON", error);
    else
        *reader = (struct qd_oip_reader){message, arena, infer, error};
    return reader;
}

enum qd_status qd_oip_reader_step(struct qd_oip_reader *reader, bool *done)
{
    *done = true;
    return read_all(reader);
}

size_t qd_oip_reader_unit_count(const struct qd_oip_reader *reader)
{
    (void)reader;
    return 0;
}

uint64_t qd_oip_reader_unit_cost_ns(const struct qd_oip_reader *reader)
{
    (void)reader;
    return 0;
}

void qd_oip_reader_convert(struct qd_oip_reader *reader, size_t begin, size_t end)
{
    (void)reader;
    (void)begin;
    (void)end;
}

enum qd_status qd_oip_reader_end(struct qd_oip_reader *reader)
{
    (void)reader;
    return QD_OK;
}

enum qd_status qd_oip_decode(const struct qd_oip_message *message, struct qd_arena *arena,
                             struct qd_infer *infer, struct qd_error *error)
{
    struct qd_oip_reader reader = {message, arena, infer, error};
    bool done = false;
    enum qd_status status = QD_OK;
    while (status == QD_OK && !done)
        status = qd_oip_reader_step(&reader, &done);
    if (status == QD_OK)
        qd_oip_reader_convert(&reader, 0, qd_oip_reader_unit_count(&reader));
    return status == QD_OK ? qd_oip_reader_end(&reader) : status;
}
