#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx512.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX512VBMI__

#include <immintrin.h>
#include <math.h>

/* From here on a block of float8s pays for a table of its results. */
#define FLOAT8_TABLE_MIN 512

/* How far ahead of a stream x is fetched. */
#define PREFETCH_BYTES 2048

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

typedef __m512 subtract_fn(__m512 value, __m512 zero);

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

INLINE __m256i low_words(__m512 value)
{
    return _mm512_castsi512_si256(_mm512_castps_si512(value));
}

INLINE __m256i high_words(__m512 value)
{
    return _mm512_extracti64x4_epi64(_mm512_castps_si512(value), 1);
}

/* Doubles hold the differences, which are rounded once. */
INLINE __m512 difference(__m512d a, __m512d b, __m512d zero_a, __m512d zero_b)
{
    const __m256 low = _mm512_cvtpd_ps(_mm512_sub_pd(a, zero_a));
    const __m256 high = _mm512_cvtpd_ps(_mm512_sub_pd(b, zero_b));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

INLINE __m512 subtract_s32(__m512 value, __m512 zero)
{
    return difference(_mm512_cvtepi32_pd(low_words(value)), _mm512_cvtepi32_pd(high_words(value)),
                      _mm512_cvtepi32_pd(low_words(zero)), _mm512_cvtepi32_pd(high_words(zero)));
}

INLINE __m512 subtract_u32(__m512 value, __m512 zero)
{
    return difference(_mm512_cvtepu32_pd(low_words(value)), _mm512_cvtepu32_pd(high_words(value)),
                      _mm512_cvtepu32_pd(low_words(zero)), _mm512_cvtepu32_pd(high_words(zero)));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* bits + 0x7fff + the lowest bit that stays, in one multiplication of halves: ties to even. Never
 * VCVTNEPS2BF16, which makes zeros of subnormals. NaNs are canonical already. */
INLINE __m512i round_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest =
        _mm512_ternarylogic_epi32(bits, _mm512_set1_epi32(0x10000), _mm512_set1_epi32(1), 0xea);
    return _mm512_dpwssd_epi32(bits, lowest, _mm512_set1_epi32(0x17fff));
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

/* The halves of words. */
INLINE __m512i join(__m512 low, __m512 high)
{
    return _mm512_castps_si512(_mm512_or_ps(low, high));
}

/* How a step is stored. Streams leave out what the step before has stored, in whole lines: twice
 * costs much. */
struct how {
    bool stream;
    size_t stored; /* bytes of y at the step's beginning */
};

INLINE void store_512(char *y, size_t at, __m512i v, struct how how)
{
    if (!how.stream)
        _mm512_storeu_si512(y + at, v);
    else if (at >= how.stored)
        _mm512_stream_si512((__m512i *)(y + at), v);
}

/* NaNs stay canonical. Two stores cost less than putting halves together, but not as streams. */
INLINE void store_fp16(char *y, size_t at, __m512 a, __m512 b, struct how how)
{
    const __m256i low = _mm512_cvtps_ph(a, NEAREST);
    const __m256i high = _mm512_cvtps_ph(b, NEAREST);
    if (how.stream) {
        store_512(y, at, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), how);
    } else {
        _mm256_storeu_si256((__m256i *)(y + at), low);
        _mm256_storeu_si256((__m256i *)(y + at + 32), high);
    }
}

/* What the values of a step are yet to become. */
enum result {
    RESULT_FP32,
    RESULT_FP16,
    RESULT_BF16,
    RESULT_BF16_PAIRS,
    RESULT_HALVES /* nothing: the even ones are lower halves, the odd ones upper halves of words */
};

INLINE void store(char *y, struct values v, enum result result, struct how how)
{
    switch (result) {
    case RESULT_FP32:
        store_512(y, 0, _mm512_castps_si512(v.a), how);
        store_512(y, 64, _mm512_castps_si512(v.b), how);
        store_512(y, 128, _mm512_castps_si512(v.c), how);
        store_512(y, 192, _mm512_castps_si512(v.d), how);
        break;
    case RESULT_FP16:
        store_fp16(y, 0, v.a, v.b, how);
        store_fp16(y, 64, v.c, v.d, how);
        break;
    case RESULT_BF16:
    case RESULT_BF16_PAIRS:
        store_512(y, 0, pack_bf16(v.a, v.b, result == RESULT_BF16_PAIRS), how);
        store_512(y, 64, pack_bf16(v.c, v.d, result == RESULT_BF16_PAIRS), how);
        break;
    case RESULT_HALVES:
        store_512(y, 0, join(v.a, v.b), how);
        store_512(y, 64, join(v.c, v.d), how);
    }
}

INLINE void store_step(char *y, struct values v, enum result result, struct how how)
{
    if (__builtin_expect(how.stream, false)) /* then memory sets the pace */
        store(y, v, result, (struct how){true, how.stored});
    else
        store(y, v, result, (struct how){false, 0});
}

/* ---- The loops ------------------------------------------------------------------------------ */

/* Where the last step of `count` elements begins, which does again some of those before i. */
INLINE size_t begin_early(size_t i, size_t count, size_t y_bytes, struct how *how)
{
    how->stream = how->stream && count * y_bytes % 64 == 0;
    how->stored = (i + QK_STEP - count) * y_bytes;
    return count - QK_STEP;
}

/* How a kernel reads x, and what it makes of it: constants all. */
struct kernel {
    unsigned bits;
    float raised;
    struct values (*read)(const struct codes *codes, const uint8_t *x, bool pairs);
    subtract_fn *minus;
};

/* One of each, for all lanes. */
struct parameters {
    __m512 zero; /* also where there is none */
    __m512 scale;
    __m512 offset;
};

INLINE struct parameters parameters_at(const struct qk_dequantize_args *args, size_t p,
                                       float raised)
{
    return (struct parameters){
        _mm512_set1_ps(args->zeros ? ((const float *)args->zeros)[p] : raised),
        _mm512_set1_ps(args->scales[p]), _mm512_set1_ps(args->offsets ? args->offsets[p] : -0.0F)};
}

INLINE __m512 compute_one(__m512 value, const struct parameters *p, subtract_fn *minus,
                          bool has_offset)
{
    const __m512 product = _mm512_mul_ps(minus(value, p->zero), p->scale);
    return has_offset ? _mm512_add_ps(product, p->offset) : product;
}

INLINE struct values compute(struct values v, const struct parameters *p, subtract_fn *minus,
                             bool has_offset)
{
    return (struct values){
        compute_one(v.a, p, minus, has_offset), compute_one(v.b, p, minus, has_offset),
        compute_one(v.c, p, minus, has_offset), compute_one(v.d, p, minus, has_offset)};
}

/* Makes results of a table's values, once for all. */
INLINE struct codes finish_table(struct codes codes, const struct parameters *p,
                                 enum qk_type y_type)
{
    const __m512 y = compute_one(codes.even, p, subtract, true);
    __m512i halves = _mm512_castps_si512(y);
    if (y_type == QK_FP16)
        halves = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(y, NEAREST));
    else if (y_type == QK_BF16)
        halves = _mm512_srli_epi32(round_bf16(y), 16);
    codes.even = _mm512_castsi512_ps(halves);
    codes.odd = y_type == QK_FP32 ? y : _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
    return codes;
}

/* The processor's own prefetching ends with each page. `x` may be near the end of its tensor: what
 * is not there is not fetched. */
INLINE void prefetch(const uint8_t *x, unsigned bits)
{
    for (size_t k = 0; k < QK_STEP * bits / 8; k += 64)
        _mm_prefetch((const char *)x + PREFETCH_BYTES + k, _MM_HINT_T0);
}

/* Sixteen results of float8s, of codes `from` and on. */
INLINE __m256i finish_float8(const struct qk_code_table *table, size_t from, __m512 scale,
                             enum qk_type y_type)
{
    const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(table->values + from), scale);
    return y_type == QK_FP16 ? _mm512_cvtps_ph(y, NEAREST)
                             : _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(y), 16));
}

/* A block of float8s whose results are all in a table: as many as there are codes, and the negative
 * ones but for the sign those of the others. That takes a scale under which all but NaNs become
 * numbers, and which is none itself. */
INLINE void loop_float8(const struct qk_dequantize_args *args, struct codes codes, size_t done,
                        size_t block, float scale, enum qk_type y_type, struct how how)
{
    const __m512 scales = _mm512_set1_ps(scale);
    for (size_t k = 0; k < 4; k++) {
        const __m512i words = _mm512_inserti64x4(
            _mm512_castsi256_si512(finish_float8(args->table, 32 * k, scales, y_type)),
            finish_float8(args->table, 32 * k + 16, scales, y_type), 1);
        const __m256i low = _mm512_cvtepi16_epi8(words);
        const __m256i high = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8));
        codes.low[k / 2] =
            k % 2 ? _mm512_inserti64x4(codes.low[k / 2], low, 1) : _mm512_castsi256_si512(low);
        codes.high[k / 2] =
            k % 2 ? _mm512_inserti64x4(codes.high[k / 2], high, 1) : _mm512_castsi256_si512(high);
    }
    if (y_type == QK_FP16) {
        codes.nan_low = _mm512_setzero_si512();
        codes.nan_high = _mm512_set1_epi8((char)0xfe);
    }
    const uint8_t *x = (const uint8_t *)args->x + done;
    char *y = (char *)args->y + done * 2;
    for (size_t i = 0; i < block; i += QK_STEP) {
        if (i + QK_STEP > block)
            i = begin_early(i, block, 2, &how);
        __m512i words[2];
        if (how.stream)
            prefetch(x + i, 8);
        look_up_bytes(&codes, x + i, true, words);
        store_512(y + i * 2, 0, words[0], how);
        store_512(y + i * 2, 64, words[1], how);
    }
}

/* One block after the other, or one. The last step of each begins early, and does again what has
 * been done. */
INLINE void loop_long(const struct qk_dequantize_args *args, const struct codes *codes,
                      const struct kernel kernel, enum qk_type y_type)
{
    const bool finished = kernel.bits < 8;
    const bool pairs = kernel.bits < 32 && (y_type == QK_BF16 || (finished && y_type == QK_FP16));
    const enum result result = y_type == QK_FP32   ? RESULT_FP32
                               : finished          ? RESULT_HALVES
                               : y_type == QK_FP16 ? RESULT_FP16
                               : pairs             ? RESULT_BF16_PAIRS
                                                   : RESULT_BF16;
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const size_t count = args->count;
    const size_t block = args->block < count ? args->block : count;
    const bool has_offset = args->offsets;
    const bool can_stream = args->stream && (uintptr_t)args->y % 64 == 0 &&
                            (block == count || block * y_bytes % 64 == 0);
    for (size_t done = 0, p = 0; done < count; done += block, p++) {
        if (kernel.read == read_float8 && y_type != QK_FP32 && block >= FLOAT8_TABLE_MIN &&
            isnormal(args->scales[p]) && !has_offset) {
            loop_float8(args, *codes, done, block, args->scales[p], y_type,
                        (struct how){can_stream, 0});
            continue;
        }
        const struct parameters parameters = parameters_at(args, p, kernel.raised);
        const struct codes table = finished ? finish_table(*codes, &parameters, y_type) : *codes;
        const uint8_t *x = (const uint8_t *)args->x + done * kernel.bits / 8;
        char *y = (char *)args->y + done * y_bytes;
        struct how how = {can_stream, 0};
        for (size_t i = 0; i < block; i += QK_STEP) {
            if (i + QK_STEP > block)
                i = begin_early(i, block, y_bytes, &how);
            if (how.stream)
                prefetch(x + i * kernel.bits / 8, kernel.bits);
            struct values v = kernel.read(&table, x + i * kernel.bits / 8, pairs);
            if (!finished)
                v = compute(v, &parameters, kernel.minus, has_offset);
            store_step(y + i * y_bytes, v, result, how);
        }
    }
}

enum blocks {
    BLOCKS_OF_1,
    BLOCKS_OF_32,
    BLOCKS_OF_64 /* or 128, 2^shift */
};

/* The parameters of elements from i on, in order. */
INLINE struct values load(const float *from, size_t i, unsigned shift, enum blocks blocks)
{
    if (blocks == BLOCKS_OF_1)
        return (struct values){_mm512_loadu_ps(from + i), _mm512_loadu_ps(from + i + 16),
                               _mm512_loadu_ps(from + i + 32), _mm512_loadu_ps(from + i + 48)};
    const __m512 first = _mm512_set1_ps(from[i >> (blocks == BLOCKS_OF_32 ? 5 : shift)]);
    const __m512 second = blocks == BLOCKS_OF_32 ? _mm512_set1_ps(from[(i >> 5) + 1]) : first;
    return (struct values){first, first, second, second};
}

INLINE struct values compute_varied(struct values v, const struct qk_dequantize_args *args,
                                    const struct kernel kernel, size_t i, unsigned shift,
                                    enum blocks blocks)
{
    const __m512 raised = _mm512_set1_ps(kernel.raised);
    struct values p = {raised, raised, raised, raised};
    if (args->zeros)
        p = load(args->zeros, i, shift, blocks);
    v = (struct values){kernel.minus(v.a, p.a), kernel.minus(v.b, p.b), kernel.minus(v.c, p.c),
                        kernel.minus(v.d, p.d)};
    p = load(args->scales, i, shift, blocks);
    v = (struct values){_mm512_mul_ps(v.a, p.a), _mm512_mul_ps(v.b, p.b), _mm512_mul_ps(v.c, p.c),
                        _mm512_mul_ps(v.d, p.d)};
    if (args->offsets) {
        p = load(args->offsets, i, shift, blocks);
        v = (struct values){_mm512_add_ps(v.a, p.a), _mm512_add_ps(v.b, p.b),
                            _mm512_add_ps(v.c, p.c), _mm512_add_ps(v.d, p.d)};
    }
    return v;
}

/* Parameters that change within a step. */
INLINE void loop_varied(const struct qk_dequantize_args *args, const struct codes *codes,
                        const struct kernel kernel, enum qk_type y_type, enum blocks blocks)
{
    const bool pairs = kernel.bits < 32 && y_type == QK_BF16 && blocks != BLOCKS_OF_1;
    const enum result result = y_type == QK_FP32   ? RESULT_FP32
                               : y_type == QK_FP16 ? RESULT_FP16
                               : pairs             ? RESULT_BF16_PAIRS
                                                   : RESULT_BF16;
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const struct qk_dequantize_args a = *args;
    const unsigned shift = (unsigned)__builtin_ctzll(a.block);
    const uint8_t *x = a.x;
    char *y = a.y;
    struct how how = {a.stream && (uintptr_t)y % 64 == 0, 0};
    for (size_t i = 0; i < a.count; i += QK_STEP) {
        if (i + QK_STEP > a.count)
            i = begin_early(i, a.count, y_bytes, &how);
        if (how.stream)
            prefetch(x + i * kernel.bits / 8, kernel.bits);
        struct values v = kernel.read(codes, x + i * kernel.bits / 8, pairs);
        v = compute_varied(v, &a, kernel, i, shift, blocks);
        store_step(y + i * y_bytes, v, result, how);
    }
}

/* Member by member: clearing all of it, as an initializer would, waits for streams to end. */
INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    const __m512i none = _mm512_setzero_si512();
    const __m512 values = table ? _mm512_loadu_ps(table->values) : _mm512_setzero_ps();
    if (!table || bits < 8)
        return (struct codes){values, values, {none, none}, {none, none}, none, none, false};
    const uint8_t *low = table->halves[0];
    const uint8_t *high = table->halves[1];
    return (struct codes){values,
                          values,
                          {_mm512_loadu_si512(low), _mm512_loadu_si512(low + 64)},
                          {_mm512_loadu_si512(high), _mm512_loadu_si512(high + 64)},
                          _mm512_set1_epi8((char)0xc0),
                          _mm512_set1_epi8((char)0xff),
                          isnan(table->values[128])};
}

/* Loops for each way in which parameters change. */
INLINE void loops_to(const struct qk_dequantize_args *args, const struct kernel kernel,
                     enum qk_type y_type)
{
    const struct codes codes = load_codes(args->table, kernel.bits);
    if (args->block == 1)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_1);
    else if (args->block < args->count && args->block == 32)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_32);
    else if (args->block < args->count && (args->block == 64 || args->block == 128) &&
             kernel.bits >= 8) /* for less, finishing tables takes less */
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_64);
    else
        loop_long(args, &codes, kernel, y_type);
}

/* Loops for each type of y. */
INLINE void loops(const struct qk_dequantize_args *args, const struct kernel kernel)
{
    if (args->y_type == QK_FP32)
        loops_to(args, kernel, QK_FP32);
    else if (args->y_type == QK_FP16)
        loops_to(args, kernel, QK_FP16);
    else
        loops_to(args, kernel, QK_BF16);
}

/* ---- The kernels ---------------------------------------------------------------------------- */

static void u8(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){8, QK_RAISE_U8, read_u8, subtract});
}

static void s8(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){8, QK_RAISE_S8, read_s8, subtract});
}

static void u16(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){16, QK_RAISE_U16, read_u16, subtract});
}

static void s16(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){16, QK_RAISE_S16, read_s16, subtract});
}

static void bits2(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){2, 0, read_bits2, subtract});
}

static void bits4(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){4, 0, read_bits4, subtract});
}

static void float8(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){8, 0, read_float8, subtract_none});
}

static void s32(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){32, 0, read_s32, subtract});
}

static void s32_recast(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){32, 0, read_s32_recast, subtract});
}

static void s32_wrapped(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){32, 0, read_32, subtract_wrapping});
}

static void s32_exact(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){32, 0, read_32, subtract_s32});
}

static void u32_exact(const struct qk_dequantize_args *args)
{
    loops(args, (struct kernel){32, 0, read_32, subtract_u32});
}

static void finish(void)
{
    _mm_sfence();
}

static void fill(uint32_t *to, uint32_t value, size_t count)
{
    const __m512i values = _mm512_set1_epi32((int32_t)value);
    for (size_t i = 0; i < count; i += 16)
        _mm512_storeu_si512(to + i, values);
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
        .fill = fill,
        .element_ps = 60,
    };
}

#endif
