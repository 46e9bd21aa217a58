#include "server/base/limits.h"
#include "server/work/inference.h"

static void run_inflate(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    for (size_t i = begin; i < end; i++)
        qd_inflater_step(qd_inference_of(job)->inflater);
}

/* What was inflated takes the place of what came. */
static bool after_inflate(struct qd_job *job)
{
    struct qd_inference *inference = qd_inference_of(job);
    struct qd_request *request = inference->request;
    struct qd_oip_message *message = &request->message;
    if (inference->error->status != QD_OK)
        return false;
    if (!qd_inflater_end(inference->inflater, &message->body, &message->body_bytes))
        return true; /* another phase of them, as after_read */
    qd_request_drop_body(request);
    return qd_inference_read(inference);
}

bool qd_inference_inflate(struct qd_inference *inference)
{
    const struct qd_request *request = inference->request;
    inference->inflater =
        qd_inflater_create(request->coding, request->body, (size_t)request->body_bytes,
                           inference->tools->max_body_bytes, inference->arena, inference->error);
    return inference->inflater != NULL &&
           qd_inference_set_phase(inference, run_inflate, after_inflate,
                                  qd_inflater_step_count(inference->inflater),
                                  QD_COMPRESSION_STEP_NS, 1);
}

static void run_deflate(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)workspace;
    for (size_t i = begin; i < end; i++)
        qd_deflater_step(qd_inference_of(job)->deflater);
}

static bool after_deflate(struct qd_job *job)
{
    struct qd_request *request = qd_inference_of(job)->request;
    const struct qd_part *part;
    if (!qd_deflater_end(qd_inference_of(job)->deflater, &part))
        return true;
    if (part != NULL) {
        request->answer.parts = part;
        request->answer.part_count = 1;
        request->answer.bytes = part->count;
        request->answer.coding = qd_coding_name(request->answer_coding);
    }
    qd_request_reply(request);
    return false;
}

bool qd_inference_reply(struct qd_inference *inference)
{
    const enum qd_coding coding = inference->request->answer_coding;
    const struct qd_answer *answer = &inference->request->answer;
    if (coding != QD_CODING_IDENTITY && answer->bytes >= QD_DEFLATED_BYTES_MIN)
        inference->deflater = qd_deflater_create(coding, answer->parts, answer->part_count,
                                                 answer->bytes, inference->arena);
    if (inference->deflater != NULL)
        return qd_inference_set_phase(inference, run_deflate, after_deflate,
                                      qd_deflater_step_count(inference->deflater),
                                      QD_COMPRESSION_STEP_NS, 1);
    qd_request_reply(inference->request);
    inference->job.ended_ns = inference->request->since_ns;
    return false;
}
