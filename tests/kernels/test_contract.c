/* What kernels/qk.h promises for every operator: roles of inputs, lifetimes, packing in units, and
 * plans that threads share. */
#include <criterion/criterion.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "tests/support/cases.h"
#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

/* ---- A call of each operator --------------------------------------------------------------- */

struct sample {
    struct qk_call call;
    void *blocks[QK_INPUT_COUNT_MAX];
};

/* Gives an input random elements. Floats are from 0.01 to 1. int32s have up to 18 bits, so that a
 * bias does not determine the result alone. */
static void give(struct sample *sample, const char *name, enum qk_type type, uint32_t rank,
                 const size_t *dims)
{
    const size_t i = qk_test_input_index(sample->call.op, name);
    uint64_t random = i + 1;
    size_t bytes;
    qk_test_call_input(&sample->call, name, type, NULL, rank, dims);
    struct qk_tensor *tensor = &sample->call.inputs[i];
    cr_assert(qk_type_bytes(type, tensor->count, &bytes));
    uint8_t *data = sample->blocks[i] = guarded_alloc(bytes, 64);
    for (size_t k = 0; k < bytes; k++)
        data[k] = (uint8_t)(qk_test_random(&random) >> 40);
    for (size_t k = 0; type == QK_FP32 && k < tensor->count; k++)
        ((float *)(void *)data)[k] = (float)(1 + qk_test_random_below(&random, 100)) / 100;
    for (size_t k = 0; type == QK_INT32 && k < tensor->count; k++)
        ((int32_t *)(void *)data)[k] >>= 14;
    tensor->data = data;
}

/* Every call has so many constants that packing has several units. */
#define MANY 150000

static void make_onnx_dequantize(struct sample *sample)
{
    qk_test_call_init(&sample->call, "onnx.DequantizeLinear", 25);
    give(sample, "x", QK_INT8, 2, (size_t[]){2, MANY});
    give(sample, "x_scale", QK_FP32, 1, (size_t[]){MANY});
    give(sample, "x_zero_point", QK_INT8, 1, (size_t[]){MANY});
}

static void make_onnx_quantize(struct sample *sample)
{
    qk_test_call_init(&sample->call, "onnx.QuantizeLinear", 25);
    give(sample, "x", QK_FP32, 2, (size_t[]){2, MANY});
    give(sample, "y_scale", QK_FP32, 1, (size_t[]){MANY});
    give(sample, "y_zero_point", QK_INT8, 1, (size_t[]){MANY});
}

static void make_directml_dequantize(struct sample *sample)
{
    static const int64_t strides[] = {0, 0, MANY / 2, 1};
    const size_t dims[] = {2, 2, 2, MANY / 2};
    qk_test_call_init(&sample->call, "directml.ElementWiseDequantizeLinear", 64);
    give(sample, "InputTensor", QK_UINT32, 4, dims);
    give(sample, "ScaleTensor", QK_FP32, 4, dims);
    give(sample, "ZeroPointTensor", QK_UINT32, 4, dims);
    qk_test_call_strides(&sample->call, "InputTensor", strides, 4);
    qk_test_call_strides(&sample->call, "ScaleTensor", strides, 4);
}

static void make_tensorflow_dequantize(struct sample *sample)
{
    qk_test_call_init(&sample->call, "tensorflow.Dequantize", 1);
    give(sample, "input", QK_INT16, 2, (size_t[]){MANY, 2});
    give(sample, "min_range", QK_FP32, 1, (size_t[]){MANY});
    give(sample, "max_range", QK_FP32, 1, (size_t[]){MANY});
    qk_test_call_int(&sample->call, "axis", 0);
}

static void make_conv_of(struct sample *sample, const char *name, uint64_t version, size_t groups,
                         size_t group_channels, size_t out_channels)
{
    qk_test_call_init(&sample->call, name, version);
    give(sample, "x", QK_UINT8, 4, (size_t[]){1, groups * group_channels, 5, 5});
    give(sample, "x_scale", QK_FP32, 0, NULL);
    give(sample, "x_zero_point", QK_UINT8, 0, NULL);
    give(sample, "w", QK_INT8, 4, (size_t[]){out_channels, group_channels, 3, 3});
    give(sample, "w_scale", QK_FP32, 1, &out_channels);
    give(sample, "w_zero_point", QK_INT8, 1, &out_channels);
    give(sample, "y_scale", QK_FP32, 0, NULL);
    give(sample, "y_zero_point", QK_UINT8, 0, NULL);
    give(sample, "B", QK_INT32, 1, &out_channels);
    ((float *)sample->blocks[qk_test_input_index(sample->call.op, "y_scale")])[0] = 900;
    qk_test_call_int(&sample->call, "group", (int64_t)groups);
}

static void make_conv(struct sample *sample)
{
    make_conv_of(sample, "onnx.QLinearConv", 10, 2, 256, 384);
}

static void make_depthwise(struct sample *sample)
{
    make_conv_of(sample, "onnx.QLinearConv", 10, 30011, 1, 30011);
}

static void make_microsoft_conv(struct sample *sample)
{
    make_conv_of(sample, "com.microsoft.QLinearConv", 1, 2, 256, 384);
}

static void make_conv_integer(struct sample *sample)
{
    qk_test_call_init(&sample->call, "onnx.ConvInteger", 10);
    give(sample, "x", QK_UINT8, 4, (size_t[]){1, 256, 5, 5});
    give(sample, "w", QK_INT8, 4, (size_t[]){384, 256, 3, 3});
    sample->call.variable = 1;
}

/* Only A, the first input, is variable: a matrix is packed if it is constant. */
static void make_matmul_of(struct sample *sample, const char *name, uint64_t version, const char *a,
                           const char *b)
{
    qk_test_call_init(&sample->call, name, version);
    give(sample, a, QK_UINT8, 2, (size_t[]){5, 1024});
    give(sample, "a_scale", QK_FP32, 0, NULL);
    give(sample, "a_zero_point", QK_UINT8, 0, NULL);
    give(sample, b, QK_INT8, 2, (size_t[]){1024, 1500});
    give(sample, "b_scale", QK_FP32, 0, NULL);
    give(sample, "b_zero_point", QK_INT8, 0, NULL);
    give(sample, "y_scale", QK_FP32, 0, NULL);
    give(sample, "y_zero_point", QK_UINT8, 0, NULL);
    ((int8_t *)sample->blocks[qk_test_input_index(sample->call.op, "b_zero_point")])[0] = 0;
    ((float *)sample->blocks[qk_test_input_index(sample->call.op, "y_scale")])[0] = 900;
    sample->call.variable = 1;
}

static void make_qgemm(struct sample *sample)
{
    make_matmul_of(sample, "com.microsoft.QGemm", 1, "A", "B");
}

static void make_qlinear_matmul(struct sample *sample)
{
    make_matmul_of(sample, "onnx.QLinearMatMul", 10, "a", "b");
}

static void make_matmul_integer(struct sample *sample)
{
    qk_test_call_init(&sample->call, "onnx.MatMulInteger", 10);
    give(sample, "A", QK_UINT8, 2, (size_t[]){5, 1024});
    give(sample, "B", QK_INT8, 2, (size_t[]){1024, 1500});
    sample->call.variable = 1;
}

static void (*const makers[])(struct sample *sample) = {
    make_onnx_dequantize,
    make_onnx_quantize,
    make_directml_dequantize,
    make_tensorflow_dequantize,
    make_conv,
    make_depthwise,
    make_qgemm,
    make_qlinear_matmul,
    make_microsoft_conv,
    make_conv_integer,
    make_matmul_integer,
};

#define SAMPLE_COUNT (sizeof(makers) / sizeof(makers[0]))

static void sample_deinit(struct sample *sample)
{
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        if (sample->blocks[i])
            guarded_free(sample->blocks[i]);
}

/* Returns the output of the scalar kernels for the call if its constants stay. Sets *bytes to its
 * size. */
static uint8_t *expect_bytes(const struct qk_call *call, size_t *bytes)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call stays = *call;
    struct qk_test_result result;
    stays.constants_stay = true;
    qk_test_run(kernels, &stays, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    *bytes = result.plan.output_bytes[0];
    qk_kernels_destroy(kernels);
    for (size_t i = 1; i < QK_OUTPUT_COUNT_MAX; i++)
        if (result.outputs[i])
            guarded_free(result.outputs[i]);
    return result.output;
}

/* A check of one call, for each operator and all kernels. */
typedef void check_fn(const struct qk_kernels *kernels, const struct qk_call *call,
                      const uint8_t *expected, size_t bytes);

static void check_all(check_fn *check)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample sample = {0};
        size_t bytes;
        makers[i](&sample);
        uint8_t *expected = expect_bytes(&sample.call, &bytes);
        for (size_t k = 0; k < gemms.count; k++)
            check(gemms.kernels[k], &sample.call, expected, bytes);
        guarded_free(expected);
        sample_deinit(&sample);
    }
    qk_test_gemms_deinit(&gemms);
}

static void check_run(const struct qk_plan *plan, const struct qk_call *call,
                      const uint8_t *expected, size_t bytes)
{
    uint8_t *output = guarded_alloc(bytes, 64);
    cr_assert_eq(plan->output_bytes[0], bytes);
    qk_test_run_units(plan, call, output, 0, plan->unit_count);
    cr_assert_eq(memcmp(output, expected, bytes), 0, "%s, %s: other bytes", call->op->name,
                 plan->kernel);
    guarded_free(output);
}

static struct qk_instance *prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory)
{
    struct qk_error error;
    struct qk_instance *instance;
    cr_assert_eq(qk_prepare(kernels, call, memory, &instance, &error), QK_OK, "%s", error.text);
    return instance;
}

static void plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                 struct qk_memory memory, struct qk_plan *made)
{
    struct qk_error error;
    cr_assert_eq(qk_plan(instance, inputs, memory, made, &error), QK_OK, "%s", error.text);
    for (size_t i = 0; i < made->output_count; i++)
        cr_assert_eq(made->outputs[i].type, instance->output_types[i], "%s: output %zu",
                     instance->op->name, i);
}

Test(contract, has_a_sample_of_each_operator_that_packs)
{
    size_t count;
    const struct qk_operator *const *operators = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        bool found = operators[i]->code->pack == NULL;
        for (size_t k = 0; k < SAMPLE_COUNT; k++) {
            struct sample sample = {0};
            makers[k](&sample);
            found = found || sample.call.op == operators[i];
            sample_deinit(&sample);
        }
        cr_expect(found, "%s: add a call to `makers`", operators[i]->name);
    }
}

/* ---- Roles ---------------------------------------------------------------------------------- */

static void check_fixed(const struct qk_kernels *kernels, const struct qk_call *call,
                        const uint8_t *expected, size_t bytes)
{
    for (int stay = 0; stay < 2; stay++) {
        struct qk_test_memory memory;
        struct qk_call fixed = *call;
        const struct qk_instance *instance;
        struct qk_error error;
        struct qk_plan made;
        fixed.variable = 0;
        fixed.constants_stay = stay;
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_test_create(kernels, &fixed, 1, face, &instance, &error), QK_OK, "%s",
                     error.text);
        plan(instance, NULL, face, &made);
        void *outputs[QK_OUTPUT_COUNT_MAX];
        for (size_t i = 0; i < made.output_count; i++)
            outputs[i] = guarded_alloc(made.output_bytes[i], 64);
        void *workspace = guarded_alloc(made.workspace_bytes, 64);
        qk_run(&made, NULL, outputs, workspace, 0, made.unit_count);
        cr_assert_eq(memcmp(outputs[0], expected, bytes), 0, "%s, %s: other bytes", call->op->name,
                     made.kernel);
        guarded_free(workspace);
        for (size_t i = 0; i < made.output_count; i++)
            guarded_free(outputs[i]);
        qk_test_memory_deinit(&memory);
    }
}

Test(contract, a_fixed_input_gives_the_same_bytes)
{
    check_all(check_fixed);
}

Test(contract, an_input_that_is_not_variable_is_refused_as_one)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample sample = {0};
        makers[i](&sample);
        const struct qk_operator *op = sample.call.op;
        for (size_t k = 0; k < op->input_count; k++) {
            struct qk_test_result result;
            char start[64];
            if (op->variable_inputs >> k & 1)
                continue;
            sample.call.variable = op->variable_inputs | UINT32_C(1) << k;
            snprintf(start, sizeof(start), "%s: ", op->inputs[k].name);
            qk_test_run(kernels, &sample.call, &result);
            cr_expect_eq(result.status, QK_INVALID);
            cr_expect_eq(strncmp(result.error.text, start, strlen(start)), 0, "%s",
                         result.error.text);
        }
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

/* ---- Lifetimes ------------------------------------------------------------------------------ */

/* qk_test_run frees the constants that it lends before it plans. */
static void check_gone(const struct qk_kernels *kernels, const struct qk_call *call,
                       const uint8_t *expected, size_t bytes)
{
    struct qk_test_result result;
    cr_assert_not(call->constants_stay);
    qk_test_run(kernels, call, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_assert_eq(memcmp(result.output, expected, bytes), 0, "%s, %s: other bytes", call->op->name,
                 result.plan.kernel);
    qk_test_result_deinit(&result);
}

Test(contract, constants_may_go_once_they_are_packed)
{
    check_all(check_gone);
}

static void check_packed_bytes(const struct qk_kernels *kernels, const struct qk_call *call,
                               const uint8_t *expected, size_t bytes)
{
    (void)expected;
    (void)bytes;
    for (int variant = 0; variant < 4; variant++) {
        struct qk_test_memory memory;
        struct qk_call other = *call;
        other.constants_stay = variant & 1;
        other.variable = variant & 2 ? call->variable : 0;
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_instance *instance = prepare(kernels, &other, qk_test_memory_face(&memory));
        const size_t prepared = memory.bytes;
        qk_pack(instance, 0, instance->pack_unit_count);
        cr_expect_eq(instance->packed_bytes, prepared, "%s", call->op->name);
        cr_expect_eq(memory.bytes, prepared, "%s: packing took memory", call->op->name);
        qk_test_memory_deinit(&memory);
    }
}

Test(contract, packed_bytes_are_what_the_memory_gave)
{
    check_all(check_packed_bytes);
}

/* A request that brings all inputs, like the server's requests. */
Test(contract, scales_that_stay_are_not_copied)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    struct sample sample = {0};
    struct qk_test_memory memory;
    make_onnx_dequantize(&sample);
    sample.call.inputs[2].type = QK_NONE;
    sample.call.constants_stay = true;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_instance *instance =
        prepare(kernels, &sample.call, qk_test_memory_face(&memory));
    cr_expect_eq(memory.count, 1);
    cr_expect_lt(instance->packed_bytes, 4096);
    cr_expect_eq(instance->pack_unit_count, 0);
    qk_test_memory_deinit(&memory);
    sample_deinit(&sample);
    qk_kernels_destroy(kernels);
}

/* ---- Packing in units ----------------------------------------------------------------------- */

struct packer {
    struct qk_instance *instance;
    size_t first, step;
};

static void *pack_some(void *argument)
{
    const struct packer *packer = argument;
    for (size_t i = packer->first; i < packer->instance->pack_unit_count; i += packer->step)
        qk_pack(packer->instance, i, i + 1);
    return NULL;
}

/* The plan is made before anything is packed. Units are packed from the last to the first, or by
 * several threads. */
static void check_packing(const struct qk_kernels *kernels, const struct qk_call *call,
                          const uint8_t *expected, size_t bytes)
{
    enum { THREADS = 3 };
    for (int threaded = 0; threaded < 2; threaded++) {
        struct qk_test_memory memory;
        struct qk_plan made;
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        struct qk_instance *instance = prepare(kernels, call, face);
        cr_assert_gt(instance->pack_unit_count, 1, "%s: its sample is too small", call->op->name);
        cr_assert_gt(instance->pack_unit_cost_ns, 0);
        plan(instance, call->inputs, face, &made);
        pthread_t threads[THREADS];
        struct packer packers[THREADS];
        for (size_t i = 0; threaded && i < THREADS; i++) {
            packers[i] = (struct packer){instance, i, THREADS};
            cr_assert_eq(pthread_create(&threads[i], NULL, pack_some, &packers[i]), 0);
        }
        for (size_t i = 0; threaded && i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (size_t i = instance->pack_unit_count; !threaded && i-- > 0;)
            qk_pack(instance, i, i + 1);
        check_run(&made, call, expected, bytes);
        qk_test_memory_deinit(&memory);
    }
}

Test(contract, units_are_packed_in_any_order_by_any_thread)
{
    check_all(check_packing);
}

/* ---- Plans that threads share --------------------------------------------------------------- */

struct runner {
    const struct qk_plan *plan;
    const void *x;
    const uint8_t *expected;
    uint8_t *output;
    void *workspace;
};

static void *run_all(void *argument)
{
    const struct runner *runner = argument;
    const void *inputs[QK_INPUT_COUNT_MAX] = {runner->x};
    void *outputs[QK_OUTPUT_COUNT_MAX] = {runner->output};
    qk_run(runner->plan, inputs, outputs, runner->workspace, 0, runner->plan->unit_count);
    return NULL;
}

/* Returns the elements of an input shifted by some bytes, which are other data of the same
 * shape. */
static void *moved(const struct qk_tensor *x, size_t by)
{
    size_t bytes;
    cr_assert(qk_type_bytes(x->type, x->stored, &bytes));
    uint8_t *data = guarded_alloc(bytes, 1);
    for (size_t i = 0; i < bytes; i++)
        data[i] = ((const uint8_t *)x->data)[(i + by) % bytes];
    return data;
}

/* Each thread has its own x, and must get the result of that x. The first has the call's. */
static void check_shared(const struct qk_kernels *kernels, const struct qk_call *call,
                         const uint8_t *expected, size_t bytes)
{
    enum { THREADS = 2 };
    struct qk_test_memory memory;
    struct qk_plan made;
    struct runner runners[THREADS];
    pthread_t threads[THREADS];
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    struct qk_instance *instance = prepare(kernels, call, face);
    qk_pack(instance, 0, instance->pack_unit_count);
    cr_assert_eq(call->variable, 1);
    plan(instance, call->inputs, face, &made);
    for (size_t i = 0; i < THREADS; i++) {
        struct qk_call own = *call;
        struct runner *runner = &runners[i];
        own.inputs[0].data = moved(&call->inputs[0], 4 * i);
        *runner = (struct runner){
            &made, own.inputs[0].data, i == 0 ? expected : expect_bytes(&own, &bytes),
            guarded_alloc(bytes, 64), guarded_alloc(made.workspace_bytes, 64)};
        cr_assert_eq(memcmp(runner->expected, expected, bytes) == 0, i == 0, "%s", call->op->name);
    }
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_all, &runners[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        const struct runner *runner = &runners[i];
        pthread_join(threads[i], NULL);
        cr_assert_eq(memcmp(runner->output, runner->expected, bytes), 0,
                     "%s, %s: thread %zu has other bytes", call->op->name, made.kernel, i);
        guarded_free((void *)runner->x);
        if (i > 0)
            guarded_free((void *)runner->expected);
        guarded_free(runner->output);
        guarded_free(runner->workspace);
    }
    qk_test_memory_deinit(&memory);
}

Test(contract, threads_share_a_plan_with_data_of_their_own)
{
    check_all(check_shared);
}

/* ---- Golden cases --------------------------------------------------------------------------- */

/* The calls of tests/data/operators are small, but there are some of each operator. */
static void check_case(const cJSON *line, const void *kernels)
{
    struct cases_call loaded;
    size_t bytes;
    if (cJSON_HasObjectItem(line, "expect_error"))
        return;
    cases_load_call(&loaded, line);
    uint8_t *expected = expect_bytes(&loaded.call, &bytes);
    check_fixed(kernels, &loaded.call, expected, bytes);
    check_packed_bytes(kernels, &loaded.call, expected, bytes);
    guarded_free(expected);
    cases_unload_call(&loaded);
}

Test(contract, golden_cases_with_fixed_inputs)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    glob_t files;
    cr_assert_eq(glob("tests/data/operators/*.jsonl", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        cr_expect_gt(cases_run(files.gl_pathv[i], check_case, kernels), 0);
    globfree(&files);
    qk_kernels_destroy(kernels);
}
