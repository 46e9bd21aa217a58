/* What every dequantizer lowers to: y = fl(v * scale + offset), v made of x in one of five ways,
 * each written operation rounded once, never fused, and one more rounding to the type of y.
 *
 * An operator's create fills a qk_affine, its plan says by a qk_grid which parameters go where. */
#ifndef KERNELS_DEQUANTIZE_AFFINE_H
#define KERNELS_DEQUANTIZE_AFFINE_H

#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/grid.h"

enum qk_affine_form {
    QK_AFFINE_WRAPPED, /* v = fl32(x - zero_point), the difference modulo 2^32 as an int32 (ONNX) */
    QK_AFFINE_EXACT,   /* v = fl32(x - zero_point), the difference exact (DirectML) */
    QK_AFFINE_DECODED, /* v = x, a float8 or float4; nothing is subtracted (ONNX) */
    QK_AFFINE_SHIFTED, /* v = fl32(fl32(x) + shift) (TensorFlow) */
    QK_AFFINE_RECAST   /* v = fl32(int32(fl32(x))), where 2^31 overflows to -2^31 (TensorFlow) */
};

/* All that is constant; the arrays are borrowed and live as long as this. */
struct qk_affine {
    enum qk_affine_form form;
    enum qk_type x_type; /* floats for DECODED, integers for the others */
    enum qk_type y_type; /* FP32, FP16 or BF16 */
    float shift;
    const float *scales;
    const int32_t *zero_points; /* the low 32 bits of each; NULL: all are 0 */
    const float *offsets;       /* as many as scales, in the same places; NULL: none are added */
    const float *codes;         /* DECODED: the value of each code of x */
};

/* Room for `count` floats or int32s, or for one, so that NULL always means no memory. */
void *qk_alloc_words(size_t count, struct qk_memory memory);

/* Fills scales, zero_points and codes, for the other members as they are: scales of any float type
 * become FP32, which holds them exactly. A zero point that is absent or a float is left out. Reads
 * the `stored` elements of both, and takes memory in proportion to them. */
enum qk_status qk_affine_set(struct qk_affine *affine, const struct qk_tensor *scale,
                             const struct qk_tensor *zero_point, struct qk_memory memory,
                             struct qk_error *error);

/* Plans y of the call's first input, which is x. `affine` must outlive the plan, `grid` is
 * copied. */
enum qk_status qk_affine_plan(const struct qk_affine *affine,
                              const struct qk_dequantize_kernels *kernels,
                              const struct qk_call *call, const struct qk_grid *grid,
                              struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error);

/* ---- A few hundred elements at a time, for runs that no kernel of a tier's takes ------------ */

#define QK_CHUNK 256

struct qk_chunk {
    size_t count;
    int32_t words[QK_CHUNK]; /* x, see qk_load_words */
    int32_t zero_points[QK_CHUNK];
    float scales[QK_CHUNK];
    float offsets[QK_CHUNK];
    float values[QK_CHUNK]; /* y, before its rounding */
};

/* Appends a piece: x as words, and the parameters of each element. */
void qk_chunk_append(struct qk_chunk *chunk, const struct qk_affine *affine, const void *x,
                     const struct qk_grid_piece *piece);

/* Computes chunk->values from the rest. */
void qk_chunk_compute(struct qk_chunk *chunk, const struct qk_affine *affine);

/* Rounds the values to `type` and stores them in y from element `index` on. */
void qk_chunk_store(const struct qk_chunk *chunk, enum qk_type type, void *y, size_t index);

#endif
