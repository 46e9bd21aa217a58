#include <criterion/criterion.h>
#include <stdio.h>

#include "server/base/limits.h"
#include "server/json/reader.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static char *text; /* the tree, printed; data as its index in `data` */
static const struct qd_json_value *root;
static const struct qd_json_value *data[8192];
static size_t data_count;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(json_reader, .init = setup, .fini = teardown);

static void print(struct qd_text *out, const struct qd_json_value *value)
{
    static const char *const words[] = {"null", "false", "true"};
    if (value->key != NULL) {
        qd_text_json_string(out, value->key);
        qd_text_string(out, ":");
    }
    switch (value->kind) {
    case QD_JSON_NUMBER:
        qd_text_append(out, value->text, value->bytes);
        return;
    case QD_JSON_STRING:
        cr_assert_eq(value->bytes, strlen(value->text));
        qd_text_json_string(out, value->text);
        return;
    case QD_JSON_DATA:
        cr_assert_lt(data_count, sizeof(data) / sizeof(*data));
        qd_text_format(out, "%zu", data_count);
        data[data_count++] = value;
        return;
    case QD_JSON_ARRAY:
    case QD_JSON_OBJECT:
        break;
    default:
        qd_text_string(out, words[value->kind]);
        return;
    }
    qd_text_string(out, value->kind == QD_JSON_ARRAY ? "[" : "{");
    for (const struct qd_json_value *item = value->first; item != NULL; item = item->next) {
        cr_assert_eq(item->key != NULL, value->kind == QD_JSON_OBJECT);
        qd_text_string(out, item == value->first ? "" : ",");
        print(out, item);
    }
    qd_text_string(out, value->kind == QD_JSON_ARRAY ? "]" : "}");
}

/* Reads a copy of the exact size, so that the sanitizer sees any read beyond the end. The tree
 * points into the copy, so `kept` lives until the next text is read. */
static char *kept;

static enum qd_status read_pieces(struct qd_arena *arena, const char *json, size_t bytes,
                                  size_t piece_bytes)
{
    struct qd_json_reader reader;
    bool done = false;
    enum qd_status status = QD_OK;
    kept = realloc(kept, bytes + (bytes == 0));
    memcpy(kept, json, bytes);
    error.text[0] = '\0';
    qd_json_reader_init(&reader, kept, bytes, piece_bytes, arena, &error);
    while (status == QD_OK && !done)
        status = qd_json_reader_step(&reader, &done);
    if (status != QD_OK)
        return status;
    struct qd_text out;
    root = reader.root;
    data_count = 0;
    qd_text_init(&out, &scratch.arena);
    print(&out, root);
    free(text);
    text = join_parts(out.parts, out.part_count);
    return status;
}

/* Reads the text in one step, and then in steps of every size that matters. The results must be the
 * same. */
static enum qd_status read_bytes(const char *json, size_t bytes)
{
    enum qd_status status = read_pieces(&scratch.arena, json, bytes, bytes);
    struct qd_error whole = error;
    for (size_t piece_bytes = 1; piece_bytes <= 40 && bytes <= 1000; piece_bytes++) {
        char *before = status == QD_OK ? strdup(text) : NULL;
        struct scratch own;
        scratch_init(&own, 1u << 20);
        cr_assert_eq(read_pieces(&own.arena, json, bytes, piece_bytes), status, "%s", json);
        cr_assert_str_eq(error.text, whole.text);
        cr_assert(before == NULL || strcmp(before, text) == 0);
        free(before);
        scratch_deinit(&own);
    }
    return bytes <= 1000 ? read_pieces(&scratch.arena, json, bytes, bytes) : status;
}

static enum qd_status read(const char *json)
{
    return read_bytes(json, strlen(json));
}

static void expect_tree(const char *json, const char *wanted)
{
    cr_assert_eq(read(json), QD_OK, "%s", error.text);
    cr_assert_str_eq(text, wanted);
}

static void expect_data(size_t index, const char *wanted)
{
    cr_assert_lt(index, data_count);
    cr_assert_eq(data[index]->bytes, strlen(wanted));
    cr_assert_eq(memcmp(data[index]->text, wanted, strlen(wanted)), 0);
}

static void expect_error(const char *json, const char *wanted)
{
    cr_assert_eq(read(json), QD_INVALID, "%s", json);
    cr_assert_str_eq(error.text, wanted);
}

/* ---- What is cut ------------------------------------------------------------------------- */

Test(json_reader, leaves_each_data_whole)
{
    expect_tree("{\"inputs\":[{\"data\":[1,2]},{\"data\": [[3],[4]] ,\"name\":\"x\"}]}",
                "{\"inputs\":[{\"data\":0},{\"data\":1,\"name\":\"x\"}]}");
    cr_assert_eq(data_count, 2);
    expect_data(0, "[1,2]");
    expect_data(1, "[[3],[4]]");
}

Test(json_reader, data_that_is_no_array)
{
    expect_tree(
        "{\"inputs\":[{\"data\":7},{\"data\":null},{\"data\":\"a\\\"]\"},{\"data\":{\"a\":[]}},"
        "{\"data\":NaN }]}",
        "{\"inputs\":[{\"data\":0},{\"data\":null},{\"data\":1},{\"data\":2},{\"data\":3}]}");
    expect_data(0, "7");
    expect_data(1, "\"a\\\"]\"");
    expect_data(2, "{\"a\":[]}");
    expect_data(3, "NaN");
}

Test(json_reader, only_inputs_have_data)
{
    static const char *const whole[] = {
        "{\"data\":[1]}",
        "{\"outputs\":[{\"data\":[1]}]}",
        "{\"inputs\":{\"data\":[1]}}",
        "{\"inputs\":[[{\"data\":[1]}]]}",
        "{\"inputs\":[{\"parameters\":{\"data\":[1]}}]}",
        "{\"a\":{\"inputs\":[{\"data\":[1]}]}}",
        "[{\"inputs\":[{\"data\":[1]}]}]",
        "{\"inputs\":[{\"Data\":[1],\"data \":[2]}]}",
        "{\"inputs\":[],\"outputs\":[{\"data\":[1]}]}",
        "{\"inputs\":[\"data\",{\"a\":\"data\"}]}",
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        expect_tree(whole[i], whole[i]);
        cr_assert_eq(data_count, 0);
    }
}

/* Readers that compute with doubles confuse 9007199254740993 with 9007199254740992. */
Test(json_reader, whole_numbers)
{
    static const struct {
        const char *json;
        bool is_whole, is_int64, is_uint64;
        uint64_t number;
    } cases[] = {
        {"0", true, true, true, 0},
        {"-0", true, true, true, 0},
        {"-7", true, true, false, (uint64_t)-7},
        {"1.0", true, true, true, 1},
        {"120e-1", true, true, true, 12},
        {"1.5e1", true, true, true, 15},
        {"0.00e99", true, true, true, 0},
        {"9e15", true, true, true, 9000000000000000},
        {"1e16", false, false, false, 0},
        {"1e300", false, false, false, 0},
        {"1.5", false, false, false, 0},
        {"1e-1", false, false, false, 0},
        {"9007199254740991", true, true, true, 9007199254740991},
        {"-9007199254740991", true, true, false, (uint64_t)-9007199254740991},
        {"9007199254740992.0", false, false, false, 0},
        {"9007199254740993", false, true, true, 9007199254740993},
        {"-9223372036854775808", false, true, false, (uint64_t)INT64_MIN},
        {"9223372036854775808", false, false, true, UINT64_C(9223372036854775808)},
        {"9999999999999999999", false, false, true, UINT64_C(9999999999999999999)},
        {"18446744073709551609", false, false, true, UINT64_C(18446744073709551609)},
        {"18446744073709551615", false, false, true, UINT64_MAX},
        {"18446744073709551616", false, false, false, 0},
        {"20000000000000000000", false, false, false, 0},
        {"100000000000000000000", false, false, false, 0},
        {"18446744073709551614.5", false, false, false, 0},
        {"100000000000000000000000e-22", true, true, true, 10},
        {"1000000000000000000000001e-24", false, false, false, 0},
        {"\"1\"", false, false, false, 0},
        {"true", false, false, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char json[64];
        int64_t number = 0;
        uint64_t magnitude = 0;
        snprintf(json, sizeof(json), "[%s]", cases[i].json);
        expect_tree(json, json);
        const struct qd_json_value *value = root->first;
        cr_assert_eq(qd_json_whole(value, &number), cases[i].is_whole, "%s", json);
        cr_assert(!cases[i].is_whole || number == (int64_t)cases[i].number, "%s", json);
        cr_assert_eq(qd_json_int64(value, &number), cases[i].is_int64, "%s", json);
        cr_assert(!cases[i].is_int64 || number == (int64_t)cases[i].number, "%s", json);
        cr_assert_eq(qd_json_uint64(value, &magnitude), cases[i].is_uint64, "%s", json);
        cr_assert(!cases[i].is_uint64 || magnitude == cases[i].number, "%s", json);
    }
}

Test(json_reader, knows_keys_behind_escapes)
{
    expect_tree("{\"\\u0069nput\\u0073\":[{\"d\\u0061t\\u0061\":5}]}",
                "{\"inputs\":[{\"data\":0}]}");
    expect_data(0, "5");
}

/* Keys are compared in words of eight bytes. Keys that begin alike may differ after that. */
Test(json_reader, keys_that_begin_alike)
{
    static const struct qd_json_name names[] = {
        {"data"}, {"datatype"}, {"datatypes"}, {"shared_memory_byte_size"}};
    static const char *const others[] = {"",
                                         "d",
                                         "dat",
                                         "dat\\u0061",
                                         "datatyp",
                                         "datatypea",
                                         "datatypesdatatypes",
                                         "Data",
                                         "shared_memory_byte_siz",
                                         "shared_memory_byte_sizes",
                                         "shared_memory_byte_s\\u0069ze"};
    const struct qd_json_value *values[4];
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        char json[200];
        snprintf(json, sizeof(json), "{\"datatypes\":2,\"%s\":[],\"datatype\":1,\"a\":null}",
                 others[i]);
        cr_assert_eq(read(json), QD_OK, "%s", error.text);
        cr_assert_eq(qd_json_fields(root, NULL, names, 4, values, &error), QD_OK);
        const bool is_data = i == 3, is_size = i == 10;
        cr_assert_eq(values[0] != NULL, is_data, "%s", json);
        cr_assert_eq(values[3] != NULL, is_size, "%s", json);
        cr_assert(values[1]->text[0] == '1' && values[2]->text[0] == '2', "%s", json);
    }
}

Test(json_reader, fields_come_once)
{
    static const struct qd_json_name names[] = {{"a"}, {"b"}};
    static const struct qd_json_path path = {"inputs", 3, "."};
    const struct qd_json_value *values[2];
    cr_assert_eq(read("{\"b\":null,\"c\":1,\"c\":2,\"a\":5}"), QD_OK);
    cr_assert_eq(qd_json_fields(root, NULL, names, 2, values, &error), QD_OK);
    cr_assert(values[0]->text[0] == '5' && values[1] == NULL);
    cr_assert_eq(qd_json_field(root, NULL, "b", values, &error), QD_OK);
    cr_assert_null(values[0]);
    cr_assert_eq(read("{\"b\":null,\"a\":1,\"b\":2}"), QD_OK);
    cr_assert_eq(qd_json_fields(root, &path, names, 2, values, &error), QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[3].b: expected once, got twice");
    cr_assert_eq(qd_json_field(root, NULL, "b", values, &error), QD_INVALID);
    cr_assert_str_eq(error.text, "b: expected once, got twice");
}

/* Short strings without escapes are found in words of eight bytes. */
Test(json_reader, strings_of_every_length)
{
    static const char *const odd[] = {"", "\\\"", "\\\\", "\xc3\xa4"};
    for (size_t count = 0; count <= 80; count++) {
        for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
            const int behind = i == 0 ? 0 : (int)(count % 11);
            char json[256];
            snprintf(json, sizeof(json), "{\"%0*d%s%.*s\":\"%.*s%s%0*d\"}", (int)count + 1, 7,
                     odd[i], behind, "plain text", behind, "plain text", odd[i], (int)count + 1, 7);
            expect_tree(json, json);
        }
    }
}

Test(json_reader, brackets_in_strings_of_data_do_not_count)
{
    expect_tree("{\"inputs\":[{\"data\":[\"]}\\\\\",\"\\\"[\"]}]}", "{\"inputs\":[{\"data\":0}]}");
    expect_data(0, "[\"]}\\\\\",\"\\\"[\"]");
}

Test(json_reader, finds_the_end_of_data_at_any_distance)
{
    for (size_t count = 0; count < 200; count++) {
        char json[600] = "{\"inputs\":[{\"data\":[[";
        memset(json + strlen(json), '1', count);
        strcat(json, "],[");
        memset(json + strlen(json), '2', count);
        strcat(json, "]] } ] } ");
        cr_assert_eq(read(json), QD_OK, "%s", error.text);
        cr_assert_eq(data[0]->bytes, 2 * count + 7);
        cr_assert_str_eq(text, "{\"inputs\":[{\"data\":0}]}");
    }
}

Test(json_reader, many_inputs)
{
    char *json = malloc(100 * 1000);
    char *at = json + sprintf(json, "{\"inputs\":[");
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, "%s{\"data\":%d}", i == 0 ? "" : ",", i);
    sprintf(at, "]}");
    cr_assert_eq(read(json), QD_OK, "%s", error.text);
    cr_assert_eq(data_count, 5000);
    expect_data(4999, "4999");
    cr_assert_not_null(strstr(text, "{\"data\":4999}]}"));
    free(json);
}

/* ---- The grammar ------------------------------------------------------------------------- */

Test(json_reader, takes_every_kind_of_json)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-1.5e-3",
        "\"\"",
        "true",
        "false",
        "null",
        "[1,\"a\",null,true,false,{\"b\":{}},[[]]]",
        "{\"a\":1,\"b\":[2],\"a\":3}",
        "\"\x7f ж€😀\"",
        "\"seven\\n7, eight\\\\8, and more\\t\"",
        "1.7976931348623157e308",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        expect_tree(good[i], good[i]);
    expect_tree(" \t\r\n[ ] \n", "[]");
    expect_tree("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\"",
                "\"\\\"\\\\/\\b\\f\\n\\r\\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

Test(json_reader, names_the_byte_and_what_was_expected)
{
    expect_error("", "malformed JSON at byte 0: expected a value, got the end of the JSON");
    expect_error("  ", "malformed JSON at byte 2: expected a value, got the end of the JSON");
    expect_error("{\"a\" 1}", "malformed JSON at byte 5: expected ':', got '1'");
    expect_error("{\"a\"", "malformed JSON at byte 4: expected ':', got the end of the JSON");
    expect_error("{\"a\":}", "malformed JSON at byte 5: expected a value, got '}'");
    expect_error("{a:1}", "malformed JSON at byte 1: expected a key or '}', got 'a'");
    expect_error("{\"a\":1,}", "malformed JSON at byte 7: expected a key after the comma, got '}'");
    expect_error("{\"a\":1 \"b\":2}", "malformed JSON at byte 7: expected ',' or '}', got '\"'");
    expect_error("[1,]", "malformed JSON at byte 3: expected a value after the comma, got ']'");
    expect_error("[,1]", "malformed JSON at byte 1: expected a value, got ','");
    expect_error("[1 2]", "malformed JSON at byte 3: expected ',' or ']', got '2'");
    expect_error("[1}", "malformed JSON at byte 2: expected ',' or ']', got '}'");
    expect_error("{\"a\":1]", "malformed JSON at byte 6: expected ',' or '}', got ']'");
    expect_error("]", "malformed JSON at byte 0: expected a value, got ']'");
    expect_error("[nul]", "malformed JSON at byte 1: expected a value, got 'n'");
    expect_error("[True]", "malformed JSON at byte 1: expected a value, got 'T'");
    expect_error("[truely]", "malformed JSON at byte 5: expected ',' or ']', got 'l'");
    expect_error("[NaN]", "malformed JSON at byte 1: expected a value, got 'N'");
    expect_error("\xef\xbb\xbf{}", "malformed JSON at byte 0: expected a value, got byte 0xef");
    expect_error("[1,\x01]",
                 "malformed JSON at byte 3: expected a value after the comma, got byte 0x01");
    expect_error("{} {}",
                 "malformed JSON at byte 3: expected nothing after the JSON (binary tensor "
                 "data needs the header Inference-Header-Content-Length), got '{'");
}

Test(json_reader, numbers_are_strict)
{
    expect_error("[01]", "malformed JSON at byte 2: expected ',' or ']', got '1'");
    expect_error("[-]", "malformed JSON at byte 2: expected a digit, got ']'");
    expect_error("[1.]", "malformed JSON at byte 3: expected a digit, got ']'");
    expect_error("[1e]", "malformed JSON at byte 3: expected a digit, got ']'");
    expect_error("[.5]", "malformed JSON at byte 1: expected a value, got '.'");
    expect_error("[+1]", "malformed JSON at byte 1: expected a value, got '+'");
    expect_error("[1e999]",
                 "malformed JSON at byte 1: expected a number within the range of double "
                 "precision, got '1'");
    char digits[1100] = "[";
    memset(digits + 1, '1', 1024);
    strcat(digits, "]");
    expect_error(digits, "malformed JSON at byte 1: expected a number of at most 1023 characters, "
                         "got '1'");
    expect_error("[1e290000]",
                 "malformed JSON at byte 1: expected a number within the range of double "
                 "precision, got '1'");
    memset(digits + 1, '0', 1023);
    memcpy(digits + 1, "0.", 2);
    strcpy(digits + 1024, "]");
    expect_tree(digits, digits);
}

Test(json_reader, strings_are_strict)
{
    expect_error("\"a",
                 "malformed JSON at byte 2: expected the string's closing quote, got the end "
                 "of the JSON");
    expect_error("\"\t\"", "malformed JSON at byte 1: expected an escape in place of a control "
                           "character, got byte 0x09");
    expect_error("\"\\x\"", "malformed JSON at byte 2: expected an escape such as \\n or \\u0041, "
                            "got 'x'");
    expect_error("\"\\", "malformed JSON at byte 2: expected an escape such as \\n or \\u0041, got "
                         "the end of the JSON");
    expect_error("\"\\u00g0\"",
                 "malformed JSON at byte 3: expected four hexadecimal digits, got '0'");
    expect_error("\"\\u12", "malformed JSON at byte 3: expected four hexadecimal digits, got '1'");
    expect_error("\"\\u0000\"",
                 "malformed JSON at byte 3: expected a character other than \\u0000, got '0'");
    expect_error("\"\\udc00\"", "malformed JSON at byte 3: expected the first half of a surrogate "
                                "pair before the second, got 'd'");
    expect_error("\"\\ud800\"", "malformed JSON at byte 7: expected the second half of a surrogate "
                                "pair, got '\"'");
    expect_error("\"\\ud800\\u0041\"", "malformed JSON at byte 7: expected the second half of a "
                                       "surrogate pair, got '\\'");
    expect_error("\"\xff\"", "malformed JSON at byte 1: expected UTF-8, got byte 0xff");
    expect_error("\"\xc3\"", "malformed JSON at byte 1: expected UTF-8, got byte 0xc3");
    expect_error("\"\xed\xa0\x80\"", "malformed JSON at byte 1: expected UTF-8, got byte 0xed");
}

Test(json_reader, nul_bytes_are_no_end)
{
    cr_assert_eq(read_bytes("{}\0", 3), QD_INVALID);
    cr_assert_eq(read_bytes("\"a\0b\"", 5), QD_INVALID);
    cr_assert_eq(read_bytes("{\"inputs\":[{\"data\":1\0}]}", 24), QD_INVALID);
    cr_assert_eq(read_bytes("{\"inputs\":[{\"data\":\0}]}", 23), QD_INVALID);
}

Test(json_reader, data_must_end)
{
    static const char *const unended[] = {"[1,2", "[\"a", "[\"a\\", "\"a", "[[1]", "{\"a\":1"};
    for (size_t i = 0; i < sizeof(unended) / sizeof(unended[0]); i++) {
        char json[64];
        char wanted[128];
        snprintf(json, sizeof(json), "{\"inputs\":[{\"data\":%s", unended[i]);
        snprintf(wanted, sizeof(wanted),
                 "malformed JSON at byte %zu: expected the end of the data, got the end "
                 "of the JSON",
                 strlen(json));
        expect_error(json, wanted);
    }
    expect_error("{\"inputs\":[{\"data\":",
                 "malformed JSON at byte 19: expected a value, got the end of the JSON");
    expect_error("{\"inputs\":[{\"data\":}]}",
                 "malformed JSON at byte 19: expected a value, got '}'");
    expect_error("{\"inputs\":[{\"data\":1 2}]}",
                 "malformed JSON at byte 21: expected ',' or '}', got '2'");
}

/* Every prefix of a valid request must be refused, and not be read beyond its end. */
Test(json_reader, no_prefix_is_json)
{
    static const char json[] = " {\"id\":\"\\u0041ж\",\"inputs\":[{\"data\":[[1.5,\"NaN\"],[-2]],"
                               "\"shape\":[2,1e1]},null,true]}";
    for (size_t bytes = 0; bytes < sizeof(json) - 1; bytes++)
        cr_assert_eq(read_bytes(json, bytes), QD_INVALID, "%zu", bytes);
    cr_assert_eq(read(json), QD_OK);
}

/* ---- Bounds ------------------------------------------------------------------------------ */

static char *repeat(const char *before, char byte, size_t count, const char *after)
{
    char *json = malloc(strlen(before) + count + strlen(after) + 1);
    size_t used = strlen(before);
    memcpy(json, before, used);
    memset(json + used, byte, count);
    memcpy(json + used + count, after, strlen(after) + 1);
    return json;
}

Test(json_reader, nesting_is_bounded)
{
    char *deepest = repeat("", '[', QD_ENVELOPE_DEPTH_MAX, "");
    char *closed = repeat(deepest, ']', QD_ENVELOPE_DEPTH_MAX, "");
    expect_tree(closed, closed);
    char *deeper = repeat("", '[', 100000, "");
    expect_error(deeper, "malformed JSON at byte 32: nested deeper than 32");
    char *objects = repeat("{\"inputs\":[{\"data\":", '[', 100000, "");
    cr_assert_eq(read(objects), QD_INVALID); /* skipped without recursion, not closed */
    free(deepest);
    free(closed);
    free(deeper);
    free(objects);
}

Test(json_reader, text_is_bounded_and_data_is_not)
{
    static const size_t pieces[] = {QD_JSON_PIECE_BYTES, 1000, 4u << 20};
    char *longest = repeat("\"", 'a', QD_ENVELOPE_BYTES_MAX - 2, "\"");
    char *longer = repeat("\"", 'a', QD_ENVELOPE_BYTES_MAX - 1, "\"");
    char *spaced = repeat("{", ' ', QD_ENVELOPE_BYTES_MAX - 1, "}");
    char *numbers = repeat("{\"inputs\":[{\"data\":[1", '1', 900000, ",2]}]}");
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = strlen(longest);
        cr_assert_eq(read_pieces(&scratch.arena, longest, bytes, pieces[i]), QD_OK);
        cr_assert_str_eq(text, longest);
        cr_assert_eq(read_pieces(&scratch.arena, longer, bytes + 1, pieces[i]), QD_TOO_LARGE);
        cr_assert_str_eq(error.text, "the JSON without its tensor data exceeds 262144 bytes");
        cr_assert_eq(read_pieces(&scratch.arena, spaced, bytes + 1, pieces[i]), QD_TOO_LARGE);
        cr_assert_eq(read_pieces(&scratch.arena, numbers, strlen(numbers), pieces[i]), QD_OK);
        cr_assert_str_eq(text, "{\"inputs\":[{\"data\":0}]}");
    }
    free(longest);
    free(longer);
    free(spaced);
    free(numbers);
}

/* The work of one unit is bounded, so no number and no blanks may be longer. */
Test(json_reader, data_has_no_long_gaps)
{
    char *spaced = repeat("{\"inputs\":[{\"data\":[1,", ' ', 4u << 20, "1]}]}");
    cr_assert_eq(read_pieces(&scratch.arena, spaced, strlen(spaced), QD_JSON_PIECE_BYTES),
                 QD_INVALID);
    cr_assert_str_eq(error.text,
                     "the JSON at byte 19: expected 8 elements of data within 1048576 bytes");
    char *file = repeat("{\"parameters\":{\"file:1/a\":\"", 'A', 4u << 20, "\"}}");
    cr_assert_eq(read_pieces(&scratch.arena, file, strlen(file), QD_JSON_PIECE_BYTES), QD_OK);
    free(spaced);
    free(file);
}

/* Each mark is after a comma, and has the number of commas before it. */
Test(json_reader, marks_are_behind_commas)
{
    char *json = malloc(1 << 20);
    char *at = json + sprintf(json, "{\"inputs\":[{\"data\":[[0");
    for (int i = 1; i < 50000; i++)
        at += sprintf(at, i % 5 == 0 ? "], [%d" : ",%d", i);
    sprintf(at, "]]},{\"data\":[\"NaN\",1,2,3,4,5,6,7]}]}");
    struct qd_json_reader reader;
    bool done = false;
    qd_json_reader_init(&reader, json, strlen(json), 5000, &scratch.arena, &error);
    while (!done)
        cr_assert_eq(qd_json_reader_step(&reader, &done), QD_OK);
    const struct qd_json_value *item = reader.root->first->first;
    const struct qd_json_data *first = item->first->data;
    const struct qd_json_data *second = item->next->first->data;
    cr_assert(first->mark_first == 0 && first->mark_count > 50 && first->mark_count < 70);
    cr_assert(second->mark_first == first->mark_count && second->mark_count == 0);
    cr_assert(first->commas == 49999 && second->commas == 7);
    for (size_t i = 0; i < first->mark_count; i++) {
        const struct qd_json_mark *mark = &reader.marks[i];
        cr_assert_eq(mark->at[-1], ',');
        cr_assert_eq(mark->commas % QD_JSON_MARK_ELEMENTS, 0);
        cr_assert_eq(strtoul(mark->at + strspn(mark->at, " ["), NULL, 10), mark->commas);
    }
    free(json);
}

Test(json_reader, refuses_softly_without_memory)
{
    char *name = repeat("{\"inputs\":[{\"name\":\"", 'n', 100000, "\"");
    char json[101000];
    char *at = json + sprintf(json, "%s,\"data\":0}", name);
    for (int i = 0; i < 50; i++)
        at += sprintf(at, ",{\"data\":%d}", i);
    sprintf(at, "]}");
    enum qd_status status = QD_UNAVAILABLE;
    for (size_t bytes_max = 0; status != QD_OK; bytes_max += 16 << 10) {
        struct scratch tight;
        scratch_init(&tight, bytes_max);
        status = read_pieces(&tight.arena, json, strlen(json), 100);
        cr_assert(status == QD_OK || status == QD_TOO_LARGE, "%d: %s", (int)status, error.text);
        cr_assert(status == QD_OK || strstr(error.text, "--max-inflight-bytes") != NULL);
        scratch_deinit(&tight);
    }
    free(name);
}

/* ---- A load call's files ----------------------------------------------------------------- */

Test(json_reader, files_of_the_parameters_are_data)
{
    expect_tree("{\"parameters\":{\"config\":\"{}\",\"file:1/model.onnx\": \"AAAA\\/\" ,"
                "\"\\u0066ile:x\":0,\"profile:\":1}}",
                "{\"parameters\":{\"config\":\"{}\",\"file:1/model.onnx\":0,"
                "\"file:x\":1,\"profile:\":1}}");
    cr_assert_eq(data_count, 2);
    expect_data(0, "\"AAAA\\/\"");
    expect_data(1, "0");
}

Test(json_reader, files_elsewhere_are_none)
{
    static const char *const cases[] = {
        "{\"file:a\":\"b\"}",
        "{\"other\":{\"file:a\":\"b\"}}",
        "{\"parameters\":{\"a\":{\"file:a\":\"b\"}}}",
        "{\"parameters\":[{\"file:a\":\"b\"}]}",
        "[{\"file:a\":\"b\"}]",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        expect_tree(cases[i], cases[i]);
        cr_assert_eq(data_count, 0);
    }
}

Test(json_reader, files_end_at_their_quote)
{
    expect_tree("{\"parameters\":{\"file:a\":\"\\\\\\\"\\\\\"}}",
                "{\"parameters\":{\"file:a\":0}}");
    expect_data(0, "\"\\\\\\\"\\\\\"");
    expect_error("{\"parameters\":{\"file:a\":\"\\\"}}",
                 "malformed JSON at byte 29: expected the end of the data, got the end of the "
                 "JSON");
}

/* Errors show text from clients, possibly on a terminal. */
Test(json_reader, what_is_shown_has_no_control_characters)
{
    const struct {
        const char *sent, *shown;
    } cases[] = {
        {"a\nb\x7f", "\"a?b?\""},
        {"\xc2\x9b"
         "31m\xe2\x80\xae\xe2\x80\xa8"
         "x",
         "\"?31m??x\""},        /* CSI, U+202E, U+2028 */
        {"\xff\xc3", "\"??\""}, /* not UTF-8 */
        {"\xc3\xa9\xe2\x82\xac", "\"\xc3\xa9\xe2\x82\xac\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        cr_expect_str_eq(qd_show_string(cases[i].sent).text, cases[i].shown, "%zu", i);
}
