#include "server/http/wire/framing.h"

#include <stdio.h>
#include <string.h>

#include "server/base/limits.h"
#include "server/memory/text.h"

enum state {
    BEFORE, /* before the first line of a request: empty lines are useless */
    BEFORE_LF,
    METHOD,
    METHOD_REST,
    TARGET_BEGIN,
    TARGET,
    VERSION,
    LINE, /* the rest of a line */
    LINE_LF,
    LINE_BEGIN,
    FIELD, /* the rest of the name of a field that has no meaning here */
    NAME,  /* what may be the name of one of `fields` */
    COOKIES,
    VALUE, /* blanks before the value of Content-Length or Transfer-Encoding */
    LENGTH,
    CODING,
    VALUE_BLANKS, /* blanks after the value: useless */
    VALUE_CR,
    HEAD_LF, /* the LF of the empty line that ends the head or the trailer */
    BODY,
    SIZE,        /* the size of a chunk */
    SIZE_ZEROS,  /* zeros after a first digit that is also a zero: useless */
    SIZE_BLANKS, /* blanks after the size: useless */
    EXTENSION,   /* useless */
    SIZE_CR,
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
};

/* libmicrohttpd 1.0 takes UINT64_MAX for an unknown length. */
#define LENGTH_MAX (UINT64_MAX - 1)

/* The fields that matter here. */
enum field { LENGTH_FIELD, COOKIE_FIELD, HOST_FIELD, CODING_FIELD };
static const char *const fields[QD_FRAMING_FIELD_COUNT] = {"content-length", "cookie", "host",
                                                           "transfer-encoding"};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* A name is a token (RFC 9110). */
static bool is_token_character(char c)
{
    if (c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true; /* the fast path for nearly all characters */
    return c > ' ' && c < 0x7f && strchr("\"(),/:;<=>?@[\\]{}", c) == NULL;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static void fail(struct qd_framing *framing, enum qd_fault fault, char got)
{
    framing->fault = fault;
    framing->got = (unsigned char)got;
}

/* Returns the first character that is below `least` or DEL, or `end`. Checks eight characters at a
 * time: subtracting `least` from each byte sets the highest bit of a byte that is too low. A borrow
 * may also set the highest bit of bytes after it, but the first byte that is found is right. (The
 * machine is little-endian.) */
static inline const char *skip_from(const char *at, const char *end, unsigned char least)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        const uint64_t deleted = word ^ (ones * 0x7f);
        const uint64_t found =
            (((word - ones * least) & ~word) | ((deleted - ones) & ~deleted)) & (ones * 0x80);
        if (found != 0)
            return at + __builtin_ctzll(found) / 8;
    }
    while (at < end && (unsigned char)*at >= least && *at != 0x7f)
        at++;
    return at;
}

/* Reads up to the end of a line. The state `then` follows. */
static const char *read_text(struct qd_framing *framing, const char *at, const char *end,
                             enum state then)
{
    at = skip_from(at, end, ' ');
    while (at < end && *at == '\t' && (framing->line > 1 || framing->is_trailer))
        at = skip_from(at + 1, end, ' ');
    if (at == end)
        return at;
    framing->state = (uint8_t)then;
    if (*at != '\r')
        fail(framing, *at == '\n' ? QD_FAULT_BARE_LF : QD_FAULT_CONTROL, *at);
    return at;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at;
}

static void begin_line(struct qd_framing *framing, char c)
{
    framing->line++;
    if (c == '\r') {
        framing->state = HEAD_LF;
        return;
    }
    const char first = framing->is_trailer ? '\0' : lower(c);
    const bool is_known = first == 'c' || first == 'h' || first == 't';
    framing->field = first == 'c' ? LENGTH_FIELD : first == 'h' ? HOST_FIELD : CODING_FIELD;
    framing->matched = 0;
    framing->state = is_known ? NAME : FIELD;
    framing->head_bytes += QD_HEAD_FIELD_BYTES;
    if (is_blank(c))
        fail(framing, QD_FAULT_FOLD, c);
    else if (c == ':')
        fail(framing, QD_FAULT_NAMELESS, c);
}

/* Reads the rest of a name, up to its colon. */
static const char *read_field(struct qd_framing *framing, const char *at, const char *end)
{
    while (at < end && is_token_character(*at))
        at++;
    if (at == end)
        return at;
    framing->state = LINE;
    if (*at == '\r')
        fail(framing, QD_FAULT_NO_COLON, *at);
    else if (*at == '\n')
        fail(framing, QD_FAULT_BARE_LF, *at);
    else if (*at != ':')
        fail(framing, (unsigned char)*at < ' ' || *at == 0x7f ? QD_FAULT_CONTROL : QD_FAULT_NAME,
             *at);
    return at;
}

/* Reads the rest of a line, and the lines after it that have no meaning for framing, without a
 * change of state at each line's end. Nearly all of a head is read here. */
static const char *read_lines(struct qd_framing *framing, const char *at, const char *end)
{
    for (;;) {
        if (framing->state == FIELD) {
            at = read_field(framing, at, end);
            if (at == end || framing->fault != QD_FAULT_NONE)
                return at;
        }
        at = read_text(framing, at, end, LINE_LF);
        if (at == end || framing->fault != QD_FAULT_NONE)
            return at;
        if (end - at < 3 || framing->is_trailer || at[1] != '\n')
            return at + 1;
        begin_line(framing, at[2]);
        at += 2;
        if (framing->state == HEAD_LF)
            return at + 1;
        if (framing->state != FIELD || framing->fault != QD_FAULT_NONE)
            return at;
    }
}

/* Reads the cookies of a line. libmicrohttpd makes a record of each, and a copy of all. */
static const char *read_cookies(struct qd_framing *framing, const char *at, const char *end)
{
    for (; at < end && ((unsigned char)*at >= ' ' || *at == '\t') && *at != 0x7f; at++)
        framing->head_bytes += 2 + (*at == ';' || *at == ',' ? QD_HEAD_FIELD_BYTES : 0);
    framing->state = at < end ? LINE : COOKIES;
    return at;
}

/* Begins the value of one of `fields`. */
static void begin_value(struct qd_framing *framing)
{
    static const enum state states[] = {
        [LENGTH_FIELD] = VALUE,
        [COOKIE_FIELD] = COOKIES,
        [HOST_FIELD] = LINE,
        [CODING_FIELD] = VALUE,
    };
    framing->state = (uint8_t)states[framing->field];
    framing->digit_count = framing->matched = 0;
    framing->field_counts[framing->field]++;
    if (framing->field == COOKIE_FIELD)
        framing->head_bytes += QD_HEAD_FIELD_BYTES;
    else if (framing->field == LENGTH_FIELD)
        framing->left_bytes = 0;
}

static const char *read_name(struct qd_framing *framing, const char *at, const char *end)
{
    for (; at < end; at++) {
        if (framing->field == LENGTH_FIELD && framing->matched == 2 && lower(*at) == 'o')
            framing->field = COOKIE_FIELD;
        const char *name = fields[framing->field];
        if (name[framing->matched] == '\0' && *at == ':') {
            begin_value(framing);
            return at + 1;
        }
        if (name[framing->matched] == '\0' || lower(*at) != name[framing->matched]) {
            framing->state = FIELD;
            return at;
        }
        framing->matched++;
    }
    return at;
}

/* Returns true, and takes the character, if it is a digit. */
static bool read_length(struct qd_framing *framing, char c)
{
    const uint64_t digit = (uint64_t)(c - '0');
    if (c >= '0' && c <= '9' && framing->left_bytes <= (LENGTH_MAX - digit) / 10) {
        framing->left_bytes = framing->left_bytes * 10 + digit;
        framing->digit_count = 1;
        return true;
    }
    framing->state = c == '\r' ? LINE : VALUE_BLANKS;
    if (c >= '0' && c <= '9')
        fail(framing, QD_FAULT_BEYOND_64_BITS, c);
    else if (framing->digit_count == 0 || (c != '\r' && !is_blank(c)))
        fail(framing, QD_FAULT_LENGTH, c);
    return false;
}

/* Returns true, and takes the character, if it is the next of "chunked". */
static bool read_coding(struct qd_framing *framing, char c)
{
    static const char chunked[] = "chunked";
    if (chunked[framing->matched] != '\0' && lower(c) == chunked[framing->matched]) {
        framing->matched++;
        return true;
    }
    const bool ends = chunked[framing->matched] == '\0' && (c == '\r' || is_blank(c));
    framing->is_other_coding = framing->is_other_coding || !ends;
    framing->state = ends ? VALUE_BLANKS : LINE;
    return false;
}

/* ---- The body ----------------------------------------------------------------------------- */

static void begin_request(struct qd_framing *framing)
{
    framing->state = METHOD;
    framing->line = 1;
    framing->is_head = framing->is_trailer = framing->is_http_1_0 = framing->is_other_coding =
        false;
    memset(framing->field_counts, 0, sizeof(framing->field_counts));
    framing->matched = 0;
    framing->head_bytes = framing->left_bytes = framing->body_bytes = framing->waste_bytes = 0;
}

static void end_request(struct qd_framing *framing)
{
    framing->done_count++;
    framing->waste_bytes = 0;
    framing->state = BEFORE;
}

static void begin_size(struct qd_framing *framing)
{
    framing->state = SIZE;
    framing->digit_count = 0;
    framing->left_bytes = 0;
}

static void begin_body(struct qd_framing *framing)
{
    framing->state = BODY;
    framing->body_bytes = framing->left_bytes;
}

bool qd_framing_is_in_body(const struct qd_framing *framing)
{
    return framing->state == BODY && framing->fault == QD_FAULT_NONE;
}

static void end_head(struct qd_framing *framing)
{
    const unsigned lengths = framing->field_counts[LENGTH_FIELD];
    const unsigned hosts = framing->field_counts[HOST_FIELD];
    const unsigned codings = framing->field_counts[CODING_FIELD];
    if (hosts > 1 || (hosts == 0 && !framing->is_http_1_0))
        framing->fault = QD_FAULT_HOST;
    else if (lengths > 0 && codings > 0)
        framing->fault = QD_FAULT_LENGTH_AND_CODING;
    else if (lengths > 1)
        framing->fault = QD_FAULT_LENGTHS;
    else if (codings > 0 && framing->is_http_1_0)
        framing->fault = QD_FAULT_OLD_CODING;
    else if (codings > 1 || framing->is_other_coding)
        framing->fault = QD_FAULT_CODING;
    else if (codings > 0 && !framing->is_trailer)
        begin_size(framing);
    else if (lengths > 0 && framing->left_bytes > 0)
        begin_body(framing);
    else
        end_request(framing);
}

/* Returns true, and takes the character, if it is a digit. */
static bool read_size(struct qd_framing *framing, char c)
{
    const int digit = qd_hex_digit(c);
    if (digit < 0 && framing->digit_count > 0) {
        framing->state = SIZE_BLANKS;
        return false;
    }
    if (digit < 0 || framing->left_bytes > UINT64_MAX >> 4) {
        fail(framing, digit < 0 ? QD_FAULT_CHUNK_SIZE : QD_FAULT_BEYOND_64_BITS, c);
        return false;
    }
    if (digit == 0 && framing->digit_count == 0)
        framing->state = SIZE_ZEROS;
    framing->left_bytes = framing->left_bytes << 4 | (uint64_t)digit;
    framing->digit_count = 1;
    return true;
}

/* Begins the bytes of a chunk. They pay for as many useless bytes, for example for a signature in a
 * chunk extension. */
static void begin_chunk(struct qd_framing *framing)
{
    const uint64_t bytes = framing->left_bytes;
    framing->waste_bytes -= framing->waste_bytes < bytes ? framing->waste_bytes : bytes;
    if (bytes > framing->body_bytes_max - framing->body_bytes) {
        fail(framing, QD_FAULT_TOO_LARGE, '\0');
        return;
    }
    framing->body_bytes += bytes;
    framing->state = bytes > 0 ? CHUNK : LINE_BEGIN;
    framing->is_trailer = bytes == 0;
    if (framing->is_trailer)
        framing->line = 0;
}

static const char *skip_body(struct qd_framing *framing, const char *at, const char *end)
{
    const uint64_t here = (uint64_t)(end - at);
    const uint64_t count = here < framing->left_bytes ? here : framing->left_bytes;
    framing->left_bytes -= count;
    if (framing->left_bytes == 0 && framing->state == BODY)
        end_request(framing);
    else if (framing->left_bytes == 0)
        framing->state = CHUNK_CR;
    return at + count;
}

/* ---- The reader --------------------------------------------------------------------------- */

/* Returns true, and takes the character, if it is the expected CR. Otherwise reports the fault. */
static bool read_cr(struct qd_framing *framing, char c, enum state then, enum qd_fault otherwise)
{
    framing->state = (uint8_t)then;
    if (c != '\r')
        fail(framing, otherwise, c);
    return c == '\r';
}

static void read_lf(struct qd_framing *framing, char c)
{
    if (c != '\n')
        fail(framing, framing->state == CHUNK_LF ? QD_FAULT_CHUNK_END : QD_FAULT_BARE_CR, c);
    else if (framing->state == LINE_LF)
        framing->state = LINE_BEGIN;
    else if (framing->state == HEAD_LF)
        end_head(framing);
    else if (framing->state == SIZE_LF)
        begin_chunk(framing);
    else if (framing->state == CHUNK_LF)
        begin_size(framing);
    else
        framing->state = BEFORE;
}

/* Returns true, and takes the character, if it is the next of "HEAD ". */
static bool read_method(struct qd_framing *framing, char c)
{
    static const char head[] = "HEAD ";
    if (c == ' ' && framing->matched == 0)
        fail(framing, QD_FAULT_FIRST_LINE, c);
    const bool is_next = c == head[framing->matched];
    /* A line that ends after "HEAD" is a fault, and its answer has no body either. */
    const bool is_cut = head[framing->matched] == ' ' && (unsigned char)c < ' ';
    framing->matched += is_next;
    const bool is_whole = head[framing->matched] == '\0';
    framing->is_head = is_whole || is_cut;
    if (!is_next || is_whole)
        framing->state = is_whole ? TARGET_BEGIN : METHOD_REST;
    return is_next;
}

/* Reads a part of the first line, and the blank after it. */
static const char *read_part(struct qd_framing *framing, const char *at, const char *end)
{
    at = skip_from(at, end, ' ' + 1);
    if (at == end)
        return at;
    if (*at != ' ') {
        const bool ends = *at == '\r';
        fail(framing,
             ends          ? QD_FAULT_FIRST_LINE
             : *at == '\n' ? QD_FAULT_BARE_LF
                           : QD_FAULT_CONTROL,
             *at);
        return at;
    }
    framing->matched = 0;
    framing->state = framing->state == METHOD_REST ? TARGET_BEGIN : VERSION;
    return at + 1;
}

/* Returns true, and takes the character, if it is the next of the version. After the version, the
 * line has to end. */
static bool read_version(struct qd_framing *framing, char c)
{
    static const char version[] = "HTTP/1.";
    const size_t minor = sizeof(version) - 1;
    const bool is_digit = c >= '0' && c <= '9';
    if (framing->matched < minor ? c == version[framing->matched]
                                 : framing->matched == minor && is_digit) {
        framing->is_http_1_0 = framing->matched == minor && c == '0';
        framing->matched++;
        return true;
    }
    const bool is_whole = framing->matched > minor;
    framing->state = LINE; /* which reports a control character */
    if (c == ' ')
        fail(framing, QD_FAULT_FIRST_LINE, c);
    else if (!is_whole && is_digit && version[framing->matched] == '1')
        fail(framing, QD_FAULT_OTHER_VERSION, c);
    else if ((unsigned char)c > ' ' || (c == '\r' && !is_whole))
        fail(framing, QD_FAULT_VERSION, c);
    return false;
}

/* Handles the states that look at one character. Returns true if the character is taken, and false
 * if it is left to the next state. */
static bool read_one(struct qd_framing *framing, char c)
{
    switch ((enum state)framing->state) {
    case BEFORE:
        if (c != '\r')
            begin_request(framing);
        else
            framing->state = BEFORE_LF;
        return c == '\r';
    case METHOD:
        return read_method(framing, c);
    case TARGET_BEGIN:
        framing->state = TARGET;
        if (c == ' ')
            fail(framing, QD_FAULT_FIRST_LINE, c);
        return false;
    case LINE_BEGIN:
        begin_line(framing, c);
        return framing->state == HEAD_LF;
    case VALUE:
        if (!is_blank(c))
            framing->state = framing->field == LENGTH_FIELD ? LENGTH : CODING;
        return is_blank(c);
    case CODING:
        return read_coding(framing, c);
    case VALUE_CR:
        framing->state = LINE;
        if (c != '\r' && framing->field == LENGTH_FIELD)
            fail(framing, QD_FAULT_LENGTH, c);
        else if (c != '\r') /* another coding follows */
            framing->is_other_coding = true;
        return false;
    case SIZE:
        return read_size(framing, c);
    case SIZE_CR:
        return read_cr(framing, c, SIZE_LF, QD_FAULT_CHUNK_SIZE);
    case CHUNK_CR:
        return read_cr(framing, c, CHUNK_LF, QD_FAULT_CHUNK_END);
    default:
        read_lf(framing, c);
        return true;
    }
}

/* Handles the states that may take many characters at once. Returns the first character that is not
 * taken. */
static const char *read_some(struct qd_framing *framing, const char *at, const char *end)
{
    switch ((enum state)framing->state) {
    case METHOD_REST:
    case TARGET:
        return read_part(framing, at, end);
    case LINE:
    case FIELD:
        return read_lines(framing, at, end);
    case COOKIES:
        return read_cookies(framing, at, end);
    case VERSION:
        while (at < end && read_version(framing, *at))
            at++;
        return at;
    case NAME:
        return read_name(framing, at, end);
    case LENGTH:
        while (at < end && read_length(framing, *at))
            at++;
        return at;
    case VALUE_BLANKS:
        at = skip_blanks(at, end);
        framing->state = at < end ? VALUE_CR : VALUE_BLANKS;
        return at;
    case SIZE_ZEROS:
        while (at < end && *at == '0')
            at++;
        framing->state = at < end ? SIZE : SIZE_ZEROS;
        return at;
    case SIZE_BLANKS:
        at = skip_blanks(at, end);
        if (at < end)
            framing->state = *at == ';' ? EXTENSION : SIZE_CR;
        return at;
    case EXTENSION:
        return read_text(framing, at, end, SIZE_CR);
    case BODY:
    case CHUNK:
        return skip_body(framing, at, end);
    default:
        return at + read_one(framing, *at);
    }
}

static bool is_waste(const struct qd_framing *framing)
{
    const uint32_t always = 1u << BEFORE | 1u << BEFORE_LF | 1u << VALUE_BLANKS | 1u << SIZE_ZEROS |
                            1u << SIZE_BLANKS | 1u << EXTENSION;
    const uint32_t in_trailer = 1u << FIELD | 1u << LINE | 1u << LINE_LF;
    return ((always | (framing->is_trailer ? in_trailer : 0)) >> framing->state & 1) != 0;
}

/* Counts bytes of the head. `state` is the state in which they were read. The result is the same
 * however the bytes are cut into pieces, also if they have another fault. */
static void count_head(struct qd_framing *framing, enum state state, size_t bytes)
{
    if (state >= HEAD_LF || framing->is_trailer)
        return;
    framing->head_bytes += bytes;
    if (framing->head_bytes > QD_HEAD_BYTES_MAX)
        framing->fault = state == TARGET ? QD_FAULT_TARGET_SIZE : QD_FAULT_HEAD_SIZE;
}

size_t qd_framing_read(struct qd_framing *framing, char *bytes, size_t count, size_t *begun)
{
    const char *at = bytes;
    const char *const end = bytes + count;
    char *kept = bytes;
    while (at < end && framing->fault == QD_FAULT_NONE) {
        if (framing->state == BEFORE)
            *begun = (size_t)(kept - bytes);
        const bool goes = is_waste(framing);
        const enum state state = framing->state;
        const char *from = at;
        at = read_some(framing, at, end);
        const size_t taken = (size_t)(at - from);
        if (goes) {
            framing->waste_bytes += taken;
            if (framing->waste_bytes > QD_WASTE_BYTES_MAX)
                fail(framing, QD_FAULT_WASTE, '\0');
        } else {
            count_head(framing, state, taken);
            if (kept != from)
                memmove(kept, from, taken);
            kept += taken;
        }
    }
    return (size_t)(kept - bytes);
}

/* Prints which line is being read: a line of the head or the trailer, or the line of a chunk's
 * size. */
static void print_place(const struct qd_framing *framing, char *text, size_t size)
{
    if (framing->state == SIZE_CR || framing->state == SIZE_LF)
        snprintf(text, size, "the body: the line of the chunk's size after %llu bytes",
                 (unsigned long long)framing->body_bytes);
    else
        snprintf(text, size, "the %s, line %llu", framing->is_trailer ? "trailer" : "head",
                 (unsigned long long)framing->line);
}

/* Explains the faults of the body. */
static enum qd_status explain_body(const struct qd_framing *framing, const char *got,
                                   struct qd_error *error)
{
    switch (framing->fault) {
    case QD_FAULT_CHUNK_SIZE:
        return qd_fail(error, QD_INVALID,
                       "the body: expected a chunk's size, in hexadecimal digits, after %llu "
                       "bytes, got %s",
                       (unsigned long long)framing->body_bytes, got);
    case QD_FAULT_CHUNK_END:
        return qd_fail(error, QD_INVALID,
                       "the body: expected CR LF after the chunk that ends with byte %llu, got %s",
                       (unsigned long long)framing->body_bytes, got);
    case QD_FAULT_WASTE:
        return qd_fail(
            error, framing->is_trailer ? QD_HEAD_TOO_LARGE : QD_INVALID,
            "the request: expected at most %u bytes of empty lines, chunks' extensions, zeros "
            "before and blanks after a length, and a trailer, beyond as many as the chunks have, "
            "got more",
            QD_WASTE_BYTES_MAX);
    case QD_FAULT_BEYOND_64_BITS:
        return qd_fail(error, QD_TOO_LARGE,
                       "the body: expected a size of at most 64 bits, got more");
    default:
        return qd_fail(error, QD_TOO_LARGE,
                       "the body: expected at most %llu bytes (--max-body-bytes), got %llu, and "
                       "then a chunk of %llu",
                       (unsigned long long)framing->body_bytes_max,
                       (unsigned long long)framing->body_bytes,
                       (unsigned long long)framing->left_bytes);
    }
}

/* Explains the faults of the fields that matter for framing. */
static enum qd_status explain_fields(const struct qd_framing *framing, const char *got,
                                     struct qd_error *error)
{
    switch (framing->fault) {
    case QD_FAULT_HOST:
        return qd_fail(error, QD_INVALID, "header Host: expected exactly one, got %u",
                       framing->field_counts[HOST_FIELD]);
    case QD_FAULT_LENGTHS:
        return qd_fail(error, QD_INVALID, "header Content-Length: expected at most one, got %u",
                       framing->field_counts[LENGTH_FIELD]);
    case QD_FAULT_CODING:
        return qd_fail(error, QD_NOT_IMPLEMENTED,
                       "header Transfer-Encoding: expected chunked, once, got %s",
                       framing->is_other_coding ? "another coding" : "it more than once");
    case QD_FAULT_OLD_CODING:
        return qd_fail(error, QD_INVALID,
                       "header Transfer-Encoding: expected none in an HTTP/1.0 request, got one");
    case QD_FAULT_LENGTH_AND_CODING:
        return qd_fail(error, QD_INVALID,
                       "headers Content-Length and Transfer-Encoding: expected one, got both");
    default:
        return explain_body(framing, got, error);
    }
}

enum qd_status qd_framing_explain(const struct qd_framing *framing, struct qd_error *error)
{
    char where[80];
    char got[8];
    print_place(framing, where, sizeof(where));
    snprintf(got, sizeof(got), framing->got > ' ' && framing->got < 0x7f ? "'%c'" : "0x%02x",
             framing->got);
    switch (framing->fault) {
    case QD_FAULT_FIRST_LINE:
        return qd_fail(error, QD_INVALID,
                       "the first line: expected METHOD TARGET HTTP/1.1 with one blank between two "
                       "of them, got %s",
                       framing->got == ' ' ? "another blank" : "its end before that");
    case QD_FAULT_VERSION:
    case QD_FAULT_OTHER_VERSION:
        return qd_fail(error, framing->fault == QD_FAULT_VERSION ? QD_INVALID : QD_OTHER_VERSION,
                       "the first line: expected HTTP/1.0 or HTTP/1.1 at its end, got \"%.*s\" and "
                       "%s",
                       framing->matched, "HTTP/1.1", got);
    case QD_FAULT_CONTROL:
        return qd_fail(error, QD_INVALID, "%s: expected no control character, got %s", where, got);
    case QD_FAULT_BARE_LF:
        return qd_fail(error, QD_INVALID, "%s: expected CR before LF, got none", where);
    case QD_FAULT_BARE_CR:
        return qd_fail(error, QD_INVALID, "%s: expected LF after CR, got %s", where, got);
    case QD_FAULT_FOLD:
    case QD_FAULT_NAMELESS:
        return qd_fail(error, QD_INVALID, "%s: expected a name, got %s", where,
                       framing->fault == QD_FAULT_FOLD ? "a blank" : got);
    case QD_FAULT_NAME:
        return qd_fail(error, QD_INVALID,
                       "%s: expected a name of letters, digits and !#$%%&'*+-.^_`|~, and a colon, "
                       "got %s",
                       where, got);
    case QD_FAULT_TARGET_SIZE:
        return qd_fail(error, QD_LINE_TOO_LONG,
                       "the first line: expected at most %u bytes before the version, got more",
                       QD_HEAD_BYTES_MAX);
    case QD_FAULT_HEAD_SIZE:
        return qd_fail(error, QD_HEAD_TOO_LARGE,
                       "the head: expected at most %u bytes, %u more for each field and cookie and "
                       "cookies three times, got more",
                       QD_HEAD_BYTES_MAX, QD_HEAD_FIELD_BYTES);
    case QD_FAULT_NO_COLON:
        return qd_fail(error, QD_INVALID, "%s: expected a colon after a name, got the line's end",
                       where);
    case QD_FAULT_LENGTH:
        return qd_fail(error, QD_INVALID,
                       "header Content-Length: expected a number of bytes, got %s where a digit "
                       "or the line's end has to be",
                       got);
    default:
        return explain_fields(framing, got, error);
    }
}
