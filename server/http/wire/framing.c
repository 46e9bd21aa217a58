#include "server/http/wire/framing.h"

#include <stdio.h>
#include <string.h>

#include "server/base/limits.h"

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
    TRAILER_NAME,
    HEAD_LF, /* the LF of the empty line that ends the head or the trailer */
    NAME,
    VALUE, /* blanks before the value of Content-Length or Transfer-Encoding */
    LENGTH,
    CODING,
    VALUE_BLANKS, /* blanks after the value: useless */
    VALUE_CR,
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
    UNCLEAR, /* qd_head_check refuses the head and the connection is closed: the rest is ignored */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
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
    framing->is_length = lower(c) == 'c';
    framing->matched = 0;
    framing->state = framing->is_length || lower(c) == 't' ? NAME : LINE;
    framing->state = framing->is_trailer ? TRAILER_NAME : framing->state;
    if (is_blank(c))
        fail(framing, QD_FAULT_FOLD, c);
    else if (c == ':')
        fail(framing, QD_FAULT_NAMELESS, c);
}

/* Reads the rest of a line, and the lines after it that have no meaning for framing, without a
 * change of state at each line's end. Nearly all of a head is read here. */
static const char *read_lines(struct qd_framing *framing, const char *at, const char *end)
{
    for (;;) {
        at = read_text(framing, at, end, LINE_LF);
        if (at == end || framing->fault != QD_FAULT_NONE)
            return at;
        if (end - at < 3 || framing->is_trailer || at[1] != '\n')
            return at + 1;
        begin_line(framing, at[2]);
        at += 2;
        if (framing->state == HEAD_LF)
            return at + 1;
        if (framing->state != LINE || framing->fault != QD_FAULT_NONE)
            return at;
    }
}

static const char *read_trailer_name(struct qd_framing *framing, const char *at, const char *end)
{
    while (at < end && *at != ':' && (unsigned char)*at >= ' ' && *at != 0x7f)
        at++;
    if (at == end)
        return at;
    framing->state = LINE;
    if (*at == '\r')
        fail(framing, QD_FAULT_NO_COLON, *at);
    return at;
}

/* Begins the value of Content-Length or Transfer-Encoding. A second field of the same name makes
 * the head unclear. */
static void begin_value(struct qd_framing *framing)
{
    uint8_t *count = framing->is_length ? &framing->length_count : &framing->coding_count;
    framing->is_unclear = framing->is_unclear || *count > 0;
    *count = 1;
    framing->state = VALUE;
    framing->digit_count = framing->matched = 0;
    if (framing->is_length)
        framing->left_bytes = 0;
}

static const char *read_name(struct qd_framing *framing, const char *at, const char *end)
{
    const char *name = framing->is_length ? "content-length" : "transfer-encoding";
    uint8_t matched = framing->matched;
    while (at < end && name[matched] != '\0' && lower(*at) == name[matched]) {
        at++;
        matched++;
    }
    framing->matched = matched;
    if (at == end)
        return at;
    if (name[matched] != '\0' || *at != ':') {
        framing->state = LINE;
        return at;
    }
    begin_value(framing);
    return at + 1;
}

/* Returns true, and takes the character, if it is a digit. */
static bool read_length(struct qd_framing *framing, char c)
{
    const uint64_t digit = (uint64_t)(c - '0');
    if (c >= '0' && c <= '9' && framing->left_bytes <= (UINT64_MAX - digit) / 10) {
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
    framing->is_unclear = framing->is_unclear || !ends;
    framing->state = ends ? VALUE_BLANKS : LINE;
    return false;
}

/* ---- The body ----------------------------------------------------------------------------- */

static void begin_request(struct qd_framing *framing)
{
    framing->state = METHOD;
    framing->line = 1;
    framing->is_head = framing->is_trailer = framing->is_unclear = false;
    framing->matched = framing->length_count = framing->coding_count = 0;
    framing->left_bytes = framing->body_bytes = framing->waste_bytes = 0;
}

static void end_request(struct qd_framing *framing)
{
    const uint64_t bit = UINT64_C(1) << framing->done_count % 64;
    uint64_t *heads = &framing->heads[framing->done_count / 64 % QD_FRAMING_HEAD_WORDS];
    *heads = framing->is_head ? *heads | bit : *heads & ~bit;
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

bool qd_framing_is_unclear(const struct qd_framing *framing)
{
    return framing->state == UNCLEAR && framing->fault == QD_FAULT_NONE;
}

static void end_head(struct qd_framing *framing)
{
    if (framing->is_unclear || framing->length_count + framing->coding_count > 1)
        framing->state = UNCLEAR;
    else if (framing->coding_count > 0 && !framing->is_trailer)
        begin_size(framing);
    else if (framing->length_count > 0 && framing->left_bytes > 0)
        begin_body(framing);
    else
        end_request(framing);
}

static int hexadecimal(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
}

/* Returns true, and takes the character, if it is a digit. */
static bool read_size(struct qd_framing *framing, char c)
{
    const int digit = hexadecimal(c);
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
            framing->state = framing->is_length ? LENGTH : CODING;
        return is_blank(c);
    case CODING:
        return read_coding(framing, c);
    case VALUE_CR:
        framing->state = LINE;
        if (c != '\r' && framing->is_length)
            fail(framing, QD_FAULT_LENGTH, c);
        else if (c != '\r') /* another coding follows */
            framing->is_unclear = true;
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
        return read_lines(framing, at, end);
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
    case TRAILER_NAME:
        return read_trailer_name(framing, at, end);
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
    case UNCLEAR:
        return end;
    default:
        return at + read_one(framing, *at);
    }
}

static bool is_waste(const struct qd_framing *framing)
{
    const uint32_t always = 1u << BEFORE | 1u << BEFORE_LF | 1u << VALUE_BLANKS | 1u << SIZE_ZEROS |
                            1u << SIZE_BLANKS | 1u << EXTENSION;
    const uint32_t in_trailer = 1u << TRAILER_NAME | 1u << LINE | 1u << LINE_LF;
    return ((always | (framing->is_trailer ? in_trailer : 0)) >> framing->state & 1) != 0;
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
        const char *from = at;
        at = read_some(framing, at, end);
        const size_t taken = (size_t)(at - from);
        if (goes) {
            framing->waste_bytes += taken;
            if (framing->waste_bytes > QD_WASTE_BYTES_MAX)
                fail(framing, QD_FAULT_WASTE, '\0');
        } else {
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

static void print_character(unsigned char c, char *text, size_t size)
{
    snprintf(text, size, c > ' ' && c < 0x7f ? "'%c'" : "0x%02x", c);
}

enum qd_status qd_framing_explain(const struct qd_framing *framing, struct qd_error *error)
{
    char where[80];
    char got[8];
    print_place(framing, where, sizeof(where));
    print_character(framing->got, got, sizeof(got));
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
    case QD_FAULT_NO_COLON:
        return qd_fail(error, QD_INVALID, "%s: expected a colon after a name, got the line's end",
                       where);
    case QD_FAULT_LENGTH:
        return qd_fail(error, QD_INVALID,
                       "header Content-Length: expected a number of bytes, got %s where a digit "
                       "or the line's end has to be",
                       got);
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
