#include <criterion/criterion.h>
#include <stdio.h>

#include "server/base/limits.h"
#include "server/json/envelope.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_json_envelope envelope;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(json_envelope, .init = setup, .fini = teardown);

/* Cuts a copy that ends where the text does, so that the sanitizer sees any read beyond it. The
 * slices point into it: `kept` lives until the next cut. */
static char *kept;

static enum qd_status cut_bytes(const char *json, size_t bytes)
{
    kept = realloc(kept, bytes + (bytes == 0));
    memcpy(kept, json, bytes);
    error.text[0] = '\0';
    return qd_json_envelope_cut(kept, bytes, &scratch.arena, &envelope, &error);
}

static enum qd_status cut(const char *json)
{
    return cut_bytes(json, strlen(json));
}

static void expect_cut(const char *json, const char *text)
{
    cr_assert_eq(cut(json), QD_OK, "%s", error.text);
    cr_assert_str_eq(envelope.text, text);
    cr_assert_eq(envelope.text_bytes, strlen(text));
}

static void expect_slice(size_t index, const char *text)
{
    cr_assert_lt(index, envelope.data_count);
    cr_assert_eq(envelope.data[index].count, strlen(text));
    cr_assert_eq(memcmp(envelope.data[index].bytes, text, strlen(text)), 0);
}

static void expect_error(const char *json, const char *text)
{
    cr_assert_eq(cut(json), QD_INVALID, "%s", json);
    cr_assert_str_eq(error.text, text);
}

/* ---- What is cut ------------------------------------------------------------------------- */

Test(json_envelope, replaces_each_data_by_its_index)
{
    expect_cut("{\"inputs\":[{\"data\":[1,2]},{\"data\": [[3],[4]] ,\"name\":\"x\"}]}",
               "{\"inputs\":[{\"data\":0},{\"data\": 1 ,\"name\":\"x\"}]}");
    cr_assert_eq(envelope.data_count, 2);
    expect_slice(0, "[1,2]");
    expect_slice(1, "[[3],[4]]");
}

Test(json_envelope, cuts_values_that_are_no_arrays)
{
    expect_cut(
        "{\"inputs\":[{\"data\":7},{\"data\":null},{\"data\":\"a\\\"]\"},{\"data\":{\"a\":[]}},"
        "{\"data\":NaN }]}",
        "{\"inputs\":[{\"data\":0},{\"data\":1},{\"data\":2},{\"data\":3},{\"data\":4 }]}");
    expect_slice(0, "7");
    expect_slice(1, "null");
    expect_slice(2, "\"a\\\"]\"");
    expect_slice(3, "{\"a\":[]}");
    expect_slice(4, "NaN");
}

Test(json_envelope, cuts_only_the_data_of_inputs)
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
        expect_cut(whole[i], whole[i]);
        cr_assert_eq(envelope.data_count, 0);
    }
}

/* cJSON would read 9007199254740993 as 9007199254740992. */
Test(json_envelope, quotes_integers_beyond_doubles_among_the_parameters)
{
    expect_cut("{\"parameters\":{\"a\": 9007199254740993 ,\"b\":-9007199254740992},\"inputs\":[]}",
               "{\"parameters\":{\"a\": \"9007199254740993\" ,\"b\":\"-9007199254740992\"},"
               "\"inputs\":[]}");
    expect_cut("{\"inputs\":[{\"data\":[1]}],\"parameters\":{\"a\":9223372036854775807}}",
               "{\"inputs\":[{\"data\":0}],\"parameters\":{\"a\":\"9223372036854775807\"}}");
    static const char *const whole[] = {
        "{\"parameters\":{\"a\":9007199254740991,\"b\":9223372036854775808,\"c\":1e18}}",
        "{\"parameters\":{\"a\":9007199254740992.0,\"b\":\"9007199254740993\"}}",
        "{\"parameters\":{\"a\":[9007199254740993],\"b\":{\"c\":9007199254740993}}}",
        "{\"parameters\":[9007199254740993]}",
        "{\"parameters\":9007199254740993}",
        "{\"parameters\":{},\"id\":9007199254740993}",
        "{\"inputs\":[{\"parameters\":{\"a\":9007199254740993}}]}",
        "[{\"parameters\":{\"a\":9007199254740993}}]",
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        expect_cut(whole[i], whole[i]);
}

/* Otherwise a request could put an index of its choice where the cutter's belongs. */
Test(json_envelope, knows_keys_behind_escapes)
{
    expect_cut("{\"\\u0069nput\\u0073\":[{\"d\\u0061t\\u0061\":5}]}",
               "{\"\\u0069nput\\u0073\":[{\"d\\u0061t\\u0061\":0}]}");
    expect_slice(0, "5");
}

Test(json_envelope, brackets_in_strings_of_data_do_not_count)
{
    expect_cut("{\"inputs\":[{\"data\":[\"]}\\\\\",\"\\\"[\"]}]}", "{\"inputs\":[{\"data\":0}]}");
    expect_slice(0, "[\"]}\\\\\",\"\\\"[\"]");
}

Test(json_envelope, finds_the_end_of_data_at_any_distance)
{
    for (size_t count = 0; count < 200; count++) {
        char json[600] = "{\"inputs\":[{\"data\":[[";
        memset(json + strlen(json), '1', count);
        strcat(json, "],[");
        memset(json + strlen(json), '2', count);
        strcat(json, "]] } ] } ");
        cr_assert_eq(cut(json), QD_OK, "%s", error.text);
        cr_assert_eq(envelope.data[0].count, 2 * count + 7);
        cr_assert_str_eq(envelope.text, "{\"inputs\":[{\"data\":0 } ] } ");
    }
}

Test(json_envelope, many_inputs)
{
    char *json = malloc(100 * 1000);
    char *at = json + sprintf(json, "{\"inputs\":[");
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, "%s{\"data\":%d}", i == 0 ? "" : ",", i);
    sprintf(at, "]}");
    cr_assert_eq(cut(json), QD_OK, "%s", error.text);
    cr_assert_eq(envelope.data_count, 5000);
    expect_slice(4999, "4999");
    cr_assert_not_null(strstr(envelope.text, "{\"data\":4999}]}"));
    free(json);
}

/* ---- The grammar ------------------------------------------------------------------------- */

Test(json_envelope, takes_every_kind_of_json)
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
        " \t\r\n[ ] \n",
        "[1,\"a\",null,true,false,{\"b\":{}},[[]]]",
        "{\"a\":1,\"b\":[2],\"a\":3}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\uD83D\\uDE00\"",
        "\"\x7f ж€😀\"",
        "1.7976931348623157e308",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        expect_cut(good[i], good[i]);
}

Test(json_envelope, names_the_byte_and_what_was_expected)
{
    expect_error("", "malformed JSON at byte 0: expected a value, got the end of the JSON");
    expect_error("  ", "malformed JSON at byte 2: expected a value, got the end of the JSON");
    expect_error("{\"a\" 1}", "malformed JSON at byte 5: expected ':', got '1'");
    expect_error("{\"a\"", "malformed JSON at byte 4: expected ':', got the end of the JSON");
    expect_error("{\"a\":}", "malformed JSON at byte 5: expected a value, got '}'");
    expect_error("{a:1}", "malformed JSON at byte 1: expected a key or '}', got 'a'");
    expect_error("{\"a\":1,}", "malformed JSON at byte 7: expected a key, got '}'");
    expect_error("{\"a\":1 \"b\":2}", "malformed JSON at byte 7: expected ',' or '}', got '\"'");
    expect_error("[1,]", "malformed JSON at byte 3: expected a value, got ']'");
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
    expect_error("[1,\x01]", "malformed JSON at byte 3: expected a value, got byte 0x01");
    expect_error("{} {}",
                 "malformed JSON at byte 3: expected nothing after the JSON (binary tensor "
                 "data needs the header Inference-Header-Content-Length), got '{'");
}

Test(json_envelope, numbers_are_strict)
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
    char digits[80] = "[";
    memset(digits + 1, '1', 64);
    strcat(digits, "]");
    expect_error(digits, "malformed JSON at byte 1: expected a number of at most 63 characters, "
                         "got '1'");
}

Test(json_envelope, strings_are_strict)
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

Test(json_envelope, nul_bytes_are_no_end)
{
    cr_assert_eq(cut_bytes("{}\0", 3), QD_INVALID);
    cr_assert_eq(cut_bytes("\"a\0b\"", 5), QD_INVALID);
    cr_assert_eq(cut_bytes("{\"inputs\":[{\"data\":1\0}]}", 24), QD_INVALID);
    cr_assert_eq(cut_bytes("{\"inputs\":[{\"data\":\0}]}", 23), QD_INVALID);
}

Test(json_envelope, data_must_end)
{
    static const char *const unended[] = {"[1,2", "[\"a", "[\"a\\", "\"a", "[[1]", "{\"a\":1"};
    for (size_t i = 0; i < sizeof(unended) / sizeof(unended[0]); i++) {
        char json[64];
        char text[128];
        snprintf(json, sizeof(json), "{\"inputs\":[{\"data\":%s", unended[i]);
        snprintf(text, sizeof(text),
                 "malformed JSON at byte %zu: expected the end of the data, got the end "
                 "of the JSON",
                 strlen(json));
        expect_error(json, text);
    }
    expect_error("{\"inputs\":[{\"data\":",
                 "malformed JSON at byte 19: expected a value, got the end of the JSON");
    expect_error("{\"inputs\":[{\"data\":}]}",
                 "malformed JSON at byte 19: expected a value, got '}'");
    expect_error("{\"inputs\":[{\"data\":1 2}]}",
                 "malformed JSON at byte 21: expected ',' or '}', got '2'");
}

/* Every prefix of a good request is refused, and read no further than it goes. */
Test(json_envelope, no_prefix_is_json)
{
    static const char json[] = " {\"id\":\"\\u0041ж\",\"inputs\":[{\"data\":[[1.5,\"NaN\"],[-2]],"
                               "\"shape\":[2,1e1]},null,true]}";
    for (size_t bytes = 0; bytes < sizeof(json) - 1; bytes++)
        cr_assert_eq(cut_bytes(json, bytes), QD_INVALID, "%zu", bytes);
    cr_assert_eq(cut(json), QD_OK);
}

/* ---- Bounds ------------------------------------------------------------------------------ */

static char *repeat(const char *before, char byte, size_t count, const char *after)
{
    char *text = malloc(strlen(before) + count + strlen(after) + 1);
    size_t used = strlen(before);
    memcpy(text, before, used);
    memset(text + used, byte, count);
    memcpy(text + used + count, after, strlen(after) + 1);
    return text;
}

Test(json_envelope, nesting_is_bounded)
{
    char *deepest = repeat("", '[', QD_ENVELOPE_DEPTH_MAX, "");
    char *closed = repeat(deepest, ']', QD_ENVELOPE_DEPTH_MAX, "");
    expect_cut(closed, closed);
    char *deeper = repeat("", '[', 100000, "");
    expect_error(deeper, "malformed JSON at byte 32: nested deeper than 32");
    char *objects = repeat("{\"inputs\":[{\"data\":", '[', 100000, "");
    cr_assert_eq(cut(objects), QD_INVALID); /* skipped without recursion, and then not closed */
    free(deepest);
    free(closed);
    free(deeper);
    free(objects);
}

Test(json_envelope, text_is_bounded_and_data_is_not)
{
    char *longest = repeat("\"", 'a', QD_ENVELOPE_BYTES_MAX - 2, "\"");
    expect_cut(longest, longest);
    char *longer = repeat("\"", 'a', QD_ENVELOPE_BYTES_MAX - 1, "\"");
    cr_assert_eq(cut(longer), QD_TOO_LARGE);
    cr_assert_str_eq(error.text, "the JSON without its tensor data exceeds 262144 bytes");
    char *data = repeat("{\"inputs\":[{\"data\":[", ' ', 4u << 20, "1]}]}");
    expect_cut(data, "{\"inputs\":[{\"data\":0}]}");
    free(longest);
    free(longer);
    free(data);
}

Test(json_envelope, refuses_softly_without_memory)
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
        status = qd_json_envelope_cut(json, strlen(json), &tight.arena, &envelope, &error);
        cr_assert(status == QD_OK || status == QD_TOO_LARGE, "%d: %s", (int)status, error.text);
        cr_assert(status == QD_OK || strstr(error.text, "--max-inflight-bytes") != NULL);
        scratch_deinit(&tight);
    }
    free(name);
}

/* ---- A load call's files ----------------------------------------------------------------- */

Test(json_envelope, cuts_files_of_the_parameters)
{
    expect_cut("{\"parameters\":{\"config\":\"{}\",\"file:1/model.onnx\": \"AAAA\\/\" ,"
               "\"\\u0066ile:x\":0,\"profile:\":1}}",
               "{\"parameters\":{\"config\":\"{}\",\"file:1/model.onnx\": 0 ,"
               "\"\\u0066ile:x\":1,\"profile:\":1}}");
    cr_assert_eq(envelope.data_count, 2);
    expect_slice(0, "\"AAAA\\/\"");
    expect_slice(1, "0");
}

Test(json_envelope, cuts_no_files_elsewhere)
{
    static const char *const cases[] = {
        "{\"file:a\":\"b\"}",
        "{\"other\":{\"file:a\":\"b\"}}",
        "{\"parameters\":{\"a\":{\"file:a\":\"b\"}}}",
        "{\"parameters\":[{\"file:a\":\"b\"}]}",
        "[{\"file:a\":\"b\"}]",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        expect_cut(cases[i], cases[i]);
        cr_assert_eq(envelope.data_count, 0);
    }
}

Test(json_envelope, cut_strings_end_at_their_quote)
{
    expect_cut("{\"parameters\":{\"file:a\":\"\\\\\\\"\\\\\"}}", "{\"parameters\":{\"file:a\":0}}");
    expect_slice(0, "\"\\\\\\\"\\\\\"");
    expect_error("{\"parameters\":{\"file:a\":\"\\\"}}",
                 "malformed JSON at byte 29: expected the end of the data, got the end of the "
                 "JSON");
}
