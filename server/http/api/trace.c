#define _GNU_SOURCE
#include "server/http/api/access_log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/memory/text.h"

enum {
    VERSION_AT = 0,
    TRACE_AT = 3,
    PARENT_AT = 36,
    FLAGS_AT = 53,
    VERSION_0_BYTES = 55,
    STATE_MEMBER_COUNT_MAX = 32,
    STATE_KEY_BYTES_MAX = 256,
    STATE_VALUE_BYTES_MAX = 256,
};

/* Returns true if the text begins with `count` hexadecimal digits. The specification allows only
 * lower case. */
static bool is_hex(const char *text, size_t count)
{
    return strspn(text, "0123456789abcdef") >= count;
}

static bool is_zero(const char *text, size_t count)
{
    return strspn(text, "0") >= count;
}

/* Returns 64 random bits that are not all zero. */
static uint64_t next_span(void)
{
    uint64_t span = 0;
    while (span == 0)
        arc4random_buf(&span, sizeof(span));
    return span;
}

/* Returns true if the text is a valid traceparent. A later version may have more after the four
 * fields that all versions have. */
static bool is_parent(const char *text)
{
    if (strnlen(text, VERSION_0_BYTES) < VERSION_0_BYTES || !is_hex(text + VERSION_AT, 2) ||
        !is_hex(text + TRACE_AT, 32) || !is_hex(text + PARENT_AT, 16) ||
        !is_hex(text + FLAGS_AT, 2) || text[TRACE_AT - 1] != '-' || text[PARENT_AT - 1] != '-' ||
        text[FLAGS_AT - 1] != '-')
        return false;
    const bool first = memcmp(text, "00", 2) == 0;
    const char *behind = text + VERSION_0_BYTES;
    /* libmicrohttpd leaves trailing blanks, which are not part of the value. */
    behind += strspn(behind, " \t");
    return memcmp(text, "ff", 2) != 0 && !is_zero(text + TRACE_AT, 32) &&
           !is_zero(text + PARENT_AT, 16) && (*behind == '\0' || (!first && *behind == '-'));
}

bool qd_trace_read(const char *traceparent, struct qd_trace *trace)
{
    static const char hex[] = "0123456789abcdef";
    if (!is_parent(traceparent))
        return false;
    uint64_t span = next_span();
    memcpy(trace->trace_id, traceparent + TRACE_AT, 32);
    memcpy(trace->parent_id, traceparent + PARENT_AT, 16);
    for (size_t i = 16; i-- > 0; span >>= 4)
        trace->span_id[i] = hex[span & 15];
    memcpy(trace->response, "00-", TRACE_AT);
    memcpy(trace->response + TRACE_AT, trace->trace_id, 32);
    trace->response[PARENT_AT - 1] = '-';
    memcpy(trace->response + PARENT_AT, trace->span_id, 16);
    memcpy(trace->response + FLAGS_AT - 1, traceparent + FLAGS_AT - 1, 3);
    trace->trace_id[32] = trace->parent_id[16] = trace->span_id[16] = '\0';
    trace->response[VERSION_0_BYTES] = '\0';
    return true;
}

/* ---- tracestate --------------------------------------------------------------------------- */

/* Returns true for a valid key, such as "vendor" or "tenant@system". */
static bool is_key(const char *text, size_t count)
{
    if (count == 0 || count > STATE_KEY_BYTES_MAX ||
        strchr("abcdefghijklmnopqrstuvwxyz0123456789", *text) == NULL)
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@") >= count;
}

static bool is_value(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text[i] < ' ' || text[i] > '~' || text[i] == '=')
            return false;
    return count > 0 && count <= STATE_VALUE_BYTES_MAX;
}

bool qd_trace_is_state(const char *tracestate)
{
    size_t members = 0;
    for (const char *at = tracestate;;) {
        at += strspn(at, " \t");
        size_t count = strcspn(at, ",");
        const char *next = at + count;
        count = qd_trimmed_bytes(at, count);
        if (count > 0) { /* an empty member is allowed */
            const char *equals = memchr(at, '=', count);
            if (equals == NULL || !is_key(at, (size_t)(equals - at)) ||
                !is_value(equals + 1, count - (size_t)(equals + 1 - at)))
                return false;
            members++;
        }
        if (*next == '\0')
            return members > 0 && members <= STATE_MEMBER_COUNT_MAX;
        at = next + 1;
    }
}
