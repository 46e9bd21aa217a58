/* Encodes the whole answer of an inference at once, for tests. The server encodes the same bytes
 * unit by unit. */
#pragma once

#include "server/memory/arena.h"
#include "server/oip/encode.h"

static inline enum qd_status encode_whole(const struct qd_oip_asked *asked, const char *kernel,
                                          const struct qk_tensor *outputs,
                                          const uint64_t stage_ns[QD_STAGE_COUNT],
                                          struct qd_arena *arena, struct qd_answer *answer,
                                          struct qd_error *error)
{
    const struct qk_graph_plan plan = {.kernel = kernel};
    struct qd_oip_writer *writer = qd_oip_writer_create(asked, &plan, NULL, outputs, arena, error);
    if (writer == NULL)
        return error->status;
    const size_t unit_count = qd_oip_unit_count(asked, outputs);
    char *workspace = unit_count == 0 ? NULL : qd_arena_alloc(arena, QD_OIP_PRINT_BYTES);
    if (workspace != NULL)
        qd_oip_writer_print(writer, workspace, 0, unit_count);
    const enum qd_status status = unit_count > 0 && workspace == NULL
                                      ? qd_refuse_memory(arena, "the answer", error)
                                      : qd_oip_writer_end(writer, stage_ns, answer);
    qd_oip_writer_deinit(writer);
    return status;
}
