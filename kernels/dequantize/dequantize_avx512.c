#include "kernels/dequantize/dequantize.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX512VBMI__

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* A step's 64 elements, 16 in each vector: in order, or in pairs, v[0] the even and v[1] the odd
 * ones of the first 32, v[2] and v[3] those of the others. */
struct values {
    __m512 v[4];
};

/* What reading needs of the table. */
struct codes {
    __m512 even; /* by the lowest 4 bits, for the first of each pair, or for all */
    __m512 odd;  /* for the second */
    __m512i low[2];
    __m512i high[2];
    bool code_128_is_nan;
};

typedef struct values read_fn(const struct codes *codes, const uint8_t *x, bool pairs);
typedef __m512 subtract_fn(__m512 value, __m512 zero);

/* ---- Reading x ------------------------------------------------------------------------------ */

INLINE __m512 to_float(__m512i words)
{
    return _mm512_cvtepi32_ps(words);
}

/* 2^23 + x: the bytes become the lowest ones of floats from 2^23 on, where the last bit is 1. */
INLINE struct values read_bytes(__m512i bytes, bool pairs)
{
    static const uint8_t order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const __m512i places = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)order));
    struct values y;
    for (int k = 0; k < 4; k++) {
        const __m512i from = pairs ? _mm512_add_epi32(_mm512_add_epi32(places, places),
                                                      _mm512_set1_epi32(k / 2 * 32 + k % 2))
                                   : _mm512_add_epi32(places, _mm512_set1_epi32(k * 16));
        y.v[k] = _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x4b000000),
                                                                  0x1111111111111111, from, bytes));
    }
    return y;
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return read_bytes(_mm512_loadu_si512(x), pairs);
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return read_bytes(_mm512_xor_si512(_mm512_loadu_si512(x), _mm512_set1_epi8(-128)), pairs);
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    struct values y;
    (void)codes;
    for (size_t k = 0; !pairs && k < 4; k++)
        y.v[k] = to_float(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + 32 * k))));
    for (size_t k = 0; pairs && k < 2; k++) {
        const __m512i words = _mm512_loadu_si512(x + 64 * k);
        y.v[2 * k] = to_float(_mm512_and_si512(words, _mm512_set1_epi32(0xffff)));
        y.v[2 * k + 1] = to_float(_mm512_srli_epi32(words, 16));
    }
    return y;
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    struct values y;
    (void)codes;
    for (size_t k = 0; !pairs && k < 4; k++)
        y.v[k] = to_float(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(x + 32 * k))));
    for (size_t k = 0; pairs && k < 2; k++) {
        const __m512i words = _mm512_loadu_si512(x + 64 * k);
        y.v[2 * k] = to_float(_mm512_srai_epi32(_mm512_slli_epi32(words, 16), 16));
        y.v[2 * k + 1] = to_float(_mm512_srai_epi32(words, 16));
    }
    return y;
}

/* A permutation reads the lowest 4 bits of each index, and the table repeats for less, so that
 * nothing is masked. */
INLINE __m512 look_up(__m512 values, __m512i indices)
{
    return _mm512_permutexvar_ps(indices, values);
}

/* 64 bits, shifted in each lane by its own distance. */
INLINE __m512i shifted(const uint8_t *x, __m512i distances)
{
    int64_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm512_multishift_epi64_epi8(distances, _mm512_set1_epi64(bits));
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i distances =
        _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    struct values y;
    for (size_t k = 0; !pairs && k < 4; k++)
        y.v[k] = look_up(codes->even, shifted(x + 8 * k, distances));
    for (size_t k = 0; pairs && k < 2; k++) {
        const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(x + 16 * k)));
        y.v[2 * k] = look_up(codes->even, both);
        y.v[2 * k + 1] = look_up(codes->odd, _mm512_srli_epi32(both, 4));
    }
    return y;
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i in_order =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i even = _mm512_slli_epi32(in_order, 1);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    struct values y;
    for (size_t k = 0; !pairs && k < 4; k++) {
        int32_t bits;
        memcpy(&bits, x + 4 * k, sizeof(bits));
        y.v[k] = look_up(codes->even, _mm512_srlv_epi32(_mm512_set1_epi32(bits), in_order));
    }
    for (size_t k = 0; pairs && k < 2; k++) {
        y.v[2 * k] = look_up(codes->even, shifted(x + 8 * k, even));
        y.v[2 * k + 1] = look_up(codes->odd, shifted(x + 8 * k, odd));
    }
    return y;
}

/* Two floats whose upper halves are these words. */
INLINE void widen(__m512i words, __m512 v[2])
{
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

/* Where each byte of x goes, so that unpacking leaves it where it belongs: in pairs, its own
 * place; in order, the lower half of a word is 16 elements before the upper. */
static const uint8_t order_pairs[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36, 37, 38, 39, 8,  9,  10, 11, 12, 13,
    14, 15, 40, 41, 42, 43, 44, 45, 46, 47, 16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51,
    52, 53, 54, 55, 24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63};
static const uint8_t order_plain[64] = {
    0,  16, 1,  17, 2,  18, 3,  19, 32, 48, 33, 49, 34, 50, 35, 51, 4,  20, 5,  21, 6,  22,
    7,  23, 36, 52, 37, 53, 38, 54, 39, 55, 8,  24, 9,  25, 10, 26, 11, 27, 40, 56, 41, 57,
    42, 58, 43, 59, 12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63};

/* Seven bits find the upper half of a float, the eighth is its sign. */
INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i order = _mm512_loadu_si512(pairs ? order_pairs : order_plain);
    const __m512i sign = _mm512_set1_epi8(-128);
    const __m512i bytes = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(x));
    __m512i low = _mm512_permutex2var_epi8(codes->low[0], bytes, codes->low[1]);
    __m512i high = _mm512_permutex2var_epi8(codes->high[0], bytes, codes->high[1]);
    struct values y;
    high = _mm512_ternarylogic_epi32(high, bytes, sign, 0xf8); /* high | (bytes & sign) */
    if (codes->code_128_is_nan) {
        const __mmask64 is_nan = _mm512_cmpeq_epi8_mask(bytes, sign);
        low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8((char)0xc0));
        high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8((char)0xff));
    }
    widen(_mm512_unpacklo_epi8(low, high), &y.v[0]);
    widen(_mm512_unpackhi_epi8(low, high), &y.v[2]);
    return y;
}

/* As it is. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    struct values y;
    (void)codes;
    (void)pairs;
    for (size_t k = 0; k < 4; k++)
        y.v[k] = _mm512_loadu_ps(x + 64 * k);
    return y;
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    struct values y = read_32(codes, x, pairs);
    for (size_t k = 0; k < 4; k++)
        y.v[k] = to_float(_mm512_castps_si512(y.v[k]));
    return y;
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x, bool pairs)
{
    struct values y = read_s32(codes, x, pairs);
    const __m512 end = _mm512_set1_ps(0x1p31F);
    for (size_t k = 0; k < 4; k++)
        y.v[k] = _mm512_mask_sub_ps(y.v[k], _mm512_cmp_ps_mask(y.v[k], end, _CMP_EQ_OQ),
                                    _mm512_setzero_ps(), end);
    return y;
}

/* ---- Zero points ---------------------------------------------------------------------------- */

INLINE __m512 subtract(__m512 value, __m512 zero)
{
    return _mm512_sub_ps(value, zero);
}

/* Floats have no zero points. */
INLINE __m512 subtract_none(__m512 value, __m512 zero)
{
    (void)zero;
    return value;
}

INLINE __m512 subtract_wrapping(__m512 value, __m512 zero)
{
    return to_float(_mm512_sub_epi32(_mm512_castps_si512(value), _mm512_castps_si512(zero)));
}

INLINE __m256i half(__m512 value, int index)
{
    return index ? _mm512_extracti64x4_epi64(_mm512_castps_si512(value), 1)
                 : _mm512_castsi512_si256(_mm512_castps_si512(value));
}

INLINE __m512 join(__m256 low, __m256 high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* A double holds the difference, and rounds once. */
INLINE __m512 subtract_s32(__m512 value, __m512 zero)
{
    __m256 y[2];
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_cvtpd_ps(
            _mm512_sub_pd(_mm512_cvtepi32_pd(half(value, i)), _mm512_cvtepi32_pd(half(zero, i))));
    return join(y[0], y[1]);
}

INLINE __m512 subtract_u32(__m512 value, __m512 zero)
{
    __m256 y[2];
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_cvtpd_ps(
            _mm512_sub_pd(_mm512_cvtepu32_pd(half(value, i)), _mm512_cvtepu32_pd(half(zero, i))));
    return join(y[0], y[1]);
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* Never VCVTNEPS2BF16, which makes zeros of subnormals. NaNs are canonical already. Adding the
 * lowest bit that stays to those that go makes the even one of two win, and no carry of it. */
INLINE __m512i round_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i sticky =
        _mm512_ternarylogic_epi32(bits, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1), 0xf8);
    return _mm512_add_epi32(sticky, _mm512_set1_epi32(0x7fff));
}

/* The upper halves of 32 floats. */
INLINE __m512i pack_bf16(__m512 a, __m512 b, bool pairs)
{
    const __m512i low = _mm512_srli_epi32(round_bf16(a), 16);
    if (pairs)
        return _mm512_mask_blend_epi16(0xaaaaaaaa, low, round_bf16(b));
    const __m512i words = _mm512_packus_epi32(low, _mm512_srli_epi32(round_bf16(b), 16));
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), words);
}

INLINE void store_512(void *y, __m512i v, bool stream)
{
    if (stream)
        _mm512_stream_si512(y, v);
    else
        _mm512_storeu_si512(y, v);
}

INLINE void store_256(void *y, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256(y, v);
    else
        _mm256_storeu_si256(y, v);
}

/* What the values of a step are yet to become. */
enum result {
    RESULT_FP32,
    RESULT_FP16,
    RESULT_BF16,
    RESULT_BF16_PAIRS,
    RESULT_HALVES /* nothing: the even ones are lower halves, the odd ones upper halves of words */
};

INLINE void store(char *y, const struct values *values, enum result result, bool stream)
{
    const __m512 *v = values->v;
    for (size_t k = 0; result == RESULT_FP32 && k < 4; k++)
        store_512(y + 64 * k, _mm512_castps_si512(v[k]), stream);
    for (size_t k = 0; result == RESULT_FP16 && k < 4; k++)
        store_256(y + 32 * k, _mm512_cvtps_ph(v[k], NEAREST), stream); /* NaNs stay canonical */
    for (size_t k = 0; result == RESULT_BF16 && k < 2; k++)
        store_512(y + 64 * k, pack_bf16(v[2 * k], v[2 * k + 1], false), stream);
    for (size_t k = 0; result == RESULT_BF16_PAIRS && k < 2; k++)
        store_512(y + 64 * k, pack_bf16(v[2 * k], v[2 * k + 1], true), stream);
    for (size_t k = 0; result == RESULT_HALVES && k < 2; k++)
        store_512(y + 64 * k, _mm512_castps_si512(_mm512_or_ps(v[2 * k], v[2 * k + 1])), stream);
}

/* ---- The loops ------------------------------------------------------------------------------ */

enum spread { WHOLE, BLOCKS, EACH };

/* One scale, zero or offset: that of all, or those of elements i + 16 * k to + 15. */
INLINE __m512 parameter(__m512 whole, const float *from, size_t i, size_t k, unsigned shift,
                        enum spread spread)
{
    if (spread == WHOLE)
        return whole;
    if (spread == EACH)
        return _mm512_loadu_ps(from + i + 16 * k);
    return _mm512_set1_ps(from[(i + k / 2 * 32) >> shift]);
}

/* Of all. */
struct parameters {
    __m512 zero; /* also where there is none */
    __m512 scale;
    __m512 offset;
};

INLINE void compute(struct values *y, const struct qk_dequantize_args *args,
                    const struct parameters *whole, subtract_fn *minus, size_t i,
                    enum spread spread)
{
    const enum spread zeros_spread = args->zeros ? spread : WHOLE;
    const unsigned shift = args->shift;
    if (zeros_spread == WHOLE)
        for (size_t k = 0; k < 4; k++)
            y->v[k] = minus(y->v[k], whole->zero);
    else
        for (size_t k = 0; k < 4; k++)
            y->v[k] = minus(y->v[k], parameter(whole->zero, args->zeros, i, k, shift, spread));
    for (size_t k = 0; k < 4; k++)
        y->v[k] =
            _mm512_mul_ps(y->v[k], parameter(whole->scale, args->scales, i, k, shift, spread));
    if (args->offsets)
        for (size_t k = 0; k < 4; k++)
            y->v[k] = _mm512_add_ps(y->v[k],
                                    parameter(whole->offset, args->offsets, i, k, shift, spread));
}

/* Makes results of a table's values, once for all. */
INLINE void finish_table(struct codes *codes, const struct parameters *p, enum qk_type y_type)
{
    const __m512 y =
        _mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(codes->even, p->zero), p->scale), p->offset);
    __m512i halves = _mm512_castps_si512(y);
    if (y_type == QK_FP16)
        halves = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(y, NEAREST));
    else if (y_type == QK_BF16)
        halves = _mm512_srli_epi32(round_bf16(y), 16);
    codes->even = _mm512_castsi512_ps(halves);
    codes->odd = y_type == QK_FP32 ? y : _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
}

/* The last step begins early, and does again what has been done. */
INLINE void loop(struct qk_dequantize_args args, struct codes codes, unsigned bits, float raised,
                 read_fn *read, subtract_fn *minus, enum qk_type y_type, enum spread spread)
{
    const bool finished = spread == WHOLE && bits < 8;
    const bool pairs = y_type == QK_BF16 && spread != EACH && bits < 32;
    const enum result result = y_type == QK_FP32   ? RESULT_FP32
                               : finished          ? RESULT_HALVES
                               : y_type == QK_FP16 ? RESULT_FP16
                               : pairs             ? RESULT_BF16_PAIRS
                                                   : RESULT_BF16;
    const size_t x_step = QK_STEP * bits / 8;
    const size_t y_step = QK_STEP * (y_type == QK_FP32 ? 4 : 2);
    const size_t rest = args.count % QK_STEP;
    const struct parameters whole = {
        _mm512_set1_ps(args.zeros && spread == WHOLE ? *(const float *)args.zeros : raised),
        _mm512_set1_ps(args.scales[0]), _mm512_set1_ps(args.offsets ? args.offsets[0] : -0.0F)};
    const uint8_t *x = args.x;
    char *y = args.y;
    bool stream = args.stream && (uintptr_t)y % 64 == 0;
    if (finished)
        finish_table(&codes, &whole, y_type);
    for (size_t i = 0, end = args.count - rest;; end = args.count) {
        for (; i < end; i += QK_STEP, x += x_step, y += y_step) {
            struct values values = read(&codes, x, pairs || result == RESULT_HALVES);
            if (!finished)
                compute(&values, &args, &whole, minus, i, spread);
            if (stream)
                store(y, &values, result, true);
            else
                store(y, &values, result, false);
        }
        if (i == args.count)
            break;
        stream = false;
        i -= QK_STEP - rest;
        x -= x_step - rest * bits / 8;
        y -= y_step - rest * y_step / QK_STEP;
    }
}

/* A loop for each way to spread the parameters. */
INLINE void loops_of(const struct qk_dequantize_args *args, unsigned bits, float raised,
                     read_fn *read, subtract_fn *minus, enum qk_type y_type)
{
    struct codes codes = {0};
    if (args->table) {
        codes.even = codes.odd = _mm512_loadu_ps(args->table->values);
        codes.low[0] = _mm512_loadu_si512(args->table->halves[0]);
        codes.low[1] = _mm512_loadu_si512(args->table->halves[0] + 64);
        codes.high[0] = _mm512_loadu_si512(args->table->halves[1]);
        codes.high[1] = _mm512_loadu_si512(args->table->halves[1] + 64);
        codes.code_128_is_nan = args->table->values[128] != args->table->values[128];
    }
    if (args->shift == QK_SHIFT_WHOLE)
        loop(*args, codes, bits, raised, read, minus, y_type, WHOLE);
    else if (args->shift == QK_SHIFT_EACH)
        loop(*args, codes, bits, raised, read, minus, y_type, EACH);
    else
        loop(*args, codes, bits, raised, read, minus, y_type, BLOCKS);
}

/* One loop for each type of y. */
INLINE void loops(const struct qk_dequantize_args *args, unsigned bits, float raised, read_fn *read,
                  subtract_fn *minus)
{
    if (args->y_type == QK_FP32)
        loops_of(args, bits, raised, read, minus, QK_FP32);
    else if (args->y_type == QK_FP16)
        loops_of(args, bits, raised, read, minus, QK_FP16);
    else
        loops_of(args, bits, raised, read, minus, QK_BF16);
}

/* ---- The kernels ---------------------------------------------------------------------------- */

static void u8(const struct qk_dequantize_args *args)
{
    loops(args, 8, QK_RAISE_U8, read_u8, subtract);
}

static void s8(const struct qk_dequantize_args *args)
{
    loops(args, 8, QK_RAISE_S8, read_s8, subtract);
}

static void u16(const struct qk_dequantize_args *args)
{
    loops(args, 16, 0, read_u16, subtract);
}

static void s16(const struct qk_dequantize_args *args)
{
    loops(args, 16, 0, read_s16, subtract);
}

static void bits2(const struct qk_dequantize_args *args)
{
    loops(args, 2, 0, read_bits2, subtract);
}

static void bits4(const struct qk_dequantize_args *args)
{
    loops(args, 4, 0, read_bits4, subtract);
}

static void float8(const struct qk_dequantize_args *args)
{
    loops(args, 8, 0, read_float8, subtract_none);
}

static void s32(const struct qk_dequantize_args *args)
{
    loops(args, 32, 0, read_s32, subtract);
}

static void s32_recast(const struct qk_dequantize_args *args)
{
    loops(args, 32, 0, read_s32_recast, subtract);
}

static void s32_wrapped(const struct qk_dequantize_args *args)
{
    loops(args, 32, 0, read_32, subtract_wrapping);
}

static void s32_exact(const struct qk_dequantize_args *args)
{
    loops(args, 32, 0, read_32, subtract_s32);
}

static void u32_exact(const struct qk_dequantize_args *args)
{
    loops(args, 32, 0, read_32, subtract_u32);
}

static void finish(void)
{
    _mm_sfence();
}

void qk_dequantize_init_avx512(struct qk_dequantize_kernels *kernels)
{
    *kernels = (struct qk_dequantize_kernels){
        .name = "dequantize_avx512",
        .run = {[QK_CODE_U8] = u8,
                [QK_CODE_S8] = s8,
                [QK_CODE_U16] = u16,
                [QK_CODE_S16] = s16,
                [QK_CODE_BITS2] = bits2,
                [QK_CODE_BITS4] = bits4,
                [QK_CODE_FLOAT8] = float8,
                [QK_CODE_S32] = s32,
                [QK_CODE_S32_RECAST] = s32_recast,
                [QK_CODE_S32_WRAPPED] = s32_wrapped,
                [QK_CODE_S32_EXACT] = s32_exact,
                [QK_CODE_U32_EXACT] = u32_exact},
        .finish = finish,
        .element_ps = 60,
    };
}

#endif
