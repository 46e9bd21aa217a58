/* The dequantize kernels: scalar against the oracle, and every tier against scalar. One body checks
 * and times kernels, after dav1d's checkasm. With QK_BENCH=1 in the environment, each kernel that
 * has been checked is timed on 4 KiB in the L1 cache, and its time is printed on a line of standard
 * error. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/dequantize/affine.h"
#include "kernels/dispatch.h"
#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct reading {
    enum qk_type type;
    enum qk_code code;
} readings[] = {
    {QK_UINT8, QK_CODE_U8},           {QK_INT8, QK_CODE_S8},
    {QK_UINT16, QK_CODE_U16},         {QK_INT16, QK_CODE_S16},
    {QK_UINT2, QK_CODE_BITS2},        {QK_INT2, QK_CODE_BITS2},
    {QK_UINT4, QK_CODE_BITS4},        {QK_INT4, QK_CODE_BITS4},
    {QK_FP4E2M1, QK_CODE_BITS4},      {QK_FP8E4M3FN, QK_CODE_FLOAT8},
    {QK_FP8E4M3FNUZ, QK_CODE_FLOAT8}, {QK_FP8E5M2, QK_CODE_FLOAT8},
    {QK_FP8E5M2FNUZ, QK_CODE_FLOAT8}, {QK_INT32, QK_CODE_S32},
    {QK_INT32, QK_CODE_S32_RECAST},   {QK_INT32, QK_CODE_S32_WRAPPED},
    {QK_INT32, QK_CODE_S32_EXACT},    {QK_UINT32, QK_CODE_U32_EXACT},
};

static const enum qk_type y_types[] = {QK_FP32, QK_FP16, QK_BF16};
/* How many elements share parameters; 0: all. The last one is not for every kernel. */
static const size_t blocks[] = {0, 1, 16, 17, 32, 36, 49, 63, 64, 65, 100, 128, 169, 1000, 7};

/* ---- Memory between inaccessible pages ----------------------------------------------------- */

enum { COUNT_MAX = 1 << 16, ROOM = 4 * COUNT_MAX + 4096 };

struct room {
    uint8_t *start;
};

static void room_init(struct room *room)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *all = mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(all, MAP_FAILED);
    room->start = all + page;
    cr_assert_eq(mprotect(room->start, ROOM, PROT_READ | PROT_WRITE), 0);
}

/* Returns `bytes` bytes that begin at the end of the first guard page, or end at the last one. */
static void *place(const struct room *room, size_t bytes, bool at_end)
{
    return room->start + (at_end ? ROOM - bytes : 0);
}

/* ---- One call ------------------------------------------------------------------------------ */

struct bed {
    struct room x;
    struct room y;
    struct room scalar_y;
    struct room scales;
    struct room zeros;
    struct room offsets;
    struct qk_code_table table;
    uint64_t random;
};

static void bed_init(struct bed *bed, uint64_t seed)
{
    struct room *rooms[] = {&bed->x,      &bed->y,     &bed->scalar_y,
                            &bed->scales, &bed->zeros, &bed->offsets};
    for (size_t i = 0; i < COUNT_OF(rooms); i++)
        room_init(rooms[i]);
    bed->random = seed;
}

static bool has_float_zeros(enum qk_code code)
{
    return code != QK_CODE_FLOAT8 && code < QK_CODE_S32_WRAPPED;
}

static int32_t random_integer_zero(struct bed *bed, enum qk_type type)
{
    int32_t zero = 0;
    uint8_t bytes[4];
    dequantize_random_elements(&bed->random, type, bytes, 1);
    if (type == QK_INT32 || type == QK_UINT32)
        memcpy(&zero, bytes, sizeof(zero));
    else
        zero = (int32_t)dequantize_element(type, bytes, 0);
    return zero;
}

static void fill_zeros(struct bed *bed, const struct reading *reading, void *zeros, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bool is_float = qk_type_info(reading->type)->kind == QK_KIND_FLOAT;
        const int32_t zero = is_float ? 0 : random_integer_zero(bed, reading->type);
        const float as_float = reading->code == QK_CODE_S32 || reading->code == QK_CODE_S32_RECAST
                                   ? -0x1p31F
                                   : qk_affine_zero(reading->type, (float)zero);
        memcpy((uint8_t *)zeros + 4 * i,
               has_float_zeros(reading->code) ? (const void *)&as_float : &zero, 4);
    }
}

static float *fill_scales(struct bed *bed, const struct room *room, size_t count, bool at_end,
                          enum qk_type y_type)
{
    float *scales = place(room, count * sizeof(float), at_end);
    for (size_t i = 0; i < count; i++)
        scales[i] = dequantize_random_scale(&bed->random);
    qk_affine_canonical(y_type, scales, count);
    return scales;
}

/* Makes blocks that need not begin with x or with the first parameters. Returns how many parameters
 * are needed. */
static size_t make_blocks(struct bed *bed, size_t block, struct qk_span *span)
{
    span->block = block == 0 ? SIZE_MAX : block;
    span->done = block && qk_test_random_below(&bed->random, 2)
                     ? qk_test_random_below(&bed->random, block)
                     : 0;
    const size_t touched = span->count ? (span->done + span->count - 1) / span->block + 1 : 0;
    span->period = qk_test_random_below(&bed->random, 2)
                       ? 1 + qk_test_random_below(&bed->random, touched + 2)
                       : 0;
    span->p = span->period ? qk_test_random_below(&bed->random, span->period) : 0;
    return span->period ? span->period : touched;
}

/* Makes random operands for `count` elements. The first of them is element `first` of x. */
static void make_args(struct bed *bed, const struct reading *reading, enum qk_type y_type,
                      size_t block, size_t first, size_t count, struct qk_dequantize_args *args)
{
    const size_t bits = qk_type_info(reading->type)->bits;
    const size_t x_bytes = ((first + count) * bits + 7) / 8;
    const bool at_end = qk_test_random_below(&bed->random, 2);
    uint8_t *x = place(&bed->x, x_bytes, at_end);
    dequantize_random_elements(&bed->random, reading->type, x, first + count);
    const bool has_table = bits < 8 || reading->code == QK_CODE_FLOAT8;
    if (has_table)
        qk_code_table_init(&bed->table, reading->type);
    *args = (struct qk_dequantize_args){.code = reading->code,
                                        .y_type = y_type,
                                        .table = has_table ? &bed->table : NULL,
                                        .span = {.x = x, .x_first = first, .count = count}};
    args->span.stream = qk_test_random_below(&bed->random, 2);
    const size_t parameters = make_blocks(bed, block, &args->span);
    args->span.scales = fill_scales(bed, &bed->scales, parameters, at_end, y_type);
    if (qk_test_random_below(&bed->random, 2) && reading->code != QK_CODE_FLOAT8) {
        void *zeros = place(&bed->zeros, parameters * 4, at_end);
        fill_zeros(bed, reading, zeros, parameters);
        args->span.zeros = zeros;
    }
    if (qk_test_random_below(&bed->random, 2))
        args->span.offsets = fill_scales(bed, &bed->offsets, parameters, at_end, y_type);
}

/* Runs the kernel into its own y. Bytes around y must not change. */
static const void *run_into(const struct room *room, const struct qk_dequantize_kernels *kernels,
                            struct qk_dequantize_args args, size_t lead)
{
    const size_t y_bytes = args.span.count * (args.y_type == QK_FP32 ? 4 : 2);
    uint8_t *y = lead < 64 ? (uint8_t *)place(room, 0, false) + lead : place(room, y_bytes, true);
    memset(y - (lead < 64 ? lead : 64), 0x5a, lead < 64 ? lead : 64);
    if (lead < 64)
        memset(y + y_bytes, 0x5a, 64);
    args.span.y = y;
    qk_dequantize(kernels, &args);
    kernels->finish();
    size_t before = 0, behind = lead < 64 ? 64 : 0;
    for (size_t i = 1; i <= (lead < 64 ? lead : 64); i++)
        before = *(y - i) == 0x5a ? before : i;
    while (behind > 0 && y[y_bytes + behind - 1] == 0x5a)
        behind--;
    cr_assert_eq(before, 0, "%s: written %zu bytes before y", kernels->name, before);
    cr_assert_eq(behind, 0, "%s: written %zu bytes behind y", kernels->name, behind);
    return y;
}

static void check_args(struct bed *bed, const struct qk_dequantize_kernels *kernels,
                       const struct qk_dequantize_args *args)
{
    struct qk_dequantize_kernels scalar;
    const size_t y_size = args->y_type == QK_FP32 ? 4 : 2;
    const size_t lead = qk_test_random_below(&bed->random, 65) / y_size * y_size;
    qk_dequantize_init_scalar(&scalar);
    const uint8_t *wanted = run_into(&bed->scalar_y, &scalar, *args, 0);
    const uint8_t *got = run_into(&bed->y, kernels, *args, lead);
    if (memcmp(got, wanted, args->span.count * y_size) == 0)
        return;
    for (size_t i = 0; i < args->span.count; i++)
        cr_assert(
            qk_test_same(args->y_type, got, wanted, i),
            "%s, code %d to %s, blocks of %zu (%zu), first %zu, y + %zu: element %zu of %zu is not "
            "scalar's, %#x but %#x",
            kernels->name, args->code, qk_type_info(args->y_type)->name, args->span.block,
            args->span.done, args->span.x_first, lead, i, args->span.count,
            qk_element_load(args->y_type, wanted, i), qk_element_load(args->y_type, got, i));
}

/* ---- Check and bench ----------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the nanoseconds of the fastest of some calls. */
static double time_args(const struct qk_dequantize_kernels *kernels,
                        const struct qk_dequantize_args *args)
{
    double best = 1;
    for (int round = 0; round < 20; round++) {
        const double begin = seconds();
        for (int i = 0; i < 100; i++)
            qk_dequantize(kernels, args);
        const double spent = (seconds() - begin) / 100;
        best = spent < best ? spent : best;
    }
    return 1e9 * best;
}

static void bench(struct bed *bed, const struct qk_dequantize_kernels *kernels,
                  const struct reading *reading, enum qk_type y_type, size_t block)
{
    const unsigned bits = qk_type_info(reading->type)->bits;
    const size_t count = 4096 * 8 / bits;
    const size_t y_bytes = count * (y_type == QK_FP32 ? 4 : 2);
    struct qk_dequantize_args args;
    struct qk_dequantize_kernels scalar;
    make_args(bed, reading, y_type, block, 0, count, &args);
    args.span.p = args.span.done = args.span.period = 0;
    args.span.zeros = NULL;
    for (size_t i = 0; i <= (block ? (count - 1) / block : 0); i++)
        ((float *)bed->scales.start)[i] = 0.1F; /* no subnormal numbers, because these are slow */
    args.span.scales = (const float *)bed->scales.start;
    args.span.offsets = NULL;
    args.span.stream = false;
    args.span.y = bed->y.start;
    qk_dequantize_init_scalar(&scalar);
    const double scalar_ns = time_args(&scalar, &args);
    const double ns = time_args(kernels, &args);
    fprintf(stderr, "%-18s %-12s code %2d to %-4s block %4zu %9.1f ns %6.1f GB/s %5.1f x scalar\n",
            kernels->name, qk_type_info(reading->type)->name, reading->code,
            qk_type_info(y_type)->name, block, ns, (double)(4096 + y_bytes) / ns, scalar_ns / ns);
}

static void check_and_bench(struct bed *bed, const struct qk_dequantize_kernels *kernels,
                            const struct reading *reading, enum qk_type y_type, size_t block)
{
    static const size_t large[] = {256, 320, 1000, 1024, 3000, 4095, 16384};
    struct qk_dequantize_args args;
    for (size_t i = 0; i <= 200 + COUNT_OF(large); i++) {
        const size_t count = i <= 200 ? i : large[i - 201];
        for (int round = 0; round < (count < 300 ? 4 : 1); round++) {
            const size_t first = qk_test_random_below(&bed->random, 5);
            make_args(bed, reading, y_type, block, round % 2 ? first : 0, count, &args);
            check_args(bed, kernels, &args);
        }
    }
    if (getenv("QK_BENCH"))
        bench(bed, kernels, reading, y_type, block);
}

/* Checks all codes of a type of up to 16 bits, one after the other, with all zero points if there
 * are few. */
static void check_codes(struct bed *bed, const struct qk_dequantize_kernels *kernels,
                        const struct reading *reading, enum qk_type y_type)
{
    const unsigned bits = qk_type_info(reading->type)->bits;
    const size_t count = bits < 8 ? 256 : (size_t)1 << bits;
    struct qk_dequantize_args args;
    const size_t rounds = bits > 16 ? 0 : bits > 8 ? 8 : 64;
    for (size_t round = 0; round < rounds; round++) {
        if (!qk_test_runs(round))
            continue;
        make_args(bed, reading, y_type, round % 2, 0, count, &args);
        for (size_t i = 0; i < count; i++)
            qk_test_store(reading->type, (void *)(uintptr_t)args.span.x, i, (uint32_t)i);
        check_args(bed, kernels, &args);
    }
}

/* Checks all codes, from odd addresses on. NaNs may become quiet. */
static void check_widen(struct bed *bed, const struct qk_dequantize_kernels *kernels,
                        enum qk_type type)
{
    const size_t bytes = qk_type_info(type)->bits / 8;
    for (size_t round = 0; round < 40; round++) {
        const size_t count = round == 0 ? COUNT_MAX : qk_test_random_below(&bed->random, 100);
        const size_t start = round == 0 ? 0 : qk_test_random_below(&bed->random, COUNT_MAX);
        uint8_t *from = (uint8_t *)place(&bed->x, bytes * count, true) - round % 2;
        float *to = place(&bed->y, sizeof(*to) * count, true);
        for (size_t i = 0; i < count; i++)
            qk_test_store(type, from, i, (uint32_t)(start + i) & (bytes == 1 ? 0xff : 0xffff));
        kernels->widen(to, type, from, count);
        for (size_t i = 0; i < count; i++) {
            const float wanted = qk_float_decode(type, qk_element_load(type, from, i));
            const uint32_t quiet = isnan(wanted) ? 0x00400000 : 0;
            uint32_t bits[2];
            memcpy(&bits[0], &wanted, sizeof(wanted));
            memcpy(&bits[1], &to[i], sizeof(to[i]));
            if ((bits[0] | quiet) != (bits[1] | quiet))
                cr_assert_fail("%s, %s: code %#zx became %#x, not %#x", kernels->name,
                               qk_type_info(type)->name, start + i, bits[1], bits[0]);
        }
    }
}

static void check_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    struct bed bed;
    if (!kernels)
        return;
    bed_init(&bed, 2);
    for (size_t i = 0; i < COUNT_OF(readings) * COUNT_OF(y_types); i++) {
        const struct reading *reading = &readings[i / COUNT_OF(y_types)];
        const enum qk_type y_type = y_types[i % COUNT_OF(y_types)];
        for (size_t b = 0; b < COUNT_OF(blocks); b++)
            if (qk_test_runs(i * COUNT_OF(blocks) + b))
                check_and_bench(&bed, &kernels->dequantize, reading, y_type, blocks[b]);
        check_codes(&bed, &kernels->dequantize, reading, y_type);
    }
    check_widen(&bed, &kernels->dequantize, QK_FP16);
    check_widen(&bed, &kernels->dequantize, QK_BF16);
    check_widen(&bed, &kernels->dequantize, QK_FP8E8M0);
    qk_kernels_destroy(kernels);
}

/* Compares scalar kernels with themselves, to check that they stay within their bounds. */
Test(dequantize, scalar_kernels)
{
    check_tier("scalar");
}

#ifdef __x86_64__
Test(dequantize, avx2_kernels)
{
    check_tier("avx2");
}

Test(dequantize, avx512_kernels)
{
    check_tier("avx512");
}
#elif defined(__aarch64__)
Test(dequantize, neon_kernels)
{
    check_tier("neon");
}
#endif

/* ---- What is streamed ---------------------------------------------------------------------- */

static const struct qk_dequantize_args *streamed; /* the last call of a tier's kernel */

static void note_and_run(const struct qk_dequantize_args *args)
{
    static struct qk_dequantize_args copy;
    copy = *args;
    streamed = &copy;
    qk_dequantize_scalar(args);
}

/* If a cache line is streamed in part, or twice, that takes as long as hundreds of elements. */
Test(dequantize, streams_are_whole_lines)
{
    struct qk_dequantize_kernels kernels;
    struct bed bed;
    qk_dequantize_init_scalar(&kernels);
    for (size_t code = 0; code < QK_CODE_COUNT; code++)
        kernels.run[code] = note_and_run;
    bed_init(&bed, 4);
    for (size_t n = 0; n < COUNT_OF(readings) * COUNT_OF(y_types) * 100; n++) {
        const enum qk_type y_type = y_types[n / COUNT_OF(readings) % 3];
        const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
        const size_t lead = qk_test_random_below(&bed.random, 64) / y_bytes * y_bytes;
        struct qk_dequantize_args args;
        make_args(&bed, &readings[n % COUNT_OF(readings)], y_type, 100, 0,
                  200 + qk_test_random_below(&bed.random, 300), &args);
        args.span.stream = true;
        args.span.y = (char *)place(&bed.y, 0, false) + lead;
        qk_dequantize(&kernels, &args);
        if ((uintptr_t)streamed->span.y % 64 ==
            0) /* otherwise bytes begin elsewhere and are not streamed */
            cr_assert_eq(streamed->span.count * y_bytes % 64, 0, "y + %zu: %zu of %zu elements",
                         lead, streamed->span.count, args.span.count);
    }
}

/* ---- Scalar against the oracle ------------------------------------------------------------- */

static float expected(const struct reading *reading, const struct qk_dequantize_args *args,
                      size_t i, int64_t zero)
{
    const size_t q = args->span.p + (args->span.done + i) / args->span.block;
    const size_t p = args->span.period ? q % args->span.period : q;
    const uint8_t *x = args->span.x;
    const float *scales = args->span.scales;
    if (qk_type_info(reading->type)->kind == QK_KIND_FLOAT)
        return dequantize_product(dequantize_value(reading->type, x, args->span.x_first + i),
                                  scales[p]);
    return dequantize_expected(dequantize_element(reading->type, x, args->span.x_first + i), zero,
                               scales[p]);
}

Test(dequantize, scalar_is_what_the_oracle_says)
{
    struct bed bed;
    bed_init(&bed, 3);
    for (size_t n = 0; n < COUNT_OF(readings) * COUNT_OF(y_types) * 40; n++) {
        const struct reading *reading = &readings[n % COUNT_OF(readings)];
        const enum qk_type y_type = y_types[n / COUNT_OF(readings) % 3];
        const size_t count = qk_test_random_below(&bed.random, 300);
        struct qk_dequantize_args args;
        const bool wraps = reading->code < QK_CODE_S32 || reading->code == QK_CODE_S32_WRAPPED;
        if (!wraps) /* the operators' tests check the other cases */
            continue;
        make_args(&bed, reading, y_type, blocks[n % COUNT_OF(blocks)], n % 3, count, &args);
        const int32_t zero = qk_type_info(reading->type)->kind == QK_KIND_FLOAT
                                 ? 0
                                 : random_integer_zero(&bed, reading->type);
        const float as_float = qk_affine_zero(reading->type, (float)zero);
        int32_t zeros[310]; /* one for each element, and more that make_blocks may ask for */
        for (size_t i = 0; i < COUNT_OF(zeros); i++)
            memcpy(&zeros[i], has_float_zeros(reading->code) ? (const void *)&as_float : &zero, 4);
        args.span.zeros = zeros;
        args.span.offsets = NULL;
        args.span.y = place(&bed.y, 0, false);
        qk_dequantize_scalar(&args);
        for (size_t i = 0; i < count; i++)
            cr_assert(dequantize_is(y_type, args.span.y, i, expected(reading, &args, i, zero)),
                      "%s to %s: element %zu of %zu", qk_type_info(reading->type)->name,
                      qk_type_info(y_type)->name, i, count);
    }
}
