/* Every golden case, on every tier, byte for byte.
 *
 * tests/data/golden_cases.jsonl holds one case a line, established by other implementations (its
 * `how` says by which). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/qk_test.h"

#define CASES "tests/data/golden_cases.jsonl"
#define CASE_COUNT 142

/* What a case borrows until it is done. */
struct loaded {
    struct qk_call call;
    uint8_t *data[QK_INPUT_COUNT_MAX];
    int64_t lists[QK_ATTRIBUTE_COUNT_MAX][16];
    int64_t strides[QK_INPUT_COUNT_MAX][16];
};

static uint8_t *bytes_of_hex(const char *hex, size_t *count)
{
    uint8_t *bytes = malloc(strlen(hex) / 2 + 1);
    cr_assert_not_null(bytes);
    *count = cases_read_hex(hex, bytes);
    return bytes;
}

static uint32_t dims_of(const cJSON *tensor, size_t *dims)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
    uint32_t rank = (uint32_t)cJSON_GetArraySize(shape);
    cr_assert_leq(rank, QK_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = (size_t)cJSON_GetNumberValue(cJSON_GetArrayItem(shape, (int)i));
    return rank;
}

static size_t integers_of(const cJSON *array, int64_t (*list)[16])
{
    const size_t count = (size_t)cJSON_GetArraySize(array);
    cr_assert_leq(count, sizeof(*list) / sizeof((*list)[0]));
    for (size_t i = 0; i < count; i++)
        (*list)[i] = (int64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(array, (int)i));
    return count;
}

static void load_input(struct loaded *loaded, const cJSON *tensor)
{
    const char *name = cases_string(tensor, "name");
    size_t index = qk_test_input_index(loaded->call.op, name);
    enum qk_type type = qk_type_by_name(cases_string(tensor, "datatype"));
    size_t dims[QK_RANK_MAX];
    uint32_t rank = dims_of(tensor, dims);
    size_t given;
    size_t expected;
    cr_assert_neq(type, QK_NONE);
    loaded->data[index] = bytes_of_hex(cases_string(tensor, "raw_hex"), &given);
    qk_test_call_input(&loaded->call, name, type, loaded->data[index], rank, dims);
    const cJSON *strides = cJSON_GetObjectItemCaseSensitive(tensor, "strides");
    if (strides)
        qk_test_call_strides(&loaded->call, name, loaded->strides[index],
                             integers_of(strides, &loaded->strides[index]));
    cr_assert(qk_type_bytes(type, loaded->call.inputs[index].stored, &expected));
    cr_assert_eq(given, expected);
}

static void load_attribute(struct loaded *loaded, const cJSON *value)
{
    struct qk_call *call = &loaded->call;
    if (cJSON_IsString(value)) {
        qk_test_call_string(call, value->string, value->valuestring);
    } else if (cJSON_IsArray(value)) {
        int64_t(*list)[16] = &loaded->lists[qk_test_attribute_index(call->op, value->string)];
        const size_t count = integers_of(value, list);
        qk_test_call_ints(call, value->string, *list, count);
    } else if (cJSON_IsBool(value)) {
        qk_test_call_bool(call, value->string, cJSON_IsTrue(value));
    } else {
        cr_assert(cJSON_IsNumber(value));
        qk_test_call_int(call, value->string, (int64_t)value->valuedouble);
    }
}

static void load(struct loaded *loaded, const cJSON *line)
{
    const unsigned long version = strtoul(cases_string(line, "version"), NULL, 10);
    const cJSON *item;
    memset(loaded, 0, sizeof(*loaded));
    qk_test_call_init(&loaded->call, cases_string(line, "model"), version);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "inputs"))
        load_input(loaded, item);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "attributes"))
        load_attribute(loaded, item);
}

static void unload(struct loaded *loaded)
{
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        free(loaded->data[i]);
}

/* Bytes, but for NaNs, of which only the class is told. */
static bool same(enum qk_type type, const uint8_t *got, const uint8_t *expected, size_t bytes)
{
    if (type != QK_FP32)
        return memcmp(got, expected, bytes) == 0;
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        float a;
        float b;
        memcpy(&a, got + i, sizeof(a));
        memcpy(&b, expected + i, sizeof(b));
        if (memcmp(&a, &b, sizeof(a)) != 0 && !(isnan(a) && isnan(b)))
            return false;
    }
    return true;
}

static void check_output(const char *id, const cJSON *line, const struct qk_test_result *result)
{
    const cJSON *tensor = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(line, "outputs"), 0);
    const struct qk_tensor *output = &result->plan.outputs[0];
    size_t dims[QK_RANK_MAX];
    size_t bytes;
    cr_assert_eq(result->status, QK_OK, "%s: %s", id, result->error.text);
    uint32_t rank = dims_of(tensor, dims);
    uint8_t *expected = bytes_of_hex(cases_string(tensor, "raw_hex"), &bytes);
    cr_expect_eq(output->type, qk_type_by_name(cases_string(tensor, "datatype")), "%s: type", id);
    cr_assert_eq(output->rank, rank, "%s: rank", id);
    cr_expect_eq(memcmp(output->dims, dims, rank * sizeof(dims[0])), 0, "%s: shape", id);
    cr_assert_eq(result->plan.output_bytes[0], bytes, "%s: size", id);
    cr_expect(same(output->type, result->output, expected, bytes), "%s: other bytes", id);
    free(expected);
}

static void run_case(const cJSON *line, const void *kernels)
{
    const char *id = cases_string(line, "id");
    struct loaded loaded;
    struct qk_test_result result;
    load(&loaded, line);
    qk_test_run(kernels, &loaded.call, &result);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "expect_error")))
        cr_expect_eq(result.status, QK_INVALID, "%s: not refused", id);
    else
        check_output(id, line, &result);
    qk_test_result_deinit(&result);
    unload(&loaded);
}

static void run_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    if (!kernels)
        return;
    cr_assert_eq(cases_run(CASES, run_case, kernels), CASE_COUNT);
    qk_kernels_destroy(kernels);
}

Test(golden, scalar)
{
    run_tier("scalar");
}

#ifdef __x86_64__
Test(golden, avx2)
{
    run_tier("avx2");
}

Test(golden, avx512)
{
    run_tier("avx512");
}
#elif defined(__aarch64__)
Test(golden, neon)
{
    run_tier("neon");
}
#endif
