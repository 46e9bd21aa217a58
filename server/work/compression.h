/* Inflates and deflates bodies, with the codings of HTTP (RFC 9110, 8.4): gzip (RFC 1952), with any
 * number of members, and deflate, which is zlib's format (RFC 1950). Some clients send bare deflate
 * data (RFC 1951) under that name, which is accepted, too.
 *
 * The work is done in steps of some 100 us, so that other requests can be computed between them.
 * Pure: bytes, arena, output. Inflaters and deflaters live in the arena, and borrow the arena and
 * the bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/memory/text.h"

enum qd_coding {
    QD_CODING_IDENTITY, /* not compressed */
    QD_CODING_GZIP,
    QD_CODING_DEFLATE
};

const char *qd_coding_name(enum qd_coding coding); /* as HTTP headers spell it */

/* The largest ratio of deflate: 258 bytes from two bits, which are a code for the length and one
 * for the distance. */
#define QD_INFLATE_RATIO_MAX 1032
#define QD_COMPRESSION_STEP_NS UINT64_C(100000)

/* ---- Inflating ---------------------------------------------------------------------------- */

/* Creates an inflater for `count` bytes. Memory is taken as the inflated bytes come, and checksums
 * are checked. More than bytes_max inflated bytes (--max-body-bytes) are refused with 413. The
 * inflater reports all its errors in `error`, which it borrows. Returns NULL if there is no memory;
 * `error` then says so. */
struct qd_inflater;
struct qd_inflater *qd_inflater_create(enum qd_coding coding, const char *bytes, size_t count,
                                       uint64_t bytes_max, struct qd_arena *arena,
                                       struct qd_error *error);

/* Returns about how many steps inflating takes: as many as the compressed bytes need. It takes more
 * steps if they inflate to many bytes. */
size_t qd_inflater_step_count(const struct qd_inflater *inflater);

/* Does the next step. Does nothing after the last step or an error. */
void qd_inflater_step(struct qd_inflater *inflater);

/* Sets *bytes to the inflated bytes, which lie together in the arena. Returns false if more steps
 * are needed or there is an error. */
bool qd_inflater_end(const struct qd_inflater *inflater, const char **bytes, size_t *count);

/* ---- Deflating ---------------------------------------------------------------------------- */

/* Creates a deflater for parts that have `bytes` bytes together. Returns NULL if there is no
 * memory. */
struct qd_deflater;
struct qd_deflater *qd_deflater_create(enum qd_coding coding, const struct qd_part *parts,
                                       size_t part_count, size_t bytes, struct qd_arena *arena);

size_t qd_deflater_step_count(const struct qd_deflater *deflater);

void qd_deflater_step(struct qd_deflater *deflater);

/* Returns false if more steps are needed. Otherwise sets *part to the compressed bytes, which live
 * as long as the arena, or to NULL if compression does not make them fewer or there is no memory.
 */
bool qd_deflater_end(const struct qd_deflater *deflater, const struct qd_part **part);
