/* Preloaded into a server. One second passes between bind and listen of its Unix socket. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int listen(int fd, int backlog)
{
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    sleep(1);
    return next(fd, backlog);
}
