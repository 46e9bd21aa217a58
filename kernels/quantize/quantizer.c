#include "kernels/quantize/quantizer.h"

#include <string.h>

#include "kernels/dequantize/affine.h"
#include "kernels/dispatch.h"

/* ---- Which rules hold --------------------------------------------------------------------- */

static enum qk_division division_of(enum qk_type x_type, enum qk_type scale_type,
                                    enum qk_type precision)
{
    if (precision != QK_NONE)
        return precision == QK_FP16   ? QK_DIVISION_FP16
               : precision == QK_BF16 ? QK_DIVISION_BF16
                                      : QK_DIVISION_FP32;
    if (scale_type == QK_INT32)
        return QK_DIVISION_FP64_INTEGER;
    if (x_type == QK_INT32)
        return QK_DIVISION_FP64;
    return x_type == QK_BF16 && scale_type == QK_BF16 ? QK_DIVISION_BF16 : QK_DIVISION_FP32;
}

void qk_quantizer_init(struct qk_quantizer *quantizer, enum qk_type x_type, enum qk_type scale_type,
                       enum qk_type y_type, enum qk_type precision, bool saturates)
{
    const struct qk_type_info *y = qk_type_info(y_type);
    const bool as_onnxruntime = (x_type == QK_FP32 || x_type == QK_FP16) &&
                                (scale_type == QK_FP32 || scale_type == QK_FP16) &&
                                precision != QK_BF16;
    *quantizer = (struct qk_quantizer){
        .x_type = x_type,
        .y_type = y_type,
        .division = division_of(x_type, scale_type, precision),
    };
    if (y->kind == QK_KIND_FLOAT)
        qk_narrow_init(&quantizer->narrow, y_type, saturates,
                       as_onnxruntime ? QK_NARROW_AS_ONNXRUNTIME : QK_NARROW_AS_REFERENCE);
}

/* ---- Prepare and pack --------------------------------------------------------------------- */

/* Returns whether scales of this type already are what the division reads, so that no copy is
 * needed. */
static bool keeps_scales(const struct qk_quantizer *quantizer, enum qk_type type)
{
    return quantizer->division == QK_DIVISION_FP64_INTEGER ||
           (type == QK_FP32 &&
            (quantizer->division == QK_DIVISION_FP32 || quantizer->division == QK_DIVISION_FP64));
}

static void round_all(float *values, size_t count, enum qk_division division)
{
    for (size_t i = 0; i < count && division == QK_DIVISION_FP16; i++)
        values[i] = qk_float_decode(QK_FP16, qk_fp16_round_inline(values[i]));
    for (size_t i = 0; i < count && division == QK_DIVISION_BF16; i++)
        values[i] = qk_float_decode(QK_BF16, qk_bf16_round_inline(values[i]));
}

/* Reads elements from `begin` on as floats. `type` is an integer of up to 16 bits, a float4, or
 * INT32, whose elements become the nearest floats. */
static void read_floats(const struct qk_quantizer_source *source, enum qk_type type,
                        const void *data, size_t begin, size_t count, float *to)
{
    static const float one = 1;
    const struct qk_dequantize_args args = {.code = qk_affine_code(type, QK_AFFINE_FLOAT),
                                            .y_type = QK_FP32,
                                            .table = source->table,
                                            .span = {.x = data,
                                                     .y = to,
                                                     .x_first = begin,
                                                     .count = count,
                                                     .block = SIZE_MAX,
                                                     .scales = &one}};
    qk_dequantize(source->kernels, &args);
}

/* Makes `count` scales from `begin` on: copies them if the division reads them as they are, and
 * otherwise converts them to floats and rounds these. With QK_DIVISION_FP64_INTEGER the scales are
 * INT32 and are copied. The array of floats at `to` then holds the bits of INT32. */
static void make_scales(const struct qk_quantizer *quantizer, size_t begin, size_t count)
{
    const struct qk_quantizer_source *source = &quantizer->source;
    const size_t bytes = qk_type_info(source->scale_type)->bits / 8;
    const void *from = (const char *)source->scale_data + begin * bytes;
    float *to = (float *)source->scales + begin;
    if (keeps_scales(quantizer, source->scale_type) || source->scale_type == QK_FP32)
        memcpy(to, from, count * bytes);
    else if (source->scale_type == QK_INT32)
        read_floats(source, QK_INT32, source->scale_data, begin, count, to);
    else
        source->kernels->widen(to, source->scale_type, from, count);
    round_all(to, count, quantizer->division);
}

/* Makes `count` zeros from `begin` on: first as floats, whose bits lie in `to`. If y is an integer,
 * each float is then replaced by the bits of an INT32. */
static void make_zeros(const struct qk_quantizer *quantizer, size_t begin, size_t count)
{
    const struct qk_quantizer_source *source = &quantizer->source;
    uint32_t *to = source->zeros + begin;
    read_floats(source, quantizer->y_type, source->zero_data, begin, count, (float *)to);
    if (qk_type_info(quantizer->y_type)->kind == QK_KIND_FLOAT)
        return;
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, &to[i], sizeof(value));
        to[i] = (uint32_t)(int32_t)value;
    }
}

/* Makes parameters [begin, end), as far as they exist. */
static void make(const struct qk_quantizer *quantizer, size_t begin, size_t end)
{
    const struct qk_quantizer_source *source = &quantizer->source;
    const size_t scales = qk_affine_count_in(begin, end, source->scale_count);
    const size_t zeros = qk_affine_count_in(begin, end, source->zero_count);
    if (source->scales && scales > 0)
        make_scales(quantizer, begin, scales);
    if (source->zeros && zeros > 0)
        make_zeros(quantizer, begin, zeros);
}

void qk_quantizer_pack(struct qk_quantizer *quantizer, size_t begin, size_t end)
{
    make(quantizer, begin * QK_AFFINE_UNIT, end * QK_AFFINE_UNIT);
}

/* Borrows the scales or allocates memory for them, and allocates memory for zeros and the table
 * that reads them. Returns false if there is no memory. */
static bool take_memory(struct qk_quantizer *quantizer, bool has_zeros, bool constants_stay,
                        struct qk_memory memory)
{
    struct qk_quantizer_source *source = &quantizer->source;
    const bool is_aligned = (uintptr_t)source->scale_data % sizeof(uint32_t) == 0;
    quantizer->scales = source->scale_data;
    if (!constants_stay || !keeps_scales(quantizer, source->scale_type) || !is_aligned ||
        source->scale_count == 0)
        quantizer->scales = source->scales = qk_alloc_words(source->scale_count, memory);
    if (!quantizer->scales || !has_zeros)
        return quantizer->scales;
    quantizer->zeros = source->zeros = qk_alloc_words(source->zero_count, memory);
    if (!quantizer->zeros || qk_type_info(quantizer->y_type)->bits >= 8)
        return quantizer->zeros;
    struct qk_code_table *table = memory.alloc(memory.context, sizeof(*table));
    if (table)
        qk_code_table_init(table, quantizer->y_type);
    source->table = table;
    return table;
}

enum qk_status qk_quantizer_prepare(struct qk_quantizer *quantizer,
                                    const struct qk_dequantize_kernels *kernels,
                                    const struct qk_tensor *scale,
                                    const struct qk_tensor *zero_point, bool constants_stay,
                                    struct qk_memory memory, struct qk_instance *instance,
                                    struct qk_error *error)
{
    const struct qk_type_info *y = qk_type_info(quantizer->y_type);
    const bool is_float8 = y->kind == QK_KIND_FLOAT && y->bits == 8;
    const bool has_zeros = zero_point->type != QK_NONE && !is_float8;
    struct qk_quantizer_source *source = &quantizer->source;
    *source = (struct qk_quantizer_source){.kernels = kernels,
                                           .scale_data = scale->data,
                                           .scale_type = scale->type,
                                           .scale_count = scale->count,
                                           .zero_data = zero_point->data,
                                           .zero_count = has_zeros ? zero_point->count : 0};
    if (!take_memory(quantizer, has_zeros, constants_stay, memory))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for %zu scales and zero points",
                       scale->count);
    instance->pack_unit_cost_ns = QK_AFFINE_UNIT_NS;
    instance->pack_unit_count =
        source->scales || source->zeros ? qk_affine_units(source->scale_count) : 0;
    quantizer->whole = instance->pack_unit_count == 0;
    if (quantizer->whole)
        make(quantizer, 0, source->scale_count);
    return QK_OK;
}

/* ---- Plan --------------------------------------------------------------------------------- */

/* What is the same for all calls of a plan. */
struct context {
    const struct qk_quantize_kernels *kernels;
    struct qk_quantize_args args;
};

static void run(const void *opaque, const struct qk_span *span)
{
    const struct context *context = opaque;
    struct qk_quantize_args args = context->args;
    args.span = *span;
    qk_quantize(context->kernels, &args);
}

/* Computing the reciprocal of a scale pays if at least this many elements use it. */
#define USES_MIN 4

/* Returns the reciprocals of all scales, or NULL if scales are used too rarely, if products may not
 * divide by them, or if there is no memory: the kernel then divides. */
static const uint32_t *reciprocals_of(const struct qk_quantizer *quantizer, size_t x_count,
                                      struct qk_memory memory)
{
    const size_t count = quantizer->source.scale_count;
    const float *scales = quantizer->scales;
    bool fit = quantizer->whole && count > 1 && count <= QK_ELEMENTWISE_PERIOD_MAX &&
               x_count / USES_MIN >= count &&
               qk_quantize_has_products(quantizer->x_type, quantizer->division);
    for (size_t i = 0; fit && i < count; i++)
        fit = qk_is_divisor(scales[i]);
    float *reciprocals = fit ? (float *)qk_alloc_words(count, memory) : NULL;
    for (size_t i = 0; reciprocals && i < count; i++)
        reciprocals[i] = 1 / scales[i];
    return (const uint32_t *)reciprocals;
}

enum qk_status qk_quantizer_plan(const struct qk_quantizer *quantizer,
                                 const struct qk_instance *instance, const struct qk_tensor *x,
                                 const struct qk_broadcast *broadcast, struct qk_memory memory,
                                 struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_quantize_kernels *kernels = &instance->kernels->quantize;
    const struct qk_type_info *y = qk_type_info(quantizer->y_type);
    struct context *context = memory.alloc(memory.context, sizeof(*context));
    if (!context)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *context = (struct context){kernels,
                                {.x_type = quantizer->x_type,
                                 .y_type = quantizer->y_type,
                                 .division = quantizer->division,
                                 .narrow = y->kind == QK_KIND_FLOAT ? &quantizer->narrow : NULL}};
    const struct qk_elementwise elementwise = {
        .name = kernels->name,
        .run = run,
        .context = context,
        .finish = kernels->finish,
        .repeat = instance->kernels->dequantize.repeat,
        .element_cycles = kernels->element_cycles,
        .x_bits = qk_type_info(quantizer->x_type)->bits,
        .y_bits = y->bits,
        .tuning = &instance->kernels->choice.elementwise,
        .parameters = {quantizer->scales, quantizer->zeros,
                       reciprocals_of(quantizer, x->count, memory)},
        .whole = quantizer->whole};
    return qk_elementwise_plan(&elementwise, instance, x, quantizer->y_type, broadcast, memory,
                               plan, error);
}
