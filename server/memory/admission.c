#include "server/memory/admission.h"

#include "server/base/clock.h"

/* How long a request that does not fit waits for answers that are being sent to free memory. */
#define STALL_NS QD_NS_PER_S

static bool fits(const struct qd_admission *admission, size_t bytes, size_t bytes_left)
{
    return admission->bytes_spoken <= bytes_left && bytes <= bytes_left - admission->bytes_spoken;
}

bool qd_admission_try_begin(struct qd_admission *admission, size_t bytes, size_t bytes_left)
{
    const uint64_t now_ns = qd_clock_ns();
    if (admission->work_count == 0 && now_ns >= admission->back_ns + STALL_NS)
        admission->stalled_count = admission->begun_count;
    const bool alone =
        admission->work_count == 0 && admission->begun_count <= admission->stalled_count;
    if (!alone && !fits(admission, bytes, bytes_left))
        return false;
    admission->bytes_spoken += bytes;
    admission->begun_count++;
    admission->work_count++;
    admission->begun_ns = now_ns;
    return true;
}

/* Returns the time since the last end, not counting time without work. */
static uint64_t since_last_end(const struct qd_admission *admission, uint64_t now_ns)
{
    return now_ns -
           (admission->begun_ns > admission->ended_ns ? admission->begun_ns : admission->ended_ns);
}

void qd_admission_end(struct qd_admission *admission, size_t bytes)
{
    const uint64_t now_ns = qd_clock_ns();
    const uint64_t took_ns = since_last_end(admission, now_ns);
    admission->interval_ns =
        admission->interval_ns == 0
            ? took_ns
            : admission->interval_ns - admission->interval_ns / 8 + took_ns / 8;
    admission->bytes_spoken -= bytes;
    admission->work_count--;
    admission->ended_ns = now_ns;
    admission->back_ns = now_ns;
}

void qd_admission_forget(struct qd_admission *admission)
{
    admission->begun_count--;
    if (admission->stalled_count > admission->begun_count)
        admission->stalled_count = admission->begun_count;
    admission->back_ns = qd_clock_ns();
}

uint64_t qd_admission_time_ns(const struct qd_admission *admission, size_t body_count,
                              uint64_t now_ns)
{
    const uint64_t works_ns = admission->work_count > 0 ? since_last_end(admission, now_ns) : 0;
    const uint64_t interval_ns =
        admission->interval_ns > works_ns ? admission->interval_ns : works_ns;
    uint64_t time_ns;
    return __builtin_mul_overflow(admission->work_count + body_count, interval_ns, &time_ns)
               ? UINT64_MAX
               : time_ns;
}
