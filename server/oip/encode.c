#include "server/oip/encode.h"

#include <inttypes.h>

#include "server/base/limits.h"
#include "server/base/refusal.h"
#include "server/json/tensor.h"

/* Clients without a connection to spare come back after this. */
enum { RETRY_AFTER_S = 1 };

static uint64_t microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

static void print_shape(struct qd_text *text, const struct qk_tensor *tensor)
{
    qd_text_string(text, "[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        qd_text_format(text, i == 0 ? "%zu" : ",%zu", tensor->dims[i]);
    qd_text_string(text, "]");
}

/* Keys in Triton's order. */
static void print_head(struct qd_text *text, const struct qd_infer *infer, const char *kernel,
                       const struct qd_oip_stages *stages)
{
    qd_text_string(text, "{");
    if (infer->id != NULL) {
        qd_text_string(text, "\"id\":");
        qd_text_json_string(text, infer->id);
        qd_text_string(text, ",");
    }
    qd_text_string(text, "\"model_name\":");
    qd_text_json_string(text, infer->signature->name);
    qd_text_format(text,
                   ",\"model_version\":\"%" PRIu64 "\",\"parameters\":{"
                   "\"receive_us\":%" PRIu64 ",\"queue_us\":%" PRIu64 ",\"decode_us\":%" PRIu64
                   ",\"compute_us\":%" PRIu64 ",\"kernel\":\"%s\"},",
                   infer->signature->version, microseconds(stages->receive_ns),
                   microseconds(stages->queue_ns), microseconds(stages->decode_ns),
                   microseconds(stages->compute_ns), kernel);
}

/* One output, with its data where that is JSON; gives the bytes that belong behind the JSON. */
static size_t print_output(struct qd_text *text, const char *name, const struct qk_tensor *output,
                           bool binary)
{
    size_t bytes = 0;
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, name);
    qd_text_format(text, ",\"datatype\":\"%s\",\"shape\":", qk_type_info(output->type)->name);
    print_shape(text, output);
    if (binary) {
        qk_type_bytes(output->type, output->count, &bytes); /* fits: it is in memory */
        qd_text_format(text, ",\"parameters\":{\"binary_data_size\":%zu}}", bytes);
    } else { /* no parameters here: C++ clients would then demand binary data */
        qd_text_string(text, ",\"data\":");
        qd_json_tensor_print(text, output);
        qd_text_string(text, "}");
    }
    return bytes;
}

enum qd_status qd_oip_encode_infer(const struct qd_infer *infer, const char *kernel,
                                   const struct qk_tensor *outputs,
                                   const struct qd_oip_stages *stages, struct qd_arena *arena,
                                   struct qd_answer *answer, struct qd_error *error)
{
    const struct qd_signature *signature = infer->signature;
    const char *between = "";
    size_t blobs[QK_GRAPH_PORT_COUNT_MAX] = {0};
    struct qd_text text;
    qd_text_init(&text, arena);
    print_head(&text, infer, kernel, stages);
    qd_text_string(&text, "\"outputs\":[");
    for (size_t i = 0; i < signature->output_count; i++) {
        if ((infer->outputs >> i & 1) == 0)
            continue;
        qd_text_string(&text, between);
        blobs[i] = print_output(&text, signature->outputs[i].name, &outputs[i],
                                (infer->binary_outputs >> i & 1) != 0);
        between = ",";
    }
    qd_text_string(&text, "]}");
    const size_t json_bytes = text.bytes;
    for (size_t i = 0; i < signature->output_count; i++)
        qd_text_borrow(&text, outputs[i].data, blobs[i]);
    const bool has_blobs = text.bytes > json_bytes;
    if (text.failed)
        return qd_refuse_memory(arena, "the answer", error);
    if (text.bytes > QD_ANSWER_BYTES_MAX) {
        return qd_fail(error, QD_TOO_LARGE, "the answer has %zu bytes, expected at most %u%s",
                       text.bytes, QD_ANSWER_BYTES_MAX,
                       infer->binary_outputs != 0 ? "" : "; binary output may be smaller");
    }
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
