#include "tests/support/kernels/qk_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/backend.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

/* Larger constants are lent without a copy. Copying them would only test memory. */
#define LENT_BYTES_MAX ((size_t)64 << 20)

/* ---- Memory ------------------------------------------------------------------------------ */

static void *aligned_block(size_t bytes)
{
    return guarded_alloc(bytes, 64);
}

static void *alloc_block(void *context, size_t bytes)
{
    struct qk_test_memory *memory = context;
    if (memory->count == memory->fail_at)
        return NULL;
    memory->blocks = realloc(memory->blocks, (memory->count + 1) * sizeof(*memory->blocks));
    cr_assert_not_null(memory->blocks);
    memory->blocks[memory->count] = aligned_block(bytes);
    memory->bytes += bytes;
    return memory->blocks[memory->count++];
}

void qk_test_memory_init(struct qk_test_memory *memory, size_t fail_at)
{
    *memory = (struct qk_test_memory){.fail_at = fail_at};
}

void qk_test_memory_deinit(struct qk_test_memory *memory)
{
    for (size_t i = 0; i < memory->count; i++)
        guarded_free(memory->blocks[i]);
    free(memory->blocks);
}

struct qk_memory qk_test_memory_face(struct qk_test_memory *memory)
{
    return (struct qk_memory){alloc_block, memory};
}

/* ---- Calls ------------------------------------------------------------------------------- */

void qk_test_call_init(struct qk_call *call, const char *name, uint64_t version)
{
    memset(call, 0, sizeof(*call));
    call->op = qk_graph_operator_by_name(name);
    cr_assert_not_null(call->op, "no operator %s", name);
    call->version = qk_operator_version(call->op, version);
    cr_assert_not_null(call->version, "%s has no version %llu", name, (unsigned long long)version);
    call->variable = call->op->variable_inputs;
}

size_t qk_test_input_index(const struct qk_operator *op, const char *name)
{
    size_t i = 0;
    while (i < op->input_count && strcmp(op->inputs[i].name, name) != 0)
        i++;
    cr_assert_lt(i, op->input_count, "%s has no input %s", op->name, name);
    return i;
}

size_t qk_test_attribute_index(const struct qk_operator *op, const char *name)
{
    size_t i = 0;
    while (i < op->attribute_count && strcmp(op->attributes[i].name, name) != 0)
        i++;
    cr_assert_lt(i, op->attribute_count, "%s has no attribute %s", op->name, name);
    return i;
}

void qk_test_call_input(struct qk_call *call, const char *name, enum qk_type type, const void *data,
                        uint32_t rank, const size_t *dims)
{
    struct qk_tensor *tensor = &call->inputs[qk_test_input_index(call->op, name)];
    *tensor = (struct qk_tensor){.type = type, .rank = rank, .data = data};
    for (uint32_t i = 0; i < rank; i++)
        tensor->dims[i] = dims[i];
    cr_assert(qk_tensor_set_count(tensor));
}

void qk_test_call_int(struct qk_call *call, const char *name, int64_t number)
{
    call->attributes[qk_test_attribute_index(call->op, name)] =
        (struct qk_attribute){.present = true, .number = number};
}

void qk_test_call_ints(struct qk_call *call, const char *name, const int64_t *list, size_t count)
{
    call->attributes[qk_test_attribute_index(call->op, name)] =
        (struct qk_attribute){.present = true, .list = list, .list_count = count};
}

void qk_test_call_bool(struct qk_call *call, const char *name, bool value)
{
    qk_test_call_int(call, name, value);
}

void qk_test_call_float(struct qk_call *call, const char *name, float real)
{
    call->attributes[qk_test_attribute_index(call->op, name)] =
        (struct qk_attribute){.present = true, .real = real};
}

void qk_test_call_strides(struct qk_call *call, const char *input, const int64_t *strides,
                          size_t count)
{
    struct qk_tensor *tensor = &call->inputs[qk_test_input_index(call->op, input)];
    char name[64];
    snprintf(name, sizeof(name), "%s.strides", input);
    qk_test_call_ints(call, name, strides, count);
    qk_tensor_set_strides(tensor, strides, count); /* if this fails, the call is refused */
}

void qk_test_call_string(struct qk_call *call, const char *name, const char *string)
{
    call->attributes[qk_test_attribute_index(call->op, name)] =
        (struct qk_attribute){.present = true, .string = string};
}

/* ---- Constants that do not stay ---------------------------------------------------------- */

void qk_test_lend(const struct qk_call *call, struct qk_call *lent)
{
    *lent = *call;
    for (size_t i = 0; i < call->op->input_count && !call->constants_stay; i++) {
        struct qk_tensor *tensor = &lent->inputs[i];
        size_t bytes;
        if (tensor->type == QK_NONE || tensor->type >= QK_TYPE_COUNT || !tensor->data)
            continue;
        if (call->variable >> i & 1) { /* only the type may be read */
            *tensor = (struct qk_tensor){.type = tensor->type, .rank = UINT32_MAX};
        } else if (qk_type_bytes(tensor->type, tensor->stored, &bytes) && bytes <= LENT_BYTES_MAX) {
            void *copy = guarded_alloc(bytes, 1);
            if (bytes > 0)
                memcpy(copy, tensor->data, bytes);
            tensor->data = copy;
        }
    }
    for (size_t i = 0; i < call->op->attribute_count && !call->constants_stay; i++) {
        struct qk_attribute *attribute = &lent->attributes[i];
        if (!attribute->list)
            continue;
        const size_t bytes = attribute->list_count * sizeof(*attribute->list);
        attribute->list =
            memcpy(guarded_alloc(bytes, sizeof(*attribute->list)), attribute->list, bytes);
    }
}

void qk_test_take_back(const struct qk_call *call, struct qk_call *lent)
{
    for (size_t i = 0; i < call->op->input_count; i++)
        if (lent->inputs[i].data && lent->inputs[i].data != call->inputs[i].data)
            guarded_free((void *)lent->inputs[i].data);
    for (size_t i = 0; i < call->op->attribute_count; i++)
        if (lent->attributes[i].list != call->attributes[i].list)
            guarded_free((void *)lent->attributes[i].list);
}

/* Packs unit by unit, in any order. If the seed is 0, packs all units at once. */
static void pack(struct qk_instance *instance, uint64_t seed)
{
    const size_t count = instance->pack_unit_count;
    if (!seed) {
        qk_pack(instance, 0, count);
        return;
    }
    const size_t first = count > 0 ? qk_test_random_below(&seed, count) : 0;
    for (size_t i = count; i-- > 0;)
        qk_pack(instance, (first + i) % count, (first + i) % count + 1);
}

enum qk_status qk_test_create(const struct qk_kernels *kernels, const struct qk_call *call,
                              uint64_t seed, struct qk_memory memory,
                              const struct qk_instance **instance, struct qk_error *error)
{
    struct qk_instance *made;
    struct qk_call lent;
    qk_test_lend(call, &lent);
    enum qk_status status = qk_prepare(kernels, &lent, memory, &made, error);
    if (status == QK_OK) {
        pack(made, seed);
        *instance = made;
    }
    qk_test_take_back(call, &lent);
    return status;
}

/* ---- Runs -------------------------------------------------------------------------------- */

static void run_units(const struct qk_plan *plan, const struct qk_call *call, void *const *outputs,
                      size_t begin, size_t end)
{
    void *workspace = aligned_block(plan->workspace_bytes);
    const void *inputs[QK_INPUT_COUNT_MAX];
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        inputs[i] =
            (call->variable & ~call->op->planned_inputs) >> i & 1 ? call->inputs[i].data : NULL;
    qk_run(plan, inputs, outputs, workspace, begin, end);
    guarded_free(workspace);
}

void qk_test_run_units(const struct qk_plan *plan, const struct qk_call *call, void *output,
                       size_t begin, size_t end)
{
    run_units(plan, call, &output, begin, end);
}

static void run_shuffled(const struct qk_plan *plan, const struct qk_call *call,
                         void *const *outputs, uint64_t seed)
{
    size_t *order = aligned_block((plan->unit_count + 1) * sizeof(*order));
    for (size_t i = 0; i < plan->unit_count; i++) {
        size_t j = qk_test_random_below(&seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    /* Half of the time, units that are still in order after the shuffle run in one piece. */
    for (size_t i = 0, next; i < plan->unit_count; i = next) {
        next = i + 1;
        while (next < plan->unit_count && order[next] == order[next - 1] + 1 &&
               qk_test_random_below(&seed, 2))
            next++;
        run_units(plan, call, outputs, order[i], order[next - 1] + 1);
    }
    guarded_free(order);
}

/* Makes the plan after packing or, if the seed is odd, before it. */
static void run_call(const struct qk_kernels *kernels, const struct qk_call *call, uint64_t seed,
                     struct qk_test_result *result)
{
    struct qk_test_memory memory;
    struct qk_instance *instance;
    struct qk_call lent;
    memset(result, 0, sizeof(*result));
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);

    qk_test_lend(call, &lent);
    result->status = qk_prepare(kernels, &lent, face, &instance, &result->error);
    const bool prepared = result->status == QK_OK;
    if (prepared && seed % 2)
        result->status = qk_plan(instance, call->inputs, face, &result->plan, &result->error);
    if (prepared)
        pack(instance, seed);
    qk_test_take_back(call, &lent);
    if (prepared && seed % 2 == 0)
        result->status = qk_plan(instance, call->inputs, face, &result->plan, &result->error);
    if (result->status == QK_OK) {
        for (size_t i = 0; i < result->plan.output_count; i++)
            result->outputs[i] = aligned_block(result->plan.output_bytes[i]);
        result->output = result->outputs[0];
        if (seed)
            run_shuffled(&result->plan, call, result->outputs, seed);
        else
            run_units(&result->plan, call, result->outputs, 0, result->plan.unit_count);
    }
    qk_test_memory_deinit(&memory);
}

void qk_test_run(const struct qk_kernels *kernels, const struct qk_call *call,
                 struct qk_test_result *result)
{
    run_call(kernels, call, 0, result);
}

void qk_test_run_shuffled(const struct qk_kernels *kernels, const struct qk_call *call,
                          uint64_t seed, struct qk_test_result *result)
{
    run_call(kernels, call, seed, result);
}

void qk_test_result_deinit(struct qk_test_result *result)
{
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++) {
        if (result->outputs[i])
            guarded_free(result->outputs[i]);
        result->outputs[i] = NULL;
    }
    result->output = NULL;
}

struct qk_kernels *qk_test_kernels(const char *tier)
{
    return qk_test_kernels_gemm(tier, "auto");
}

struct qk_kernels *qk_test_kernels_gemm(const char *tier, const char *gemm)
{
    struct qk_kernels *kernels;
    struct qk_error error;
    enum qk_status status = qk_kernels_create(tier, gemm, false, 4, &kernels, &error);
    const bool masked_badly = strncmp(error.text, "QK_CPU: ", 8) == 0;
    if (status == QK_UNAVAILABLE && !masked_badly && strstr(error.text, "this CPU lacks")) {
        fprintf(stderr, "skipped: tier %s, gemm %s: %s\n", tier, gemm, error.text);
        return NULL;
    }
    cr_assert_eq(status, QK_OK, "tier %s, gemm %s: %s", tier, gemm, error.text);
    return kernels;
}

void qk_test_tiers_init(struct qk_test_tiers *tiers)
{
    tiers->count = 0;
    for (size_t i = 0; qk_tier_name(i); i++) {
        struct qk_kernels *kernels = qk_test_kernels(qk_tier_name(i));
        if (kernels)
            tiers->kernels[tiers->count++] = kernels;
    }
}

void qk_test_tiers_deinit(struct qk_test_tiers *tiers)
{
    for (size_t i = 0; i < tiers->count; i++)
        qk_kernels_destroy(tiers->kernels[i]);
}

static void add_gemm(struct qk_test_gemms *gemms, const char *tier, const char *name)
{
    struct qk_kernels *kernels = qk_test_kernels_gemm(tier, name);
    if (!kernels)
        return;
    gemms->names[gemms->count] = name;
    gemms->kernels[gemms->count++] = kernels;
}

void qk_test_gemms_init(struct qk_test_gemms *gemms)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    gemms->count = 0;
    for (size_t i = 0; qk_tier_name(i); i++)
        add_gemm(gemms, qk_tier_name(i), "blas");
    for (size_t i = 0; i < count; i++)
        add_gemm(gemms, "auto", backends[i].name);
}

void qk_test_gemms_deinit(struct qk_test_gemms *gemms)
{
    for (size_t i = 0; i < gemms->count; i++)
        qk_kernels_destroy(gemms->kernels[i]);
}

void qk_test_run_tiers(const struct qk_test_tiers *tiers, const struct qk_call *call, uint64_t seed,
                       struct qk_test_result *result)
{
    qk_test_run(tiers->kernels[0], call, result);
    for (size_t i = 1; i < 2 * tiers->count && result->status == QK_OK; i++) {
        struct qk_test_result other;
        run_call(tiers->kernels[i / 2], call, i % 2 ? seed : 0, &other);
        cr_assert_eq(other.status, QK_OK, "%s", other.error.text);
        cr_assert_eq(other.plan.output_bytes[0], result->plan.output_bytes[0]);
        if (memcmp(other.output, result->output, other.plan.output_bytes[0]) != 0)
            for (size_t k = 0; k < result->plan.outputs[0].count; k++)
                cr_assert(
                    qk_test_same(result->plan.outputs[0].type, other.output, result->output, k),
                    "%s, %s: element %zu is not that of %s", other.plan.kernel,
                    i % 2 ? "pieces" : "whole", k, result->plan.kernel);
        qk_test_result_deinit(result);
        *result = other;
    }
}

size_t qk_test_fail_allocations(const struct qk_kernels *kernels, const struct qk_call *call)
{
    enum qk_status status = QK_NO_MEMORY;
    size_t fail_at = 0;
    for (; status != QK_OK; fail_at++) {
        struct qk_test_memory memory;
        struct qk_plan plan;
        struct qk_error error = {0};
        const struct qk_instance *instance;
        qk_test_memory_init(&memory, fail_at);
        struct qk_memory face = qk_test_memory_face(&memory);
        status = qk_create(kernels, call, face, &instance, &error);
        if (status == QK_OK)
            status = qk_plan(instance, call->inputs, face, &plan, &error);
        if (status != QK_OK) {
            cr_assert_eq(status, QK_NO_MEMORY);
            cr_assert_eq(error.status, QK_NO_MEMORY);
            cr_assert(error.text[0]);
        }
        qk_test_memory_deinit(&memory);
    }
    return fail_at - 1;
}

void qk_test_expect_refusal(const struct qk_call *call, const char *field)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    char start[64];
    snprintf(start, sizeof(start), "%s: ", field);
    qk_test_run(kernels, call, &result);
    cr_expect_eq(result.status, QK_INVALID, "%s: not refused", field);
    cr_expect_eq(strncmp(result.error.text, start, strlen(start)), 0, "expected %s... got \"%s\"",
                 start, result.error.text);
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
}

/* ---- Elements ---------------------------------------------------------------------------- */

void qk_test_store(enum qk_type type, void *data, size_t index, uint32_t value)
{
    uint8_t *bytes = data;
    const unsigned bits = qk_type_info(type)->bits;
    if (bits < 8) {
        const unsigned per_byte = 8 / bits;
        const size_t shift = index % per_byte * bits;
        const uint32_t mask = (1U << bits) - 1;
        uint8_t *byte = bytes + index / per_byte;
        *byte = (uint8_t)((*byte & ~(mask << shift)) | (value & mask) << shift);
    } else {
        memcpy(bytes + index * (bits / 8), &value, bits / 8);
    }
}

bool qk_test_same(enum qk_type type, const void *a, const void *b, size_t index)
{
    const uint32_t bits[] = {qk_element_load(type, a, index), qk_element_load(type, b, index)};
    const bool is_float = qk_type_info(type)->kind == QK_KIND_FLOAT;
    return bits[0] == bits[1] || (is_float && isnan(qk_float_decode(type, bits[0])) &&
                                  isnan(qk_float_decode(type, bits[1])));
}

/* ---- Many cases -------------------------------------------------------------------------- */

bool qk_test_runs(size_t number)
{
    const char *every = getenv("QK_TEST_EVERY");
    const size_t step = every == NULL ? 1 : strtoul(every, NULL, 10);
    return step <= 1 || number % step == 0;
}

/* ---- Random numbers ---------------------------------------------------------------------- */

uint64_t qk_test_random(uint64_t *state)
{
    return random_next(state);
}

size_t qk_test_random_below(uint64_t *state, size_t limit)
{
    return (size_t)(qk_test_random(state) >> 32) % limit;
}
