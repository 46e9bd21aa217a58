/* onnx.Conv, Gemm and MatMul on FP32, which quantd only has between DequantizeLinear and
 * QuantizeLinear: network/fuse.c makes operators on codes from them. A node that it could not fuse
 * is refused. */
#include "kernels/operators/float/onnx_fused.h"
#include "kernels/operators/operator.h"

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    (void)memory;
    (void)instance;
    const struct qk_attribute *why = &call->attributes[QK_UNFUSED];
    const size_t port = why->present ? (size_t)why->number : 0;
    const char *name =
        port < call->op->input_count ? call->op->inputs[port].name : call->op->outputs[0].name;
    const bool is_of_file = port == QK_UNFUSED_FILE;
    return qk_fail(error, QK_INVALID,
                   "%s%s%s. quantd computes %s only on UINT8 or INT8 behind DequantizeLinear%s",
                   is_of_file ? "" : name, is_of_file ? "" : ": ",
                   why->present ? why->string
                                : "expected QuantizeLinear as the only reader of the result, and "
                                  "DequantizeLinear before each operand, got floats elsewhere",
                   call->op->name,
                   is_of_file ? ". quantize_static of Python's onnxruntime.quantization can "
                                "quantize the network"
                              : "");
}

bool qk_node_is_unfused(const struct qk_node *node, struct qk_error *error)
{
    return node->call.op->code->prepare == prepare &&
           prepare(NULL, &node->call, (struct qk_memory){NULL, NULL}, NULL, error) != QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    (void)instance;
    (void)inputs;
    (void)memory;
    (void)plan;
    return qk_fail(error, QK_INVALID, "X: expected no floats");
}

#define CODE                             \
    &(const struct qk_operator_code)     \
    {                                    \
        .prepare = prepare, .plan = plan \
    }
#define REAL QK_BIT(QK_FP32)
#define REALS                         \
    {                                 \
        {REAL, false}, {REAL, false}, \
        {                             \
            REAL, true                \
        }                             \
    }

/* ---- Conv ---------------------------------------------------------------------------------- */

static const struct qk_attribute_def conv_attributes[] = {
    QK_ATTRIBUTE("auto_pad", STRING, 1, "as of onnx.QLinearConv"),
    QK_ATTRIBUTE("dilations", INTS, 1, "as of onnx.QLinearConv"),
    QK_ATTRIBUTE("group", INT, 1, "as of onnx.QLinearConv"),
    QK_ATTRIBUTE("kernel_shape", INTS, 1, "as of onnx.QLinearConv"),
    QK_ATTRIBUTE("pads", INTS, 1, "as of onnx.QLinearConv"),
    QK_ATTRIBUTE("strides", INTS, 1, "as of onnx.QLinearConv"),
};
static const struct qk_version conv_versions[] = {
    {.number = 1, .inputs = REALS, .output_types = {REAL}},
};

const struct qk_operator qk_onnx_conv = {
    .name = "onnx.Conv",
    .platform = QK_ONNX_PLATFORM,
    .about = "A convolution of floats, which becomes onnx.QLinearConv",
    .inputs = {{"X", "[N, C, D1..Dn]"}, {"W", "[M, C/group, k1..kn]"}, {"B", "[M]"}},
    .input_count = 3,
    .variable_inputs = 7,
    .outputs = {{"Y", "[N, M, D1..Dn]"}},
    .output_count = 1,
    QK_ATTRIBUTES(conv_attributes),
    QK_VERSIONS(conv_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = CODE,
};

/* ---- Gemm and MatMul ----------------------------------------------------------------------- */

static const struct qk_attribute_def gemm_attributes[] = {
    QK_ATTRIBUTE("alpha", FLOAT, 7, "default 1; must be 1 beside C"),
    QK_ATTRIBUTE("beta", FLOAT, 7, "default 1; must be 1 beside C"),
    QK_ATTRIBUTE("transA", INT, 7, "as of com.microsoft.QGemm"),
    QK_ATTRIBUTE("transB", INT, 7, "as of com.microsoft.QGemm"),
};
static const struct qk_version gemm_versions[] = {
    {.number = 7, .inputs = REALS, .output_types = {REAL}},
};

const struct qk_operator qk_onnx_gemm = {
    .name = "onnx.Gemm",
    .platform = QK_ONNX_PLATFORM,
    .about = "A matrix product of floats and a bias, which becomes com.microsoft.QGemm",
    .inputs = {{"A", "[M, K] or [K, M]"}, {"B", "[K, N] or [N, K]"}, {"C", "[N]"}},
    .input_count = 3,
    .variable_inputs = 7,
    .outputs = {{"Y", "[M, N]"}},
    .output_count = 1,
    QK_ATTRIBUTES(gemm_attributes),
    QK_VERSIONS(gemm_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = CODE,
};

static const struct qk_version matmul_versions[] = {
    {.number = 1, .inputs = {{REAL, false}, {REAL, false}}, .output_types = {REAL}},
};

const struct qk_operator qk_onnx_matmul = {
    .name = "onnx.MatMul",
    .platform = QK_ONNX_PLATFORM,
    .about = "A matrix product of floats, which becomes onnx.QLinearMatMul",
    .inputs = {{"A", "[.., M, K]"}, {"B", "[.., K, N]"}},
    .input_count = 2,
    .variable_inputs = 3,
    .outputs = {{"Y", "[.., M, N]"}},
    .output_count = 1,
    QK_VERSIONS(matmul_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = CODE,
};
