/* Fuzzes the inflation of compressed bodies. A body that zlib inflates must inflate to the same
 * bytes here. A body that zlib refuses may be refused or not, but must do no harm. run.sh builds
 * and runs this target.
 *
 * An input is a byte that picks the coding and the limit of the inflated size, followed by the
 *
 * body. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "server/work/compression.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum { MEMORY_BYTES = 64 << 20, INFLATED_MAX = 1 << 20, BARE = -15, ZLIB = 15, GZIP = 31 };

/* Inflates one member. Adds to *taken and *made. Returns false if the member is malformed or too
 * large. */
static bool inflate_member(int window_bits, const unsigned char *data, size_t bytes,
                           unsigned char *out, size_t *taken, size_t *made)
{
    z_stream stream = {.next_in = (unsigned char *)data + *taken,
                       .avail_in = (unsigned)(bytes - *taken),
                       .next_out = out + *made,
                       .avail_out = (unsigned)(INFLATED_MAX - *made)};
    if (inflateInit2(&stream, window_bits) != Z_OK)
        abort();
    const int code = inflate(&stream, Z_FINISH);
    *taken += stream.total_in;
    *made += stream.total_out;
    inflateEnd(&stream);
    return code == Z_STREAM_END;
}

/* Inflates the whole body with zlib. */
static bool zlib_inflates(int window_bits, const unsigned char *data, size_t bytes,
                          unsigned char *out, size_t *made)
{
    size_t taken = 0;
    *made = 0;
    while (inflate_member(window_bits, data, bytes, out, &taken, made))
        if (window_bits != GZIP || taken == bytes)
            return taken == bytes;
    return false;
}

static void check_back(enum qd_coding coding, const char *bytes, size_t count,
                       struct qd_memory *memory)
{
    const struct qd_part whole = {bytes, count};
    const struct qd_part *part = NULL;
    struct qd_error error = {.status = QD_OK};
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    struct qd_deflater *deflater = qd_deflater_create(coding, &whole, 1, count, &arena);
    assert(deflater != NULL);
    while (!qd_deflater_end(deflater, &part))
        qd_deflater_step(deflater);
    if (part != NULL) {
        const char *back;
        size_t back_count;
        struct qd_inflater *inflater =
            qd_inflater_create(coding, part->bytes, part->count, INFLATED_MAX, &arena, &error);
        assert(inflater != NULL);
        while (!qd_inflater_end(inflater, &back, &back_count)) {
            assert(error.status == QD_OK);
            qd_inflater_step(inflater);
        }
        assert(back_count == count && memcmp(back, bytes, count) == 0);
    }
    qd_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static unsigned char zlib_out[INFLATED_MAX + 1];
    if (bytes < 1)
        return 0;
    const enum qd_coding coding = (data[0] & 1) != 0 ? QD_CODING_GZIP : QD_CODING_DEFLATE;
    const uint64_t bytes_max = (data[0] & 2) != 0 ? data[0] : INFLATED_MAX;
    /* A block of the exact size, with the alignment that malloc gives. */
    unsigned char *body = malloc(bytes - 1 + (bytes == 1));
    if (body == NULL)
        return 0;
    memcpy(body, data + 1, bytes - 1);
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_error error = {.status = QD_OK};
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    const char *out;
    size_t count;
    struct qd_inflater *inflater =
        qd_inflater_create(coding, (const char *)body, bytes - 1, bytes_max, &arena, &error);
    assert(inflater != NULL);
    while (!qd_inflater_end(inflater, &out, &count) && error.status == QD_OK)
        qd_inflater_step(inflater);

    size_t zlib_count = 0;
    bool zlib_does = zlib_inflates(coding == QD_CODING_GZIP ? GZIP : ZLIB, body, bytes - 1,
                                   zlib_out, &zlib_count);
    /* A body that begins like zlib's format is in that format, not a stored block whose ignored
     * bits are set. */
    if (!zlib_does && coding == QD_CODING_DEFLATE && bytes > 1 && (body[0] & 0x0f) != 8)
        zlib_does = zlib_inflates(BARE, body, bytes - 1, zlib_out, &zlib_count);
    if (zlib_does && zlib_count <= bytes_max) {
        assert(error.status == QD_OK);
        assert(count == zlib_count && memcmp(out, zlib_out, count) == 0);
    }
    if (error.status == QD_OK) {
        assert(count <= bytes_max);
        check_back(coding, out, count, memory);
    } else {
        assert(error.status == QD_INVALID || error.status == QD_TOO_LARGE);
    }
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    free(body);
    return 0;
}
