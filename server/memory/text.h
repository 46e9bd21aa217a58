/* Growing text in an arena, in pieces that never move: answers are sent as they lie, without a
 * copy. A failed append (no memory) makes every later one a no-op; check `failed` once at the end.
 */
#ifndef SERVER_MEMORY_TEXT_H
#define SERVER_MEMORY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "server/memory/arena.h"

/* Bytes of an answer: text pieces, and tensors as they lie. */
struct qd_part {
    const void *bytes;
    size_t count;
};

struct qd_text {
    struct qd_arena *arena; /* NULL: there is only the room that it has */
    struct qd_part *parts;  /* in the arena */
    size_t part_count;
    size_t part_capacity;
    struct qd_part *open; /* the last part, where it ends at the tail; NULL: the next is another */
    char *tail;           /* of the last text piece: room left */
    size_t tail_room;
    size_t bytes; /* all parts together */
    bool failed;
};

void qd_text_init(struct qd_text *text, struct qd_arena *arena);
/* In so many bytes of the caller's, which become the part: what has no room there fails. */
void qd_text_init_in(struct qd_text *text, struct qd_part *part, char *bytes, size_t count);

/* Room for `bytes` (at most QD_TEXT_RESERVE_MAX) to print into, then commit what was used.
 * NULL: failed. */
#define QD_TEXT_RESERVE_MAX 1024
char *qd_text_reserve(struct qd_text *text, size_t bytes);
void qd_text_commit(struct qd_text *text, size_t bytes);

/* As qd_text_append, which calls it where the open part has no room. */
void qd_text_append_anew(struct qd_text *text, const char *bytes, size_t count);

/* Inline, so that a constant text is stored as it is: an answer has dozens of them. */
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
    __attribute__((format(printf, 2, 3))); /* at most QD_TEXT_RESERVE_MAX - 1 bytes a call */

/* The first of a word's eight bytes that does not stand for itself in a JSON string, as all ASCII
 * does but control characters, quotes and backslashes: its bit 7 is the lowest that is set in the
 * result, where those of bytes above it mean nothing. 0: there is none. */
static inline uint64_t qd_json_find_odd(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    /* With bit 1 turned over, a quote and control characters are all that is below 0x21. */
    return (word | ((word ^ ones * 0x02) - ones * 0x21) | ((word ^ ones * '\\') - ones)) &
           ones * 0x80;
}

/* How many of the eight bytes at `at` stand for themselves, from the first one on. */
static inline unsigned qd_json_plain_count(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    const uint64_t odd = qd_json_find_odd(word);
    return odd == 0 ? 8 : (unsigned)__builtin_ctzll(odd) / 8;
}

/* A JSON string with its quotes. Control characters are escaped, bytes that are not UTF-8 become
 * U+FFFD: the result is always valid JSON. */
void qd_text_json_string(struct qd_text *text, const char *string);

void qd_text_decimal(struct qd_text *text, uint64_t number);

/* Prints the number, of QD_DECIMAL_BYTES_MAX digits at most, and no end behind it. Returns where
 * its digits end. What is printed for each request is printed so: snprintf takes ten times as long.
 */
#define QD_DECIMAL_BYTES_MAX 20
char *qd_print_decimal(uint64_t number, char *at);

/* Reads the decimal number that the text begins with. Returns where its digits end; NULL: there are
 * none, or the number does not fit. */
const char *qd_scan_decimal(const char *text, uint64_t *number);
/* The same of the whole text, as in headers and URLs. */
bool qd_read_decimal(const char *text, uint64_t *number);

/* Bytes of the UTF-8 character that bytes[0..count) starts with (RFC 3629: no surrogates, no
 * overlong form); 0: there is none. */
size_t qd_utf8_length(const char *bytes, size_t count);
/* The code point of such a character, which has that length. */
uint32_t qd_utf8_decode(const char *bytes, size_t length);
/* A code point that neither a log nor a name has. A terminal obeys ESC and CSI, which is U+009B,
 * and many a reader ends a line at NEL (U+0085), U+2028 and U+2029. The others turn around the
 * order in which what follows is shown. */
bool qd_is_control(uint32_t point);

/* Appends bytes that the caller keeps alive as long as the arena: no copy. */
void qd_text_borrow(struct qd_text *text, const void *bytes, size_t count);

#endif
