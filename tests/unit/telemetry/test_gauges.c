/* Bounds and how much of each is in use, in Prometheus's format. */
#include "server/base/version.h"
#include "server/telemetry/gauges.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

/* Returns the printed gauges. The caller frees the text. */
static char *print(const struct qd_gauges *gauges)
{
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 16 << 20);
    qd_text_init(&text, &scratch.arena);
    qd_gauges_print(gauges, &text);
    return scratch_take_text(&scratch, &text);
}

Test(gauges, each_bound_and_what_is_used_of_it)
{
    static const struct qd_listener_gauge listeners[] = {
        {"http://127.0.0.1:8000", {1, 2}, 27},
        {"unix:/a\"b\\c\nd\xff", {3, 4}, 28},
    };
    static const uint64_t connections[] = {17, 0, 12};
    static const struct qd_gauges gauges = {
        .cpu_tier = "scalar",
        .gemm = "blas",
        .blas_core = "Haswell",
        .queue = {5, 6},
        .workers = {7, 8},
        .inflight = {9, 10},
        .models = {11, 12},
        .loads = {13, 14},
        .inflight_kept = 15,
        .models_kept = 16,
        .connections = connections,
        .io_thread_count = 3,
        .model_count = 18,
        .listeners = listeners,
        .listener_count = 2,
        .access_lines_dropped = 25,
        .event_lines_dropped = 26,
        .process = {.cpu_ns = 19000000020,
                    .resident_bytes = 21,
                    .virtual_bytes = 22,
                    .files = 23,
                    .files_max = 24},
    };
    char *text = print(&gauges);
    assert_line(text, "quantd_queue_length 5");
    assert_line(text, "quantd_queue_length_max 6");
    assert_line(text, "quantd_workers_busy 7");
    assert_line(text, "quantd_workers 8");
    assert_line(text, "quantd_inflight_bytes 9");
    assert_line(text, "quantd_inflight_bytes_max 10");
    assert_line(text, "quantd_model_bytes 11");
    assert_line(text, "quantd_model_bytes_max 12");
    assert_line(text, "quantd_loads_waiting 13");
    assert_line(text, "quantd_loads_waiting_max 14");
    assert_line(text, "quantd_inflight_kept_bytes 15");
    assert_line(text, "quantd_model_kept_bytes 16");
    assert_line(text, "quantd_connections 29");
    assert_line(text, "quantd_io_thread_connections{thread=\"0\"} 17");
    assert_line(text, "quantd_io_thread_connections{thread=\"1\"} 0");
    assert_line(text, "quantd_io_thread_connections{thread=\"2\"} 12");
    assert_line(text, "quantd_models_loaded 18");
    assert_line(text, "quantd_log_lines_dropped_total{log=\"access\"} 25");
    assert_line(text, "quantd_log_lines_dropped_total{log=\"events\"} 26");
    assert_line(text, "process_cpu_seconds_total 19.000000020");
    assert_line(text, "process_resident_memory_bytes 21");
    assert_line(text, "process_virtual_memory_bytes 22");
    assert_line(text, "process_open_fds 23");
    assert_line(text, "process_max_fds 24");
    assert_line(text, "quantd_listener_connections{listener=\"http://127.0.0.1:8000\"} 1");
    assert_line(text, "quantd_listener_connections_max{listener=\"http://127.0.0.1:8000\"} 2");
    assert_line(text, "quantd_listener_connections_refused_total"
                      "{listener=\"http://127.0.0.1:8000\"} 27");
    assert_line(text, "# TYPE quantd_listener_connections_refused_total counter");
    assert_line(text, "quantd_listener_connections{listener=\"unix:/a\\\"b\\\\c\\nd?\"} 3");
    assert_line(text, "quantd_info{version=\"" QD_VERSION
                      "\",cpu=\"scalar\",gemm=\"blas\",openblas_core=\"Haswell\"} 1");
    cr_assert_eq(text[strlen(text) - 1], '\n');
    free(text);
}

Test(gauges, what_the_system_counts)
{
    struct qd_process before, after;
    qd_process_read(&before);
    cr_assert_gt(before.files, 2);
    cr_assert_gt(before.files_max, before.files);
    cr_assert_gt(before.resident_bytes, 1 << 20);
    cr_assert_geq(before.virtual_bytes, before.resident_bytes);
    int fd = open("/dev/null", O_RDONLY);
    cr_assert_geq(fd, 0);
    for (volatile uint64_t i = 0; i < 50000000; i++) {
    }
    qd_process_read(&after);
    cr_assert_eq(after.files, before.files + 1);
    cr_assert_gt(after.cpu_ns, before.cpu_ns);
    close(fd);
}
