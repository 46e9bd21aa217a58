/* Shapes and sets of types in error texts. */
#ifndef KERNELS_OPERATORS_SHAPE_TEXT_H
#define KERNELS_OPERATORS_SHAPE_TEXT_H

#include "kernels/qk.h"

/* Room for a shape; a longer one ends in "...]", so that two of them fit an error's text. */
struct qk_shape_text {
    char text[72];
};

/* Prints the tensor's shape as "[2,3]" into `buffer` and returns its text. */
const char *qk_shape_text(const struct qk_tensor *tensor, struct qk_shape_text *buffer);

#endif
