/* Slab kernels with vectors of 64 bytes for CPUs that permute bytes, which makes transposing
 * faster. */
#include "kernels/conv/igemm/transpose_zmm.h"

#ifdef __x86_64__

/* ---- Transpose --------------------------------------------------------------------------- */

/* With more taps than this, transpose_by_lanes (transpose_zmm.h) is faster, because the number of
 * permutations is the square of the number of taps. */
enum { PLAN_TAPS = 7 };

/* Transposing reads `taps` vectors of 64 bytes, in which the bytes of one tap are `taps` bytes
 * apart, and gathers the bytes of each tap. The plan says which of a tap's 64 bytes come from which
 * vector. The low 6 bits of an index say where in that vector a byte lies. */
struct transpose_plan {
    __m512i index; /* for tap 0; the bytes of tap t lie t bytes further on */
    __mmask64 loaded[PLAN_TAPS];
    __mmask64 part[PLAN_TAPS][PLAN_TAPS]; /* [tap][vector] */
};

static void plan_transpose(const struct qk_transpose *job, struct transpose_plan *plan)
{
    const size_t taps = job->taps;
    const size_t bytes = job->channels * taps;
    uint8_t index[64];
    for (size_t i = 0; i < 64; i++)
        index[i] = (uint8_t)(i * taps);
    plan->index = _mm512_loadu_si512(index);
    for (size_t v = 0; v < taps; v++)
        plan->loaded[v] = bytes > 64 * v ? low_bits(bytes - 64 * v) : 0;
    for (size_t t = 0; t < taps; t++) {
        uint64_t before = 0;
        for (size_t v = 0; v < taps; v++) {
            const uint64_t up_to = low_bits((64 * (v + 1) - t - 1) / taps + 1);
            plan->part[t][v] = up_to & ~before;
            before = up_to;
        }
    }
}

/* Transposes one K block of a row and returns the sum of its weights. Bytes that are not loaded
 * stay 0. */
static uint32_t transpose_planned(const struct qk_transpose *job, const void *planned,
                                  const uint8_t *from, uint8_t *to, size_t tap_stride)
{
    const struct transpose_plan *plan = planned;
    const size_t taps = job->taps;
    const __m512i flip = _mm512_set1_epi8((char)job->flip);
    const __m512i one = _mm512_set1_epi8(1);
    __m512i source[PLAN_TAPS];
    __m512i sum = _mm512_setzero_si512();
    __m512i index = plan->index;
    for (size_t v = 0; v < taps; v++) {
        const __m512i bytes = _mm512_maskz_loadu_epi8(plan->loaded[v], from + 64 * v);
        source[v] = _mm512_maskz_mov_epi8(plan->loaded[v], _mm512_xor_si512(bytes, flip));
        sum = _mm512_dpbusd_epi32(sum, one, source[v]);
    }
    for (size_t t = 0; t < taps; t++) {
        __m512i tap = _mm512_maskz_permutexvar_epi8(plan->part[t][0], index, source[0]);
        for (size_t v = 1; v < taps; v++)
            tap = _mm512_mask_permutexvar_epi8(tap, plan->part[t][v], index, source[v]);
        _mm512_storeu_si512(to + t * tap_stride, tap);
        index = _mm512_add_epi8(index, one);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sum);
}

static void transpose(const struct qk_transpose *job)
{
    struct transpose_plan plan;
    if (job->taps == 1 || job->taps > PLAN_TAPS) {
        transpose_by_lanes(job);
        return;
    }
    plan_transpose(job, &plan);
    transpose_by(job, transpose_planned, &plan);
}

const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512vbmi = {
    .fill = fill,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_any_epilogue__avx512bw},
    .takes_64_positions = true,
    .any_epilogue = qk_any_epilogue__avx512bw,
    .transpose = transpose,
};

#endif
