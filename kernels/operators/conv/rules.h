/* The attributes, rules and instances that the convolutions of ONNX share (onnx/defs/nn/defs.cc,
 * and what ONNX Runtime enforces). x is input 0, and int8 and uint8 mix freely. Private to
 * kernels/. */
#pragma once

#include "kernels/conv/conv.h"
#include "kernels/operators/operator.h"

/* The first attributes of each of these operators, in this order. */
enum {
    QK_CONV_AUTO_PAD,
    QK_CONV_DILATIONS,
    QK_CONV_GROUP,
    QK_CONV_KERNEL_SHAPE,
    QK_CONV_PADS,
    QK_CONV_STRIDES,
    QK_CONV_ATTRIBUTE_COUNT
};

#define QK_CONV_ATTRIBUTES(since)                                                                 \
    [QK_CONV_AUTO_PAD] =                                                                          \
        QK_ATTRIBUTE("auto_pad", STRING, since, "default NOTSET; VALID, SAME_UPPER, SAME_LOWER"), \
    [QK_CONV_DILATIONS] =                                                                         \
        QK_ATTRIBUTE("dilations", INTS, since, "default 1 for each axis, 1 to 2147483647"),       \
    [QK_CONV_GROUP] = QK_ATTRIBUTE("group", INT, since, "default 1, divides C and M"),            \
    [QK_CONV_KERNEL_SHAPE] =                                                                      \
        QK_ATTRIBUTE("kernel_shape", INTS, since, "default that of w, and must equal it"),        \
    [QK_CONV_PADS] = QK_ATTRIBUTE("pads", INTS, since,                                            \
                                  "default 0; begin of each axis, then end of each axis; 0 to "   \
                                  "2147483647; not with auto_pad"),                               \
    [QK_CONV_STRIDES] =                                                                           \
        QK_ATTRIBUTE("strides", INTS, since, "default 1 for each axis, 1 to 2147483647")

/* Checks w's rank. Call it first: the other functions read w's dims. */
enum qk_status qk_conv_check_weights(const struct qk_call *call, size_t w_input,
                                     struct qk_error *error);

/* Fills in what w's shape and the first attributes say. Leaves channels_last and epilogue at 0. */
enum qk_status qk_conv_read_desc(const struct qk_call *call, size_t w_input,
                                 struct qk_conv_desc *desc, struct qk_error *error);

/* Checks the shape of a scale or zero point of w, if it is there: one element, or one for each
 * output channel. */
enum qk_status qk_conv_check_parameter(const struct qk_call *call, size_t input, size_t w_input,
                                       struct qk_error *error);

/* Makes the instance. y_zero_point is read only if y is quantized. */
enum qk_status qk_conv_make(const struct qk_kernels *kernels, const struct qk_conv_desc *desc,
                            const struct qk_conv_constants *constants, enum qk_type y_type,
                            int32_t y_zero_point, struct qk_memory memory,
                            struct qk_instance **instance, struct qk_error *error);

/* The functions of struct qk_operator_code for these instances. */
void qk_conv_pack_instance(struct qk_instance *instance, size_t begin, size_t end);
enum qk_status qk_conv_plan_instance(const struct qk_instance *instance,
                                     const struct qk_tensor *inputs, struct qk_memory memory,
                                     struct qk_plan *plan, struct qk_error *error);
