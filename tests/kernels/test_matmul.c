/* Matrix products that golden cases are too small for: every backend, B fixed and B of the run,
 * many units, K in parts, and failing allocations. The oracle multiplies element by element. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/kernels/qk_test.h"

#define CASES "tests/data/operators/matmul.jsonl"

/* ---- Golden cases with other constants ------------------------------------------------------ */

static void run_case(const cJSON *line, const void *kernels)
{
    struct cases_call loaded;
    struct qk_test_result result;
    size_t bytes;
    cases_load_call(&loaded, line);
    const uint32_t all = loaded.call.variable;
    const bool refused = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "expect_error"));
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(line, "outputs");
    uint8_t *expected =
        refused ? NULL
                : cases_bytes(cases_string(cJSON_GetArrayItem(outputs, 0), "raw_hex"), &bytes);
    const uint32_t b =
        UINT32_C(1) << qk_test_input_index(
            loaded.call.op, strcmp(loaded.call.op->name, "onnx.QLinearMatMul") == 0 ? "b" : "B");
    const uint32_t variables[] = {all, all & ~b, 0};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        loaded.call.variable = variables[i];
        qk_test_run_shuffled(kernels, &loaded.call, 7, &result);
        cr_expect_eq(result.status, refused ? QK_INVALID : QK_OK, "%s: variable %x: %s",
                     cases_string(line, "id"), variables[i], result.error.text);
        if (!refused && result.status == QK_OK)
            cr_expect(result.plan.output_bytes[0] == bytes &&
                          memcmp(result.output, expected, bytes) == 0,
                      "%s: variable %x: other bytes", cases_string(line, "id"), variables[i]);
        qk_test_result_deinit(&result);
    }
    free(expected);
    cases_unload_call(&loaded);
}

Test(matmul, golden_cases_on_every_backend)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++)
        cr_expect_gt(cases_run(CASES, run_case, gemms.kernels[i]), 0);
    qk_test_gemms_deinit(&gemms);
}

/* ---- Random products ------------------------------------------------------------------------ */

struct product {
    size_t m, k, n;
    bool a_signed, b_signed;
    uint8_t *a, *b;
    int8_t b_zero_points[4096];
    int32_t *expected;
};

static int32_t number(uint8_t byte, bool is_signed)
{
    return is_signed ? (int8_t)byte : byte;
}

static void product_init(struct product *product, size_t m, size_t k, size_t n, uint64_t seed)
{
    product->m = m;
    product->k = k;
    product->n = n;
    product->a_signed = qk_test_random(&seed) & 1;
    product->b_signed = qk_test_random(&seed) & 1;
    const bool small = qk_test_random(&seed) & 1;
    product->a = malloc(m * k + 1);
    product->b = malloc(k * n + 1);
    product->expected = calloc(m * n, sizeof(int32_t));
    cr_assert(product->a && product->b && product->expected && n <= 4096);
    for (size_t i = 0; i < m * k; i++)
        product->a[i] = (uint8_t)(qk_test_random(&seed) & 3 ? qk_test_random(&seed) : 255);
    for (size_t i = 0; i < k * n; i++) {
        const uint8_t byte = (uint8_t)qk_test_random(&seed);
        product->b[i] = !small ? byte : product->b_signed ? byte >> 2 : 128 + (byte >> 3);
    }
    for (size_t j = 0; j < n; j++)
        product->b_zero_points[j] = (int8_t)qk_test_random(&seed);
    const int32_t a_zero_point = number(200, product->a_signed);
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                product->expected[i * n + j] +=
                    (number(product->a[i * k + l], product->a_signed) - a_zero_point) *
                    (number(product->b[l * n + j], product->b_signed) -
                     number((uint8_t)product->b_zero_points[j], product->b_signed));
}

static void product_deinit(struct product *product)
{
    free(product->a);
    free(product->b);
    free(product->expected);
}

static void product_call(const struct product *product, struct qk_call *call)
{
    static const uint8_t a_zero_point = 200;
    const enum qk_type a_type = product->a_signed ? QK_INT8 : QK_UINT8;
    const enum qk_type b_type = product->b_signed ? QK_INT8 : QK_UINT8;
    qk_test_call_init(call, "onnx.MatMulInteger", 10);
    qk_test_call_input(call, "A", a_type, product->a, 2, (size_t[]){product->m, product->k});
    qk_test_call_input(call, "B", b_type, product->b, 2, (size_t[]){product->k, product->n});
    qk_test_call_input(call, "a_zero_point", a_type, &a_zero_point, 0, NULL);
    qk_test_call_input(call, "b_zero_point", b_type, product->b_zero_points, 1, &product->n);
}

static void expect_product(const struct qk_test_gemms *gemms, size_t m, size_t k, size_t n,
                           uint64_t seed)
{
    struct product product;
    struct qk_call call;
    struct qk_test_result result;
    product_init(&product, m, k, n, seed);
    product_call(&product, &call);
    const uint32_t all = call.variable;
    for (size_t i = 0; i < gemms->count; i++)
        for (uint32_t fixed = 0; fixed < 2; fixed++) {
            call.variable = all & ~(fixed << qk_test_input_index(call.op, "B"));
            qk_test_run_shuffled(gemms->kernels[i], &call, seed + 1, &result);
            cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
            cr_expect_eq(memcmp(result.output, product.expected, m * n * sizeof(int32_t)), 0,
                         "%zu x %zu x %zu, seed %zu, fixed %u: wrong with %s", m, k, n,
                         (size_t)seed, fixed, gemms->names[i]);
            qk_test_result_deinit(&result);
        }
    product_deinit(&product);
}

Test(matmul, products_on_every_backend)
{
    static const size_t sizes[][3] = {
        {1, 300, 200}, {2, 257, 100}, {3, 66, 35},   {14, 64, 64},  {15, 1, 33},  {16, 5, 1},
        {17, 130, 7},  {33, 64, 97},  {64, 63, 16},  {65, 200, 31}, {66, 12, 12}, {130, 70, 40},
        {600, 20, 40}, {1, 1, 1},     {1, 5000, 70}, {19, 4100, 9}, {5, 0, 9},
    };
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (uint64_t seed = 0; qk_test_runs(i) && seed < 4; seed++)
            expect_product(&gemms, sizes[i][0], sizes[i][1], sizes[i][2], 10 * i + seed);
    qk_test_gemms_deinit(&gemms);
}

/* K so long that it is taken in parts. */
Test(matmul, long_sums)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    expect_product(&gemms, 1, 140001, 3, 1);
    expect_product(&gemms, 21, 70003, 5, 2);
    qk_test_gemms_deinit(&gemms);
}

Test(matmul, failed_allocations)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct product product;
    struct qk_call call;
    product_init(&product, 3, 10, 5, 1);
    product_call(&product, &call);
    cr_expect_gt(qk_test_fail_allocations(kernels, &call), 2);
    call.variable &= ~(UINT32_C(1) << qk_test_input_index(call.op, "B"));
    cr_expect_gt(qk_test_fail_allocations(kernels, &call), 4);
    product_deinit(&product);
    qk_kernels_destroy(kernels);
}

/* Many tiny matrices would be mostly padding if they were packed, so they are kept as they are. */
Test(matmul, tiny_matrices_stay_small)
{
    enum { COUNT = 100000 };
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_error error;
    struct qk_call call;
    uint8_t *ones = malloc(COUNT);
    cr_assert_not_null(ones);
    memset(ones, 1, COUNT);
    qk_test_call_init(&call, "onnx.MatMulInteger", 10);
    qk_test_call_input(&call, "A", QK_UINT8, ones, 3, (size_t[]){COUNT, 1, 1});
    qk_test_call_input(&call, "B", QK_UINT8, ones, 3, (size_t[]){COUNT, 1, 1});
    call.variable = UINT32_C(1) << qk_test_input_index(call.op, "A");
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_assert_eq(qk_test_create(kernels, &call, 0, qk_test_memory_face(&memory), &instance, &error),
                 QK_OK);
    cr_expect_lt(memory.bytes, 9 * COUNT + (2 << 20));
    qk_test_memory_deinit(&memory);
    struct qk_test_result result;
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(((const int32_t *)result.output)[i], 1);
    qk_test_result_deinit(&result);
    free(ones);
    qk_kernels_destroy(kernels);
}

/* A file needs no bytes for a B without rows, so its columns are no reason to take memory. */
Test(matmul, an_empty_constant_takes_no_memory)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (int bits = 26; bits <= 62; bits += 36) {
        const size_t wide[] = {0, (size_t)1 << bits};
        const size_t many[] = {(size_t)1 << bits, 0, 1};
        for (uint32_t rank = 2; rank <= 3; rank++) {
            struct qk_test_memory memory;
            const struct qk_instance *instance;
            struct qk_error error;
            struct qk_call call;
            qk_test_call_init(&call, "onnx.MatMulInteger", 10);
            qk_test_call_input(&call, "A", QK_UINT8, "", 2, (const size_t[]){1, 0});
            qk_test_call_input(&call, "B", QK_UINT8, "", rank, rank == 2 ? wide : many);
            call.variable = UINT32_C(1) << qk_test_input_index(call.op, "A");
            qk_test_memory_init(&memory, SIZE_MAX);
            cr_assert_eq(qk_create(kernels, &call, qk_test_memory_face(&memory), &instance, &error),
                         QK_OK, "%s", error.text);
            cr_expect_lt(memory.bytes, 1 << 20);
            qk_test_memory_deinit(&memory);
        }
    }
    qk_kernels_destroy(kernels);
}

static void expect_too_large(const char *name, const size_t *a, const size_t *b)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    struct qk_call call;
    qk_test_call_init(&call, name, 10);
    qk_test_call_input(&call, "A", QK_UINT8, NULL, 3, a);
    qk_test_call_input(&call, "B", QK_UINT8, NULL, 3, b);
    call.variable = 3;
    qk_test_memory_init(&memory, SIZE_MAX);
    cr_assert_eq(qk_create(kernels, &call, qk_test_memory_face(&memory), &instance, &error), QK_OK);
    cr_expect_eq(qk_plan(instance, call.inputs, qk_test_memory_face(&memory), &plan, &error),
                 QK_INVALID);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

Test(matmul, refuses_products_that_overflow)
{
    const size_t big = (size_t)1 << 31;
    expect_too_large("onnx.MatMulInteger", (size_t[]){1, big, 1}, (size_t[]){1, 1, big});
    expect_too_large("onnx.MatMulInteger", (size_t[]){1, big, 0}, (size_t[]){big, 0, 4});
}
