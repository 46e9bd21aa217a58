/* The kernels of every dequantizing operator, which a traversal calls span by span. Element i of a
 * span, with the parameters q that the span gives it (kernels/elementwise/span.h), becomes
 *
 *   y[i] = round(fl32(fl32(x[i] - zeros[q]) * scales[q]) + offsets[q])
 *
 * fl32(v) is v rounded to FP32. Each written operation is rounded once and never fused with
 * another. One more rounding makes the type of y. A tier has a kernel for each way to read x (enum
 * qk_code). All tiers give the same bits, except for the sign and payload of a NaN that is made of
 * two NaNs. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"

/* How a kernel reads x, and what its zeros are. Integers of up to 16 bits are read in one way each,
 * because their differences are exact as floats. Floats have no zero points. 32-bit integers are
 * read in several ways, because the operators round them differently. */
enum qk_code {
    QK_CODE_U8, /* from here to S16, zeros are floats plus a magic number (see below) */
    QK_CODE_S8,
    QK_CODE_U16,
    QK_CODE_S16,
    /* From here to S32_RECAST, zeros are floats. */
    QK_CODE_BITS2,  /* looked up in a struct qk_code_table */
    QK_CODE_BITS4,  /* looked up, too */
    QK_CODE_FLOAT8, /* looked up; entry 128 + i of the table is the negative of entry i, but entry
                       128 may be NaN */
    QK_CODE_S32,    /* fl32(x) */
    QK_CODE_S32_RECAST,  /* fl32(x), where 2^31 overflows to -2^31 */
    QK_CODE_S32_WRAPPED, /* zeros are int32; fl32 of the difference modulo 2^32 */
    QK_CODE_S32_EXACT,   /* zeros are int32; fl32 of the difference */
    QK_CODE_U32_EXACT,   /* zeros are uint32; fl32 of the difference */
    QK_CODE_COUNT
};

/* The magic-number conversion is the fastest way to convert small integers to floats. The integer
 * is put into the lowest bits of the float 2^23, with its sign bit flipped if it has one. The
 * result is x plus a magic number. The same number is added to zeros, so that the difference does
 * not contain it. For example, a UINT8 of 5 and a zero point of 3:
 *
 *     0x4b000000 | 5 = 0x4b000005, which are the bits of 2^23 + 5
 *     (2^23 + 5) - (2^23 + 3) = 2
 *
 * An INT8 of -5 is 0xfb, which becomes 0x7b = 123, so the float is 2^23 + 123 = 2^23 + 2^7 - 5. */
#define QK_MAGIC_U8 0x1p23F
#define QK_MAGIC_S8 (0x1p23F + 0x1p7F)
#define QK_MAGIC_U16 0x1p23F
#define QK_MAGIC_S16 (0x1p23F + 0x1p15F)

/* A table of float8s for machines that look up only 16 bytes at a time. Let s be
 *
 *   s = (code + turn) mod 128
 *
 * which has no sign. Adding `turn` moves infinities, NaNs and, with 5 bits of exponent, the
 * greatest numbers next to the subnormals, so that s < 16 holds for all of them. These codes are
 * looked up one by one. For s >= 16, adding 1 to the bits of s above the mantissa and the lowest
 * bit of the exponent adds 2 to the exponent, which adds 1 to the upper byte of an FP32. The upper
 * half of any code's FP32 is therefore
 *
 *   parts[s < 16][s mod 16] + ((s >> shift) << 8)
 *
 * where `shift` leaves out the mantissa and the lowest bit of the exponent. For example, in E4M3FN
 * `turn` is 1, `shift` is 4, and parts[0][9] is 0x3c80:
 *
 *     code 0x38 = 1.0:   s = 0x39 = 3 * 16 + 9,   0x3c80 + 0x300 = 0x3f80
 *     code 0x48 = 4.0:   s = 0x49 = 4 * 16 + 9,   0x3c80 + 0x400 = 0x4080
 *
 * The same holds for results as BF16, which are values times a scale, if all results of s >= 16 are
 * normal numbers (kernels/dequantize/bounded.h). It also holds for results as FP16, with one
 * difference: an FP16 has 3 bits of exponent less, so its upper byte grows by (s >> shift) << 3. */
struct qk_float8_parts {
    uint8_t turn;  /* added to a code */
    uint8_t shift; /* how many bits of s lie below those that are added to the upper byte */
    uint8_t bytes[2][2][16]; /* the lower bytes, then the upper bytes, of each of `parts` */
    float values[2][16];  /* the values from which parts[0] and parts[1] are made: for s from 48 to
                             63, and from 0 to 15 */
    uint8_t steps[2][16]; /* s >> shift for the same s */
    float least, most;    /* the least and the greatest value of s >= 16 */
};

/* The values of all codes of a type that is looked up (BITS2, BITS4 and FLOAT8). NaNs are canonical
 * (qk_float_decode). */
struct qk_code_table {
    float values[256];      /* indexed by a whole byte, of which only the bits of the code count */
    uint8_t halves[2][128]; /* FLOAT8: the lower bytes, then the upper bytes, of the upper halves of
                               values[0] to [127]. The lower halves are 0. Code 128 may be a NaN */
    struct qk_float8_parts parts; /* FLOAT8 */
};

/* Fills the table for a type of 2, 4 or 8 bits. */
void qk_code_table_init(struct qk_code_table *table, enum qk_type type);

#define QK_DEQUANTIZE_CHUNK ((size_t)64) /* elements; the largest chunk of all tiers */

struct qk_dequantize_args {
    enum qk_code code;
    enum qk_type y_type; /* FP32, FP16 or BF16 */
    const struct qk_code_table *table;
    struct qk_span span; /* scales and offsets are floats; `code` says what zeros are */
};

/* A kernel, which dequantizes one span. NaNs among scales and offsets are canonical if y has 16
 * bits. Zeros that are floats have integer values of up to 17 bits. Zeros to which a magic number
 * is added are in the range of x's type.
 *
 * The caller of a tier's kernel guarantees that the span's x_first and y_first are 0 and that
 * `count` is at least QK_DEQUANTIZE_CHUNK and fills whole bytes of x. If y is streamed, `count`
 * fills whole cache lines of y. qk_span_takes_blocks is true. */
typedef void (*qk_dequantize_fn)(const struct qk_dequantize_args *args);

struct qk_dequantize_kernels {
    const char *name; /* the name of the tier that filled the table: "dequantize_avx2" */
    qk_dequantize_fn run[QK_CODE_COUNT];
    /* To be called after the last streaming call, before another thread reads y. */
    void (*finish)(void);
    qk_repeat_fn repeat;
    /* Decodes each element like qk_float_decode, but may make NaNs quiet. `type` is FP16, BF16 or
     * FP8E8M0. `from` needs no alignment. */
    void (*widen)(float *to, enum qk_type type, const void *from, size_t count);
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
};

/* Returns how many bits an element of x has. */
unsigned qk_dequantize_bits(enum qk_code code);

/* Dequantizes any count of elements, from any element on. Uses the tier's kernel, and the scalar
 * kernel for what the tier's cannot take. */
void qk_dequantize(const struct qk_dequantize_kernels *kernels,
                   const struct qk_dequantize_args *args);

/* The scalar kernels take every span, and every type and count. They are the reference for all
 * tiers. */
void qk_dequantize_scalar(const struct qk_dequantize_args *args);
void qk_widen_scalar(float *to, enum qk_type type, const void *from, size_t count);

/* Each function puts the kernels of its tier into the table, and leaves the other entries as they
 * are. */
void qk_dequantize_init_scalar(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx512bw(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx512(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_neon(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_fp16(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_sve(struct qk_dequantize_kernels *kernels);

/* The kernels of lower tiers that ARM's higher tiers call for the spans and types of y that they do
 * not take themselves: the first for integers of 8 and 16 bits, the second for integers of 8 bits.
 */
void qk_dequantize_small__neon(const struct qk_dequantize_args *args);
void qk_dequantize_bytes__fp16(const struct qk_dequantize_args *args);
