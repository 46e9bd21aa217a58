#include "kernels/dequantize/dequantize.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX2__

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Elements. */
#define STEP ((size_t)32)

/* A step's elements, 8 in each vector, in order. */
struct values {
    __m256 a, b, c, d;
};

/* What reading needs of the table. */
struct codes {
    const float *all;
    __m256 low;  /* the values of the first 8 codes */
    __m256 high; /* and of the next 8 */
};

typedef __m256 subtract_fn(__m256 value, __m256 zero);

/* ---- Reading x ------------------------------------------------------------------------------ */

INLINE __m256i bytes(const uint8_t *x)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
}

INLINE __m256i words(const uint8_t *x)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
}

/* 2^23 + x: small integers are the lowest bits of floats from 2^23 on, where the last bit is 1. The
 * sign bit of signed ones, if they have one, is turned. */
INLINE __m256 raise(__m256i integers, int sign)
{
    return _mm256_castsi256_ps(_mm256_xor_si256(integers, _mm256_set1_epi32(0x4b000000 | sign)));
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){raise(bytes(x), 0), raise(bytes(x + 8), 0), raise(bytes(x + 16), 0),
                           raise(bytes(x + 24), 0)};
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){raise(bytes(x), 0x80), raise(bytes(x + 8), 0x80),
                           raise(bytes(x + 16), 0x80), raise(bytes(x + 24), 0x80)};
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){raise(words(x), 0), raise(words(x + 16), 0), raise(words(x + 32), 0),
                           raise(words(x + 48), 0)};
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){raise(words(x), 0x8000), raise(words(x + 16), 0x8000),
                           raise(words(x + 32), 0x8000), raise(words(x + 48), 0x8000)};
}

/* Bit 3 chooses between two tables, of which a permutation reads the lowest 3 bits. */
INLINE __m256 look_up_4(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    int32_t bits;
    memcpy(&bits, x, sizeof(bits));
    const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(codes->low, indices),
                            _mm256_permutevar8x32_ps(codes->high, indices),
                            _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x)
{
    return (struct values){look_up_4(codes, x), look_up_4(codes, x + 4), look_up_4(codes, x + 8),
                           look_up_4(codes, x + 12)};
}

INLINE __m256 look_up_2(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    uint16_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm256_permutevar8x32_ps(codes->low,
                                    _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances));
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x)
{
    return (struct values){look_up_2(codes, x), look_up_2(codes, x + 2), look_up_2(codes, x + 4),
                           look_up_2(codes, x + 6)};
}

INLINE __m256 gather(const struct codes *codes, const uint8_t *x)
{
    return _mm256_i32gather_ps(codes->all, bytes(x), 4);
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x)
{
    return (struct values){gather(codes, x), gather(codes, x + 8), gather(codes, x + 16),
                           gather(codes, x + 24)};
}

INLINE __m256i load_words(const uint8_t *x)
{
    return _mm256_loadu_si256((const __m256i *)x);
}

/* As it is. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){
        _mm256_castsi256_ps(load_words(x)), _mm256_castsi256_ps(load_words(x + 32)),
        _mm256_castsi256_ps(load_words(x + 64)), _mm256_castsi256_ps(load_words(x + 96))};
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x)
{
    (void)codes;
    return (struct values){
        _mm256_cvtepi32_ps(load_words(x)), _mm256_cvtepi32_ps(load_words(x + 32)),
        _mm256_cvtepi32_ps(load_words(x + 64)), _mm256_cvtepi32_ps(load_words(x + 96))};
}

INLINE __m256 recast(__m256 value)
{
    const __m256 is_end = _mm256_cmp_ps(value, _mm256_set1_ps(0x1p31F), _CMP_EQ_OQ);
    return _mm256_or_ps(value, _mm256_and_ps(is_end, _mm256_set1_ps(-0.0F)));
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x)
{
    const struct values v = read_s32(codes, x);
    return (struct values){recast(v.a), recast(v.b), recast(v.c), recast(v.d)};
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

INLINE __m256d low_doubles(__m256 integers)
{
    return _mm256_cvtepi32_pd(_mm256_castsi256_si128(_mm256_castps_si256(integers)));
}

INLINE __m256d high_doubles(__m256 integers)
{
    return _mm256_cvtepi32_pd(_mm256_extracti128_si256(_mm256_castps_si256(integers), 1));
}

/* Doubles hold the differences, which are rounded once. */
INLINE __m256 subtract_s32(__m256 value, __m256 zero)
{
    const __m128 low = _mm256_cvtpd_ps(_mm256_sub_pd(low_doubles(value), low_doubles(zero)));
    const __m128 high = _mm256_cvtpd_ps(_mm256_sub_pd(high_doubles(value), high_doubles(zero)));
    return _mm256_set_m128(high, low);
}

/* Both less 2^31, which makes no difference. */
INLINE __m256 subtract_u32(__m256 value, __m256 zero)
{
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return subtract_s32(_mm256_xor_ps(value, sign), _mm256_xor_ps(zero, sign));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* The upper half, rounded. NaNs are canonical already. With the lowest bit that stays added to
 * those that go, ties are to even. */
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

/* NaNs stay canonical. */
INLINE __m256i pack_fp16(__m256 a, __m256 b)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void store_256(char *y, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256((__m256i *)y, v);
    else
        _mm256_storeu_si256((__m256i *)y, v);
}

INLINE void store(char *y, struct values v, enum qk_type type, bool stream)
{
    switch (type) {
    case QK_FP16:
        store_256(y, pack_fp16(v.a, v.b), stream);
        store_256(y + 32, pack_fp16(v.c, v.d), stream);
        break;
    case QK_BF16:
        store_256(y, pack_bf16(v.a, v.b), stream);
        store_256(y + 32, pack_bf16(v.c, v.d), stream);
        break;
    default:
        store_256(y, _mm256_castps_si256(v.a), stream);
        store_256(y + 32, _mm256_castps_si256(v.b), stream);
        store_256(y + 64, _mm256_castps_si256(v.c), stream);
        store_256(y + 96, _mm256_castps_si256(v.d), stream);
    }
}

INLINE void store_step(char *y, struct values v, enum qk_type type, bool stream)
{
    if (__builtin_expect(stream, false)) /* then memory sets the pace */
        store(y, v, type, true);
    else
        store(y, v, type, false);
}

/* ---- The loops ------------------------------------------------------------------------------ */

/* How a kernel reads x, and what it makes of it: constants all. */
struct kernel {
    unsigned bits;
    float raised;
    struct values (*read)(const struct codes *codes, const uint8_t *x);
    subtract_fn *minus;
};

/* One of each, for all lanes. */
struct parameters {
    __m256 zero; /* also where there is none */
    __m256 scale;
    __m256 offset;
};

INLINE __m256 compute_one(__m256 value, const struct parameters *p, subtract_fn *minus,
                          bool has_offset)
{
    const __m256 product = _mm256_mul_ps(minus(value, p->zero), p->scale);
    return has_offset ? _mm256_add_ps(product, p->offset) : product;
}

INLINE struct values compute(struct values v, const struct parameters *p, subtract_fn *minus,
                             bool has_offset)
{
    return (struct values){
        compute_one(v.a, p, minus, has_offset), compute_one(v.b, p, minus, has_offset),
        compute_one(v.c, p, minus, has_offset), compute_one(v.d, p, minus, has_offset)};
}

/* Where the last step of `count` elements begins, which does again some of those before. */
INLINE size_t begin_early(size_t count, size_t y_bytes, bool *stream)
{
    *stream = *stream && count * y_bytes % 64 == 0;
    return count - STEP;
}

/* One block after the other, or one. */
INLINE void loop_long(const struct qk_dequantize_args *args, const struct codes *codes,
                      const struct kernel kernel, enum qk_type y_type)
{
    const bool finished = kernel.bits < 8; /* tables, of results once for all */
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const size_t count = args->count;
    const size_t block = args->block < count ? args->block : count;
    const bool has_offset = args->offsets;
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
            table.low = compute_one(codes->low, &p, subtract, true);
            table.high = compute_one(codes->high, &p, subtract, true);
        }
        for (size_t i = 0; i < block; i += STEP) {
            if (i + STEP > block)
                i = begin_early(block, y_bytes, &stream);
            struct values v = kernel.read(&table, x + i * kernel.bits / 8);
            if (!finished)
                v = compute(v, &p, kernel.minus, has_offset);
            store_step(y + i * y_bytes, v, y_type, stream);
        }
    }
}

enum blocks {
    BLOCKS_OF_1,
    BLOCKS_OF_32 /* or 64 or 128, 2^shift */
};

/* The parameters of elements from i on, in order. */
INLINE struct values load(const float *from, size_t i, unsigned shift, enum blocks blocks)
{
    if (blocks == BLOCKS_OF_1)
        return (struct values){_mm256_loadu_ps(from + i), _mm256_loadu_ps(from + i + 8),
                               _mm256_loadu_ps(from + i + 16), _mm256_loadu_ps(from + i + 24)};
    const __m256 one = _mm256_set1_ps(from[i >> shift]);
    return (struct values){one, one, one, one};
}

INLINE struct values compute_varied(struct values v, const struct qk_dequantize_args *args,
                                    const struct kernel kernel, size_t i, unsigned shift,
                                    enum blocks blocks)
{
    const __m256 raised = _mm256_set1_ps(kernel.raised);
    struct values p = {raised, raised, raised, raised};
    if (args->zeros)
        p = load(args->zeros, i, shift, blocks);
    v = (struct values){kernel.minus(v.a, p.a), kernel.minus(v.b, p.b), kernel.minus(v.c, p.c),
                        kernel.minus(v.d, p.d)};
    p = load(args->scales, i, shift, blocks);
    v = (struct values){_mm256_mul_ps(v.a, p.a), _mm256_mul_ps(v.b, p.b), _mm256_mul_ps(v.c, p.c),
                        _mm256_mul_ps(v.d, p.d)};
    if (args->offsets) {
        p = load(args->offsets, i, shift, blocks);
        v = (struct values){_mm256_add_ps(v.a, p.a), _mm256_add_ps(v.b, p.b),
                            _mm256_add_ps(v.c, p.c), _mm256_add_ps(v.d, p.d)};
    }
    return v;
}

/* Parameters for each element or few. */
INLINE void loop_varied(const struct qk_dequantize_args *args, const struct codes *codes,
                        const struct kernel kernel, enum qk_type y_type, enum blocks blocks)
{
    const size_t y_bytes = y_type == QK_FP32 ? 4 : 2;
    const struct qk_dequantize_args a = *args;
    const unsigned shift = (unsigned)__builtin_ctzll(a.block);
    const uint8_t *x = a.x;
    char *y = a.y;
    bool stream = a.stream && (uintptr_t)y % 64 == 0;
    for (size_t i = 0; i < a.count; i += STEP) {
        if (i + STEP > a.count)
            i = begin_early(a.count, y_bytes, &stream);
        struct values v = kernel.read(codes, x + i * kernel.bits / 8);
        v = compute_varied(v, &a, kernel, i, shift, blocks);
        store_step(y + i * y_bytes, v, y_type, stream);
    }
}

/* Loops for each way in which parameters change. */
INLINE void loops_to(const struct qk_dequantize_args *args, const struct kernel kernel,
                     enum qk_type y_type)
{
    const bool is_power_of_two = (args->block & (args->block - 1)) == 0;
    const __m256 none = _mm256_setzero_ps();
    struct codes codes = {NULL, none, none};
    if (args->table) {
        codes.all = args->table->values;
        codes.low = _mm256_loadu_ps(args->table->values);
        codes.high = _mm256_loadu_ps(args->table->values + 8);
    }
    if (args->block == 1)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_1);
    else if (args->block < args->count && args->block <= 128 && is_power_of_two)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_32);
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
    const __m256i values = _mm256_set1_epi32((int32_t)value);
    for (size_t i = 0; i < count; i += 8)
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
