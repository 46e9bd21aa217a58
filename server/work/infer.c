#include "server/work/infer.h"

#include <string.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/json/reader.h"
#include "server/memory/arena.h"
#include "server/memory/text.h"
#include "server/oip/encode.h"
#include "server/oip/shm_tensors.h"
#include "server/work/inference.h"

enum {
    /* Bounds of work that takes some 10 us: JSON to read, numbers to print, constants to look at,
     * nodes to plan. */
    INLINE_JSON_BYTES_MAX = 4 << 10,
    INLINE_NUMBERS_MAX = 512,
    INLINE_CONSTANT_BYTES_MAX = 256 << 10,
    INLINE_NODES_MAX = 8,
    /* JSON that takes some 100 us with its numbers. It is read in one go, without a phase of its
     * own. */
    SHORT_JSON_BYTES = 32 << 10,
    READ_STEP_NS = 100000, /* for QD_JSON_PIECE_BYTES, sometimes less or more (reader.h) */
};

static struct qd_inference *inference_of(struct qd_job *job)
{
    return (struct qd_inference *)((char *)job - offsetof(struct qd_inference, job));
}

static enum qd_status refuse_memory(struct qd_inference *inference, const char *what)
{
    return qd_refuse_memory(inference->arena, what, inference->error);
}

static enum qd_status fail_kernel(struct qd_inference *inference, const struct qk_error *error)
{
    if (error->status == QK_NO_MEMORY)
        return refuse_memory(inference, "the operator");
    return qd_fail(inference->error, error->status == QK_INVALID ? QD_INVALID : QD_INTERNAL, "%s",
                   error->text);
}

/* ---- Expected memory ---------------------------------------------------------------------- */

enum {
    GROWTH = 4,          /* from 8 bits to FP32, or from JSON to JSON with the numbers between */
    DEFLATED_RATIO = 16, /* of a body that does not tell its inflated size */
    SMALL_PART = 256,    /* small is 1/256 of the bound: that many fit at once, unchecked */
};

/* Returns how many bytes the body has after inflating, as far as can be known. Gzip tells the size,
 * but only that of its last member, and a client may lie. So the result is at least the body's
 * size, and at most what a body of that size can become. */
static uint64_t plain_bytes(const struct qd_inference *inference)
{
    const struct qd_request *request = inference->request;
    const size_t bytes = request->oip.message.body_bytes;
    uint64_t plain = bytes * (uint64_t)DEFLATED_RATIO;
    if (request->oip.coding == QD_CODING_IDENTITY)
        return bytes;
    if (request->oip.coding == QD_CODING_GZIP && bytes > sizeof(uint32_t)) {
        uint32_t isize; /* little-endian, as this machine */
        memcpy(&isize, request->oip.message.body + bytes - sizeof(isize), sizeof(isize));
        const uint64_t plain_max = bytes * (uint64_t)QD_INFLATE_RATIO_MAX;
        plain = isize < plain_max ? isize : plain_max;
        plain = plain > bytes ? plain : bytes;
    }
    return plain < inference->tools->max_body_bytes ? plain : inference->tools->max_body_bytes;
}

/* Returns about how many bytes the inference will take in addition to its body. */
static size_t expected_bytes(const struct qd_inference *inference)
{
    const unsigned times =
        inference->request->oip.coding == QD_CODING_IDENTITY ? GROWTH : GROWTH + 1;
    const uint64_t plain = plain_bytes(inference);
    return plain > SIZE_MAX / times ? SIZE_MAX : (size_t)plain * times;
}

bool qd_inference_is_small(const struct qd_inference *inference)
{
    return expected_bytes(inference) <= qd_memory_max(inference->arena->memory) / SMALL_PART;
}

/* The may_start of all inferences that are not small. It depends on the memory that the inference
 * is expected to take (memory/admission.h). From the start on, the body is not revocable. An
 * inference that has already lost its body starts, and is refused then. */
static bool may_start(struct qd_job *job, bool others_wait)
{
    const struct qd_inference *inference = inference_of(job);
    struct qd_arena *arena = inference->arena;
    char *body = inference->request->body.bytes;
    if (!qd_arena_has_lost(arena, body) &&
        (others_wait || !qd_arena_try_begin(arena, expected_bytes(inference))))
        return false;
    qd_arena_set_reservation(arena, body, QD_RESERVATION_FIRM);
    return true;
}

/* ---- Phases ------------------------------------------------------------------------------- */

typedef void run_units(struct qd_job *job, void *workspace, size_t begin, size_t end);

/* Sets the job's next phase. Returns true, as a `then` does that has set a phase. */
static bool set_phase(struct qd_inference *inference, run_units *run,
                      bool (*then)(struct qd_job *job), size_t unit_count, uint64_t unit_cost_ns,
                      size_t slot_count)
{
    inference->job.phase = (struct qd_phase){
        .run = run,
        .then = then,
        .unit_count = unit_count,
        .unit_cost_ns = unit_cost_ns,
        .ahead_ns = inference->ahead_ns,
        .slots = inference->slots,
        .slot_count = slot_count,
    };
    return true;
}

/* Returns how many workers may share the units if they have to be woken for it. */
static size_t shares(const struct qd_inference *inference, size_t unit_count, uint64_t unit_cost_ns)
{
    return qd_scheduler_shares(unit_count, unit_cost_ns, inference->tools->thread_count);
}

/* Like shares, for workers that may be awake because they have helped with another phase. */
static size_t awake_shares(const struct qd_inference *inference, size_t unit_count,
                           uint64_t unit_cost_ns)
{
    return qd_scheduler_awake_shares(unit_count, unit_cost_ns, inference->tools->thread_count);
}

/* Sets the request's state. Only this worker has the request. */
static void enter(struct qd_inference *inference, enum qd_request_state state)
{
    inference->doing = state;
    if (inference->request->state != state)
        qd_request_advance(inference->request, state);
}

/* ---- 1. Reading --------------------------------------------------------------------------- */

/* Returns how many bytes of a body of this length are JSON: all of them if the header that tells
 * this is absent or wrong. */
static size_t json_bytes(const struct qd_request *request, size_t body_bytes)
{
    const struct qd_oip_message *message = &request->oip.message;
    return message->json_bytes_header == NULL || message->json_bytes > body_bytes
               ? body_bytes
               : (size_t)message->json_bytes;
}

static bool waited_too_long(const struct qd_request *request)
{
    return request->oip.asked.timeout_us > 0 &&
           request->times.spent_ns[QD_QUEUED] / QD_NS_PER_US > request->oip.asked.timeout_us;
}

static enum qd_status refuse_wait(struct qd_request *request)
{
    return qd_fail_for(
        &request->error, QD_REASON_TIMEOUT, QD_UNAVAILABLE,
        "timeout: it waited %llu us for a worker, and parameters.timeout allows %llu",
        (unsigned long long)(request->times.spent_ns[QD_QUEUED] / QD_NS_PER_US),
        (unsigned long long)request->oip.asked.timeout_us);
}

/* Reads some QD_JSON_PIECE_BYTES. After the last ones, applies what the JSON says about the wait.
 */
static enum qd_status read_step(struct qd_inference *inference)
{
    const enum qd_status status = qd_oip_reader_step(inference->reader, &inference->read);
    if (status != QD_OK || !inference->read)
        return status;
    const uint64_t priority = inference->asked->priority;
    const struct qd_model *model = inference->request->model;
    inference->job.level = priority == 0              ? QD_LEVEL_DEFAULT
                           : priority < QD_LEVEL_LAST ? (unsigned)priority
                                                      : QD_LEVEL_LAST;
    if (model->graph != NULL) /* 0 if no plan for these shapes is kept */
        inference->ahead_ns = qd_plans_compute_ns(model->plans, inference->asked->inputs);
    return waited_too_long(inference->request) ? refuse_wait(inference->request) : QD_OK;
}

static bool plan_all(struct qd_inference *inference);

static bool after_convert(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    return qd_oip_reader_end(inference->reader) == QD_OK && plan_all(inference);
}

static void run_convert(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    qd_oip_reader_convert(inference_of(job)->reader, begin, end);
}

static void run_read(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct qd_inference *inference = inference_of(job);
    (void)workspace;
    for (size_t i = begin; i < end && !inference->read && inference->error->status == QD_OK; i++)
        read_step(inference);
}

static bool convert(struct qd_inference *inference)
{
    const size_t unit_count = qd_oip_reader_unit_count(inference->reader);
    const uint64_t cost_ns = qd_oip_reader_unit_cost_ns(inference->reader);
    return set_phase(inference, run_convert, after_convert, unit_count, cost_ns,
                     shares(inference, unit_count, cost_ns));
}

/* Repeats the phase if reading takes more steps than estimated. */
static bool after_read(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    if (inference->error->status != QD_OK)
        return false;
    return inference->read ? convert(inference) : true;
}

/* Converts at once, too, unless that takes long, as for a large tensor of BOOL whose JSON is short.
 */
static bool read_at_once(struct qd_inference *inference)
{
    while (!inference->read)
        if (read_step(inference) != QD_OK)
            return false;
    const size_t unit_count = qd_oip_reader_unit_count(inference->reader);
    if (unit_count * qd_oip_reader_unit_cost_ns(inference->reader) > READ_STEP_NS)
        return convert(inference);
    qd_oip_reader_convert(inference->reader, 0, unit_count);
    return after_convert(&inference->job);
}

/* Begins to read the body, which is not compressed or already inflated. */
static bool read_json(struct qd_inference *inference)
{
    inference->reader = qd_oip_reader_create(&inference->request->oip.message, inference->arena,
                                             inference->asked, inference->error);
    if (inference->reader == NULL)
        return false;
    const size_t bytes = json_bytes(inference->request, inference->request->oip.message.body_bytes);
    if (bytes <= SHORT_JSON_BYTES)
        return read_at_once(inference);
    return set_phase(inference, run_read, after_read, bytes / QD_JSON_PIECE_BYTES + 1, READ_STEP_NS,
                     1);
}

static void run_inflate(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    for (size_t i = begin; i < end; i++)
        qd_inflater_step(inference_of(job)->inflater);
}

/* Replaces the body by the inflated bytes. */
static bool after_inflate(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    struct qd_request *request = inference->request;
    struct qd_oip_message *message = &request->oip.message;
    if (inference->error->status != QD_OK)
        return false;
    if (!qd_inflater_end(inference->inflater, &message->body, &message->body_bytes))
        return true; /* another phase of steps, as in after_read */
    qd_request_drop_body(request);
    return read_json(inference);
}

/* Begins to inflate the body, which is then read. */
static bool inflate(struct qd_inference *inference)
{
    const struct qd_request *request = inference->request;
    inference->inflater =
        qd_inflater_create(request->oip.coding, request->body.bytes, (size_t)request->body.count,
                           inference->tools->max_body_bytes, inference->arena, inference->error);
    return inference->inflater != NULL &&
           set_phase(inference, run_inflate, after_inflate,
                     qd_inflater_step_count(inference->inflater), QD_COMPRESSION_STEP_NS, 1);
}

static bool start(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    inference->doing = QD_DECODING;
    qd_request_advance_at(inference->request, QD_DECODING, job->started_ns);
    if (qd_request_keep_body(inference->request) != QD_OK)
        return false;
    inference->slots = qd_arena_calloc(inference->arena, inference->tools->thread_count,
                                       sizeof(*inference->slots));
    if (inference->slots == NULL)
        return refuse_memory(inference, "the workspace") == QD_OK;
    return inference->request->oip.coding == QD_CODING_IDENTITY ? read_json(inference)
                                                                : inflate(inference);
}

/* ---- 2. Planning -------------------------------------------------------------------------- */

/* Takes memory for the outputs, and for the tensors between the nodes. */
static enum qd_status take_outputs(struct qd_inference *inference)
{
    const struct qk_graph_plan *plan = inference->plan;
    if (qd_outputs_take(inference->request, plan, inference->outputs, &inference->copied_outputs) !=
        QD_OK)
        return inference->error->status;
    if (plan->scratch_bytes == 0)
        return QD_OK;
    inference->scratch = qd_arena_alloc(inference->arena, plan->scratch_bytes);
    return inference->scratch != NULL ? QD_OK
                                      : refuse_memory(inference, "the intermediate tensors");
}

/* Plans a request that brings constants. Such a request makes a graph of its own, which is not
 * packed yet. */
static enum qk_status plan_own(struct qd_inference *inference, struct qk_error *error)
{
    const struct qk_graph_call *deferred = inference->request->model->deferred;
    struct qk_memory memory = {qd_arena_alloc_any, inference->arena};
    struct qk_instance *instance;
    enum qk_status status =
        deferred != NULL
            ? qd_deferred_prepare(deferred, inference->tools->kernels, inference->asked->inputs,
                                  memory, &inference->graph, error)
            : qk_prepare(inference->tools->kernels, &inference->asked->call, memory, &instance,
                         error);
    if (status == QK_OK && deferred == NULL)
        status = qk_graph_of(instance, memory, &inference->graph, error);
    if (status == QK_OK)
        status = qk_graph_plan(inference->graph, inference->asked->inputs, memory,
                               &inference->own_plan, error);
    inference->plan = &inference->own_plan;
    return status;
}

static enum qk_status plan_loaded(struct qd_inference *inference, struct qk_error *error)
{
    enum qk_status status = qd_plans_pin(inference->request->model->plans, inference->asked->inputs,
                                         inference->arena, &inference->pin, error);
    inference->plan = inference->pin.plan;
    return status;
}

/* Returns the inputs, as bits, whose values are read before any unit runs. */
static uint32_t constant_inputs(const struct qd_inference *inference)
{
    const struct qd_model *model = inference->request->model;
    if (model->deferred != NULL)
        return UINT32_MAX;
    return model->graph == NULL ? ~inference->asked->call.variable : 0;
}

static enum qd_status plan(struct qd_inference *inference)
{
    struct qk_error error = {.status = QK_OK};
    if (qd_shm_tensors_copy_inputs(inference->asked, constant_inputs(inference), inference->arena,
                                   inference->error) != QD_OK)
        return inference->error->status;
    const enum qk_status status = inference->request->model->graph == NULL
                                      ? plan_own(inference, &error)
                                      : plan_loaded(inference, &error);
    if (status != QK_OK)
        return fail_kernel(inference, &error);
    for (size_t i = 0; i < inference->asked->signature->input_count; i++)
        inference->inputs[i] = inference->asked->inputs[i].data;
    return take_outputs(inference);
}

/* Returns how many workers the plan's nodes are worth. A worker is woken once and then helps with
 * one node after the other, so it must be worth waking for all of them together. Nodes that are too
 * short for workers whose caches are far apart are shared by none, because a tensor of which one
 * node is computed by two CPUs, and the next by one, makes the way more often. */
static size_t node_shares(const struct qd_inference *inference)
{
    const struct qk_graph_plan *plan = inference->plan;
    const size_t threads = inference->tools->thread_count;
    size_t wanted = 1, shared_count = 0;
    uint64_t shared_ns = 0;
    for (size_t i = 0; i < plan->node_count; i++) {
        const struct qk_plan *node = &plan->nodes[i].plan;
        const size_t worth = awake_shares(inference, node->unit_count, node->unit_cost_ns);
        wanted = worth > wanted ? worth : wanted;
        shared_ns += worth > 1 ? qd_plan_node_ns(node) : 0;
        shared_count += worth > 1;
    }
    if (shared_count > 1 &&
        shared_ns / shared_count < qd_scheduler_shared_phase_ns(inference->tools->scheduler))
        return 1;
    const size_t most = shares(inference, threads, shared_ns / threads);
    return wanted < most ? wanted : most;
}

/* Makes workspaces for as many workers as any phase is worth, as far as there is memory. One is
 * enough. */
static enum qd_status make_workspaces(struct qd_inference *inference)
{
    const struct qk_graph_plan *plan = inference->plan;
    const size_t prints = qd_oip_unit_count(inference->asked, plan->outputs);
    size_t wanted = shares(inference, prints, qd_oip_unit_ns(inference->asked, plan->outputs));
    size_t bytes = plan->workspace_bytes;
    if (prints > 0 && bytes < QD_OIP_PRINT_BYTES)
        bytes = QD_OIP_PRINT_BYTES;
    inference->workspace_bytes = bytes;
    const size_t nodes = node_shares(inference);
    wanted = nodes > wanted ? nodes : wanted;
    while (inference->slot_count < wanted) {
        void *workspace = qd_arena_alloc(inference->arena, bytes);
        if (workspace == NULL)
            break;
        inference->slots[inference->slot_count++].workspace = workspace;
    }
    return inference->slot_count > 0 ? QD_OK : refuse_memory(inference, "the workspace");
}

/* Sets a phase whose units use the workspaces. */
static bool set_wide_phase(struct qd_inference *inference, run_units *run,
                           bool (*then)(struct qd_job *job), size_t unit_count,
                           uint64_t unit_cost_ns)
{
    const size_t wanted = awake_shares(inference, unit_count, unit_cost_ns);
    return set_phase(inference, run, then, unit_count, unit_cost_ns,
                     wanted < inference->slot_count ? wanted : inference->slot_count);
}

static bool pack(struct qd_inference *inference);

/* Returns whether the loop should begin the computation. Of large tensors the loop would compute
 * only the beginning, and leave the rest to workers, so the workers get all of it at once. A job
 * with little JSON has such tensors only in shared memory. */
static bool is_worth_beginning(const struct qd_inference *inference)
{
    return qd_outputs_request_bytes(inference->request) <= INLINE_CONSTANT_BYTES_MAX ||
           inference->ahead_ns <= QD_QUANTUM_NS;
}

/* Takes memory for the times of nodes, if the request asks for them. */
static enum qd_status take_profile(struct qd_inference *inference)
{
    if (!inference->asked->profiles)
        return QD_OK;
    inference->node_ns =
        qd_arena_calloc(inference->arena, inference->plan->node_count, sizeof(*inference->node_ns));
    return inference->node_ns != NULL ? QD_OK : refuse_memory(inference, "the profile");
}

/* Takes all memory that computing needs before it begins. Later, only the answer's text may fail
 * for lack of memory. */
static bool after_plan(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    if (inference->error->status != QD_OK || make_workspaces(inference) != QD_OK ||
        take_profile(inference) != QD_OK)
        return false;
    inference->ahead_ns = qd_plan_compute_ns(inference->plan);
    job->may_run_inline =
        job->may_run_inline && is_worth_beginning(inference) &&
        qd_outputs_number_count(inference->request, inference->plan) <= INLINE_NUMBERS_MAX;
    return pack(inference);
}

static void run_plan(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    (void)begin;
    (void)end;
    plan(inference_of(job));
}

static size_t constant_bytes(const struct qd_inference *inference)
{
    const uint32_t constants = constant_inputs(inference);
    size_t sum = 0;
    for (size_t i = 0; i < inference->asked->signature->input_count; i++) {
        const struct qk_tensor *input = &inference->asked->inputs[i];
        size_t bytes;
        if ((constants >> i & 1) != 0 && input->type != QK_NONE &&
            (!qk_type_bytes(input->type, input->stored, &bytes) ||
             __builtin_add_overflow(sum, bytes, &sum)))
            sum = SIZE_MAX;
    }
    return sum;
}

/* Returns whether planning makes tables, which may take long. */
static bool plans_tables(const struct qd_inference *inference)
{
    const struct qk_graph *graph = inference->request->model->graph;
    const struct qk_operator *op = inference->asked->signature->op;
    return graph != NULL ? graph->plans_tables : op != NULL && op->plans_tables;
}

/* Plans the request. If large constants have to be read, or tables to be made, planning is a phase
 * of its own, so that the job can give way before it. So is the planning of a network that is known
 * to take long: while the job waits for its turn, it has no memory for its tensors. */
static bool plan_all(struct qd_inference *inference)
{
    if (constant_bytes(inference) > INLINE_CONSTANT_BYTES_MAX || plans_tables(inference) ||
        inference->ahead_ns > QD_QUANTUM_NS) {
        inference->job.may_run_inline = false;
        return set_phase(inference, run_plan, after_plan, 1, QD_QUANTUM_NS, 1);
    }
    plan(inference);
    return after_plan(&inference->job);
}

/* ---- 3. Computing ------------------------------------------------------------------------- */

static bool copy_outputs(struct qd_inference *inference);
static bool compute(struct qd_inference *inference);

static void run_node(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct qd_inference *inference = inference_of(job);
    atomic_store_explicit(&inference->begun, true, memory_order_relaxed);
    if (qd_shm_tensors_are_lost(inference->asked))
        return; /* it would write memory that no bound counts; write_answer refuses the request */
    qk_graph_run(inference->plan, inference->node, inference->inputs, inference->outputs,
                 inference->scratch, workspace, begin, end);
}

/* Returns how long the request has been computed so far. The time in which it gave way to others
 * does not count, so all nodes together take at most the time of the answer's COMPUTE. */
static uint64_t running_ns(const struct qd_inference *inference)
{
    const struct qd_request *request = inference->request;
    const uint64_t now_ns = qd_clock_ns();
    const bool runs = request->state == QD_RUNNING && now_ns > request->times.since_ns;
    return request->times.spent_ns[QD_RUNNING] + (runs ? now_ns - request->times.since_ns : 0);
}

static bool after_node(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    if (inference->node_ns != NULL)
        inference->node_ns[inference->node] = running_ns(inference) - inference->node_began_ns;
    return ++inference->node < inference->plan->node_count ? compute(inference)
                                                           : copy_outputs(inference);
}

static bool compute(struct qd_inference *inference)
{
    const struct qk_plan *plan = &inference->plan->nodes[inference->node].plan;
    if (inference->node_ns != NULL)
        inference->node_began_ns = running_ns(inference);
    inference->ahead_ns -= qd_plan_node_ns(plan);
    set_wide_phase(inference, run_node, after_node, plan->unit_count, plan->unit_cost_ns);
    inference->job.phase.units_share = true;
    return true;
}

static void run_pack(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    atomic_store_explicit(&inference_of(job)->begun, true, memory_order_relaxed);
    qk_graph_pack(inference_of(job)->graph, begin, end);
}

static bool after_pack(struct qd_job *job)
{
    return compute(inference_of(job));
}

static bool pack(struct qd_inference *inference)
{
    const struct qk_graph *graph = inference->graph;
    enter(inference, QD_RUNNING);
    if (graph == NULL || graph->pack_unit_count == 0)
        return compute(inference);
    return set_phase(inference, run_pack, after_pack, graph->pack_unit_count,
                     graph->pack_unit_cost_ns,
                     shares(inference, graph->pack_unit_count, graph->pack_unit_cost_ns));
}

static void run_deflate(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    for (size_t i = begin; i < end; i++)
        qd_deflater_step(inference_of(job)->deflater);
}

static bool after_deflate(struct qd_job *job)
{
    struct qd_request *request = inference_of(job)->request;
    const struct qd_part *part;
    if (!qd_deflater_end(inference_of(job)->deflater, &part))
        return true;
    if (part != NULL) {
        request->answer.parts = part;
        request->answer.part_count = 1;
        request->answer.bytes = part->count;
        request->answer.coding = qd_coding_name(request->oip.answer_coding);
    }
    qd_request_reply(request);
    return false;
}

/* Frees what only computing and printing need. The worker's next job can then take this memory,
 * which is still in the caches, and takes no other while the loop sends this answer. */
static void release_workspaces(struct qd_inference *inference)
{
    qd_arena_release(inference->arena, inference->scratch, inference->plan->scratch_bytes);
    for (size_t i = 0; i < inference->slot_count; i++)
        qd_arena_release(inference->arena, inference->slots[i].workspace,
                         inference->workspace_bytes);
}

/* Compresses the answer if the client accepts that and it saves something, and advances to
 * REPLYING. Without memory the answer is sent uncompressed. */
static bool reply(struct qd_inference *inference)
{
    const enum qd_coding coding = inference->request->oip.answer_coding;
    const struct qd_answer *answer = &inference->request->answer;
    release_workspaces(inference);
    if (coding != QD_CODING_IDENTITY && answer->bytes >= QD_DEFLATED_BYTES_MIN)
        inference->deflater = qd_deflater_create(coding, answer->parts, answer->part_count,
                                                 answer->bytes, inference->arena);
    if (inference->deflater != NULL)
        return set_phase(inference, run_deflate, after_deflate,
                         qd_deflater_step_count(inference->deflater), QD_COMPRESSION_STEP_NS, 1);
    qd_request_reply(inference->request);
    inference->job.ended_ns = inference->request->times.since_ns;
    return false;
}

/* ---- 4. The answer ------------------------------------------------------------------------ */

static bool after_print(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(inference->request, stage_ns);
    return qd_oip_writer_end(inference->writer, stage_ns, &inference->request->answer) == QD_OK &&
           reply(inference);
}

static void run_print(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    qd_oip_writer_print(inference_of(job)->writer, workspace, begin, end);
}

static bool write_answer(struct qd_inference *inference)
{
    enter(inference, QD_ENCODING);
    if (qd_shm_tensors_refuse_loss(inference->asked, inference->error) != QD_OK)
        return false;
    const struct qk_graph_plan *plan = inference->plan;
    struct qk_tensor *outputs =
        qd_arena_alloc(inference->arena, plan->output_count * sizeof(*outputs));
    if (outputs == NULL)
        return refuse_memory(inference, "the answer") == QD_OK;
    for (size_t i = 0; i < plan->output_count; i++) {
        qk_tensor_copy(&outputs[i], &plan->outputs[i]);
        outputs[i].data = inference->outputs[i];
    }
    inference->writer = qd_oip_writer_create(inference->asked, plan, inference->node_ns, outputs,
                                             inference->arena, inference->error);
    if (inference->writer == NULL)
        return false;
    const size_t unit_count = qd_oip_unit_count(inference->asked, outputs);
    if (unit_count == 0)
        return after_print(&inference->job);
    return set_wide_phase(inference, run_print, after_print, unit_count,
                          qd_oip_unit_ns(inference->asked, outputs));
}

static bool after_copy(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    inference->copied_outputs &= inference->copied_outputs - 1;
    return copy_outputs(inference);
}

static void run_copy(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    const struct qd_inference *inference = inference_of(job);
    const size_t output = (size_t)__builtin_ctz(inference->copied_outputs);
    (void)workspace;
    qd_shm_tensors_copy_output(inference->asked, output, inference->outputs[output],
                               inference->plan->output_bytes[output], begin, end);
}

/* Copies the outputs that must be in shared memory but could not be computed there, one after
 * another. */
static bool copy_outputs(struct qd_inference *inference)
{
    if (inference->copied_outputs == 0)
        return write_answer(inference);
    const size_t bytes = inference->plan->output_bytes[__builtin_ctz(inference->copied_outputs)];
    const size_t unit_count =
        bytes / QD_SHM_TENSOR_UNIT_BYTES + (bytes % QD_SHM_TENSOR_UNIT_BYTES != 0);
    return set_wide_phase(inference, run_copy, after_copy, unit_count, QD_SHM_TENSOR_UNIT_NS);
}

/* ---- The job ------------------------------------------------------------------------------ */

/* Updates the request's state. Sets how long a request may wait that has a `timeout` and has not
 * begun to compute. */
static void on_running(struct qd_job *job, bool running)
{
    const struct qd_inference *inference = inference_of(job);
    struct qd_request *request = inference->request;
    const uint64_t timeout_us = request->oip.asked.timeout_us;
    const enum qd_request_state state = running ? inference->doing : QD_QUEUED;
    if (request->state != state)
        qd_request_advance(request, state);
    job->wait_until_ns = 0;
    if (running || !inference->read || timeout_us == 0 || atomic_load(&inference->begun))
        return;
    const uint64_t waited_us = request->times.spent_ns[QD_QUEUED] / QD_NS_PER_US;
    const uint64_t left_us = timeout_us < waited_us ? 0 : timeout_us - waited_us;
    if (left_us < (UINT64_MAX - request->times.since_ns) / QD_NS_PER_US)
        job->wait_until_ns = request->times.since_ns + left_us * QD_NS_PER_US;
}

static void expire(struct qd_job *job)
{
    const struct qd_inference *inference = inference_of(job);
    struct qd_request *request = inference->request;
    if (inference->read && !atomic_load(&inference->begun) && waited_too_long(request)) {
        refuse_wait(request);
        return;
    }
    qd_fail_for(
        &request->error, QD_REASON_COMPUTE_TIMEOUT, QD_UNAVAILABLE,
        "the request: expected an answer within %llu ms (--compute-timeout); it takes longer",
        (unsigned long long)(inference->tools->compute_timeout_ns / QD_NS_PER_MS));
}

static void cancel(struct qd_job *job)
{
    const struct qd_inference *inference = inference_of(job);
    if (inference->abandoned)
        qd_fail_for(inference->error, QD_REASON_OTHER, QD_UNAVAILABLE, "the client has gone");
    else
        qd_scheduler_refuse(inference->tools->scheduler, inference->error);
}

/* Ends the inference, which neither the scheduler nor a worker uses any more. */
static void done(struct qd_job *job)
{
    struct qd_inference *inference = inference_of(job);
    struct qd_request *request = inference->request;
    qd_oip_writer_deinit(inference->writer);
    qd_shm_tensors_release(&request->oip.asked);
    if (inference->pin.plan != NULL)
        qd_plans_unpin(request->model->plans, &inference->pin);
    qd_arena_end_work(&request->arena);
    request->oip.inference = NULL;
    if (request->error.status == QD_OK)
        qd_request_drop_body(request); /* the answer is complete, and sending may take long */
    request->on_answered(request);
}

/* ---- On the request's loop ---------------------------------------------------------------- */

/* Returns whether the loop may compute a request whose body has this length. */
static bool is_for_loop(const struct qd_request *request, uint64_t body_bytes)
{
    const struct qd_model *model = request->model;
    return request->oip.coding == QD_CODING_IDENTITY &&
           request->oip.answer_coding == QD_CODING_IDENTITY &&
           body_bytes <= INLINE_CONSTANT_BYTES_MAX && model->deferred == NULL &&
           (model->graph == NULL || model->graph->node_count <= INLINE_NODES_MAX);
}

bool qd_infer_try_room(const struct qd_infer_tools *tools, struct qd_request *request,
                       uint64_t body_bytes)
{
    struct qd_scheduler *scheduler = tools->scheduler;
    const bool may = !qd_scheduler_is_abandoned(scheduler) &&
                     (is_for_loop(request, body_bytes) || qd_scheduler_has_room(scheduler));
    if (!may)
        qd_scheduler_refuse(scheduler, &request->error);
    return may;
}

/* Returns whether everything before the first unit ends before another thread would begin. */
static bool may_run_inline(const struct qd_request *request)
{
    return is_for_loop(request, request->body.count) &&
           json_bytes(request, (size_t)request->body.count) <= INLINE_JSON_BYTES_MAX;
}

static struct qd_inference *create(const struct qd_infer_tools *tools, struct qd_request *request)
{
    struct qd_inference *inference = qd_arena_calloc(&request->arena, 1, sizeof(*inference));
    if (inference == NULL) {
        qd_refuse_memory(&request->arena, "the inference", &request->error);
        return NULL;
    }
    inference->tools = tools;
    inference->request = request;
    inference->arena = &request->arena;
    inference->error = &request->error;
    inference->asked = &request->oip.asked;
    return inference;
}

bool qd_infer_submit(const struct qd_infer_tools *tools, struct qd_request *request)
{
    static const struct qd_job_code large = {.start = start,
                                             .on_running = on_running,
                                             .expire = expire,
                                             .cancel = cancel,
                                             .done = done,
                                             .may_start = may_start};
    static const struct qd_job_code small = {
        .start = start, .on_running = on_running, .expire = expire, .cancel = cancel, .done = done};
    const bool is_inline = may_run_inline(request);
    struct qd_inference *inference = create(tools, request);
    if (inference == NULL)
        return false;
    request->oip.message.body = request->body.bytes;
    request->oip.message.body_bytes = (size_t)request->body.count;
    request->oip.inference = inference;
    qd_request_advance(request, QD_QUEUED);
    if (qd_scheduler_submit(tools->scheduler, request->loop, &inference->job,
                            qd_inference_is_small(inference) ? &small : &large,
                            is_inline ? request->times.since_ns : 0,
                            request->times.since_ns + tools->compute_timeout_ns))
        return true;
    request->oip.inference = NULL;
    qd_scheduler_refuse(tools->scheduler, &request->error);
    return false;
}

void qd_infer_abandon(struct qd_request *request)
{
    struct qd_inference *inference = request->oip.inference;
    if (inference == NULL)
        return;
    inference->abandoned = true;
    qd_scheduler_cancel(inference->tools->scheduler, &inference->job);
}
