/* Operators on FP32: what the golden cases cannot say, because it needs large tensors, memory that
 * runs out, or the text of an error. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/floats/sums.h"
#include "tests/support/kernels/qk_test.h"

enum { COUNT = 3 * 40 * 5000 };

/* Returns COUNT numbers from -8 to 8, behind one byte: no operand is aligned. */
static char *make_numbers(char **block)
{
    uint64_t random = 2807;
    *block = malloc(COUNT * sizeof(float) + 1);
    cr_assert(*block);
    for (size_t i = 0; i < COUNT; i++) {
        const float number = (float)(qk_test_random(&random) % 16000) / 1000 - 8;
        memcpy(*block + 1 + i * sizeof(number), &number, sizeof(number));
    }
    return *block + 1;
}

static float at(const void *floats, size_t index)
{
    float value;
    memcpy(&value, (const char *)floats + index * sizeof(value), sizeof(value));
    return value;
}

/* Runs the call on all tiers, in units in a random order, and returns the result of the last. */
static void run(const struct qk_call *call, struct qk_test_result *result)
{
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    qk_test_run_tiers(&tiers, call, 5, result);
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
    qk_test_tiers_deinit(&tiers);
}

Test(floats, many_units)
{
    static const size_t dims[] = {3, 40, 5000};
    char *block;
    const char *x = make_numbers(&block);
    struct qk_call call;
    struct qk_test_result result;
    qk_test_call_init(&call, "onnx.ThresholdedRelu", 22);
    qk_test_call_input(&call, "X", QK_FP32, x, 3, dims);
    run(&call, &result);
    cr_expect_gt(result.plan.unit_count, 1);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(at(result.output, i), at(x, i) > 1 ? at(x, i) : 0, "%zu", i);
    qk_test_result_deinit(&result);
    free(block);
}

/* Long rows are computed as they are, and short rows are gathered. */
Test(floats, operands_that_repeat)
{
    static const size_t dims[][2][4] = {{{3, 40, 50, 100}, {1, 40, 1, 1}},
                                        {{3, 40, 50, 100}, {3, 1, 50, 100}},
                                        {{3000, 4, 10, 5}, {1, 4, 1, 5}},
                                        {{3000, 4, 10, 5}, {3000, 1, 10, 1}}};
    char *block;
    const char *x = make_numbers(&block);
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        struct qk_call call;
        struct qk_test_result result;
        const size_t *a = dims[i][0];
        const size_t *b = dims[i][1];
        qk_test_call_init(&call, "onnx.Sub", 14);
        qk_test_call_input(&call, "A", QK_FP32, x, 4, a);
        qk_test_call_input(&call, "B", QK_FP32, x, 4, b);
        run(&call, &result);
        for (size_t k = 0; k < COUNT; k++) {
            size_t other = 0;
            for (size_t axis = 0, left = k, size = COUNT; axis < 4; axis++) {
                size /= a[axis];
                other = other * b[axis] + (b[axis] == 1 ? 0 : left / size);
                left %= size;
            }
            cr_assert_eq(at(result.output, k), at(x, k) - at(x, other), "%zu: %zu", i, k);
        }
        qk_test_result_deinit(&result);
    }
    free(block);
}

/* Rows are added up by fours, or by sixteens. Sums of integers are exact in any order. */
Test(floats, means_of_all_lengths)
{
    enum { ROWS = 22, LENGTHS = 70 };
    char bytes[ROWS * LENGTHS * sizeof(float) + 1];
    for (size_t length = 1; length <= LENGTHS; length++)
        for (size_t index = 0; index < 4; index++) {
            float means[ROWS] = {0}, made[ROWS];
            for (size_t i = 0; i < ROWS * length; i++) {
                const float number = (float)(i * 37 % 101);
                memcpy(bytes + 1 + i * sizeof(number), &number, sizeof(number));
                means[i / length] += number;
            }
            for (size_t row = 0; row < ROWS; row++)
                means[row] /= (float)length;
            qk_means(QK_SUM_POOL, bytes + 1, length, ROWS, index, made);
            cr_assert_arr_eq(made, means, sizeof(means));
            qk_means(QK_SUM_ALIGNED, bytes + 1, length, ROWS, index, made);
            cr_assert_arr_eq(made, means, sizeof(means));
            qk_means(QK_SUM_IN_ORDER, bytes + 1, length, ROWS, index, made);
            cr_assert_arr_eq(made, means, sizeof(means));
        }
}

/* Rows of more positions than are computed together, and padding on both sides. Sums of integers
 * are exact in any order. */
Test(floats, windows_of_long_rows)
{
    enum { LINES = 5, COLUMNS = 700, OUT_LINES = 5 };
    static const size_t dims[] = {1, 1, LINES, COLUMNS};
    static const int64_t kernel[] = {3, 3};
    static const int64_t pads[] = {1, 1, 1, 1};
    static float x[LINES][COLUMNS];
    for (size_t i = 0; i < LINES * COLUMNS; i++)
        x[i / COLUMNS][i % COLUMNS] = (float)(i * 7919 % 1009) - 500;
    for (int64_t stride = 1; stride <= 3; stride++)
        for (size_t kind = 0; kind < 2; kind++) {
            struct qk_call call;
            struct qk_test_result result;
            const int64_t strides[] = {1, stride};
            const size_t out = (COLUMNS - 1) / (size_t)stride + 1;
            qk_test_call_init(&call, kind == 0 ? "onnx.MaxPool" : "onnx.AveragePool", 11);
            qk_test_call_input(&call, "X", QK_FP32, x, 4, dims);
            qk_test_call_ints(&call, "kernel_shape", kernel, 2);
            qk_test_call_ints(&call, "strides", strides, 2);
            qk_test_call_ints(&call, "pads", pads, 4);
            run(&call, &result);
            for (size_t i = 0; i < OUT_LINES * out; i++) {
                float sum = 0;
                float most = -1000;
                float count = 0;
                for (size_t tap = 0; tap < 9; tap++) {
                    const size_t line = i / out + tap / 3 - 1; /* wraps beside the image */
                    const size_t column = i % out * (size_t)stride + tap % 3 - 1;
                    if (line >= LINES || column >= COLUMNS)
                        continue;
                    sum += x[line][column];
                    most = x[line][column] > most ? x[line][column] : most;
                    count++;
                }
                cr_assert_eq(at(result.output, i), kind == 0 ? most : sum / count, "%zu", i);
            }
            qk_test_result_deinit(&result);
        }
}

/* ---- Refusals and memory ------------------------------------------------------------------- */

static const float data[64];

static void start(struct qk_call *call, const char *name, const char *input, uint32_t rank)
{
    static const size_t dims[] = {2, 2, 4, 4};
    qk_test_call_init(call, name, 17);
    qk_test_call_input(call, input, QK_FP32, data, rank, dims);
}

Test(floats, refusals_name_the_field)
{
    static const int64_t kernel[] = {2, 2};
    static const int64_t middle[] = {1};
    static const size_t three[] = {3};
    struct qk_call call;
    start(&call, "onnx.ReduceMean", "data", 4);
    qk_test_call_ints(&call, "axes", middle, 1);
    qk_test_expect_refusal(&call, "axes");
    start(&call, "onnx.AveragePool", "X", 4);
    qk_test_call_ints(&call, "kernel_shape", kernel, 2);
    qk_test_call_int(&call, "ceil_mode", 1);
    qk_test_call_int(&call, "count_include_pad", 1);
    qk_test_expect_refusal(&call, "count_include_pad");
    start(&call, "onnx.Celu", "X", 4);
    qk_test_call_float(&call, "alpha", -1);
    qk_test_expect_refusal(&call, "alpha");
    start(&call, "onnx.Pow", "X", 4);
    qk_test_call_input(&call, "Y", QK_FP32, data, 4, (const size_t[]){2, 2, 4, 4});
    qk_test_expect_refusal(&call, "Y");
    start(&call, "onnx.Add", "A", 4);
    qk_test_call_input(&call, "B", QK_FP32, data, 1, three);
    qk_test_expect_refusal(&call, "B");
    start(&call, "onnx.GlobalAveragePool", "X", 2);
    qk_test_expect_refusal(&call, "X");
}

Test(floats, every_allocation_may_fail)
{
    static const char *const names[] = {"onnx.Tanh", "onnx.GlobalAveragePool", "onnx.Relu"};
    static const int64_t kernel[] = {2, 2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        start(&call, names[i], "X", 4);
        cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2, "%s", names[i]);
    }
    start(&call, "onnx.MaxPool", "X", 4);
    qk_test_call_ints(&call, "kernel_shape", kernel, 2);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    start(&call, "onnx.ReduceMean", "data", 4);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    start(&call, "onnx.Mul", "A", 4);
    qk_test_call_input(&call, "B", QK_FP32, data, 0, NULL);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
