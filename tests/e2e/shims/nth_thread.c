/* Preloaded into a server. Its $NTH_THREAD-th thread and all later threads fail to start. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_uint count;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *context)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
            RTLD_NEXT, "pthread_create");
    if (atomic_fetch_add(&count, 1) + 1 >= strtoul(getenv("NTH_THREAD"), NULL, 10))
        return EAGAIN;
    return next(thread, attributes, run, context);
}
