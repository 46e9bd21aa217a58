/* An operator's call as text says it, word by word, and its plan. */
#ifndef TESTS_BENCH_CALL_H
#define TESTS_BENCH_CALL_H

#include "kernels/qk.h"
#include "tests/bench/buffer.h"

enum { BENCH_INTS_MAX = 16, BENCH_BLOCKS_MAX = 32 };

/* Starts as {0}; buffers stay from call to call. */
struct bench_call {
    struct qk_call call;
    struct bench_buffer inputs[QK_INPUT_COUNT_MAX];
    int64_t ints[QK_ATTRIBUTE_COUNT_MAX][BENCH_INTS_MAX];
    struct bench_memory {
        struct bench_buffer blocks[BENCH_BLOCKS_MAX];
        size_t used;
    } memory; /* what create and plan take, and the next time take again */
    const struct qk_instance *instance;
    struct qk_plan plan;
};

/* Each ends the process where the text is wrong. */
void bench_call_start(struct bench_call *call, const char *name, unsigned version);
void bench_call_int(struct bench_call *call, const char *name, int64_t number);
void bench_call_ints(struct bench_call *call, const char *name, const char *list);

/* Its bytes come from a file; `dims`: "2,3", or "" for a scalar. */
void bench_call_input(struct bench_call *call, const char *name, const char *type, const char *dims,
                      const char *path);

/* Creates and plans. What an earlier time has made is gone. */
void bench_call_plan(struct bench_call *call, const struct qk_kernels *kernels);

#endif
