/* What golden cases of moving operators are too small for: plans with many units, each memory
 * failure, and sizes that no memory has. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/kernels/qk_test.h"

/* No element of x: the constant 0. */
#define FILLED SIZE_MAX

static void compare(const struct qk_call *call, const struct qk_test_tiers *tiers, size_t bytes,
                    size_t (*expected)(const struct qk_tensor *x, size_t index))
{
    static const char zero[8];
    const struct qk_tensor *x = &call->inputs[0];
    struct qk_test_result result;
    qk_test_run_tiers(tiers, call, 28, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_expect_gt(result.plan.unit_count, 1);
    for (size_t i = 0; i < result.plan.outputs[0].count; i++) {
        const size_t from = expected(x, i);
        cr_assert_eq(memcmp((const char *)result.output + i * bytes,
                            from == FILLED ? zero : (const char *)x->data + from * bytes, bytes),
                     0, "%s: element %zu", result.plan.kernel, i);
    }
    qk_test_result_deinit(&result);
}

/* Runs the call whole and in pieces on each tier, and compares element by element with `expected`,
 * which says for each element of the output which element of the input it is. Then does the same
 * with outputs that are written past the caches. */
static void run_large(const struct qk_call *call, size_t bytes,
                      size_t (*expected)(const struct qk_tensor *x, size_t index))
{
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < tiers.count; i++)
        tiers.kernels[i]->choice.elementwise.unit_ns = 1; /* small units */
    compare(call, &tiers, bytes, expected);
    for (size_t i = 0; i < tiers.count; i++)
        tiers.kernels[i]->choice.elementwise.stream_bytes = 1;
    compare(call, &tiers, bytes, expected);
    qk_test_tiers_deinit(&tiers);
}

static void *random_bytes(size_t count)
{
    uint64_t state = 28;
    uint8_t *bytes = malloc(count);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)qk_test_random_below(&state, 256);
    return bytes;
}

static size_t same(const struct qk_tensor *x, size_t index)
{
    (void)x;
    return index;
}

static size_t turned(const struct qk_tensor *x, size_t index)
{
    return index % x->dims[0] * x->dims[1] + index / x->dims[0];
}

static void run_transpose(enum qk_type type, size_t rows, size_t columns)
{
    struct qk_call call;
    const size_t bytes = qk_type_info(type)->bits / 8U;
    void *x = random_bytes(rows * columns * bytes);
    qk_test_call_init(&call, "onnx.Transpose", 13);
    qk_test_call_input(&call, "data", type, x, 2, (size_t[]){rows, columns});
    run_large(&call, bytes, turned);
    free(x);
}

Test(move, transposes_in_many_units)
{
    run_transpose(QK_UINT8, 1031, 1027);
    run_transpose(QK_INT16, 1400009, 3);
    run_transpose(QK_FP32, 3, 1000003);
    run_transpose(QK_INT64, 5, 200003);
}

Test(move, aliases_run_as_copies)
{
    const size_t count = (size_t)9 << 20;
    struct qk_call call;
    void *x = random_bytes(count);
    qk_test_call_init(&call, "onnx.Identity", 13);
    qk_test_call_input(&call, "input", QK_UINT8, x, 1, &count);
    run_large(&call, 1, same);
    free(x);
}

/* ---- Tiles ------------------------------------------------------------------------------- */

/* What the expected elements depend on: the shape of the output, and what is cut off or added
 * before it along each of the last two axes. */
static struct {
    size_t rows, columns;
    size_t before[2];
} now;

static size_t at(const struct qk_tensor *x, size_t plane, size_t row, size_t column)
{
    return (plane * x->dims[1] + row) * x->dims[2] + column;
}

static size_t sliced(const struct qk_tensor *x, size_t index)
{
    const size_t row = index / now.columns;
    return at(x, row / now.rows, row % now.rows + now.before[0],
              index % now.columns + now.before[1]);
}

static size_t padded(const struct qk_tensor *x, size_t index)
{
    const size_t plane = index / now.columns / now.rows;
    const size_t row = index / now.columns % now.rows - now.before[0]; /* may wrap */
    const size_t column = index % now.columns - now.before[1];
    return row < x->dims[1] && column < x->dims[2] ? at(x, plane, row, column) : FILLED;
}

static size_t doubled(const struct qk_tensor *x, size_t index)
{
    const size_t row = index / (2 * x->dims[2]);
    return row / 2 * x->dims[2] + index % (2 * x->dims[2]) / 2;
}

static size_t images_turned(const struct qk_tensor *x, size_t index)
{
    const size_t plane = x->dims[1] * x->dims[2];
    return index / plane * plane + index % x->dims[1] * x->dims[2] + index % plane / x->dims[1];
}

static void start(struct qk_call *call, const char *name, const char *input, enum qk_type type,
                  void *x, const size_t *dims)
{
    qk_test_call_init(call, name, 13);
    qk_test_call_input(call, input, type, x, 3, dims);
}

static void run_slice(enum qk_type type, void *x, const size_t *dims, size_t begin, size_t cut)
{
    const int64_t starts[] = {(int64_t)begin, (int64_t)begin};
    const int64_t ends[] = {-(int64_t)cut, -(int64_t)cut};
    const int64_t axes[] = {1, 2};
    struct qk_call call;
    start(&call, "onnx.Slice", "data", type, x, dims);
    qk_test_call_input(&call, "starts", QK_INT64, starts, 1, (size_t[]){2});
    qk_test_call_input(&call, "ends", QK_INT64, ends, 1, (size_t[]){2});
    qk_test_call_input(&call, "axes", QK_INT64, axes, 1, (size_t[]){2});
    now.rows = dims[1] - begin - cut;
    now.columns = dims[2] - begin - cut;
    now.before[0] = now.before[1] = begin;
    run_large(&call, qk_type_info(type)->bits / 8U, sliced);
}

static void run_pad(enum qk_type type, void *x, const size_t *dims, const int64_t *pads)
{
    const int64_t all[] = {0, pads[0], pads[1], 0, pads[2], pads[3]};
    struct qk_call call;
    start(&call, "onnx.Pad", "data", type, x, dims);
    qk_test_call_input(&call, "pads", QK_INT64, all, 1, (size_t[]){6});
    now.rows = dims[1] + (size_t)(pads[0] + pads[2]);
    now.columns = dims[2] + (size_t)(pads[1] + pads[3]);
    now.before[0] = (size_t)pads[0];
    now.before[1] = (size_t)pads[1];
    run_large(&call, qk_type_info(type)->bits / 8U, padded);
}

Test(move, slices_tile_by_tile)
{
    void *x = random_bytes((size_t)1 << 19);
    run_slice(QK_UINT8, x, (size_t[]){300, 32, 32}, 1, 1);
    run_slice(QK_UINT8, x, (size_t[]){2, 300, 401}, 3, 2);
    run_slice(QK_FP32, x, (size_t[]){3, 101, 207}, 1, 2);
    free(x);
}

Test(move, pads_tile_by_tile)
{
    void *x = random_bytes((size_t)1 << 19);
    run_pad(QK_UINT8, x, (size_t[]){300, 32, 32}, (int64_t[]){1, 1, 1, 1});
    run_pad(QK_UINT8, x, (size_t[]){3, 251, 407}, (int64_t[]){2, 0, 0, 3});  /* cut by rows */
    run_pad(QK_INT16, x, (size_t[]){1, 1, 150001}, (int64_t[]){0, 7, 0, 9}); /* by columns */
    run_pad(QK_FP32, x, (size_t[]){40, 33, 31}, (int64_t[]){0, 1, 5, 0});
    run_pad(QK_FP32, x, (size_t[]){9, 21, 331}, (int64_t[]){9, 1, 0, 2}); /* long runs: boxes */
    run_pad(QK_UINT8, x, (size_t[]){7, 10, 1}, (int64_t[]){0, 600, 0, 5000});
    /* Boxes fill around planes that fit in a tile. */
    run_pad(QK_UINT8, x, (size_t[]){60, 3, 100}, (int64_t[]){50, 0, 0, 0});
    run_pad(QK_INT16, x, (size_t[]){40, 9, 61}, (int64_t[]){20, 2, 30, 1});
    free(x);
}

Test(move, resizes_and_turns_tile_by_tile)
{
    static const float scales[] = {1, 2, 2};
    static const int64_t perm[] = {0, 2, 1};
    const size_t dims[] = {90, 32, 37};
    const enum qk_type types[] = {QK_UINT8, QK_INT16, QK_FP32, QK_INT64};
    void *x = random_bytes((size_t)1 << 20);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct qk_call call;
        start(&call, "onnx.Resize", "X", types[i], x, dims);
        qk_test_call_input(&call, "scales", QK_FP32, scales, 1, (size_t[]){3});
        run_large(&call, qk_type_info(types[i])->bits / 8U, doubled);
        start(&call, "onnx.Transpose", "data", types[i], x, dims);
        qk_test_call_ints(&call, "perm", perm, 3);
        run_large(&call, qk_type_info(types[i])->bits / 8U, images_turned);
    }
    free(x);
}

/* ---- Blocks of pixels -------------------------------------------------------------------- */

#define BLOCK 2

static size_t to_depth(const struct qk_tensor *x, size_t index)
{
    const size_t rows = x->dims[2] / BLOCK, columns = x->dims[3] / BLOCK;
    const size_t channel = index / (rows * columns);
    const size_t pixel = channel / x->dims[1];
    const size_t row = index / columns % rows * BLOCK + pixel / BLOCK;
    return (channel % x->dims[1] * x->dims[2] + row) * x->dims[3] + index % columns * BLOCK +
           pixel % BLOCK;
}

static size_t to_depth_crd(const struct qk_tensor *x, size_t index)
{
    const size_t rows = x->dims[2] / BLOCK, columns = x->dims[3] / BLOCK;
    const size_t channel = index / (rows * columns);
    const size_t pixel = channel % (BLOCK * BLOCK);
    const size_t row = index / columns % rows * BLOCK + pixel / BLOCK;
    return (channel / (BLOCK * BLOCK) * x->dims[2] + row) * x->dims[3] + index % columns * BLOCK +
           pixel % BLOCK;
}

static size_t to_space(const struct qk_tensor *x, size_t index)
{
    const size_t columns = x->dims[3] * BLOCK, rows = x->dims[2] * BLOCK;
    const size_t row = index / columns % rows, column = index % columns;
    const size_t pixel = row % BLOCK * BLOCK + column % BLOCK;
    const size_t channel = pixel * (x->dims[1] / BLOCK / BLOCK) + index / (rows * columns);
    return (channel * x->dims[2] + row / BLOCK) * x->dims[3] + column / BLOCK;
}

Test(move, moves_blocks_tile_by_tile)
{
    const size_t dims[] = {1, 152, 34, 42};
    const enum qk_type types[] = {QK_UINT8, QK_INT16, QK_FP32, QK_INT64};
    void *x = random_bytes((size_t)2 << 20);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const size_t bytes = qk_type_info(types[i])->bits / 8U;
        struct qk_call call;
        qk_test_call_init(&call, "onnx.DepthToSpace", 13);
        qk_test_call_input(&call, "input", types[i], x, 4, dims);
        qk_test_call_int(&call, "blocksize", BLOCK);
        run_large(&call, bytes, to_space);
        qk_test_call_init(&call, "onnx.SpaceToDepth", 28);
        qk_test_call_input(&call, "input", types[i], x, 4, dims);
        qk_test_call_int(&call, "blocksize", BLOCK);
        run_large(&call, bytes, to_depth);
        qk_test_call_string(&call, "mode", "CRD");
        run_large(&call, bytes, to_depth_crd);
    }
    free(x);
}

/* Fills the stack below the caller with ones, so that members which nobody sets are not 0. */
static __attribute__((noinline)) void fill_stack(void)
{
    volatile char bytes[1 << 16];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = -1;
}

Test(move, resizes_to_the_same_size)
{
    const uint8_t x[6] = {1, 2, 3, 4, 5, 6};
    const int64_t sizes[] = {2, 3};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    struct qk_call call;
    uint8_t y[6];
    qk_test_call_init(&call, "onnx.Resize", 13);
    qk_test_call_input(&call, "X", QK_UINT8, x, 2, (size_t[]){2, 3});
    qk_test_call_input(&call, "sizes", QK_INT64, sizes, 1, (size_t[]){2});
    call.variable = 1;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, &call, face, &instance, &error), QK_OK);
    fill_stack();
    cr_assert_eq(qk_plan(instance, call.inputs, face, &plan, &error), QK_OK);
    qk_run(&plan, (const void *[]){x}, (void *[]){y}, NULL, 0, plan.unit_count);
    cr_expect_eq(memcmp(x, y, sizeof(y)), 0);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

Test(move, slices_back_to_the_beginning)
{
    static const int64_t ends[] = {INT32_MAX, INT64_MAX, INT64_MIN};
    const uint8_t x[5] = {1, 2, 3, 4, 5};
    const int64_t start[] = {-2};
    const int64_t step[] = {-3};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct qk_test_result result;
        struct qk_call call;
        qk_test_call_init(&call, "onnx.Slice", 13);
        qk_test_call_input(&call, "data", QK_UINT8, x, 1, (size_t[]){5});
        qk_test_call_input(&call, "starts", QK_INT64, start, 1, (size_t[]){1});
        qk_test_call_input(&call, "ends", QK_INT64, &ends[i], 1, (size_t[]){1});
        qk_test_call_input(&call, "steps", QK_INT64, step, 1, (size_t[]){1});
        qk_test_run(kernels, &call, &result);
        cr_assert_eq(result.plan.outputs[0].count, 2, "%zu", i);
        cr_expect_eq(memcmp(result.output, (uint8_t[]){4, 1}, 2), 0);
        qk_test_result_deinit(&result);
    }
    qk_kernels_destroy(kernels);
}

static void start_split(struct qk_call *call, unsigned version, size_t outputs)
{
    static const uint8_t x[6];
    qk_test_call_init(call, "onnx.Split", version);
    qk_test_call_input(call, "input", QK_UINT8, x, 1, (size_t[]){6});
    call->output_count = outputs;
}

/* A node of a file has as many parts as outputs. */
Test(move, splits_into_the_outputs_of_the_node)
{
    const int64_t sizes[] = {2, 2, 2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    struct qk_call call;
    start_split(&call, 13, 3);
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.plan.output_count, 3);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(result.plan.outputs[i].count, 2);
    qk_test_result_deinit(&result);
    start_split(&call, 13, 0);
    qk_test_expect_refusal(&call, "num_outputs");
    qk_test_call_int(&call, "num_outputs", 9);
    qk_test_expect_refusal(&call, "num_outputs");
    start_split(&call, 18, 3);
    qk_test_expect_refusal(&call, "num_outputs");
    qk_test_call_int(&call, "num_outputs", 2);
    qk_test_expect_refusal(&call, "num_outputs");
    start_split(&call, 13, 2);
    qk_test_call_input(&call, "split", QK_INT64, sizes, 1, (size_t[]){3});
    qk_test_expect_refusal(&call, "split");
    start_split(&call, 13, 4);
    qk_test_expect_refusal(&call, "input");
    qk_kernels_destroy(kernels);
}

/* ---- Memory and sizes -------------------------------------------------------------------- */

Test(move, survives_each_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    const uint8_t x[12] = {0};
    const int64_t shape[] = {4, 3};
    const int64_t indices[] = {2, 0, 1};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Reshape", 14);
    qk_test_call_input(&call, "data", QK_UINT8, x, 2, (size_t[]){3, 4});
    qk_test_call_input(&call, "shape", QK_INT64, shape, 1, (size_t[]){2});
    cr_expect_gt(qk_test_fail_allocations(kernels, &call), 2);
    qk_test_call_init(&call, "onnx.Gather", 13);
    qk_test_call_input(&call, "data", QK_UINT8, x, 2, (size_t[]){3, 4});
    qk_test_call_input(&call, "indices", QK_INT64, indices, 1, (size_t[]){3});
    cr_expect_gt(qk_test_fail_allocations(kernels, &call), 4);
    qk_kernels_destroy(kernels);
}

/* Only plans: no such tensor has data. */
static void expect_plan_refused(const struct qk_call *call)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, call, face, &instance, &error), QK_OK);
    cr_expect_eq(qk_plan(instance, call->inputs, face, &plan, &error), QK_INVALID);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

Test(move, refuses_what_no_memory_holds)
{
    const size_t huge[] = {(size_t)1 << 40, (size_t)1 << 20};
    const size_t empty[] = {0, (size_t)1 << 40, (size_t)1 << 20};
    const int64_t axis[] = {0};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Transpose", 13);
    qk_test_call_input(&call, "data", QK_UINT8, NULL, 2, huge);
    expect_plan_refused(&call);
    qk_test_call_input(&call, "data", QK_UINT8, NULL, 3, empty);
    expect_plan_refused(&call);
    qk_test_call_init(&call, "onnx.Unsqueeze", 13);
    qk_test_call_input(&call, "data", QK_UINT8, NULL, 2, huge);
    qk_test_call_input(&call, "axes", QK_INT64, axis, 1, (size_t[]){1});
    expect_plan_refused(&call);
    qk_test_call_init(&call, "onnx.DepthToSpace", 13);
    qk_test_call_input(&call, "input", QK_UINT8, NULL, 4, (size_t[]){1, 0, (size_t)1 << 40, 1});
    qk_test_call_int(&call, "blocksize", INT32_MAX);
    expect_plan_refused(&call);
}

Test(move, refuses_tables_of_billions)
{
    static const int64_t sizes[] = {(int64_t)1 << 32};
    static const int64_t pads[] = {0, (int64_t)1 << 32};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Resize", 13);
    qk_test_call_input(&call, "X", QK_UINT8, NULL, 1, (size_t[]){3});
    qk_test_call_input(&call, "sizes", QK_INT64, sizes, 1, (size_t[]){1});
    expect_plan_refused(&call);
    qk_test_call_init(&call, "onnx.Pad", 13);
    qk_test_call_input(&call, "data", QK_UINT8, NULL, 1, (size_t[]){3});
    qk_test_call_input(&call, "pads", QK_INT64, pads, 1, (size_t[]){2});
    qk_test_call_string(&call, "mode", "edge");
    expect_plan_refused(&call);
}

Test(move, dropout_is_not_trained)
{
    const float x[2] = {1, 2};
    const bool training = true;
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Dropout", 13);
    qk_test_call_input(&call, "data", QK_FP32, x, 1, (size_t[]){2});
    qk_test_call_input(&call, "training_mode", QK_BOOL, &training, 0, NULL);
    qk_test_expect_refusal(&call, "training_mode");
}

Test(move, plans_say_what_is_an_alias)
{
    const uint8_t x[4] = {0};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Identity", 13);
    qk_test_call_input(&call, "input", QK_UINT8, x, 1, (size_t[]){4});
    qk_test_run(kernels, &call, &result);
    cr_expect(result.plan.is_alias);
    qk_test_result_deinit(&result);
    qk_test_call_init(&call, "onnx.Dropout", 13);
    qk_test_call_input(&call, "data", QK_FP32, x, 1, (size_t[]){1});
    qk_test_run(kernels, &call, &result);
    cr_expect(result.plan.is_alias);
    qk_test_result_deinit(&result);
    qk_test_call_init(&call, "onnx.Transpose", 13);
    qk_test_call_input(&call, "data", QK_UINT8, x, 1, (size_t[]){4});
    qk_test_run(kernels, &call, &result);
    cr_expect_not(result.plan.is_alias);
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
}
