/* How the taps of one axis share copies of x. With a stride, a tap reads only every stride-th
 * element. Taps that read the same elements, shifted by whole strides, belong to one stride phase.
 * The elements of a phase are laid out once, for all its taps. Used by igemm/ and depthwise/;
 * private to conv/. */
#ifndef KERNELS_CONV_STRIDE_PHASES_H
#define KERNELS_CONV_STRIDE_PHASES_H

#include "kernels/conv/geometry.h"

/* Tap t belongs to phase t % phases. In the elements that are laid out for this phase, tap t begins
 * t / phases * shift elements after the phase's first tap. */
struct qk_stride_phases {
    size_t phases;
    size_t shift;
    size_t span; /* how many elements after the first tap the last tap begins, and so how many more
                    elements than positions are laid out */
};

/* Returns the number of taps after which the phases repeat. */
int64_t qk_stride_cycle(int64_t stride, int64_t dilation);

/* Returns the phases of an axis with `taps` taps. With `shared`, taps that read the same elements
 * share a phase; this is possible only if qk_taps_may_share returns true. Otherwise each tap is a
 * phase. */
struct qk_stride_phases qk_stride_phases_of(const struct qk_conv_axis *axis, size_t taps,
                                            bool shared);

/* Returns false if sizes or strides of the axis are so large that a sum of sizes could overflow. */
bool qk_taps_may_share(const struct qk_conv_axis *axis);

#endif
