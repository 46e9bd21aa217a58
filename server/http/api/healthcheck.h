/* quantd --healthcheck: asks a running instance whether it is ready, as a container's probe does.
 */
#ifndef SERVER_HTTP_API_HEALTHCHECK_H
#define SERVER_HTTP_API_HEALTHCHECK_H

#include <stdbool.h>

#include "server/config/config.h"

#define QD_HEALTHCHECK_S 2

/* GET /v2/health/ready on each of config->listen, one after the other; where that is every address
 * of the host, on loopback. True: all said 200 and "ready":true. False: `error` names the first
 * that did not. It blocks, and ends the process with such a line on standard error where
 * QD_HEALTHCHECK_S are over. */
bool qd_healthcheck(const struct qd_config *config, struct qd_error *error);

#endif
