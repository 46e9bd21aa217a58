#include "tests/unit/work/service.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "server/base/clock.h"

struct service service;

void service_start(unsigned thread_count, size_t bytes_max)
{
    struct qk_error error;
    memset(&service, 0, sizeof(service));
    cr_assert_eq(qk_kernels_create("auto", "auto", false, thread_count, &service.kernels, &error),
                 QK_OK, "%s", error.text);
    service.loop = qd_loop_create();
    const struct qd_scheduler_settings settings = {
        .thread_count = thread_count, .queue_max = REQUEST_COUNT_MAX, .loop_computes = true};
    service.tools = (struct qd_infer_tools){
        .kernels = service.kernels,
        .scheduler = qd_scheduler_create(&settings),
        .thread_count = thread_count,
        .compute_timeout_ns = 3600 * QD_NS_PER_S, /* even if the process is stopped meanwhile */
        .max_body_bytes = 64 << 20,
    };
    service.memory = qd_memory_create(bytes_max);
    service.model_memory = qd_memory_create(64 << 20);
    service.metrics = qd_metrics_create();
    service.models = qd_models_create(service.metrics);
}

static void on_answered(struct qd_request *request)
{
    if (request->error.status != QD_OK)
        qd_request_refuse(request); /* as the listener does */
    cr_assert_eq(request->state, QD_REPLYING);
    for (size_t i = 0; i < service.request_count; i++)
        if (service.requests[i] == request)
            service.order[service.answered_count] = i;
    if (++service.answered_count == service.request_count)
        qd_loop_stop(service.loop);
}

struct qd_request *service_request(const char *model)
{
    struct qd_request *request = qd_request_create(service.memory, qd_clock_ns());
    service.requests[service.request_count++] = request;
    cr_assert_eq(qd_models_find(service.models, model, NULL, &request->model, &request->error),
                 QD_OK, "%s", request->error.text);
    request->oip.message.signature = &request->model->signature;
    request->loop = service.loop;
    request->on_answered = on_answered;
    return request;
}

/* Submits a request like the server. */
void service_submit(struct qd_request *request, const void *body, size_t bytes)
{
    cr_assert_eq(qd_request_reserve_body(request, bytes), QD_OK);
    qd_request_take_body(request, body, bytes, bytes);
    if (request->error.status == QD_OK && qd_infer_submit(&service.tools, request))
        return;
    request->on_answered(request);
}

/* ---- Busy workers ------------------------------------------------------------------------- */

enum { HELD_COUNT_MAX = 8 };

static struct qd_job held[HELD_COUNT_MAX];
static atomic_uint held_count; /* how many workers are held */
static atomic_bool gate_open;

static bool wait_for_gate(struct qd_job *job)
{
    (void)job;
    atomic_fetch_add(&held_count, 1);
    while (!atomic_load(&gate_open))
        usleep(1000);
    return false;
}

static void ignore(struct qd_job *job)
{
    (void)job;
}

void service_hold_workers(void)
{
    static const struct qd_job_code code = {.start = wait_for_gate, .done = ignore};
    cr_assert_leq(service.tools.thread_count, HELD_COUNT_MAX);
    atomic_store(&gate_open, false);
    atomic_store(&held_count, 0);
    for (unsigned i = 0; i < service.tools.thread_count; i++)
        cr_assert(qd_scheduler_submit(service.tools.scheduler, service.loop, &held[i], &code, 0,
                                      UINT64_MAX));
    while (atomic_load(&held_count) < service.tools.thread_count)
        usleep(1000);
}

void service_let_workers_go(void)
{
    atomic_store(&gate_open, true);
}

/* ---- The loop ----------------------------------------------------------------------------- */

/* Runs the loop like the listener: the loop helps before it sleeps. */
void service_run(void)
{
    while (service.answered_count < service.request_count) {
        while (qd_scheduler_on_idle(service.tools.scheduler, service.loop)) {
        }
        if (service.answered_count < service.request_count)
            qd_loop_run(service.loop); /* otherwise it may only notice an earlier stop */
    }
}

void service_forget(void)
{
    for (size_t i = 0; i < service.request_count; i++)
        qd_request_destroy(service.requests[i]);
    service.request_count = service.answered_count = 0;
}

void service_end(void)
{
    service_forget();
    cr_assert_eq(qd_memory_used(service.memory), 0);
    qd_models_destroy(service.models);
    cr_assert_eq(qd_memory_used(service.model_memory), 0);
    qd_memory_destroy(service.model_memory);
    qd_memory_destroy(service.memory);
    qd_scheduler_destroy(service.tools.scheduler);
    qd_loop_destroy(service.loop);
    qd_metrics_destroy(service.metrics);
    qk_kernels_destroy(service.kernels);
}
