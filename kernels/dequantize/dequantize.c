#include "kernels/dequantize/dequantize.h"

#include "kernels/element/float.h"
#include "kernels/wrap.h"

/* ---- Tables of codes --------------------------------------------------------------------- */

static float decode(enum qk_type type, uint32_t code)
{
    const struct qk_type_info *info = qk_type_info(type);
    if (info->kind == QK_KIND_FLOAT)
        return qk_float_decode(type, code);
    const int32_t sign = info->kind == QK_KIND_SIGNED ? 1 << (info->bits - 1) : 0;
    return (float)(((int32_t)code ^ sign) - sign);
}

/* Fills the parts from values[0] to values[127], whose sign is +. A byte minus its step may wrap.
 * Kernels add the step again. */
QK_WRAPS static void init_parts(struct qk_float8_parts *parts, enum qk_type type,
                                const float *values)
{
    const bool wide = type == QK_FP8E5M2 || type == QK_FP8E5M2FNUZ; /* 5 bits of exponent, not 4 */
    /* Adding `turn` moves these codes to s < 16: the NaN of FP8E4M3FN; the greatest binade of both
     * types with 5 bits of exponent; the infinities and NaNs of FP8E5M2. Without the greatest
     * binade, FP16 holds the values times any scale from 1/2 to 2. */
    parts->turn = type == QK_FP8E4M3FN ? 1 : type == QK_FP8E5M2 ? 8 : wide ? 4 : 0;
    parts->shift = wide ? 3 : 4;
    parts->least = values[(16 - parts->turn) & 127];
    parts->most = values[(127 - parts->turn) & 127];
    for (uint8_t special = 0; special < 2; special++)
        for (uint8_t i = 0; i < 16; i++) {
            const uint8_t s = special ? i : 48 + i;
            const float value = values[(s - parts->turn) & 127];
            const uint8_t step = (uint8_t)(s >> parts->shift);
            parts->values[special][i] = value;
            parts->steps[special][i] = step;
            parts->bytes[special][0][i] = (uint8_t)(qk_bits_of_float(value) >> 16);
            parts->bytes[special][1][i] = (uint8_t)((qk_bits_of_float(value) >> 24) - step);
        }
}

void qk_code_table_init(struct qk_code_table *table, enum qk_type type)
{
    const uint32_t mask = (1U << qk_type_info(type)->bits) - 1;
    for (uint32_t i = 0; i < 256; i++)
        table->values[i] = decode(type, i & mask);
    for (uint32_t i = 0; i < 128; i++) {
        table->halves[0][i] = (uint8_t)(qk_bits_of_float(table->values[i]) >> 16);
        table->halves[1][i] = (uint8_t)(qk_bits_of_float(table->values[i]) >> 24);
    }
    init_parts(&table->parts, type, table->values);
}

/* ---- Calls of a tier's kernels ----------------------------------------------------------- */

unsigned qk_dequantize_bits(enum qk_code code)
{
    static const uint8_t bits[QK_CODE_COUNT] = {
        [QK_CODE_U8] = 8,           [QK_CODE_S8] = 8,         [QK_CODE_U16] = 16,
        [QK_CODE_S16] = 16,         [QK_CODE_BITS2] = 2,      [QK_CODE_BITS4] = 4,
        [QK_CODE_FLOAT8] = 8,       [QK_CODE_S32] = 32,       [QK_CODE_S32_RECAST] = 32,
        [QK_CODE_S32_WRAPPED] = 32, [QK_CODE_S32_EXACT] = 32, [QK_CODE_U32_EXACT] = 32,
    };
    return bits[code];
}

static unsigned y_bits(const struct qk_dequantize_args *args)
{
    return args->y_type == QK_FP32 ? 32 : 16;
}

/* Returns how many elements come before the first one at which x begins a byte and, if y is stored
 * past the caches, y begins a cache line. If no element does both, only x counts. */
static size_t count_to_alignment(const struct qk_dequantize_args *args, size_t per_byte)
{
    const struct qk_span *span = &args->span;
    const size_t y_bytes = y_bits(args) / 8;
    const size_t to_byte = (per_byte - (span->x_first & (per_byte - 1))) & (per_byte - 1);
    const uintptr_t y = (uintptr_t)span->y + span->y_first * y_bytes;
    const size_t to_line = (64 - y % 64) % 64 / y_bytes;
    return span->stream && (to_line & (per_byte - 1)) == to_byte ? to_line : to_byte;
}

/* Returns how many elements come after the last whole byte of x or, if y is stored past the caches
 * from the beginning of a cache line on, after the last whole cache line. Storing a part of a
 * cache line past the caches, or a cache line twice, costs as much as hundreds of elements. */
static size_t count_behind(const struct qk_dequantize_args *args, size_t per_byte, size_t begin)
{
    const struct qk_span *span = &args->span;
    const size_t y_bytes = y_bits(args) / 8;
    const uintptr_t y = (uintptr_t)span->y + (span->y_first + begin) * y_bytes;
    return span->stream && y % 64 == 0 ? (span->count - begin) & (64 / y_bytes - 1)
                                       : (span->x_first + span->count) & (per_byte - 1);
}

static void run_scalar(const struct qk_dequantize_args *args, size_t begin, size_t end)
{
    struct qk_dequantize_args part = *args;
    part.span = qk_span_part(&args->span, begin, end);
    qk_dequantize_scalar(&part);
}

/* Computes elements [begin, end) with the tier's kernel, and the elements before and after them
 * with the scalar kernel. */
static void run_parts(const struct qk_dequantize_kernels *kernels,
                      const struct qk_dequantize_args *args, size_t begin, size_t end)
{
    struct qk_dequantize_args part = *args;
    part.span = qk_span_part(&args->span, begin, end);
    part.span = qk_span_moved(&part.span, qk_dequantize_bits(args->code), y_bits(args));
    kernels->run[args->code](&part);
    if (begin > 0)
        run_scalar(args, 0, begin);
    if (end < args->span.count)
        run_scalar(args, end, args->span.count);
}

void qk_dequantize(const struct qk_dequantize_kernels *kernels,
                   const struct qk_dequantize_args *args)
{
    const struct qk_span *span = &args->span;
    const unsigned bits = qk_dequantize_bits(args->code);
    const size_t per_byte = bits < 8 ? 8 / bits : 1;
    const size_t begin = count_to_alignment(args, per_byte);
    const size_t behind = count_behind(args, per_byte, begin);
    if (span->count < begin + QK_DEQUANTIZE_CHUNK + behind || !qk_span_takes_blocks(span))
        qk_dequantize_scalar(args);
    else if (span->x_first == 0 && span->y_first == 0 && begin == 0 && behind == 0)
        kernels->run[args->code](args);
    else
        run_parts(kernels, args, begin, span->count - behind);
}
