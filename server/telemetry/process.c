#define _GNU_SOURCE
#include "server/telemetry/metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/clock.h"

static void read_memory(struct qd_process *process)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages[2] = {0, 0};
    if (file == NULL)
        return;
    if (fscanf(file, "%llu %llu", &pages[0], &pages[1]) == 2) {
        const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
        process->virtual_bytes = pages[0] * page_bytes;
        process->resident_bytes = pages[1] * page_bytes;
    }
    fclose(file);
}

/* Counts the open descriptors. Linux 6.2 and newer report the number; older ones only list them. */
static uint64_t count_files(void)
{
    struct stat folder;
    if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0)
        return (uint64_t)folder.st_size;
    DIR *list = opendir("/proc/self/fd");
    uint64_t count = 0;
    if (list == NULL)
        return 0;
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list))
        count += entry->d_name[0] != '.';
    closedir(list);
    return count - 1; /* without the descriptor of the list itself */
}

void qd_process_read(struct qd_process *process)
{
    struct rlimit limit;
    memset(process, 0, sizeof(*process));
    process->cpu_ns = qd_clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    read_memory(process);
    process->files = count_files();
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        process->files_max = limit.rlim_cur;
}
