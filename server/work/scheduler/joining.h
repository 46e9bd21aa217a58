/* Decides for the scheduler whether workers share the phases of a network, by how long it takes a
 * worker that is awake to join a phase. Joining takes 0.15 us if both CPUs share an L3 cache, and
 * 0.66 us if they do not. In the second case tensors, too, are slow on their way from one CPU to
 * the other: 31 GB/s instead of 90. The host of a virtual machine may change every few seconds on
 * which CPUs it runs.
 *
 * Measured on a Zen 5 EPYC with two L3 caches. The means are estimates, of the phases that are
 * worth sharing. Networks with 8 to 12 us took 1.3 to 1.5 times as long when they were shared (text
 * direction, MobileNetV3-small, YOLOX-nano). With 22 us they took 1.17 and 0.92 times as long
 * (EfficientNet-B0, DenseNet), with 24 to 27 us as long (MobileNetV2, YOLOv8n), and with 31 and 56
 * us 0.89 and 0.72 times (SqueezeNet, MobileNetV1). On one L3 cache, two threads were faster in all
 * of them. Sharing only the longer phases of a network was tried, too. It helped the first three
 * less, and cost MobileNetV1 and YOLOv8n a tenth, because what two CPUs have written for a single
 * one makes the way more often. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Phases are shared that take, in the mean, so many times as long as joining. */
#define QD_JOINING_TIMES 36
/* One of so many networks is shared in any case, so that joining is measured again. */
#define QD_JOINING_TRIALS 16

/* All fields are 0 at first. */
struct qd_joining {
    atomic_uint_fast64_t usual_ns; /* how long joining takes just now; 0: not known */
    atomic_size_t asks;            /* calls of qd_joining_phase_ns */
};

/* Notes how long a worker took to join that was awake. Makes the usual time a sixteenth longer or
 * shorter, so that it becomes the median, whatever a worker takes that has lost its CPU. It follows
 * within 30 times. Under the scheduler's lock. */
void qd_joining_note(struct qd_joining *joining, uint64_t took_ns);

/* Returns how long the phases of a network must take in the mean, so that workers should share
 * them. Call it once for each network. On any thread. */
uint64_t qd_joining_phase_ns(struct qd_joining *joining);
