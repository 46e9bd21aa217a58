/* Prefaults the pages of large bodies (4 MiB and more) before their bytes arrive, so that the loop,
 * which writes the bytes, never waits for the system to find memory. The thread of
 * memory/prefault.h touches the pages. Pages are committed only a little ahead of the bytes that
 * have arrived, at most 4 MiB. So a head that merely promises a large body takes no memory.
 *
 * All functions run on the thread of the request's loop. While pages are prefaulted, the request is
 * in READING. */
#ifndef SERVER_WORK_BODY_PREFAULT_H
#define SERVER_WORK_BODY_PREFAULT_H

#include "server/work/request.h"

/* Prepares room for the first `bytes` bytes of the body, which are about to arrive. Commits up to
 * two huge pages of 2 MiB beyond them, as far as there is memory, and has the fresh pages
 * prefaulted. Calls request->body.on_room when they are ready. */
void qd_body_prefault_go_on(struct qd_request *request, size_t bytes);

/* Returns the offset in the body up to which it may be written now. */
size_t qd_body_prefault_end(const struct qd_request *request);

/* Called before the request's arena is freed. If the prefault thread still touches pages of the
 * body, the body's memory leaves the arena, and is given back when the thread is done with them. */
void qd_body_prefault_abandon(struct qd_request *request);

#endif
