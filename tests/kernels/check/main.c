/* Checks each kernel of each tier that this CPU has against the scalar reference (see check.h).
 *
 *   check-kernels                checks all kernels; the last line is "N passed, N failed", in
 *                                kernels
 *   check-kernels --time         times the kernels instead
 *   check-kernels --only TEXT    checks kernels whose name and tier, such as "gemm/multiply avx2",
 *                                contain TEXT
 *   check-kernels --except TEXT  skips these kernels; may be repeated
 *   check-kernels --seed NUMBER  repeats the cases of an earlier run; new cases by default
 *   check-kernels --part K/N     checks the Kth of N parts of the kernels, from 0, so that parts
 *                                can run side by side
 *   check-kernels --every N      runs every Nth case of a kernel, for sanitizers, which are slow
 *   check-kernels --list         prints names and tiers
 *   check-kernels --machines     prints the names for QK_CPU, and the features this CPU lacks */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu.h"
#include "tests/kernels/check/frame.h"

static const char usage[] = "usage: check-kernels [--time] [--list] [--machines] [--only TEXT] "
                            "[--except TEXT] [--seed NUMBER] "
                            "[--part K/N] [--every N]\n";

static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0';
}

static bool read_part(const char *text, struct check *check)
{
    char end;
    return sscanf(text, "%zu/%zu%c", &check->part, &check->parts, &end) == 2 &&
           check->part < check->parts;
}

static bool leave_out(struct check *check, const char *text)
{
    size_t count = 0;
    while (check->except[count] != NULL)
        count++;
    if (count < CHECK_EXCEPTIONS_MOST)
        check->except[count] = text;
    return count < CHECK_EXCEPTIONS_MOST;
}

static bool read_option(struct check *check, const char *name, const char *value)
{
    if (strcmp(name, "--except") == 0)
        return leave_out(check, value);
    if (strcmp(name, "--part") == 0)
        return read_part(value, check);
    if (strcmp(name, "--every") == 0)
        return read_number(value, &check->every) && check->every > 0;
    if (strcmp(name, "--seed") == 0)
        return read_number(value, &check->seed);
    check->only = value;
    return strcmp(name, "--only") == 0;
}

static bool read_options(struct check *check, int count, char **words)
{
    for (int i = 1; i < count; i++)
        if (strcmp(words[i], "--time") == 0)
            check->timed = true;
        else if (strcmp(words[i], "--list") == 0)
            check->list = true;
        else if (i + 1 == count || !read_option(check, words[i], words[i + 1]))
            return false;
        else
            i++;
    return true;
}

static int print_machines(void)
{
    size_t count;
    const struct qk_machine *machines = qk_machines(&count);
    for (size_t i = 0; i < count; i++) {
        char features[QK_CPU_FLAGS_BYTES];
        qk_cpu_print_flags(qk_machine_lacks(&machines[i]), features, sizeof(features));
        printf("%s%s%s\n", machines[i].name, features[0] ? ": this CPU lacks " : "", features);
    }
    return 0;
}

int main(int count, char **words)
{
    static struct check check = {.parts = 1, .every = 1};
    struct timespec now;
    const struct qk_machine *mask;
    struct qk_error error;
    if (count == 2 && strcmp(words[1], "--machines") == 0)
        return print_machines();
    if (qk_cpu_mask(&mask, &error) != QK_OK) {
        fprintf(stderr, "check-kernels: %s\n", error.text);
        return 2;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    check.seed = ((uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 20) & UINT32_MAX;
    if (!read_options(&check, count, words)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!check.list)
        printf("%s%s%scheck-kernels --seed %llu\n", mask ? QK_CPU_VARIABLE "=" : "",
               mask ? mask->name : "", mask ? " " : "", (unsigned long long)check.seed);
    check_gemm(&check);
    check_dequantize(&check);
    check_quantize(&check);
    check_argmax(&check);
    check_binary(&check);
    check_cast(&check);
    check_floats(&check);
    check_matmul(&check);
    check_pool(&check);
    check_pool_planes(&check);
    check_lookup(&check);
    check_move(&check);
    check_slabs(&check);
    check_winograd(&check);
    check_depthwise(&check);
    check_sgemm(&check);
    check_memory_deinit(&check);
    if (check.list)
        return 0;
    printf("Tiers that ran: %s\n", check.ran);
    if (check.lacking[0] != '\0')
        printf("Tiers that did not: %s\n", check.lacking);
    if (check.timed)
        return 0;
    if (check.only != NULL && check.seen == 0) { /* without a name, a part may be empty */
        fprintf(stderr, "no kernel is called '%s'; see --list\n", check.only);
        return 2;
    }
    printf("%zu cases, seed %llu\n", check.checks, (unsigned long long)check.seed);
    printf("%zu passed, %zu failed\n", check.passed, check.failed);
    fflush(stdout); /* a leak checker may end the process before exit() flushes */
    return check.failed == 0 ? 0 : 1;
}
