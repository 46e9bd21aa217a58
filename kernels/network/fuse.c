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

#include "kernels/network/compute.h"
#include "kernels/network/fate.h"
#include "kernels/network/pair.h"
#include "kernels/network/qdq.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

/* What an input of the operator on codes is: of the operand that the operator on floats has at
 * `input`, or of the output. */
enum part { NOTHING, CODES, SCALE, ZERO_POINT, BIAS, Y_SCALE, Y_ZERO_POINT };
struct slot {
    enum part part;
    uint32_t input;
};
#define OPERAND(input)              \
    {CODES, input}, {SCALE, input}, \
    {                               \
        ZERO_POINT, input           \
    }
#define OUTPUT          \
    {Y_SCALE, 0},       \
    {                   \
        Y_ZERO_POINT, 0 \
    }

/* Which axis of operand 1 may have a scale for each index. */
enum channels { NO_CHANNELS, FIRST_AXIS, LAST_AXIS, GEMM_COLUMNS };

struct rule {
    const struct qk_operator *from;
    const struct qk_operator *to;
    struct slot slots[9];
    enum channels channels;
    bool floats_too; /* without a QuantizeLinear behind it, `to` gives floats */
    bool one_type;   /* all operands and the output have codes of the same type */
    /* Does the rest, if there is more to do. Returns false if the operator cannot be fused. */
    bool (*adapt)(const struct qk_node *node, struct qk_node *made);
};

/* ---- What single operators need ------------------------------------------------------------ */

static const struct qk_attribute *attribute_of(const struct qk_node *node, const char *name)
{
    return &node->call.attributes[qk_pair_attribute(node->call.op, name)];
}

/* beta multiplies the bias, which QGemm only adds; it scales the product by alpha before that. */
static bool adapt_gemm(const struct qk_node *node, struct qk_node *made)
{
    const struct qk_attribute *alpha = attribute_of(node, "alpha");
    const struct qk_attribute *beta = attribute_of(node, "beta");
    const bool has_bias = node->call.variable >> 2 & 1 || node->call.inputs[2].type != QK_NONE;
    (void)made;
    return !has_bias ||
           ((!beta->present || beta->real == 1) && (!alpha->present || alpha->real == 1));
}

static bool adapt_average_pool(const struct qk_node *node, struct qk_node *made)
{
    const struct qk_attribute *dilations = attribute_of(node, "dilations");
    (void)made;
    for (size_t i = 0; dilations->present && i < dilations->list_count; i++)
        if (dilations->list[i] != 1)
            return false;
    return true;
}

/* QLinearSoftmax has to know whose Softmax it is. */
static bool adapt_softmax(const struct qk_node *node, struct qk_node *made)
{
    const unsigned opset = node->call.version->number < 13 ? 12 : 13;
    made->call.attributes[qk_pair_attribute(made->call.op, "opset")] =
        (struct qk_attribute){.present = true, .number = opset};
    return true;
}

#define RULE(float_operator, code_operator, ...) \
    .from = &qk_onnx_##float_operator, .to = &(code_operator), .slots = {__VA_ARGS__}

static const struct rule rules[] = {
    {RULE(conv, qk_onnx_qlinear_conv, OPERAND(0), OPERAND(1), OUTPUT, {BIAS, 2}),
     .channels = FIRST_AXIS},
    {RULE(gemm, qk_microsoft_qgemm, OPERAND(0), OPERAND(1), {BIAS, 2}, OUTPUT),
     .channels = GEMM_COLUMNS, .floats_too = true, .adapt = adapt_gemm},
    {RULE(matmul, qk_onnx_qlinear_matmul, OPERAND(0), OPERAND(1), OUTPUT), .channels = LAST_AXIS},
    {RULE(add, qk_microsoft_qlinear_add, OPERAND(0), OPERAND(1), OUTPUT), .one_type = true},
    {RULE(mul, qk_microsoft_qlinear_mul, OPERAND(0), OPERAND(1), OUTPUT), .one_type = true},
    {RULE(average_pool, qk_microsoft_qlinear_average_pool, OPERAND(0), OUTPUT), .one_type = true,
     .adapt = adapt_average_pool},
    {RULE(global_average_pool, qk_microsoft_qlinear_global_average_pool, OPERAND(0), OUTPUT),
     .one_type = true},
    {RULE(softmax, qk_microsoft_qlinear_softmax, OPERAND(0), OUTPUT), .one_type = true,
     .adapt = adapt_softmax},
};

/* ---- Operands ------------------------------------------------------------------------------ */

struct fusion {
    struct qk_edit *edit;
    const struct rule *rule;
    uint32_t index; /* of the operator on floats */
    struct qk_pair operands[2];
    uint32_t dequantizers[2];
    bool has_output;
    struct qk_pair output;
    struct qk_node made;
};

/* Returns the rank of an operand whose codes are constant, or 0. */
static uint32_t constant_rank(const struct fusion *fusion, size_t input)
{
    const struct qk_call *call = &fusion->edit->nodes[fusion->dequantizers[input]].call;
    return call->variable >> QK_PAIR_X & 1 ? 0 : call->inputs[QK_PAIR_X].rank;
}

/* Returns whether the scales of operand 1 belong to the indices of the axis that the rule allows.
 * An axis is counted from the end only where the rank is known. */
static bool channels_fit(const struct fusion *fusion)
{
    const uint32_t rank = constant_rank(fusion, 1);
    const int64_t given = fusion->operands[1].axis;
    const int64_t axis = given < 0 ? given + rank : given;
    const struct qk_node *node = &fusion->edit->nodes[fusion->index];
    switch (fusion->rule->channels) {
    case FIRST_AXIS:
        return rank > 0 && axis == 0;
    case LAST_AXIS:
        return rank == 2 && axis == 1;
    case GEMM_COLUMNS:
        return rank == 2 && axis == (qk_int_or(attribute_of(node, "transB"), 0) != 0 ? 0 : 1);
    default:
        return false;
    }
}

static bool read_operand(struct fusion *fusion, size_t input)
{
    const struct qk_edit *edit = fusion->edit;
    struct qk_pair *pair = &fusion->operands[input];
    const uint32_t maker = qk_edit_maker_of(edit, fusion->index, input);
    if (!qk_pair_read(edit, maker, &qk_onnx_dequantize_linear, pair) ||
        (pair->type != QK_UINT8 && pair->type != QK_INT8) ||
        (!(edit->nodes[maker].call.variable >> QK_PAIR_X & 1) &&
         !edit->nodes[maker].call.inputs[QK_PAIR_X].data))
        return false;
    if (fusion->rule->one_type && pair->type != fusion->output.type)
        return false;
    fusion->dequantizers[input] = maker;
    return pair->is_per_tensor || (input == 1 && channels_fit(fusion));
}

static bool read_operands(struct fusion *fusion)
{
    for (size_t i = 0; i < sizeof(fusion->rule->slots) / sizeof(fusion->rule->slots[0]); i++)
        if (fusion->rule->slots[i].part == CODES &&
            !read_operand(fusion, fusion->rule->slots[i].input))
            return false;
    return true;
}

/* ---- The bias ------------------------------------------------------------------------------ */

static float float_at(const struct qk_tensor *tensor, size_t index)
{
    float value;
    memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
    return value;
}

/* Returns the scale of the sums of channel `channel`. */
static float sum_scale(const struct fusion *fusion, size_t channel)
{
    const struct qk_tensor *w = &fusion->operands[1].scale;
    return float_at(&fusion->operands[0].scale, 0) * float_at(w, w->count == 1 ? 0 : channel);
}

/* Quantizes a bias of floats, as ONNX Runtime does when it loads a file. */
static bool quantize_bias(struct fusion *fusion, const struct qk_tensor *bias,
                          struct qk_tensor *made)
{
    const size_t scales = fusion->operands[1].scale.count;
    if (bias->type != QK_FP32 || bias->rank != 1 || (scales != 1 && scales != bias->count))
        return false;
    int32_t *sums = qk_edit_take(fusion->edit, bias->count, sizeof(*sums));
    if (!sums)
        return false;
    for (size_t i = 0; i < bias->count; i++) {
        const float sum = rintf(float_at(bias, i) / sum_scale(fusion, i));
        /* INT32_MIN is a float, and INT32_MAX is not. */
        sums[i] = sum >= 0x1p31F ? INT32_MAX : sum >= -0x1p31F ? (int32_t)sum : INT32_MIN;
    }
    *made = *bias;
    made->type = QK_INT32;
    made->data = sums;
    return true;
}

/* Returns whether the bias' scale is that of the sums, to which the bias is added as it is. ONNX
 * Runtime has the same bound, and does not check QGemm's (qdq_selectors.cc). */
static bool scale_fits(const struct fusion *fusion, const struct qk_pair *bias, size_t count)
{
    if (fusion->rule->from == &qk_onnx_gemm)
        return true;
    for (size_t i = 0; i < count; i++) {
        const float sum = sum_scale(fusion, i);
        const float own = float_at(&bias->scale, bias->scale.count == 1 ? 0 : i);
        if (!(fabsf(own - sum) <= 0.015F * fabsf(sum)))
            return false;
    }
    return true;
}

static bool is_zero(const struct qk_tensor *numbers)
{
    for (size_t i = 0; i < numbers->count * sizeof(int32_t); i++)
        if (((const char *)numbers->data)[i] != 0)
            return false;
    return true;
}

/* Makes the bias of INT32: absent, quantized, or of floats that are known. */
static bool read_bias(struct fusion *fusion, size_t input, struct qk_tensor *made)
{
    const struct qk_edit *edit = fusion->edit;
    const struct qk_call *call = &edit->nodes[fusion->index].call;
    const uint32_t maker = qk_edit_maker_of(edit, fusion->index, input);
    struct qk_pair pair;
    if (!(call->variable >> input & 1)) {
        *made = call->inputs[input];
        return made->type == QK_NONE ||
               (made->data && quantize_bias(fusion, &call->inputs[input], made));
    }
    if (!qk_pair_read(edit, maker, &qk_onnx_dequantize_linear, &pair) || pair.type != QK_INT32)
        return false;
    *made = edit->nodes[maker].call.inputs[QK_PAIR_X];
    const size_t scales = pair.scale.count;
    const size_t weights = fusion->operands[1].scale.count;
    return !(edit->nodes[maker].call.variable >> QK_PAIR_X & 1) && made->data && made->rank == 1 &&
           is_zero(&pair.zero_point) && (scales == 1 || scales == made->count) &&
           (weights == 1 || weights == made->count) && scale_fits(fusion, &pair, made->count);
}

/* ---- The operator on codes ----------------------------------------------------------------- */

static void take_codes(struct fusion *fusion, size_t input, size_t operand)
{
    const struct qk_node *dequantizer = &fusion->edit->nodes[fusion->dequantizers[operand]];
    struct qk_node *made = &fusion->made;
    if (dequantizer->call.variable >> QK_PAIR_X & 1) {
        made->call.variable |= UINT32_C(1) << input;
        made->inputs[input] = dequantizer->inputs[QK_PAIR_X];
        made->call.inputs[input].type = QK_NONE;
    } else {
        made->call.inputs[input] = dequantizer->call.inputs[QK_PAIR_X];
    }
}

/* A zero point has the shape of its scale. */
static bool take_zero_point(struct fusion *fusion, const struct qk_pair *pair,
                            struct qk_tensor *made)
{
    *made = pair->zero_point;
    if (made->count == pair->scale.count)
        return true;
    void *zeros = qk_edit_take(fusion->edit, pair->scale.count, 1);
    if (!zeros)
        return false;
    memset(zeros, 0, pair->scale.count);
    *made = pair->scale;
    made->type = pair->type;
    made->data = zeros;
    return true;
}

static bool fill_slot(struct fusion *fusion, size_t input)
{
    const struct slot slot = fusion->rule->slots[input];
    struct qk_tensor *tensor = &fusion->made.call.inputs[input];
    *tensor = (struct qk_tensor){.type = QK_NONE};
    switch (slot.part) {
    case CODES:
        take_codes(fusion, input, slot.input);
        return true;
    case SCALE:
        *tensor = fusion->operands[slot.input].scale;
        return true;
    case ZERO_POINT:
        return take_zero_point(fusion, &fusion->operands[slot.input], tensor);
    case BIAS:
        return read_bias(fusion, slot.input, tensor);
    case Y_SCALE:
        if (fusion->has_output)
            *tensor = fusion->output.scale;
        return true;
    case Y_ZERO_POINT:
        if (fusion->has_output)
            *tensor = fusion->output.zero_point;
        return true;
    default:
        return true;
    }
}

/* Gives the operator on codes the attributes of the same names. */
static void copy_attributes(const struct qk_node *node, struct qk_node *made)
{
    const struct qk_operator *to = made->call.op;
    memset(made->call.attributes, 0, sizeof(made->call.attributes));
    for (size_t i = 0; i < to->attribute_count; i++) {
        const size_t at = qk_pair_attribute(node->call.op, to->attributes[i].name);
        if (at < node->call.op->attribute_count)
            made->call.attributes[i] = node->call.attributes[at];
    }
}

/* Makes the operator on codes. Returns false if this operator stays on floats. */
static bool make(struct fusion *fusion)
{
    const struct qk_node *node = &fusion->edit->nodes[fusion->index];
    struct qk_node *made = &fusion->made;
    made->name = node->name;
    made->number = node->number;
    made->call.op = fusion->rule->to;
    made->call.version = &fusion->rule->to->versions[fusion->rule->to->version_count - 1];
    made->call.variable = 0;
    made->call.constants_stay = node->call.constants_stay;
    copy_attributes(node, made);
    for (size_t i = 0; i < made->call.op->input_count; i++) {
        made->inputs[i] = QK_VALUE_NONE;
        if (!fill_slot(fusion, i))
            return false;
    }
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        made->outputs[i] = QK_VALUE_NONE;
    return fusion->rule->adapt == NULL || fusion->rule->adapt(node, made);
}

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
    *limit = float_at(tensor, 0);
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

/* ---- All nodes ----------------------------------------------------------------------------- */

/* Says of the nodes before the operator that they are a part of it: the DequantizeLinear of its
 * operands and of its bias. */
static void tell_inputs(const struct fusion *fusion)
{
    const struct qk_edit *edit = fusion->edit;
    for (size_t i = 0; i < sizeof(fusion->rule->slots) / sizeof(fusion->rule->slots[0]); i++) {
        const struct slot slot = fusion->rule->slots[i];
        const uint32_t maker = slot.part == CODES || slot.part == BIAS
                                   ? qk_edit_maker_of(edit, fusion->index, slot.input)
                                   : QK_NO_NODE;
        if (maker != QK_NO_NODE)
            qk_fate_set(edit->call, &edit->nodes[maker], QK_FATE_FUSED, &fusion->made);
    }
}

/* Says of the nodes behind the operator that they are a part of `into`: the QuantizeLinear, and the
 * Relu and Clip before it. */
static void tell_behind(const struct fusion *fusion, uint32_t quantizer, const struct qk_node *into)
{
    const struct qk_edit *edit = fusion->edit;
    for (uint32_t i = quantizer; i != fusion->index; i = qk_edit_maker_of(edit, i, 0))
        qk_fate_set(edit->call, &edit->nodes[i], QK_FATE_FUSED, into);
}

/* Puts the operator on codes into the place of a QuantizeLinear, or before a Clip there. */
static bool put(struct fusion *fusion, uint32_t quantizer, const struct limits *limits)
{
    struct qk_edit *edit = fusion->edit;
    const struct qk_type_info *info = qk_type_info(fusion->output.type);
    const struct qk_node old = edit->nodes[quantizer];
    struct qk_node clip;
    tell_inputs(fusion);
    if (limits->least <= info->min && limits->most >= info->max) {
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
    fusion.index = index;
    fusion.rule = find_rule(edit->nodes[index].call.op);
    edit->error->status = QK_OK;
    if (fusion.rule && read_operands(&fusion) && make(&fusion))
        put(&fusion, quantizer, &limits);
    return edit->error->status;
}

/* Fuses an operator whose floats leave the codes. */
static enum qk_status fuse_end(struct qk_edit *edit, uint32_t index)
{
    struct fusion fusion = {
        .edit = edit, .index = index, .rule = find_rule(edit->nodes[index].call.op)};
    edit->error->status = QK_OK;
    if (fusion.rule && fusion.rule->floats_too && read_operands(&fusion) && make(&fusion)) {
        fusion.made.outputs[0] = edit->nodes[index].outputs[0];
        tell_inputs(&fusion);
        qk_edit_replace(edit, index, &fusion.made, edit->origins[index]);
    }
    return edit->error->status;
}

enum qk_status qk_qdq_fuse(struct qk_edit *edit, const uint32_t *order, size_t count)
{
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < count && status == QK_OK; i++)
        if (!edit->is_removed[order[i]])
            status = fuse_before(edit, order[i]);
    for (size_t i = 0; i < count && status == QK_OK; i++)
        if (!edit->is_removed[order[i]])
            status = fuse_end(edit, order[i]);
    return status;
}
