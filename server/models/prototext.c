#include "server/models/prototext.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "server/memory/text.h"

enum { KEY_BYTES_MAX = 64 };

struct reader {
    const char *text;
    const char *at;
    const char *end;
    const char *const *repeated;
    struct qd_arena *arena;
    struct qd_error *error;
    size_t value_count;
};

/* The values of an object or an array, while they are read. */
struct list {
    struct qd_json_value *owner;
    struct qd_json_value *last;
};

/* A message while it is read. */
struct message {
    struct list fields;
    struct list arrays[QD_PROTOTEXT_REPEATED_MAX]; /* of the repeated fields; empty: not seen yet */
};

static enum qd_status read_message(struct reader *reader, struct qd_json_value *value, char close,
                                   unsigned depth);

/* Fails at the current position. */
static enum qd_status expected(const struct reader *reader, const char *what)
{
    size_t line = 1;
    for (const char *at = reader->text; at < reader->at; at++)
        line += *at == '\n';
    const size_t left = (size_t)(reader->end - reader->at);
    return qd_fail(reader->error, QD_INVALID, "line %zu: expected %s, got %s", line, what,
                   left == 0 ? "the end" : qd_show_bytes(reader->at, left < 16 ? left : 16).text);
}

/* ---- Tokens ------------------------------------------------------------------------------- */

static void skip_blanks(struct reader *reader)
{
    for (; reader->at < reader->end; reader->at++) {
        if (*reader->at == '#') {
            const char *line = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
            reader->at = line == NULL ? reader->end - 1 : line;
        } else if (memchr(" \t\r\n\v\f", *reader->at, 6) == NULL) {
            return;
        }
    }
}

/* Returns the next character that is not blank, or NUL at the end. */
static char peek(struct reader *reader)
{
    skip_blanks(reader);
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool take(struct reader *reader, char character)
{
    if (peek(reader) != character || reader->at == reader->end)
        return false;
    reader->at++;
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Takes letters, digits, underscores and `more`. Returns how many. */
static size_t take_word(struct reader *reader, const char *more)
{
    const char *begin = reader->at;
    while (reader->at < reader->end &&
           (is_word(*reader->at) || (*reader->at != '\0' && strchr(more, *reader->at) != NULL)))
        reader->at++;
    return (size_t)(reader->at - begin);
}

/* Copies text into the arena, with NULs up to a multiple of eight bytes, as keys need. */
static const char *copy(struct reader *reader, const char *text, size_t bytes)
{
    char *made = qd_arena_calloc(reader->arena, bytes / 8 + 1, 8);
    return made == NULL ? NULL : memcpy(made, text, bytes);
}

static enum qd_status refuse_memory(const struct reader *reader)
{
    return qd_refuse_memory(reader->arena, "the model configuration", reader->error);
}

/* ---- Values ------------------------------------------------------------------------------- */

/* Reads a string, whose quote comes next. Of the escapes, only quotes and backslashes are known. */
static enum qd_status read_string(struct reader *reader, struct qd_json_value *value)
{
    const char quote = *reader->at++;
    const char *const begin = reader->at;
    size_t escapes = 0;
    for (; reader->at < reader->end && *reader->at != quote; reader->at++) {
        const bool escaped = *reader->at == '\\';
        escapes += escaped;
        reader->at += escaped;
        if (reader->at == reader->end || *reader->at == '\0' || *reader->at == '\n' ||
            (escaped && memchr("\\\"'", *reader->at, 3) == NULL))
            return expected(reader, "characters of a string, and of escapes only those of quotes "
                                    "and backslashes");
    }
    if (reader->at == reader->end)
        return expected(reader, "the quote that ends the string");
    value->kind = QD_JSON_STRING;
    value->bytes = (size_t)(reader->at - begin) - escapes;
    char *to = qd_arena_calloc(reader->arena, value->bytes + 1, 1);
    if (to == NULL)
        return refuse_memory(reader);
    value->text = to;
    for (const char *from = begin; from < reader->at; from++)
        *to++ = *(from += *from == '\\');
    for (size_t at = 0, length; at < value->bytes; at += length) {
        length = qd_utf8_length(value->text + at, value->bytes - at);
        if (length == 0)
            return expected(reader, "UTF-8 in the string before it");
    }
    reader->at++;
    return QD_OK;
}

/* Reads a number, or a name such as TYPE_FP32. */
static enum qd_status read_word(struct reader *reader, struct qd_json_value *value)
{
    const char *begin = reader->at;
    const char *digit = begin + (begin < reader->end && *begin == '-');
    value->bytes = take_word(reader, "+-.");
    const bool is_number = digit < reader->at && *digit >= '0' && *digit <= '9';
    const bool is_decimal = is_number && (*digit != '0' || digit + 1 == reader->at ||
                                          digit[1] == '.' || digit[1] == 'e');
    if (value->bytes == 0 || (is_number && !is_decimal) || (!is_number && digit > begin)) {
        reader->at = begin;
        return expected(reader, "a name, a string or a decimal number");
    }
    value->kind = is_number ? QD_JSON_NUMBER : QD_JSON_STRING;
    value->text = copy(reader, begin, value->bytes);
    if (value->text == NULL)
        return refuse_memory(reader);
    if (strcmp(value->text, "true") == 0)
        value->kind = QD_JSON_TRUE;
    else if (strcmp(value->text, "false") == 0)
        value->kind = QD_JSON_FALSE;
    return QD_OK;
}

/* Reads one value. Only a message may follow a name without a colon. */
static enum qd_status read_value(struct reader *reader, struct qd_json_value *value, bool colon,
                                 unsigned depth)
{
    const char next = peek(reader);
    if (take(reader, '{'))
        return read_message(reader, value, '}', depth + 1);
    if (take(reader, '<'))
        return read_message(reader, value, '>', depth + 1);
    if (!colon)
        return expected(reader, "':' or '{' after the name of a field");
    return next == '"' || next == '\'' ? read_string(reader, value) : read_word(reader, value);
}

/* Appends an empty value. Returns NULL on failure. */
static struct qd_json_value *append(struct reader *reader, struct list *list)
{
    struct qd_json_value *value = qd_arena_calloc(reader->arena, 1, sizeof(*value));
    if (++reader->value_count > QD_PROTOTEXT_VALUES_MAX) {
        qd_fail(reader->error, QD_INVALID, "expected at most %d values", QD_PROTOTEXT_VALUES_MAX);
        return NULL;
    }
    if (value == NULL) {
        refuse_memory(reader);
        return NULL;
    }
    if (list->last == NULL)
        list->owner->first = value;
    else
        list->last->next = value;
    list->last = value;
    return value;
}

/* Returns the place of a name among the repeated ones, or their number. */
static size_t find_repeated(const struct reader *reader, const char *key)
{
    size_t i = 0;
    while (reader->repeated[i] != NULL && strcmp(reader->repeated[i], key) != 0)
        i++;
    assert(i <= QD_PROTOTEXT_REPEATED_MAX);
    return i;
}

/* Reads values in brackets into an array. */
static enum qd_status read_list(struct reader *reader, struct list *array, unsigned depth)
{
    if (take(reader, ']'))
        return QD_OK;
    do {
        struct qd_json_value *value = append(reader, array);
        enum qd_status status =
            value == NULL ? reader->error->status : read_value(reader, value, true, depth);
        if (status != QD_OK)
            return status;
    } while (take(reader, ','));
    return take(reader, ']') ? QD_OK : expected(reader, "',' or ']'");
}

static enum qd_status read_field(struct reader *reader, struct message *message, unsigned depth)
{
    const char *begin = reader->at;
    const size_t bytes = take_word(reader, "");
    if (bytes == 0 || bytes > KEY_BYTES_MAX || (*begin >= '0' && *begin <= '9')) {
        reader->at = begin;
        return expected(reader, "the name of a field, of at most 64 letters,");
    }
    const char *key = copy(reader, begin, bytes);
    if (key == NULL)
        return refuse_memory(reader);
    const bool colon = take(reader, ':');
    const bool bracket = take(reader, '[');
    const size_t repeated = find_repeated(reader, key);
    const bool is_repeated = reader->repeated[repeated] != NULL;
    struct list one = {.owner = NULL};
    struct list *array = is_repeated ? &message->arrays[repeated] : &one;
    struct qd_json_value *value = array->owner;
    if (value == NULL) {
        value = append(reader, &message->fields);
        if (value == NULL)
            return reader->error->status;
        value->key = key;
    }
    if (!bracket && !is_repeated)
        return read_value(reader, value, colon, depth);
    value->kind = QD_JSON_ARRAY;
    array->owner = value;
    if (bracket)
        return read_list(reader, array, depth);
    value = append(reader, array);
    return value == NULL ? reader->error->status : read_value(reader, value, colon, depth);
}

/* Reads fields up to `close`, which is NUL for the end of the text. */
static enum qd_status read_message(struct reader *reader, struct qd_json_value *value, char close,
                                   unsigned depth)
{
    struct message message = {.fields = {.owner = value}};
    value->kind = QD_JSON_OBJECT;
    if (depth > QD_PROTOTEXT_DEPTH_MAX)
        return expected(reader, "at most 16 messages within each other");
    for (;;) {
        const char next = peek(reader);
        const bool at_end = reader->at == reader->end;
        if (close == '\0' ? at_end : !at_end && next == close)
            break;
        if (read_field(reader, &message, depth) != QD_OK)
            return reader->error->status;
        if (!take(reader, ','))
            take(reader, ';');
    }
    reader->at += close != '\0';
    return QD_OK;
}

enum qd_status qd_prototext_read(const char *text, size_t bytes, const char *const *repeated,
                                 struct qd_arena *arena, const struct qd_json_value **tree,
                                 struct qd_error *error)
{
    struct reader reader = {text, text, text + bytes, repeated, arena, error, 0};
    struct qd_json_value *root = qd_arena_calloc(arena, 1, sizeof(*root));
    *tree = root;
    return root == NULL ? refuse_memory(&reader) : read_message(&reader, root, '\0', 1);
}
