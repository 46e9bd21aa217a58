/* Base64 inside a JSON string, decoded step by step: a load call's files.
 *
 * As other programs write it: the standard alphabet or the one for URLs (RFC 4648, sections 4 and
 * 5), with padding or without, in lines of any length (MIME's have 76 characters), with blanks
 * anywhere. Triton's server takes the same but for the alphabet for URLs, and skips all other
 * characters too, which are refused here: they are no base64. JSON may escape characters, as
 * "\/", "\n" or "\u002b". Pure. */
#ifndef SERVER_MODELS_BASE64_H
#define SERVER_MODELS_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"

struct qd_base64 {
    const char *begin; /* of the text */
    const char *at;
    const char *end;
    char *out; /* the next byte goes here */
    uint32_t bits;
    unsigned count;  /* characters of a group of four that are in `bits` */
    unsigned padded; /* '=' seen */
};

/* Decodes what is between a string's quotes, text[0..count). The bytes go to `out`, which may be
 * where the text lies: they are three for four characters, so they never overtake it. */
void qd_base64_init(struct qd_base64 *decoder, const char *text, size_t count, char *out);

/* Decodes the next characters, so many or a few more. A failure says what was expected where. */
enum qd_status qd_base64_step(struct qd_base64 *decoder, size_t characters, struct qd_error *error);

static inline bool qd_base64_at_end(const struct qd_base64 *decoder)
{
    return decoder->at == decoder->end;
}

/* After the last step. Writes the bytes of a last group that has no padding. One character alone is
 * refused: it has not the bits of a byte. */
enum qd_status qd_base64_finish(struct qd_base64 *decoder, struct qd_error *error);

#endif
