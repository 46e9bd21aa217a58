/* Base64 inside a JSON string, decoded step by step: a load call's files.
 *
 * The standard alphabet with its padding (RFC 4648, section 4), without blanks or line breaks. JSON
 * may escape some of its characters, as "\/" or "\u002b". Pure. */
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

/* After the last step: that the text has ended with a whole group. */
enum qd_status qd_base64_finish(const struct qd_base64 *decoder, struct qd_error *error);

#endif
