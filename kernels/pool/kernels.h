/* The kernels of pooling. loops.h has their code in plain C, which is compiled once for each tier.
 * Every tier gives the bits of the scalar tier. Private to kernels/. */
#pragma once

#include "kernels/pool/geometry.h"

/* A segment of one row of output: positions [begin, end) along the columns, and `inner` channels of
 * each. */
struct qk_pool_segment {
    struct qk_pool_axis axis;
    size_t begin, end;
    /* All taps of positions [whole_begin, whole_end) are inside x. The range is inside [begin,
     * end), and empty if it would have only one position. */
    size_t whole_begin, whole_end;
    size_t inner;
    size_t pitch; /* elements between columns of x: `inner`, or more if a segment has one position
                     and some channels of it */
};

/* The parameters of averages. Bytes of x are read as `byte ^ flip`: flip is 0x80 for INT8, whose
 * zero point then is larger by 128. */
struct qk_pool_average {
    uint8_t flip;
    int32_t x_zero; /* with flip: from 0 to 255 */
    float x_scale;
    float y_scale;
    float y_zero;
    float y_min, y_max; /* the range of the output's type */
    /* Global averages only: the multiplier, and x_zero times the number of elements, modulo 2^32.
     */
    float multiplier;
    uint32_t sum_of_zeros;
    /* Planes only: 1 / y_scale. The scales are from 2^-30 to 2^30, and x_scale / y_scale is at most
     * 2^20, so that nothing overflows or loses bits below the least number (qk_pool_is_tame). */
    float y_reciprocal;
};

/* How many bytes the buffers of max_row have: two, one behind the other. */
#define QK_POOL_BUFFER_BYTES ((size_t)8192)

/* Most rows are short, and the end of a loop that is no whole vector costs more than several
 * vectors. Kernels therefore compute up to this multiple of elements wherever they may read x, and
 * throw away what is too much. */
#define QK_POOL_ROUND ((size_t)64)

static inline size_t qk_pool_round(size_t count)
{
    return (count + QK_POOL_ROUND - 1) / QK_POOL_ROUND * QK_POOL_ROUND;
}

/* Returns the index of the first sum of positions from whole_end on. Sums of positions before lie
 * at the beginning. Those of whole positions follow, and are rounded up. */
static inline size_t qk_pool_sums_after(const struct qk_pool_segment *segment)
{
    return (segment->whole_begin - segment->begin) * segment->inner +
           qk_pool_round((segment->whole_end - segment->whole_begin) * segment->inner);
}

/* Windows of planes: of images of one channel, with two axes. Kernels first read whole rows of x,
 * and then keep rows in scratch memory, with padding around each. */
struct qk_pool_planes {
    struct qk_pool_axis row, column;
    size_t lead;  /* elements of padding before each row in the scratch memory */
    size_t pitch; /* elements between rows there */
    /* Elements between the phases of a row there, for averages. Phase i has columns i, i + stride
     * and so on, so that neighbouring windows read neighbours. */
    size_t phase;
    size_t band;    /* rows of y in one call, at most, unless it has whole planes */
    size_t rows;    /* maxima: rows of y that the scratch memory holds */
    size_t scratch; /* bytes */
    float divisor;  /* averages: 0 if it is the number of elements inside x */
};

/* Rows [begin, end) of y of `count` planes. If they are not all rows, `count` is 1. */
struct qk_pool_band {
    const uint8_t *x; /* the first plane */
    size_t x_before;  /* bytes that may be read before it */
    size_t x_bytes;   /* bytes that may be read from there on */
    size_t count;
    size_t begin, end;
    uint8_t *y; /* row `begin` of the first plane */
};

/* The limits of planes. */
#define QK_POOL_KERNEL_MAX 16    /* the largest kernel, which keeps scratch memory small */
#define QK_POOL_STRIDE_MAX 8     /* the largest stride */
#define QK_POOL_REACH_MAX 64     /* the longest pad, and the longest distance of taps */
#define QK_POOL_COLUMNS_MAX 4096 /* longer rows gain nothing */

/* Maxima of bytes or, in the second entry of each array, of signed bytes. */
struct qk_pool_kernels {
    const char *name;      /* the tier's: "pool_avx2" */
    double max_cycles;     /* a rough guess: cycles for a byte of max_rows */
    double average_cycles; /* and for an element that is added to a sum of floats */
    double sum_cycles;     /* and for an element that is added to a sum of integers */
    bool has_planes;       /* whether kernels of planes are faster than those of rows */

    /* to[i] = max(a[i], b[i]). `to` overlaps neither a nor b, which may overlap. */
    void (*max_rows[2])(uint8_t *to, const uint8_t *a, const uint8_t *b, size_t count);
    /* y = the maxima of a segment's windows in one row of x. x begins with column `first`, and has
     * all columns that the segment reads: at most QK_POOL_BUFFER_BYTES. x_bytes may be read. pitch
     * is inner. */
    void (*max_row[2])(const struct qk_pool_segment *segment, const uint8_t *x, size_t first,
                       size_t x_bytes, uint8_t *buffers, uint8_t *y);
    /* y = max(y, the maxima of a segment's windows in one row of x), for any segment. */
    void (*max_into[2])(const struct qk_pool_segment *segment, const uint8_t *x, uint8_t *y);

    /* Adds x_scale * (x - x_zero) of each tap to the sums, tap by tap. Each operation rounds.
     * x_bytes may be read from x on. Sums lie as qk_pool_sums_after says. */
    void (*add_row)(const struct qk_pool_segment *segment, const struct qk_pool_average *average,
                    const uint8_t *x, size_t x_bytes, float *sums);
    /* y = sums / divisor / y_scale + y_zero, rounded to even. As in x86's conversion, what exceeds
     * int32 becomes the least number, and so does NaN. qk_pool_round(count) sums may be read. */
    void (*finish)(const struct qk_pool_average *average, const float *sums, float divisor,
                   size_t count, uint8_t *y);

    /* y = the maxima or averages of all windows of a band. `scratch` has as many bytes as `planes`
     * says, and is aligned to 64 bytes. Averages are those of add_row and finish. */
    void (*max_planes[2])(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                          uint8_t *scratch);
    void (*average_planes)(const struct qk_pool_planes *planes,
                           const struct qk_pool_average *average, const struct qk_pool_band *band,
                           float *scratch);

    /* sums[i] = the sum of x[i * size] to x[i * size + size - 1]. size is less than 2^24, so that
     * no sum wraps. x_bytes may be read. */
    void (*sum_planes)(const uint8_t *x, size_t x_bytes, size_t count, size_t size, uint8_t flip,
                       uint32_t *sums);
    /* sums[i] = the sum of x[i + row * pitch] over all rows, modulo 2^32. */
    void (*sum_rows)(const uint8_t *x, size_t rows, size_t pitch, uint8_t flip, size_t count,
                     uint32_t *sums);
    /* y = clamp((sums - sum_of_zeros) * multiplier), rounded to even, + y_zero. */
    void (*requantize)(const struct qk_pool_average *average, const uint32_t *sums, size_t count,
                       uint8_t *y);
};

/* Each function fills the table with the kernels of its tier. */
void qk_pool_init_scalar(struct qk_pool_kernels *kernels);
void qk_pool_init_avx2(struct qk_pool_kernels *kernels);
void qk_pool_init_avx512bw(struct qk_pool_kernels *kernels);
void qk_pool_init_neon(struct qk_pool_kernels *kernels);
