#include "server/json/envelope.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/limits.h"
#include "server/base/refusal.h"
#include "server/json/number.h"
#include "server/json/string.h"

enum {
    TEXT_BYTES_MIN = 1 << 10,
    SLICES_MIN = 8,
    NUMBER_BYTES_MAX = 63, /* cJSON 1.7.15 reads no longer ones */
    BLOCK_BYTES = 32,      /* of tensor data, looked at together */
};
static_assert(QD_ENVELOPE_DEPTH_MAX <= 64, "one bit for each open value");

struct cutter {
    const char *begin;
    const char *at;
    const char *end;
    const char *copied; /* all before it is in the envelope's text */
    size_t text_capacity;
    size_t data_capacity;
    unsigned depth;
    uint64_t objects;   /* bit d: the value open at depth d + 1 is an object, not an array */
    bool in_inputs;     /* the value of the top-level key "inputs" is open, or comes next */
    bool in_parameters; /* likewise of "parameters" */
    struct qd_arena *arena;
    struct qd_json_envelope *envelope;
    struct qd_error *error;
};

static enum qd_status expected(const struct cutter *cutter, const char *what)
{
    size_t offset = (size_t)(cutter->at - cutter->begin);
    char got[24] = "the end of the JSON";
    if (cutter->at < cutter->end) {
        unsigned char byte = (unsigned char)*cutter->at;
        snprintf(got, sizeof(got), byte > 0x20 && byte < 0x7f ? "'%c'" : "byte 0x%02x", byte);
    }
    return qd_fail(cutter->error, QD_INVALID, "malformed JSON at byte %zu: expected %s, got %s",
                   offset, what, got);
}

/* ---- The envelope's text ----------------------------------------------------------------- */

static enum qd_status append(struct cutter *cutter, const char *bytes, size_t count)
{
    struct qd_json_envelope *envelope = cutter->envelope;
    if (count > QD_ENVELOPE_BYTES_MAX - envelope->text_bytes) {
        return qd_fail(cutter->error, QD_TOO_LARGE,
                       "the JSON without its tensor data exceeds %u bytes", QD_ENVELOPE_BYTES_MAX);
    }
    size_t needed = envelope->text_bytes + count + 1;
    if (needed > cutter->text_capacity) {
        size_t capacity = needed < TEXT_BYTES_MIN ? TEXT_BYTES_MIN : needed * 2;
        char *text = qd_arena_grow(cutter->arena, envelope->text, cutter->text_capacity, capacity);
        if (text == NULL)
            return qd_refuse_memory(cutter->arena, "the request's JSON", cutter->error);
        envelope->text = text;
        cutter->text_capacity = capacity;
    }
    memcpy(envelope->text + envelope->text_bytes, bytes, count);
    envelope->text_bytes += count;
    envelope->text[envelope->text_bytes] = '\0';
    return QD_OK;
}

/* Puts the index of data[begin, cutter->at) in its place. */
static enum qd_status cut(struct cutter *cutter, const char *begin)
{
    struct qd_json_envelope *envelope = cutter->envelope;
    if (envelope->data_count == cutter->data_capacity) {
        size_t capacity = cutter->data_capacity == 0 ? SLICES_MIN : cutter->data_capacity * 2;
        size_t bytes = sizeof(*envelope->data);
        struct qd_json_slice *data = qd_arena_grow(cutter->arena, envelope->data,
                                                   cutter->data_capacity * bytes, capacity * bytes);
        if (data == NULL)
            return qd_refuse_memory(cutter->arena, "the request's JSON", cutter->error);
        envelope->data = data;
        cutter->data_capacity = capacity;
    }
    char index[QD_PRINT_BYTES_MAX];
    char *index_end = qd_print_int64(index, (int64_t)envelope->data_count);
    envelope->data[envelope->data_count++] =
        (struct qd_json_slice){begin, (size_t)(cutter->at - begin)};
    enum qd_status status = append(cutter, cutter->copied, (size_t)(begin - cutter->copied));
    if (status == QD_OK)
        status = append(cutter, index, (size_t)(index_end - index));
    cutter->copied = cutter->at;
    return status;
}

/* Puts the number [begin, cutter->at) in quotes. */
static enum qd_status quote(struct cutter *cutter, const char *begin)
{
    enum qd_status status = append(cutter, cutter->copied, (size_t)(begin - cutter->copied));
    if (status == QD_OK)
        status = append(cutter, "\"", 1);
    if (status == QD_OK)
        status = append(cutter, begin, (size_t)(cutter->at - begin));
    if (status == QD_OK)
        status = append(cutter, "\"", 1);
    cutter->copied = cutter->at;
    return status;
}

/* ---- Data, skipped ----------------------------------------------------------------------- */

static bool is_structural(char byte)
{
    char bracket = (char)(byte | 0x20); /* [ and { differ in this bit, and so do ] and } */
    return bracket == '{' || bracket == '}' || byte == '"';
}

/* No early exit: compilers make vector code of it. */
static bool block_is_plain(const char *block)
{
    unsigned found = 0;
    for (int i = 0; i < BLOCK_BYTES; i++)
        found |= is_structural(block[i]);
    return found == 0;
}

/* Whether an odd number of backslashes, none before `begin`, stands before `quote`. */
static bool is_escaped(const char *begin, const char *quote)
{
    const char *at = quote;
    while (at > begin && at[-1] == '\\')
        at--;
    return (quote - at) % 2 != 0;
}

/* From an opening quote to behind the closing one. */
static bool skip_string(struct cutter *cutter)
{
    const char *begin = ++cutter->at;
    while (cutter->at < cutter->end) {
        const char *quote = memchr(cutter->at, '"', (size_t)(cutter->end - cutter->at));
        if (quote == NULL)
            break;
        cutter->at = quote + 1;
        if (!is_escaped(begin, quote))
            return true;
    }
    cutter->at = cutter->end;
    return false;
}

/* From an opening bracket to behind its closing one. */
static bool skip_brackets(struct cutter *cutter)
{
    size_t depth = 0;
    while (cutter->at < cutter->end) {
        if (cutter->end - cutter->at >= BLOCK_BYTES && block_is_plain(cutter->at)) {
            cutter->at += BLOCK_BYTES;
            continue;
        }
        while (cutter->at < cutter->end && !is_structural(*cutter->at))
            cutter->at++;
        if (cutter->at == cutter->end)
            return false;
        char byte = *cutter->at;
        if (byte == '"') {
            if (!skip_string(cutter))
                return false;
            continue;
        }
        cutter->at++;
        if (byte == '[' || byte == '{')
            depth++;
        else if (--depth == 0)
            return true;
    }
    return false;
}

/* Moves behind a data value, whatever it is: who reads it judges it. */
static enum qd_status skip_data(struct cutter *cutter)
{
    const char *begin = cutter->at;
    bool closed = true;
    if (begin < cutter->end && (*begin == '[' || *begin == '{')) {
        closed = skip_brackets(cutter);
    } else if (begin < cutter->end && *begin == '"') {
        closed = skip_string(cutter);
    } else {
        while (cutter->at < cutter->end && strchr(",]} \t\r\n", *cutter->at) == NULL)
            cutter->at++;
        if (cutter->at == begin)
            return expected(cutter, "a value");
    }
    return closed ? cut(cutter, begin) : expected(cutter, "the end of the data");
}

/* ---- The grammar ------------------------------------------------------------------------- */

static void skip_space(struct cutter *cutter)
{
    while (cutter->at < cutter->end && (*cutter->at == ' ' || *cutter->at == '\n' ||
                                        *cutter->at == '\r' || *cutter->at == '\t'))
        cutter->at++;
}

static enum qd_status read_string(struct cutter *cutter)
{
    const char *wanted = qd_json_string_scan(&cutter->at, cutter->end);
    return wanted == NULL ? QD_OK : expected(cutter, wanted);
}

/* A member of the top-level "parameters" that is an int64, but beyond what cJSON's doubles tell
 * from its neighbours. */
static bool is_wide_parameter(const struct cutter *cutter, const struct qd_json_number *number)
{
    const uint64_t exact_end = UINT64_C(1) << 53;
    int64_t value;
    return cutter->in_parameters && cutter->depth == 2 && (cutter->objects & 3) == 3 &&
           qd_json_number_to_int64(number, &value) && number->mantissa >= exact_end;
}

static enum qd_status read_number(struct cutter *cutter)
{
    struct qd_json_number number;
    const char *end = qd_json_number_scan(cutter->at, cutter->end, &number);
    if (end == NULL) {
        cutter->at += number.bytes;
        return expected(cutter, "a digit");
    }
    char copy[NUMBER_BYTES_MAX + 1];
    if (number.bytes > NUMBER_BYTES_MAX)
        return expected(cutter, "a number of at most 63 characters");
    memcpy(copy, number.text, number.bytes);
    copy[number.bytes] = '\0';
    if (!isfinite(strtod(copy, NULL)))
        return expected(cutter, "a number within the range of double precision");
    const char *begin = cutter->at;
    cutter->at = end;
    return is_wide_parameter(cutter, &number) ? quote(cutter, begin) : QD_OK;
}

/* What the grammar allows next. */
enum next { VALUE, FIRST_VALUE, KEY, FIRST_KEY, AFTER_VALUE };

/* A key, its colon, and the value when that is cut. */
static enum qd_status read_key(struct cutter *cutter, enum next *next)
{
    const char *key = cutter->at;
    enum qd_status status = read_string(cutter);
    if (status != QD_OK)
        return status;
    skip_space(cutter);
    if (cutter->at == cutter->end || *cutter->at != ':')
        return expected(cutter, "':'");
    cutter->at++;
    *next = VALUE;
    if (cutter->depth == 1) {
        cutter->in_inputs = qd_json_string_spells(key, "inputs");
        cutter->in_parameters = qd_json_string_spells(key, "parameters");
    }
    bool in_item = cutter->depth == 3 && cutter->in_inputs && (cutter->objects & 2) == 0;
    bool in_files = cutter->depth == 2 && cutter->in_parameters;
    if ((in_item && qd_json_string_spells(key, "data")) ||
        (in_files && qd_json_string_begins(key, "file:"))) {
        *next = AFTER_VALUE;
        skip_space(cutter);
        return skip_data(cutter);
    }
    return QD_OK;
}

static enum qd_status open_value(struct cutter *cutter)
{
    if (cutter->depth == QD_ENVELOPE_DEPTH_MAX) {
        return qd_fail(cutter->error, QD_INVALID,
                       "malformed JSON at byte %zu: nested deeper than %d",
                       (size_t)(cutter->at - cutter->begin), QD_ENVELOPE_DEPTH_MAX);
    }
    uint64_t bit = UINT64_C(1) << cutter->depth++;
    cutter->objects = *cutter->at++ == '{' ? cutter->objects | bit : cutter->objects & ~bit;
    return QD_OK;
}

static enum qd_status read_literal(struct cutter *cutter)
{
    static const char *const literals[] = {"true", "false", "null"};
    size_t left = (size_t)(cutter->end - cutter->at);
    for (size_t i = 0; i < 3; i++) {
        size_t count = strlen(literals[i]);
        if (left >= count && memcmp(cutter->at, literals[i], count) == 0) {
            cutter->at += count;
            return QD_OK;
        }
    }
    return expected(cutter, "a value");
}

static bool in_object(const struct cutter *cutter)
{
    return cutter->depth > 0 && (cutter->objects >> (cutter->depth - 1) & 1) != 0;
}

static enum qd_status read_value(struct cutter *cutter, enum next *next)
{
    char byte = cutter->at < cutter->end ? *cutter->at : '\0';
    *next = AFTER_VALUE;
    if (byte == '{' || byte == '[') {
        *next = byte == '{' ? FIRST_KEY : FIRST_VALUE;
        return open_value(cutter);
    }
    if (byte == '"')
        return read_string(cutter);
    if (byte == '-' || (byte >= '0' && byte <= '9'))
        return read_number(cutter);
    return read_literal(cutter);
}

static enum qd_status read_separator(struct cutter *cutter, enum next *next)
{
    bool object = in_object(cutter);
    char byte = cutter->at < cutter->end ? *cutter->at : '\0';
    if (byte == ',') {
        *next = object ? KEY : VALUE;
    } else if (byte == (object ? '}' : ']')) {
        cutter->depth--;
        *next = AFTER_VALUE;
    } else {
        return expected(cutter, object ? "',' or '}'" : "',' or ']'");
    }
    cutter->at++;
    return QD_OK;
}

static enum qd_status step(struct cutter *cutter, enum next *next)
{
    char byte = cutter->at < cutter->end ? *cutter->at : '\0';
    bool closes = (*next == FIRST_VALUE && byte == ']') || (*next == FIRST_KEY && byte == '}');
    if (*next == AFTER_VALUE || closes)
        return read_separator(cutter, next);
    if (*next == VALUE || *next == FIRST_VALUE)
        return read_value(cutter, next);
    if (byte != '"')
        return expected(cutter, *next == KEY ? "a key" : "a key or '}'");
    return read_key(cutter, next);
}

enum qd_status qd_json_envelope_cut(const char *json, size_t bytes, struct qd_arena *arena,
                                    struct qd_json_envelope *envelope, struct qd_error *error)
{
    *envelope = (struct qd_json_envelope){0};
    struct cutter cutter = {.begin = json,
                            .at = json,
                            .end = json + bytes,
                            .copied = json,
                            .arena = arena,
                            .envelope = envelope,
                            .error = error};
    enum next next = VALUE;
    do {
        skip_space(&cutter);
        enum qd_status status = step(&cutter, &next);
        if (status != QD_OK)
            return status;
    } while (cutter.depth > 0 || next != AFTER_VALUE);
    skip_space(&cutter);
    if (cutter.at != cutter.end) {
        return expected(&cutter, "nothing after the JSON (binary tensor data needs the header "
                                 "Inference-Header-Content-Length)");
    }
    return append(&cutter, cutter.copied, (size_t)(cutter.end - cutter.copied));
}
