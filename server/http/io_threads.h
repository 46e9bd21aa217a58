/* All loops that move bytes (--io-threads): the main one, and others on threads of their own. Each
 * has a listener of its own (listener.h), and a connection stays with the loop that accepted it.
 *
 * On the main loop's thread, but where it says otherwise. */
#ifndef SERVER_HTTP_IO_THREADS_H
#define SERVER_HTTP_IO_THREADS_H

#include "server/base/limits.h"
#include "server/http/listener.h"

struct qd_io_threads;

/* As qd_listener_create, for config->io_threads loops, of which `loop` is the first. The kernel
 * takes connections from then on; they wait there until qd_io_threads_start, and until `loop` runs.
 * The texts of settings->tls are forgotten: libmicrohttpd has read them. */
struct qd_io_threads *qd_io_threads_create(struct qd_loop *loop,
                                           const struct qd_listener_settings *settings,
                                           struct qd_error *error);

/* Starts the other loops' threads. False: the system does not let us have them, and none serves. */
bool qd_io_threads_start(struct qd_io_threads *all);

/* Ends them. Those that serve are drained. NULL is fine. */
void qd_io_threads_destroy(struct qd_io_threads *all);

/* As qd_listener_name. */
const char *qd_io_threads_name(const struct qd_io_threads *all, size_t index);

/* These three on any thread. */
size_t qd_io_threads_connection_count(const struct qd_io_threads *all);
/* The same by thread. Returns how many there are. */
size_t qd_io_threads_connections(const struct qd_io_threads *all,
                                 uint64_t counts[QD_IO_THREAD_COUNT_MAX]);
/* The same by address: as qd_listener_gauges. */
size_t qd_io_threads_gauges(const struct qd_io_threads *all,
                            struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* As qd_listener_drain and qd_listener_cut, for all of them. Once each, and no cut after
 * `on_drained`. */
void qd_io_threads_drain(struct qd_io_threads *all, qd_callback *on_drained, void *context);
void qd_io_threads_cut(struct qd_io_threads *all);

#endif
