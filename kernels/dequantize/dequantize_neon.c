/* Dequantize kernels on pairs of NEON vectors: how they read, compute and store a chunk. loops.h
 * has the loops over a span.
 *
 * Nothing is stored past the caches: ARM CPUs detect by themselves that whole cache lines are
 * written. */
#include "kernels/dequantize/dequantize.h"

#ifdef __aarch64__

#include <math.h>
#include <string.h>

#include "kernels/elementwise/vector_neon.h"

/* How many elements a loop takes at a time. */
#define CHUNK ((size_t)32)

/* If a float8 block has at least this many chunks, making a table of its results takes less time
 * than it saves. */
#define FLOAT8_CHUNKS_MIN 16

/* A chunk's elements in order, 8 in each vector. As 16-bit results: 16 in a and 16 in c. */
struct values {
    vector a, b, c, d;
};

/* What codes mean, as tables of bytes. Each table has one byte of every float or result that is
 * looked up. */
struct codes {
    struct values values; /* the floats of codes of less than 8 bits, 16 of them in a and b */
    uint8x16_t planes[4]; /* the bytes of these floats, or of their 32-bit or 16-bit results */
    uint8x16x4_t low[2];  /* FLOAT8: the bytes of upper halves, indexed by 7 bits of a code */
    uint8x16x4_t high[2];
    uint8_t nan_low; /* the bytes of code 128, if that is a NaN */
    uint8_t nan_high;
    bool code_128_is_nan;
};

typedef vector subtract_fn(vector value, vector zero);

/* ---- Reading x ------------------------------------------------------------------------------ */

/* Returns 2^23 + x as floats: see `magic` in read_avx2.h. */
INLINE vector magic(uint16x8_t integers)
{
    const uint16x8_t exponent = vdupq_n_u16(0x4b00);
    return EACH(vector, vreinterpretq_f32_u16(vzip1q_u16(integers, exponent)),
                vreinterpretq_f32_u16(vzip2q_u16(integers, exponent)));
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes, (void)pairs;
    const uint8x16_t none = vdupq_n_u8(0);
    const uint8x16_t p = vld1q_u8(x), q = vld1q_u8(x + 16);
    return (struct values){magic(vreinterpretq_u16_u8(vzip1q_u8(p, none))),
                           magic(vreinterpretq_u16_u8(vzip2q_u8(p, none))),
                           magic(vreinterpretq_u16_u8(vzip1q_u8(q, none))),
                           magic(vreinterpretq_u16_u8(vzip2q_u8(q, none)))};
}

/* Returns 2^23 + 128 + x as floats, for eight integers. */
INLINE vector magic_s8(int8x8_t integers)
{
    return magic(vreinterpretq_u16_s16(vaddw_s8(vdupq_n_s16(0x80), integers)));
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes, (void)pairs;
    const int8x16_t p = vld1q_s8((const int8_t *)x), q = vld1q_s8((const int8_t *)x + 16);
    return (struct values){magic_s8(vget_low_s8(p)), magic_s8(vget_high_s8(p)),
                           magic_s8(vget_low_s8(q)), magic_s8(vget_high_s8(q))};
}

INLINE uint16x8_t load_halves(const uint8_t *x)
{
    return vreinterpretq_u16_u8(vld1q_u8(x));
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes, (void)pairs;
    return (struct values){magic(load_halves(x)), magic(load_halves(x + 16)),
                           magic(load_halves(x + 32)), magic(load_halves(x + 48))};
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes, (void)pairs;
    const uint16x8_t sign = vdupq_n_u16(0x8000);
    return (struct values){magic(load_halves(x) ^ sign), magic(load_halves(x + 16) ^ sign),
                           magic(load_halves(x + 32) ^ sign), magic(load_halves(x + 48) ^ sign)};
}

/* Returns the first eight of 16 words in order, made of their lower and upper bytes. high_halves
 * returns the other eight. */
INLINE uint16x8_t low_halves(uint8x16_t low, uint8x16_t high)
{
    return vreinterpretq_u16_u8(vzip1q_u8(low, high));
}

INLINE uint16x8_t high_halves(uint8x16_t low, uint8x16_t high)
{
    return vreinterpretq_u16_u8(vzip2q_u8(low, high));
}

INLINE vector join_halves(uint16x8_t low, uint16x8_t high)
{
    return EACH(vector, vreinterpretq_f32_u16(vzip1q_u16(low, high)),
                vreinterpretq_f32_u16(vzip2q_u16(low, high)));
}

/* Looks up the 32-bit results of 16 codes, byte by byte. */
INLINE void look_up_floats(const struct codes *codes, uint8x16_t indices, vector *a, vector *b)
{
    const uint8x16_t p = vqtbl1q_u8(codes->planes[0], indices);
    const uint8x16_t q = vqtbl1q_u8(codes->planes[1], indices);
    const uint8x16_t r = vqtbl1q_u8(codes->planes[2], indices);
    const uint8x16_t s = vqtbl1q_u8(codes->planes[3], indices);
    *a = join_halves(low_halves(p, q), low_halves(r, s));
    *b = join_halves(high_halves(p, q), high_halves(r, s));
}

/* Like look_up_floats, for 16-bit results. */
INLINE vector look_up_halves(const struct codes *codes, uint8x16_t indices)
{
    const uint8x16_t p = vqtbl1q_u8(codes->planes[0], indices);
    const uint8x16_t q = vqtbl1q_u8(codes->planes[1], indices);
    return EACH(vector, vreinterpretq_f32_u16(low_halves(p, q)),
                vreinterpretq_f32_u16(high_halves(p, q)));
}

/* Returns the codes of a chunk, one in each byte. Only the lowest 4 bits of a byte may be set. The
 * table repeats its entries for shorter codes, so the bits above such a code do not matter. */
INLINE octets split_4(uint8x16_t bytes)
{
    const uint8x16_t low = bytes & vdupq_n_u8(15);
    const uint8x16_t high = bytes >> 4;
    return EACH(octets, vzip1q_u8(low, high), vzip2q_u8(low, high));
}

INLINE octets split_2(uint8x8_t bytes)
{
    const uint8x16_t both = split_4(vcombine_u8(bytes, bytes)).val[0];
    return EACH(octets, vzip1q_u8(both, both >> 2), vzip2q_u8(both, both >> 2));
}

INLINE octets codes_at(const uint8_t *x, unsigned bits)
{
    return bits == 4 ? split_4(vld1q_u8(x)) : split_2(vld1_u8(x));
}

INLINE struct values look_up_all_floats(const struct codes *codes, octets indices)
{
    struct values v;
    look_up_floats(codes, indices.val[0], &v.a, &v.b);
    look_up_floats(codes, indices.val[1], &v.c, &v.d);
    return v;
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return look_up_all_floats(codes, codes_at(x, 4));
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return look_up_all_floats(codes, codes_at(x, 2));
}

/* Looks up bytes by indices of 7 bits, in two tables of 64 bytes. An index beyond a table gives 0.
 */
INLINE uint8x16_t look_up_128(const uint8x16x4_t table[2], uint8x16_t indices)
{
    return vqtbl4q_u8(table[0], indices) | vqtbl4q_u8(table[1], indices ^ vdupq_n_u8(64));
}

/* Looks up 16 bits for each of 16 float8s. Seven bits of a code find its bytes. The eighth bit is
 * the sign. */
INLINE vector look_up_float8(const struct codes *codes, const uint8_t *x)
{
    const uint8x16_t bytes = vld1q_u8(x);
    const uint8x16_t sign = vdupq_n_u8(0x80);
    const uint8x16_t indices = bytes & ~sign;
    uint8x16_t low = look_up_128(codes->low, indices);
    uint8x16_t high = look_up_128(codes->high, indices) ^ (bytes & sign);
    if (codes->code_128_is_nan) {
        const uint8x16_t is_nan = vceqq_u8(bytes, sign);
        low = vbslq_u8(is_nan, vdupq_n_u8(codes->nan_low), low);
        high = vbslq_u8(is_nan, vdupq_n_u8(codes->nan_high), high);
    }
    return EACH(vector, vreinterpretq_f32_u16(low_halves(low, high)),
                vreinterpretq_f32_u16(high_halves(low, high)));
}

INLINE vector float8_of(float32x4_t halves)
{
    return vector_of_bf16(vreinterpretq_u16_f32(halves));
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    const vector p = look_up_float8(codes, x), q = look_up_float8(codes, x + 16);
    return (struct values){float8_of(p.val[0]), float8_of(p.val[1]), float8_of(q.val[0]),
                           float8_of(q.val[1])};
}

/* Returns 32-bit integers as they are, in vectors of floats. Subtracting a zero point converts
 * them. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes, (void)pairs;
    return (struct values){load_vector(x), load_vector(x + 32), load_vector(x + 64),
                           load_vector(x + 96)};
}

INLINE vector float_of_s32(vector integers)
{
    return EACH(vector, vcvtq_f32_s32(vreinterpretq_s32_f32(integers.val[0])),
                vcvtq_f32_s32(vreinterpretq_s32_f32(integers.val[1])));
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const struct values v = read_32(codes, x, pairs);
    return (struct values){float_of_s32(v.a), float_of_s32(v.b), float_of_s32(v.c),
                           float_of_s32(v.d)};
}

INLINE vector recast(vector value)
{
    const float32x4_t end = vdupq_n_f32(0x1p31F);
    const uint32x4_t sign = vdupq_n_u32(0x80000000);
    const words bits = words_of_vector(value);
    return vector_of_words(EACH(words, bits.val[0] | (vceqq_f32(value.val[0], end) & sign),
                                bits.val[1] | (vceqq_f32(value.val[1], end) & sign)));
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const struct values v = read_s32(codes, x, pairs);
    return (struct values){recast(v.a), recast(v.b), recast(v.c), recast(v.d)};
}

/* ---- Zero points ---------------------------------------------------------------------------- */

INLINE vector subtract(vector value, vector zero)
{
    return EACH(vector, value.val[0] - zero.val[0], value.val[1] - zero.val[1]);
}

/* Floats have no zero points. */
INLINE vector subtract_none(vector value, vector zero)
{
    (void)zero;
    return value;
}

INLINE vector subtract_wrapping(vector value, vector zero)
{
    const words a = words_of_vector(value), b = words_of_vector(zero);
    return float_of_s32(vector_of_words(EACH(words, a.val[0] - b.val[0], a.val[1] - b.val[1])));
}

/* Doubles hold the difference of two 32-bit integers exactly. It is rounded once, to a float. */
INLINE float32x4_t float_of_differences(int64x2_t low, int64x2_t high)
{
    return vcvt_high_f32_f64(vcvt_f32_f64(vcvtq_f64_s64(low)), vcvtq_f64_s64(high));
}

INLINE float32x4_t subtract_4_s32(float32x4_t value, float32x4_t zero)
{
    const int32x4_t a = vreinterpretq_s32_f32(value), b = vreinterpretq_s32_f32(zero);
    return float_of_differences(vsubl_s32(vget_low_s32(a), vget_low_s32(b)), vsubl_high_s32(a, b));
}

INLINE vector subtract_s32(vector value, vector zero)
{
    return EACH(vector, subtract_4_s32(value.val[0], zero.val[0]),
                subtract_4_s32(value.val[1], zero.val[1]));
}

/* Flips the top bits, which subtracts 2^31 from both numbers and makes them signed. The difference
 * stays the same. */
INLINE vector subtract_u32(vector value, vector zero)
{
    const uint32x4_t sign = vdupq_n_u32(0x80000000);
    const words a = words_of_vector(value), b = words_of_vector(zero);
    return subtract_s32(vector_of_words(EACH(words, a.val[0] ^ sign, a.val[1] ^ sign)),
                        vector_of_words(EACH(words, b.val[0] ^ sign, b.val[1] ^ sign)));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* Rounds to BF16. NaNs are canonical already, so BFCVTN would give the same bits with one operation
 * instead of three. It is left to dequantize_sve.c, because server CPUs that have BFCVTN also have
 * SVE. */
INLINE uint16x8_t bf16_of_vector(vector v)
{
    const uint32x4_t half = vdupq_n_u32(0x7fff);
    const words bits = words_of_vector(v);
    return vaddhn_high_u32(vaddhn_u32(with_lowest_bf16(bits.val[0]), half),
                           with_lowest_bf16(bits.val[1]), half);
}

INLINE uint16x8_t halves_of_vector(vector v, enum qk_type type)
{
    return type == QK_FP16 ? fp16_of_vector(v) : bf16_of_vector(v);
}

/* How a chunk is stored (see dequantize_avx2.c). NEON stores every chunk in the same way. */
struct how {
    bool stream;
    size_t stored;
};

struct form {
    bool pairs;    /* never: values are in order */
    bool finished; /* the table of codes has results */
    enum qk_type y_type;
    size_t y_bytes;
};

INLINE struct form form_of(unsigned bits, enum qk_type y_type, bool finished, bool can_pair)
{
    (void)bits, (void)can_pair;
    return (struct form){false, finished, y_type, y_type == QK_FP32 ? 4 : 2};
}

/* Returns whether the values of a chunk are 16-bit results already. */
INLINE bool are_halves(struct form form)
{
    return form.finished && form.y_bytes == 2;
}

INLINE void store_chunk(char *y, struct values v, struct form form, struct how how)
{
    (void)how;
    if (are_halves(form)) {
        store_vector(y, v.a);
        store_vector(y + 32, v.c);
    } else if (form.y_bytes == 2) {
        vst1q_u16((uint16_t *)y, halves_of_vector(v.a, form.y_type));
        vst1q_u16((uint16_t *)y + 8, halves_of_vector(v.b, form.y_type));
        vst1q_u16((uint16_t *)y + 16, halves_of_vector(v.c, form.y_type));
        vst1q_u16((uint16_t *)y + 24, halves_of_vector(v.d, form.y_type));
    } else {
        store_vector(y, v.a);
        store_vector(y + 32, v.b);
        store_vector(y + 64, v.c);
        store_vector(y + 96, v.d);
    }
}

/* ---- Chunks of two blocks -------------------------------------------------------------------- */

INLINE float32x4_t mix_4_halves(float32x4_t before, float32x4_t after, const uint16_t *places,
                                size_t count)
{
    const uint16x8_t is_before = vcltq_u16(vld1q_u16(places), vdupq_n_u16((uint16_t)count));
    return vreinterpretq_f32_u16(
        vbslq_u16(is_before, vreinterpretq_u16_f32(before), vreinterpretq_u16_f32(after)));
}

/* Returns the first `count` of 16 results of `before` and the other results of `after`. */
INLINE vector mix_halves(vector before, vector after, size_t count)
{
    static const uint16_t places[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return EACH(vector, mix_4_halves(before.val[0], after.val[0], places, count),
                mix_4_halves(before.val[1], after.val[1], places + 8, count));
}

/* Like mix_halves or mix_one, for the four vectors of a chunk. */
INLINE struct values mix(struct values before, struct values after, size_t count, struct form form)
{
    if (are_halves(form))
        return (struct values){mix_halves(before.a, after.a, count), after.b,
                               mix_halves(before.c, after.c, count < 16 ? 0 : count - 16), after.d};
    return (struct values){mix_one(before.a, after.a, count),
                           mix_one(before.b, after.b, count < 8 ? 0 : count - 8),
                           mix_one(before.c, after.c, count < 16 ? 0 : count - 16),
                           mix_one(before.d, after.d, count < 24 ? 0 : count - 24)};
}

/* ---- Results of codes ----------------------------------------------------------------------- */

/* Splits 16 results of 16 bits into their lower and upper bytes. */
INLINE void set_planes(uint8x16_t planes[2], uint16x8_t a, uint16x8_t b)
{
    planes[0] = vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
    planes[1] = vuzp2q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

INLINE uint16x8_t lower_halves(vector v)
{
    return vuzp1q_u16(vreinterpretq_u16_f32(v.val[0]), vreinterpretq_u16_f32(v.val[1]));
}

INLINE uint16x8_t upper_halves(vector v)
{
    return vuzp2q_u16(vreinterpretq_u16_f32(v.val[0]), vreinterpretq_u16_f32(v.val[1]));
}

INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    struct codes codes = {0};
    if (!table)
        return codes;
    if (bits < 8) {
        codes.values.a = load_vector(table->values);
        codes.values.b = load_vector(table->values + 8);
        set_planes(codes.planes, lower_halves(codes.values.a), lower_halves(codes.values.b));
        set_planes(codes.planes + 2, upper_halves(codes.values.a), upper_halves(codes.values.b));
        return codes;
    }
    for (size_t k = 0; k < 2; k++) {
        codes.low[k] = vld1q_u8_x4(table->halves[0] + 64 * k);
        codes.high[k] = vld1q_u8_x4(table->halves[1] + 64 * k);
    }
    codes.nan_low = 0xc0;
    codes.nan_high = 0xff;
    codes.code_128_is_nan = isnan(table->values[128]);
    return codes;
}

INLINE vector finish_vector(vector values, vector zero, vector scale, vector offset)
{
    return add(multiply(subtract(values, zero), scale), offset);
}

/* Makes a table of a block's results, for codes of less than 8 bits. */
INLINE struct codes finish_codes(const struct codes *codes, vector zero, vector scale,
                                 vector offset, struct form form)
{
    const vector a = finish_vector(codes->values.a, zero, scale, offset);
    const vector b = finish_vector(codes->values.b, zero, scale, offset);
    struct codes results;
    if (form.y_bytes == 2) {
        set_planes(results.planes, halves_of_vector(a, form.y_type),
                   halves_of_vector(b, form.y_type));
    } else {
        set_planes(results.planes, lower_halves(a), lower_halves(b));
        set_planes(results.planes + 2, upper_halves(a), upper_halves(b));
    }
    return results;
}

/* Looks up the results of a chunk. */
INLINE struct values look_up_chunk(const struct codes *results, const uint8_t *x, unsigned bits,
                                   struct form form)
{
    const octets indices = codes_at(x, bits);
    if (!are_halves(form))
        return look_up_all_floats(results, indices);
    const vector none = splat(0);
    return (struct values){look_up_halves(results, indices.val[0]), none,
                           look_up_halves(results, indices.val[1]), none};
}

INLINE uint16x8_t finish_8(const float *values, float scale, enum qk_type y_type)
{
    return halves_of_vector(multiply(load_vector(values), splat(scale)), y_type);
}

/* Makes a table of the 16-bit results of float8s. The table has 128 codes, because results of
 * negative codes differ only in the sign. The scale must be normal, so that no code but a NaN's
 * becomes a NaN. */
INLINE void finish_float8(struct codes *codes, const struct qk_code_table *table, float scale,
                          enum qk_type y_type)
{
#pragma GCC unroll 8
    for (size_t k = 0; k < 8; k++) {
        uint8x16_t planes[2];
        const float *values = table->values + 16 * k;
        set_planes(planes, finish_8(values, scale, y_type), finish_8(values + 8, scale, y_type));
        codes->low[k / 4].val[k % 4] = planes[0];
        codes->high[k / 4].val[k % 4] = planes[1];
    }
    codes->nan_low = y_type == QK_FP16 ? 0 : 0xc0;
    codes->nan_high = y_type == QK_FP16 ? 0xfe : 0xff;
}

/* Dequantizes chunks of float8s by a table of their results. Returns false if the table would not
 * save time or if the scale is not normal. The caller then computes the chunks without it. */
INLINE bool take_float8(const struct qk_code_table *table, const struct codes *from,
                        const uint8_t *x, char *y, size_t chunks, float scale, struct form form,
                        struct how how)
{
    (void)how;
    if (chunks < FLOAT8_CHUNKS_MIN || !isnormal(scale))
        return false;
    struct codes codes = *from;
    finish_float8(&codes, table, scale, form.y_type);
    for (; chunks > 0; chunks--, x += CHUNK, y += 2 * CHUNK) {
        store_vector(y, look_up_float8(&codes, x));
        store_vector(y + 32, look_up_float8(&codes, x + 16));
    }
    return true;
}

/* Returns false: take_float8 makes the tables of results. */
INLINE bool finishes_float8(const struct qk_dequantize_args *args)
{
    (void)args;
    return false;
}

/* Returns eight scales as FP32. */
INLINE vector widened(enum qk_type type, const uint8_t *from)
{
    if (type == QK_FP16)
        return vector_of_fp16(load_halves(from));
    if (type == QK_BF16)
        return vector_of_bf16(load_halves(from));
    const uint8x8_t codes = vld1_u8(from);
    /* In the upper halves, a code is the exponent. The highest bit of the mantissa is set for the
     * NaN and for the least number, 2^-127, which is subnormal. */
    const uint8x8_t is_special = vceqz_u8((codes + 1) & 0xfe);
    return vector_of_bf16(vshll_n_u8(codes, 7) | vmovl_u8(is_special & 0x40));
}

INLINE void store_widened(float *to, enum qk_type type, const uint8_t *from)
{
    store_vector(to, widened(type, from));
}

/* Nothing to do: nothing was stored past the caches. */
INLINE void end_streaming(void)
{
}

/* How many bytes ahead x is prefetched if x or y is too large for the caches. */
#define PREFETCH_BYTES 2048

#include "kernels/dequantize/kernels.h"

void qk_dequantize_small__neon(const struct qk_dequantize_args *args)
{
    if (args->code == QK_CODE_U8)
        u8(args);
    else if (args->code == QK_CODE_S8)
        s8(args);
    else if (args->code == QK_CODE_U16)
        u16(args);
    else
        s16(args);
}

void qk_dequantize_init_neon(struct qk_dequantize_kernels *kernels)
{
    init(kernels, "dequantize_neon", 0.6);
}

#endif
