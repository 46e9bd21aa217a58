/* Kernels that dequantize integers of up to 16 bits to FP32 and BF16 by SVE. SVE's loads put each
 * integer into a lane of its own, which is a third of what NEON does in registers. Vectors have any
 * length. The kernels are for CPUs that also have SVE's conversion to BF16, such as Neoverse V1, N2
 * and V2. That conversion is exact for canonical NaNs.
 *
 * By the model in tests/bench/RESULTS.md, these kernels are 1.4 times as fast as NEON's on a V1,
 * whose vectors have 256 bits, and 1.1 times on a V2, whose vectors have 128 bits. To BF16 they are
 * 1.7 and 1.4 times as fast. If no zero point is subtracted, they are 2.0 and 1.5 times as fast.
 *
 * All other loops stay NEON's. Codes of fewer bits take tables. Floats and 32-bit integers take
 * conversions. SVE does no more of either at a time. Integer products stay NEON's because a V1 does
 * two of 256 bits or four of 128 bits per cycle, and a V2 four of 128 bits. */
#include "kernels/dequantize/dequantize.h"

#ifdef __aarch64__

#include <arm_sve.h>

/* How x is put into the lowest bits of 2^23: see `magic` in read_avx2.h. */
struct code {
    size_t x_bytes, y_bytes;
    float magic;     /* the number that putting x there adds to x */
    uint32_t turned; /* the bits to flip: the bits of 2^23, and the sign bit of x */
};

#define RUN_MIN ((size_t)64)
#include "kernels/dequantize/runs.h"

/* Loads vector `v` of x, each element in a lane of its own. */
INLINE svuint32_t load(svbool_t lanes, const void *x, int64_t v, size_t x_bytes)
{
    return x_bytes == 1 ? svld1ub_vnum_u32(lanes, x, v) : svld1uh_vnum_u32(lanes, x, v);
}

INLINE void store(svbool_t lanes, void *y, int64_t v, svfloat32_t results, size_t y_bytes)
{
    if (y_bytes == 2)
        svst1h_vnum_u32(lanes, y, v, svreinterpret_u32_bf16(svcvt_bf16_f32_x(lanes, results)));
    else
        svst1_vnum_f32(lanes, y, v, results);
}

struct parameters {
    float zero, scale;
    bool fuses; /* see take */
};

INLINE void take_vector(svbool_t lanes, const uint8_t *x, char *y, int64_t v,
                        const struct code code, const struct parameters p)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t bits = load(lanes, x, v, code.x_bytes);
    const svfloat32_t moved = svreinterpret_f32_u32(sveor_n_u32_x(all, bits, code.turned));
    store(lanes, y, v,
          p.fuses ? svmad_f32_x(all, moved, svdup_f32(p.scale), svdup_f32(p.zero))
                  : svmul_n_f32_x(all, svsub_n_f32_x(all, moved, p.zero), p.scale),
          code.y_bytes);
}

INLINE void take_all(const uint8_t *x, char *y, size_t count, const struct code code,
                     const struct parameters p)
{
    const size_t lanes = svcntw();
    size_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes)
#pragma GCC unroll 4
        for (int64_t v = 0; v < 4; v++)
            take_vector(svptrue_b32(), x + i * code.x_bytes, y + i * code.y_bytes, v, code, p);
    for (; i < count; i += lanes)
        take_vector(svwhilelt_b32_u64(i, count), x + i * code.x_bytes, y + i * code.y_bytes, 0,
                    code, p);
}

/* Dequantizes a run. If x is unsigned and the zero point is 0, one operation is saved:
 * (2^23 + x) * scale - 2^23 * scale, rounded once, is x * scale, rounded once, because the second
 * product is exact. With a negative scale, or -0, a 0 would lack its sign. NEON's fused
 * multiplication and addition would not help, because it overwrites the number to which it adds. */
INLINE void take(const uint8_t *x, char *y, size_t count, float zero, float scale,
                 const struct code code)
{
    if (zero == 0x1p23F && code.magic == 0x1p23F && scale > 0 && scale < 0x1p104F)
        take_all(x, y, count, code, (struct parameters){-0x1p23F * scale, scale, true});
    else
        take_all(x, y, count, code, (struct parameters){zero, scale, false});
}

/* Leaves FP16, and spans without long runs, to the tier below. */
INLINE void run(const struct qk_dequantize_args *args, size_t x_bytes, float magic, uint32_t turned,
                qk_dequantize_fn below)
{
    if (args->y_type == QK_FP16 || !has_runs(args))
        below(args);
    else if (args->y_type == QK_FP32)
        take_runs(args, (struct code){x_bytes, 4, magic, turned}, take);
    else
        take_runs(args, (struct code){x_bytes, 2, magic, turned}, take);
}

static void u8(const struct qk_dequantize_args *args)
{
    run(args, 1, QK_MAGIC_U8, 0x4b000000, qk_dequantize_bytes__fp16);
}

static void s8(const struct qk_dequantize_args *args)
{
    run(args, 1, QK_MAGIC_S8, 0x4b000080, qk_dequantize_bytes__fp16);
}

static void u16(const struct qk_dequantize_args *args)
{
    run(args, 2, QK_MAGIC_U16, 0x4b000000, qk_dequantize_small__neon);
}

static void s16(const struct qk_dequantize_args *args)
{
    run(args, 2, QK_MAGIC_S16, 0x4b008000, qk_dequantize_small__neon);
}

void qk_dequantize_init_sve(struct qk_dequantize_kernels *kernels)
{
    qk_dequantize_init_fp16(kernels);
    kernels->run[QK_CODE_U8] = u8;
    kernels->run[QK_CODE_S8] = s8;
    kernels->run[QK_CODE_U16] = u16;
    kernels->run[QK_CODE_S16] = s16;
}

#endif
