/* The epilogue of a convolution says how sums become y. It is a parameter of the plan, so that the
 * algorithms need not know what y is. Private to conv/ and to the operators that convolve.
 *
 * A sum is an int32 and includes the bias. The tables qk_slab_kernels and qk_im2col_kernels have a
 * function for each kind of epilogue, and no entry may be NULL. A depthwise kernel has NULL for
 * kinds that it cannot write; igemm then computes these convolutions. To add a kind, add a name
 * here, its constants in struct qk_epilogue, and a branch in the functions that write every kind:
 * kernels/conv/igemm/epilogue_loops.h and qk_im2col_epilogue_scalar. Tables may point to these. */
#pragma once

#include "kernels/qk.h"

enum qk_epilogue_kind {
    QK_EPILOGUE_BYTES, /* y is requantized: kernels/conv/requantize.h */
    QK_EPILOGUE_INT32, /* y is the sum */
    QK_EPILOGUE_KIND_COUNT
};

/* How sums become bytes. All channels share these constants. */
struct qk_requantize {
    float low, high; /* the range of y's type, less y's zero point */
    int32_t zero_point;
    bool is_signed;
};

/* Immutable, so that plans and threads may share it. */
struct qk_epilogue {
    enum qk_epilogue_kind kind;
    enum qk_type y_type;
    size_t y_bytes;          /* size of one element of y */
    const float *multiplier; /* [M], read when units run, so packing may fill it after planning;
                                QK_EPILOGUE_INT32 does not use it */
    struct qk_requantize requantize; /* QK_EPILOGUE_BYTES */
};
