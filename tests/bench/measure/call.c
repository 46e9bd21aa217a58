#include "tests/bench/measure/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ------------------------------------------------------------------------------- */

/* Reads numbers separated by commas. An empty text is an empty list. */
static size_t read_list(const char *text, int64_t *list, size_t count_max)
{
    size_t count = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        errno = 0;
        const long long number = strtoll(text, &end, 10);
        if (end == text || errno || (*end && *end != ',') || count == count_max)
            bench_fail("expected at most %zu integers between commas, got '%s'", count_max, text);
        list[count++] = number;
    }
    return count;
}

void bench_call_start(struct bench_call *call, const char *name, unsigned version)
{
    const struct qk_operator *op = qk_graph_operator_by_name(name);
    if (!op || !qk_operator_version(op, version))
        bench_fail("no operator %s %u", name, version);
    call->call = (struct qk_call){.op = op,
                                  .version = qk_operator_version(op, version),
                                  .variable = op->variable_inputs,
                                  .constants_stay = true};
}

static size_t attribute_index(const struct bench_call *call, const char *name)
{
    const struct qk_operator *op = call->call.op;
    for (size_t i = 0; op && i < op->attribute_count; i++)
        if (strcmp(op->attributes[i].name, name) == 0)
            return i;
    bench_fail("no attribute %s", name);
}

void bench_call_int(struct bench_call *call, const char *name, int64_t number)
{
    call->call.attributes[attribute_index(call, name)] =
        (struct qk_attribute){.present = true, .number = number};
}

void bench_call_ints(struct bench_call *call, const char *name, const char *list)
{
    const size_t i = attribute_index(call, name);
    call->call.attributes[i] =
        (struct qk_attribute){.present = true,
                              .list = call->ints[i],
                              .list_count = read_list(list, call->ints[i], BENCH_INTS_MAX)};
}

/* Returns the index of an input by its name or number. */
static size_t find_input(const struct bench_call *call, const char *name)
{
    const struct qk_operator *op = call->call.op;
    size_t i = name[0] == '#' ? (size_t)atoi(name + 1) : 0;
    while (op && i < op->input_count && name[0] != '#' && strcmp(op->inputs[i].name, name) != 0)
        i++;
    if (!op || i >= op->input_count)
        bench_fail("no input %s", name);
    return i;
}

void bench_call_fix(struct bench_call *call, const char *name)
{
    call->call.variable &= ~(1U << find_input(call, name));
}

void bench_call_input(struct bench_call *call, const char *name, const char *type, const char *dims,
                      const char *path)
{
    const size_t i = find_input(call, name);
    struct qk_tensor *tensor = &call->call.inputs[i];
    int64_t list[QK_RANK_MAX];
    size_t bytes;
    *tensor = (struct qk_tensor){.type = qk_type_by_name(type)};
    tensor->rank = (uint32_t)read_list(dims, list, QK_RANK_MAX);
    for (uint32_t k = 0; k < tensor->rank; k++)
        tensor->dims[k] = (size_t)list[k];
    if (tensor->type == QK_NONE || !qk_tensor_set_count(tensor) ||
        !qk_type_bytes(tensor->type, tensor->count, &bytes))
        bench_fail("input %s: no tensor is %s %s", name, type, dims);
    bench_buffer_read(&call->inputs[i], path, bytes);
    tensor->data = call->data[i] = call->inputs[i].data;
}

struct bench_constant bench_call_constant(const struct bench_call *call)
{
    struct bench_constant found = {NULL, 0};
    for (size_t i = 0; i < call->call.op->input_count; i++) {
        const struct qk_tensor *tensor = &call->call.inputs[i];
        size_t bytes;
        if (!(call->call.variable >> i & 1) && tensor->type != QK_NONE &&
            qk_type_bytes(tensor->type, tensor->count, &bytes) && bytes > found.bytes)
            found = (struct bench_constant){tensor->data, bytes};
    }
    return found;
}

/* ---- The instance and the plan ------------------------------------------------------------ */

static void *take(void *context, size_t bytes)
{
    struct bench_memory *memory = context;
    if (memory->used == BENCH_BLOCKS_MAX)
        bench_fail("prepare and plan take more than %d blocks", BENCH_BLOCKS_MAX);
    struct bench_buffer *block = &memory->blocks[memory->used++];
    bench_buffer_reserve(block, bytes + 1);
    return block->data;
}

void bench_call_prepare(struct bench_call *call, const struct qk_kernels *kernels)
{
    struct qk_error error;
    call->memory.used = 0;
    if (qk_prepare(kernels, &call->call, (struct qk_memory){take, &call->memory}, &call->instance,
                   &error) != QK_OK)
        bench_fail("%s", error.text);
}

void bench_call_plan(struct bench_call *call)
{
    struct qk_error error;
    if (qk_plan(call->instance, call->call.inputs, (struct qk_memory){take, &call->memory},
                &call->plan, &error) != QK_OK)
        bench_fail("%s", error.text);
}
