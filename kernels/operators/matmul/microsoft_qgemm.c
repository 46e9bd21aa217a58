/* com.microsoft.QGemm: the descriptor, and the rules that ONNX Runtime enforces (quant_gemm.cc).
 * alpha multiplies C, too, because C is added to the integers. */
#include "kernels/element/load.h"
#include "kernels/operators/matmul/matrix_product.h"
#include "kernels/operators/matmul/qgemm_rows.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { A, A_SCALE, A_ZERO_POINT, B, B_SCALE, B_ZERO_POINT, C, Y_SCALE, Y_ZERO_POINT };
enum { ALPHA, TRANS_A, TRANS_B };

static bool is_true(const struct qk_call *call, size_t attribute)
{
    return qk_int_or(&call->attributes[attribute], 0) != 0;
}

/* Checks B, b_scale and b_zero_point, which have one number for all of B or for each column. */
static enum qk_status check_b(bool transposed, const struct qk_tensor *b,
                              const struct qk_tensor *scale, const struct qk_tensor *zero_point,
                              struct qk_error *error)
{
    struct qk_shape_text shape;
    struct qk_shape_text other;
    if (b->rank != 2)
        return qk_fail(error, QK_INVALID, "B: expected 2 axes, got shape %s",
                       qk_shape_text(b, &shape));
    const size_t n = b->dims[transposed ? 0 : 1];
    if (!qk_is_single(scale) && (scale->rank != 1 || scale->dims[0] != n))
        return qk_fail(error, QK_INVALID, "b_scale: expected shape [], [1] or [%zu], got %s", n,
                       qk_shape_text(scale, &shape));
    if (!qk_same_shape(scale, zero_point))
        return qk_fail(error, QK_INVALID, "b_zero_point: expected the shape of b_scale, %s, got %s",
                       qk_shape_text(scale, &other), qk_shape_text(zero_point, &shape));
    return QK_OK;
}

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    const bool has_scale = inputs[Y_SCALE].type != QK_NONE;
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
    if (status == QK_OK && !(call->variable >> B & 1))
        status = check_b(is_true(call, TRANS_B), &inputs[B], &inputs[B_SCALE],
                         &inputs[B_ZERO_POINT], error);
    if (status == QK_OK && has_scale != (inputs[Y_ZERO_POINT].type != QK_NONE))
        status = qk_fail(error, QK_INVALID, "%s: expected %s and %s, or neither, got one of them",
                         has_scale ? "y_zero_point" : "y_scale", "y_scale", "y_zero_point");
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    const struct qk_attribute *alpha = &call->attributes[ALPHA];
    enum qk_status status = check(call, error);
    if (status != QK_OK)
        return status;
    struct qk_matrix_product *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    *made = (struct qk_matrix_product){0};
    qk_tensor_copy(&made->b_scale, &inputs[B_SCALE]);
    qk_tensor_copy(&made->b_zero_point, &inputs[B_ZERO_POINT]);
    struct qk_matmul_desc *desc = &made->desc;
    desc->kind = inputs[Y_SCALE].type == QK_NONE ? QK_MATMUL_FLOAT : QK_MATMUL_BYTES;
    desc->a_type = inputs[A].type;
    desc->b_type = inputs[B].type;
    desc->y_type = desc->kind == QK_MATMUL_FLOAT ? QK_FP32 : inputs[A].type;
    desc->a_transposed = is_true(call, TRANS_A);
    desc->b_transposed = is_true(call, TRANS_B);
    desc->a_input = A;
    desc->b_input = B;
    desc->c_input = inputs[C].type == QK_NONE ? QK_MATMUL_NONE : C;
    desc->a_scale = (alpha->present ? alpha->real : 1) * qk_load_f32(inputs[A_SCALE].data, 0);
    if (desc->kind == QK_MATMUL_BYTES) {
        desc->y_scale = qk_load_f32(inputs[Y_SCALE].data, 0);
        desc->y_zero_point = (int32_t)qk_load_integer(inputs[A].type, inputs[Y_ZERO_POINT].data, 0);
    }
    status = qk_matrix_product_keep(call, A_ZERO_POINT, memory, &desc->a_zero_point, error);
    if (status == QK_OK)
        status = qk_matrix_product_keep(call, B_ZERO_POINT, memory, &desc->b_zero_point, error);
    if (status == QK_OK)
        status = qk_matrix_product_keep(call, B_SCALE, memory, &desc->b_scale, error);
    *instance = &made->base;
    return status == QK_OK ? qk_matrix_product_prepare(kernels, call, B, memory, made, error)
                           : status;
}

/* Sets C's strides. */
static enum qk_status fit_c(const struct qk_tensor *c, struct qk_matmul_shape *shape,
                            struct qk_error *error)
{
    const size_t rows = c->rank == 2 ? c->dims[0] : 1;
    const size_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    struct qk_shape_text text;
    if (c->rank > 2 || (rows != 1 && rows != shape->m) || (columns != 1 && columns != shape->n))
        return qk_fail(error, QK_INVALID,
                       "C: expected a shape that broadcasts to y's [%zu,%zu], got %s", shape->m,
                       shape->n, qk_shape_text(c, &text));
    shape->c_column = columns == 1 ? 0 : 1;
    shape->c_row = rows == 1 ? 0 : columns;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_matrix_product *made = (const struct qk_matrix_product *)instance;
    const struct qk_matmul_desc *desc = &made->desc;
    const struct qk_tensor *a = &inputs[A];
    const struct qk_tensor *b = &inputs[B];
    struct qk_shape_text shape;
    struct qk_shape_text other;
    enum qk_status status =
        check_b(desc->b_transposed, b, &made->b_scale, &made->b_zero_point, error);
    if (status != QK_OK)
        return status;
    if (a->rank != 2 && (instance->op != &qk_microsoft_qgemm_rows || a->rank == 0))
        return qk_fail_of_rank(error, "A: expected rank 2, got %u", a->rank);
    size_t rows = a->rank == 2 ? a->dims[desc->a_transposed ? 1 : 0] : 1;
    for (uint32_t i = 0; a->rank != 2 && i + 1 < a->rank; i++)
        if (!qk_mul_size(rows, a->dims[i], &rows))
            return qk_fail(error, QK_INVALID, "A: expected fewer rows, got shape %s",
                           qk_shape_text(a, &shape));
    struct qk_matmul_shape fitted = {
        .m = rows,
        .k = a->dims[desc->a_transposed ? 0 : a->rank - 1],
        .n = b->dims[desc->b_transposed ? 0 : 1],
        .batches = 1,
        .scale_each = !qk_is_single(&made->b_scale),
        .zero_point_each = !qk_is_single(&made->b_zero_point),
    };
    if (fitted.k != b->dims[desc->b_transposed ? 1 : 0])
        return qk_fail(error, QK_INVALID,
                       "A: expected %zu columns, as many as B of shape %s has rows%s, got shape %s",
                       b->dims[desc->b_transposed ? 1 : 0], qk_shape_text(b, &other),
                       desc->a_transposed || desc->b_transposed ? " after transA and transB" : "",
                       qk_shape_text(a, &shape));
    if (inputs[C].type != QK_NONE)
        status = fit_c(&inputs[C], &fitted, error);
    if (status != QK_OK)
        return status;
    struct qk_tensor y = {.rank = 2, .dims = {fitted.m, fitted.n}};
    if (a->rank != 2) {
        qk_tensor_copy(&y, a);
        y.dims[a->rank - 1] = fitted.n;
    }
    return qk_matrix_product_plan(made, &fitted, &y, memory, plan, error);
}

/* ---- The descriptor ---------------------------------------------------------------------- */

#define INT8S (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_attribute_def attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 1, "default 1; multiplies A B and C"),
    [TRANS_A] = QK_ATTRIBUTE("transA", INT, 1, "default 0; otherwise A is [K, M]"),
    [TRANS_B] = QK_ATTRIBUTE("transB", INT, 1, "default 0; otherwise B is [N, K]"),
};

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs =
         {
             [A] = {.types = INT8S},
             [A_SCALE] = {.types = QK_BIT(QK_FP32)},
             [A_ZERO_POINT] = {.types = INT8S},
             [B] = {.types = INT8S},
             [B_SCALE] = {.types = QK_BIT(QK_FP32)},
             [B_ZERO_POINT] = {.types = INT8S},
             [C] = {.types = QK_BIT(QK_INT32), .optional = true},
             [Y_SCALE] = {.types = QK_BIT(QK_FP32), .optional = true},
             [Y_ZERO_POINT] = {.types = INT8S, .optional = true},
         },
     .output_types = {INT8S | QK_BIT(QK_FP32)}},
};

#define QGEMM(a_shape)                                                                             \
    .name = "com.microsoft.QGemm", .platform = QK_ONNX_PLATFORM,                                   \
    .about = "Quantized matrix product plus C; y has the type of A or, without y_scale, is FP32",  \
    .inputs =                                                                                      \
        {                                                                                          \
            [A] = {"A", (a_shape)},                                                                \
            [A_SCALE] = {"a_scale", "[] or [1]"},                                                  \
            [A_ZERO_POINT] = {"a_zero_point", "[] or [1]"},                                        \
            [B] = {"B", "[K, N], or with transB [N, K]"},                                          \
            [B_SCALE] = {"b_scale", "[], [1] or [N]"},                                             \
            [B_ZERO_POINT] = {"b_zero_point", "as b_scale"},                                       \
            [C] = {"C", "broadcasts to [M, N]"},                                                   \
            [Y_SCALE] = {"y_scale", "[] or [1]"},                                                  \
            [Y_ZERO_POINT] = {"y_zero_point", "[] or [1]"},                                        \
    },                                                                                             \
    .input_count = 9, .variable_inputs = 1U << A | 1U << B | 1U << C,                              \
    .outputs = {{"Y", "[M, N]"}}, .output_count = 1, QK_ATTRIBUTES(attributes),                    \
    QK_VERSIONS(versions), .version_last = 1, .code = &(const struct qk_operator_code)             \
    {                                                                                              \
        .prepare = prepare, .pack = qk_matrix_product_pack, .plan = plan, .packed_inputs = 1U << B \
    }

const struct qk_operator qk_microsoft_qgemm = {QGEMM("[M, K], or with transA [K, M]")};
const struct qk_operator qk_microsoft_qgemm_rows = {QGEMM("[.., K]")};
