#include "server/memory/admission.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/memory/arena.h"

/* How long a request that does not fit waits for answers that are being sent to free memory. */
#define STALL_NS QD_NS_PER_S

struct qd_admission {
    struct qd_memory *memory;
    void (*on_room)(void *context);
    void *context;

    pthread_mutex_t lock; /* protects the members below; the lock of qd_memory may be taken while
                             this one is held */
    size_t bytes_spoken;
    size_t begun_count;   /* requests that have begun and whose memory is not back yet */
    size_t work_count;    /* of these, requests whose work is not done yet */
    size_t stalled_count; /* of these, about how many freed no memory for STALL_NS */
    uint64_t begun_ns;    /* when the last request began */
    uint64_t ended_ns;    /* when the last request ended */
    uint64_t back_ns;     /* when memory last came back */
    uint64_t interval_ns; /* the average time from one end to the next */
};

struct qd_admission *qd_admission_create(struct qd_memory *memory)
{
    struct qd_admission *admission = calloc(1, sizeof(*admission));
    if (admission != NULL) {
        pthread_mutex_init(&admission->lock, NULL);
        admission->memory = memory;
    }
    return admission;
}

void qd_admission_destroy(struct qd_admission *admission)
{
    pthread_mutex_destroy(&admission->lock);
    free(admission);
}

void qd_admission_on_room(struct qd_admission *admission, void (*on_room)(void *context),
                          void *context)
{
    admission->on_room = on_room;
    admission->context = context;
}

static void tell(const struct qd_admission *admission)
{
    if (admission->on_room != NULL)
        admission->on_room(admission->context);
}

static bool fits(const struct qd_admission *admission, size_t bytes)
{
    const size_t left = qd_memory_max(admission->memory) - qd_memory_used(admission->memory);
    return admission->bytes_spoken <= left && bytes <= left - admission->bytes_spoken;
}

bool qd_admission_try_begin(struct qd_admission *admission, size_t bytes)
{
    pthread_mutex_lock(&admission->lock);
    const uint64_t now_ns = qd_clock_ns();
    if (admission->work_count == 0 && now_ns >= admission->back_ns + STALL_NS)
        admission->stalled_count = admission->begun_count;
    const bool alone =
        admission->work_count == 0 && admission->begun_count <= admission->stalled_count;
    const bool begins = alone || fits(admission, bytes);
    if (begins) {
        admission->bytes_spoken += bytes;
        admission->begun_count++;
        admission->work_count++;
        admission->begun_ns = now_ns;
    }
    pthread_mutex_unlock(&admission->lock);
    return begins;
}

void qd_admission_take(struct qd_admission *admission, size_t bytes)
{
    pthread_mutex_lock(&admission->lock);
    admission->bytes_spoken -= bytes;
    pthread_mutex_unlock(&admission->lock);
}

/* Returns the time since the last end, not counting time without work. */
static uint64_t since_last_end(const struct qd_admission *admission, uint64_t now_ns)
{
    return now_ns -
           (admission->begun_ns > admission->ended_ns ? admission->begun_ns : admission->ended_ns);
}

void qd_admission_end(struct qd_admission *admission)
{
    pthread_mutex_lock(&admission->lock);
    const uint64_t now_ns = qd_clock_ns();
    const uint64_t took_ns = since_last_end(admission, now_ns);
    admission->interval_ns =
        admission->interval_ns == 0
            ? took_ns
            : admission->interval_ns - admission->interval_ns / 8 + took_ns / 8;
    admission->work_count--;
    admission->ended_ns = now_ns;
    admission->back_ns = now_ns;
    pthread_mutex_unlock(&admission->lock);
    tell(admission);
}

void qd_admission_forget(struct qd_admission *admission)
{
    pthread_mutex_lock(&admission->lock);
    admission->begun_count--;
    if (admission->stalled_count > admission->begun_count)
        admission->stalled_count = admission->begun_count;
    admission->back_ns = qd_clock_ns();
    pthread_mutex_unlock(&admission->lock);
    tell(admission);
}

void qd_admission_room(const struct qd_admission *admission)
{
    tell(admission);
}

unsigned qd_admission_retry_after_s(struct qd_admission *admission)
{
    uint64_t oldest_ns;
    const size_t body_count = qd_memory_bodies(admission->memory, &oldest_ns);
    pthread_mutex_lock(&admission->lock);
    const uint64_t now_ns = qd_clock_ns();
    const uint64_t works_ns = admission->work_count > 0 ? since_last_end(admission, now_ns) : 0;
    const uint64_t interval_ns =
        admission->interval_ns > works_ns ? admission->interval_ns : works_ns;
    const uint64_t count = admission->work_count + body_count;
    pthread_mutex_unlock(&admission->lock);
    const uint64_t comes_ns = now_ns > oldest_ns ? now_ns - oldest_ns : 0;
    uint64_t wait_ns;
    if (__builtin_mul_overflow(count, interval_ns, &wait_ns))
        wait_ns = UINT64_MAX;
    const uint64_t seconds = (wait_ns > comes_ns ? wait_ns : comes_ns) / QD_NS_PER_S + 1;
    return seconds < UINT32_MAX ? (unsigned)seconds : UINT32_MAX;
}
