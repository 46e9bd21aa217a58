#include "kernels/qk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/operators/operator.h"

enum qk_status qk_fail(struct qk_error *error, enum qk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = status;
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return status;
}

bool qk_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

bool qk_tensor_set_count(struct qk_tensor *tensor)
{
    size_t count = 1;
    bool empty = false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] == 0)
            empty = true;
        else if (!qk_mul_size(count, tensor->dims[i], &count))
            return false;
    tensor->count = empty ? 0 : count;
    tensor->stored = tensor->count;
    return true;
}

bool qk_tensor_set_strides(struct qk_tensor *tensor, const int64_t *strides, size_t stride_count)
{
    if (stride_count != tensor->rank)
        return false;
    size_t farthest = 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        size_t reach;
        if (strides[i] < 0)
            return false;
        if (tensor->count > 0 && (!qk_mul_size(tensor->dims[i] - 1, (size_t)strides[i], &reach) ||
                                  __builtin_add_overflow(farthest, reach, &farthest)))
            return false;
    }
    size_t stored;
    if (__builtin_add_overflow(farthest, 1, &stored))
        return false;
    tensor->stored = tensor->count > 0 ? stored : 0;
    return true;
}

/* "UINT8, INT8" for the error texts. */
static void print_types(uint32_t set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        if (!(set & QK_BIT(type)))
            continue;
        int length =
            snprintf(text + used, size - used, "%s%s", used ? ", " : "", qk_type_info(type)->name);
        if (length < 0 || (size_t)length >= size - used)
            return;
        used += (size_t)length;
    }
}

/* The strides given for an input, or NULL: it is row-major. */
static const struct qk_attribute *find_strides(const struct qk_call *call, size_t input,
                                               const char **name)
{
    for (size_t i = 0; i < call->op->attribute_count; i++) {
        const struct qk_attribute_def *def = &call->op->attributes[i];
        *name = def->name;
        if (def->kind == QK_ATTRIBUTE_STRIDES && def->input == input && call->attributes[i].present)
            return &call->attributes[i];
    }
    return NULL;
}

/* Whether the tensor's numbers are true of each other. */
static enum qk_status check_layout(const struct qk_call *call, size_t index, struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[index];
    const char *name = call->op->input_names[index];
    const char *strides_name;
    const struct qk_attribute *strides = find_strides(call, index, &strides_name);
    struct qk_tensor counted = *tensor;
    if (tensor->rank > QK_RANK_MAX || !qk_tensor_set_count(&counted) ||
        counted.count != tensor->count)
        return qk_fail(error, QK_INVALID, "%s: its count does not match its shape", name);
    if (strides && !qk_tensor_set_strides(&counted, strides->list, strides->list_count))
        return qk_fail(error, QK_INVALID,
                       "%s: expected %u integers of at least 0, within 64 bits, one for each "
                       "dimension of %s, got other ones",
                       strides_name, tensor->rank, name);
    if (counted.stored != tensor->stored)
        return qk_fail(error, QK_INVALID, "%s: its stored elements do not match its layout", name);
    return QK_OK;
}

static enum qk_status check_input(const struct qk_call *call, size_t index, struct qk_error *error)
{
    const struct qk_operator *op = call->op;
    const struct qk_slot *slot = &call->version->inputs[index];
    const struct qk_tensor *tensor = &call->inputs[index];
    const char *name = op->input_names[index];

    if (tensor->type == QK_NONE && slot->optional)
        return QK_OK;
    if (tensor->type == QK_NONE)
        return qk_fail(error, QK_INVALID, "%s: %s %u requires this input, none was given", name,
                       op->name, call->version->number);
    if (!(slot->types & QK_BIT(tensor->type))) {
        char types[192];
        print_types(slot->types, types, sizeof(types));
        return qk_fail(error, QK_INVALID, "%s: %s %u expects datatype %s, got %s", name, op->name,
                       call->version->number, types, qk_type_info(tensor->type)->name);
    }
    return check_layout(call, index, error);
}

static enum qk_status check_attribute(const struct qk_attribute_def *def,
                                      const struct qk_attribute *attribute, struct qk_error *error)
{
    const bool has_list = attribute->list || attribute->list_count == 0;
    switch (def->kind) {
    case QK_ATTRIBUTE_BOOL:
        if (attribute->number != 0 && attribute->number != 1)
            return qk_fail(error, QK_INVALID, "%s: expected true or false, got %lld", def->name,
                           (long long)attribute->number);
        return QK_OK;
    case QK_ATTRIBUTE_STRING:
        return attribute->string
                   ? QK_OK
                   : qk_fail(error, QK_INVALID, "%s: expected a string, got none", def->name);
    case QK_ATTRIBUTE_INTS:
    case QK_ATTRIBUTE_STRIDES:
        return has_list ? QK_OK
                        : qk_fail(error, QK_INVALID, "%s: expected integers, got none", def->name);
    default:
        return QK_OK;
    }
}

static enum qk_status check_attributes(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_operator *op = call->op;
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < op->attribute_count && status == QK_OK; i++) {
        const struct qk_attribute_def *def = &op->attributes[i];
        if (!call->attributes[i].present)
            continue;
        if (call->version->number < def->since)
            return qk_fail(error, QK_INVALID, "%s: %s %u has no such attribute (since %u)",
                           def->name, op->name, call->version->number, def->since);
        status = check_attribute(def, &call->attributes[i], error);
    }
    return status;
}

enum qk_status qk_create(const struct qk_kernels *kernels, const struct qk_call *call,
                         struct qk_memory memory, const struct qk_instance **instance,
                         struct qk_error *error)
{
    enum qk_status status = check_attributes(call, error);
    for (size_t i = 0; i < call->op->input_count && status == QK_OK; i++)
        status = check_input(call, i, error);
    if (status != QK_OK)
        return status;

    struct qk_instance *made;
    status = call->op->code->create(kernels, call, memory, &made, error);
    if (status != QK_OK)
        return status;
    made->op = call->op;
    made->kernels = kernels;
    *instance = made;
    return QK_OK;
}

enum qk_status qk_plan(const struct qk_instance *instance, const struct qk_call *call,
                       struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    memset(plan, 0, sizeof(*plan));
    enum qk_status status = check_input(call, 0, error);
    if (status != QK_OK)
        return status;
    return instance->op->code->plan(instance, call, memory, plan, error);
}

void qk_run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    plan->run(plan, output, workspace, begin, end);
}
