/* Finds where requests begin and end in the bytes of a connection (RFC 9112), before libmicrohttpd
 * reads the bytes.
 *
 * libmicrohttpd is lenient where two readers could disagree about the end of a request. 0.9.75
 * takes a NUL or a bare LF for the end of a line, joins a folded line to the line before it, takes
 * a line without a name for the end of the head, and waits for ever for a chunk of 2^64 bytes. All
 * of these are refused here.
 *
 * Everything is refused here that libmicrohttpd would refuse by itself, because its own answers are
 * HTML, and 0.9.75 sends some of them with two heads.
 *
 * Bytes that are legal but useless are removed before libmicrohttpd sees them, so they take none of
 * its memory: empty lines before a request, chunk extensions, zeros before a chunk's size, blanks
 * after a length, and the fields of a trailer. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

enum qd_fault {
    QD_FAULT_NONE,
    QD_FAULT_FIRST_LINE,        /* two blanks in a row, a third blank, or no version */
    QD_FAULT_VERSION,           /* not a version of HTTP */
    QD_FAULT_OTHER_VERSION,     /* a version of HTTP, but not HTTP/1 */
    QD_FAULT_CONTROL,           /* a control character in a line of the head or the trailer */
    QD_FAULT_BARE_LF,           /* a line that ends with LF alone */
    QD_FAULT_BARE_CR,           /* a CR without LF */
    QD_FAULT_FOLD,              /* a line that begins with a blank */
    QD_FAULT_NAMELESS,          /* a line that begins with a colon */
    QD_FAULT_NAME,              /* a field's name with a character that is not allowed there */
    QD_FAULT_NO_COLON,          /* a line of the head or the trailer without a colon */
    QD_FAULT_TARGET_SIZE,       /* method and target alone exceed QD_HEAD_BYTES_MAX */
    QD_FAULT_HEAD_SIZE,         /* the head exceeds QD_HEAD_BYTES_MAX */
    QD_FAULT_HOST,              /* no Host in HTTP/1.1, or more than one */
    QD_FAULT_LENGTH,            /* Content-Length is not a number */
    QD_FAULT_LENGTHS,           /* more than one Content-Length */
    QD_FAULT_CODING,            /* Transfer-Encoding is not "chunked", once */
    QD_FAULT_OLD_CODING,        /* Transfer-Encoding in HTTP/1.0 */
    QD_FAULT_LENGTH_AND_CODING, /* both Content-Length and Transfer-Encoding */
    QD_FAULT_CHUNK_SIZE, /* a chunk's size has no hexadecimal digits, or other bytes follow it */
    QD_FAULT_CHUNK_END,  /* no CR LF at the end that a chunk's size gives */
    QD_FAULT_WASTE,      /* more useless bytes than QD_WASTE_BYTES_MAX */
    QD_FAULT_BEYOND_64_BITS, /* a length, which may not be UINT64_MAX either, or a chunk's size */
    QD_FAULT_TOO_LARGE,      /* the chunks together exceed body_bytes_max */
};

/* How many fields matter for framing: Content-Length, Cookie, Host and Transfer-Encoding. */
#define QD_FRAMING_FIELD_COUNT 4

/* The state of the reader. All zero before the first request. */
struct qd_framing {
    uint64_t body_bytes_max; /* the bound of a chunked body, set by the caller */

    enum qd_fault fault; /* after a fault, nothing more is read */
    uint64_t line;       /* the current line of the head or the trailer, from 1 on */
    uint64_t done_count; /* how many requests have ended */
    bool is_head;        /* the current request is a HEAD request */

    /* The state while a request is read. */
    uint8_t state;
    unsigned char got; /* with a fault: the unexpected character */
    uint8_t matched;   /* how many characters of the expected name or word have matched so far */
    bool is_trailer;
    bool is_http_1_0;
    bool is_other_coding; /* Transfer-Encoding has another value than "chunked" */
    uint8_t field;        /* the field that the current name may be, or that it is */
    /* How many fields of each name there are. A head has at most 192 fields, because each counts as
     * QD_HEAD_FIELD_BYTES. */
    uint8_t field_counts[QD_FRAMING_FIELD_COUNT];
    uint8_t digit_count; /* of a length or a chunk's size: 0 before the first digit, then 1 */
    /* The size of the head so far. Each field and each cookie counts as QD_HEAD_FIELD_BYTES more
     * than its length, and cookies count three times. */
    uint64_t head_bytes;
    uint64_t left_bytes;  /* of the body or of its current chunk */
    uint64_t body_bytes;  /* the length in the head, or the sum of all chunks so far */
    uint64_t waste_bytes; /* useless bytes so far, less the bytes of chunks (QD_WASTE_BYTES_MAX) */
};

/* Reads the next `count` bytes. Removes useless bytes from `bytes` and returns how many bytes are
 * left. After a fault, the bytes of its request are of no use. Sets *begun to how many of these
 * come before the last request that begins here, or leaves it unchanged if no request begins here.
 * A fault is always in the last request that has begun. */
size_t qd_framing_read(struct qd_framing *framing, char *bytes, size_t count, size_t *begun);

/* Returns true if the next byte belongs to a body with a Content-Length. Of its body_bytes,
 * left_bytes are still to come. */
bool qd_framing_is_in_body(const struct qd_framing *framing);

/* Puts the fault into `error`, as a text for the client, and returns its status. */
enum qd_status qd_framing_explain(const struct qd_framing *framing, struct qd_error *error);
