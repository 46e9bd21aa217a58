#include "server/json/string.h"

long qd_json_hex4(const char *at, const char *end)
{
    long value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = qd_hex_digit(at[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Scans the four digits of a \u escape, and the second escape of a surrogate pair. Returns NULL, or
 * what was expected instead. */
static const char *scan_unit(const char **at, const char *end)
{
    long unit = qd_json_hex4(*at, end);
    if (unit < 0)
        return "four hexadecimal digits";
    if (unit == 0)
        return "a character other than \\u0000";
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return "the first half of a surrogate pair before the second";
    *at += 4;
    if (unit >= 0xd800 && unit <= 0xdbff) {
        bool escaped = end - *at >= 2 && memcmp(*at, "\\u", 2) == 0;
        long second = escaped ? qd_json_hex4(*at + 2, end) : -1;
        if (second < 0xdc00 || second > 0xdfff)
            return "the second half of a surrogate pair";
        *at += 6;
    }
    return NULL;
}

static const char *scan_escape(const char **at, const char *end)
{
    static const char escapes[] = {'"', '\\', '/', 'b', 'f', 'n', 'r', 't', 'u'};
    if (*at == end || memchr(escapes, **at, sizeof(escapes)) == NULL)
        return "an escape such as \\n or \\u0041";
    return *(*at)++ == 'u' ? scan_unit(at, end) : NULL;
}

const char *qd_json_string_scan(const char **at, const char *pause, const char *end, bool *closed)
{
    *closed = false;
    while (*at < pause) {
        if (end - *at >= 8) {
            unsigned plain = qd_json_plain_count(*at);
            *at += plain;
            if (plain == 8)
                continue;
        }
        char byte = **at;
        size_t length = qd_utf8_length(*at, (size_t)(end - *at));
        if (length == 0)
            return "UTF-8";
        if ((unsigned char)byte < 0x20)
            return "an escape in place of a control character";
        *at += length;
        *closed = byte == '"';
        if (*closed)
            return NULL;
        const char *wanted = byte == '\\' ? scan_escape(at, end) : NULL;
        if (wanted != NULL)
            return wanted;
    }
    return *at < end ? NULL : "the string's closing quote";
}

static char *encode_utf8(uint32_t point, char *out)
{
    if (point < 0x80) {
        *out++ = (char)point;
        return out;
    }
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3; /* bytes behind the first */
    *out++ = (char)(0xf0u << (3 - more) | point >> 6 * more);
    for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
        *out++ = (char)(0x80 | (point >> shift & 0x3f));
    return out;
}

/* Decodes a valid escape. *at is behind its backslash. */
static char *decode_escape(const char **at, char *out)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    char byte = *(*at)++;
    const char *name = strchr(from, byte);
    if (byte != 'u') {
        *out++ = name == NULL ? byte : to[name - from];
        return out;
    }
    uint32_t point = (uint32_t)qd_json_hex4(*at, *at + 4);
    *at += 4;
    if (point >= 0xd800 && point <= 0xdbff) {
        uint32_t second = (uint32_t)qd_json_hex4(*at + 2, *at + 6);
        point = 0x10000 + ((point - 0xd800) << 10) + (second - 0xdc00);
        *at += 6;
    }
    return encode_utf8(point, out);
}

size_t qd_json_string_decode(const char *text, size_t bytes, char *out)
{
    const char *end = text + bytes;
    char *begin = out;
    for (;;) {
        const char *escape = memchr(text, '\\', (size_t)(end - text));
        size_t plain = (size_t)((escape == NULL ? end : escape) - text);
        memcpy(out, text, plain);
        out += plain;
        if (escape == NULL)
            return (size_t)(out - begin);
        text = escape + 1;
        out = decode_escape(&text, out);
    }
}
