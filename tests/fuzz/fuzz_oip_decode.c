/* Fuzzes everything from a body's bytes to a plan. run.sh builds and runs this target. */
#include <assert.h>
#include <stdlib.h>

#include "server/oip/decode.h"
#include "tests/fuzz/fuzz_kernels.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/support/encode.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

/* So little memory that requests are refused for lack of it, at many places. */
enum { MEMORY_BYTES = 1 << 20, OUTPUT_BYTES_MAX = 1 << 16 };

static volatile unsigned char sink;

/* Returns true if the input comes with a later request. Such an input must be known and describe a
 * tensor. */
static bool is_later(const struct qd_oip_asked *asked, size_t index)
{
    if (asked->declared == NULL || (asked->call.variable >> index & 1) == 0)
        return false;
    const struct qd_port *port = &asked->declared[index];
    assert(port->types == 0 || port->types == QK_BIT(asked->inputs[index].type));
    assert(port->rank <= QK_RANK_MAX);
    for (uint32_t i = 0; i < port->rank; i++)
        assert(port->dims[i] >= QD_DIM_FREE);
    return true;
}

/* Reads every byte of every input, so that the sanitizer checks them. */
static void read_inputs(const struct qd_oip_asked *asked)
{
    const struct qk_call *call = &asked->call;
    for (size_t i = 0; i < asked->signature->input_count; i++) {
        const struct qd_port *port = &asked->signature->inputs[i];
        const struct qk_tensor *tensor = &asked->inputs[i];
        size_t bytes;
        if (is_later(asked, i))
            continue;
        if (tensor->type == QK_NONE) {
            assert(port->optional);
            continue;
        }
        assert((port->types & QK_BIT(tensor->type)) != 0);
        assert(qd_port_takes(port, tensor));
        assert(tensor->rank <= QK_RANK_MAX);
        assert(qk_type_bytes(tensor->type, tensor->stored, &bytes));
        for (size_t j = 0; j < bytes; j++)
            sink = (unsigned char)(sink ^ ((const unsigned char *)tensor->data)[j]);
        for (size_t j = 0; tensor->type == QK_BOOL && j < bytes; j++)
            assert(((const unsigned char *)tensor->data)[j] <= 1);
    }
    for (size_t i = 0; call->op != NULL && i < call->op->attribute_count; i++)
        for (size_t j = 0; j < call->attributes[i].list_count; j++)
            sink = (unsigned char)(sink ^ (unsigned char)call->attributes[i].list[j]);
}

static void read_answer(const struct qd_answer *answer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < answer->part_count; i++) {
        bytes += answer->parts[i].count;
        for (size_t j = 0; j < answer->parts[i].count; j++)
            sink = (unsigned char)(sink ^ ((const unsigned char *)answer->parts[i].bytes)[j]);
    }
    assert(bytes == answer->bytes && answer->json_bytes <= bytes);
}

static void *take(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

static void plan_and_encode(const struct qk_kernels *kernels, const struct qd_oip_asked *asked,
                            struct qd_arena *arena, struct qd_answer *answer,
                            struct qd_error *error)
{
    struct qk_memory memory = {take, arena};
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error refusal;
    uint64_t stage_ns[QD_STAGE_COUNT] = {1, 2, 3, 4};
    if (asked->call.op == NULL ||
        qk_create(kernels, &asked->call, memory, &instance, &refusal) != QK_OK ||
        asked->declared != NULL ||
        qk_plan(instance, asked->call.inputs, memory, &plan, &refusal) != QK_OK ||
        plan.output_bytes[0] > OUTPUT_BYTES_MAX)
        return;
    void *output = qd_arena_calloc(arena, 1, plan.output_bytes[0]);
    plan.outputs[0].data = output; /* every operator has one output */
    if (output != NULL &&
        encode_whole(asked, plan.kernel, plan.outputs, stage_ns, arena, answer, error) == QD_OK)
        read_answer(answer);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct qk_kernels *kernels;
    static struct qd_oip_asked asked;
    if (kernels == NULL)
        kernels = make_kernels();
    if (bytes < MESSAGE_BYTES_MIN)
        return 0;
    struct message made;
    make_message(&made, data, bytes);
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_arena arena;
    struct qd_error error;
    struct qd_answer answer;
    qd_arena_init(&arena, memory);
    if (qd_oip_decode(&made.oip, &arena, &asked, &error) == QD_OK) {
        read_inputs(&asked);
        plan_and_encode(kernels, &asked, &arena, &answer, &error);
    } else {
        qd_oip_encode_error(&error, &arena, &answer);
        read_answer(&answer);
    }
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    free(made.body);
    return 0;
}
