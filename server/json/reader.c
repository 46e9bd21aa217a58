#include "server/json/reader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/number.h"
#include "server/json/string.h"

enum {
    ROOM_BYTES = 2 << 10, /* allocated at a time for nodes and strings; a small request needs one or
                             two of these */
    NUMBER_BYTES_MAX = 1023,
    NUMBER_PLACES_MAX = 19 + 1, /* of a mantissa */
    FLAT_BYTES_MAX = 64,        /* how much data skip_flat looks at */
    BLOCK_BYTES = 32,           /* how much other data is examined at once */
};

/* The closing byte of the whole text. It never matches a byte of the text, because spaces are
 * skipped before a byte is compared with it. */
#define NO_CLOSE ' '

/* What comes next in the text. In the first seven states, spaces may precede it. */
enum state {
    AFTER_VALUE,
    FIRST_KEY,
    KEY,
    COLON,
    FIRST_VALUE,
    VALUE,
    DATA,
    IN_KEY,
    IN_STRING,
    IN_DATA,
};

__attribute__((cold)) static const char *expected(const struct qd_json_reader *reader,
                                                  const char *at, const char *what)
{
    size_t offset = (size_t)(at - reader->begin);
    char got[24] = "the end of the JSON";
    if (at < reader->end) {
        unsigned char byte = (unsigned char)*at;
        snprintf(got, sizeof(got), byte > 0x20 && byte < 0x7f ? "'%c'" : "byte 0x%02x", byte);
    }
    qd_fail(reader->error, QD_INVALID, "malformed JSON at byte %zu: expected %s, got %s", offset,
            what, got);
    return NULL;
}

/* ---- The tree ---------------------------------------------------------------------------- */

/* The memory that a token may need, not counting a long string. */
enum {
    TOKEN_BYTES_MAX =
        2 * QD_JSON_PLAIN_BYTES + sizeof(struct qd_json_value) + sizeof(struct qd_json_data)
};

/* Makes room for a token and `more` bytes. Returns false, with the error set, if there is no
 * memory. */
static inline bool find_room(struct qd_json_reader *reader, size_t more)
{
    const size_t bytes = TOKEN_BYTES_MAX + more;
    if ((size_t)(reader->room_end - reader->room) >= bytes)
        return true;
    const size_t wanted = bytes > ROOM_BYTES ? bytes : ROOM_BYTES;
    char *room = qd_arena_alloc(reader->arena, wanted);
    if (room == NULL) {
        qd_refuse_memory(reader->arena, "the request's JSON", reader->error);
        return false;
    }
    reader->room = room;
    reader->room_end = room + wanted;
    return true;
}

/* Takes bytes from the room that find_room has made. */
static inline void *take(struct qd_json_reader *reader, size_t bytes)
{
    void *taken = reader->room;
    reader->room += bytes;
    return taken;
}

/* Adds a value to the tree, behind the last one. */
static struct qd_json_value *add(struct qd_json_reader *reader, enum qd_json_kind kind,
                                 const char *text, size_t bytes)
{
    struct qd_json_value *value = take(reader, sizeof(*value));
    *value = (struct qd_json_value){.kind = kind, .key = reader->key, .text = text, .bytes = bytes};
    *reader->top->link = value;
    reader->top->link = &value->next;
    reader->key = NULL;
    reader->state = AFTER_VALUE;
    return value;
}

/* Adds a value with its text as it is written, from `at` to `end`. Returns `end`. */
static const char *add_written(struct qd_json_reader *reader, enum qd_json_kind kind,
                               const char *at, const char *end)
{
    add(reader, kind, at, (size_t)(end - at));
    return end;
}

/* Adds a key or a string value, which is stored in the room already and ends at `room`. */
static inline void add_string(struct qd_json_reader *reader, enum state state, size_t bytes,
                              char *room)
{
    const char *string = reader->room;
    reader->room = room;
    if (state == IN_KEY) {
        reader->key = string;
        reader->state = COLON;
    } else {
        add(reader, QD_JSON_STRING, string, bytes);
    }
}

/* ---- Data, skipped ----------------------------------------------------------------------- */

static bool is_structural(char byte)
{
    char bracket = (char)(byte | 0x20); /* [ and { differ in this bit, and so do ] and } */
    return bracket == '{' || bracket == '}' || byte == '"';
}

/* Returns whether a block has neither brackets of arrays and objects nor quotes. Counts its commas.
 * Has no early exit, so that compilers make vector code of it. */
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

static const char *add_mark(struct qd_json_reader *reader, const char *at)
{
    struct qd_json_mark *marks = qd_arena_extend(reader->arena, reader->marks, reader->mark_count,
                                                 &reader->mark_capacity, sizeof(*marks));
    if (marks == NULL) {
        qd_refuse_memory(reader->arena, "the request's JSON", reader->error);
        return NULL;
    }
    reader->marks = marks;
    reader->marks[reader->mark_count++] = (struct qd_json_mark){at, reader->commas};
    reader->marked = at;
    return at;
}

/* Returns whether an odd number of backslashes precedes `quote`. Looks back to `begin` only. */
static bool is_escaped(const char *begin, const char *quote)
{
    const char *at = quote;
    while (at > begin && at[-1] == '\\')
        at--;
    return (quote - at) % 2 != 0;
}

/* Skips the rest of a string in data. Stops behind its closing quote, or at the pause. */
static const char *skip_string(struct qd_json_reader *reader, const char *at)
{
    while (reader->in_string && at < reader->pause) {
        const char *quote = memchr(at, '"', (size_t)(reader->pause - at));
        at = quote == NULL ? reader->pause : quote + 1;
        reader->in_string = quote == NULL || is_escaped(reader->string, quote);
    }
    return at;
}

/* Skips some bytes of data outside strings. Stops at the pause, or earlier. Adds a mark if one is
 * due. */
static const char *skip_block(struct qd_json_reader *reader, const char *at)
{
    const bool is_due = (size_t)(at - reader->marked) >= reader->piece_bytes;
    const bool is_whole = reader->pause - at >= BLOCK_BYTES;
    const char *stop = is_whole ? at + BLOCK_BYTES : reader->pause;
    size_t commas;
    if (is_whole && !is_due && block_is_plain(at, &commas)) {
        reader->commas += commas;
        return stop;
    }
    while (at < stop) {
        const char byte = *at++;
        reader->commas += byte == ',';
        if (byte == ',' && is_due && reader->commas % QD_JSON_MARK_ELEMENTS == 0)
            return add_mark(reader, at);
        if (!is_structural(byte))
            continue;
        reader->in_string = byte == '"';
        reader->string = at;
        if (byte != '"')
            reader->brackets += byte == '[' || byte == '{' ? 1 : SIZE_MAX;
        if (reader->in_string || reader->brackets == 0)
            break;
    }
    return at;
}

/* Continues in an array, an object or a string of data. */
static const char *skip_nested(struct qd_json_reader *reader, const char *at, bool *closed)
{
    *closed = false;
    while (at != NULL && !*closed && at < reader->pause) {
        at = reader->in_string ? skip_string(reader, at) : skip_block(reader, at);
        *closed = reader->brackets == 0 && !reader->in_string;
    }
    return !*closed && at == reader->end ? expected(reader, at, "the end of the data") : at;
}

/* Continues in a number or a word of data. */
static const char *skip_word(const struct qd_json_reader *reader, const char *at, bool *closed)
{
    while (at < reader->pause && (unsigned char)*at > ' ' && *at != ',' && *at != ']' && *at != '}')
        at++;
    *closed = at < reader->pause || at == reader->end;
    return *closed && at == reader->token ? expected(reader, at, "a value") : at;
}

static void set_pause(struct qd_json_reader *reader)
{
    const size_t room = reader->data_bytes + QD_ENVELOPE_BYTES_MAX;
    reader->pause = reader->step_end;
    if (reader->state != IN_DATA && (size_t)(reader->step_end - reader->begin) > room)
        reader->pause = reader->begin + room;
}

static void begin_data(struct qd_json_reader *reader, const char *at)
{
    reader->token = reader->marked = at;
    reader->brackets = 0;
    reader->in_string = false;
    reader->commas = 0;
    reader->mark_first = reader->mark_count;
    reader->state = IN_DATA;
    reader->pause = reader->step_end;
}

static inline const char *end_data(struct qd_json_reader *reader, const char *at)
{
    struct qd_json_data *data = take(reader, sizeof(*data));
    struct qd_json_value *value =
        add(reader, QD_JSON_DATA, reader->token, (size_t)(at - reader->token));
    *data = (struct qd_json_data){.commas = reader->commas,
                                  .mark_first = reader->mark_first,
                                  .mark_count = reader->mark_count - reader->mark_first};
    if (value->bytes == 4 && memcmp(value->text, "null", 4) == 0)
        value->kind = QD_JSON_NULL;
    else
        value->data = data;
    reader->data_bytes += value->bytes;
    set_pause(reader);
    return at;
}

/* Returns the end of data that is flat and short, as in small requests. Returns NULL for other
 * data. */
static const char *skip_flat(const char *at, const char *pause, size_t *commas)
{
    const char *stop = pause - at > FLAT_BYTES_MAX ? at + FLAT_BYTES_MAX : pause;
    size_t count = 0;
    if (*at != '[')
        return NULL;
    for (at++; at < stop; at++) {
        if (*at >= '-' && *at <= '9')
            continue;
        count += *at == ',';
        if (*at == ']') {
            *commas = count;
            return at + 1;
        }
        if (is_structural(*at))
            break;
    }
    return NULL;
}

/* Moves behind a data value, without checking the value. Its conversion checks it. */
static const char *skip_data(struct qd_json_reader *reader, const char *at)
{
    const char *token = reader->token;
    const bool nested = token < reader->end && is_structural(*token);
    bool closed;
    at = nested && *token != ']' && *token != '}' ? skip_nested(reader, at, &closed)
                                                  : skip_word(reader, at, &closed);
    if (at == NULL)
        return NULL;
    if (closed)
        return end_data(reader, at);
    if (*token == '"' || at - reader->marked <= QD_DATA_GAP_BYTES_MAX)
        return at;
    qd_fail(reader->error, QD_INVALID,
            "the JSON at byte %zu: expected %d elements of data within %d bytes",
            (size_t)(reader->marked - reader->begin), QD_JSON_MARK_ELEMENTS, QD_DATA_GAP_BYTES_MAX);
    return NULL;
}

static const char *read_data(struct qd_json_reader *reader, const char *at)
{
    begin_data(reader, at);
    const char *end = at < reader->pause ? skip_flat(at, reader->pause, &reader->commas) : NULL;
    return end != NULL ? end_data(reader, end) : skip_data(reader, at);
}

/* ---- The grammar ------------------------------------------------------------------------- */

/* Each function below reads the token at `at`, sets the state and returns the token's end. If the
 * step ends inside the token, the state stays as it is. If the text is malformed, the function
 * returns NULL. */

static inline bool is_cut(const struct qd_json_reader *reader, const char *at)
{
    return at >= reader->pause && at < reader->end;
}

/* Moves to the next token. Returns false if the step or the text ends first. */
static inline bool goes_on(const struct qd_json_reader *reader, const char **at)
{
    while (*at < reader->pause && qd_json_is_space(**at))
        ++*at;
    return *at < reader->pause;
}

/* Returns whether `byte` comes next, and moves to it. Usually no space precedes it. */
static inline bool comes(const struct qd_json_reader *reader, const char **at, char byte)
{
    if (*at < reader->pause && **at == byte)
        return true;
    return goes_on(reader, at) && **at == byte;
}

/* Begins a string. Most strings are short and have no escapes: they also end here. */
static inline const char *begin_string(struct qd_json_reader *reader, const char *at,
                                       enum state state)
{
    const char *begin = at + 1;
    char *room = reader->room;
    const char *quote = qd_json_string_copy_plain(begin, reader->end, &room);
    if (quote != NULL) {
        add_string(reader, state, (size_t)(quote - begin), room);
        return quote + 1;
    }
    reader->token = at;
    reader->state = state;
    return begin;
}

/* Continues in a string. */
static const char *read_string(struct qd_json_reader *reader, const char *at)
{
    bool closed;
    const char *wanted = qd_json_string_scan(&at, reader->pause, reader->end, &closed);
    if (wanted != NULL)
        return expected(reader, at, wanted);
    if (!closed)
        return at;
    const char *written = reader->token + 1;
    const size_t bytes = (size_t)(at - written) - 1;
    if (!find_room(reader, bytes))
        return NULL;
    const size_t decoded = qd_json_string_decode(written, bytes, reader->room);
    const size_t padded = decoded / 8 * 8 + 8;
    memset(reader->room + decoded, 0, padded - decoded);
    add_string(reader, reader->state, decoded, reader->room + padded);
    return at;
}

static const char *close_value(struct qd_json_reader *reader, const char *at)
{
    reader->top--;
    reader->state = AFTER_VALUE;
    return at + 1;
}

/* Handles a byte that does not begin a key: closes an empty object, refuses the byte, or does
 * nothing if the step has ended before it. */
static const char *read_no_key(struct qd_json_reader *reader, const char *at)
{
    if (is_cut(reader, at))
        return at;
    if (reader->state == FIRST_KEY && at < reader->end && *at == '}')
        return close_value(reader, at);
    return expected(reader, at, reader->state == KEY ? "a key after the comma" : "a key or '}'");
}

static const char *read_colon(struct qd_json_reader *reader, const char *at)
{
    static const struct qd_json_name inputs = {"inputs"}, parameters = {"parameters"},
                                     data = {"data"};
    const struct qd_json_open *top = reader->top, *stack = reader->stack;
    bool is_data = false;
    if (!comes(reader, &at, ':'))
        return is_cut(reader, at) ? at : expected(reader, at, "':'");
    if (top == &stack[3]) {
        is_data = reader->in_inputs && stack[2].close == ']' && qd_json_key_is(reader->key, &data);
    } else if (top == &stack[2]) {
        is_data = reader->in_parameters && strncmp(reader->key, "file:", 5) == 0;
    } else if (top == &stack[1]) {
        reader->in_inputs = qd_json_key_is(reader->key, &inputs);
        reader->in_parameters = qd_json_key_is(reader->key, &parameters);
    }
    reader->state = is_data ? DATA : VALUE;
    return at + 1;
}

static const char *read_any_number(struct qd_json_reader *reader, const char *at)
{
    struct qd_json_number number;
    const bool far = reader->end - at > NUMBER_BYTES_MAX;
    const char *stop = far ? at + NUMBER_BYTES_MAX + 1 : reader->end;
    const char *end = qd_json_number_scan(at, stop, &number);
    if (number.bytes > NUMBER_BYTES_MAX)
        return expected(reader, at, "a number of at most 1023 characters");
    if (end == NULL)
        return expected(reader, at + number.bytes, "a digit");
    if (number.exponent > DBL_MAX_10_EXP - NUMBER_PLACES_MAX) { /* programs differ on larger ones */
        char copy[NUMBER_BYTES_MAX + 1];
        memcpy(copy, at, number.bytes);
        copy[number.bytes] = '\0';
        if (!isfinite(strtod(copy, NULL)))
            return expected(reader, at, "a number within the range of double precision");
    }
    return add_written(reader, QD_JSON_NUMBER, at, end);
}

/* Reads a number. Most numbers are sizes, which need no more than their digits to be read. */
static inline const char *read_number(struct qd_json_reader *reader, const char *at)
{
    uint64_t size;
    const char *end = qd_json_digits_read(at, reader->end, &size);
    if (end == NULL || end == reader->end || *end == '.' || (*end | 0x20) == 'e')
        return read_any_number(reader, at);
    return add_written(reader, QD_JSON_NUMBER, at, end);
}

static const char *open_value(struct qd_json_reader *reader, const char *at)
{
    if (reader->top == &reader->stack[QD_ENVELOPE_DEPTH_MAX]) {
        qd_fail(reader->error, QD_INVALID, "malformed JSON at byte %zu: nested deeper than %d",
                (size_t)(at - reader->begin), QD_ENVELOPE_DEPTH_MAX);
        return NULL;
    }
    const bool is_object = *at == '{';
    struct qd_json_value *value = add(reader, is_object ? QD_JSON_OBJECT : QD_JSON_ARRAY, at, 0);
    *++reader->top = (struct qd_json_open){&value->first, is_object ? '}' : ']'};
    reader->state = is_object ? FIRST_KEY : FIRST_VALUE;
    return at + 1;
}

static const char *read_literal(struct qd_json_reader *reader, const char *at)
{
    static const char *const literals[] = {
        [QD_JSON_NULL] = "null", [QD_JSON_FALSE] = "false", [QD_JSON_TRUE] = "true"};
    size_t left = (size_t)(reader->end - at);
    for (enum qd_json_kind kind = QD_JSON_NULL; kind <= QD_JSON_TRUE; kind++) {
        size_t count = strlen(literals[kind]);
        if (left >= count && memcmp(at, literals[kind], count) == 0)
            return add_written(reader, kind, at, at + count);
    }
    const bool after_comma = reader->state == VALUE && reader->top->close == ']';
    return expected(reader, at, after_comma ? "a value after the comma" : "a value");
}

/* Reads a value that is not a string. */
static const char *read_value(struct qd_json_reader *reader, const char *at)
{
    const char byte = at < reader->pause ? *at : '\0';
    if (byte == '{' || byte == '[')
        return open_value(reader, at);
    if (byte == ']' && reader->state == FIRST_VALUE)
        return close_value(reader, at);
    if (byte == '-' || (byte >= '0' && byte <= '9'))
        return read_number(reader, at);
    return is_cut(reader, at) ? at : read_literal(reader, at);
}

static bool is_over(const struct qd_json_reader *reader)
{
    return reader->top == reader->stack && reader->state == AFTER_VALUE;
}

__attribute__((cold)) static const char *refuse_separator(const struct qd_json_reader *reader,
                                                          const char *at)
{
    if (is_over(reader))
        return expected(reader, at,
                        "nothing after the JSON (binary tensor data needs the header "
                        "Inference-Header-Content-Length)");
    return expected(reader, at, reader->top->close == '}' ? "',' or '}'" : "',' or ']'");
}

/* Reads a comma, or the brackets that close values and the comma behind them. */
static const char *read_separator(struct qd_json_reader *reader, const char *at)
{
    while (goes_on(reader, &at)) {
        const char close = reader->top->close;
        if (*at == ',' && close != NO_CLOSE) {
            reader->state = close == '}' ? KEY : VALUE;
            return at + 1;
        }
        if (*at != close)
            return refuse_separator(reader, at);
        at = close_value(reader, at);
    }
    return at < reader->end || is_over(reader) ? at : refuse_separator(reader, at);
}

/* Reads a token, or several tokens at once, because usually the text has a whole member. */
static const char *read_token(struct qd_json_reader *reader, const char *at)
{
    if (!find_room(reader, 0))
        return NULL;
    if (reader->state == AFTER_VALUE) {
        at = read_separator(reader, at);
        if (reader->state != KEY)
            return at;
    }
    if (reader->state == KEY || reader->state == FIRST_KEY) {
        if (!comes(reader, &at, '"'))
            return read_no_key(reader, at);
        at = begin_string(reader, at, IN_KEY);
        if (reader->state != COLON)
            return at;
    }
    if (reader->state == COLON) {
        at = read_colon(reader, at);
        if (reader->state == COLON)
            return at;
    }
    if (reader->state == VALUE || reader->state == FIRST_VALUE)
        return comes(reader, &at, '"') ? begin_string(reader, at, IN_STRING)
                                       : read_value(reader, at);
    if (reader->state == DATA)
        return goes_on(reader, &at) || !is_cut(reader, at) ? read_data(reader, at) : at;
    return reader->state == IN_DATA ? skip_data(reader, at) : read_string(reader, at);
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
    reader->top = reader->stack;
    *reader->top = (struct qd_json_open){&reader->root, NO_CLOSE};
}

static bool is_too_large(const struct qd_json_reader *reader)
{
    const size_t bytes = (size_t)(reader->at - reader->begin);
    return reader->state != IN_DATA &&
           bytes - reader->data_bytes + (reader->at < reader->end) > QD_ENVELOPE_BYTES_MAX;
}

enum qd_status qd_json_reader_step(struct qd_json_reader *reader, bool *done)
{
    const char *at = reader->at;
    const bool is_last = (size_t)(reader->end - at) <= reader->piece_bytes;
    reader->step_end = is_last ? reader->end : at + reader->piece_bytes;
    set_pause(reader);
    *done = false;
    while (at < reader->pause || (at == reader->end && !is_over(reader))) {
        at = read_token(reader, at);
        if (at == NULL)
            return reader->error->status;
    }
    reader->at = at;
    if (is_too_large(reader)) {
        return qd_fail(reader->error, QD_TOO_LARGE,
                       "the JSON without its tensor data exceeds %u bytes", QD_ENVELOPE_BYTES_MAX);
    }
    *done = at == reader->end;
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
