/* A text that grows in an arena. Its pieces never move, so that answers are sent without a copy.
 * After an append has failed for lack of memory, all later appends do nothing. Check `failed` once
 * at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "server/memory/arena.h"

/* A part of an answer: a piece of text, or the bytes of a tensor. */
struct qd_part {
    const void *bytes;
    size_t count;
};

struct qd_text {
    struct qd_arena *arena; /* NULL: the text cannot grow beyond its first piece */
    struct qd_part *parts;  /* in the arena */
    size_t part_count;
    size_t part_capacity;
    struct qd_part *open; /* the last part, if text can be appended to it; NULL: the next text
                             starts a new part */
    char *tail;           /* the free bytes of the last piece of text */
    size_t tail_room;
    size_t bytes;        /* the bytes of all parts together */
    struct qd_part only; /* the part of a text without an arena */
    bool failed;
};

void qd_text_init(struct qd_text *text, struct qd_arena *arena);
/* Initializes a text in `count` bytes of the caller's. An append that does not fit fails. The text
 * may not be copied, because it points into itself. */
void qd_text_init_in(struct qd_text *text, char *bytes, size_t count);

/* Returns room to print `bytes` into, at most QD_TEXT_RESERVE_MAX, or NULL if the text has failed.
 * qd_text_commit then appends the bytes that were used. */
#define QD_TEXT_RESERVE_MAX 1024
char *qd_text_reserve(struct qd_text *text, size_t bytes);
void qd_text_commit(struct qd_text *text, size_t bytes);

/* Does the same as qd_text_append, which calls this function if the open part has no room. */
void qd_text_append_anew(struct qd_text *text, const char *bytes, size_t count);

/* Inline, so that the compiler stores constant texts directly: an answer has dozens of them. */
static inline void qd_text_append(struct qd_text *text, const char *bytes, size_t count)
{
    if (text->open == NULL || count > text->tail_room) {
        qd_text_append_anew(text, bytes, count);
        return;
    }
    memcpy(text->tail, bytes, count);
    text->tail += count;
    text->tail_room -= count;
    text->open->count += count;
    text->bytes += count;
}

static inline void qd_text_string(struct qd_text *text, const char *string)
{
    qd_text_append(text, string, strlen(string));
}

void qd_text_format(struct qd_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most QD_TEXT_RESERVE_MAX - 1 bytes in a call */

/* Finds the first of eight bytes that may not appear unchanged in a JSON string: anything but
 * ASCII, control characters, quotes and backslashes. Bit 7 of that byte is the lowest bit set in
 * the result. Higher bits mean nothing. Returns 0 if all eight bytes are plain. */
static inline uint64_t qd_json_find_odd(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    /* After flipping bit 1, exactly the quote and the control characters are below 0x21. */
    return (word | ((word ^ ones * 0x02) - ones * 0x21) | ((word ^ ones * '\\') - ones)) &
           ones * 0x80;
}

/* Returns how many of the eight bytes at `at`, from the first on, are plain. */
static inline unsigned qd_json_plain_count(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    const uint64_t odd = qd_json_find_odd(word);
    return odd == 0 ? 8 : (unsigned)__builtin_ctzll(odd) / 8;
}

/* Appends a JSON string with quotes. Control characters are escaped, and bytes that are not UTF-8
 * become U+FFFD, so the result is always valid JSON. */
void qd_text_json_string(struct qd_text *text, const char *string);

void qd_text_decimal(struct qd_text *text, uint64_t number);

/* Prints the number, without a NUL. Returns the end of its digits, of which there are at most
 * QD_DECIMAL_BYTES_MAX. Use it for everything that is printed for each request: snprintf takes ten
 * times as long. */
#define QD_DECIMAL_BYTES_MAX 20
char *qd_print_decimal(uint64_t number, char *at);

/* Prints integers such as "[1,3,-1,-1]", a shape for example, or "[]" if there are none. Cuts the
 * text off if it exceeds `size` bytes. */
void qd_print_integers(const int64_t *list, size_t count, char *text, size_t size);

/* Adds a name to a list in `size` bytes, such as "a, b". Adds "..." instead if the name does not
 * fit, and then nothing more. Returns whether the name fits. */
bool qd_list_name(char *text, size_t size, const char *name);

/* Returns whether a list of names with commas between them has this one. */
bool qd_list_has(const char *list, const char *name);

/* Returns the length of a text without the blanks and ends of lines at its end. */
size_t qd_trimmed_bytes(const char *text, size_t bytes);

/* Returns whether somebody who wrote `name` may have meant `known`: one of three letters of the
 * name may be missing, more, another one or exchanged with the next one, at most two in all. Upper
 * and lower case are the same. */
bool qd_is_near(const char *known, const char *name);

/* Reads the decimal number at the start of the text. Returns the end of its digits, or NULL if
 * there are none or the number does not fit. */
const char *qd_scan_decimal(const char *text, uint64_t *number);
/* Like qd_scan_decimal, for a text that must be nothing but the number, as in headers and URLs. */
bool qd_read_decimal(const char *text, uint64_t *number);

/* Returns the value of a hexadecimal digit, or -1. */
int qd_hex_digit(char digit);

/* Returns the length of the UTF-8 character at the start of bytes[0..count) (RFC 3629: no
 * surrogates, no overlong forms), or 0 if there is none. */
size_t qd_utf8_length(const char *bytes, size_t count);
/* Returns the code point of a character of this length. */
uint32_t qd_utf8_decode(const char *bytes, size_t length);
/* Returns whether a code point may not appear in logs and names. Terminals obey ESC and CSI
 * (U+009B). Many programs end a line at NEL (U+0085), U+2028 and U+2029. U+202A to U+202E and
 * U+2066 to U+2069 change the direction of the text that follows. */
bool qd_is_control(uint32_t point);

/* Appends bytes that the caller keeps alive as long as the arena: no copy. */
void qd_text_borrow(struct qd_text *text, const void *bytes, size_t count);
