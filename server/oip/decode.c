#include "server/oip/decode.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "server/json/reader.h"
#include "server/memory/text.h"
#include "server/oip/classes.h"
#include "server/oip/inputs.h"
#include "server/oip/shm_tensors.h"

/* ---- The body's two parts ---------------------------------------------------------------- */

void qd_oip_message_set_header(struct qd_oip_message *message, const char *json_bytes_header)
{
    message->json_bytes_header = json_bytes_header;
    if (json_bytes_header == NULL || !qd_read_decimal(json_bytes_header, &message->json_bytes))
        message->json_bytes = UINT64_MAX;
}

static enum qd_status split_body(const struct qd_oip_message *message,
                                 struct qd_oip_decoder *decoder, size_t *json_bytes)
{
    const uint64_t count =
        message->json_bytes_header == NULL ? message->body_bytes : message->json_bytes;
    if (count > message->body_bytes) {
        return qd_fail(decoder->error, QD_INVALID,
                       QD_OIP_JSON_BYTES_HEADER ": expected decimal digits in the range [0, %zu], "
                                                "the bytes of the body, got %s",
                       message->body_bytes, qd_show_string(message->json_bytes_header).text);
    }
    *json_bytes = (size_t)count;
    decoder->blobs = message->body + *json_bytes;
    decoder->blobs_source = message->blobs_source == NULL ? "the body" : message->blobs_source;
    decoder->blobs_bytes = message->body_bytes - *json_bytes;
    return QD_OK;
}

/* ---- Outputs ----------------------------------------------------------------------------- */

/* Keeps how many classes of an output are wanted. */
static enum qd_status want_classes(const struct qd_oip_decoder *decoder, size_t index,
                                   uint64_t count)
{
    struct qd_oip_asked *asked = decoder->asked;
    if (asked->class_counts == NULL)
        asked->class_counts = qd_arena_calloc(decoder->arena, asked->signature->output_count,
                                              sizeof(*asked->class_counts));
    if (asked->class_counts == NULL)
        return qd_refuse_memory(decoder->arena, "the outputs", decoder->error);
    /* No row that is classified has more elements. */
    asked->class_counts[index] =
        count < QD_CLASS_ROW_ELEMENTS_MAX ? (uint32_t)count : QD_CLASS_ROW_ELEMENTS_MAX;
    return QD_OK;
}

/* Reads the parameters of an output. An output in shared memory is binary as well, so it may not
 * say that it is not. */
static enum qd_status read_output_parameters(const struct qd_oip_decoder *decoder,
                                             const struct qd_json_value *parameters,
                                             size_t position, size_t index, bool *binary)
{
    const struct qd_json_path path = {"outputs", position, ".parameters."};
    const struct qd_shm_tensor *tensor = NULL;
    uint64_t class_count = 0;
    const struct qd_json_member members[] = {
        {"classification", QD_JSON_TAKES_POSITIVE, &class_count},
        {"binary_data", QD_JSON_TAKES_BOOL, binary},
    };
    enum qd_status status = qd_json_read_members(parameters, &path, members, 2, decoder->error);
    if (status == QD_OK && class_count > 0)
        status = want_classes(decoder, index, class_count);
    if (status == QD_OK)
        status = qd_shm_tensor_read(decoder, parameters, &path, true, index, &tensor);
    if (status == QD_OK && tensor != NULL && *binary) {
        return qd_fail(decoder->error, QD_INVALID,
                       "outputs[%zu].parameters.binary_data: expected false or none beside "
                       "shared_memory_region, got true",
                       position);
    }
    if (status == QD_OK && tensor != NULL && qd_classes_wanted(decoder->asked, index) > 0) {
        return qd_fail(decoder->error, QD_INVALID,
                       "outputs[%zu].parameters.classification: expected none beside "
                       "shared_memory_region, got %u",
                       position, qd_classes_wanted(decoder->asked, index));
    }
    *binary |= tensor != NULL;
    return status;
}

/* Finds the output that outputs[position] names. */
static enum qd_status find_output(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *value, size_t position,
                                  size_t *output)
{
    const struct qd_signature *signature = decoder->asked->signature;
    const char *name = value == NULL ? NULL : qd_json_string(value);
    for (*output = 0; name != NULL && *output < signature->output_count; ++*output)
        if (strcmp(name, signature->outputs[*output].name) == 0)
            return QD_OK;
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < signature->output_count && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : " or ",
                                 qd_show_string(signature->outputs[i].name).text);
    return qd_fail(decoder->error, QD_INVALID, "outputs[%zu].name: expected %s, got %s", position,
                   known, qd_json_show(value).text);
}

/* Reads an entry of the list of outputs. A listed output is binary only if its own parameters say
 * so. As in Triton and KServe, the request's binary_data_output does not apply to listed outputs.
 */
static enum qd_status read_output(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *output, size_t position)
{
    struct qd_oip_asked *asked = decoder->asked;
    const struct qd_json_value *name = NULL;
    const struct qd_json_value *parameters = NULL;
    const struct qd_json_path path = {"outputs", position, "."}, itself = {"outputs", position, ""};
    const struct qd_json_member members[] = {
        {"name", QD_JSON_TAKES_ANY, &name},
        {"parameters", QD_JSON_TAKES_OBJECT, &parameters},
    };
    bool binary = false;
    size_t i = 0;
    if (!qd_json_is_object(output))
        return qd_json_expected(&itself, "", "an object", output, decoder->error);
    if (qd_json_read_members(output, &path, members, 2, decoder->error) != QD_OK ||
        find_output(decoder, name, position, &i) != QD_OK)
        return decoder->error->status;
    if ((asked->outputs >> i & 1) != 0) {
        return qd_fail(decoder->error, QD_INVALID,
                       "outputs[%zu].name: expected each output once, got %s twice", position,
                       qd_show_string(asked->signature->outputs[i].name).text);
    }
    if (parameters != NULL &&
        read_output_parameters(decoder, parameters, position, i, &binary) != QD_OK)
        return decoder->error->status;
    asked->outputs |= UINT32_C(1) << i;
    asked->binary_outputs |= (uint32_t)binary << i;
    return QD_OK;
}

/* Reads the list of outputs. The answer contains only listed outputs. */
static enum qd_status read_outputs(const struct qd_oip_decoder *decoder,
                                   const struct qd_json_value *outputs)
{
    struct qd_oip_asked *asked = decoder->asked;
    if (!qd_json_is_array(outputs))
        return qd_json_expected(NULL, "outputs", "an array", outputs, decoder->error);
    const struct qd_json_value *output = outputs->first;
    if (output == NULL) /* an empty list counts as absent */
        return QD_OK;
    asked->outputs = asked->binary_outputs = 0;
    asked->lists_outputs = true;
    for (size_t position = 0; output != NULL; output = output->next)
        if (read_output(decoder, output, position++) != QD_OK)
            return decoder->error->status;
    return QD_OK;
}

/* ---- The request ------------------------------------------------------------------------- */

static enum qd_status read_id(const struct qd_oip_decoder *decoder, const struct qd_json_value *id)
{
    const char *text = qd_json_string(id);
    if (text == NULL)
        return qd_json_expected(NULL, "id", "a string", id, decoder->error);
    decoder->asked->id = text[0] == '\0' ? NULL : text;
    return QD_OK;
}

/* Reads the members of the request. Ignores unknown members, such as KServe's model_name. */
static enum qd_status read_request(struct qd_oip_decoder *decoder,
                                   const struct qd_json_value *request)
{
    static const struct qd_json_name names[] = {{"id"}, {"parameters"}, {"inputs"}, {"outputs"}};
    const struct qd_json_value *values[4];
    if (!qd_json_is_object(request))
        return qd_json_expected(NULL, "the request", "a JSON object", request, decoder->error);
    if (qd_json_fields(request, NULL, names, 4, values, decoder->error) != QD_OK ||
        (values[0] != NULL && read_id(decoder, values[0]) != QD_OK) ||
        (values[1] != NULL && qd_oip_read_parameters(decoder, values[1]) != QD_OK) ||
        qd_oip_read_inputs(decoder, values[2]) != QD_OK ||
        (values[3] != NULL && read_outputs(decoder, values[3]) != QD_OK))
        return decoder->error->status;
    return qd_shm_tensors_check(decoder->asked, decoder->error);
}

/* Sets asked->inputs: to the call's inputs for a built-in model, else to memory from the arena. */
static enum qd_status make_inputs(const struct qd_oip_message *message, struct qd_arena *arena,
                                  struct qd_oip_asked *asked, struct qd_error *error)
{
    const struct qd_signature *signature = message->signature;
    asked->inputs = asked->call.inputs;
    if (signature->op == NULL)
        asked->inputs = qd_arena_calloc(arena, signature->input_count, sizeof(*asked->inputs));
    else
        memset(asked->inputs, 0, signature->op->input_count * sizeof(*asked->inputs));
    if (message->declares)
        asked->declared = qd_arena_calloc(arena, signature->input_count, sizeof(*asked->declared));
    return asked->inputs != NULL && (asked->declared != NULL || !message->declares)
               ? QD_OK
               : qd_refuse_memory(arena, "the inputs", error);
}

/* ---- Steps and units --------------------------------------------------------------------- */

/* Upper bounds for the time to convert a byte of JSON, and to copy and check bytes of BOOL. */
enum { UNIT_NS_PER_BYTE = 2, BOOLS_PER_NS = 4 };

struct qd_oip_reader {
    const struct qd_oip_message *message;
    struct qd_oip_decoder decoder;
    struct qd_json_reader json;
    bool is_raw; /* the body has no JSON */
    size_t unit_count;
    size_t bools_bytes;         /* bytes of BOOL in the units */
    _Atomic size_t failed_unit; /* the first unit that failed; SIZE_MAX: none */
};

/* Initializes the reader. The caller has cleared *asked, except call.inputs. */
static enum qd_status init_reader(struct qd_oip_reader *reader,
                                  const struct qd_oip_message *message, struct qd_arena *arena,
                                  struct qd_oip_asked *asked, struct qd_error *error)
{
    const struct qd_signature *signature = message->signature;
    const struct qk_operator *op = signature->op;
    assert(op != NULL || !message->declares);
    asked->signature = signature;
    asked->outputs = (uint32_t)((UINT64_C(1) << signature->output_count) - 1);
    asked->call.op = op;
    asked->call.version = signature->row;
    asked->call.variable = op != NULL && !message->declares ? op->variable_inputs : 0;
    asked->call.constants_stay = !message->declares;
    reader->message = message;
    reader->decoder = (struct qd_oip_decoder){.arena = arena,
                                              .asked = asked,
                                              .error = error,
                                              .regions = message->regions,
                                              .json_bytes_header = message->json_bytes_header};
    reader->is_raw = message->json_bytes_header != NULL && message->json_bytes == 0;
    reader->unit_count = 0;
    reader->bools_bytes = 0;
    reader->json.data_bytes = 0; /* in case there is no JSON */
    atomic_init(&reader->failed_unit, SIZE_MAX);
    size_t json_bytes = 0;
    if (reader->is_raw)
        return QD_OK;
    if (message->body_bytes == 0)
        return qd_fail(error, QD_INVALID, "the body: expected a JSON object, got an empty body");
    const enum qd_status status = split_body(message, &reader->decoder, &json_bytes);
    if (status == QD_OK)
        qd_json_reader_init(&reader->json, message->body, json_bytes,
                            message->piece_bytes == 0 ? QD_JSON_PIECE_BYTES : message->piece_bytes,
                            arena, error);
    return status;
}

struct qd_oip_reader *qd_oip_reader_create(const struct qd_oip_message *message,
                                           struct qd_arena *arena, struct qd_oip_asked *asked,
                                           struct qd_error *error)
{
    struct qd_oip_reader *reader = qd_arena_alloc(arena, sizeof(*reader));
    if (reader == NULL)
        qd_refuse_memory(arena, "the request's JSON", error);
    return reader != NULL && init_reader(reader, message, arena, asked, error) == QD_OK ? reader
                                                                                        : NULL;
}

static void count_units(struct qd_oip_reader *reader)
{
    const struct qd_oip_decoder *decoder = &reader->decoder;
    for (size_t i = 0; i < decoder->numbers_count; i++) {
        reader->unit_count += qd_oip_numbers_piece_count(&decoder->numbers[i]);
        reader->bools_bytes += decoder->numbers[i].bools.count;
    }
}

static enum qd_status read_raw(struct qd_oip_reader *reader)
{
    struct qd_oip_decoder *decoder = &reader->decoder;
    if (make_inputs(reader->message, decoder->arena, decoder->asked, decoder->error) != QD_OK ||
        qd_oip_read_raw(reader->message, decoder->asked, decoder->error) != QD_OK ||
        (decoder->asked->inputs[0].type == QK_BOOL && qd_oip_read_raw_bools(decoder) != QD_OK))
        return decoder->error->status;
    count_units(reader);
    return QD_OK;
}

/* Refuses invalid JSON. If the body may be a raw tensor without the header, the error says which
 * header it needs. */
static enum qd_status refuse_json(const struct qd_oip_reader *reader, enum qd_status status)
{
    const struct qd_oip_message *message = reader->message;
    const struct qd_signature *signature = message->signature;
    struct qd_error *error = reader->decoder.error;
    if (status != QD_INVALID || message->json_bytes_header != NULL || signature->op != NULL ||
        signature->input_count != 1 || memchr("{[\" \t\r\n", message->body[0], 7) != NULL)
        return status;
    const struct qd_error cause = *error;
    return qd_fail(error, status,
                   "%.300s; a tensor without JSON needs the header " QD_OIP_JSON_BYTES_HEADER ": 0",
                   cause.text);
}

/* Decodes the tree, after all JSON has been read. */
static enum qd_status read_tree(struct qd_oip_reader *reader)
{
    struct qd_oip_decoder *decoder = &reader->decoder;
    decoder->marks = reader->json.marks;
    if (make_inputs(reader->message, decoder->arena, decoder->asked, decoder->error) != QD_OK ||
        read_request(decoder, reader->json.root) != QD_OK)
        return decoder->error->status;
    count_units(reader);
    return QD_OK;
}

enum qd_status qd_oip_reader_step(struct qd_oip_reader *reader, bool *done)
{
    *done = reader->is_raw;
    if (reader->is_raw)
        return read_raw(reader);
    const enum qd_status status = qd_json_reader_step(&reader->json, done);
    if (status != QD_OK)
        return refuse_json(reader, status);
    return *done ? read_tree(reader) : status;
}

size_t qd_oip_reader_unit_count(const struct qd_oip_reader *reader)
{
    return reader->unit_count;
}

uint64_t qd_oip_reader_unit_cost_ns(const struct qd_oip_reader *reader)
{
    const uint64_t ns =
        reader->json.data_bytes * UNIT_NS_PER_BYTE + reader->bools_bytes / BOOLS_PER_NS;
    return reader->unit_count == 0 ? 0 : ns / reader->unit_count;
}

/* Converts a unit, which is a piece of an input's data. `error` is NULL if the caller only needs
 * the status. */
static enum qd_status read_unit(const struct qd_oip_reader *reader, size_t unit,
                                struct qd_error *error)
{
    const struct qd_oip_numbers *numbers = reader->decoder.numbers;
    for (; unit >= qd_oip_numbers_piece_count(numbers); numbers++)
        unit -= qd_oip_numbers_piece_count(numbers);
    return qd_oip_read_numbers(numbers, unit, error);
}

void qd_oip_reader_convert(struct qd_oip_reader *reader, size_t begin, size_t end)
{
    size_t failed = atomic_load(&reader->failed_unit);
    for (size_t unit = begin; unit < end && unit < failed; unit++) {
        if (read_unit(reader, unit, NULL) == QD_OK)
            continue;
        while (unit < failed &&
               !atomic_compare_exchange_weak(&reader->failed_unit, &failed, unit)) {
        }
        return;
    }
}

enum qd_status qd_oip_reader_end(struct qd_oip_reader *reader)
{
    const size_t failed = atomic_load(&reader->failed_unit);
    return failed == SIZE_MAX ? QD_OK : read_unit(reader, failed, reader->decoder.error);
}

enum qd_status qd_oip_decode(const struct qd_oip_message *message, struct qd_arena *arena,
                             struct qd_oip_asked *asked, struct qd_error *error)
{
    struct qd_oip_reader reader;
    bool done = false;
    *asked = (struct qd_oip_asked){.signature = NULL};
    enum qd_status status = init_reader(&reader, message, arena, asked, error);
    while (status == QD_OK && !done)
        status = qd_oip_reader_step(&reader, &done);
    if (status != QD_OK)
        return status;
    qd_oip_reader_convert(&reader, 0, reader.unit_count);
    return qd_oip_reader_end(&reader);
}
