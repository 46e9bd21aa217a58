/* The list of all operators, and finding one by name and version. */
#include "kernels/operators/operator.h"

#include <string.h>

/* Operators that can be called by themselves. The first five were here before whole networks were,
 * and clients see this order. The others are sorted by name. */
static const struct qk_operator *const operators[] = {
    &qk_onnx_dequantize_linear,
    &qk_onnx_quantize_linear,
    &qk_onnx_qlinear_conv,
    &qk_directml_element_wise_dequantize_linear,
    &qk_tensorflow_dequantize,
    &qk_microsoft_nhwc_max_pool,
    &qk_microsoft_qgemm,
    &qk_microsoft_qlinear_add,
    &qk_microsoft_qlinear_average_pool,
    &qk_microsoft_qlinear_concat,
    &qk_microsoft_qlinear_conv,
    &qk_microsoft_qlinear_global_average_pool,
    &qk_microsoft_qlinear_leaky_relu,
    &qk_microsoft_qlinear_mul,
    &qk_microsoft_qlinear_sigmoid,
    &qk_microsoft_qlinear_softmax,
    &qk_microsoft_qlinear_where,
    &qk_onnx_arg_max,
    &qk_onnx_arg_min,
    &qk_onnx_cast,
    &qk_onnx_clip,
    &qk_onnx_concat,
    &qk_onnx_conv_integer,
    &qk_onnx_depth_to_space,
    &qk_onnx_dynamic_quantize_linear,
    &qk_onnx_flatten,
    &qk_onnx_gather,
    &qk_onnx_identity,
    &qk_onnx_matmul_integer,
    &qk_onnx_max_pool,
    &qk_onnx_pad,
    &qk_onnx_qlinear_matmul,
    &qk_onnx_relu,
    &qk_onnx_reshape,
    &qk_onnx_resize,
    &qk_onnx_slice,
    &qk_onnx_space_to_depth,
    &qk_onnx_split,
    &qk_onnx_squeeze,
    &qk_onnx_transpose,
    &qk_onnx_unsqueeze,
};

/* Operators that are only nodes of graphs: those of floats alone, which quantizers leave between
 * quantized operators, those that compute shapes, and the operator of tables. Sorted by name. */
static const struct qk_operator *const graph_operators[] = {
    &qk_onnx_abs,
    &qk_onnx_add,
    &qk_onnx_average_pool,
    &qk_onnx_batch_normalization,
    &qk_onnx_ceil,
    &qk_onnx_celu,
    &qk_onnx_constant_of_shape,
    &qk_onnx_conv,
    &qk_onnx_div,
    &qk_onnx_dropout,
    &qk_onnx_elu,
    &qk_onnx_equal,
    &qk_onnx_erf,
    &qk_onnx_exp,
    &qk_onnx_expand,
    &qk_onnx_floor,
    &qk_onnx_gelu,
    &qk_onnx_gemm,
    &qk_onnx_global_average_pool,
    &qk_onnx_hard_sigmoid,
    &qk_onnx_hard_swish,
    &qk_onnx_leaky_relu,
    &qk_onnx_log,
    &qk_onnx_matmul,
    &qk_onnx_max,
    &qk_onnx_min,
    &qk_onnx_mish,
    &qk_onnx_mod,
    &qk_onnx_mul,
    &qk_onnx_neg,
    &qk_onnx_pow,
    &qk_onnx_prelu,
    &qk_onnx_range,
    &qk_onnx_reciprocal,
    &qk_onnx_reduce_mean,
    &qk_onnx_round,
    &qk_onnx_selu,
    &qk_onnx_shape,
    &qk_onnx_sigmoid,
    &qk_onnx_sign,
    &qk_onnx_size,
    &qk_onnx_softmax,
    &qk_onnx_softplus,
    &qk_onnx_softsign,
    &qk_onnx_sqrt,
    &qk_onnx_sub,
    &qk_onnx_sum,
    &qk_onnx_tanh,
    &qk_onnx_thresholded_relu,
    &qk_onnx_where,
    &qk_quantd_lookup,
};

const struct qk_operator *const *qk_operators(size_t *count)
{
    *count = QK_LENGTH_OF(operators);
    return operators;
}

const struct qk_operator *const *qk_graph_operators(size_t *count)
{
    *count = QK_LENGTH_OF(graph_operators);
    return graph_operators;
}

static const struct qk_operator *find(const struct qk_operator *const *list, size_t count,
                                      const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

const struct qk_operator *qk_operator_by_name(const char *name)
{
    return find(operators, QK_LENGTH_OF(operators), name);
}

const struct qk_operator *qk_graph_operator_by_name(const char *name)
{
    const struct qk_operator *op = qk_operator_by_name(name);
    return op != NULL ? op : find(graph_operators, QK_LENGTH_OF(graph_operators), name);
}

/* ONNX Runtime has these operators in its own domain, too, where they take 16 and 4 bits and
 * blocks: what ONNX has had since opset 21. */
#define MICROSOFT_NUMBER 21
static const struct {
    const char *name;
    const struct qk_operator *op;
} microsoft[] = {
    {"com.microsoft.DequantizeLinear", &qk_onnx_dequantize_linear},
    {"com.microsoft.QuantizeLinear", &qk_onnx_quantize_linear},
};

const struct qk_operator *qk_graph_operator(const char *name, uint64_t *number)
{
    for (size_t i = 0; i < sizeof(microsoft) / sizeof(microsoft[0]); i++)
        if (*number == 1 && strcmp(microsoft[i].name, name) == 0) {
            *number = MICROSOFT_NUMBER;
            return microsoft[i].op;
        }
    return qk_graph_operator_by_name(name);
}

static bool number_exists(const struct qk_operator *op, uint64_t number)
{
    if (number > op->version_last)
        return false;
    for (size_t i = 0; i < op->number_count; i++)
        if (op->numbers[i] == number)
            return true;
    return !op->numbers;
}

const struct qk_version *qk_operator_version(const struct qk_operator *op, uint64_t number)
{
    if (!number_exists(op, number))
        return NULL;
    for (size_t left = op->version_count; left > 0; left--)
        if (op->versions[left - 1].number <= number)
            return &op->versions[left - 1];
    return NULL;
}
