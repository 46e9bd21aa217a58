#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "server/json/number.h"
#include "tests/support/random.h"
#include "tests/unit/scratch.h"

static struct qd_json_number number;

/* Returns how many bytes of `text` are a number, or 0 if it does not begin with one. */
static size_t scan(const char *text)
{
    const char *end = qd_json_number_scan(text, text + strlen(text), &number);
    return end == NULL ? 0 : (size_t)(end - text);
}

static void expect_whole_text(const char *text)
{
    cr_assert_eq(scan(text), strlen(text), "%s", text);
    cr_assert_eq(number.bytes, strlen(text), "%s", text);
}

Test(json_number, takes_the_grammar_of_json)
{
    static const char *const good[] = {"0",   "-0",   "7",      "-12",    "0.5",    "10.25",
                                       "1e5", "1E+5", "1.5e-7", "-0.0e0", "1e0005", "120"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        expect_whole_text(good[i]);
}

Test(json_number, refuses_what_is_none_and_says_where)
{
    static const struct {
        const char *text;
        size_t bytes; /* valid numbers */
    } bad[] = {{"", 0},   {"-", 1},   {"+1", 0},  {".5", 0},   {"1.", 2},  {"1.e5", 2},
               {"1e", 2}, {"1e+", 3}, {"-.5", 1}, {"1.5e", 4}, {"NaN", 0}, {"-Infinity", 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(scan(bad[i].text), 0, "%s", bad[i].text);
        cr_assert_eq(number.bytes, bad[i].bytes, "%s: %zu", bad[i].text, number.bytes);
    }
}

Test(json_number, stops_behind_the_number)
{
    cr_assert_eq(scan("01"), 1);
    cr_assert_eq(scan("0x10"), 1);
    cr_assert_eq(scan("12,13"), 2);
    cr_assert_eq(scan("1.5.5"), 3);
}

Test(json_number, never_reads_beyond_the_end)
{
    static const char *const texts[] = {"-", "1.", "1e", "1e-", "12", "0"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t bytes = strlen(texts[i]);
        char *exact = malloc(bytes); /* for the sanitizer: exact size */
        memcpy(exact, texts[i], bytes);
        qd_json_number_scan(exact, exact + bytes, &number);
        cr_assert_eq(number.bytes, bytes);
        free(exact);
    }
}

/* ---- Integers ---------------------------------------------------------------------------- */

static bool to_int64(const char *text, int64_t *value)
{
    return scan(text) == strlen(text) && qd_json_number_to_int64(&number, value);
}

Test(json_number, integers_are_exact)
{
    int64_t value;
    cr_assert(to_int64("0", &value) && value == 0);
    cr_assert(to_int64("-1", &value) && value == -1);
    cr_assert(to_int64("9007199254740993", &value) && value == 9007199254740993);
    cr_assert(to_int64("9223372036854775807", &value) && value == INT64_MAX);
    cr_assert(to_int64("-9223372036854775808", &value) && value == INT64_MIN);
}

Test(json_number, integers_are_not_rounded_or_wrapped)
{
    static const char *const bad[] = {"1.0",
                                      "1e2",
                                      "-0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "18446744073709551616",
                                      "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t value;
        cr_assert_not(to_int64(bad[i], &value), "%s", bad[i]);
    }
}

Test(json_number, decimal_text_is_digits_only)
{
    uint64_t value;
    cr_assert(qd_read_decimal("0", &value) && value == 0);
    cr_assert(qd_read_decimal("18446744073709551615", &value) && value == UINT64_MAX);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "1x", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not(qd_read_decimal(bad[i], &value), "%s", bad[i]);
}

Test(json_number, integers_print_as_printf_does)
{
    static const int64_t values[] = {0,  1,   9,    10,        99,        100,       101,
                                     -1, -10, -128, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char got[QD_PRINT_BYTES_MAX + 1];
        char wanted[QD_PRINT_BYTES_MAX + 1];
        *qd_print_int64(got, values[i]) = '\0';
        snprintf(wanted, sizeof(wanted), "%lld", (long long)values[i]);
        cr_assert_str_eq(got, wanted);
    }
}

/* ---- Floats ------------------------------------------------------------------------------ */

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

static uint64_t random_state = 88172645463325252;

static uint64_t random_bits(void)
{
    return random_next(&random_state);
}

/* Compares with strtof, which rounds correctly. */
static void expect_float(const char *text)
{
    expect_whole_text(text);
    float got = qd_json_number_to_float(&number);
    cr_assert_eq(bits_of(got), bits_of(strtof(text, NULL)), "%s: %.9g", text, (double)got);
}

Test(json_number, floats_round_as_strtof_does)
{
    static const char *const texts[] = {
        "0", "-0", "0.0", "-0.0e5", "0e99999999999999999999", "0.1", "16777216", "16777217",
        "16777218", "16777219", "33554433", "33554435", "9007199254740993", "0.5", "1e22", "1e23",
        "123456789012345678", "12345678901234567890", "99999999999999999999999999999",
        /* around the largest float, and the midpoint above it */
        "3.4028234663852886e38", "3.4028235e38", "3.4028235677973366e38", "3.4028235677973367e38",
        "340282356779733661637539395458142568447", "340282356779733661637539395458142568448",
        "3.5e38", "1e39", "1e999", "-1e999", "1e99999999999999999999",
        /* around the smallest float, and half of it */
        "1e-45", "7.006492321624085e-46", "7.006492321624086e-46", "7.0064923216240853e-46",
        "7.0064923216240854e-46", "1e-46", "1e-999", "1e-99999999999999999999",
        "1.1754943508222875e-38", "1.1754942807573643e-38", "1.17549435e-38", "5.877472e-39",
        /* rounded twice, first to a double, this would be one float too low */
        "1.00000017881393421514957253748434595763683319091796875001",
        "1.00000017881393432617187499", "1.00000017881393432617187500",
        "1.000000178813934326171875", "1.00000017881393432617187501"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        expect_float(texts[i]);
}

/* The exact decimal midpoint of two floats, and its neighbours just below and above. */
Test(json_number, floats_are_exact_at_halfway_points)
{
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)random_bits() & 0x7fffffff;
        if (bits >= 0x7f7fffff)
            continue;
        double half = ((double)float_of(bits) + (double)float_of(bits + 1)) / 2;
        char text[256];
        int bytes = snprintf(text, sizeof(text), "%.125e", half);
        expect_float(text);
        char *exponent = strchr(text, 'e');
        exponent[-1] = '1'; /* the number begins with all digits of a midpoint */
        expect_float(text);
        char longer[512];
        snprintf(longer, sizeof(longer), "%.*s%0100d1%s", (int)(exponent - text - 1), text, 0,
                 exponent);
        expect_float(longer);
        cr_assert_lt(bytes, 200);
    }
}

Test(json_number, floats_of_random_decimals_round_as_strtof_does)
{
    for (int i = 0; i < 300000; i++) {
        char text[64];
        int digits = 1 + (int)(random_bits() % 19);
        uint64_t mantissa = random_bits();
        int exponent = (int)(random_bits() % 100) - 65;
        snprintf(text, sizeof(text), "%.*e", digits - 1, (double)mantissa);
        char *tail = strchr(text, 'e');
        snprintf(tail, sizeof(text) - (size_t)(tail - text), "e%d", exponent);
        expect_float(text);
    }
}

/* A number may be as long as a body. */
Test(json_number, floats_of_very_long_literals)
{
    size_t zeros = 1u << 20;
    char *text = malloc(zeros + 64);
    memset(text, '0', zeros + 64);
    memcpy(text, "0.", 2);
    snprintf(text + zeros, 64, "15e%zu", zeros - 1);
    expect_whole_text(text);
    cr_assert_eq(bits_of(qd_json_number_to_float(&number)), bits_of(1.5f));

    memset(text, '0', zeros + 64);
    text[0] = '2';
    snprintf(text + zeros, 64, ".5e-%zu", zeros - 2);
    expect_whole_text(text);
    cr_assert_eq(bits_of(qd_json_number_to_float(&number)), bits_of(20.0f));

    memset(text, '0', zeros + 64); /* just above the midpoint 1 + 2^-24 */
    memcpy(text, "1.000000059604644775390625", 26);
    text[zeros] = '1';
    text[zeros + 1] = '\0';
    expect_whole_text(text);
    cr_assert_eq(bits_of(qd_json_number_to_float(&number)), bits_of(1.0f) + 1);
    text[zeros] = '0';
    expect_whole_text(text);
    cr_assert_eq(bits_of(qd_json_number_to_float(&number)), bits_of(1.0f));
    free(text);
}

/* ---- Printed floats ---------------------------------------------------------------------- */

static size_t significant_digits(const char *text)
{
    size_t count = 0;
    size_t zeros = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text >= '1' && *text <= '9') {
            count += zeros + 1;
            zeros = 0;
        } else if (*text == '0' && count > 0) {
            zeros++;
        }
    }
    return count;
}

static size_t fewest_digits(float value)
{
    for (int digits = 1;; digits++) {
        char text[32];
        snprintf(text, sizeof(text), "%.*e", digits - 1, (double)value);
        if (strtof(text, NULL) == value)
            return significant_digits(text);
    }
}

/* Returns true if the value is printed with all digits instead of the fewest. */
static bool is_large_whole(float value)
{
    return fabsf(value) >= 16777216 && fabsf(value) < 1e9f;
}

static void expect_shortest(uint32_t bits)
{
    char text[QD_PRINT_BYTES_MAX + 1];
    float value = float_of(bits);
    *qd_print_float(text, value) = '\0';
    cr_assert_eq(bits_of(strtof(text, NULL)), bits, "%08x: %s", bits, text);
    expect_whole_text(text);
    cr_assert_eq(bits_of(qd_json_number_to_float(&number)), bits, "%08x: %s", bits, text);
    if (is_large_whole(value))
        return;
    cr_assert_leq(significant_digits(text), fewest_digits(value), "%08x: %s", bits, text);
}

Test(json_number, floats_print_shortest_around_every_power_of_two)
{
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        uint32_t bits = exponent << 23;
        for (uint32_t i = 0; i < 5; i++) {
            if (exponent > 0 || i > 0) {
                expect_shortest(bits + i);
                expect_shortest((bits + i) | 0x80000000);
            }
            expect_shortest(bits + 0x7fffff - i);
        }
    }
}

Test(json_number, floats_print_shortest_for_random_bits)
{
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)random_bits();
        if (isfinite(float_of(bits)) && bits << 1 != 0)
            expect_shortest(bits);
    }
}

/* Of the shortest decimals, the closest one must be printed. "%.*e" with that many digits gives
 * it. */
Test(json_number, floats_print_the_closest_of_the_shortest)
{
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)random_bits() & 0x7fffffff;
        if (bits >= 0x7f800000 || bits == 0 || is_large_whole(float_of(bits)))
            continue;
        float value = float_of(bits);
        char text[QD_PRINT_BYTES_MAX + 1];
        char rounded[32];
        *qd_print_float(text, value) = '\0';
        snprintf(rounded, sizeof(rounded), "%.*e", (int)fewest_digits(value) - 1, (double)value);
        cr_assert_eq(strtod(text, NULL), strtod(rounded, NULL), "%s, %s", text, rounded);
    }
}

/* A client that reads a whole number as an integer must get the float's exact value, not one near
 * it. */
Test(json_number, floats_that_are_large_whole_numbers_print_all_digits)
{
    for (int i = 0; i < 100000; i++) {
        float value = (float)(16777216 + random_bits() % (1000000000 - 16777216));
        if (value >= 1e9f)
            continue;
        char text[QD_PRINT_BYTES_MAX + 1];
        char wanted[32];
        *qd_print_float(text, value) = '\0';
        snprintf(wanted, sizeof(wanted), "%.0f", (double)value);
        cr_assert_str_eq(text, wanted);
    }
}

/* The text may end anywhere: far after a number, soon after it, or before its comma. */
Test(json_number, integers_are_read_in_a_row)
{
    static const char text[] = "0,-1,128,255,-32768,4294967295,-2147483648,7,65535,12,3,42,-9,";
    static const int64_t wanted[] = {0, -1,    128, 255, -32768, 4294967295, -2147483648,
                                     7, 65535, 12,  3,   42,     -9};
    enum { COUNT = sizeof(wanted) / sizeof(*wanted) };
    for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
        char *copy = malloc(bytes + 1); /* so that sanitizers see reads beyond the end */
        uint32_t values[COUNT];
        const char *at = memcpy(copy, text, bytes);
        const size_t read =
            qd_json_integers_read(&at, copy + bytes, INT32_MIN, UINT32_MAX, values, COUNT);
        size_t whole = 0;
        for (size_t i = 0; i < bytes; i++)
            whole += text[i] == ',';
        cr_assert_eq(read, whole, "%zu bytes: %zu of %zu", bytes, read, whole);
        for (size_t i = 0; i < read; i++)
            cr_assert_eq(values[i], (uint32_t)wanted[i], "%zu of %zu bytes", i, bytes);
        cr_assert(read == 0 ? at == copy : *at == ',', "%zu bytes", bytes);
        free(copy);
    }
}

Test(json_number, integers_in_a_row_stop_before_what_is_none)
{
    static const char *const bad[] = {"1,02,", "1,-0,", "1,-2,", "1,2.5,", "1,3e2,", "1,300,",
                                      "1,x,",  "1],2,", "1,2}",  "1,2",    "1,,"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint32_t values[4];
        char text[64];
        snprintf(text, sizeof(text), "%s%s", bad[i], "0000000000000000"); /* bytes of one load */
        for (int is_long = 0; is_long < 2; is_long++) {
            for (int is_signed = 0; is_signed < 2; is_signed++) {
                const char *begin = is_long ? text : bad[i];
                const char *at = begin;
                const bool is_one = is_signed == 0 || strcmp(bad[i], "1,-2,") != 0;
                cr_assert_eq(qd_json_integers_read(&at, at + strlen(at), is_signed ? -128 : 0,
                                                   is_signed ? 127 : 255, values, 4),
                             is_one ? 1 : 2, "%s", begin);
                cr_assert_eq(at, begin + (is_one ? 1 : 4), "%s", begin);
            }
        }
    }
}

/* Numbers of more than 16 digits are left to the caller. */
Test(json_number, int64s_are_read_in_a_row)
{
    static const char text[] = "0,-1,9999999999999999,-4294967296,7,10000000000000000,1";
    static const int64_t wanted[] = {0, -1, 9999999999999999, -4294967296, 7};
    enum { COUNT = sizeof(wanted) / sizeof(*wanted) };
    int64_t values[COUNT + 2];
    const char *at = text;
    cr_assert_eq(qd_json_int64s_read(&at, text + strlen(text), values, COUNT + 2), COUNT);
    cr_assert_eq(memcmp(values, wanted, sizeof(wanted)), 0);
    cr_assert_str_eq(at, ",10000000000000000,1");
    at = text;
    cr_assert_eq(qd_json_int64s_read(&at, text + strlen(text), values, 2), 2);
    cr_assert_eq(at, text + 4);
}

/* Reading stops after the last number of a row, and does not go on to the next row. */
Test(json_number, rows_end_at_brackets)
{
    static const char text[] = "[[7, 8 ],[12,13],[140,150] ,[0.5,2]]";
    static const struct {
        size_t from, count, end;
    } rows[] = {{2, 1, 3}, {10, 2, 15}, {18, 2, 25}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        uint32_t values[4];
        float floats[4];
        const char *at = text + rows[i].from;
        cr_assert_eq(qd_json_integers_read(&at, text + strlen(text), 0, 255, values, 4),
                     rows[i].count);
        cr_assert_eq(at, text + rows[i].end);
        at = text + rows[i].from;
        cr_assert_eq(qd_json_floats_read(&at, text + strlen(text), floats, 4), rows[i].count);
        cr_assert_eq(at, text + rows[i].end);
        for (size_t j = 0; j < rows[i].count; j++)
            cr_assert_eq(floats[j], (float)values[j]);
    }
}

Test(json_number, short_digits)
{
    static const struct {
        const char *text;
        size_t bytes; /* 0: none */
        uint64_t value;
    } cases[] = {{"0", 1, 0},
                 {"7]", 1, 7},
                 {"10.5", 2, 10},
                 {"999999999999999999", 18, UINT64_C(999999999999999999)},
                 {"999999999999999999,", 18, UINT64_C(999999999999999999)},
                 {"1000000000000000000", 0, 0},
                 {"01", 0, 0},
                 {"", 0, 0},
                 {"-1", 0, 0},
                 {"x", 0, 0},
                 {"\xff", 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *text = cases[i].text;
        uint64_t value;
        const char *end = qd_json_digits_read(text, text + strlen(text), &value);
        cr_assert_eq(end, cases[i].bytes == 0 ? NULL : text + cases[i].bytes, "%s", text);
        cr_assert(end == NULL || value == cases[i].value, "%s", text);
    }
}

/* The result must be the same as one by one. */
Test(json_number, floats_print_in_a_row)
{
    enum { COUNT = 40 };
    for (int round = 0; round < 2000; round++) {
        float values[COUNT];
        const size_t count = 1 + (size_t)round % COUNT;
        for (size_t i = 0; i < count; i++)
            values[i] = float_of((uint32_t)random_bits() & (i % 3 == 0 ? 0xc3ffffff : ~0u));
        values[count / 2] = round % 3 == 0 ? NAN : round % 3 == 1 ? -INFINITY : -0.0f;
        char *row = malloc(count * QD_PRINT_BYTES_MAX); /* for the sanitizer: exact size */
        const char *end = qd_print_floats(row, values, count);
        const char *at = row;
        for (size_t i = 0; i < count; i++) {
            char text[QD_PRINT_BYTES_MAX];
            size_t bytes = (size_t)(qd_print_float(text, values[i]) - text);
            cr_assert(memcmp(at, text, bytes) == 0 && at[bytes] == ',', "%a", (double)values[i]);
            at += bytes + 1;
        }
        cr_assert_eq(at, end);
        free(row);
    }
}

Test(json_number, floats_print_as_people_write_them)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {{0.0f, "0"},
                 {-0.0f, "-0.0"},
                 {1.0f, "1"},
                 {-64.0f, "-64"},
                 {0.5f, "0.5"},
                 {63.5f, "63.5"},
                 {0.1f, "0.1"},
                 {0.001f, "0.001"},
                 {0.00012f, "0.00012"},
                 {0.000012f, "1.2e-5"},
                 {100.0f, "100"},
                 {16777216.0f, "16777216"},
                 {33554436.0f, "33554436"},
                 {123456789.0f, "123456792"},
                 {-999999936.0f, "-999999936"},
                 {300000000.0f, "300000000"},
                 {1e9f, "1e9"},
                 {3.4028235e38f, "3.4028235e38"},
                 {1e-45f, "1e-45"},
                 {1.17549435e-38f, "1.1754944e-38"},
                 {3.14159274f, "3.1415927"},
                 {NAN, "\"NaN\""},
                 {INFINITY, "\"Infinity\""},
                 {-INFINITY, "\"-Infinity\""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[QD_PRINT_BYTES_MAX + 1];
        *qd_print_float(text, cases[i].value) = '\0';
        cr_assert_str_eq(text, cases[i].text);
    }
}

/* ---- Exactly, and to odd ----------------------------------------------------------------- */

static void expect_exact(const char *text, bool exact, float wanted)
{
    float value;
    cr_assert_eq(scan(text), strlen(text));
    cr_assert_eq(qd_json_number_exact(&number, &value), exact, "%s", text);
    cr_assert(!exact || bits_of(value) == bits_of(wanted), "%s", text);
}

Test(json_number, exact_floats)
{
    expect_exact("0", true, 0.0f);
    expect_exact("-0.000e99999999999999999999", true, -0.0f);
    expect_exact("0.5", true, 0.5f);
    expect_exact("-1.5e3", true, -1500.0f);
    expect_exact("16777216", true, 16777216.0f);
    expect_exact("16777217", false, 0);
    expect_exact("0.1", false, 0);
    expect_exact("5.9604644775390625e-8", true, 0x1p-24f);
    expect_exact("1e10", true, 1e10f);
    expect_exact("1e18", false, 0);
    expect_exact("0.50000000000000000000000000000000000", true, 0.5f);
    expect_exact("0.50000000000000000000000000000000001", false, 0);
    expect_exact("1e99999", false, 0);
    expect_exact("1e-99999", false, 0);
}

/* A number between two floats gives the odd one. A float gives itself. A number above the last
 * float gives infinity. */
Test(json_number, to_odd)
{
    static const struct {
        const char *text;
        float wanted;
    } cases[] = {
        {"1", 1.0f},
        {"1.00000000000000000000000000000000001", 0x1.000002p0f},
        {"0.99999999999999999999999999999999999", 0x1.fffffep-1f},
        {"1.00000012", 0x1.000002p0f},
        {"0.1", 0x1.99999ap-4f},
        {"1e-60", 0x1p-149f},
        {"-1e-400", -0x1p-149f},
        {"1e-45", 0x1p-149f},
        {"2e-45", 0x1p-149f},
        {"3e-45", 0x3p-149f},
        {"3.4028235e38", 0x1.fffffep127f},
        {"1e39", INFINITY},
        {"-1e400", -INFINITY},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_eq(scan(cases[i].text), strlen(cases[i].text));
        float got = qd_json_number_to_odd(&number);
        cr_assert_eq(bits_of(got), bits_of(cases[i].wanted), "%s: %a, expected %a", cases[i].text,
                     (double)got, (double)cases[i].wanted);
    }
}
