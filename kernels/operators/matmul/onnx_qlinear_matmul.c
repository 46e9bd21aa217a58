/* onnx.QLinearMatMul and onnx.MatMulInteger: descriptors, and the rules of ONNX that ONNX Runtime
 * enforces (quantize_linear_matmul.cc, matmul_integer.cc). A has one scale and zero point. */
#include "kernels/element/load.h"
#include "kernels/operators/matmul/matrix_product.h"
#include "kernels/operators/rules.h"

/* ---- QLinearMatMul ----------------------------------------------------------------------- */

enum { A, A_SCALE, A_ZERO_POINT, B, B_SCALE, B_ZERO_POINT, Y_SCALE, Y_ZERO_POINT };

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    static const size_t singles[] = {A_SCALE, A_ZERO_POINT, Y_SCALE, Y_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < sizeof(singles) / sizeof(singles[0]) && status == QK_OK; i++)
        status = qk_matrix_product_check_single(call->op, singles[i], &inputs[singles[i]], error);
    if (status == QK_OK)
        status = qk_check_same_type(call, A_ZERO_POINT, A, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, B_ZERO_POINT, B, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, Y_ZERO_POINT, A, error);
    if (status != QK_OK || call->variable >> B & 1)
        return status;
    status = qk_matrix_product_check_b(call->op, B, &inputs[B], error);
    if (status == QK_OK)
        status = qk_matrix_product_check_column(call->op, B_SCALE, &inputs[B_SCALE], B, &inputs[B],
                                                error);
    if (status == QK_OK)
        status = qk_matrix_product_check_column(call->op, B_ZERO_POINT, &inputs[B_ZERO_POINT], B,
                                                &inputs[B], error);
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_status status = check(call, error);
    if (status != QK_OK)
        return status;
    struct qk_matrix_product *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    *made = (struct qk_matrix_product){
        .desc =
            {
                .kind = QK_MATMUL_BYTES,
                .a_type = inputs[A].type,
                .b_type = inputs[B].type,
                .y_type = inputs[A].type,
                .a_input = A,
                .b_input = B,
                .c_input = QK_MATMUL_NONE,
                .a_scale = qk_load_f32(inputs[A_SCALE].data, 0),
                .y_scale = qk_load_f32(inputs[Y_SCALE].data, 0),
                .y_zero_point =
                    (int32_t)qk_load_integer(inputs[A].type, inputs[Y_ZERO_POINT].data, 0),
            },
    };
    qk_tensor_copy(&made->b_scale, &inputs[B_SCALE]);
    qk_tensor_copy(&made->b_zero_point, &inputs[B_ZERO_POINT]);
    status = qk_matrix_product_keep(call, A_ZERO_POINT, memory, &made->desc.a_zero_point, error);
    if (status == QK_OK)
        status =
            qk_matrix_product_keep(call, B_ZERO_POINT, memory, &made->desc.b_zero_point, error);
    if (status == QK_OK)
        status = qk_matrix_product_keep(call, B_SCALE, memory, &made->desc.b_scale, error);
    *instance = &made->base;
    return status == QK_OK ? qk_matrix_product_prepare(kernels, call, B, memory, made, error)
                           : status;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_matrix_product *made = (const struct qk_matrix_product *)instance;
    const struct qk_operator *op = instance->op;
    struct qk_matmul_shape shape = {0};
    struct qk_tensor y = {0};
    enum qk_status status =
        qk_matrix_product_shape(op, A, B, &inputs[A], &inputs[B], &shape, &y, error);
    if (status == QK_OK)
        status = qk_matrix_product_check_column(op, B_SCALE, &made->b_scale, B, &inputs[B], error);
    if (status == QK_OK)
        status = qk_matrix_product_check_column(op, B_ZERO_POINT, &made->b_zero_point, B,
                                                &inputs[B], error);
    if (status != QK_OK)
        return status;
    shape.scale_each = !qk_is_single(&made->b_scale);
    shape.zero_point_each = !qk_is_single(&made->b_zero_point);
    return qk_matrix_product_plan(made, &shape, &y, memory, plan, error);
}

/* ---- MatMulInteger ----------------------------------------------------------------------- */

enum { INTEGER_A, INTEGER_B, INTEGER_A_ZERO_POINT, INTEGER_B_ZERO_POINT };

static enum qk_status prepare_integer(const struct qk_kernels *kernels, const struct qk_call *call,
                                      struct qk_memory memory, struct qk_instance **instance,
                                      struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_status status = qk_check_same_type(call, INTEGER_A_ZERO_POINT, INTEGER_A, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, INTEGER_B_ZERO_POINT, INTEGER_B, error);
    if (status == QK_OK && !(call->variable >> INTEGER_B & 1))
        status = qk_matrix_product_check_b(call->op, INTEGER_B, &inputs[INTEGER_B], error);
    if (status != QK_OK)
        return status;
    struct qk_matrix_product *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    *made = (struct qk_matrix_product){
        .desc =
            {
                .kind = QK_MATMUL_INT32,
                .a_type = inputs[INTEGER_A].type,
                .b_type = inputs[INTEGER_B].type,
                .y_type = QK_INT32,
                .a_input = INTEGER_A,
                .b_input = INTEGER_B,
                .c_input = QK_MATMUL_NONE,
            },
    };
    status =
        qk_matrix_product_keep(call, INTEGER_A_ZERO_POINT, memory, &made->desc.a_zero_point, error);
    if (status == QK_OK)
        status = qk_matrix_product_keep(call, INTEGER_B_ZERO_POINT, memory,
                                        &made->desc.b_zero_point, error);
    *instance = &made->base;
    return status == QK_OK
               ? qk_matrix_product_prepare(kernels, call, INTEGER_B, memory, made, error)
               : status;
}

static enum qk_status plan_integer(const struct qk_instance *instance,
                                   const struct qk_tensor *inputs, struct qk_memory memory,
                                   struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_matrix_product *made = (const struct qk_matrix_product *)instance;
    const struct qk_operator *op = instance->op;
    struct qk_matmul_shape shape = {0};
    struct qk_tensor y = {0};
    enum qk_status status = qk_matrix_product_shape(op, INTEGER_A, INTEGER_B, &inputs[INTEGER_A],
                                                    &inputs[INTEGER_B], &shape, &y, error);
    if (status == QK_OK)
        status = qk_matrix_product_check_single(op, INTEGER_A_ZERO_POINT,
                                                &inputs[INTEGER_A_ZERO_POINT], error);
    if (status == QK_OK)
        status =
            qk_matrix_product_check_column(op, INTEGER_B_ZERO_POINT, &inputs[INTEGER_B_ZERO_POINT],
                                           INTEGER_B, &inputs[INTEGER_B], error);
    if (status != QK_OK)
        return status;
    shape.zero_point_each = inputs[INTEGER_B_ZERO_POINT].type != QK_NONE &&
                            !qk_is_single(&inputs[INTEGER_B_ZERO_POINT]);
    return qk_matrix_product_plan(made, &shape, &y, memory, plan, error);
}

/* ---- The descriptors --------------------------------------------------------------------- */

#define INT8S (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))
#define VERSION(since)                                     \
    {                                                      \
        .number = (since),                                 \
        .inputs = {[A] = {.types = INT8S},                 \
                   [A_SCALE] = {.types = QK_BIT(QK_FP32)}, \
                   [A_ZERO_POINT] = {.types = INT8S},      \
                   [B] = {.types = INT8S},                 \
                   [B_SCALE] = {.types = QK_BIT(QK_FP32)}, \
                   [B_ZERO_POINT] = {.types = INT8S},      \
                   [Y_SCALE] = {.types = QK_BIT(QK_FP32)}, \
                   [Y_ZERO_POINT] = {.types = INT8S}},     \
        .output_types = {INT8S},                           \
    }

static const struct qk_version versions[] = {VERSION(10), VERSION(21)};

#define MATRICES_SHAPE "[.., K, N] or [K], batch axes broadcast"

const struct qk_operator qk_onnx_qlinear_matmul = {
    .name = "onnx.QLinearMatMul",
    .platform = QK_ONNX_PLATFORM,
    .about = "Quantized product of matrices, with the shapes of numpy.matmul; y has the type of a",
    .inputs =
        {
            [A] = {"a", "[.., M, K] or [K]"},
            [A_SCALE] = {"a_scale", "[] or [1]"},
            [A_ZERO_POINT] = {"a_zero_point", "[] or [1]"},
            [B] = {"b", MATRICES_SHAPE},
            [B_SCALE] = {"b_scale", "[], [1], [N] or [.., 1, N]"},
            [B_ZERO_POINT] = {"b_zero_point", "[], [1], [N] or [.., 1, N]"},
            [Y_SCALE] = {"y_scale", "[] or [1]"},
            [Y_ZERO_POINT] = {"y_zero_point", "[] or [1]"},
        },
    .input_count = 8,
    .variable_inputs = 1U << A | 1U << B,
    .outputs = {{"y", "[.., M, N]"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare,
                                             .pack = qk_matrix_product_pack,
                                             .plan = plan,
                                             .packed_inputs = 1U << B},
};

static const struct qk_version integer_versions[] = {
    {.number = 10,
     .inputs =
         {
             [INTEGER_A] = {.types = INT8S},
             [INTEGER_B] = {.types = INT8S},
             [INTEGER_A_ZERO_POINT] = {.types = INT8S, .optional = true},
             [INTEGER_B_ZERO_POINT] = {.types = INT8S, .optional = true},
         },
     .output_types = {QK_BIT(QK_INT32)}},
};

const struct qk_operator qk_onnx_matmul_integer = {
    .name = "onnx.MatMulInteger",
    .platform = QK_ONNX_PLATFORM,
    .about = "Product of matrices of 8-bit integers less their zero points, modulo 2^32",
    .inputs =
        {
            [INTEGER_A] = {"A", "[.., M, K] or [K]"},
            [INTEGER_B] = {"B", MATRICES_SHAPE},
            [INTEGER_A_ZERO_POINT] = {"a_zero_point", "[] or [1]"},
            [INTEGER_B_ZERO_POINT] = {"b_zero_point", "[], [1], [N] or [.., 1, N]"},
        },
    .input_count = 4,
    .variable_inputs =
        1U << INTEGER_A | 1U << INTEGER_B | 1U << INTEGER_A_ZERO_POINT | 1U << INTEGER_B_ZERO_POINT,
    .outputs = {{"Y", "[.., M, N]"}},
    .output_count = 1,
    QK_VERSIONS(integer_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_integer,
                                             .pack = qk_matrix_product_pack,
                                             .plan = plan_integer,
                                             .packed_inputs = 1U << INTEGER_B},
};
