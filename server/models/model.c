#include "server/models/model.h"

#include <assert.h>
#include <stdlib.h>

struct qd_model *qd_model_create(struct qd_memory *memory)
{
    struct qd_model *model = calloc(1, sizeof(*model));
    if (model != NULL) {
        qd_arena_init(&model->arena, memory);
        model->reference_count = 1;
    }
    return model;
}

void qd_model_release(struct qd_model *model)
{
    if (model == NULL)
        return;
    const size_t count = atomic_fetch_sub(&model->reference_count, 1);
    assert(count > 0);
    if (count > 1)
        return;
    if (model->namesake_count != NULL)
        atomic_fetch_sub(model->namesake_count, 1); /* the table may now free the count */
    qd_counters_release(model->counters);
    qd_plans_destroy(model->plans);
    qd_arena_deinit(&model->arena);
    free(model);
}
