/* onnx.Pad: elements before and after those of data, along each axis (onnx/defs/tensor/defs.cc).
 * Negative pads crop first. What is left is then padded with a constant, with its own edge, with
 * its reflection, or since opset 19 with copies of itself. */
#include <string.h>

#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { DATA, PADS, VALUE, AXES };
enum { MODE };
enum mode { CONSTANT, EDGE, REFLECT, WRAP, MODE_COUNT };

#define WRAP_SINCE 19

struct instance {
    struct qk_instance base;
    enum mode mode;
    uint8_t value[8];
};

/* The planned inputs. */
struct lists {
    struct qk_integers pads;
    struct qk_integers axes;
};

/* One axis: elements [first, first + count) of data, and how many come before and after them. */
struct padded {
    size_t first;
    size_t count;
    size_t before;
    size_t after;
};

/* ---- Rules --------------------------------------------------------------------------------- */

static enum qk_status read_mode(const struct qk_call *call, struct instance *made,
                                struct qk_error *error)
{
    static const char *const names[MODE_COUNT] = {"constant", "edge", "reflect", "wrap"};
    const bool wraps = call->version->number >= WRAP_SINCE;
    const char *name = call->attributes[MODE].present ? call->attributes[MODE].string : names[0];
    while (made->mode < MODE_COUNT && strcmp(names[made->mode], name) != 0)
        made->mode++;
    if (made->mode < WRAP || (made->mode == WRAP && wraps))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "mode: expected constant, edge%s, got %.20s",
                   wraps ? ", reflect or wrap" : " or reflect", name);
}

static enum qk_status read_value(const struct qk_call *call, struct instance *made,
                                 struct qk_error *error)
{
    const struct qk_tensor *value = &call->inputs[VALUE];
    struct qk_shape_text text;
    if (value->type == QK_NONE)
        return QK_OK;
    if (value->count != 1)
        return qk_fail(error, QK_INVALID, "constant_value: expected one element, got shape %s",
                       qk_shape_text(value, &text));
    memcpy(made->value, value->data, qk_type_info(value->type)->bits / 8);
    return qk_check_same_type(call, VALUE, DATA, error);
}

static enum qk_status read_pads(const struct qk_tensor *tensor, struct qk_integers *pads,
                                struct qk_error *error)
{
    const enum qk_status status =
        qk_read_list(tensor, "pads", (size_t)2 * QK_RANK_MAX, pads, error);
    if (status != QK_OK)
        return status;
    for (size_t i = 0; i < pads->count; i++)
        if (pads->numbers[i] < -QK_LENGTH_MAX || pads->numbers[i] > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "pads: expected integers in [%lld, %lld], got %lld",
                           (long long)-QK_LENGTH_MAX, (long long)QK_LENGTH_MAX,
                           (long long)pads->numbers[i]);
    return QK_OK;
}

static enum qk_status read_axes(const struct qk_tensor *tensor, struct qk_integers *axes,
                                struct qk_error *error)
{
    return qk_read_list(tensor, "axes", QK_RANK_MAX, axes, error);
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
    enum qk_status status = read_mode(call, made, error);
    if (status == QK_OK)
        status = read_value(call, made, error);
    struct lists lists;
    if (status == QK_OK && !qk_is_planned(call, 1U << PADS))
        status = read_pads(&call->inputs[PADS], &lists.pads, error);
    if (status == QK_OK && !qk_is_planned(call, 1U << AXES))
        status = read_axes(&call->inputs[AXES], &lists.axes, error);
    return status;
}

static enum qk_status fail_crop(size_t size, int64_t before, int64_t after, struct qk_error *error)
{
    return qk_fail(error, QK_INVALID,
                   "pads: expected to crop at most the %zu elements of an axis, got %lld and %lld",
                   size, (long long)before, (long long)after);
}

/* Crops and pads one axis of `size` elements. Pads with a constant may crop more elements than
 * there are: all elements of y are then the constant, as in ONNX Runtime. */
static enum qk_status fit_axis(enum mode mode, size_t size, int64_t before, int64_t after,
                               struct padded *axis, struct qk_error *error)
{
    const int64_t first = before < 0 ? -before : 0;
    const int64_t count = (int64_t)size - first + (after < 0 ? after : 0);
    const int64_t total = (int64_t)size + before + after;
    if (total < 0 || (mode != CONSTANT && count < 0))
        return fail_crop(size, before, after, error);
    if (count < 0) {
        *axis = (struct padded){.before = (size_t)total};
        return QK_OK;
    }
    *axis = (struct padded){.first = (size_t)first,
                            .count = (size_t)count,
                            .before = before > 0 ? (size_t)before : 0,
                            .after = after > 0 ? (size_t)after : 0};
    const size_t most = axis->before > axis->after ? axis->before : axis->after;
    if (mode != CONSTANT && count == 0 && most > 0)
        return qk_fail(error, QK_INVALID,
                       "pads: expected no pads for an axis without elements, "
                       "got %zu",
                       most);
    if (mode == REFLECT && most > 0 && most >= axis->count)
        return qk_fail(error, QK_INVALID,
                       "pads: expected less than the %zu elements of an axis to reflect, got %zu",
                       axis->count, most);
    return QK_OK;
}

/* The same for data without elements, in modes that copy elements: only sizes matter, and an axis
 * without elements stays so. */
static enum qk_status fit_empty(size_t size, int64_t before, int64_t after, struct padded *axis,
                                struct qk_error *error)
{
    const int64_t total = (int64_t)size + before + after;
    if (total < 0)
        return fail_crop(size, before, after, error);
    if (size == 0 && total > 0)
        return qk_fail(error, QK_INVALID,
                       "pads: expected no pads for an axis without elements, got %lld and %lld",
                       (long long)before, (long long)after);
    *axis = (struct padded){.before = (size_t)total};
    return QK_OK;
}

/* Finds the pads of each axis. If a list names an axis twice, its last pads count. */
static enum qk_status list_pads(const struct lists *lists, uint32_t rank, int64_t *before,
                                int64_t *after, struct qk_error *error)
{
    const size_t count = lists->axes.present ? lists->axes.count : rank;
    uint32_t named;
    const enum qk_status status = qk_find_axes("axes", &lists->axes, rank, true, &named, error);
    if (status != QK_OK)
        return status;
    if (lists->pads.count != 2 * count)
        return qk_fail(error, QK_INVALID,
                       "pads: expected two integers for each of %zu axes, got %zu", count,
                       lists->pads.count);
    for (uint32_t i = 0; i < rank; i++)
        before[i] = after[i] = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t number = lists->axes.present ? lists->axes.numbers[i] : (int64_t)i;
        const size_t axis = (size_t)(number + (number < 0 ? (int64_t)rank : 0));
        before[axis] = lists->pads.numbers[i];
        after[axis] = lists->pads.numbers[count + i];
    }
    return QK_OK;
}

static enum qk_status fit(enum mode mode, const struct lists *lists, const struct qk_tensor *x,
                          struct padded *axes, size_t *dims, struct qk_error *error)
{
    int64_t before[QK_RANK_MAX];
    int64_t after[QK_RANK_MAX];
    enum qk_status status = list_pads(lists, x->rank, before, after, error);
    for (uint32_t i = 0; i < x->rank && status == QK_OK; i++) {
        status = mode != CONSTANT && x->count == 0
                     ? fit_empty(x->dims[i], before[i], after[i], &axes[i], error)
                     : fit_axis(mode, x->dims[i], before[i], after[i], &axes[i], error);
        if (status == QK_OK)
            dims[i] = axes[i].before + axes[i].count + axes[i].after; /* at most 2^49 */
    }
    return status;
}

/* ---- Boxes --------------------------------------------------------------------------------- */

/* Returns whether data has elements, and the margins of all axes from `first` on are small enough
 * for a framed box. Sets them. */
static bool set_margins(const struct padded *axes, uint32_t first, unsigned bytes,
                        struct qk_move_box *box)
{
    int64_t left = QK_MOVE_MARGINS_MAX / bytes;
    for (uint32_t i = 0; i < box->rank; i++) {
        const int64_t stride = box->axes[i].y_stride;
        const int64_t padded = i < first ? 0 : (int64_t)(axes[i].before + axes[i].after);
        if (axes[i].count == 0 || padded > left / stride)
            return false;
        left -= padded * stride;
        box->margins[i] = i < first ? (struct qk_move_margin){0}
                                    : (struct qk_move_margin){(int64_t)axes[i].before * stride,
                                                              (int64_t)axes[i].after * stride};
    }
    return true;
}

/* Adds the box of data, which fills short runs around it, too, and for each axis the boxes of long
 * runs before and after it. These take all of the axes behind this one, but of the axes before it
 * only what data has. */
static enum qk_status add_constant(const struct padded *axes, unsigned bytes, struct qk_move_box *y,
                                   struct qk_move *move, struct qk_memory memory,
                                   struct qk_error *error)
{
    enum qk_status status = QK_OK;
    struct qk_move_box *box = y;
    box->y_first = 0;
    for (uint32_t i = 0; i < box->rank && status == QK_OK; i++) {
        const int64_t first = box->y_first;
        const int64_t stride = box->axes[i].y_stride;
        box->framed = box->framed || set_margins(axes, i, bytes, box);
        box->fill = !box->framed;
        box->axes[i].size = axes[i].before;
        if (box->fill)
            status = qk_move_add(move, box, memory, error);
        box->axes[i].size = axes[i].after;
        box->y_first = first + (int64_t)(axes[i].before + axes[i].count) * stride;
        if (status == QK_OK && box->fill)
            status = qk_move_add(move, box, memory, error);
        box->axes[i].size = axes[i].count;
        box->y_first = first + (int64_t)axes[i].before * stride;
    }
    /* The axes now have the sizes of data, and y_first is where data begins. */
    box->fill = false;
    return status == QK_OK ? qk_move_add(move, box, memory, error) : status;
}

/* Returns which element of data's `count` is at `at`, which may be before or behind them. */
static int64_t source(enum mode mode, int64_t at, int64_t count)
{
    if (mode == EDGE)
        return at < 0 ? 0 : at < count ? at : count - 1;
    if (mode == REFLECT)
        return at < 0 ? -at : at < count ? at : 2 * (count - 1) - at;
    const int64_t left = at % count;
    return left < 0 ? left + count : left;
}

/* Adds one box. Each padded axis has a table. */
static enum qk_status add_tables(enum mode mode, const struct padded *axes, const size_t *dims,
                                 struct qk_move_box *box, struct qk_move *move,
                                 struct qk_memory memory, struct qk_error *error)
{
    for (uint32_t i = 0; i < box->rank; i++) {
        box->axes[i].size = dims[i];
        if (axes[i].before + axes[i].after == 0)
            continue;
        if (dims[i] > QK_MOVING_TABLE_MAX)
            return qk_fail(error, QK_INVALID,
                           "pads: expected at most %zu elements of an axis, got %zu",
                           QK_MOVING_TABLE_MAX, dims[i]);
        int64_t *offsets = memory.alloc(memory.context, dims[i] * sizeof(*offsets));
        if (!offsets)
            return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
        for (size_t k = 0; k < dims[i]; k++)
            offsets[k] =
                source(mode, (int64_t)k - (int64_t)axes[i].before, (int64_t)axes[i].count) *
                box->axes[i].x_stride;
        box->axes[i].offsets = offsets;
    }
    return qk_move_add(move, box, memory, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    struct padded axes[QK_RANK_MAX];
    size_t dims[QK_RANK_MAX];
    struct qk_move_box box = {0};
    struct qk_move_box from;
    struct qk_move *move;
    struct lists lists;
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status == QK_OK)
        status = read_pads(&inputs[PADS], &lists.pads, error);
    if (status == QK_OK)
        status = read_axes(&inputs[AXES], &lists.axes, error);
    if (status == QK_OK)
        status = fit(made->mode, &lists, x, axes, dims, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, x->type, x->rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, made->value, (size_t)2 * x->rank + 1, memory, error);
    if (status != QK_OK)
        return status;
    qk_move_axes_of(x->dims, x->rank, &from);
    qk_move_axes_of(dims, x->rank, &box);
    for (uint32_t i = 0; i < x->rank; i++) {
        box.axes[i].x_stride = from.axes[i].x_stride;
        box.x_first += axes[i].count > 0 ? (int64_t)axes[i].first * from.axes[i].x_stride : 0;
    }
    if (plan->outputs[0].count > 0)
        status =
            made->mode == CONSTANT
                ? add_constant(axes, qk_type_info(x->type)->bits / 8U, &box, move, memory, error)
                : add_tables(made->mode, axes, dims, &box, move, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(number, types, axes_types)                                                   \
    QK_MOVING_VERSION(number, types, [PADS] = QK_MOVING_INTEGERS, [VALUE] = {(types), true}, \
                      [AXES] = {(axes_types), true})

static const struct qk_version versions[] = {
    VERSION(11, QK_MOVE_TYPES, 0),
    VERSION(13, QK_MOVE_TYPES_13, 0),
    VERSION(18, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
    VERSION(19, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
    VERSION(21, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
    VERSION(23, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
    VERSION(24, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
    VERSION(25, QK_MOVE_TYPES_13, QK_INDEX_TYPES),
};

static const struct qk_attribute_def attributes[] = {
    [MODE] = QK_ATTRIBUTE("mode", STRING, 11,
                          "what pads are: constant (default), edge, reflect, or since version 19 "
                          "wrap"),
};

const struct qk_operator qk_onnx_pad = {
    .name = "onnx.Pad",
    .platform = QK_ONNX_PLATFORM,
    .about = "data with elements before and after it along each axis",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE},
               [PADS] = {"pads", "[2 * number of axes]: all befores, then all afters"},
               [VALUE] = {"constant_value", "one element"},
               [AXES] = {"axes", "[number of axes]"}},
    .input_count = 4,
    .variable_inputs = 1U << DATA,
    .planned_inputs = 1U << PADS | 1U << AXES,
    .outputs = {{"output", "as data, larger by pads"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .plans_tables = true,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
