/* What an operator's file needs to write its descriptor, and the functions that it gives the
 * registry beside the descriptor. Private to kernels/.
 *
 * kernels/README.md says how to add an operator. */
#pragma once

#include "kernels/qk.h"

/* Turns the value of a macro into a string for the texts of a descriptor: "6". */
#define QK_TEXT_OF(macro) QK_TEXT(macro)
#define QK_TEXT(tokens) #tokens

/* The shape of an input that may have any. */
#define QK_ANY_SHAPE "any, up to " QK_TEXT_OF(QK_RANK_MAX) " dimensions"

/* The platform of ONNX's operators, and their version_last. */
#define QK_ONNX_PLATFORM "onnx_onnxv1"
#define QK_ONNX_VERSION_LAST 25

/* An entry of a descriptor's list of attributes. `suffix` is INT for a QK_ATTRIBUTE_INT, and so on.
 */
#define QK_ATTRIBUTE(text, suffix, version, description)                                          \
    {                                                                                             \
        .name = (text), .kind = QK_ATTRIBUTE_##suffix, .since = (version), .about = (description) \
    }

/* A descriptor's lists, each with its length. */
#define QK_ATTRIBUTES(list) .attributes = (list), .attribute_count = QK_LENGTH_OF(list)
#define QK_VERSIONS(list) .versions = (list), .version_count = QK_LENGTH_OF(list)
#define QK_LENGTH_OF(list) (sizeof(list) / sizeof((list)[0]))

/* An operator's own struct begins with a struct qk_instance. Before call.c calls these functions,
 * it has checked which inputs are present, their types and layouts, and that each attribute exists
 * in the version. These functions check only the operator's own rules. */
struct qk_operator_code {
    /* Checks the call, allocates all that the instance keeps, and sets the units of packing and the
     * types of the outputs. call.c fills the instance's other members. Of a variable input, prepare
     * reads only the type, even if the caller has fixed the input, because call.c passes fixed
     * inputs to plan and run as if they were variable (but see packed_inputs). The same is true of
     * planned inputs, but if a planned input is fixed, prepare checks as much of it as it can, so
     * that a graph is refused when it is loaded. Until pack has run,
     * the instance may keep pointers to the data of constants. If call->constants_stay is set, it
     * may keep them for plan and run, too, and also pointers to the lists of attributes. */
    enum qk_status (*prepare)(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error);
    /* Like qk_pack. NULL if there is never anything to pack. */
    void (*pack)(struct qk_instance *instance, size_t begin, size_t end);
    /* Fills in the plan's outputs, kernel, run and state. Fills in the workspace and the units,
     * too, unless they are 0. Reads nothing that pack writes, because a plan may be made before
     * packing is done. Reads the data of planned inputs, and keeps what run needs of it. The data
     * of another input is NULL, or known already and may be checked. */
    enum qk_status (*plan)(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
    /* Bit i: if the caller fixes variable input i, prepare reads its data and keeps what runs need.
     * call.c then keeps only its type and shape, so that weights are in memory once. */
    uint32_t packed_inputs;
    /* Bit i: neither plan nor run reads the data of variable input i, as Shape does not. */
    uint32_t shape_only_inputs;
    /* True: an element of output 0 depends only on the elements of the inputs that broadcast to it.
     * If codes of 8 bits decide these elements, network/tables.c makes a table of the operator. */
    bool is_element_by_element;
};

/* Returns the operators that qk_operators does not list, because only graphs use them. */
const struct qk_operator *const *qk_graph_operators(size_t *count);

extern const struct qk_operator qk_microsoft_qgemm;
extern const struct qk_operator qk_onnx_dequantize_linear;
extern const struct qk_operator qk_onnx_dynamic_quantize_linear;
extern const struct qk_operator qk_onnx_matmul_integer;
extern const struct qk_operator qk_onnx_qlinear_matmul;
extern const struct qk_operator qk_onnx_quantize_linear;
extern const struct qk_operator qk_onnx_qlinear_conv;
extern const struct qk_operator qk_microsoft_qlinear_conv;
extern const struct qk_operator qk_onnx_conv_integer;
extern const struct qk_operator qk_microsoft_nhwc_max_pool;
extern const struct qk_operator qk_microsoft_qlinear_add;
extern const struct qk_operator qk_microsoft_qlinear_mul;
extern const struct qk_operator qk_onnx_max_pool;
extern const struct qk_operator qk_microsoft_qlinear_average_pool;
extern const struct qk_operator qk_microsoft_qlinear_concat;
extern const struct qk_operator qk_microsoft_qlinear_global_average_pool;
extern const struct qk_operator qk_microsoft_qlinear_leaky_relu;
extern const struct qk_operator qk_microsoft_qlinear_sigmoid;
extern const struct qk_operator qk_microsoft_qlinear_where;
extern const struct qk_operator qk_onnx_arg_max;
extern const struct qk_operator qk_onnx_arg_min;
extern const struct qk_operator qk_onnx_cast;
extern const struct qk_operator qk_onnx_clip;
extern const struct qk_operator qk_onnx_relu;
extern const struct qk_operator qk_microsoft_qlinear_softmax;
extern const struct qk_operator qk_directml_element_wise_dequantize_linear;
extern const struct qk_operator qk_tensorflow_dequantize;

extern const struct qk_operator qk_onnx_abs;
extern const struct qk_operator qk_onnx_add;
extern const struct qk_operator qk_onnx_average_pool;
extern const struct qk_operator qk_onnx_ceil;
extern const struct qk_operator qk_onnx_celu;
extern const struct qk_operator qk_onnx_div;
extern const struct qk_operator qk_onnx_elu;
extern const struct qk_operator qk_onnx_erf;
extern const struct qk_operator qk_onnx_exp;
extern const struct qk_operator qk_onnx_floor;
extern const struct qk_operator qk_onnx_gelu;
extern const struct qk_operator qk_onnx_batch_normalization;
extern const struct qk_operator qk_onnx_global_average_pool;
extern const struct qk_operator qk_onnx_conv;
extern const struct qk_operator qk_onnx_gemm;
extern const struct qk_operator qk_onnx_matmul;
extern const struct qk_operator qk_onnx_softmax;
extern const struct qk_operator qk_onnx_hard_sigmoid;
extern const struct qk_operator qk_onnx_hard_swish;
extern const struct qk_operator qk_onnx_leaky_relu;
extern const struct qk_operator qk_onnx_log;
extern const struct qk_operator qk_onnx_max;
extern const struct qk_operator qk_onnx_min;
extern const struct qk_operator qk_onnx_mish;
extern const struct qk_operator qk_onnx_mul;
extern const struct qk_operator qk_onnx_neg;
extern const struct qk_operator qk_onnx_pow;
extern const struct qk_operator qk_onnx_prelu;
extern const struct qk_operator qk_onnx_reciprocal;
extern const struct qk_operator qk_onnx_reduce_mean;
extern const struct qk_operator qk_onnx_round;
extern const struct qk_operator qk_onnx_selu;
extern const struct qk_operator qk_onnx_sigmoid;
extern const struct qk_operator qk_onnx_sign;
extern const struct qk_operator qk_onnx_softplus;
extern const struct qk_operator qk_onnx_softsign;
extern const struct qk_operator qk_onnx_sqrt;
extern const struct qk_operator qk_onnx_sub;
extern const struct qk_operator qk_onnx_sum;
extern const struct qk_operator qk_onnx_tanh;
extern const struct qk_operator qk_onnx_thresholded_relu;
extern const struct qk_operator qk_quantd_lookup;

extern const struct qk_operator qk_onnx_concat;
extern const struct qk_operator qk_onnx_depth_to_space;
extern const struct qk_operator qk_onnx_dropout;
extern const struct qk_operator qk_onnx_flatten;
extern const struct qk_operator qk_onnx_gather;
extern const struct qk_operator qk_onnx_identity;
extern const struct qk_operator qk_onnx_pad;
extern const struct qk_operator qk_onnx_reshape;
extern const struct qk_operator qk_onnx_resize;
extern const struct qk_operator qk_onnx_slice;
extern const struct qk_operator qk_onnx_space_to_depth;
extern const struct qk_operator qk_onnx_split;
extern const struct qk_operator qk_onnx_squeeze;
extern const struct qk_operator qk_onnx_transpose;
extern const struct qk_operator qk_onnx_unsqueeze;

extern const struct qk_operator qk_onnx_constant_of_shape;
extern const struct qk_operator qk_onnx_equal;
extern const struct qk_operator qk_onnx_expand;
extern const struct qk_operator qk_onnx_mod;
extern const struct qk_operator qk_onnx_range;
extern const struct qk_operator qk_onnx_shape;
extern const struct qk_operator qk_onnx_size;
extern const struct qk_operator qk_onnx_where;
