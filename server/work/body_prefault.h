/* Prefaults a large body's pages before its bytes come. The thread of memory/prefault.h touches the
 * fresh pages, so that the loop, which writes the bytes, never waits for the system. The pages are
 * prefaulted as bytes come, and not because a head promises them: at most 4 MiB more than have come
 * are committed.
 *
 * On the request's loop's thread. While pages are prefaulted, the request is in READING. */
#ifndef SERVER_WORK_BODY_PREFAULT_H
#define SERVER_WORK_BODY_PREFAULT_H

#include "server/work/request.h"

/* Prepares room for the first `bytes` bytes of the body, which are about to come. Commits up to two
 * huge pages beyond them, as far as there is memory, and has the fresh pages prefaulted. Calls
 * request->body.on_room when that is done. */
void qd_body_prefault_go_on(struct qd_request *request, size_t bytes);

/* Returns up to which offset the body may be written now. */
size_t qd_body_prefault_end(const struct qd_request *request);

/* Gives the body up. If some of its pages are being prefaulted, the body's memory leaves the
 * request's arena, and is given back when the pages are done. */
void qd_body_prefault_abandon(struct qd_request *request);

#endif
