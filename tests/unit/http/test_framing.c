#include "server/http/wire/framing.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/limits.h"

#define POST "POST / HTTP/1.1\r\nHost: q\r\n"
#define GET "GET / HTTP/1.1\r\nHost: q\r\n\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

/* Reads the text in pieces of `piece` bytes, from a block of its exact size. Writes
 * the bytes that the framing leaves to `left`. */
static struct qd_framing read_in(const char *text, size_t count, size_t piece, char *left,
                                 size_t *left_count)
{
    struct qd_framing framing = {.body_bytes_max = 1000};
    *left_count = 0;
    for (size_t at = 0; at < count && framing.fault == QD_FAULT_NONE; at += piece) {
        const size_t bytes = count - at < piece ? count - at : piece;
        size_t begun;
        char *copy = malloc(bytes);
        memcpy(copy, text + at, bytes);
        const size_t kept = qd_framing_read(&framing, copy, bytes, &begun);
        memcpy(left + *left_count, copy, kept);
        *left_count += kept;
        free(copy);
    }
    return framing;
}

/* Asserts that the text has `requests` requests and leaves the bytes `left`, however it is cut into
 * pieces. */
static void assert_reads(const char *text, uint64_t requests, const char *left)
{
    const size_t count = strlen(text);
    char *all = malloc(count + 1);
    for (size_t piece = 1; piece <= count; piece++) {
        size_t left_count;
        struct qd_framing framing = read_in(text, count, piece, all, &left_count);
        all[left_count] = '\0';
        cr_assert_eq(framing.fault, QD_FAULT_NONE, "fault %d, pieces of %zu", framing.fault, piece);
        cr_assert_eq(framing.done_count, requests, "%s", text);
        cr_assert_str_eq(all, left);
    }
    free(all);
}

/* Asserts that the text has this fault, and that a valid request before it is read. */
static void assert_fault(const char *text, size_t count, enum qd_fault fault, const char *words)
{
    static const char before[] = "GET /before HTTP/1.1\r\nHost: q\r\n\r\n";
    const size_t all_count = sizeof(before) - 1 + count;
    char *all = malloc(all_count);
    char *left = malloc(all_count);
    memcpy(all, before, sizeof(before) - 1);
    memcpy(all + sizeof(before) - 1, text, count);
    for (size_t piece = 1; piece <= all_count; piece++) {
        size_t left_count;
        struct qd_error error;
        struct qd_framing framing = read_in(all, all_count, piece, left, &left_count);
        cr_assert_eq(framing.fault, fault, "%s: %d", text, framing.fault);
        cr_assert_eq(framing.done_count, 1);
        cr_assert_neq(qd_framing_explain(&framing, &error), QD_OK);
        cr_assert(strstr(error.text, words) != NULL, "%s", error.text);
    }
    free(all);
    free(left);
}

#define ASSERT_FAULT(text, fault, words) assert_fault(text, sizeof(text) - 1, fault, words)

Test(framing, what_is_fine_stays)
{
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\nHost: q\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: q\r\nX:\ta\tb\r\nX!#$%&'*+-.^_`|~: \xff\r\n\r\n",
        POST "Content-Length: 0\r\n\r\n",
        POST "content-LENGTH:\t 25\r\n\r\nPOST / HTTP/1.1\r\n\n\r\n0\r\n\r\n",
        POST "Content-Length: 00000000000000000000000002\r\n\r\n\r\n",
        CHUNKED "2\r\n\r\n\r\n0A\r\n0123456789\r\n0\r\n\r\n",
        POST "transfer-encoding:CHUNKED\r\nContent-Type: x\r\nT: y\r\n\r\n0\r\n\r\n",
        POST "Content-Lengthy: 5\r\nContent-Lengt: 5\r\nTransfer-Encodin: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char twice[512];
        snprintf(twice, sizeof(twice), "%s%s", texts[i], texts[i]);
        assert_reads(texts[i], 1, texts[i]);
        assert_reads(twice, 2, twice);
    }
}

Test(framing, what_says_nothing_goes)
{
    assert_reads(POST "Content-Length: 2 \t \r\n\r\nab" GET, 2,
                 POST "Content-Length: 2\r\n\r\nab" GET);
    assert_reads(POST "Transfer-Encoding: chunked \t\r\n\r\n"
                      "2;name=\"a;b\";c \t d\r\nab\r\n3  ;x\r\nabc\r\n1 \r\na\r\n0;last\r\n\r\n",
                 1, CHUNKED "2\r\nab\r\n3\r\nabc\r\n1\r\na\r\n0\r\n\r\n");
    assert_reads(CHUNKED "000000000000000000000002\r\nab\r\n00A;x\r\n0123456789\r\n"
                         "10\r\n0123456789abcdef\r\n00000000000000000 \r\n\r\n",
                 1, CHUNKED "02\r\nab\r\n0A\r\n0123456789\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    assert_reads("\r\n\r\n" CHUNKED
                 "0\r\nContent-Length: 7\r\nTransfer-Encoding:\r\nX: \t a\r\n\r\n"
                 "\r\n" GET,
                 2, CHUNKED "0\r\n\r\n" GET);
}

/* If lenient readers accepted such a line, two of them could see different targets. */
Test(framing, first_lines)
{
    assert_reads("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\nHEADER /a%20b HTTP/1.2\r\nhOST:q\r\n\r\n"
                 "\r\nH / HTTP/1.0\r\n\r\n",
                 3,
                 "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\nHEADER /a%20b HTTP/1.2\r\nhOST:q\r\n\r\n"
                 "H / HTTP/1.0\r\n\r\n");
    ASSERT_FAULT("GET  / HTTP/1.1\r\n\r\n", QD_FAULT_FIRST_LINE, "the first line: expected");
    ASSERT_FAULT("HEAD  / HTTP/1.1\r\n\r\n", QD_FAULT_FIRST_LINE, "got another blank");
    ASSERT_FAULT("GET /  HTTP/1.1\r\n\r\n", QD_FAULT_FIRST_LINE, "first line");
    ASSERT_FAULT("GET / HTTP/1.1 \r\n\r\n", QD_FAULT_FIRST_LINE, "first line");
    ASSERT_FAULT("GET /a b HTTP/1.1\r\n\r\n", QD_FAULT_VERSION, "first line");
    ASSERT_FAULT(" GET / HTTP/1.1\r\n\r\n", QD_FAULT_FIRST_LINE, "first line");
    ASSERT_FAULT(" / HTTP/1.1\r\n\r\n", QD_FAULT_FIRST_LINE, "first line");
    ASSERT_FAULT("GET /\r\n\r\n", QD_FAULT_FIRST_LINE, "got its end before that");
    ASSERT_FAULT("GET\r\n\r\n", QD_FAULT_FIRST_LINE, "got its end before that");
    ASSERT_FAULT("GET / HTTP/2.0\r\n\r\n", QD_FAULT_OTHER_VERSION, "got \"HTTP/\" and '2'");
    ASSERT_FAULT("GET / HTTP/0.9\r\n\r\n", QD_FAULT_OTHER_VERSION, "got \"HTTP/\" and '0'");
    ASSERT_FAULT("GET / HTTP/x.1\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/\" and 'x'");
    ASSERT_FAULT("GET / HTTP/1.x\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/1.\" and 'x'");
    ASSERT_FAULT("GET / HTTP/1.10\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/1.1\" and '0'");
    ASSERT_FAULT("GET / HTTP/1\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/1\" and 0x0d");
    ASSERT_FAULT("GET / what\r\n\r\n", QD_FAULT_VERSION, "got \"\" and 'w'");
    ASSERT_FAULT("GET / HTTP/1\x1f.1\r\n\r\n", QD_FAULT_CONTROL, "got 0x1f");
    ASSERT_FAULT("GET / HTTP/1\n\r\n", QD_FAULT_BARE_LF, "line 1");
    ASSERT_FAULT("GET / HTTP/1.1!\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/1.1\" and '!'");
    ASSERT_FAULT("GET / HTTP/1.1\xe9\r\n\r\n", QD_FAULT_VERSION, "got \"HTTP/1.1\" and 0xe9");
}

Test(framing, lines)
{
    ASSERT_FAULT("GET / HTTP/1.1\r\nHost: q\r\nX: a\0b\r\n\r\n", QD_FAULT_CONTROL,
                 "the head, line 3: expected no control character, got 0x00");
    ASSERT_FAULT("GET / HTTP/1.1\r\nHost: q\r\nX: a\x7f\r\n\r\n", QD_FAULT_CONTROL, "line 3");
    ASSERT_FAULT("GET / HTTP/1.1\0\n", QD_FAULT_CONTROL, "head, line 1");
    ASSERT_FAULT("GET\t/ HTTP/1.1\r\n", QD_FAULT_CONTROL, "line 1");
    ASSERT_FAULT("\x16\x03\x01", QD_FAULT_CONTROL, "line 1");
    ASSERT_FAULT("GET / HTTP/1.1\nHost: q\r\n\r\n", QD_FAULT_BARE_LF, "line 1");
    ASSERT_FAULT("GET / HTTP/1.1\r\nHost: q\n\r\n", QD_FAULT_BARE_LF, "line 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\nHost: q\r\n\n", QD_FAULT_BARE_LF, "line 3");
    ASSERT_FAULT("\n", QD_FAULT_BARE_LF, "line 1");
    ASSERT_FAULT("GET / HTTP/1.1\r\nX: a\rb: c\r\n\r\n", QD_FAULT_BARE_CR,
                 "line 2: expected LF after CR, got 'b'");
    ASSERT_FAULT("GET / HTTP/1.1\r\nX: a\r\rb\r\n", QD_FAULT_BARE_CR, "line 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\n\rX", QD_FAULT_BARE_CR, "line 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", QD_FAULT_FOLD, "line 3");
    ASSERT_FAULT("GET / HTTP/1.1\r\n\tX: a\r\n", QD_FAULT_FOLD, "line 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\n: a\r\n\r\n", QD_FAULT_NAMELESS, "head, line 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\nX: a\r\n:\r\n\r\n", QD_FAULT_NAMELESS, "head, line 3");
    ASSERT_FAULT("GET / HTTP/1.1\r\nX: a\r\nY: b\r\n: c\r\n", QD_FAULT_NAMELESS, "line 4");
    ASSERT_FAULT(CHUNKED "0\r\n: a\r\n\r\n", QD_FAULT_NAMELESS,
                 "trailer, line 1: expected a name, got ':'");
    ASSERT_FAULT(CHUNKED "0\r\nX:\ta\r\nY\x01", QD_FAULT_CONTROL, "trailer, line 2: ");
    ASSERT_FAULT(CHUNKED "0\r\nX: a\nY: b\r\n\r\n", QD_FAULT_BARE_LF, "trailer, line");
    ASSERT_FAULT(CHUNKED "0\r\nX: a\r\n b\r\n\r\n", QD_FAULT_FOLD, "trailer, line");
    ASSERT_FAULT(CHUNKED "0\r\nX: a\r\nwhat\r\n\r\n", QD_FAULT_NO_COLON,
                 "trailer, line 2: expected a colon");
    ASSERT_FAULT(CHUNKED "0\r\nX\x7f: a\r\n\r\n", QD_FAULT_CONTROL, "got 0x7f");
    ASSERT_FAULT(POST "what\r\n\r\n", QD_FAULT_NO_COLON, "the head, line 3: expected a colon");
    ASSERT_FAULT(POST "Content-Length\r\n\r\n", QD_FAULT_NO_COLON, "line 3");
    ASSERT_FAULT(POST "what\n\r\n", QD_FAULT_BARE_LF, "line 3");
    ASSERT_FAULT(POST "X\0: a\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "Content-Length\0: 5\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "Cookie\0: 5\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "Host\0: 5\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "Transfer-Encoding\0\0: chunked\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "Ho\0st: 5\r\n\r\n", QD_FAULT_CONTROL, "got 0x00");
    ASSERT_FAULT(POST "X-\xc3\xa4: a\r\n\r\n", QD_FAULT_NAME, "line 3: expected a name of letters");
    ASSERT_FAULT(POST "Content-Length : 5\r\n\r\n", QD_FAULT_NAME, "got 0x20");
    ASSERT_FAULT(POST "Bra[ket: 5\r\n\r\n", QD_FAULT_NAME, "got '['");
    ASSERT_FAULT(POST "A B: 5\r\n\r\n", QD_FAULT_NAME, "got 0x20");
}

Test(framing, hosts)
{
    assert_reads("GET / HTTP/1.0\r\nHost: q\r\n\r\n", 1, "GET / HTTP/1.0\r\nHost: q\r\n\r\n");
    ASSERT_FAULT("GET / HTTP/1.1\r\n\r\n", QD_FAULT_HOST, "Host: expected exactly one, got 0");
    ASSERT_FAULT("GET / HTTP/1.9\r\nX: Host: q\r\n\r\n", QD_FAULT_HOST, "got 0");
    ASSERT_FAULT("GET / HTTP/1.1\r\nHos: q\r\nHosts: q\r\n\r\n", QD_FAULT_HOST, "got 0");
    ASSERT_FAULT(POST "HOST: q\r\n\r\n", QD_FAULT_HOST, "got 2");
    ASSERT_FAULT("GET / HTTP/1.0\r\nHost: q\r\nHost:\r\n\r\n", QD_FAULT_HOST, "got 2");
    ASSERT_FAULT("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: q\r\n\r\n",
                 QD_FAULT_HOST, "got 0");
}

Test(framing, lengths)
{
    ASSERT_FAULT(POST "Content-Length:\r\n\r\n", QD_FAULT_LENGTH, "Content-Length");
    ASSERT_FAULT(POST "Content-Length: -1\r\n\r\n", QD_FAULT_LENGTH, "Content-Length");
    ASSERT_FAULT(POST "Content-Length: +1\r\n\r\n", QD_FAULT_LENGTH, "Content-Length");
    ASSERT_FAULT(POST "Content-Length: 1 1\r\n\r\n", QD_FAULT_LENGTH, "Content-Length");
    ASSERT_FAULT(POST "Content-Length: 5, 5\r\n\r\n", QD_FAULT_LENGTH, "Content-Length");
    ASSERT_FAULT(POST "Content-Length: 5x\r\n\r\n", QD_FAULT_LENGTH, "of bytes, got 'x'");
    ASSERT_FAULT(POST "Content-Length: 18446744073709551616\r\n\r\n", QD_FAULT_BEYOND_64_BITS,
                 "64 bits");
    ASSERT_FAULT(POST "Content-Length: 18446744073709551615\r\n\r\n", QD_FAULT_BEYOND_64_BITS,
                 "64 bits");
    assert_reads(POST "Content-Length: 18446744073709551614\r\n\r\n", 0,
                 POST "Content-Length: 18446744073709551614\r\n\r\n");
    ASSERT_FAULT(POST "Content-Length: 5\rx", QD_FAULT_BARE_CR, "line 3");
}

Test(framing, chunks)
{
    ASSERT_FAULT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", QD_FAULT_OLD_CODING,
                 "none in an HTTP/1.0 request");
    ASSERT_FAULT(CHUNKED "x\r\n", QD_FAULT_CHUNK_SIZE, "after 0 bytes, got 'x'");
    ASSERT_FAULT(CHUNKED "\r\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED ";x\r\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED "1\r\na\r\n-1\r\n", QD_FAULT_CHUNK_SIZE, "after 1 bytes");
    ASSERT_FAULT(CHUNKED "2 2\r\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED "2x\r\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED "2\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED "10000000000000000\r\n", QD_FAULT_BEYOND_64_BITS, "64 bits");
    ASSERT_FAULT(CHUNKED "000ffffffffffffffff0\r\n", QD_FAULT_BEYOND_64_BITS, "64 bits");
    ASSERT_FAULT(CHUNKED "000ffffffffffffffff\r\n", QD_FAULT_TOO_LARGE, "18446744073709551615");
    ASSERT_FAULT(CHUNKED "00000000000000000x\r\n", QD_FAULT_CHUNK_SIZE, "size");
    ASSERT_FAULT(CHUNKED "2\rab\r\n", QD_FAULT_BARE_CR,
                 "the body: the line of the chunk's size after 0 bytes: expected LF");
    ASSERT_FAULT(CHUNKED "2;a\nb\r\nab\r\n", QD_FAULT_BARE_LF,
                 "the body: the line of the chunk's size");
    ASSERT_FAULT(CHUNKED "2;a\0b\r\nab\r\n", QD_FAULT_CONTROL,
                 "after 0 bytes: expected no control character, got 0x00");
    ASSERT_FAULT(CHUNKED "2\r\nabc\r\n", QD_FAULT_CHUNK_END, "byte 2, got 'c'");
    ASSERT_FAULT(CHUNKED "2\r\nab\n0\r\n\r\n", QD_FAULT_CHUNK_END, "byte 2");
    ASSERT_FAULT(CHUNKED "2\r\nab\r0\r\n\r\n", QD_FAULT_CHUNK_END, "byte 2");
    ASSERT_FAULT(CHUNKED "3e9\r\n", QD_FAULT_TOO_LARGE, "a chunk of 1001");
    ASSERT_FAULT(CHUNKED "1\r\na\r\n3e8\r\n", QD_FAULT_TOO_LARGE, "got 1, ");
    ASSERT_FAULT(CHUNKED "ffffffffffffffff\r\n", QD_FAULT_TOO_LARGE, "18446744073709551615");
}

Test(framing, heads_that_do_not_say_where_the_body_ends)
{
    static const struct {
        const char *fields;
        enum qd_fault fault;
        enum qd_status status;
    } cases[] = {
        {"Content-Length: 5\r\nContent-Length: 5\r\n", QD_FAULT_LENGTHS, QD_INVALID},
        {"Transfer-Encoding: gzip\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding: chunked, gzip\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding: chunke\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding:\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding: chunkedd\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding: chunked x\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Transfer-Encoding: xchunked\r\n", QD_FAULT_CODING, QD_NOT_IMPLEMENTED},
        {"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", QD_FAULT_LENGTH_AND_CODING,
         QD_INVALID},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", QD_FAULT_CODING,
         QD_NOT_IMPLEMENTED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[256];
        struct qd_error error;
        const int count = snprintf(text, sizeof(text), POST "%s\r\nanything", cases[i].fields);
        assert_fault(text, (size_t)count, cases[i].fault, "header");
        const struct qd_framing framing = {.fault = cases[i].fault};
        cr_assert_eq(qd_framing_explain(&framing, &error), cases[i].status);
    }
}

/* Returns the fault of a head with `count` bytes of filler. */
static enum qd_fault fault_of(const char *before, const char *filler, size_t count)
{
    const size_t before_bytes = strlen(before);
    const size_t filler_bytes = strlen(filler);
    const size_t bytes = before_bytes + count;
    char *text = malloc(bytes + 4);
    char *left = malloc(bytes + 4);
    enum qd_fault fault[2];
    memcpy(text, before, before_bytes);
    for (size_t i = 0; i < count; i++)
        text[before_bytes + i] = filler[i % filler_bytes];
    memcpy(text + bytes, "\r\n\r\n", 4);
    for (size_t i = 0; i < 2; i++) {
        size_t left_count;
        fault[i] = read_in(text, bytes + 4, i == 0 ? bytes + 4 : 7, left, &left_count).fault;
    }
    cr_assert_eq(fault[0], fault[1]);
    free(text);
    free(left);
    return fault[0];
}

/* Checks the bound of a head that begins with `before`, a request line and `field_count` fields or
 * cookies, and goes on with `filler` as often as there is room. A filler counts as `filler_cost`
 * bytes, and `more` bytes count beside their number. */
static void check_bound(const char *before, size_t field_count, size_t more, const char *filler,
                        size_t filler_cost)
{
    const size_t end_bytes = strlen("\r\n\r"); /* the last LF needs no memory */
    const size_t cost = strlen(before) + field_count * QD_HEAD_FIELD_BYTES + more + end_bytes;
    const size_t most = (QD_HEAD_BYTES_MAX - cost) / filler_cost;
    cr_expect_eq(fault_of(before, filler, most * strlen(filler)), QD_FAULT_NONE, "%s", before);
    cr_expect_eq(fault_of(before, filler, (most + 1) * strlen(filler)), QD_FAULT_HEAD_SIZE, "%s",
                 before);
}

/* libmicrohttpd has memory for a head of this size, and for its answer. */
Test(framing, heads_have_a_bound)
{
    const size_t most = QD_HEAD_BYTES_MAX - strlen("GET /");
    cr_assert_eq(fault_of("GET /", "a", most - 1), QD_FAULT_FIRST_LINE);
    cr_assert_eq(fault_of("GET /", "a", most), QD_FAULT_FIRST_LINE);
    cr_assert_eq(fault_of("GET /", "a", most + 1), QD_FAULT_TARGET_SIZE);
    check_bound(POST "X: ", 2, 0, "a", 1);
    check_bound(POST "X: ", 2, 0, "a\r\nX: ", 6 + QD_HEAD_FIELD_BYTES);
    check_bound(POST "Cookies: ", 2, 0, "a", 1);
    check_bound(POST "Cookie: ", 3, 2, "a", 3);
    check_bound(POST "cOOKIE: ", 3, 2, "a", 3);
    check_bound(POST "Cookie: ", 3, 2, "a=b; ", 3 * 5 + QD_HEAD_FIELD_BYTES);
    check_bound(POST "Cookie: ", 3, 2, "a=b, ", 3 * 5 + QD_HEAD_FIELD_BYTES);
}

/* A reader that accepts another coding as "chunked" would see another request after it. */
Test(framing, codings_that_differ_in_one_letter)
{
    for (size_t letter = 0; letter < strlen("chunked"); letter++)
        for (int c = '!'; c < 0x7f; c++) {
            char text[] = POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
            char *coding = strstr(text, "chunked");
            const bool same = c == coding[letter] || c == (coding[letter] ^ 0x20);
            struct qd_framing framing = {.body_bytes_max = 1000};
            size_t begun;
            coding[letter] = (char)c;
            qd_framing_read(&framing, text, strlen(text), &begun);
            cr_expect_eq(framing.done_count, same, "%.7s", coding);
        }
}

/* No byte after the given ones is read, although the text goes on like them. */
Test(framing, ends_where_the_bytes_end)
{
    static const struct {
        const char *text, *more;
    } cases[] = {
        {CHUNKED "00", "00000000"},   {CHUNKED "2 ", "        "},    {CHUNKED "2;a", "aaaaaaaa"},
        {POST "X: a", "aaaaaaaa"},    {POST "X:  ", "        "},     {CHUNKED "0\r\nX", "XXXXXXXX"},
        {CHUNKED "9\r\n12", "34567"}, {"GET /aaaa", "aaaaaaaaaaaa"}, {"\r\n", "\r\n\r\n\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char bytes[256], wanted[256];
        const size_t count = strlen(cases[i].text);
        struct qd_framing framing = {.body_bytes_max = 1000};
        struct qd_framing alone = framing;
        size_t begun;
        memset(wanted, 0, sizeof(wanted));
        memcpy(wanted, cases[i].text, count);
        const size_t kept = qd_framing_read(&alone, wanted, count, &begun);
        snprintf(bytes, sizeof(bytes), "%s%s", cases[i].text, cases[i].more);
        cr_expect_eq(qd_framing_read(&framing, bytes, count, &begun), kept, "%s", cases[i].text);
        cr_expect_eq(memcmp(bytes, wanted, kept), 0, "%s", cases[i].text);
        cr_expect_str_eq(bytes + count, cases[i].more);
    }
}

Test(framing, waste_has_a_bound_that_bytes_pay_for)
{
    struct qd_framing framing = {.body_bytes_max = UINT64_MAX};
    char chunk[2048] = "";
    size_t begun;
    char head[] = CHUNKED;
    qd_framing_read(&framing, head, sizeof(head) - 1, &begun);
    for (unsigned i = 0; i < 1000; i++) { /* each chunk is as long as its extension */
        snprintf(chunk, sizeof(chunk), "64;%0100d\r\n%0100d\r\n", 1, 1);
        qd_framing_read(&framing, chunk, strlen(chunk), &begun);
    }
    cr_assert_eq(framing.fault, QD_FAULT_NONE);
    unsigned count = 0;
    for (; framing.fault == QD_FAULT_NONE; count++) {
        snprintf(chunk, sizeof(chunk), "1;%01022d\r\na\r\n", 1);
        qd_framing_read(&framing, chunk, strlen(chunk), &begun);
    }
    cr_assert_eq(framing.fault, QD_FAULT_WASTE);
    cr_assert(count > 14 && count < 18, "%u", count);
    framing = (struct qd_framing){.body_bytes_max = 1};
    snprintf(chunk, sizeof(chunk), POST "Content-Length: 1%1000s", "");
    qd_framing_read(&framing, chunk, strlen(chunk), &begun);
    memset(chunk, ' ', sizeof(chunk));
    for (count = 0; framing.fault == QD_FAULT_NONE; count++)
        cr_assert_eq(qd_framing_read(&framing, chunk, sizeof(chunk), &begun), 0);
    cr_assert_eq(framing.fault, QD_FAULT_WASTE);
    cr_assert_eq(count, QD_WASTE_BYTES_MAX / sizeof(chunk));
}

Test(framing, empty_lines_and_trailers_are_bounded)
{
    struct qd_framing framing = {.body_bytes_max = 1};
    char lines[1024];
    size_t begun;
    unsigned count = 0;
    for (size_t i = 0; i < sizeof(lines); i += 2)
        memcpy(lines + i, "\r\n", 2);
    for (; framing.fault == QD_FAULT_NONE; count++)
        cr_assert_eq(qd_framing_read(&framing, lines, sizeof(lines), &begun), 0);
    cr_assert_eq(framing.fault, QD_FAULT_WASTE);
    cr_assert_eq(count, QD_WASTE_BYTES_MAX / sizeof(lines) + 1);
    framing = (struct qd_framing){.body_bytes_max = 1};
    char trailer[] = CHUNKED "0\r\n";
    qd_framing_read(&framing, trailer, sizeof(trailer) - 1, &begun);
    for (count = 0; framing.fault == QD_FAULT_NONE; count++) {
        char field[] = "Name: 0123456789\r\n";
        qd_framing_read(&framing, field, sizeof(field) - 1, &begun);
    }
    struct qd_error error;
    cr_assert_eq(qd_framing_explain(&framing, &error), QD_HEAD_TOO_LARGE);
    cr_assert_eq(count, QD_WASTE_BYTES_MAX / 18 + 1);
}

Test(framing, where_the_last_begins)
{
    char two[] = "GET / HTTP/1.0\r\n\r\n\r\nHEAD / HTTP/1.1\r\nX: \n";
    struct qd_framing framing = {.body_bytes_max = 1000};
    size_t begun = 999;
    qd_framing_read(&framing, two, sizeof(two) - 1, &begun);
    cr_assert_eq(begun, 18);
    cr_assert(framing.is_head);
    framing = (struct qd_framing){.body_bytes_max = 1000};
    char part[] = "GET / HT";
    qd_framing_read(&framing, part, sizeof(part) - 1, &begun);
    cr_assert_eq(begun, 0);
    char more[] = "TP/1.1\r\n";
    begun = 999;
    qd_framing_read(&framing, more, sizeof(more) - 1, &begun);
    cr_assert_eq(begun, 999);
    cr_assert_not(framing.is_head);
}

/* Its answer has no body in this case, either. */
Test(framing, knows_a_head_without_a_target)
{
    static const struct {
        const char *text;
        bool is_head;
    } lines[] = {{"HEAD\r\n", true},   {"HEAD\n", true},   {"HEAD \r\n", true}, {"HEAD\t/", true},
                 {"HEADS\r\n", false}, {"HEA\r\n", false}, {"GET\r\n", false}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char left[16];
        size_t left_count;
        struct qd_framing framing =
            read_in(lines[i].text, strlen(lines[i].text), 1, left, &left_count);
        cr_expect_neq(framing.fault, QD_FAULT_NONE, "%s", lines[i].text);
        cr_expect_eq(framing.is_head, lines[i].is_head, "%s", lines[i].text);
    }
}
