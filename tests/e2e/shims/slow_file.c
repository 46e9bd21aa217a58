/* Preloaded into a server. A thread that opens a file whose name ends with "slow" waits while a
 * file exists that has the same name plus ".held". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char *path)
{
    char held[4096];
    const size_t bytes = strlen(path);
    snprintf(held, sizeof(held), "%s.held", path);
    while (bytes >= 4 && strcmp(path + bytes - 4, "slow") == 0 && access(held, F_OK) == 0)
        usleep(1000);
}

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    va_list arguments;
    va_start(arguments, flags);
    const int mode = va_arg(arguments, int);
    va_end(arguments);
    wait_for(path);
    return next(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = va_arg(arguments, int);
    va_end(arguments);
    return open(path, flags, mode);
}
