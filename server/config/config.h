/* Reads the process' settings from its command line and environment. One table (config.c) defines
 * the flags, the variables and the help text: --max-queue is QUANTD_MAX_QUEUE. The command line
 * overrides the environment, which overrides the defaults. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/status.h"
#include "server/memory/text.h"
#include "server/telemetry/log.h"

#define QD_LISTEN_COUNT_MAX 16
#define QD_LISTEN_BYTES_MAX 256

#define QD_LOAD_MODEL_COUNT_MAX \
    256 /* how many --load-model flags, each with names separated by commas */

#define QD_MODEL_FLAG_COUNT_MAX 256 /* how many --model flags, each with files and commas */

#define QD_CORS_ORIGIN_COUNT_MAX 32
#define QD_CORS_ORIGIN_BYTES_MAX 256

/* The value of threads, max_inflight_bytes, max_model_bytes and max_shared_bytes that means: derive
 * it from the machine or the container. */
#define QD_AUTO 0

/* What decides which models are loaded. */
enum qd_control_mode {
    QD_CONTROL_NONE,     /* all models of the repository, at start */
    QD_CONTROL_EXPLICIT, /* --load-model at start, then calls */
    QD_CONTROL_POLL,     /* the repository, also when it changes */
};

struct qd_config {
    char listen[QD_LISTEN_COUNT_MAX][QD_LISTEN_BYTES_MAX]; /* ADDR:PORT, [ADDR]:PORT, unix:PATH */
    size_t listen_count;
    uint64_t unix_mode;     /* permissions of the Unix sockets' files */
    const char *unix_owner; /* USER, USER:GROUP or :GROUP; "": the user who runs the server */
    bool healthcheck, kernels;
    const char *explain; /* a file or a model's folder; "": serve */
    enum qd_line_format explain_format;
    const char *tls_cert; /* tls_cert and tls_key are both set or both "" */
    const char *tls_key;
    const char *token_file; /* "": clients need no token */
    char cors_origins[QD_CORS_ORIGIN_COUNT_MAX][QD_CORS_ORIGIN_BYTES_MAX]; /* "*": any */
    size_t cors_origin_count;
    uint64_t threads;
    uint64_t io_threads;                  /* I/O threads, including the main one */
    uint64_t worker_nice;                 /* how much the workers' nice value is above the loop's */
    bool loop_computes;                   /* whether the loop computes short jobs itself */
    uint64_t max_connections;             /* for each listener */
    uint64_t max_connections_per_address; /* for each client address; 0: no limit */
    uint64_t max_queue;                   /* requests that wait for a worker */
    uint64_t max_body_bytes;
    uint64_t max_inflight_bytes;
    uint64_t max_model_bytes;
    const char *shared_memory_prefix; /* what the keys that clients register must begin with; "": no
                                         key is allowed, "*": all are */
    uint64_t max_shared_bytes;
    uint64_t receive_timeout_ns;
    uint64_t min_rate_bytes; /* bytes per second of a body or an answer */
    bool compress_answers;
    uint64_t idle_timeout_ns;
    uint64_t compute_timeout_ns;
    uint64_t drain_timeout_ns;
    const char *models[QD_MODEL_FLAG_COUNT_MAX]; /* FILE or NAME=FILE, with commas */
    size_t model_count;
    const char *model_repository; /* a folder; "": none */
    enum qd_control_mode model_control_mode;
    const char *load_models[QD_LOAD_MODEL_COUNT_MAX];
    size_t load_model_count;
    uint64_t repository_poll_ns;
    bool exit_on_error;
    bool allow_repository_links;
    bool console;    /* a page at / */
    const char *cpu; /* cpu, gemm and measure are passed to qk_kernels_create */
    const char *gemm;
    bool measure;
    enum qd_log_level log_level;
    enum qd_line_format log_format;
    const char *access_log; /* a file; "-": standard error; "off": none */
};

enum qd_config_result {
    QD_CONFIG_RUN,
    QD_CONFIG_HEALTHCHECK, /* --healthcheck; the other flags are those of the server to ask */
    QD_CONFIG_KERNELS,     /* --kernels; the other flags are those of the server */
    QD_CONFIG_EXPLAIN,     /* --explain; the other flags are those of the server */
    QD_CONFIG_HELP,        /* --help */
    QD_CONFIG_VERSION,     /* --version */
    QD_CONFIG_BAD          /* `error` names the flag, what was expected and what came */
};

/* Parses the command line and the environment. The config borrows from both. */
enum qd_config_result qd_config_parse(struct qd_config *config, int argc, char *const *argv,
                                      struct qd_error *error);

void qd_config_print_help(FILE *file);

/* Prints the values of flags that are numbers or switches, as members of a JSON object with a comma
 * before each. `auto` is printed as it was resolved. Flags that name files, addresses or clients
 * are left out. */
void qd_config_print_limits(const struct qd_config *config, struct qd_text *text);
