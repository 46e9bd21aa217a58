/* The table of the kernels that run on this machine. The scalar tier fills every entry, then each
 * tier that the CPU has overwrites some (as dav1d's *_dsp_init functions do). qk_kernels_create
 * makes the table once. It is constant afterwards, and passed as an argument, never global. */
#pragma once

#include "kernels/argmax/argmax.h"
#include "kernels/binary/binary.h"
#include "kernels/cast/cast.h"
#include "kernels/choice.h"
#include "kernels/conv/backend.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/floats/kernels.h"
#include "kernels/gemm/openblas.h"
#include "kernels/lookup/lookup.h"
#include "kernels/move/kernels.h"
#include "kernels/pool/kernels.h"
#include "kernels/qk.h"
#include "kernels/quantize/quantize.h"

struct qk_kernels {
    struct qk_profile profile;
    struct qk_choice choice;
    struct qk_dequantize_kernels dequantize;
    struct qk_quantize_kernels quantize;
    const struct qk_argmax_kernels *argmax;
    const struct qk_binary_kernels *binary;
    const struct qk_float_kernels *floats;
    const struct qk_cast_kernels *cast;
    struct qk_pool_kernels pool;
    const struct qk_lookup_kernel *lookup;
    struct qk_move_kernels move;
    struct qk_openblas openblas;
    const struct qk_matmul_kernels *matmul;
    const struct qk_im2col_kernels *im2col; /* what sgemm convolutions need besides OpenBLAS */
};
