#include "server/oip/inputs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/memory/text.h"
#include "server/oip/shm_tensors.h"

/* ---- One input --------------------------------------------------------------------------- */

enum field { NAME, DATATYPE, SHAPE, DATA, PARAMETERS, FIELD_COUNT };

/* The state of decoding an input. */
struct input {
    const struct qd_json_value *json;
    const struct qd_json_value *fields[FIELD_COUNT]; /* the members of `json` */
    size_t position;                                 /* index in the request's array */
    size_t index;                                    /* index in the signature */
    const struct qd_port *port;
    const char *name; /* of the port */
    struct qk_tensor *tensor;
    const struct qd_oip_carrier *carrier; /* NULL: the input has not the carrier form */
    const struct qk_attribute *strides;   /* NULL: none */
    struct qk_tensor
        *wire;    /* the tensor as it is sent; differs from `tensor` with a carrier or strides */
    size_t bytes; /* the size of `wire` */
};

/* The path of a field, for an error. */
struct label {
    char text[160];
};

/* "inputs[1].shape (\"x_scale\")" */
static struct label label_of(size_t position, const char *field, const char *name)
{
    const struct qd_shown shown = qd_show_string(name);
    struct label label;
    snprintf(label.text, sizeof(label.text), "inputs[%zu]%s (%s)", position, field, shown.text);
    return label;
}

static struct label label(const struct input *input, const char *field)
{
    return label_of(input->position, field, input->name);
}

/* Fails with "inputs[1].shape (\"x_scale\"): expected WHAT, got VALUE". */
static enum qd_status expected(const struct qd_oip_decoder *decoder, const struct input *input,
                               const char *field, const char *what,
                               const struct qd_json_value *value)
{
    return qd_json_expected(NULL, label(input, field).text, what, value, decoder->error);
}

/* A list of names for an error, cut off if it is too long. */
struct listed {
    char text[256];
};

static struct listed show_integers(const int64_t *list, size_t count)
{
    struct listed shown;
    qd_print_integers(list, count < QK_RANK_MAX ? count : QK_RANK_MAX, shown.text,
                      sizeof(shown.text));
    return shown;
}

static struct listed show_shape(const struct qk_tensor *tensor)
{
    return show_integers((const int64_t *)tensor->dims, tensor->rank);
}

/* "x, x_scale, x_zero_point (optional)" */
static struct listed list_inputs(const struct qd_signature *signature)
{
    struct listed listed = {.text = ""};
    for (size_t i = 0, used = 0; i < signature->input_count && used < sizeof(listed.text); i++) {
        const struct qd_port *port = &signature->inputs[i];
        used += (size_t)snprintf(listed.text + used, sizeof(listed.text) - used, "%s%s%s",
                                 i == 0 ? "" : ", ", qd_show_name(port->name).text,
                                 port->optional ? " (optional)" : "");
    }
    return listed;
}

static const struct qk_attribute *find_strides(const struct qd_oip_asked *asked, size_t index)
{
    const struct qk_call *call = &asked->call;
    if (call->op == NULL)
        return asked->signature->inputs[index].strides;
    for (size_t i = 0; i < call->op->attribute_count; i++) {
        const struct qk_attribute_def *def = &call->op->attributes[i];
        if (call->attributes[i].present && def->kind == QK_ATTRIBUTE_STRIDES && def->input == index)
            return &call->attributes[i];
    }
    return NULL;
}

static const struct qd_oip_carrier *find_carrier(const struct qd_oip_decoder *decoder, size_t index)
{
    const struct qd_oip_carrier *carrier = decoder->carriers;
    return carrier != NULL && carrier[index].tensor.type != QK_NONE ? &carrier[index] : NULL;
}

/* Returns the index of the input with this name, or input_count if there is none. Looks at
 * `position` first, because inputs mostly come in order. */
static size_t find_port(const struct qd_signature *signature, const char *name, size_t position)
{
    if (position < signature->input_count && strcmp(name, signature->inputs[position].name) == 0)
        return position;
    for (position = 0; position < signature->input_count; position++)
        if (strcmp(name, signature->inputs[position].name) == 0)
            break;
    return position;
}

/* Allocates `wire` if it differs from the tensor. */
static enum qd_status make_wire(const struct qd_oip_decoder *decoder, struct input *input)
{
    input->wire = qd_arena_calloc(decoder->arena, 1, sizeof(*input->wire));
    return input->wire != NULL
               ? QD_OK
               : qd_refuse_memory(decoder->arena, label(input, "").text, decoder->error);
}

static enum qd_status read_name(const struct qd_oip_decoder *decoder, struct input *input)
{
    const struct qd_signature *signature = decoder->asked->signature;
    const struct qd_json_value *value = input->fields[NAME];
    const char *name = value == NULL ? NULL : qd_json_string(value);
    if (name == NULL) {
        const struct qd_json_path path = {"inputs", input->position, "."};
        return qd_json_expected(&path, "name", "a string", value, decoder->error);
    }
    input->index = find_port(signature, name, input->position);
    if (input->index == signature->input_count) {
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs[%zu].name: expected an input of %s, got %s; its inputs are %s",
                       input->position, signature->name, qd_show_string(name).text,
                       list_inputs(signature).text);
    }
    input->port = &signature->inputs[input->index];
    input->name = input->port->name;
    input->tensor = &decoder->asked->inputs[input->index];
    input->carrier = find_carrier(decoder, input->index);
    input->strides = find_strides(decoder->asked, input->index);
    input->wire = input->tensor;
    if (input->tensor->type != QK_NONE) {
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs[%zu].name: expected each input once, got %s twice", input->position,
                       qd_show_string(input->name).text);
    }
    return input->carrier == NULL ? QD_OK : make_wire(decoder, input);
}

/* Returns the type with this name, or QK_NONE if it is not one of `types`. */
static enum qk_type find_type(uint32_t types, const char *name)
{
    for (types &= ~QK_BIT(QK_NONE); types != 0; types &= types - 1) {
        const enum qk_type type = (enum qk_type)__builtin_ctz(types);
        if (strcmp(qk_type_info(type)->name, name) == 0)
            return type;
    }
    return QK_NONE;
}

static enum qd_status read_datatype(const struct qd_oip_decoder *decoder, struct input *input)
{
    const struct qd_signature *signature = decoder->asked->signature;
    const struct qd_json_value *value = input->fields[DATATYPE];
    const char *name = value == NULL ? NULL : qd_json_string(value);
    const uint32_t types = input->carrier != NULL ? QK_BIT(QK_UINT8) : input->port->types;
    input->wire->type = name == NULL ? QK_NONE : find_type(types, name);
    if (input->wire->type == QK_NONE && input->carrier != NULL)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected UINT8, for the bytes of parameters.%s.datatype, got %s",
                       label(input, ".datatype").text, qd_show_name(input->name).text,
                       qd_json_show(value).text);
    if (input->wire->type == QK_NONE)
        return qd_refuse_type(signature->name, signature->version, input->port->types,
                              label(input, ".datatype").text, qd_json_show(value).text,
                              decoder->error);
    return QD_OK;
}

static size_t count_items(const struct qd_json_value *array)
{
    size_t count = 0;
    for (const struct qd_json_value *item = array->first; item != NULL; count++)
        item = item->next;
    return count;
}

/* Reads the dims. Inline, because the shapes of small requests take less time than a call. */
__attribute__((always_inline)) static inline enum qd_status
read_dims(const struct qd_oip_decoder *decoder, const struct input *input, bool may_be_free,
          int64_t *dims, uint32_t *rank)
{
    const struct qd_json_value *shape = input->fields[SHAPE];
    const int64_t least = may_be_free ? QD_DIM_FREE : 0;
    if (shape == NULL || !qd_json_is_array(shape))
        return expected(decoder, input, ".shape",
                        may_be_free ? "an array of integers, -1 where a size is free"
                                    : "an array of integers",
                        shape);
    for (const struct qd_json_value *dim = shape->first; dim != NULL; dim = dim->next) {
        if (*rank == QK_RANK_MAX) {
            return qd_fail(decoder->error, QD_INVALID,
                           "%s: expected at most %d dimensions, got %zu",
                           label(input, ".shape").text, QK_RANK_MAX, count_items(shape));
        }
        if (!qd_json_whole(dim, &dims[*rank]) || dims[*rank] < least) {
            return qd_fail(decoder->error, QD_INVALID,
                           "%s: expected an integer in [%d, 2^53) for dimension %u, got %s",
                           label(input, ".shape").text, (int)least, *rank, qd_json_show(dim).text);
        }
        ++*rank;
    }
    return QD_OK;
}

/* Counts the elements of a tensor, and its bytes. `dims` are the sizes that an error shows. */
static enum qd_status set_count(const struct qd_oip_decoder *decoder, const struct input *input,
                                struct qk_tensor *tensor, const int64_t *dims, size_t *bytes)
{
    if (qk_tensor_set_count(tensor) && qk_type_bytes(tensor->type, tensor->count, bytes))
        return QD_OK;
    return qd_fail(decoder->error, QD_INVALID,
                   "%s: expected sizes whose product does not overflow 64 bits, got %s of %s",
                   label(input, ".shape").text, show_integers(dims, tensor->rank).text,
                   qk_type_info(tensor->type)->name);
}

static enum qd_status read_shape(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = input->wire;
    int64_t *dims = (int64_t *)tensor->dims;
    const enum qd_status status = read_dims(decoder, input, false, dims, &tensor->rank);
    return status == QD_OK ? set_count(decoder, input, tensor, dims, &input->bytes) : status;
}

/* Checks the batch against the configuration's max_batch_size. */
static enum qd_status check_batch(const struct qd_oip_decoder *decoder, const struct input *input)
{
    const uint64_t batch_max = decoder->asked->signature->batch_max;
    const struct qk_tensor *tensor = input->tensor;
    if (batch_max == 0 || (tensor->rank > 0 && tensor->dims[0] <= batch_max))
        return QD_OK;
    return qd_fail(decoder->error, QD_INVALID,
                   "%s: expected a first dimension of at most %llu (max_batch_size), got %lld",
                   label(input, ".shape").text, (unsigned long long)batch_max,
                   tensor->rank == 0 ? -1LL : (long long)tensor->dims[0]);
}

static enum qd_status refuse_shape(const struct qd_oip_decoder *decoder, const struct input *input)
{
    char field[128];
    char wanted[256];
    qd_print_integers(input->port->dims, input->port->rank, wanted, sizeof(wanted));
    snprintf(field, sizeof(field), "parameters.%s.shape", qd_show_name(input->name).text);
    return qd_fail(decoder->error, QD_INVALID, "%s: expected %s%s, got %s",
                   input->carrier == NULL ? label(input, ".shape").text : field, wanted,
                   strchr(wanted, '-') == NULL ? "" : ", where -1 is any size",
                   show_shape(input->tensor).text);
}

static enum qd_status refuse_strides(const struct qd_oip_decoder *decoder,
                                     const struct input *input, uint32_t rank)
{
    return qd_fail(decoder->error, QD_INVALID,
                   "parameters.%s.strides: expected %u integers from 0 to 4294967295, one for each "
                   "dimension, that reach less than 2^64 bytes, got %zu: %s",
                   qd_show_name(input->name).text, rank, input->strides->list_count,
                   show_integers(input->strides->list, input->strides->list_count).text);
}

/* Applies strides: they decide how many elements the data has, which come as a flat list. */
static enum qd_status apply_strides(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = input->tensor;
    size_t bytes;
    if (!qk_tensor_set_strides(tensor, input->strides->list, input->strides->list_count) ||
        !qk_type_bytes(tensor->type, tensor->stored, &bytes))
        return refuse_strides(decoder, input, tensor->rank);
    if (input->carrier != NULL)
        return QD_OK;
    input->bytes = bytes;
    enum qd_status status = make_wire(decoder, input);
    if (status == QD_OK)
        *input->wire = (struct qk_tensor){.type = tensor->type,
                                          .rank = 1,
                                          .dims = {tensor->stored},
                                          .count = tensor->stored,
                                          .stored = tensor->stored};
    return status;
}

/* Makes the tensor from `wire`, by the carrier form or strides. */
static enum qd_status make_tensor(const struct qd_oip_decoder *decoder, struct input *input)
{
    struct qk_tensor *tensor = input->tensor;
    if (input->carrier != NULL)
        *tensor = input->carrier->tensor;
    if (!qd_port_takes(input->port, tensor)) /* a loaded model may fix some sizes */
        return refuse_shape(decoder, input);
    enum qd_status status = check_batch(decoder, input);
    if (status == QD_OK && input->strides != NULL)
        status = apply_strides(decoder, input);
    if (status != QD_OK || input->carrier == NULL)
        return status;
    size_t bytes;
    qk_type_bytes(tensor->type, tensor->stored,
                  &bytes); /* cannot overflow: the reader of the carrier form has checked it */
    if (input->wire->count != bytes)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes, for the %zu elements of %s in parameters.%s, got "
                       "%zu",
                       label(input, ".shape").text, bytes, tensor->stored,
                       qk_type_info(tensor->type)->name, qd_show_name(input->name).text,
                       input->wire->count);
    if (tensor->type == QK_BOOL) /* the bytes' JSON may then have booleans, 0 and 1 */
        input->wire->type = QK_BOOL;
    return QD_OK;
}

/* Checks the number of bytes that `field` gives for a tensor. A tensor with strides may be padded
 * to a multiple of four bytes, as DirectML's buffers are. */
static enum qd_status check_bytes(const struct qd_oip_decoder *decoder, const struct input *input,
                                  const char *field, size_t bytes)
{
    const struct qk_tensor *wire = input->wire;
    const size_t wanted = input->bytes;
    char rounded[40] = "";
    size_t padding = input->strides != NULL && input->carrier == NULL ? -wanted % 4 : 0;
    if (bytes == wanted || (bytes > wanted && bytes - wanted == padding))
        return QD_OK;
    if (padding > 0)
        snprintf(rounded, sizeof(rounded), " or %zu", wanted + padding);
    return qd_fail(decoder->error, QD_INVALID,
                   "%s: expected %zu%s bytes for %zu elements of %s, got %zu",
                   label(input, field).text, wanted, rounded, wire->count,
                   qk_type_info(wire->type)->name, bytes);
}

/* Makes the next binary tensor of the body the tensor's data, without a copy. */
static enum qd_status take_blob(struct qd_oip_decoder *decoder, const struct input *input,
                                const struct qd_json_value *size)
{
    static const char field[] = ".parameters.binary_data_size";
    int64_t given;
    if (!qd_json_whole(size, &given) || given < 0)
        return expected(decoder, input, field, "an integer in [0, 2^53)", size);
    const size_t bytes = (size_t)given;
    if (check_bytes(decoder, input, field, bytes) != QD_OK)
        return decoder->error->status;
    if (decoder->json_bytes_header == NULL && bytes > 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected the header " QD_OIP_JSON_BYTES_HEADER
                       " with binary data, got none",
                       label(input, field).text);
    if (bytes > decoder->blobs_bytes)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected %zu bytes of binary data, %s has only %zu left",
                       label(input, field).text, bytes, decoder->blobs_source,
                       decoder->blobs_bytes);
    input->tensor->data = decoder->blobs;
    decoder->blobs += bytes;
    decoder->blobs_bytes -= bytes;
    return QD_OK;
}

/* Returns a new entry of the decoder's `numbers`, or NULL if there is no memory. */
static struct qd_oip_numbers *add_numbers(struct qd_oip_decoder *decoder, size_t position,
                                          const char *name)
{
    if (decoder->numbers == NULL)
        decoder->numbers = qd_arena_alloc(decoder->arena, decoder->asked->signature->input_count *
                                                              sizeof(*decoder->numbers));
    if (decoder->numbers == NULL)
        return NULL;
    struct qd_oip_numbers *numbers = &decoder->numbers[decoder->numbers_count++];
    *numbers = (struct qd_oip_numbers){.position = position, .name = name};
    return numbers;
}

/* Allocates memory for the numbers. Converts them at once if they are few, otherwise leaves that to
 * units. */
static enum qd_status take_numbers(struct qd_oip_decoder *decoder, const struct input *input,
                                   const struct qd_json_value *data)
{
    const struct qk_tensor *wire = input->wire;
    const size_t come = data->data->commas + 1; /* an upper bound; the shape may claim far more */
    size_t bytes = input->bytes;
    if (come < wire->count)
        qk_type_bytes(wire->type, come, &bytes);
    void *out = qd_arena_alloc(decoder->arena, bytes);
    if (out != NULL && qd_json_row_read(data, wire, out)) {
        input->tensor->data = out;
        return QD_OK;
    }
    struct qd_oip_numbers *numbers =
        out == NULL ? NULL : add_numbers(decoder, input->position, input->name);
    if (numbers == NULL)
        return qd_refuse_memory(decoder->arena, label(input, ".data").text, decoder->error);
    numbers->is_strided = input->strides != NULL;
    qd_json_numbers_init(&numbers->json, data, decoder->marks, wire);
    numbers->json.out = out;
    input->tensor->data = out;
    return QD_OK;
}

/* ---- Bytes of BOOL ----------------------------------------------------------------------- */

enum { BOOLS_IN_PIECE = 256 << 10 /* bytes that take some 20 us */ };

/* Returns the index of the first byte that is neither 0 nor 1, or `count`. */
static size_t find_other(const char *bytes, size_t count)
{
    uint64_t eight;
    size_t i = 0;
    for (; count - i >= sizeof(eight); i += sizeof(eight)) {
        memcpy(&eight, bytes + i, sizeof(eight));
        if ((eight & UINT64_C(0xfefefefefefefefe)) != 0)
            break;
    }
    while (i < count && (unsigned char)bytes[i] <= 1)
        i++;
    return i;
}

/* Copies a piece of shared memory, and checks the piece. A repeated call must find the same, so it
 * does not copy: a client may have changed the shared memory. */
static enum qd_status read_bools(const struct qd_oip_numbers *numbers, size_t piece,
                                 struct qd_error *error)
{
    const struct qd_oip_bools *bools = &numbers->bools;
    const size_t begin = piece * BOOLS_IN_PIECE;
    const size_t left = bools->count - begin;
    const size_t count = left < BOOLS_IN_PIECE ? left : BOOLS_IN_PIECE;
    if (bools->shared != NULL && error == NULL)
        memcpy(bools->copy + begin, bools->shared + begin, count);
    const size_t index = begin + find_other(bools->bytes + begin, count);
    if (index == begin + count)
        return QD_OK;
    return error == NULL ? QD_INVALID
                         : qd_fail(error, QD_INVALID,
                                   "%s: element %zu: expected a byte of 0 or 1 (BOOL), got %u",
                                   numbers->position == QD_OIP_RAW
                                       ? "the body"
                                       : label_of(numbers->position, "", numbers->name).text,
                                   index, (unsigned char)bools->bytes[index]);
}

/* Leaves bytes to units. */
static enum qd_status take_bools(struct qd_oip_decoder *decoder, size_t position, const char *name,
                                 struct qd_oip_bools bools)
{
    if (bools.count == 0)
        return QD_OK;
    struct qd_oip_numbers *numbers = add_numbers(decoder, position, name);
    if (numbers == NULL)
        return qd_refuse_memory(decoder->arena, "the inputs", decoder->error);
    numbers->bools = bools;
    return QD_OK;
}

/* Takes the data of an input of BOOL that came as bytes. A client may change shared memory while
 * the request runs, so bytes in it are copied. */
static enum qd_status take_bool_bytes(struct qd_oip_decoder *decoder, const struct input *input,
                                      bool is_shared)
{
    struct qd_oip_bools bools = {.bytes = input->tensor->data, .count = input->bytes};
    if (is_shared) {
        bools.shared = bools.bytes;
        bools.copy = qd_arena_alloc(decoder->arena, input->bytes);
        if (bools.copy == NULL)
            return qd_refuse_memory(decoder->arena, label(input, "").text, decoder->error);
        input->tensor->data = bools.bytes = bools.copy;
    }
    return take_bools(decoder, input->position, input->name, bools);
}

enum qd_status qd_oip_read_raw_bools(struct qd_oip_decoder *decoder)
{
    const struct qk_tensor *tensor = &decoder->asked->inputs[0];
    const struct qd_oip_bools bools = {.bytes = tensor->data, .count = tensor->stored};
    return take_bools(decoder, QD_OIP_RAW, decoder->asked->signature->inputs[0].name, bools);
}

/* ---- Pieces ------------------------------------------------------------------------------ */

size_t qd_oip_numbers_piece_count(const struct qd_oip_numbers *numbers)
{
    return numbers->bools.bytes == NULL ? numbers->json.mark_count + 1
                                        : (numbers->bools.count - 1) / BOOLS_IN_PIECE + 1;
}

enum qd_status qd_oip_read_numbers(const struct qd_oip_numbers *numbers, size_t piece,
                                   struct qd_error *error)
{
    if (numbers->bools.bytes != NULL)
        return read_bools(numbers, piece, error);
    if (error == NULL)
        return qd_json_numbers_read(&numbers->json, piece, NULL, NULL);
    const char *field = numbers->is_strided ? ".data, as far as its strides reach" : ".data";
    const struct label where = label_of(numbers->position, field, numbers->name);
    return qd_json_numbers_read(&numbers->json, piece, where.text, error);
}

/* ---- Where the data is ------------------------------------------------------------------- */

/* Where an input's data is. A valid input has at most one of the three. */
struct content {
    const struct qd_json_value *blob; /* the size of a binary tensor */
    const struct qd_json_value *data;
    const struct qd_shm_tensor *shm_tensor;
};

static enum qd_status find_elsewhere(const struct qd_oip_decoder *decoder,
                                     const struct input *input,
                                     const struct qd_json_value *parameters,
                                     struct content *content)
{
    const struct qd_json_path path = {"inputs", input->position, ".parameters."};
    if (!qd_json_is_object(parameters))
        return expected(decoder, input, ".parameters", "an object", parameters);
    enum qd_status status =
        qd_json_field(parameters, &path, "binary_data_size", &content->blob, decoder->error);
    return status == QD_OK ? qd_shm_tensor_read(decoder, parameters, &path, false, input->index,
                                                &content->shm_tensor)
                           : status;
}

static inline enum qd_status find_content(const struct qd_oip_decoder *decoder,
                                          const struct input *input, struct content *content)
{
    const struct qd_json_value *parameters = input->fields[PARAMETERS];
    *content = (struct content){.data = input->fields[DATA]};
    assert(content->data == NULL || content->data->kind == QD_JSON_DATA);
    return parameters == NULL ? QD_OK : find_elsewhere(decoder, input, parameters, content);
}

static enum qd_status read_content(struct qd_oip_decoder *decoder, const struct input *input)
{
    struct content content;
    enum qd_status status = find_content(decoder, input, &content);
    if (status != QD_OK)
        return status;
    const int count =
        (content.data != NULL) + (content.blob != NULL) + (content.shm_tensor != NULL);
    if (count != 1) {
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected one of data, parameters.binary_data_size and "
                       "parameters.shared_memory_region, got %s",
                       label(input, "").text, count == 0 ? "none" : "more than one");
    }
    if (content.data != NULL)
        return take_numbers(decoder, input, content.data);
    if (content.blob != NULL) {
        status = take_blob(decoder, input, content.blob);
    } else {
        input->tensor->data = content.shm_tensor->bytes;
        status = check_bytes(decoder, input, ".parameters.shared_memory_byte_size",
                             content.shm_tensor->count);
    }
    if (status != QD_OK || input->tensor->type != QK_BOOL)
        return status;
    return take_bool_bytes(decoder, input, content.shm_tensor != NULL);
}

/* ---- An input that each run will bring --------------------------------------------------- */

/* Finds whether the input is declared: the message declares, and the input may come without data
 * and does. */
static enum qd_status find_declared(const struct qd_oip_decoder *decoder, const struct input *input,
                                    bool *declared)
{
    struct content content;
    *declared = false;
    if (decoder->asked->declared == NULL ||
        (decoder->asked->call.op->variable_inputs >> input->index & 1) == 0)
        return QD_OK;
    enum qd_status status = find_content(decoder, input, &content);
    *declared = content.data == NULL && content.blob == NULL && content.shm_tensor == NULL;
    return status;
}

/* Records the port that a declared input will become. Its known sizes must make a valid tensor. */
static enum qd_status declare(const struct qd_oip_decoder *decoder, const struct input *input)
{
    struct qd_port *port = &decoder->asked->declared[input->index];
    if (input->carrier != NULL) {
        return qd_fail(decoder->error, QD_INVALID,
                       "parameters.%s.datatype: expected together with data, got none: name the "
                       "datatype itself",
                       qd_show_name(input->name).text);
    }
    *port = (struct qd_port){.name = input->name,
                             .types = QK_BIT(input->wire->type),
                             .shape_text = input->port->shape_text,
                             .shaped = true,
                             .strides = input->strides};
    if (read_dims(decoder, input, true, port->dims, &port->rank) != QD_OK)
        return decoder->error->status;
    struct qk_tensor least = {.type = input->wire->type, .rank = port->rank};
    for (uint32_t i = 0; i < port->rank; i++)
        least.dims[i] = port->dims[i] == QD_DIM_FREE ? 1 : (size_t)port->dims[i];
    size_t bytes;
    if (set_count(decoder, input, &least, port->dims, &bytes) != QD_OK)
        return decoder->error->status;
    *input->tensor = least;
    if (input->strides != NULL &&
        !qk_tensor_set_strides(&least, input->strides->list, input->strides->list_count))
        return refuse_strides(decoder, input, least.rank);
    decoder->asked->call.variable |= UINT32_C(1) << input->index;
    return QD_OK;
}

static enum qd_status read_input(struct qd_oip_decoder *decoder, struct input *input)
{
    static const struct qd_json_name names[] = {
        {"name"}, {"datatype"}, {"shape"}, {"data"}, {"parameters"}};
    const struct qd_json_path path = {"inputs", input->position, "."};
    const struct qd_json_path itself = {"inputs", input->position, ""};
    bool declared = false;
    if (!qd_json_is_object(input->json))
        return qd_json_expected(&itself, "", "an object", input->json, decoder->error);
    if (qd_json_fields(input->json, &path, names, FIELD_COUNT, input->fields, decoder->error) !=
            QD_OK ||
        read_name(decoder, input) != QD_OK || read_datatype(decoder, input) != QD_OK ||
        find_declared(decoder, input, &declared) != QD_OK)
        return decoder->error->status;
    if (declared)
        return declare(decoder, input);
    if (read_shape(decoder, input) != QD_OK || make_tensor(decoder, input) != QD_OK)
        return decoder->error->status;
    return read_content(decoder, input);
}

/* ---- All inputs -------------------------------------------------------------------------- */

/* Refuses attributes and carriers that describe an absent input. */
static enum qd_status refuse_absent(const struct qd_oip_decoder *decoder, size_t index)
{
    const char *name = decoder->asked->signature->inputs[index].name;
    const bool carried = find_carrier(decoder, index) != NULL;
    if (!carried && find_strides(decoder->asked, index) == NULL)
        return QD_OK;
    return qd_fail(decoder->error, QD_INVALID,
                   "parameters.%s.%s: expected together with the input %s, got none",
                   qd_show_name(name).text, carried ? "datatype" : "strides",
                   qd_show_string(name).text);
}

static enum qd_status check_complete(const struct qd_oip_decoder *decoder)
{
    struct qd_oip_asked *asked = decoder->asked;
    const struct qd_signature *signature = asked->signature;
    for (size_t i = 0; i < signature->input_count; i++) {
        if (asked->inputs[i].type != QK_NONE)
            continue;
        const bool may_vary =
            asked->declared != NULL && (asked->call.op->variable_inputs >> i & 1) != 0;
        asked->call.variable |= (uint32_t)may_vary << i;
        if (!may_vary && !signature->inputs[i].optional) {
            return qd_fail(decoder->error, QD_INVALID, "inputs: expected %s, got none; %s takes %s",
                           qd_show_string(signature->inputs[i].name).text, signature->name,
                           list_inputs(signature).text);
        }
        if (refuse_absent(decoder, i) != QD_OK)
            return decoder->error->status;
    }
    if (asked->declared != NULL && asked->call.op->variable_inputs == 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs: expected one without data, which each request brings; %s has none "
                       "that can be one",
                       signature->name);
    if (asked->declared != NULL && asked->call.variable == 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "inputs: expected one without data, which each request brings; \"%s\" can "
                       "be one",
                       signature->inputs[__builtin_ctz(asked->call.op->variable_inputs)].name);
    if (decoder->blobs_bytes > 0)
        return qd_fail(decoder->error, QD_INVALID,
                       "%s: expected its end after the last binary tensor, got %zu bytes more",
                       decoder->blobs_source, decoder->blobs_bytes);
    return QD_OK;
}

enum qd_status qd_oip_read_inputs(struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *inputs)
{
    if (inputs == NULL || !qd_json_is_array(inputs))
        return qd_json_expected(NULL, "inputs", "an array", inputs, decoder->error);
    struct input input;
    input.position = 0;
    for (input.json = inputs->first; input.json != NULL; input.json = input.json->next) {
        if (read_input(decoder, &input) != QD_OK)
            return decoder->error->status;
        input.position++;
    }
    return check_complete(decoder);
}
