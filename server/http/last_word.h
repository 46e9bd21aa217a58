/* An answer that goes straight to the socket, past the HTTP library: it takes none while it reads a
 * body. The connection is of no use afterwards. */
#ifndef SERVER_HTTP_LAST_WORD_H
#define SERVER_HTTP_LAST_WORD_H

#include <stdbool.h>

#include "server/base/answer.h"

/* session: of TLS, a gnutls_session_t; NULL: none. `reason`: of the status line. is_head: the
 * request was a HEAD, and has no body in its answer. False: it did not all fit into the socket's
 * buffer, as of a client that does not read, or the client has gone. */
bool qd_last_word(int fd, void *session, const struct qd_answer *answer, const char *reason,
                  bool is_head);

#endif
