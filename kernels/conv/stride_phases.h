/* Finds which taps of an axis can share a copy of x, for igemm/ and depthwise/. With a stride, a
 * tap reads only every stride-th element. Taps that read the same elements, shifted by whole
 * strides, belong to one stride phase. The elements of a phase are laid out once, for all its taps.
 * For a stride of 2, a dilation of 1 and a kernel of 3:
 *
 *    phase 0   0 2 4 6 8     tap 0 reads 0 2 4 6, tap 2 reads 2 4 6 8
 *    phase 1   1 3 5 7       tap 1 reads 1 3 5 7
 *
 * Here phases is 2, shift is 1 and span is 1. Private to conv/. */
#pragma once

#include "kernels/conv/geometry.h"

/* Tap t belongs to phase t % phases. Of the elements that are laid out for this phase, it reads
 * those from index t / phases * shift on. */
struct qk_stride_phases {
    size_t phases;
    size_t shift;
    size_t span; /* the largest distance, in laid out elements, from the first tap of a phase to its
                    last one; each phase lays out `span` more elements than there are positions */
};

/* Returns how many phases an axis has if taps share them: taps that are this number apart belong to
 * the same phase. */
int64_t qk_stride_cycle(int64_t stride, int64_t dilation);

/* Returns the phases of an axis with `taps` taps. With `shared`, taps that read the same elements
 * share a phase; this is possible only if qk_taps_may_share returns true. Otherwise each tap is a
 * phase. */
struct qk_stride_phases qk_stride_phases_of(const struct qk_conv_axis *axis, size_t taps,
                                            bool shared);

/* Returns true if the sizes and strides of the axis are so small that no sum of sizes overflows if
 * taps share phases. */
bool qk_taps_may_share(const struct qk_conv_axis *axis);
