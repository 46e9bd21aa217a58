/* The loops of the quantize kernels (quantize.h), which the vector tiers share. A tier's file
 * includes this after it has defined what differs: CHUNK, the elements of a chunk; LANES, those of
 * a vector; `vector`, `words` and `struct doubles` with their arithmetic; and stores of a chunk's
 * codes. Only for quantize_avx2.c, quantize_avx512bw.c and quantize_neon.c. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef CHUNK

#include "kernels/quantize/products.h"

/* How many bytes ahead x is prefetched if y is stored past the caches. */
#define PREFETCH_BYTES 2048

/* Quotients that become integers are clamped to this magnitude. Larger quotients saturate with any
 * zero point, and smaller ones can be rounded by an addition. */
#define LIMIT 0x1p21F

/* What the codes of a chunk are packed into, with saturation. A code is an element of y as a 32-bit
 * integer: the integer, or the bits of a small float. */
enum packing { PACK_U8, PACK_S8, PACK_U16, PACK_S16, PACK_4, PACK_2 };

/* ---- Summands of magnitude_code() ----------------------------------------------------------- */

#ifndef SUMMANDS /* otherwise the tier has a faster way to compute them */

struct summands {
    unsigned shift;
    words step; /* what does not depend on the magnitude */
};

INLINE struct summands summands_of(const struct qk_narrow *narrow)
{
    return (struct summands){narrow->shift,
                             splat_word((narrow->shift << 23) - (narrow->normal >> narrow->shift))};
}

/* Returns the summand of magnitude_code() for each magnitude: the bits of 2^(e + shift), plus the
 * code of 2^e less its count of steps. */
INLINE vector summand(const struct summands *summands, vector magnitude)
{
    const words exponent = and_words(words_of_vector(magnitude), splat_word(0x7f800000));
    const words code = shift_right(exponent, summands->shift);
    return vector_of_words(add_words(add_words(exponent, code), summands->step));
}

#endif

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* A call of the kernel: the constants that all its elements share. */
struct job {
    enum qk_type x_type;
    enum qk_division division;
    enum packing packing;
    unsigned x_bytes;
    unsigned y_bits;
    vector low, high;   /* the limits of quotients that become integers */
    int8_t least, most; /* the range of y's type, if it is an integer of less than 8 bits */
    bool floats;        /* y is a float type, and the members below are set */
    const struct qk_narrow *narrow;
    vector normal, cap; /* the least normal number, and the power of two above the largest number */
    struct summands summands;
    uint8_t largest, sign;
    bool zero_has_sign, saturates;
    bool has_small; /* true if y may depend on how a quotient below 2^-14, where FP16 is subnormal,
                       was rounded */
};

INLINE void describe_floats(struct job *job, const struct qk_narrow *narrow)
{
    const unsigned exponents = narrow->largest >> (23 - narrow->shift);
    job->narrow = narrow;
    job->normal = vector_of_words(splat_word(narrow->normal));
    job->cap = vector_of_words(splat_word(narrow->normal + (exponents << 23)));
    job->summands = summands_of(narrow);
    job->largest = (uint8_t)narrow->largest;
    job->sign = (uint8_t)narrow->sign;
    job->zero_has_sign = narrow->signed_bits == 0;
    job->saturates = narrow->beyond == narrow->largest;
    /* The least normal number of E5M2 is 2^-14 or 2^-15, that of E4M3 2^-6 or 2^-7, so 2^-10 tells
     * them apart. */
    job->has_small = narrow->normal < (127 - 10) << 23 || job->y_bits == 4;
}

INLINE struct job job_of(const struct qk_quantize_args *args)
{
    const struct qk_type_info *x = qk_type_info(args->x_type);
    const struct qk_type_info *y = qk_type_info(args->y_type);
    const bool is_signed = y->kind == QK_KIND_SIGNED;
    const bool is_float = y->kind == QK_KIND_FLOAT;
    struct job job = {.x_type = args->x_type,
                      .division = args->division,
                      .x_bytes = x->bits / 8,
                      .y_bits = y->bits,
                      .floats = is_float,
                      .low = splat(-LIMIT),
                      .high = splat(LIMIT),
                      .least = (int8_t)y->min,
                      .most = is_float ? 15 : (int8_t)y->max};
    job.packing = y->bits == 16  ? is_signed ? PACK_S16 : PACK_U16
                  : y->bits == 8 ? is_signed ? PACK_S8 : PACK_U8
                  : y->bits == 4 ? PACK_4
                                 : PACK_2;
    if (is_float)
        describe_floats(&job, args->narrow);
    return job;
}

/* ---- From x to codes ------------------------------------------------------------------------ */

INLINE vector read_x(const struct job *job, const uint8_t *x)
{
    switch (job->x_type) {
    case QK_FP16:
        return widen_fp16(x);
    case QK_BF16:
        return widen_bf16(x);
    case QK_INT32:
        return float_of_words(load_words(x));
    default:
        return load_vector(x);
    }
}

INLINE vector rounded(enum qk_division division, vector v)
{
    return division == QK_DIVISION_FP16   ? round_fp16(v)
           : division == QK_DIVISION_BF16 ? round_bf16(v)
                                          : v;
}

/* Like qk_narrow, for a vector. */
INLINE words narrowed(const struct qk_narrow *narrow, vector value)
{
    const words bits = words_of_vector(value);
    const words magnitude = and_words(bits, splat_word(0x7fffffff));
    const words magic = splat_word(narrow->magic);
    const words moved = words_of_vector(add(vector_of_words(magnitude), vector_of_words(magic)));
    const words half = splat_word((UINT32_C(1) << (narrow->shift - 1)) - 1 - narrow->rebias);
    const words lowest = and_words(shift_right(magnitude, narrow->shift), splat_word(1));
    const words sum = add_words(add_words(magnitude, half), lowest);
    words code = choose(is_greater(splat_word(narrow->normal), magnitude),
                        subtract_words(moved, magic), shift_right(sum, narrow->shift));
    code = choose(is_greater(code, splat_word(narrow->largest)), splat_word(narrow->beyond), code);
    if (narrow->gap_end > 0) {
        const words from_gap = subtract_words(magnitude, splat_word(narrow->gap));
        const words size = splat_word(narrow->gap_end - narrow->gap);
        const words below = choose(is_greater(size, from_gap), splat_word(narrow->gap_code), code);
        code = choose(is_greater(splat_word(narrow->gap), magnitude), code, below);
    }
    code = choose(is_greater(magnitude, splat_word(0x7f800000)), splat_word(narrow->nan), code);
    words sign = and_words(shift_right_signed(bits, 31), splat_word(narrow->sign));
    if (narrow->signed_bits)
        sign = choose(is_greater(and_words(code, splat_word(narrow->signed_bits)), splat_word(0)),
                      sign, splat_word(0));
    return xor_words(code, sign);
}

/* Returns x, rounded to the type of the division. */
INLINE vector dividend_of(const struct job *job, const uint8_t *x)
{
    const bool is_rounded = (job->x_type == QK_FP16 && job->division == QK_DIVISION_FP16) ||
                            (job->x_type == QK_BF16 && job->division == QK_DIVISION_BF16);
    const vector v = read_x(job, x);
    return is_rounded ? v : rounded(job->division, v);
}

/* Returns the quotients, rounded to the type of the division, which is not FP64. */
INLINE vector quotient_of(const struct job *job, const uint8_t *x, vector scale)
{
    return rounded(job->division, divide(dividend_of(job, x), scale));
}

INLINE struct doubles quotient_of_doubles(const struct job *job, const uint8_t *x, vector scale)
{
    const struct doubles dividend = job->x_type == QK_INT32 ? doubles_of_words(load_words(x))
                                                            : doubles_of_floats(read_x(job, x));
    const struct doubles divisor = job->division == QK_DIVISION_FP64_INTEGER
                                       ? doubles_of_words(words_of_vector(scale))
                                       : doubles_of_floats(scale);
    return divide_doubles(dividend, divisor);
}

/* Rounds quotients to integers. Infinities and everything beyond the limits become a limit, which
 * saturates later with any zero point. A NaN becomes the lower limit. */
INLINE words rounded_integers(const struct job *job, vector quotient)
{
    return round_to_words(limited_to(quotient, job->low, job->high));
}

/* Returns the integers of one vector's elements, with their zero points. */
INLINE words integers_of(const struct job *job, const uint8_t *x, vector scale, vector zero)
{
    const words zeros = words_of_vector(zero);
    if (job->division >= QK_DIVISION_FP64)
        return add_words(
            words_of_doubles(limited_doubles(quotient_of_doubles(job, x, scale), (double)LIMIT)),
            zeros);
    return add_words(rounded_integers(job, quotient_of(job, x, scale)), zeros);
}

/* Returns quotient + zero point, which the caller rounds to y's type. */
INLINE vector sums_of(const struct job *job, const uint8_t *x, vector scale, vector zero)
{
    if (job->division >= QK_DIVISION_FP64)
        return floats_of_doubles(
            add_doubles(quotient_of_doubles(job, x, scale), doubles_of_floats(zero)));
    return add(quotient_of(job, x, scale), zero);
}

INLINE words codes_of(const struct job *job, const uint8_t *x, vector scale, vector zero)
{
    return job->floats ? narrowed(job->narrow, sums_of(job, x, scale, zero))
                       : integers_of(job, x, scale, zero);
}

INLINE void store(const struct job *job, char *y, struct chunk codes, bool stream)
{
    switch (job->packing) {
    case PACK_U8:
        store_bytes(y, in_order(packed(codes, false)), stream);
        break;
    case PACK_S8:
        store_bytes(y, in_order(packed(codes, true)), stream);
        break;
    case PACK_U16:
        store_bytes(y, pack_u16(codes.a, codes.b), stream);
        store_bytes(y + CHUNK, pack_u16(codes.c, codes.d), stream);
        break;
    case PACK_S16:
        store_bytes(y, pack_s16(codes.a, codes.b), stream);
        store_bytes(y + CHUNK, pack_s16(codes.c, codes.d), stream);
        break;
    case PACK_4:
        store_nibbles(y, within(in_order(packed(codes, true)), job->least, job->most), stream);
        break;
    default:
        store_pairs(y, within(in_order(packed(codes, true)), job->least, job->most), stream);
    }
}

INLINE void prefetch(const struct job *job, const uint8_t *x)
{
    for (size_t k = 0; k < CHUNK * job->x_bytes; k += 64)
        __builtin_prefetch((const char *)x + PREFETCH_BYTES + k);
}

/* ---- Floats of 8 and 4 bits ------------------------------------------------------------------ */

/* Returns the code of a sum's magnitude, for every sum but NaN. If the sum rounds to more than the
 * largest number, the code is above that number's.
 *
 * A magnitude in [2^e, 2^(e+1)) is added to 2^(e + shift). Around that number FP32s are as far
 * apart as y's numbers are around 2^e, so the addition rounds the magnitude to y's precision, ties
 * to even, and the lowest bits of the result count y's steps. The summand also contains the code of
 * 2^e less its count of steps, so that these bits become the code. Subnormal numbers are as far
 * apart as the least normal ones, so they use the same summand.
 *
 * For example, 5.3 as E4M3FN, whose shift is 20: from 4 to 8 the numbers of E4M3FN are 0.5 apart,
 * and so are FP32s from 2^22 to 2^23. 2^22 + 5.3 is rounded to 2^22 + 5.5, which is 11 steps. The
 * code of 4 is 72, and 4 is 8 steps, so the summand has 72 - 8 = 64 in its lowest bits. 64 + 11 =
 * 75 is the code of 5.5. */
INLINE words magnitude_code(const struct job *job, vector sum)
{
    const vector magnitude = capped(sum, job->cap);
    const vector moved = add(magnitude, summand(&job->summands, greater(magnitude, job->normal)));
    return and_words(words_of_vector(moved), splat_word(0xff));
}

INLINE void store_codes(char *y, octets codes, bool is_4_bits, bool stream)
{
    if (is_4_bits)
        store_nibbles(y, codes, stream);
    else
        store_bytes(y, codes, stream);
}

/* Stores a chunk by all the rules of qk_narrow. Only chunks with a NaN need this or, without
 * saturation, with a sum beyond the largest number. */
static __attribute__((noinline, cold)) void store_narrowed(const struct qk_narrow *narrow, char *y,
                                                           vector a, vector b, vector c, vector d,
                                                           bool is_4_bits, bool stream)
{
    const struct chunk codes = {narrowed(narrow, a), narrowed(narrow, b), narrowed(narrow, c),
                                narrowed(narrow, d)};
    store_codes(y, in_order(packed(codes, false)), is_4_bits, stream);
}

/* Stores a chunk of floats. `has_nan` is any_nan() of the sums. */
INLINE void store_floats(const struct job *job, char *y, const vector *sums, bool has_nan,
                         bool stream)
{
    const bool is_4_bits = job->packing == PACK_4;
    const struct chunk codes = {magnitude_code(job, sums[0]), magnitude_code(job, sums[1]),
                                magnitude_code(job, sums[2]), magnitude_code(job, sums[3])};
    const struct chunk bits = {words_of_vector(sums[0]), words_of_vector(sums[1]),
                               words_of_vector(sums[2]), words_of_vector(sums[3])};
    const octets magnitudes = packed(codes, false);
    const bool is_rare = has_nan || (!job->saturates && any_above(magnitudes, job->largest));
    if (__builtin_expect(is_rare, false)) {
        store_narrowed(job->narrow, y, sums[0], sums[1], sums[2], sums[3], is_4_bits, stream);
        return;
    }
    const octets signed_codes =
        with_signs(magnitudes, packed(bits, true), job->largest, job->sign, job->zero_has_sign);
    store_codes(y, in_order(signed_codes), is_4_bits, stream);
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* The parameters of a chunk's elements: those of vector v are in the lanes of scale[v] and zero[v].
 */
struct parameters {
    vector scale[4], zero[4];
    vector reciprocal[4]; /* of the scales; set only if `products` is */
    /* True if multiplying may replace all divisions of the chunk (products.h). */
    bool products;
};

/* Returns the zero point that changes nothing, as an integer or as a float. */
INLINE vector no_zero(const struct job *job)
{
    return job->floats ? splat(-0.0F) : splat(0);
}

INLINE vector zero_at(const struct job *job, const struct qk_span *span, size_t p)
{
    return span->zeros ? splat(((const float *)span->zeros)[p]) : no_zero(job);
}

/* Returns the parameters of a chunk whose elements all belong to block p. */
INLINE struct parameters same(const struct job *job, const struct qk_span *span, size_t p)
{
    const vector scale = splat(((const float *)span->scales)[p]);
    const vector zero = zero_at(job, span, p);
    return (struct parameters){.scale = {scale, scale, scale, scale},
                               .zero = {zero, zero, zero, zero}};
}

/* Returns the parameters of the chunk from element i on, whose elements each have their own. */
INLINE struct parameters each(const struct job *job, const struct qk_span *span, size_t i)
{
    struct parameters parameters;
    parameters.products =
        PRODUCTS_OF_EACH && span->offsets && qk_quantize_has_products(job->x_type, job->division);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++) {
        const size_t at = i + v * LANES;
        parameters.scale[v] = load_vector((const float *)span->scales + at);
        parameters.zero[v] =
            span->zeros ? load_vector((const float *)span->zeros + at) : no_zero(job);
        if (parameters.products)
            parameters.reciprocal[v] = load_vector((const float *)span->offsets + at);
    }
    return parameters;
}

/* The position of a loop over blocks. */
struct place {
    size_t i;    /* index of the element */
    size_t p;    /* index of its block's parameters */
    size_t left; /* how many elements of its block are left, including it */
};

/* Returns the parameters of a chunk whose blocks have LANES elements or more, so that each vector
 * belongs to one block or two. Moves `at` behind the chunk. */
INLINE struct parameters mixed(const struct job *job, const struct qk_span *span, struct place *at)
{
    const float *scales = span->scales;
    struct parameters parameters;
    parameters.products = PRODUCTS_OF_EACH && qk_quantize_has_products(job->x_type, job->division);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++) {
        const size_t next = at->p + 1 == span->period ? 0 : at->p + 1;
        const float scale = scales[at->p];
        parameters.products = parameters.products && qk_is_divisor(scale);
        parameters.scale[v] = splat(scale);
        parameters.zero[v] = zero_at(job, span, at->p);
        if (parameters.products)
            parameters.reciprocal[v] =
                splat(1 / scale); /* dividing one element is faster than a vector */
        if (at->left < LANES) {
            const float after = scales[next];
            parameters.products = parameters.products && qk_is_divisor(after);
            parameters.scale[v] = mix(parameters.scale[v], splat(after), at->left);
            parameters.zero[v] = mix(parameters.zero[v], zero_at(job, span, next), at->left);
            if (parameters.products)
                parameters.reciprocal[v] =
                    mix(parameters.reciprocal[v], splat(1 / after), at->left);
        }
        at->p = at->left <= LANES ? next : at->p;
        at->left += (at->left <= LANES ? span->block : 0) - LANES;
    }
    at->i += CHUNK;
    return parameters;
}

/* ---- The loops ------------------------------------------------------------------------------ */

INLINE words integers_by_products(const struct job *job, const uint8_t *x,
                                  const struct divisor *divisor, words zeros)
{
    const vector within = limited_to(dividend_of(job, x), divisor->low, divisor->high);
    const vector quotient = divide_by(job->division, false, within, divisor);
    return add_words(round_to_words(quotient), zeros);
}

INLINE void floats_by_products(const struct job *job, const uint8_t *x, char *y,
                               const struct divisor *divisor, vector zero, bool stream)
{
    const size_t bytes = LANES * job->x_bytes;
    vector sums[4];
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
        sums[v] =
            add(divide_by(job->division, job->has_small, dividend_of(job, x + v * bytes), divisor),
                zero);
    const bool has_nan = any_nan(sums[0], sums[1], sums[2], sums[3]);
    for (size_t v = 0; v < 4 && __builtin_expect(has_nan, false); v++)
        sums[v] = sums_of(job, x + v * bytes, divisor->scale, zero);
    store_floats(job, y, sums, has_nan, stream);
}

/* Tries to quantize by multiplying a chunk whose elements have several scales. Returns false if the
 * chunk has a NaN or a product overflowed; the caller then divides. Unlike with one scale, x is not
 * clamped first: a quotient beyond the limits stays beyond them. */
INLINE bool try_products(const struct job *job, const struct qk_span *span, size_t i,
                         const struct parameters *p)
{
    const uint8_t *x = (const uint8_t *)span->x + i * job->x_bytes;
    char *y = (char *)span->y + i * job->y_bits / 8;
    const size_t bytes = LANES * job->x_bytes;
    vector quotients[4], sums[4];
    words codes[4];
    if (span->stream)
        prefetch(job, x);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++) {
        const struct divisor divisor = {.scale = p->scale[v], .reciprocal = p->reciprocal[v]};
        quotients[v] = divide_by(job->division, job->floats && job->has_small,
                                 dividend_of(job, x + v * bytes), &divisor);
        sums[v] = job->floats ? add(quotients[v], p->zero[v]) : quotients[v];
    }
    if (__builtin_expect(any_nan(sums[0], sums[1], sums[2], sums[3]), false))
        return false;
    if (job->floats) {
        store_floats(job, y, sums, false, span->stream);
        return true;
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
        codes[v] = add_words(rounded_integers(job, quotients[v]), words_of_vector(p->zero[v]));
    store(job, y, (struct chunk){codes[0], codes[1], codes[2], codes[3]}, span->stream);
    return true;
}

/* Quantizes a chunk: by multiplying if its parameters allow it, otherwise by dividing. */
INLINE void take(const struct job *job, const struct qk_span *span, size_t i,
                 const struct parameters *p)
{
    const uint8_t *x = (const uint8_t *)span->x + i * job->x_bytes;
    const size_t bytes = LANES * job->x_bytes;
    if (p->products && try_products(job, span, i, p))
        return;
    if (span->stream)
        prefetch(job, x);
    const struct chunk codes = {codes_of(job, x, p->scale[0], p->zero[0]),
                                codes_of(job, x + bytes, p->scale[1], p->zero[1]),
                                codes_of(job, x + 2 * bytes, p->scale[2], p->zero[2]),
                                codes_of(job, x + 3 * bytes, p->scale[3], p->zero[3])};
    store(job, (char *)span->y + i * job->y_bits / 8, codes, span->stream);
}

/* The loop for blocks of one element. If less than a chunk is left, the last chunk begins earlier
 * and overlaps the one before it. */
INLINE void loop_each(const struct job *job, const struct qk_span *span)
{
    for (size_t i = 0; i < span->count; i += CHUNK) {
        i = i + CHUNK > span->count ? span->count - CHUNK : i;
        const struct parameters parameters = each(job, span, i);
        take(job, span, i, &parameters);
    }
}

/* Moves the place back, so that a whole chunk from there on ends with the span. */
INLINE void go_back(const struct qk_span *span, struct place *at)
{
    const size_t back = at->i + CHUNK - span->count;
    at->i -= back;
    at->left += back;
    while (at->left > span->block) {
        at->left -= span->block;
        at->p = (at->p > 0 ? at->p : span->period) - 1;
    }
}

/* Quantizes chunks of one block by multiplying, from element i to `end`. */
INLINE void take_by_products(const struct job *job, const struct qk_span *span, size_t i,
                             size_t end, float scale, vector zero)
{
    const struct divisor divisor = divisor_of(scale, LIMIT);
    const words zeros = words_of_vector(zero);
    const size_t bytes = LANES * job->x_bytes;
    for (; i < end; i += CHUNK) {
        const uint8_t *x = (const uint8_t *)span->x + i * job->x_bytes;
        char *y = (char *)span->y + i * job->y_bits / 8;
        if (span->stream)
            prefetch(job, x);
        if (job->floats) {
            floats_by_products(job, x, y, &divisor, zero, span->stream);
            continue;
        }
        const struct chunk codes = {integers_by_products(job, x, &divisor, zeros),
                                    integers_by_products(job, x + bytes, &divisor, zeros),
                                    integers_by_products(job, x + 2 * bytes, &divisor, zeros),
                                    integers_by_products(job, x + 3 * bytes, &divisor, zeros)};
        store(job, y, codes, span->stream);
    }
}

/* Quantizes as many chunks as lie completely in the current block. */
INLINE void take_whole(const struct job *job, const struct qk_span *span, struct place *at)
{
    const size_t left = at->left < span->count - at->i ? at->left : span->count - at->i;
    const size_t end = at->i + left / CHUNK * CHUNK;
    const float scale = ((const float *)span->scales)[at->p];
    at->left -= end - at->i;
    if (qk_quantize_has_products(job->x_type, job->division) && qk_is_divisor(scale)) {
        take_by_products(job, span, at->i, end, scale, zero_at(job, span, at->p));
        at->i = end;
    } else {
        const struct parameters parameters = same(job, span, at->p);
        for (; at->i < end; at->i += CHUNK)
            take(job, span, at->i, &parameters);
    }
    if (at->left == 0) {
        at->p = at->p + 1 == span->period ? 0 : at->p + 1;
        at->left = span->block;
    }
}

INLINE void loop_blocks(const struct job *job, const struct qk_span *span)
{
    struct place at = {0, span->p, span->block - span->done};
    while (at.i < span->count) {
        if (at.i + CHUNK > span->count)
            go_back(span, &at);
        if (at.left >= CHUNK) {
            take_whole(job, span, &at);
        } else {
            const size_t i = at.i;
            const struct parameters parameters = mixed(job, span, &at);
            take(job, span, i, &parameters);
        }
    }
}

INLINE void loops(const struct job *job, const struct qk_span *span)
{
    if (span->block == 1)
        loop_each(job, span);
    else
        loop_blocks(job, span);
}

/* Runs the loops for one combination of types. The caller passes the types as constants, so that
 * the compiler makes special loops for this combination. */
INLINE void loops_of(struct job job, const struct qk_span *span, enum qk_type x_type,
                     enum qk_division division, bool floats)
{
    job.x_type = x_type;
    job.x_bytes = x_type == QK_FP32 ? 4 : 2;
    job.division = division;
    job.floats = floats;
    loops(&job, span);
}

/* Copies the arguments, so that the compiler can see that storing y does not change them. */
static void quantize(const struct qk_quantize_args *args)
{
    const struct qk_span span = args->span;
    struct job job = job_of(args);
    const bool is_fp32 = job.x_type == QK_FP32 && job.division == QK_DIVISION_FP32;
    const bool is_fp16 = job.x_type == QK_FP16 && job.division == QK_DIVISION_FP16;
    const bool is_fp16_by_fp32 = job.x_type == QK_FP16 && job.division == QK_DIVISION_FP32;
    const bool is_bf16 = job.x_type == QK_BF16 && job.division == QK_DIVISION_BF16;
    if (is_fp32 && job.floats)
        loops_of(job, &span, QK_FP32, QK_DIVISION_FP32, true);
    else if (is_fp32)
        loops_of(job, &span, QK_FP32, QK_DIVISION_FP32, false);
    else if (is_fp16 && job.floats)
        loops_of(job, &span, QK_FP16, QK_DIVISION_FP16, true);
    else if (is_fp16)
        loops_of(job, &span, QK_FP16, QK_DIVISION_FP16, false);
    else if (is_fp16_by_fp32 && job.floats)
        loops_of(job, &span, QK_FP16, QK_DIVISION_FP32, true);
    else if (is_bf16 && job.floats)
        loops_of(job, &span, QK_BF16, QK_DIVISION_BF16, true);
    else if (is_bf16)
        loops_of(job, &span, QK_BF16, QK_DIVISION_BF16, false);
    else
        loops(&job, &span);
}

static void finish(void)
{
    end_streaming();
}

#endif
