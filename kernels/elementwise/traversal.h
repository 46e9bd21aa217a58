/* Applies an element-wise operator to a whole tensor, for every granularity, in few and long calls
 * of its kernel. Each call gets a span. */
#pragma once

#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/expand.h"
#include "kernels/elementwise/span.h"

/* If parameters repeat after at most this many elements, a plan expands them once for all calls. */
#define QK_ELEMENTWISE_PERIOD_MAX 2048

/* The sizes and costs that are chosen for a machine (kernels/choice.h). */
struct qk_elementwise_tuning {
    size_t stream_bytes; /* y is written past the caches if it or x has at least this many bytes */
    double unit_ns;      /* how long a unit should take, at most */
    double cycle_ns;
    double byte_ns; /* nanoseconds to move a byte to or from memory */
};

/* An element-wise operator for a traversal: its kernel, and all that the kernel needs. */
struct qk_elementwise {
    const char *name;
    void (*run)(const void *context, const struct qk_span *span);
    const void *context;  /* must outlive the plan */
    void (*finish)(void); /* called after the last streaming span of a run, before y is read */
    qk_repeat_fn repeat;
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
    unsigned x_bits;       /* of an element; with less than 8 bits, x has no strides */
    unsigned y_bits;
    struct qk_parameters parameters; /* must outlive the plan */
    const struct qk_elementwise_tuning *tuning;
    bool whole; /* true: the parameters are packed already, so a plan may read them and expand them
                   once for all runs */
};

/* Allocates `count` 32-bit words, and at least one, so that NULL always means that memory has run
 * out. */
void *qk_alloc_words(size_t count, struct qk_memory memory);

/* Cuts an output of `count` elements into units, and sets the plan's unit_count and unit_cost_ns.
 * `element_ns` is the time of one element. Returns how many elements each unit has but the last:
 * a multiple of 4096, at most 2^18, that takes no longer than a unit should, if possible. */
size_t qk_elementwise_set_units(size_t count, double element_ns,
                                const struct qk_elementwise_tuning *tuning, struct qk_plan *plan);

/* Cuts `count` items, such as rows, into units, and sets the plan's unit_count and unit_cost_ns.
 * `item_ns` is the time of one item. Returns how many items each unit has but the last: as many as
 * take no longer than a unit should, at least one. */
size_t qk_set_units(size_t count, double item_ns, const struct qk_elementwise_tuning *tuning,
                    struct qk_plan *plan);

/* Fills the plan's first output, and its units, kernel, run and state. The output has type y_type
 * and the shape of x, which is the instance's first input. `elementwise` and `broadcast` are
 * copied. Returns QK_INVALID if the output is too large for memory, and QK_NO_MEMORY if `memory`
 * has run out. */
enum qk_status qk_elementwise_plan(const struct qk_elementwise *elementwise,
                                   const struct qk_instance *instance, const struct qk_tensor *x,
                                   enum qk_type y_type, const struct qk_broadcast *broadcast,
                                   struct qk_memory memory, struct qk_plan *plan,
                                   struct qk_error *error);
