/* A large body's pages, ahead of its bytes: the thread of memory/pages.h makes them where they are
 * fresh, so that the loop, which writes the bytes, never waits for the system. Not for what a head
 * promises, but as bytes come: 4 MiB at most are committed beyond those that are there.
 *
 * On the request's loop's thread. While pages are being made it is in READING. */
#ifndef SERVER_WORK_MAKING_H
#define SERVER_WORK_MAKING_H

#include "server/work/request.h"

/* So many bytes of the body will be there soon: commits a piece or two more, as far as there is
 * memory, and has what is fresh of them made. It calls request->on_room then. */
void qd_making_go_on(struct qd_request *request, size_t bytes);

/* Up to here the body may be written by now. */
size_t qd_making_end(const struct qd_request *request);

/* Nobody wants the body any more. If some of it is being made, its memory leaves the request's
 * arena, and goes back when that is done. */
void qd_making_abandon(struct qd_request *request);

#endif
