/* Reads the headers that say how a request is compressed, and how its answer may be (RFC 9110, 8.4
 * and 12.5.3). Pure. */
#ifndef SERVER_HTTP_WIRE_CODING_H
#define SERVER_HTTP_WIRE_CODING_H

#include <stdbool.h>

#include "server/work/compression.h"

/* Reads the value of Content-Encoding; NULL: there is no such header. Returns false if the coding
 * is not supported, or if there are several codings. */
bool qd_coding_read(const char *content_encoding, enum qd_coding *coding);

/* The weights that Accept-Encoding gives, in thousandths. -1, as after qd_accepted_init: the header
 * does not name the coding. */
struct qd_accepted {
    int gzip, deflate, identity, any;
};

void qd_accepted_init(struct qd_accepted *accepted);
/* Reads one Accept-Encoding header. Several such headers form one list. Entries that cannot be read
 * are skipped. */
void qd_accepted_add(struct qd_accepted *accepted, const char *accept_encoding);
/* Returns the coding with the highest weight. Of equal weights, gzip comes before deflate, and
 * deflate before no coding. */
enum qd_coding qd_accepted_choose(const struct qd_accepted *accepted);

#endif
