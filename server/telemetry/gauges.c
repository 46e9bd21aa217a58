#include "server/telemetry/gauges.h"

#include <inttypes.h>

#include "server/base/clock.h"
#include "server/base/version.h"
#include "server/telemetry/prometheus.h"

/*    name, value, help */
#define GAUGE_LIST(X)                                                                              \
    X("quantd_queue_length", gauges->queue.used, "Requests that wait for a worker.")               \
    X("quantd_queue_length_max", gauges->queue.max,                                                \
      "The most requests that may wait for a worker (--max-queue).")                               \
    X("quantd_workers_busy", gauges->workers.used, "Workers that compute or load something now.")  \
    X("quantd_workers", gauges->workers.max, "Worker threads (--threads).")                        \
    X("quantd_inflight_bytes", gauges->inflight.used,                                              \
      "Memory of requests: bodies, tensors and answers.")                                          \
    X("quantd_inflight_kept_bytes", gauges->inflight_kept,                                         \
      "Memory of earlier requests that is kept for later ones, and freed when the bound requires " \
      "it.")                                                                                       \
    X("quantd_inflight_bytes_max", gauges->inflight.max,                                           \
      "The most memory of earlier and current requests together (--max-inflight-bytes).")          \
    X("quantd_model_bytes", gauges->models.used,                                                   \
      "Memory of loaded models and of loads in progress.")                                         \
    X("quantd_model_kept_bytes", gauges->models_kept,                                              \
      "Memory of earlier loads that is kept for later ones, and freed when the bound requires "    \
      "it.")                                                                                       \
    X("quantd_model_bytes_max", gauges->models.max,                                                \
      "The most memory of models and loads, with what is kept (--max-model-bytes).")               \
    X("quantd_models_loaded", gauges->model_count,                                                 \
      "Versions of loaded models that are in service, or that requests still use.")                \
    X("quantd_loads_waiting", gauges->loads.used, "Load calls that wait for their load to begin.") \
    X("quantd_loads_waiting_max", gauges->loads.max, "The most load calls that may wait.")         \
    X("quantd_shared_memory_regions", gauges->regions.used,                                        \
      "Regions of shared memory, also unregistered ones that requests still use.")                 \
    X("quantd_shared_memory_regions_max", gauges->regions.max,                                     \
      "The most regions that may be registered; 0 without --allow-shared-memory.")                 \
    X("quantd_shared_memory_bytes", gauges->region_bytes.used,                                     \
      "The size of all regions of shared memory.")                                                 \
    X("quantd_shared_memory_bytes_max", gauges->region_bytes.max,                                  \
      "The most bytes of all regions of shared memory (--max-shared-bytes).")                      \
    X("process_resident_memory_bytes", gauges->process.resident_bytes,                             \
      "Memory of the process that is in RAM.")                                                     \
    X("process_virtual_memory_bytes", gauges->process.virtual_bytes,                               \
      "Size of the address space of the process.")                                                 \
    X("process_open_fds", gauges->process.files, "Open file descriptors.")                         \
    X("process_max_fds", gauges->process.files_max,                                                \
      "The most file descriptors that the process may open.")

static void print_values(const struct qd_gauges *gauges, struct qd_text *text)
{
#define X(name, value, help)                       \
    qd_prometheus_type(text, name, "gauge", help); \
    qd_text_format(text, "%s %" PRIu64 "\n", name, value);
    GAUGE_LIST(X)
#undef X
}

static void print_connections(const struct qd_gauges *gauges, struct qd_text *text)
{
    uint64_t all = 0;
    for (size_t i = 0; i < gauges->io_thread_count; i++)
        all += gauges->connections[i];
    qd_prometheus_type(text, "quantd_connections", "gauge", "Open connections.");
    qd_text_format(text, "quantd_connections %" PRIu64 "\n", all);
    qd_prometheus_type(text, "quantd_io_thread_connections", "gauge",
                       "Open connections of each I/O thread (--io-threads).");
    for (size_t i = 0; i < gauges->io_thread_count; i++) {
        qd_text_format(text, "quantd_io_thread_connections{thread=\"%zu\"} %" PRIu64 "\n", i,
                       gauges->connections[i]);
    }
}

static void print_listeners(const struct qd_gauges *gauges, struct qd_text *text)
{
    static const char *const names[] = {"quantd_listener_connections",
                                        "quantd_listener_connections_max",
                                        "quantd_listener_connections_refused_total"};
    static const char *const helps[] = {
        "Open connections of each listening address, without refused ones.",
        "The most open connections of each listening address (--max-connections).",
        "Connections refused because of --max-connections or --max-connections-per-address."};
    for (unsigned family = 0; family < 3; family++) {
        qd_prometheus_type(text, names[family], family < 2 ? "gauge" : "counter", helps[family]);
        for (size_t at = 0; at < gauges->listener_count; at++) {
            const struct qd_listener_gauge *listener = &gauges->listeners[at];
            const uint64_t values[] = {listener->connections.used, listener->connections.max,
                                       listener->refused};
            char label[2 * QD_LISTENER_NAME_BYTES];
            qd_prometheus_label(listener->name, label);
            qd_text_format(text, "%s{listener=\"%s\"} %" PRIu64 "\n", names[family], label,
                           values[family]);
        }
    }
}

static void print_others(const struct qd_gauges *gauges, struct qd_text *text)
{
    qd_prometheus_type(
        text, "quantd_log_lines_dropped_total", "counter",
        "Log lines that were lost, because the reader was too slow or the disk full.");
    qd_text_format(text,
                   "quantd_log_lines_dropped_total{log=\"access\"} %" PRIu64
                   "\nquantd_log_lines_dropped_total{log=\"events\"} %" PRIu64 "\n",
                   gauges->access_lines_dropped, gauges->event_lines_dropped);
    qd_prometheus_type(text, "process_cpu_seconds_total", "counter",
                       "CPU time of the process, user and system, in seconds.");
    qd_text_format(text, "process_cpu_seconds_total %" PRIu64 ".%09" PRIu64 "\n",
                   gauges->process.cpu_ns / QD_NS_PER_S, gauges->process.cpu_ns % QD_NS_PER_S);
    qd_prometheus_type(text, "quantd_info", "gauge",
                       "The version, the kernels' tier, the backend of convolutions and OpenBLAS' "
                       "core, as labels.");
    qd_text_format(text,
                   "quantd_info{version=\"%s\",cpu=\"%s\",gemm=\"%s\",openblas_core=\"%s\"} 1\n",
                   QD_VERSION, gauges->cpu_tier, gauges->gemm, gauges->blas_core);
}

void qd_gauges_print(const struct qd_gauges *gauges, struct qd_text *text)
{
    print_values(gauges, text);
    print_connections(gauges, text);
    print_listeners(gauges, text);
    print_others(gauges, text);
}
