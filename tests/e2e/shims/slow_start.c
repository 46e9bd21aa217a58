/* Preloaded into a server: a second passes between its Unix socket's bind and listen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int listen(int fd, int backlog)
{
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    sleep(1);
    return next(fd, backlog);
}
