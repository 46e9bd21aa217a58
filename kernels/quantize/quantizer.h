/* Quantizes tensors for QuantizeLinear: converts the operator's scales and zero points to what the
 * kernels of quantize.h read, and plans a traversal that calls them.
 *
 * The operator's prepare and pack fill a qk_quantizer. Its plan says with a qk_broadcast which
 * elements use which parameters. */
#pragma once

#include "kernels/dequantize/dequantize.h"
#include "kernels/elementwise/traversal.h"
#include "kernels/quantize/quantize.h"

/* The tensors from which scales and zeros are made. */
struct qk_quantizer_source {
    const struct qk_dequantize_kernels *kernels; /* convert zeros and scales of small types */
    const void *scale_data;
    enum qk_type scale_type;
    size_t scale_count;
    uint32_t *scales; /* to be filled by packing; NULL: the caller's data is used, without a copy */
    const void *zero_data;
    size_t zero_count;
    uint32_t *zeros;                   /* to be filled by packing; NULL: there are none */
    const struct qk_code_table *table; /* for zeros of less than 8 bits */
};

/* The constant part of a quantizer. */
struct qk_quantizer {
    enum qk_type x_type;
    enum qk_type y_type;
    enum qk_division division;
    struct qk_narrow narrow; /* how y is rounded, if y is a float */
    const void *scales;
    const void *zeros; /* NULL: none */
    bool whole;        /* true: prepare has packed all parameters, so a plan may read them */
    struct qk_quantizer_source source;
};

/* Sets what follows from the types of x, y_scale and y, and from ONNX's attributes. `precision` is
 * the type of the division: FP32, FP16 or BF16, or QK_NONE if neither an attribute nor the
 * operator's version names it. */
void qk_quantizer_init(struct qk_quantizer *quantizer, enum qk_type x_type, enum qk_type scale_type,
                       enum qk_type y_type, enum qk_type precision, bool saturates);

/* Makes scales and zeros if they are few, otherwise sets the units of packing that will make them.
 * A zero point that is absent, or of a float8 type, is left out. Allocates memory in proportion to
 * the sizes of the two tensors. */
enum qk_status qk_quantizer_prepare(struct qk_quantizer *quantizer,
                                    const struct qk_dequantize_kernels *kernels,
                                    const struct qk_tensor *scale,
                                    const struct qk_tensor *zero_point, bool constants_stay,
                                    struct qk_memory memory, struct qk_instance *instance,
                                    struct qk_error *error);

/* Packs units [begin, end). */
void qk_quantizer_pack(struct qk_quantizer *quantizer, size_t begin, size_t end);

/* Plans y for x, the instance's first input. `quantizer` must outlive the plan. `broadcast` is
 * copied. */
enum qk_status qk_quantizer_plan(const struct qk_quantizer *quantizer,
                                 const struct qk_instance *instance, const struct qk_tensor *x,
                                 const struct qk_broadcast *broadcast, struct qk_memory memory,
                                 struct qk_plan *plan, struct qk_error *error);
