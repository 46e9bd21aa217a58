/* onnx.Resize: element o of an axis of y is element nearest(c(o)) of x, or in mode linear lies
 * between two elements (kernels/resize/linear.h). c is the coordinate in x
 * (onnx/defs/tensor/defs.cc). Coordinates are computed in FP32 with one rounding for each
 * operation, as ONNX Runtime 1.32 computes them:
 *
 *   half_pixel            (o + 0.5) / scale - 0.5
 *   pytorch_half_pixel    the same, but 0 if y has one element
 *   half_pixel_symmetric  offset + (o + 0.5) / scale - 0.5 in FP64, where
 *                         offset = in / 2 * (1 - out / (scale * in)) in FP32
 *   asymmetric            o / scale
 *   align_corners         o * (in - 1) / (out - 1), but 0 if y has one element
 *   tf_half_pixel_for_nn  (o + 0.5) / scale
 *
 * Both modes that round take a coordinate that is within 1e-6 of the middle of two elements as the
 * middle. Opset 10 has no modes: its coordinates are asymmetric, rounded down if the scale is at
 * least 1, and otherwise up. */
#include <math.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/resize/linear.h"

enum { X, ROI, SCALES, SIZES };
enum {
    MODE,
    COORDINATES,
    NEAREST,
    CUBIC_COEFF_A,
    EXCLUDE_OUTSIDE,
    EXTRAPOLATION_VALUE,
    ANTIALIAS,
    AXES,
    POLICY
};

#define MODES_SINCE 11

enum mode { NEAREST_ELEMENT, LINEAR };
enum coordinates {
    HALF_PIXEL,
    ASYMMETRIC,
    ALIGN_CORNERS,
    PYTORCH_HALF_PIXEL,
    TF_HALF_PIXEL_FOR_NN,
    HALF_PIXEL_SYMMETRIC
};
enum nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL, OPSET_10 };
enum policy { STRETCH, NOT_LARGER, NOT_SMALLER };

struct instance {
    struct qk_instance base;
    unsigned mode;
    unsigned coordinates;
    unsigned nearest;
    unsigned policy;
    struct qk_integers axes;
    size_t scales_input; /* SCALES, or ROI if the version has no roi */
};

/* The planned inputs: how large Y is. */
struct extent {
    struct qk_integers sizes;
    size_t scale_count;
    float scales[QK_RANK_MAX];
};

/* ---- Rules --------------------------------------------------------------------------------- */

/* Finds the attribute's string in a list, which ends with NULL. The default is its first entry. */
static enum qk_status read_choice(const struct qk_call *call, size_t attribute,
                                  const char *const *names, unsigned *choice,
                                  struct qk_error *error)
{
    const struct qk_attribute *given = &call->attributes[attribute];
    char text[160] = "";
    *choice = 0;
    if (!given->present)
        return QK_OK;
    for (; names[*choice]; (*choice)++) {
        if (strcmp(names[*choice], given->string) == 0)
            return QK_OK;
        if (*choice > 0)
            strncat(text, ", ", sizeof(text) - strlen(text) - 1);
        strncat(text, names[*choice], sizeof(text) - strlen(text) - 1);
    }
    return qk_fail(error, QK_INVALID, "%s: expected %s, got %.30s",
                   call->op->attributes[attribute].name, text, given->string);
}

static enum qk_status read_modes(const struct qk_call *call, struct instance *made,
                                 struct qk_error *error)
{
    static const char *const modes[] = {"nearest", "linear", NULL};
    static const char *const coordinates[] = {"half_pixel",
                                              "asymmetric",
                                              "align_corners",
                                              "pytorch_half_pixel",
                                              "tf_half_pixel_for_nn",
                                              "half_pixel_symmetric",
                                              NULL};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil", NULL};
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    const int64_t antialias = qk_int_or(&call->attributes[ANTIALIAS], 0);
    const enum qk_type type = call->inputs[X].type;
    enum qk_status status = read_choice(call, MODE, modes, &made->mode, error);
    if (status == QK_OK)
        status = read_choice(call, COORDINATES, coordinates, &made->coordinates, error);
    if (status == QK_OK)
        status = read_choice(call, NEAREST, nearest, &made->nearest, error);
    if (status == QK_OK)
        status = read_choice(call, POLICY, policies, &made->policy, error);
    if (status == QK_OK && antialias != 0)
        status =
            qk_fail(error, QK_INVALID, "antialias: expected 0, got %lld", (long long)antialias);
    if (status == QK_OK && made->mode == LINEAR && type != QK_UINT8 && type != QK_INT8 &&
        type != QK_FP32)
        status =
            qk_fail(error, QK_INVALID, "X: expected UINT8, INT8 or FP32 for mode linear, got %s",
                    qk_type_info(type)->name);
    if (call->version->number < MODES_SINCE) {
        made->coordinates = ASYMMETRIC;
        made->nearest = OPSET_10;
    }
    return status;
}

static enum qk_status read_scales(const struct qk_tensor *scales, struct extent *extent,
                                  struct qk_error *error)
{
    extent->scale_count = 0;
    if (scales->type == QK_NONE)
        return QK_OK;
    if (scales->rank != 1 || scales->count > QK_RANK_MAX)
        return qk_fail(error, QK_INVALID,
                       "scales: expected one dimension with at most %d numbers, got %u dimensions "
                       "and %zu",
                       QK_RANK_MAX, scales->rank, scales->count);
    extent->scale_count = scales->count;
    memcpy(extent->scales, scales->data, scales->count * sizeof(float));
    for (size_t i = 0; i < scales->count; i++)
        if (!(extent->scales[i] > 0) || isinf(extent->scales[i]))
            return qk_fail(error, QK_INVALID, "scales: expected finite numbers above 0, got %g",
                           (double)extent->scales[i]);
    return QK_OK;
}

static enum qk_status read_sizes(const struct qk_tensor *tensor, struct extent *extent,
                                 struct qk_error *error)
{
    struct qk_integers *sizes = &extent->sizes;
    const enum qk_status status = qk_read_list(tensor, "sizes", QK_RANK_MAX, sizes, error);
    if (status != QK_OK)
        return status;
    for (size_t i = 0; i < sizes->count; i++)
        if (sizes->numbers[i] < 0 || sizes->numbers[i] > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "sizes: expected sizes in [0, %lld], got %lld",
                           (long long)QK_LENGTH_MAX, (long long)sizes->numbers[i]);
    return QK_OK;
}

static enum qk_status check_extent(const struct extent *extent, struct qk_error *error)
{
    if ((extent->scale_count > 0) != (extent->sizes.count > 0))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "scales: expected either scales or sizes, got %s",
                   extent->scale_count > 0 ? "both" : "neither");
}

/* Reads the planned inputs. */
static enum qk_status read_extent(const struct instance *made, const struct qk_tensor *inputs,
                                  struct extent *extent, struct qk_error *error)
{
    enum qk_status status = read_scales(&inputs[made->scales_input], extent, error);
    if (status == QK_OK)
        status = read_sizes(&inputs[SIZES], extent, error);
    return status == QK_OK ? check_extent(extent, error) : status;
}

/* Checks the inputs that are constant. Both may be there, if one is empty. */
static enum qk_status check_fixed(const struct instance *made, const struct qk_call *call,
                                  struct qk_error *error)
{
    const bool scales_planned = qk_is_planned(call, 1U << made->scales_input);
    const bool sizes_planned = qk_is_planned(call, 1U << SIZES);
    struct extent extent;
    enum qk_status status = QK_OK;
    if (!scales_planned)
        status = read_scales(&call->inputs[made->scales_input], &extent, error);
    if (status == QK_OK && !sizes_planned)
        status = read_sizes(&call->inputs[SIZES], &extent, error);
    return status == QK_OK && !scales_planned && !sizes_planned ? check_extent(&extent, error)
                                                                : status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    /* Opset 10 has no roi, so a graph of this version has scales in its place. */
    const bool moved = call->version->number < MODES_SINCE && call->inputs[SCALES].type == QK_NONE;
    made->scales_input = moved ? ROI : SCALES;
    enum qk_status status = read_modes(call, made, error);
    if (status == QK_OK)
        status = qk_read_attribute_list(call, AXES, QK_RANK_MAX, &made->axes, error);
    return status == QK_OK ? check_fixed(made, call, error) : status;
}

/* ---- Shapes -------------------------------------------------------------------------------- */

/* Finds the size and the scale of one axis. `number` is its number in the lists of the call. */
static enum qk_status fit_axis(const struct extent *extent, size_t number, size_t in, size_t *out,
                               float *scale, struct qk_error *error)
{
    if (extent->sizes.count > 0) {
        *out = (size_t)extent->sizes.numbers[number];
        *scale = (float)*out / (float)in;
        if (in > 0 || *out == 0)
            return QK_OK;
        return qk_fail(error, QK_INVALID, "sizes: expected 0 for an axis without elements, got %zu",
                       *out);
    }
    *scale = extent->scales[number];
    const float size = *scale * (float)in;
    if (!(size < (float)QK_LENGTH_MAX))
        return qk_fail(error, QK_INVALID, "scales: expected an output that fits in memory, got %g",
                       (double)*scale);
    *out = (size_t)size;
    return QK_OK;
}

/* Gives all axes in the call's lists the smallest or the largest of their scales. */
static enum qk_status keep_ratio(const struct instance *made, const struct qk_tensor *x,
                                 uint32_t axes, size_t *dims, float *scales, struct qk_error *error)
{
    float chosen = 0;
    bool first = true;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1) || x->dims[i] == 0)
            continue;
        if (first || (made->policy == NOT_LARGER ? scales[i] < chosen : scales[i] > chosen))
            chosen = scales[i];
        first = false;
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        const float size = roundf(chosen * (float)x->dims[i]);
        if (!(axes >> i & 1))
            continue;
        if (!(size < (float)QK_LENGTH_MAX))
            return qk_fail(error, QK_INVALID,
                           "sizes: expected an output that fits in memory, got a larger one");
        scales[i] = chosen;
        dims[i] = (size_t)size;
    }
    return QK_OK;
}

static enum qk_status fit(const struct instance *made, const struct extent *extent,
                          const struct qk_tensor *x, size_t *dims, float *scales,
                          struct qk_error *error)
{
    const bool sized = extent->sizes.count > 0;
    const size_t given = sized ? extent->sizes.count : extent->scale_count;
    const size_t count = made->axes.present ? made->axes.count : x->rank;
    uint32_t axes;
    enum qk_status status = qk_find_axes("axes", &made->axes, x->rank, false, &axes, error);
    if (status != QK_OK)
        return status;
    if (given != count)
        return qk_fail(error, QK_INVALID, "%s: expected a number for each of %zu axes, got %zu",
                       sized ? "sizes" : "scales", count, given);
    if (!made->axes.present)
        axes = UINT32_MAX;
    for (uint32_t i = 0; i < x->rank; i++) {
        dims[i] = x->dims[i];
        scales[i] = 1;
    }
    for (size_t i = 0; i < count && status == QK_OK; i++) {
        const int64_t number = made->axes.present ? made->axes.numbers[i] : (int64_t)i;
        const size_t axis = (size_t)(number + (number < 0 ? (int64_t)x->rank : 0));
        status = fit_axis(extent, i, x->dims[axis], &dims[axis], &scales[axis], error);
    }
    if (status == QK_OK && sized && made->policy != STRETCH)
        status = keep_ratio(made, x, axes, dims, scales, error);
    return status;
}

/* ---- Coordinates --------------------------------------------------------------------------- */

static float coordinate(unsigned coordinates, size_t o, size_t in, size_t out, float scale)
{
    const float at = (float)o;
    switch (coordinates) {
    case ASYMMETRIC:
        return at / scale;
    case ALIGN_CORNERS:
        return out == 1 ? 0 : at * (float)(in - 1) / (float)(out - 1);
    case PYTORCH_HALF_PIXEL:
        return out == 1 ? 0 : (at + 0.5F) / scale - 0.5F;
    case TF_HALF_PIXEL_FOR_NN:
        return (at + 0.5F) / scale;
    case HALF_PIXEL_SYMMETRIC: {
        const float adjustment = (float)out / (scale * (float)in);
        const float offset = (float)in / 2 * (1 - adjustment);
        return (float)((double)offset + ((double)at + 0.5) / (double)scale - 0.5);
    }
    default:
        return (at + 0.5F) / scale - 0.5F;
    }
}

static float round_near(unsigned nearest, float at, float scale)
{
    const float whole = truncf(at);
    const bool tie = fabsf(at - (whole + 0.5F)) < 1e-6F;
    switch (nearest) {
    case FLOOR:
        return floorf(at);
    case CEIL:
        return ceilf(at);
    case ROUND_PREFER_FLOOR:
        return tie ? whole : roundf(at);
    case ROUND_PREFER_CEIL:
        return tie ? whole + 1 : roundf(at);
    default:
        return scale < 1 ? ceilf(at) : whole;
    }
}

/* Returns for each element of an axis of y which element of x it is. NULL, with an error, if memory
 * has run out. */
static int64_t *make_table(const struct instance *made, size_t in, size_t out, float scale,
                           struct qk_memory memory, struct qk_error *error)
{
    int64_t *table = memory.alloc(memory.context, out * sizeof(*table) + 1);
    if (!table) {
        qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
        return NULL;
    }
    for (size_t o = 0; o < out; o++) {
        const float near =
            round_near(made->nearest, coordinate(made->coordinates, o, in, out, scale), scale);
        table[o] = !(near > 0) ? 0 : near < (float)in ? (int64_t)near : (int64_t)in - 1;
        table[o] = table[o] < (int64_t)in ? table[o] : (int64_t)in - 1;
    }
    return table;
}

/* Returns how often each element comes, if all come equally often and in order. Otherwise 0. */
static size_t repeats(const int64_t *table, size_t in, size_t out)
{
    const size_t times = out / in;
    if (out % in != 0)
        return 0;
    for (size_t o = 0; o < out; o++)
        if (table[o] != (int64_t)(o / times))
            return 0;
    return times;
}

/* Adds the axes of one axis of y: itself; or two, if each element of x comes equally often. */
static enum qk_status add_axis(const struct instance *made, size_t in, size_t out, float scale,
                               const struct qk_move_axis *x, int64_t y_stride,
                               struct qk_move_box *box, struct qk_memory memory,
                               struct qk_error *error)
{
    struct qk_move_axis axis = {out, x->x_stride, y_stride, NULL};
    if (scale == 1 && in == out) {
        box->axes[box->rank++] = axis;
        return QK_OK;
    }
    if (out > QK_MOVING_TABLE_MAX)
        return qk_fail(error, QK_INVALID,
                       "X: expected resized axes of at most %zu elements, got %zu",
                       QK_MOVING_TABLE_MAX, out);
    int64_t *table = make_table(made, in, out, scale, memory, error);
    if (!table)
        return QK_NO_MEMORY;
    const size_t times = repeats(table, in, out);
    if (times > 0) {
        axis.size = in;
        axis.y_stride = (int64_t)times * y_stride;
        box->axes[box->rank++] = axis;
        box->axes[box->rank++] = (struct qk_move_axis){times, 0, y_stride, NULL};
        return QK_OK;
    }
    for (size_t o = 0; o < out; o++)
        table[o] *= x->x_stride;
    axis.offsets = table;
    box->axes[box->rank++] = axis;
    return QK_OK;
}

/* ---- Plans --------------------------------------------------------------------------------- */

static enum qk_status add_box(const struct instance *made, const struct qk_tensor *x,
                              const size_t *dims, const float *scales, struct qk_move *move,
                              struct qk_memory memory, struct qk_error *error)
{
    struct qk_move_box box = {0};
    struct qk_move_box from = {0};
    struct qk_move_box to;
    enum qk_status status = QK_OK;
    bool same = true;
    qk_move_axes_of(x->dims, x->rank, &from);
    qk_move_axes_of(dims, x->rank, &to);
    for (uint32_t i = 0; i < x->rank; i++)
        same = same && dims[i] == x->dims[i];
    if (same) /* whatever the scales are */
        return qk_move_add(move, &from, memory, error);
    for (uint32_t i = 0; i < x->rank && status == QK_OK; i++)
        status = add_axis(made, x->dims[i], dims[i], scales[i], &from.axes[i], to.axes[i].y_stride,
                          &box, memory, error);
    return status == QK_OK ? qk_move_add(move, &box, memory, error) : status;
}

/* ---- Mode linear --------------------------------------------------------------------------- */

/* Returns whether an axis keeps its size and its elements. The scale alone does not say so: the
 * quotient of two sizes above 2^24 may round to 1. */
static bool keeps_axis(const struct qk_tensor *x, const size_t *dims, const float *scales,
                       uint32_t axis)
{
    return scales[axis] == 1 && dims[axis] == x->dims[axis];
}

/* Finds the axis of x that is the height; the width follows. x has two axes, or images and channels
 * before them, or images before and channels behind. */
static enum qk_status find_planes(const struct qk_tensor *x, const size_t *dims,
                                  const float *scales, struct qk_linear *linear, uint32_t *height,
                                  struct qk_error *error)
{
    const bool images = x->rank == 4 && keeps_axis(x, dims, scales, 0);
    const bool first = images && keeps_axis(x, dims, scales, 1);
    const bool last = images && keeps_axis(x, dims, scales, 3);
    *height = first ? 2 : last ? 1 : 0;
    linear->planes = first ? x->dims[0] * x->dims[1] : last ? x->dims[0] : 1;
    linear->channels = last && !first ? x->dims[3] : 0;
    if (x->rank == 2 || first || last)
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "X: expected two axes for mode linear, or four of which at most the last two or "
                   "the middle two change, got %u",
                   x->rank);
}

/* Makes the table of one axis. NULL, with an error, if it is too long or memory has run out. */
static const struct qk_linear_index *index_axis(const struct instance *made, size_t in, size_t out,
                                                float scale, struct qk_memory memory,
                                                struct qk_error *error)
{
    if (in > QK_MOVING_TABLE_MAX || out > QK_MOVING_TABLE_MAX) {
        qk_fail(error, QK_INVALID, "X: expected resized axes of at most %zu elements, got %zu",
                QK_MOVING_TABLE_MAX, in > out ? in : out);
        return NULL;
    }
    struct qk_linear_index *table = memory.alloc(memory.context, out * sizeof(*table));
    if (!table)
        qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    for (size_t o = 0; table && o < out; o++)
        qk_linear_set_index(
            &table[o], scale == 1 ? (float)o : coordinate(made->coordinates, o, in, out, scale),
            in);
    return table;
}

static enum qk_status plan_linear(const struct instance *made, const struct qk_tensor *x,
                                  const size_t *dims, const float *scales, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error)
{
    struct qk_linear linear = {.type = x->type};
    uint32_t height;
    const enum qk_status status = find_planes(x, dims, scales, &linear, &height, error);
    if (status != QK_OK)
        return status;
    linear.height = x->dims[height];
    linear.width = x->dims[height + 1];
    linear.y_height = dims[height];
    linear.y_width = dims[height + 1];
    linear.rows = index_axis(made, linear.height, linear.y_height, scales[height], memory, error);
    if (!linear.rows)
        return error->status;
    linear.columns =
        index_axis(made, linear.width, linear.y_width, scales[height + 1], memory, error);
    if (!linear.columns)
        return error->status;
    return qk_linear_plan(&linear, made->base.kernels, memory, plan, error);
}

/* ---- Both modes ---------------------------------------------------------------------------- */

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[X];
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    float scales[QK_RANK_MAX];
    struct extent extent;
    enum qk_status status = qk_move_check_input(x, "X", error);
    if (status == QK_OK)
        status = read_extent(made, inputs, &extent, error);
    if (status == QK_OK)
        status = fit(made, &extent, x, dims, scales, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, x->type, x->rank, dims, error);
    bool same = true;
    for (uint32_t i = 0; i < x->rank && status == QK_OK; i++)
        same = same && dims[i] == x->dims[i];
    if (status == QK_OK && made->mode == LINEAR && !same && plan->outputs[0].count > 0)
        return plan_linear(made, x, dims, scales, memory, plan, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK && plan->outputs[0].count > 0)
        status = add_box(made, x, dims, scales, move, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define FLOATS QK_BIT(QK_FP32)
#define VERSION(number, types, sizes_types) \
    QK_MOVING_VERSION(                      \
        number,                             \
        types, [ROI] = {FLOATS, true}, [SCALES] = {FLOATS, true}, [SIZES] = {(sizes_types), true})

static const struct qk_version versions[] = {
    VERSION(10, QK_MOVE_TYPES, 0),
    VERSION(11, QK_MOVE_TYPES, QK_BIT(QK_INT64)),
    VERSION(13, QK_MOVE_TYPES_13, QK_BIT(QK_INT64)),
    VERSION(18, QK_MOVE_TYPES_13, QK_BIT(QK_INT64)),
    VERSION(19, QK_MOVE_TYPES_13, QK_BIT(QK_INT64)),
};

static const struct qk_attribute_def attributes[] = {
    [MODE] = QK_ATTRIBUTE("mode", STRING, 10,
                          "nearest, which is the default, or linear for 8 bits and FP32"),
    [COORDINATES] = QK_ATTRIBUTE("coordinate_transformation_mode", STRING, 11,
                                 "half_pixel (default), asymmetric, align_corners, "
                                 "pytorch_half_pixel, tf_half_pixel_for_nn, half_pixel_symmetric"),
    [NEAREST] = QK_ATTRIBUTE("nearest_mode", STRING, 11,
                             "round_prefer_floor (default), round_prefer_ceil, floor, ceil"),
    [CUBIC_COEFF_A] = QK_ATTRIBUTE("cubic_coeff_a", FLOAT, 11, "not read: only for mode cubic"),
    [EXCLUDE_OUTSIDE] = QK_ATTRIBUTE("exclude_outside", INT, 11, "not read: only for mode cubic"),
    [EXTRAPOLATION_VALUE] =
        QK_ATTRIBUTE("extrapolation_value", FLOAT, 11, "not read: only for tf_crop_and_resize"),
    [ANTIALIAS] = QK_ATTRIBUTE("antialias", INT, 18, "0, which is the default"),
    [AXES] = QK_ATTRIBUTE("axes", INTS, 18, "the axes of scales or sizes; default: all"),
    [POLICY] = QK_ATTRIBUTE("keep_aspect_ratio_policy", STRING, 18,
                            "how sizes are met: stretch (default), not_larger, not_smaller"),
};

const struct qk_operator qk_onnx_resize = {
    .name = "onnx.Resize",
    .platform = QK_ONNX_PLATFORM,
    .about = "X with other sizes; each element is the nearest of X, or a mean of four",
    .inputs = {[X] = {"X", QK_ANY_SHAPE},
               [ROI] = {"roi", "not read"},
               [SCALES] = {"scales", "[number of axes]; required before version 11, later if sizes "
                                     "are absent or empty"},
               [SIZES] = {"sizes", "[number of axes]; only if scales are absent or empty"}},
    .input_count = 4,
    .variable_inputs = 1U << X,
    .planned_inputs = 1U << ROI | 1U << SCALES | 1U << SIZES,
    .outputs = {{"Y", "as X, with other sizes"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .plans_tables = true,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
