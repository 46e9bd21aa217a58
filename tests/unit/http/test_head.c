#include "server/http/wire/head.h"

#include <criterion/criterion.h>
#include <string.h>

#include "server/base/limits.h"

/* Checks a head of "Name: value" lines. NULL ends the list. */
static enum qd_status check(struct qd_head *head, struct qd_error *error,
                            const char *const *headers)
{
    static char names[16][128]; /* the head borrows them */
    error->status = QD_OK;
    for (size_t i = 0; headers[i] != NULL; i++) {
        const char *colon = strchr(headers[i], ':');
        const size_t bytes = (size_t)(colon - headers[i]);
        cr_assert(i < 16 && bytes < sizeof(names[i]));
        char *name = names[i];
        memcpy(name, headers[i], bytes);
        name[bytes] = '\0';
        qd_head_add(head, name, bytes, colon + 1, strlen(colon + 1));
    }
    return qd_head_check(head, error);
}

#define CHECK(head, error, ...) check(head, error, (const char *const[]){__VA_ARGS__, NULL})

static struct qd_head post(void)
{
    struct qd_head head;
    qd_head_init(&head, "POST", "/v2", "HTTP/1.1");
    return head;
}

Test(head, what_it_understands)
{
    struct qd_error error;
    struct qd_head head = post();
    cr_assert_eq(CHECK(&head, &error, "host:q", "CONTENT-LENGTH:18446744073709551615",
                       "inference-header-content-length:12", "Content-Encoding:gzip",
                       "Expect:100-Continue", "X-Other:\t\xc3\xa4"),
                 QD_OK, "%s", error.text);
    cr_assert_eq(head.content_bytes, UINT64_MAX);
    cr_assert_str_eq(head.json_bytes, "12");
    cr_assert_str_eq(head.content_encoding, "gzip");
    cr_assert(head.expects_continue);
    head = post();
    cr_assert_eq(CHECK(&head, &error, "Host:q", "Transfer-Encoding:Chunked"), QD_OK);
    cr_assert_eq(head.content_bytes, 0);
}

Test(head, two_readers_must_not_differ)
{
    struct qd_error error;
    struct qd_head head = post();
    cr_assert_eq(CHECK(&head, &error, "Host:q", "Content-Length:3", "content-length:3"),
                 QD_INVALID);
    cr_assert(strstr(error.text, "Content-Length") != NULL);
    head = post();
    cr_assert_eq(CHECK(&head, &error, "Host:q", "Content-Length:3", "Transfer-Encoding:chunked"),
                 QD_INVALID);
    head = post();
    cr_assert_eq(CHECK(&head, &error, "Host:q", "Host:r"), QD_INVALID);
    head = post();
    cr_assert_eq(CHECK(&head, &error, "Host:q", "Inference-Header-Content-Length:1",
                       "Inference-Header-Content-Length:1"),
                 QD_INVALID);
}

Test(head, http_1_0_has_no_chunks)
{
    struct qd_error error;
    struct qd_head head;
    qd_head_init(&head, "POST", "/v2", "HTTP/1.0");
    cr_assert_eq(CHECK(&head, &error, "Transfer-Encoding:chunked"), QD_INVALID);
    cr_assert(strstr(error.text, "HTTP/1.0") != NULL);
}

Test(head, transfer_encodings_other_than_chunked)
{
    static const char *const codings[] = {"Transfer-Encoding:gzip",
                                          "Transfer-Encoding:", "Transfer-Encoding:gzip, chunked",
                                          "Transfer-Encoding:chunked, chunked"};
    for (size_t i = 0; i < sizeof(codings) / sizeof(*codings); i++) {
        struct qd_error error;
        struct qd_head head = post();
        cr_assert_eq(CHECK(&head, &error, "Host:q", codings[i]), QD_NOT_IMPLEMENTED, "%s",
                     codings[i]);
    }
    struct qd_error error;
    struct qd_head head = post();
    cr_assert_eq(
        CHECK(&head, &error, "Host:q", "Transfer-Encoding:chunked", "Transfer-Encoding:chunked"),
        QD_NOT_IMPLEMENTED);
}

Test(head, host)
{
    struct qd_error error;
    struct qd_head head = post();
    cr_assert_eq(CHECK(&head, &error, "Accept:*/*"), QD_INVALID);
    cr_assert(strstr(error.text, "Host") != NULL);
    qd_head_init(&head, "GET", "/", "HTTP/1.0");
    cr_assert_eq(CHECK(&head, &error, "Accept:*/*"), QD_OK);
}

Test(head, names_and_values)
{
    static const char *const bad[] = {"Content-Length :5",
                                      " Folded:x",
                                      "A B:x",
                                      "Na\tme:x",
                                      ":x",
                                      "Bra[ket:x",
                                      "X:a\nb",
                                      "X:a\rb",
                                      "X:\x7f",
                                      "\xc3\xa4:x",
                                      "X:\x01"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_error error;
        struct qd_head head = post();
        cr_assert_eq(CHECK(&head, &error, "Host:q", bad[i]), QD_INVALID, "%s", bad[i]);
    }
    struct qd_error error;
    struct qd_head head = post();
    qd_head_add(&head, "Host", 4, "q", 1);
    qd_head_add(&head, "X", 1, "a\0b", 3); /* a NUL in the middle */
    cr_assert_eq(qd_head_check(&head, &error), QD_INVALID);
}

Test(head, bad_names_are_shown)
{
    struct qd_error error;
    struct qd_head head = post();
    CHECK(&head, &error, "Host:q", "Bra[ket:x");
    cr_assert(strstr(error.text, "got \"Bra[ket\"") != NULL, "%s", error.text);
    head = post();
    CHECK(&head, &error, "Host:q", "Name:\x01");
    cr_assert(strstr(error.text, "header Name: expected") != NULL, "%s", error.text);
}

Test(head, its_size_counts_fields_and_cookies)
{
    struct qd_error error;
    struct qd_head head = post();
    const size_t most = QD_HEAD_BYTES_MAX - QD_HEAD_FIELD_BYTES;
    qd_head_add(&head, "Host", 4, "q", 1);
    cr_assert_eq(qd_head_check_size(&head, most, QD_HEAD_BYTES_MAX, &error), QD_OK);
    cr_assert_eq(qd_head_check_size(&head, most + 1, 1, &error), QD_HEAD_TOO_LARGE);
    cr_assert(strstr(error.text, "got 24577") != NULL, "%s", error.text);
    cr_assert_eq(qd_head_check_size(&head, most, QD_HEAD_BYTES_MAX + 1, &error), QD_LINE_TOO_LONG);
    qd_head_add_cookie(&head, 1, 2);
    cr_assert_eq(qd_head_check_size(&head, most - QD_HEAD_FIELD_BYTES - 6, 1, &error), QD_OK);
    cr_assert_eq(qd_head_check_size(&head, most - QD_HEAD_FIELD_BYTES - 5, 1, &error),
                 QD_HEAD_TOO_LARGE);
}

Test(head, lengths_that_are_no_numbers)
{
    static const char *const bad[] = {"Content-Length:",    "Content-Length:+5",
                                      "Content-Length:-1",  "Content-Length:5, 5",
                                      "Content-Length:0x5", "Content-Length:18446744073709551616",
                                      "Content-Length: 5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_error error;
        struct qd_head head = post();
        cr_assert_eq(CHECK(&head, &error, "Host:q", bad[i]), QD_INVALID, "%s", bad[i]);
    }
}

Test(head, targets)
{
    static const struct {
        const char *target;
        const char *path;
    } targets[] = {{"/v2", "/v2"},     {"http://q:8000/v2/models", "/v2/models"},
                   {"HTTP://q/", "/"}, {"http://q", "/"},
                   {"*", "*"},         {"v2", "v2"},
                   {"", ""},           {"/http://q/v2", "/http://q/v2"}};
    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
        struct qd_head head;
        qd_head_init(&head, "GET", targets[i].target, "HTTP/1.1");
        cr_assert_str_eq(head.path, targets[i].path);
    }
}
