#include "kernels/quantize/quantize.h"

/* Returns how many elements come before the first whole byte of y or, if y is stored past the
 * caches, before its first whole cache line. */
static size_t count_before(const struct qk_span *span, unsigned bits)
{
    const size_t per_byte = bits < 8 ? 8 / bits : 1;
    const size_t to_byte = (per_byte - (span->y_first & (per_byte - 1))) & (per_byte - 1);
    const uintptr_t at = (uintptr_t)span->y + (span->y_first + to_byte) * bits / 8;
    return span->stream ? to_byte + (64 - at % 64) % 64 * 8 / bits : to_byte;
}

/* Returns how many elements come after the last whole byte of y or, if y is stored past the caches,
 * after its last whole chunk and cache line. `before` is the result of count_before. */
static size_t count_behind(const struct qk_span *span, unsigned bits, size_t before)
{
    const size_t per_byte = bits < 8 ? 8 / bits : 1;
    const size_t per_line = 512 / bits;
    const size_t unit = !span->stream                  ? per_byte
                        : per_line > QK_QUANTIZE_CHUNK ? per_line
                                                       : QK_QUANTIZE_CHUNK;
    return (span->count - before) & (unit - 1);
}

static void run_scalar(const struct qk_quantize_args *args, size_t begin, size_t end)
{
    struct qk_quantize_args part = *args;
    part.span = qk_span_part(&args->span, begin, end);
    qk_quantize_scalar(&part);
}

void qk_quantize(const struct qk_quantize_kernels *kernels, const struct qk_quantize_args *args)
{
    const struct qk_span *span = &args->span;
    const unsigned bits = qk_type_info(args->y_type)->bits;
    const size_t begin = count_before(span, bits);
    if (begin >= span->count || !qk_span_takes_blocks(span)) {
        qk_quantize_scalar(args);
        return;
    }
    const size_t end = span->count - count_behind(span, bits, begin);
    if (end - begin < QK_QUANTIZE_CHUNK) {
        qk_quantize_scalar(args);
        return;
    }
    if (begin > 0)
        run_scalar(args, 0, begin);
    struct qk_quantize_args part = *args;
    part.span = qk_span_part(span, begin, end);
    part.span = qk_span_moved(&part.span, qk_type_info(args->x_type)->bits, bits);
    kernels->run(&part);
    if (end < span->count)
        run_scalar(args, end, span->count);
}
