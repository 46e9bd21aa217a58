/* Preloaded into a server: a second passes between its Unix socket's bind and listen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

int chmod(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "chmod");
    sleep(1);
    return next(path, mode);
}
