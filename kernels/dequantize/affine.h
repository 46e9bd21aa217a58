/* What every dequantizer lowers to: y = fl(v * scale + offset), v made of x and a zero point in one
 * of four ways, each written operation rounded once, never fused, and one more rounding to the type
 * of y.
 *
 * An operator's prepare and pack fill a qk_affine, its plan says by a qk_broadcast which parameters
 * go where. */
#ifndef KERNELS_DEQUANTIZE_AFFINE_H
#define KERNELS_DEQUANTIZE_AFFINE_H

#include "kernels/dequantize/dequantize.h"
#include "kernels/elementwise/traversal.h"

enum qk_affine_form {
    QK_AFFINE_WRAPPED, /* v = fl32(x - zero), the difference modulo 2^32 as an int32 (ONNX) */
    QK_AFFINE_EXACT,   /* v = fl32(x - zero), the difference exact (DirectML) */
    QK_AFFINE_FLOAT,   /* v = fl32(fl32(x) - zero) (TensorFlow, and float8 and float4 of ONNX) */
    QK_AFFINE_RECAST   /* v = fl32(int32(fl32(x))), where 2^31 overflows to -2^31 (TensorFlow) */
};

/* Up to so many parameters are made by prepare: no hand-over of a unit would pay for them. More are
 * packed in units of QK_AFFINE_UNIT. */
#define QK_AFFINE_WHOLE ((size_t)4096)
#define QK_AFFINE_UNIT ((size_t)1 << 16)
#define QK_AFFINE_UNIT_NS 40000

/* What scales and zeros are made of. */
struct qk_affine_source {
    const struct qk_dequantize_kernels *kernels;
    const void *scale_data;
    enum qk_type scale_type;
    size_t scale_count;
    float *scales; /* to be made; NULL: they are lent */
    const void *zero_data;
    size_t zero_count;
    void *zeros; /* to be made; NULL: there are none, or they are lent */
};

/* All that is constant. NaNs among scales and offsets are canonical where y has 16 bits. */
struct qk_affine {
    enum qk_affine_form form;
    enum qk_type x_type;
    enum qk_type y_type; /* FP32, FP16 or BF16 */
    const float *scales;
    const void *zeros;    /* NULL: all are 0; WRAPPED and EXACT of 32 bits: those; else floats */
    const float *offsets; /* as many as scales, in the same places; NULL: none are added */
    const struct qk_code_table *table; /* for types of less than 8 bits, and floats */
    bool whole;                        /* nothing of it is left to pack: a plan may read it */
    struct qk_affine_source source;    /* of qk_affine_prepare */
};

/* Units of packing for so many parameters, which prepare shall make itself where this is 0. */
static inline size_t qk_affine_units(size_t count)
{
    return count <= QK_AFFINE_WHOLE ? 0 : (count - 1) / QK_AFFINE_UNIT + 1;
}

/* How kernels read x_type. */
enum qk_code qk_affine_code(enum qk_type x_type, enum qk_affine_form form);

/* Makes the NaNs canonical that `type`, of y, demands. */
void qk_affine_canonical(enum qk_type type, float *values, size_t count);

/* A zero point of x_type that kernels want as a float, as they want it. */
float qk_affine_zero(enum qk_type x_type, float zero);

/* Fills scales, zeros and table, for the other members as they are, and the instance's units of
 * packing. Scales of any float type become FP32, which holds them exactly; where they are FP32
 * already, and constants stay, they are borrowed. A zero point that is absent or a float is left
 * out. Takes memory in proportion to the `stored` elements of both. */
enum qk_status qk_affine_prepare(struct qk_affine *affine,
                                 const struct qk_dequantize_kernels *kernels,
                                 const struct qk_tensor *scale, const struct qk_tensor *zero_point,
                                 bool constants_stay, struct qk_memory memory,
                                 struct qk_instance *instance, struct qk_error *error);

/* Does these units. */
void qk_affine_pack(struct qk_affine *affine, size_t begin, size_t end);

/* Plans y for an instance's first input, which is x. `affine` must outlive the plan, `broadcast` is
 * copied. */
enum qk_status qk_affine_plan(const struct qk_affine *affine, const struct qk_instance *instance,
                              const struct qk_tensor *x, const struct qk_broadcast *broadcast,
                              struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);

#endif
