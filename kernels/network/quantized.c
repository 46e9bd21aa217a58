/* Operators on codes: ONNX Runtime computes DequantizeLinear, an operator on floats and
 * QuantizeLinear by one operator on codes where it has one, and some bits then differ from those of
 * the floats. So do graphs here.
 *
 *    a UINT8 -> DequantizeLinear \
 *    b UINT8 -> DequantizeLinear -> Add -> QuantizeLinear -> y UINT8
 *
 *    a, b -> QLinearAdd -> y
 *
 * All codes have one type, UINT8 or INT8, and nothing else reads what Add makes
 * (onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc). Sigmoid and
 * LeakyRelu become tables (tables.c), which have the bits of their operators on codes. */
#include <string.h>

#include "kernels/network/pass.h"
#include "kernels/operators/operator.h"

static const struct {
    const struct qk_operator *real;
    const struct qk_operator *quantized;
} pairs[] = {
    {&qk_onnx_add, &qk_microsoft_qlinear_add},
    {&qk_onnx_average_pool, &qk_microsoft_qlinear_average_pool},
    {&qk_onnx_mul, &qk_microsoft_qlinear_mul},
    {&qk_onnx_global_average_pool, &qk_microsoft_qlinear_global_average_pool},
};

static const uint8_t zero;

static const struct qk_operator *quantized_of(const struct qk_operator *real)
{
    for (size_t i = 0; i < QK_LENGTH_OF(pairs); i++)
        if (pairs[i].real == real)
            return pairs[i].quantized;
    return NULL;
}

/* Copies the attributes to those of the same names. Returns false if there is none for one that is
 * there. */
static bool copy_attributes(const struct qk_call *from, struct qk_call *to)
{
    for (size_t i = 0; i < from->op->attribute_count; i++) {
        bool is_copied = !from->attributes[i].present;
        for (size_t k = 0; k < to->op->attribute_count && !is_copied; k++)
            if (strcmp(from->op->attributes[i].name, to->op->attributes[k].name) == 0) {
                to->attributes[k] = from->attributes[i];
                is_copied = true;
            }
        if (!is_copied)
            return false;
    }
    return true;
}

/* Adds a node to pass->found, once: Add may read one DequantizeLinear twice. */
static void add_found(struct qk_pass *pass, uint32_t index)
{
    for (size_t i = 0; i < pass->found_count; i++)
        if (pass->found[i] == index)
            return;
    pass->found[pass->found_count++] = index;
}

/* Fills pass->found with the nodes that read codes of `type`, the operator and `last`. Returns
 * false if there are others. */
static bool find(struct qk_pass *pass, uint32_t last, enum qk_type type)
{
    const uint32_t value = pass->nodes[last].inputs[QK_PASS_X];
    const uint32_t index = pass->makers[value];
    if (index == QK_NOWHERE || pass->reads[value] != 1 || !quantized_of(pass->nodes[index].call.op))
        return false;
    const struct qk_node *real = &pass->nodes[index];
    pass->found_count = 0;
    for (size_t i = 0; i < real->call.op->input_count; i++) {
        const uint32_t operand = qk_pass_value(pass, real, i);
        const uint32_t maker = operand == QK_VALUE_NONE ? QK_NOWHERE : pass->makers[operand];
        if (maker == QK_NOWHERE ||
            !qk_pass_is_per_tensor(pass, &pass->nodes[maker], &qk_onnx_dequantize_linear) ||
            qk_pass_code_type(pass, &pass->nodes[maker]) != type)
            return false;
        add_found(pass, maker);
    }
    pass->found[pass->found_count++] = index;
    pass->found[pass->found_count++] = last;
    return true;
}

/* Gives the call a scale and a zero point. An absent zero point is 0. */
static void put_parameters(const struct qk_node *node, enum qk_type type, struct qk_tensor *to)
{
    to[0] = node->call.inputs[QK_PASS_SCALE];
    to[1] = node->call.inputs[QK_PASS_ZERO_POINT];
    if (to[1].type == QK_NONE)
        to[1] = (struct qk_tensor){.type = type, .count = 1, .stored = 1, .data = &zero};
    for (size_t i = 0; i < 2; i++)
        to[i].rank = 0; /* one element, whatever the shape */
}

bool qk_pass_quantize(struct qk_pass *pass, uint32_t last)
{
    const struct qk_node *quantizer = &pass->nodes[last];
    const enum qk_type type = qk_pass_code_type(pass, quantizer);
    uint32_t inputs[QK_INPUT_COUNT_MAX];
    if ((type != QK_UINT8 && type != QK_INT8) || !find(pass, last, type))
        return false;
    const struct qk_node *real = &pass->nodes[pass->makers[quantizer->inputs[QK_PASS_X]]];
    const size_t operand_count = real->call.op->input_count;
    struct qk_call call = {.op = quantized_of(real->call.op)};
    if (!copy_attributes(&real->call, &call))
        return false;
    call.version = &call.op->versions[0];
    call.constants_stay = quantizer->call.constants_stay;
    /* Each operand has a scale and a zero point behind it, and those of y come last. */
    for (size_t i = 0; i < operand_count; i++) {
        const struct qk_node *dequantizer = &pass->nodes[pass->makers[real->inputs[i]]];
        call.variable |= UINT32_C(1) << (3 * i);
        call.inputs[3 * i] = (struct qk_tensor){.type = type};
        inputs[3 * i] = dequantizer->inputs[QK_PASS_X];
        put_parameters(dequantizer, type, &call.inputs[3 * i + 1]);
    }
    put_parameters(quantizer, type, &call.inputs[3 * operand_count]);
    qk_pass_replace(pass, &call, inputs);
    return true;
}
