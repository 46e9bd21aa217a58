/* The headers that say how a body is, or may be, compressed (RFC 9110, 8.4 and 12.5.3). Pure. */
#ifndef SERVER_HTTP_WIRE_CODING_H
#define SERVER_HTTP_WIRE_CODING_H

#include <stdbool.h>

#include "server/work/compression.h"

/* Of a Content-Encoding, or of none (NULL). False: it is not one of ours, or several. */
bool qd_coding_read(const char *content_encoding, enum qd_coding *coding);

/* What Accept-Encoding said, in thousandths; -1: nothing. All 0 but for init. */
struct qd_accepted {
    int gzip, deflate, identity, any;
};

void qd_accepted_init(struct qd_accepted *accepted);
/* Each header of that name: the list goes on. What cannot be read in it is skipped. */
void qd_accepted_add(struct qd_accepted *accepted, const char *accept_encoding);
/* The one that the client would rather have, and gzip where it is all the same to it. */
enum qd_coding qd_accepted_choose(const struct qd_accepted *accepted);

#endif
