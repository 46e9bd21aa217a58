/* Floats of every type, converted between JSON text and bits. The expected results follow from the
 * definition of each format (exponent bits, mantissa bits, bias). They are computed in doubles,
 * which hold every value and midpoint exactly. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/element.h"
#include "server/json/number.h"

struct format {
    enum qk_type type;
    int exponent_bits, mantissa_bits, bias;
    uint32_t finite; /* the largest finite code, without sign */
    bool minus_zero;
};

static const struct format wide[] = {{QK_FP16, 5, 10, 15, 0x7bff, true},
                                     {QK_BF16, 8, 7, 127, 0x7f7f, true}};

static const struct format small[] = {{QK_FP4E2M1, 2, 1, 1, 0x7, true},
                                      {QK_FP8E4M3FN, 4, 3, 7, 0x7e, true},
                                      {QK_FP8E4M3FNUZ, 4, 3, 8, 0x7f, false},
                                      {QK_FP8E5M2, 5, 2, 15, 0x7b, true},
                                      {QK_FP8E5M2FNUZ, 5, 2, 16, 0x7f, false}};

enum { SMALL = sizeof(small) / sizeof(small[0]) };

/* Returns the value of a code without sign. Codes beyond the finite ones continue the sequence. */
static double value_of(const struct format *format, uint32_t code)
{
    uint32_t e = code >> format->mantissa_bits;
    uint32_t m = code & ((1u << format->mantissa_bits) - 1);
    if (e == 0)
        return ldexp(m, 1 - format->bias - format->mantissa_bits);
    return ldexp(m + (1u << format->mantissa_bits), (int)e - format->bias - format->mantissa_bits);
}

static uint32_t sign_of(const struct format *format)
{
    return 1u << (format->exponent_bits + format->mantissa_bits);
}

/* Reads a text as bits. The text is copied to its exact length, for the sanitizer. */
static bool read_text(enum qk_type type, const char *text, uint32_t *bits)
{
    size_t bytes = strlen(text);
    char *exact = malloc(bytes + (bytes == 0));
    memcpy(exact, text, bytes);
    const char *end = qd_json_float_read(type, exact, exact + bytes, bits);
    cr_assert(end == NULL || end == exact + bytes, "%s", text);
    free(exact);
    return end != NULL;
}

static void expect_bits(enum qk_type type, const char *text, uint32_t wanted)
{
    uint32_t bits = 0xdeadbeef;
    cr_assert(read_text(type, text, &bits), "%s %s", qk_type_info(type)->name, text);
    cr_assert_eq(bits, wanted, "%s %s: 0x%x, expected 0x%x", qk_type_info(type)->name, text, bits,
                 wanted);
}

static void expect_refused(enum qk_type type, const char *text)
{
    uint32_t bits;
    cr_assert_not(read_text(type, text, &bits), "%s %s", qk_type_info(type)->name, text);
}

/* ---- FP16 and BF16: rounded once --------------------------------------------------------- */

enum { TEXT_BYTES = 1200, TAIL = 300 };

/* Prints all digits of a value, with a decimal point. */
static void print_exactly(double value, char *text)
{
    snprintf(text, TEXT_BYTES, "%.150f", value);
    size_t count = strlen(text);
    while (text[count - 1] == '0' && text[count - 2] != '.')
        count--;
    text[count] = '\0';
}

/* Makes the number larger by 1 in the 300th digit after its last. */
static void put_above(char *text)
{
    char *end = text + strlen(text);
    memset(end, '0', TAIL);
    strcpy(end + TAIL, "1");
}

/* Makes the number, which ends in a point and a 0 or in a digit above 0, smaller by 1 in the 300th
 * digit after its last. */
static void put_below(char *text)
{
    char *end = text + strlen(text);
    memset(end, '9', TAIL);
    end[TAIL] = '\0';
    char *digit = end - 1;
    for (; *digit == '0' || *digit == '.'; digit--)
        *digit = *digit == '0' ? '9' : '.';
    --*digit;
}

/* Skips leading zeros, because JSON does not allow a 0 before other digits. */
static const char *without_zeros(const char *text)
{
    while (text[0] == '0' && text[1] != '.')
        text++;
    return text;
}

static void expect_rounded(const struct format *format, const char *text, uint32_t wanted)
{
    char negative[TEXT_BYTES] = "-";
    strcat(negative, text);
    if (wanted > format->finite) {
        expect_refused(format->type, text);
        expect_refused(format->type, negative);
    } else {
        expect_bits(format->type, text, wanted);
        expect_bits(format->type, negative, wanted | sign_of(format));
    }
}

/* Checks each midpoint, and numbers that differ from it in the 300th digit after its last, on both
 * sides. */
static void expect_midpoints(const struct format *format)
{
    for (uint32_t code = 0; code <= format->finite; code++) {
        double middle = (value_of(format, code) + value_of(format, code + 1)) / 2;
        char text[TEXT_BYTES];
        print_exactly(middle, text);
        expect_rounded(format, text, code + code % 2);
        put_above(text);
        expect_rounded(format, text, code + 1);
        print_exactly(middle, text);
        put_below(text);
        expect_rounded(format, without_zeros(text), code);
    }
}

Test(json_element, fp16_midpoints)
{
    expect_midpoints(&wide[0]);
}

Test(json_element, bf16_midpoints)
{
    expect_midpoints(&wide[1]);
}

/* Numbers like those that clients print from doubles: 17 digits, which may lie on a midpoint only
 * because they were rounded. */
Test(json_element, doubles_next_to_midpoints)
{
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t code = 0; code < wide[i].finite; code += 7) {
            double middle = (value_of(&wide[i], code) + value_of(&wide[i], code + 1)) / 2;
            char text[40];
            snprintf(text, sizeof(text), "%.17g", nextafter(middle, INFINITY));
            expect_rounded(&wide[i], text, code + 1);
            snprintf(text, sizeof(text), "%.17g", nextafter(middle, 0));
            expect_rounded(&wide[i], text, code);
        }
    }
}

/* A double or a float as an intermediate step would round these to the midpoint, and then to
 * even. */
Test(json_element, rounded_once)
{
    expect_bits(QK_FP16, "2049.00000000000000001", 0x6801);
    expect_bits(QK_FP16, "2049.0000001", 0x6801);
    expect_bits(QK_FP16, "2049", 0x6800);
    expect_bits(QK_FP16, "2050.9999999999999999", 0x6801);
    expect_bits(QK_BF16, "257.00000000000000001", 0x4381);
    expect_bits(QK_BF16, "257", 0x4380);
    expect_bits(QK_FP16, "2.98023223876953125e-8", 0x0000);
    expect_bits(QK_FP16, "2.980232238769531250000000000000000001e-8", 0x0001);
    expect_bits(QK_BF16, "1e-9999999999", 0x0000);
    expect_bits(QK_BF16, "-1e-9999999999", 0x8000);
    expect_bits(QK_BF16, "0.1", 0x3dcd);
    expect_bits(QK_FP16, "0.1", 0x2e66);
    expect_bits(QK_FP16, "1e-7", 0x0002);
    expect_bits(QK_FP16, "-0", 0x8000);
}

Test(json_element, beyond_the_range)
{
    expect_bits(QK_FP16, "65504", 0x7bff);
    expect_bits(QK_FP16, "65519.999999999999999999999", 0x7bff);
    expect_refused(QK_FP16, "65520");
    expect_refused(QK_FP16, "-65520.0");
    expect_refused(QK_FP16, "1e400");
    expect_bits(QK_BF16, "339617752923046005526922703901628039167.9", 0x7f7f);
    expect_refused(QK_BF16, "339617752923046005526922703901628039168");
    expect_refused(QK_BF16, "1e39");
    expect_refused(QK_BF16, "-1e9999999999");
}

/* ---- Eight bits and less: exact or refused ----------------------------------------------- */

Test(json_element, every_value_of_the_small_types)
{
    for (size_t i = 0; i < SMALL; i++) {
        for (uint32_t code = 0; code <= small[i].finite; code++) {
            char text[64];
            snprintf(text, sizeof(text), "%.17g", value_of(&small[i], code));
            expect_bits(small[i].type, text, code);
            snprintf(text, sizeof(text), "-%.17g", value_of(&small[i], code));
            if (code > 0 || small[i].minus_zero)
                expect_bits(small[i].type, text, code | sign_of(&small[i]));
            else
                expect_refused(small[i].type, text);
            snprintf(text, sizeof(text), "%.40e", value_of(&small[i], code));
            expect_bits(small[i].type, text, code);
        }
    }
}

static void expect_expected(enum qk_type type, const char *text, const char *wanted)
{
    char got[120];
    expect_refused(type, text);
    qd_json_float_expected(type, text, text + strlen(text), got, sizeof(got));
    cr_assert_str_eq(got, wanted, "%s", text);
}

/* A number between two values is refused. The text names both values, with their sign. */
Test(json_element, nothing_in_between)
{
    for (size_t i = 0; i < SMALL; i++) {
        for (uint32_t code = 0; code < small[i].finite; code++) {
            double low = value_of(&small[i], code);
            double high = value_of(&small[i], code + 1);
            char near[2][QD_PRINT_BYTES_MAX];
            char text[64];
            char wanted[120];
            snprintf(near[0], sizeof(near[0]), "%.17g", low);
            snprintf(near[1], sizeof(near[1]), "%.17g", high);
            snprintf(text, sizeof(text), "%.17g", (low + high) / 2);
            snprintf(wanted, sizeof(wanted), "a value of %s, such as %s or %s",
                     qk_type_info(small[i].type)->name, near[0], near[1]);
            expect_expected(small[i].type, text, wanted);
            snprintf(text, sizeof(text), "-%.17g", (low + high) / 2);
            snprintf(wanted, sizeof(wanted), "a value of %s, such as %s%s or -%s",
                     qk_type_info(small[i].type)->name, code > 0 ? "-" : "", near[0], near[1]);
            expect_expected(small[i].type, text, wanted);
        }
    }
}

Test(json_element, any_spelling_of_a_value)
{
    char text[TEXT_BYTES];
    static const char *const forms[] = {"448",
                                        "448.0",
                                        "4.48e2",
                                        "0.448E+3",
                                        "44800e-2",
                                        "448000000000000000000000000000e-27",
                                        "0.0000000000000000000000000000000000000000448e43"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        expect_bits(QK_FP8E4M3FN, forms[i], 0x7e);
    strcpy(text, "448.");
    memset(text + 4, '0', TAIL);
    text[4 + TAIL] = '\0';
    expect_bits(QK_FP8E4M3FN, text, 0x7e);
    text[3 + TAIL] = '1';
    expect_refused(QK_FP8E4M3FN, text);
    expect_refused(QK_FP8E4M3FN, "447.99999999999999999999999999999999999999999999999999999999");
    expect_refused(QK_FP8E4M3FN, "448e18");
    expect_refused(QK_FP8E4M3FN, "448e-40");
    expect_refused(QK_FP8E4M3FN, "1e-9999999999");
    expect_refused(QK_FP8E4M3FN, "1e9999999999");
}

Test(json_element, beyond_the_last_value)
{
    expect_expected(QK_FP4E2M1, "6.5", "a value of FP4E2M1, such as 6");
    expect_expected(QK_FP4E2M1, "-1e99", "a value of FP4E2M1, such as -6");
    expect_expected(QK_FP8E4M3FN, "449", "a value of FP8E4M3FN, such as 448");
    expect_expected(QK_FP8E5M2, "65536", "a value of FP8E5M2, such as 57344");
    expect_expected(QK_FP8E4M3FNUZ, "-0", "a value of FP8E4M3FNUZ, such as 0");
    expect_expected(QK_FP8E5M2FNUZ, "-0.0", "a value of FP8E5M2FNUZ, such as 0");
}

/* Powers of two as exact decimals, as doubles print them, and as floats print them. */
Test(json_element, powers_of_two)
{
    for (uint32_t code = 0; code < 255; code++) {
        static const char *const formats[] = {"%.9g", "%.17g", "%.100e"};
        for (size_t i = 0; i < 3; i++) {
            char text[160];
            snprintf(text, sizeof(text), formats[i], ldexp(1, (int)code - 127));
            expect_bits(QK_FP8E8M0, text, code);
            snprintf(text, sizeof(text), formats[i], ldexp(1.5, (int)code - 127));
            expect_refused(QK_FP8E8M0, text);
        }
    }
    expect_expected(QK_FP8E8M0, "0", "a value of FP8E8M0, such as 5.877472e-39");
    expect_expected(QK_FP8E8M0, "-2", "a value of FP8E8M0, such as 5.877472e-39");
    expect_expected(QK_FP8E8M0, "3", "a value of FP8E8M0, such as 2 or 4");
    expect_expected(QK_FP8E8M0, "1e99", "a value of FP8E8M0, such as 1.7014118e38");
}

/* ---- Words ------------------------------------------------------------------------------- */

static void expect_words(enum qk_type type, const char *word, bool has, uint32_t bits)
{
    char quoted[16];
    snprintf(quoted, sizeof(quoted), "\"%s\"", word);
    if (has) {
        expect_bits(type, word, bits);
        expect_bits(type, quoted, bits);
    } else {
        expect_refused(type, word);
        expect_refused(type, quoted);
    }
}

Test(json_element, words_where_the_type_has_them)
{
    static const struct {
        enum qk_type type;
        bool nan, infinity;
        uint32_t nan_bits, infinity_bits, sign;
    } all[] = {{QK_FP32, true, true, 0x7fc00000, 0x7f800000, 0x80000000},
               {QK_FP16, true, true, 0x7e00, 0x7c00, 0x8000},
               {QK_BF16, true, true, 0x7fc0, 0x7f80, 0x8000},
               {QK_FP4E2M1, false, false, 0, 0, 0},
               {QK_FP8E4M3FN, true, false, 0x7f, 0, 0},
               {QK_FP8E4M3FNUZ, true, false, 0x80, 0, 0},
               {QK_FP8E5M2, true, true, 0x7f, 0x7c, 0x80},
               {QK_FP8E5M2FNUZ, true, false, 0x80, 0, 0},
               {QK_FP8E8M0, true, false, 0xff, 0, 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        expect_words(all[i].type, "NaN", all[i].nan, all[i].nan_bits);
        expect_words(all[i].type, "Infinity", all[i].infinity, all[i].infinity_bits);
        expect_words(all[i].type, "-Infinity", all[i].infinity, all[i].infinity_bits | all[i].sign);
    }
}

Test(json_element, no_words)
{
    static const char *const bad[] = {"",       "-",          "nan",      "\"NaN",   "NaN\"",
                                      "\"NaN ", "Infinity\"", "-NaN",     "inf",     "\"\"",
                                      "\"",     "\"1\"",      "NaN1",     "1NaN",    "\"Infinity",
                                      "null",   "true",       "-\"NaN\"", "\"NaN\"x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++)
            if (qk_type_info(type)->kind == QK_KIND_FLOAT)
                expect_refused(type, bad[i]);
    expect_expected(QK_FP4E2M1, "NaN", "a value of FP4E2M1");
    expect_expected(QK_FP8E8M0, "true", "a value of FP8E8M0 or \"NaN\"");
    expect_expected(QK_FP8E5M2, "[", "a value of FP8E5M2, \"NaN\", \"Infinity\" or \"-Infinity\"");
    expect_expected(QK_BF16, "x",
                    "a number in the range of BF16, \"NaN\", \"Infinity\" or \"-Infinity\"");
    expect_expected(QK_FP16, "65520",
                    "a number in the range of FP16, \"NaN\", \"Infinity\" or \"-Infinity\"");
}

/* ---- Printing ---------------------------------------------------------------------------- */

static void expect_print(enum qk_type type, uint32_t bits, const char *wanted)
{
    char text[QD_PRINT_BYTES_MAX + 1];
    *qd_json_float_print(type, bits, text) = '\0';
    cr_assert_str_eq(text, wanted);
}

Test(json_element, prints_a_value_that_is_fp32)
{
    expect_print(QK_FP16, 0x2e66, "0.099975586");
    expect_print(QK_FP16, 0x0001, "5.9604645e-8");
    expect_print(QK_BF16, 0x3dcd, "0.100097656");
    expect_print(QK_BF16, 0x8000, "-0.0");
    expect_print(QK_FP4E2M1, 0xf, "-6");
    expect_print(QK_FP8E5M2, 0x01, "1.52587890625e-05");
    expect_print(QK_FP8E5M2, 0x80, "-0.0");
    expect_print(QK_FP8E8M0, 0x00, "5.877472e-39");
    expect_print(QK_FP8E8M0, 0xff, "\"NaN\"");
    expect_print(QK_FP8E5M2, 0xfc, "\"-Infinity\"");
    expect_print(QK_FP8E4M3FNUZ, 0x80, "\"NaN\"");
    expect_print(QK_FP16, 0x7c00, "\"Infinity\"");
}

/* Every code of every type except FP32 must read back as itself, a NaN as a NaN. */
Test(json_element, what_is_printed_reads_back)
{
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        const struct qk_type_info *info = qk_type_info(type);
        if (info->kind != QK_KIND_FLOAT || info->bits > 16)
            continue;
        for (uint32_t bits = 0; bits < UINT32_C(1) << info->bits; bits++) {
            char text[QD_PRINT_BYTES_MAX + 1];
            uint32_t back;
            *qd_json_float_print(type, bits, text) = '\0';
            cr_assert(read_text(type, text, &back), "%s %s", info->name, text);
            cr_assert(back == bits || (isnan(qk_float_decode(type, back)) &&
                                       isnan(qk_float_decode(type, bits))),
                      "%s %s: 0x%x, expected 0x%x", info->name, text, back, bits);
        }
    }
}
