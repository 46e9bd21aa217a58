/* Runs every golden case on every tier, byte for byte. A file has one case on each line. Other
 * implementations computed the results; `how` names them. */
#include <criterion/criterion.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/kernels/qk_test.h"

#define CASES "tests/data/golden_cases.jsonl"
#define CASE_COUNT 142
#define OPERATOR_CASES "tests/data/operators/*.jsonl"

/* Compares bytes. For NaNs, only the class is known. */
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

static void check_output(const char *id, const cJSON *tensor, const struct qk_test_result *result,
                         size_t index)
{
    const struct qk_tensor *output = &result->plan.outputs[index];
    size_t dims[QK_RANK_MAX];
    size_t bytes;
    uint32_t rank = cases_dims(tensor, dims);
    uint8_t *expected = cases_bytes(cases_string(tensor, "raw_hex"), &bytes);
    cr_expect_eq(output->type, qk_type_by_name(cases_string(tensor, "datatype")), "%s: type", id);
    cr_assert_eq(output->rank, rank, "%s: rank", id);
    cr_expect_eq(memcmp(output->dims, dims, rank * sizeof(dims[0])), 0, "%s: shape", id);
    cr_assert_eq(result->plan.output_bytes[index], bytes, "%s: size", id);
    cr_expect(same(output->type, result->outputs[index], expected, bytes), "%s: other bytes", id);
    free(expected);
}

static void check_outputs(const char *id, const cJSON *line, const struct qk_test_result *result)
{
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(line, "outputs");
    cr_assert_eq(result->status, QK_OK, "%s: %s", id, result->error.text);
    cr_assert_eq(result->plan.output_count, (size_t)cJSON_GetArraySize(outputs), "%s", id);
    for (size_t i = 0; i < result->plan.output_count; i++)
        check_output(id, cJSON_GetArrayItem(outputs, (int)i), result, i);
}

static void run_call(const cJSON *line, const struct qk_call *call, const void *kernels)
{
    const char *id = cases_string(line, "id");
    struct qk_test_result result;
    qk_test_run(kernels, call, &result);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "expect_error")))
        cr_expect_eq(result.status, QK_INVALID, "%s: not refused", id);
    else
        check_outputs(id, line, &result);
    qk_test_result_deinit(&result);
}

/* Planned inputs are constant at first. If there are some, the case runs again, and they come with
 * the plan. */
static void run_case(const cJSON *line, const void *kernels)
{
    struct cases_call loaded;
    cases_load_call(&loaded, line);
    run_call(line, &loaded.call, kernels);
    for (size_t i = 0; i < loaded.call.op->input_count; i++)
        if (loaded.call.op->planned_inputs >> i & 1 && loaded.call.inputs[i].type != QK_NONE)
            loaded.call.variable |= 1U << i;
    if (loaded.call.variable != loaded.call.op->variable_inputs)
        run_call(line, &loaded.call, kernels);
    cases_unload_call(&loaded);
}

/* Each file has the cases of one family of operators. */
static void run_operators(const struct qk_kernels *kernels)
{
    glob_t files;
    cr_assert_eq(glob(OPERATOR_CASES, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        cr_expect_gt(cases_run(files.gl_pathv[i], run_case, kernels), 0, "%s", files.gl_pathv[i]);
    globfree(&files);
}

static void run_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    if (!kernels)
        return;
    cr_assert_eq(cases_run(CASES, run_case, kernels), CASE_COUNT);
    run_operators(kernels);
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
