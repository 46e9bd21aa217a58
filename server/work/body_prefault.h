/* Prefaults the pages of large bodies (4 MiB and more): a thread touches them before their bytes
 * arrive. Whoever touches a page first waits while the system finds memory for it and clears it. In
 * a virtual machine this takes 2.5 to 6 ms for 2 MiB if the host has to find the memory. The loop,
 * which writes the bytes, could not serve its other connections meanwhile.
 *
 * Measured while large bodies arrived at a fresh server (AMD EPYC Milan, 2 CPUs). Where the host
 * had to find the pages, with huge pages, for one body of 16 to 256 MB: small requests had a p90 of
 * 0.3 to 0.5 ms and a p99 of 1.5 to 2.9 ms, without the thread up to 4.0 and 4.1 to 4.7 ms. For
 * four such bodies at once the p99 was 1.7 to 4.2 ms, without the thread 8 to 16 ms, and the bodies
 * were answered in 500 to 554 ms (4 of 64 MB), without the thread in 574 to 675 ms. The thread
 * changes nothing that can be measured where the host has the pages, in used pages, and for 4 MB.
 * Without huge pages it changes nothing for small requests. Small pages for all bodies would make
 * the thread superfluous. But forty requests of 80 MB at once took a fifth longer, because small
 * pages are slower to find and to free, and a body was received into used pages 6 to 12 % more
 * slowly.
 *
 * Pages are committed only a little ahead of the bytes that have arrived, at most 4 MiB. So a head
 * that merely promises a large body takes no memory. While pages are prefaulted, the request is in
 * READING. Functions that take a request run on the thread of its loop. */
#pragma once

#include "server/work/request.h"

/* The thread, which serves the requests of all loops (request->body.prefaulter). */
struct qd_prefaulter;

struct qd_prefaulter *qd_prefaulter_create(void); /* returns NULL if there is no memory or thread */
/* Ends the thread. Call it before the loops are destroyed, because it posts to them. NULL is fine.
 */
void qd_prefaulter_destroy(struct qd_prefaulter *prefaulter);

/* Prepares room for the first `bytes` bytes of the body, which are about to arrive. Commits up to
 * two huge pages of 2 MiB beyond them, if there is memory, and has the fresh pages prefaulted.
 * Returns how many of these bytes may be written now. That is less than `bytes` if memory is short,
 * 0 if the body was revoked, or while pages are prefaulted. When the pages are ready,
 * request->body.on_room is called. */
size_t qd_body_prefault(struct qd_request *request, size_t bytes);

/* Called before the request's arena is freed. If the thread still touches pages of the body, the
 * body's memory leaves the arena, and is freed when the thread is done with it. */
void qd_body_prefault_abandon(struct qd_request *request);
