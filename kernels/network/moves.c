/* Moves DequantizeLinear behind, and QuantizeLinear before, operators that only move or select
 * elements, which then work on codes. Removes pairs that cancel. Every result stays the same,
 * because DequantizeLinear and QuantizeLinear compute each element by itself.
 *
 *    x UINT8 -> DequantizeLinear -> Transpose -> QuantizeLinear -> y UINT8
 *    x UINT8 -> Transpose -> y UINT8
 */
#include <math.h>
#include <string.h>

#include "kernels/network/fate.h"
#include "kernels/network/pair.h"
#include "kernels/network/qdq.h"
#include "kernels/operators/operator.h"

/* Operators that only move elements of input 0; Concat those of all its inputs, and Where those of
 * its last two. MaxPool selects elements, and a greater code is a greater number. */
static const struct qk_operator *const movers[] = {
    &qk_onnx_concat,    &qk_onnx_depth_to_space, &qk_onnx_flatten, &qk_onnx_gather,
    &qk_onnx_identity,  &qk_onnx_max_pool,       &qk_onnx_reshape, &qk_onnx_resize,
    &qk_onnx_slice,     &qk_onnx_space_to_depth, &qk_onnx_split,   &qk_onnx_squeeze,
    &qk_onnx_transpose, &qk_onnx_unsqueeze,      &qk_onnx_where,
};

enum { PAD_VALUE = 2 }; /* the input of Pad with the constant */

/* Returns the inputs that are there, of those in `inputs`. */
static uint32_t present(const struct qk_node *node, uint32_t inputs)
{
    uint32_t found = 0;
    for (size_t i = 0; i < node->call.op->input_count; i++)
        if (node->call.variable >> i & 1 || node->call.inputs[i].type != QK_NONE)
            found |= UINT32_C(1) << i;
    return found & inputs;
}

/* Returns whether a node is a Dropout outside training, which passes its input. */
static bool is_idle_dropout(const struct qk_node *node)
{
    enum { TRAINING_MODE = 2 };
    const struct qk_tensor *mode = &node->call.inputs[TRAINING_MODE];
    return node->call.op == &qk_onnx_dropout && node->call.variable == 1 &&
           (mode->type == QK_NONE ||
            (mode->count == 1 && mode->data && *(const uint8_t *)mode->data == 0));
}

uint32_t qk_qdq_moved_inputs(const struct qk_node *node)
{
    const struct qk_operator *op = node->call.op;
    size_t i = 0;
    if (is_idle_dropout(node))
        return 1;
    while (i < sizeof(movers) / sizeof(movers[0]) && movers[i] != op)
        i++;
    if (i == sizeof(movers) / sizeof(movers[0]))
        return 0;
    if (op == &qk_onnx_resize) {
        const struct qk_attribute *mode = &node->call.attributes[qk_pair_attribute(op, "mode")];
        return !mode->present || strcmp(mode->string, "nearest") == 0;
    }
    return op == &qk_onnx_concat  ? present(node, UINT32_MAX)
           : op == &qk_onnx_where ? present(node, 6)
                                  : 1;
}

/* ---- DequantizeLinear ---------------------------------------------------------------------- */

/* Returns whether a mover can work on these codes. */
static bool takes(const struct qk_node *mover, size_t input, const struct qk_pair *pair)
{
    return mover->call.version->inputs[input].types >> pair->type & 1 &&
           (mover->call.op != &qk_onnx_max_pool || qk_pair_is_positive(pair));
}

/* Returns the DequantizeLinear nodes that make all elements which a node moves, by one scale and
 * zero point: the first of them. Returns QK_NO_NODE if there are none. */
static uint32_t find_dequantizer(const struct qk_edit *edit, uint32_t index)
{
    const struct qk_node *node = &edit->nodes[index];
    const uint32_t inputs = qk_qdq_moved_inputs(node);
    uint32_t first = QK_NO_NODE;
    struct qk_pair pair = {.type = QK_NONE};
    for (size_t i = 0; i < node->call.op->input_count; i++) {
        struct qk_pair other;
        if (!(inputs >> i & 1))
            continue;
        const uint32_t maker = qk_edit_maker_of(edit, index, i);
        if (!qk_pair_read(edit, maker, &qk_onnx_dequantize_linear, &other) ||
            !other.is_per_tensor || qk_edit_value_of(edit, maker, QK_PAIR_X) == QK_VALUE_NONE ||
            (first != QK_NO_NODE && !qk_pair_same(&pair, &other)) || !takes(node, i, &other))
            return QK_NO_NODE;
        if (first == QK_NO_NODE) {
            pair = other;
            first = maker;
        }
    }
    return first;
}

/* Puts the DequantizeLinear before a mover behind it. */
static void sink(struct qk_edit *edit, uint32_t index)
{
    const uint32_t dequantizer = find_dequantizer(edit, index);
    if (dequantizer == QK_NO_NODE)
        return;
    struct qk_node behind = edit->nodes[dequantizer];
    const uint32_t origin = edit->origins[dequantizer];
    const enum qk_type type = edit->types[behind.inputs[QK_PAIR_X]];
    const struct qk_operator *op = edit->nodes[index].call.op;
    const uint32_t inputs = qk_qdq_moved_inputs(&edit->nodes[index]);
    for (size_t i = 0; i < op->input_count; i++) {
        const uint32_t maker = qk_edit_maker_of(edit, index, i);
        if (inputs >> i & 1 && maker != QK_NO_NODE)
            qk_edit_set_input(edit, index, i, edit->nodes[maker].inputs[QK_PAIR_X]);
    }
    for (size_t i = 0; i < op->output_count; i++) {
        const uint32_t value = edit->nodes[index].outputs[i];
        if (value >= edit->value_count || edit->reads[value] == 0)
            continue;
        const uint32_t codes = qk_edit_add_value(edit, value, type);
        qk_edit_set_output(edit, index, i, codes);
        behind.inputs[QK_PAIR_X] = codes;
        behind.outputs[0] = value;
        qk_edit_add_node(edit, &behind, origin);
    }
}

/* Returns the axis at which Transpose puts an axis of its input, which has this rank. */
static int64_t transposed_axis(const struct qk_node *node, int64_t axis, int64_t rank)
{
    const struct qk_attribute *perm =
        &node->call.attributes[qk_pair_attribute(node->call.op, "perm")];
    axis = axis < 0 ? axis + rank : axis;
    if (!perm->present)
        return rank - 1 - axis;
    for (size_t i = 0; i < perm->list_count; i++)
        if (perm->list[i] == axis)
            return (int64_t)i;
    return -1;
}

/* Moves constant codes, such as weights that are transposed, and puts the DequantizeLinear behind.
 * Of operators that mix the axes, only Transpose takes a scale for each index of one. Returns QK_OK
 * or QK_NO_MEMORY. */
static enum qk_status sink_constant(struct qk_edit *edit, uint32_t index)
{
    struct qk_pair pair;
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    const struct qk_node *mover = &edit->nodes[index];
    const uint32_t dequantizer = qk_edit_maker_of(edit, index, 0);
    if (qk_qdq_moved_inputs(mover) != 1 || mover->call.variable != 1 ||
        mover->call.op->output_count != 1 ||
        !qk_pair_read(edit, dequantizer, &qk_onnx_dequantize_linear, &pair) ||
        edit->nodes[dequantizer].call.variable != 0 || !takes(mover, 0, &pair) ||
        (!pair.is_per_tensor && mover->call.op != &qk_onnx_transpose))
        return QK_OK;
    struct qk_node behind = edit->nodes[dequantizer];
    struct qk_call call = mover->call;
    call.variable = 0;
    call.inputs[0] = behind.call.inputs[QK_PAIR_X];
    const int64_t rank = call.inputs[0].rank;
    if (!call.inputs[0].data ||
        (!pair.is_per_tensor && (pair.axis < -rank || pair.axis >= rank))) /* it is refused */
        return QK_OK;
    const enum qk_status status = qk_compute(&edit->computing, &call, outputs, &cause);
    if (status == QK_NO_MEMORY)
        *edit->error = cause;
    if (status != QK_OK) /* when the node is prepared, it fails, too */
        return status == QK_NO_MEMORY ? status : QK_OK;
    behind.call.inputs[QK_PAIR_X] = outputs[0];
    if (!pair.is_per_tensor)
        behind.call.attributes[qk_pair_attribute(behind.call.op, "axis")] = (struct qk_attribute){
            .present = true,
            .number = transposed_axis(mover, pair.axis, rank),
        };
    behind.outputs[0] = mover->outputs[0];
    qk_fate_set(edit->call, mover, QK_FATE_FOLDED, NULL);
    qk_edit_replace(edit, index, &behind, edit->origins[index]);
    return QK_OK;
}

/* ---- QuantizeLinear ------------------------------------------------------------------------ */

/* Returns whether a QuantizeLinear may read floats. A wrong graph may have one behind another. So
 * no two of them rise before the same mover. */
static bool reads_floats(const struct qk_edit *edit, uint32_t index)
{
    const uint32_t value = qk_edit_value_of(edit, index, QK_PAIR_X);
    return value != QK_VALUE_NONE &&
           (edit->types[value] == QK_NONE || edit->types[value] == QK_FP32);
}

/* Puts a QuantizeLinear before each input that a Concat or Where joins. Quantizing each element
 * first gives the same, so ONNX Runtime's QLinearConcat and QLinearWhere have these bits, too.
 * Returns false if the node is none of both. */
static bool hoist_before_join(struct qk_edit *edit, uint32_t index, const struct qk_pair *pair)
{
    const uint32_t join = qk_edit_maker_of(edit, index, QK_PAIR_X);
    const uint32_t inputs = join == QK_NO_NODE ? 0 : qk_qdq_moved_inputs(&edit->nodes[join]);
    if ((inputs & ~UINT32_C(1)) == 0 || edit->reads[edit->nodes[join].outputs[0]] != 1)
        return false;
    struct qk_node before = edit->nodes[index];
    const uint32_t output = before.outputs[0];
    for (size_t i = 0; i < edit->nodes[join].call.op->input_count; i++)
        if (inputs >> i & 1 && !takes(&edit->nodes[join], i, pair))
            return false;
    for (size_t i = 0; i < edit->nodes[join].call.op->input_count; i++) {
        if (!(inputs >> i & 1))
            continue;
        struct qk_call *call = &edit->nodes[join].call;
        before.inputs[QK_PAIR_X] = qk_edit_value_of(edit, join, i);
        before.call.variable = before.inputs[QK_PAIR_X] != QK_VALUE_NONE;
        before.call.inputs[QK_PAIR_X] = call->inputs[i];
        before.outputs[0] = qk_edit_add_value(edit, output, pair->type);
        qk_edit_add_node(edit, &before, edit->origins[index]);
        call->variable |= UINT32_C(1) << i;
        qk_edit_set_input(edit, join, i, before.outputs[0]);
    }
    qk_edit_set_output(edit, join, 0, output);
    qk_edit_remove(edit, index);
    return true;
}

/* Returns whether a node pads what a DequantizeLinear makes, and with 0 if with a constant. The
 * node can work on codes then, and the code of 0 is the zero point. ONNX Runtime leaves the pair
 * around a Pad, which makes no difference. */
static bool pads_with_0(const struct qk_edit *edit, uint32_t index)
{
    const struct qk_call *call = &edit->nodes[index].call;
    const struct qk_tensor *value = &call->inputs[PAD_VALUE];
    const uint32_t maker = qk_edit_maker_of(edit, index, 0);
    float number = 0;
    if (call->op != &qk_onnx_pad || maker == QK_NO_NODE ||
        edit->nodes[maker].call.op != &qk_onnx_dequantize_linear || call->variable >> PAD_VALUE & 1)
        return false;
    if (value->type == QK_FP32 && value->count == 1 && value->data)
        memcpy(&number, value->data, sizeof(number));
    else if (value->type != QK_NONE)
        return false;
    return number == 0;
}

/* Puts a QuantizeLinear before the movers in front of it, up to what computes the elements. Each
 * step goes to an earlier node. */
static void hoist(struct qk_edit *edit, uint32_t index)
{
    struct qk_pair pair;
    if (!qk_pair_read(edit, index, &qk_onnx_quantize_linear, &pair) || !pair.is_per_tensor)
        return;
    while (reads_floats(edit, index) && !hoist_before_join(edit, index, &pair)) {
        const uint32_t mover = qk_edit_maker_of(edit, index, QK_PAIR_X);
        const bool pads =
            mover != QK_NO_NODE && qk_pair_is_positive(&pair) && pads_with_0(edit, mover);
        if (mover == QK_NO_NODE || !(pads || qk_qdq_moved_inputs(&edit->nodes[mover]) == 1) ||
            edit->nodes[mover].call.op->output_count != 1 ||
            edit->reads[edit->nodes[mover].outputs[0]] != 1 ||
            !takes(&edit->nodes[mover], 0, &pair))
            return;
        const uint32_t source = qk_edit_value_of(edit, mover, 0);
        if (source == QK_VALUE_NONE || edit->makers[source] == QK_NO_NODE ||
            (edit->reads[source] != 1 && !pads))
            return;
        if (pads)
            edit->nodes[mover].call.inputs[PAD_VALUE] = pair.zero_point;
        const uint32_t codes = qk_edit_add_value(edit, source, pair.type);
        const uint32_t output = edit->nodes[index].outputs[0];
        edit->reads[source]++; /* it stays while its reader changes */
        qk_edit_set_output(edit, index, 0, codes);
        qk_edit_set_input(edit, mover, 0, codes);
        qk_edit_set_output(edit, mover, 0, output);
        qk_edit_set_input(edit, index, QK_PAIR_X, source);
        edit->reads[source]--;
    }
}

/* Returns whether each code that is dequantized and quantized again by this scale is itself. */
static bool is_exact(const struct qk_pair *pair)
{
    float scale;
    memcpy(&scale, pair->scale.data, sizeof(scale));
    return isnormal(scale) && isfinite(scale * 65536.0F);
}

/* If a DequantizeLinear before a QuantizeLinear makes the same codes, notes the codes that it reads
 * as those to read instead. */
static void cancel(struct qk_edit *edit, uint32_t index, uint32_t *instead)
{
    struct qk_pair before;
    struct qk_pair pair;
    const uint32_t dequantizer = qk_edit_maker_of(edit, index, QK_PAIR_X);
    if (!qk_pair_read(edit, index, &qk_onnx_quantize_linear, &pair) ||
        !qk_pair_read(edit, dequantizer, &qk_onnx_dequantize_linear, &before) ||
        !qk_pair_same(&pair, &before) || !is_exact(&pair))
        return;
    const uint32_t codes = qk_edit_value_of(edit, dequantizer, QK_PAIR_X);
    const uint32_t output = edit->nodes[index].outputs[0];
    if (codes == QK_VALUE_NONE || output >= edit->value_count)
        return;
    instead[output] = codes;
    const struct qk_node *nodes = edit->nodes;
    qk_fate_set(edit->call, &nodes[index], QK_FATE_CANCELLED, &nodes[dequantizer]);
    qk_fate_set(edit->call, &nodes[dequantizer], QK_FATE_CANCELLED, &nodes[index]);
}

/* Returns what to read instead of a value, and notes it for the values on the way, so that a chain
 * of pairs is followed once. */
static uint32_t follow(uint32_t *instead, uint32_t value)
{
    uint32_t last = value;
    while (instead[last] != last)
        last = instead[last];
    while (instead[value] != last) {
        const uint32_t next = instead[value];
        instead[value] = last;
        value = next;
    }
    return last;
}

/* Removes the pairs that cancel. */
static enum qk_status cancel_all(struct qk_edit *edit)
{
    uint32_t *instead = qk_edit_take(edit, edit->value_count, sizeof(*instead));
    if (!instead)
        return QK_NO_MEMORY;
    for (uint32_t i = 0; i < edit->value_count; i++)
        instead[i] = i;
    for (uint32_t i = 0; i < edit->node_count; i++)
        if (!edit->is_removed[i])
            cancel(edit, i, instead);
    for (uint32_t i = 0; i < edit->node_count; i++)
        for (size_t k = 0; !edit->is_removed[i] && k < edit->nodes[i].call.op->input_count; k++) {
            const uint32_t value = qk_edit_value_of(edit, i, k);
            if (value != QK_VALUE_NONE && instead[value] != value)
                qk_edit_set_input(edit, i, k, follow(instead, value));
        }
    return QK_OK;
}

/* Has Shape and Size read the codes, which have the same dimensions. */
static void read_codes(struct qk_edit *edit, uint32_t index)
{
    struct qk_pair pair;
    const struct qk_node *node = &edit->nodes[index];
    if (node->call.op != &qk_onnx_shape && node->call.op != &qk_onnx_size)
        return;
    const uint32_t maker = qk_edit_maker_of(edit, index, 0);
    if (!qk_pair_read(edit, maker, &qk_onnx_dequantize_linear, &pair) || !takes(node, 0, &pair))
        return;
    const uint32_t codes = qk_edit_value_of(edit, maker, QK_PAIR_X);
    if (codes != QK_VALUE_NONE)
        qk_edit_set_input(edit, index, 0, codes);
}

/* ---- All nodes ----------------------------------------------------------------------------- */

/* Makes a Dropout that drops nothing an Identity, which takes codes. */
static void pass_dropout(struct qk_node *node)
{
    if (!is_idle_dropout(node))
        return;
    node->call.op = &qk_onnx_identity;
    node->call.version = &qk_onnx_identity.versions[qk_onnx_identity.version_count - 1];
    memset(node->call.attributes, 0, sizeof(node->call.attributes));
}

enum qk_status qk_qdq_move(struct qk_edit *edit, const uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (edit->is_removed[order[i]])
            continue;
        pass_dropout(&edit->nodes[order[i]]);
        if (sink_constant(edit, order[i]) != QK_OK)
            return QK_NO_MEMORY;
        sink(edit, order[i]);
    }
    for (size_t left = count; left > 0; left--)
        if (!edit->is_removed[order[left - 1]])
            hoist(edit, order[left - 1]);
    for (uint32_t i = (uint32_t)count; i < edit->node_count; i++) /* new ones, as it goes */
        if (!edit->is_removed[i])
            hoist(edit, i);
    if (cancel_all(edit) != QK_OK)
        return QK_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (!edit->is_removed[order[i]])
            read_codes(edit, order[i]);
    return QK_OK;
}
