/* The calls of a single operator (kernels/qk.h): checks them against the registry, then prepares,
 * packs, plans and runs. Also errors and the sizes of tensors. */
#include "kernels/qk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "kernels/operators/shape_text.h"

static void fill_error(struct qk_error *error, enum qk_status status, bool is_of_rank,
                       const char *format, va_list arguments)
{
    error->status = status;
    error->node = QK_VALUE_NONE;
    error->is_of_rank = is_of_rank;
    vsnprintf(error->text, sizeof(error->text), format, arguments);
}

enum qk_status qk_fail(struct qk_error *error, enum qk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill_error(error, status, false, format, arguments);
    va_end(arguments);
    return status;
}

enum qk_status qk_fail_of_rank(struct qk_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill_error(error, QK_INVALID, true, format, arguments);
    va_end(arguments);
    return QK_INVALID;
}

bool qk_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static bool count_elements(const struct qk_tensor *tensor, size_t *count)
{
    bool empty = false;
    *count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(*count, tensor->dims[i], count))
            return false;
    *count = empty ? 0 : *count;
    return true;
}

bool qk_tensor_set_count(struct qk_tensor *tensor)
{
    if (!count_elements(tensor, &tensor->count))
        return false;
    tensor->stored = tensor->count;
    return true;
}

static bool count_stored(const struct qk_tensor *tensor, const int64_t *strides,
                         size_t stride_count, size_t *stored)
{
    if (stride_count != tensor->rank)
        return false;
    size_t farthest = 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        size_t reach;
        if (strides[i] < 0 || strides[i] > QK_STRIDE_MAX)
            return false;
        if (tensor->count > 0 && (!qk_mul_size(tensor->dims[i] - 1, (size_t)strides[i], &reach) ||
                                  __builtin_add_overflow(farthest, reach, &farthest)))
            return false;
    }
    if (__builtin_add_overflow(farthest, 1, stored))
        return false;
    *stored = tensor->count > 0 ? *stored : 0;
    return true;
}

bool qk_tensor_set_strides(struct qk_tensor *tensor, const int64_t *strides, size_t stride_count)
{
    size_t stored;
    if (!count_stored(tensor, strides, stride_count, &stored))
        return false;
    tensor->stored = stored;
    return true;
}

/* Returns the attribute that gives the strides of an input, or NULL if the operator has none. The
 * call may leave the attribute out. */
static const struct qk_attribute_def *find_strides(const struct qk_operator *op, size_t input)
{
    for (size_t i = 0; i < op->attribute_count; i++)
        if (op->attributes[i].kind == QK_ATTRIBUTE_STRIDES && op->attributes[i].input == input)
            return &op->attributes[i];
    return NULL;
}

/* Checks that the tensor's count and stored agree with its dims. `strides` is NULL for a row-major
 * tensor. */
static enum qk_status check_layout(const struct qk_operator *op, size_t input,
                                   const struct qk_tensor *tensor,
                                   const struct qk_attribute *strides, struct qk_error *error)
{
    const char *name = op->inputs[input].name;
    size_t count;
    if (tensor->rank > QK_RANK_MAX || !count_elements(tensor, &count) || count != tensor->count)
        return qk_fail(error, QK_INVALID, "%s: its count does not match its shape", name);
    size_t stored = count;
    if (strides && strides->present &&
        !count_stored(tensor, strides->list, strides->list_count, &stored))
        return qk_fail(error, QK_INVALID,
                       "%s: expected %u integers from 0 to 4294967295, one for each dimension of "
                       "%s, whose elements lie within 64 bits, got others",
                       find_strides(op, input)->name, tensor->rank, name);
    if (stored != tensor->stored)
        return qk_fail(error, QK_INVALID, "%s: its stored elements do not match its layout", name);
    size_t bytes;
    if (!qk_type_bytes(tensor->type, stored, &bytes))
        return qk_fail(error, QK_INVALID, "%s: expected a size in bytes of 64 bits, got more",
                       name);
    return QK_OK;
}

static enum qk_status check_type(const struct qk_call *call, size_t input, struct qk_error *error)
{
    const struct qk_operator *op = call->op;
    const struct qk_input_def *def = &call->version->inputs[input];
    const enum qk_type type = call->inputs[input].type;
    const char *name = op->inputs[input].name;
    if (type == QK_NONE && def->optional)
        return QK_OK;
    if (type == QK_NONE)
        return qk_fail(error, QK_INVALID, "%s: expected this input, which %s %u requires, got none",
                       name, op->name, call->version->number);
    if (def->types & QK_BIT(type))
        return QK_OK;
    char types[192];
    qk_print_types(def->types, types, sizeof(types));
    return qk_fail(error, QK_INVALID, "%s: expected datatype %s for %s %u, got %s", name, types,
                   op->name, call->version->number, qk_type_info(type)->name);
}

/* Checks that a constant of BOOL has bytes of 0 and 1, on which kernels rely. */
static enum qk_status check_bools(const struct qk_call *call, size_t input, struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    const uint8_t *bytes = tensor->data;
    for (size_t i = 0; tensor->type == QK_BOOL && i < tensor->stored; i++)
        if (bytes[i] > 1)
            return qk_fail(error, QK_INVALID, "%s: expected bytes of 0 or 1 (BOOL), got %u at %zu",
                           call->op->inputs[input].name, bytes[i], i);
    return QK_OK;
}

static enum qk_status check_input(const struct qk_call *call, size_t input, struct qk_error *error)
{
    const struct qk_operator *op = call->op;
    const bool variable = call->variable >> input & 1;
    if (variable && !((op->variable_inputs | op->planned_inputs) >> input & 1))
        return qk_fail(error, QK_INVALID,
                       "%s: expected a constant, which %s takes once, got an input that comes with "
                       "each run",
                       op->inputs[input].name, op->name);
    enum qk_status status = check_type(call, input, error);
    if (status != QK_OK || variable || call->inputs[input].type == QK_NONE)
        return status;
    const struct qk_attribute_def *strides = find_strides(op, input);
    status = check_layout(op, input, &call->inputs[input],
                          strides ? &call->attributes[strides - op->attributes] : NULL, error);
    return status == QK_OK ? check_bools(call, input, error) : status;
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
            return qk_fail(error, QK_INVALID,
                           "%s: expected version %u or later of %s, got version %u", def->name,
                           def->since, op->name, call->version->number);
        status = check_attribute(def, &call->attributes[i], error);
    }
    return status;
}

/* ---- Prepare and pack -------------------------------------------------------------------- */

/* A qk_memory that counts the bytes it gives. */
struct counter {
    struct qk_memory memory;
    size_t bytes;
};

static void *count_alloc(void *context, size_t bytes)
{
    struct counter *counter = context;
    void *made = counter->memory.alloc(counter->memory.context, bytes);
    if (made)
        counter->bytes += bytes;
    return made;
}

/* Copies the lists of strides into the instance, because plans need them. Returns false if there is
 * no memory. */
static bool keep_strides(const struct qk_call *call, struct qk_memory memory,
                         struct qk_instance *instance)
{
    const struct qk_operator *op = call->op;
    struct qk_attribute *kept = NULL;
    for (size_t i = 0; i < op->attribute_count; i++) {
        const struct qk_attribute *given = &call->attributes[i];
        const size_t bytes =
            given->list_count * sizeof(*given->list); /* cannot overflow: the list is in memory */
        if (op->attributes[i].kind != QK_ATTRIBUTE_STRIDES || !given->present)
            continue;
        if (!kept) {
            kept = memory.alloc(memory.context, op->input_count * sizeof(*kept));
            if (!kept)
                return false;
            memset(kept, 0, op->input_count * sizeof(*kept));
        }
        struct qk_attribute *to = &kept[op->attributes[i].input];
        *to = *given;
        if (call->constants_stay || bytes == 0)
            continue;
        int64_t *list = memory.alloc(memory.context, bytes);
        if (!list)
            return false;
        to->list = memcpy(list, given->list, bytes);
    }
    instance->strides = kept;
    return true;
}

/* Copies the variable and planned inputs that the caller has fixed, because plans and runs need
 * them. Returns false if there is no memory. */
static bool keep_fixed(const struct qk_call *call, struct qk_memory memory,
                       struct qk_instance *instance)
{
    const struct qk_operator *op = call->op;
    const uint32_t fixed = (op->variable_inputs | op->planned_inputs) & ~call->variable;
    instance->fixed = NULL;
    if (fixed == 0)
        return true;
    struct qk_tensor *kept = memory.alloc(memory.context, op->input_count * sizeof(*kept));
    if (!kept)
        return false;
    for (size_t i = 0; i < op->input_count; i++) {
        kept[i] = fixed >> i & 1 ? call->inputs[i] : (struct qk_tensor){.type = QK_NONE};
        size_t bytes = 0;
        if (op->code->packed_inputs >> i & 1)
            kept[i].data = NULL;
        if (kept[i].type == QK_NONE || call->constants_stay || !kept[i].data)
            continue;
        void *data = qk_type_bytes(kept[i].type, kept[i].stored, &bytes)
                         ? memory.alloc(memory.context, bytes + 1) /* never 0 bytes */
                         : NULL;
        if (!data)
            return false;
        if (bytes > 0)
            memcpy(data, kept[i].data, bytes);
        kept[i].data = data;
    }
    instance->fixed = kept;
    return true;
}

enum qk_status qk_prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                          struct qk_memory memory, struct qk_instance **instance,
                          struct qk_error *error)
{
    enum qk_status status = check_attributes(call, error);
    for (size_t i = 0; i < call->op->input_count && status == QK_OK; i++)
        status = check_input(call, i, error);
    if (status != QK_OK)
        return status;

    struct counter counter = {.memory = memory};
    const struct qk_memory counting = {count_alloc, &counter};
    struct qk_instance *made;
    status = call->op->code->prepare(kernels, call, counting, &made, error);
    if (status != QK_OK)
        return status;
    made->op = call->op;
    made->version = call->version;
    made->kernels = kernels;
    made->variable = call->variable;
    for (size_t i = 0; i < call->op->input_count; i++)
        made->types[i] = call->inputs[i].type;
    if (!keep_strides(call, counting, made) || !keep_fixed(call, counting, made))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator's constants");
    made->packed_bytes = counter.bytes;
    *instance = made;
    return QK_OK;
}

void qk_pack(struct qk_instance *instance, size_t begin, size_t end)
{
    if (begin < end)
        instance->op->code->pack(instance, begin, end);
}

enum qk_status qk_create(const struct qk_kernels *kernels, const struct qk_call *call,
                         struct qk_memory memory, const struct qk_instance **instance,
                         struct qk_error *error)
{
    struct qk_instance *made;
    enum qk_status status = qk_prepare(kernels, call, memory, &made, error);
    if (status != QK_OK)
        return status;
    qk_pack(made, 0, made->pack_unit_count);
    *instance = made;
    return QK_OK;
}

/* ---- Plan and run ------------------------------------------------------------------------ */

static enum qk_status check_variable(const struct qk_instance *instance, size_t input,
                                     const struct qk_tensor *tensor, struct qk_error *error)
{
    const struct qk_operator *op = instance->op;
    const enum qk_type type = instance->types[input];
    if (tensor->type != type)
        return qk_fail(error, QK_INVALID, "%s: expected %s%s as for create, got %s",
                       op->inputs[input].name, type == QK_NONE ? "none" : "datatype ",
                       type == QK_NONE ? "" : qk_type_info(type)->name,
                       tensor->type == QK_NONE ? "none" : qk_type_info(tensor->type)->name);
    if (type == QK_NONE)
        return QK_OK;
    if (op->planned_inputs >> input & 1 && !tensor->data)
        return qk_fail(error, QK_INVALID, "%s: expected data, on which the plan depends, got none",
                       op->inputs[input].name);
    return check_layout(op, input, tensor, instance->strides ? &instance->strides[input] : NULL,
                        error);
}

enum qk_status qk_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                       struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_operator *op = instance->op;
    for (size_t i = 0; i < op->input_count; i++) {
        enum qk_status status = QK_OK;
        if (instance->variable >> i & 1)
            status = check_variable(instance, i, &inputs[i], error);
        if (status != QK_OK)
            return status;
    }
    plan->instance = instance;
    plan->output_count = op->output_count;
    plan->workspace_bytes = 0;
    plan->unit_count = 0;
    plan->unit_cost_ns = 0;
    plan->multiplications = 0;
    plan->is_alias = false;
    plan->joins = false;
    plan->cuts = false;
    if (!instance->fixed)
        return op->code->plan(instance, inputs, memory, plan, error);
    struct qk_tensor merged[QK_INPUT_COUNT_MAX];
    for (size_t i = 0; i < op->input_count; i++)
        merged[i] = instance->variable >> i & 1 ? inputs[i] : instance->fixed[i];
    return op->code->plan(instance, merged, memory, plan, error);
}

void qk_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
            void *workspace, size_t begin, size_t end)
{
    const struct qk_instance *instance = plan->instance;
    const void *merged[QK_INPUT_COUNT_MAX];
    for (size_t i = 0; instance->fixed && i < instance->op->input_count; i++)
        merged[i] = instance->variable >> i & 1 ? inputs[i] : instance->fixed[i].data;
    plan->run(plan, instance->fixed ? merged : inputs, outputs, workspace, begin, end);
}
