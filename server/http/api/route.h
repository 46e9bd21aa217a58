/* Finds what to do for each path. All requests but inferences and loads are answered at once, on
 * the connection's loop, so health never waits for anything that computes. */
#ifndef SERVER_HTTP_API_ROUTE_H
#define SERVER_HTTP_API_ROUTE_H

#include "server/http/api/server.h"
#include "server/http/listener.h"

/* Returns the handler for the settings of qd_io_threads_create. `server` is borrowed. */
struct qd_handler qd_server_handler(struct qd_server *server);

#endif
