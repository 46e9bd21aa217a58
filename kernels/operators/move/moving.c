#include "kernels/operators/move/moving.h"

#include <string.h>

#include "kernels/element/load.h"

void *qk_moving_alloc(const struct qk_call *call, size_t bytes, struct qk_memory memory,
                      struct qk_error *error)
{
    struct qk_instance *made = memory.alloc(memory.context, bytes);
    if (!made) {
        qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
        return NULL;
    }
    memset(made, 0, bytes);
    for (size_t i = 0; i < call->op->output_count; i++)
        made->output_types[i] = call->inputs[0].type;
    return made;
}

static enum qk_status check_length(const char *name, size_t count, size_t most,
                                   struct qk_error *error)
{
    if (count <= most)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected at most %zu integers, got %zu", name, most,
                   count);
}

enum qk_status qk_read_attribute_list(const struct qk_call *call, size_t attribute, size_t most,
                                      struct qk_integers *list, struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[attribute];
    list->present = given->present;
    list->count = 0;
    if (!given->present)
        return QK_OK;
    const enum qk_status status =
        check_length(call->op->attributes[attribute].name, given->list_count, most, error);
    if (status != QK_OK)
        return status;
    list->count = given->list_count;
    for (size_t i = 0; i < list->count; i++)
        list->numbers[i] = given->list[i];
    return QK_OK;
}

enum qk_status qk_read_input_list(const struct qk_call *call, size_t input, size_t most,
                                  struct qk_integers *list, struct qk_error *error)
{
    return qk_read_list(&call->inputs[input], call->op->inputs[input].name, most, list, error);
}

bool qk_is_planned(const struct qk_call *call, uint32_t inputs)
{
    return (call->variable & inputs) != 0;
}

enum qk_status qk_read_list(const struct qk_tensor *given, const char *name, size_t most,
                            struct qk_integers *list, struct qk_error *error)
{
    list->present = given->type != QK_NONE;
    list->count = 0;
    if (!list->present)
        return QK_OK;
    if (given->rank > 1)
        return qk_fail(error, QK_INVALID, "%s: expected one dimension, got %u", name, given->rank);
    const enum qk_status status = check_length(name, given->count, most, error);
    if (status != QK_OK)
        return status;
    list->count = given->count;
    for (size_t i = 0; i < list->count; i++)
        list->numbers[i] = qk_load_integer(given->type, given->data, i);
    return QK_OK;
}

enum qk_status qk_find_axis(const char *name, int64_t number, uint32_t rank, uint32_t *axis,
                            struct qk_error *error)
{
    if (rank == 0)
        return qk_fail_of_rank(error, "%s: expected no axis of a scalar, got %lld", name,
                               (long long)number);
    if (number < -(int64_t)rank || number >= (int64_t)rank)
        return qk_fail_of_rank(error, "%s: expected an axis in [-%u, %u], got %lld", name, rank,
                               rank - 1, (long long)number);
    *axis = (uint32_t)(number < 0 ? number + rank : number);
    return QK_OK;
}

enum qk_status qk_find_axes(const char *name, const struct qk_integers *list, uint32_t rank,
                            bool repeats, uint32_t *axes, struct qk_error *error)
{
    *axes = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint32_t axis = 0;
        const enum qk_status status = qk_find_axis(name, list->numbers[i], rank, &axis, error);
        if (status != QK_OK)
            return status;
        if (*axes >> axis & 1 && !repeats)
            return qk_fail(error, QK_INVALID, "%s: expected each axis once, got axis %u twice",
                           name, axis);
        *axes |= UINT32_C(1) << axis;
    }
    return QK_OK;
}
