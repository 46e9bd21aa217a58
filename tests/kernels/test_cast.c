/* Cast: what the golden cases cannot say, because it needs large tensors, several nodes, or memory
 * that runs out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

enum { TO_FP32 = 1, TO_UINT8 = 2, TO_INT8 = 3, TO_INT64 = 7, TO_BOOL = 9, TO_DOUBLE = 11 };

static void start(struct qk_call *call, enum qk_type type, const void *x, size_t count, int64_t to)
{
    qk_test_call_init(call, "onnx.Cast", 13);
    qk_test_call_input(call, "input", type, x, 1, &count);
    qk_test_call_int(call, "to", to);
}

Test(cast, many_units)
{
    static const size_t counts[] = {((size_t)1 << 19) + 77, (size_t)1 << 19, 4097, 0};
    uint8_t *x = malloc(counts[0]);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(x);
    for (size_t i = 0; i < counts[0]; i++)
        x[i] = (uint8_t)qk_test_random(&random);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct qk_call call;
        struct qk_test_result result;
        start(&call, QK_UINT8, x, counts[i], TO_INT64);
        qk_test_run_tiers(&tiers, &call, i + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_eq(result.plan.unit_count > 1, i < 2);
        const int64_t *y = result.output;
        for (size_t k = 0; k < counts[i]; k++)
            cr_assert_eq(y[k], x[k], "count %zu, element %zu", counts[i], k);
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
    free(x);
}

/* A graph then puts both at one place. */
Test(cast, same_bits_are_an_alias)
{
    static const struct {
        enum qk_type from;
        int64_t to;
        bool is_alias;
    } cases[] = {
        {QK_UINT8, TO_UINT8, true}, {QK_UINT8, TO_INT8, true},  {QK_INT8, TO_UINT8, true},
        {QK_BOOL, TO_UINT8, true},  {QK_UINT8, TO_BOOL, false}, {QK_BOOL, TO_BOOL, true},
        {QK_FP32, TO_FP32, true},   {QK_INT32, TO_FP32, false}, {QK_UINT8, TO_INT64, false},
    };
    static const uint8_t data[64];
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct qk_call call;
        struct qk_test_result result;
        start(&call, cases[i].from, data, 3, cases[i].to);
        qk_test_run(kernels, &call, &result);
        cr_expect_eq(result.plan.is_alias, cases[i].is_alias, "case %zu", i);
        qk_test_result_deinit(&result);
    }
    qk_kernels_destroy(kernels);
}

Test(cast, refusals_name_the_field)
{
    static const uint8_t data[8];
    struct qk_call call;
    start(&call, QK_UINT8, data, 2, TO_DOUBLE);
    qk_test_expect_refusal(&call, "to");
    start(&call, QK_UINT8, data, 2, 0);
    qk_test_expect_refusal(&call, "to");
    start(&call, QK_UINT8, data, 2, TO_INT8);
    call.attributes[qk_test_attribute_index(call.op, "to")].present = false;
    qk_test_expect_refusal(&call, "to");
    start(&call, QK_UINT32, data, 2, TO_INT8);
    qk_test_expect_refusal(&call, "input");
}

Test(cast, every_allocation_may_fail)
{
    static const uint8_t data[8];
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, QK_UINT8, data, sizeof(data), TO_FP32);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
