/* Checks the integer products: multiply and dot of every layout, against the scalar ones on the
 * same packed weights. */
#include <math.h>
#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/gemm/igemm.h"
#include "kernels/wrap.h"
#include "tests/kernels/check/check.h"

enum { QUAD = QK_IGEMM_QUAD_BYTES, VECTOR = QK_IGEMM_VECTOR, NR = QK_IGEMM_NR, STEPS_MOST = 12 };

/* After this many quads whose products are all about 255 * -128, a sum has left int32. With signed
 * x, products are half as large and it takes twice as many. */
enum { QUADS_TO_WRAP = 16900 };

struct job {
    const struct qk_igemm *igemm;
    size_t longest; /* the most slabs of a step */
    struct qk_igemm_args args;
    const uint8_t *weights; /* the packed weights */
    const uint8_t *actual;  /* the weights after the kernel's `mark_wide` or `arrange` */
    struct check_pair sums;
    bool stores_bytes; /* the kernel stores bytes instead of sums */
    struct qk_igemm_bytes bytes;
    struct check_pair y;
};

static void begin_products(const struct job *job)
{
    if (job->igemm->set_up)
        job->igemm->set_up(job->longest);
}

static void end_products(const struct job *job)
{
    if (job->igemm->tear_down)
        job->igemm->tear_down();
}

static void multiply_expected(void *context)
{
    struct job *job = context;
    job->args.sums = job->sums.expected;
    job->args.weights = job->weights;
    qk_igemm_multiply_scalar(job->igemm, &job->args);
}

static void multiply_actual(void *context)
{
    struct job *job = context;
    job->args.sums = job->sums.actual;
    job->args.weights = job->actual;
    begin_products(job);
    job->igemm->multiply(&job->args);
    end_products(job);
}

static void dot_expected(void *context)
{
    struct job *job = context;
    job->args.sums = job->sums.expected;
    qk_igemm_dot_scalar(job->igemm, &job->args);
}

static void dot_actual(void *context)
{
    struct job *job = context;
    job->args.sums = job->sums.actual;
    begin_products(job);
    job->igemm->dot(&job->args);
    end_products(job);
}

/* ---- Operands ---------------------------------------------------------------------------- */

/* Fills the quads of one operand. Words are bytes minus a zero point, or sometimes any words. */
static void fill_quads(struct check *check, const struct qk_igemm *igemm, uint8_t *to, size_t bytes)
{
    check_fill_bytes(check, to, bytes);
    if (igemm->quad_k == 4 || check_chance(check, 8))
        return;
    const int zero_point = (int)check_below(check, 256);
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        const int16_t word = (int16_t)(to[i] - zero_point);
        memcpy(to + i, &word, sizeof(word));
    }
}

/* Fills all quads with the same value, so that sums grow as fast as possible. */
static void fill_alike(const struct qk_igemm *igemm, uint8_t *to, size_t bytes, int value)
{
    const int16_t word = (int16_t)value;
    for (size_t i = 0; i + 2 <= bytes; i += 2)
        if (igemm->quad_k == 2)
            memcpy(to + i, &word, sizeof(word));
        else
            memset(to + i, (uint8_t)value, 2);
}

/* Returns how many quads of a step a kernel may read. */
static size_t step_quads(const struct job *job)
{
    if (job->igemm->whole_steps)
        return QK_IGEMM_STEP_SLABS;
    return job->longest + (job->igemm->pairs ? job->longest % 2 : 0);
}

/* Clears the weights of the slabs that a step does not have, in all rows. */
static void clear_missing(const struct job *job, uint8_t *weights,
                          const struct qk_igemm_step *steps)
{
    const struct qk_igemm *igemm = job->igemm;
    const size_t rows = job->args.step_bytes / (step_quads(job) * QUAD);
    for (size_t s = 0; s < job->args.step_count; s++, weights += job->args.step_bytes)
        for (size_t i = steps[s].slabs; i < step_quads(job); i++)
            for (size_t row = 0; row < rows; row++)
                memset(weights + qk_igemm_weight_at(igemm, row, i), 0, QUAD);
}

/* Makes the steps of a kernel with `arrange`: slabs that follow each other. Only the last step may
 * have fewer than the most slabs. */
static void make_consecutive(struct check *check, struct job *job, struct qk_igemm_step *steps,
                             size_t slabs_apart, size_t *reach)
{
    const size_t most = QK_IGEMM_STEP_SLABS;
    const size_t count = job->args.step_count;
    job->longest = count > 1 ? most : job->longest;
    for (size_t s = 0; s < count; s++)
        steps[s] = (struct qk_igemm_step){(uint32_t)(s * most * slabs_apart), (uint32_t)most};
    steps[count - 1].slabs = (uint32_t)(count > 1 ? check_between(check, 1, most) : job->longest);
    job->args.step_bytes = qk_igemm_step_bytes(job->igemm, job->longest, job->args.rows);
    *reach = ((count - 1) * most + steps[count - 1].slabs - 1) * slabs_apart;
}

/* Makes steps. Some may be shorter than job->longest, or all of them. */
static struct qk_igemm_step *make_steps(struct check *check, struct job *job, size_t slabs_apart,
                                        size_t *reach)
{
    const size_t count = job->args.step_count;
    struct qk_igemm_step *steps =
        check_buffer(check, "steps", CHECK_INPUT, count * sizeof(*steps), sizeof(uint32_t));
    const bool even = check_is_timed(check) || check_chance(check, 2);
    job->args.steps = steps;
    *reach = 0;
    if (job->igemm->arrange) {
        make_consecutive(check, job, steps, slabs_apart, reach);
        return steps;
    }
    for (size_t s = 0; s < count; s++) {
        const size_t slabs = even ? job->longest : check_between(check, 1, job->longest);
        const size_t read = job->igemm->whole_steps ? job->longest : slabs;
        const size_t offset = check_is_timed(check) ? s % 9 : check_below(check, 80);
        steps[s] = (struct qk_igemm_step){(uint32_t)(offset * QUAD), (uint32_t)slabs};
        const size_t end = offset * QUAD + (read - 1) * slabs_apart;
        *reach = end > *reach ? end : *reach;
    }
    return steps;
}

/* Sets what multiply and dot have in common: the shape of a panel, and its sums. */
static void begin_job(struct check *check, const struct qk_igemm *igemm, size_t rows,
                      struct job *job)
{
    const bool timed = check_is_timed(check);
    *job = (struct job){.igemm = igemm};
    job->longest = timed || check_chance(check, 4) ? QK_IGEMM_STEP_SLABS
                                                   : check_between(check, 1, QK_IGEMM_STEP_SLABS);
    job->args.rows = timed ? igemm->mr : rows;
    job->args.step_count = timed ? 72 : check_between(check, 1, STEPS_MOST);
    job->args.add = check_chance(check, 2);
    /* The panel may be the last of many. The stride of its steps then counts all rows. */
    job->args.step_bytes = qk_igemm_step_bytes(igemm, job->longest,
                                               check_chance(check, 2) ? igemm->mr : job->args.rows);
}

static void make_sums(struct check *check, struct job *job)
{
    const size_t count = qk_igemm_tile_sums(job->igemm);
    job->sums = check_outputs(check, "sums", count * sizeof(int32_t), sizeof(int32_t));
    int32_t *expected = job->sums.expected;
    for (size_t i = 0; i < count; i++)
        expected[i] = check_int32(check);
    memcpy(job->sums.actual, expected, job->sums.bytes);
    if (job->args.add)
        return;
    check_forget(job->sums.expected, job->sums.bytes);
    check_forget(job->sums.actual, job->sums.bytes);
}

/* Compares the sums. Sums beyond the rows and columns may have any value. */
static void compare(struct check *check, struct job *job, size_t columns)
{
    const int32_t *expected = job->sums.expected;
    int32_t *actual = job->sums.actual;
    const bool by_position = job->igemm->by_position || job->args.sums_row == 1;
    const size_t line = by_position ? job->igemm->mr : NR;
    for (size_t i = 0; i < qk_igemm_tile_sums(job->igemm); i++)
        if ((by_position ? i % line : i / line) >= job->args.rows ||
            (by_position ? i / line : i % line) >= columns)
            actual[i] = expected[i];
    check_same(check, &job->sums, sizeof(*actual));
}

/* Lets the kernel arrange the slabs in a copy of the weights. */
static void arrange(struct check *check, struct job *job, const uint8_t *weights)
{
    struct qk_igemm_args *args = &job->args;
    const size_t bytes = args->step_count * args->step_bytes;
    const size_t order_bytes = qk_igemm_order_bytes(job->igemm, args->step_count);
    uint8_t *copy = check_buffer(check, "arranged weights", CHECK_INPUT, bytes, 64);
    uint8_t *order = check_buffer(check, "order", CHECK_INPUT, order_bytes, 64);
    memcpy(copy, weights, bytes);
    for (size_t s = 0; s < args->step_count; s += QK_IGEMM_CHUNK_STEPS) {
        size_t slabs = 0;
        for (size_t i = s; i < args->step_count && i < s + QK_IGEMM_CHUNK_STEPS; i++)
            slabs += args->steps[i].slabs;
        job->igemm->arrange(copy + s * args->step_bytes, slabs, args->rows,
                            order + s / QK_IGEMM_CHUNK_STEPS * QK_IGEMM_ORDER_BYTES);
    }
    job->actual = copy;
    args->order = order;
}

/* Lets the kernel mark the wide weights, or arrange slabs by them, in a copy of the weights. */
static void treat_wide(struct check *check, struct job *job, const uint8_t *weights)
{
    struct qk_igemm_args *args = &job->args;
    const size_t bytes = args->step_count * args->step_bytes;
    job->weights = job->actual = weights;
    if (job->igemm->arrange)
        arrange(check, job, weights);
    if (!job->igemm->mark_wide)
        return;
    uint8_t *copy = check_buffer(check, "wide weights", CHECK_INPUT, bytes, 64);
    uint8_t *room = check_buffer(check, "room", CHECK_INPUT, bytes, 64);
    struct qk_igemm_wide *wide =
        check_buffer(check, "wide", CHECK_INPUT, args->step_count * sizeof(*wide), QUAD);
    uint32_t offset = 0;
    memcpy(copy, weights, bytes);
    check_fill_bytes(check, room, bytes);
    check_forget(room, bytes);
    check_forget(wide, args->step_count * sizeof(*wide));
    for (size_t s = 0; s < args->step_count; s++) {
        wide[s].offset = offset;
        offset += (uint32_t)job->igemm->mark_wide(copy + s * args->step_bytes, args->steps[s].slabs,
                                                  args->rows, room + offset, &wide[s].marks);
    }
    job->actual = copy;
    args->wide_weights = room;
    args->wide = wide;
}

/* ---- Multiply ---------------------------------------------------------------------------- */

/* Returns how many positions a kernel may read. */
static size_t columns_of(const struct job *job)
{
    return job->igemm->by_position ? job->args.positions : job->args.vectors * VECTOR;
}

/* Returns how many positions have sums. */
static size_t wanted_columns(const struct job *job)
{
    const size_t columns = columns_of(job);
    return job->args.positions < columns ? job->args.positions : columns;
}

/* Makes weights about as large as they may be without saturation of a pair's products. Some steps
 * have no larger weights at all. */
static void make_small(struct check *check, uint8_t *weights, size_t bytes)
{
    const size_t often = check_is_timed(check) || check_chance(check, 2) ? SIZE_MAX : 200;
    for (size_t i = 0; i < bytes; i++)
        if (check_below(check, often) > 0)
            weights[i] = (uint8_t)(check_below(check, 129) - 64);
}

/* Makes pairs of weights whose products just fit into a saturating word for most quads, or just do
 * not. */
static void make_edges(struct check *check, uint8_t *weights, size_t weight_bytes, uint8_t *quads,
                       size_t quad_bytes)
{
    const bool negative = check_chance(check, 2);
    for (size_t i = 0; i < weight_bytes; i++) {
        const int size = 62 + (int)check_below(check, 4);
        weights[i] = (uint8_t)(negative ? -size : size);
    }
    for (size_t i = 0; i < quad_bytes; i++)
        if (!check_chance(check, 16))
            quads[i] = 255;
}

static void make_multiply(struct check *check, struct job *job)
{
    const struct qk_igemm *igemm = job->igemm;
    struct qk_igemm_args *args = &job->args;
    const size_t index = check_index(check);
    size_t reach;
    args->vectors = check_is_timed(check) ? NR / VECTOR : index / igemm->mr % (NR / VECTOR) + 1;
    args->positions = check_is_timed(check) ? igemm->nr
                      : igemm->by_position  ? index / igemm->mr % igemm->nr + 1
                                            : args->vectors * VECTOR - check_below(check, VECTOR);
    if (job->stores_bytes && !check_is_timed(check)) {
        args->positions = check_between(check, 1, 3 * NR);
        args->vectors = (args->positions + VECTOR - 1) / VECTOR;
    }
    args->slab_bytes = check_is_timed(check) ? 832 : check_between(check, 1, 12) * 64;
    if (igemm->by_position && (igemm->arrange || check_chance(check, 2)))
        args->slab_bytes /= 16;
    struct qk_igemm_step *steps = make_steps(check, job, args->slab_bytes, &reach);
    size_t columns = columns_of(job);
    if (igemm->by_position && job->stores_bytes)
        columns = (columns + igemm->nr - 1) / igemm->nr * igemm->nr;
    const size_t quad_bytes = reach + columns * QUAD;
    const size_t weight_bytes = args->step_count * args->step_bytes;
    uint8_t *quads = check_buffer(check, "quads", CHECK_INPUT, quad_bytes, QUAD);
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, weight_bytes, 64);
    fill_quads(check, igemm, quads, quad_bytes);
    fill_quads(check, igemm, weights, weight_bytes);
    clear_missing(job, weights, steps);
    const bool cares = igemm->mark_wide || igemm->arrange; /* about wide weights */
    if (cares && (check_is_timed(check) || check_chance(check, 2)))
        make_small(check, weights, weight_bytes);
    else if (cares && check_chance(check, 2))
        make_edges(check, weights, weight_bytes, quads, quad_bytes);
    args->quads = quads;
    treat_wide(check, job, weights);
}

/* Makes sums that leave int32 on the way, upwards or downwards. */
static void make_long_multiply(struct check *check, struct job *job, bool up)
{
    const struct qk_igemm *igemm = job->igemm;
    struct qk_igemm_args *args = &job->args;
    const size_t step_count = QUADS_TO_WRAP * (igemm->x_signed ? 2U : 1U) / QK_IGEMM_STEP_SLABS;
    job->longest = QK_IGEMM_STEP_SLABS;
    args->vectors = 1;
    args->positions = igemm->nr; /* with fewer positions, a kernel may keep several sums for each */
    args->rows = igemm->mr;
    args->slab_bytes = 64;
    args->step_count = step_count;
    args->step_bytes = qk_igemm_step_bytes(igemm, job->longest, igemm->mr);
    const size_t chunk =
        igemm->arrange ? QK_IGEMM_CHUNK_STEPS : 1; /* steps with quads of their own */
    const size_t quad_bytes = args->slab_bytes * job->longest * chunk;
    const size_t weight_bytes = step_count * args->step_bytes;
    struct qk_igemm_step *steps =
        check_buffer(check, "steps", CHECK_INPUT, step_count * sizeof(*steps), sizeof(uint32_t));
    uint8_t *quads = check_buffer(check, "quads", CHECK_INPUT, quad_bytes, QUAD);
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, weight_bytes, 64);
    for (size_t s = 0; s < step_count; s++)
        steps[s] = (struct qk_igemm_step){(uint32_t)(s % chunk * job->longest * args->slab_bytes),
                                          QK_IGEMM_STEP_SLABS};
    fill_alike(igemm, quads, quad_bytes, igemm->x_signed ? -128 : 255);
    fill_alike(igemm, weights, weight_bytes,
               igemm->quad_k == 2        ? (up ? 255 : -255)
               : (up != igemm->x_signed) ? 127
                                         : -128);
    args->steps = steps;
    args->quads = quads;
    treat_wide(check, job, weights);
}

static void check_multiply(struct check *check, const void *kernel)
{
    const struct qk_igemm *igemm = kernel;
    const size_t index = check_index(check);
    struct job job;
    begin_job(check, igemm, index % igemm->mr + 1, &job);
    if (index < 2 && !check_is_timed(check))
        make_long_multiply(check, &job, index == 0);
    else
        make_multiply(check, &job);
    make_sums(check, &job);
    const struct qk_igemm_args *args = &job.args;
    check_describe(check, "%zu rows, %zu columns, %zu steps of %zu slabs at most, add %d",
                   args->rows, columns_of(&job), args->step_count, job.longest, args->add);
    const size_t columns = columns_of(&job);
    const double products =
        (double)(args->rows * columns) * (double)(args->step_count * job.longest * igemm->quad_k);
    if (check_calls(check, multiply_expected, multiply_actual, &job, products, "product"))
        compare(check, &job, wanted_columns(&job));
}

/* ---- Bytes ------------------------------------------------------------------------------- */

QK_WRAPS static int32_t add_bias(int32_t sum, int32_t bias)
{
    return (int32_t)((uint32_t)sum + (uint32_t)bias);
}

/* Requantizes the scalar sums, one tile of positions after the other. */
static void bytes_expected(void *context)
{
    struct job *job = context;
    const struct qk_igemm_bytes *to = &job->bytes;
    const struct qk_requantize requantize =
        qk_requantize_for(to->is_signed ? QK_INT8 : QK_UINT8, to->zero_point);
    int32_t sums[QK_IGEMM_MR_MAX * NR];
    struct qk_igemm_args args = job->args;
    const size_t sums_row = job->igemm->by_position ? 1 : NR;
    const size_t sums_position = job->igemm->by_position ? job->igemm->mr : 1;
    uint8_t *y = job->y.expected;
    args.weights = job->weights;
    args.sums = sums;
    args.vectors = NR / VECTOR;
    for (size_t first = 0; first < job->args.positions; first += NR) {
        const size_t left = job->args.positions - first;
        args.positions = left < NR ? left : NR;
        args.vectors = (args.positions + VECTOR - 1) / VECTOR;
        qk_igemm_multiply_scalar(job->igemm, &args);
        for (size_t row = 0; row < args.rows; row++)
            for (size_t i = 0; i < args.positions; i++)
                y[row * to->y_stride + first + i] = qk_requantize_one(
                    requantize, add_bias(sums[row * sums_row + i * sums_position], to->bias[row]),
                    to->multiplier[row]);
        args.quads += NR * QUAD;
    }
}

static void bytes_actual(void *context)
{
    struct job *job = context;
    struct qk_igemm_args args = job->args;
    job->bytes.y = job->y.actual;
    args.weights = job->actual;
    args.bytes = &job->bytes;
    job->igemm->multiply(&args);
}

/* Makes what the kernel needs to store bytes. Multipliers are below 1. Powers of 2 make ties. */
static void make_bytes(struct check *check, struct job *job)
{
    const size_t rows = job->args.rows;
    int32_t *bias = check_buffer(check, "bias", CHECK_INPUT, rows * sizeof(*bias), 4);
    float *multiplier =
        check_buffer(check, "multiplier", CHECK_INPUT, rows * sizeof(*multiplier), 4);
    for (size_t row = 0; row < rows; row++) {
        const float part = check_chance(check, 2) ? 1 : (float)check_between(check, 1, 999) / 1000;
        bias[row] = check_chance(check, 4) ? check_int32(check) : (int32_t)check_below(check, 9999);
        multiplier[row] =
            ldexpf(check_chance(check, 8) ? -part : part, -(int)check_between(check, 1, 24));
    }
    const bool is_signed = check_chance(check, 2);
    const size_t y_stride = job->args.positions + check_below(check, 20);
    job->bytes = (struct qk_igemm_bytes){
        .bias = bias,
        .multiplier = multiplier,
        .zero_point = (int32_t)check_below(check, 256) - (is_signed ? 128 : 0),
        .is_signed = is_signed,
        .y_stride = y_stride,
    };
    job->y = check_outputs(check, "y", (rows - 1) * y_stride + job->args.positions, 1);
    memset(job->y.expected, 0, job->y.bytes); /* bytes between the rows must not change */
    memset(job->y.actual, 0, job->y.bytes);
}

static void check_bytes(struct check *check, const void *kernel)
{
    const struct qk_igemm *igemm = kernel;
    struct job job;
    begin_job(check, igemm, check_index(check) % igemm->mr + 1, &job);
    job.args.add = false;
    job.stores_bytes = true;
    make_multiply(check, &job);
    make_bytes(check, &job);
    const struct qk_igemm_args *args = &job.args;
    check_describe(check, "%zu rows, %zu positions, %zu steps of %zu slabs at most, %s", args->rows,
                   args->positions, args->step_count, job.longest,
                   job.bytes.is_signed ? "INT8" : "UINT8");
    const double products = (double)(args->rows * args->positions) *
                            (double)(args->step_count * job.longest * igemm->quad_k);
    if (check_calls(check, bytes_expected, bytes_actual, &job, products, "product"))
        check_same(check, &job.y, 1);
}

/* ---- Dot --------------------------------------------------------------------------------- */

/* Makes gathered quads. The bytes that a kernel may read after each position are 0. */
static void make_dot_quads(struct check *check, struct job *job, bool alike)
{
    struct qk_igemm_args *args = &job->args;
    const size_t bytes = args->step_count * args->step_slabs * QUAD;
    args->position_bytes = bytes + QK_IGEMM_SLACK + check_below(check, 8) * QUAD;
    const size_t all = (args->positions - 1) * args->position_bytes + bytes + QK_IGEMM_SLACK;
    uint8_t *quads = check_buffer(check, "quads", CHECK_INPUT, all, QUAD);
    for (size_t p = 0; p < args->positions; p++) {
        uint8_t *position = quads + p * args->position_bytes;
        if (alike)
            fill_alike(job->igemm, position, bytes, 255);
        else
            fill_quads(check, job->igemm, position, bytes);
        memset(position + bytes, 0, QK_IGEMM_SLACK);
    }
    args->quads = quads;
}

/* Makes the operands of dot. An extreme case has so many quads that each lane of a sum leaves
 * int32; a sum has up to 16 lanes. */
static void make_dot(struct check *check, struct job *job, bool extreme, bool up)
{
    const struct qk_igemm *igemm = job->igemm;
    struct qk_igemm_args *args = &job->args;
    const size_t most = igemm->whole_steps ? QK_IGEMM_WHOLE_REMAINDER_MAX : QK_IGEMM_REMAINDER_MAX;
    args->positions = check_is_timed(check) ? 1 : check_index(check) / igemm->mr % most + 1;
    if (extreme) {
        job->longest = QK_IGEMM_STEP_SLABS;
        args->positions = 1;
        args->rows = igemm->whole_steps ? 16 : igemm->mr;
        args->step_count = QUADS_TO_WRAP * (igemm->whole_steps ? 16U : 8U) / QK_IGEMM_STEP_SLABS;
        args->step_bytes = qk_igemm_step_bytes(igemm, job->longest, args->rows);
    }
    args->step_slabs = job->longest;
    const bool rows = !check_chance(check, 2);
    args->sums_row = rows ? QK_IGEMM_NR : 1;
    args->sums_position = rows ? 1 : igemm->mr;
    const size_t bytes = args->step_count * args->step_bytes;
    const size_t readable = (bytes + QK_IGEMM_SLACK - 1) / QK_IGEMM_SLACK * QK_IGEMM_SLACK;
    uint8_t *weights = check_buffer(check, "weights", CHECK_INPUT, readable, 64);
    if (extreme) {
        fill_alike(igemm, weights, bytes, up ? 127 : -128);
    } else {
        fill_quads(check, igemm, weights, bytes);
        size_t reach;
        clear_missing(job, weights, make_steps(check, job, 64, &reach));
    }
    args->steps = NULL;
    args->weights = weights;
    make_dot_quads(check, job, extreme);
}

static void check_dot(struct check *check, const void *kernel)
{
    const struct qk_igemm *igemm = kernel;
    const size_t index = check_index(check);
    const bool extreme = index < 2 && !check_is_timed(check);
    struct job job;
    begin_job(check, igemm, index % igemm->mr + 1, &job);
    make_dot(check, &job, extreme, index == 0);
    make_sums(check, &job);
    const struct qk_igemm_args *args = &job.args;
    check_describe(check, "%zu rows, %zu positions, %zu steps of %zu quads, add %d", args->rows,
                   args->positions, args->step_count, args->step_slabs, args->add);
    const double products = (double)(args->rows * args->positions) *
                            (double)(args->step_count * args->step_slabs * igemm->quad_k);
    if (check_calls(check, dot_expected, dot_actual, &job, products, "product"))
        compare(check, &job, args->positions);
}

/* ---- Count of wide weights --------------------------------------------------------------- */

static size_t count_wide(const uint8_t *row, size_t channels, size_t taps, uint8_t flip)
{
    size_t found = 0;
    for (size_t tap = 0; tap < taps; tap++)
        for (size_t channel = 0; channel < channels; channel += QUAD) {
            int quad[QUAD] = {0};
            for (size_t k = 0; k < QUAD && channel + k < channels; k++)
                quad[k] = (int8_t)(row[(channel + k) * taps + tap] ^ flip);
            found +=
                qk_igemm_excess(quad[0], quad[1]) != 0 || qk_igemm_excess(quad[2], quad[3]) != 0;
        }
    return found;
}

struct count {
    const struct qk_igemm *igemm;
    const uint8_t *row;
    size_t channels, taps;
    uint8_t flip;
    size_t expected, actual;
};

static void count_expected(void *context)
{
    struct count *job = context;
    job->expected = count_wide(job->row, job->channels, job->taps, job->flip);
}

static void count_actual(void *context)
{
    struct count *job = context;
    job->actual = job->igemm->count_wide(job->row, job->channels, job->taps, job->flip);
}

static void check_count(struct check *check, const void *kernel)
{
    struct count job = {.igemm = kernel,
                        .channels = check_is_timed(check) ? 256 : check_between(check, 1, 90),
                        .taps = check_is_timed(check)    ? 9
                                : check_chance(check, 2) ? 1
                                                         : check_between(check, 1, 30),
                        .flip = check_chance(check, 2) ? 0x80 : 0};
    const size_t bytes = job.channels * job.taps;
    uint8_t *row = check_buffer(check, "row", CHECK_INPUT, bytes, 1);
    check_fill_bytes(check, row, bytes);
    for (size_t i = 0; i < bytes && check_index(check) % 2 == 0; i++)
        row[i] = (uint8_t)((int)check_between(check, 60, 68) * (check_chance(check, 2) ? 1 : -1));
    job.row = row;
    check_describe(check, "%zu channels of %zu taps", job.channels, job.taps);
    if (check_calls(check, count_expected, count_actual, &job, (double)bytes, "weight"))
        check_that(check, job.actual == job.expected, "expected %zu, got %zu", job.expected,
                   job.actual);
}

/* ---- Unpack ------------------------------------------------------------------------------ */

struct unpack {
    struct job job; /* whose first step is unpacked */
    struct check_pair bytes;
};

static void unpack_expected(void *context)
{
    const struct unpack *unpack = context;
    const struct qk_igemm *igemm = unpack->job.igemm;
    int8_t *to = unpack->bytes.expected;
    for (size_t slab = 0; slab < unpack->job.args.steps[0].slabs; slab++)
        for (size_t k = 0; k < igemm->quad_k; k++)
            for (size_t row = 0; row < igemm->mr; row++) {
                const uint8_t *quad = unpack->job.weights + qk_igemm_weight_at(igemm, row, slab);
                const size_t pair = slab * (igemm->quad_k / 2) + k / 2;
                to[(pair * igemm->mr + row) * 2 + k % 2] = (int8_t)quad[k * (4 / igemm->quad_k)];
            }
}

static void unpack_actual(void *context)
{
    const struct unpack *unpack = context;
    const struct qk_igemm_args *args = &unpack->job.args;
    unpack->job.igemm->unpack(unpack->job.actual, args->steps[0].slabs,
                              args->wide ? args->wide[0] : (struct qk_igemm_wide){0},
                              args->wide_weights, unpack->bytes.actual);
}

/* The low byte of each word is its weight: the kernel does not look at the other one. */
static void check_unpack(struct check *check, const void *kernel)
{
    const struct qk_igemm *igemm = kernel;
    struct unpack unpack;
    begin_job(check, igemm, igemm->mr, &unpack.job);
    make_multiply(check, &unpack.job);
    const size_t slabs = unpack.job.args.steps[0].slabs;
    const size_t weights = slabs * igemm->mr * igemm->quad_k;
    unpack.bytes = check_outputs(check, "weights", weights, 1);
    check_describe(check, "%zu slabs", slabs);
    if (check_calls(check, unpack_expected, unpack_actual, &unpack, (double)weights, "weight"))
        check_same(check, &unpack.bytes, 1);
}

/* ---- Tiers ------------------------------------------------------------------------------- */

static void check_layout(struct check *check, const char *tier, const struct qk_igemm *igemm)
{
    if (!check_tier(check, tier, check_lacks(tier)))
        return;
    const char *multiply = igemm->by_position ? "gemm/multiply_positions" : "gemm/multiply";
    check_run(check, &(struct check_subject){multiply, check_multiply, igemm, 3000});
    if (igemm->stores_bytes)
        check_run(check,
                  &(struct check_subject){"gemm/multiply_to_bytes", check_bytes, igemm, 3000});
    if (igemm->count_wide)
        check_run(check, &(struct check_subject){"gemm/count_wide", check_count, igemm, 2000});
    if (igemm->unpack)
        check_run(check, &(struct check_subject){"gemm/unpack", check_unpack, igemm, 2000});
    if (igemm->dot)
        check_run(check, &(struct check_subject){"gemm/dot", check_dot, igemm, 2000});
}

void check_gemm(struct check *check)
{
    check_layout(check, "scalar", &qk_igemm_u8s8_8x16__scalar);
#ifdef __x86_64__
    check_layout(check, "avx2", &qk_igemm_s16s16_6x16__avx2);
    check_layout(check, "avx2", &qk_igemm_u8s8_6x16__avx2);
    check_layout(check, "avx2", &qk_igemm_u8s8_16x14__avx2);
    check_layout(check, "avx2", &qk_igemm_u8s8_16x12__avx2);
    check_layout(check, "avxvnni", &qk_igemm_u8s8_6x16__avxvnni);
    check_layout(check, "avxvnni", &qk_igemm_s16s16_6x16__avxvnni);
    check_layout(check, "avx512vnni", &qk_igemm_u8s8_6x64__avx512vnni);
    check_layout(check, "avx512vnni", &qk_igemm_u8s8_32x14__avx512vnni);
    check_layout(check, "avx512vnni", &qk_igemm_s16s16_32x14__avx512vnni);
    check_layout(check, "amx", &qk_igemm_u8s8_32x32__amx);
#endif
#ifdef __aarch64__
    check_layout(check, "neon", &qk_igemm_s8s8_6x8__neon);
    check_layout(check, "dotprod", &qk_igemm_s8s8_6x16__dotprod);
    check_layout(check, "i8mm", &qk_igemm_s8s8_12x8__i8mm);
#endif
}
