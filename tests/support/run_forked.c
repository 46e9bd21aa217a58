/* Runs Criterion's tests without Criterion's runner. Each test is a forked process, which a failed
 * assertion ends at once, on whatever thread. In Criterion's runner that process exits while other
 * threads run. If they keep it from ending, the runner aborts after the test's time limit, and the
 * results of all tests are lost.
 *
 * Criterion's runner also maps memory at addresses of the thread sanitizer, which stops the
 * program, ends a test's process without a check for leaks, and needs system calls that emulators
 * lack. Here a test that passes ends by exit, so a sanitizer fails it after a race or a leak. The
 * tests still include Criterion's own headers.
 *
 * unit-tests [--filter PATTERN] [--tap=FILE] [--fail-fast] [...]: as in Criterion; other options
 * are ignored, and so are the tests' own time limits. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <criterion/internal/parameterized.h>
#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    JOBS_MAX = 64,
    TEST_S = 900, /* some hundred times what a test takes; for tests that hang */
    SKIPPED = 77, /* the exit status of a test that skips itself */
    LINE_BYTES_MAX = 4096
};

/* The section in which Criterion's macros register tests. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[], *__stop_cr_sts[];

static struct job {
    const struct criterion_test *test;
    pid_t pid;
    FILE *said; /* what the test writes to standard error */
} jobs[JOBS_MAX];
static size_t job_count;
static unsigned passed_count;
static unsigned failed_count;
static bool fail_fast; /* no test starts after one has failed */
static FILE *report;

/* ---- In a test's process ------------------------------------------------------------------- */

static const struct criterion_test *current;
static void *parameter; /* NULL: the test takes none */
static bool continued;  /* a check failed, and the test went on */

static const struct criterion_test_extra_data *suite_data(void)
{
    for (struct criterion_suite **suite = __start_cr_sts; suite < __stop_cr_sts; suite++)
        if (strcmp((*suite)->name, current->category) == 0)
            return (*suite)->data;
    return NULL;
}

void criterion_internal_test_setup(void)
{
    const struct criterion_test_extra_data *suite = suite_data();
    if (suite != NULL && suite->init != NULL)
        suite->init();
    if (current->data->init != NULL)
        current->data->init();
}

void criterion_internal_test_main(void (*function)(void))
{
    if (parameter == NULL)
        function();
    else
        ((void (*)(void *))function)(parameter);
}

void criterion_internal_test_teardown(void)
{
    const struct criterion_test_extra_data *suite = suite_data();
    if (current->data->fini != NULL)
        current->data->fini();
    if (suite != NULL && suite->fini != NULL)
        suite->fini();
}

void criterion_send_assert(struct criterion_assert_stats *stats)
{
    if (!stats->passed)
        fprintf(stderr, "%s:%u: %s\n", stats->file, stats->line, stats->message);
}

void criterion_abort_test(void)
{
    _exit(EXIT_FAILURE); /* ends the process from any thread */
}

void criterion_skip_test(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    _exit(continued ? EXIT_FAILURE : SKIPPED);
}

void criterion_continue_test(void)
{
    continued = true;
}

void cri_asserts_passed_incr(void)
{
}

/* ---- Around the tests' processes ----------------------------------------------------------- */

/* Passes on what a test's process wrote. If the test failed, the text also goes into the report,
 * indented as in Criterion's reports. */
static void tell(FILE *said, bool passed)
{
    static char line[LINE_BYTES_MAX];
    rewind(said);
    while (fgets(line, sizeof(line), said) != NULL) {
        fputs(line, stderr);
        if (!passed)
            fprintf(report, "  %s%s", line, strchr(line, '\n') != NULL ? "" : "\n");
    }
    fclose(said);
}

/* Reports a test that skipped itself. Its reason is the first line that it wrote. */
static void tell_skipped(const struct criterion_test *test, FILE *said)
{
    char reason[LINE_BYTES_MAX] = "";
    rewind(said);
    if (fgets(reason, sizeof(reason), said) != NULL)
        reason[strcspn(reason, "\n")] = '\0';
    fprintf(report, "ok - %s::%s  # SKIP %s\n", test->category, test->name, reason);
    fclose(said);
}

/* Waits for one of the jobs to end. */
static void reap(void)
{
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno != EINTR) {
        perror("waitpid");
        exit(EXIT_FAILURE);
    }
    size_t i = 0;
    while (i < job_count && jobs[i].pid != pid)
        i++;
    if (i == job_count)
        return;
    const struct criterion_test *test = jobs[i].test;
    FILE *said = jobs[i].said;
    jobs[i] = jobs[--job_count];
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        tell_skipped(test, said);
        return;
    }
    const bool passed = test->data->signal != 0
                            ? WIFSIGNALED(status) && WTERMSIG(status) == test->data->signal
                            : WIFEXITED(status) && WEXITSTATUS(status) == test->data->exit_code;
    if (passed)
        fprintf(report, "ok - %s::%s\n", test->category, test->name);
    else
        fprintf(report, "not ok - %s::%s %s %d\n", test->category, test->name,
                WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    tell(said, passed);
    *(passed ? &passed_count : &failed_count) += 1;
}

static void start(const struct criterion_test *test, void *with)
{
    static long at_once;
    at_once = at_once != 0 ? at_once : sysconf(_SC_NPROCESSORS_ONLN);
    while (job_count >= (size_t)at_once || job_count == JOBS_MAX)
        reap();
    fflush(NULL);
    FILE *said = tmpfile();
    const pid_t pid = said == NULL ? -1 : fork();
    if (pid == 0) {
        fclose(report);
        dup2(fileno(said), STDERR_FILENO);
        fclose(said);
        for (size_t i = 0; i < job_count; i++)
            fclose(jobs[i].said);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(TEST_S);
        current = test;
        parameter = with;
        test->test();
        exit(continued ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    if (pid < 0) {
        perror("a test's process");
        exit(EXIT_FAILURE);
    }
    jobs[job_count++] = (struct job){test, pid, said};
}

/* Returns how many tests the filter names. */
static size_t start_all(const char *filter)
{
    size_t count = 0;
    for (struct criterion_test **at = __start_cr_tst; at < __stop_cr_tst; at++) {
        const struct criterion_test *test = *at;
        if (test == NULL || fnmatch(filter, test->data->identifier_, FNM_EXTMATCH) != 0)
            continue;
        count++;
        if (fail_fast && failed_count > 0)
            continue;
        if (test->data->kind_ != CR_TEST_PARAMETERIZED) {
            start(test, NULL);
            continue;
        }
        const struct criterion_test_params with = test->data->param_();
        for (size_t i = 0; i < with.length; i++)
            start(test, (char *)with.params + i * with.size);
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *filter = "*";
    const char *path = "/dev/null";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--tap=", 6) == 0)
            path = argv[i] + 6;
        if (strcmp(argv[i], "--fail-fast") == 0)
            fail_fast = true;
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            filter = argv[++i];
    }
    report = fopen(path, "w");
    if (report == NULL) {
        perror(path);
        return EXIT_FAILURE;
    }
    const size_t test_count = start_all(filter);
    while (job_count > 0)
        reap();
    if (test_count == 0)
        fprintf(stderr, "--filter: expected a pattern of SUITE/TEST, got \"%s\"\n", filter);
    fprintf(stderr, "%u passed, %u failed\n", passed_count, failed_count);
    return fclose(report) == 0 && failed_count == 0 && test_count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
