/* What the user may move. One table (config.c) makes the flags, the environment variables and the
 * help text: --max-queue is QUANTD_MAX_QUEUE. The command line wins over the environment, and that
 * over the defaults. */
#ifndef SERVER_CONFIG_CONFIG_H
#define SERVER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/status.h"
#include "server/memory/text.h"
#include "server/telemetry/log.h"

#define QD_LISTEN_COUNT_MAX 16
#define QD_LISTEN_BYTES_MAX 256

#define QD_LOAD_MODEL_COUNT_MAX 256 /* --load-model, each with names between commas */

#define QD_CORS_ORIGIN_COUNT_MAX 32
#define QD_CORS_ORIGIN_BYTES_MAX 256

/* Of threads, max_inflight_bytes, max_model_bytes and max_shared_bytes: as the machine, or the
 * container, has it. */
#define QD_AUTO 0

/* Who says which models are loaded. */
enum qd_control_mode {
    QD_CONTROL_NONE,     /* all that the repository has, at start */
    QD_CONTROL_EXPLICIT, /* --load-model at start, and calls */
    QD_CONTROL_POLL,     /* the repository, whenever it changes */
};

struct qd_config {
    char listen[QD_LISTEN_COUNT_MAX][QD_LISTEN_BYTES_MAX]; /* ADDR:PORT, [ADDR]:PORT, unix:PATH */
    size_t listen_count;
    uint64_t unix_mode;     /* of Unix sockets' files */
    const char *unix_owner; /* USER, USER:GROUP or :GROUP; "": whoever runs it */
    bool healthcheck, kernels;
    const char *tls_cert; /* both, or "" */
    const char *tls_key;
    const char *token_file; /* "": everybody may come in */
    char cors_origins[QD_CORS_ORIGIN_COUNT_MAX][QD_CORS_ORIGIN_BYTES_MAX]; /* "*": any */
    size_t cors_origin_count;
    uint64_t threads;
    uint64_t io_threads;                  /* that move bytes, the main one among them */
    uint64_t worker_nice;                 /* more than the loop */
    bool loop_computes;                   /* short jobs; false: workers do */
    uint64_t max_connections;             /* for each listener */
    uint64_t max_connections_per_address; /* of a client, of these; 0: all */
    uint64_t max_queue;                   /* requests that no worker has taken yet */
    uint64_t max_body_bytes;
    uint64_t max_inflight_bytes;
    uint64_t max_model_bytes;
    const char *shared_memory_prefix; /* of keys that clients may register; "": none, "*": any */
    uint64_t max_shared_bytes;
    uint64_t receive_timeout_ns;
    uint64_t min_rate_bytes; /* a second, of a body or an answer */
    bool compress_answers;
    uint64_t idle_timeout_ns;
    uint64_t compute_timeout_ns;
    uint64_t drain_timeout_ns;
    const char *model_repository; /* a folder; "": none */
    enum qd_control_mode model_control_mode;
    const char *load_models[QD_LOAD_MODEL_COUNT_MAX];
    size_t load_model_count;
    uint64_t repository_poll_ns;
    bool exit_on_error;
    bool allow_repository_links;
    bool console;    /* a page at / */
    const char *cpu; /* this and the next two: for qk_kernels_create */
    const char *gemm;
    bool measure;
    enum qd_log_level log_level;
    enum qd_line_format log_format;
    const char *access_log; /* a file; "-": standard error; "off": none */
};

enum qd_config_result {
    QD_CONFIG_RUN,
    QD_CONFIG_HEALTHCHECK, /* --healthcheck: all else is as for the server that it asks */
    QD_CONFIG_KERNELS,     /* --kernels: the same */
    QD_CONFIG_HELP,        /* --help was asked for */
    QD_CONFIG_VERSION,     /* --version */
    QD_CONFIG_BAD          /* `error` names the flag, what it takes and what came */
};

/* argv and the environment are borrowed for as long as the config is. */
enum qd_config_result qd_config_parse(struct qd_config *config, int argc, char *const *argv,
                                      struct qd_error *error);

void qd_config_print_help(FILE *file);

/* As members of a JSON object, a comma before each: what flags that count, bound or switch are,
 * auto as it was resolved. None that names a file, an address or a client. */
void qd_config_print_limits(const struct qd_config *config, struct qd_text *text);

#endif
