/* Multiplies matrices of 8-bit integers, for MatMul and Gemm.
 *
 *   acc[m][n] = sum_k (a[m][k] - a_zp) * (b[k][n] - b_zp[n]) + c[m][n], modulo 2^32, as int32
 *   y[m][n] = acc                                                          QK_MATMUL_INT32
 *           = fl32(fl32(acc) * multiplier[n])                              QK_MATMUL_FLOAT
 *           = clamp(round_half_even(fl32(fl32(acc) * multiplier[n]))) + y_zp     QK_MATMUL_BYTES
 *
 * multiplier[n] is fl32(a_scale * b_scale[n]), for bytes divided by y_scale, too. The steps are
 * those of ONNX Runtime's quant_gemm.cc and MlasRequantizeOutput (kernels/conv/requantize.h). If K
 * is 0, the sum is 0.
 *
 * The products are those of convolutions (kernels/gemm/igemm.h), or one that the backend has for
 * matrices. Columns of B are the rows of a panel, and rows of A are positions. Quads hold 4 terms
 * of one position, so no slab is read at more than one position, and each step has the next 16
 * slabs. A single row of A is its own list of quads: kernels with `dot` read it as it is.
 *
 * Bytes are multiplied as they are stored: u8 by s8, or s8 by s8 on ARM, with the top bit flipped
 * where the type differs. Zero points are applied to the sums:
 *
 *   sum (a - a_zp)(b - b_zp) = sum a b - b_zp sum a - a_zp (sum b - K b_zp)
 *
 * A constant B is packed once. A B that comes with each run is packed by each unit, panel by panel,
 * in the unit's workspace. */
#pragma once

#include "kernels/conv/backend.h"
#include "kernels/conv/epilogue.h"
#include "kernels/qk.h"

struct qk_matmul_kernels;

enum qk_matmul_kind { QK_MATMUL_BYTES, QK_MATMUL_FLOAT, QK_MATMUL_INT32 };

/* Zero points or scales. */
struct qk_matmul_parameter {
    const uint8_t *data; /* NULL: they come with the run, as input `input`, or all are 0 */
    uint32_t input;      /* QK_MATMUL_NONE: all are 0, unless data is set */
};

#define QK_MATMUL_NONE UINT32_MAX /* stands for an input that is absent */

/* What is known without the shapes of variable inputs. `data` of parameters is kept. */
struct qk_matmul_desc {
    enum qk_matmul_kind kind;
    enum qk_type a_type, b_type, y_type; /* a and b: QK_UINT8 or QK_INT8 */
    bool a_transposed;                   /* A is [K, M] */
    bool b_transposed;                   /* B is [N, K] */
    uint32_t a_input, b_input, c_input;  /* their indices in the operator's inputs */
    struct qk_matmul_parameter a_zero_point, b_zero_point, b_scale;
    float a_scale; /* times alpha */
    float y_scale; /* QK_MATMUL_BYTES */
    int32_t y_zero_point;
};

/* The shape of a product, or of many: A, B and y have batch axes, which broadcast. */
struct qk_matmul_shape {
    size_t m, k, n;
    uint32_t rank;                 /* batch axes of y */
    size_t dims[QK_RANK_MAX];      /* of y's batch axes */
    size_t a_strides[QK_RANK_MAX]; /* in matrices; 0: the axis repeats the same matrix */
    size_t b_strides[QK_RANK_MAX];
    size_t batches; /* product of dims */
    /* True: one scale, or zero point, for each column of each matrix of B. False: one for all. */
    bool scale_each, zero_point_each;
    /* C[m * c_row + n * c_column]; read only if there is a C. */
    size_t c_row, c_column;
};

/* A constant B: its matrices, one after the other, borrowed until packing is done. */
struct qk_matmul_constant {
    const uint8_t *data;
    size_t matrices, k, n;
    bool stays; /* the data outlives the instance */
    /* True: all zero points and scales are constants, one for each column if the next two say so,
     * so packing computes what the columns need. False: each run does. */
    bool columns_known;
    bool scale_each, zero_point_each;
};

/* What y needs of each column besides the sum. */
struct qk_matmul_columns {
    int32_t *zero_point; /* multiplied by the row's sum, and subtracted */
    int32_t *bias;       /* added */
    float *multiplier;
};

/* How K is cut into steps, and how much packed weights take. */
struct qk_matmul_order {
    size_t slabs, steps, step_slabs;
    size_t step_bytes, panels;
    size_t panel_bytes; /* of all steps of one panel, with what `arrange` adds */
};

struct qk_matmul {
    struct qk_matmul_desc desc;
    const struct qk_matmul_kernels *kernels;
    const struct qk_conv_backend *backend;
    const struct qk_igemm *igemm; /* the backend's product for matrices */
    const struct qk_conv_tuning *tuning;
    double terms_per_ns;
    struct qk_requantize requantize;
    struct qk_matmul_constant
        constant; /* data is NULL: B comes with each run. Its data is read
                     after packing only if it is kept, because it is not packed */
    bool packs;
    struct qk_matmul_order order; /* of the constant B, if it is packed */
    uint8_t *weights;             /* [matrices][panels][panel_bytes] */
    int32_t *sums;                /* [matrices][panels][mr]: sums of the packed columns */
    /* If the columns are known, [matrices][panels][mr] of each; the biases replace `sums`. */
    struct qk_matmul_columns columns;
    size_t unit_panels; /* of a unit of packing */
    size_t pack_unit_count;
    uint64_t pack_unit_cost_ns;
};

/* The backend and its speed. */
struct qk_matmul_tuning {
    const struct qk_conv_backend *backend;
    double terms_per_ns;
    const struct qk_conv_tuning *conv;
    const struct qk_matmul_kernels *kernels;
};

/* Takes memory for packed weights. `constant` is NULL if B comes with each run. */
enum qk_status qk_matmul_prepare(const struct qk_matmul_desc *desc,
                                 const struct qk_matmul_constant *constant,
                                 const struct qk_matmul_tuning *tuning, struct qk_memory memory,
                                 struct qk_matmul *matmul, struct qk_error *error);

/* Packs units [begin, end) of pack_unit_count. */
void qk_matmul_pack(const struct qk_matmul *matmul, size_t begin, size_t end);

/* Plans the product. The operator has set the plan's outputs, and checked the shape. Sets
 * workspace, units, kernel, run and state. */
enum qk_status qk_matmul_plan(const struct qk_matmul *matmul, const struct qk_matmul_shape *shape,
                              struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);
