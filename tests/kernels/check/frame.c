#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/kernels/check/frame.h"

/* How many failures of one subject are reported. */
#define TOLD_MOST 3
/* A case that takes longer hangs. The limit is long because sanitizers and emulators are slow. It
 * counts the process's own CPU time, so that a machine which pauses the process causes no
 * failure. */
#define HANGS_SECONDS 120
#define TIMED_NS 20000000.0

/* ---- Numbers ----------------------------------------------------------------------------- */

uint64_t check_random(struct check *check)
{
    uint64_t x = check->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    check->random = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

size_t check_below(struct check *check, size_t limit)
{
    return (size_t)((check_random(check) >> 16) % limit);
}

size_t check_between(struct check *check, size_t least, size_t most)
{
    return least + check_below(check, most - least + 1);
}

bool check_chance(struct check *check, size_t one_in)
{
    return check_below(check, one_in) == 0;
}

void check_fill_bytes(struct check *check, void *to, size_t bytes)
{
    static const uint8_t extremes[] = {0, 0xff, 0x80, 0x7f, 1, 0x81};
    uint8_t *from = to;
    const size_t kind = check_below(check, 4);
    const uint8_t same = extremes[check_below(check, sizeof(extremes))];
    for (size_t i = 0; i < bytes; i++) {
        const uint64_t random = check_random(check) >> 20;
        if (kind == 0)
            from[i] = same;
        else if (kind == 1)
            from[i] = extremes[random % sizeof(extremes)];
        else
            from[i] = (uint8_t)random;
    }
}

int32_t check_int32(struct check *check)
{
    static const int32_t extremes[] = {INT32_MIN, INT32_MAX, INT32_MIN + 1, -1, 0, 1};
    const uint64_t random = check_random(check);
    if (random % 4 == 0)
        return extremes[(random >> 8) % (sizeof(extremes) / sizeof(extremes[0]))];
    return (int32_t)(uint32_t)(random >> 32) >> (random >> 8) % 32;
}

float check_float(struct check *check, float ordinary)
{
    static const float extremes[] = {
        0.0F, -0.0F, INFINITY, -INFINITY, 0x1p-149F, 0x1p-126F, 0x1.fffffep127F, -0x1.fffffep127F,
        1.0F, -1.0F, 0.5F,     0x1p-31F};
    const uint64_t random = check_random(check);
    const size_t count = sizeof(extremes) / sizeof(extremes[0]);
    if (random % 4 != 0)
        return random % 8 < 5 ? ordinary
                              : ordinary * (float)(0.5 + (double)(random >> 40) / 0x1p24);
    if ((random >> 8) % (count + 2) < count)
        return extremes[(random >> 8) % (count + 2)];
    uint32_t bits = (uint32_t)(random >> 32);
    if ((random >> 8) % (count + 2) == count)
        bits |= 0x7fc00000;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

size_t check_index(const struct check *check)
{
    return check->index;
}

bool check_is_timed(const struct check *check)
{
    return check->timed;
}

/* ---- Failures ---------------------------------------------------------------------------- */

static void tell(struct check *check, const char *what)
{
    if (!check->case_failed && ++check->failures <= TOLD_MOST)
        printf("FAIL %s of %s, case %zu: %s\n     %s\n", check->subject->function, check->tier,
               check->index, what, check->label);
    check->case_failed = true;
}

void check_that(struct check *check, bool ok, const char *format, ...)
{
    char text[CHECK_TEXT];
    va_list arguments;
    if (ok)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tell(check, text);
}

void check_describe(struct check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->label, sizeof(check->label), format, arguments);
    va_end(arguments);
}

static uint64_t element_at(const uint8_t *from, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, from, bytes);
    return value;
}

void check_same(struct check *check, const struct check_pair *pair, size_t element_bytes)
{
    const uint8_t *expected = pair->expected, *actual = pair->actual;
    check_settle_same(check, pair);
    if (check->case_failed || check->timed || memcmp(expected, actual, pair->bytes) == 0)
        return;
    size_t at = 0, count = 0, first = SIZE_MAX;
    for (; at + element_bytes <= pair->bytes; at += element_bytes)
        if (memcmp(expected + at, actual + at, element_bytes) != 0) {
            first = first == SIZE_MAX ? at : first;
            count++;
        }
    if (first == SIZE_MAX)
        first = at - element_bytes;
    check_that(check, false, "%s[%zu] is %#llx, not %#llx; %zu of %zu differ", pair->name,
               first / element_bytes, (unsigned long long)element_at(actual + first, element_bytes),
               (unsigned long long)element_at(expected + first, element_bytes), count,
               pair->bytes / element_bytes);
}

/* ---- Calls ------------------------------------------------------------------------------- */

static sigjmp_buf before_call;
static volatile sig_atomic_t in_call;
static const void *volatile fault_address;

static const struct check *dying; /* the case that is reported if the process dies */

/* Reports the case before the process dies, because a sanitizer's report or a signal does not name
 * it. */
static void tell_last_words(void)
{
    char text[2 * CHECK_TEXT];
    const int count = snprintf(text, sizeof(text),
                               "check-kernels ends in %s of %s, case %zu, --seed %llu\n     %s\n",
                               dying->subject->function, dying->tier, dying->index,
                               (unsigned long long)dying->seed, dying->label);
    if (write(STDERR_FILENO, text, (size_t)count) < 0)
        return; /* nothing more can be done */
}

/* Defined by sanitizers only. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!in_call) { /* not a kernel's fault: let it end the process */
        tell_last_words();
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    in_call = 0;
    fault_address = info->si_addr;
    siglongjmp(before_call, number);
}

static void catch_signals(const struct check *check)
{
    dying = check;
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell_last_words);
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGPROF};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

/* Makes SIGPROF come after `seconds` of CPU time of this process; 0: never. */
static void watch_time(long seconds)
{
    const struct itimerval timer = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

static bool call(struct check *check, const char *who, check_call_fn *function, void *context)
{
    const int number = sigsetjmp(before_call, 0);
    if (number == 0) {
        in_call = 1;
        function(context);
        in_call = 0;
        return true;
    }
    char place[CHECK_TEXT] = "";
    if (number == SIGSEGV || number == SIGBUS)
        check_memory_place(check, fault_address, place, sizeof(place));
    check_that(check, false, "%s %s %s", who,
               number == SIGPROF  ? "does not come back"
               : number == SIGILL ? "has an instruction that this CPU lacks"
               : number == SIGFPE ? "divides by 0"
                                  : "touches",
               place);
    return false;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint64_t now_cycles(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

struct taken {
    double ns, cycles; /* duration of one call */
};

/* Returns the duration in the fastest of some rounds. */
static struct taken take_time(check_call_fn *function, void *context)
{
    struct taken best = {INFINITY, INFINITY};
    double calls = 1;
    function(context);
    const double begin = now_ns();
    function(context);
    const double once = now_ns() - begin;
    if (once < TIMED_NS / 8)
        calls = floor(TIMED_NS / 8 / (once + 20)) + 1;
    for (int round = 0; round < 5; round++) {
        const double from = now_ns();
        const uint64_t from_cycles = now_cycles();
        for (double i = 0; i < calls; i++)
            function(context);
        const double cycles = (double)(now_cycles() - from_cycles) / calls;
        const double ns = (now_ns() - from) / calls;
        best.ns = fmin(best.ns, ns);
        best.cycles = fmin(best.cycles, cycles);
    }
    return best;
}

bool check_calls(struct check *check, check_call_fn *reference, check_call_fn *kernel,
                 void *context, double elements, const char *unit)
{
    check_memory_hash(check);
    if (check->timed) {
        const struct taken slow = take_time(reference, context);
        const struct taken fast = take_time(kernel, context);
        printf("%-26s %-9s %10.4f ns %9.4f cycles a %-12s %8.2f x the reference\n",
               check->subject->function, check->tier, fast.ns / elements, fast.cycles / elements,
               unit, slow.ns / fast.ns);
        return false;
    }
    return call(check, "the reference", reference, context) && call(check, "it", kernel, context);
}

/* ---- Subjects ---------------------------------------------------------------------------- */

/* Adds a name to a list, once. */
static void note(char list[CHECK_TEXT], const char *name)
{
    static const char between[] = "; ";
    size_t word;
    for (const char *at = list; *at != '\0'; at += word) {
        at += strspn(at, between);
        word = strcspn(at, ";");
        if (word == strlen(name) && memcmp(at, name, word) == 0)
            return;
    }
    const size_t used = strlen(list);
    snprintf(list + used, CHECK_TEXT - used, "%s%s", used > 0 ? between : "", name);
}

bool check_tier(struct check *check, const char *tier, const char *lacks)
{
    char text[CHECK_TEXT / 4];
    check->tier = tier;
    snprintf(text, sizeof(text), lacks ? "%s (this CPU lacks %s)" : "%s", tier, lacks);
    note(lacks ? check->lacking : check->ran, text);
    return !lacks;
}

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* Returns the case's seed. Each case has its own, so that one case can be repeated alone. */
static uint64_t numbers_of(const struct check *check, size_t index)
{
    uint64_t hash = check->seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0xcbf29ce484222325);
    hash = mix(mix(hash, check->subject->function), check->tier);
    hash = (hash ^ index) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
    return hash == 0 ? 1 : hash;
}

static void run_case(struct check *check, size_t index)
{
    check->index = index;
    check->random = numbers_of(check, index);
    check->case_failed = false;
    check->label[0] = '\0';
    check_memory_begin(check);
    check->subject->body(check, check->subject->kernel);
    check_memory_end(check);
}

void check_run(struct check *check, const struct check_subject *subject)
{
    char name[CHECK_TEXT];
    snprintf(name, sizeof(name), "%s %s", subject->function, check->tier);
    if (check->only && !strstr(name, check->only))
        return;
    for (size_t i = 0; check->except[i]; i++)
        if (strstr(name, check->except[i]))
            return;
    if (check->seen++ % check->parts != check->part)
        return;
    check->subject = subject;
    check->failures = 0;
    if (check->list) {
        printf("%s\n", name);
        return;
    }
    catch_signals(check);
    size_t cases = 0;
    for (size_t i = 0; i < (check->timed ? 1 : subject->cases); i += check->every) {
        if (cases++ % 16 == 0)
            watch_time(HANGS_SECONDS);
        run_case(check, i);
        if (check->failures >= 100)
            break; /* it is broken, and further cases tell nothing new */
    }
    watch_time(0);
    if (check->timed)
        return;
    check->checks += cases;
    if (check->failures == 0)
        check->passed++;
    else
        check->failed++;
    printf("%-4s %-26s %-9s %7zu cases", check->failures ? "FAIL" : "ok", subject->function,
           check->tier, cases);
    if (check->failures > 0)
        printf(", %zu or more failed", check->failures);
    printf("\n");
    fflush(stdout);
}
