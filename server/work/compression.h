/* Bodies that come or go compressed, in HTTP's terms (RFC 9110, 8.4): gzip (RFC 1952), of any
 * number of members, and deflate, which is zlib's format (RFC 1950). Under that name some clients
 * send the bare data (RFC 1951), which is understood, too.
 *
 * In steps of some 100 us, so that others are computed between them. Pure: bytes, arena, output.
 * Both live in the arena, and borrow it and the bytes. */
#ifndef SERVER_WORK_COMPRESSION_H
#define SERVER_WORK_COMPRESSION_H

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

const char *qd_coding_name(enum qd_coding coding); /* as in headers */

/* Deflate's largest: 258 bytes from the shortest codes of a length and a distance, a bit each. */
#define QD_INFLATE_RATIO_MAX 1032
#define QD_COMPRESSION_STEP_NS UINT64_C(100000)

/* ---- Inflating: checksums are checked, and memory is taken as the bytes come ---------------- */

/* Of `count` bytes, which become at most bytes_max (--max-body-bytes) or are refused, as 413. NULL:
 * no memory; the error, which it keeps, says so. */
struct qd_inflater;
struct qd_inflater *qd_inflater_create(enum qd_coding coding, const char *bytes, size_t count,
                                       uint64_t bytes_max, struct qd_arena *arena,
                                       struct qd_error *error);

/* About how many steps it takes: no fewer than its bytes want, and more where they become many. */
size_t qd_inflater_step_count(const struct qd_inflater *inflater);

/* The next one; after the last, or an error, nothing. */
void qd_inflater_step(struct qd_inflater *inflater);

/* The bytes, in one piece, in the arena. False: there are more steps, or there is an error. */
bool qd_inflater_end(const struct qd_inflater *inflater, const char **bytes, size_t *count);

/* ---- Deflating ------------------------------------------------------------------------------- */

/* Of parts with so many bytes in all. NULL: no memory. */
struct qd_deflater;
struct qd_deflater *qd_deflater_create(enum qd_coding coding, const struct qd_part *parts,
                                       size_t part_count, size_t bytes, struct qd_arena *arena);

size_t qd_deflater_step_count(const struct qd_deflater *deflater);

void qd_deflater_step(struct qd_deflater *deflater);

/* *part: the compressed bytes, as long as the arena; NULL: they would not become fewer, or there is
 * no memory. False: there are more steps. */
bool qd_deflater_end(const struct qd_deflater *deflater, const struct qd_part **part);

#endif
