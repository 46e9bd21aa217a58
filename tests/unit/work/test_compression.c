#include "server/work/compression.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/support/random.h"
#include "tests/unit/scratch.h"

enum { MIB = 1 << 20, PAGE_BYTES = 4096 };

static struct scratch scratch;
static struct qd_arena inflated_arena; /* memory of the last inflated body */
static struct qd_error error;

static void begin(size_t bytes_max)
{
    scratch_init(&scratch, bytes_max);
    qd_arena_init(&inflated_arena, scratch.memory);
    error = (struct qd_error){.status = QD_OK};
}

static void end(void)
{
    qd_arena_deinit(&inflated_arena);
    scratch_deinit(&scratch);
}

/* Bytes before an inaccessible page, so that a read beyond them ends the test. */
struct guarded {
    char *pages;
    size_t capacity;
};

static struct guarded guarded_create(size_t bytes)
{
    struct guarded guarded = {.capacity = (bytes + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES};
    guarded.pages = mmap(NULL, guarded.capacity + PAGE_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(guarded.pages, MAP_FAILED);
    cr_assert_eq(mprotect(guarded.pages + guarded.capacity, PAGE_BYTES, PROT_NONE), 0);
    return guarded;
}

static char *guarded_copy(const struct guarded *guarded, const char *bytes, size_t count)
{
    return memcpy(guarded->pages + guarded->capacity - count, bytes, count);
}

/* Inflates a body. The result is valid until the next call. Returns NULL if the body is refused;
 * `error` then says why. */
static const char *inflate(enum qd_coding coding, const char *bytes, size_t count,
                           uint64_t bytes_max, size_t *inflated)
{
    const char *result;
    error = (struct qd_error){.status = QD_OK};
    qd_arena_deinit(&inflated_arena);
    struct qd_inflater *inflater =
        qd_inflater_create(coding, bytes, count, bytes_max, &inflated_arena, &error);
    cr_assert((inflater == NULL) == (error.status != QD_OK));
    if (inflater == NULL)
        return NULL;
    /* Each step consumes or produces bytes, or is the last of a member. */
    for (size_t steps = 0; !qd_inflater_end(inflater, &result, inflated); steps++) {
        if (error.status != QD_OK)
            return NULL;
        cr_assert_leq(steps, count + bytes_max, "no end");
        qd_inflater_step(inflater);
    }
    cr_assert_eq(error.status, QD_OK);
    qd_inflater_step(inflater); /* does nothing */
    return result;
}

static struct qd_part deflate_parts(enum qd_coding coding, const struct qd_part *parts,
                                    size_t part_count)
{
    const struct qd_part *part;
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++)
        bytes += parts[i].count;
    struct qd_deflater *deflater =
        qd_deflater_create(coding, parts, part_count, bytes, &scratch.arena);
    cr_assert_not_null(deflater);
    while (!qd_deflater_end(deflater, &part))
        qd_deflater_step(deflater);
    cr_assert(part == NULL || part->count < bytes);
    return part != NULL ? *part : (struct qd_part){.bytes = NULL};
}

static struct qd_part deflate(enum qd_coding coding, const char *bytes, size_t count)
{
    return deflate_parts(coding, &(struct qd_part){bytes, count}, 1);
}

/* Returns the data in zlib's format without its header and checksum. */
static struct qd_part bare(struct qd_part zlib)
{
    return (struct qd_part){(const char *)zlib.bytes + 2, zlib.count - 6};
}

enum kind { ZEROS, FEW, TEXT, NOISE, KIND_COUNT };

static char *make(enum kind kind, size_t count)
{
    uint64_t seed = 1;
    char *bytes = malloc(count + 1);
    for (size_t i = 0; i < count; i++) {
        const unsigned random = (unsigned)(random_next(&seed) >> 48);
        const unsigned values[] = {[ZEROS] = 0,
                                   [FEW] = random % 7 + random / 7 % 7,
                                   [TEXT] = (unsigned char)"0123456789,"[random % 11],
                                   [NOISE] = random % 256};
        bytes[i] = (char)values[kind];
    }
    return bytes;
}

/* ---- There and back ----------------------------------------------------------------------- */

static void check_back(enum qd_coding coding, struct qd_part deflated, const char *bytes,
                       size_t count)
{
    size_t inflated;
    const char *back = inflate(coding, deflated.bytes, deflated.count, count, &inflated);
    cr_assert_not_null(back, "%s", error.text);
    cr_assert_eq(inflated, count);
    cr_assert_eq(memcmp(back, bytes, count), 0);
    if (count == 0)
        return;
    cr_assert_null(inflate(coding, deflated.bytes, deflated.count, count - 1, &inflated));
    cr_assert_eq(error.status, QD_TOO_LARGE);
    cr_assert_not_null(strstr(error.text, "--max-body-bytes"), "%s", error.text);
}

Test(compression, there_and_back)
{
    static const size_t counts[] = {100, 1000, 16384, 32768, 65535, 65536, 65537, 300000, 3000001};
    for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (enum kind kind = 0; kind < KIND_COUNT; kind++)
            for (enum qd_coding coding = QD_CODING_GZIP; coding <= QD_CODING_DEFLATE; coding++) {
                begin(64 * MIB);
                char *bytes = make(kind, counts[i]);
                const struct qd_part part = deflate(coding, bytes, counts[i]);
                cr_assert((part.bytes == NULL) == (kind == NOISE), "%d %zu", kind, counts[i]);
                if (part.bytes != NULL)
                    check_back(coding, part, bytes, counts[i]);
                if (part.bytes != NULL && coding == QD_CODING_DEFLATE)
                    check_back(coding, bare(part), bytes, counts[i]);
                free(bytes);
                end();
            }
}

Test(compression, parts_are_one_text)
{
    begin(64 * MIB);
    char *bytes = make(TEXT, 200000);
    const struct qd_part parts[] = {{bytes, 0},          {bytes, 1},
                                    {bytes + 1, 99999},  {bytes, 0},
                                    {bytes, 0},          {bytes + 100000, 50000},
                                    {bytes + 150000, 1}, {bytes + 150001, 49999}};
    check_back(QD_CODING_GZIP, deflate_parts(QD_CODING_GZIP, parts, 8), bytes, 200000);
    cr_assert_null(deflate_parts(QD_CODING_GZIP, parts, 1).bytes, "nothing cannot become less");
    free(bytes);
    end();
}

/* The parts of an answer: the text before the numbers, the numbers, and the text after them. */
Test(compression, short_parts_become_as_few_as_one)
{
    enum { HEAD = 150, NUMBERS = 16000, TAIL = 3 };
    begin(MIB);
    char *bytes = make(TEXT, HEAD + NUMBERS + TAIL);
    for (size_t i = 0; i < NUMBERS; i++)
        bytes[HEAD + i] = "0.5,"[i % 4];
    const struct qd_part parts[] = {
        {bytes, HEAD}, {bytes + HEAD, NUMBERS}, {bytes + HEAD + NUMBERS, TAIL}};
    const size_t whole = deflate(QD_CODING_GZIP, bytes, HEAD + NUMBERS + TAIL).count;
    const struct qd_part deflated = deflate_parts(QD_CODING_GZIP, parts, 3);
    cr_assert_leq(deflated.count, whole + 100, "%zu, and in parts %zu", whole, deflated.count);
    check_back(QD_CODING_GZIP, deflated, bytes, HEAD + NUMBERS + TAIL);
    free(bytes);
    end();
}

/* Without memory the answer is not compressed, and this is reported. */
Test(compression, with_little_memory)
{
    char *bytes = make(FEW, 4 * MIB);
    const struct qd_part part = {bytes, 4 * MIB};
    size_t failed = 0;
    size_t done = 0;
    for (size_t bytes_max = 64 << 10; bytes_max <= 8 * MIB; bytes_max += 64 << 10) {
        begin(bytes_max);
        const struct qd_part *deflated = NULL;
        struct qd_deflater *deflater =
            qd_deflater_create(QD_CODING_GZIP, &part, 1, part.count, &scratch.arena);
        while (deflater != NULL && !qd_deflater_end(deflater, &deflated))
            qd_deflater_step(deflater);
        failed += deflated == NULL;
        done += deflated != NULL;
        end();
    }
    free(bytes);
    cr_assert_gt(failed, 10);
    cr_assert_gt(done, 10);
}

/* ---- What is wrong ------------------------------------------------------------------------ */

static struct qd_part made(enum qd_coding coding, bool is_bare)
{
    char *bytes = make(TEXT, 700);
    struct qd_part part = deflate(coding, bytes, 700);
    free(bytes);
    return is_bare ? bare(part) : part;
}

Test(compression, truncated_at_every_byte)
{
    for (unsigned form = 0; form < 3; form++) {
        const enum qd_coding coding = form == 0 ? QD_CODING_GZIP : QD_CODING_DEFLATE;
        begin(64 * MIB);
        const struct qd_part whole = made(coding, form == 2);
        const struct guarded guarded = guarded_create(whole.count);
        for (size_t count = 0; count < whole.count; count++) {
            size_t inflated;
            const char *bytes = guarded_copy(&guarded, whole.bytes, count);
            cr_assert_null(inflate(coding, bytes, count, MIB, &inflated), "%zu", count);
            cr_assert_eq(error.status, QD_INVALID);
            cr_assert_not_null(strstr(error.text, "its end too early"), "%s", error.text);
        }
        end();
    }
}

/* Returns zlib's checksum. It is weak: data with a wrong copy may have the checksum of the right
 * data. */
static uint32_t adler32(const char *bytes, size_t count)
{
    uint32_t a = 1;
    uint32_t b = 0;
    for (size_t i = 0; i < count; i++) {
        a = (a + (unsigned char)bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* Flips each bit of each byte. The body must be refused, or inflate to the same bytes (for example
 * if a date in the header changed), or at least to the same checksum. Bare data has no checksum and
 * may inflate to anything. */
Test(compression, corrupted_in_every_bit)
{
    for (unsigned form = 0; form < 3; form++) {
        const enum qd_coding coding = form == 0 ? QD_CODING_GZIP : QD_CODING_DEFLATE;
        size_t refused = 0;
        begin(256 * MIB);
        char *text = make(TEXT, 700);
        const struct qd_part whole = made(coding, form == 2);
        const struct guarded guarded = guarded_create(whole.count);
        for (size_t bit = 0; bit < 8 * whole.count; bit++) {
            size_t inflated;
            char *bytes = guarded_copy(&guarded, whole.bytes, whole.count);
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            const char *back = inflate(coding, bytes, whole.count, 2000, &inflated);
            refused += back == NULL;
            cr_assert(back == NULL || form == 2 ||
                      (inflated == 700 && memcmp(back, text, 700) == 0) ||
                      (form == 1 && adler32(back, inflated) == adler32(text, 700)));
            cr_assert(back != NULL || error.status == QD_INVALID ||
                      (error.status == QD_TOO_LARGE && strstr(error.text, "2000 bytes") != NULL));
        }
        /* Gzip's flags, date and system are no data: these are eight bytes of which nearly all bits
         * may change. */
        cr_assert_geq(refused, form == 2 ? whole.count : 8 * whole.count - 64);
        free(text);
        end();
    }
}

static void expect_refusal(enum qd_coding coding, const char *bytes, size_t count,
                           const char *words)
{
    size_t inflated;
    const struct guarded guarded = guarded_create(count);
    bytes = guarded_copy(&guarded, bytes, count);
    cr_assert_null(inflate(coding, bytes, count, MIB, &inflated), "%s", words);
    cr_assert_eq(error.status, QD_INVALID);
    cr_assert_not_null(strstr(error.text, words), "%s: %s", words, error.text);
}

Test(compression, something_else)
{
    static const char deflated[] = {0x78, (char)0x9c}; /* the beginning of zlib's format */
    static const char dictionary[] = {0x78, (char)0xbb, 1, 2, 3, 4, 3, 0, 0, 0, 0, 1};
    static const char copy_of_nothing[] = {3, 2, 0}; /* copies before the first byte */
    static const char reserved_block[] = {7, 0, 0};
    static const char stored[] = {1, 5, 0, 5, 0, 'a', 'b', 'c', 'd', 'e'}; /* no complement */
    begin(64 * MIB);
    expect_refusal(QD_CODING_GZIP, "{\"inputs\":[]}", 13, "other data");
    expect_refusal(QD_CODING_DEFLATE, "{\"inputs\":[]}", 13, "other data");
    expect_refusal(QD_CODING_GZIP, "", 0, "its end too early");
    expect_refusal(QD_CODING_DEFLATE, deflated, 2, "its end too early");
    expect_refusal(QD_CODING_DEFLATE, dictionary, sizeof(dictionary), "other data");
    expect_refusal(QD_CODING_DEFLATE, copy_of_nothing, sizeof(copy_of_nothing), "other data");
    expect_refusal(QD_CODING_DEFLATE, reserved_block, sizeof(reserved_block), "other data");
    expect_refusal(QD_CODING_DEFLATE, stored, sizeof(stored), "other data");
    const struct qd_part gzip = made(QD_CODING_GZIP, false);
    const struct qd_part zlib = made(QD_CODING_DEFLATE, false);
    expect_refusal(QD_CODING_DEFLATE, gzip.bytes, gzip.count, "other data");
    expect_refusal(QD_CODING_GZIP, zlib.bytes, zlib.count, "other data");
    end();
}

/* ---- Members ------------------------------------------------------------------------------ */

/* A member is independent of the one before: it cannot copy from it, and has its own checksum. */
Test(compression, several_members)
{
    begin(64 * MIB);
    const struct qd_part one = made(QD_CODING_GZIP, false);
    char *text = make(TEXT, 700);
    char *bytes = malloc(100 * one.count + 100);
    size_t inflated;
    for (size_t i = 0; i < 100; i++)
        memcpy(bytes + i * one.count, one.bytes, one.count);
    const char *back = inflate(QD_CODING_GZIP, bytes, 100 * one.count, MIB, &inflated);
    cr_assert_not_null(back, "%s", error.text);
    cr_assert_eq(inflated, 70000);
    for (size_t i = 0; i < 100; i++)
        cr_assert_eq(memcmp(back + i * 700, text, 700), 0, "member %zu", i);
    cr_assert_null(inflate(QD_CODING_GZIP, bytes, 100 * one.count, 69999, &inflated));

    static const char copy_of_nothing[] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 2, 0};
    memcpy(bytes + one.count, copy_of_nothing, sizeof(copy_of_nothing));
    memset(bytes + one.count + sizeof(copy_of_nothing), 0, 8);
    expect_refusal(QD_CODING_GZIP, bytes, one.count + sizeof(copy_of_nothing) + 8, "other data");
    free(text);
    free(bytes);
    end();
}

Test(compression, many_empty_members)
{
    static const char empty[] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3,
                                 3,    0,          0, 0, 0, 0, 0, 0, 0, 0};
    begin(64 * MIB);
    char *bytes = malloc(50000 * sizeof(empty));
    size_t inflated;
    for (size_t i = 0; i < 50000; i++)
        memcpy(bytes + i * sizeof(empty), empty, sizeof(empty));
    cr_assert_not_null(inflate(QD_CODING_GZIP, bytes, 50000 * sizeof(empty), MIB, &inflated), "%s",
                       error.text);
    cr_assert_eq(inflated, 0);
    free(bytes);
    end();
}

Test(compression, nothing_behind_the_end)
{
    for (unsigned form = 0; form < 3; form++) {
        const enum qd_coding coding = form == 0 ? QD_CODING_GZIP : QD_CODING_DEFLATE;
        for (size_t more = 1; more < 20; more++) {
            char bytes[2000] = {0};
            begin(64 * MIB);
            const struct qd_part whole = made(coding, form == 2);
            memcpy(bytes, whole.bytes, whole.count);
            char words[32];
            snprintf(words, sizeof(words), "got %zu bytes more", more);
            expect_refusal(coding, bytes, whole.count + more, words);
            end();
        }
    }
}

/* ---- Bombs -------------------------------------------------------------------------------- */

/* The body has a thousandth of its inflated size. It is refused with the allowed size, and has used
 * no more memory. */
Test(compression, a_bomb_stays_within_its_bounds)
{
    begin(256 * MIB);
    char *zeros = make(ZEROS, 128 * MIB);
    const struct qd_part whole = deflate(QD_CODING_GZIP, zeros, 128 * MIB);
    char *bomb = malloc(whole.count);
    memcpy(bomb, whole.bytes, whole.count);
    free(zeros);
    end();
    cr_assert_lt(whole.count, 1 << 20); /* ISA-L: 1/1000, on AArch64 4/1000 */

    size_t inflated;
    begin(64 * MIB);
    cr_assert_null(inflate(QD_CODING_GZIP, bomb, whole.count, 8 * MIB, &inflated));
    cr_assert_eq(error.status, QD_TOO_LARGE);
    cr_assert_not_null(strstr(error.text, "8388608 bytes (--max-body-bytes)"), "%s", error.text);
    cr_assert_leq(qd_memory_used(scratch.memory), 11 * MIB);
    end();

    begin(16 * MIB);
    cr_assert_null(inflate(QD_CODING_GZIP, bomb, whole.count, 256 * MIB, &inflated));
    cr_assert_eq(error.status, QD_TOO_LARGE);
    cr_assert_not_null(strstr(error.text, "--max-inflight-bytes"), "%s", error.text);
    end();

    begin(32 * MIB); /* other arenas hold most of it */
    struct qd_arena other;
    qd_arena_init(&other, scratch.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 24 * MIB));
    cr_assert_null(inflate(QD_CODING_GZIP, bomb, whole.count, 31 * MIB, &inflated));
    cr_assert_eq(error.status, QD_UNAVAILABLE, "%s", error.text);
    qd_arena_deinit(&other);
    end();
    free(bomb);
}

Test(compression, room_for_large_ratios)
{
    begin(256 * MIB);
    char *zeros = make(ZEROS, 16 * MIB);
    const struct qd_part part = deflate(QD_CODING_DEFLATE, zeros, 16 * MIB);
    cr_assert_gt(16 * MIB / part.count, 200);
    size_t inflated;
    cr_assert_not_null(inflate(QD_CODING_DEFLATE, part.bytes, part.count, 1 << 30, &inflated), "%s",
                       error.text);
    cr_assert_eq(inflated, 16 * MIB);
    free(zeros);
    end();
}
