/* Checks that several operators make in their own rules. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

/* Returns the attribute's number, or `otherwise` if the attribute is absent. */
int64_t qk_int_or(const struct qk_attribute *attribute, int64_t otherwise);

/* Returns whether the tensor has shape [] or [1]. */
bool qk_is_single(const struct qk_tensor *tensor);

/* Checks that input `input`, if it is there, has shape [] or [1]. */
enum qk_status qk_check_single(const struct qk_call *call, size_t input, struct qk_error *error);

/* The shapes that qk_check_single allows, for descriptors. */
#define QK_SINGLE_SHAPE "[] or [1]"

/* Returns a zero point of 8 bits, or 0 if it is absent. */
int32_t qk_zero_point_or_0(const struct qk_tensor *tensor);

/* Returns whether two tensors have the same shape. */
bool qk_same_shape(const struct qk_tensor *a, const struct qk_tensor *b);

/* Checks that input `input`, if it is there, has the datatype of input `like`. */
enum qk_status qk_check_same_type(const struct qk_call *call, size_t input, size_t like,
                                  struct qk_error *error);

/* Returns whether all axes before this one have one element, so that parts along it lie one behind
 * the other. */
static inline bool qk_is_outermost(const size_t *dims, uint32_t axis)
{
    for (uint32_t i = 0; i < axis; i++)
        if (dims[i] != 1)
            return false;
    return true;
}
