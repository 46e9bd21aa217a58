#include <string.h>

#include "server/memory/admission.h"
#include "server/work/inference.h"

enum {
    GROWTH = 4,          /* to FP32 from 8 bits, or to JSON from JSON with its numbers between */
    DEFLATED_RATIO = 16, /* of a body that does not say what it becomes */
    SMALL_PART = 256,    /* of the bound: so many begin at once, without a look at others */
};

/* As many bytes as its body has, before it was compressed. Gzip says so, of its last member alone,
 * and anybody may lie: so no less than what came, and no more than that can become. */
static uint64_t plain_bytes(const struct qd_inference *inference)
{
    const struct qd_request *request = inference->request;
    const size_t bytes = request->message.body_bytes;
    uint64_t plain = bytes * (uint64_t)DEFLATED_RATIO;
    if (request->coding == QD_CODING_IDENTITY)
        return bytes;
    if (request->coding == QD_CODING_GZIP && bytes > sizeof(uint32_t)) {
        uint32_t isize; /* little-endian, as we are */
        memcpy(&isize, request->message.body + bytes - sizeof(isize), sizeof(isize));
        const uint64_t plain_max = bytes * (uint64_t)QD_INFLATE_RATIO_MAX;
        plain = isize < plain_max ? isize : plain_max;
        plain = plain > bytes ? plain : bytes;
    }
    return plain < inference->tools->max_body_bytes ? plain : inference->tools->max_body_bytes;
}

/* About as many bytes as it will take beyond its body. */
static size_t expected_bytes(const struct qd_inference *inference)
{
    const unsigned times = inference->request->coding == QD_CODING_IDENTITY ? GROWTH : GROWTH + 1;
    const uint64_t plain = plain_bytes(inference);
    return plain > SIZE_MAX / times ? SIZE_MAX : (size_t)plain * times;
}

bool qd_inference_is_small(const struct qd_inference *inference)
{
    return expected_bytes(inference) <= qd_memory_max(inference->arena->memory) / SMALL_PART;
}

bool qd_inference_may_start(struct qd_job *job, bool others_wait)
{
    const struct qd_inference *inference = qd_inference_of(job);
    struct qd_arena *arena = inference->arena;
    char *body = inference->request->body;
    if (!qd_arena_has_lost(arena, body) &&
        (others_wait || !qd_arena_try_begin(arena, expected_bytes(inference))))
        return false;
    qd_arena_set_reservation(arena, body, QD_RESERVATION_FIRM);
    return true;
}

unsigned qd_infer_retry_after_s(struct qd_scheduler *scheduler, struct qd_memory *memory)
{
    const unsigned queue_s = qd_scheduler_retry_after_s(scheduler);
    const unsigned memory_s = qd_admission_retry_after_s(qd_memory_admission(memory));
    const unsigned seconds = queue_s > memory_s ? queue_s : memory_s;
    return seconds < QD_RETRY_AFTER_MAX_S ? seconds : QD_RETRY_AFTER_MAX_S;
}
