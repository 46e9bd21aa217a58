#include "kernels/conv/stride_phases.h"

#define SHARED_MOST (INT64_C(1) << 20)

int64_t qk_stride_cycle(int64_t stride, int64_t dilation)
{
    int64_t divisor = stride;
    for (int64_t rest = dilation; rest != 0;) { /* Euclid's algorithm */
        const int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return stride / divisor;
}

struct qk_stride_phases qk_stride_phases_of(const struct qk_conv_axis *axis, size_t taps,
                                            bool shared)
{
    const int64_t cycle = qk_stride_cycle(axis->stride, axis->dilation);
    const size_t phases = (size_t)cycle;
    if (!shared || taps <= phases)
        return (struct qk_stride_phases){.phases = taps};
    const size_t shift = (size_t)(axis->dilation / (axis->stride / cycle));
    return (struct qk_stride_phases){phases, shift, (taps - 1) / phases * shift};
}

bool qk_taps_may_share(const struct qk_conv_axis *axis)
{
    return axis->in <= SHARED_MOST && axis->pad <= SHARED_MOST && axis->stride <= SHARED_MOST &&
           axis->dilation <= SHARED_MOST && axis->kernel <= SHARED_MOST &&
           axis->kernel * axis->dilation <= SHARED_MOST;
}
