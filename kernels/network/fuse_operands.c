/* The operands, the bias and the scales of an operator on codes that is made from one on floats. */
#include "kernels/network/fuse.h"

#include <math.h>
#include <string.h>

#include "kernels/element/load.h"
#include "kernels/network/fate.h"
#include "kernels/operators/float/onnx_fused.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"

const struct qk_attribute *qk_fusion_attribute(const struct qk_node *node, const char *name)
{
    return &node->call.attributes[qk_pair_attribute(node->call.op, name)];
}

bool qk_fusion_is_one(const struct fusion *fusion, const char *name)
{
    const struct qk_attribute *factor =
        qk_fusion_attribute(&fusion->edit->nodes[fusion->index], name);
    return !factor->present || factor->real == 1;
}

bool qk_fusion_refuse(struct fusion *fusion, size_t port, const char *why)
{
    if (fusion->why)
        return false;
    fusion->why = why;
    fusion->why_port = port;
    return false;
}

void qk_fusion_note(const struct fusion *fusion)
{
    struct qk_call *call = &fusion->edit->nodes[fusion->index].call;
    call->attributes[QK_UNFUSED] = (struct qk_attribute){
        .present = fusion->why != NULL,
        .number = (int64_t)fusion->why_port,
        .string = fusion->why,
    };
}

void qk_fusion_tell_inputs(const struct fusion *fusion)
{
    const struct qk_edit *edit = fusion->edit;
    const uint32_t bias = qk_edit_maker_of(edit, fusion->bias, fusion->bias_input);
    bool has_bias = fusion->rule->from == &qk_onnx_conv;
    for (size_t i = 0; i < sizeof(fusion->rule->slots) / sizeof(fusion->rule->slots[0]); i++) {
        const struct slot slot = fusion->rule->slots[i];
        has_bias = has_bias || slot.part == BIAS;
        if (slot.part == CODES)
            qk_fate_set(edit->call, &edit->nodes[fusion->dequantizers[slot.input]], QK_FATE_FUSED,
                        &fusion->made);
    }
    if (has_bias && bias != QK_NO_NODE && edit->nodes[bias].call.op == &qk_onnx_dequantize_linear)
        qk_fate_set(edit->call, &edit->nodes[bias], QK_FATE_FUSED, &fusion->made);
}

/* ---- Operands ------------------------------------------------------------------------------ */

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
        return rank == 2 &&
               axis == (qk_int_or(qk_fusion_attribute(node, "transB"), 0) != 0 ? 0 : 1);
    default:
        return false;
    }
}

/* Returns why codes of a type are refused. NULL: no type that DequantizeLinear takes beside UINT8
 * and INT8. */
static const char *why_other_type(enum qk_type type)
{
#define OTHER_TYPE(name) [QK_##name] = "expected DequantizeLinear of UINT8 or INT8, got " #name
    static const char *const texts[QK_TYPE_COUNT] = {
        OTHER_TYPE(UINT16),  OTHER_TYPE(INT16),       OTHER_TYPE(INT32),
        OTHER_TYPE(UINT4),   OTHER_TYPE(INT4),        OTHER_TYPE(UINT2),
        OTHER_TYPE(INT2),    OTHER_TYPE(FP4E2M1),     OTHER_TYPE(FP8E4M3FN),
        OTHER_TYPE(FP8E5M2), OTHER_TYPE(FP8E4M3FNUZ), OTHER_TYPE(FP8E5M2FNUZ),
    };
    return texts[type];
}

static const char *why_not_as_output(enum qk_type type)
{
    return type == QK_INT8
               ? "expected DequantizeLinear of UINT8, as QuantizeLinear behind it makes, got INT8"
               : "expected DequantizeLinear of INT8, as QuantizeLinear behind it makes, got UINT8";
}

/* Returns why a DequantizeLinear is not read. */
static const char *why_not_read(const struct qk_node *dequantizer)
{
    if (qk_int_or(qk_fusion_attribute(dequantizer, "block_size"), 0) != 0)
        return "expected blocks that integers of 8 bits stand for exactly, because all their "
               "scales are whole multiples of one scale, or of one for each channel, got others";
    return "expected DequantizeLinear of UINT8 or INT8 with a constant scale and zero point, got "
           "another before it";
}

/* Returns whether an input reads the floats of a product. qk_fuse_end may have put a
 * DequantizeLinear or an Add there, which the file does not have. */
static bool reads_product(const struct qk_edit *edit, uint32_t node, size_t input)
{
    const uint32_t maker = qk_edit_maker_of(edit, node, input);
    return maker != QK_NO_NODE && edit->types[qk_edit_value_of(edit, node, input)] == QK_NONE &&
           qk_fuse_end_knows(edit->operators[edit->origins[maker]]);
}

static bool read_operand(struct fusion *fusion, size_t input)
{
    const struct qk_edit *edit = fusion->edit;
    struct qk_pair *pair = &fusion->operands[input];
    const uint32_t maker = qk_edit_maker_of(edit, fusion->index, input);
    if (!edit->is_quantized)
        return qk_fusion_refuse(fusion, QK_UNFUSED_FILE,
                                "expected a quantized network, got one of floats");
    if (reads_product(edit, fusion->index, input))
        return qk_fusion_refuse(fusion, input,
                                "expected the output of DequantizeLinear, as a quantized file has "
                                "it, got the floats of a Conv, Gemm or MatMul that no "
                                "QuantizeLinear reads");
    if (maker == QK_NO_NODE || edit->nodes[maker].call.op != &qk_onnx_dequantize_linear)
        return qk_fusion_refuse(fusion, input,
                                "expected the output of DequantizeLinear, as a quantized file has "
                                "it, got other floats");
    pair->type = QK_NONE;
    const bool is_pair = qk_pair_read(edit, maker, &qk_onnx_dequantize_linear, pair);
    if (why_other_type(pair->type))
        return qk_fusion_refuse(fusion, input, why_other_type(pair->type));
    if (!is_pair)
        return qk_fusion_refuse(fusion, input, why_not_read(&edit->nodes[maker]));
    if (!(edit->nodes[maker].call.variable >> QK_PAIR_X & 1) &&
        !edit->nodes[maker].call.inputs[QK_PAIR_X].data)
        return qk_fusion_refuse(fusion, input,
                                "expected DequantizeLinear of known values, got one of an input "
                                "of the graph");
    if ((fusion->rule->one_type || (fusion->rule->y_as_x && input == 0)) && fusion->has_output &&
        pair->type != fusion->output.type)
        return qk_fusion_refuse(fusion, input, why_not_as_output(pair->type));
    fusion->dequantizers[input] = maker;
    if (!pair->is_per_tensor && !(input == 0 && fusion->rule->from == &qk_onnx_conv) &&
        (input != 1 || !channels_fit(fusion)))
        return qk_fusion_refuse(fusion, input,
                                "expected one scale, or for constant weights one for each output "
                                "channel, got scales of another axis");
    return true;
}

/* ---- Depthwise Conv ------------------------------------------------------------------------ */

static bool is_one_zero_point(const struct qk_tensor *zero_point)
{
    for (size_t i = 1; i < zero_point->count; i++)
        if (((const uint8_t *)zero_point->data)[i] != *(const uint8_t *)zero_point->data)
            return false;
    return true;
}

/* Returns whether each output channel of a Conv reads one channel of x, and each channel has a
 * scale, but all have one zero point. */
static bool has_scales_of_depthwise(const struct fusion *fusion)
{
    const struct qk_pair *x = &fusion->operands[0];
    const struct qk_call *weights = &fusion->edit->nodes[fusion->dequantizers[1]].call;
    const struct qk_tensor *codes = &weights->inputs[QK_PAIR_X];
    const struct qk_attribute *group =
        qk_fusion_attribute(&fusion->edit->nodes[fusion->index], "group");
    const size_t channels = x->scale.count;
    return !(weights->variable >> QK_PAIR_X & 1) && codes->rank >= 3 && codes->dims[1] == 1 &&
           channels > 0 && codes->dims[0] % channels == 0 && x->axis == 1 &&
           qk_int_or(group, 1) == (int64_t)channels && is_one_zero_point(&x->zero_point);
}

/* Multiplies the scales of a depthwise Conv's weights by those of the channels of x, which then has
 * the scale 1: NNCF gives x of such a Conv a scale for each channel. */
static bool move_scales(struct fusion *fusion)
{
    static const float one = 1;
    struct qk_pair *x = &fusion->operands[0];
    struct qk_pair *w = &fusion->operands[1];
    if (!has_scales_of_depthwise(fusion))
        return qk_fusion_refuse(fusion, 0,
                                "expected one scale, or of a depthwise Conv with constant weights "
                                "one for each channel and the same zero point for all, got others");
    const size_t count =
        (size_t)fusion->edit->nodes[fusion->dequantizers[1]].call.inputs[QK_PAIR_X].dims[0];
    const size_t outputs = count / x->scale.count; /* of each channel */
    float *scales = qk_edit_take(fusion->edit, count, sizeof(*scales));
    uint8_t *zeros = scales ? qk_edit_take(fusion->edit, count, 1) : NULL;
    if (!zeros)
        return false;
    for (size_t i = 0; i < count; i++) {
        scales[i] = qk_load_f32(x->scale.data, i / outputs) *
                    qk_load_f32(w->scale.data, w->scale.count == 1 ? 0 : i);
        zeros[i] = ((const uint8_t *)w->zero_point.data)[w->zero_point.count == 1 ? 0 : i];
    }
    w->scale = (struct qk_tensor){
        .type = QK_FP32, .rank = 1, .dims = {count}, .count = count, .stored = count};
    w->zero_point = w->scale;
    w->scale.data = scales;
    w->zero_point.type = w->type;
    w->zero_point.data = zeros;
    w->is_per_tensor = false;
    x->scale = (struct qk_tensor){.type = QK_FP32, .count = 1, .stored = 1, .data = &one};
    x->zero_point.rank = 0;
    x->zero_point.count = x->zero_point.stored = 1;
    x->is_per_tensor = true;
    return true;
}

bool qk_fusion_read_operands(struct fusion *fusion)
{
    for (size_t i = 0; i < sizeof(fusion->rule->slots) / sizeof(fusion->rule->slots[0]); i++)
        if (fusion->rule->slots[i].part == CODES &&
            !read_operand(fusion, fusion->rule->slots[i].input))
            return false;
    return fusion->operands[0].is_per_tensor || move_scales(fusion);
}

/* ---- The bias ------------------------------------------------------------------------------ */

float qk_fusion_sum_scale(const struct fusion *fusion, size_t channel)
{
    const struct qk_tensor *w = &fusion->operands[1].scale;
    return qk_load_f32(fusion->operands[0].scale.data, 0) *
           qk_load_f32(w->data, w->count == 1 ? 0 : channel);
}

/* The largest bias beside scales of the channels of x. It leaves room for the products. */
#define LARGE_BIAS 0x1p30F

static bool has_scales_of_x(const struct fusion *fusion)
{
    return fusion->edit->nodes[fusion->dequantizers[0]].call.inputs[QK_PAIR_SCALE].count > 1;
}

/* Quantizes a bias of floats, as ONNX Runtime does when it loads a file. A bias that is too large
 * for the scale of its channel is cut off, as there. But if the channels of x have scales, ONNX
 * Runtime computes floats and loses nothing: such a bias is left to fuse_ends.c, which adds it to
 * the floats of the sums. */
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
        const float sum = rintf(qk_load_f32(bias->data, i) / qk_fusion_sum_scale(fusion, i));
        if (has_scales_of_x(fusion) && !(fabsf(sum) <= LARGE_BIAS))
            return false;
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
    if (fusion->rule->from != &qk_onnx_conv)
        return true;
    for (size_t i = 0; i < count; i++) {
        const float sum = qk_fusion_sum_scale(fusion, i);
        const float own = qk_load_f32(bias->scale.data, bias->scale.count == 1 ? 0 : i);
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
static bool read_bias(struct fusion *fusion, struct qk_tensor *made)
{
    const struct qk_edit *edit = fusion->edit;
    const size_t input = fusion->bias_input;
    const struct qk_call *call = &edit->nodes[fusion->bias].call;
    const uint32_t maker = qk_edit_maker_of(edit, fusion->bias, input);
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

bool qk_fusion_float_bias(struct fusion *fusion, struct qk_tensor *made)
{
    const struct qk_edit *edit = fusion->edit;
    const uint32_t maker = qk_edit_maker_of(edit, fusion->bias, fusion->bias_input);
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    *made = edit->nodes[fusion->bias].call.inputs[fusion->bias_input];
    if (!(edit->nodes[fusion->bias].call.variable >> fusion->bias_input & 1))
        return made->type == QK_FP32 && made->data && made->rank == 1;
    if (maker == QK_NO_NODE || edit->nodes[maker].call.op != &qk_onnx_dequantize_linear ||
        edit->nodes[maker].call.variable != 0 || !edit->nodes[maker].call.inputs[QK_PAIR_X].data)
        return false;
    const enum qk_status status =
        qk_compute(&fusion->edit->computing, &edit->nodes[maker].call, outputs, &cause);
    if (status == QK_NO_MEMORY)
        *edit->error = cause;
    if (status != QK_OK)
        return false;
    *made = outputs[0];
    return made->type == QK_FP32 && made->rank == 1;
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
    *made = pair->scale;
    made->type = pair->type;
    made->data = pair->zero_point.data;
    if (pair->is_per_tensor || pair->zero_point.count == pair->scale.count)
        return true;
    void *zeros = qk_edit_take(fusion->edit, pair->scale.count, 1);
    if (!zeros)
        return false;
    memset(zeros, 0, pair->scale.count);
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
        return read_bias(fusion, tensor) ||
               qk_fusion_refuse(fusion, slot.input,
                                "expected none, INT32 with DequantizeLinear of the scale of the "
                                "products, or one constant float for each channel, got another");
    case Y_SCALE:
        if (fusion->has_output)
            *tensor = fusion->output.scale;
        return true;
    case Y_ZERO_POINT:
        return !fusion->has_output || take_zero_point(fusion, &fusion->output, tensor);
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

bool qk_fusion_make(struct fusion *fusion)
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
    return fusion->rule->adapt == NULL || fusion->rule->adapt(fusion);
}
