#include "server/infer.h"

#include "server/clock.h"
#include "server/limits.h"
#include "server/oip_encode.h"
#include "server/refusal.h"

static void *alloc(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

static enum qd_status refuse_memory(struct qd_request *request, const char *what)
{
    return qd_refuse_memory(&request->arena, what, &request->error);
}

static enum qd_status fail_kernel(struct qd_request *request, const struct qk_error *error)
{
    switch (error->status) {
    case QK_NO_MEMORY:
        return refuse_memory(request, "the operator");
    case QK_INVALID:
        return qd_fail(&request->error, QD_INVALID, "%s", error->text);
    default:
        return qd_fail(&request->error, QD_INTERNAL, "%s", error->text);
    }
}

/* To the end of the wait; the parameter `timeout` bounds it. */
static enum qd_status decode(struct qd_request *request)
{
    enum qd_status status =
        qd_oip_decode(&request->message, &request->arena, &request->infer, &request->error);
    uint64_t waited_us = request->spent_ns[QD_QUEUED] / QD_NS_PER_US;
    if (status == QD_OK && request->infer.timeout_us > 0 && waited_us > request->infer.timeout_us) {
        return qd_fail(&request->error, QD_UNAVAILABLE,
                       "timeout: it waited %llu us for a worker, and parameters.timeout allows "
                       "%llu",
                       (unsigned long long)waited_us,
                       (unsigned long long)request->infer.timeout_us);
    }
    return status;
}

static enum qd_status take_outputs(struct qd_request *request)
{
    const struct qk_plan *plan = &request->plan;
    size_t left = QD_ANSWER_BYTES_MAX;
    for (size_t i = 0; i < plan->output_count; i++) {
        const size_t bytes = plan->output_bytes[i];
        if (bytes > left) {
            return qd_fail(&request->error, QD_TOO_LARGE,
                           "the output: expected at most %zu bytes, which clients can read, got "
                           "%zu",
                           left, bytes);
        }
        left -= bytes;
        request->outputs[i] = qd_arena_alloc(&request->arena, bytes);
        if (request->outputs[i] == NULL)
            return refuse_memory(request, "the output");
    }
    return QD_OK;
}

/* From a decoded call to an instance, which is not packed yet, its plan, and room for what comes
 * out. */
static enum qd_status plan(struct qd_request *request)
{
    const struct qk_call *call = &request->infer.call;
    struct qk_error error = {.status = QK_OK};
    struct qk_memory memory = {alloc, &request->arena};
    enum qk_status status = qk_prepare(request->kernels, call, memory, &request->instance, &error);
    if (status == QK_OK)
        status = qk_plan(request->instance, call->inputs, memory, &request->plan, &error);
    if (status != QK_OK)
        return fail_kernel(request, &error);
    for (size_t i = 0; i < call->op->input_count; i++)
        request->inputs[i] = call->inputs[i].data;
    return take_outputs(request);
}

/* Slots with a workspace each; one is enough. */
static enum qd_status make_slots(struct qd_request *request, size_t count)
{
    struct qd_job *job = &request->job;
    struct qd_slot *slots = qd_arena_calloc(&request->arena, count, sizeof(*slots));
    size_t made = 0;
    while (slots != NULL && made < count) {
        slots[made].workspace = qd_arena_alloc(&request->arena, request->plan.workspace_bytes);
        if (slots[made].workspace == NULL)
            break;
        made++;
    }
    if (made == 0)
        return refuse_memory(request, "the workspace");
    job->slots = slots;
    job->slot_count = made;
    return QD_OK;
}

static bool is_small(const struct qk_plan *plan)
{
    uint64_t cost_ns;
    return plan->unit_count == 0 ||
           (!__builtin_mul_overflow(plan->unit_count, plan->unit_cost_ns, &cost_ns) &&
            cost_ns <= QD_WHOLE_NS);
}

static void encode(struct qd_request *request)
{
    qd_request_advance(request, QD_ENCODING);
    struct qk_plan *plan = &request->plan;
    for (size_t i = 0; i < plan->output_count; i++)
        plan->outputs[i].data = request->outputs[i];
    struct qd_oip_stages stages = {
        .receive_ns = request->spent_ns[QD_READING],
        .queue_ns = request->spent_ns[QD_QUEUED],
        .decode_ns = request->spent_ns[QD_DECODING],
        .compute_ns = request->spent_ns[QD_RUNNING],
    };
    enum qd_status status =
        qd_oip_encode_infer(&request->infer, plan->kernel, plan->outputs, &stages, &request->arena,
                            &request->answer, &request->error);
    if (status == QD_OK)
        qd_request_reply(request);
}

static struct qd_request *request_of(struct qd_job *job)
{
    return (struct qd_request *)((char *)job - offsetof(struct qd_request, job));
}

static void pack(struct qd_request *request)
{
    struct qk_instance *instance = request->instance;
    qk_pack(instance, 0, instance->pack_unit_count);
}

static void compute(const struct qd_request *request, void *workspace, size_t begin, size_t end)
{
    qk_run(&request->plan, request->inputs, request->outputs, workspace, begin, end);
}

static bool start(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    qd_request_advance(request, QD_DECODING);
    if (decode(request) != QD_OK || plan(request) != QD_OK)
        return true;
    const struct qk_plan *made = &request->plan;
    if (!is_small(made)) {
        size_t slots =
            made->unit_count < request->thread_count ? made->unit_count : request->thread_count;
        uint64_t chunk = QD_CHUNK_NS / (made->unit_cost_ns + 1);
        job->units = made->unit_count;
        job->chunk_units = chunk > 0 ? (size_t)chunk : 1;
        job->deadline_ns = qd_clock_ns() + request->compute_timeout_ns;
        if (make_slots(request, slots) != QD_OK)
            return true;
        qd_request_advance(request, QD_RUNNING);
        pack(request);
        qd_request_advance(request, QD_QUEUED);
        return false;
    }
    void *workspace = qd_arena_alloc(&request->arena, made->workspace_bytes);
    if (workspace == NULL) {
        refuse_memory(request, "the workspace");
        return true;
    }
    qd_request_advance(request, QD_RUNNING);
    pack(request);
    compute(request, workspace, 0, made->unit_count);
    encode(request);
    return true;
}

static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    compute(request_of(job), workspace, begin, end);
}

static void on_running(struct qd_job *job, bool running)
{
    qd_request_advance(request_of(job), running ? QD_RUNNING : QD_QUEUED);
}

static void finish(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (atomic_load(&job->expired)) {
        qd_fail(&request->error, QD_UNAVAILABLE,
                "the computation: expected to end within %llu ms (--compute-timeout); it did not",
                (unsigned long long)(request->compute_timeout_ns / QD_NS_PER_MS));
        return;
    }
    encode(request);
}

static void cancel(struct qd_job *job)
{
    qd_fail(&request_of(job)->error, QD_UNAVAILABLE, "the server shuts down");
}

static void done(struct qd_job *job)
{
    struct qd_request *request = request_of(job);
    if (request->error.status != QD_OK)
        qd_request_refuse(request);
    request->on_answered(request);
}

bool qd_infer_try_room(const struct qd_scheduler *scheduler, struct qd_request *request)
{
    if (!qd_scheduler_has_room(scheduler)) {
        qd_fail(&request->error, QD_UNAVAILABLE,
                "the queue is full (--max-queue): %zu requests wait; try again later",
                qd_scheduler_queue_count(scheduler));
        return false;
    }
    return true;
}

bool qd_infer_submit(struct qd_scheduler *scheduler, struct qd_request *request)
{
    static const struct qd_job_code code = {start, run, on_running, finish, cancel, done};
    if (!qd_infer_try_room(scheduler, request))
        return false;
    request->message.body = request->body;
    request->message.body_bytes = (size_t)request->body_bytes;
    qd_request_advance(request, QD_QUEUED);
    return qd_scheduler_submit(scheduler, &request->job, &code);
}
