/* Prefaults a large body's pages, ahead of its bytes: the thread of memory/prefault.h touches them
 * where they are fresh, so that the loop, which writes the bytes, never waits for the system. Not
 * for what a head promises, but as bytes come: 4 MiB at most are committed beyond those that are
 * there.
 *
 * On the request's loop's thread. While pages are prefaulted the request is in READING. */
#ifndef SERVER_WORK_BODY_PREFAULT_H
#define SERVER_WORK_BODY_PREFAULT_H

#include "server/work/request.h"

/* So many bytes of the body will be there soon: commits a piece or two more, as far as there is
 * memory, and has what is fresh of them prefaulted. It calls request->body.on_room then. */
void qd_body_prefault_go_on(struct qd_request *request, size_t bytes);

/* Up to here the body may be written by now. */
size_t qd_body_prefault_end(const struct qd_request *request);

/* Nobody wants the body any more. If some of it is being prefaulted, its memory leaves the
 * request's arena, and goes back when that is done. */
void qd_body_prefault_abandon(struct qd_request *request);

#endif
