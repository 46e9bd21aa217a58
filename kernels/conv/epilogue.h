/* The epilogue of a convolution: how sums become y. It is a parameter of the plan; the convolution
 * itself ends with sums. Private to conv/ and to the operators that convolve.
 *
 * A sum is an int32 and includes the bias. Each table of kernels that ends in y has a function for
 * each kind: qk_slab_kernels, qk_im2col_kernels and qk_depthwise. A new kind is a name here, its
 * constants in struct qk_epilogue, and three scalar functions, one for each of these. They take
 * what any tier has made, so a tier that has no function of its own names the scalar one in its
 * table: an entry must not be NULL. */
#ifndef KERNELS_CONV_EPILOGUE_H
#define KERNELS_CONV_EPILOGUE_H

#include "kernels/qk.h"

enum qk_epilogue_kind {
    QK_EPILOGUE_BYTES, /* y is requantized: kernels/conv/requantize.h */
    QK_EPILOGUE_KIND_COUNT
};

/* How sums become bytes: the same for all channels. */
struct qk_requantize {
    float low, high; /* the range of y's type, less its zero point */
    int32_t zero_point;
    bool is_signed;
};

/* Immutable; shared by plans and threads. */
struct qk_epilogue {
    enum qk_epilogue_kind kind;
    enum qk_type y_type;
    size_t y_bytes;                  /* of an element of y */
    const float *multiplier;         /* [M], read by runs */
    struct qk_requantize requantize; /* QK_EPILOGUE_BYTES */
};

#endif
