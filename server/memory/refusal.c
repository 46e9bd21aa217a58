#include "server/memory/refusal.h"

/* What is missing is what an operator of the server wants to know. */
static enum qd_status refuse_model_memory(const struct qd_arena *arena, const char *what,
                                          struct qd_error *error)
{
    size_t bytes_max = qd_memory_max(arena->memory);
    size_t used = qd_memory_used(arena->memory);
    size_t left = used < bytes_max ? bytes_max - used : 0;
    size_t wanted = arena->refused_bytes;
    size_t own = qd_arena_own_bytes(arena);
    if (wanted <= left) {
        return qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: the system has no %zu bytes", what, wanted);
    }
    return qd_fail_for(
        error, QD_REASON_MODEL_MEMORY, qd_arena_hopeless(arena) ? QD_TOO_LARGE : QD_UNAVAILABLE,
        "no memory for %s: %zu bytes are missing in --max-model-bytes (%zu), of which "
        "this load has %zu, and others %zu",
        what, wanted - left, bytes_max, own, used > own ? used - own : 0);
}

enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error)
{
    size_t bytes_max = qd_memory_max(arena->memory);
    if (qd_memory_is_for_models(arena->memory))
        return refuse_model_memory(arena, what, error);
    if (arena->refused_bytes == 0) {
        return qd_fail_for(error, QD_REASON_MEMORY, QD_UNAVAILABLE,
                           "no memory for %s: it gave way to other requests, which hold most of "
                           "--max-inflight-bytes (%zu); try again later",
                           what, bytes_max);
    }
    if (qd_arena_hopeless(arena)) {
        return qd_fail_for(
            error, QD_REASON_MEMORY, QD_TOO_LARGE,
            "no memory for %s: %zu bytes more than the %zu this request already holds "
            "exceed --max-inflight-bytes (%zu)",
            what, arena->refused_bytes, arena->bytes, bytes_max);
    }
    return qd_fail_for(error, QD_REASON_MEMORY, QD_UNAVAILABLE,
                       "no memory for %s: %zu bytes, and other requests hold most of "
                       "--max-inflight-bytes (%zu); try again later",
                       what, arena->refused_bytes, bytes_max);
}
