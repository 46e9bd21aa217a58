/* Dequantizes tensors for every dequantizing operator: converts its scales and zero points to what
 * the kernels of dequantize.h read, and plans a traversal that calls them.
 *
 * The result is y = fl32(fl32(v * scale) + offset). v is made of x and a zero point in one of four
 * ways (qk_affine_form). fl32 rounds to FP32. Each written operation is rounded once and never
 * fused with another. One more rounding makes the type of y.
 *
 * An operator's prepare and pack fill a qk_affine. Its plan says with a qk_broadcast which elements
 * use which parameters. */
#pragma once

#include "kernels/dequantize/dequantize.h"
#include "kernels/elementwise/traversal.h"

enum qk_affine_form {
    QK_AFFINE_WRAPPED, /* v = fl32(x - zero), the difference modulo 2^32 as an int32 (ONNX) */
    QK_AFFINE_EXACT,   /* v = fl32(x - zero), the difference exact (DirectML) */
    QK_AFFINE_FLOAT,   /* v = fl32(fl32(x) - zero) (TensorFlow, and float8 and float4 of ONNX) */
    QK_AFFINE_RECAST   /* v = fl32(int32(fl32(x))), where 2^31 overflows to -2^31 (TensorFlow) */
};

/* qk_affine_prepare makes up to QK_AFFINE_WHOLE parameters itself, because handing over a unit
 * would cost more than it saves. More parameters are packed in units of QK_AFFINE_UNIT parameters,
 * each of which takes about QK_AFFINE_UNIT_NS nanoseconds. */
#define QK_AFFINE_WHOLE ((size_t)4096)
#define QK_AFFINE_UNIT ((size_t)1 << 16)
#define QK_AFFINE_UNIT_NS 40000

/* The tensors from which scales and zeros are made. */
struct qk_affine_source {
    const struct qk_dequantize_kernels *kernels;
    const void *scale_data;
    enum qk_type scale_type;
    size_t scale_count;
    float *scales; /* to be filled by packing; NULL: the caller's data is used, without a copy */
    const void *zero_data;
    size_t zero_count;
    void *zeros; /* to be filled by packing; NULL: there are none, or the caller's data is used */
};

/* The constant part of a dequantizer. NaNs among scales and offsets are canonical if y has 16 bits.
 */
struct qk_affine {
    enum qk_affine_form form;
    enum qk_type x_type;
    enum qk_type y_type; /* FP32, FP16 or BF16 */
    const float *scales;
    const void *zeros;    /* NULL: all are 0. int32 or uint32 for WRAPPED and EXACT of 32 bits,
                             otherwise floats */
    const float *offsets; /* one for each scale, at the same index; NULL: none are added */
    const struct qk_code_table *table; /* for an x of less than 8 bits, and for floats */
    bool whole; /* true: prepare has packed all parameters, so a plan may read them */
    struct qk_affine_source source; /* set by qk_affine_prepare */
};

/* Returns how many units of packing this many parameters have. 0: prepare makes them itself. */
static inline size_t qk_affine_units(size_t count)
{
    return count <= QK_AFFINE_WHOLE ? 0 : (count - 1) / QK_AFFINE_UNIT + 1;
}

/* Returns how many of `count` parameters are in [begin, end). */
static inline size_t qk_affine_count_in(size_t begin, size_t end, size_t count)
{
    const size_t last = end < count ? end : count;
    return begin < last ? last - begin : 0;
}

/* Returns how kernels read x_type. */
enum qk_code qk_affine_code(enum qk_type x_type, enum qk_affine_form form);

/* Makes the NaNs among `values` canonical (qk_float_decode) if `type`, which is that of y, has 16
 * bits. The kernels then need not handle payloads. */
void qk_affine_canonical(enum qk_type type, float *values, size_t count);

/* Returns a zero point of x_type as kernels read it: with the magic number added if x_type has one.
 * Only for types whose zero points are floats for kernels. */
float qk_affine_zero(enum qk_type x_type, float zero);

/* Sets scales, zeros and table from the other members, which the caller has set. Sets the
 * instance's units of packing. Scales of any float type become FP32, which holds them exactly. The
 * scale's data is used without a copy if it is aligned FP32, y is FP32, and constants_stay is set.
 * A zero point that is absent or a float is left out. Allocates memory in proportion to the
 * `stored` elements of the two tensors. */
enum qk_status qk_affine_prepare(struct qk_affine *affine,
                                 const struct qk_dequantize_kernels *kernels,
                                 const struct qk_tensor *scale, const struct qk_tensor *zero_point,
                                 bool constants_stay, struct qk_memory memory,
                                 struct qk_instance *instance, struct qk_error *error);

/* Packs units [begin, end). */
void qk_affine_pack(struct qk_affine *affine, size_t begin, size_t end);

/* Plans y for x, the instance's first input. `affine` must outlive the plan. `broadcast` is copied.
 */
enum qk_status qk_affine_plan(const struct qk_affine *affine, const struct qk_instance *instance,
                              const struct qk_tensor *x, const struct qk_broadcast *broadcast,
                              struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);
