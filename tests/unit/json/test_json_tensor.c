#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "server/json/tensor.h"
#include "tests/support/random.h"
#include "tests/unit/scratch.h"

/* Shapes of tests, ended by END. */
#define END ((size_t)-1)

static struct qd_error error;
static char *out; /* of the exact size that the contract asks for, for the sanitizer */

static struct qk_tensor tensor_of(enum qk_type type, const size_t *dims)
{
    struct qk_tensor tensor = {.type = type};
    for (; dims[tensor.rank] != END; tensor.rank++)
        tensor.dims[tensor.rank] = dims[tensor.rank];
    cr_assert(qk_tensor_set_count(&tensor));
    return tensor;
}

/* Checks that reading all at once gives the same as reading in one piece. */
static void check_row(const struct qd_json_value *data, const struct qk_tensor *tensor,
                      size_t bytes, bool is_read)
{
    char *row = malloc(bytes + (bytes == 0));
    if (qd_json_row_read(data, tensor, row))
        cr_assert(is_read && memcmp(row, out, bytes) == 0, "%.*s", (int)data->bytes, data->text);
    free(row);
}

/* Reads the text in pieces, the last one first. The error is that of the first piece that is
 * refused. */
static enum qd_status read_pieces(const char *text, const struct qk_tensor *tensor,
                                  size_t piece_bytes)
{
    static struct qd_json_mark marks[4096];
    struct qd_json_data data = {0};
    const size_t count = strlen(text);
    char *exact = malloc(count + (count == 0));
    memcpy(exact, text, count);
    const char *marked = exact;
    for (size_t i = 0, quotes = 0; i < count; i++) {
        quotes += exact[i] == '"';
        data.commas += exact[i] == ',' && quotes % 2 == 0;
        if (exact[i] != ',' || quotes % 2 != 0 || data.commas % QD_JSON_MARK_ELEMENTS != 0 ||
            (size_t)(exact + i - marked) < piece_bytes)
            continue;
        marked = exact + i + 1;
        marks[data.mark_count++] = (struct qd_json_mark){marked, data.commas};
    }
    const struct qd_json_value value = {QD_JSON_DATA, .text = exact, .bytes = count, .data = &data};
    const size_t come = data.commas + 1;
    size_t bytes;
    struct qd_json_numbers numbers;
    enum qd_status status = QD_OK;
    cr_assert(qk_type_bytes(tensor->type, tensor->count < come ? tensor->count : come, &bytes));
    out = realloc(out, bytes + (bytes == 0));
    qd_json_numbers_init(&numbers, &value, marks, tensor);
    numbers.out = out;
    error.text[0] = '\0';
    for (size_t piece = data.mark_count + 1; piece-- > 0;) {
        enum qd_status own = qd_json_numbers_read(&numbers, piece, NULL, NULL);
        if (own == QD_OK)
            continue;
        status = own;
        cr_assert_eq(qd_json_numbers_read(&numbers, piece, "x", &error), own);
    }
    check_row(&value, tensor, bytes, status == QD_OK);
    free(exact);
    return status;
}

static enum qd_status read_text(const char *text, const struct qk_tensor *tensor)
{
    const enum qd_status status = read_pieces(text, tensor, 1);
    const struct qd_error first = error;
    cr_assert_eq(read_pieces(text, tensor, SIZE_MAX), status, "%s", text);
    cr_assert_str_eq(error.text, first.text);
    return status;
}

/* A shape, as the arguments of expect_*. */
#define SHAPE(...) ((const size_t[]){__VA_ARGS__, END})
#define SCALAR ((const size_t[]){END})

static void expect_read(const char *text, enum qk_type type, const size_t *dims, const void *wanted,
                        size_t wanted_bytes)
{
    struct qk_tensor tensor = tensor_of(type, dims);
    cr_assert_eq(read_text(text, &tensor), QD_OK, "%s: %s", text, error.text);
    cr_assert_eq(memcmp(out, wanted, wanted_bytes), 0, "%s", text);
}

static void expect_error(const char *text, enum qk_type type, const size_t *dims,
                         const char *wanted)
{
    struct qk_tensor tensor = tensor_of(type, dims);
    cr_assert_eq(read_text(text, &tensor), QD_INVALID, "%s", text);
    cr_assert_str_eq(error.text, wanted);
}

/* ---- What is read ------------------------------------------------------------------------ */

Test(json_tensor, integers)
{
    expect_read("[0,255,128,7]", QK_UINT8, SHAPE(4), "\x00\xff\x80\x07", 4);
    expect_read("[-128,127,-1,0]", QK_INT8, SHAPE(4), "\x80\x7f\xff\x00", 4);
    expect_read("[-2147483648,2147483647,-1,0]", QK_INT32, SHAPE(4),
                ((int32_t[]){INT32_MIN, INT32_MAX, -1, 0}), 16);
}

Test(json_tensor, integers_of_other_widths)
{
    expect_read("[0,65535]", QK_UINT16, SHAPE(2), ((uint16_t[]){0, UINT16_MAX}), 4);
    expect_read("[-32768,32767]", QK_INT16, SHAPE(2), ((int16_t[]){INT16_MIN, INT16_MAX}), 4);
    expect_read("[0,4294967295]", QK_UINT32, SHAPE(2), ((uint32_t[]){0, UINT32_MAX}), 8);
}

Test(json_tensor, int64)
{
    expect_read("[0,-1,9223372036854775807,-9223372036854775808,9007199254740993]", QK_INT64,
                SHAPE(5), ((int64_t[]){0, -1, INT64_MAX, INT64_MIN, 9007199254740993}), 40);
    expect_read("[[1, 2],[\"-9223372036854775808\",\"3\" ]]", QK_INT64, SHAPE(2, 2),
                ((int64_t[]){1, 2, INT64_MIN, 3}), 32);
    expect_read("[12345678901234567,1234567890123456,123456789012345678]", QK_INT64, SHAPE(3),
                ((int64_t[]){12345678901234567, 1234567890123456, 123456789012345678}), 24);
    expect_read("7", QK_INT64, SCALAR, &(int64_t){7}, 8);
    expect_read("\"7\"", QK_INT64, SCALAR, &(int64_t){7}, 8);
}

Test(json_tensor, bools)
{
    expect_read("[true,false, true ,0,1,false]", QK_BOOL, SHAPE(6), "\1\0\1\0\1\0", 6);
    expect_read("[[0,1],[1,1]]", QK_BOOL, SHAPE(2, 2), "\0\1\1\1", 4);
    expect_read("[[true],[false]]", QK_BOOL, SHAPE(2, 1), "\1\0", 2);
    expect_read("true", QK_BOOL, SCALAR, "\1", 1);
}

/* The low bits come first, rows are not aligned, and the bits after the last element are 0. */
Test(json_tensor, packed_elements)
{
    expect_read("[-8,7,0,-1,3]", QK_INT4, SHAPE(5), "\x78\xf0\x03", 3);
    expect_read("[[1,2,3],[15,0,9]]", QK_UINT4, SHAPE(2, 3), "\x21\xf3\x90", 3);
    expect_read("[-2,-1,0,1,-2]", QK_INT2, SHAPE(5), "\x4e\x02", 2);
    expect_read("[0,1,2,3,3,2]", QK_UINT2, SHAPE(2, 3), "\xe4\x0b", 2);
    expect_read("[0,0.5,-6,-0,4]", QK_FP4E2M1, SHAPE(5), "\x10\x8f\x06", 3);
    expect_read("[3]", QK_UINT2, SCALAR, "\x03", 1);
    expect_read("[]", QK_INT4, SHAPE(0), "", 0);
}

/* Reading eight bytes of text at a time or one element at a time must give the same bits. */
Test(json_tensor, packed_elements_at_every_place)
{
    char text[256] = "[";
    unsigned char wanted[20] = {0};
    for (size_t i = 0; i < 40; i++) {
        char element[8];
        unsigned value = (unsigned)(i * 7 % 16);
        snprintf(element, sizeof(element), "%s%u", i == 0 ? "" : ",", value);
        strcat(text, element);
        wanted[i / 2] |= (unsigned char)(value << i % 2 * 4);
    }
    expect_read(strcat(text, "]"), QK_UINT4, SHAPE(40), wanted, 20);
}

static bool is_row(const char *text, enum qk_type type, const size_t *dims)
{
    struct qd_json_data data = {0};
    struct qk_tensor tensor = tensor_of(type, dims);
    const struct qd_json_value value = {QD_JSON_DATA, .text = text, .bytes = strlen(text),
                                        .data = &data};
    for (const char *at = text; *at != '\0'; at++)
        data.commas += *at == ',';
    char *row = malloc(tensor.count * 4);
    const bool is_read = qd_json_row_read(&value, &tensor, row);
    free(row);
    return is_read;
}

Test(json_tensor, short_rows_are_read_at_once)
{
    char text[300] = "[0";
    for (int i = 1; i < 64; i++)
        sprintf(text + strlen(text), ",%d", i);
    strcat(text, "]");
    cr_assert(is_row(text, QK_UINT8, SHAPE(64)));
    cr_assert(is_row(text, QK_FP32, SHAPE(8, 8)));
    strcpy(text + strlen(text) - 1, ",64]");
    cr_assert(!is_row(text, QK_UINT8, SHAPE(65))); /* longer than must be supported */
    cr_assert(is_row("[0.5]", QK_FP32, SCALAR));
    cr_assert(is_row("[ -128, 127]", QK_INT8, SHAPE(2)));
    cr_assert(is_row("[1,-2,0]", QK_INT4, SHAPE(3)));
}

Test(json_tensor, others_are_no_rows)
{
    cr_assert(!is_row("0.5", QK_FP32, SCALAR));
    cr_assert(!is_row("", QK_FP32, SCALAR));
    cr_assert(!is_row("[]", QK_FP32, SHAPE(0)));
    cr_assert(!is_row("[1,2]", QK_FP32, SHAPE(3)));
    cr_assert(!is_row("[1,2]", QK_FP32, SHAPE(1)));
    cr_assert(!is_row("[1,2", QK_UINT8, SHAPE(2)));
    cr_assert(!is_row("[1,2]]", QK_UINT8, SHAPE(2)));
    cr_assert(!is_row("[1,2]5", QK_UINT8, SHAPE(2)));
    cr_assert(!is_row("[[1],[2]]", QK_UINT8, SHAPE(2, 1)));
    cr_assert(!is_row("[1]2,3]", QK_UINT8, SHAPE(2)));
    cr_assert(!is_row("[1,256]", QK_UINT8, SHAPE(2)));
    cr_assert(!is_row("[1,\"NaN\"]", QK_FP32, SHAPE(2)));
    cr_assert(!is_row("[1,1e39]", QK_FP32, SHAPE(2)));
    cr_assert(!is_row("[0.5,1]", QK_FP16, SHAPE(2)));
}

Test(json_tensor, floats_of_other_widths)
{
    expect_read("[0.1,-65504,6e-8,-0]", QK_FP16, SHAPE(4),
                ((uint16_t[]){0x2e66, 0xfbff, 0x0001, 0x8000}), 8);
    expect_read("[0.1,\"-Infinity\"]", QK_BF16, SHAPE(2), ((uint16_t[]){0x3dcd, 0xff80}), 4);
    expect_read("[448,\"NaN\",-0.5]", QK_FP8E4M3FN, SHAPE(3), "\x7e\x7f\xb0", 3);
    expect_read("[1,0.5]", QK_FP8E8M0, SHAPE(2), "\x7f\x7e", 2);
}

Test(json_tensor, floats)
{
    expect_read("[0.1,-0.0,-0,1e-45,3.4028235e38,16777217,5]", QK_FP32, SHAPE(7),
                ((float[]){0.1f, -0.0f, -0.0f, 1e-45f, 3.4028235e38f, 16777216.0f, 5.0f}), 28);
}

Test(json_tensor, words_for_non_finite_floats)
{
    struct qk_tensor tensor = tensor_of(QK_FP32, SHAPE(6));
    cr_assert_eq(read_text("[\"NaN\",NaN,\"Infinity\",Infinity,\"-Infinity\",-Infinity]", &tensor),
                 QD_OK, "%s", error.text);
    float got[6];
    memcpy(got, out, sizeof(got));
    cr_assert(isnan(got[0]) && isnan(got[1]));
    cr_assert(got[2] > 0 && isinf(got[2]) && got[3] > 0 && isinf(got[3]));
    cr_assert(got[4] < 0 && isinf(got[4]) && got[5] < 0 && isinf(got[5]));
}

Test(json_tensor, whitespace_anywhere_between)
{
    expect_read("[ 1 , 2,\n3\t,\r4 ]", QK_UINT8, SHAPE(4), "\x01\x02\x03\x04", 4);
    expect_read("[ [ 1 , 2 ] , [ 3 , 4 ] ]", QK_UINT8, SHAPE(2, 2), "\x01\x02\x03\x04", 4);
    expect_read("[1,  2,   3, 4,  5,  6,  7,  8]", QK_UINT8, SHAPE(8),
                "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
}

Test(json_tensor, scalars)
{
    expect_read("[7]", QK_UINT8, SCALAR, "\x07", 1);
    expect_read("7", QK_UINT8, SCALAR, "\x07", 1);
    expect_read("-7", QK_INT8, SCALAR, "\xf9", 1);
    expect_read("0.5", QK_FP32, SCALAR, &(float){0.5f}, 4);
}

Test(json_tensor, nested_to_the_shape)
{
    expect_read("[[[1,2,3]],[[4,5,6]]]", QK_UINT8, SHAPE(2, 1, 3), "\1\2\3\4\5\6", 6);
    expect_read("[[1],[2]]", QK_UINT8, SHAPE(2, 1), "\1\2", 2);
    expect_read("[1,2,3,4,5,6]", QK_UINT8, SHAPE(2, 1, 3), "\1\2\3\4\5\6", 6);
    char deepest[80] = "";
    size_t dims[QK_RANK_MAX + 1];
    for (size_t i = 0; i < QK_RANK_MAX; i++) {
        strcat(deepest, "[");
        dims[i] = 1;
    }
    dims[QK_RANK_MAX] = END;
    strcat(deepest, "9");
    memset(deepest + strlen(deepest), ']', QK_RANK_MAX);
    expect_read(deepest, QK_UINT8, dims, "\x09", 1);
}

Test(json_tensor, empty)
{
    expect_read("[]", QK_UINT8, SHAPE(0), "", 0);
    expect_read("[ ]", QK_FP32, SHAPE(2, 0), "", 0);
    expect_read("[[],[ ]]", QK_UINT8, SHAPE(2, 0), "", 0);
    expect_read("[[],[]]", QK_UINT8, SHAPE(2, 0, 3), "", 0);
    expect_read("[]", QK_UINT8, SHAPE(0, 3), "", 0);
    expect_read("[[[]],[[]]]", QK_UINT8, SHAPE(2, 1, 0), "", 0);
}

/* Reading eight bytes at a time or one by one must give the same numbers, at every length and
 * place. */
Test(json_tensor, every_small_integer_at_every_place)
{
    for (int spaces = 0; spaces < 2; spaces++) {
        char *text = malloc(256 * 6 + 3);
        char *at = text;
        unsigned char wanted[256];
        for (int i = 0; i < 256; i++) {
            wanted[i] = (unsigned char)(i * 7);
            at += sprintf(at, "%s%s%d", i == 0 ? "[" : ",", spaces ? " " : "", wanted[i]);
        }
        strcpy(at, "]");
        expect_read(text, QK_UINT8, SHAPE(256), wanted, 256);
        at = text;
        for (int i = 0; i < 256; i++)
            at += sprintf(at, "%s%d", i == 0 ? "[" : ",", (signed char)wanted[i]);
        strcpy(at, "]");
        expect_read(text, QK_INT8, SHAPE(256), wanted, 256);
        free(text);
    }
}

/* Like every_small_integer_at_every_place, up to the ends of the range. */
Test(json_tensor, integers_of_every_length_at_every_place)
{
    enum { COUNT = 400 };
    static char text[COUNT * 13 + 2];
    static int32_t wanted[COUNT];
    for (int spaces = 0; spaces < 2; spaces++) {
        char *at = text;
        uint64_t random = 1;
        for (int i = 0; i < COUNT; i++) {
            const uint64_t bits = random_next(&random);
            wanted[i] = (int32_t)(bits >> 32) >> (bits >> 27 & 31);
            if (i % 50 == 49)
                wanted[i] = i % 100 == 99 ? INT32_MIN : INT32_MAX;
            at += sprintf(at, "%s%s%d", i == 0 ? "[" : ",", spaces ? " " : "", wanted[i]);
        }
        strcpy(at, "]");
        expect_read(text, QK_INT32, SHAPE(COUNT), wanted, sizeof(wanted));
    }
}

/* strtof rounds correctly. */
Test(json_tensor, floats_of_every_length_at_every_place)
{
    enum { COUNT = 2000 };
    static char text[COUNT * 32 + 2];
    static float wanted[COUNT];
    uint64_t random = 1;
    for (int spaces = 0; spaces < 2; spaces++) {
        char *at = text;
        for (int i = 0; i < COUNT; i++) {
            static const char *const forms[] = {"%.*g", "%.*e", "%.*f"};
            const uint64_t bits = random_next(&random);
            const double value = ldexp((double)(int64_t)bits, (int)(bits >> 20 & 31) - 80);
            at += sprintf(at, "%s%s", i == 0 ? "[" : ",", spaces ? "\n " : "");
            const char *number = at;
            at += sprintf(at, forms[bits >> 30 & 1 ? 2 : i % 2], 1 + i % 19, value);
            wanted[i] = strtof(number, NULL);
        }
        strcpy(at, "]");
        expect_read(text, QK_FP32, SHAPE(COUNT), wanted, sizeof(wanted));
    }
}

/* ---- What is refused --------------------------------------------------------------------- */

/* Tries a bad element at each place of a long array. Every way of reading must refuse it. */
static void expect_refused_at_every_place(const char *bad, enum qk_type type)
{
    for (size_t place = 0; place < 24; place++) {
        char text[160] = "[";
        for (size_t j = 0; j < 24; j++) {
            strcat(text, j == 0 ? "" : ",");
            strcat(text, j == place ? bad : "10");
        }
        strcat(text, "]");
        struct qk_tensor tensor = tensor_of(type, SHAPE(24));
        cr_assert_eq(read_text(text, &tensor), QD_INVALID, "%s", text);
        char where[32];
        snprintf(where, sizeof(where), "element %zu", place);
        cr_assert_not_null(strstr(error.text, where), "%s: %s", text, error.text);
    }
}

Test(json_tensor, bad_integers_at_every_place)
{
    static const char *const bad[] = {"256",
                                      "-1",
                                      "1.0",
                                      "1e2",
                                      "-0",
                                      "00",
                                      "01",
                                      "+1",
                                      "0x1",
                                      "\"1\"",
                                      "true",
                                      "null",
                                      "NaN",
                                      "1 2",
                                      "",
                                      "-",
                                      "1234567",
                                      "12345678",
                                      "123456789",
                                      "99999999999999999999",
                                      "1a",
                                      "--1",
                                      "{}",
                                      "[1]",
                                      "\x80",
                                      "1:",
                                      "000",
                                      "-00",
                                      "1234567812345678",
                                      "12345678123456780",
                                      "4294967297",
                                      "18446744073709551617"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_refused_at_every_place(bad[i], QK_UINT8);
}

Test(json_tensor, bad_floats_at_every_place)
{
    static const char *const bad[] = {"01",     "-01",   "1.",    "1.e5", ".5",   "+1",
                                      "1e",     "1e+",   "1.5e-", "--1",  "-",    "",
                                      "1 2",    "1.5.5", "0x1",   "1a",   "1.5f", "nan",
                                      "inf",    "true",  "null",  "{}",   "[1]",  "1e39",
                                      "-1e400", "\x80",  "1:",    "-.5",  "1..5", "1.5e5e5",
                                      "\"1\"",  "00.5",  "3.5e38"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_refused_at_every_place(bad[i], QK_FP32);
}

#define UINT8_WANTED "expected an integer in [0, 255] (UINT8), got "

Test(json_tensor, refused_elements_are_named_and_shown)
{
    expect_error("[1,256]", QK_UINT8, SHAPE(2), "x: element 1: " UINT8_WANTED "256");
    expect_error("[-1,2]", QK_UINT8, SHAPE(2), "x: element 0: " UINT8_WANTED "-1");
    expect_error("[1, \"2\"]", QK_UINT8, SHAPE(2), "x: element 1: " UINT8_WANTED "\"2\"");
    expect_error("[\"a,\\\"]b\"]", QK_UINT8, SHAPE(1),
                 "x: element 0: " UINT8_WANTED "\"a,\\\"]b\"");
    expect_error("[true]", QK_UINT8, SHAPE(1), "x: element 0: " UINT8_WANTED "true");
    expect_error(
        "[1,]", QK_UINT8, SHAPE(2),
        "x: element 1: expected an integer in [0, 255] (UINT8) after the last comma, got ]");
    expect_error("[[1],[2, ],[3]]", QK_UINT8, SHAPE(3, 1),
                 "x: the array at index [1]: expected an entry after the last comma, got ]");
    expect_error("[[1],[2],]", QK_UINT8, SHAPE(2, 1),
                 "x: the outermost array: expected an entry after the last comma, got ]");
    expect_error("[[1,2], ]", QK_UINT8, SHAPE(2, 2),
                 "x: the outermost array: expected an entry after the last comma, got ]");
    expect_error("[[[1],[2]],[[3],]]", QK_UINT8, SHAPE(2, 2, 1),
                 "x: the array at index [1]: expected an entry after the last comma, got ]");
    expect_error("[[1,2,3,],[4,5]]", QK_UINT8, SHAPE(2, 2),
                 "x: the array at index [0]: expected an entry after the last comma, got ]");
    expect_error("[[1,2,],[3,4]]", QK_UINT8, SHAPE(2, 2),
                 "x: the array at index [0]: expected an entry after the last comma, got ]");
    expect_error("[]", QK_UINT8, SHAPE(2, 2), "x: expected 4 elements for shape [2,2], got 0");
    expect_error("[[]]", QK_UINT8, SHAPE(2, 2, 1),
                 "x: the array at index [0]: expected 2 entries for shape [2,2,1], got 0");
    expect_error("[[1],]", QK_UINT8, SHAPE(1, 2),
                 "x: the array at index [0]: expected 2 entries for shape [1,2], got 1");
    expect_error("[[1,2],[3],]", QK_UINT8, SHAPE(2, 2),
                 "x: the array at index [1]: expected 2 entries for shape [2,2], got 1");
    expect_error(
        "[[1,],[2,3]]", QK_UINT8, SHAPE(2, 2),
        "x: element 1: expected an integer in [0, 255] (UINT8) after the last comma, got ]");
    expect_error("[,1]", QK_UINT8, SHAPE(2), "x: element 0: " UINT8_WANTED ",");
    expect_error("[1,", QK_UINT8, SHAPE(2), "x: element 1: " UINT8_WANTED "");
    expect_error("[128]", QK_INT8, SHAPE(1),
                 "x: element 0: expected an integer in [-128, 127] (INT8), got 128");
    expect_error("[2147483648]", QK_INT32, SHAPE(1),
                 "x: element 0: expected an integer in [-2147483648, 2147483647] (INT32), got "
                 "2147483648");
    expect_error("[1111111111111111111111111111111111111111111111111111]", QK_UINT8, SHAPE(1),
                 "x: element 0: " UINT8_WANTED "1111111111111111111111111111111111111111...");
}

Test(json_tensor, refused_elements_of_other_widths)
{
    expect_error("[0,8]", QK_INT4, SHAPE(2),
                 "x: element 1: expected an integer in [-8, 7] (INT4), got 8");
    expect_error("[4294967296]", QK_UINT32, SHAPE(1),
                 "x: element 0: expected an integer in [0, 4294967295] (UINT32), got 4294967296");
    expect_error("[0,65520]", QK_FP16, SHAPE(2),
                 "x: element 1: expected a number in the range of FP16, \"NaN\", \"Infinity\" or "
                 "\"-Infinity\", got 65520");
    expect_error("[0.3]", QK_FP8E4M3FN, SHAPE(1),
                 "x: element 0: expected a value of FP8E4M3FN, such as 0.28125 or 0.3125, got 0.3");
    expect_error("[[1]]", QK_FP4E2M1, SHAPE(1),
                 "x: element 0: expected elements 1 deep for shape [1], got brackets 2 deep");
}

#define INT64_WANTED \
    "expected an integer in [-9223372036854775808, 9223372036854775807] (INT64), got "

Test(json_tensor, refused_int64s_and_bools)
{
    static const char *const integers[] = {"9223372036854775808",
                                           "-9223372036854775809",
                                           "18446744073709551616",
                                           "-0",
                                           "1.0",
                                           "1e2",
                                           "01",
                                           "true",
                                           "\"\"",
                                           "\"1",
                                           "\"1\"2",
                                           "\" 1\"",
                                           "\"1 \"",
                                           "\"1e2\"",
                                           "\"-0\"",
                                           "\"a\"",
                                           "null",
                                           "--1"};
    static const char *const bools[] = {"2",      "-1",    "-0",   "0.0",      "1e0",   "01",
                                        "True",   "trues", "tru",  "\"true\"", "\"1\"", "00",
                                        "false1", "11",    "null", "{}"};
    char text[80], wanted[200];
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        snprintf(text, sizeof(text), "[0,%s]", integers[i]);
        struct qk_tensor tensor = tensor_of(QK_INT64, SHAPE(2));
        cr_assert_eq(read_text(text, &tensor), QD_INVALID, "%s", text);
        snprintf(wanted, sizeof(wanted), "x: element 1: " INT64_WANTED);
        cr_assert_eq(strncmp(error.text, wanted, strlen(wanted)), 0, "%s", error.text);
    }
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++) {
        snprintf(text, sizeof(text), "[false,%s]", bools[i]);
        struct qk_tensor tensor = tensor_of(QK_BOOL, SHAPE(2));
        cr_assert_eq(read_text(text, &tensor), QD_INVALID, "%s", text);
        snprintf(wanted, sizeof(wanted), "x: element 1: expected true, false, 1 or 0 (BOOL), got ");
        cr_assert_eq(strncmp(error.text, wanted, strlen(wanted)), 0, "%s", error.text);
    }
    expect_error("[1,2,3]", QK_INT64, SHAPE(2), "x: expected 2 elements for shape [2], got 3");
    expect_error("[true,true,1]", QK_BOOL, SHAPE(2), "x: expected 2 elements for shape [2], got 3");
}

#define FP32_WANTED \
    "expected a number in the range of FP32, \"NaN\", \"Infinity\" or \"-Infinity\", got "

Test(json_tensor, refused_floats)
{
    static const char *const bad[] = {
        "1e39", "-3.5e38", "1e999", "1.",        ".5",
        "01",   "nan",     "Inf",   "\"inf\"",   "\"1\"",
        "+1",   "NaN1",    "-NaN",  "Infinityy", "null",
        "true", "{}",      "1e",    "\"NaN\"1",  "340282356779733661637539395458142568448"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[80];
        char wanted[256];
        snprintf(text, sizeof(text), "[0,%s]", bad[i]);
        snprintf(wanted, sizeof(wanted), "x: element 1: %s", FP32_WANTED);
        struct qk_tensor tensor = tensor_of(QK_FP32, SHAPE(2));
        cr_assert_eq(read_text(text, &tensor), QD_INVALID, "%s", text);
        cr_assert_eq(strncmp(error.text, wanted, strlen(wanted)), 0, "%s", error.text);
    }
}

Test(json_tensor, counts_are_exact)
{
    expect_error("[]", QK_UINT8, SHAPE(1), "x: expected 1 elements for shape [1], got 0");
    expect_error("[1,2,3]", QK_UINT8, SHAPE(2, 2), "x: expected 4 elements for shape [2,2], got 3");
    expect_error("[1,2,3,4,5,6,7]", QK_UINT8, SHAPE(4),
                 "x: expected 4 elements for shape [4], got 7");
    expect_error("[1,2]", QK_UINT8, SCALAR, "x: expected 1 elements for shape [], got 2");
    expect_error("[1]", QK_UINT8, SHAPE(0), "x: expected 0 elements for shape [0], got 1");
    expect_error("[0.5]", QK_FP32, SHAPE(2), "x: expected 2 elements for shape [2], got 1");
}

Test(json_tensor, shapes_that_claim_more_than_the_text_holds)
{
    expect_error("[1]", QK_FP32, SHAPE((size_t)1 << 40),
                 "x: expected 1099511627776 elements for shape [1099511627776], got 1");
    expect_error("[[1]]", QK_UINT8, SHAPE((size_t)1 << 20, (size_t)1 << 20),
                 "x: the array at index [0]: expected 1048576 entries for shape "
                 "[1048576,1048576], got 1");
    expect_error("[[],[]]", QK_UINT8, SHAPE((size_t)1 << 40, 0),
                 "x: the outermost array: expected 1099511627776 entries for shape "
                 "[1099511627776,0], got 2");
}

Test(json_tensor, nesting_is_exact)
{
    expect_error("[[1,2],[3]]", QK_UINT8, SHAPE(2, 2),
                 "x: the array at index [1]: expected 2 entries for shape [2,2], got 1");
    expect_error("[[1,2,3],[4]]", QK_UINT8, SHAPE(2, 2),
                 "x: the array at index [0]: expected 2 entries for shape [2,2], got 3");
    expect_error("[[1,2]]", QK_UINT8, SHAPE(2, 2),
                 "x: the outermost array: expected 2 entries for shape [2,2], got 1");
    expect_error("[[1,2],[3,4],[5,6]]", QK_UINT8, SHAPE(2, 2),
                 "x: the outermost array: expected 2 entries for shape [2,2], got more");
    expect_error("[[[1],[2]],[[3]]]", QK_UINT8, SHAPE(2, 2, 1),
                 "x: the array at index [1]: expected 2 entries for shape [2,2,1], got 1");
    expect_error("[[1,2],3,4]", QK_UINT8, SHAPE(2, 2),
                 "x: index [1]: expected elements 2 deep for shape [2,2], got one 1 deep");
    expect_error("[[1,2],{}]", QK_UINT8, SHAPE(2, 2),
                 "x: index [1]: expected elements 2 deep for shape [2,2], got an object");
    expect_error("[[ {\"a\":[1,2]},[3,4]]]", QK_UINT8, SHAPE(1, 2, 2),
                 "x: index [0,0]: expected elements 3 deep for shape [1,2,2], got an object");
    expect_error("[[1,2],[3,4]]", QK_UINT8, SHAPE(1, 2, 2),
                 "x: index [0,0]: expected elements 3 deep for shape [1,2,2], got one 2 deep");
    expect_error("[[ [1,2],[3,4]]]", QK_UINT8, SHAPE(2, 2),
                 "x: element 0: expected elements 2 deep for shape [2,2], got brackets 3 deep");
    expect_error("[1,[2]]", QK_UINT8, SHAPE(2, 1),
                 "x: element 1: expected elements 1 deep, as before, got brackets 2 deep");
    expect_error("[[1]]", QK_UINT8, SHAPE(1),
                 "x: element 0: expected elements 1 deep for shape [1], got brackets 2 deep");
    expect_error("[[1]]", QK_UINT8, SCALAR,
                 "x: element 0: expected elements 1 deep for shape [], got brackets 2 deep");
    expect_error("[[],[[]]]", QK_UINT8, SHAPE(2, 0),
                 "x: element 0: expected elements 2 deep for shape [2,0], got brackets 3 deep");
}

Test(json_tensor, brackets_match)
{
    expect_error("[1}", QK_UINT8, SHAPE(1), "x: element 0: " UINT8_WANTED "1}");
    expect_error("[1 }", QK_UINT8, SHAPE(1), "x: expected ',' or ']' after element 0, got }");
    expect_error("[[1]}", QK_UINT8, SHAPE(1, 1), "x: expected ',' or ']' after element 0, got }");
    expect_error("[[1]", QK_UINT8, SHAPE(1, 1), "x: expected ',' or ']' after element 0, got ");
    expect_error("{\"a\":1}", QK_UINT8, SHAPE(1), "x: expected an array, got {\"a\":1}");
    expect_error("7", QK_UINT8, SHAPE(1), "x: expected an array, got 7");
    expect_error("\"7\"", QK_UINT8, SHAPE(1), "x: expected an array, got \"7\"");
    expect_error("\"7\"", QK_UINT8, SCALAR, "x: element 0: " UINT8_WANTED "\"7\"");
    expect_error("", QK_UINT8, SHAPE(1), "x: expected an array, got ");
}

Test(json_tensor, a_hundred_thousand_brackets)
{
    size_t count = 100000;
    char *text = malloc(2 * count + 1);
    memset(text, '[', count);
    memset(text + count, ']', count);
    text[2 * count] = '\0';
    expect_error(text, QK_UINT8, SHAPE(4),
                 "x: element 0: expected elements 1 deep for shape [4], got brackets 100000 deep");
    expect_error(
        text, QK_FP32, SHAPE(2, 2),
        "x: element 0: expected elements 2 deep for shape [2,2], got brackets 100000 deep");
    free(text);
}

/* As many digits as 64 bits allow. */
Test(json_tensor, the_longest_shape_in_an_error)
{
    size_t dims[QK_RANK_MAX + 1];
    for (size_t i = 0; i < QK_RANK_MAX; i++)
        dims[i] = i < 19 ? 10 : 1;
    dims[QK_RANK_MAX] = END;
    expect_error("[1]", QK_UINT8, dims,
                 "x: expected 10000000000000000000 elements for shape "
                 "[10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,1,1,1,1,1,1,1,1,1,1,1,"
                 "1,1], got 1");
}

/* ---- Printing ---------------------------------------------------------------------------- */

static char *print(const struct qk_tensor *tensor)
{
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 64u << 20);
    qd_text_init(&text, &scratch.arena);
    qd_json_tensor_print(&text, tensor);
    return scratch_take_text(&scratch, &text);
}

static void expect_print(enum qk_type type, const size_t *dims, const void *data,
                         const char *wanted)
{
    struct qk_tensor tensor = tensor_of(type, dims);
    tensor.data = data;
    char *got = print(&tensor);
    cr_assert_str_eq(got, wanted);
    free(got);
}

Test(json_tensor, prints_flat)
{
    expect_print(QK_UINT8, SHAPE(2, 2), "\x00\x7f\x80\xff", "[0,127,128,255]");
    expect_print(QK_INT8, SHAPE(4), "\x00\x7f\x80\xff", "[0,127,-128,-1]");
    expect_print(QK_INT32, SHAPE(2), ((int32_t[]){INT32_MIN, INT32_MAX}),
                 "[-2147483648,2147483647]");
    expect_print(QK_FP32, SHAPE(3), ((float[]){0.5f, -0.0f, 1e-45f}), "[0.5,-0.0,1e-45]");
    expect_print(QK_FP32, SHAPE(4), ((float[]){NAN, -NAN, INFINITY, -INFINITY}),
                 "[\"NaN\",\"NaN\",\"Infinity\",\"-Infinity\"]");
    expect_print(QK_UINT8, SHAPE(0), NULL, "[]");
    expect_print(QK_UINT8, SCALAR, "\x05", "[5]");
}

Test(json_tensor, prints_every_type)
{
    expect_print(QK_UINT16, SHAPE(2), ((uint16_t[]){0, UINT16_MAX}), "[0,65535]");
    expect_print(QK_INT16, SHAPE(2), ((int16_t[]){INT16_MIN, -1}), "[-32768,-1]");
    expect_print(QK_UINT32, SHAPE(1), &(uint32_t){UINT32_MAX}, "[4294967295]");
    expect_print(QK_UINT4, SHAPE(3), "\xf1\x0a", "[1,15,10]");
    expect_print(QK_INT4, SHAPE(3), "\x78\x0f", "[-8,7,-1]");
    expect_print(QK_UINT2, SHAPE(5), "\xe4\x02", "[0,1,2,3,2]");
    expect_print(QK_INT2, SHAPE(5), "\x4e\x02", "[-2,-1,0,1,-2]");
    expect_print(QK_FP4E2M1, SHAPE(3), "\x91\x0f", "[0.5,-0.5,-6]");
    expect_print(QK_FP16, SHAPE(2), ((uint16_t[]){0x3c00, 0x7c00}), "[1,\"Infinity\"]");
    expect_print(QK_BF16, SHAPE(2), ((uint16_t[]){0x3f80, 0x7fc0}), "[1,\"NaN\"]");
    expect_print(QK_FP8E5M2, SHAPE(2), "\x3c\xfc", "[1,\"-Infinity\"]");
    expect_print(QK_FP8E8M0, SHAPE(2), "\x80\xff", "[2,\"NaN\"]");
    expect_print(QK_INT64, SHAPE(4), ((int64_t[]){INT64_MIN, -1, 9007199254740993, INT64_MAX}),
                 "[-9223372036854775808,-1,9007199254740993,9223372036854775807]");
    expect_print(QK_BOOL, SHAPE(3), "\0\1\1", "[false,true,true]");
}

/* A piece reads its first element as if all pieces before it were right. */
/* Rows of one element, of two and of three, that pieces begin within. */
Test(json_tensor, long_rows_in_pieces)
{
    enum { COUNT = 360 };
    for (size_t row = 1; row <= 3; row++) {
        char text[6 * COUNT] = "[", *at = text + 1;
        uint8_t wanted[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            wanted[i] = (uint8_t)(i * 7);
            at += sprintf(at, "%s%d%s",
                          i % row ? ","
                          : i     ? ",["
                                  : "[",
                          wanted[i], i % row + 1 == row ? "]" : "");
        }
        strcpy(at, "]");
        expect_read(text, QK_UINT8, SHAPE(COUNT / row, row), wanted, COUNT);
    }
}

Test(json_tensor, arrays_too_many_that_end_like_the_data)
{
    expect_error("[1,1,1,1,[1,1,1,1,1],1,1,1,1,1,1,1,1]", QK_UINT8, SHAPE(9),
                 "x: element 4: expected elements 1 deep for shape [9], got brackets 2 deep");
    expect_error("[1,1,1,1,[1,1,1,1,1],1]", QK_UINT8, SHAPE(9),
                 "x: element 4: expected elements 1 deep for shape [9], got brackets 2 deep");
    expect_error("[[1,1,1,1,[1,1,1,1,1]],[1,1,1,1,1,1,1,1]]", QK_UINT8, SHAPE(1, 9),
                 "x: element 4: expected elements 2 deep for shape [1,9], got brackets 3 deep");
    expect_error("[[1,1,1,1,[1,1,1,1,1]],1]", QK_UINT8, SHAPE(1, 9),
                 "x: element 4: expected elements 2 deep for shape [1,9], got brackets 3 deep");
}

Test(json_tensor, what_is_printed_reads_back)
{
    enum { COUNT = 20000 };
    float *values = malloc(COUNT * sizeof(*values));
    uint32_t bits = 1;
    for (size_t i = 0; i < COUNT; i++)
        do {
            bits = bits * 1664525 + 1013904223;
            memcpy(&values[i], &bits, sizeof(bits));
        } while (!isfinite(values[i]));
    struct qk_tensor tensor = tensor_of(QK_FP32, SHAPE(COUNT));
    tensor.data = (const char *)values;
    char *printed = print(&tensor);
    expect_read(printed, QK_FP32, SHAPE(100, 200), values, COUNT * sizeof(*values));
    free(printed);
    free(values);
}

Test(json_tensor, printed_int64s_read_back)
{
    enum { COUNT = 20000 };
    int64_t *values = malloc(COUNT * sizeof(*values));
    uint64_t bits = 1;
    for (size_t i = 0; i < COUNT; i++) {
        bits = bits * 6364136223846793005 + 1442695040888963407;
        values[i] = (int64_t)bits >> bits % 64; /* any number of digits */
    }
    struct qk_tensor tensor = tensor_of(QK_INT64, SHAPE(COUNT));
    tensor.data = values;
    char *printed = print(&tensor);
    expect_read(printed, QK_INT64, SHAPE(100, 200), values, COUNT * sizeof(*values));
    free(printed);
    free(values);
}
