/* All loops that move bytes (--io-threads): the main one, and others on threads of their own. Each
 * has a listener of its own (listener.h), and a connection stays with the loop that accepted it.
 *
 * On the main loop's thread, but where it says otherwise. */
#ifndef SERVER_HTTP_LISTENERS_H
#define SERVER_HTTP_LISTENERS_H

#include "server/base/limits.h"
#include "server/http/listener.h"

struct qd_listeners;

/* As qd_listener_create, for config->io_threads loops, of which `loop` is the first. The kernel
 * takes connections from then on; they wait there until qd_listeners_start, and until `loop` runs.
 * The texts of settings->tls are forgotten: libmicrohttpd has read them. */
struct qd_listeners *qd_listeners_create(struct qd_loop *loop,
                                         const struct qd_listener_settings *settings,
                                         struct qd_error *error);

/* Starts the other loops' threads. False: the system does not let us have them, and none serves. */
bool qd_listeners_start(struct qd_listeners *listeners);

/* Ends them. Those that serve are drained. NULL is fine. */
void qd_listeners_destroy(struct qd_listeners *listeners);

/* As qd_listener_name. */
const char *qd_listeners_name(const struct qd_listeners *listeners, size_t index);

/* These three on any thread. */
size_t qd_listeners_connection_count(const struct qd_listeners *listeners);
/* The same by thread. Returns how many there are. */
size_t qd_listeners_connections(const struct qd_listeners *listeners,
                                uint64_t counts[QD_IO_THREAD_COUNT_MAX]);
/* The same by address: as qd_listener_gauges. */
size_t qd_listeners_gauges(const struct qd_listeners *listeners,
                           struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX]);

/* As qd_listener_drain and qd_listener_cut, for all of them. Once each, and no cut after
 * `on_drained`. */
void qd_listeners_drain(struct qd_listeners *listeners, qd_callback *on_drained, void *context);
void qd_listeners_cut(struct qd_listeners *listeners);

#endif
