/* The loops of the dequantize kernels (dequantize.h), which the vector tiers share. A tier's file
 * includes this after it has defined what differs: CHUNK (how many elements a loop takes at a time,
 * in four vectors), `vector` and its arithmetic, functions that read x as `struct values`,
 * functions that subtract zero points, `struct form` and the stores. Only for dequantize_avx2.c,
 * dequantize_avx512bw.c, dequantize_avx512vbmi.c and dequantize_neon.c.
 *
 * All functions are inlined with constants for the code of x, the type of y and the way in which
 * parameters change. Each combination therefore becomes a loop of its own. Which loop runs depends
 * on the length of blocks (choose_loop):
 *
 *    1 element            loop_varied        parameters are loaded like x
 *    16 or 32 elements    loop_varied        if the span has whole blocks only
 *    less than CHUNK      loop_short         each vector has one block or two
 *    whole chunks         loop_whole_blocks  if blocks get tables of results, see struct kernel
 *    a few whole chunks   loop_varied        parameters are loaded for each chunk
 *    all others           loop_blocks        a chunk has one block or two
 */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef CHUNK

/* The most whole chunks of a block for which loop_varied loads the parameters again for each chunk.
 * Longer blocks keep them in registers (loop_blocks). */
#define CHUNKS_MAX 4

/* How a kernel reads x and subtracts zero points. All members are constants where they are used. */
struct kernel {
    unsigned bits;
    float magic; /* the number that reading adds to x, such as QK_MAGIC_U8 */
    struct values (*read)(const struct codes *codes, const uint8_t *x, bool pairs);
    subtract_fn *minus;
    bool finishes; /* for each long block, first computes a table that has the result of each code,
                      then only looks results up */
    bool rare; /* a code that few models use: fewer special loops, so that compiling takes less time
                */
};

/* The parameters of one block, each in all lanes of a vector. */
struct parameters {
    vector zero; /* without zero points, the number that reading has added to x */
    vector scale;
    vector offset;
};

/* Returns a pointer to parameter p of a span. Zeros that are integers are passed on as floats with
 * the same bits. */
INLINE const float *floats_at(const void *from, size_t p)
{
    return (const float *)from + p;
}

INLINE struct parameters parameters_at(const struct qk_dequantize_args *args, size_t p, float magic)
{
    const struct qk_span *span = &args->span;
    return (struct parameters){splat(span->zeros ? *floats_at(span->zeros, p) : magic),
                               splat(*floats_at(span->scales, p)),
                               splat(span->offsets ? *floats_at(span->offsets, p) : -0.0F)};
}

/* The parameters of a chunk, one for each element. */
struct varied {
    struct values zero, scale, offset;
};

INLINE struct values all(vector v)
{
    return (struct values){v, v, v, v};
}

INLINE vector compute_one(vector value, vector zero, vector scale, vector offset,
                          subtract_fn *minus, bool has_offset)
{
    const vector product = multiply(minus(value, zero), scale);
    return has_offset ? add(product, offset) : product;
}

INLINE struct values compute(struct values v, const struct varied *p, subtract_fn *minus,
                             bool has_offset)
{
    return (struct values){compute_one(v.a, p->zero.a, p->scale.a, p->offset.a, minus, has_offset),
                           compute_one(v.b, p->zero.b, p->scale.b, p->offset.b, minus, has_offset),
                           compute_one(v.c, p->zero.c, p->scale.c, p->offset.c, minus, has_offset),
                           compute_one(v.d, p->zero.d, p->scale.d, p->offset.d, minus, has_offset)};
}

/* Prefetches what the loop will read from x soon, because the CPU's own prefetching ends with each
 * page. `x` may be near the end of its tensor: prefetching an address that is not mapped does
 * nothing. */
INLINE void prefetch(const uint8_t *x, unsigned bits)
{
    for (size_t k = 0; k < CHUNK * bits / 8; k += 64)
        __builtin_prefetch((const char *)x + PREFETCH_BYTES + k);
}

/* What the results of a block's elements are made from: its parameters or, if `form.finished`, a
 * table that has the result of each code. */
struct block {
    struct parameters parameters;
    struct codes codes;
};

INLINE struct block block_at(const struct qk_dequantize_args *args, size_t p,
                             const struct codes *codes, const struct kernel kernel,
                             struct form form)
{
    struct block block = {parameters_at(args, p, kernel.magic), *codes};
    if (form.finished)
        block.codes = finish_codes(codes, block.parameters.zero, block.parameters.scale,
                                   block.parameters.offset, form);
    return block;
}

/* Returns the results of a chunk that belongs to one block. */
INLINE struct values results_of(const uint8_t *x, const struct codes *codes,
                                const struct block *block, const struct kernel kernel,
                                struct form form, bool has_offset)
{
    if (form.finished)
        return look_up_chunk(&block->codes, x, kernel.bits, form);
    const struct parameters *p = &block->parameters;
    const struct varied same = {all(p->zero), all(p->scale), all(p->offset)};
    return compute(kernel.read(codes, x, form.pairs), &same, kernel.minus, has_offset);
}

/* Returns the results of a chunk whose first `count` elements belong to `block` and the other
 * elements to `next`. */
INLINE struct values mixed_results_of(const uint8_t *x, const struct codes *codes,
                                      const struct block *block, const struct block *next,
                                      size_t count, const struct kernel kernel, struct form form,
                                      bool has_offset)
{
    if (form.finished)
        return mix(look_up_chunk(&block->codes, x, kernel.bits, form),
                   look_up_chunk(&next->codes, x, kernel.bits, form), count, form);
    const struct parameters *p = &block->parameters;
    const struct parameters *q = &next->parameters;
    const struct varied mixed = {mix(all(p->zero), all(q->zero), count, form),
                                 mix(all(p->scale), all(q->scale), count, form),
                                 mix(all(p->offset), all(q->offset), count, form)};
    return compute(kernel.read(codes, x, form.pairs), &mixed, kernel.minus, has_offset);
}

/* The position of a loop over blocks. */
struct place {
    size_t i;    /* index of the element */
    size_t p;    /* index of its block's parameters */
    size_t left; /* how many elements of its block are left, including it */
};

/* Returns by how many elements the last chunk of a call begins early, if less than a chunk is left
 * from element i on. The last chunk is a whole one that ends with the span, so it computes some
 * results again:
 *
 *    count 150, CHUNK 64:   [0, 64) [64, 128) [86, 150)     begins 42 elements early
 *
 * Sets `how` so that stores past the caches skip the results that are stored already, because
 * storing them twice takes long. */
INLINE size_t begin_early(const struct qk_dequantize_args *args, size_t i, size_t y_bytes,
                          struct how *how)
{
    const size_t back = i + CHUNK - args->span.count;
    how->stored = back * y_bytes;
    return back;
}

/* Moves a place back by `back` elements, possibly into an earlier block. */
INLINE void go_back(const struct qk_dequantize_args *args, size_t back, struct place *at)
{
    at->i -= back;
    at->left += back;
    while (at->left > args->span.block) {
        at->left -= args->span.block;
        at->p = (at->p > 0 ? at->p : args->span.period) - 1;
    }
}

/* Dequantizes as many chunks as lie completely in this block. */
INLINE void take_whole_chunks(const struct qk_dequantize_args *args, const struct codes *codes,
                              const struct block *block, const struct kernel kernel,
                              struct form form, struct how how, struct place *at)
{
    const size_t left = at->left < args->span.count - at->i ? at->left : args->span.count - at->i;
    const size_t chunks = left / CHUNK;
    const size_t y_bytes = form.y_bytes;
    const bool has_offset = args->span.offsets;
    const uint8_t *x = (const uint8_t *)args->span.x + at->i * kernel.bits / 8;
    char *y = (char *)args->span.y + at->i * y_bytes;
    const size_t p = at->p;
    at->i += chunks * CHUNK;
    at->left -= chunks * CHUNK;
    if (kernel.read == read_float8 && y_bytes == 2 && !has_offset &&
        take_float8(args->table, codes, x, y, chunks, *floats_at(args->span.scales, p), form, how))
        return;
    for (size_t i = 0; i < chunks * CHUNK; i += CHUNK) {
        const uint8_t *from = x + i * kernel.bits / 8;
        if (how.stream)
            prefetch(from, kernel.bits);
        store_chunk(y + i * y_bytes, results_of(from, codes, block, kernel, form, has_offset), form,
                    how);
    }
}

/* Dequantizes the last `count` elements of a block or of a call, which are less than a chunk. The
 * chunk begins early, with elements of the same block that are done already. */
INLINE void take_last_chunk(const struct qk_dequantize_args *args, const struct codes *codes,
                            const struct block *block, const struct kernel kernel, struct form form,
                            struct how how, size_t count, struct place *at)
{
    at->i += count;
    at->left -= count;
    const size_t i = at->i - CHUNK;
    const uint8_t *x = (const uint8_t *)args->span.x + i * kernel.bits / 8;
    store_chunk((char *)args->span.y + i * form.y_bytes,
                results_of(x, codes, block, kernel, form, args->span.offsets), form, how);
}

/* Dequantizes the chunk in which this block ends and the next block begins. */
INLINE void take_mixed_chunk(const struct qk_dequantize_args *args, const struct codes *codes,
                             const struct block *block, const struct block *next,
                             const struct kernel kernel, struct form form, struct how how,
                             const struct place *at)
{
    const uint8_t *x = (const uint8_t *)args->span.x + at->i * kernel.bits / 8;
    const bool has_offset = args->span.offsets;
    if (how.stream)
        prefetch(x, kernel.bits);
    store_chunk((char *)args->span.y + at->i * form.y_bytes,
                mixed_results_of(x, codes, block, next, at->left, kernel, form, has_offset), form,
                how);
}

/* Chooses what to do with the end of a block that does not fill a chunk. If this returns true, the
 * last chunk of the block begins early, so its results may cross cache lines. Otherwise a chunk
 * belongs to two blocks, whose zero points and scales are mixed. Mixing costs more than 16-bit
 * results that cross cache lines, but less than other results that do. If y is stored past the
 * caches, no result may be stored twice. */
INLINE bool ends_early(const struct kernel kernel, struct form form, struct how how)
{
    return kernel.minus == subtract && kernel.bits >= 8 && kernel.bits <= 16 && form.y_bytes == 2 &&
           !how.stream;
}

/* The loop for blocks of CHUNK elements or more. Each chunk belongs to one block or two. With
 * blocks of 150 elements and chunks of 64:
 *
 *    [0, 64) [64, 128)   take_whole_chunks of block 0
 *    [128, 192)          take_mixed_chunk: 22 elements of block 0 and 42 of block 1
 *    or [86, 150)        take_last_chunk, if ends_early; block 1 then begins with a chunk at 150
 */
INLINE void loop_blocks(const struct qk_dequantize_args *args, const struct codes *codes,
                        const struct kernel kernel, enum qk_type y_type)
{
    const struct form form = form_of(kernel.bits, y_type, kernel.finishes, true);
    struct how how = {args->span.stream && (uintptr_t)args->span.y % 64 == 0, 0};
    struct place at = {0, args->span.p, args->span.block - args->span.done};
    struct block block = block_at(args, at.p, codes, kernel, form);
    for (;;) {
        const size_t begin = at.i;
        take_whole_chunks(args, codes, &block, kernel, form, how, &at);
        const size_t rest = args->span.count - at.i < at.left ? args->span.count - at.i : at.left;
        if (ends_early(kernel, form, how) && at.i > begin && rest > 0)
            take_last_chunk(args, codes, &block, kernel, form, how, rest, &at);
        if (at.i == args->span.count)
            return;
        if (at.i + CHUNK > args->span.count) {
            go_back(args, begin_early(args, at.i, form.y_bytes, &how), &at);
            block = block_at(args, at.p, codes, kernel, form);
            continue;
        }
        at.p = at.p + 1 == args->span.period ? 0 : at.p + 1;
        const struct block next = block_at(args, at.p, codes, kernel, form);
        if (at.left > 0) {
            take_mixed_chunk(args, codes, &block, &next, kernel, form, how, &at);
            at.i += CHUNK;
            at.left -= CHUNK;
        }
        at.left += args->span.block;
        block = next;
    }
}

/* Returns whether all blocks have whole chunks only, including the parts of the first and the last
 * block that belong to the call. */
INLINE bool has_whole_chunks(const struct qk_dequantize_args *args)
{
    return args->span.block % CHUNK == 0 && args->span.done % CHUNK == 0 &&
           args->span.count % CHUNK == 0;
}

/* The loop for blocks of whole chunks if each block gets a table. It keeps one table at a time, in
 * registers. */
INLINE void loop_whole_blocks(const struct qk_dequantize_args *args, const struct codes *codes,
                              const struct kernel kernel, enum qk_type y_type)
{
    const struct form form = form_of(kernel.bits, y_type, kernel.finishes, true);
    const struct how how = {args->span.stream && (uintptr_t)args->span.y % 64 == 0, 0};
    struct place at = {0, args->span.p, args->span.block - args->span.done};
    while (at.i < args->span.count) {
        const struct block block = block_at(args, at.p, codes, kernel, form);
        take_whole_chunks(args, codes, &block, kernel, form, how, &at);
        at.p = at.p + 1 == args->span.period ? 0 : at.p + 1;
        at.left = args->span.block;
    }
}

/* How long the blocks are that a loop takes: some whole chunks, less than a chunk, or exactly 1, 16
 * or 32 elements. */
enum blocks {
    BLOCKS_OF_CHUNKS = 0,
    BLOCKS_OF_1 = 1,
    BLOCKS_SHORT = 2,
    BLOCKS_OF_16 = 16,
    BLOCKS_OF_32 = 32
};

/* The blocks of a chunk's four vectors. The first count[v] elements of vector v belong to block
 * before[v], the others to block after[v]. If count[v] is more than a vector has, all of the vector
 * belongs to before[v]. Blocks are given by the indices of their parameters. */
struct vector_blocks {
    size_t before[4], after[4];
    size_t count[4];
};

INLINE void take_vector_blocks(const struct qk_dequantize_args *args, struct place *at,
                               struct vector_blocks *mixed, size_t v)
{
    const size_t n = CHUNK / 4;
    const size_t next = at->p + 1 == args->span.period ? 0 : at->p + 1;
    mixed->before[v] = at->p;
    mixed->after[v] = at->left < n ? next : at->p; /* the last block may have no next block */
    mixed->count[v] = at->left;
    at->p = at->left <= n ? next : at->p;
    at->left += (at->left <= n ? args->span.block : 0) - n;
}

INLINE vector load_mixed(const float *from, const struct vector_blocks *mixed, size_t v)
{
    return mix_one(splat(from[mixed->before[v]]), splat(from[mixed->after[v]]), mixed->count[v]);
}

/* Loads one kind of parameter for a chunk. `from` points at the parameter of the chunk's first
 * element, or, for BLOCKS_SHORT, at parameter 0. */
INLINE struct values load(const float *from, enum blocks blocks, const struct vector_blocks *mixed)
{
    const size_t n = CHUNK / 4;
    if (blocks == BLOCKS_SHORT)
        return (struct values){load_mixed(from, mixed, 0), load_mixed(from, mixed, 1),
                               load_mixed(from, mixed, 2), load_mixed(from, mixed, 3)};
    if (blocks == BLOCKS_OF_1)
        return (struct values){load_vector(from), load_vector(from + n), load_vector(from + 2 * n),
                               load_vector(from + 3 * n)};
    const size_t block = blocks == BLOCKS_OF_CHUNKS ? CHUNK : blocks;
    return (struct values){splat(from[0]), splat(from[n / block]), splat(from[2 * n / block]),
                           splat(from[3 * n / block])};
}

INLINE struct values compute_varied(struct values v, const struct qk_dequantize_args *args,
                                    const struct kernel kernel, size_t p, enum blocks blocks,
                                    const struct vector_blocks *mixed)
{
    const struct qk_span *span = &args->span;
    const struct varied varied = {
        span->zeros ? load(floats_at(span->zeros, p), blocks, mixed) : all(splat(kernel.magic)),
        load(floats_at(span->scales, p), blocks, mixed),
        span->offsets ? load(floats_at(span->offsets, p), blocks, mixed) : all(splat(-0.0F))};
    return compute(v, &varied, kernel.minus, span->offsets);
}

/* Looks up the results of a chunk, each half of it in its own table, because the halves may belong
 * to different blocks. */
INLINE struct values look_up_varied(const uint8_t *x, const struct qk_dequantize_args *args,
                                    const struct codes *codes, const struct kernel kernel,
                                    struct form form, size_t p, enum blocks blocks)
{
    const bool has_offset = args->span.offsets;
    const size_t q = blocks == BLOCKS_OF_32 ? p + CHUNK / 2 / 32 : p;
    const struct block before = block_at(args, p, codes, kernel, form);
    const struct block after = block_at(args, q, codes, kernel, form);
    const struct values v = results_of(x, codes, &before, kernel, form, has_offset);
    const struct values w = results_of(x, codes, &after, kernel, form, has_offset);
    return (struct values){v.a, v.b, w.c, w.d};
}

/* The loop for parameters that change at fixed positions within a chunk, or after one chunk or a
 * few. */
INLINE void loop_varied(const struct qk_dequantize_args *args, const struct codes *codes,
                        const struct kernel kernel, enum qk_type y_type, enum blocks blocks)
{
    const bool long_enough = blocks == BLOCKS_OF_32 || blocks == BLOCKS_OF_CHUNKS;
    const struct form form =
        form_of(kernel.bits, y_type, kernel.finishes && long_enough, long_enough);
    const uint8_t *x = args->span.x;
    char *y = args->span.y;
    struct how how = {args->span.stream && (uintptr_t)y % 64 == 0, 0};
    for (size_t i = 0, p = args->span.p, done = args->span.done; i < args->span.count; i += CHUNK) {
        if (blocks != BLOCKS_OF_CHUNKS && i + CHUNK > args->span.count)
            i -= begin_early(args, i, form.y_bytes, &how);
        if (how.stream)
            prefetch(x + i * kernel.bits / 8, kernel.bits);
        const size_t at = blocks == BLOCKS_OF_CHUNKS ? p : i / blocks;
        const uint8_t *from = x + i * kernel.bits / 8;
        const struct values v = form.finished
                                    ? look_up_varied(from, args, codes, kernel, form, at, blocks)
                                    : compute_varied(kernel.read(codes, from, form.pairs), args,
                                                     kernel, at, blocks, NULL);
        store_chunk(y + i * form.y_bytes, v, form, how);
        done += CHUNK;
        if (blocks == BLOCKS_OF_CHUNKS && done == args->span.block) {
            p = p + 1 == args->span.period ? 0 : p + 1;
            done = 0;
        }
    }
}

/* The loop for blocks of 16 elements or more, but less than CHUNK. Each vector belongs to one block
 * or two. */
INLINE void loop_short(const struct qk_dequantize_args *args, const struct codes *codes,
                       const struct kernel kernel, enum qk_type y_type)
{
    const struct form form = form_of(kernel.bits, y_type, false, false);
    const uint8_t *x = args->span.x;
    char *y = args->span.y;
    struct how how = {args->span.stream && (uintptr_t)y % 64 == 0, 0};
    struct place at = {0, args->span.p, args->span.block - args->span.done};
    for (; at.i < args->span.count; at.i += CHUNK) {
        if (at.i + CHUNK > args->span.count)
            go_back(args, begin_early(args, at.i, form.y_bytes, &how), &at);
        struct vector_blocks mixed;
        char *to = y + at.i * form.y_bytes;
        const uint8_t *from = x + at.i * kernel.bits / 8;
        if (how.stream)
            prefetch(from, kernel.bits);
        take_vector_blocks(args, &at, &mixed, 0);
        take_vector_blocks(args, &at, &mixed, 1);
        take_vector_blocks(args, &at, &mixed, 2);
        take_vector_blocks(args, &at, &mixed, 3);
        struct values v = kernel.read(codes, from, form.pairs);
        v = compute_varied(v, args, kernel, 0, BLOCKS_SHORT, &mixed);
        store_chunk(to, v, form, how);
    }
}

/* Chooses the loop by the length of blocks. `common`: the special loops for common cases are
 * compiled, too. */
INLINE void choose_loop(const struct qk_dequantize_args *args, const struct kernel kernel,
                        enum qk_type y_type, const bool common)
{
    const struct codes codes = load_codes(args->table, kernel.bits);
    /* Whether the span consists of whole blocks. The mask is right only if the block's length is a
     * power of two, so `whole` is used only for blocks of 16 and 32 elements. */
    const bool whole = args->span.period == 0 && args->span.done == 0 &&
                       (args->span.count & (args->span.block - 1)) == 0;
    if (args->span.block == 1)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_1);
    else if (common && args->span.block == 16 && whole)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_16);
    else if (!kernel.rare && args->span.block == 32 && whole)
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_32);
    else if (common && kernel.finishes && args->span.block > CHUNK && has_whole_chunks(args))
        loop_whole_blocks(args, &codes, kernel, y_type);
    else if (common && args->span.block <= CHUNKS_MAX * CHUNK && has_whole_chunks(args))
        loop_varied(args, &codes, kernel, y_type, BLOCKS_OF_CHUNKS);
    else if (args->span.block < CHUNK)
        loop_short(args, &codes, kernel, y_type);
    else
        loop_blocks(args, &codes, kernel, y_type);
}

/* Chooses between loops for the common case, in which y is not stored past the caches and has no
 * offsets, and loops for all cases. Copies the arguments, so that the compiler can see that storing
 * y does not change them. */
INLINE void choose_common_case(const struct qk_dequantize_args *args, const struct kernel kernel,
                               enum qk_type y_type)
{
    struct qk_dequantize_args copy = *args;
    if (kernel.rare || copy.span.stream || copy.span.offsets) {
        choose_loop(&copy, kernel, y_type, false);
        return;
    }
    copy.span.stream = false;
    copy.span.offsets = NULL;
    choose_loop(&copy, kernel, y_type, true);
}

/* Chooses the loop by the type of y. */
INLINE void choose_y_type(const struct qk_dequantize_args *args, const struct kernel kernel)
{
    if (args->y_type == QK_FP32)
        choose_common_case(args, kernel, QK_FP32);
    else if (args->y_type == QK_FP16)
        choose_common_case(args, kernel, QK_FP16);
    else
        choose_common_case(args, kernel, QK_BF16);
}

#endif
