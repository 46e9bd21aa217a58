#include "server/telemetry/gauges.h"

#include <inttypes.h>

#include "server/base/clock.h"
#include "server/base/version.h"
#include "server/telemetry/prometheus.h"

/*    name, value, help */
#define GAUGE_LIST(X)                                                                         \
    X("quantd_queue_length", gauges->queue.used, "Requests waiting for a worker.")            \
    X("quantd_queue_length_max", gauges->queue.max, "Its bound, --max-queue.")                \
    X("quantd_workers_busy", gauges->workers.used, "Workers that have something to do.")      \
    X("quantd_workers", gauges->workers.max, "All workers, --threads.")                       \
    X("quantd_inflight_bytes", gauges->inflight.used,                                         \
      "Memory held by requests: bodies, tensors, answers.")                                   \
    X("quantd_inflight_kept_bytes", gauges->inflight_kept,                                    \
      "Memory of requests that are over, for the next: given up where the bound needs it.")   \
    X("quantd_inflight_bytes_max", gauges->inflight.max,                                      \
      "The bound of both, --max-inflight-bytes.")                                             \
    X("quantd_model_bytes", gauges->models.used,                                              \
      "Memory held by loaded models, and by loads under way.")                                \
    X("quantd_model_kept_bytes", gauges->models_kept,                                         \
      "Memory of loads that are over, for the next: given up where the bound needs it.")      \
    X("quantd_model_bytes_max", gauges->models.max, "The bound of both, --max-model-bytes.")  \
    X("quantd_models_loaded", gauges->model_count,                                            \
      "Versions of loaded models that are in service or still run.")                          \
    X("quantd_loads_waiting", gauges->loads.used, "Calls that wait for their load to begin.") \
    X("quantd_loads_waiting_max", gauges->loads.max, "Their bound.")                          \
    X("quantd_shared_memory_regions", gauges->regions.used,                                   \
      "Regions of shared memory, with those that only requests still use.")                   \
    X("quantd_shared_memory_regions_max", gauges->regions.max,                                \
      "The bound of those registered; 0 without --allow-shared-memory.")                      \
    X("quantd_shared_memory_bytes", gauges->region_bytes.used, "Bytes of all regions.")       \
    X("quantd_shared_memory_bytes_max", gauges->region_bytes.max,                             \
      "Their bound, --max-shared-bytes.")                                                     \
    X("process_resident_memory_bytes", gauges->process.resident_bytes, "Memory in RAM.")      \
    X("process_virtual_memory_bytes", gauges->process.virtual_bytes, "Address space.")        \
    X("process_open_fds", gauges->process.files, "Open file descriptors.")                    \
    X("process_max_fds", gauges->process.files_max, "Their bound, as the server raised it.")

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
                       "The same, by the thread that moves their bytes (--io-threads).");
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
    static const char *const helps[] = {"Open connections that were admitted, by address.",
                                        "Their bound, --max-connections.",
                                        "Connections beyond that, or beyond their client's share."};
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
    qd_prometheus_type(text, "quantd_log_lines_dropped_total", "counter",
                       "Lines that nobody took in time, or that a full disk had no room for.");
    qd_text_format(text,
                   "quantd_log_lines_dropped_total{log=\"access\"} %" PRIu64
                   "\nquantd_log_lines_dropped_total{log=\"events\"} %" PRIu64 "\n",
                   gauges->access_lines_dropped, gauges->event_lines_dropped);
    qd_prometheus_type(text, "process_cpu_seconds_total", "counter", "User and system time.");
    qd_text_format(text, "process_cpu_seconds_total %" PRIu64 ".%09" PRIu64 "\n",
                   gauges->process.cpu_ns / QD_NS_PER_S, gauges->process.cpu_ns % QD_NS_PER_S);
    qd_prometheus_type(text, "quantd_info", "gauge", "What runs.");
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
