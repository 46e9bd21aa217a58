/* The attributes and inputs that pooling operators share. Private to kernels/. */
#pragma once

#include "kernels/operators/operator.h"
#include "kernels/pool/pool.h"

/* The first attributes of each operator with windows, in this order. */
enum {
    QK_POOL_AUTO_PAD,
    QK_POOL_CEIL_MODE,
    QK_POOL_KERNEL_SHAPE,
    QK_POOL_PADS,
    QK_POOL_STRIDES,
    QK_POOL_ATTRIBUTE_COUNT
};

#define QK_POOL_ATTRIBUTES(since, ceil_mode_since)                                                \
    [QK_POOL_AUTO_PAD] =                                                                          \
        QK_ATTRIBUTE("auto_pad", STRING, since, "default NOTSET; VALID, SAME_UPPER, SAME_LOWER"), \
    [QK_POOL_CEIL_MODE] = QK_ATTRIBUTE("ceil_mode", INT, ceil_mode_since,                         \
                                       "1: the last window may leave the padded image; "          \
                                       "default 0"),                                              \
    [QK_POOL_KERNEL_SHAPE] =                                                                      \
        QK_ATTRIBUTE("kernel_shape", INTS, since, "required; 1 for each axis, 1 to 2147483647"),  \
    [QK_POOL_PADS] = QK_ATTRIBUTE("pads", INTS, since,                                            \
                                  "default 0; begin of each axis, then end of each axis; less "   \
                                  "than the kernel; only with auto_pad NOTSET"),                  \
    [QK_POOL_STRIDES] =                                                                           \
        QK_ATTRIBUTE("strides", INTS, since, "default 1 for each axis, 1 to 2147483647")

/* The inputs of quantized averages. */
enum {
    QK_POOL_X,
    QK_POOL_X_SCALE,
    QK_POOL_X_ZERO_POINT,
    QK_POOL_Y_SCALE,
    QK_POOL_Y_ZERO_POINT,
    QK_POOL_INPUT_COUNT
};

#define QK_POOL_INPUTS                                           \
    {                                                            \
        [QK_POOL_X] = {"X", "[N, C, D1..Dn] or [N, D1..Dn, C]"}, \
        [QK_POOL_X_SCALE] = {"x_scale", "[] or [1]"},            \
        [QK_POOL_X_ZERO_POINT] = {"x_zero_point", "[] or [1]"},  \
        [QK_POOL_Y_SCALE] = {"y_scale", "[] or [1]"},            \
        [QK_POOL_Y_ZERO_POINT] = {"y_zero_point", "[] or [1]"},  \
    }

/* The only version of the averages. */
#define QK_POOL_TYPES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))
#define QK_POOL_AVERAGE_VERSION                                    \
    {                                                              \
        .number = 1,                                               \
        .inputs =                                                  \
            {                                                      \
                [QK_POOL_X] = {.types = QK_POOL_TYPES},            \
                [QK_POOL_X_SCALE] = {.types = QK_BIT(QK_FP32)},    \
                [QK_POOL_X_ZERO_POINT] = {.types = QK_POOL_TYPES}, \
                [QK_POOL_Y_SCALE] = {.types = QK_BIT(QK_FP32)},    \
                [QK_POOL_Y_ZERO_POINT] = {.types = QK_POOL_TYPES}, \
            },                                                     \
        .output_types = {QK_POOL_TYPES},                           \
    }

/* Reads an attribute that must be 0 or 1. The default is 0. */
enum qk_status qk_pool_read_flag(const struct qk_call *call, size_t attribute, bool *flag,
                                 struct qk_error *error);

/* Reads the attributes of windows. `dilations` is the index of that attribute, or SIZE_MAX if the
 * operator has none. */
enum qk_status qk_pool_read_windows(const struct qk_call *call, size_t dilations,
                                    struct qk_pool_desc *desc, struct qk_error *error);

/* Checks and reads the scales and zero points of an average. */
enum qk_status qk_pool_read_parameters(const struct qk_call *call, struct qk_pool *pool,
                                       struct qk_error *error);

/* Prepare and plan for all pooling operators: an instance that only keeps `pool`. */
const struct qk_pool *qk_pool_of(const struct qk_instance *instance);
enum qk_status qk_pool_make(const struct qk_pool *pool, struct qk_memory memory,
                            struct qk_instance **instance, struct qk_error *error);
enum qk_status qk_pool_plan_instance(const struct qk_instance *instance,
                                     const struct qk_tensor *inputs, struct qk_memory memory,
                                     struct qk_plan *plan, struct qk_error *error);
