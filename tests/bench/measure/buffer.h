/* Memory like that of the server's arena: large blocks are on huge pages, if the system gives them,
 * and are reused. All of the memory is touched in advance, so that no measurement pays for page
 * faults. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Starts as {0}. */
struct bench_buffer {
    uint8_t *data; /* aligned to 4 KiB, or to 2 MiB if it is at least that large */
    size_t capacity;
};

/* Makes room for `bytes`. The old contents are lost if the buffer was too small. Ends the process
 * if there is no memory. */
void bench_buffer_reserve(struct bench_buffer *buffer, size_t bytes);

/* Reserves `bytes` and reads the first `bytes` of a file. Ends the process on failure. */
void bench_buffer_read(struct bench_buffer *buffer, const char *path, size_t bytes);

/* Ends the process with a line on standard error. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
