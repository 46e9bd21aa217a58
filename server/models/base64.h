/* Decodes base64 inside a JSON string, step by step. The files of a load call come in this form.
 *
 * Accepts what other programs write: the standard alphabet or the one for URLs (RFC 4648, sections
 * 4 and 5), with or without padding, in lines of any length (lines of MIME have 76 characters),
 * with blanks anywhere. JSON may escape characters, as "\/", "\n" or "\u002b". All other characters
 * are refused. Triton's server skips them, and does not accept the alphabet for URLs. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

struct qd_base64 {
    const char *begin; /* the start of the text, for errors */
    const char *at;
    const char *end;
    char *out; /* the next byte goes here */
    uint32_t bits;
    unsigned count;  /* how many characters of the current group of four are in `bits` */
    unsigned padded; /* how many '=' were read; 4 after the group that they end */
};

/* Prepares to decode text[0..count), the characters between a string's quotes. The bytes go to
 * `out`, which may be equal to `text`: four characters become at most three bytes, so the output
 * never overtakes the input. */
void qd_base64_init(struct qd_base64 *decoder, const char *text, size_t count, char *out);

/* Decodes the next `characters` bytes of the text, or all that are left. Decodes a few bytes more
 * if an escape begins among them and ends behind them. On failure, the error says what was expected
 * at which character. */
enum qd_status qd_base64_step(struct qd_base64 *decoder, size_t characters, struct qd_error *error);

static inline bool qd_base64_at_end(const struct qd_base64 *decoder)
{
    return decoder->at == decoder->end;
}

/* Writes the bytes of a last group without padding. Call it after the last step. A group of a
 * single character is refused, because it has fewer bits than a byte. */
enum qd_status qd_base64_finish(struct qd_base64 *decoder, struct qd_error *error);
