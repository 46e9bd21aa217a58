/* Memory as the server's arena has it: large blocks on huge pages, where the system gives them, and
 * reused. All of it is touched, so that no measurement pays for page faults. */
#ifndef TESTS_BENCH_MEASURE_BUFFER_H
#define TESTS_BENCH_MEASURE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* Starts as {0}. */
struct bench_buffer {
    uint8_t *data; /* 4 KiB aligned, 2 MiB if it is that large */
    size_t capacity;
};

/* Makes room for `bytes`, with what is there lost if there is too little of it. Ends the process
 * where there is no memory. */
void bench_buffer_reserve(struct bench_buffer *buffer, size_t bytes);

/* Reserves, and reads the first `bytes` of a file, or ends the process. */
void bench_buffer_read(struct bench_buffer *buffer, const char *path, size_t bytes);

/* Ends the process with a line on standard error. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
