/* Applies an element-wise operator to a whole tensor by few, long calls of its kernel, each with a
 * span, whatever the granularity is. */
#ifndef KERNELS_ELEMENTWISE_TRAVERSAL_H
#define KERNELS_ELEMENTWISE_TRAVERSAL_H

#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/expand.h"
#include "kernels/elementwise/span.h"

/* Where parameters repeat after at most so many elements, they are expanded once for all. */
#define QK_ELEMENTWISE_PERIOD_MAX 2048

/* What was chosen for a machine (kernels/choice.h). */
struct qk_elementwise_tuning {
    size_t stream_bytes; /* outputs go past the caches where x or they have so many */
    double unit_ns;      /* that a unit should take */
    double cycle_ns;
    double byte_ns; /* to move a byte to or from memory */
};

/* An element-wise operator, as a traversal sees it: the kernel for its spans, and all that it
 * needs. */
struct qk_elementwise {
    const char *name;
    void (*run)(const void *context, const struct qk_span *span);
    const void *context;  /* outlives the plan */
    void (*finish)(void); /* after the last streaming span of a run, before others may read y */
    qk_repeat_fn repeat;
    double element_cycles; /* a rough guess for one element, in a cache */
    unsigned x_bits;       /* of an element; with less than 8, x has no strides */
    unsigned y_bits;
    struct qk_parameters parameters; /* outlive the plan */
    bool whole;                      /* parameters are there already: a plan may read them */
};

/* Memory for `count` words of 32 bits, at least for one, so that NULL always means that there is
 * none. */
void *qk_alloc_words(size_t count, struct qk_memory memory);

/* Fills the plan's first output, of this type and the shape of x, which is the instance's first
 * input, and its units, kernel, run and state. `elementwise` and `broadcast` are copied. */
enum qk_status qk_elementwise_plan(const struct qk_elementwise *elementwise,
                                   const struct qk_instance *instance, const struct qk_tensor *x,
                                   enum qk_type y_type, const struct qk_broadcast *broadcast,
                                   struct qk_memory memory, struct qk_plan *plan,
                                   struct qk_error *error);

#endif
