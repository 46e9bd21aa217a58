/* The element types: every code of the small floats, every rounding, and how elements are packed.
 * The CRCs come from other implementations, checked against ONNX Runtime on every code. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* zlib's CRC-32. */
static uint32_t crc32_of(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- Decoding ---------------------------------------------------------------------------- */

static uint32_t crc_of_codes(enum qk_type type, size_t count)
{
    uint32_t *table = malloc(count * sizeof(*table));
    cr_assert_not_null(table);
    for (size_t code = 0; code < count; code++) {
        table[code] = bits_of(qk_float_decode(type, (uint32_t)code));
        if (type == QK_FP16 && isnan(float_of(table[code]))) /* the CRC uses this NaN */
            table[code] = (table[code] & 0x80000000) | 0x7fc00000;
    }
    uint32_t crc = crc32_of(table, count * sizeof(*table));
    free(table);
    return crc;
}

Test(element, decodes_every_code)
{
    static const struct {
        enum qk_type type;
        size_t count;
        uint32_t crc;
    } tables[] = {
        {QK_FP8E4M3FN, 256, 0xc2666a8c}, {QK_FP8E4M3FNUZ, 256, 0x7ca10122},
        {QK_FP8E5M2, 256, 0x0788ceec},   {QK_FP8E5M2FNUZ, 256, 0x87b9aaf4},
        {QK_FP8E8M0, 256, 0x719979ba},   {QK_FP4E2M1, 16, 0x866770b6},
        {QK_FP16, 65536, 0x53084938},
    };
    cr_assert_eq(crc32_of("123456789", 9), 0xcbf43926);
    for (size_t i = 0; i < COUNT_OF(tables); i++)
        cr_expect_eq(crc_of_codes(tables[i].type, tables[i].count), tables[i].crc, "%s",
                     qk_type_info(tables[i].type)->name);
}

Test(element, decodes_landmarks)
{
    static const struct {
        enum qk_type type;
        uint32_t code;
        uint32_t bits;
    } landmarks[] = {
        {QK_FP8E4M3FN, 0x01, 0x3b000000},   {QK_FP8E4M3FN, 0x7e, 0x43e00000},
        {QK_FP8E4M3FN, 0x80, 0x80000000},   {QK_FP8E4M3FN, 0xff, 0xffc00000},
        {QK_FP8E4M3FNUZ, 0x80, 0xffc00000}, {QK_FP8E4M3FNUZ, 0x7f, 0x43700000},
        {QK_FP8E5M2, 0xfc, 0xff800000},     {QK_FP8E5M2, 0x7d, 0x7fc00000},
        {QK_FP8E5M2FNUZ, 0x01, 0x37000000}, {QK_FP8E8M0, 0x00, 0x00400000},
        {QK_FP8E8M0, 0xff, 0x7fc00000},     {QK_FP4E2M1, 0x8, 0x80000000},
        {QK_FP4E2M1, 0xf, 0xc0c00000},      {QK_FP16, 0x0001, 0x33800000},
        {QK_FP16, 0x7d01, 0x7fa02000},      {QK_BF16, 0x8001, 0x80010000},
        {QK_BF16, 0x7fa1, 0x7fa10000},      {QK_FP32, 0x7fa00001, 0x7fa00001},
    };
    for (size_t i = 0; i < COUNT_OF(landmarks); i++)
        cr_expect_eq(bits_of(qk_float_decode(landmarks[i].type, landmarks[i].code)),
                     landmarks[i].bits, "%s %x", qk_type_info(landmarks[i].type)->name,
                     landmarks[i].code);
}

/* ---- Rounding ---------------------------------------------------------------------------- */

static uint32_t crc_of_rounded(uint16_t (*round)(float))
{
    uint16_t *rounded = malloc(65536 * sizeof(*rounded));
    cr_assert_not_null(rounded);
    for (uint32_t i = 0; i < 65536; i++)
        rounded[i] = round(float_of(i << 16 | (i * 40503 & 0xffff)));
    uint32_t crc = crc32_of(rounded, 65536 * sizeof(*rounded));
    free(rounded);
    return crc;
}

Test(element, rounds_a_float_of_every_exponent)
{
    cr_assert_eq(crc_of_rounded(qk_fp16_round), 0x91692284);
    cr_assert_eq(crc_of_rounded(qk_bf16_round), 0x8f6bf9f6);
}

/* Every number rounds to itself. A midpoint rounds to the even neighbour. A value slightly below or
 * above a midpoint rounds to the nearer one. */
static void check_boundaries(enum qk_type type, uint16_t (*round)(float), uint16_t infinity)
{
    for (uint16_t code = 0; code < infinity; code++) {
        const float here = qk_float_decode(type, code);
        const double next = code + 1U < infinity
                                ? (double)qk_float_decode(type, code + 1U)
                                : 2 * (double)here - (double)qk_float_decode(type, code - 1U);
        const float middle = (float)(((double)here + next) / 2);
        const uint16_t sign = 0x8000;
        cr_assert_eq(round(here), code);
        cr_assert_eq(round(-here), code | sign);
        cr_assert_eq(round(middle), code % 2 ? code + 1 : code, "%x", code);
        cr_assert_eq(round(nextafterf(middle, 0)), code, "%x", code);
        cr_assert_eq(round(nextafterf(-middle, -INFINITY)), (code + 1) | sign, "%x", code);
    }
}

Test(element, rounds_to_nearest_even_at_every_boundary)
{
    check_boundaries(QK_FP16, qk_fp16_round, 0x7c00);
    check_boundaries(QK_BF16, qk_bf16_round, 0x7f80);
}

Test(element, rounds_what_is_no_number)
{
    cr_assert_eq(qk_fp16_round(INFINITY), 0x7c00);
    cr_assert_eq(qk_fp16_round(-INFINITY), 0xfc00);
    cr_assert_eq(qk_fp16_round(float_of(0x7f800001)), 0x7e00);
    cr_assert_eq(qk_fp16_round(float_of(0xffa02000)), 0xfe00);
    cr_assert_eq(qk_bf16_round(INFINITY), 0x7f80);
    cr_assert_eq(qk_bf16_round(-INFINITY), 0xff80);
    cr_assert_eq(qk_bf16_round(float_of(0x7fffffff)), 0x7fc0);
    cr_assert_eq(qk_bf16_round(float_of(0xff800001)), 0xffc0);
    cr_assert_eq(qk_bf16_round(float_of(0x007fffff)), 0x0080); /* subnormals stay */
}

/* ---- Packing ----------------------------------------------------------------------------- */

Test(element, packs_the_first_element_lowest)
{
    static const uint8_t bytes[] = {0x21, 0x43, 0xe4};
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(qk_element_load(QK_UINT4, bytes, i), i + 1);
        cr_assert_eq(qk_element_load(QK_INT4, bytes, i), i + 1);
        cr_assert_eq(qk_element_load(QK_FP4E2M1, bytes, i), i + 1);
        cr_assert_eq(qk_element_load(QK_UINT2, bytes, 8 + i), i);
        cr_assert_eq(qk_element_load(QK_INT2, bytes, 8 + i), i);
    }
    cr_assert_eq(qk_element_load(QK_UINT16, bytes + 1, 0), 0xe443); /* unaligned, little-endian */
    cr_assert_eq(qk_element_load(QK_INT8, bytes, 2), 0xe4);         /* bits, without a sign */
}

/* Elements stored in any order read back, and their neighbours do not change. */
Test(element, stores_what_it_loads)
{
    enum { COUNT = 67 };
    uint64_t random = 9;
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        const unsigned bits = qk_type_info(type)->bits;
        if (bits > 32)
            continue;
        uint8_t data[COUNT * 4 + 2];
        uint32_t expected[COUNT];
        size_t bytes;
        cr_assert(qk_type_bytes(type, COUNT, &bytes));
        memset(data, 0xa5, sizeof(data));
        for (size_t i = 0; i < COUNT; i++)
            expected[i] = qk_element_load(type, data + 1, i);
        for (int round = 0; round < 500; round++) {
            const size_t i = qk_test_random_below(&random, COUNT);
            const uint32_t value = (uint32_t)qk_test_random(&random);
            expected[i] = bits == 32 ? value : value & ((1U << bits) - 1);
            qk_test_store(type, data + 1, i, value);
            for (size_t k = 0; k < COUNT; k++)
                cr_assert_eq(qk_element_load(type, data + 1, k), expected[k], "%s %zu",
                             qk_type_info(type)->name, k);
        }
        cr_assert_eq(data[0], 0xa5);
        cr_assert_eq(data[1 + bytes], 0xa5);
    }
}

Test(element, sizes_are_exact)
{
    static const struct {
        enum qk_type type;
        size_t count;
        size_t bytes;
    } sizes[] = {
        {QK_INT4, 0, 0},    {QK_INT4, 1, 1},      {QK_UINT4, 2, 1},
        {QK_FP4E2M1, 3, 2}, {QK_INT2, 0, 0},      {QK_INT2, 1, 1},
        {QK_UINT2, 4, 1},   {QK_UINT2, 5, 2},     {QK_BF16, 3, 6},
        {QK_UINT16, 1, 2},  {QK_FP8E8M0, 5, 5},   {QK_UINT32, 2, 8},
        {QK_INT4, 17, 9},   {QK_INT2, 1001, 251}, {QK_INT4, SIZE_MAX, SIZE_MAX / 2 + 1},
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t bytes;
        cr_assert(qk_type_bytes(sizes[i].type, sizes[i].count, &bytes));
        cr_assert_eq(bytes, sizes[i].bytes, "%zu", i);
    }
}
