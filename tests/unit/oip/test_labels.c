#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip/labels.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static const struct qd_labels *labels;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(labels, .init = setup, .fini = teardown);

/* Reads a text that no NUL follows, so that a sanitizer sees reads beyond its end. */
static enum qd_status read_bytes(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + (bytes == 0));
    memcpy(copy, text, bytes);
    const enum qd_status status =
        qd_labels_read(copy, bytes, "net/labels.txt", &scratch.arena, &labels, &error);
    free(copy);
    return status;
}

static void expect_label(size_t index, const char *wanted)
{
    size_t bytes = 0;
    const char *label = qd_labels_find(labels, index, &bytes);
    if (wanted == NULL) {
        cr_assert_null(label, "%zu", index);
        return;
    }
    cr_assert_str_eq(label, wanted);
    cr_assert_eq(bytes, strlen(wanted));
}

static void expect_labels(const char *text, size_t count, const char *const *wanted)
{
    cr_assert_eq(read_bytes(text, strlen(text)), QD_OK, "%s", error.text);
    for (int copies = 0; copies < 2; copies++) {
        cr_assert_eq(labels->count, count, "%s: %zu", text, labels->count);
        for (size_t i = 0; i < count; i++)
            expect_label(i, wanted[i]);
        expect_label(count, NULL);
        expect_label(SIZE_MAX, NULL);
        labels = qd_labels_copy(labels, &scratch.arena);
    }
}

Test(labels, lines)
{
    expect_labels("", 0, NULL);
    expect_labels("\n", 1, (const char *const[]){NULL});
    expect_labels("cat", 1, (const char *const[]){"cat"});
    expect_labels("cat\n", 1, (const char *const[]){"cat"});
    expect_labels("cat\r\n\r\ndog\r\n", 3, (const char *const[]){"cat", NULL, "dog"});
    expect_labels("\xef\xbb\xbf"
                  "cat\n",
                  1, (const char *const[]){"cat"});
    expect_labels("\xef\xbb\xbf", 0, NULL);
    expect_labels("n01\ttench, Tinca\nb\xc3\xa4r\n\nfox", 4,
                  (const char *const[]){"n01\ttench, Tinca", "b\xc3\xa4r", NULL, "fox"});
}

Test(labels, none)
{
    size_t bytes;
    cr_assert_null(qd_labels_find(NULL, 0, &bytes));
}

static void expect_error(const char *text, size_t bytes, enum qd_status status, const char *wanted)
{
    cr_assert_eq(read_bytes(text, bytes), status, "%s", wanted);
    cr_assert_str_eq(error.text, wanted);
}

Test(labels, hostile)
{
    enum { ROOM = QD_LABELS_BYTES_MAX + 1 };
    char *text = malloc(ROOM);
    memset(text, 'a', ROOM);
    expect_error(text, ROOM, QD_TOO_LARGE,
                 "net/labels.txt: expected at most 4194304 bytes, got 4194305");
    expect_error(text, QD_LABEL_BYTES_MAX + 1, QD_INVALID,
                 "net/labels.txt: line 1: expected at most 512 bytes, got 513");
    cr_assert_eq(read_bytes(text, QD_LABEL_BYTES_MAX), QD_OK);
    memset(text, '\n', ROOM);
    expect_error(text, QD_LABELS_COUNT_MAX + 1, QD_TOO_LARGE,
                 "net/labels.txt: expected at most 1000000 lines, got 1000001");
    cr_assert_eq(read_bytes(text, QD_LABELS_COUNT_MAX), QD_OK);
    free(text);
    expect_error("a\nb\xff", 4, QD_INVALID,
                 "net/labels.txt: line 2: expected UTF-8, got byte 0xff");
    expect_error("\xc3\n", 2, QD_INVALID, "net/labels.txt: line 1: expected UTF-8, got byte 0xc3");
    expect_error("\xff\xfe"
                 "a\0",
                 4, QD_INVALID, "net/labels.txt: line 1: expected UTF-8, got byte 0xff");
    expect_error("a\0b", 3, QD_INVALID,
                 "net/labels.txt: line 1: expected no control characters but tabs, got U+0000");
    expect_error("a\n\x1b[2J", 6, QD_INVALID,
                 "net/labels.txt: line 2: expected no control characters but tabs, got U+001B");
    expect_error("a\rb\n", 4, QD_INVALID,
                 "net/labels.txt: line 1: expected no control characters but tabs, got U+000D");
    expect_error("\xe2\x80\xae"
                 "a",
                 4, QD_INVALID,
                 "net/labels.txt: line 1: expected no control characters but tabs, got U+202E");
}

Test(labels, refuses_softly_without_memory)
{
    static const char text[] = "cat\ndog\n";
    struct scratch tight;
    scratch_init(&tight, 0);
    cr_assert_eq(qd_labels_read(text, strlen(text), "x", &tight.arena, &labels, &error),
                 QD_TOO_LARGE);
    cr_assert_eq(read_bytes(text, strlen(text)), QD_OK);
    cr_assert_null(qd_labels_copy(labels, &tight.arena));
    scratch_deinit(&tight);
}
