/* Preloaded into a server. The file $NTH_MALLOC, which the test maps as well, says which allocation
 * fails, on any thread and in the libraries as well. It also counts the live blocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

struct control {
    _Atomic uint64_t first;  /* first allocation that fails, counted by `calls` from 1; 0: none */
    _Atomic uint64_t last;   /* last allocation that fails */
    _Atomic uint64_t calls;  /* number of allocations since the test set this to 0 */
    _Atomic uint64_t failed; /* how many of these failed */
    _Atomic int64_t live;    /* number of live blocks */
};

static struct control nothing;
static struct control *control = &nothing;

__attribute__((constructor)) static void find_control(void)
{
    const char *path = getenv("NTH_MALLOC");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) {
        control = mapped;
        atomic_store(&control->live, atomic_load(&nothing.live));
    }
}

static bool fails(void)
{
    uint64_t number = atomic_fetch_add(&control->calls, 1) + 1;
    uint64_t first = atomic_load(&control->first);
    if (first == 0 || number < first || number > atomic_load(&control->last))
        return false;
    atomic_fetch_add(&control->failed, 1);
    errno = ENOMEM;
    return true;
}

static void *made(void *block)
{
    if (block != NULL)
        atomic_fetch_add(&control->live, 1);
    return block;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : made(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : made(__libc_calloc(count, bytes));
}

void *realloc(void *old, size_t bytes)
{
    if (old == NULL)
        return malloc(bytes);
    if (bytes != 0)
        return fails() ? NULL : __libc_realloc(old, bytes);
    free(old);
    return NULL;
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *got = fails() ? NULL : made(__libc_memalign(alignment, bytes));
    if (got == NULL)
        return ENOMEM;
    *block = got;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : made(__libc_memalign(alignment, bytes));
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails() ? NULL : made(__libc_memalign(alignment, bytes));
}

void free(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub(&control->live, 1);
    __libc_free(block);
}

/* Large blocks and their address space. */
void *mmap(void *address, size_t bytes, int rights, int flags, int fd, off_t offset)
{
    if (fd < 0 && control != &nothing && fails())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, bytes, rights, flags, fd, offset);
}
