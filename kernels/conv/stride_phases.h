/* How the taps of one axis share copies of x. With a stride, a tap reads only every stride-th
 * element. Taps that read the same elements, shifted by whole strides, belong to one stride phase.
 * The elements of a phase are laid out once, for all its taps. Used by igemm/ and depthwise/;
 * private to conv/. */
#ifndef KERNELS_CONV_STRIDE_PHASES_H
#define KERNELS_CONV_STRIDE_PHASES_H

#include "kernels/conv/geometry.h"

/* Tap t belongs to phase t % phases. It reads the elements that are laid out for this phase from
 * element t / phases * shift on. */
struct qk_stride_phases {
    size_t phases;
    size_t shift;
    size_t span; /* the largest distance, in elements, from the first tap of a phase to its last
                    one; each phase lays out `span` more elements than there are positions */
};

/* Returns the number of phases if taps share them: tap t and tap t + this number share a phase. */
int64_t qk_stride_cycle(int64_t stride, int64_t dilation);

/* Returns the phases of an axis with `taps` taps. With `shared`, taps that read the same elements
 * share a phase; this is possible only if qk_taps_may_share returns true. Otherwise each tap is a
 * phase. */
struct qk_stride_phases qk_stride_phases_of(const struct qk_conv_axis *axis, size_t taps,
                                            bool shared);

/* Returns false if sizes or strides of the axis are so large that a sum of sizes could overflow. */
bool qk_taps_may_share(const struct qk_conv_axis *axis);

#endif
