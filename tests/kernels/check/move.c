/* The kernels of the moving core (kernels/move/kernels.h), for elements of each size. */
#include "kernels/move/kernels.h"

#include <stdio.h>
#include <string.h>

#include "tests/kernels/check/check.h"

/* Axes of a tile besides rows and columns. */
#define LOOP_MOST 4

enum family { COPIED, STRIDED, GATHERED, TRANSPOSED, DEALT, FAMILY_COUNT };

static const char *const family_names[FAMILY_COUNT] = {
    "move/copied", "move/strided", "move/gathered", "move/transposed", "move/dealt",
};

/* A kernel of a tier beside the scalar one. */
struct subject {
    const struct qk_move_kernels *kernels;
    enum family family;
    unsigned size; /* log2 of the bytes of an element */
};

struct job {
    qk_move_fn *kernel;
    qk_move_fn *reference;
    struct check_pair y;
    const char *x;
    struct qk_move_tile tile;
};

static struct qk_move_kernels scalar_kernels(void)
{
    struct qk_move_kernels kernels;
    qk_move_init_scalar(&kernels);
    return kernels;
}

static qk_move_fn *kernel_of(const struct qk_move_kernels *kernels, enum family family,
                             unsigned size)
{
    switch (family) {
    case COPIED:
        return kernels->copied;
    case STRIDED:
        return kernels->strided[size];
    case GATHERED:
        return kernels->gathered[size];
    case TRANSPOSED:
        return kernels->transposed[size];
    default:
        return kernels->dealt[size];
    }
}

static void expect(void *context)
{
    const struct job *job = context;
    job->reference(job->y.expected, job->x, &job->tile);
}

static void actual(void *context)
{
    const struct job *job = context;
    job->kernel(job->y.actual, job->x, &job->tile);
}

/* ---- Axes of x --------------------------------------------------------------------------- */

/* Draws a stride of x: one that kernels know, or any number of bytes. */
static int64_t draw_stride(struct check *check, int64_t bytes)
{
    static const int strides[] = {0, 1, -1, 2, 3, 4, -2, 5};
    return check_chance(check, 6) ? (int64_t)check_below(check, 60) - 30
                                  : strides[check_below(check, 8)] * bytes;
}

static const int64_t *draw_offsets(struct check *check, const char *name, size_t count)
{
    int64_t *offsets =
        check_buffer(check, name, CHECK_INPUT, count * sizeof(*offsets), sizeof(*offsets));
    for (size_t i = 0; i < count; i++)
        offsets[i] = (int64_t)check_below(check, 1000) - 500;
    return offsets;
}

/* A loop goes on in x by any step, or has a table. */
static void draw_loop(struct check *check, struct qk_move_axis *axis, const char *name)
{
    axis->size = check_chance(check, 2) ? 1 : check_between(check, 1, LOOP_MOST);
    axis->x_stride = (int64_t)check_below(check, 400) - 100;
    if (check_chance(check, 4))
        axis->offsets = draw_offsets(check, name, axis->size);
}

/* Allocates x, so that the tile reads its first and its last byte. */
static void allocate_x(struct check *check, struct job *job, size_t bytes)
{
    int64_t least = 0;
    int64_t most = (int64_t)bytes;
    for (size_t i = 0; i < QK_MOVE_AXES; i++) {
        const struct qk_move_axis *axis = &job->tile.axes[i];
        int64_t low = axis->offsets ? axis->offsets[0] : 0;
        int64_t high = low;
        for (size_t k = 0; k < axis->size; k++) {
            const int64_t at = axis->offsets ? axis->offsets[k] : (int64_t)k * axis->x_stride;
            low = at < low ? at : low;
            high = at > high ? at : high;
        }
        least += low;
        most += high;
    }
    const char *x = check_buffer(check, "x", CHECK_INPUT, (size_t)(most - least), 1);
    job->x = x - least;
}

/* ---- Axes of y --------------------------------------------------------------------------- */

/* Gives each axis a step of y behind the elements of the axes inside it, with or without gaps. The
 * axis before the last one may be the outermost, as in a transpose. */
static void allocate_y(struct check *check, struct job *job, size_t bytes)
{
    struct qk_move_axis *axes = job->tile.axes;
    const bool rows_last = check_chance(check, 3);
    const size_t inside_out[2][QK_MOVE_AXES] = {
        {QK_MOVE_COLUMNS, QK_MOVE_ROWS, QK_MOVE_INNER, QK_MOVE_OUTER},
        {QK_MOVE_COLUMNS, QK_MOVE_OUTER, QK_MOVE_INNER, QK_MOVE_ROWS}};
    size_t extent = bytes;
    for (size_t i = 0; i < QK_MOVE_AXES; i++) {
        struct qk_move_axis *axis = &axes[inside_out[rows_last][i]];
        const size_t gap = i == 0 || check_chance(check, 2) ? 0 : check_below(check, 9);
        axis->y_stride = (int64_t)(extent + gap);
        extent += (axis->size - 1) * (size_t)axis->y_stride;
    }
    job->y = check_outputs(check, "y", extent, 1);
    memset(job->y.expected, 1, extent);
    memset(job->y.actual, 1, extent); /* gaps stay as they are */
}

/* ---- Tiles ------------------------------------------------------------------------------- */

/* Draws the rows and columns that the family's contract allows. */
static void draw_plane(struct check *check, enum family family, int64_t bytes,
                       struct qk_move_axis *rows, struct qk_move_axis *columns)
{
    const bool is_small = check_chance(check, 3);
    draw_loop(check, rows, "rows");
    columns->size = check_between(check, 1, is_small ? 20 : 200);
    columns->x_stride = family == STRIDED ? draw_stride(check, bytes) : bytes;
    if (family == COPIED && check_chance(check, 10))
        columns->size = check_between(check, 200, 2000);
    if (family == GATHERED)
        columns->offsets = draw_offsets(check, "columns", columns->size);
    if (family != TRANSPOSED && family != DEALT)
        return;
    rows->offsets = NULL;
    rows->x_stride = bytes;
    rows->size = check_between(check, 1, family == DEALT ? 5 : 80);
    if (family == TRANSPOSED)
        columns->size = check_between(check, 1, is_small ? 5 : 80);
    columns->x_stride = (int64_t)rows->size * bytes;
    if (family == TRANSPOSED)
        columns->x_stride += (int64_t)check_below(check, 2) * (int64_t)check_below(check, 9);
    if (family == TRANSPOSED && check_chance(check, 8))
        columns->x_stride = 0;
}

/* A tile of 16 KiB. */
static void time_plane(enum family family, int64_t bytes, struct qk_move_axis *rows,
                       struct qk_move_axis *columns)
{
    const size_t wide = (size_t)(128 / bytes);
    *rows = (struct qk_move_axis){family == DEALT ? 2 : 128, bytes, 0, NULL};
    *columns = (struct qk_move_axis){family == DEALT ? 64 * wide : wide, bytes, 0, NULL};
    if (family != TRANSPOSED && family != DEALT)
        rows->x_stride = 128 * 2;
    if (family == STRIDED)
        columns->x_stride = 2 * bytes;
    if (family == TRANSPOSED || family == DEALT)
        columns->x_stride = (int64_t)rows->size * bytes;
}

static void check_kernel(struct check *check, const void *kernel)
{
    const struct subject *subject = kernel;
    const struct qk_move_kernels reference = scalar_kernels();
    const size_t bytes = (size_t)1 << subject->size;
    struct job job = {.kernel = kernel_of(subject->kernels, subject->family, subject->size),
                      .reference = kernel_of(&reference, subject->family, subject->size)};
    struct qk_move_axis *axes = job.tile.axes;
    axes[QK_MOVE_OUTER].size = axes[QK_MOVE_INNER].size = 1;
    if (check_is_timed(check)) {
        time_plane(subject->family, (int64_t)bytes, &axes[QK_MOVE_ROWS], &axes[QK_MOVE_COLUMNS]);
        if (subject->family == GATHERED)
            axes[QK_MOVE_COLUMNS].offsets =
                draw_offsets(check, "columns", axes[QK_MOVE_COLUMNS].size);
    } else {
        draw_loop(check, &axes[QK_MOVE_OUTER], "outer");
        draw_loop(check, &axes[QK_MOVE_INNER], "inner");
        draw_plane(check, subject->family, (int64_t)bytes, &axes[QK_MOVE_ROWS],
                   &axes[QK_MOVE_COLUMNS]);
    }
    allocate_x(check, &job, bytes);
    allocate_y(check, &job, bytes);
    check_describe(check, "%zu x %zu x %zu x %zu elements of %zu bytes, strides %lld and %lld",
                   axes[0].size, axes[1].size, axes[2].size, axes[3].size, bytes,
                   (long long)axes[2].x_stride, (long long)axes[3].x_stride);
    if (check_calls(check, expect, actual, &job,
                    (double)(axes[0].size * axes[1].size * axes[2].size * axes[3].size), "element"))
        check_same(check, &job.y, bytes);
}

/* ---- Streams ----------------------------------------------------------------------------- */

struct stream {
    const struct qk_move_kernels *kernels;
    const struct qk_move_kernels *reference;
    struct check_pair y;
    const char *x;
};

static void expect_streamed(void *context)
{
    const struct stream *stream = context;
    stream->reference->streamed(stream->y.expected, stream->x, stream->y.bytes);
}

static void actual_streamed(void *context)
{
    const struct stream *stream = context;
    stream->kernels->streamed(stream->y.actual, stream->x, stream->y.bytes);
    stream->kernels->finish();
}

static void check_streamed(struct check *check, const void *kernel)
{
    const struct qk_move_kernels reference = scalar_kernels();
    struct stream stream = {.kernels = kernel, .reference = &reference};
    const size_t bytes = check_is_timed(check) ? 16384 : check_between(check, 1, 400);
    stream.x = check_buffer(check, "x", CHECK_INPUT, bytes, 1);
    stream.y = check_outputs(check, "y", bytes, 1);
    check_describe(check, "%zu bytes", bytes);
    if (check_calls(check, expect_streamed, actual_streamed, &stream, (double)bytes, "byte"))
        check_same(check, &stream.y, 1);
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_kernels(struct check *check, const char *tier,
                          void (*init)(struct qk_move_kernels *kernels))
{
    struct qk_move_kernels kernels;
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    init(&kernels);
    for (enum family family = COPIED; family < FAMILY_COUNT; family++)
        for (unsigned size = 0; size < (family == COPIED ? 1 : QK_MOVE_SIZES); size++) {
            const struct subject subject = {&kernels, family, size};
            char name[32];
            snprintf(name, sizeof(name), "%s_%u", family_names[family], 1U << size);
            check_run(check, &(struct check_subject){name, check_kernel, &subject, 1000});
        }
    check_run(check, &(struct check_subject){"move/streamed", check_streamed, &kernels, 300});
}

void check_move(struct check *check)
{
    check_kernels(check, "scalar", qk_move_init_scalar);
#ifdef __x86_64__
    check_kernels(check, "avx2", qk_move_init_avx2);
    check_kernels(check, "avx512bw", qk_move_init_avx512);
#elif defined(__aarch64__)
    check_kernels(check, "neon", qk_move_init_neon);
#endif
}
