/* Slab kernels with vectors of 64 bytes. Skylake-X has all instructions that they need. */
#include "kernels/conv/igemm/transpose_zmm.h"

#ifdef __x86_64__

const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512bw = {
    .fill = fill,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_any_epilogue__avx512bw},
    .takes_64_positions = true,
    .any_epilogue = qk_any_epilogue__avx512bw,
    .transpose = transpose_by_lanes,
};

#endif
