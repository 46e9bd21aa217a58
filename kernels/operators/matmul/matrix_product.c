#include "kernels/operators/matmul/matrix_product.h"

#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

/* ---- Rules ------------------------------------------------------------------------------- */

enum qk_status qk_matrix_product_check_single(const struct qk_operator *op, size_t input,
                                              const struct qk_tensor *parameter,
                                              struct qk_error *error)
{
    struct qk_shape_text shape;
    if (parameter->type == QK_NONE || qk_is_single(parameter))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1], got %s",
                   op->inputs[input].name, qk_shape_text(parameter, &shape));
}

enum qk_status qk_matrix_product_check_b(const struct qk_operator *op, size_t b_input,
                                         const struct qk_tensor *b, struct qk_error *error)
{
    if (b->rank > 0)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected at least one axis, got shape []",
                   op->inputs[b_input].name);
}

enum qk_status qk_matrix_product_check_column(const struct qk_operator *op, size_t input,
                                              const struct qk_tensor *parameter, size_t b_input,
                                              const struct qk_tensor *b, struct qk_error *error)
{
    if (parameter->type == QK_NONE || qk_is_single(parameter))
        return QK_OK;
    const size_t n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    bool fits = b->rank == 2 && parameter->rank == 1 && parameter->dims[0] == n;
    if (b->rank > 1 && parameter->rank == b->rank) {
        fits = true;
        for (uint32_t i = 0; i < b->rank; i++)
            fits = fits && parameter->dims[i] == (i + 2 == b->rank ? 1 : b->dims[i]);
    }
    struct qk_shape_text shape;
    struct qk_shape_text b_shape;
    if (fits)
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "%s: expected shape [], [1], or one number for each column of %s of shape %s, "
                   "got %s",
                   op->inputs[input].name, op->inputs[b_input].name, qk_shape_text(b, &b_shape),
                   qk_shape_text(parameter, &shape));
}

/* ---- Prepare and pack -------------------------------------------------------------------- */

enum qk_status qk_matrix_product_keep(const struct qk_call *call, size_t input,
                                      struct qk_memory memory, struct qk_matmul_parameter *to,
                                      struct qk_error *error)
{
    const struct qk_tensor *tensor = &call->inputs[input];
    *to = (struct qk_matmul_parameter){.input = QK_MATMUL_NONE};
    if (tensor->type == QK_NONE)
        return QK_OK;
    to->input = (uint32_t)input;
    if (call->op->variable_inputs >> input & 1)
        return QK_OK;
    to->data = tensor->data;
    if (call->constants_stay && to->data)
        return QK_OK;
    size_t bytes;
    uint8_t *kept = qk_type_bytes(tensor->type, tensor->count, &bytes)
                        ? memory.alloc(memory.context, bytes + 1) /* never 0 bytes */
                        : NULL;
    if (!kept)
        return qk_fail(error, QK_NO_MEMORY, "no memory for %s", call->op->inputs[input].name);
    if (bytes > 0)
        memcpy(kept, tensor->data, bytes);
    to->data = kept;
    return QK_OK;
}

/* True if the parameter is absent, or a constant of one element or `columns` elements. */
static bool parameter_known(const struct qk_matmul_parameter *parameter,
                            const struct qk_tensor *tensor, size_t columns)
{
    return parameter->input == QK_MATMUL_NONE ||
           (parameter->data && (qk_is_single(tensor) || tensor->count == columns));
}

/* True if packing the constant B can compute what the columns need. The plan refuses parameters
 * with other counts. */
static bool columns_known(const struct qk_matrix_product *made,
                          const struct qk_matmul_constant *constant)
{
    const struct qk_matmul_desc *desc = &made->desc;
    size_t columns;
    return qk_mul_size(constant->matrices, constant->n, &columns) &&
           (desc->a_zero_point.data || desc->a_zero_point.input == QK_MATMUL_NONE) &&
           parameter_known(&desc->b_zero_point, &made->b_zero_point, columns) &&
           (desc->kind == QK_MATMUL_INT32 ||
            parameter_known(&desc->b_scale, &made->b_scale, columns));
}

enum qk_status qk_matrix_product_prepare(const struct qk_kernels *kernels,
                                         const struct qk_call *call, size_t b_input,
                                         struct qk_memory memory, struct qk_matrix_product *made,
                                         struct qk_error *error)
{
    const struct qk_tensor *b = &call->inputs[b_input];
    const struct qk_matmul_tuning tuning = {
        .backend = kernels->choice.matmul,
        .terms_per_ns = kernels->choice.matmul_terms_per_ns,
        .conv = &kernels->choice.conv,
        .kernels = kernels->matmul,
    };
    const bool fixed = !(call->variable >> b_input & 1);
    struct qk_matmul_constant constant = {0};
    if (fixed) {
        const uint32_t rank = b->rank;
        const bool rows = made->desc.b_transposed;
        constant.data = b->data;
        constant.stays = call->constants_stay;
        constant.k = rank > 1 ? b->dims[rank - (rows ? 1 : 2)] : b->dims[0];
        constant.n = rank > 1 ? b->dims[rank - (rows ? 2 : 1)] : 1;
        constant.matrices = 1;
        for (uint32_t i = 0; i + 2 < rank; i++)
            constant.matrices *= b->dims[i];
    }
    constant.columns_known = columns_known(made, &constant);
    constant.scale_each = !qk_is_single(&made->b_scale);
    constant.zero_point_each = !qk_is_single(&made->b_zero_point);
    const enum qk_status status = qk_matmul_prepare(&made->desc, fixed ? &constant : NULL, &tuning,
                                                    memory, &made->matmul, error);
    made->base.pack_unit_count = made->matmul.pack_unit_count;
    made->base.pack_unit_cost_ns = made->matmul.pack_unit_cost_ns;
    made->base.output_types[0] = made->desc.y_type;
    return status;
}

void qk_matrix_product_pack(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_matmul_pack(&((struct qk_matrix_product *)instance)->matmul, begin, end);
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* Returns the length of batch axis `axis` of y in a stack of matrices, which may have fewer axes.
 */
static size_t batch_dim(const struct qk_tensor *tensor, uint32_t axis, uint32_t batch_rank)
{
    const uint32_t own = tensor->rank > 2 ? tensor->rank - 2 : 0;
    return axis + own < batch_rank ? 1 : tensor->dims[axis + own - batch_rank];
}

/* Sets the batch axes of `shape` by broadcasting A's and B's. Returns false if they do not fit. */
static bool set_batches(const struct qk_tensor *a, const struct qk_tensor *b,
                        struct qk_matmul_shape *shape)
{
    const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    shape->rank = rank > 2 ? rank - 2 : 0;
    shape->batches = 1;
    size_t a_stride = 1;
    size_t b_stride = 1;
    for (uint32_t left = shape->rank; left > 0; left--) {
        const uint32_t i = left - 1;
        const size_t a_dim = batch_dim(a, i, shape->rank);
        const size_t b_dim = batch_dim(b, i, shape->rank);
        if (a_dim != b_dim && a_dim != 1 && b_dim != 1)
            return false;
        shape->dims[i] = a_dim == 1 ? b_dim : a_dim;
        shape->a_strides[i] = a_dim == 1 ? 0 : a_stride;
        shape->b_strides[i] = b_dim == 1 ? 0 : b_stride;
        a_stride *= a_dim;
        b_stride *= b_dim;
    }
    return true;
}

/* Multiplies the batch axes. If B is one matrix, all rows of A are rows of one product. Reads y,
 * whose count does not overflow. */
static void merge_batches(const struct qk_tensor *y, const struct qk_tensor *b,
                          struct qk_matmul_shape *shape)
{
    bool one = true;
    for (uint32_t i = 0; i + 2 < b->rank; i++)
        one = one && b->dims[i] == 1;
    if (y->count == 0)
        shape->batches = 0;
    for (uint32_t i = 0; i < shape->rank && y->count > 0; i++)
        shape->batches *= shape->dims[i];
    if (!one || y->count == 0)
        return;
    shape->m *= shape->batches;
    shape->batches = 1;
    shape->rank = 0;
}

enum qk_status qk_matrix_product_shape(const struct qk_operator *op, size_t a_input, size_t b_input,
                                       const struct qk_tensor *a, const struct qk_tensor *b,
                                       struct qk_matmul_shape *shape, struct qk_tensor *y,
                                       struct qk_error *error)
{
    struct qk_shape_text a_shape;
    struct qk_shape_text b_shape;
    const char *a_name = op->inputs[a_input].name;
    const char *b_name = op->inputs[b_input].name;
    if (a->rank == 0 || b->rank == 0)
        return qk_fail(error, QK_INVALID, "%s: expected at least one axis, got shape []",
                       a->rank == 0 ? a_name : b_name);
    shape->m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    shape->k = a->dims[a->rank - 1];
    shape->n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    if (shape->k != b->dims[b->rank > 1 ? b->rank - 2 : 0])
        return qk_fail(error, QK_INVALID,
                       "%s: expected as many columns as %s of shape %s has rows, got shape %s",
                       a_name, b_name, qk_shape_text(b, &b_shape), qk_shape_text(a, &a_shape));
    if (!set_batches(a, b, shape))
        return qk_fail(
            error, QK_INVALID,
            "%s: expected axes that broadcast with those of %s of shape %s, got shape %s", a_name,
            b_name, qk_shape_text(b, &b_shape), qk_shape_text(a, &a_shape));
    y->rank = shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++)
        y->dims[i] = shape->dims[i];
    if (a->rank > 1)
        y->dims[y->rank++] = shape->m;
    if (b->rank > 1)
        y->dims[y->rank++] = shape->n;
    size_t bytes;
    if (!qk_tensor_set_count(y) || !qk_type_bytes(QK_INT32, y->count, &bytes))
        return qk_fail(error, QK_INVALID,
                       "%s: expected a product of less than 2^64 bytes, got more", a_name);
    merge_batches(y, b, shape);
    return QK_OK;
}

enum qk_status qk_matrix_product_plan(const struct qk_matrix_product *made,
                                      const struct qk_matmul_shape *shape,
                                      const struct qk_tensor *y, struct qk_memory memory,
                                      struct qk_plan *plan, struct qk_error *error)
{
    struct qk_tensor *output = &plan->outputs[0];
    qk_tensor_copy(output, y);
    output->type = made->desc.y_type;
    output->data = NULL;
    if (!qk_tensor_set_count(output) ||
        !qk_type_bytes(output->type, output->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID, "y: expected a size in bytes of 64 bits, got more");
    if (__builtin_mul_overflow((uint64_t)output->count, shape->k, &plan->multiplications))
        plan->multiplications = UINT64_MAX;
    return qk_matmul_plan(&made->matmul, shape, memory, plan, error);
}
