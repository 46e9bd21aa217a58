#include "server/refusal.h"

enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error)
{
    size_t bytes_max = qd_memory_max(arena->memory);
    if (qd_arena_hopeless(arena)) {
        return qd_fail(error, QD_TOO_LARGE,
                       "no memory for %s: %zu bytes more than the %zu this request already holds "
                       "exceed --max-inflight-bytes (%zu)",
                       what, arena->refused_bytes, arena->bytes, bytes_max);
    }
    return qd_fail(error, QD_UNAVAILABLE,
                   "no memory for %s: %zu bytes, and other requests hold most of "
                   "--max-inflight-bytes (%zu); try again later",
                   what, arena->refused_bytes, bytes_max);
}
