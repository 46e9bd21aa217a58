/* A line of a log stays one line, and JSON stays JSON, for any contents. */
#include "server/telemetry/line.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "server/json/reader.h"
#include "tests/support/random.h"
#include "tests/unit/scratch.h"

static void begin(struct qd_line *line, enum qd_line_format format)
{
    qd_line_begin(line, format, "info", "event");
}

/* Returns the line without its end and, in text format, without the time. */
static const char *end(struct qd_line *line)
{
    qd_line_end(line);
    cr_assert_leq(line->count, QD_LINE_BYTES_MAX);
    cr_assert_eq(line->bytes[line->count - 1], '\n');
    cr_assert_null(memchr(line->bytes, '\n', line->count - 1));
    line->bytes[line->count - 1] = '\0';
    return line->bytes + (line->format == QD_LINE_TEXT ? strlen("ts=2000-01-01T00:00:00.000Z") : 0);
}

/* Asserts that the strict reader of requests accepts the text. */
static void assert_json(const char *text)
{
    struct scratch scratch;
    const struct qd_json_value *tree;
    struct qd_error error;
    scratch_init(&scratch, 1 << 20);
    cr_assert_eq(qd_json_read(text, strlen(text), &scratch.arena, &tree, &error), QD_OK, "%s in %s",
                 error.text, text);
    scratch_deinit(&scratch);
}

Test(line, text)
{
    struct qd_line line;
    begin(&line, QD_LINE_TEXT);
    qd_line_string(&line, "name",
                   "a\"b\\c\n\x1b\xff"
                   "d\xc3\xa9",
                   100);
    qd_line_number(&line, "zero", 0);
    qd_line_number(&line, "most", UINT64_MAX);
    qd_line_pairs(&line, "count=1 name=\"a b\" text=\"x\ny\"");
    cr_assert_str_eq(end(&line),
                     " level=info msg=\"event\" name=\"a\\\"b\\\\c???d\xc3\xa9\" zero=0 "
                     "most=18446744073709551615 count=1 name=\"a b\" text=\"x?y\"");
}

Test(line, json)
{
    struct qd_line line;
    begin(&line, QD_LINE_JSON);
    qd_line_string(&line, "name",
                   "a\"b\\c\n\x1b\xff"
                   "d\xc3\xa9\x7f",
                   100);
    qd_line_number(&line, "most", UINT64_MAX);
    qd_line_pairs(&line, "count=17 empty= version=\"1\" ratio=1.5 zeros=007 where=a:1 name=\"a b\" "
                         "x");
    const char *text = end(&line);
    assert_json(text);
    const char *rest = strstr(text, ",\"level\"");
    cr_assert_not_null(rest);
    cr_assert_eq(rest - text, (int)strlen("{\"ts\":\"2000-01-01T00:00:00.000Z\""));
    cr_assert_str_eq(
        rest,
        ",\"level\":\"info\",\"msg\":\"event\",\"name\":\"a\\\"b\\\\c\\u000a\\u001b\xef\xbf\xbd"
        "d\xc3\xa9\\u007f\",\"most\":18446744073709551615,\"count\":17,\"empty\":\"\","
        "\"version\":\"1\",\"ratio\":\"1.5\",\"zeros\":\"007\",\"where\":\"a:1\","
        "\"name\":\"a b\",\"text\":\"x\"}");
}

/* CSI, NEL, a line separator, two characters that change the direction of text, and characters next
 * to these. */
Test(line, control_characters_of_unicode)
{
    static const char value[] =
        "\xc2\x9b"
        "31m\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6"
        "\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa\xf0\x90\x80\xa8";
    static const char beside[] =
        "\xc2\xa0\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa\xf0\x90\x80\xa8\"";
    struct qd_line line;
    begin(&line, QD_LINE_TEXT);
    qd_line_string(&line, "name", value, 100);
    const char *text = strstr(end(&line), "name=");
    cr_assert_eq(strncmp(text, "name=\"?31m????", 14), 0, "%s", text);
    cr_assert_str_eq(text + 14, beside);
    begin(&line, QD_LINE_JSON);
    qd_line_string(&line, "name", value, 100);
    text = strstr(end(&line), "\\u");
    cr_assert_eq(strncmp(text, "\\u009b31m\\u0085\\u2028\\u202e\\u2066", 33), 0, "%s", text);
    cr_assert_eq(strncmp(text + 33, beside, sizeof(beside) - 1), 0, "%s", text);
}

Test(line, values_are_cut_between_characters)
{
    struct qd_line line;
    begin(&line, QD_LINE_JSON);
    qd_line_string(&line, "a", "12345\n", 10); /* an escape has six bytes */
    qd_line_string(&line, "b", "1\xc3\xa9", 2);
    cr_assert_not_null(strstr(end(&line), ",\"a\":\"12345\",\"b\":\"1\"}"));
}

Test(line, what_has_no_room_is_left_out)
{
    for (int format = QD_LINE_TEXT; format <= QD_LINE_JSON; format++) {
        struct qd_line line;
        char value[10000];
        memset(value, 1, sizeof(value) - 1);
        value[sizeof(value) - 1] = '\0';
        begin(&line, (enum qd_line_format)format);
        for (int i = 0; i < 3; i++) {
            qd_line_string(&line, "key", value, sizeof(value));
            qd_line_number(&line, "number", UINT64_MAX);
            qd_line_pairs(&line, value);
        }
        const char *text = end(&line);
        cr_assert_gt(line.count, QD_LINE_BYTES_MAX - 60);
        if (format == QD_LINE_JSON)
            assert_json(text);
    }
}

Test(line, random_bytes)
{
    static const char nasty[] = "\"\\=, {}[]:\n\r\t\x7f\xc3\xa9\xff\xed\xa0\x80\xf0\x9f\x98\x80"
                                "a0";
    uint64_t random = 13;
    for (int round = 0; round < 5000; round++) {
        struct qd_line line;
        char value[300];
        size_t count = random_next(&random) % sizeof(value);
        for (size_t i = 0; i < count; i++)
            value[i] =
                (char)(random_next(&random) % 4 == 0
                           ? random_next(&random) % 255 + 1
                           : (unsigned char)nasty[random_next(&random) % (sizeof(nasty) - 1)]);
        value[count == 0 ? 0 : count - 1] = '\0';
        begin(&line, QD_LINE_JSON);
        qd_line_string(&line, "value", value, random_next(&random) % 400);
        qd_line_pairs(&line, value);
        assert_json(end(&line));
        begin(&line, QD_LINE_TEXT);
        qd_line_string(&line, "value", value, random_next(&random) % 400);
        qd_line_pairs(&line, value);
        end(&line);
        for (size_t i = 0; i + 1 < line.count; i++)
            cr_assert((unsigned char)line.bytes[i] >= ' ' && line.bytes[i] != 0x7f);
    }
}
