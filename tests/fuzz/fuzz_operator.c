/* Fuzzes each operator: prepare, pack, plan and run of any call, however wrong, on the scalar
 * kernels and on other kernels of this CPU. All kernels must agree in every bit, or refuse the call
 * alike. run.sh builds and runs this target.
 *
 * An input is read as a sequence of choices. After its end, all choices are 0. The tensors' data is
 * random, from a seed that is one of the choices. It has any alignment, and ends where its
 * allocation ends. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "tests/fuzz/fuzz_kernels.h"
#include "tests/support/random.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum { MEMORY_BYTES = 8 << 20, DATA_BYTES_MAX = 1 << 20, RUN_NS_MAX = 20000000, LIST_MAX = 40 };

/* ---- Choices ------------------------------------------------------------------------------- */

struct source {
    const unsigned char *data;
    size_t bytes;
};

static unsigned take(struct source *source)
{
    if (source->bytes == 0)
        return 0;
    source->bytes--;
    return *source->data++;
}

static size_t below(struct source *source, size_t count)
{
    return take(source) % count;
}

/* Returns a number near any power of two below 2^64. */
static uint64_t take_near_power(struct source *source, unsigned kind)
{
    return (UINT64_C(1) << take(source) % 64) + kind % 5 - 2;
}

static uint64_t take_word(struct source *source)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)take(source) << 8 * i;
    return word;
}

/* Returns a number that is mostly small, but may be near a power of two, any 64 bits, or near the
 * ends of the range. */
static int64_t take_number(struct source *source)
{
    unsigned kind = take(source);
    if (kind < 190)
        return (int64_t)(kind % 20) - 3;
    if (kind < 240)
        return (int64_t)take_near_power(source, kind);
    if (kind < 250)
        return (int64_t)take_word(source);
    return kind < 253 ? INT64_MIN + (int64_t)take(source) : INT64_MAX - (int64_t)take(source);
}

/* ---- A call -------------------------------------------------------------------------------- */

struct attempt {
    struct source source;
    struct qk_call call;
    void *blocks[QK_INPUT_COUNT_MAX]; /* freed as soon as the call no longer borrows them */
    int64_t lists[QK_ATTRIBUTE_COUNT_MAX][LIST_MAX];
    uint32_t rank; /* rank of the tensor from which the other inputs' shapes are derived */
    size_t dims[6];
    size_t axis;
    uint64_t random;
    bool plan_only; /* a variable input is too large to run here */
};

static size_t take_dim(struct source *source)
{
    unsigned kind = take(source);
    if (kind < 128)
        return kind % 9;
    if (kind < 245)
        return kind - 118;
    if (kind < 249)
        return (size_t)take(source) * 37;
    if (kind < 253)
        return take_near_power(source, kind);
    return kind < 254 ? take_word(source) : SIZE_MAX / (1 + (size_t)take(source));
}

/* Makes a shape like those that operators take: the whole tensor, one number, one number for each
 * index of an axis, blocks, or a filter. */
static void shape_input(struct attempt *attempt, struct qk_tensor *tensor)
{
    struct source *source = &attempt->source;
    const size_t kind = below(source, 7);
    tensor->rank = attempt->rank;
    for (uint32_t i = 0; i < attempt->rank; i++)
        tensor->dims[i] = attempt->dims[i];
    if (kind == 1 || kind == 2) {
        tensor->rank = kind == 2;
        tensor->dims[0] = 1;
    } else if (kind == 3 && attempt->rank > 0) {
        tensor->rank = 1;
        tensor->dims[0] = attempt->dims[attempt->axis];
    } else if (kind == 4 && attempt->rank > 0) {
        size_t block = 1 + below(source, 33);
        tensor->dims[attempt->axis] = (attempt->dims[attempt->axis] + block - 1) / block;
    } else if (kind == 5) {
        for (uint32_t i = 0; i < attempt->rank; i++)
            tensor->dims[i] = i == 1 ? attempt->dims[1] / (1 + below(source, 4))
                                     : 1 + below(source, i == 0 ? 40 : 8);
    } else if (kind == 6) {
        tensor->rank = (uint32_t)below(source, 8);
        for (uint32_t i = 0; i < tensor->rank; i++)
            tensor->dims[i] = take_dim(source);
    }
}

/* Makes a list of positions, sizes or axes: one number for each axis, two of them, or any count. */
static void shape_list(struct attempt *attempt, struct qk_tensor *tensor)
{
    struct source *source = &attempt->source;
    const size_t counts[] = {attempt->rank, (size_t)2 * attempt->rank, 1, below(source, 9)};
    const unsigned kind = take(source);
    tensor->rank = kind < 240;
    tensor->dims[0] = counts[kind % 4];
}

static void fill_list(struct attempt *attempt, unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i + sizeof(int64_t) <= bytes; i += sizeof(int64_t)) {
        const int64_t number = take_number(&attempt->source);
        memcpy(data + i, &number, sizeof(number));
    }
}

static void fill(struct attempt *attempt, enum qk_type type, unsigned char *data, size_t bytes)
{
    static const float values[] = {0,     1,    -1,       0.5F,      0.003F, 1e-40F, 3e38F,
                                   -3e3F, 2.5F, INFINITY, -INFINITY, NAN,    100,    0.1F};
    const unsigned kind = take(&attempt->source);
    for (size_t i = 0; i < bytes; i++)
        data[i] = kind % 4 == 3 ? (unsigned char)(kind >> 4)
                                : (unsigned char)(random_next(&attempt->random) >> 40);
    for (size_t i = 0; i < bytes && type == QK_BOOL; i++)
        data[i] &= 1;
    if (type != QK_FP32 || kind % 4 == 0)
        return;
    const size_t count = kind % 4 == 1 ? 9 : sizeof(values) / sizeof(values[0]);
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float))
        memcpy(data + i, &values[1 + random_next(&attempt->random) % (count - 1)], sizeof(float));
}

/* Returns one of the types that the input may have or, rarely, any type. */
static enum qk_type take_type(struct source *source, uint32_t types)
{
    unsigned kind = take(source);
    if (kind > 250)
        return (enum qk_type)(kind % QK_TYPE_COUNT);
    unsigned left = kind % (unsigned)(__builtin_popcount(types) + (types == 0));
    for (unsigned type = 1; type < QK_TYPE_COUNT; type++)
        if ((types >> type & 1) != 0 && left-- == 0)
            return (enum qk_type)type;
    return QK_UINT8;
}

/* Returns true if an input needs no data yet, because plans are made from shapes alone, of any
 * size. */
static bool has_shape_alone(const struct attempt *attempt, size_t index)
{
    return (attempt->call.variable >> index & 1) != 0;
}

/* Makes an input. Returns false if it is larger than the limits of this target. */
static bool make_input(struct attempt *attempt, size_t index)
{
    struct source *source = &attempt->source;
    struct qk_tensor *tensor = &attempt->call.inputs[index];
    const struct qk_input_def *def = &attempt->call.version->inputs[index];
    size_t bytes;
    if (def->types == 0 || (def->optional && take(source) % 2 == 0))
        return true;
    tensor->type = take_type(source, def->types);
    const bool is_list = def->types == QK_BIT(QK_INT64) && tensor->type == QK_INT64;
    if (is_list)
        shape_list(attempt, tensor);
    else
        shape_input(attempt, tensor);
    if (!qk_tensor_set_count(tensor))
        return false;
    for (size_t i = 0; i < attempt->call.op->attribute_count; i++) {
        const struct qk_attribute *attribute = &attempt->call.attributes[i];
        const struct qk_attribute_def *own = &attempt->call.op->attributes[i];
        if (own->kind == QK_ATTRIBUTE_STRIDES && own->input == index && attribute->present &&
            !qk_tensor_set_strides(tensor, attribute->list, attribute->list_count))
            return false;
    }
    if (!qk_type_bytes(tensor->type, tensor->stored, &bytes) || bytes > DATA_BYTES_MAX) {
        attempt->plan_only = true;
        return has_shape_alone(attempt, index);
    }
    const size_t shift = below(source, 65);
    unsigned char *block = attempt->blocks[index] = malloc(bytes + shift + 1);
    if (block == NULL)
        abort();
    block = attempt->blocks[index] = realloc(block, bytes + shift + (bytes + shift == 0));
    if (is_list)
        fill_list(attempt, block + shift, bytes);
    else
        fill(attempt, tensor->type, block + shift, bytes);
    tensor->data = block + shift;
    return true;
}

static const char *take_string(struct source *source)
{
    static const char *const served[] = {"NOTSET",       "VALID",     "SAME_UPPER", "SAME_LOWER",
                                         "MIN_COMBINED", "MIN_FIRST", "SCALED",     "",
                                         "HALF_TO_EVEN", "nonsense"};
    static const char *const others[] = {
        "constant",    "edge",
        "reflect",     "wrap",
        "DCR",         "CRD",
        "nearest",     "half_pixel",
        "asymmetric",  "align_corners",
        "floor",       "pytorch_half_pixel",
        "ceil",        "tf_half_pixel_for_nn",
        "not_larger",  "half_pixel_symmetric",
        "not_smaller", "round_prefer_floor",
        "stretch",     "round_prefer_ceil",
    };
    const unsigned kind = take(source);
    return kind < 128 ? served[kind % (sizeof(served) / sizeof(served[0]))]
                      : others[kind % (sizeof(others) / sizeof(others[0]))];
}

static float take_real(struct source *source)
{
    static const float values[] = {0.01F, 0, -1, 0.5F, 3e38F, INFINITY, -INFINITY, NAN, 1e-40F};
    return values[below(source, sizeof(values) / sizeof(values[0]))];
}

static void make_attribute(struct attempt *attempt, size_t index)
{
    struct source *source = &attempt->source;
    struct qk_attribute *attribute = &attempt->call.attributes[index];
    const enum qk_attribute_kind kind = attempt->call.op->attributes[index].kind;
    if (attempt->call.op->attributes[index].since > attempt->call.version->number)
        return;
    attribute->present = take(source) % 3 == 0;
    if (!attribute->present)
        return;
    if (kind == QK_ATTRIBUTE_STRING) {
        attribute->string = take_string(source);
    } else if (kind == QK_ATTRIBUTE_FLOAT) {
        attribute->real = take_real(source);
    } else if (kind == QK_ATTRIBUTE_BOOL) {
        attribute->number = take(source) % 2;
    } else if (kind == QK_ATTRIBUTE_TYPE) {
        attribute->number =
            qk_type_info((enum qk_type)(1 + below(source, QK_TYPE_COUNT - 1)))->onnx;
    } else if (kind == QK_ATTRIBUTE_INT) {
        attribute->number = take_number(source);
    } else {
        size_t spatial = attempt->rank > 2 ? attempt->rank - 2 : 0;
        const size_t counts[] = {attempt->rank, spatial, 2 * spatial, below(source, LIST_MAX)};
        attribute->list = attempt->lists[index];
        attribute->list_count = counts[below(source, 4)];
        for (size_t i = 0; i < attribute->list_count; i++)
            attempt->lists[index][i] = take_number(source);
    }
}

/* Half of all calls are of operators that have an endpoint, the others of those for graphs. */
static const struct qk_operator *take_operator(struct source *source)
{
    const unsigned kind = take(source);
    size_t count;
    const struct qk_operator *const *ops =
        kind < 128 ? qk_operators(&count) : qk_graph_operators(&count);
    return ops[kind % count];
}

static bool make_call(struct attempt *attempt)
{
    struct source *source = &attempt->source;
    struct qk_call *call = &attempt->call;
    call->op = take_operator(source);
    call->version = &call->op->versions[below(source, call->op->version_count)];
    call->variable = call->op->variable_inputs & ~(take(source) > 200 ? take(source) : 0);
    call->constants_stay = take(source) % 2;
    call->output_count = below(source, call->op->output_count + 1);
    attempt->random = 1 + take(source);
    attempt->rank = (uint32_t)below(source, 6);
    for (uint32_t i = 0; i < attempt->rank; i++)
        attempt->dims[i] = take_dim(source);
    attempt->axis = attempt->rank == 0 ? 0 : below(source, attempt->rank);
    for (size_t i = 0; i < call->op->attribute_count; i++)
        make_attribute(attempt, i);
    for (size_t i = 0; i < call->op->input_count; i++)
        if (!make_input(attempt, i))
            return false;
    return true;
}

/* ---- One run of it ------------------------------------------------------------------------- */

struct pool {
    void *blocks[256];
    size_t count;
    size_t bytes;
};

static void *pool_alloc(void *context, size_t bytes)
{
    struct pool *pool = context;
    if (pool->count == 256 || bytes > MEMORY_BYTES - pool->bytes)
        return NULL;
    void *block = NULL;
    if (posix_memalign(&block, 64, bytes + (bytes == 0)) != 0)
        abort();
    memset(block, 0xa5, bytes);
    pool->bytes += bytes;
    return pool->blocks[pool->count++] = block;
}

struct outcome {
    enum qk_status status;
    bool ran;
    struct qk_plan plan;
    void *outputs[QK_OUTPUT_COUNT_MAX];
};

static void run_plan(const struct attempt *attempt, struct pool *pool, struct outcome *outcome)
{
    const struct qk_plan *plan = &outcome->plan;
    const void *inputs[QK_INPUT_COUNT_MAX];
    if (attempt->plan_only ||
        (plan->unit_count > 0 && plan->unit_cost_ns > RUN_NS_MAX / plan->unit_count))
        return;
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        inputs[i] = attempt->call.inputs[i].data;
    for (size_t i = 0; i < plan->output_count; i++) {
        if (plan->output_bytes[i] > DATA_BYTES_MAX)
            return;
        outcome->outputs[i] = pool_alloc(pool, plan->output_bytes[i]);
        if (outcome->outputs[i] == NULL)
            return;
    }
    void *workspace = pool_alloc(pool, plan->workspace_bytes);
    if (workspace == NULL)
        return;
    const size_t middle = plan->unit_count / 2;
    qk_run(plan, inputs, outcome->outputs, workspace, middle, plan->unit_count);
    qk_run(plan, inputs, outcome->outputs, workspace, 0, middle);
    outcome->ran = true;
}

static void forget_constants(struct attempt *attempt)
{
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX && !attempt->call.constants_stay; i++) {
        if ((attempt->call.variable >> i & 1) == 0) {
            free(attempt->blocks[i]);
            attempt->blocks[i] = NULL;
            attempt->call.inputs[i].data = NULL;
        }
    }
}

static void run_call(struct attempt *attempt, const struct qk_kernels *kernels, struct pool *pool,
                     struct outcome *outcome)
{
    const struct qk_memory memory = {pool_alloc, pool};
    const struct qk_instance *instance;
    struct qk_error error = {.status = QK_OK};
    outcome->status = qk_create(kernels, &attempt->call, memory, &instance, &error);
    if (outcome->status == QK_OK) {
        struct qk_tensor inputs[QK_INPUT_COUNT_MAX];
        memcpy(inputs, attempt->call.inputs, sizeof(inputs));
        forget_constants(attempt);
        outcome->status = qk_plan(instance, inputs, memory, &outcome->plan, &error);
    }
    assert(outcome->status == error.status);
    if (outcome->status == QK_OK)
        run_plan(attempt, pool, outcome);
    else
        assert(error.text[0] != '\0' && strlen(error.text) < sizeof(error.text));
}

/* Returns true if the bits are the same, or both are NaN. The compiler may choose which of two NaNs
 * an operation returns. */
static bool is_same(enum qk_type type, const void *a, const void *b, size_t index)
{
    if (type == QK_INT64)
        return memcmp((const int64_t *)a + index, (const int64_t *)b + index, 8) == 0;
    const uint32_t x = qk_element_load(type, a, index), y = qk_element_load(type, b, index);
    return x == y || (qk_type_info(type)->kind == QK_KIND_FLOAT &&
                      isnan(qk_float_decode(type, x)) && isnan(qk_float_decode(type, y)));
}

static void compare(const struct outcome *a, const struct outcome *b)
{
    if (a->status == QK_NO_MEMORY || b->status == QK_NO_MEMORY)
        return; /* each backend has its own workspace and packing */
    assert(a->status == b->status);
    if (!a->ran || !b->ran)
        return;
    assert(a->plan.output_count == b->plan.output_count);
    for (size_t i = 0; i < a->plan.output_count; i++) {
        const struct qk_tensor *x = &a->plan.outputs[i], *y = &b->plan.outputs[i];
        assert(x->type == y->type && x->rank == y->rank && x->count == y->count);
        assert(memcmp(x->dims, y->dims, x->rank * sizeof(x->dims[0])) == 0);
        for (size_t k = 0; k < x->count; k++)
            assert(is_same(x->type, a->outputs[i], b->outputs[i], k));
    }
}

static void try_with(const unsigned char *data, size_t bytes, const struct qk_kernels *kernels,
                     struct pool *pool, struct outcome *outcome)
{
    struct attempt attempt = {.source = {data, bytes}};
    *outcome = (struct outcome){.status = QK_NO_MEMORY};
    if (make_call(&attempt))
        run_call(&attempt, kernels, pool, outcome);
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        free(attempt.blocks[i]);
}

/* Makes the other kernels that this CPU can run: the fastest, and those of all slower products. */
static size_t make_others(struct qk_kernels *others[8])
{
    size_t count = 0;
    struct qk_error error;
    for (size_t i = 0; qk_gemm_name(i) != NULL && count < 8; i++) {
        const char *name = qk_gemm_name(i);
        if (strcmp(name, "blas") != 0 && strcmp(name, "scalar") != 0 &&
            qk_kernels_create("auto", name, false, 1, &others[count], &error) == QK_OK)
            count++;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct qk_kernels *scalar, *others[8];
    static size_t other_count;
    if (scalar == NULL) {
        scalar = make_kernels();
        other_count = make_others(others);
    }
    struct pool pool = {.count = 0}, other_pool = {.count = 0};
    struct outcome outcome, other;
    if (bytes == 0)
        return 0;
    try_with(data + 1, bytes - 1, scalar, &pool, &outcome);
    if (other_count > 0) {
        try_with(data + 1, bytes - 1, others[data[0] % other_count], &other_pool, &other);
        compare(&outcome, &other);
    }
    for (size_t i = 0; i < pool.count; i++)
        free(pool.blocks[i]);
    for (size_t i = 0; i < other_pool.count; i++)
        free(other_pool.blocks[i]);
    return 0;
}
