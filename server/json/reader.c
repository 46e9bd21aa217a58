#include "server/json/reader.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/refusal.h"
#include "server/json/number.h"
#include "server/json/string.h"

enum {
    ROOM_BYTES = 2 << 10, /* for nodes and strings at a time: a small request needs one or two */
    MARKS_MIN = 32,
    NUMBER_BYTES_MAX = 1023,
    NUMBER_PLACES_MAX = 19 + 1, /* of a mantissa */
    BLOCK_BYTES = 32,           /* of data, looked at together */
};
static_assert(QD_ENVELOPE_DEPTH_MAX <= 64, "one bit for each open value");

/* What comes next. Spaces may stand before the first seven. */
enum state {
    VALUE,
    FIRST_VALUE,
    KEY,
    FIRST_KEY,
    COLON,
    DATA,
    AFTER_VALUE,
    IN_KEY,
    IN_STRING,
    IN_DATA,
};

__attribute__((cold)) static enum qd_status expected(const struct qd_json_reader *reader,
                                                     const char *what)
{
    size_t offset = (size_t)(reader->at - reader->begin);
    char got[24] = "the end of the JSON";
    if (reader->at < reader->end) {
        unsigned char byte = (unsigned char)*reader->at;
        snprintf(got, sizeof(got), byte > 0x20 && byte < 0x7f ? "'%c'" : "byte 0x%02x", byte);
    }
    return qd_fail(reader->error, QD_INVALID, "malformed JSON at byte %zu: expected %s, got %s",
                   offset, what, got);
}

/* ---- The tree ---------------------------------------------------------------------------- */

__attribute__((cold)) static bool make_room(struct qd_json_reader *reader, size_t bytes)
{
    reader->room_bytes = bytes > ROOM_BYTES ? bytes : ROOM_BYTES;
    reader->room = qd_arena_alloc(reader->arena, reader->room_bytes);
    if (reader->room != NULL)
        return true;
    reader->room_bytes = 0;
    qd_refuse_memory(reader->arena, "the request's JSON", reader->error);
    return false;
}

/* Room for so many bytes, for take. NULL: no memory; the error says so. */
static inline char *find_room(struct qd_json_reader *reader, size_t bytes)
{
    return bytes <= reader->room_bytes || make_room(reader, bytes) ? reader->room : NULL;
}

static inline size_t rounded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static inline void take(struct qd_json_reader *reader, size_t bytes)
{
    reader->room += rounded(bytes);
    reader->room_bytes -= rounded(bytes);
}

/* The value that comes next in the text. NULL: no memory. */
static struct qd_json_value *add(struct qd_json_reader *reader, enum qd_json_kind kind,
                                 const char *text, size_t bytes)
{
    struct qd_json_value *value = (void *)find_room(reader, sizeof(*value));
    if (value == NULL)
        return NULL;
    take(reader, sizeof(*value));
    *value = (struct qd_json_value){.kind = kind, .key = reader->key, .text = text, .bytes = bytes};
    const struct qd_json_value ***link = &reader->links[reader->depth];
    **link = value;
    *link = &value->next;
    reader->key = NULL;
    reader->state = AFTER_VALUE;
    return value;
}

/* As it is written, from `text` up to here. */
static enum qd_status add_written(struct qd_json_reader *reader, enum qd_json_kind kind,
                                  const char *text)
{
    return add(reader, kind, text, (size_t)(reader->at - text)) != NULL ? QD_OK
                                                                        : reader->error->status;
}

/* A key or a value, in the room. */
static inline enum qd_status add_string(struct qd_json_reader *reader, size_t bytes)
{
    const char *string = reader->room;
    take(reader, bytes + 1);
    if (reader->state == IN_KEY) {
        reader->key = string;
        reader->state = COLON;
        return QD_OK;
    }
    return add(reader, QD_JSON_STRING, string, bytes) != NULL ? QD_OK : reader->error->status;
}

/* ---- Data, skipped ----------------------------------------------------------------------- */

static bool is_structural(char byte)
{
    char bracket = (char)(byte | 0x20); /* [ and { differ in this bit, and so do ] and } */
    return bracket == '{' || bracket == '}' || byte == '"';
}

/* No early exit: compilers make vector code of it. */
static bool block_is_plain(const char *block, size_t *commas)
{
    unsigned char found = 0;
    unsigned char count = 0;
    for (int i = 0; i < BLOCK_BYTES; i++) {
        found |= is_structural(block[i]);
        count = (unsigned char)(count + (block[i] == ','));
    }
    *commas = count;
    return found == 0;
}

static enum qd_status add_mark(struct qd_json_reader *reader)
{
    if (reader->mark_count == reader->mark_capacity) {
        size_t size = sizeof(*reader->marks);
        size_t capacity = reader->mark_capacity == 0 ? MARKS_MIN : reader->mark_capacity * 2;
        struct qd_json_mark *marks = qd_arena_grow(reader->arena, reader->marks,
                                                   reader->mark_capacity * size, capacity * size);
        if (marks == NULL)
            return qd_refuse_memory(reader->arena, "the request's JSON", reader->error);
        reader->marks = marks;
        reader->mark_capacity = capacity;
    }
    reader->marks[reader->mark_count++] = (struct qd_json_mark){reader->at, reader->commas};
    reader->marked = reader->at;
    return QD_OK;
}

/* Whether an odd number of backslashes, none before `begin`, stands before `quote`. */
static bool is_escaped(const char *begin, const char *quote)
{
    const char *at = quote;
    while (at > begin && at[-1] == '\\')
        at--;
    return (quote - at) % 2 != 0;
}

/* Inside a string of data: to behind its closing quote, or to the pause. */
static void skip_string(struct qd_json_reader *reader)
{
    while (reader->in_string && reader->at < reader->pause) {
        const char *quote = memchr(reader->at, '"', (size_t)(reader->pause - reader->at));
        reader->at = quote == NULL ? reader->pause : quote + 1;
        reader->in_string = quote == NULL || is_escaped(reader->string, quote);
    }
}

/* Outside strings of data: some bytes on, to the pause at the most. */
static enum qd_status skip_block(struct qd_json_reader *reader)
{
    const bool is_due = (size_t)(reader->at - reader->marked) >= reader->piece_bytes;
    const bool is_whole = reader->pause - reader->at >= BLOCK_BYTES;
    const char *stop = is_whole ? reader->at + BLOCK_BYTES : reader->pause;
    size_t commas;
    if (is_whole && !is_due && block_is_plain(reader->at, &commas)) {
        reader->commas += commas;
        reader->at = stop;
        return QD_OK;
    }
    for (const char *at = reader->at; at < stop;) {
        const char byte = *at++;
        const bool is_plain = byte != ',' && !is_structural(byte);
        if (is_plain && at < stop)
            continue;
        reader->at = at;
        reader->commas += byte == ',';
        if (byte == ',' && is_due && reader->commas % QD_JSON_MARK_ELEMENTS == 0)
            return add_mark(reader);
        if (byte == ',' || is_plain)
            continue;
        reader->in_string = byte == '"';
        reader->string = reader->at;
        if (byte != '"')
            reader->brackets += byte == '[' || byte == '{' ? 1 : SIZE_MAX;
        if (reader->in_string || reader->brackets == 0)
            break;
    }
    return QD_OK;
}

/* On in an array, an object or a string. */
static enum qd_status skip_nested(struct qd_json_reader *reader, bool *closed)
{
    enum qd_status status = QD_OK;
    *closed = false;
    while (status == QD_OK && !*closed && reader->at < reader->pause) {
        if (reader->in_string)
            skip_string(reader);
        else
            status = skip_block(reader);
        *closed = reader->brackets == 0 && !reader->in_string;
    }
    const bool is_cut = status == QD_OK && !*closed && reader->at == reader->end;
    return is_cut ? expected(reader, "the end of the data") : status;
}

static bool is_space(char byte)
{
    return (unsigned char)byte <= ' ' &&
           (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t');
}

/* On in a number or a word. */
static enum qd_status skip_word(struct qd_json_reader *reader, bool *closed)
{
    while (reader->at < reader->pause && (unsigned char)*reader->at > ' ' && *reader->at != ',' &&
           *reader->at != ']' && *reader->at != '}')
        reader->at++;
    *closed = reader->at < reader->pause || reader->at == reader->end;
    return *closed && reader->at == reader->token ? expected(reader, "a value") : QD_OK;
}

static void set_pause(struct qd_json_reader *reader)
{
    const size_t room = reader->data_bytes + QD_ENVELOPE_BYTES_MAX;
    reader->pause = reader->step_end;
    if (reader->state != IN_DATA && (size_t)(reader->step_end - reader->begin) > room)
        reader->pause = reader->begin + room;
}

static enum qd_status begin_data(struct qd_json_reader *reader)
{
    reader->token = reader->marked = reader->at;
    reader->brackets = 0;
    reader->in_string = false;
    reader->commas = 0;
    reader->mark_first = reader->mark_count;
    reader->state = IN_DATA;
    set_pause(reader);
    return QD_OK;
}

static enum qd_status end_data(struct qd_json_reader *reader)
{
    struct qd_json_data *data = (void *)find_room(reader, sizeof(*data));
    if (data == NULL)
        return reader->error->status;
    take(reader, sizeof(*data));
    struct qd_json_value *value =
        add(reader, QD_JSON_DATA, reader->token, (size_t)(reader->at - reader->token));
    if (value == NULL)
        return reader->error->status;
    if (value->bytes == 4 && memcmp(value->text, "null", 4) == 0)
        value->kind = QD_JSON_NULL;
    *data = (struct qd_json_data){.commas = reader->commas,
                                  .mark_first = reader->mark_first,
                                  .mark_count = reader->mark_count - reader->mark_first};
    value->data = data;
    reader->data_bytes += value->bytes;
    set_pause(reader);
    return QD_OK;
}

/* Moves behind a data value, whatever it is: who converts it judges it. */
static enum qd_status skip_data(struct qd_json_reader *reader)
{
    const char *token = reader->token;
    const bool nested = token < reader->end && (*token == '"' || is_structural(*token));
    bool closed;
    enum qd_status status = nested && *token != ']' && *token != '}' ? skip_nested(reader, &closed)
                                                                     : skip_word(reader, &closed);
    if (status != QD_OK)
        return status;
    if (closed)
        return end_data(reader);
    if (*token == '"' || reader->at - reader->marked <= QD_DATA_GAP_BYTES_MAX)
        return QD_OK;
    return qd_fail(reader->error, QD_INVALID,
                   "the JSON at byte %zu: expected %d elements of data within %d bytes",
                   (size_t)(reader->marked - reader->begin), QD_JSON_MARK_ELEMENTS,
                   QD_DATA_GAP_BYTES_MAX);
}

/* ---- The grammar ------------------------------------------------------------------------- */

static void skip_space(struct qd_json_reader *reader)
{
    const char *at = reader->at;
    while (at < reader->pause && is_space(*at))
        at++;
    reader->at = at;
}

/* Most strings end here, too: they are short, and stand for themselves. */
static enum qd_status begin_string(struct qd_json_reader *reader, enum state state)
{
    reader->token = reader->at++;
    reader->state = state;
    char *room = find_room(reader, QD_JSON_PLAIN_BYTES);
    if (room == NULL)
        return reader->error->status;
    const char *begin = reader->at;
    const char *quote = qd_json_string_copy_plain(begin, reader->end, room);
    if (quote == NULL)
        return QD_OK;
    reader->at = quote + 1;
    return add_string(reader, (size_t)(quote - begin));
}

/* On in a string. */
static enum qd_status read_string(struct qd_json_reader *reader)
{
    bool closed;
    const char *wanted = qd_json_string_scan(&reader->at, reader->pause, reader->end, &closed);
    if (wanted != NULL)
        return expected(reader, wanted);
    if (!closed)
        return QD_OK;
    const char *written = reader->token + 1;
    const size_t bytes = (size_t)(reader->at - written) - 1;
    char *room = find_room(reader, rounded(bytes + 1));
    if (room == NULL)
        return reader->error->status;
    const size_t decoded = qd_json_string_decode(written, bytes, room);
    room[decoded] = '\0';
    return add_string(reader, decoded);
}

static enum qd_status read_colon(struct qd_json_reader *reader)
{
    if (reader->at == reader->end || *reader->at != ':')
        return expected(reader, "':'");
    reader->at++;
    if (reader->depth == 1) {
        reader->in_inputs = qd_json_key_is(reader->key, "inputs");
        reader->in_parameters = qd_json_key_is(reader->key, "parameters");
    }
    bool in_item = reader->depth == 3 && reader->in_inputs && (reader->objects & 2) == 0;
    bool in_files = reader->depth == 2 && reader->in_parameters;
    bool is_data = (in_item && qd_json_key_is(reader->key, "data")) ||
                   (in_files && strncmp(reader->key, "file:", 5) == 0);
    reader->state = is_data ? DATA : VALUE;
    return QD_OK;
}

static enum qd_status read_number(struct qd_json_reader *reader)
{
    struct qd_json_number number;
    const char *begin = reader->at;
    const bool far = reader->end - begin > NUMBER_BYTES_MAX;
    const char *end =
        qd_json_number_scan(begin, far ? begin + NUMBER_BYTES_MAX + 1 : reader->end, &number);
    if (number.bytes > NUMBER_BYTES_MAX)
        return expected(reader, "a number of at most 1023 characters");
    reader->at += number.bytes;
    if (end == NULL)
        return expected(reader, "a digit");
    if (number.exponent > DBL_MAX_10_EXP - NUMBER_PLACES_MAX) { /* readers differ beyond */
        char copy[NUMBER_BYTES_MAX + 1];
        memcpy(copy, begin, number.bytes);
        copy[number.bytes] = '\0';
        if (!isfinite(strtod(copy, NULL))) {
            reader->at = begin;
            return expected(reader, "a number within the range of double precision");
        }
    }
    return add_written(reader, QD_JSON_NUMBER, begin);
}

static enum qd_status open_value(struct qd_json_reader *reader)
{
    if (reader->depth == QD_ENVELOPE_DEPTH_MAX) {
        return qd_fail(reader->error, QD_INVALID,
                       "malformed JSON at byte %zu: nested deeper than %d",
                       (size_t)(reader->at - reader->begin), QD_ENVELOPE_DEPTH_MAX);
    }
    const bool is_object = *reader->at == '{';
    struct qd_json_value *value =
        add(reader, is_object ? QD_JSON_OBJECT : QD_JSON_ARRAY, reader->at, 0);
    if (value == NULL)
        return reader->error->status;
    uint64_t bit = UINT64_C(1) << reader->depth++;
    reader->objects = is_object ? reader->objects | bit : reader->objects & ~bit;
    reader->links[reader->depth] = &value->first;
    reader->state = is_object ? FIRST_KEY : FIRST_VALUE;
    reader->at++;
    return QD_OK;
}

static enum qd_status read_literal(struct qd_json_reader *reader)
{
    static const char *const literals[] = {
        [QD_JSON_NULL] = "null", [QD_JSON_FALSE] = "false", [QD_JSON_TRUE] = "true"};
    size_t left = (size_t)(reader->end - reader->at);
    for (enum qd_json_kind kind = QD_JSON_NULL; kind <= QD_JSON_TRUE; kind++) {
        size_t count = strlen(literals[kind]);
        if (left >= count && memcmp(reader->at, literals[kind], count) == 0) {
            reader->at += count;
            return add_written(reader, kind, reader->at - count);
        }
    }
    return expected(reader, "a value");
}

static enum qd_status read_value(struct qd_json_reader *reader)
{
    char byte = reader->at < reader->end ? *reader->at : '\0';
    if (byte == '{' || byte == '[')
        return open_value(reader);
    if (byte == '"')
        return begin_string(reader, IN_STRING);
    if (byte == '-' || (byte >= '0' && byte <= '9'))
        return read_number(reader);
    return read_literal(reader);
}

/* Whether what comes next is here, without spaces before it. */
static inline bool goes_on(const struct qd_json_reader *reader)
{
    return reader->at < reader->pause && !is_space(*reader->at);
}

/* Mostly the colon and the value are there, too. */
static enum qd_status read_key(struct qd_json_reader *reader, const char *wanted)
{
    if (reader->at == reader->end || *reader->at != '"')
        return expected(reader, wanted);
    enum qd_status status = begin_string(reader, IN_KEY);
    if (status == QD_OK && reader->state == COLON && goes_on(reader))
        status = read_colon(reader);
    if (status != QD_OK || !goes_on(reader))
        return status;
    if (reader->state == DATA)
        return begin_data(reader);
    return reader->state == VALUE ? read_value(reader) : QD_OK;
}

static bool is_over(const struct qd_json_reader *reader)
{
    return reader->depth == 0 && reader->state == AFTER_VALUE;
}

static enum qd_status read_separator(struct qd_json_reader *reader)
{
    if (is_over(reader)) {
        return expected(reader, "nothing after the JSON (binary tensor data needs the header "
                                "Inference-Header-Content-Length)");
    }
    const bool object = (reader->objects >> (reader->depth - 1) & 1) != 0;
    char byte = reader->at < reader->end ? *reader->at : '\0';
    if (byte == ',') {
        reader->state = object ? KEY : VALUE;
    } else if (byte == (object ? '}' : ']')) {
        reader->depth--;
        reader->state = AFTER_VALUE;
    } else {
        return expected(reader, object ? "',' or '}'" : "',' or ']'");
    }
    reader->at++;
    return reader->state == KEY && goes_on(reader) ? read_key(reader, "a key") : QD_OK;
}

static enum qd_status read_token(struct qd_json_reader *reader)
{
    char byte = reader->at < reader->end ? *reader->at : '\0';
    switch ((enum state)reader->state) {
    case FIRST_VALUE:
        return byte == ']' ? read_separator(reader) : read_value(reader);
    case VALUE:
        return read_value(reader);
    case FIRST_KEY:
        if (byte == '}')
            return read_separator(reader);
        return read_key(reader, "a key or '}'");
    case KEY:
        return read_key(reader, "a key");
    case COLON:
        return read_colon(reader);
    case AFTER_VALUE:
        return read_separator(reader);
    case DATA:
        return begin_data(reader);
    case IN_DATA:
        return skip_data(reader);
    case IN_KEY:
    case IN_STRING:
        break;
    }
    return read_string(reader);
}

/* ---- Steps ------------------------------------------------------------------------------- */

void qd_json_reader_init(struct qd_json_reader *reader, const char *json, size_t bytes,
                         size_t piece_bytes, struct qd_arena *arena, struct qd_error *error)
{
    *reader = (struct qd_json_reader){.arena = arena,
                                      .error = error,
                                      .begin = json,
                                      .at = json,
                                      .end = json + bytes,
                                      .piece_bytes = piece_bytes,
                                      .state = VALUE};
    reader->links[0] = &reader->root;
}

static bool is_too_large(const struct qd_json_reader *reader)
{
    const size_t bytes = (size_t)(reader->at - reader->begin);
    return reader->state != IN_DATA &&
           bytes - reader->data_bytes + (reader->at < reader->end) > QD_ENVELOPE_BYTES_MAX;
}

enum qd_status qd_json_reader_step(struct qd_json_reader *reader, bool *done)
{
    enum qd_status status = QD_OK;
    const bool is_last = (size_t)(reader->end - reader->at) <= reader->piece_bytes;
    reader->step_end = is_last ? reader->end : reader->at + reader->piece_bytes;
    set_pause(reader);
    *done = false;
    do {
        if (reader->state <= AFTER_VALUE)
            skip_space(reader);
        if (reader->at >= reader->pause && (reader->at < reader->end || is_over(reader)))
            break;
        status = read_token(reader);
    } while (status == QD_OK);
    if (status != QD_OK)
        return status;
    if (is_too_large(reader)) {
        return qd_fail(reader->error, QD_TOO_LARGE,
                       "the JSON without its tensor data exceeds %u bytes", QD_ENVELOPE_BYTES_MAX);
    }
    *done = reader->at == reader->end;
    return QD_OK;
}

enum qd_status qd_json_read(const char *json, size_t bytes, struct qd_arena *arena,
                            const struct qd_json_value **root, struct qd_error *error)
{
    struct qd_json_reader reader;
    bool done = false;
    enum qd_status status = QD_OK;
    qd_json_reader_init(&reader, json, bytes, bytes, arena, error);
    while (status == QD_OK && !done)
        status = qd_json_reader_step(&reader, &done);
    *root = reader.root;
    return status;
}
