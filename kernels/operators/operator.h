/* What an operator's file gives the registry beside its descriptor. Private to kernels/.
 *
 * To add an operator: write operators/<name>.c with one `const struct qk_operator`, and add it to
 * the list in operators/registry.c. Nothing else changes.
 */
#ifndef KERNELS_OPERATORS_OPERATOR_H
#define KERNELS_OPERATORS_OPERATOR_H

#include "kernels/qk.h"

/* A number that a macro names, for the texts of a descriptor: "6". */
#define QK_TEXT_OF(macro) QK_TEXT(macro)
#define QK_TEXT(tokens) #tokens

/* Every operator's instance begins with this; qk_create fills it, so that qk_plan finds the way
 * back. */
struct qk_instance {
    const struct qk_operator *op;
    const struct qk_kernels *kernels;
};

struct qk_operator_code {
    /* The registry has already checked which inputs are there, their types, and that each attribute
     * exists in the version: these only hold the operator's own rules. */
    enum qk_status (*create)(const struct qk_kernels *kernels, const struct qk_call *call,
                             struct qk_memory memory, struct qk_instance **instance,
                             struct qk_error *error);
    enum qk_status (*plan)(const struct qk_instance *instance, const struct qk_call *call,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
};

extern const struct qk_operator qk_onnx_dequantize_linear;
extern const struct qk_operator qk_onnx_qlinear_conv;
extern const struct qk_operator qk_directml_element_wise_dequantize_linear;
extern const struct qk_operator qk_tensorflow_dequantize;

#endif
