/* An operator's call, built word by word from text, and its plan. */
#pragma once

#include "kernels/qk.h"
#include "tests/bench/measure/buffer.h"

enum { BENCH_INTS_MAX = 16, BENCH_BLOCKS_MAX = 32 };

/* Starts as {0}. Buffers are reused by the next call. */
struct bench_call {
    struct qk_call call;
    struct bench_buffer inputs[QK_INPUT_COUNT_MAX];
    const void *data[QK_INPUT_COUNT_MAX]; /* the variable inputs as qk_run takes them */
    int64_t ints[QK_ATTRIBUTE_COUNT_MAX][BENCH_INTS_MAX];
    struct bench_memory {
        struct bench_buffer blocks[BENCH_BLOCKS_MAX];
        size_t used;
    } memory; /* the memory of prepare and plan, reused by the next call */
    struct qk_instance *instance;
    struct qk_plan plan;
};

/* Each function ends the process if the text is wrong. The operator's variable inputs come with
 * each run, and the constants stay, as in a plain request. */
void bench_call_start(struct bench_call *call, const char *name, unsigned version);
void bench_call_int(struct bench_call *call, const char *name, int64_t number);
void bench_call_ints(struct bench_call *call, const char *name, const char *list);

/* Reads the input's bytes from a file. `name` may be the input's number, as in "#2". `dims` is a
 * list such as "2,3", or "" for a scalar. */
void bench_call_input(struct bench_call *call, const char *name, const char *type, const char *dims,
                      const char *path);

/* Makes a variable input, which has been read, a constant of a model. */
void bench_call_fix(struct bench_call *call, const char *name);

/* Returns the largest constant input, such as a convolution's weights. Returns {NULL, 0} if there
 * is none. */
struct bench_constant {
    const void *data;
    size_t bytes;
};
struct bench_constant bench_call_constant(const struct bench_call *call);

/* Prepares the instance, but does not pack it. The new instance takes the memory of the last one,
 * which no longer exists. A plan of the same call stays valid. */
void bench_call_prepare(struct bench_call *call, const struct qk_kernels *kernels);

/* Plans the instance. Call bench_call_prepare first. */
void bench_call_plan(struct bench_call *call);
