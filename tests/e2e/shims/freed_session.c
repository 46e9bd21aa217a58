/* Preloaded into a server. Ends the process if it asks a session of GnuTLS for something after the
 * session was freed. Sanitizers do not see that, because GnuTLS is not compiled with them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static _Thread_local const void *freed; /* the last one */

void gnutls_deinit(void *session)
{
    void (*next)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "gnutls_deinit");
    freed = session;
    next(session);
}

int gnutls_init(void **session, unsigned flags)
{
    int (*next)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(RTLD_NEXT, "gnutls_init");
    freed = NULL;
    return next(session, flags);
}

size_t gnutls_record_check_pending(void *session)
{
    size_t (*next)(void *) = (size_t(*)(void *))dlsym(RTLD_NEXT, "gnutls_record_check_pending");
    if (session == freed)
        abort();
    return next(session);
}
