/* The kernels of operators on FP32, element by element. loops.h has their code in plain C, which is
 * compiled once for each tier. Every tier gives the bits of the scalar tier. Private to kernels/.
 */
#pragma once

#include "kernels/binary/binary.h"
#include "kernels/floats/functions.h"

/* Functions of one number: functions.h. */
enum qk_float_unary {
#define QK_FLOAT_NUMBER(name, cost) QK_FLOAT_##name,
    QK_FLOAT_FUNCTIONS(QK_FLOAT_NUMBER)
#undef QK_FLOAT_NUMBER
        QK_FLOAT_UNARY_COUNT
};

/* Functions of two numbers a and b. */
enum qk_float_binary {
    QK_FLOAT_ADD,
    QK_FLOAT_SUB,
    QK_FLOAT_MUL,
    QK_FLOAT_DIV,
    QK_FLOAT_MIN,   /* a NaN makes both a NaN */
    QK_FLOAT_MAX,   /* the same */
    QK_FLOAT_PRELU, /* a, or a * b if a is below 0 */
    QK_FLOAT_POW,   /* a^b: a * a and a * a * a if b repeats and is 2 or 3, otherwise powf(a, b) */
    QK_FLOAT_BINARY_COUNT
};

/* How pooling reduces. The two maxima differ if both operands are zeros or one is NaN: the
 * processor's gives b then, and that of C++ gives a. */
enum qk_float_fold {
    QK_FLOAT_FOLD_COPY,       /* b */
    QK_FLOAT_FOLD_ADD,        /* a + b */
    QK_FLOAT_FOLD_MAX_VECTOR, /* a > b ? a : b */
    QK_FLOAT_FOLD_MAX_SCALAR, /* a < b ? b : a */
    QK_FLOAT_FOLD_COUNT
};

/* Folds from[tap * tap_stride + i * stride] into to[i], tap by tap. `from` has any alignment and
 * does not overlap `to`. */
typedef void (*qk_float_fold_fn)(float *to, const void *from, size_t taps, size_t tap_stride,
                                 size_t stride, size_t count);

/* Two rows of x at the columns of one row of y: kernels/resize/linear.h. */
struct qk_float_corners {
    const float *x11, *x21, *x12, *x22; /* an element of each for an element of y */
    const float *dx1, *dx2;
    float dy1, dy2;
};

/* Mixes the corners of each element of y, which overlaps none of them. */
typedef void (*qk_float_mix_fn)(const struct qk_float_corners *corners, float *y, size_t count);

/* How QLinearSoftmax quantizes: microsoft_qlinear_softmax.c. */
struct qk_float_shares {
    double factor; /* 1 / the scale, rounded down */
    int32_t low;   /* the smallest code: 0 or -128 */
    int32_t zero;
};

/* codes[i] = the code of x[i] / sums[i], saturated; or of x[i] / sums[0], if all are of one sum. A
 * NaN becomes the smallest code, as in ONNX Runtime on x86. */
typedef void (*qk_float_shares_fn)(const struct qk_float_shares *shares, const float *x,
                                   const float *sums, uint8_t *codes, size_t count);

/* y[i] = the function of x[i] and its parameters. x has any alignment and does not overlap y. */
typedef void (*qk_float_unary_fn)(const float parameters[2], const void *x, void *y, size_t count);

struct qk_float_kernels {
    const char *name;      /* the tier's: "float_avx2" */
    double element_cycles; /* a rough guess: cycles for an element of abs in a cache */
    qk_float_unary_fn unary[QK_FLOAT_UNARY_COUNT];
    double costs[QK_FLOAT_UNARY_COUNT]; /* the time of a function beside that of abs */
    /* Operands are FP32, `args` is not read, and binary.h says the rest. */
    qk_binary_fn binary[QK_FLOAT_BINARY_COUNT][QK_BINARY_FORM_COUNT];
    qk_float_fold_fn fold[QK_FLOAT_FOLD_COUNT];
    qk_float_mix_fn mix;
    qk_float_shares_fn quantize_shares, quantize_shares_of_one;
};

extern const struct qk_float_kernels qk_float_kernels__scalar;
extern const struct qk_float_kernels qk_float_kernels__avx2;
extern const struct qk_float_kernels qk_float_kernels__avx512bw;
extern const struct qk_float_kernels qk_float_kernels__neon;
