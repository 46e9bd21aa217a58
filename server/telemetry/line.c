#define _GNU_SOURCE
#include "server/telemetry/line.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "server/memory/text.h"

enum {
    END_BYTES = 2, /* "}\n" */
    ROOM = QD_LINE_BYTES_MAX - END_BYTES,
    ESCAPE_BYTES_MAX = 6, /* \u001f */
    KEY_BYTES = 6,        /* quotes, colon, comma and spaces around a key and a value */
    DIGITS_MAX = 20,
    VALUE_BYTES_MIN = 16, /* a field with less room for its value is left out */
    SECOND_BYTES = sizeof("2000-01-01T00:00:00"),
};

static void put(struct qd_line *line, const char *bytes, size_t count)
{
    memcpy(line->bytes + line->count, bytes, count);
    line->count += count;
}

static void put_string(struct qd_line *line, const char *string)
{
    put(line, string, strlen(string));
}

/* Prints one character as it stands between quotes: *count bytes in `printed`. Returns how many
 * bytes of the value the character has. */
static size_t print_character(enum qd_line_format format, const char *value, size_t left,
                              char printed[ESCAPE_BYTES_MAX], size_t *count)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char byte = (unsigned char)*value;
    const size_t length = qd_utf8_length(value, left);
    const uint32_t point = length == 0 ? 0 : qd_utf8_decode(value, length);
    if (byte == '"' || byte == '\\') {
        memcpy(printed, (const char[]){'\\', (char)byte}, *count = 2);
    } else if (!qd_is_control(point)) {
        memcpy(printed, value, *count = length);
    } else if (format == QD_LINE_TEXT) {
        printed[0] = '?';
        *count = 1;
    } else if (length == 0) {
        memcpy(printed, "\xef\xbf\xbd", *count = 3); /* U+FFFD */
    } else {
        memcpy(printed, "\\u", 2);
        for (unsigned digit = 0; digit < 4; digit++)
            printed[2 + digit] = hex[point >> (12 - 4 * digit) & 15];
        *count = ESCAPE_BYTES_MAX;
    }
    return length == 0 ? 1 : length;
}

/* Returns how many bytes at the begin of a value are plain and can be copied. */
static size_t count_plain(const char *value, size_t most)
{
    size_t count = 0;
    while (count < most && value[count] >= ' ' && value[count] < 0x7f && value[count] != '"' &&
           value[count] != '\\')
        count++;
    return count;
}

/* Returns whether a double quote or a backslash is escaped there. */
static bool is_escape(const char *value)
{
    return *value == '\\' && (value[1] == '"' || value[1] == '\\');
}

/* Adds at most bytes_max bytes of a value, as printed between quotes. Double quotes and escapes
 * stay as they are if `raw`. Never cuts a character apart. */
static void put_value(struct qd_line *line, const char *value, size_t left, size_t bytes_max,
                      bool raw)
{
    char printed[ESCAPE_BYTES_MAX];
    while (left > 0) {
        const size_t plain = count_plain(value, left < bytes_max ? left : bytes_max);
        put(line, value, plain);
        value += plain;
        left -= plain;
        bytes_max -= plain;
        size_t count = 0, taken = 0;
        if (left > 0 && raw && (*value == '"' || is_escape(value)))
            memcpy(printed, value, count = taken = *value == '"' ? 1 : 2);
        else if (left > 0)
            taken = print_character(line->format, value, left, printed, &count);
        if (count > bytes_max)
            break;
        put(line, printed, count);
        bytes_max -= count;
        value += taken;
        left -= taken;
    }
}

/* Adds a key. Returns false if the line has no room for it and value_bytes bytes. */
static bool put_key(struct qd_line *line, const char *key, size_t key_bytes, size_t value_bytes)
{
    if (ROOM - line->count < value_bytes + key_bytes + KEY_BYTES)
        return false;
    const bool json = line->format == QD_LINE_JSON;
    put_string(line, json ? ",\"" : " ");
    put(line, key, key_bytes);
    put_string(line, json ? "\":" : "=");
    return true;
}

/* Adds the time. The text of a second is made once, because computing the date takes longer than
 * the rest of a line. */
static void put_time(struct qd_line *line)
{
    static _Thread_local time_t second = -1;
    static _Thread_local char text[SECOND_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != second) {
        struct tm utc;
        second = now.tv_sec;
        gmtime_r(&second, &utc);
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    }
    const unsigned ms = (unsigned)(now.tv_nsec / 1000000);
    const char fraction[] = {'.', (char)('0' + ms / 100), (char)('0' + ms / 10 % 10),
                             (char)('0' + ms % 10), 'Z'};
    put_string(line, text);
    put(line, fraction, sizeof(fraction));
}

void qd_line_begin(struct qd_line *line, enum qd_line_format format, const char *level,
                   const char *message)
{
    line->format = format;
    line->count = 0;
    put_string(line, format == QD_LINE_JSON ? "{\"ts\":\"" : "ts=");
    put_time(line);
    put_string(line, format == QD_LINE_JSON ? "\",\"level\":\"" : " level=");
    put_string(line, level);
    if (format == QD_LINE_JSON)
        put(line, "\"", 1);
    qd_line_string(line, "msg", message, ROOM / 2);
}

static void put_field(struct qd_line *line, const char *key, size_t key_bytes, const char *value,
                      size_t bytes, size_t bytes_max, bool raw)
{
    if (!put_key(line, key, key_bytes, VALUE_BYTES_MIN))
        return;
    const size_t room = ROOM - line->count - 2;
    put(line, "\"", 1);
    put_value(line, value, bytes, bytes_max < room ? bytes_max : room, raw);
    put(line, "\"", 1);
}

void qd_line_string(struct qd_line *line, const char *key, const char *value, size_t bytes_max)
{
    put_field(line, key, strlen(key), value, strlen(value), bytes_max, false);
}

void qd_line_number(struct qd_line *line, const char *key, uint64_t value)
{
    if (put_key(line, key, strlen(key), DIGITS_MAX))
        line->count = (size_t)(qd_print_decimal(value, line->bytes + line->count) - line->bytes);
}

static bool is_number(const char *text, size_t bytes)
{
    return bytes > 0 && bytes < DIGITS_MAX && strspn(text, "0123456789") >= bytes &&
           (bytes == 1 || *text != '0');
}

/* Returns the length of a value up to the quote at its end. */
static size_t quoted_bytes(const char *value)
{
    const char *at = value;
    while (*at != '\0' && *at != '"')
        at += is_escape(at) ? 2 : 1;
    return (size_t)(at - value);
}

/* Adds the next key=value pair. Text without a '=' becomes the field `text`, with everything that
 * follows. */
static void put_pair(struct qd_line *line, const char **pairs)
{
    static const char nameless[] = "text";
    static const char of_keys[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    const char *key = *pairs;
    size_t key_bytes = strspn(key, of_keys);
    const bool is_pair = key_bytes > 0 && key[key_bytes] == '=';
    const char *value = is_pair ? key + key_bytes + 1 : key;
    const bool quoted = is_pair && *value == '"';
    value += quoted;
    const size_t bytes = quoted    ? quoted_bytes(value)
                         : is_pair ? strcspn(value, " ")
                                   : strlen(value);
    if (!is_pair) {
        key = nameless;
        key_bytes = strlen(nameless);
    }
    if (quoted || !is_number(value, bytes))
        put_field(line, key, key_bytes, value, bytes, ROOM, quoted);
    else if (put_key(line, key, key_bytes, bytes))
        put(line, value, bytes);
    value += bytes;
    value += quoted && *value == '"';
    *pairs = value + strspn(value, " ");
}

void qd_line_pairs(struct qd_line *line, const char *pairs)
{
    if (line->format == QD_LINE_TEXT) { /* the text as it is, without control characters */
        if (*pairs != '\0' && line->count < ROOM) {
            put(line, " ", 1);
            put_value(line, pairs, strlen(pairs), ROOM - line->count, true);
        }
        return;
    }
    while (*pairs != '\0')
        put_pair(line, &pairs);
}

void qd_line_end(struct qd_line *line)
{
    assert(line->count <= ROOM);
    put_string(line, line->format == QD_LINE_JSON ? "}\n" : "\n");
}
