/* What the operating system counts for the process. */
#include "server/telemetry/metrics.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

Test(process, what_the_system_counts)
{
    struct qd_process before, after;
    qd_process_read(&before);
    cr_assert_gt(before.files, 2);
    cr_assert_gt(before.files_max, before.files);
    cr_assert_gt(before.resident_bytes, 1 << 20);
    cr_assert_geq(before.virtual_bytes, before.resident_bytes);
    int fd = open("/dev/null", O_RDONLY);
    cr_assert_geq(fd, 0);
    for (volatile uint64_t i = 0; i < 50000000; i++) {
    }
    qd_process_read(&after);
    cr_assert_eq(after.files, before.files + 1);
    cr_assert_gt(after.cpu_ns, before.cpu_ns);
    close(fd);
}
