/* How the taps of one axis share what is laid out of x. With a stride, a tap reads only every
 * stride-th element. Taps that read the same elements, shifted by whole strides, are of one stride
 * phase, and what is laid out for a phase serves all its taps. Shared by igemm/ and depthwise/;
 * private to conv/. */
#ifndef KERNELS_CONV_STRIDE_PHASES_H
#define KERNELS_CONV_STRIDE_PHASES_H

#include "kernels/conv/geometry.h"

/* Tap t belongs to phase t % phases, and reads t / phases * shift elements further on in what is
 * laid out for that phase than the phase's first tap does. */
struct qk_stride_phases {
    size_t phases;
    size_t shift;
    size_t span; /* how far on the last tap reads: so many elements more than positions are laid out
                  */
};

/* Returns after how many taps the same phase comes again. */
int64_t qk_stride_cycle(int64_t stride, int64_t dilation);

/* Returns the phases of an axis with so many taps. `shared`: taps that read the same elements share
 * a phase, which is possible only if qk_taps_may_share; otherwise each tap is a phase. */
struct qk_stride_phases qk_stride_phases_of(const struct qk_conv_axis *axis, size_t taps,
                                            bool shared);

/* False for axes with such large sizes or strides that a sum of sizes could overflow. */
bool qk_taps_may_share(const struct qk_conv_axis *axis);

#endif
