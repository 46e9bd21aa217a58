/* onnx.QLinearConv with attributes drawn from all 64-bit numbers. Each call must be refused with
 * the name of the attribute that is out of bounds, or must compute the sum over every window. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/conv.h"
#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

/* Larger outputs are planned but not computed. */
#define POSITIONS_MOST 512

/* x is [1, C, rows, columns]. C channels are in groups of one channel or in one group. */
struct hostile {
    size_t channels, group;
    int64_t in[2], kernel[2], stride[2], dilation[2], pads[4];
};

static struct qk_test_gemms gemms;

static void setup(void)
{
    qk_test_gemms_init(&gemms);
}

static void teardown(void)
{
    qk_test_gemms_deinit(&gemms);
}

TestSuite(conv_hostile, .init = setup, .fini = teardown);

/* ---- What must come out ---------------------------------------------------------------------- */

/* Returns the number of positions of an axis, or 0 if no window fits. The numbers are within
 * bounds. */
static int64_t count_out(const struct hostile *test, int i)
{
    const int64_t padded = test->in[i] + test->pads[i] + test->pads[2 + i];
    const int64_t span = (test->kernel[i] - 1) * test->dilation[i] + 1;
    return padded < span ? 0 : (padded - span) / test->stride[i] + 1;
}

static bool is_within(const int64_t *numbers, size_t count, int64_t least)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] < least || numbers[i] > QK_CONV_NUMBER_MAX)
            return false;
    return true;
}

/* Returns the field that a refusal must name, or NULL if the call must be accepted. */
static const char *find_fault(const struct hostile *test)
{
    if (!is_within(test->stride, 2, 1))
        return "strides: ";
    if (!is_within(test->dilation, 2, 1))
        return "dilations: ";
    if (!is_within(test->pads, 4, 0))
        return "pads: ";
    return count_out(test, 0) == 0 || count_out(test, 1) == 0 ? "x: " : NULL;
}

/* All scales are 1, x_zero_point is 2 and w_zero_point 0, so y is the sum, clamped. */
static uint8_t expect(const struct hostile *test, const uint8_t *x, const uint8_t *w, size_t m,
                      int64_t row, int64_t column)
{
    const size_t group_channels = test->channels / test->group;
    const size_t taps = (size_t)(test->kernel[0] * test->kernel[1]);
    int32_t sum = 0;
    for (size_t c = 0; c < group_channels; c++)
        for (size_t tap = 0; tap < taps; tap++) {
            const int64_t i = row * test->stride[0] - test->pads[0] +
                              (int64_t)tap / test->kernel[1] * test->dilation[0];
            const int64_t j = column * test->stride[1] - test->pads[1] +
                              (int64_t)tap % test->kernel[1] * test->dilation[1];
            const size_t channel = test->group == 1 ? c : m;
            if (i >= 0 && i < test->in[0] && j >= 0 && j < test->in[1])
                sum += (x[((int64_t)channel * test->in[0] + i) * test->in[1] + j] - 2) *
                       (int8_t)w[(m * group_channels + c) * taps + tap];
        }
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void make_call(struct qk_call *call, const struct hostile *test, const uint8_t *x,
                      const uint8_t *w)
{
    static const float one = 1;
    static const uint8_t zero_points[] = {2, 0, 0};
    const size_t x_dims[] = {1, test->channels, (size_t)test->in[0], (size_t)test->in[1]};
    const size_t w_dims[] = {test->channels, test->channels / test->group, (size_t)test->kernel[0],
                             (size_t)test->kernel[1]};
    qk_test_call_init(call, "onnx.QLinearConv", 10);
    qk_test_call_input(call, "x", QK_UINT8, x, 4, x_dims);
    qk_test_call_input(call, "w", QK_INT8, w, 4, w_dims);
    qk_test_call_input(call, "x_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "w_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "y_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "x_zero_point", QK_UINT8, &zero_points[0], 0, NULL);
    qk_test_call_input(call, "w_zero_point", QK_INT8, &zero_points[1], 0, NULL);
    qk_test_call_input(call, "y_zero_point", QK_UINT8, &zero_points[2], 0, NULL);
    qk_test_call_int(call, "group", (int64_t)test->group);
    qk_test_call_ints(call, "strides", test->stride, 2);
    qk_test_call_ints(call, "dilations", test->dilation, 2);
    qk_test_call_ints(call, "pads", test->pads, 4);
}

/* Only plans, because y is too large to compare. */
static void check_plan(const struct qk_kernels *kernels, const struct qk_call *call)
{
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, call, face, &instance, &error), QK_OK, "%s", error.text);
    cr_assert_eq(qk_plan(instance, call->inputs, face, &plan, &error), QK_OK, "%s", error.text);
    cr_expect_leq(plan.workspace_bytes, QK_CONV_WORKSPACE_MAX, "%s", plan.kernel);
    cr_expect_leq(plan.unit_count, plan.output_bytes[0], "%s", plan.kernel);
    qk_test_memory_deinit(&memory);
}

/* Returns the expected y, or NULL if the call must be refused or y is too large to compare. */
static uint8_t *expect_all(const struct hostile *test, const uint8_t *x, const uint8_t *w,
                           size_t *bytes)
{
    if (find_fault(test))
        return NULL;
    const int64_t rows = count_out(test, 0), columns = count_out(test, 1);
    if ((uint64_t)rows * (uint64_t)columns > POSITIONS_MOST) /* both are below 2^33 */
        return NULL;
    *bytes = test->channels * (size_t)(rows * columns);
    uint8_t *made = malloc(*bytes), *y = made;
    cr_assert_not_null(made);
    for (size_t m = 0; m < test->channels; m++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                *y++ = expect(test, x, w, m, i, j);
    return made;
}

static void check_run(const struct qk_kernels *kernels, const struct qk_call *call,
                      const uint8_t *expected, size_t bytes, const char *fault, const char *text)
{
    struct qk_test_result result;
    qk_test_run(kernels, call, &result);
    if (fault) {
        cr_assert_eq(result.status, QK_INVALID, "%s: accepted, expected %s", text, fault);
        cr_assert(strncmp(result.error.text, fault, strlen(fault)) == 0, "%s: %s", text,
                  result.error.text);
    } else {
        cr_assert_eq(result.status, QK_OK, "%s: %s", text, result.error.text);
        cr_assert_eq(result.plan.output_bytes[0], bytes, "%s", text);
        cr_assert_arr_eq(result.output, expected, bytes, "%s", text);
    }
    qk_test_result_deinit(&result);
}

static void check(const struct hostile *test, uint64_t seed)
{
    const size_t x_bytes = test->channels * (size_t)(test->in[0] * test->in[1]);
    const size_t w_bytes = test->channels * (test->channels / test->group) *
                           (size_t)(test->kernel[0] * test->kernel[1]);
    const char *fault = find_fault(test);
    uint8_t *x = guarded_alloc(x_bytes, 1);
    uint8_t *w = guarded_alloc(w_bytes, 1);
    uint64_t random = seed;
    struct qk_call call;
    size_t bytes = 0;
    for (size_t i = 0; i < x_bytes; i++)
        x[i] = (uint8_t)qk_test_random_below(&random, 9);
    for (size_t i = 0; i < w_bytes; i++)
        w[i] = (uint8_t)((int)qk_test_random_below(&random, 9) - 3);
    make_call(&call, test, x, w);
    uint8_t *expected = expect_all(test, x, w, &bytes);
    for (size_t g = 0; g < gemms.count; g++) {
        char text[64];
        snprintf(text, sizeof(text), "%s, seed %" PRIu64, gemms.names[g], seed);
        if (expected || fault)
            check_run(gemms.kernels[g], &call, expected, bytes, fault, text);
        else
            check_plan(gemms.kernels[g], &call);
    }
    free(expected);
    guarded_free(x);
    guarded_free(w);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* With these numbers, offsets of rows of taps once wrapped to 0, 0x55555558 and so on, in a channel
 * buffer of 192 bytes. */
Test(conv_hostile, dilation_that_wraps_an_offset)
{
    check(&(struct hostile){.channels = 8,
                            .group = 8,
                            .in = {30, 3},
                            .kernel = {4, 3},
                            .stride = {2, 1},
                            .dilation = {INT64_C(1537228672809129302), 1},
                            .pads = {INT64_C(1) << 62, 1, 0, 1}},
          1);
}

/* With these numbers, the distance of two rows once became 0. */
Test(conv_hostile, stride_that_wraps_a_step)
{
    const int64_t huge = INT64_C(1) << 62;
    check(&(struct hostile){.channels = 8,
                            .group = 8,
                            .in = {30, 3},
                            .kernel = {1, 3},
                            .stride = {huge, 1},
                            .dilation = {1, 1},
                            .pads = {huge, 1, 0, 1}},
          1);
}

/* The largest number that is accepted, and the smallest that is not. */
Test(conv_hostile, limits)
{
    const struct hostile plain = {.channels = 2,
                                  .group = 1,
                                  .in = {5, 6},
                                  .kernel = {3, 2},
                                  .stride = {1, 1},
                                  .dilation = {1, 1}};
    for (int64_t more = 0; more < 2; more++)
        for (int axis = 0; axis < 2; axis++) {
            struct hostile test = plain;
            test.stride[axis] = QK_CONV_NUMBER_MAX + more;
            check(&test, 1);
            test.dilation[axis] = QK_CONV_NUMBER_MAX + more;
            test.stride[axis] = QK_CONV_NUMBER_MAX;
            test.pads[axis] = QK_CONV_NUMBER_MAX;
            test.pads[2 + axis] = QK_CONV_NUMBER_MAX + more;
            check(&test, 1);
            test.dilation[axis] = QK_CONV_NUMBER_MAX;
            check(&test, 1);
        }
}

/* Numbers one beyond the limit, with the texts that clients get. */
Test(conv_hostile, texts)
{
    struct hostile test = {.channels = 2,
                           .group = 1,
                           .in = {5, 6},
                           .kernel = {3, 2},
                           .stride = {1, INT64_MAX},
                           .dilation = {1, 1}};
    struct qk_test_result result;
    struct qk_call call;
    uint8_t x[60] = {0}, w[24] = {0};
    make_call(&call, &test, x, w);
    qk_test_run(gemms.kernels[0], &call, &result);
    cr_expect_str_eq(result.error.text, "strides: expected integers from 1 to 2147483647, got "
                                        "9223372036854775807 at index 1");
    qk_test_result_deinit(&result);

    test.stride[1] = 1;
    qk_test_call_int(&call, "group", INT64_C(1) << 31);
    qk_test_run(gemms.kernels[0], &call, &result);
    cr_expect_str_eq(result.error.text, "group: expected 1 to 2147483647, got 2147483648");
    qk_test_result_deinit(&result);
}

/* SAME pads are not given, but are computed from the kernel and its dilation. */
Test(conv_hostile, same_pads_have_the_limit_of_pads)
{
    static const char *const modes[] = {"SAME_UPPER", "SAME_LOWER"};
    struct hostile test = {.channels = 1,
                           .group = 1,
                           .in = {1, 6},
                           .kernel = {1, 3},
                           .stride = {1, 1},
                           .dilation = {1, QK_CONV_NUMBER_MAX}};
    uint8_t x[6] = {3, 4, 5, 6, 7, 8}, w[4] = {1, 1, 1, 1};
    for (size_t i = 0; i < 4; i++) {
        struct qk_test_result result;
        struct qk_call call;
        test.kernel[1] = i < 2 ? 3 : 4; /* pads of 2^31 - 1 on both sides, or larger ones */
        make_call(&call, &test, x, w);
        call.attributes[qk_test_attribute_index(call.op, "pads")].present = false;
        qk_test_call_string(&call, "auto_pad", modes[i % 2]);
        qk_test_run(gemms.kernels[0], &call, &result);
        if (i < 2) {
            cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
            cr_expect_arr_eq(result.output, ((uint8_t[]){1, 2, 3, 4, 5, 6}), 6);
        } else {
            cr_assert_eq(result.status, QK_INVALID);
            cr_expect(strncmp(result.error.text, "auto_pad: expected pads of at most 2147483647, ",
                              47) == 0,
                      "%s", result.error.text);
        }
        qk_test_result_deinit(&result);
    }
}

/* One axis of x is larger than any memory, but another axis is 0, so x is empty. */
Test(conv_hostile, axes_of_an_empty_x)
{
    static const struct {
        size_t length;
        enum qk_status status;
    } cases[] = {{(size_t)QK_CONV_AXIS_MAX, QK_OK},
                 {(size_t)QK_CONV_AXIS_MAX + 1, QK_INVALID},
                 {SIZE_MAX, QK_INVALID}};
    const struct hostile test = {.channels = 1,
                                 .group = 1,
                                 .in = {1, 1},
                                 .kernel = {1, 1},
                                 .stride = {1, 1},
                                 .dilation = {1, 1}};
    const uint8_t w[] = {1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t dims[] = {0, 1, 1, cases[i].length};
        struct qk_test_result result;
        struct qk_call call;
        make_call(&call, &test, NULL, w);
        qk_test_call_input(&call, "x", QK_UINT8, NULL, 4, dims);
        qk_test_run(gemms.kernels[0], &call, &result);
        cr_expect_eq(result.status, cases[i].status, "%zu", cases[i].length);
        if (result.status != QK_OK)
            cr_expect(strncmp(result.error.text, "x: expected axes of at most 140737488355327, ",
                              45) == 0,
                      "%s", result.error.text);
        qk_test_result_deinit(&result);
    }
}

/* Returns a number of any size: small, near a power of two, or any 64 bits. Out of 8 numbers,
 * `most` are small. */
static int64_t draw(uint64_t *random, size_t small, int64_t least)
{
    if (qk_test_random_below(random, 8) < small)
        return least + (int64_t)qk_test_random_below(random, 4);
    if (qk_test_random_below(random, 8) == 0)
        return (int64_t)qk_test_random(random);
    /* Mostly within bounds, so that the planning code sees the number. */
    const size_t bits = qk_test_random_below(random, 4) == 0 ? 31 + qk_test_random_below(random, 33)
                                                             : qk_test_random_below(random, 32);
    const uint64_t power = UINT64_C(1) << bits;
    return (int64_t)(power + qk_test_random_below(random, 5) - 2);
}

Test(conv_hostile, numbers_over_64_bits)
{
    size_t accepted = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
        struct hostile test = {.channels = 1 + seed % 5};
        if (!qk_test_runs(seed))
            continue;
        test.group = seed % 3 == 0 ? 1 : test.channels;
        const size_t small = qk_test_random_below(&random, 8);
        for (int i = 0; i < 2; i++) {
            test.in[i] = 1 + (int64_t)qk_test_random_below(&random, 30);
            test.kernel[i] = 1 + (int64_t)qk_test_random_below(&random, 5);
            test.stride[i] = draw(&random, small, 1);
            test.dilation[i] = draw(&random, small, 1);
            test.pads[i] = draw(&random, small, 0);
            test.pads[2 + i] = draw(&random, small, 0);
            /* Often a window fits and y is small. */
            const int64_t span = (test.kernel[i] - 1) * (test.dilation[i] % (INT64_C(1) << 40));
            if (qk_test_random_below(&random, 2) == 0 && span > 0 && span < INT64_C(1) << 31)
                test.pads[i] = span;
            if (qk_test_random_below(&random, 2) == 0 && test.pads[i] / 64 > 0)
                test.stride[i] = test.pads[i] / (1 + (int64_t)qk_test_random_below(&random, 60));
        }
        accepted += find_fault(&test) == NULL;
        check(&test, seed);
    }
    if (qk_test_runs(1) && qk_test_runs(2))
        cr_expect_gt(accepted, 300, "%zu", accepted);
}
