/* Preloaded into a server. While the file $FAILING_MALLOC_SWITCH exists, about one allocation in
 * fifty fails, on every thread, in the libraries too. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static const char *switch_path;
static atomic_uint calls;

__attribute__((constructor)) static void find_switch(void)
{
    switch_path = getenv("FAILING_MALLOC_SWITCH");
}

static bool fails(void)
{
    if (switch_path == NULL || access(switch_path, F_OK) != 0)
        return false;
    /* Failures are scattered, so that every kind of request meets one at each of its
     * allocations. */
    return (atomic_fetch_add(&calls, 1) * UINT32_C(2654435761) >> 8) % 50 == 0;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = fails() ? NULL : __libc_memalign(alignment, bytes);
    return *block == NULL ? ENOMEM : 0;
}
