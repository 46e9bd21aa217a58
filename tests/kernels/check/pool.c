/* Checks the kernels of pooling against the scalar ones. */
#include <string.h>

#include "kernels/pool/kernels.h"
#include "tests/kernels/check/check.h"

enum function { MAX_ROWS, MAX_ROW, MAX_INTO, ADD_ROW, FINISH, SUM_ROWS, REQUANTIZE };

struct subject {
    const struct qk_pool_kernels *kernels, *reference;
    enum function function;
    size_t is_signed;
};

struct job {
    struct subject subject;
    struct qk_pool_segment segment;
    struct qk_pool_average average;
    const uint8_t *x, *other;
    const void *sums;
    size_t first, x_bytes, count, rows, pitch;
    float divisor;
    uint8_t *buffers;
    struct check_pair y;
};

static void run(struct job *job, const struct qk_pool_kernels *kernels, void *y)
{
    const size_t is_signed = job->subject.is_signed;
    switch (job->subject.function) {
    case MAX_ROWS:
        kernels->max_rows[is_signed](y, job->x, job->other, job->count);
        break;
    case MAX_ROW:
        kernels->max_row[is_signed](&job->segment, job->x, job->first, job->x_bytes, job->buffers,
                                    y);
        break;
    case MAX_INTO:
        kernels->max_into[is_signed](&job->segment, job->x, y);
        break;
    case ADD_ROW:
        kernels->add_row(&job->segment, &job->average, job->x, job->x_bytes, y);
        break;
    case FINISH:
        kernels->finish(&job->average, job->sums, job->divisor, job->count, y);
        break;
    case SUM_ROWS:
        kernels->sum_rows(job->x, job->rows, job->pitch, job->average.flip, job->count, y);
        break;
    case REQUANTIZE:
        kernels->requantize(&job->average, job->sums, job->count, y);
        break;
    }
}

static void run_expected(void *context)
{
    struct job *job = context;
    run(job, job->subject.reference, job->y.expected);
}

static void run_actual(void *context)
{
    struct job *job = context;
    run(job, job->subject.kernels, job->y.actual);
}

/* ---- Cases --------------------------------------------------------------------------------- */

static int64_t between(struct check *check, size_t least, size_t most)
{
    return (int64_t)check_between(check, least, most);
}

/* Makes a segment whose part of x fits in the buffers, and sets its whole positions as a plan
 * does. */
static void make_segment(struct check *check, struct job *job)
{
    struct qk_pool_segment *segment = &job->segment;
    const bool timed = check_is_timed(check);
    const bool narrow = !timed && check_chance(check, 2);
    struct qk_pool_axis axis = {
        .in = timed ? 112 : between(check, 1, narrow ? 20 : 300),
        .kernel = timed ? 3 : between(check, 1, check_chance(check, 4) ? 20 : 4),
        .stride = timed || check_chance(check, 2) ? 1 : between(check, 1, 4),
        .dilation = timed || !check_chance(check, 4) ? 1 : between(check, 1, 4),
    };
    axis.pad = timed ? 1 : between(check, 0, (size_t)axis.kernel - 1);
    const int64_t left = axis.in + 2 * axis.pad - (axis.kernel - 1) * axis.dilation - 1;
    axis.out = left < 0 ? 1 : left / axis.stride + 1;
    segment->axis = axis;
    segment->begin = timed ? 0 : check_below(check, (size_t)axis.out);
    segment->end =
        timed ? (size_t)axis.out : check_between(check, segment->begin + 1, (size_t)axis.out);
    segment->inner = !timed && narrow ? check_between(check, 1, 40) : 1;
    segment->pitch = segment->inner;
    if (segment->end - segment->begin == 1 && job->subject.function != MAX_ROW)
        segment->pitch += check_below(check, 3);
    segment->whole_begin = segment->whole_end = segment->end;
    size_t first = segment->end;
    size_t end = segment->begin;
    for (size_t i = segment->begin; i < segment->end; i++) {
        const struct qk_pool_taps taps = qk_pool_taps_of(&axis, (int64_t)i);
        if (taps.begin > 0 || taps.end < axis.kernel)
            continue;
        first = i < first ? i : first;
        end = i + 1;
    }
    if (first + 1 < end) {
        segment->whole_begin = first;
        segment->whole_end = end;
    }
}

static void make_average(struct check *check, struct job *job)
{
    const bool flips = check_chance(check, 2);
    job->average = (struct qk_pool_average){
        .flip = flips ? 0x80 : 0,
        .x_zero = (int32_t)check_below(check, 256),
        .x_scale = check_float(check, 0.031F),
        .y_scale = check_float(check, 0.05F),
        .y_zero = (float)check_below(check, 256) - (flips ? 128.0F : 0.0F),
        .y_min = flips ? -128.0F : 0.0F,
        .y_max = flips ? 127.0F : 255.0F,
        .multiplier = check_float(check, 0.02F),
        .sum_of_zeros = (uint32_t)check_int32(check),
    };
    job->divisor = (float)check_between(check, 1, 50);
}

static const void *make_sums(struct check *check, const struct job *job)
{
    const size_t count = job->subject.function == FINISH ? qk_pool_round(job->count) : job->count;
    uint32_t *sums = check_buffer(check, "sums", CHECK_INPUT, count * sizeof(*sums), 4);
    for (size_t i = 0; i < count; i++) {
        const float value = check_float(check, (float)check_below(check, 1000) * 0.5F);
        const int32_t integer = check_int32(check);
        if (job->subject.function == FINISH)
            memcpy(&sums[i], &value, sizeof(value));
        else
            memcpy(&sums[i], &integer, sizeof(integer));
    }
    return sums;
}

static const uint8_t *make_bytes(struct check *check, const char *name, size_t count)
{
    uint8_t *bytes = check_buffer(check, name, CHECK_INPUT, count, 1);
    check_fill_bytes(check, bytes, count);
    return bytes;
}

/* Makes outputs that the kernel also reads: both begin with the same values. */
static struct check_pair make_read_outputs(struct check *check, size_t count, bool floats)
{
    const size_t bytes = count * (floats ? sizeof(float) : 1);
    struct check_pair pair = check_outputs(check, "y", bytes, floats ? sizeof(float) : 1);
    if (floats)
        memset(pair.expected, 0, bytes);
    else
        check_fill_bytes(check, pair.expected, bytes);
    memcpy(pair.actual, pair.expected, bytes);
    return pair;
}

static void check_segment(struct check *check, struct job *job)
{
    const struct qk_pool_segment *segment = &job->segment;
    make_segment(check, job);
    const size_t in = (size_t)segment->axis.in;
    size_t count = (segment->end - segment->begin) * segment->inner;
    if (job->subject.function == ADD_ROW)
        count = qk_pool_sums_after(segment) + (segment->end - segment->whole_end) * segment->inner;
    job->x_bytes = (in - 1) * segment->pitch + segment->inner + check_below(check, 200);
    job->x = make_bytes(check, "x", job->x_bytes);
    if (job->subject.function == MAX_ROW) {
        job->buffers = check_scratch(check, 2 * QK_POOL_BUFFER_BYTES);
        memset(job->buffers, 0, 2 * QK_POOL_BUFFER_BYTES); /* what is rounded up reads more */
        job->y = check_outputs(check, "y", count, 1);
    } else {
        job->y = make_read_outputs(check, count, job->subject.function == ADD_ROW);
    }
    job->count = count;
    check_describe(check,
                   "in %zu, kernel %d, stride %d, dilation %d, pad %d, positions %zu to %zu, whole "
                   "%zu to %zu, inner %zu, pitch %zu",
                   in, (int)segment->axis.kernel, (int)segment->axis.stride,
                   (int)segment->axis.dilation, (int)segment->axis.pad, segment->begin,
                   segment->end, segment->whole_begin, segment->whole_end, segment->inner,
                   segment->pitch);
}

static void check_elements(struct check *check, struct job *job)
{
    const enum function function = job->subject.function;
    const bool timed = check_is_timed(check);
    job->count = timed ? 2048 : check_between(check, 1, 300);
    job->rows = timed ? 49 : check_below(check, 10);
    job->pitch = job->count + (timed ? 0 : check_below(check, 5));
    if (function == FINISH || function == REQUANTIZE)
        job->sums = make_sums(check, job);
    else if (function == SUM_ROWS && job->rows > 0)
        job->x = make_bytes(check, "x", (job->rows - 1) * job->pitch + job->count);
    else
        job->x = make_bytes(check, "x", job->count);
    if (function == MAX_ROWS)
        job->other = make_bytes(check, "other", job->count);
    const size_t bytes = function == SUM_ROWS ? sizeof(uint32_t) : 1;
    job->y = check_outputs(check, "y", job->count * bytes, bytes);
    check_describe(check, "%zu elements, %zu rows, pitch %zu, flip %d, zero %d, scales %g %g",
                   job->count, job->rows, job->pitch, job->average.flip, (int)job->average.x_zero,
                   (double)job->average.x_scale, (double)job->average.y_scale);
}

static void check_function(struct check *check, const void *kernel)
{
    struct job job = {.subject = *(const struct subject *)kernel};
    const enum function function = job.subject.function;
    make_average(check, &job);
    if (function == MAX_ROW || function == MAX_INTO || function == ADD_ROW)
        check_segment(check, &job);
    else
        check_elements(check, &job);
    const double rows = function == SUM_ROWS ? (double)job.rows : 1;
    if (check_calls(check, run_expected, run_actual, &job, (double)job.count * rows, "element"))
        check_same(check, &job.y, function == ADD_ROW ? 4 : 1);
}

/* ---- Tiers --------------------------------------------------------------------------------- */

static void check_kernels(struct check *check, const char *tier,
                          void (*init)(struct qk_pool_kernels *kernels))
{
    static const struct {
        const char *name;
        enum function function;
        size_t is_signed;
    } functions[] = {
        {"pool/max_rows_u8", MAX_ROWS, 0}, {"pool/max_rows_s8", MAX_ROWS, 1},
        {"pool/max_row_u8", MAX_ROW, 0},   {"pool/max_row_s8", MAX_ROW, 1},
        {"pool/max_into_u8", MAX_INTO, 0}, {"pool/max_into_s8", MAX_INTO, 1},
        {"pool/add_row", ADD_ROW, 0},      {"pool/finish", FINISH, 0},
        {"pool/sum_rows", SUM_ROWS, 0},    {"pool/requantize", REQUANTIZE, 0},
    };
    struct qk_pool_kernels kernels;
    struct qk_pool_kernels reference;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    qk_pool_init_scalar(&reference);
    init(&kernels);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const struct subject subject = {&kernels, &reference, functions[i].function,
                                        functions[i].is_signed};
        check_run(check,
                  &(struct check_subject){functions[i].name, check_function, &subject, 2000});
    }
}

void check_pool(struct check *check)
{
    check_kernels(check, "scalar", qk_pool_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_pool_init_avx2);
    check_kernels(check, "avx512bw", qk_pool_init_avx512bw);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_pool_init_neon);
#endif
}
