/* The loops of the quantize kernels, shared by the vector tiers. A tier's file includes this after
 * it has defined what differs: CHUNK, LANES, `vector`, `words` and `struct doubles` with their
 * arithmetic, and stores of a chunk's codes. Only for quantize_avx2.c and quantize_avx512bw.c. */
#ifndef KERNELS_QUANTIZE_LOOPS_H
#define KERNELS_QUANTIZE_LOOPS_H

/* Nothing but x86 sets this, and only for the files of these suffixes. */
#ifdef __AVX2__

/* How many bytes ahead x is fetched where y is stored past the caches. */
#define PREFETCH_BYTES 2048

/* How codes, which are integers of 32 bits, become y: saturating, as the type wants it. */
enum packing { PACK_U8, PACK_S8, PACK_U16, PACK_S16, PACK_4, PACK_2 };

/* ---- True quotients by products -------------------------------------------------------------- */

/* A vector's division takes the time of ten multiplications. By one scale, many elements can be
 * divided by fused multiplications with the scale's reciprocal r, to the same bits: q0 = x * r is
 * off by less than two of its last places; q1 = q0 + (x - q0 * scale) * r by less than one, so that
 * the remainder x - q1 * scale is exact; then q1 + (x - q1 * scale) * r is the quotient rounded
 * once (Markstein's theorem, for a reciprocal that is itself rounded to nearest). That takes scales
 * and quotients in a range where nothing overflows and no remainder is subnormal: x is brought
 * within `most` scales, beyond which all integers saturate, or are INT32_MIN; and quotients so
 * small that remainders are subnormal become 0 in any case, but only as integers. */
struct divisor {
    vector scale;
    vector reciprocal;
    vector low, high; /* of x; what NaN becomes is low */
};

#define DIVISOR_LEAST 0x1p-60F
#define DIVISOR_MOST 0x1p60F

INLINE struct divisor divisor_of(float scale, float most)
{
    return (struct divisor){splat(scale), divide(splat(1), splat(scale)), splat(-most * scale),
                            splat(most * scale)};
}

INLINE vector divide_by(vector x, const struct divisor *divisor)
{
    const vector within = lesser(greater(x, divisor->low), divisor->high);
    const vector q0 = multiply(within, divisor->reciprocal);
    const vector q1 =
        multiply_add(remainder_of(within, q0, divisor->scale), divisor->reciprocal, q0);
    return multiply_add(remainder_of(within, q1, divisor->scale), divisor->reciprocal, q1);
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* What all of a call's elements have in common. */
struct job {
    enum qk_type x_type;
    enum qk_division division;
    enum packing packing;
    unsigned x_bytes;
    unsigned y_bits;
    bool limits;
    const struct qk_narrow *narrow; /* NULL: y is an integer */
    vector low, high;               /* of quotients, where they are limited */
    int8_t least, most;             /* of integers of less than 8 bits */
};

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
                      .limits = args->limits,
                      .narrow = args->narrow,
                      .low = splat(-0x1p30F),
                      .high = splat(0x1p30F),
                      .least = (int8_t)y->min,
                      .most = is_float ? 15 : (int8_t)y->max};
    job.packing = y->bits == 16  ? is_signed ? PACK_S16 : PACK_U16
                  : y->bits == 8 ? is_signed ? PACK_S8 : PACK_U8
                  : y->bits == 4 ? PACK_4
                                 : PACK_2;
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

/* qk_narrow for a vector. */
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

INLINE words codes_by_doubles(const struct job *job, const uint8_t *x, vector scale, vector zero)
{
    const struct doubles dividend = job->x_type == QK_INT32 ? doubles_of_words(load_words(x))
                                                            : doubles_of_floats(read_x(job, x));
    const struct doubles divisor = job->division == QK_DIVISION_FP64_INTEGER
                                       ? doubles_of_words(words_of_vector(scale))
                                       : doubles_of_floats(scale);
    const struct doubles quotient = divide_doubles(dividend, divisor);
    if (!job->narrow)
        return add_words(words_of_doubles(quotient), words_of_vector(zero));
    return narrowed(job->narrow, floats_of_doubles(add_doubles(quotient, doubles_of_floats(zero))));
}

/* The codes of one vector's elements. A NaN becomes the lower limit: `greater` returns its second
 * operand for it. */
INLINE words codes_of(const struct job *job, const uint8_t *x, vector scale, vector zero)
{
    if (job->division >= QK_DIVISION_FP64)
        return codes_by_doubles(job, x, scale, zero);
    const vector dividend = rounded(job->division, read_x(job, x));
    const vector quotient = rounded(job->division, divide(dividend, scale));
    if (job->narrow)
        return narrowed(job->narrow, add(quotient, zero));
    const vector limited = job->limits ? lesser(greater(quotient, job->low), job->high) : quotient;
    return add_words(round_to_words(limited), words_of_vector(zero));
}

struct chunk {
    words a, b, c, d;
};

INLINE void store(const struct job *job, char *y, struct chunk codes, bool stream)
{
    switch (job->packing) {
    case PACK_U8:
        store_bytes(y, pack_u8(codes), stream);
        break;
    case PACK_S8:
        store_bytes(y, pack_s8(codes), stream);
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
        store_nibbles(y, within(pack_s8(codes), job->least, job->most), stream);
        break;
    default:
        store_pairs(y, within(pack_s8(codes), job->least, job->most), stream);
    }
}

INLINE void prefetch(const struct job *job, const uint8_t *x)
{
    for (size_t k = 0; k < CHUNK * job->x_bytes; k += 64)
        _mm_prefetch((const char *)x + PREFETCH_BYTES + k, _MM_HINT_T0);
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* The parameters of a chunk's elements. */
struct parameters {
    vector scale[4], zero[4];
};

/* The zero point that changes nothing, as integers and as floats have it. */
INLINE vector no_zero(const struct job *job)
{
    return job->narrow ? splat(-0.0F) : splat(0);
}

INLINE vector zero_at(const struct job *job, const struct qk_span *span, size_t p)
{
    return span->zeros ? splat(((const float *)span->zeros)[p]) : no_zero(job);
}

/* The parameters of block p, for all elements of a chunk. */
INLINE struct parameters same(const struct job *job, const struct qk_span *span, size_t p)
{
    const vector scale = splat(((const float *)span->scales)[p]);
    const vector zero = zero_at(job, span, p);
    return (struct parameters){{scale, scale, scale, scale}, {zero, zero, zero, zero}};
}

/* The parameters of a chunk where each element has its own, from element i on. */
INLINE struct parameters each(const struct job *job, const struct qk_span *span, size_t i)
{
    struct parameters parameters;
    for (size_t v = 0; v < 4; v++) {
        const size_t at = i + v * LANES;
        parameters.scale[v] = load_vector((const float *)span->scales + at);
        parameters.zero[v] =
            span->zeros ? load_vector((const float *)span->zeros + at) : no_zero(job);
    }
    return parameters;
}

/* Where a loop through blocks is. */
struct place {
    size_t i;    /* the element */
    size_t p;    /* its block's parameters */
    size_t left; /* elements of its block, from it on */
};

/* The parameters of a chunk whose blocks have LANES elements or more, so that each vector has parts
 * of one block or two. Moves on behind the chunk. */
INLINE struct parameters mixed(const struct job *job, const struct qk_span *span, struct place *at)
{
    struct parameters parameters;
    for (size_t v = 0; v < 4; v++) {
        const size_t next = at->p + 1 == span->period ? 0 : at->p + 1;
        const size_t after = at->left < LANES ? next : at->p; /* there may be no next one */
        const size_t count = at->left < LANES ? at->left : LANES;
        const float *scales = span->scales;
        parameters.scale[v] = mix(splat(scales[at->p]), splat(scales[after]), count);
        parameters.zero[v] = mix(zero_at(job, span, at->p), zero_at(job, span, after), count);
        at->p = at->left <= LANES ? next : at->p;
        at->left += (at->left <= LANES ? span->block : 0) - LANES;
    }
    at->i += CHUNK;
    return parameters;
}

/* ---- The loops ------------------------------------------------------------------------------ */

INLINE void take(const struct job *job, const struct qk_span *span, size_t i,
                 const struct parameters *p)
{
    const uint8_t *x = (const uint8_t *)span->x + i * job->x_bytes;
    const size_t bytes = LANES * job->x_bytes;
    if (span->stream)
        prefetch(job, x);
    const struct chunk codes = {codes_of(job, x, p->scale[0], p->zero[0]),
                                codes_of(job, x + bytes, p->scale[1], p->zero[1]),
                                codes_of(job, x + 2 * bytes, p->scale[2], p->zero[2]),
                                codes_of(job, x + 3 * bytes, p->scale[3], p->zero[3])};
    store(job, (char *)span->y + i * job->y_bits / 8, codes, span->stream);
}

/* The loop for blocks of one element. The last chunk is a whole one, too: it begins early, where
 * less than one is left. */
INLINE void loop_each(const struct job *job, const struct qk_span *span)
{
    for (size_t i = 0; i < span->count; i += CHUNK) {
        i = i + CHUNK > span->count ? span->count - CHUNK : i;
        const struct parameters parameters = each(job, span, i);
        take(job, span, i, &parameters);
    }
}

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

/* Chunks of one block, from element i to `end`, to integers, by products. */
INLINE void take_by_products(const struct job *job, const struct qk_span *span, size_t i,
                             size_t end, float scale, vector zero)
{
    /* Limited quotients saturate; the others become INT32_MIN, as 2^32 does. */
    const struct divisor divisor = divisor_of(scale, job->limits ? 0x1p30F : 0x1p32F);
    const words zeros = words_of_vector(zero);
    const size_t bytes = LANES * job->x_bytes;
    for (; i < end; i += CHUNK) {
        const uint8_t *x = (const uint8_t *)span->x + i * job->x_bytes;
        if (span->stream)
            prefetch(job, x);
        const struct chunk codes = {
            add_words(round_to_words(divide_by(read_x(job, x), &divisor)), zeros),
            add_words(round_to_words(divide_by(read_x(job, x + bytes), &divisor)), zeros),
            add_words(round_to_words(divide_by(read_x(job, x + 2 * bytes), &divisor)), zeros),
            add_words(round_to_words(divide_by(read_x(job, x + 3 * bytes), &divisor)), zeros)};
        store(job, (char *)span->y + i * job->y_bits / 8, codes, span->stream);
    }
}

/* Does as many chunks as belong to one block alone. */
INLINE void take_whole(const struct job *job, const struct qk_span *span, struct place *at)
{
    const size_t left = at->left < span->count - at->i ? at->left : span->count - at->i;
    const size_t end = at->i + left / CHUNK * CHUNK;
    const float scale = ((const float *)span->scales)[at->p];
    at->left -= end - at->i;
    if (job->division == QK_DIVISION_FP32 && !job->narrow && scale >= DIVISOR_LEAST &&
        scale <= DIVISOR_MOST) {
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

/* Gives the common case a loop of its own, in which all that does not vary is a constant. The
 * arguments are copied, so that the compiler can see that storing y does not change them. */
static void quantize(const struct qk_quantize_args *args)
{
    const struct qk_span span = args->span;
    struct job job = job_of(args);
    if (job.x_type == QK_FP32 && job.division == QK_DIVISION_FP32 && job.limits && !job.narrow) {
        job.x_type = QK_FP32;
        job.x_bytes = sizeof(float);
        job.division = QK_DIVISION_FP32;
        job.limits = true;
        job.narrow = NULL;
        loops(&job, &span);
    } else {
        loops(&job, &span);
    }
}

static void finish(void)
{
    _mm_sfence();
}

#endif

#endif
