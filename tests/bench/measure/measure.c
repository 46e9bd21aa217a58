/* Measures calls of libqk, and the limits of each call for comparison. Reads commands from standard
 * input, one on each line:
 *
 *   call OPERATOR VERSION          begins a call; a LIST is numbers separated by commas
 *   int NAME N
 *   ints NAME LIST
 *   input NAME TYPE FILE [DIMS]    the file begins with the input's bytes; the rest is not read;
 *                                  a NAME such as #2 is the number of an input
 *   fix NAME                       makes this variable input, which must have been read, a
 *                                  constant of a model
 *   plan THREADS GEMM              answers "kernel units unit_ns pack_units pack_unit_ns slices
 *                                  read written constant resident workspace": ns as guessed by the
 *                                  plan; a slice is what a thread takes at a time; the last five
 *                                  are bytes of x, of y, of the largest constant, of the instance,
 *                                  and of each thread's workspace
 *   sgemm M N K                    sets the shape of the matrices that "sgemm" multiplies
 *   round NAME...                  answers for each name the nanoseconds of its best run in this
 *                                  round:
 *                                    run      qk_run, on all units
 *                                    alone    the same, on one thread
 *                                    pack     qk_prepare, and qk_pack on all units
 *                                    fresh    pack, qk_plan and run
 *                                    store    moving as many bytes as the first input and the
 *                                             output have; a second variable input that is as
 *                                             large as the first one is read, too
 *                                    stream   the same, bypassing the caches
 *                                    read     reading the largest constant
 *                                    sgemm    OpenBLAS's sgemm alone
 *                                    fma, madd, avxvnni, vnni, amx, neon, dotprod, i8mm
 *                                             the loops of tests/bench/limits/peak.h
 *   copy THREADS                   answers "bytes ns": how long the threads take to copy this many
 *                                  bytes from memory to memory, bypassing the caches
 *   regions FROM TO THREADS        answers "ns", as in region.h, for two files
 *   peak NAME                      answers how many operations one run of the loop has; 0: this
 *                                  machine cannot run the loop
 *   handover THREADS WORK AGAIN    answers "alone all again_alone again wake give trip": the
 *                                  nanoseconds of handover.h, for phases of WORK and AGAIN ns
 *   line                           answers "ns", as in line_trip.h
 *   constants                      answers "check refill yield gap slice": the nanoseconds of
 *                                  constants.h
 *   echo REQUEST ANSWER THREADS ADDRESS
 *                                  answers "port", of a server that reads REQUEST bytes and
 *                                  answers ANSWER bytes; it runs until the next echo command;
 *                                  addresses are as in reach.h
 *   constant FILE                  answers "port", of a libmicrohttpd server that answers with the
 *                                  contents of the file; it runs until the next such command
 *   exchange ADDRESS CONNECTIONS MS FILE RATE
 *                                  posts the contents of the file for MS milliseconds; answers
 *                                  "count ns p50 p99", as in exchange.h
 *   numbers TASK KIND COUNT LIBRARY
 *                                  makes the numbers of numbers.h; answers "bytes same": how long
 *                                  their text is, and whether the server reads or prints it right
 *   numbers-round NAME...          answers for each name the nanoseconds of one run; 0: the name is
 *                                  unknown
 *   numbers-check LIBRARY FIRST LAST
 *                                  answers how many of these floats are printed wrong
 *   save FILE                      runs the call once, and writes the output's bytes
 *
 * The first argument is the tier; "auto" if there is none. The first line of output is "tier width
 * core", which are the tier, the width of the moves and OpenBLAS's core, followed by the names that
 * GEMM may have. Rounds are short, so that the program that sends the commands can measure
 * something else between two rounds and take the best of many: on a machine with other load, that
 * is the only number that is stable. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/dispatch.h"
#include "server/base/limits.h"
#include "server/work/scheduler/scheduler.h"
#include "tests/bench/limits/move.h"
#include "tests/bench/limits/peak.h"
#include "tests/bench/measure/call.h"
#include "tests/bench/measure/constants.h"
#include "tests/bench/measure/exchange.h"
#include "tests/bench/measure/handover.h"
#include "tests/bench/measure/line_trip.h"
#include "tests/bench/measure/numbers.h"
#include "tests/bench/measure/region.h"
#include "tests/bench/measure/team.h"
#include "tests/bench/measure/times.h"

#define CHUNK_NS 100000 /* how much work a worker of the server takes at a time */
#define SPLIT_NS 50000  /* less work is left to one thread */
#define SLICES_PER_THREAD 4
#define BATCH_NS 100000 /* short runs are timed together, because reading the clock takes time */
#define ROUND_NS 1000000
#define WARM_NS_MAX 2000000            /* longer runs need no warm-up */
#define COPY_BYTES ((size_t)256 << 20) /* both buffers together: more than the caches hold */
#define COPY_SLICE_BYTES ((size_t)1 << 20)
#define COPY_RUNS 8
#define WORDS_MAX 16
#define DOUBLINGS_MAX 4
#define GEMMS_MAX 16

struct bench {
    struct qk_kernels *gemms[GEMMS_MAX]; /* the backends that this CPU has, best first */
    size_t gemm_count;
    struct qk_kernels *kernels; /* one of gemms */
    bench_move_fn *move;
    struct bench_call call;
    struct bench_buffer output;
    struct bench_buffer workspace;
    size_t workspace_stride;
    struct bench_team *team;
    struct slices {
        size_t units;
        size_t chunk;
        size_t count;
    } run, pack;
    struct bench_constant constant;
    size_t x_bytes;
    const uint8_t *second; /* another variable input with as many bytes as x; NULL: there is none */
    int doublings;         /* log2 of the output's bytes / the bytes that the limits read */
    struct qk_sgemm_args sgemm;
    struct bench_buffer matrices[3];
    struct bench_echo *echo;
    struct bench_numbers *numbers;
    struct bench_constant_server *constant_server;
    struct bench_buffer request; /* a whole file: a request or an answer */
};

/* ---- What can be measured ---------------------------------------------------------------- */

static size_t slice_end(const struct slices *slices, size_t slice)
{
    return slice + 1 < slices->count ? (slice + 1) * slices->chunk : slices->units;
}

/* Returns how many bytes all outputs have. They follow each other in bench->output. */
static size_t output_bytes(const struct qk_plan *plan)
{
    size_t bytes = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        bytes += plan->output_bytes[i];
    return bytes;
}

static void run_slice(void *context, size_t thread, size_t slice)
{
    struct bench *bench = context;
    void *outputs[QK_OUTPUT_COUNT_MAX];
    uint8_t *next = bench->output.data;
    for (size_t i = 0; i < bench->call.plan.output_count; i++) {
        outputs[i] = next;
        next += bench->call.plan.output_bytes[i];
    }
    qk_run(&bench->call.plan, bench->call.data, outputs,
           bench->workspace.data + thread * bench->workspace_stride, slice * bench->run.chunk,
           slice_end(&bench->run, slice));
}

static void run(struct bench *bench)
{
    bench_team_run(bench->team, run_slice, bench, bench->run.count);
}

static void alone(struct bench *bench)
{
    for (size_t slice = 0; slice < bench->run.count; slice++)
        run_slice(bench, 0, slice);
}

static void pack_slice(void *context, size_t thread, size_t slice)
{
    struct bench *bench = context;
    (void)thread;
    qk_pack(bench->call.instance, slice * bench->pack.chunk, slice_end(&bench->pack, slice));
}

static void pack(struct bench *bench)
{
    bench_call_prepare(&bench->call, bench->kernels);
    bench_team_run(bench->team, pack_slice, bench, bench->pack.count);
}

static void fresh(struct bench *bench)
{
    pack(bench);
    bench_call_plan(&bench->call);
    run(bench);
}

/* Moves one slice. There are as many slices as the plan has, of whole KiB, for all proportions. */
static void move_slice(const struct bench *bench, size_t slice, bool stream)
{
    const size_t kib = bench->x_bytes / 1024;
    const size_t begin = kib * slice / bench->run.count * 1024;
    const size_t end =
        slice + 1 < bench->run.count ? kib * (slice + 1) / bench->run.count * 1024 : bench->x_bytes;
    const size_t read = bench->second ? 2 * begin : begin;
    const size_t to = bench->doublings < 0 ? read >> -bench->doublings : read << bench->doublings;
    bench->move(bench->call.inputs[0].data + begin, bench->second ? bench->second + begin : NULL,
                bench->output.data + to, end - begin, bench->doublings, stream);
}

static void store_slice(void *context, size_t thread, size_t slice)
{
    (void)thread;
    move_slice(context, slice, false);
}

static void store(struct bench *bench)
{
    bench_team_run(bench->team, store_slice, bench, bench->run.count);
}

static void stream_slice(void *context, size_t thread, size_t slice)
{
    (void)thread;
    move_slice(context, slice, true);
}

static void stream(struct bench *bench)
{
    bench_team_run(bench->team, stream_slice, bench, bench->run.count);
}

static void read_slice(void *context, size_t thread, size_t slice)
{
    const struct bench *bench = context;
    const size_t lines = bench->constant.bytes / 64;
    const size_t begin = lines * slice / bench->run.count * 64;
    const size_t end = lines * (slice + 1) / bench->run.count * 64;
    (void)thread;
    bench->move((const uint8_t *)bench->constant.data + begin, NULL, bench->output.data,
                end - begin, BENCH_MOVE_READS, false);
}

static void read_constant(struct bench *bench)
{
    bench_team_run(bench->team, read_slice, bench, bench->run.count);
}

static void sgemm(struct bench *bench)
{
    qk_openblas_sgemm(&bench->kernels->openblas, &bench->sgemm);
}

struct measure {
    const char *name;
    void (*run)(struct bench *bench);
    void (*peak)(void); /* if not NULL, called instead of `run` */
};

static const struct measure measures[] = {{"run", run, NULL},
                                          {"alone", alone, NULL},
                                          {"pack", pack, NULL},
                                          {"fresh", fresh, NULL},
                                          {"store", store, NULL},
                                          {"stream", stream, NULL},
                                          {"read", read_constant, NULL},
                                          {"sgemm", sgemm, NULL}};

static struct measure find_measure(const char *name)
{
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
        if (strcmp(measures[i].name, name) == 0)
            return measures[i];
    const struct bench_peak *peak = bench_peak_find(name);
    if (!peak)
        bench_fail("no measure '%s'", name);
    return (struct measure){name, NULL, peak->run};
}

/* ---- Time -------------------------------------------------------------------------------- */

/* Times `count` runs. Returns the nanoseconds of one of them. */
static double time_batch(const struct measure *measure, struct bench *bench, size_t count)
{
    const double start = bench_clock_ns();
    for (size_t i = 0; i < count; i++)
        if (measure->peak)
            measure->peak();
        else
            measure->run(bench);
    return (bench_clock_ns() - start) / (double)count;
}

/* Returns the nanoseconds of the best run of a round. */
static double time_round(const struct measure *measure, struct bench *bench)
{
    double best = time_batch(measure, bench, 1);
    if (best < WARM_NS_MAX)
        best = time_batch(measure, bench, 1);
    if (best >= WARM_NS_MAX)
        return best;
    size_t count = 1;
    for (; best * (double)count < BATCH_NS; best = time_batch(measure, bench, count))
        count *= 2;
    for (double spent = 0; spent < ROUND_NS;) {
        const double ns = time_batch(measure, bench, count);
        spent += ns * (double)count;
        best = ns < best ? ns : best;
    }
    return best;
}

/* ---- Commands ---------------------------------------------------------------------------- */

static void choose_gemm(struct bench *bench, const char *name)
{
    bench->kernels = bench->gemms[0];
    for (size_t i = 0; i < bench->gemm_count && strcmp(name, "auto") != 0; i++)
        if (strcmp(name, qk_kernels_gemm(bench->gemms[i])) == 0)
            bench->kernels = bench->gemms[i];
}

/* Cuts units into slices of at most CHUNK_NS. If the work is worth a hand-over, each thread gets
 * several slices, so that the threads finish at the same time. */
static struct slices cut(size_t units, uint64_t unit_cost_ns, size_t thread_count)
{
    const double unit_ns = (double)unit_cost_ns + 1;
    const double cost_ns = unit_ns * (double)units;
    double chunk_ns = CHUNK_NS;
    if (thread_count > 1 && cost_ns >= SPLIT_NS &&
        chunk_ns > cost_ns / (double)(thread_count * SLICES_PER_THREAD))
        chunk_ns = cost_ns / (double)(thread_count * SLICES_PER_THREAD);
    const size_t chunk = chunk_ns > unit_ns ? (size_t)(chunk_ns / unit_ns) : 1;
    return (struct slices){units, chunk, (units + chunk - 1) / chunk};
}

/* Returns log2 of y / x, rounded down, within what bench_move_fn can do. */
static int doublings(size_t x_bytes, size_t y_bytes)
{
    int count = 0;
    while (count < DOUBLINGS_MAX && y_bytes >> 1 >= x_bytes) {
        y_bytes /= 2;
        count++;
    }
    while (count > -DOUBLINGS_MAX && y_bytes < x_bytes) {
        x_bytes /= 2;
        count--;
    }
    return count;
}

/* Returns the data of another variable input that has `bytes`. Returns NULL if there is none. */
static const uint8_t *find_second(const struct bench_call *call, size_t bytes)
{
    const struct qk_operator *op = call->call.op;
    for (size_t i = 1; i < op->input_count; i++) {
        const struct qk_tensor *input = &call->call.inputs[i];
        size_t own;
        if ((call->call.variable >> i & 1) != 0 && input->type != QK_NONE &&
            qk_type_bytes(input->type, input->count, &own) && own == bytes)
            return call->inputs[i].data;
    }
    return NULL;
}

static void on_plan(struct bench *bench, size_t thread_count, const char *gemm)
{
    const struct qk_plan *plan = &bench->call.plan;
    choose_gemm(bench, gemm);
    if (thread_count == 0)
        bench_fail("plan: expected a thread at least");
    bench_team_destroy(bench->team);
    bench->team = bench_team_create(thread_count);
    bench_call_prepare(&bench->call, bench->kernels);
    struct qk_instance *instance = bench->call.instance;
    bench->pack = cut(instance->pack_unit_count, instance->pack_unit_cost_ns, thread_count);
    qk_pack(instance, 0, instance->pack_unit_count);
    bench_call_plan(&bench->call);
    if (plan->unit_count == 0)
        bench_fail("plan: expected a unit at least");
    bench->run = cut(plan->unit_count, plan->unit_cost_ns, thread_count);
    bench->workspace_stride = (plan->workspace_bytes + 63) / 64 * 64;
    bench_buffer_reserve(&bench->workspace, thread_count * bench->workspace_stride + 1);
    bench->constant = bench_call_constant(&bench->call);

    const struct qk_tensor *x = &bench->call.call.inputs[0];
    if (!qk_type_bytes(x->type, x->count, &bench->x_bytes))
        bench_fail("plan: x is too large");
    bench->second = find_second(&bench->call, bench->x_bytes);
    const size_t read = bench->second ? 2 * bench->x_bytes : bench->x_bytes;
    const size_t limit = read >> DOUBLINGS_MAX; /* the least that the limits write */
    const size_t written = output_bytes(plan);
    bench_buffer_reserve(&bench->output, written > limit ? written : limit);
    bench->doublings = doublings(read, written);
    printf("%s %zu %llu %zu %llu %zu %zu %zu %zu %zu %zu\n", plan->kernel, plan->unit_count,
           (unsigned long long)plan->unit_cost_ns, instance->pack_unit_count,
           (unsigned long long)instance->pack_unit_cost_ns, bench->run.count, bench->x_bytes,
           output_bytes(plan), bench->constant.bytes, instance->packed_bytes,
           plan->workspace_bytes);
}

static void on_sgemm(struct bench *bench, char *const *words)
{
    const int m = atoi(words[0]), n = atoi(words[1]), k = atoi(words[2]);
    const size_t counts[3] = {(size_t)m * (size_t)k, (size_t)k * (size_t)n, (size_t)m * (size_t)n};
    float *data[3];
    if (m < 1 || n < 1 || k < 1)
        bench_fail("sgemm: expected numbers above 0");
    for (size_t i = 0; i < 3; i++) {
        bench_buffer_reserve(&bench->matrices[i], counts[i] * sizeof(float));
        data[i] = (float *)(void *)bench->matrices[i].data;
        for (size_t at = 0; at < counts[i]; at++)
            data[i][at] = 1;
    }
    bench->sgemm = (struct qk_sgemm_args){m, n, k, data[0], data[1], data[2], k, n, n};
}

static void on_round(struct bench *bench, char *const *names, size_t count)
{
    bench_team_wake(bench->team);
    for (size_t i = 0; i < count; i++) {
        const struct measure measure = find_measure(names[i]);
        printf("%s%.1f", i > 0 ? " " : "", time_round(&measure, bench));
    }
    bench_team_rest(bench->team);
    printf("\n");
}

struct copy {
    bench_move_fn *move;
    struct bench_buffer from, to;
};

static void copy_slice(void *context, size_t thread, size_t slice)
{
    const struct copy *copy = context;
    const size_t begin = slice * COPY_SLICE_BYTES;
    (void)thread;
    copy->move(copy->from.data + begin, NULL, copy->to.data + begin, COPY_SLICE_BYTES, 0, true);
}

static void on_copy(const struct bench *bench, size_t thread_count)
{
    struct copy copy = {.move = bench->move};
    double best = 1e18;
    if (thread_count == 0)
        bench_fail("copy: expected a thread at least");
    bench_buffer_reserve(&copy.from, COPY_BYTES);
    bench_buffer_reserve(&copy.to, COPY_BYTES);
    struct bench_team *team = bench_team_create(thread_count);
    bench_team_wake(team);
    for (size_t i = 0; i < COPY_RUNS; i++) {
        const double start = bench_clock_ns();
        bench_team_run(team, copy_slice, &copy, COPY_BYTES / COPY_SLICE_BYTES);
        const double ns = bench_clock_ns() - start;
        best = ns < best ? ns : best;
    }
    bench_team_rest(team);
    bench_team_destroy(team);
    free(copy.from.data);
    free(copy.to.data);
    printf("%zu %.1f\n", COPY_BYTES, best);
}

static void on_regions(const struct bench *bench, char *const *words)
{
    const unsigned long threads = strtoul(words[2], NULL, 10);
    if (threads == 0)
        bench_fail("regions: expected a thread at least");
    printf("%.1f\n", bench_region_move_ns(bench->move, words[0], words[1], threads));
}

static void on_peak(const char *name)
{
    const struct bench_peak *peak = bench_peak_find(name);
    printf("%zu\n", peak ? peak->operations : 0);
}

static void on_handover(char *const *words)
{
    const unsigned long threads = strtoul(words[0], NULL, 10);
    const uint64_t work_ns = strtoull(words[1], NULL, 10), again_ns = strtoull(words[2], NULL, 10);
    if (threads < 1 || threads > QD_THREAD_COUNT_MAX)
        bench_fail("handover: expected threads");
    const struct bench_handover found =
        bench_handover_measure((unsigned)threads, work_ns, again_ns);
    printf("%llu %llu %llu %llu %llu %llu %llu\n", (unsigned long long)found.alone_ns,
           (unsigned long long)found.all_ns, (unsigned long long)found.again_alone_ns,
           (unsigned long long)found.again_ns, (unsigned long long)found.wake_ns,
           (unsigned long long)found.give_ns, (unsigned long long)found.trip_ns);
}

static void on_constants(void)
{
    const struct bench_constants found = bench_constants_measure();
    printf("%llu %llu %llu %llu %llu\n", (unsigned long long)found.check_ns,
           (unsigned long long)found.refill_ns, (unsigned long long)found.yield_ns,
           (unsigned long long)found.gap_ns, (unsigned long long)found.slice_ns);
}

static void on_echo(struct bench *bench, char *const *words)
{
    bench_echo_destroy(bench->echo);
    bench->echo = bench_echo_create(strtoull(words[0], NULL, 10), strtoull(words[1], NULL, 10),
                                    strtoull(words[2], NULL, 10), words[3]);
    printf("%u\n", bench_echo_port(bench->echo));
}

/* Reads a file into bench->request. Returns its bytes. */
static size_t read_all(struct bench *bench, const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0)
        bench_fail("%s: cannot be read", path);
    bench_buffer_read(&bench->request, path, (size_t)file.st_size);
    return (size_t)file.st_size;
}

static void on_constant(struct bench *bench, const char *path)
{
    const size_t bytes = read_all(bench, path);
    bench_constant_server_destroy(bench->constant_server);
    bench->constant_server = bench_constant_server_create((const char *)bench->request.data, bytes);
    printf("%u\n", bench_constant_server_port(bench->constant_server));
}

static void on_exchange(struct bench *bench, char *const *words)
{
    const size_t request_bytes = read_all(bench, words[3]);
    const struct bench_exchange exchange = {
        .request = (const char *)bench->request.data,
        .request_bytes = request_bytes,
        .address = words[0],
        .connection_count = strtoull(words[1], NULL, 10),
        .for_ns = 1000000 * strtoull(words[2], NULL, 10),
        .rate = strtod(words[4], NULL),
    };
    if (exchange.connection_count == 0 || exchange.for_ns == 0)
        bench_fail("exchange: expected a connection and a millisecond at least");
    const struct bench_exchanged found = bench_exchange(&exchange);
    printf("%zu %.0f %.0f %.0f\n", found.count, found.ns, found.p50_ns, found.p99_ns);
}

static void on_numbers(struct bench *bench, char *const *words)
{
    bench_numbers_destroy(bench->numbers);
    bench->numbers =
        bench_numbers_create(words[0], words[1], strtoull(words[2], NULL, 10), words[3]);
    bench_numbers_run(bench->numbers, "quantd");
    printf("%zu %d\n", bench_numbers_bytes(bench->numbers), bench_numbers_same(bench->numbers));
}

static void on_numbers_round(struct bench *bench, char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double start = bench_clock_ns();
        const bool is_here = bench_numbers_run(bench->numbers, names[i]);
        const double ns = bench_clock_ns() - start;
        printf("%s%.0f", i == 0 ? "" : " ", is_here ? ns : 0);
    }
    printf("\n");
}

static void on_save(struct bench *bench, const char *path)
{
    const size_t bytes = output_bytes(&bench->call.plan);
    memset(bench->output.data, 0x55, bytes); /* clears earlier output */
    bench_team_wake(bench->team);
    run(bench);
    bench_team_rest(bench->team);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bench->output.data, 1, bytes, file) != bytes || fclose(file) != 0)
        bench_fail("%s: cannot be written", path);
    printf("%zu\n", bytes);
}

static void obey(struct bench *bench, char *const *words, size_t count)
{
    const char *name = words[0];
    if (strcmp(name, "call") == 0 && count == 3)
        bench_call_start(&bench->call, words[1], (unsigned)strtoul(words[2], NULL, 10));
    else if (strcmp(name, "int") == 0 && count == 3)
        bench_call_int(&bench->call, words[1], strtoll(words[2], NULL, 10));
    else if (strcmp(name, "ints") == 0 && count == 3)
        bench_call_ints(&bench->call, words[1], words[2]);
    else if (strcmp(name, "input") == 0 && (count == 4 || count == 5))
        bench_call_input(&bench->call, words[1], words[2], count == 5 ? words[4] : "", words[3]);
    else if (strcmp(name, "fix") == 0 && count == 2)
        bench_call_fix(&bench->call, words[1]);
    else if (strcmp(name, "plan") == 0 && count == 3 && bench->call.call.op)
        on_plan(bench, strtoul(words[1], NULL, 10), words[2]);
    else if (strcmp(name, "sgemm") == 0 && count == 4)
        on_sgemm(bench, words + 1);
    else if (strcmp(name, "copy") == 0 && count == 2)
        on_copy(bench, strtoul(words[1], NULL, 10));
    else if (strcmp(name, "regions") == 0 && count == 4)
        on_regions(bench, words + 1);
    else if (strcmp(name, "peak") == 0 && count == 2)
        on_peak(words[1]);
    else if (strcmp(name, "round") == 0 && bench->team)
        on_round(bench, words + 1, count - 1);
    else if (strcmp(name, "handover") == 0 && count == 4)
        on_handover(words + 1);
    else if (strcmp(name, "line") == 0 && count == 1)
        printf("%.1f\n", bench_line_trip_ns());
    else if (strcmp(name, "constants") == 0 && count == 1)
        on_constants();
    else if (strcmp(name, "echo") == 0 && count == 5)
        on_echo(bench, words + 1);
    else if (strcmp(name, "constant") == 0 && count == 2)
        on_constant(bench, words[1]);
    else if (strcmp(name, "exchange") == 0 && count == 6)
        on_exchange(bench, words + 1);
    else if (strcmp(name, "numbers") == 0 && count == 5)
        on_numbers(bench, words + 1);
    else if (strcmp(name, "numbers-round") == 0 && bench->numbers)
        on_numbers_round(bench, words + 1, count - 1);
    else if (strcmp(name, "numbers-check") == 0 && count == 4)
        printf("%zu\n", bench_numbers_check(words[1], strtoull(words[2], NULL, 10),
                                            strtoull(words[3], NULL, 10)));
    else if (strcmp(name, "save") == 0 && count == 2 && bench->team)
        on_save(bench, words[1]);
    else
        bench_fail("a line that begins with '%s' and has %zu words is no command here", name,
                   count);
}

static size_t split(char *line, char **words)
{
    size_t count = 0;
    for (char *rest, *word = strtok_r(line, " \n", &rest); word;
         word = strtok_r(NULL, " \n", &rest)) {
        if (count == WORDS_MAX)
            bench_fail("more than %d words in a line", WORDS_MAX);
        words[count++] = word;
    }
    return count;
}

/* Creates the kernels. Call this before any thread starts. */
static void create_kernels(struct bench *bench, const char *tier)
{
    struct qk_error error;
    const char *name = "auto";
    for (size_t i = 0; name && bench->gemm_count < GEMMS_MAX; name = qk_gemm_name(i++)) {
        enum qk_status status =
            qk_kernels_create(tier, name, true, (size_t)sysconf(_SC_NPROCESSORS_ONLN),
                              &bench->gemms[bench->gemm_count], &error);
        if (status == QK_OK)
            bench->gemm_count++;
        else if (bench->gemm_count == 0)
            bench_fail("%s", error.text);
    }
}

/* Returns OpenBLAS's core, as reported by any kernels that have loaded the library. */
static const char *blas_core(const struct bench *bench)
{
    const char *core = "none";
    for (size_t i = 0; i < bench->gemm_count && strcmp(core, "none") == 0; i++)
        core = qk_kernels_blas_core(bench->gemms[i]);
    return core;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    const char *width;
    char *line = NULL;
    size_t capacity = 0;
    char *words[WORDS_MAX];
    create_kernels(&bench, argc > 1 ? argv[1] : "auto");
    bench.move = bench_move_pick(&width);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s %s %s", qk_kernels_tier(bench.gemms[0]), width, blas_core(&bench));
    for (size_t i = 1; i < bench.gemm_count; i++)
        printf(" %s", qk_kernels_gemm(bench.gemms[i]));
    printf("\n");
    while (getline(&line, &capacity, stdin) >= 0) {
        const size_t count = split(line, words);
        if (count > 0)
            obey(&bench, words, count);
    }
    free(line);
    bench_echo_destroy(bench.echo);
    bench_numbers_destroy(bench.numbers);
    bench_constant_server_destroy(bench.constant_server);
    bench_team_destroy(bench.team);
    while (bench.gemm_count > 0)
        qk_kernels_destroy(bench.gemms[--bench.gemm_count]);
    return 0;
}
