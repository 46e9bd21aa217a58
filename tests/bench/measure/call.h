/* An operator's call as text says it, word by word, and its plan. */
#ifndef TESTS_BENCH_MEASURE_CALL_H
#define TESTS_BENCH_MEASURE_CALL_H

#include "kernels/qk.h"
#include "tests/bench/measure/buffer.h"

enum { BENCH_INTS_MAX = 16, BENCH_BLOCKS_MAX = 32 };

/* Starts as {0}; buffers stay from call to call. */
struct bench_call {
    struct qk_call call;
    struct bench_buffer inputs[QK_INPUT_COUNT_MAX];
    const void *data[QK_INPUT_COUNT_MAX]; /* the same, as qk_run takes them */
    int64_t ints[QK_ATTRIBUTE_COUNT_MAX][BENCH_INTS_MAX];
    struct bench_memory {
        struct bench_buffer blocks[BENCH_BLOCKS_MAX];
        size_t used;
    } memory; /* what prepare and plan take, and the next time take again */
    struct qk_instance *instance;
    struct qk_plan plan;
};

/* Each ends the process where the text is wrong. The operator's variable inputs come with each run,
 * and the constants stay, as in a plain request. */
void bench_call_start(struct bench_call *call, const char *name, unsigned version);
void bench_call_int(struct bench_call *call, const char *name, int64_t number);
void bench_call_ints(struct bench_call *call, const char *name, const char *list);

/* Its bytes come from a file; `dims`: "2,3", or "" for a scalar. */
void bench_call_input(struct bench_call *call, const char *name, const char *type, const char *dims,
                      const char *path);

/* The constant input of the most bytes, a convolution's weights; {NULL, 0}: there is none. */
struct bench_constant {
    const void *data;
    size_t bytes;
};
struct bench_constant bench_call_constant(const struct bench_call *call);

/* Prepares the instance, with its units of packing left to do. It is where the last one was, which
 * is gone; a plan of the same call stays valid. */
void bench_call_prepare(struct bench_call *call, const struct qk_kernels *kernels);

/* After it. */
void bench_call_plan(struct bench_call *call);

#endif
