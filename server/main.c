/* quantd: quantized neural networks and operators over HTTP. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/qk.h"
#include "server/base/background.h"
#include "server/base/limits.h"
#include "server/base/version.h"
#include "server/config/config.h"
#include "server/http/api/healthcheck.h"
#include "server/http/api/server.h"
#include "server/http/guard/access.h"
#include "server/http/listener.h"
#include "server/memory/arena.h"
#include "server/models/explain/explain.h"
#include "server/models/repository/repository.h"
#include "server/models/table.h"
#include "server/oip/regions.h"
#include "server/telemetry/log.h"
#include "server/telemetry/log_file.h"
#include "server/telemetry/metrics.h"
#include "server/work/body_prefault.h"
#include "server/work/loader.h"
#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/pool.h"
#include "server/work/scheduler/scheduler.h"

#define INFLIGHT_AUTO_BYTES_MAX (UINT64_C(2) << 30)
#define MODEL_AUTO_BYTES (UINT64_C(1) << 30)  /* if the size of the memory is unknown */
#define SHARED_AUTO_BYTES (UINT64_C(2) << 30) /* likewise */

enum {
    EXIT_USAGE = 2,
    TRIM_MS = 10000,  /* idle memory is returned to the system after 10 to 20 s */
    ROOM_MS = 1000,   /* between two looks whether a request that waits for memory may start */
    TRIM_STEP_MS = 2, /* between two steps, if there is much idle memory */
    TRIM_STEP_BYTES = 8 << 20, /* in one step, which stops the loop for 1 ms if pages are small */
    MMAP_THRESHOLD_BYTES = 1 << 20, /* free returns blocks of this size and more to the system */
    OTHER_FILES_MAX = 64,
    LOOP_FILES_MAX = 8 + 3 * QD_LISTEN_COUNT_MAX, /* of a loop, and of each address */
    LOAD_FILES_MAX = 128, /* a load holds up to QD_SOURCES_FILE_COUNT_MAX files open, and folders */
};

struct process {
    struct qd_config config;
    struct qd_error error; /* why the process cannot start */
    int exit_status;       /* with this error */
    struct qk_kernels *kernels;
    struct qd_loop *loop;
    struct qd_prefaulter *prefaulter;
    struct qd_repository *repository; /* NULL: none */
    bool models_failed;               /* a model failed at start, and --exit-on-error is on */
    bool loader_stopped; /* the loader has nothing under way, and begins nothing more */
    bool drained;        /* no connection is left */
    struct qd_tls *tls;  /* NULL: none */
    struct qd_quota *quota;
    struct qd_background_task reload; /* reads the tokens and the certificate again */
    bool reload_waits;                /* SIGHUP came before the server listened */
    struct qd_server server;          /* the parts that handlers use; the process owns them, too */
    struct qd_handle *sigterm;
    struct qd_handle *sigint;
    struct qd_handle *sighup;
    struct qd_handle *trim_timer;
    struct qd_handle *room_timer;
    struct qd_handle *drain_timer;
};

/* Prints the error. Returns the exit status. */
static int give_up(const struct qd_error *error, int status)
{
    fprintf(stderr, "quantd: %s\n", error->text);
    return status;
}

/* ---- Draining ----------------------------------------------------------------------------- */

static void on_loader_stopped(void *context)
{
    struct process *process = context;
    process->loader_stopped = true;
    if (process->drained)
        qd_loop_stop(process->loop);
}

/* Ends the loop if the loader has stopped, too. Otherwise abandons the load that is still under
 * way, because no client waits for it. The load ends with its next unit. */
static void on_drained(void *context)
{
    struct process *process = context;
    process->drained = true;
    qd_timer_stop(process->drain_timer);
    if (process->loader_stopped)
        qd_loop_stop(process->loop);
    else
        qd_scheduler_abandon(process->server.tools.scheduler);
}

static void on_drain_timeout(void *context)
{
    struct process *process = context;
    qd_log(QD_LOG_WARN, "drain timeout: closing the remaining connections", "connections=%zu",
           qd_listeners_connection_count(process->server.listeners));
    qd_scheduler_abandon(process->server.tools.scheduler);
    qd_listeners_cut(process->server.listeners);
}

static void on_stop_signal(void *context)
{
    struct process *process = context;
    if (process->server.draining) {
        qd_log(QD_LOG_WARN, "second signal: exiting at once", "%s", "");
        qd_log_stop();
        _exit(EXIT_FAILURE);
    }
    qd_log(QD_LOG_INFO, "draining", "connections=%zu queued=%zu",
           process->server.listeners == NULL
               ? 0
               : qd_listeners_connection_count(process->server.listeners),
           qd_scheduler_queue_count(process->server.tools.scheduler));
    atomic_store(&process->server.draining, true);
    qd_loader_stop(process->server.loader, on_loader_stopped, process);
    if (process->server.listeners == NULL) { /* the models for the start are still being loaded */
        on_drained(process);
        return;
    }
    qd_timer_start(process->drain_timer, process->config.drain_timeout_ns / 1000000, 0);
    qd_listeners_drain(process->server.listeners, on_drained, process);
}

/* Runs on a thread of its own, because a file system may be slow. */
static void reload(void *context)
{
    struct process *process = context;
    qd_access_reload(process->server.access);
    if (process->tls != NULL)
        qd_tls_reload(process->tls);
}

/* Reopens the access log, and has the tokens and the certificate read again. Before the server
 * listens, reading waits, because the listeners still need the present texts of the certificate and
 * its key. */
static void on_reload_signal(void *context)
{
    struct process *process = context;
    if (process->server.access_log.file != NULL)
        qd_log_file_reopen(process->server.access_log.file);
    process->reload_waits = process->server.listeners == NULL;
    if (!process->reload_waits && !qd_background_ask(&process->reload))
        qd_log(QD_LOG_ERROR, "SIGHUP: no thread to read the files again", "%s", "");
}

/* Starts requests that waited for memory, if they may. A timer calls this, too, because a request
 * that has waited long enough may start (admission.h). */
static void on_room(void *context)
{
    struct process *process = context;
    qd_scheduler_release(process->server.tools.scheduler);
}

static void on_trim(void *context)
{
    struct process *process = context;
    const bool more = qd_memory_trim_some(process->server.memory, TRIM_STEP_BYTES);
    if (qd_memory_trim_some(process->server.model_memory, TRIM_STEP_BYTES) || more) {
        qd_timer_start(process->trim_timer, TRIM_STEP_MS, TRIM_MS);
        return;
    }
    malloc_trim(0); /* buffers of connections: under 0.3 ms, or 3 ms after a thousand connections
                       have closed */
}

/* ---- Start and end ------------------------------------------------------------------------ */

/* Returns the size of the memory divided by `parts`, or `otherwise` if the size is unknown. */
static uint64_t share_of_memory(uint64_t parts, uint64_t otherwise)
{
    const uint64_t bytes = qd_loop_memory_bytes() / parts;
    return bytes != 0 ? bytes : otherwise;
}

/* Replaces each "auto" by a number. Requests get half of the memory, because a process is more than
 * its requests. */
static void resolve_auto(struct qd_config *config)
{
    if (config->threads == QD_AUTO)
        config->threads = qd_pool_parallelism();
    if (config->max_inflight_bytes != QD_AUTO &&
        config->max_inflight_bytes < config->max_body_bytes) {
        qd_log(QD_LOG_WARN, "--max-inflight-bytes below --max-body-bytes: it bounds bodies, too",
               "max_inflight_bytes=%llu max_body_bytes=%llu",
               (unsigned long long)config->max_inflight_bytes,
               (unsigned long long)config->max_body_bytes);
    }
    if (config->max_inflight_bytes == QD_AUTO) {
        const uint64_t half = share_of_memory(2, INFLIGHT_AUTO_BYTES_MAX);
        config->max_inflight_bytes =
            half < INFLIGHT_AUTO_BYTES_MAX ? half : INFLIGHT_AUTO_BYTES_MAX;
    }
    if (config->max_shared_bytes == QD_AUTO)
        config->max_shared_bytes = share_of_memory(2, SHARED_AUTO_BYTES);
    if (config->max_model_bytes == QD_AUTO)
        config->max_model_bytes = share_of_memory(4, MODEL_AUTO_BYTES);
}

/* Opens /dev/null for each standard stream that the parent process has closed. Otherwise the first
 * sockets would get the numbers of these streams, the log would go to a client, and libuv would end
 * the process when it closes one of them. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Raises the limit of descriptors, so that each connection gets one. Returns false if there are not
 * even enough for the loop, which would abort. */
static bool raise_file_limit(struct process *process)
{
    const struct qd_config *config = &process->config;
    rlim_t wanted =
        ((rlim_t)config->max_connections + QD_REFUSED_COUNT_MAX) * config->listen_count +
        OTHER_FILES_MAX + LOAD_FILES_MAX +
        config->io_threads * (QD_LINGERING_COUNT_MAX + LOOP_FILES_MAX);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return true;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    bool raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
    if (limit.rlim_max < OTHER_FILES_MAX) {
        return qd_fail_startup(&process->error,
                               "file descriptors (ulimit -n): expected at least %d, got %llu",
                               OTHER_FILES_MAX, (unsigned long long)limit.rlim_max);
    }
    if (!raised || limit.rlim_cur < wanted) {
        qd_log(QD_LOG_WARN, "fewer file descriptors than --max-connections",
               "wanted=%llu allowed=%llu", (unsigned long long)wanted,
               (unsigned long long)limit.rlim_cur);
    }
    return true;
}

/* Blocks or unblocks SIGTERM and SIGINT. Until the loop handles them, a signal that comes has to
 * wait: the first process of a container would otherwise never see it. They are unblocked
 * explicitly, because the parent process may have blocked them. */
static void hold_stop_signals(bool hold)
{
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &stop, NULL);
}

/* Fills the error and the exit status, and returns false. If the error is about the tier or the
 * backend, its text begins with libqk's word for that, which is replaced by the flag. */
static bool fail_for_kernels(struct process *process, const struct qk_error *error)
{
    const bool of_tier = strncmp(error->text, "tier: ", 6) == 0;
    const bool of_gemm = strncmp(error->text, "gemm: ", 6) == 0;
    const bool of_mask = strncmp(error->text, "QK_CPU: ", 8) == 0;
    process->exit_status = of_tier || of_gemm || of_mask ? EXIT_USAGE : EXIT_FAILURE;
    return of_tier || of_gemm ? qd_fail_startup(&process->error, "--%s: %s",
                                                of_tier ? "cpu" : "gemm", error->text + 6)
                              : qd_fail_startup(&process->error, "%s", error->text);
}

/* Must be called before any other thread starts, because it may set environment variables. */
static bool create_kernels(struct process *process)
{
    const struct qd_config *config = &process->config;
    const uint64_t threads = config->threads == QD_AUTO ? qd_pool_parallelism() : config->threads;
    struct qk_error error;
    return qk_kernels_create(config->cpu, config->gemm, config->measure, (size_t)threads,
                             &process->kernels, &error) == QK_OK ||
           fail_for_kernels(process, &error);
}

/* Prints the kernels, for --kernels. Returns the exit status. */
static int print_kernels(struct process *process)
{
    if (!create_kernels(process))
        return give_up(&process->error, process->exit_status);
    char text[QK_KERNELS_TEXT_BYTES];
    qk_kernels_describe(process->kernels, text, sizeof(text));
    fputs(text, stdout);
    qk_kernels_destroy(process->kernels);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Returns how wide the terminal is. 0: standard output is no terminal. */
static size_t output_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Prints what would become of a model, for --explain, with commands that run `program`. Returns the
 * exit status. */
static int explain(struct process *process, const char *program)
{
    struct qd_config *config = &process->config;
    qd_log_set_level(config->log_level);
    qd_log_set_format(config->log_format);
    resolve_auto(config);
    if (!create_kernels(process))
        return give_up(&process->error, process->exit_status);
    process->server.model_memory = qd_memory_create(config->max_model_bytes);
    bool done =
        process->server.model_memory != NULL || qd_fail_startup(&process->error, "out of memory");
    if (done) {
        qd_memory_set_for_models(process->server.model_memory);
        const struct qd_explain_settings settings = {
            .kernels = process->kernels,
            .memory = process->server.model_memory,
            .links = config->allow_repository_links ? QD_LINKS_ANYWHERE : QD_LINKS_INSIDE,
            .program = program,
            .path = config->explain,
            .as_json = config->explain_format == QD_LINE_JSON,
            .columns = output_columns(),
            .has_progress = isatty(STDERR_FILENO) != 0,
        };
        done = qd_explain(&settings, stdout, &process->error);
    }
    const int status = done ? EXIT_SUCCESS : give_up(&process->error, EXIT_FAILURE);
    qd_memory_destroy(process->server.model_memory);
    qk_kernels_destroy(process->kernels);
    return status;
}

static bool start_kernels(struct process *process)
{
    if (!create_kernels(process))
        return false;
    const char *core = qk_kernels_blas_core(process->kernels);
    qd_log(QD_LOG_INFO, "quantd starts",
           "version=%s cpu=%s gemm=%s openblas_core=%s io_threads=%llu threads=%llu "
           "max_inflight_bytes=%llu",
           QD_VERSION, qk_kernels_tier(process->kernels), qk_kernels_gemm(process->kernels), core,
           (unsigned long long)process->config.io_threads,
           (unsigned long long)process->config.threads,
           (unsigned long long)process->config.max_inflight_bytes);
    const char *mask = qk_kernels_mask(process->kernels);
    if (strcmp(mask, "none") != 0)
        qd_log(QD_LOG_WARN, "QK_CPU hides features of this CPU: it may be slow", "QK_CPU=%s", mask);
    const char *asked = getenv("OPENBLAS_CORETYPE"); /* set by the user or by qk_kernels_create */
    if (asked != NULL && strcmp(core, "none") != 0 && strcasecmp(asked, core) != 0) {
        qd_log(QD_LOG_WARN, "OpenBLAS runs another core than asked: it may be slow",
               "asked=%s runs=%s", asked, core);
    }
    return true;
}

/* Creates the parts that need nothing but flags, for handlers and listeners. start_services creates
 * the others. */
static bool create_parts(struct process *process)
{
    const struct qd_config *config = &process->config;
    struct qd_server *server = &process->server;
    struct qd_error *error = &process->error;
    *server = (struct qd_server){
        .config = config,
        .tools = {.kernels = process->kernels,
                  .thread_count = (unsigned)config->threads,
                  .compute_timeout_ns = config->compute_timeout_ns,
                  .max_body_bytes = config->max_body_bytes},
        .compress_answers = config->compress_answers,
        .access_log = {.format = config->log_format},
        .log_format_initial = config->log_format,
    };
    server->access = qd_access_create(config, error);
    if (server->access == NULL)
        return false;
    if (config->tls_cert[0] != '\0' && (process->tls = qd_tls_create(config, error)) == NULL)
        return false;
    if (config->console && (server->console = qd_console_create()) == NULL)
        return qd_fail_startup(error, "out of memory");
    if (strcmp(config->access_log, "off") != 0 &&
        (server->access_log.file = qd_log_file_create(config->access_log, error)) == NULL)
        return false;
    const char *prefix = config->shared_memory_prefix;
    if (*prefix != '\0' &&
        (server->regions = qd_regions_create(prefix, config->max_shared_bytes)) == NULL)
        return qd_fail_startup(error, "--allow-shared-memory: out of memory or threads");
    return true;
}

static bool start_services(struct process *process)
{
    struct qd_server *server = &process->server;
    const struct qd_config *config = &process->config;
    const struct qd_scheduler_settings scheduling = {.thread_count = (unsigned)config->threads,
                                                     .queue_max = config->max_queue,
                                                     .worker_nice = (int)config->worker_nice,
                                                     .loop_computes = config->loop_computes};
    server->tools.scheduler = qd_scheduler_create(&scheduling);
    if (server->tools.scheduler == NULL)
        return qd_fail_startup(
            &process->error,
            "--threads: cannot start %llu; memory or the limit on processes is short",
            (unsigned long long)config->threads);
    process->prefaulter = qd_prefaulter_create();
    process->loop = qd_loop_create();
    server->memory = qd_memory_create(config->max_inflight_bytes);
    server->model_memory = qd_memory_create(config->max_model_bytes);
    server->metrics = qd_metrics_create();
    process->quota = qd_quota_create(config);
    if (server->metrics != NULL)
        server->models = qd_models_create(server->metrics);
    if (process->prefaulter == NULL || process->loop == NULL || server->memory == NULL ||
        server->model_memory == NULL || server->models == NULL || process->quota == NULL)
        return qd_fail_startup(&process->error, "out of memory, file descriptors or threads");
    qd_memory_set_for_models(server->model_memory);
    process->sigterm = qd_loop_signal(process->loop, SIGTERM, on_stop_signal, process);
    process->sigint = qd_loop_signal(process->loop, SIGINT, on_stop_signal, process);
    process->sighup = qd_loop_signal(process->loop, SIGHUP, on_reload_signal, process);
    process->trim_timer = qd_loop_timer(process->loop, on_trim, process);
    process->room_timer = qd_loop_timer(process->loop, on_room, process);
    process->drain_timer = qd_loop_timer(process->loop, on_drain_timeout, process);
    if (process->sigterm == NULL || process->sigint == NULL || process->sighup == NULL ||
        process->trim_timer == NULL || process->room_timer == NULL || process->drain_timer == NULL)
        return qd_fail_startup(&process->error, "out of memory or file descriptors");
    qd_memory_set_on_room(server->memory, on_room, process);
    hold_stop_signals(false);
    qd_timer_start(process->trim_timer, TRIM_MS, TRIM_MS);
    qd_timer_start(process->room_timer, ROOM_MS, ROOM_MS);
    return true;
}

/* ---- Models at start ---------------------------------------------------------------------- */

static bool create_loader(struct process *process)
{
    struct qd_server *server = &process->server;
    const struct qd_config *config = &process->config;
    struct qd_error error;
    if (config->model_repository[0] != '\0' || config->model_count > 0) {
        process->repository = qd_repository_open(
            config->model_repository[0] != '\0' ? config->model_repository : NULL,
            config->allow_repository_links ? QD_LINKS_ANYWHERE : QD_LINKS_INSIDE, &error);
        if (process->repository == NULL)
            return qd_fail_startup(&process->error, "--model-repository: %s", error.text);
    }
    for (size_t i = 0; i < config->model_count; i++)
        if (qd_repository_give(process->repository, config->models[i], &error) != QD_OK) {
            if (error.status == QD_INVALID)
                process->exit_status = EXIT_USAGE;
            return qd_fail_startup(&process->error, "--model: %s", error.text);
        }
    const struct qd_loader_settings settings = {
        .models = server->models,
        .tools = {.kernels = process->kernels,
                  .memory = server->model_memory,
                  .repository = process->repository,
                  .scheduler = server->tools.scheduler,
                  .loop = process->loop,
                  .thread_count = (unsigned)config->threads},
        .mode = config->model_control_mode,
        .load_models = config->load_models,
        .load_model_count = config->load_model_count,
        .poll_ns = config->repository_poll_ns,
        .load_timeout_ns = config->compute_timeout_ns,
        .exit_on_error = config->exit_on_error,
    };
    server->loader = qd_loader_create(&settings);
    return server->loader != NULL ||
           qd_fail_startup(&process->error, "out of memory or file descriptors");
}

static void on_models_loaded(void *context, const struct qd_error *error)
{
    static const char hint[] = "; --no-exit-on-error starts without this model";
    struct process *process = context;
    if (error != NULL && process->config.exit_on_error && !process->server.draining) {
        const bool has_hint = process->config.model_repository[0] != '\0' &&
                              strlen(error->text) + sizeof(hint) <= sizeof(error->text);
        process->models_failed = true;
        qd_fail_startup(&process->error, "%s%s", error->text, has_hint ? hint : "");
    }
    qd_loop_stop(process->loop);
}

/* Loads the models before any client can ask for them. Returns false if not all could be loaded and
 * that is an error (--exit-on-error). */
static bool load_models(struct process *process)
{
    if (!create_loader(process))
        return false;
    qd_loader_start(process->server.loader, on_models_loaded, process);
    qd_loop_run(process->loop);
    return !process->models_failed;
}

static bool start_listening(struct process *process)
{
    struct qd_server *server = &process->server;
    const struct qd_listener_settings settings = {
        .memory = server->memory,
        .prefaulter = process->prefaulter,
        .config = &process->config,
        .quota = process->quota,
        .tls = process->tls,
        .handler = qd_server_handler(server),
    };
    process->server.listeners = qd_listeners_create(process->loop, &settings, &process->error);
    if (process->server.listeners == NULL)
        return false;
    if (!qd_listeners_start(process->server.listeners)) {
        return qd_fail_startup(
            &process->error,
            "--io-threads: cannot start %llu; memory or the limit on processes is "
            "short",
            (unsigned long long)process->config.io_threads);
    }
    const char *name;
    for (size_t i = 0; (name = qd_listeners_name(process->server.listeners, i)) != NULL; i++)
        printf("quantd listening on %s\n", name);
    fflush(stdout);
    if (process->reload_waits)
        on_reload_signal(process);
    return true;
}

static void deinit(struct process *process)
{
    struct qd_server *server = &process->server;
    const bool reloads = !qd_background_end(&process->reload);
    qd_prefaulter_destroy(process->prefaulter); /* first: qd_loop_destroy calls its last posts */
    qd_listeners_destroy(process->server.listeners);
    if (server->memory != NULL) /* no request waits for memory any more */
        qd_memory_set_on_room(server->memory, NULL, NULL);
    qd_quota_destroy(process->quota);
    qd_log_file_destroy(server->access_log.file);
    qd_handle_destroy(process->sigterm);
    qd_handle_destroy(process->sigint);
    qd_handle_destroy(process->sighup);
    qd_handle_destroy(process->trim_timer);
    qd_handle_destroy(process->room_timer);
    qd_handle_destroy(process->drain_timer);
    qd_loader_destroy(server->loader);
    qd_scheduler_destroy(server->tools.scheduler);
    qd_loop_destroy(process->loop);
    qd_models_destroy(server->models);
    qd_repository_close(process->repository);
    qd_metrics_destroy(server->metrics);
    qd_memory_destroy(server->model_memory);
    qd_memory_destroy(server->memory);
    qd_regions_destroy(server->regions);
    if (!reloads)
        qd_access_destroy(server->access);
    free(server->console);
    if (!reloads)
        qd_tls_destroy(process->tls);
    qk_kernels_destroy(process->kernels);
}

int main(int argc, char **argv)
{
    struct process process = {.exit_status = EXIT_FAILURE};
    switch (qd_config_parse(&process.config, argc, argv, &process.error)) {
    case QD_CONFIG_HELP:
        qd_config_print_help(stdout);
        return EXIT_SUCCESS;
    case QD_CONFIG_VERSION:
        puts("quantd " QD_VERSION);
        return EXIT_SUCCESS;
    case QD_CONFIG_HEALTHCHECK:
        return qd_healthcheck(&process.config, &process.error)
                   ? EXIT_SUCCESS
                   : give_up(&process.error, EXIT_FAILURE);
    case QD_CONFIG_KERNELS:
        return print_kernels(&process);
    case QD_CONFIG_EXPLAIN:
        return explain(&process, argc > 0 && *argv[0] != '\0' ? argv[0] : "quantd");
    case QD_CONFIG_BAD:
        return give_up(&process.error, EXIT_USAGE);
    case QD_CONFIG_RUN:
        break;
    }
    open_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* until there are files to read again */
    hold_stop_signals(true);
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    qd_log_set_level(process.config.log_level);
    qd_log_set_format(process.config.log_format);
    resolve_auto(&process.config);
    qd_background_init(&process.reload, reload, &process);
    bool ready = raise_file_limit(&process) && start_kernels(&process) &&
                 qd_log_start(&process.error) && create_parts(&process) &&
                 start_services(&process) && load_models(&process) &&
                 (process.server.draining || start_listening(&process));
    if (ready) {
        if (!process.server.draining)
            qd_loop_run(process.loop);
        qd_log(QD_LOG_INFO, "quantd ends", "%s", "");
    }
    if (!ready)
        qd_log_stop(); /* so that its lines come before the error's */
    const int status = ready ? EXIT_SUCCESS : give_up(&process.error, process.exit_status);
    deinit(&process);
    qd_log_stop();
    return status;
}
