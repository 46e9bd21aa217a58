/* Where requests begin and end in the bytes of a connection (RFC 9112), found before libmicrohttpd
 * reads them. It is lenient where two readers could disagree about that: 0.9.75 takes a NUL or a
 * bare LF for a line's end, a folded line for none, a line without a name for the head's end, and
 * it waits for ever for a chunk of 2^64 bytes. What nobody needs and may come is taken out of its
 * way, and of its memory: empty lines before a request, a chunk's extensions, zeros before its
 * size, blanks behind a length, a trailer's fields. Pure. */
#ifndef SERVER_HTTP_WIRE_FRAMING_H
#define SERVER_HTTP_WIRE_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

enum qd_fault {
    QD_FAULT_NONE,
    QD_FAULT_FIRST_LINE,    /* two blanks in a row, or a third one, or its end before the version */
    QD_FAULT_VERSION,       /* of HTTP, that is none */
    QD_FAULT_OTHER_VERSION, /* of HTTP, but not 1 */
    QD_FAULT_CONTROL,       /* a control character in a line of the head, or of the trailer */
    QD_FAULT_BARE_LF,       /* a line that ends without CR */
    QD_FAULT_BARE_CR,       /* a CR that ends no line */
    QD_FAULT_FOLD,          /* a line that begins with a blank */
    QD_FAULT_NAMELESS,      /* a line that begins with its colon */
    QD_FAULT_NO_COLON,      /* a line of the trailer */
    QD_FAULT_LENGTH,        /* Content-Length is no number */
    QD_FAULT_CHUNK_SIZE,    /* of no hexadecimal digits, or with something else behind it */
    QD_FAULT_CHUNK_END,     /* more bytes than its size says, or less */
    QD_FAULT_WASTE,         /* too many bytes that say nothing */
    QD_FAULT_BEYOND_64_BITS, /* a length, or a chunk's size */
    QD_FAULT_TOO_LARGE,      /* chunks of more than the body's bound in all */
};

/* libmicrohttpd may be as many requests behind. What it refuses by itself fills its memory all but
 * for 2 KiB (limits.h), which are 113 requests of 18 bytes. */
#define QD_FRAMING_HEAD_WORDS 2
#define QD_FRAMING_HEAD_COUNT (64u * QD_FRAMING_HEAD_WORDS)

/* All zero: before the first request. */
struct qd_framing {
    uint64_t body_bytes_max; /* of a body in chunks; given */

    enum qd_fault fault; /* once there is one, nothing more is read */
    uint64_t line;       /* of the head that is read, or of its trailer, from 1 on */
    uint64_t done_count; /* requests that have ended */
    bool is_head;        /* the request at hand is a HEAD */
    uint64_t heads[QD_FRAMING_HEAD_WORDS]; /* a bit for each request that has ended: it is a HEAD */

    /* While it is read. */
    uint8_t state;
    unsigned char got; /* with a fault: the character that should be another */
    uint8_t matched;   /* characters of a name or a word that this may become */
    bool is_trailer;
    bool is_length;  /* the field at hand, of the two that frame a body */
    bool is_unclear; /* lengths or codings that whoever checks the whole head will refuse */
    uint8_t length_count;
    uint8_t coding_count;
    uint8_t digit_count;  /* of a length that is read: 1 from the first on */
    uint64_t left_bytes;  /* of the body, or of its chunk */
    uint64_t body_bytes;  /* as the head says, or of all chunks so far */
    uint64_t waste_bytes; /* that were taken out, beyond what comes with a body's bytes */
};

/* Reads on. Takes out of `bytes` what is not to be seen, and returns how many are left. *begun: how
 * many of these are before the last request that begins here; left as it is where none does. A
 * fault is in the last that has begun. */
size_t qd_framing_read(struct qd_framing *framing, char *bytes, size_t count, size_t *begun);

/* Returns true if the request with that index, counted from 0 and at most done_count, is a HEAD.
 * Remembers the last QD_FRAMING_HEAD_COUNT that have ended; an older one counts as none. */
static inline bool qd_framing_is_head(const struct qd_framing *framing, uint64_t index)
{
    if (index == framing->done_count)
        return framing->is_head;
    return framing->done_count - index <= QD_FRAMING_HEAD_COUNT &&
           (framing->heads[index / 64 % QD_FRAMING_HEAD_WORDS] >> index % 64 & 1) != 0;
}

/* What comes next is of a body whose length its head says: left_bytes of its body_bytes. */
bool qd_framing_is_in_body(const struct qd_framing *framing);

/* Returns true if the head of the request at hand has ended and its lengths or codings do not say
 * where the body ends. Who checks the whole head refuses it. */
bool qd_framing_is_unclear(const struct qd_framing *framing);

/* What the fault is, for the client. */
enum qd_status qd_framing_explain(const struct qd_framing *framing, struct qd_error *error);

#endif
