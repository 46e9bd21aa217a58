#include "kernels/dequantize/affine.h"
#include "kernels/element/float.h"
#include "kernels/element/words.h"

void qk_chunk_append(struct qk_chunk *chunk, const struct qk_affine *affine, const void *x,
                     const struct qk_grid_piece *piece)
{
    const size_t at = chunk->count;
    const float *scales = affine->scales + piece->scale;
    const size_t stride = piece->scale_stride;
    qk_load_words(affine->x_type, x, piece->x, piece->x_stride, piece->count, chunk->words + at);
    for (size_t i = 0; i < piece->count; i++)
        chunk->scales[at + i] = scales[i * stride];
    if (affine->zero_points) {
        const int32_t *zero_points = affine->zero_points + piece->zero_point;
        for (size_t i = 0; i < piece->count; i++)
            chunk->zero_points[at + i] = zero_points[i * piece->zero_point_stride];
    }
    if (affine->offsets) {
        const float *offsets = affine->offsets + piece->scale;
        for (size_t i = 0; i < piece->count; i++)
            chunk->offsets[at + i] = offsets[i * stride];
    }
    chunk->count += piece->count;
}

static void subtract_wrapping(struct qk_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] =
            (float)(int32_t)((uint32_t)chunk->words[i] - (uint32_t)chunk->zero_points[i]);
}

static void subtract_int32(struct qk_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] = (float)((int64_t)chunk->words[i] - (int64_t)chunk->zero_points[i]);
}

static void subtract_uint32(struct qk_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] =
            (float)((int64_t)(uint32_t)chunk->words[i] - (int64_t)(uint32_t)chunk->zero_points[i]);
}

static void decode(struct qk_chunk *chunk, const float *codes)
{
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] = codes[chunk->words[i]];
}

static void shift(struct qk_chunk *chunk, float by)
{
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] = (float)chunk->words[i] + by;
}

/* Only 2147483584 and more round to 2^31. */
static void recast(struct qk_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++) {
        const float value = (float)chunk->words[i];
        chunk->values[i] = value == 0x1p31F ? -0x1p31F : value;
    }
}

void qk_chunk_compute(struct qk_chunk *chunk, const struct qk_affine *affine)
{
    if (affine->form == QK_AFFINE_DECODED)
        decode(chunk, affine->codes);
    else if (affine->form == QK_AFFINE_SHIFTED)
        shift(chunk, affine->shift);
    else if (affine->form == QK_AFFINE_RECAST)
        recast(chunk);
    else if (affine->form == QK_AFFINE_EXACT && affine->x_type == QK_UINT32)
        subtract_uint32(chunk);
    else if (affine->form == QK_AFFINE_EXACT && affine->x_type == QK_INT32)
        subtract_int32(chunk);
    else /* narrower ones have no need to wrap */
        subtract_wrapping(chunk);
    for (size_t i = 0; i < chunk->count; i++)
        chunk->values[i] = chunk->values[i] * chunk->scales[i];
    for (size_t i = 0; affine->offsets && i < chunk->count; i++)
        chunk->values[i] = chunk->values[i] + chunk->offsets[i];
}

void qk_chunk_store(const struct qk_chunk *chunk, enum qk_type type, void *y, size_t index)
{
    uint16_t *halves = (uint16_t *)y + index;
    switch (type) {
    case QK_FP16:
        for (size_t i = 0; i < chunk->count; i++)
            halves[i] = qk_fp16_round_inline(chunk->values[i]);
        break;
    case QK_BF16:
        for (size_t i = 0; i < chunk->count; i++)
            halves[i] = qk_bf16_round_inline(chunk->values[i]);
        break;
    default:
        memcpy((float *)y + index, chunk->values, chunk->count * sizeof(float));
    }
}
