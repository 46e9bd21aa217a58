/* The moving kernels, compiled for this tier. */
#include "kernels/move/kernels.h"

#ifdef __AVX512BW__
#include "kernels/move/wide_avx2.h"

#define QK_MOVE_PARTS 4

typedef __m512i qk_move_wide_4;

/* Loads 16 bytes from x, and from 1, 2 and 3 steps further on. */
static inline __m512i qk_move_load_4(const char *x, int64_t step)
{
    const __m512i low = _mm512_castsi256_si512(qk_move_load_2(x, step));
    return _mm512_inserti64x4(low, qk_move_load_2(x + 2 * step, step), 1);
}

#define QK_MOVE_LOW_4_1 _mm512_unpacklo_epi8
#define QK_MOVE_LOW_4_2 _mm512_unpacklo_epi16
#define QK_MOVE_LOW_4_4 _mm512_unpacklo_epi32
#define QK_MOVE_LOW_4_8 _mm512_unpacklo_epi64
#define QK_MOVE_HIGH_4_1 _mm512_unpackhi_epi8
#define QK_MOVE_HIGH_4_2 _mm512_unpackhi_epi16
#define QK_MOVE_HIGH_4_4 _mm512_unpackhi_epi32
#define QK_MOVE_HIGH_4_8 _mm512_unpackhi_epi64

#define QK_MOVE_STREAM(y, x) _mm512_stream_si512((__m512i *)(y), _mm512_loadu_si512(x))
#define QK_MOVE_FENCE _mm_sfence

#include "kernels/move/loops.h"

void qk_move_init_avx512(struct qk_move_kernels *kernels)
{
    qk_move_fill_table(kernels);
}
#endif
