/* Strict JSON, checked and cut: every byte of a request's JSON is validated here (RFC 8259: one
 * value, UTF-8, strict numbers, no duplicate check), and the value of each inputs[i].data is cut
 * out, so that cJSON builds a small tree and never a node per tensor element (80 bytes each). So
 * are the members of the top-level parameters whose names begin with "file:", a load call's files.
 *
 * Also, an integer beyond 2^53 among the top-level parameters becomes its text in quotes, which the
 * decoder reads as an integer too: in cJSON's doubles it would be another one.
 *
 * Leniency inside data only, for clients that print Python floats: the bare tokens NaN, Infinity
 * and -Infinity (facts: api.md). json_tensor checks those slices itself; here they are only
 * skipped, by brackets and strings.
 */
#ifndef SERVER_JSON_ENVELOPE_H
#define SERVER_JSON_ENVELOPE_H

#include <stddef.h>

#include "server/base/arena.h"
#include "server/base/status.h"

struct qd_json_slice {
    const char *bytes; /* into the request body */
    size_t count;
};

struct qd_json_envelope {
    char *text; /* the JSON with each value that was cut replaced by its index in `data` */
    size_t text_bytes;
    struct qd_json_slice *data;
    size_t data_count;
};

/* Cuts json[0..bytes). The text is bounded by QD_ENVELOPE_BYTES_MAX and its nesting by
 * QD_ENVELOPE_DEPTH_MAX (limits.h). Errors name the byte offset. Pure. */
enum qd_status qd_json_envelope_cut(const char *json, size_t bytes, struct qd_arena *arena,
                                    struct qd_json_envelope *envelope, struct qd_error *error);

#endif
