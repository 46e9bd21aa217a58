/* All loops that move bytes (--io-threads): the main loop, and others on threads of their own. Each
 * loop has its own listener (listener.h), and a connection stays with the loop that accepted it.
 *
 * All functions must be called on the main loop's thread, unless their comment says otherwise. */
#ifndef SERVER_HTTP_IO_THREADS_H
#define SERVER_HTTP_IO_THREADS_H

#include "server/base/limits.h"
#include "server/http/listener.h"

struct qd_io_threads;

/* Like qd_listener_create, for config->io_threads loops, of which `loop` is the first. From then on
 * the kernel takes connections, which wait until qd_io_threads_start is called and `loop` runs. The
 * texts of settings->tls are forgotten, because libmicrohttpd has read them. */
struct qd_io_threads *qd_io_threads_create(struct qd_loop *loop,
                                           const struct qd_listener_settings *settings,
                                           struct qd_error *error);

/* Starts the threads of the other loops. Returns false if the system refuses a thread. Then none of
 * these threads serves connections. */
bool qd_io_threads_start(struct qd_io_threads *all);

/* Ends the threads and frees everything. Loops that serve must have been drained. NULL is fine. */
void qd_io_threads_destroy(struct qd_io_threads *all);

/* Like qd_listener_name. */
const char *qd_io_threads_name(const struct qd_io_threads *all, size_t index);

/* These three functions may be called on any thread. The first returns how many connections are
 * open. */
size_t qd_io_threads_connection_count(const struct qd_io_threads *all);
/* Fills `counts` with the open connections of each thread. Returns how many threads there are. */
size_t qd_io_threads_connections(const struct qd_io_threads *all,
                                 uint64_t counts[QD_IO_THREAD_COUNT_MAX]);
/* Like qd_listener_gauges. */
size_t qd_io_threads_gauges(const struct qd_io_threads *all,
                            struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* Like qd_listener_drain and qd_listener_cut, for all loops. Each may be called once, and
 * qd_io_threads_cut not after the call of `on_drained`. */
void qd_io_threads_drain(struct qd_io_threads *all, qd_callback *on_drained, void *context);
void qd_io_threads_cut(struct qd_io_threads *all);

#endif
