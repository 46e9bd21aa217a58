/* libFuzzer on everything between a body's bytes and a plan; run.sh builds and runs it.
 *
 * An input is: a byte that picks the operator, whose bit 7 takes a loaded model instead; a byte
 * that picks its version, whose bit 7 says that the request declares; two bytes with the value of
 * Inference-Header-Content-Length (0xffff: no header), and the body. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip/decode.h"
#include "server/oip/encode.h"
#include "tests/fuzz/fuzz_kernels.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

/* Small enough that requests for more are refused, and refused at many places. */
enum { MEMORY_BYTES = 1 << 20, OUTPUT_BYTES_MAX = 1 << 16, NO_HEADER = 0xffff };

static volatile unsigned char sink;

/* A loaded model's signature, for whose names there are seeds. */
static const struct qd_port loaded_inputs[] = {
    {.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 1, .dims = {QD_DIM_FREE}},
    {.name = "x_scale", .types = QK_BIT(QK_FP32)},
};
static const struct qd_port loaded_outputs[] = {{.name = "y", .types = QK_BIT(QK_FP32)},
                                                {.name = "z", .types = QK_BIT(QK_INT4)}};
static const struct qd_signature loaded = {.name = "loaded",
                                           .platform = "",
                                           .about = "",
                                           .version = 1,
                                           .inputs = loaded_inputs,
                                           .input_count = 2,
                                           .outputs = loaded_outputs,
                                           .output_count = 2};

/* What comes with a later request is known, and makes a tensor. */
static bool is_later(const struct qd_infer *infer, size_t index)
{
    if (infer->declared == NULL || (infer->call.variable >> index & 1) == 0)
        return false;
    const struct qd_port *port = &infer->declared[index];
    assert(port->types == 0 || port->types == QK_BIT(infer->inputs[index].type));
    assert(port->rank <= QK_RANK_MAX);
    for (uint32_t i = 0; i < port->rank; i++)
        assert(port->dims[i] >= QD_DIM_FREE);
    return true;
}

/* Every byte of every input is there to be read. */
static void read_inputs(const struct qd_infer *infer)
{
    const struct qk_call *call = &infer->call;
    for (size_t i = 0; i < infer->signature->input_count; i++) {
        const struct qd_port *port = &infer->signature->inputs[i];
        const struct qk_tensor *tensor = &infer->inputs[i];
        size_t bytes;
        if (is_later(infer, i))
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

static void plan_and_encode(const struct qk_kernels *kernels, const struct qd_infer *infer,
                            struct qd_arena *arena, struct qd_answer *answer,
                            struct qd_error *error)
{
    struct qk_memory memory = {take, arena};
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error refusal;
    struct qd_oip_stages stages = {1, 2, 3, 4};
    if (infer->call.op == NULL ||
        qk_create(kernels, &infer->call, memory, &instance, &refusal) != QK_OK ||
        infer->declared != NULL ||
        qk_plan(instance, infer->call.inputs, memory, &plan, &refusal) != QK_OK ||
        plan.output_bytes[0] > OUTPUT_BYTES_MAX)
        return;
    void *output = qd_arena_calloc(arena, 1, plan.output_bytes[0]);
    plan.outputs[0].data = output; /* every operator has one */
    if (output != NULL && qd_oip_encode_infer(infer, plan.kernel, plan.outputs, &stages, arena,
                                              answer, error) == QD_OK)
        read_answer(answer);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct qk_kernels *kernels;
    static struct qd_infer infer;
    if (kernels == NULL)
        kernels = make_kernels();
    if (bytes < 4)
        return 0;
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    const struct qk_operator *op = ops[(data[0] & 127) % count];
    unsigned header = data[2] | (unsigned)data[3] << 8;
    char header_text[16];
    snprintf(header_text, sizeof(header_text), "%u", header);
    char *body = malloc(bytes - 4 + (bytes == 4));
    if (body == NULL)
        abort();
    memcpy(body, data + 4, bytes - 4);
    static struct qd_builtin builtin;
    qd_builtin_init(&builtin, op, &op->versions[(data[1] & 127) % op->version_count]);
    const bool is_loaded = data[0] >> 7;
    struct qd_oip_message message = {.signature = is_loaded ? &loaded : &builtin.signature,
                                     .declares = !is_loaded && data[1] >> 7,
                                     .body = body,
                                     .body_bytes = bytes - 4,
                                     .json_bytes_header = header == NO_HEADER ? NULL : header_text};
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_arena arena;
    struct qd_error error;
    struct qd_answer answer;
    qd_arena_init(&arena, memory);
    if (qd_oip_decode(&message, &arena, &infer, &error) == QD_OK) {
        read_inputs(&infer);
        plan_and_encode(kernels, &infer, &arena, &answer, &error);
    } else {
        qd_oip_encode_error(&error, &arena, &answer);
        read_answer(&answer);
    }
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    free(body);
    return 0;
}
