/* What the hooks need of the trial (hooks.h). */
#ifndef SERVER_HTTP_MHD_TRIAL_H
#define SERVER_HTTP_MHD_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "server/http/mhd/hooks.h"

/* Returns the function that the loader finds after ours. */
void *qd_hook_next(enum qd_hook hook);

/* The same, with the type of our function. The cast goes by an integer, because ISO C has none from
 * void * to a function pointer. */
#define QD_HOOK_NEXT(hook, function) ((__typeof__(&(function)))(uintptr_t)qd_hook_next(hook))

/* Notes that the library has called the hook, if a trial runs on this thread. Returns true then. */
bool qd_trial_saw(enum qd_hook hook);

#endif
