/* The definition of a product, in plain C: all other kernels give the same bits. The functions
 * accept any layout, so that tests can compare each tier with them on the tier's own packed
 * weights. They are also a backend with a layout of its own, for machines that have no other
 * backend. */
#include "kernels/gemm/igemm.h"

#include <string.h>

enum { QUAD_BYTES = QK_IGEMM_QUAD_BYTES, VECTOR = QK_IGEMM_VECTOR };

/* All functions of this type are inlined, so that compilers vectorize the loops that call them. */
typedef uint32_t product_fn(const uint8_t *x, const uint8_t *w);

static inline uint32_t multiply_bytes(const uint8_t *x, const uint8_t *w)
{
    uint32_t sum = 0;
    for (size_t k = 0; k < 4; k++)
        sum += (uint32_t)(x[k] * (int8_t)w[k]);
    return sum;
}

static inline uint32_t multiply_signed_bytes(const uint8_t *x, const uint8_t *w)
{
    uint32_t sum = 0;
    for (size_t k = 0; k < 4; k++)
        sum += (uint32_t)((int8_t)x[k] * (int8_t)w[k]);
    return sum;
}

static inline uint32_t multiply_words(const uint8_t *x, const uint8_t *w)
{
    int16_t of_x[2], of_w[2];
    memcpy(of_x, x, sizeof(of_x));
    memcpy(of_w, w, sizeof(of_w));
    return (uint32_t)(of_x[0] * of_w[0]) + (uint32_t)(of_x[1] * of_w[1]);
}

static inline uint32_t multiply_quad(const struct qk_igemm *layout, const uint8_t *x,
                                     const uint8_t *w)
{
    if (layout->quad_k == 2)
        return multiply_words(x, w);
    return layout->x_signed ? multiply_signed_bytes(x, w) : multiply_bytes(x, w);
}

/* Adds the products of one quad of weights with the 16 positions of a vector. Compilers vectorize
 * the loop because its length is constant. */
__attribute__((always_inline)) static inline void
add_vector(const uint8_t *quads, const uint8_t *weight, product_fn *product, uint32_t sums[VECTOR])
{
    for (size_t i = 0; i < VECTOR; i++)
        sums[i] += product(quads + i * QUAD_BYTES, weight);
}

/* Computes the sums of one row and one vector of positions. */
__attribute__((always_inline)) static inline void multiply_row(const struct qk_igemm *layout,
                                                               const struct qk_igemm_args *args,
                                                               size_t row, size_t vector,
                                                               product_fn *product)
{
    const uint8_t *weights = args->weights;
    int32_t *to = args->sums + row * QK_IGEMM_NR + vector * VECTOR;
    uint32_t sums[VECTOR] = {0};
    for (size_t s = 0; s < args->step_count; s++, weights += args->step_bytes) {
        const uint8_t *quads = args->quads + args->steps[s].offset + vector * VECTOR * QUAD_BYTES;
        for (size_t i = 0; i < args->steps[s].slabs; i++, quads += args->slab_bytes)
            add_vector(quads, weights + qk_igemm_weight_at(layout, row, i), product, sums);
    }
    for (size_t i = 0; i < VECTOR; i++)
        to[i] = (int32_t)(sums[i] + (args->add ? (uint32_t)to[i] : 0));
}

/* Computes the sum of one row and position, for a kernel by position. */
static void multiply_one(const struct qk_igemm *layout, const struct qk_igemm_args *args,
                         size_t row, size_t position)
{
    const uint8_t *weights = args->weights;
    int32_t *to = args->sums + position * layout->mr + row;
    uint32_t sum = args->add ? (uint32_t)*to : 0;
    for (size_t s = 0; s < args->step_count; s++, weights += args->step_bytes) {
        const uint8_t *quad = args->quads + args->steps[s].offset + position * QUAD_BYTES;
        for (size_t i = 0; i < args->steps[s].slabs; i++, quad += args->slab_bytes)
            sum += multiply_quad(layout, quad, weights + qk_igemm_weight_at(layout, row, i));
    }
    *to = (int32_t)sum;
}

void qk_igemm_multiply_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args)
{
    if (layout->by_position) {
        for (size_t row = 0; row < args->rows; row++)
            for (size_t position = 0; position < args->positions; position++)
                multiply_one(layout, args, row, position);
        return;
    }
    for (size_t row = 0; row < args->rows; row++)
        for (size_t vector = 0; vector < args->vectors; vector++)
            if (layout->quad_k == 2)
                multiply_row(layout, args, row, vector, multiply_words);
            else if (layout->x_signed)
                multiply_row(layout, args, row, vector, multiply_signed_bytes);
            else
                multiply_row(layout, args, row, vector, multiply_bytes);
}

static int32_t dot_row(const struct qk_igemm *layout, const struct qk_igemm_args *args, size_t row,
                       size_t position)
{
    const uint8_t *weights = args->weights;
    const uint8_t *quad = args->quads + position * args->position_bytes;
    uint32_t sum = 0;
    for (size_t s = 0; s < args->step_count; s++, weights += args->step_bytes)
        for (size_t i = 0; i < args->step_slabs; i++, quad += QUAD_BYTES)
            sum += multiply_quad(layout, quad, weights + qk_igemm_weight_at(layout, row, i));
    return (int32_t)sum;
}

void qk_igemm_dot_scalar(const struct qk_igemm *layout, const struct qk_igemm_args *args)
{
    for (size_t row = 0; row < args->rows; row++)
        for (size_t position = 0; position < args->positions; position++) {
            int32_t *to = args->sums + row * args->sums_row + position * args->sums_position;
            const uint32_t before = args->add ? (uint32_t)*to : 0;
            *to = (int32_t)(before + (uint32_t)dot_row(layout, args, row, position));
        }
}

static void multiply(const struct qk_igemm_args *args)
{
    qk_igemm_multiply_scalar(&qk_igemm_u8s8_8x16__scalar, args);
}

static void dot(const struct qk_igemm_args *args)
{
    qk_igemm_dot_scalar(&qk_igemm_u8s8_8x16__scalar, args);
}

enum { MR = 8 };

const struct qk_igemm qk_igemm_u8s8_8x16__scalar = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = QUAD_BYTES,
    .quad_stride = (size_t)MR * QUAD_BYTES,
    .multiply = multiply,
    .dot = dot,
};
