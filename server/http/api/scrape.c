#include "server/http/api/handlers.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/base/usage.h"
#include "server/base/version.h"
#include "server/http/wire/socket.h"
#include "server/memory/arena.h"
#include "server/oip/regions.h"
#include "server/telemetry/log.h"
#include "server/telemetry/metrics.h"

struct scrape {
    struct qd_stream stream; /* first, so that a pointer to it is also one to the scrape */
    struct qd_server *server;
    bool is_reserved; /* allocated by malloc, as one of QD_SCRAPE_RESERVED_COUNT, and not in the
                         request's arena */
    struct qd_metrics_cursor cursor;
    bool counters_are_over; /* all units of counters (metrics.h) are printed; the gauges follow */
};

static void close_scrape(struct qd_stream *stream)
{
    struct scrape *scrape = (struct scrape *)stream;
    qd_metrics_cursor_deinit(&scrape->cursor);
    if (scrape->is_reserved) {
        atomic_fetch_sub(&scrape->server->reserved_scrape_count, 1);
        free(scrape);
    }
}

/* Returns one of the reserved scrapes, which are outside the memory of requests. Returns NULL if
 * all of them are in use or malloc failed. */
static struct scrape *take_reserved(struct qd_server *server)
{
    struct scrape *scrape = NULL;
    if (atomic_fetch_add(&server->reserved_scrape_count, 1) < QD_SCRAPE_RESERVED_COUNT)
        scrape = malloc(sizeof(*scrape));
    if (scrape == NULL)
        atomic_fetch_sub(&server->reserved_scrape_count, 1);
    return scrape;
}

/* Begins the request's stream and its answer, about all models or about the request's. */
static enum qd_status begin(const struct qd_request_context *context, const char *content_type,
                            bool (*print)(struct qd_stream *stream, struct qd_text *text))
{
    struct qd_request *request = context->request;
    const struct qd_signature *of = request->model == NULL ? NULL : &request->model->signature;
    struct scrape *scrape = take_reserved(context->server);
    const bool is_reserved = scrape != NULL;
    if (!is_reserved)
        scrape = qd_arena_alloc(&request->arena, sizeof(*scrape));
    if (scrape == NULL)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    scrape->server = context->server;
    scrape->is_reserved = is_reserved;
    scrape->counters_are_over = false;
    scrape->stream.print = print;
    scrape->stream.close = close_scrape;
    scrape->stream.ended = false;
    scrape->stream.begin = scrape->stream.end = 0;
    request->stream = &scrape->stream;
    if (!qd_metrics_cursor_init(&scrape->cursor, context->server->metrics,
                                of == NULL ? NULL : of->name,
                                context->path->version == NULL ? NULL : &of->version))
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    request->answer =
        (struct qd_answer){.http_status = qd_status_http(QD_OK), .content_type = content_type};
    return QD_OK;
}

/* ---- Statistics --------------------------------------------------------------------------- */

static bool print_stats(struct qd_stream *stream, struct qd_text *text)
{
    return qd_metrics_print_next_stats(&((struct scrape *)stream)->cursor, text);
}

enum qd_status qd_answer_stats(const struct qd_request_context *context)
{
    if (context->path->model != NULL && qd_context_find_model(context) != QD_OK)
        return context->request->error.status;
    return begin(context, "application/json", print_stats);
}

/* ---- Metrics ------------------------------------------------------------------------------ */

/* Prints a gauge with its value now. */
static void put_gauge(struct qd_text *text, const char *name, uint64_t value, const char *help)
{
    qd_prometheus_type(text, name, "gauge", help);
    qd_text_format(text, "%s %" PRIu64 "\n", name, value);
}

static void put_work(const struct qd_server *server, struct qd_text *text)
{
    const struct qd_usage queue = qd_scheduler_queue(server->tools.scheduler);
    const struct qd_usage workers = qd_scheduler_workers(server->tools.scheduler);
    put_gauge(text, "quantd_queue_length", queue.used, "Requests that wait for a worker.");
    put_gauge(text, "quantd_queue_length_max", queue.max,
              "The most requests that may wait for a worker (--max-queue).");
    put_gauge(text, "quantd_workers_busy", workers.used,
              "Workers that compute or load something now.");
    put_gauge(text, "quantd_workers", workers.max, "Worker threads (--threads).");
}

static void put_memory(const struct qd_server *server, struct qd_text *text)
{
    put_gauge(text, "quantd_inflight_bytes", qd_memory_used(server->memory),
              "Memory of requests: bodies, tensors and answers.");
    put_gauge(text, "quantd_inflight_kept_bytes", qd_memory_kept(server->memory),
              "Memory of earlier requests that is kept for later ones, and freed when the bound "
              "requires it.");
    put_gauge(text, "quantd_inflight_bytes_max", qd_memory_max(server->memory),
              "The most memory of earlier and current requests together (--max-inflight-bytes).");
    put_gauge(text, "quantd_model_bytes", qd_memory_used(server->model_memory),
              "Memory of loaded models and of loads in progress.");
    put_gauge(text, "quantd_model_kept_bytes", qd_memory_kept(server->model_memory),
              "Memory of earlier loads that is kept for later ones, and freed when the bound "
              "requires it.");
    put_gauge(text, "quantd_model_bytes_max", qd_memory_max(server->model_memory),
              "The most memory of models and loads, with what is kept (--max-model-bytes).");
}

static void put_models(const struct qd_server *server, struct qd_text *text)
{
    struct qd_usage regions = {0, 0}, region_bytes = {0, 0};
    if (server->regions != NULL)
        qd_regions_read_usage(server->regions, &regions, &region_bytes);
    put_gauge(text, "quantd_models_loaded", qd_models_loaded_count(server->models),
              "Versions of loaded models that are in service, or that requests still use.");
    put_gauge(text, "quantd_loads_waiting", qd_loader_waiting_count(server->loader),
              "Load calls that wait for their load to begin.");
    put_gauge(text, "quantd_loads_waiting_max", QD_LOADER_WAITING_MAX,
              "The most load calls that may wait.");
    put_gauge(text, "quantd_shared_memory_regions", regions.used,
              "Regions of shared memory, also unregistered ones that requests still use.");
    put_gauge(text, "quantd_shared_memory_regions_max", regions.max,
              "The most regions that may be registered; 0 without --allow-shared-memory.");
    put_gauge(text, "quantd_shared_memory_bytes", region_bytes.used,
              "The size of all regions of shared memory.");
    put_gauge(text, "quantd_shared_memory_bytes_max", region_bytes.max,
              "The most bytes of all regions of shared memory (--max-shared-bytes).");
}

static void put_process(struct qd_text *text)
{
    struct qd_process process;
    qd_process_read(&process);
    put_gauge(text, "process_resident_memory_bytes", process.resident_bytes,
              "Memory of the process that is in RAM.");
    put_gauge(text, "process_virtual_memory_bytes", process.virtual_bytes,
              "Size of the address space of the process.");
    put_gauge(text, "process_open_fds", process.files, "Open file descriptors.");
    put_gauge(text, "process_max_fds", process.files_max,
              "The most file descriptors that the process may open.");
    qd_prometheus_type(text, "process_cpu_seconds_total", "counter",
                       "CPU time of the process, user and system, in seconds.");
    qd_text_format(text, "process_cpu_seconds_total %" PRIu64 ".%09" PRIu64 "\n",
                   process.cpu_ns / QD_NS_PER_S, process.cpu_ns % QD_NS_PER_S);
}

static void put_connections(const struct qd_listeners *listeners, struct qd_text *text)
{
    uint64_t connections[QD_IO_THREAD_COUNT_MAX];
    const size_t count = qd_listeners_connections(listeners, connections);
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += connections[i];
    put_gauge(text, "quantd_connections", all, "Open connections.");
    qd_prometheus_type(text, "quantd_io_thread_connections", "gauge",
                       "Open connections of each I/O thread (--io-threads).");
    for (size_t i = 0; i < count; i++)
        qd_text_format(text, "quantd_io_thread_connections{thread=\"%zu\"} %" PRIu64 "\n", i,
                       connections[i]);
}

static void put_listeners(const struct qd_listeners *listeners, struct qd_text *text)
{
    static const char *const names[] = {"quantd_listener_connections",
                                        "quantd_listener_connections_max",
                                        "quantd_listener_connections_refused_total"};
    static const char *const helps[] = {
        "Open connections of each listening address, without refused ones.",
        "The most open connections of each listening address (--max-connections).",
        "Connections refused because of --max-connections or --max-connections-per-address."};
    struct qd_listener_gauge gauges[QD_LISTEN_COUNT_MAX];
    const size_t count = qd_listeners_gauges(listeners, gauges);
    for (unsigned family = 0; family < 3; family++) {
        qd_prometheus_type(text, names[family], family < 2 ? "gauge" : "counter", helps[family]);
        for (size_t i = 0; i < count; i++) {
            const uint64_t values[] = {gauges[i].connections.used, gauges[i].connections.max,
                                       gauges[i].refused};
            char label[2 * QD_LISTENER_NAME_BYTES];
            qd_prometheus_label(gauges[i].name, label);
            qd_text_format(text, "%s{listener=\"%s\"} %" PRIu64 "\n", names[family], label,
                           values[family]);
        }
    }
}

static void put_logs(const struct qd_server *server, struct qd_text *text)
{
    const struct qd_log_file *file = server->access_log.file;
    qd_prometheus_type(
        text, "quantd_log_lines_dropped_total", "counter",
        "Log lines that were lost, because the reader was too slow or the disk full.");
    qd_text_format(text,
                   "quantd_log_lines_dropped_total{log=\"access\"} %" PRIu64
                   "\nquantd_log_lines_dropped_total{log=\"events\"} %" PRIu64 "\n",
                   file == NULL ? 0 : qd_log_file_dropped(file), qd_log_dropped());
}

static void put_info(const struct qk_kernels *kernels, struct qd_text *text)
{
    qd_prometheus_type(text, "quantd_info", "gauge",
                       "The version, the kernels' tier, the backend of convolutions and OpenBLAS' "
                       "core, as labels.");
    qd_text_format(text,
                   "quantd_info{version=\"%s\",cpu=\"%s\",gemm=\"%s\",openblas_core=\"%s\"} 1\n",
                   QD_VERSION, qk_kernels_tier(kernels), qk_kernels_gemm(kernels),
                   qk_kernels_blas_core(kernels));
}

/* Prints the gauges: 4 KiB, and up to 36 KiB with 16 listeners whose names are as long as possible.
 */
static void put_gauges(const struct qd_server *server, struct qd_text *text)
{
    put_work(server, text);
    put_memory(server, text);
    put_models(server, text);
    if (server->listeners != NULL) {
        put_connections(server->listeners, text);
        put_listeners(server->listeners, text);
    }
    put_logs(server, text);
    put_process(text);
    put_info(server->tools.kernels, text);
}

static bool print_metrics(struct qd_stream *stream, struct qd_text *text)
{
    struct scrape *scrape = (struct scrape *)stream;
    if (!scrape->counters_are_over) {
        scrape->counters_are_over = !qd_metrics_print_next(&scrape->cursor, text);
        return true;
    }
    put_gauges(scrape->server, text);
    return text->failed;
}

enum qd_status qd_answer_metrics(const struct qd_request_context *context)
{
    return begin(context, "text/plain; version=0.0.4; charset=utf-8", print_metrics);
}
