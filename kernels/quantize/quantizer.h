/* What QuantizeLinear lowers to: the kernel of quantize.h, with parameters as that wants them.
 *
 * An operator's prepare and pack fill a qk_quantizer, its plan says by a qk_grid which parameters
 * go where. */
#ifndef KERNELS_QUANTIZE_QUANTIZER_H
#define KERNELS_QUANTIZE_QUANTIZER_H

#include "kernels/dequantize/dequantize.h"
#include "kernels/grain/walk.h"
#include "kernels/quantize/quantize.h"

/* What scales and zeros are made of. */
struct qk_quantizer_source {
    const struct qk_dequantize_kernels *kernels; /* which read small integers and floats */
    const void *scale_data;
    enum qk_type scale_type;
    size_t scale_count;
    uint32_t *scales; /* to be made; NULL: they are lent */
    const void *zero_data;
    size_t zero_count;
    uint32_t *zeros;                   /* to be made; NULL: there are none */
    const struct qk_code_table *table; /* for zeros of less than 8 bits */
};

/* All that is constant. */
struct qk_quantizer {
    enum qk_type x_type;
    enum qk_type y_type;
    enum qk_division division;
    struct qk_narrow narrow; /* where y is a float */
    const void *scales;
    const void *zeros; /* NULL: none */
    bool whole;        /* nothing of it is left to pack: a plan may read it */
    struct qk_quantizer_source source;
};

/* What the types of x, y_scale and y say, and the attributes of ONNX. `precision` is the type of
 * the division, FP32, FP16 or BF16; QK_NONE where neither an attribute nor the operator's version
 * names one. */
void qk_quantizer_init(struct qk_quantizer *quantizer, enum qk_type x_type, enum qk_type scale_type,
                       enum qk_type y_type, enum qk_type precision, bool saturates);

/* Makes scales and zeros, or the instance's units of packing that will. A zero point that is
 * absent or a float8 is left out. Takes memory in proportion to the two tensors. */
enum qk_status qk_quantizer_prepare(struct qk_quantizer *quantizer,
                                    const struct qk_dequantize_kernels *kernels,
                                    const struct qk_tensor *scale,
                                    const struct qk_tensor *zero_point, bool constants_stay,
                                    struct qk_memory memory, struct qk_instance *instance,
                                    struct qk_error *error);

/* Does these units. */
void qk_quantizer_pack(struct qk_quantizer *quantizer, size_t begin, size_t end);

/* Plans y for an instance's first input, which is x. `quantizer` must outlive the plan, `grid` is
 * copied. */
enum qk_status qk_quantizer_plan(const struct qk_quantizer *quantizer,
                                 const struct qk_instance *instance, const struct qk_tensor *x,
                                 const struct qk_grid *grid, struct qk_memory memory,
                                 struct qk_plan *plan, struct qk_error *error);

#endif
