/* quantd --healthcheck: asks a running instance if it is ready, as a container probe does. */
#pragma once

#include <stdbool.h>

#include "server/config/config.h"

#define QD_HEALTHCHECK_S 2

/* Sends GET /v2/health/ready to each address of config->listen, one after the other. An address
 * that stands for every address of the host is replaced by loopback. Returns true if every answer
 * is 200 with "ready":true. Otherwise returns false, and `error` names the first address without
 * that answer. Blocks. If the answers take longer than QD_HEALTHCHECK_S, prints such an error to
 * standard error and ends the process. */
bool qd_healthcheck(const struct qd_config *config, struct qd_error *error);
