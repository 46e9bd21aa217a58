/* Operators on codes whose results are floats, because no QuantizeLinear takes them alone. The
 * products are summed exactly, as integers, and each sum is then multiplied by its scale.
 *
 *    x, w -> DequantizeLinear -> Conv -> y
 *    x, w -> ConvInteger -> DequantizeLinear -> Add, of the bias -> y
 */
#include <string.h>

#include "kernels/network/fuse.h"
#include "kernels/operators/float/add_bias.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

#define INTEGERS                             \
    {CODES, 0}, {CODES, 1}, {ZERO_POINT, 0}, \
    {                                        \
        ZERO_POINT, 1                        \
    }

static const struct rule rules[] = {
    {.from = &qk_onnx_conv,
     .to = &qk_onnx_conv_integer,
     .slots = {INTEGERS},
     .channels = FIRST_AXIS,
     .has_sums = true},
    {.from = &qk_onnx_matmul,
     .to = &qk_onnx_matmul_integer,
     .slots = {INTEGERS},
     .channels = LAST_AXIS,
     .has_sums = true},
    {.from = &qk_onnx_gemm,
     .to = &qk_microsoft_qgemm,
     .slots = {QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), {BIAS, 2}},
     .channels = GEMM_COLUMNS},
};

/* A Gemm whose bias is added to floats, as ONNX Runtime does unless the bias has INT32. */
static const struct rule gemm_alone = {
    .from = &qk_onnx_gemm,
    .to = &qk_microsoft_qgemm,
    .slots = {QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1)},
    .channels = GEMM_COLUMNS,
};

static const struct rule *find_rule(const struct qk_operator *op)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].from == op)
            return &rules[i];
    return NULL;
}

bool qk_fuse_end_knows(const struct qk_operator *op)
{
    return find_rule(op) != NULL;
}

/* ---- The bias ------------------------------------------------------------------------------ */

static bool has_bias(const struct fusion *fusion)
{
    const struct qk_call *call = &fusion->edit->nodes[fusion->index].call;
    return call->op != &qk_onnx_matmul &&
           (call->variable >> 2 & 1 || call->inputs[2].type != QK_NONE);
}

/* Returns whether QGemm can add the bias to the sums, and ONNX Runtime does: it has INT32. */
static bool is_bias_integer(const struct fusion *fusion)
{
    const uint32_t maker = qk_edit_maker_of(fusion->edit, fusion->index, 2);
    struct qk_pair pair;
    return qk_pair_read(fusion->edit, maker, &qk_onnx_dequantize_linear, &pair) &&
           pair.type == QK_INT32 && qk_fusion_is_one(fusion, "alpha");
}

/* Reads the bias of Conv, and gives it as many axes as the weights have, less the batch's, so that
 * it belongs to the channels. */
static bool read_conv_bias(struct fusion *fusion, struct qk_tensor *bias)
{
    const struct qk_call *weights = &fusion->edit->nodes[fusion->dequantizers[1]].call;
    const struct qk_tensor *codes = &weights->inputs[QK_PAIR_X];
    const uint32_t rank = codes->rank;
    if (weights->variable >> QK_PAIR_X & 1 || rank < 3 || !qk_fusion_float_bias(fusion, bias) ||
        bias->count != codes->dims[0]) /* Add would broadcast another */
        return qk_fusion_refuse(fusion, 2,
                                "expected one constant float for each channel of "
                                "constant weights, got another");
    bias->rank = rank - 1;
    for (uint32_t i = 1; i < bias->rank; i++)
        bias->dims[i] = 1;
    return true;
}

/* ---- More nodes ---------------------------------------------------------------------------- */

/* Adds a node behind `made`, which becomes it, and reads what the old `made` makes at input 0. */
static struct qk_node *add_behind(struct fusion *fusion, const struct qk_operator *op,
                                  uint64_t version, enum qk_type type)
{
    struct qk_edit *edit = fusion->edit;
    struct qk_node *made = &fusion->made;
    const uint32_t y = edit->nodes[fusion->index].outputs[0];
    const uint32_t value = qk_edit_add_value(edit, y, type);
    made->outputs[0] = value;
    qk_edit_add_node(edit, made, edit->origins[fusion->index]);
    memset(&made->call, 0, sizeof(made->call));
    made->call.op = op;
    made->call.version = qk_operator_version(op, version);
    made->call.variable = 1;
    made->call.constants_stay = edit->nodes[fusion->index].call.constants_stay;
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        made->inputs[i] = i == 0 ? value : QK_VALUE_NONE;
    return made;
}

/* Multiplies the sums by their scales. */
static bool add_scales(struct fusion *fusion)
{
    struct qk_tensor scale = fusion->operands[1].scale;
    float *numbers = qk_edit_take(fusion->edit, scale.count, sizeof(*numbers));
    if (!numbers)
        return false;
    for (size_t i = 0; i < scale.count; i++)
        numbers[i] = qk_fusion_sum_scale(fusion, i);
    scale.data = numbers;
    struct qk_node *made = add_behind(fusion, &qk_onnx_dequantize_linear, 13, QK_INT32);
    made->call.inputs[QK_PAIR_SCALE] = scale;
    made->call.attributes[qk_pair_attribute(made->call.op, "axis")] = (struct qk_attribute){
        .present = true, .number = fusion->rule->channels == FIRST_AXIS ? 1 : -1};
    return true;
}

/* Adds the bias of Conv, a constant, or what Gemm reads. */
static void add_bias(struct fusion *fusion, const struct qk_tensor *bias)
{
    const struct qk_node *node = &fusion->edit->nodes[fusion->index];
    struct qk_node *made = add_behind(fusion, bias ? &qk_onnx_add : &qk_onnx_add_bias, 14, QK_FP32);
    if (bias) {
        made->call.inputs[1] = *bias;
        return;
    }
    made->call.inputs[1] = fusion->edit->nodes[fusion->index].call.inputs[2];
    made->call.variable |= node->call.variable >> 2 & 1 ? 2 : 0;
    made->inputs[1] = node->inputs[2];
}

/* ---- One node ------------------------------------------------------------------------------ */

static bool is_beta_one(struct fusion *fusion)
{
    return qk_fusion_is_one(fusion, "beta") ||
           qk_fusion_refuse(fusion, 2, "expected beta of 1 beside it, got another");
}

/* Makes the nodes. Returns false if the operator stays on floats or memory has run out. */
static bool make(struct fusion *fusion)
{
    struct qk_tensor bias;
    const bool is_gemm = fusion->rule->from == &qk_onnx_gemm;
    const bool has_one = has_bias(fusion);
    if (is_gemm && has_one && !is_beta_one(fusion))
        return false;
    if (is_gemm && has_one && !is_bias_integer(fusion))
        fusion->rule = &gemm_alone;
    const bool adds = has_one && (!is_gemm || fusion->rule == &gemm_alone);
    if (!qk_fusion_read_operands(fusion) || (!is_gemm && adds && !read_conv_bias(fusion, &bias)) ||
        !qk_fusion_make(fusion) || (fusion->rule->has_sums && !add_scales(fusion)))
        return false;
    if (adds)
        add_bias(fusion, is_gemm ? NULL : &bias);
    return true;
}

enum qk_status qk_fuse_end(struct qk_edit *edit, uint32_t index)
{
    struct qk_node *node = &edit->nodes[index];
    struct fusion fusion = {.edit = edit,
                            .index = index,
                            .bias = index,
                            .bias_input = 2,
                            .rule = find_rule(node->call.op)};
    edit->error->status = QK_OK;
    if (make(&fusion)) {
        fusion.made.outputs[0] = node->outputs[0];
        qk_fusion_tell_inputs(&fusion);
        qk_edit_replace(edit, index, &fusion.made, edit->origins[index]);
    } else {
        qk_fusion_note(&fusion);
    }
    return edit->error->status;
}
