/* onnx.Slice: every step-th element of some axes, between a start and an end (onnx/defs/tensor/
 * defs.cc). Positions count back from the end if they are negative, and are clamped to the axis. */
#include "kernels/operators/move/moving.h"

enum { DATA, STARTS, ENDS, AXES, STEPS };

struct instance {
    struct qk_instance base;
    struct qk_integers starts;
    struct qk_integers ends;
    struct qk_integers axes;
    struct qk_integers steps;
};

static enum qk_status check(const struct instance *made, struct qk_error *error)
{
    const size_t count = made->starts.count;
    const struct {
        const char *name;
        const struct qk_integers *list;
    } lists[] = {{"ends", &made->ends}, {"axes", &made->axes}, {"steps", &made->steps}};
    for (size_t i = 0; i < QK_LENGTH_OF(lists); i++)
        if (lists[i].list->present && lists[i].list->count != count)
            return qk_fail(error, QK_INVALID, "%s: expected %zu integers, as in starts, got %zu",
                           lists[i].name, count, lists[i].list->count);
    for (size_t i = 0; i < made->steps.count; i++)
        if (made->steps.numbers[i] == 0)
            return qk_fail(error, QK_INVALID, "steps: expected no 0, got 0");
    return QK_OK;
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
    struct qk_integers *lists[] = {[STARTS] = &made->starts,
                                   [ENDS] = &made->ends,
                                   [AXES] = &made->axes,
                                   [STEPS] = &made->steps};
    enum qk_status status = QK_OK;
    for (size_t i = STARTS; i <= STEPS && status == QK_OK; i++)
        status = qk_read_input_list(call, i, QK_RANK_MAX, lists[i], error);
    return status == QK_OK ? check(made, error) : status;
}

static int64_t clamp(int64_t number, int64_t least, int64_t most)
{
    return number < least ? least : number > most ? most : number;
}

/* Cuts one axis: sets the first element that is taken, and returns how many are. Like ONNX Runtime
 * (slice_helper.h), takes an end of INT32_MAX or INT64_MAX as none, also where steps go back. */
static size_t cut(size_t size, int64_t start, int64_t end, int64_t step, int64_t *first)
{
    const int64_t length = (int64_t)size; /* below 2^47 */
    const bool is_open = end == INT32_MAX || end == INT64_MAX;
    start += start < 0 ? length : 0;
    end += end < 0 ? length : 0;
    if (step > 0) {
        *first = clamp(start, 0, length);
        end = clamp(end, 0, length);
        return end > *first ? (size_t)((end - *first - 1) / step) + 1 : 0;
    }
    *first = clamp(start, 0, length - 1);
    end = is_open ? -1 : clamp(end, -1, length - 1);
    if (length == 0 || *first <= end)
        return 0;
    return step == INT64_MIN ? 1 : (size_t)((*first - end - 1) / -step) + 1;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_move_box box = {0};
    struct qk_move_box y;
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    uint32_t axes;
    const char *name = made->axes.present ? "axes" : "starts";
    struct qk_integers list = made->axes;
    list.count = made->starts.count;
    for (size_t i = 0; i < list.count && !made->axes.present; i++)
        list.numbers[i] = (int64_t)i;
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status == QK_OK)
        status = qk_find_axes(name, &list, x->rank, false, &axes, error);
    if (status != QK_OK)
        return status;
    qk_move_axes_of(x->dims, x->rank, &box);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = x->dims[i];
    for (size_t i = 0; i < list.count; i++) {
        const int64_t axis = list.numbers[i] + (list.numbers[i] < 0 ? (int64_t)x->rank : 0);
        struct qk_move_axis *moved = &box.axes[axis];
        int64_t first;
        int64_t step = made->steps.present ? made->steps.numbers[i] : 1;
        dims[axis] =
            cut(x->dims[axis], made->starts.numbers[i], made->ends.numbers[i], step, &first);
        moved->size = dims[axis];
        box.x_first += moved->size > 0 ? first * moved->x_stride : 0;
        moved->x_stride = moved->size > 1 ? moved->x_stride * step : 0;
    }
    qk_move_axes_of(dims, x->rank, &y);
    for (uint32_t i = 0; i < x->rank; i++)
        box.axes[i].y_stride = y.axes[i].y_stride;
    status = qk_move_set_output(plan, 0, x->type, x->rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK)
        status = qk_move_add(move, &box, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(number, types)                                                                     \
    QK_MOVING_VERSION(number,                                                                      \
                      types, [STARTS] = {QK_INDEX_TYPES, false}, [ENDS] = {QK_INDEX_TYPES, false}, \
                      [AXES] = {QK_INDEX_TYPES, true}, [STEPS] = {QK_INDEX_TYPES, true})

static const struct qk_version versions[] = {
    VERSION(10, QK_MOVE_TYPES),
    VERSION(11, QK_MOVE_TYPES),
    VERSION(13, QK_MOVE_TYPES_13),
};

const struct qk_operator qk_onnx_slice = {
    .name = "onnx.Slice",
    .platform = QK_ONNX_PLATFORM,
    .about = "every step-th element of axes, from starts up to ends",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE},
               [STARTS] = {"starts", "[number of axes]"},
               [ENDS] = {"ends", "as starts"},
               [AXES] = {"axes", "as starts"},
               [STEPS] = {"steps", "as starts"}},
    .input_count = 5,
    .variable_inputs = 1U << DATA,
    .outputs = {{"output", "as data, with other sizes along axes"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
