#define _GNU_SOURCE
#include "server/oip/encode.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "server/base/limits.h"
#include "server/json/tensor.h"
#include "server/memory/arena.h"
#include "server/oip/shm_tensors.h"

/* The Retry-After of refused connections. */
enum { RETRY_AFTER_S = 1 };

static uint64_t microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

/* ---- What is printed into reserved room ---------------------------------------------------- */

/* Appends a constant. All text between two names or data, constants, numbers and a shape, takes at
 * most 700 bytes. */
static inline char *put(char *at, const char *constant)
{
    const size_t bytes = strlen(constant);
    memcpy(at, constant, bytes);
    return at + bytes;
}

static inline char *put_decimal(char *at, const char *before, uint64_t number)
{
    return qd_print_decimal(number, put(at, before));
}

static char *put_shape(char *at, const struct qk_tensor *tensor)
{
    *at++ = '[';
    for (uint32_t i = 0; i < tensor->rank; i++) {
        at = qd_print_decimal(tensor->dims[i], at);
        *at++ = ',';
    }
    at -= tensor->rank > 0;
    *at++ = ']';
    return at;
}
static_assert(QK_RANK_MAX * (QD_DECIMAL_BYTES_MAX + 1) + 256 <= QD_TEXT_RESERVE_MAX,
              "a shape has room, and constants with numbers");

/* Prints the head of the answer, with its keys in Triton's order. */
static void print_head(struct qd_text *text, const struct qd_oip_asked *asked, const char *kernel,
                       const uint64_t stage_ns[QD_STAGE_COUNT])
{
    qd_text_string(text, "{");
    if (asked->id != NULL) {
        qd_text_string(text, "\"id\":");
        qd_text_json_string(text, asked->id);
        qd_text_string(text, ",");
    }
    qd_text_string(text, "\"model_name\":");
    qd_text_json_string(text, asked->signature->name);
    char *const room = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
    if (room == NULL)
        return;
    char *at = put_decimal(room, ",\"model_version\":\"", asked->signature->version);
    at = put_decimal(
        at, "\",\"parameters\":{\"receive_us\":", microseconds(stage_ns[QD_STAGE_RECEIVE]));
    at = put_decimal(at, ",\"queue_us\":", microseconds(stage_ns[QD_STAGE_QUEUE]));
    at = put_decimal(at, ",\"decode_us\":", microseconds(stage_ns[QD_STAGE_DECODE]));
    at = put_decimal(at, ",\"compute_us\":", microseconds(stage_ns[QD_STAGE_COMPUTE]));
    qd_text_commit(text, (size_t)(put(at, ",\"kernel\":\"") - room));
    qd_text_string(text, kernel);
    qd_text_string(text, "\"},\"outputs\":[");
}

/* ---- Numbers, in units -------------------------------------------------------------------- */

enum { ROOM_BYTES_MIN = 64 << 10, ROOM_BYTES_MAX = 1 << 20 };

struct qd_oip_writer {
    const struct qd_oip_asked *asked;
    const char *kernel;
    const struct qk_tensor *outputs;
    struct qd_arena *arena;
    struct qd_error *error;
    size_t first_units[QK_GRAPH_PORT_COUNT_MAX +
                       1];  /* the first unit of each output, then the count of all units */
    struct qd_part *pieces; /* the printed pieces, by unit */

    pthread_mutex_t lock; /* protects the arena and the members below while units are printed */
    char *room;           /* memory that is left for pieces */
    size_t room_bytes;
    size_t printed_bytes;
    bool failed; /* an allocation failed */
};

static bool is_json(const struct qd_oip_asked *asked, size_t output)
{
    return ((asked->outputs & ~asked->binary_outputs) >> output & 1) != 0;
}

size_t qd_oip_least_answer_bytes(const struct qd_oip_asked *asked, const struct qk_tensor *outputs)
{
    size_t sum = 0;
    for (size_t i = 0; i < asked->signature->output_count; i++) {
        size_t bytes = 0;
        if ((asked->outputs >> i & 1) == 0 || qd_shm_tensors_has_output(asked, i))
            continue;
        const bool fits = is_json(asked, i)
                              ? !__builtin_mul_overflow(outputs[i].count, 2, &bytes)
                              : qk_type_bytes(outputs[i].type, outputs[i].count, &bytes);
        if (!fits || __builtin_add_overflow(sum, bytes, &sum))
            return SIZE_MAX;
    }
    return sum;
}

static size_t units_of(const struct qd_oip_asked *asked, const struct qk_tensor *outputs,
                       size_t output)
{
    const size_t count = is_json(asked, output) ? outputs[output].count : 0;
    if (count <= QD_OIP_UNIT_NUMBERS)
        return 0;
    return count / QD_OIP_UNIT_NUMBERS + (count % QD_OIP_UNIT_NUMBERS != 0);
}

struct qd_oip_writer *qd_oip_writer_create(const struct qd_oip_asked *asked, const char *kernel,
                                           const struct qk_tensor *outputs, struct qd_arena *arena,
                                           struct qd_error *error)
{
    const size_t output_count = asked->signature->output_count;
    struct qd_oip_writer *writer = qd_arena_calloc(arena, 1, sizeof(*writer));
    if (writer == NULL) {
        qd_refuse_memory(arena, "the answer", error);
        return NULL;
    }
    writer->asked = asked;
    writer->kernel = kernel;
    writer->outputs = outputs;
    writer->arena = arena;
    writer->error = error;
    for (size_t i = 0; i < output_count; i++)
        writer->first_units[i + 1] = writer->first_units[i] + units_of(asked, outputs, i);
    const size_t unit_count = qd_oip_writer_unit_count(writer);
    if (unit_count > 0)
        writer->pieces = qd_arena_calloc(arena, unit_count, sizeof(*writer->pieces));
    if (unit_count > 0 && writer->pieces == NULL) {
        qd_refuse_memory(arena, "the answer", error);
        return NULL;
    }
    pthread_mutex_init(&writer->lock, NULL);
    return writer;
}

void qd_oip_writer_deinit(struct qd_oip_writer *writer)
{
    if (writer != NULL)
        pthread_mutex_destroy(&writer->lock);
}

size_t qd_oip_unit_count(const struct qd_oip_asked *asked, const struct qk_tensor *outputs)
{
    size_t count = 0;
    for (size_t i = 0; i < asked->signature->output_count; i++)
        count += units_of(asked, outputs, i);
    return count;
}

size_t qd_oip_writer_unit_count(const struct qd_oip_writer *writer)
{
    return writer->first_units[writer->asked->signature->output_count];
}

/* Returns memory for the text of one unit. Memory is allocated in portions that grow with the text.
 * Returns NULL if there is no memory or the answer would be too large, which qd_oip_writer_end
 * reports. */
static char *take_room(struct qd_oip_writer *writer, size_t bytes)
{
    char *piece = NULL;
    pthread_mutex_lock(&writer->lock);
    if (writer->room_bytes < bytes && !writer->failed &&
        writer->printed_bytes <= QD_ANSWER_BYTES_MAX) {
        size_t grown = writer->printed_bytes;
        grown = grown < ROOM_BYTES_MIN ? ROOM_BYTES_MIN : grown;
        grown = grown > ROOM_BYTES_MAX ? ROOM_BYTES_MAX : grown;
        writer->room = qd_arena_alloc(writer->arena, grown);
        writer->room_bytes = writer->room == NULL ? 0 : grown;
        writer->failed = writer->room == NULL;
    }
    if (writer->room_bytes >= bytes) {
        piece = writer->room;
        writer->room += bytes;
        writer->room_bytes -= bytes;
        writer->printed_bytes += bytes;
    }
    pthread_mutex_unlock(&writer->lock);
    return piece;
}
static_assert(QD_OIP_PRINT_BYTES <= ROOM_BYTES_MIN, "new room holds any piece");

void qd_oip_writer_print(struct qd_oip_writer *writer, char *workspace, size_t begin, size_t end)
{
    size_t output = 0;
    for (size_t unit = begin; unit < end; unit++) {
        while (unit >= writer->first_units[output + 1])
            output++;
        const struct qk_tensor *tensor = &writer->outputs[output];
        const size_t from = (unit - writer->first_units[output]) * QD_OIP_UNIT_NUMBERS;
        const size_t left = tensor->count - from;
        const size_t count = left < QD_OIP_UNIT_NUMBERS ? left : QD_OIP_UNIT_NUMBERS;
        const char *stop = qd_json_elements_print(workspace, tensor, from, from + count);
        const size_t bytes = (size_t)(stop - workspace);
        char *room = take_room(writer, bytes);
        if (room == NULL)
            return;
        writer->pieces[unit] = (struct qd_part){memcpy(room, workspace, bytes), bytes};
    }
}

/* ---- The answer --------------------------------------------------------------------------- */

/* Appends the pieces of units [begin, end). Adjacent pieces become one part. */
static void borrow_pieces(struct qd_text *text, const struct qd_part *pieces, size_t begin,
                          size_t end)
{
    for (size_t i = begin; i < end;) {
        const char *start = pieces[i].bytes;
        size_t bytes = 0;
        for (; i < end && (const char *)pieces[i].bytes == start + bytes; i++)
            bytes += pieces[i].count;
        qd_text_borrow(text, start, bytes);
    }
}

/* Appends an output's data as JSON: prints it, or borrows the pieces that the units printed. */
static void print_data(struct qd_text *text, const struct qd_oip_writer *writer, size_t i)
{
    const size_t begin = writer->first_units[i];
    const size_t end = writer->first_units[i + 1];
    if (begin == end) {
        qd_json_tensor_print(text, &writer->outputs[i]);
        return;
    }
    qd_text_string(text, "[");
    borrow_pieces(text, writer->pieces, begin, end);
    qd_text_string(text, "]");
}

/* Prints one output, including data that is JSON. Returns how many bytes of binary data the output
 * has behind the JSON. */
static size_t print_output(struct qd_text *text, const struct qd_oip_writer *writer, size_t i)
{
    const struct qk_tensor *output = &writer->outputs[i];
    size_t bytes = 0;
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, writer->asked->signature->outputs[i].name);
    char *const room = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
    if (room == NULL)
        return 0;
    char *at = put(room, ",\"datatype\":\"");
    at = stpcpy(at, qk_type_info(output->type)->name);
    at = put_shape(put(at, "\",\"shape\":"), output);
    const bool is_shared = qd_shm_tensors_has_output(writer->asked, i);
    if (!is_shared && is_json(writer->asked, i)) {
        /* no parameters: C++ clients would then demand binary data */
        qd_text_commit(text, (size_t)(put(at, ",\"data\":") - room));
        print_data(text, writer, i);
        qd_text_string(text, "}");
        return 0;
    }
    if (!is_shared) {
        qk_type_bytes(output->type, output->count,
                      &bytes); /* cannot overflow: the tensor is in memory */
        at = put(put_decimal(at, ",\"parameters\":{\"binary_data_size\":", bytes), "}");
    }
    qd_text_commit(text, (size_t)(put(at, "}") - room));
    return bytes;
}

static enum qd_status refuse_size(const struct qd_oip_writer *writer, size_t bytes)
{
    return qd_fail(writer->error, QD_TOO_LARGE, "the answer: expected at most %u bytes, got %zu%s",
                   QD_ANSWER_BYTES_MAX, bytes,
                   writer->asked->binary_outputs != 0 ? "" : "; binary output may be smaller");
}

enum qd_status qd_oip_writer_end(struct qd_oip_writer *writer,
                                 const uint64_t stage_ns[QD_STAGE_COUNT], struct qd_answer *answer)
{
    const struct qd_oip_asked *asked = writer->asked;
    const size_t output_count = asked->signature->output_count;
    const char *between = "";
    size_t blobs[QK_GRAPH_PORT_COUNT_MAX] = {0};
    struct qd_text text;
    if (writer->failed)
        return qd_refuse_memory(writer->arena, "the answer", writer->error);
    if (writer->printed_bytes > QD_ANSWER_BYTES_MAX)
        return refuse_size(writer, writer->printed_bytes);
    qd_text_init(&text, writer->arena);
    print_head(&text, asked, writer->kernel, stage_ns);
    for (size_t i = 0; i < output_count; i++) {
        if ((asked->outputs >> i & 1) == 0)
            continue;
        qd_text_string(&text, between);
        blobs[i] = print_output(&text, writer, i);
        between = ",";
    }
    qd_text_string(&text, "]}");
    const size_t json_bytes = text.bytes;
    for (size_t i = 0; i < output_count; i++)
        if (blobs[i] > 0)
            qd_text_borrow(&text, writer->outputs[i].data, blobs[i]);
    const bool has_blobs = text.bytes > json_bytes;
    if (text.failed)
        return qd_refuse_memory(writer->arena, "the answer", writer->error);
    if (text.bytes > QD_ANSWER_BYTES_MAX)
        return refuse_size(writer, text.bytes);
    *answer = (struct qd_answer){
        .http_status = qd_status_http(QD_OK),
        .content_type = has_blobs ? "application/octet-stream" : "application/json",
        .parts = text.parts,
        .part_count = text.part_count,
        .bytes = text.bytes,
        .json_bytes = has_blobs ? json_bytes : 0,
    };
    return QD_OK;
}

void qd_oip_encode_error(const struct qd_error *error, struct qd_arena *arena,
                         struct qd_answer *answer)
{
    static const char constant[] = "{\"error\":\"no memory to say what went wrong\"}";
    static const struct qd_part part = {constant, sizeof(constant) - 1};
    struct qd_text text;
    qd_text_init(&text, arena);
    qd_text_string(&text, "{\"error\":");
    qd_text_json_string(&text, error->text);
    qd_text_string(&text, "}");
    *answer = (struct qd_answer){
        .http_status = qd_status_http(error->status),
        .content_type = "application/json",
        .parts = text.failed ? &part : text.parts,
        .part_count = text.failed ? 1 : text.part_count,
        .bytes = text.failed ? part.count : text.bytes,
        .retry_after_s = error->status == QD_UNAVAILABLE ? RETRY_AFTER_S : 0,
    };
}
