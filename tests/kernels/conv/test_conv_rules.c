/* What onnx.QLinearConv refuses, what it accepts at the limits, and what it does without memory. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/conv/conv.h"
#include "tests/support/kernels/conv_run.h"
#include "tests/support/kernels/qk_test.h"

/* Returns a plain 2-D case that works: x [1,4,5,5], w [6,2,3,3], group 2. Tests modify it. */
static struct conv_case plain_case(void)
{
    struct conv_case test = {
        .naive = {.images = 1,
                  .channels = 4,
                  .out_channels = 6,
                  .group = 2,
                  .in = {1, 5, 5},
                  .kernel = {1, 3, 3},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .x_scale = 1,
                  .y_scale = 1},
        .spatial_rank = 2,
        .w_scale_all = 1,
        .with_bias = true,
        .bare = true,
        .seed = 5,
    };
    return test;
}

static void refuse_ints(const char *name, const char *field, size_t count, const int64_t *list)
{
    struct conv_case test = plain_case();
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, name, list, count);
    qk_test_expect_refusal(&test.call, field);
    conv_case_deinit(&test);
}

/* The length of a list, and the list. */
#define INTS(...)                                                   \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) \
    {                                                               \
        __VA_ARGS__                                                 \
    }

Test(conv_rules, lists_of_the_wrong_length)
{
    refuse_ints("strides", "strides", INTS(1));
    refuse_ints("strides", "strides", INTS(1, 1, 1));
    refuse_ints("dilations", "dilations", INTS(1));
    refuse_ints("dilations", "dilations", INTS(1, 1, 1));
    refuse_ints("kernel_shape", "kernel_shape", INTS(3));
    refuse_ints("kernel_shape", "kernel_shape", INTS(1, 3, 3));
    refuse_ints("pads", "pads", INTS(1, 1));
    refuse_ints("pads", "pads", INTS(1, 1, 1, 1, 1, 1));
    refuse_ints("pads", "pads", 0, (int64_t[]){0});
}

Test(conv_rules, numbers_out_of_range)
{
    refuse_ints("strides", "strides", INTS(1, 0));
    refuse_ints("strides", "strides", INTS(INT64_MIN, 1));
    refuse_ints("dilations", "dilations", INTS(0, 1));
    refuse_ints("dilations", "dilations", INTS(1, -1));
    refuse_ints("pads", "pads", INTS(0, 0, -1, 0));
    refuse_ints("pads", "pads", INTS(INT64_MIN, 0, 0, 0));
    refuse_ints("kernel_shape", "kernel_shape", INTS(3, 4));
    refuse_ints("kernel_shape", "kernel_shape", INTS(3, -3));
}

Test(conv_rules, numbers_above_the_limit)
{
    const int64_t over = INT64_C(1) << 31;
    static const int64_t huge[] = {INT64_C(1) << 32, INT64_C(1) << 62, INT64_MAX / 2 + 1,
                                   INT64_MAX};
    refuse_ints("strides", "strides", INTS(over, 1));
    refuse_ints("dilations", "dilations", INTS(1, over));
    refuse_ints("pads", "pads", INTS(0, 0, 0, over));
    refuse_ints("kernel_shape", "kernel_shape", INTS(3, over));
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        refuse_ints("strides", "strides", INTS(1, huge[i]));
        refuse_ints("dilations", "dilations", INTS(huge[i], 1));
        refuse_ints("pads", "pads", INTS(0, huge[i], 0, huge[i]));
        refuse_ints("kernel_shape", "kernel_shape", INTS(huge[i], 3));
    }
}

Test(conv_rules, windows_that_do_not_fit)
{
    refuse_ints("dilations", "x", INTS(3, 1));
    refuse_ints("dilations", "x", INTS(1, INT32_MAX));
}

Test(conv_rules, text_of_a_window_that_does_not_fit)
{
    struct conv_case test = plain_case();
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, "dilations", (int64_t[]){1, 4}, 2);
    qk_test_run(kernels, &test.call, &result);
    cr_expect_eq(result.status, QK_INVALID);
    cr_expect_str_eq(result.error.text, "x: expected a window of 9 (kernel 3, dilation 4) to fit "
                                        "in D2, got 5 with pads 0 and 0");
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
    qk_kernels_destroy(kernels);
}

Test(conv_rules, group)
{
    static const int64_t groups[] = {0, -1, INT64_MIN, 4, 7, INT64_C(1) << 31, INT64_MAX};
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        struct conv_case test = plain_case();
        cr_assert(conv_case_make(&test));
        qk_test_call_int(&test.call, "group", groups[i]);
        qk_test_expect_refusal(&test.call, "group");
        conv_case_deinit(&test);
    }
    /* The group divides M, but x has another number of channels. */
    struct conv_case test = plain_case();
    cr_assert(conv_case_make(&test));
    qk_test_call_int(&test.call, "group", 3);
    qk_test_expect_refusal(&test.call, "x");
    conv_case_deinit(&test);
}

Test(conv_rules, auto_pad)
{
    static const char *const unknown[] = {"SAME", "same_upper", "NOTSET ", "VALI", "VALIDE", " "};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        struct conv_case test = plain_case();
        cr_assert(conv_case_make(&test));
        qk_test_call_string(&test.call, "auto_pad", unknown[i]);
        qk_test_expect_refusal(&test.call, "auto_pad");
        conv_case_deinit(&test);
    }
}

Test(conv_rules, auto_pad_excludes_pads)
{
    static const char *const modes[] = {"VALID", "SAME_UPPER", "SAME_LOWER"};
    for (size_t i = 0; i < 3; i++) {
        struct conv_case test = plain_case();
        cr_assert(conv_case_make(&test));
        qk_test_call_string(&test.call, "auto_pad", modes[i]);
        qk_test_call_ints(&test.call, "pads", (int64_t[]){0, 0, 0, 0}, 4);
        qk_test_expect_refusal(&test.call, "pads");
        conv_case_deinit(&test);
    }
}

/* ---- Shapes and types of the inputs ------------------------------------------------------ */

/* Replaces one input's shape. `data` is large enough for each shape. */
static void refuse_shape(const char *input, uint32_t rank, const size_t *dims, const char *field)
{
    static const uint8_t data[1024];
    struct conv_case test = plain_case();
    cr_assert(conv_case_make(&test));
    enum qk_type type = test.call.inputs[qk_test_input_index(test.call.op, input)].type;
    qk_test_call_input(&test.call, input, type, data, rank, dims);
    qk_test_expect_refusal(&test.call, field);
    conv_case_deinit(&test);
}

Test(conv_rules, scalars_have_one_element)
{
    static const char *const names[] = {"x_scale", "x_zero_point", "y_scale", "y_zero_point"};
    for (size_t i = 0; i < 4; i++) {
        refuse_shape(names[i], 1, (size_t[]){2}, names[i]);
        refuse_shape(names[i], 1, (size_t[]){0}, names[i]);
        refuse_shape(names[i], 1, (size_t[]){6}, names[i]); /* M, which only w gives */
        refuse_shape(names[i], 2, (size_t[]){1, 1}, names[i]);
    }
}

Test(conv_rules, parameters_of_w_have_one_or_each)
{
    static const char *const names[] = {"w_scale", "w_zero_point"};
    for (size_t i = 0; i < 2; i++) {
        refuse_shape(names[i], 1, (size_t[]){2}, names[i]);
        refuse_shape(names[i], 1, (size_t[]){0}, names[i]);
        refuse_shape(names[i], 1, (size_t[]){7}, names[i]);
        refuse_shape(names[i], 2, (size_t[]){6, 1}, names[i]);
    }
}

Test(conv_rules, bias_has_each)
{
    refuse_shape("B", 0, NULL, "B");
    refuse_shape("B", 1, (size_t[]){1}, "B");
    refuse_shape("B", 1, (size_t[]){5}, "B");
    refuse_shape("B", 2, (size_t[]){6, 1}, "B");
}

Test(conv_rules, bias_of_one_channel_is_no_scalar)
{
    struct conv_case test = plain_case();
    test.naive.out_channels = test.naive.group = 1;
    cr_assert(conv_case_make(&test));
    qk_test_call_input(&test.call, "B", QK_INT32, test.bias, 0, NULL);
    qk_test_expect_refusal(&test.call, "B");
    conv_case_deinit(&test);
}

Test(conv_rules, shapes_of_x_and_w)
{
    refuse_shape("x", 3, (size_t[]){1, 4, 5}, "x");
    refuse_shape("x", 5, (size_t[]){1, 4, 5, 5, 1}, "x");
    refuse_shape("x", 0, NULL, "x");
    refuse_shape("x", 4, (size_t[]){1, 3, 5, 5}, "x");
    refuse_shape("x", 4, (size_t[]){1, 4, 2, 5}, "x");
    refuse_shape("x", 4, (size_t[]){1, 4, 5, 0}, "x");
    refuse_shape("w", 0, NULL, "w");
    refuse_shape("w", 2, (size_t[]){6, 2}, "w");
    refuse_shape("w", 9, (size_t[]){6, 2, 1, 1, 1, 1, 1, 1, 1}, "w");
    refuse_shape("w", 4, (size_t[]){6, 2, 0, 3}, "w");
    refuse_shape("w", 3, (size_t[]){6, 2, 3}, "x");
    refuse_shape("w", 4, (size_t[]){6, 1, 3, 3}, "x");
}

/* Empty tensors may have any dimensions, up to a limit. */
Test(conv_rules, dimensions_above_the_limit)
{
    static const char *const names[] = {"x", "w"};
    for (size_t i = 0; i < 2; i++) {
        struct conv_case test = plain_case();
        test.spatial_rank = 1;
        test.naive.channels = test.naive.out_channels = test.naive.group = 1;
        test.naive.in[1] = test.naive.kernel[1] = 1;
        cr_assert(conv_case_make(&test));
        size_t dims[] = {1, 0, SIZE_MAX};
        if (i == 0)
            memcpy(dims, (size_t[]){0, 1, (size_t)INT64_MAX + 1}, sizeof(dims));
        qk_test_call_input(&test.call, names[i], QK_UINT8, "", 3, dims);
        qk_test_expect_refusal(&test.call, names[i]);
        conv_case_deinit(&test);
    }
}

Test(conv_rules, zero_points_have_their_tensors_type)
{
    static const char *const names[] = {"x_zero_point", "w_zero_point"};
    for (size_t i = 0; i < 2; i++) {
        struct conv_case test = plain_case();
        cr_assert(conv_case_make(&test));
        qk_test_call_input(&test.call, names[i], QK_INT8, "", 0, NULL);
        qk_test_expect_refusal(&test.call, names[i]);
        conv_case_deinit(&test);
    }
}

/* ---- The edge of what is accepted -------------------------------------------------------- */

/* Runs the call with every backend. All must give the same bytes. */
static void run(const struct qk_call *call, struct qk_test_result *result)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_result other;
        qk_test_run(gemms.kernels[i], call, &other);
        cr_assert_eq(other.status, QK_OK, "%s: %s", gemms.names[i], other.error.text);
        if (i > 0) {
            cr_assert_eq(other.plan.output_bytes[0], result->plan.output_bytes[0]);
            cr_assert_eq(memcmp(other.output, result->output, other.plan.output_bytes[0]), 0,
                         "%s: other bytes than %s", gemms.names[i], gemms.names[0]);
            qk_test_result_deinit(result);
        }
        *result = other;
    }
    qk_test_gemms_deinit(&gemms);
}

static void check(struct conv_case *test)
{
    struct qk_test_result result;
    conv_case_expect(test);
    run(&test->call, &result);
    cr_assert_eq(result.plan.output_bytes[0], test->y_bytes);
    for (size_t i = 0; i < test->y_bytes; i++)
        cr_assert_eq(((uint8_t *)result.output)[i], test->expected[i], "y[%zu]", i);
    qk_test_result_deinit(&result);
    conv_case_deinit(test);
}

Test(conv_rules, empty_auto_pad_is_notset)
{
    struct conv_case test = plain_case();
    test.naive.pad_begin[1] = 2;
    cr_assert(conv_case_make(&test));
    qk_test_call_string(&test.call, "auto_pad", "");
    check(&test);
}

/* A kernel of 2 with dilation 3 spans 4. SAME needs 3 more elements than x has, the odd one at the
 * end or at the beginning. ONNX Runtime refuses this, but ONNX defines it. */
Test(conv_rules, same_pads_of_a_dilated_kernel)
{
    for (int lower = 0; lower < 2; lower++) {
        struct conv_case test = plain_case();
        struct qk_test_result same;
        struct qk_test_result padded;
        test.spatial_rank = 1;
        for (int i = 0; i < 3; i++)
            test.naive.in[i] = test.naive.kernel[i] = test.naive.stride[i] = 1;
        test.naive.in[2] = 7;
        test.naive.kernel[2] = 2;
        test.naive.dilation[2] = 3;
        test.naive.pad_begin[2] = 1 + lower;
        test.naive.pad_end[2] = 2 - lower;
        cr_assert(conv_case_make(&test));
        run(&test.call, &padded);
        test.call.attributes[qk_test_attribute_index(test.call.op, "pads")].present = false;
        qk_test_call_string(&test.call, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
        run(&test.call, &same);
        cr_assert_eq(same.plan.outputs[0].dims[2], 7);
        cr_assert_eq(same.plan.output_bytes[0], padded.plan.output_bytes[0]);
        cr_assert_eq(memcmp(same.output, padded.output, same.plan.output_bytes[0]), 0);
        qk_test_result_deinit(&same);
        qk_test_result_deinit(&padded);
        conv_case_deinit(&test);
    }
}

Test(conv_rules, nothing_in)
{
    struct conv_case test = plain_case(); /* all windows read padding only */
    test.naive.in[1] = 0;
    test.naive.pad_begin[1] = 2;
    test.naive.pad_end[1] = 1;
    cr_assert(conv_case_make(&test));
    check(&test);

    test = plain_case(); /* sums without terms: y is the bias */
    test.naive.channels = 0;
    cr_assert(conv_case_make(&test));
    test.call.inputs[0].data = NULL;
    check(&test);
}

Test(conv_rules, nothing_out)
{
    struct conv_case test = plain_case();
    test.naive.images = 0;
    cr_assert(conv_case_make(&test));
    test.call.inputs[0].data = NULL;
    check(&test);

    test = plain_case();
    test.naive.out_channels = 0;
    test.w_scale_per_channel = test.w_zero_point_per_channel = true;
    cr_assert(conv_case_make(&test));
    check(&test);
}

/* The largest strides that are legal: one window, at position 0. */
Test(conv_rules, huge_strides)
{
    struct conv_case test = plain_case();
    const int64_t strides[] = {INT32_MAX, INT32_MAX};
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, "strides", strides, 2);
    run(&test.call, &result);
    cr_assert_eq(result.plan.output_bytes[0], 6);
    test.naive.in[1] = test.naive.in[2] = 5;
    test.naive.stride[1] = test.naive.stride[2] = 100;
    cr_assert(naive_conv_shape(&test.naive));
    uint8_t expected[6];
    naive_conv_run(&test.naive, expected);
    cr_assert_arr_eq(result.output, expected, 6);
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

/* The largest pads and dilations. The taps of a window lie far apart, and one of them reads x. */
Test(conv_rules, huge_pads_and_dilations)
{
    struct conv_case test = plain_case();
    const int64_t huge = INT32_MAX;
    const int64_t pads[] = {huge, huge, huge - 4, huge - 4};
    const int64_t dilations[] = {huge, huge};
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, "pads", pads, 4);
    qk_test_call_ints(&test.call, "dilations", dilations, 2);
    run(&test.call, &result);
    cr_assert_eq(result.plan.output_bytes[0], 6);
    for (size_t m = 0; m < 6; m++) { /* the middle tap reads x[0] of each channel */
        size_t first = m / 3 * 2;
        int32_t sum = test.bias[m];
        for (size_t c = 0; c < 2; c++)
            sum += (test.x[(first + c) * 25] - test.naive.x_zero_point) *
                   (test.w[(m * 2 + c) * 9 + 4] - test.naive.w_zero_point[m]);
        int32_t y = sum < 0 ? 0 : sum > 255 ? 255 : sum;
        cr_expect_eq(((uint8_t *)result.output)[m], y, "y[%zu]", m);
    }
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

/* Like huge_pads_and_dilations, for rows only. Columns are ordinary, so planes are read as they
 * are, shifted. */
Test(conv_rules, huge_pads_and_dilations_of_rows)
{
    struct conv_case test = plain_case();
    const int64_t huge = INT32_MAX;
    test.bare = false;
    test.naive.dilation[1] = test.naive.pad_begin[1] = test.naive.pad_end[1] = huge;
    test.naive.pad_begin[2] = test.naive.pad_end[2] = 1;
    cr_assert(conv_case_make(&test));
    check(&test);
}

/* Allocates from a small budget, like the server. */
static void *allocate_little(void *context, size_t bytes)
{
    struct qk_memory face = qk_test_memory_face(context);
    return bytes > (1 << 20) ? NULL : face.alloc(face.context, bytes);
}

/* w of shape [2^50, 0, 1, 1] is empty, so no loop may count its channels before memory was
 * allocated for them. Such a loop would run for weeks. */
Test(conv_rules, channels_without_weights)
{
    struct conv_case test = plain_case();
    struct qk_test_gemms gemms;
    const size_t w_dims[] = {(size_t)1 << 50, 0, 1, 1};
    test.naive.group = 1;
    test.with_bias = false;
    cr_assert(conv_case_make(&test));
    qk_test_call_input(&test.call, "w", QK_UINT8, NULL, 4, w_dims);
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_memory memory;
        const struct qk_instance *instance;
        struct qk_error error;
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = {allocate_little, &memory};
        cr_expect_eq(qk_create(gemms.kernels[i], &test.call, face, &instance, &error),
                     QK_NO_MEMORY);
        qk_test_memory_deinit(&memory);
    }
    qk_test_gemms_deinit(&gemms);
    conv_case_deinit(&test);
}

/* The axes of an empty x have the product 2^60, and the second window begins there. */
Test(conv_rules, empty_lines_far_apart)
{
    struct conv_case test = plain_case();
    const size_t x_dims[] = {1, 1, ((size_t)1 << 30) + 1, (size_t)1 << 30, 0};
    const int64_t strides[] = {INT64_C(1) << 30, INT64_C(1) << 30, 1};
    const int64_t pads[] = {0, 0, 1, 0, 0, 0};
    struct qk_test_result result;
    test.spatial_rank = 3;
    test.naive.channels = test.naive.group = test.naive.kernel[1] = test.naive.kernel[2] = 1;
    cr_assert(conv_case_make(&test));
    qk_test_call_input(&test.call, "x", QK_UINT8, NULL, 5, x_dims);
    qk_test_call_ints(&test.call, "strides", strides, 3);
    qk_test_call_ints(&test.call, "pads", pads, 6);
    run(&test.call, &result);
    cr_assert_eq(result.plan.output_bytes[0], 12);
    for (size_t i = 0; i < 12; i++) { /* two windows that read only padding: y is the bias */
        int32_t bias = test.bias[i / 2];
        cr_expect_eq(((uint8_t *)result.output)[i], bias < 0 ? 0 : bias > 255 ? 255 : bias);
    }
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

static void plan_within_bounds(const struct qk_kernels *kernels, const struct qk_call *call,
                               size_t output_bytes)
{
    struct qk_test_memory memory;
    struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    /* The instance is not packed, because plans do not depend on the elements of constants. */
    cr_assert_eq(qk_prepare(kernels, call, face, &instance, &error), QK_OK, "%s", error.text);
    cr_assert_eq(qk_plan(instance, call->inputs, face, &plan, &error), QK_OK, "%s", error.text);
    cr_expect_eq(plan.output_bytes[0], output_bytes);
    cr_expect_leq(plan.workspace_bytes, QK_CONV_WORKSPACE_MAX, "%s", plan.kernel);
    qk_test_memory_deinit(&memory);
}

/* An output of 2^60 elements is planned like any other. The caller refuses it. */
Test(conv_rules, huge_outputs_are_planned)
{
    struct conv_case test = plain_case();
    struct qk_test_gemms gemms;
    const int64_t pads[] = {INT64_C(1) << 28, INT64_C(1) << 29, 0, 0};
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, "pads", pads, 4);
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < gemms.count; i++)
        plan_within_bounds(gemms.kernels[i], &test.call,
                           6 * ((size_t)(1 << 28) + 3) * ((size_t)(1 << 29) + 3));
    qk_test_gemms_deinit(&gemms);
    conv_case_deinit(&test);
}

/* Tries every power of two of channels and lengths. A worker's memory must be bounded for all
 * shapes. */
Test(conv_rules, workspaces_are_bounded)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (int shape = 0; shape < 4 * 5 * 5 * 5; shape++) {
        struct conv_case test = plain_case();
        struct naive_conv *naive = &test.naive;
        naive->group = shape % 4 == 3 ? 8 : 1;
        naive->channels = naive->group * (INT64_C(1) << shape / 4 % 5 * 3);
        naive->out_channels = naive->group * (1 + shape % 4 % 3);
        naive->in[2] = 16 << shape / 20 % 5 * 3;
        naive->in[1] = 8;
        naive->kernel[2] = 1 << shape / 100;
        naive->dilation[2] = shape % 4 + 1;
        naive->pad_begin[2] = 100;
        test.x_fill = test.w_fill = CONV_FILL_MIN;
        if (naive->channels * naive->in[2] > (1 << 22) || !qk_test_runs((size_t)shape))
            continue;
        cr_assert(conv_case_make(&test));
        for (size_t i = 0; i < gemms.count; i++)
            plan_within_bounds(gemms.kernels[i], &test.call, test.y_bytes);
        conv_case_deinit(&test);
    }
    qk_test_gemms_deinit(&gemms);
}

/* A plan may get another x than create did, but of the right type and shape. */
Test(conv_rules, plan_checks_its_own_x)
{
    struct conv_case test = plain_case();
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    cr_assert(conv_case_make(&test));
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, &test.call, face, &instance, &error), QK_OK, "%s", error.text);
    test.call.inputs[0].type = QK_INT8;
    cr_expect_eq(qk_plan(instance, test.call.inputs, face, &plan, &error), QK_INVALID);
    cr_expect_str_eq(error.text, "x: expected datatype UINT8 as for create, got INT8");
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
    conv_case_deinit(&test);
}

/* Numbers of one axis times the number of channels must not overflow. */
Test(conv_rules, channels_last_of_great_strides_and_pads)
{
    static const int64_t pads[] = {0, INT32_MAX, 0, INT32_MAX};
    struct qk_test_gemms gemms;
    struct conv_case test = plain_case();
    test.naive.group = 1;
    test.naive.channels = 40000;
    test.naive.in[1] = test.naive.in[2] = test.naive.kernel[1] = test.naive.kernel[2] = 1;
    for (int i = 1; i < 3; i++)
        test.naive.stride[i] = test.naive.dilation[i] = INT32_MAX;
    qk_test_gemms_init(&gemms);
    conv_case_check(&gemms, &test);
    qk_test_gemms_deinit(&gemms);
    test.form = CONV_FORM_CHANNELS_LAST;
    cr_assert(conv_case_make(&test));
    qk_test_call_ints(&test.call, "pads", pads, 4);
    qk_test_expect_refusal(&test.call, "x");
    conv_case_deinit(&test);
}

Test(conv_rules, channels_last_is_a_flag)
{
    struct conv_case test = plain_case();
    test.form = CONV_FORM_CHANNELS_LAST;
    cr_assert(conv_case_make(&test));
    qk_test_call_int(&test.call, "channels_last", 2);
    qk_test_expect_refusal(&test.call, "channels_last");
    conv_case_deinit(&test);
}

/* x's zero point comes with each run, so its shape is known only then. */
Test(conv_rules, integer_has_one_x_zero_point)
{
    static const uint8_t zero_points[2];
    struct conv_case test = plain_case();
    test.form = CONV_FORM_INTEGER;
    cr_assert(conv_case_make(&test));
    qk_test_call_input(&test.call, "x_zero_point", QK_UINT8, zero_points, 1, (size_t[]){2});
    qk_test_expect_refusal(&test.call, "x_zero_point");
    qk_test_call_input(&test.call, "x_zero_point", QK_INT8, zero_points, 0, NULL);
    qk_test_expect_refusal(&test.call, "x_zero_point");
    conv_case_deinit(&test);
}

Test(conv_rules, every_allocation_may_fail)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (int kind = 0; kind < 2 * CONV_FORM_COUNT; kind++) {
        const bool depthwise = kind & 1;
        struct conv_case test = plain_case();
        test.form = (enum conv_form)(kind / 2);
        test.naive.group = depthwise ? test.naive.channels : test.naive.group;
        test.naive.out_channels = depthwise ? test.naive.channels : test.naive.out_channels;
        test.w_zero_point_per_channel = true;
        cr_assert(conv_case_make(&test));
        for (size_t i = 0; i < gemms.count; i++)
            /* instance, weights, bias, multipliers, plan, and more for some backends */
            cr_expect_geq(qk_test_fail_allocations(gemms.kernels[i], &test.call), 5);
        conv_case_deinit(&test);
    }
    qk_test_gemms_deinit(&gemms);
}
