/* Quantize kernels on pairs of NEON vectors: the arithmetic, packing and stores for loops.h.
 *
 * Nothing is stored past the caches: ARM CPUs detect by themselves that whole cache lines are
 * written. */
#include "kernels/quantize/quantize.h"

#ifdef __aarch64__

#include "kernels/elementwise/vector_neon.h"

/* How many elements a loop takes at a time, and how many a vector has. */
#define CHUNK ((size_t)32)
#define LANES ((size_t)8)

/* Whether products divide vectors whose elements have scales of their own. */
#define PRODUCTS_OF_EACH true

struct chunk {
    words a, b, c, d;
};
struct doubles {
    float64x2_t parts[4];
};

/* ---- Floats --------------------------------------------------------------------------------- */

INLINE vector negated(vector v)
{
    return EACH(vector, -v.val[0], -v.val[1]);
}

/* Returns a * b - c, rounded once. */
INLINE vector multiply_subtract(vector a, vector b, vector c)
{
    const vector d = negated(c);
    return EACH(vector, vfmaq_f32(d.val[0], a.val[0], b.val[0]),
                vfmaq_f32(d.val[1], a.val[1], b.val[1]));
}

/* Returns c - a * b, rounded once. */
INLINE vector negated_multiply_add(vector a, vector b, vector c)
{
    return EACH(vector, vfmsq_f32(c.val[0], a.val[0], b.val[0]),
                vfmsq_f32(c.val[1], a.val[1], b.val[1]));
}

INLINE vector divide(vector a, vector b)
{
    return EACH(vector, a.val[0] / b.val[0], a.val[1] / b.val[1]);
}

INLINE vector greater(vector a, vector b)
{
    return EACH(vector, vmaxq_f32(a.val[0], b.val[0]), vmaxq_f32(a.val[1], b.val[1]));
}

INLINE vector lesser(vector a, vector b)
{
    return EACH(vector, vminq_f32(a.val[0], b.val[0]), vminq_f32(a.val[1], b.val[1]));
}

/* Clamps v. FMAXNM is not used, because it would keep a signalling NaN. */
INLINE vector limited_to(vector v, vector low, vector high)
{
    const words is_above =
        EACH(words, vcgtq_f32(v.val[0], low.val[0]), vcgtq_f32(v.val[1], low.val[1]));
    return lesser(vector_of_words(choose(is_above, words_of_vector(v), words_of_vector(low))),
                  high);
}

/* Returns true if any element is a NaN. The maximum of a number and a NaN is the NaN. */
INLINE bool any_nan(vector a, vector b, vector c, vector d)
{
    const vector most = greater(greater(a, b), greater(c, d));
    const float one = vmaxvq_f32(vmaxq_f32(most.val[0], most.val[1]));
    return one != one;
}

INLINE vector mix(vector before, vector after, size_t count)
{
    return mix_one(before, after, count);
}

/* ---- Words ---------------------------------------------------------------------------------- */

INLINE words load_words(const void *from)
{
    return words_of_vector(load_vector(from));
}

INLINE words add_words(words a, words b)
{
    return EACH(words, a.val[0] + b.val[0], a.val[1] + b.val[1]);
}

INLINE words subtract_words(words a, words b)
{
    return EACH(words, a.val[0] - b.val[0], a.val[1] - b.val[1]);
}

INLINE words and_words(words a, words b)
{
    return EACH(words, a.val[0] & b.val[0], a.val[1] & b.val[1]);
}

INLINE words xor_words(words a, words b)
{
    return EACH(words, a.val[0] ^ b.val[0], a.val[1] ^ b.val[1]);
}

INLINE words shift_right(words w, unsigned count)
{
    return EACH(words, w.val[0] >> count, w.val[1] >> count);
}

INLINE int32x4_t signed_4(uint32x4_t w)
{
    return vreinterpretq_s32_u32(w);
}

INLINE words shift_right_signed(words w, unsigned count)
{
    return EACH(words, vreinterpretq_u32_s32(signed_4(w.val[0]) >> count),
                vreinterpretq_u32_s32(signed_4(w.val[1]) >> count));
}

INLINE words is_greater(words a, words b)
{
    return EACH(words, vcgtq_s32(signed_4(a.val[0]), signed_4(b.val[0])),
                vcgtq_s32(signed_4(a.val[1]), signed_4(b.val[1])));
}

/* Rounds values within the limits to nearest, ties to even, by an addition
 * (kernels/element/round.h), because these CPUs do more additions per cycle than conversions. If
 * the caller adds a zero point next, the compiler folds the subtraction of the magic number into
 * it. */
INLINE uint32x4_t round_4_to_words(float32x4_t v)
{
    return vreinterpretq_u32_f32(v + 0x1.8p23F) - 0x4b400000;
}

INLINE words round_to_words(vector v)
{
    return EACH(words, round_4_to_words(v.val[0]), round_4_to_words(v.val[1]));
}

INLINE vector float_of_words(words w)
{
    return EACH(vector, vcvtq_f32_s32(signed_4(w.val[0])), vcvtq_f32_s32(signed_4(w.val[1])));
}

/* Returns the lesser of a magnitude and a cap. */
INLINE vector capped(vector v, vector cap)
{
    return lesser(EACH(vector, vabsq_f32(v.val[0]), vabsq_f32(v.val[1])), cap);
}

/* ---- Halves --------------------------------------------------------------------------------- */

INLINE vector widen_fp16(const void *from)
{
    return vector_of_fp16(vld1q_u16(from));
}

INLINE vector widen_bf16(const void *from)
{
    return vector_of_bf16(vld1q_u16(from));
}

INLINE vector round_fp16(vector v)
{
    return vector_of_fp16(fp16_of_vector(v));
}

INLINE float32x4_t round_4_bf16(float32x4_t v)
{
    const uint32x4_t bits = with_lowest_bf16(vreinterpretq_u32_f32(v)) + 0x7fff;
    return vbslq_f32(vceqq_f32(v, v), vreinterpretq_f32_u32(bits & 0xffff0000), v);
}

/* Rounds to BF16, ties to even. A NaN keeps its bits, because rounding could make it an infinity or
 * a zero. This function serves the few calls whose `precision` is BF16 and whose x is not.
 * Otherwise without_bits needs only two operations, as many as BFCVT and the conversion back. */
INLINE vector round_bf16(vector v)
{
    return EACH(vector, round_4_bf16(v.val[0]), round_4_bf16(v.val[1]));
}

/* ---- Doubles -------------------------------------------------------------------------------- */

INLINE struct doubles doubles_of_words(words w)
{
    const int32x4_t p = signed_4(w.val[0]), q = signed_4(w.val[1]);
    return (struct doubles){
        {vcvtq_f64_s64(vmovl_s32(vget_low_s32(p))), vcvtq_f64_s64(vmovl_high_s32(p)),
         vcvtq_f64_s64(vmovl_s32(vget_low_s32(q))), vcvtq_f64_s64(vmovl_high_s32(q))}};
}

INLINE struct doubles doubles_of_floats(vector v)
{
    return (struct doubles){{vcvt_f64_f32(vget_low_f32(v.val[0])), vcvt_high_f64_f32(v.val[0]),
                             vcvt_f64_f32(vget_low_f32(v.val[1])), vcvt_high_f64_f32(v.val[1])}};
}

INLINE struct doubles divide_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){{a.parts[0] / b.parts[0], a.parts[1] / b.parts[1],
                             a.parts[2] / b.parts[2], a.parts[3] / b.parts[3]}};
}

INLINE struct doubles add_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){{a.parts[0] + b.parts[0], a.parts[1] + b.parts[1],
                             a.parts[2] + b.parts[2], a.parts[3] + b.parts[3]}};
}

/* Clamps doubles. Any NaN becomes -limit. */
INLINE float64x2_t limited_2_doubles(float64x2_t d, double limit)
{
    const float64x2_t low = vdupq_n_f64(-limit);
    return vminq_f64(vbslq_f64(vcgtq_f64(d, low), d, low), vdupq_n_f64(limit));
}

INLINE struct doubles limited_doubles(struct doubles d, double limit)
{
    return (struct doubles){
        {limited_2_doubles(d.parts[0], limit), limited_2_doubles(d.parts[1], limit),
         limited_2_doubles(d.parts[2], limit), limited_2_doubles(d.parts[3], limit)}};
}

INLINE uint32x4_t words_of_4_doubles(float64x2_t low, float64x2_t high)
{
    return vreinterpretq_u32_s32(
        vmovn_high_s64(vmovn_s64(vcvtnq_s64_f64(low)), vcvtnq_s64_f64(high)));
}

INLINE words words_of_doubles(struct doubles d)
{
    return EACH(words, words_of_4_doubles(d.parts[0], d.parts[1]),
                words_of_4_doubles(d.parts[2], d.parts[3]));
}

INLINE vector floats_of_doubles(struct doubles d)
{
    return EACH(vector, vcvt_high_f32_f64(vcvt_f32_f64(d.parts[0]), d.parts[1]),
                vcvt_high_f32_f64(vcvt_f32_f64(d.parts[2]), d.parts[3]));
}

/* ---- Packing and storing -------------------------------------------------------------------- */

/* Packing keeps the order. */
INLINE octets in_order(octets b)
{
    return b;
}

INLINE int16x8_t halves_of_words(words w)
{
    return vqmovn_high_s32(vqmovn_s32(signed_4(w.val[0])), signed_4(w.val[1]));
}

INLINE uint8x16_t bytes_of_halves(int16x8_t a, int16x8_t b, bool is_signed)
{
    return is_signed ? vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(a), b))
                     : vqmovun_high_s16(vqmovun_s16(a), b);
}

/* Packs the integers of four vectors with saturation. */
INLINE octets packed(struct chunk chunk, bool is_signed)
{
    return EACH(octets,
                bytes_of_halves(halves_of_words(chunk.a), halves_of_words(chunk.b), is_signed),
                bytes_of_halves(halves_of_words(chunk.c), halves_of_words(chunk.d), is_signed));
}

INLINE uint8x16_t u16_of_words(words w)
{
    return vreinterpretq_u8_u16(
        vqmovun_high_s32(vqmovun_s32(signed_4(w.val[0])), signed_4(w.val[1])));
}

INLINE octets pack_u16(words a, words b)
{
    return EACH(octets, u16_of_words(a), u16_of_words(b));
}

INLINE octets pack_s16(words a, words b)
{
    return EACH(octets, vreinterpretq_u8_s16(halves_of_words(a)),
                vreinterpretq_u8_s16(halves_of_words(b)));
}

INLINE uint8x16_t within_16(uint8x16_t bytes, int8_t least, int8_t most)
{
    const int8x16_t above = vmaxq_s8(vreinterpretq_s8_u8(bytes), vdupq_n_s8(least));
    return vreinterpretq_u8_s8(vminq_s8(above, vdupq_n_s8(most)));
}

INLINE octets within(octets b, int8_t least, int8_t most)
{
    return EACH(octets, within_16(b.val[0], least, most), within_16(b.val[1], least, most));
}

INLINE bool any_above(octets b, uint8_t most)
{
    return vmaxvq_u8(vmaxq_u8(b.val[0], b.val[1])) > most;
}

INLINE uint8x16_t with_16_signs(uint8x16_t codes, uint8x16_t numbers, uint8_t largest, uint8_t sign,
                                bool zero_has_sign)
{
    const uint8x16_t least = vminq_u8(codes, vdupq_n_u8(largest));
    uint8x16_t signs = vcltzq_s8(vreinterpretq_s8_u8(numbers)) & vdupq_n_u8(sign);
    if (!zero_has_sign)
        signs = vbicq_u8(signs, vceqzq_u8(least));
    return least | signs;
}

/* Limits the codes of magnitudes to `largest` and adds the signs of `numbers`. */
INLINE octets with_signs(octets codes, octets numbers, uint8_t largest, uint8_t sign,
                         bool zero_has_sign)
{
    return EACH(octets, with_16_signs(codes.val[0], numbers.val[0], largest, sign, zero_has_sign),
                with_16_signs(codes.val[1], numbers.val[1], largest, sign, zero_has_sign));
}

INLINE void store_bytes(char *y, octets bytes, bool stream)
{
    (void)stream;
    vst1q_u8((uint8_t *)y, bytes.val[0]);
    vst1q_u8((uint8_t *)y + 16, bytes.val[1]);
}

/* Stores the lowest 4 bits of each byte, two elements in a byte. */
INLINE void store_nibbles(char *y, octets bytes, bool stream)
{
    const uint8x16_t even = vuzp1q_u8(bytes.val[0], bytes.val[1]);
    const uint8x16_t odd = vuzp2q_u8(bytes.val[0], bytes.val[1]);
    (void)stream;
    vst1q_u8((uint8_t *)y, vsliq_n_u8(even, odd, 4));
}

/* Stores the lowest 2 bits of each byte, four elements in a byte. One step joins two elements to 4
 * bits, and the next joins two of the results to a byte. */
INLINE void store_pairs(char *y, octets bytes, bool stream)
{
    const uint8x16_t even = vuzp1q_u8(bytes.val[0], bytes.val[1]);
    const uint8x16_t odd = vuzp2q_u8(bytes.val[0], bytes.val[1]);
    const uint8x16_t two = vsliq_n_u8(even, odd, 2);
    const uint8x16_t four = vsliq_n_u8(vuzp1q_u8(two, two), vuzp2q_u8(two, two), 4);
    (void)stream;
    vst1_u8((uint8_t *)y, vget_low_u8(four));
}

/* Nothing to do: nothing was stored past the caches. */
INLINE void end_streaming(void)
{
}

#include "kernels/quantize/loops.h"

void qk_quantize_init_neon(struct qk_quantize_kernels *kernels)
{
    *kernels = (struct qk_quantize_kernels){
        .name = "quantize_neon", .run = quantize, .finish = finish, .element_cycles = 1.5};
}

#endif
