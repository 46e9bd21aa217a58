#include "kernels/dequantize/dequantize.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX2__

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES 8
#define VECTORS (QK_STEP / LANES)

/* A step's 64 elements, in order. */
struct values {
    __m256 v[VECTORS];
};

/* What reading needs of the table. */
struct codes {
    const float *all;
    __m256 low;  /* the values of the first 8 codes */
    __m256 high; /* and of the next 8 */
};

typedef __m256 subtract_fn(__m256 value, __m256 zero);

/* ---- Reading x ------------------------------------------------------------------------------ */

/* 2^23 + x: small integers are the lowest bits of floats from 2^23 on, where the last bit is 1. */
INLINE __m256 raise(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_or_si256(words, _mm256_set1_epi32(0x4b000000)));
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x)
{
    struct values y;
    (void)codes;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = raise(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(x + 8 * k))));
    return y;
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x)
{
    const __m128i sign = _mm_set1_epi8(-128);
    struct values y;
    (void)codes;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = raise(_mm256_cvtepu8_epi32(
            _mm_xor_si128(_mm_loadl_epi64((const __m128i *)(x + 8 * k)), sign)));
    return y;
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x)
{
    struct values y;
    (void)codes;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = raise(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x + 16 * k))));
    return y;
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x)
{
    const __m128i sign = _mm_set1_epi16(-0x8000);
    struct values y;
    (void)codes;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = raise(_mm256_cvtepu16_epi32(
            _mm_xor_si128(_mm_loadu_si128((const __m128i *)(x + 16 * k)), sign)));
    return y;
}

/* Bit 3 chooses between two tables, of which a permutation reads the lowest 3 bits. */
INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    struct values y;
    for (size_t k = 0; k < VECTORS; k++) {
        int32_t bits;
        memcpy(&bits, x + 4 * k, sizeof(bits));
        const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances);
        y.v[k] = _mm256_blendv_ps(_mm256_permutevar8x32_ps(codes->low, indices),
                                  _mm256_permutevar8x32_ps(codes->high, indices),
                                  _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
    }
    return y;
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    struct values y;
    for (size_t k = 0; k < VECTORS; k++) {
        uint16_t bits;
        memcpy(&bits, x + 2 * k, sizeof(bits));
        const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances);
        y.v[k] = _mm256_permutevar8x32_ps(codes->low, indices);
    }
    return y;
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x)
{
    struct values y;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = _mm256_i32gather_ps(
            codes->all, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(x + 8 * k))), 4);
    return y;
}

/* As it is. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x)
{
    struct values y;
    (void)codes;
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(x + 32 * k)));
    return y;
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x)
{
    struct values y = read_32(codes, x);
    for (size_t k = 0; k < VECTORS; k++)
        y.v[k] = _mm256_cvtepi32_ps(_mm256_castps_si256(y.v[k]));
    return y;
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x)
{
    struct values y = read_s32(codes, x);
    const __m256 end = _mm256_set1_ps(0x1p31F);
    for (size_t k = 0; k < VECTORS; k++) {
        const __m256 sign =
            _mm256_and_ps(_mm256_cmp_ps(y.v[k], end, _CMP_EQ_OQ), _mm256_set1_ps(-0.0F));
        y.v[k] = _mm256_or_ps(y.v[k], sign);
    }
    return y;
}

/* ---- Zero points ---------------------------------------------------------------------------- */

INLINE __m256 subtract(__m256 value, __m256 zero)
{
    return _mm256_sub_ps(value, zero);
}

/* Floats have no zero points. */
INLINE __m256 subtract_none(__m256 value, __m256 zero)
{
    (void)zero;
    return value;
}

INLINE __m256 subtract_wrapping(__m256 value, __m256 zero)
{
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_castps_si256(value), _mm256_castps_si256(zero)));
}

INLINE __m256d double_of(__m256 value, int half)
{
    const __m256i words = _mm256_castps_si256(value);
    return _mm256_cvtepi32_pd(half ? _mm256_extracti128_si256(words, 1)
                                   : _mm256_castsi256_si128(words));
}

/* A double holds the difference, and rounds once. */
INLINE __m256 subtract_s32(__m256 value, __m256 zero)
{
    __m128 y[2];
    for (int i = 0; i < 2; i++)
        y[i] = _mm256_cvtpd_ps(_mm256_sub_pd(double_of(value, i), double_of(zero, i)));
    return _mm256_set_m128(y[1], y[0]);
}

/* Both less 2^31, which makes no difference. */
INLINE __m256 subtract_u32(__m256 value, __m256 zero)
{
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return subtract_s32(_mm256_xor_ps(value, sign), _mm256_xor_ps(zero, sign));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* NaNs are canonical already. Adding the lowest bit that stays to those that go makes the even one
 * of two win, and no carry of it. */
INLINE __m256i round_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_or_si256(bits, lowest), _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(rounded, 16);
}

INLINE __m256i pack_bf16(__m256 a, __m256 b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_bf16(a), round_bf16(b)), 0xd8);
}

/* The payload of a NaN stays, and so does the canonical one. */
INLINE __m256i pack_fp16(__m256 a, __m256 b)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void store_vector(void *y, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256(y, v);
    else
        _mm256_storeu_si256(y, v);
}

INLINE void store(void *y, const struct values *values, enum qk_type type, bool stream)
{
    const __m256 *v = values->v;
    __m256i *to = y;
    if (type == QK_FP32)
        for (size_t k = 0; k < VECTORS; k++)
            store_vector(to + k, _mm256_castps_si256(v[k]), stream);
    else if (type == QK_FP16)
        for (size_t k = 0; k < VECTORS / 2; k++)
            store_vector(to + k, pack_fp16(v[2 * k], v[2 * k + 1]), stream);
    else
        for (size_t k = 0; k < VECTORS / 2; k++)
            store_vector(to + k, pack_bf16(v[2 * k], v[2 * k + 1]), stream);
}

/* ---- The loops ------------------------------------------------------------------------------ */

/* One of each, for all lanes. */
struct parameters {
    __m256 zero; /* also where there is none */
    __m256 scale;
    __m256 offset;
};

/* How a kernel reads x, and what it makes of it: constants all. */
struct kernel {
    unsigned bits;
    float raised;
    struct values (*read)(const struct codes *codes, const uint8_t *x);
    subtract_fn *minus;
};

/* Those of 8 elements from i on. */
INLINE __m256 load(const float *from, size_t i, unsigned shift)
{
    return shift == 0 ? _mm256_loadu_ps(from + i) : _mm256_set1_ps(from[i >> shift]);
}

INLINE __m256 finish_values(__m256 values, const struct parameters *p)
{
    return _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(values, p->zero), p->scale), p->offset);
}

/* One block after the other. The last step of each begins early, and does again what has been
 * done. */
INLINE void loop_long(const struct qk_dequantize_args *args, const struct codes *codes,
                      const struct kernel kernel, enum qk_type y_type)
{
    const bool finished = kernel.bits < 8;
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const size_t count = args->count;
    const size_t block = args->block < count ? args->block : count;
    const bool can_stream = args->stream && (uintptr_t)args->y % 64 == 0 &&
                            (block == count || block * y_bytes % 64 == 0);
    for (size_t done = 0, at = 0; done < count; done += block, at++) {
        const struct parameters p = {
            _mm256_set1_ps(args->zeros ? ((const float *)args->zeros)[at] : kernel.raised),
            _mm256_set1_ps(args->scales[at]),
            _mm256_set1_ps(args->offsets ? args->offsets[at] : -0.0F)};
        const uint8_t *x = (const uint8_t *)args->x + done * kernel.bits / 8;
        char *y = (char *)args->y + done * y_bytes;
        struct codes table = *codes;
        bool stream = can_stream;
        if (finished) {
            table.low = finish_values(codes->low, &p);
            table.high = finish_values(codes->high, &p);
        }
        for (size_t i = 0; i < block; i += QK_STEP) {
            if (i + QK_STEP > block) {
                i = block - QK_STEP;
                stream = stream && block * y_bytes % 64 == 0;
            }
            struct values values = kernel.read(&table, x + i * kernel.bits / 8);
            for (size_t k = 0; !finished && k < VECTORS; k++)
                values.v[k] = _mm256_add_ps(
                    _mm256_mul_ps(kernel.minus(values.v[k], p.zero), p.scale), p.offset);
            store(y + i * y_bytes, &values, y_type, stream);
        }
    }
}

/* A parameter for each element, or for 32, 64 or 128. */
INLINE void loop_varied(const struct qk_dequantize_args *args, const struct codes *codes,
                        const struct kernel kernel, enum qk_type y_type)
{
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const struct qk_dequantize_args a = *args;
    const unsigned shift = (unsigned)__builtin_ctzll(a.block);
    const uint8_t *x = a.x;
    bool stream = a.stream && (uintptr_t)a.y % 64 == 0;
    for (size_t i = 0; i < a.count; i += QK_STEP) {
        if (i + QK_STEP > a.count) {
            i = a.count - QK_STEP;
            stream = false;
        }
        struct values values = kernel.read(codes, x + i * kernel.bits / 8);
        for (size_t k = 0; k < VECTORS; k++) {
            const size_t at = i + LANES * k;
            const __m256 zero = a.zeros ? load(a.zeros, at, shift) : _mm256_set1_ps(kernel.raised);
            values.v[k] = _mm256_mul_ps(kernel.minus(values.v[k], zero), load(a.scales, at, shift));
        }
        for (size_t k = 0; a.offsets && k < VECTORS; k++)
            values.v[k] = _mm256_add_ps(values.v[k], load(a.offsets, i + LANES * k, shift));
        store((char *)a.y + i * y_bytes, &values, y_type, stream);
    }
}

INLINE void loops_of(const struct qk_dequantize_args *args, const struct kernel kernel,
                     enum qk_type y_type)
{
    struct codes codes = {0};
    if (args->table) {
        codes.all = args->table->values;
        codes.low = _mm256_loadu_ps(args->table->values);
        codes.high = _mm256_loadu_ps(args->table->values + 8);
    }
    if (args->block < args->count && args->block <= 128 && (args->block & (args->block - 1)) == 0)
        loop_varied(args, &codes, kernel, y_type);
    else
        loop_long(args, &codes, kernel, y_type);
}

/* Loops for each type of y. */
INLINE void loops(const struct qk_dequantize_args *args, const struct kernel kernel)
{
    if (args->y_type == QK_FP32)
        loops_of(args, kernel, QK_FP32);
    else if (args->y_type == QK_FP16)
        loops_of(args, kernel, QK_FP16);
    else
        loops_of(args, kernel, QK_BF16);
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
    const __m256i values = _mm256_set1_epi32((int32_t)value);
    for (size_t i = 0; i < count; i += LANES)
        _mm256_storeu_si256((__m256i *)(to + i), values);
}

void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels)
{
    *kernels = (struct qk_dequantize_kernels){
        .name = "dequantize_avx2",
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
        .element_ps = 120,
    };
}

#endif
