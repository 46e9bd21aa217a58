#define _GNU_SOURCE
#include "tests/bench/measure/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/measure/buffer.h"
#include "tests/bench/measure/team.h"
#include "tests/bench/measure/times.h"

#define SLICE_BYTES ((size_t)64 << 10) /* bytes to read */
#define FOR_NS 20e6                    /* for each kind of store */
enum { RUNS_MIN = 5, RUNS_MAX = 1000 };

struct region {
    uint8_t *bytes;
    size_t count;
};

struct regions {
    bench_move_fn *move;
    struct region from, to;
    int doublings; /* log2 of the size of `to` / the size of `from` */
    bool stream;
};

static struct region open_region(const char *path)
{
    struct stat about;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0)
        bench_fail("%s: cannot be opened", path);
    struct region region = {.count = (size_t)about.st_size};
    if (region.count < SLICE_BYTES || (region.count & (region.count - 1)) != 0)
        bench_fail("%s: expected a power of two, 64 KiB at least, got %zu bytes", path,
                   region.count);
    region.bytes = mmap(NULL, region.count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (region.bytes == MAP_FAILED)
        bench_fail("%s: cannot be mapped", path);
    close(fd);
    return region;
}

static void move_slice(void *context, size_t thread, size_t slice)
{
    const struct regions *regions = context;
    const size_t begin = slice * SLICE_BYTES;
    const size_t to =
        regions->doublings < 0 ? begin >> -regions->doublings : begin << regions->doublings;
    (void)thread;
    regions->move(regions->from.bytes + begin, NULL, regions->to.bytes + to, SLICE_BYTES,
                  regions->doublings, regions->stream);
}

/* Returns the median duration of a run. */
static double time_runs(struct regions *regions, struct bench_team *team)
{
    double took_ns[RUNS_MAX];
    size_t count = 0;
    const double first_ns = bench_clock_ns();
    while (count < RUNS_MIN || (count < RUNS_MAX && bench_clock_ns() - first_ns < FOR_NS)) {
        const double start_ns = bench_clock_ns();
        bench_team_run(team, move_slice, regions, regions->from.count / SLICE_BYTES);
        took_ns[count++] = bench_clock_ns() - start_ns;
    }
    bench_sort(took_ns, count);
    return took_ns[count / 2];
}

double bench_region_move_ns(bench_move_fn *move, const char *from, const char *to,
                            size_t thread_count)
{
    struct regions regions = {.move = move, .from = open_region(from), .to = open_region(to)};
    regions.doublings = __builtin_ctzll(regions.to.count) - __builtin_ctzll(regions.from.count);
    struct bench_team *team = bench_team_create(thread_count);
    bench_team_wake(team);
    bench_team_run(team, move_slice, &regions, regions.from.count / SLICE_BYTES); /* its pages */
    const double cached_ns = time_runs(&regions, team);
    regions.stream = true;
    const double stream_ns = time_runs(&regions, team);
    bench_team_rest(team);
    bench_team_destroy(team);
    munmap(regions.from.bytes, regions.from.count);
    munmap(regions.to.bytes, regions.to.count);
    return cached_ns < stream_ns ? cached_ns : stream_ns;
}
