/* Checks the scale, axis and block_size of ONNX's DequantizeLinear and QuantizeLinear, and finds
 * which elements of x share a scale and a zero point: all elements, each slice along an axis, or
 * each block along the axis. The rules are those of onnx/defs/quantization/defs.cc that ONNX
 * Runtime enforces. Private to kernels/. */
#pragma once

#include "kernels/elementwise/broadcast.h"
#include "kernels/operators/operator.h"

/* The indexes of these inputs and attributes in both operators. x is input 0. */
enum { QK_GRANULARITY_SCALE = 1, QK_GRANULARITY_ZERO_POINT = 2 };
enum { QK_GRANULARITY_AXIS, QK_GRANULARITY_BLOCK_SIZE };

/* The quantized types that both operators have since version 10, 19, …: those of DequantizeLinear's
 * x and of QuantizeLinear's y. */
#define QK_QUANTIZED_10 (QK_BIT(QK_INT8) | QK_BIT(QK_UINT8))
#define QK_QUANTIZED_19                                                                     \
    (QK_QUANTIZED_10 | QK_BIT(QK_FP8E4M3FN) | QK_BIT(QK_FP8E4M3FNUZ) | QK_BIT(QK_FP8E5M2) | \
     QK_BIT(QK_FP8E5M2FNUZ))
#define QK_QUANTIZED_21 \
    (QK_QUANTIZED_19 | QK_BIT(QK_INT16) | QK_BIT(QK_UINT16) | QK_BIT(QK_INT4) | QK_BIT(QK_UINT4))
#define QK_QUANTIZED_23 (QK_QUANTIZED_21 | QK_BIT(QK_FP4E2M1))
#define QK_QUANTIZED_25 (QK_QUANTIZED_23 | QK_BIT(QK_INT2) | QK_BIT(QK_UINT2))

/* Parts that the descriptors of both operators share: the row of a version, the two attributes, and
 * the shape of the scale. `scale` is the name of the scale's input, as a string. */
#define QK_GRANULARITY_VERSION(since, x_types, scale_types, zero_point_types, y_types)             \
    {                                                                                              \
        .number = (since),                                                                         \
        .inputs = {{.types = (x_types)},                                                           \
                   [QK_GRANULARITY_SCALE] = {.types = (scale_types)},                              \
                   [QK_GRANULARITY_ZERO_POINT] = {.types = (zero_point_types), .optional = true}}, \
        .output_types = {                                                                          \
            (y_types)                                                                              \
        }                                                                                          \
    }
#define QK_GRANULARITY_ATTRIBUTES(scale)                                                          \
    [QK_GRANULARITY_AXIS] =                                                                       \
        QK_ATTRIBUTE("axis", INT, 13,                                                             \
                     "the axis of x that " scale                                                  \
                     " runs along; default 1, in [-rank(x), rank(x)-1]; not read where there is " \
                     "one scale"),                                                                \
    [QK_GRANULARITY_BLOCK_SIZE] = QK_ATTRIBUTE(                                                   \
        "block_size", INT, 21, "how many elements along the axis share a scale; default 0: all")
#define QK_GRANULARITY_SCALE_SHAPE                                                                \
    "[], [1], [length of the axis], or with a block_size that of x, but on the axis ceil(length " \
    "/ block_size)"

struct qk_granularity {
    struct qk_tensor scale; /* its shape; its data is not read */
    struct qk_attribute axis;
    size_t block_size; /* 0: none */
};

/* Checks what does not depend on the shape of x. */
enum qk_status qk_granularity_read(struct qk_granularity *granularity, const struct qk_call *call,
                                   struct qk_error *error);

/* Checks that the zero point has the shape of the scale. The call must have a zero point. */
enum qk_status qk_granularity_check_zero_point(const struct qk_call *call, struct qk_error *error);

/* Checks the shape of x, and makes the broadcast strides for it. Fails with QK_INVALID if x does
 * not fit the scale. */
enum qk_status qk_granularity_fit(const struct qk_granularity *granularity,
                                  const struct qk_operator *op, const struct qk_tensor *x,
                                  struct qk_broadcast *broadcast, struct qk_error *error);
