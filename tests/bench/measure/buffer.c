#define _GNU_SOURCE
#include "tests/bench/measure/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("measure: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void bench_buffer_reserve(struct bench_buffer *buffer, size_t bytes)
{
    const size_t unit = bytes < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES;
    void *data = NULL;
    if (bytes <= buffer->capacity)
        return;
    free(buffer->data);
    bytes = (bytes + unit - 1) / unit * unit;
    if (posix_memalign(&data, unit, bytes) != 0)
        bench_fail("no memory for %zu bytes", bytes);
    if (unit == HUGE_PAGE_BYTES)
        madvise(data, bytes, MADV_HUGEPAGE); /* a hint */
    *buffer = (struct bench_buffer){memset(data, 1, bytes), bytes};
}

void bench_buffer_read(struct bench_buffer *buffer, const char *path, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    bench_buffer_reserve(buffer, bytes);
    if (!file || fread(buffer->data, 1, bytes, file) != bytes)
        bench_fail("%s: expected a file of at least %zu bytes", path, bytes);
    fclose(file);
}
