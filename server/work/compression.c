#include "server/work/compression.h"

#include <isa-l/igzip_lib.h>

/* ISA-L inflates twice as fast as zlib. It deflates five times as fast as zlib's fastest level, and
 * to fewer bytes (tensors of each kind, on Zen 4). */
enum {
    /* Either of the first two takes 100 us at most. 16 KiB may also be the code tables of hundreds
     * of empty blocks. */
    INFLATE_IN_BYTES = 16 << 10,
    INFLATE_OUT_BYTES = 64 << 10,
    DEFLATE_IN_BYTES = 32 << 10,
    GZIP_RESERVED_FLAGS = 0xe0,
    LEVEL = 1, /* higher levels take longer, and save no bytes */
    LEVEL_BYTES = ISAL_DEF_LVL1_MEDIUM,
};

const char *qd_coding_name(enum qd_coding coding)
{
    static const char *const names[] = {
        [QD_CODING_IDENTITY] = "identity",
        [QD_CODING_GZIP] = "gzip",
        [QD_CODING_DEFLATE] = "deflate",
    };
    return names[coding];
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- Inflating ---------------------------------------------------------------------------- */

struct qd_inflater {
    struct inflate_state state;
    enum qd_coding coding;
    uint32_t wrapper; /* ISA-L's crc_flag */
    bool in_head;     /* reading the head of a gzip member */
    struct isal_gzip_header head;
    struct qd_arena *arena;
    struct qd_error *error;
    const uint8_t *bytes;
    size_t count;
    size_t taken;
    uint8_t *out;
    size_t out_bytes;
    size_t capacity;    /* of `out`: one more than allowed, to notice if there are more */
    uint64_t bytes_max; /* the bound of --max-body-bytes */
    bool done;
};

/* Returns whether data begins like zlib's: two bytes that are a multiple of 31 and name the method
 * and its window. Bare data cannot begin so: it would be a stored block with a bit set that has to
 * be 0. */
static bool is_zlib(const uint8_t *bytes, size_t count)
{
    return count < 2 ||
           ((bytes[0] & 0x0f) == 8 && bytes[0] >> 4 <= 7 && (bytes[0] * 256u + bytes[1]) % 31 == 0);
}

static uint32_t choose_wrapper(const struct qd_inflater *inflater)
{
    if (inflater->coding == QD_CODING_GZIP)
        return ISAL_GZIP_NO_HDR_VER;
    return is_zlib(inflater->bytes, inflater->count) ? ISAL_ZLIB : ISAL_DEFLATE;
}

/* Reserves address space for the inflated bytes. Only memory that is written counts. */
static bool reserve_room(struct qd_inflater *inflater)
{
    struct qd_arena *arena = inflater->arena;
    const size_t left = qd_memory_max(arena->memory) - qd_arena_own_bytes(arena);
    size_t bytes = SIZE_MAX - 1;
    if (inflater->count < bytes / QD_INFLATE_RATIO_MAX)
        bytes = inflater->count * QD_INFLATE_RATIO_MAX;
    if (bytes > inflater->bytes_max)
        bytes = (size_t)inflater->bytes_max;
    inflater->capacity = least(bytes + 1, left);
    inflater->out = qd_arena_reserve(arena, inflater->capacity);
    return inflater->out != NULL;
}

/* Prepares to read a member. Gzip's head is read by a call of its own, because isal_inflate forgets
 * the checksum so far between two calls if it reads the head itself. */
static void begin_member(struct qd_inflater *inflater)
{
    inflater->state.crc_flag = inflater->wrapper;
    inflater->in_head = inflater->coding == QD_CODING_GZIP;
    isal_gzip_header_init(&inflater->head);
}

struct qd_inflater *qd_inflater_create(enum qd_coding coding, const char *bytes, size_t count,
                                       uint64_t bytes_max, struct qd_arena *arena,
                                       struct qd_error *error)
{
    struct qd_inflater *inflater = qd_arena_alloc(arena, sizeof(*inflater));
    if (inflater != NULL) {
        inflater->coding = coding;
        inflater->arena = arena;
        inflater->error = error;
        inflater->bytes = (const uint8_t *)bytes;
        inflater->count = count;
        inflater->taken = 0;
        inflater->out_bytes = 0;
        inflater->bytes_max = bytes_max;
        inflater->done = false;
        inflater->wrapper = choose_wrapper(inflater);
        isal_inflate_init(&inflater->state);
        begin_member(inflater);
    }
    if (inflater == NULL || !reserve_room(inflater)) {
        qd_refuse_memory(arena, "the inflated body", error);
        return NULL;
    }
    return inflater;
}

size_t qd_inflater_step_count(const struct qd_inflater *inflater)
{
    return inflater->count / INFLATE_IN_BYTES + 1;
}

/* Refuses the body because `out` is full. */
static enum qd_status refuse_size(struct qd_inflater *inflater)
{
    if (inflater->out_bytes > inflater->bytes_max) {
        return qd_fail(inflater->error, QD_TOO_LARGE,
                       "the body: expected at most %llu bytes (--max-body-bytes) after "
                       "decompression, got more",
                       (unsigned long long)inflater->bytes_max);
    }
    inflater->arena->refused_bytes = inflater->capacity + 1;
    return qd_refuse_memory(inflater->arena, "the inflated body", inflater->error);
}

/* Returns how many bytes were used. ISA-L reads some bytes before it needs them. */
static size_t used_bytes(const struct qd_inflater *inflater)
{
    const int32_t bits = inflater->state.read_in_length;
    const size_t ahead = bits > 0 ? (size_t)bits / 8 : 0;
    return inflater->taken - least(ahead, inflater->taken);
}

/* Refuses the body. `got` has a %zu for `bytes`. */
#define REFUSE_DATA(inflater, got, bytes)                              \
    qd_fail((inflater)->error, QD_INVALID,                             \
            "the body: expected %s data (Content-Encoding), got " got, \
            qd_coding_name((inflater)->coding), (bytes))

static enum qd_status refuse_data(struct qd_inflater *inflater, int code)
{
    if (code == ISAL_INCORRECT_CHECKSUM)
        return REFUSE_DATA(inflater, "a checksum that is not its contents', before byte %zu",
                           used_bytes(inflater));
    return REFUSE_DATA(inflater, "other data near byte %zu", used_bytes(inflater));
}

/* Ends a member, and begins the next one if there is one. */
static enum qd_status end_member(struct qd_inflater *inflater)
{
    const size_t used = used_bytes(inflater);
    const size_t left = inflater->count - used;
    const uint8_t *next = inflater->bytes + used;
    inflater->done = left == 0;
    if (inflater->done)
        return QD_OK;
    if (inflater->coding != QD_CODING_GZIP || left < 2 || next[0] != 0x1f || next[1] != 0x8b)
        return REFUSE_DATA(inflater, "%zu bytes more after its end", left);
    inflater->taken = used;
    isal_inflate_reset(&inflater->state);
    begin_member(inflater);
    return QD_OK;
}

/* Reads the head, and then the data. */
static int read_on(struct qd_inflater *inflater)
{
    int code = ISAL_DECOMP_OK;
    if (inflater->in_head) {
        code = isal_read_gzip_header(&inflater->state, &inflater->head);
        if (code == ISAL_DECOMP_OK && (inflater->head.flags & GZIP_RESERVED_FLAGS) != 0)
            code = ISAL_UNSUPPORTED_METHOD; /* RFC 1952, 2.3.1.2: an unknown field follows */
        inflater->in_head = code != ISAL_DECOMP_OK;
    }
    return inflater->in_head ? code : isal_inflate(&inflater->state);
}

static enum qd_status inflate_some(struct qd_inflater *inflater)
{
    struct inflate_state *state = &inflater->state;
    const size_t in = least(inflater->count - inflater->taken, INFLATE_IN_BYTES);
    const size_t room = least(inflater->capacity - inflater->out_bytes, INFLATE_OUT_BYTES);
    const size_t end = inflater->out_bytes + room;
    if (qd_arena_commit(inflater->arena, inflater->out, end, NULL) < end)
        return qd_refuse_memory(inflater->arena, "the inflated body", inflater->error);
    state->next_in = (uint8_t *)(uintptr_t)inflater->bytes + inflater->taken; /* it only reads */
    state->avail_in = (uint32_t)in;
    state->next_out = inflater->out + inflater->out_bytes;
    state->avail_out = (uint32_t)room;
    const int code = read_on(inflater);
    inflater->taken += in - state->avail_in;
    inflater->out_bytes += room - state->avail_out;
    if (code != ISAL_DECOMP_OK && code != ISAL_END_INPUT)
        return refuse_data(inflater, code);
    if (inflater->out_bytes == inflater->capacity)
        return refuse_size(inflater);
    if (state->block_state == ISAL_BLOCK_FINISH)
        return end_member(inflater);
    return state->avail_in == in && state->avail_out == room
               ? REFUSE_DATA(inflater, "its end too early, after %zu bytes", inflater->count)
               : QD_OK;
}

void qd_inflater_step(struct qd_inflater *inflater)
{
    if (!inflater->done && inflater->error->status == QD_OK)
        inflate_some(inflater);
}

bool qd_inflater_end(const struct qd_inflater *inflater, const char **bytes, size_t *count)
{
    *bytes = (const char *)inflater->out;
    *count = inflater->out_bytes;
    return inflater->done;
}

/* ---- Deflating ---------------------------------------------------------------------------- */

struct qd_deflater {
    struct isal_zstream stream;
    struct qd_arena *arena;
    const struct qd_part *parts; /* the remaining parts; `taken` bytes of the first are done */
    size_t part_count;
    size_t taken;
    size_t bytes;      /* of all parts */
    size_t left_bytes; /* not taken yet */
    uint8_t *out;
    size_t out_bytes;
    size_t capacity; /* less than `bytes` */
    struct qd_part part;
    bool done;
    bool failed;
    uint8_t level[LEVEL_BYTES];
};

struct qd_deflater *qd_deflater_create(enum qd_coding coding, const struct qd_part *parts,
                                       size_t part_count, size_t bytes, struct qd_arena *arena)
{
    struct qd_deflater *deflater = qd_arena_alloc(arena, sizeof(*deflater));
    uint8_t *out = qd_arena_reserve(arena, bytes);
    if (deflater == NULL || out == NULL)
        return NULL;
    isal_deflate_init(&deflater->stream);
    deflater->stream.gzip_flag = coding == QD_CODING_GZIP ? IGZIP_GZIP : IGZIP_ZLIB;
    deflater->stream.level = LEVEL;
    deflater->stream.level_buf = deflater->level;
    deflater->stream.level_buf_size = LEVEL_BYTES;
    deflater->arena = arena;
    deflater->parts = parts;
    deflater->part_count = part_count;
    deflater->taken = 0;
    deflater->bytes = deflater->left_bytes = bytes;
    deflater->out = out;
    deflater->out_bytes = 0;
    deflater->part = (struct qd_part){.bytes = out};
    deflater->capacity = bytes - (bytes > 0);
    deflater->done = deflater->failed = false;
    return deflater;
}

size_t qd_deflater_step_count(const struct qd_deflater *deflater)
{
    return deflater->bytes / DEFLATE_IN_BYTES + 1;
}

/* Returns how many bytes to take from deflater->parts, after skipping parts that are done. 0 if all
 * bytes are taken. */
static size_t next_bytes(struct qd_deflater *deflater, size_t bytes_max)
{
    while (deflater->part_count > 0 && deflater->taken == deflater->parts->count) {
        deflater->parts++;
        deflater->part_count--;
        deflater->taken = 0;
    }
    if (deflater->part_count == 0)
        return 0;
    return least(deflater->parts->count - deflater->taken, bytes_max);
}

/* Deflates some bytes. Returns how many it took. Sets `failed` if compression does not make the
 * bytes fewer. */
static size_t deflate_some(struct qd_deflater *deflater, size_t bytes_max)
{
    struct isal_zstream *stream = &deflater->stream;
    const size_t in = next_bytes(deflater, bytes_max);
    const size_t room = least(deflater->capacity - deflater->out_bytes, DEFLATE_IN_BYTES);
    const size_t end = deflater->out_bytes + room;
    deflater->failed =
        room == 0 || qd_arena_commit(deflater->arena, deflater->out, end, NULL) < end;
    if (deflater->failed)
        return 0;
    if (in > 0) /* ISA-L only reads it */
        stream->next_in = (uint8_t *)(uintptr_t)deflater->parts->bytes + deflater->taken;
    stream->avail_in = (uint32_t)in;
    /* ISA-L must learn of the end together with the last bytes and not after them. Only then it
     * finds repetitions in short data: 16 KB of numbers in three parts became 189 bytes, and 4700
     * bytes if ISA-L learned of the end later. */
    stream->end_of_stream = in == deflater->left_bytes;
    stream->next_out = deflater->out + deflater->out_bytes;
    stream->avail_out = (uint32_t)room;
    const int code = isal_deflate(stream);
    const size_t taken = in - stream->avail_in;
    const size_t made = room - stream->avail_out;
    deflater->taken += taken;
    deflater->left_bytes -= taken;
    deflater->out_bytes += made;
    deflater->part.count = deflater->out_bytes;
    deflater->done = stream->internal_state.state == ZSTATE_END;
    deflater->failed = code != COMP_OK || (taken == 0 && made == 0 && !deflater->done);
    return taken;
}

void qd_deflater_step(struct qd_deflater *deflater)
{
    size_t left = DEFLATE_IN_BYTES;
    while (left > 0 && !deflater->done && !deflater->failed)
        left -= deflate_some(deflater, left);
}

bool qd_deflater_end(const struct qd_deflater *deflater, const struct qd_part **part)
{
    *part = deflater->failed ? NULL : &deflater->part;
    return deflater->done || deflater->failed;
}
