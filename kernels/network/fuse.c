/* Makes operators on codes from operators on floats between DequantizeLinear and QuantizeLinear:
 * one row of a table for each. ONNX Runtime fuses by the same rules (onnxruntime/core/optimizer/
 * qdq_transformer/selectors_actions), so the results have its bits.
 *
 *    x -> DequantizeLinear -\
 *    w -> DequantizeLinear --> Conv -> Relu -> QuantizeLinear -> y
 *    b -> DequantizeLinear -/
 *    x, w, b -> QLinearConv -> y
 *
 * A Relu or Clip is no node if the codes of the output end at its limits. Otherwise it becomes a
 * Clip of codes behind the operator, which gives the same: a greater number never has a smaller
 * code. */
#include <math.h>
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/network/compute.h"
#include "kernels/network/fate.h"
#include "kernels/network/fuse.h"
#include "kernels/network/qdq.h"
#include "kernels/operators/matmul/qgemm_rows.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

/* ---- What single operators need ------------------------------------------------------------ */

/* beta multiplies the bias, which QGemm only adds; it scales the product by alpha before that. */
static bool adapt_gemm(struct fusion *fusion)
{
    const struct qk_node *node = &fusion->edit->nodes[fusion->index];
    const bool has_bias = node->call.variable >> 2 & 1 || node->call.inputs[2].type != QK_NONE;
    return !has_bias || (qk_fusion_is_one(fusion, "alpha") && qk_fusion_is_one(fusion, "beta")) ||
           qk_fusion_refuse(fusion, 2, "expected alpha and beta of 1 beside it, got others");
}

static bool adapt_average_pool(struct fusion *fusion)
{
    const struct qk_attribute *dilations =
        qk_fusion_attribute(&fusion->edit->nodes[fusion->index], "dilations");
    for (size_t i = 0; dilations->present && i < dilations->list_count; i++)
        if (dilations->list[i] != 1)
            return false;
    return true;
}

/* QLinearSoftmax has to know whose Softmax it is, and has another default of the axis. */
static bool adapt_softmax(struct fusion *fusion)
{
    const struct qk_call *call = &fusion->edit->nodes[fusion->index].call;
    struct qk_call *made = &fusion->made.call;
    struct qk_attribute *axis = &made->attributes[qk_pair_attribute(made->op, "axis")];
    const bool is_old = call->version->number < 13;
    made->attributes[qk_pair_attribute(made->op, "opset")] =
        (struct qk_attribute){.present = true, .number = is_old ? 12 : 13};
    if (!axis->present)
        *axis = (struct qk_attribute){.present = true, .number = is_old ? 1 : -1};
    return true;
}

#define OUTPUT          \
    {Y_SCALE, 0},       \
    {                   \
        Y_ZERO_POINT, 0 \
    }

#define RULE(float_operator, code_operator, ...) \
    .from = &qk_onnx_##float_operator, .to = &(code_operator), .slots = {__VA_ARGS__}

static const struct rule rules[] = {
    {RULE(conv, qk_onnx_qlinear_conv, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), OUTPUT, {BIAS, 2}),
     .channels = FIRST_AXIS},
    {RULE(gemm, qk_microsoft_qgemm, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), {BIAS, 2}, OUTPUT),
     .channels = GEMM_COLUMNS, .y_as_x = true, .adapt = adapt_gemm},
    {RULE(matmul, qk_onnx_qlinear_matmul, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), OUTPUT),
     .channels = LAST_AXIS, .y_as_x = true},
    {RULE(add, qk_microsoft_qlinear_add, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), OUTPUT),
     .has_floats = true, .one_type = true},
    {RULE(mul, qk_microsoft_qlinear_mul, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), OUTPUT),
     .has_floats = true, .one_type = true},
    {RULE(average_pool, qk_microsoft_qlinear_average_pool, QK_SLOT_OPERAND(0), OUTPUT),
     .has_floats = true, .one_type = true, .adapt = adapt_average_pool},
    {RULE(global_average_pool, qk_microsoft_qlinear_global_average_pool, QK_SLOT_OPERAND(0),
          OUTPUT),
     .has_floats = true, .one_type = true},
    {RULE(softmax, qk_microsoft_qlinear_softmax, QK_SLOT_OPERAND(0), OUTPUT), .has_floats = true,
     .one_type = true, .adapt = adapt_softmax},
};

/* A MatMul, and an Add of a bias behind it. */
static const struct rule matmul_and_add = {
    RULE(matmul, qk_microsoft_qgemm_rows, QK_SLOT_OPERAND(0), QK_SLOT_OPERAND(1), {BIAS, 2},
         OUTPUT),
    .channels = LAST_AXIS,
    .y_as_x = true,
};

static const struct rule *find_rule(const struct qk_operator *op)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].from == op)
            return &rules[i];
    return NULL;
}

/* ---- Relu and Clip ------------------------------------------------------------------------- */

/* The least and the greatest code that Relu and Clip leave. */
struct limits {
    int64_t least;
    int64_t most;
};

/* Computes the code of a number, by the QuantizeLinear itself. */
static enum qk_status quantize(struct qk_edit *edit, const struct qk_node *quantizer, float number,
                               int64_t *code)
{
    struct qk_call call = quantizer->call;
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    call.variable = 0;
    call.inputs[QK_PAIR_X] =
        (struct qk_tensor){.type = QK_FP32, .count = 1, .stored = 1, .data = &number};
    struct qk_error cause;
    const enum qk_status status = qk_compute(&edit->computing, &call, outputs, &cause);
    if (status == QK_NO_MEMORY)
        *edit->error = cause;
    if (status == QK_OK)
        *code = outputs[0].type == QK_INT8 ? *(const int8_t *)outputs[0].data
                                           : *(const uint8_t *)outputs[0].data;
    return status;
}

/* Reads the limit that a Clip has as a constant. */
static bool read_limit(const struct qk_node *clip, size_t input, float otherwise, float *limit)
{
    const struct qk_tensor *tensor = &clip->call.inputs[input];
    const struct qk_call *call = &clip->call;
    const size_t old = qk_pair_attribute(call->op, input == 1 ? "min" : "max");
    const bool is_attribute = old < call->op->attribute_count && call->attributes[old].present;
    const bool is_absent = !(call->variable >> input & 1) && tensor->type == QK_NONE;
    *limit = is_attribute ? call->attributes[old].real : otherwise;
    if (is_absent) /* Clip refuses attributes since opset 11 */
        return !isnan(*limit) && (!is_attribute || call->version->number < 11);
    if (is_attribute || call->variable >> input & 1 || tensor->type != QK_FP32 ||
        tensor->count != 1 || !tensor->data)
        return false;
    *limit = qk_load_f32(tensor->data, 0);
    return !isnan(*limit);
}

/* Narrows the limits by a Relu or Clip. *is_limit is false if the node is another one, or if the
 * QuantizeLinear is wrong, which qk_graph_prepare says. Returns QK_OK or QK_NO_MEMORY. */
static enum qk_status narrow(struct qk_edit *edit, const struct qk_node *node,
                             const struct qk_node *quantizer, struct limits *limits, bool *is_limit)
{
    float from = 0;
    float to = INFINITY;
    int64_t least;
    int64_t most;
    *is_limit = node->call.op == &qk_onnx_relu ||
                (node->call.op == &qk_onnx_clip && read_limit(node, 1, -INFINITY, &from) &&
                 read_limit(node, 2, INFINITY, &to) && from <= to);
    if (!*is_limit)
        return QK_OK;
    enum qk_status status = quantize(edit, quantizer, from, &least);
    if (status == QK_OK)
        status = quantize(edit, quantizer, to, &most);
    *is_limit = status == QK_OK;
    if (status != QK_OK)
        return status == QK_NO_MEMORY ? status : QK_OK;
    /* The nodes are met from the last to the first, and the last decides. */
    const struct limits old = *limits;
    limits->least = least < old.least ? old.least : least > old.most ? old.most : least;
    limits->most = most < old.least ? old.least : most > old.most ? old.most : most;
    return QK_OK;
}

/* Makes a constant code. Returns false if memory has run out. */
static bool make_code(struct qk_edit *edit, enum qk_type type, int64_t code, struct qk_tensor *made)
{
    uint8_t *byte = qk_edit_take(edit, 1, 1);
    if (!byte)
        return false;
    *byte = (uint8_t)code;
    *made = (struct qk_tensor){.type = type, .count = 1, .stored = 1, .data = byte};
    return true;
}

/* Makes a Clip of codes that reads `value`. */
static bool make_clip(struct qk_edit *edit, const struct qk_node *quantizer, enum qk_type type,
                      const struct limits *limits, uint32_t value, struct qk_node *clip)
{
    *clip = (struct qk_node){
        .name = quantizer->name,
        .number = quantizer->number,
        .call = {.op = &qk_onnx_clip,
                 .version = qk_operator_version(&qk_onnx_clip, 13),
                 .variable = 1,
                 .constants_stay = quantizer->call.constants_stay},
        .inputs = {value, QK_VALUE_NONE, QK_VALUE_NONE},
    };
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        clip->outputs[i] = i == 0 ? quantizer->outputs[0] : QK_VALUE_NONE;
    return make_code(edit, type, limits->least, &clip->call.inputs[1]) &&
           make_code(edit, type, limits->most, &clip->call.inputs[2]);
}

/* Returns whether the codes end where Relu and Clip do. */
static bool are_absorbed(const struct limits *limits, const struct qk_type_info *info)
{
    return limits->least <= info->min && limits->most >= info->max;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

/* Says of the nodes behind the operator that they are a part of `into`: the QuantizeLinear, the
 * Relu and Clip before it, and an Add of a bias. */
static void tell_behind(const struct fusion *fusion, uint32_t quantizer, const struct qk_node *into)
{
    const struct qk_edit *edit = fusion->edit;
    for (uint32_t i = quantizer; i != fusion->bias; i = qk_edit_maker_of(edit, i, 0))
        qk_fate_set(edit->call, &edit->nodes[i], QK_FATE_FUSED, into);
    if (fusion->bias != fusion->index)
        qk_fate_set(edit->call, &edit->nodes[fusion->bias], QK_FATE_FUSED, into);
}

/* Puts the operator on codes into the place of a QuantizeLinear, or before a Clip there. */
static bool put(struct fusion *fusion, uint32_t quantizer, const struct limits *limits)
{
    struct qk_edit *edit = fusion->edit;
    const struct qk_type_info *info = qk_type_info(fusion->output.type);
    const struct qk_node old = edit->nodes[quantizer];
    struct qk_node clip;
    qk_fusion_tell_inputs(fusion);
    if (are_absorbed(limits, info)) {
        fusion->made.outputs[0] = old.outputs[0];
        tell_behind(fusion, quantizer, &fusion->made);
        qk_edit_replace(edit, quantizer, &fusion->made, edit->origins[fusion->index]);
        return true;
    }
    const uint32_t codes = qk_edit_add_value(edit, old.inputs[QK_PAIR_X], fusion->output.type);
    fusion->made.outputs[0] = codes;
    if (!make_clip(edit, &old, fusion->output.type, limits, codes, &clip))
        return false;
    tell_behind(fusion, quantizer, &old);
    qk_edit_add_node(edit, &fusion->made, edit->origins[fusion->index]);
    qk_edit_replace(edit, quantizer, &clip, edit->origins[quantizer]);
    return true;
}

/* Returns whether an Add has a bias at input `bias`, which each row of a product gets, and a MatMul
 * of constant weights of two axes at the other input. */
static bool is_matmul_and_add(const struct fusion *fusion, uint32_t add, size_t bias)
{
    const struct qk_edit *edit = fusion->edit;
    const uint32_t matmul = qk_edit_maker_of(edit, add, 1 - bias);
    const uint32_t constant = qk_edit_maker_of(edit, add, bias);
    const struct qk_tensor *numbers = &edit->nodes[add].call.inputs[bias];
    if (matmul == QK_NO_NODE || edit->nodes[matmul].call.op != &qk_onnx_matmul ||
        edit->reads[qk_edit_value_of(edit, add, 1 - bias)] != 1)
        return false;
    if (constant != QK_NO_NODE && edit->nodes[constant].call.op == &qk_onnx_dequantize_linear)
        numbers = &edit->nodes[constant].call.inputs[QK_PAIR_X];
    const uint32_t weights = qk_edit_maker_of(edit, matmul, 1);
    const struct qk_tensor *codes =
        weights == QK_NO_NODE ? NULL : &edit->nodes[weights].call.inputs[QK_PAIR_X];
    return codes && !(edit->nodes[weights].call.variable >> QK_PAIR_X & 1) && codes->rank == 2 &&
           numbers->rank == 1 && numbers->dims[0] == codes->dims[1] && numbers->data;
}

/* Finds the rule for the operator, and where its bias is. ONNX Runtime first makes a Gemm of a
 * MatMul and the Add behind it. */
static void choose_rule(struct fusion *fusion, uint32_t index)
{
    const struct qk_node *node = &fusion->edit->nodes[index];
    fusion->index = fusion->bias = index;
    fusion->bias_input = 2;
    fusion->rule = find_rule(node->call.op);
    for (size_t i = 0; node->call.op == &qk_onnx_add && i < 2; i++)
        if (is_matmul_and_add(fusion, index, i)) {
            fusion->rule = &matmul_and_add;
            fusion->index = qk_edit_maker_of(fusion->edit, index, 1 - i);
            fusion->bias_input = i;
            return;
        }
}

/* Fuses what is before a QuantizeLinear. */
static enum qk_status fuse_before(struct qk_edit *edit, uint32_t quantizer)
{
    struct fusion fusion = {.edit = edit, .has_output = true};
    uint32_t index = quantizer;
    if (!qk_pair_read(edit, quantizer, &qk_onnx_quantize_linear, &fusion.output) ||
        !fusion.output.is_per_tensor ||
        (fusion.output.type != QK_UINT8 && fusion.output.type != QK_INT8))
        return QK_OK;
    const struct qk_type_info *info = qk_type_info(fusion.output.type);
    struct limits limits = {info->min, info->max};
    bool is_limit = true;
    /* A value on the way has one reader, so no node comes twice. */
    while (is_limit) {
        const uint32_t value = qk_edit_value_of(edit, index, 0);
        index = qk_edit_maker_of(edit, index, 0);
        if (index == QK_NO_NODE || edit->reads[value] != 1)
            return QK_OK;
        is_limit = qk_pair_is_positive(&fusion.output);
        const enum qk_status status = is_limit ? narrow(edit, &edit->nodes[index],
                                                        &edit->nodes[quantizer], &limits, &is_limit)
                                               : QK_OK;
        if (status != QK_OK)
            return status;
    }
    choose_rule(&fusion, index);
    /* ONNX Runtime computes floats if a Relu or Clip stays. So does quantd where it can. */
    if (!fusion.rule || (fusion.rule->has_floats && !are_absorbed(&limits, info)))
        return QK_OK;
    edit->error->status = QK_OK;
    if (!qk_fusion_read_operands(&fusion) || !qk_fusion_make(&fusion)) {
        qk_fusion_note(&fusion);
        return edit->error->status;
    }
    put(&fusion, quantizer, &limits);
    return edit->error->status;
}

size_t qk_qdq_fused_nodes(const struct qk_node *node)
{
    return node->call.op == &qk_onnx_quantize_linear ? 1
           : qk_fuse_end_knows(node->call.op)        ? QK_FUSE_END_NODES_MAX
                                                     : 0;
}

enum qk_status qk_qdq_fuse(struct qk_edit *edit)
{
    enum qk_status status = QK_OK;
    const size_t count = edit->node_count;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = edit->nodes[i].call.op->name;
        edit->is_quantized |= strstr(name, ".Q") || strstr(name, "quantizeLinear") ||
                              strstr(name, "QuantizeLinear") || strstr(name, "Integer");
    }
    for (uint32_t i = 0; i < count && status == QK_OK; i++)
        if (!edit->is_removed[i])
            status = fuse_before(edit, i);
    for (uint32_t i = 0; i < count && status == QK_OK; i++)
        if (!edit->is_removed[i] && qk_fuse_end_knows(edit->nodes[i].call.op))
            status = qk_fuse_end(edit, i);
    return status;
}
