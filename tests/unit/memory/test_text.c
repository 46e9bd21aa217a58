#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_text text;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
    qd_text_init(&text, &scratch.arena);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(text, .init = setup, .fini = teardown);

static void expect_text(const char *expected)
{
    cr_assert_not(text.failed);
    char *joined = join_parts(text.parts, text.part_count);
    cr_assert_str_eq(joined, expected);
    cr_assert_eq(text.bytes, strlen(expected));
    free(joined);
}

Test(text, is_empty_at_first)
{
    expect_text("");
    cr_assert_eq(text.part_count, 0);
}

Test(text, appends_one_after_another_in_one_part)
{
    qd_text_string(&text, "one ");
    qd_text_append(&text, "two and more", 3);
    qd_text_format(&text, " %d", 3);
    expect_text("one two 3");
    cr_assert_eq(text.part_count, 1);
}

Test(text, prints_decimals)
{
    char room[QD_DECIMAL_BYTES_MAX + 1];
    *qd_print_decimal(UINT64_MAX, room) = 0;
    cr_assert_str_eq(room, "18446744073709551615");
    *qd_print_decimal(0, room) = 0;
    cr_assert_str_eq(room, "0");
    for (uint64_t number = 9; number < UINT64_MAX / 10; number = 10 * number + 9) {
        char expected[QD_DECIMAL_BYTES_MAX + 1];
        for (uint64_t i = number - 1; i <= number + 1; i++) {
            snprintf(expected, sizeof(expected), "%" PRIu64, i);
            *qd_print_decimal(i, room) = 0;
            cr_assert_str_eq(room, expected);
        }
    }
}

Test(text, commits_only_what_was_used)
{
    char *room = qd_text_reserve(&text, QD_TEXT_RESERVE_MAX);
    memset(room, 'x', QD_TEXT_RESERVE_MAX);
    qd_text_commit(&text, 2);
    qd_text_commit(&text, 0);
    qd_text_string(&text, "y");
    expect_text("xxy");
}

Test(text, borrows_without_a_copy_and_goes_on_behind)
{
    static const char tensor[] = "TENSOR";
    qd_text_string(&text, "a");
    qd_text_borrow(&text, tensor, 6);
    qd_text_borrow(&text, tensor, 0);
    qd_text_string(&text, "b");
    expect_text("aTENSORb");
    cr_assert_eq(text.part_count, 3);
    cr_assert_eq(text.parts[1].bytes, tensor);
}

Test(text, holds_megabytes_in_few_parts)
{
    static char line[5000];
    memset(line, 'z', sizeof(line));
    for (int i = 0; i < 1000; i++)
        qd_text_append(&text, line, sizeof(line));
    cr_assert_not(text.failed);
    cr_assert_eq(text.bytes, 1000 * sizeof(line));
    cr_assert_lt(text.part_count, 40);
    size_t bytes = 0;
    for (size_t i = 0; i < text.part_count; i++) {
        bytes += text.parts[i].count;
        cr_assert_eq(*(const char *)text.parts[i].bytes, 'z');
    }
    cr_assert_eq(bytes, text.bytes);
}

Test(text, parts_never_move)
{
    qd_text_string(&text, "first");
    const void *first = text.parts[0].bytes;
    for (int i = 0; i < 3000; i++)
        qd_text_string(&text, "some more text to fill several chunks of it");
    cr_assert_eq(text.parts[0].bytes, first);
    cr_assert_eq(memcmp(first, "firstsome", 9), 0);
}

Test(text, escapes_json_strings)
{
    qd_text_json_string(&text, "plain");
    qd_text_json_string(&text, "");
    qd_text_json_string(&text, "\"\\/\b\f\n\r\t");
    qd_text_json_string(&text, "\x01\x1f\x7f");
    qd_text_json_string(&text, "ж€😀");
    expect_text("\"plain\"\"\"\"\\\"\\\\/\\b\\f\\n\\r\\t\"\"\\u0001\\u001f\x7f\"\"ж€😀\"");
}

Test(text, replaces_what_is_not_utf8)
{
    qd_text_json_string(&text, "\xff|\xc3|\xed\xa0\x80|\xc0\xaf|\xf4\x90\x80\x80|\xe2\x82");
    expect_text("\"\uFFFD|\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD\uFFFD|"
                "\uFFFD\uFFFD\"");
}

Test(text, utf8_length)
{
    cr_assert_eq(qd_utf8_length("a", 1), 1);
    cr_assert_eq(qd_utf8_length("a", 0), 0);
    cr_assert_eq(qd_utf8_length("\xc2\x80", 2), 2);
    cr_assert_eq(qd_utf8_length("\xe0\xa0\x80", 3), 3);
    cr_assert_eq(qd_utf8_length("\xf4\x8f\xbf\xbf", 4), 4);
    cr_assert_eq(qd_utf8_length("\xf4\x8f\xbf\xbf", 3), 0);
    cr_assert_eq(qd_utf8_length("\xe0\x9f\x80", 3), 0);
    cr_assert_eq(qd_utf8_length("\xf0\x8f\xbf\xbf", 4), 0);
    cr_assert_eq(qd_utf8_length("\x80", 1), 0);
    cr_assert_eq(qd_utf8_length("\xf8\x88\x80\x80\x80", 5), 0);
}

/* If the bound is too small, a text fails once, stays failed, and never writes beyond its
 * memory. */
Test(text, fails_softly_without_memory)
{
    static char piece[1000];
    memset(piece, 'p', sizeof(piece));
    bool succeeded = false;
    for (size_t bytes_max = 0; !succeeded; bytes_max += 16 << 10) {
        struct scratch tight;
        scratch_init(&tight, bytes_max);
        struct qd_text tried;
        qd_text_init(&tried, &tight.arena);
        for (int i = 0; i < 100; i++) {
            qd_text_append(&tried, piece, sizeof(piece));
            qd_text_json_string(&tried, "\n");
            qd_text_format(&tried, "%d", i);
            qd_text_borrow(&tried, piece, sizeof(piece));
        }
        succeeded = !tried.failed;
        if (tried.failed) {
            size_t bytes = tried.bytes;
            qd_text_string(&tried, "x");
            cr_assert_eq(tried.bytes, bytes);
            cr_assert_eq(qd_text_reserve(&tried, 1), NULL);
        } else {
            cr_assert_eq(tried.bytes, 100 * (1000 + 4 + 1000) + 190);
        }
        scratch_deinit(&tight);
    }
}

/* If the caller's buffer is full, nothing more is printed. */
Test(text, in_a_room_of_the_callers)
{
    char room[QD_TEXT_RESERVE_MAX + 4];
    qd_text_init_in(&text, room, sizeof(room));
    qd_text_string(&text, "one ");
    qd_text_format(&text, "%d", 2);
    expect_text("one 2");
    cr_assert_eq(text.parts[0].bytes, room);
    qd_text_format(&text, "%d", 3);
    cr_assert(text.failed, "it may take as much as any format does");
    qd_text_init_in(&text, room, 3);
    qd_text_string(&text, "123");
    expect_text("123");
    qd_text_string(&text, "4");
    cr_assert(text.failed);
    qd_text_string(&text, "");
    qd_text_borrow(&text, "5", 1);
    cr_assert_eq(text.bytes, 3);
    qd_text_init_in(&text, room, 3);
    qd_text_borrow(&text, "5", 1);
    cr_assert(text.failed, "there is no second part");
}

Test(text, names_are_listed_as_far_as_they_fit)
{
    char list[16] = "";
    cr_assert(qd_list_name(list, sizeof(list), "a..."));
    cr_assert(qd_list_name(list, sizeof(list), "b"));
    cr_assert_str_eq(list, "a..., b");
    cr_assert_not(qd_list_name(list, sizeof(list), "cd"));
    cr_assert_not(qd_list_name(list, sizeof(list), "e"));
    cr_assert_str_eq(list, "a..., b, ...");
    list[0] = '\0';
    cr_assert_not(qd_list_name(list, sizeof(list), "a name that is too long"));
    cr_assert_not(qd_list_name(list, sizeof(list), "f"));
    cr_assert_str_eq(list, "...");
}

Test(text, integers_are_printed_as_far_as_they_fit)
{
    static const int64_t list[] = {1, -1, INT64_MIN};
    char shown[64];
    qd_print_integers(list, 0, shown, sizeof(shown));
    cr_assert_str_eq(shown, "[]");
    qd_print_integers(list, 3, shown, sizeof(shown));
    cr_assert_str_eq(shown, "[1,-1,-9223372036854775808]");
    for (size_t size = 1; size < sizeof("[1,-1,-9223372036854775808]"); size++) {
        qd_print_integers(list, 3, shown, size);
        cr_assert_eq(strlen(shown), size - 1);
        cr_assert_eq(memcmp(shown, "[1,-1,-9223372036854775808]", size - 1), 0);
    }
}
