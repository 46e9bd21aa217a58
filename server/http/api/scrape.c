#include "server/http/api/handlers.h"

#include <stdlib.h>

#include "server/base/limits.h"
#include "server/memory/arena.h"
#include "server/oip/regions.h"
#include "server/telemetry/gauges.h"
#include "server/telemetry/log.h"

struct scrape {
    struct qd_stream stream; /* first, so that a pointer to it is also one to the scrape */
    struct qd_server *server;
    bool is_reserved; /* allocated by malloc, as one of QD_SCRAPE_RESERVED_COUNT, and not in the
                         request's arena */
    struct qd_metrics_cursor cursor;
    bool counters_are_over; /* all units of counters (metrics.h) are printed; the gauges follow */
    struct qd_gauges gauges;
    struct qd_listener_gauge listeners[QD_LISTEN_COUNT_MAX];
    uint64_t connections[QD_IO_THREAD_COUNT_MAX];
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

/* Begins the request's stream and its answer, about all models or about the request's. Returns NULL
 * if there is no memory. */
static struct scrape *begin(const struct qd_request_context *context, const char *content_type,
                            bool (*print)(struct qd_stream *stream, struct qd_text *text))
{
    struct qd_request *request = context->request;
    const struct qd_signature *of = request->model == NULL ? NULL : &request->model->signature;
    struct scrape *scrape = take_reserved(context->server);
    const bool is_reserved = scrape != NULL;
    if (!is_reserved)
        scrape = qd_arena_alloc(&request->arena, sizeof(*scrape));
    if (scrape == NULL) {
        qd_refuse_memory(&request->arena, "the answer", &request->error);
        return NULL;
    }
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
                                context->path->version == NULL ? NULL : &of->version)) {
        qd_refuse_memory(&request->arena, "the answer", &request->error);
        return NULL;
    }
    request->answer =
        (struct qd_answer){.http_status = qd_status_http(QD_OK), .content_type = content_type};
    return scrape;
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
    begin(context, "application/json", print_stats);
    return context->request->error.status;
}

/* ---- Metrics ------------------------------------------------------------------------------ */

static struct qd_usage memory_usage(struct qd_memory *memory)
{
    return (struct qd_usage){qd_memory_used(memory), qd_memory_max(memory)};
}

static void read_gauges(struct scrape *scrape)
{
    const struct qd_server *server = scrape->server;
    struct qd_gauges *gauges = &scrape->gauges;
    *gauges = (struct qd_gauges){
        .cpu_tier = qk_kernels_tier(server->tools.kernels),
        .gemm = qk_kernels_gemm(server->tools.kernels),
        .blas_core = qk_kernels_blas_core(server->tools.kernels),
        .queue = qd_scheduler_queue(server->tools.scheduler),
        .workers = qd_scheduler_workers(server->tools.scheduler),
        .inflight = memory_usage(server->memory),
        .models = memory_usage(server->model_memory),
        .loads = {qd_loader_waiting_count(server->loader), QD_LOADER_WAITING_MAX},
        .inflight_kept = qd_memory_kept(server->memory),
        .models_kept = qd_memory_kept(server->model_memory),
        .model_count = qd_models_loaded_count(server->models),
        .connections = scrape->connections,
        .listeners = scrape->listeners,
        .event_lines_dropped = qd_log_dropped(),
    };
    if (server->regions != NULL)
        qd_regions_read_usage(server->regions, &gauges->regions, &gauges->region_bytes);
    if (server->access_log.file != NULL)
        gauges->access_lines_dropped = qd_log_file_dropped(server->access_log.file);
    if (server->listeners != NULL) {
        gauges->io_thread_count = qd_listeners_connections(server->listeners, scrape->connections);
        gauges->listener_count = qd_listeners_gauges(server->listeners, scrape->listeners);
    }
    qd_process_read(&gauges->process);
}

static bool print_metrics(struct qd_stream *stream, struct qd_text *text)
{
    struct scrape *scrape = (struct scrape *)stream;
    if (!scrape->counters_are_over) {
        scrape->counters_are_over = !qd_metrics_print_next(&scrape->cursor, text);
        return true;
    }
    qd_gauges_print(&scrape->gauges, text);
    return text->failed;
}

enum qd_status qd_answer_metrics(const struct qd_request_context *context)
{
    struct scrape *scrape =
        begin(context, "text/plain; version=0.0.4; charset=utf-8", print_metrics);
    if (scrape != NULL)
        read_gauges(scrape);
    return context->request->error.status;
}
