#include "kernels/dequantize/affine.h"

#include <math.h>
#include <string.h>

#include "kernels/dispatch.h"

enum qk_code qk_affine_code(enum qk_type x_type, enum qk_affine_form form)
{
    switch (x_type) {
    case QK_UINT8:
        return QK_CODE_U8;
    case QK_INT8:
        return QK_CODE_S8;
    case QK_UINT16:
        return QK_CODE_U16;
    case QK_INT16:
        return QK_CODE_S16;
    case QK_UINT32:
        return QK_CODE_U32_EXACT;
    case QK_INT32:
        return form == QK_AFFINE_WRAPPED ? QK_CODE_S32_WRAPPED
               : form == QK_AFFINE_EXACT ? QK_CODE_S32_EXACT
               : form == QK_AFFINE_FLOAT ? QK_CODE_S32
                                         : QK_CODE_S32_RECAST;
    default:
        return qk_type_info(x_type)->bits == 2   ? QK_CODE_BITS2
               : qk_type_info(x_type)->bits == 4 ? QK_CODE_BITS4
                                                 : QK_CODE_FLOAT8;
    }
}

void qk_affine_canonical(enum qk_type type, float *values, size_t count)
{
    if (type == QK_FP32)
        return;
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]))
            values[i] = copysignf(NAN, values[i]);
}

float qk_affine_zero(enum qk_type x_type, float zero)
{
    switch (x_type) {
    case QK_UINT8:
        return zero + QK_MAGIC_U8;
    case QK_INT8:
        return zero + QK_MAGIC_S8;
    case QK_UINT16:
        return zero + QK_MAGIC_U16;
    case QK_INT16:
        return zero + QK_MAGIC_S16;
    default:
        return zero;
    }
}

/* ---- Prepare and pack -------------------------------------------------------------------- */

/* Returns whether kernels may read floats or int32s at this address. */
static bool is_aligned(const void *data)
{
    return (uintptr_t)data % sizeof(int32_t) == 0;
}

/* Returns whether zero points stay as they are, as 32-bit zero points do. All other zero points are
 * exact as floats, and a kernel converts them. */
static bool keeps_zeros(enum qk_type x_type)
{
    return qk_type_info(x_type)->bits == 32;
}

static void make_scales(const struct qk_affine *affine, size_t begin, size_t count)
{
    const struct qk_affine_source *source = &affine->source;
    const size_t bytes = qk_type_info(source->scale_type)->bits / 8;
    const void *from = (const char *)source->scale_data + begin * bytes;
    float *to = source->scales + begin;
    if (source->scale_type == QK_FP32)
        memcpy(to, from, count * bytes);
    else
        source->kernels->widen(to, source->scale_type, from, count);
    qk_affine_canonical(affine->y_type, to, count);
}

static void make_zeros(const struct qk_affine *affine, size_t begin, size_t count)
{
    static const float one = 1;
    const struct qk_affine_source *source = &affine->source;
    const float magic = qk_affine_zero(affine->x_type, 0);
    const struct qk_dequantize_args args = {
        .code = qk_affine_code(affine->x_type, affine->form),
        .y_type = QK_FP32,
        .table = affine->table,
        .span = {.x = source->zero_data,
                 .y = source->zeros,
                 .x_first = begin,
                 .y_first = begin,
                 .count = count,
                 .block = SIZE_MAX,
                 .scales = &one,
                 .offsets = &magic},
    };
    if (keeps_zeros(affine->x_type))
        memcpy((float *)source->zeros + begin, (const float *)source->zero_data + begin,
               count * sizeof(float));
    else
        qk_dequantize(source->kernels, &args);
}

/* Makes parameters [begin, end), as far as they exist. */
static void make(const struct qk_affine *affine, size_t begin, size_t end)
{
    const struct qk_affine_source *source = &affine->source;
    const size_t scales = qk_affine_count_in(begin, end, source->scale_count);
    const size_t zeros = qk_affine_count_in(begin, end, source->zero_count);
    if (source->scales && scales > 0)
        make_scales(affine, begin, scales);
    if (source->zeros && zeros > 0)
        make_zeros(affine, begin, zeros);
}

void qk_affine_pack(struct qk_affine *affine, size_t begin, size_t end)
{
    make(affine, begin * QK_AFFINE_UNIT, end * QK_AFFINE_UNIT);
}

static const struct qk_code_table *make_table(enum qk_type type, struct qk_memory memory)
{
    struct qk_code_table *table = memory.alloc(memory.context, sizeof(*table));
    if (table)
        qk_code_table_init(table, type);
    return table;
}

/* Borrows scales and zeros, or allocates memory for them. Returns false if there is no memory. */
static bool take_parameters(struct qk_affine *affine, bool has_zeros, bool constants_stay,
                            struct qk_memory memory)
{
    struct qk_affine_source *source = &affine->source;
    affine->scales = source->scale_data;
    affine->zeros = has_zeros ? source->zero_data : NULL;
    /* If y has 16 bits, kernels need canonical NaNs, so the scales are copied. */
    if (!constants_stay || source->scale_type != QK_FP32 || affine->y_type != QK_FP32 ||
        source->scale_count == 0 || !is_aligned(source->scale_data))
        affine->scales = source->scales = qk_alloc_words(source->scale_count, memory);
    if (has_zeros && (!constants_stay || !keeps_zeros(affine->x_type) || source->zero_count == 0 ||
                      !is_aligned(source->zero_data)))
        affine->zeros = source->zeros = qk_alloc_words(source->zero_count, memory);
    return affine->scales && (!has_zeros || affine->zeros);
}

enum qk_status qk_affine_prepare(struct qk_affine *affine,
                                 const struct qk_dequantize_kernels *kernels,
                                 const struct qk_tensor *scale, const struct qk_tensor *zero_point,
                                 bool constants_stay, struct qk_memory memory,
                                 struct qk_instance *instance, struct qk_error *error)
{
    const struct qk_type_info *x = qk_type_info(affine->x_type);
    const bool has_zeros = zero_point->type != QK_NONE && x->kind != QK_KIND_FLOAT;
    const bool has_table = x->bits < 8 || x->kind == QK_KIND_FLOAT;
    struct qk_affine_source *source = &affine->source;
    *source = (struct qk_affine_source){.kernels = kernels,
                                        .scale_data = scale->data,
                                        .scale_type = scale->type,
                                        .scale_count = scale->stored,
                                        .zero_data = zero_point->data,
                                        .zero_count = has_zeros ? zero_point->stored : 0};
    affine->table = has_table ? make_table(affine->x_type, memory) : NULL;
    if ((has_table && !affine->table) ||
        !take_parameters(affine, has_zeros, constants_stay, memory))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for %zu scales and zero points",
                       scale->stored);
    const size_t count =
        source->scale_count > source->zero_count ? source->scale_count : source->zero_count;
    instance->pack_unit_cost_ns = QK_AFFINE_UNIT_NS;
    instance->pack_unit_count = source->scales || source->zeros ? qk_affine_units(count) : 0;
    affine->whole = instance->pack_unit_count == 0;
    if (affine->whole)
        make(affine, 0, count);
    return QK_OK;
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* What is the same for all calls of a plan. */
struct context {
    const struct qk_dequantize_kernels *kernels;
    struct qk_dequantize_args args;
};

static void run(const void *opaque, const struct qk_span *span)
{
    const struct context *context = opaque;
    const struct qk_dequantize_args *same = &context->args;
    const struct qk_dequantize_args args = {
        .code = same->code,
        .y_type = same->y_type,
        .table = same->table,
        .span =
            qk_span_moved(span, qk_dequantize_bits(same->code), qk_type_info(same->y_type)->bits),
    };
    qk_dequantize(context->kernels, &args);
}

enum qk_status qk_affine_plan(const struct qk_affine *affine, const struct qk_instance *instance,
                              const struct qk_tensor *x, const struct qk_broadcast *broadcast,
                              struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_dequantize_kernels *kernels = &instance->kernels->dequantize;
    struct context *context = memory.alloc(memory.context, sizeof(*context));
    if (!context)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *context = (struct context){kernels,
                                {.code = qk_affine_code(affine->x_type, affine->form),
                                 .y_type = affine->y_type,
                                 .table = affine->table}};
    const struct qk_elementwise elementwise = {
        .name = kernels->name,
        .run = run,
        .context = context,
        .finish = kernels->finish,
        .repeat = kernels->repeat,
        .element_cycles = kernels->element_cycles,
        .x_bits = qk_type_info(affine->x_type)->bits,
        .y_bits = qk_type_info(affine->y_type)->bits,
        .tuning = &instance->kernels->choice.elementwise,
        .parameters = {(const void *)affine->scales, affine->zeros, (const void *)affine->offsets},
        .whole = affine->whole};
    return qk_elementwise_plan(&elementwise, instance, x, affine->y_type, broadcast, memory, plan,
                               error);
}
