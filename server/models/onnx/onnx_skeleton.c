/* Takes large weights out of a file before protobuf-c parses it.
 *
 * protobuf-c copies what it parses into new memory. Weights are nearly all of a file, and this copy
 * took half the time of loading a network of 25 MB. So protobuf-c parses a skeleton, which is the
 * file without the large raw_data of its initializers. Then each of these initializers gets a
 * pointer into the file.
 *
 *    file:     graph, 25 MB [ node ... initializer, 2 MB [ dims, raw_data ] initializer ... ]
 *    skeleton: graph, 40 KB [ node ... initializer, 12 B [ dims           ] initializer ... ]
 */
#include <string.h>

#include "server/memory/arena.h"
#include "server/models/onnx/onnx_reader.h"
#include "server/models/onnx/protobuf.h"

#define LARGE_BYTES ((size_t)16 << 10) /* copying less hardly takes time */

/* The messages around raw_data, and which of their fields leads to it. */
enum level { MODEL, GRAPH, TENSOR };
static const uint64_t leading_tags[] = {
    [MODEL] = QD_PROTOBUF_BYTES(7 /* graph */),
    [GRAPH] = QD_PROTOBUF_BYTES(5 /* initializer */),
    [TENSOR] = QD_PROTOBUF_BYTES(9 /* raw_data */),
};

/* Goes through the file twice. It first counts, without `bytes` and `taken`. */
struct maker {
    uint8_t *bytes; /* the skeleton */
    size_t count;
    struct qd_onnx_taken *taken;
    size_t taken_count;
    size_t tensor; /* the number of the current initializer */
    /* The file is not what protobuf-c accepts. From here on nothing is taken out, so that
     * protobuf-c sees, and refuses, what is wrong. */
    bool stopped;
};

/* ---- Fields ------------------------------------------------------------------------------- */

static void put(struct maker *maker, const uint8_t *from, const uint8_t *end)
{
    const size_t bytes = (size_t)(end - from);
    if (maker->bytes != NULL && bytes > 0)
        memcpy(maker->bytes + maker->count, from, bytes);
    maker->count += bytes;
}

/* Writes a length in as many bytes as the longer length that the file has there. */
static void put_length(uint8_t *to, size_t length_bytes, size_t length)
{
    for (size_t i = 0; i < length_bytes; i++)
        to[i] = (uint8_t)((length >> 7 * i & 0x7f) | (i + 1 < length_bytes ? 0x80 : 0));
}

/* ---- Messages ----------------------------------------------------------------------------- */

/* Takes a tensor's raw_data out, or puts it into the skeleton if it is small. If a tensor has it
 * twice, the last one counts. */
static void take_or_put(struct maker *maker, const struct qd_protobuf_field *field)
{
    const size_t bytes = (size_t)(field->end - field->data);
    if (maker->taken_count > 0 && maker->taken != NULL &&
        maker->taken[maker->taken_count - 1].tensor == maker->tensor)
        maker->taken[maker->taken_count - 1].bytes = 0;
    if (bytes < LARGE_BYTES) {
        put(maker, field->begin, field->end);
        return;
    }
    if (maker->taken != NULL)
        maker->taken[maker->taken_count] =
            (struct qd_onnx_taken){maker->tensor, field->data, bytes};
    maker->taken_count++;
}

static void put_message(struct maker *maker, enum level level, const uint8_t *at,
                        const uint8_t *end)
{
    struct qd_protobuf_field field;
    while (at < end && !maker->stopped && qd_protobuf_read(at, end, &field) && !field.is_cut &&
           (field.length_bytes == 0 || field.value <= INT32_MAX)) {
        at = field.end;
        if (field.tag != leading_tags[level]) {
            put(maker, field.begin, field.end);
        } else if (level == TENSOR) {
            take_or_put(maker, &field);
        } else {
            put(maker, field.begin, field.data);
            const size_t begin = maker->count;
            put_message(maker, level + 1, field.data, field.end);
            if (maker->bytes != NULL)
                put_length(maker->bytes + begin - field.length_bytes, field.length_bytes,
                           maker->count - begin);
            maker->tensor += level == GRAPH;
        }
    }
    maker->stopped |= at < end;
    put(maker, at, end);
}

enum qd_status qd_onnx_make_skeleton(const struct qd_onnx_reader *reader,
                                     struct qd_onnx_skeleton *skeleton)
{
    const uint8_t *file = (const uint8_t *)reader->source->bytes;
    const size_t file_bytes = reader->source->count;
    struct maker maker = {.bytes = NULL};
    *skeleton = (struct qd_onnx_skeleton){.bytes = file, .count = file_bytes};
    if (file_bytes < LARGE_BYTES)
        return QD_OK;
    put_message(&maker, MODEL, file, file + file_bytes);
    if (maker.taken_count == 0)
        return QD_OK;
    struct qd_onnx_taken *taken = qd_arena_alloc(reader->arena, maker.taken_count * sizeof(*taken));
    uint8_t *bytes = qd_arena_alloc(reader->arena, maker.count);
    if (taken == NULL || bytes == NULL)
        return qd_onnx_no_memory(reader);
    maker = (struct maker){.bytes = bytes, .taken = taken};
    put_message(&maker, MODEL, file, file + file_bytes);
    *skeleton = (struct qd_onnx_skeleton){
        .bytes = bytes, .count = maker.count, .taken = taken, .taken_count = maker.taken_count};
    return QD_OK;
}

void qd_onnx_put_back(const struct qd_onnx_skeleton *skeleton, Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < skeleton->taken_count; i++) {
        const struct qd_onnx_taken *taken = &skeleton->taken[i];
        if (taken->bytes == 0 || taken->tensor >= graph->n_initializer)
            continue;
        Onnx__TensorProto *tensor = graph->initializer[taken->tensor];
        tensor->has_raw_data = true;
        tensor->raw_data.len = taken->bytes;
        tensor->raw_data.data = (uint8_t *)(uintptr_t)taken->data; /* nothing writes there */
    }
}
