#include "kernels/element/narrow.h"

static const struct format {
    unsigned mantissa_bits;
    unsigned bias;
    uint8_t largest;
    uint8_t infinity; /* or NaN, where there is none */
    uint8_t nan[2];   /* by manner */
    bool is_fnuz;     /* its zero and its NaN have no sign */
    /* Two exceptions of ONNX Runtime (1.31 and 1.32) without saturation. Magnitudes just above the
     * largest E4M3FN, which round to NaN, become the largest number. Magnitudes that round to
     * E5M2's infinity become NaN, because ONNX Runtime ORs the bits of the largest number and of
     * infinity. */
    float gap, gap_end;
    uint8_t gap_code;
} formats[QK_TYPE_COUNT] = {
    [QK_FP4E2M1] = {1, 1, 7, 7, {8, 8}, false, 0, 0, 0},
    [QK_FP8E4M3FN] = {3, 7, 0x7e, 0x7f, {0x7f, 0x7f}, false, 480, 496, 0x7e},
    [QK_FP8E4M3FNUZ] = {3, 8, 0x7f, 0x80, {0x80, 0x80}, true, 0, 0, 0},
    [QK_FP8E5M2] = {2, 15, 0x7b, 0x7c, {0x7e, 0x7f}, false, 61440, 65536, 0x7f},
    [QK_FP8E5M2FNUZ] = {2, 16, 0x7f, 0x80, {0x80, 0x80}, true, 0, 0, 0},
};

void qk_narrow_init(struct qk_narrow *narrow, enum qk_type type, bool saturates,
                    enum qk_narrow_manner manner)
{
    const struct format *format = &formats[type];
    const bool has_gap = manner == QK_NARROW_AS_ONNXRUNTIME && !saturates;
    *narrow = (struct qk_narrow){
        .shift = 23 - format->mantissa_bits,
        .rebias = (127 - format->bias) << 23,
        .normal = (128 - format->bias) << 23,
        .magic = (127 + 24 - format->bias - format->mantissa_bits) << 23,
        .largest = format->largest,
        .beyond = saturates ? format->largest : format->infinity,
        .nan = format->nan[manner],
        .sign = type == QK_FP4E2M1 ? 8 : 0x80,
        .signed_bits = format->is_fnuz ? 0x7f : 0,
        .gap = has_gap ? qk_bits_of_float(format->gap) : 0,
        .gap_end = has_gap ? qk_bits_of_float(format->gap_end) : 0,
        .gap_code = format->gap_code,
    };
}
