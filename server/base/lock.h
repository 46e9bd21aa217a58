/* Holds a mutex until the end of a block. */
#pragma once

#include <pthread.h>

static inline pthread_mutex_t *qd_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void qd_unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* Locks the mutex now, and unlocks it where the block around this ends, or returns. A result is
 * made before that. Code that has to do something after the unlock calls pthread_mutex_unlock. */
#define QD_LOCKED(mutex) \
    __attribute__((cleanup(qd_unlock), unused)) pthread_mutex_t *const qd_locked = qd_lock(mutex)
