/* Which path does what. All but inferences and loads is answered at once, on the connection's loop:
 * health never waits behind anything that computes. */
#ifndef SERVER_HTTP_API_ROUTE_H
#define SERVER_HTTP_API_ROUTE_H

#include "server/http/api/server.h"
#include "server/http/listener.h"

/* For qd_io_threads_create: settings->handler. */
struct qd_handler qd_server_handler(struct qd_server *server);

#endif
