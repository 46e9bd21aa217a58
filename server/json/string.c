#include "server/json/string.h"

#include <string.h>

#include "server/base/text.h"

long qd_json_hex4(const char *at, const char *end)
{
    long value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char lower = (char)(at[i] | 0x20);
        if (at[i] >= '0' && at[i] <= '9')
            value = value * 16 + (at[i] - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* The four digits of a \u escape, and the second escape of a surrogate pair. */
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

const char *qd_json_string_scan(const char **at, const char *end)
{
    static const char escapes[] = {'"', '\\', '/', 'b', 'f', 'n', 'r', 't', 'u'};
    for (++*at; *at < end;) {
        char byte = **at;
        size_t length = qd_utf8_length(*at, (size_t)(end - *at));
        if (length == 0)
            return "UTF-8";
        if ((unsigned char)byte < 0x20)
            return "an escape in place of a control character";
        *at += length;
        if (byte == '"')
            return NULL;
        if (byte != '\\')
            continue;
        if (*at == end || memchr(escapes, **at, sizeof(escapes)) == NULL)
            return "an escape such as \\n or \\u0041";
        const char *wanted = *(*at)++ == 'u' ? scan_unit(at, end) : NULL;
        if (wanted != NULL)
            return wanted;
    }
    return "the string's closing quote";
}

/* Behind the letters of `name`, if the string begins with them, or NULL. */
static const char *match(const char *string, const char *name)
{
    const char *at = string + 1;
    for (; *name != '\0'; name++)
        if (*at == *name)
            at++;
        else if (at[0] == '\\' && at[1] == 'u' && qd_json_hex4(at + 2, at + 6) == *name)
            at += 6;
        else
            return NULL;
    return at;
}

bool qd_json_string_spells(const char *string, const char *name)
{
    const char *at = match(string, name);
    return at != NULL && *at == '"';
}

bool qd_json_string_begins(const char *string, const char *prefix)
{
    return match(string, prefix) != NULL;
}
