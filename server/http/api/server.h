/* What the handlers of all paths use: the parts of the server, such as the models and the
 * scheduler. One object serves all loops. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "server/http/api/access_log.h"
#include "server/http/guard/access.h"
#include "server/http/listener.h"
#include "server/models/table.h"
#include "server/telemetry/line.h"
#include "server/telemetry/metrics.h"
#include "server/work/infer.h"
#include "server/work/loader.h"

/* main.c owns what the pointers point at, from before the first request until after the last one.
 */
struct qd_server {
    const struct qd_config *config; /* shown in the metadata of the server; NULL: not shown */
    struct qd_infer_tools tools;
    struct qd_memory *memory;
    struct qd_metrics *metrics;
    struct qd_models *models;
    struct qd_memory *model_memory;
    struct qd_loader *loader;
    struct qd_access *access;
    struct qd_regions *regions;     /* of shared memory; NULL: clients may register none */
    struct qd_console *console;     /* the page at /; NULL: none */
    struct qd_listeners *listeners; /* NULL before the server listens */
    /* How many scrapes are being sent that use no memory of requests: at most
     * QD_SCRAPE_RESERVED_COUNT (scrape.c). */
    atomic_uint reserved_scrape_count;
    bool compress_answers;
    struct qd_access_log access_log;
    enum qd_line_format log_format_initial; /* --log-format */
    _Atomic(const char *) log_format;       /* the format that a call has set; NULL: no call has */
    atomic_bool draining;                   /* the server answers that it is not ready */
};

/* Returns the handler for the settings of qd_listeners_create, which finds what to do for each
 * path. All requests but inferences and loads are answered at once, on the connection's loop, so
 * health never waits for anything that computes. `server` is borrowed. */
struct qd_handler qd_server_handler(struct qd_server *server);

/* Makes the console: a page at / that shows in a browser what the server is and does, and tries its
 * operators. The files of server/console/ are part of the program. They are joined into one page,
 * which loads nothing from elsewhere. The page contains no secrets, so it is served without a
 * token. Its own requests need a token as any client's do. The page is constant, so any thread may
 * answer with it. The caller frees it with free(). Returns NULL if there is no memory. */
struct qd_console *qd_console_create(void);
