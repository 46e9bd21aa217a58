#define _GNU_SOURCE
#include "server/oip/encode.h"

#include <assert.h>
#include <string.h>

#include "server/base/limits.h"
#include "server/base/lock.h"
#include "server/memory/arena.h"
#include "server/oip/classes.h"
#include "server/oip/shm_tensors.h"

static uint64_t microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

struct qd_oip_writer {
    const struct qd_oip_asked *asked;
    const struct qk_graph_plan *plan;
    const uint64_t *node_ns; /* NULL: the answer has no times of nodes */
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

/* Prints the time of each node that ran, in the order in which they ran. */
static void print_profile(struct qd_text *text, const struct qk_graph_plan *plan,
                          const uint64_t *node_ns)
{
    const char *between = "";
    qd_text_string(text, ",\"profile\":[");
    for (size_t i = 0; i < plan->node_count; i++) {
        struct qk_node_report report;
        qk_graph_report(plan->graph, plan, i, &report);
        if (report.role != QK_NODE_RUNS)
            continue;
        qd_text_format(text, "%s{\"index\":%u,\"name\":", between, report.index);
        qd_text_json_string(text, report.name);
        qd_text_string(text, ",\"operator\":");
        qd_text_json_string(text, report.op->name);
        qd_text_string(text, ",\"kernel\":");
        qd_text_json_string(text, report.kernel);
        qd_text_string(text, ",\"ns\":");
        qd_text_decimal(text, node_ns[i]);
        qd_text_string(text, "}");
        between = ",";
    }
    qd_text_string(text, "]");
}

/* Prints the head of the answer, with its keys in Triton's order. */
static void print_head(struct qd_text *text, const struct qd_oip_writer *writer,
                       const uint64_t stage_ns[QD_STAGE_COUNT])
{
    const struct qd_oip_asked *asked = writer->asked;
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
    qd_text_string(text, writer->plan->kernel);
    qd_text_string(text, "\"");
    if (writer->node_ns != NULL)
        print_profile(text, writer->plan, writer->node_ns);
    qd_text_string(text, "},\"outputs\":[");
}

/* ---- Numbers, in units -------------------------------------------------------------------- */

enum { ROOM_BYTES_MIN = 64 << 10, ROOM_BYTES_MAX = 1 << 20 };

static bool is_json(const struct qd_oip_asked *asked, size_t output)
{
    return ((asked->outputs & ~asked->binary_outputs) >> output & 1) != 0;
}

/* Sets *bytes to the least that an output takes in an answer. Returns false if it overflows. */
static bool least_bytes(const struct qd_oip_asked *asked, size_t output,
                        const struct qk_tensor *tensor, size_t *bytes)
{
    enum { NUMBER_BYTES = 2, CLASS_BYTES = 5 }; /* "0:0" is the shortest class */
    struct qd_classes classes;
    size_t count;
    if (qd_classes_wanted(asked, output) == 0)
        return is_json(asked, output) ? !__builtin_mul_overflow(tensor->count, NUMBER_BYTES, bytes)
                                      : qk_type_bytes(tensor->type, tensor->count, bytes);
    qd_classes_init(&classes, asked, output, tensor);
    return !__builtin_mul_overflow(classes.row_count, classes.kept, &count) &&
           !__builtin_mul_overflow(count, CLASS_BYTES, bytes);
}

size_t qd_oip_least_answer_bytes(const struct qd_oip_asked *asked, const struct qk_tensor *outputs)
{
    size_t sum = 0;
    for (size_t i = 0; i < asked->signature->output_count; i++) {
        size_t bytes = 0;
        if ((asked->outputs >> i & 1) == 0 || qd_shm_tensors_has_output(asked, i))
            continue;
        if (!least_bytes(asked, i, &outputs[i], &bytes) || __builtin_add_overflow(sum, bytes, &sum))
            return SIZE_MAX;
    }
    return sum;
}

static size_t divide_up(size_t count, size_t by)
{
    return count / by + (count % by != 0);
}

/* Returns how many rows a unit prints of an output of which the answer has classes. */
static size_t unit_rows(const struct qd_classes *classes)
{
    enum { UNIT_STRINGS = 200 }; /* take about QD_OIP_UNIT_NS */
    const size_t by_elements = QD_OIP_UNIT_NUMBERS / classes->row_elements;
    const size_t by_strings = UNIT_STRINGS / classes->kept;
    const size_t rows = by_elements < by_strings ? by_elements : by_strings;
    return rows > 1 ? rows : 1;
}
static_assert(QD_CLASS_COUNT_MAX * sizeof(struct qd_class) <= QD_OIP_PRINT_BYTES &&
                  QD_OIP_UNIT_NUMBERS * sizeof(struct qd_class) <= QD_OIP_PRINT_BYTES,
              "a workspace has room for the classes of a unit's rows");

static size_t units_of(const struct qd_oip_asked *asked, const struct qk_tensor *outputs,
                       size_t output)
{
    if (qd_classes_wanted(asked, output) > 0) {
        struct qd_classes classes;
        qd_classes_init(&classes, asked, output, &outputs[output]);
        return classes.kept == 0 ? 0 : divide_up(classes.row_count, unit_rows(&classes));
    }
    const size_t count = is_json(asked, output) ? outputs[output].count : 0;
    return count <= QD_OIP_UNIT_NUMBERS ? 0 : divide_up(count, QD_OIP_UNIT_NUMBERS);
}

struct qd_oip_writer *qd_oip_writer_create(const struct qd_oip_asked *asked,
                                           const struct qk_graph_plan *plan,
                                           const uint64_t *node_ns, const struct qk_tensor *outputs,
                                           struct qd_arena *arena, struct qd_error *error)
{
    const size_t output_count = asked->signature->output_count;
    struct qd_oip_writer *writer = qd_arena_calloc(arena, 1, sizeof(*writer));
    if (writer == NULL) {
        qd_refuse_memory(arena, "the answer", error);
        return NULL;
    }
    writer->asked = asked;
    writer->plan = plan;
    writer->node_ns = node_ns;
    writer->outputs = outputs;
    writer->arena = arena;
    writer->error = error;
    for (size_t i = 0; i < output_count; i++)
        writer->first_units[i + 1] = writer->first_units[i] + units_of(asked, outputs, i);
    const size_t unit_count = writer->first_units[output_count];
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

uint64_t qd_oip_unit_ns(const struct qd_oip_asked *asked, const struct qk_tensor *outputs)
{
    uint64_t unit_ns = QD_OIP_UNIT_NS;
    for (size_t i = 0; i < asked->signature->output_count; i++) {
        struct qd_classes classes;
        if (qd_classes_wanted(asked, i) == 0)
            continue;
        qd_classes_init(&classes, asked, i, &outputs[i]);
        if (classes.kept == 0 || classes.row_count == 0)
            continue;
        const size_t rows = unit_rows(&classes);
        const uint64_t ns = (uint64_t)rows * classes.row_elements * QD_CLASS_ELEMENT_NS +
                            (uint64_t)rows * classes.kept * QD_CLASS_STRING_NS;
        unit_ns = ns > unit_ns ? ns : unit_ns;
    }
    return unit_ns;
}

/* Returns memory for the text of one unit. Memory is allocated in portions that grow with the text.
 * Returns NULL if there is no memory or the answer would be too large, which qd_oip_writer_end
 * reports. */
static char *take_room(struct qd_oip_writer *writer, size_t bytes)
{
    QD_LOCKED(&writer->lock);
    if (writer->room_bytes < bytes && !writer->failed &&
        writer->printed_bytes <= QD_ANSWER_BYTES_MAX) {
        size_t grown = writer->printed_bytes;
        grown = grown < ROOM_BYTES_MIN ? ROOM_BYTES_MIN : grown;
        grown = grown > ROOM_BYTES_MAX ? ROOM_BYTES_MAX : grown;
        grown = grown < bytes ? bytes : grown;
        writer->room = qd_arena_alloc(writer->arena, grown);
        writer->room_bytes = writer->room == NULL ? 0 : grown;
        writer->failed = writer->room == NULL;
    }
    if (writer->room_bytes < bytes)
        return NULL;
    char *piece = writer->room;
    writer->room += bytes;
    writer->room_bytes -= bytes;
    writer->printed_bytes += bytes;
    return piece;
}

/* Gives back the last `bytes` before `end` of what take_room returned. If another unit has already
 * taken the memory behind them, only the answer's size is corrected. */
static void give_back_room(struct qd_oip_writer *writer, const char *end, size_t bytes)
{
    QD_LOCKED(&writer->lock);
    writer->printed_bytes -= bytes;
    if (writer->room == end) {
        writer->room -= bytes;
        writer->room_bytes += bytes;
    }
}

/* Prints the strings of a unit's rows. */
static struct qd_part print_classes(struct qd_oip_writer *writer, void *workspace, size_t output,
                                    size_t unit)
{
    struct qd_class *const found = workspace;
    struct qd_classes classes;
    qd_classes_init(&classes, writer->asked, output, &writer->outputs[output]);
    const size_t begin = unit * unit_rows(&classes);
    const size_t left = classes.row_count - begin;
    const size_t rows = left < unit_rows(&classes) ? left : unit_rows(&classes);
    for (size_t i = 0; i < rows; i++)
        qd_classes_find(&classes, begin + i, found + i * classes.kept);
    size_t bytes_max = 0;
    for (size_t i = 0; i < rows; i++)
        bytes_max += qd_classes_bytes_max(&classes, found + i * classes.kept);
    char *const room = take_room(writer, bytes_max);
    if (room == NULL)
        return (struct qd_part){NULL, 0};
    char *at = room;
    for (size_t i = 0; i < rows; i++)
        at = qd_classes_print(&classes, begin + i, found + i * classes.kept, at);
    const size_t bytes = (size_t)(at - room);
    give_back_room(writer, room + bytes_max, bytes_max - bytes);
    return (struct qd_part){room, bytes};
}

/* Prints a unit's numbers. */
static struct qd_part print_numbers(struct qd_oip_writer *writer, char *workspace, size_t output,
                                    size_t unit)
{
    const struct qk_tensor *tensor = &writer->outputs[output];
    const size_t from = unit * QD_OIP_UNIT_NUMBERS;
    const size_t left = tensor->count - from;
    const size_t count = left < QD_OIP_UNIT_NUMBERS ? left : QD_OIP_UNIT_NUMBERS;
    const char *stop = qd_json_elements_print(workspace, tensor, from, from + count);
    const size_t bytes = (size_t)(stop - workspace);
    char *room = take_room(writer, bytes);
    if (room == NULL)
        return (struct qd_part){NULL, 0};
    return (struct qd_part){memcpy(room, workspace, bytes), bytes};
}

void qd_oip_writer_print(struct qd_oip_writer *writer, char *workspace, size_t begin, size_t end)
{
    size_t output = 0;
    for (size_t unit = begin; unit < end; unit++) {
        while (unit >= writer->first_units[output + 1])
            output++;
        const size_t own = unit - writer->first_units[output];
        writer->pieces[unit] = qd_classes_wanted(writer->asked, output) > 0
                                   ? print_classes(writer, workspace, output, own)
                                   : print_numbers(writer, workspace, output, own);
        if (writer->pieces[unit].bytes == NULL)
            return;
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
    if (begin == end && qd_classes_wanted(writer->asked, i) == 0) {
        qd_json_tensor_print(text, &writer->outputs[i]);
        return;
    }
    qd_text_string(text, "[");
    borrow_pieces(text, writer->pieces, begin, end);
    qd_text_string(text, "]");
}

/* Returns how many bytes an output has behind the JSON. */
static size_t blob_bytes(const struct qd_oip_writer *writer, size_t i)
{
    size_t bytes = 0;
    if (qd_classes_wanted(writer->asked, i) == 0)
        qk_type_bytes(writer->outputs[i].type, writer->outputs[i].count,
                      &bytes); /* cannot overflow: the tensor is in memory */
    else
        for (size_t unit = writer->first_units[i]; unit < writer->first_units[i + 1]; unit++)
            bytes += writer->pieces[unit].count;
    return bytes;
}

/* Appends an output's bytes behind the JSON. */
static void borrow_blob(struct qd_text *text, const struct qd_oip_writer *writer, size_t i,
                        size_t bytes)
{
    if (qd_classes_wanted(writer->asked, i) == 0)
        qd_text_borrow(text, writer->outputs[i].data, bytes);
    else
        borrow_pieces(text, writer->pieces, writer->first_units[i], writer->first_units[i + 1]);
}

/* Prints the datatype and the shape of the answer's output. */
static char *put_type(char *at, const struct qd_oip_writer *writer, size_t i)
{
    const struct qk_tensor *output = &writer->outputs[i];
    struct qd_classes classes;
    if (qd_classes_wanted(writer->asked, i) == 0) {
        at = stpcpy(put(at, ",\"datatype\":\""), qk_type_info(output->type)->name);
        return put_shape(put(at, "\",\"shape\":"), output);
    }
    qd_classes_init(&classes, writer->asked, i, output);
    at = put(at, ",\"datatype\":\"BYTES\",\"shape\":[");
    if (classes.is_batch)
        at = put(qd_print_decimal(classes.row_count, at), ",");
    return put(qd_print_decimal(classes.kept, at), "]");
}

/* Prints one output, including data that is JSON. Returns how many bytes of binary data the output
 * has behind the JSON. */
static size_t print_output(struct qd_text *text, const struct qd_oip_writer *writer, size_t i)
{
    size_t bytes = 0;
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, writer->asked->signature->outputs[i].name);
    char *const room = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
    if (room == NULL)
        return 0;
    char *at = put_type(room, writer, i);
    const bool is_shared = qd_shm_tensors_has_output(writer->asked, i);
    if (!is_shared && is_json(writer->asked, i)) {
        /* no parameters: C++ clients would then demand binary data */
        qd_text_commit(text, (size_t)(put(at, ",\"data\":") - room));
        print_data(text, writer, i);
        qd_text_string(text, "}");
        return 0;
    }
    if (!is_shared) {
        bytes = blob_bytes(writer, i);
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
    print_head(&text, writer, stage_ns);
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
            borrow_blob(&text, writer, i, blobs[i]);
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
    };
}
