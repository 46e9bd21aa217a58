#include "server/memory/text.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

/* New pieces are as large as the text so far, within these bounds, so that a small answer stays
 * small and a large one has few pieces. */
enum { ROOM_BYTES_MIN = 4 << 10, ROOM_BYTES_MAX = 256 << 10 };
static_assert(ROOM_BYTES_MIN >= QD_TEXT_RESERVE_MAX, "new room holds any reservation");

void qd_text_init(struct qd_text *text, struct qd_arena *arena)
{
    *text = (struct qd_text){.arena = arena};
}

void qd_text_init_in(struct qd_text *text, char *bytes, size_t count)
{
    *text = (struct qd_text){.parts = &text->only,
                             .part_count = 1,
                             .part_capacity = 1,
                             .open = &text->only,
                             .only = {.bytes = bytes},
                             .tail = bytes,
                             .tail_room = count};
}

static bool fail(struct qd_text *text)
{
    text->failed = true;
    text->open = NULL;
    return false;
}

static bool add_part(struct qd_text *text, const void *bytes, size_t count)
{
    struct qd_part *parts = text->arena == NULL
                                ? NULL
                                : qd_arena_extend(text->arena, text->parts, text->part_count,
                                                  &text->part_capacity, sizeof(*parts));
    if (parts == NULL)
        return fail(text);
    text->parts = parts;
    text->parts[text->part_count++] = (struct qd_part){bytes, count};
    return true;
}

static bool add_room(struct qd_text *text)
{
    size_t bytes = text->bytes;
    bytes = bytes < ROOM_BYTES_MIN ? ROOM_BYTES_MIN : bytes;
    bytes = bytes > ROOM_BYTES_MAX ? ROOM_BYTES_MAX : bytes;
    char *tail = text->arena == NULL ? NULL : qd_arena_alloc(text->arena, bytes);
    if (tail == NULL)
        return fail(text);
    text->open = NULL;
    text->tail = tail;
    text->tail_room = bytes;
    return true;
}

char *qd_text_reserve(struct qd_text *text, size_t bytes)
{
    assert(bytes <= QD_TEXT_RESERVE_MAX);
    if (text->failed || (bytes > text->tail_room && !add_room(text)))
        return NULL;
    return text->tail;
}

void qd_text_commit(struct qd_text *text, size_t bytes)
{
    if (text->failed || bytes == 0)
        return;
    assert(bytes <= text->tail_room);
    if (text->open == NULL) {
        if (!add_part(text, text->tail, 0))
            return;
        text->open = &text->parts[text->part_count - 1];
    }
    text->open->count += bytes;
    text->tail += bytes;
    text->tail_room -= bytes;
    text->bytes += bytes;
}

void qd_text_append_anew(struct qd_text *text, const char *bytes, size_t count)
{
    while (count > 0) {
        size_t piece = count < QD_TEXT_RESERVE_MAX ? count : QD_TEXT_RESERVE_MAX;
        char *room = qd_text_reserve(text, piece);
        if (room == NULL)
            return;
        memcpy(room, bytes, piece);
        qd_text_commit(text, piece);
        bytes += piece;
        count -= piece;
    }
}

void qd_text_format(struct qd_text *text, const char *format, ...)
{
    char *room = qd_text_reserve(text, QD_TEXT_RESERVE_MAX);
    if (room == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(room, QD_TEXT_RESERVE_MAX, format, arguments);
    va_end(arguments);
    assert(count >= 0 && count < QD_TEXT_RESERVE_MAX);
    qd_text_commit(text, (size_t)count);
}

char *qd_print_decimal(uint64_t number, char *at)
{
    size_t digits = 1;
    if (number < 10) { /* a shortcut: times in microseconds are mostly small */
        *at = (char)('0' + number);
        return at + 1;
    }
    for (uint64_t rest = number; rest >= 10; rest /= 10)
        digits++;
    for (size_t i = digits; i-- > 0; number /= 10)
        at[i] = (char)('0' + number % 10);
    return at + digits;
}

void qd_text_decimal(struct qd_text *text, uint64_t number)
{
    char digits[QD_DECIMAL_BYTES_MAX];
    qd_text_append(text, digits, (size_t)(qd_print_decimal(number, digits) - digits));
}

void qd_print_integers(const int64_t *list, size_t count, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i == 0 ? "" : ",",
                                 (long long)list[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

bool qd_list_name(char *text, size_t size, const char *name)
{
    const size_t used = strlen(text);
    const char *last = used < strlen(", ...") ? text : text + used - strlen(", ...");
    const bool is_cut = strcmp(text, "...") == 0 || strcmp(last, ", ...") == 0;
    const bool fits = !is_cut && used + strlen(", ") + strlen(name) + sizeof(", ...") <= size;
    if (!is_cut)
        snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", fits ? name : "...");
    return fits;
}

bool qd_list_has(const char *list, const char *name)
{
    const size_t bytes = strlen(name);
    bool has = false;
    while (!has && *list != '\0') {
        const size_t count = strcspn(list, ",");
        has = count == bytes && memcmp(list, name, bytes) == 0;
        list += count + (list[count] == ',');
    }
    return has;
}

size_t qd_trimmed_bytes(const char *text, size_t bytes)
{
    while (bytes > 0 && memchr(" \t\r\n", text[bytes - 1], 4) != NULL)
        bytes--;
    return bytes;
}

static bool is_same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Returns whether at most `count` letters are missing, more or other ones, or pairs exchanged.
 * Upper and lower case are the same. Takes at most 4^count steps for each letter. */
static bool differs_little(const char *a, const char *b, unsigned count)
{
    while (*a != '\0' && is_same_letter(*a, *b))
        a++, b++;
    if (*a == '\0' && *b == '\0')
        return true;
    if (count > 0 && *a != '\0' && *b != '\0' && is_same_letter(*a, b[1]) &&
        is_same_letter(a[1], *b) && differs_little(a + 2, b + 2, count - 1))
        return true;
    return count > 0 && ((*a != '\0' && differs_little(a + 1, b, count - 1)) ||
                         (*b != '\0' && differs_little(a, b + 1, count - 1)) ||
                         (*a != '\0' && *b != '\0' && differs_little(a + 1, b + 1, count - 1)));
}

bool qd_is_near(const char *known, const char *name)
{
    enum { LETTERS_EACH = 3, DIFFERENCES_MAX = 2 };
    const size_t count = strlen(name) / LETTERS_EACH;
    return differs_little(known, name, count < DIFFERENCES_MAX ? (unsigned)count : DIFFERENCES_MAX);
}

const char *qd_scan_decimal(const char *text, uint64_t *number)
{
    const char *at = text;
    for (*number = 0; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*number, UINT64_C(10), number) ||
            __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number))
            return NULL;
    return at == text ? NULL : at;
}

bool qd_read_decimal(const char *text, uint64_t *number)
{
    const char *end = qd_scan_decimal(text, number);
    return end != NULL && *end == '\0';
}

int qd_hex_digit(char digit)
{
    const char lower = (char)(digit | 0x20);
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

size_t qd_utf8_length(const char *bytes, size_t count)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800,
                                        0x10000}; /* the smallest code point of each length */
    if (count == 0)
        return 0;
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80)
        return 1;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc0 || first >= 0xf8 || length > count)
        return 0;
    uint32_t point = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)bytes[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (next & 0x3f);
    }
    bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point < smallest[length] || point > 0x10ffff || surrogate ? 0 : length;
}

uint32_t qd_utf8_decode(const char *bytes, size_t length)
{
    uint32_t point = (unsigned char)*bytes & (length == 1 ? 0x7fu : 0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        point = point << 6 | ((unsigned char)bytes[i] & 0x3f);
    return point;
}

bool qd_is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/* Appends the escape of one byte that may not appear in a JSON string. */
static void append_escape(struct qd_text *text, unsigned char byte)
{
    static const char escapes[][3] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    if (byte >= 0x80)
        qd_text_string(text, "\xef\xbf\xbd"); /* U+FFFD */
    else if (*escapes[byte] != '\0')
        qd_text_append(text, escapes[byte], 2);
    else
        qd_text_format(text, "\\u%04x", byte);
}

/* Returns how many of the next eight bytes at text[at] are plain. Of fewer than eight last bytes,
 * all or none count. */
static size_t count_word(const char *text, size_t at, size_t count)
{
    if (count - at >= 8)
        return qd_json_plain_count(text + at);
    return count >= 8 && qd_json_plain_count(text + count - 8) == 8 ? count - at : 0;
}

/* Returns how many bytes at the begin of the text may appear in a JSON string unchanged. */
static size_t count_plain(const char *text, size_t count)
{
    size_t plain = 0;
    while (plain < count) {
        const unsigned char byte = (unsigned char)text[plain];
        const size_t length = byte < 0x80 ? 1 : qd_utf8_length(text + plain, count - plain);
        if (length == 0 || byte < 0x20 || byte == '"' || byte == '\\')
            break;
        const size_t many = byte < 0x80 ? count_word(text, plain, count) : 0;
        plain += many > 0 ? many : length;
    }
    return plain;
}

void qd_text_json_string(struct qd_text *text, const char *string)
{
    size_t count = strlen(string);
    qd_text_append(text, "\"", 1);
    for (size_t at = 0, plain = 0;; at += plain) {
        plain = count_plain(string + at, count - at);
        qd_text_append(text, string + at, plain);
        if (at + plain == count)
            break;
        append_escape(text, (unsigned char)string[at + plain]);
        plain++;
    }
    qd_text_append(text, "\"", 1);
}

void qd_text_borrow(struct qd_text *text, const void *bytes, size_t count)
{
    if (text->failed || count == 0 || !add_part(text, bytes, count))
        return;
    text->open = NULL;
    text->bytes += count;
}
