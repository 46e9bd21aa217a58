/* The kernel that every dequantizer lowers to: for element i of a span, with the parameters q that
 * it names (kernels/elementwise/span.h),
 *
 *   y[i] = round(fl32(fl32(x[i] - zeros[q]) * scales[q]) + offsets[q])
 *
 * One rounding to FP32 for each written operation, never fused, and one more to the type of y. A
 * tier has a kernel for each way to read x; all give the same bits, but for the sign and payload of
 * a NaN that is made of two. */
#ifndef KERNELS_DEQUANTIZE_DEQUANTIZE_H
#define KERNELS_DEQUANTIZE_DEQUANTIZE_H

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"

/* How x is read, and what a zero point is. The differences of integers of up to 16 bits are exact
 * as floats, and floats have no zero point; so only 32-bit integers come in more than one way. */
enum qk_code {
    QK_CODE_U8, /* zeros are floats plus the magic number, see below */
    QK_CODE_S8,
    QK_CODE_U16,
    QK_CODE_S16,
    /* zeros are floats from here on */
    QK_CODE_BITS2,       /* a table's entries */
    QK_CODE_BITS4,       /* a table's entries */
    QK_CODE_FLOAT8,      /* a table's entries, the upper half of which is the lower one, negative */
    QK_CODE_S32,         /* fl32(x) */
    QK_CODE_S32_RECAST,  /* fl32(x), where 2^31 overflows to -2^31 */
    QK_CODE_S32_WRAPPED, /* zeros are int32; fl32 of the difference modulo 2^32 */
    QK_CODE_S32_EXACT,   /* zeros are int32; fl32 of the difference */
    QK_CODE_U32_EXACT,   /* zeros are uint32; fl32 of the difference */
    QK_CODE_COUNT
};

/* The magic-number conversion is the fastest way to make floats of small integers: the integer
 * becomes the lowest bits of 2^23, with its sign bit flipped where it has one. That adds a magic
 * number to x. It is added to zeros, too, so that the difference is x - zero. */
#define QK_MAGIC_U8 0x1p23F
#define QK_MAGIC_S8 (0x1p23F + 0x1p7F)
#define QK_MAGIC_U16 0x1p23F
#define QK_MAGIC_S16 (0x1p23F + 0x1p15F)

/* A float8 for machines that look up only 16 bytes at a time. Let s be
 *
 *   s = (code + turn) mod 128, that is without its sign
 *
 * The turn brings infinities, NaNs and, with 5 bits of exponent, the greatest numbers beside the
 * subnormals: all codes of s < 16 are looked up. Those of 16 <= s have the value of s mod 16 times
 * two to the power of what is above the mantissa; so the upper half of any code's FP32 is
 *
 *   parts[s < 16][s mod 16] + ((s >> shift) << 8)
 *
 * where `shift` leaves out the mantissa and the lowest bit of the exponent. Times a scale the same
 * holds of results as BF16, as long as those of 16 <= s stay among its normal numbers. It holds of
 * results as FP16, too, but that the upper byte then has 3 bits of the exponent less: it grows by
 * (s >> shift) << 3 (kernels/dequantize/bounded.h). */
struct qk_float8_parts {
    uint8_t turn;            /* added to a code */
    uint8_t shift;           /* bits of s below those that are added to the upper byte */
    uint8_t bytes[2][2][16]; /* of each of `parts` its lower bytes and its upper ones */
    float values[2][16];     /* of s in [48, 64), and of s < 16 */
    uint8_t steps[2][16];    /* s >> shift of these */
    float least, most;       /* of 16 <= s */
};

/* What the codes of BITS2, BITS4 and FLOAT8 mean. NaNs are canonical (qk_float_decode). */
struct qk_code_table {
    float values[256];      /* of a byte's lowest bits; all of it is filled for each width */
    uint8_t halves[2][128]; /* FLOAT8: the upper halves of values[0] to [127], which hold all of
                               them; the lower byte of each first. Code 128 may be a NaN */
    struct qk_float8_parts parts; /* FLOAT8 */
};

/* Fills the table for a type of 2, 4 or 8 bits. */
void qk_code_table_init(struct qk_code_table *table, enum qk_type type);

#define QK_DEQUANTIZE_CHUNK ((size_t)64) /* elements; tiers go by so many */

struct qk_dequantize_args {
    enum qk_code code;
    enum qk_type y_type; /* FP32, FP16 or BF16 */
    const struct qk_code_table *table;
    struct qk_span span; /* scales and offsets are floats, and zeros what the code says */
};

/* NaN scales and offsets are canonical where y has 16 bits. Zeros that are floats are integers of
 * up to 17 bits, as they come, or plus the magic number, and are then within the type of x. A
 * tier's: both firsts are 0, `count` is at least QK_DEQUANTIZE_CHUNK, of whole bytes of x and,
 * where that is streamed, whole cache lines of y, and qk_span_takes_blocks. */
typedef void (*qk_dequantize_fn)(const struct qk_dequantize_args *args);

struct qk_dequantize_kernels {
    const char *name; /* of the tier that fills the table: "dequantize_avx2" */
    qk_dequantize_fn run[QK_CODE_COUNT];
    void (*finish)(void); /* after the last streaming call, before others may read y */
    qk_repeat_fn repeat;
    /* qk_float_decode of each element, but that NaNs may become quiet. `from`: FP16, BF16 or
     * FP8E8M0, no alignment. */
    void (*widen)(float *to, enum qk_type type, const void *from, size_t count);
    double element_cycles; /* a rough guess for one element, in a cache */
};

/* Bits of an element of x. */
unsigned qk_dequantize_bits(enum qk_code code);

/* Any count from any element on: by the tier's kernel, and what that cannot take by scalar. */
void qk_dequantize(const struct qk_dequantize_kernels *kernels,
                   const struct qk_dequantize_args *args);

/* The scalar kernel, which is the reference, takes all codes, every `first` and every count. */
void qk_dequantize_scalar(const struct qk_dequantize_args *args);
void qk_widen_scalar(float *to, enum qk_type type, const void *from, size_t count);

/* Each fills the entries that its tier has. */
void qk_dequantize_init_scalar(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx512bw(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_avx512(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_neon(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_fp16(struct qk_dequantize_kernels *kernels);
void qk_dequantize_init_sve(struct qk_dequantize_kernels *kernels);

/* What ARM's tiers leave to the tier below: of integers of 8 and 16 bits, and of 8 alone. */
void qk_dequantize_small__neon(const struct qk_dequantize_args *args);
void qk_dequantize_bytes__fp16(const struct qk_dequantize_args *args);

#endif
