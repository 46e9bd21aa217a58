/* onnx.DepthToSpace and onnx.SpaceToDepth: blocks of pixels move between channels and the plane
 * (onnx/defs/tensor/defs.cc). With B the block size, and DCR the default mode,
 *
 *   DepthToSpace, DCR   y[n, c, h * B + i, w * B + j] = x[n, (i * B + j) * C + c, h, w]
 *   DepthToSpace, CRD   y[n, c, h * B + i, w * B + j] = x[n, (c * B + i) * B + j, h, w]
 *   SpaceToDepth, DCR   y[n, (i * B + j) * C + c, h, w] = x[n, c, h * B + i, w * B + j]
 *   SpaceToDepth, CRD   y[n, (c * B + i) * B + j, h, w] = x[n, c, h * B + i, w * B + j]
 */
#include <string.h>

#include "kernels/operators/move/moving.h"
#include "kernels/operators/shape_text.h"

enum { INPUT };
enum { BLOCKSIZE, MODE };

/* SpaceToDepth has the attribute mode since this opset, the only one above QK_ONNX_VERSION_LAST
 * that changed an operator of ours. */
#define MODE_OF_DEPTH_SINCE 28

struct instance {
    struct qk_instance base;
    size_t block;
    bool crd;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    const struct qk_attribute *block = &call->attributes[BLOCKSIZE];
    const char *mode = call->attributes[MODE].present ? call->attributes[MODE].string : "DCR";
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    if (!block->present)
        return qk_fail(error, QK_INVALID, "blocksize: expected an integer, got none");
    if (block->number < 1 || block->number > INT32_MAX)
        return qk_fail(error, QK_INVALID, "blocksize: expected an integer in [1, %d], got %lld",
                       INT32_MAX, (long long)block->number);
    made->block = (size_t)block->number;
    made->crd = strcmp(mode, "CRD") == 0;
    if (!made->crd && strcmp(mode, "DCR") != 0)
        return qk_fail(error, QK_INVALID, "mode: expected DCR or CRD, got %.20s", mode);
    return QK_OK;
}

/* Adds one box, whose grid is [N, C, H, B, W, B]. `deep` is the side with more channels. */
static enum qk_status add_box(const struct qk_tensor *deep, size_t block, bool crd, bool to_depth,
                              struct qk_move *move, struct qk_memory memory, struct qk_error *error)
{
    const size_t channels = deep->dims[1] / (block * block);
    const size_t rows = deep->dims[2];
    const size_t columns = deep->dims[3];
    const size_t plane = rows * columns;
    const size_t sizes[6] = {deep->dims[0], channels, rows, block, columns, block};
    /* Along N, C, H, i, W and j: */
    const size_t flat_strides[6] = {channels * plane * block * block,
                                    plane * block * block,
                                    columns * block * block,
                                    columns * block,
                                    block,
                                    1};
    const size_t deep_strides[6] = {deep->dims[1] * plane,
                                    crd ? plane * block * block : plane,
                                    columns,
                                    crd ? plane * block : plane * block * channels,
                                    1,
                                    crd ? plane : plane * channels};
    /* The axes in the order of the output: by the strides of y. */
    static const int flat_order[6] = {0, 1, 2, 3, 4, 5};
    static const int dcr_order[6] = {0, 3, 5, 1, 2, 4};
    static const int crd_order[6] = {0, 1, 3, 5, 2, 4};
    const int *order = !to_depth ? flat_order : crd ? crd_order : dcr_order;
    struct qk_move_box box = {.rank = 6};
    for (int i = 0; i < 6; i++) {
        const int axis = order[i];
        const int64_t flat = (int64_t)flat_strides[axis];
        const int64_t depth = (int64_t)deep_strides[axis];
        box.axes[i] = (struct qk_move_axis){sizes[axis], to_depth ? flat : depth,
                                            to_depth ? depth : flat, NULL};
    }
    return qk_move_add(move, &box, memory, error);
}

static enum qk_status check(const struct qk_tensor *x, struct qk_error *error)
{
    struct qk_shape_text text;
    if (x->rank == 4)
        return qk_move_check_input(x, "input", error);
    return qk_fail(error, QK_INVALID, "input: expected shape [N,C,H,W], got %s",
                   qk_shape_text(x, &text));
}

static enum qk_status finish(const struct qk_instance *instance, const struct qk_tensor *x,
                             const size_t *dims, bool to_depth, struct qk_memory memory,
                             struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    struct qk_move *move;
    enum qk_status status = qk_move_set_output(plan, 0, x->type, 4, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK && x->count > 0) /* strides of an empty tensor could be too large */
        status = add_box(to_depth ? &plan->outputs[0] : x, made->block, made->crd, to_depth, move,
                         memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

static enum qk_status plan_space(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[INPUT];
    const size_t block = ((const struct instance *)instance)->block;
    struct qk_shape_text text;
    const enum qk_status status = check(x, error);
    if (status != QK_OK)
        return status;
    if (x->dims[1] % (block * block) != 0)
        return qk_fail(error, QK_INVALID,
                       "input: expected a multiple of blocksize^2, %zu, channels, got shape %s",
                       block * block, qk_shape_text(x, &text));
    size_t dims[4] = {x->dims[0], x->dims[1] / (block * block), 0, 0};
    if (!qk_mul_size(x->dims[2], block, &dims[2]) || !qk_mul_size(x->dims[3], block, &dims[3]))
        return qk_fail(error, QK_INVALID,
                       "blocksize: expected an output that fits in memory, got %zu", block);
    return finish(instance, x, dims, false, memory, plan, error);
}

static enum qk_status plan_depth(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[INPUT];
    const size_t block = ((const struct instance *)instance)->block;
    struct qk_shape_text text;
    const enum qk_status status = check(x, error);
    if (status != QK_OK)
        return status;
    if (x->dims[2] % block != 0 || x->dims[3] % block != 0)
        return qk_fail(error, QK_INVALID,
                       "input: expected rows and columns in multiples of blocksize, %zu, got shape "
                       "%s",
                       block, qk_shape_text(x, &text));
    size_t channels;
    if (!qk_mul_size(x->dims[1], block * block, &channels))
        return qk_fail(error, QK_INVALID,
                       "blocksize: expected channels that fit in memory, got %zu", block);
    const size_t dims[4] = {x->dims[0], channels, x->dims[2] / block, x->dims[3] / block};
    return finish(instance, x, dims, true, memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define VERSION QK_MOVING_VERSION_1

static const struct qk_version space_versions[] = {
    VERSION(1, QK_MOVE_TYPES),
    VERSION(11, QK_MOVE_TYPES),
    VERSION(13, QK_MOVE_TYPES_13),
};

static const struct qk_version depth_versions[] = {
    VERSION(1, QK_MOVE_TYPES),
    VERSION(13, QK_MOVE_TYPES_13),
    VERSION(MODE_OF_DEPTH_SINCE, QK_MOVE_TYPES_13),
};

#define ATTRIBUTES(mode_since)                                                                    \
    {                                                                                             \
        [BLOCKSIZE] = QK_ATTRIBUTE("blocksize", INT, 1, "rows and columns of a block; required"), \
        [MODE] = QK_ATTRIBUTE("mode", STRING, mode_since,                                         \
                              "the order of channels: CRD, or DCR, the default: pixels of a "     \
                              "block are the outer part"),                                        \
    }

static const struct qk_attribute_def space_attributes[] = ATTRIBUTES(11);
static const struct qk_attribute_def depth_attributes[] = ATTRIBUTES(MODE_OF_DEPTH_SINCE);

const struct qk_operator qk_onnx_depth_to_space = {
    .name = "onnx.DepthToSpace",
    .platform = QK_ONNX_PLATFORM,
    .about = "channels become blocks of pixels",
    .inputs = {[INPUT] = {"input", "[N, C, H, W]"}},
    .input_count = 1,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "[N, C / blocksize^2, H * blocksize, W * blocksize]"}},
    .output_count = 1,
    QK_ATTRIBUTES(space_attributes),
    QK_VERSIONS(space_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan_space},
};

const struct qk_operator qk_onnx_space_to_depth = {
    .name = "onnx.SpaceToDepth",
    .platform = QK_ONNX_PLATFORM,
    .about = "blocks of pixels become channels",
    .inputs = {[INPUT] = {"input", "[N, C, H, W]"}},
    .input_count = 1,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "[N, C * blocksize^2, H / blocksize, W / blocksize]"}},
    .output_count = 1,
    QK_ATTRIBUTES(depth_attributes),
    QK_VERSIONS(depth_versions),
    .version_last = MODE_OF_DEPTH_SINCE,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan_depth},
};
