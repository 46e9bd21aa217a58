/* Makes one QLinearConv, or a form of it, for tests: its buffers, the call, and the output that is
 * expected. */
#pragma once

#include "kernels/qk.h"
#include "tests/support/kernels/naive_conv.h"

/* What tensors are filled with. MIN, MAX: the least or the greatest value of the type. SMALL:
 * values of 7 bits around the middle of the range; such weights are never wide
 * (kernels/gemm/igemm.h). MIXED: mostly SMALL, sometimes RANDOM. */
enum conv_fill { CONV_FILL_RANDOM, CONV_FILL_MIN, CONV_FILL_MAX, CONV_FILL_SMALL, CONV_FILL_MIXED };

/* The operator: onnx.QLinearConv; com.microsoft.QLinearConv with channels_last; onnx.ConvInteger,
 * which has no bias and no scales. */
enum conv_form { CONV_FORM_QLINEAR, CONV_FORM_CHANNELS_LAST, CONV_FORM_INTEGER, CONV_FORM_COUNT };

/* The caller fills in the members from form to seed. In `naive` the caller fills in the
 * members up to auto_pad, and the signs and scales. conv_case_make fills in the rest. */
struct conv_case {
    struct naive_conv naive;
    enum conv_form form;
    uint32_t spatial_rank;
    bool w_scale_per_channel, w_zero_point_per_channel, with_bias;
    const int32_t *w_zero_point_all; /* NULL: random */
    bool bare;                       /* leave out attributes with default values */
    bool vectors;                    /* scalars have the shape [1] instead of [] */
    enum conv_fill x_fill, w_fill;
    uint64_t seed; /* seed of the contents; not 0 */

    /* Set by conv_case_make: */
    uint8_t *x, *w, *expected, x_zero_point, y_zero_point;
    uint8_t *x_last; /* x with its channels last; NULL in other forms */
    uint8_t *w_zero_point_bytes;
    int32_t *w_zero_point, *bias;
    float *w_scale, w_scale_all;
    size_t x_bytes, w_bytes, y_bytes;
    int64_t kernel_shape[3], strides[3], dilations[3], pads[6];
    struct qk_call call;
};

/* Draws a random geometry, types, zero points and scales. The caller then calls conv_case_make. */
void conv_case_random(struct conv_case *test, uint32_t spatial_rank, uint64_t seed);

/* Makes the contents and the call. Returns false if no window fits the geometry; then there is no
 * `expected`. */
bool conv_case_make(struct conv_case *test);
void conv_case_deinit(struct conv_case *test);

/* Computes test->expected by the naive convolution. */
void conv_case_expect(struct conv_case *test);

/* Returns one line that describes the case completely. */
const char *conv_case_text(const struct conv_case *test, char text[512]);
