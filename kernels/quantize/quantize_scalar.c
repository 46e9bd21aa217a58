/* The reference of the quantize kernels, in plain C. Every tier gives the same bits. */
#include "kernels/quantize/quantize.h"

#include <float.h>

#include "kernels/element/load.h"
#include "kernels/element/round.h"

_Static_assert(FLT_EVAL_METHOD == 0, "operations round to their type, each of them");

/* ---- The quotient -------------------------------------------------------------------------- */

static inline float load_x(const struct qk_quantize_args *args, size_t i)
{
    const size_t index = args->span.x_first + i;
    if (args->x_type == QK_FP32)
        return qk_load_f32(args->span.x, index);
    if (args->x_type == QK_INT32)
        return (float)qk_load_i32(args->span.x, index);
    return qk_float_decode(args->x_type, qk_element_load(args->x_type, args->span.x, index));
}

static inline float rounded(enum qk_division division, float value)
{
    if (division == QK_DIVISION_FP16)
        return qk_float_decode(QK_FP16, qk_fp16_round_inline(value));
    if (division == QK_DIVISION_BF16)
        return qk_float_decode(QK_BF16, qk_bf16_round_inline(value));
    return value;
}

static inline float quotient(const struct qk_quantize_args *args, size_t i, size_t p)
{
    const float scale = qk_load_f32(args->span.scales, p);
    return rounded(args->division, rounded(args->division, load_x(args, i)) / scale);
}

static inline double wide_quotient(const struct qk_quantize_args *args, size_t i, size_t p)
{
    const double x = args->x_type == QK_INT32
                         ? (double)qk_load_i32(args->span.x, args->span.x_first + i)
                         : (double)load_x(args, i);
    const double scale = args->division == QK_DIVISION_FP64_INTEGER
                             ? (double)qk_load_i32(args->span.scales, p)
                             : (double)qk_load_f32(args->span.scales, p);
    return x / scale;
}

/* ---- What it becomes ----------------------------------------------------------------------- */

/* Clamps a quotient that becomes an integer, so that its sum with a zero point fits into 32 bits.
 * Quotients beyond the limits saturate with any zero point of up to 16 bits. A NaN becomes the
 * lower limit. */
static inline double limited(double value)
{
    const double limit = 0x1p30;
    return value >= limit ? limit : value >= -limit ? value : -limit;
}

static inline uint32_t to_integer(const struct qk_quantize_args *args, double value, size_t p)
{
    const struct qk_type_info *info = qk_type_info(args->y_type);
    const int32_t zero = args->span.zeros ? qk_load_i32(args->span.zeros, p) : 0;
    const int32_t sum = qk_round_even(limited(value)) + zero;
    return (uint32_t)(sum < info->min ? info->min : sum > info->max ? info->max : sum);
}

static inline uint32_t to_float(const struct qk_quantize_args *args, size_t i, size_t p)
{
    const float zero = args->span.zeros ? qk_load_f32(args->span.zeros, p) : -0.0F;
    if (args->division >= QK_DIVISION_FP64)
        return qk_narrow(args->narrow, (float)(wide_quotient(args, i, p) + (double)zero));
    return qk_narrow(args->narrow, quotient(args, i, p) + zero);
}

static inline uint32_t code_at(const struct qk_quantize_args *args, size_t i, size_t p)
{
    if (args->narrow)
        return to_float(args, i, p);
    if (args->division >= QK_DIVISION_FP64)
        return to_integer(args, wide_quotient(args, i, p), p);
    return to_integer(args, (double)quotient(args, i, p), p);
}

/* Stores a code. Keeps the elements before it in its byte. The elements after it are stored later.
 */
static inline void store(unsigned bits, void *y, size_t index, uint32_t code)
{
    uint8_t *bytes = y;
    if (bits == 16) {
        memcpy(bytes + 2 * index, &code, 2);
    } else if (bits == 8) {
        bytes[index] = (uint8_t)code;
    } else {
        const unsigned shift = (unsigned)(index % (8 / bits)) * bits;
        uint8_t *byte = &bytes[index / (8 / bits)];
        const uint32_t before = *byte & ((1U << shift) - 1);
        *byte = (uint8_t)(before | (code & ((1U << bits) - 1)) << shift);
    }
}

void qk_quantize_scalar(const struct qk_quantize_args *args)
{
    const struct qk_span *span = &args->span;
    const unsigned bits = qk_type_info(args->y_type)->bits;
    size_t left = span->block - span->done;
    for (size_t i = 0, p = span->p, end; i < span->count; left = span->block) {
        end = left < span->count - i ? i + left : span->count;
        for (; i < end; i++)
            store(bits, span->y, span->y_first + i, code_at(args, i, p));
        p = p + 1 == span->period ? 0 : p + 1;
    }
}

static void finish(void)
{
}

void qk_quantize_init_scalar(struct qk_quantize_kernels *kernels)
{
    *kernels = (struct qk_quantize_kernels){.name = "quantize_scalar",
                                            .run = qk_quantize_scalar,
                                            .finish = finish,
                                            .element_cycles = 20};
}
