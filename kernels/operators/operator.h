/* What an operator's file gives the registry beside its descriptor. Private to kernels/.
 *
 * kernels/README.md says how to add an operator. */
#ifndef KERNELS_OPERATORS_OPERATOR_H
#define KERNELS_OPERATORS_OPERATOR_H

#include "kernels/qk.h"

/* A number that a macro names, for the texts of a descriptor: "6". */
#define QK_TEXT_OF(macro) QK_TEXT(macro)
#define QK_TEXT(tokens) #tokens

/* An operator's own struct begins with a struct qk_instance. By the time that these functions see a
 * call, qk.c has checked which inputs are there, their types and layouts, and that each attribute
 * exists in the version: they hold the operator's own rules only. */
struct qk_operator_code {
    /* Checks the call, takes memory for all that the instance keeps, and sets its units of packing
     * and the types of its outputs; qk.c fills the instance's other members. Of variable inputs it
     * reads the type alone, and also of those that the caller has fixed: qk.c hands them to plan
     * and run as if they were variable.
     * A pointer to a constant's data may be kept for pack, and one to that or to a list for plan
     * and run where call->constants_stay. */
    enum qk_status (*prepare)(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error);
    /* As qk_pack; NULL: there never is anything to pack. */
    void (*pack)(struct qk_instance *instance, size_t begin, size_t end);
    /* Fills the plan's outputs, and then kernel, run and state; the workspace and the units where
     * they are not 0. Reads nothing that pack writes. */
    enum qk_status (*plan)(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
};

extern const struct qk_operator qk_onnx_dequantize_linear;
extern const struct qk_operator qk_onnx_quantize_linear;
extern const struct qk_operator qk_onnx_qlinear_conv;
extern const struct qk_operator qk_directml_element_wise_dequantize_linear;
extern const struct qk_operator qk_tensorflow_dequantize;

#endif
