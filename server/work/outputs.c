#include "server/work/inference.h"

#include "server/base/limits.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"
#include "server/oip/classes.h"
#include "server/oip/shm_tensors.h"

uint64_t qd_outputs_request_bytes(const struct qd_request *request)
{
    return request->oip.message.body_bytes + qd_shm_tensors_input_bytes(&request->oip.asked);
}

/* Compares the size of the outputs, whose memory is not taken yet, with that of the request. A
 * built-in operator's outputs depend on what the request says. A loaded model does what its owner
 * chose, so only the bound of an answer holds. Outputs in shared memory are not counted, because
 * the client has provided the room. */
static enum qd_status check_bytes(struct qd_request *request, const struct qk_graph_plan *plan)
{
    const bool built_in = request->model->graph == NULL;
    const uint64_t came = qd_outputs_request_bytes(request);
    size_t bytes_max = QD_ANSWER_BYTES_MAX;
    if (built_in && came < (bytes_max - QD_GROWTH_BYTES_MIN) / QD_GROWTH_MAX)
        bytes_max = QD_GROWTH_BYTES_MIN + (size_t)came * QD_GROWTH_MAX;
    size_t bytes = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        if (!qd_shm_tensors_has_output(&request->oip.asked, i) &&
            __builtin_add_overflow(bytes, plan->output_bytes[i], &bytes))
            bytes = SIZE_MAX;
    if (bytes <= bytes_max)
        return QD_OK;
    if (bytes_max == QD_ANSWER_BYTES_MAX) {
        return qd_fail(&request->error, QD_TOO_LARGE,
                       "the output: expected at most %zu bytes, which clients can read, got %zu",
                       bytes_max, bytes);
    }
    return qd_fail(&request->error, QD_TOO_LARGE,
                   "the output: expected at most %zu bytes, %u MiB and %d times the request's "
                   "bytes, got %zu",
                   bytes_max, QD_GROWTH_BYTES_MIN >> 20, QD_GROWTH_MAX, bytes);
}

/* Refuses an output that is too long for an answer, before it is computed. The numbers are not
 * known yet, so an answer that is too long by a little is refused after it was printed. */
static enum qd_status check_answer(struct qd_request *request, const struct qk_graph_plan *plan)
{
    const size_t bytes = qd_oip_least_answer_bytes(&request->oip.asked, plan->outputs);
    if (bytes <= QD_ANSWER_BYTES_MAX)
        return QD_OK;
    return qd_fail(&request->error, QD_TOO_LARGE,
                   "the answer: expected at most %u bytes, got at least %zu; binary output may be "
                   "smaller",
                   QD_ANSWER_BYTES_MAX, bytes);
}

/* Leaves out outputs that the call does not make: onnx.Split makes one for each part. A request
 * that names such an output is refused. */
static enum qd_status find_made(struct qd_request *request, size_t output_count)
{
    struct qd_oip_asked *asked = &request->oip.asked;
    const uint32_t made = (uint32_t)((UINT64_C(1) << output_count) - 1);
    const uint32_t missing = asked->outputs & ~made;
    asked->outputs &= made;
    if (missing == 0 || !asked->lists_outputs)
        return QD_OK;
    return qd_fail(&request->error, QD_INVALID,
                   "outputs: expected the first %zu, which this call makes, got %s", output_count,
                   qd_show_string(asked->signature->outputs[__builtin_ctz(missing)].name).text);
}

enum qd_status qd_outputs_take(struct qd_request *request, const struct qk_graph_plan *plan,
                               void **outputs, uint32_t *copied)
{
    const struct qd_oip_asked *asked = &request->oip.asked;
    struct qd_error *error = &request->error;
    if (find_made(request, plan->output_count) != QD_OK || check_bytes(request, plan) != QD_OK ||
        check_answer(request, plan) != QD_OK ||
        qd_classes_check(asked, plan->outputs, plan->output_count, error) != QD_OK)
        return error->status;
    for (size_t i = 0; i < plan->output_count; i++) {
        const size_t bytes = plan->output_bytes[i];
        const bool is_shared = qd_shm_tensors_has_output(asked, i);
        if (is_shared && qd_shm_tensors_place_output(asked, i, bytes, &outputs[i], error) != QD_OK)
            return error->status;
        if (outputs[i] != NULL)
            continue;
        *copied |= (uint32_t)is_shared << i;
        outputs[i] = qd_arena_alloc(&request->arena, bytes);
        if (outputs[i] == NULL)
            return qd_refuse_memory(&request->arena, "the output", error);
    }
    return QD_OK;
}

/* Returns whether the output is printed as text: as JSON, or as classes. */
static bool is_text(const struct qd_request *request, size_t output)
{
    const struct qd_oip_asked *asked = &request->oip.asked;
    return ((asked->outputs & ~asked->binary_outputs) >> output & 1) != 0 ||
           qd_classes_wanted(asked, output) > 0;
}

size_t qd_outputs_number_count(const struct qd_request *request, const struct qk_graph_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        count += is_text(request, i) ? plan->outputs[i].count : 0;
    return count;
}
