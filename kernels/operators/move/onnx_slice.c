/* onnx.Slice: every step-th element of some axes, between a start and an end (onnx/defs/tensor/
 * defs.cc). Positions count back from the end if they are negative, and are clamped to the axis. */
#include "kernels/operators/move/moving.h"

enum { DATA, STARTS, ENDS, AXES, STEPS };

#define PLANNED (1U << STARTS | 1U << ENDS | 1U << AXES | 1U << STEPS)

/* The inputs behind data, each at its own index. */
struct lists {
    struct qk_integers inputs[STEPS + 1];
};

/* Reads the lists and checks all rules that do not depend on data. */
static enum qk_status read_lists(const struct qk_tensor *inputs, struct lists *lists,
                                 struct qk_error *error)
{
    static const char *const names[] = {
        [STARTS] = "starts", [ENDS] = "ends", [AXES] = "axes", [STEPS] = "steps"};
    const struct qk_integers *starts = &lists->inputs[STARTS];
    const struct qk_integers *steps = &lists->inputs[STEPS];
    for (size_t i = STARTS; i <= STEPS; i++) {
        struct qk_integers *list = &lists->inputs[i];
        const enum qk_status status = qk_read_list(&inputs[i], names[i], QK_RANK_MAX, list, error);
        if (status != QK_OK)
            return status;
        if (list->present && list->count != starts->count)
            return qk_fail(error, QK_INVALID, "%s: expected %zu integers, as in starts, got %zu",
                           names[i], starts->count, list->count);
    }
    for (size_t i = 0; i < steps->count; i++)
        if (steps->numbers[i] == 0)
            return qk_fail(error, QK_INVALID, "steps: expected no 0, got 0");
    return QK_OK;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct qk_instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = made;
    struct lists lists;
    return qk_is_planned(call, PLANNED) ? QK_OK : read_lists(call->inputs, &lists, error);
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

/* Checks the axes. Fills them in if they are absent: the first ones. */
static enum qk_status find_axes(struct lists *lists, uint32_t rank, struct qk_error *error)
{
    struct qk_integers *list = &lists->inputs[AXES];
    const char *name = list->present ? "axes" : "starts";
    uint32_t axes;
    list->count = lists->inputs[STARTS].count;
    for (size_t i = 0; i < list->count && !list->present; i++)
        list->numbers[i] = (int64_t)i;
    return qk_find_axes(name, list, rank, false, &axes, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[DATA];
    struct lists lists;
    struct qk_move_box box = {0};
    struct qk_move_box y;
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status == QK_OK)
        status = read_lists(inputs, &lists, error);
    if (status == QK_OK)
        status = find_axes(&lists, x->rank, error);
    if (status != QK_OK)
        return status;
    const struct qk_integers *list = &lists.inputs[AXES];
    const struct qk_integers *steps = &lists.inputs[STEPS];
    qk_move_axes_of(x->dims, x->rank, &box);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = x->dims[i];
    for (size_t i = 0; i < list->count; i++) {
        const int64_t axis = list->numbers[i] + (list->numbers[i] < 0 ? (int64_t)x->rank : 0);
        struct qk_move_axis *moved = &box.axes[axis];
        int64_t first;
        int64_t step = steps->present ? steps->numbers[i] : 1;
        dims[axis] = cut(x->dims[axis], lists.inputs[STARTS].numbers[i],
                         lists.inputs[ENDS].numbers[i], step, &first);
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
    .planned_inputs = PLANNED,
    .outputs = {{"output", "as data, with other sizes along axes"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
