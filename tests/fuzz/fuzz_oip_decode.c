/* libFuzzer on everything between a body's bytes and a plan; run.sh builds and runs it.
 *
 * An input is: a byte that picks the operator, a byte that picks its version, two bytes with the
 * value of Inference-Header-Content-Length (0xffff: no header), and the body. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip_decode.h"
#include "server/oip_encode.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

/* Small enough that requests for more are refused, and refused at many places. */
enum { MEMORY_BYTES = 1 << 20, OUTPUT_BYTES_MAX = 1 << 16, NO_HEADER = 0xffff };

static volatile unsigned char sink;

/* Every byte of every input is there to be read. */
static void read_inputs(const struct qk_call *call)
{
    for (size_t i = 0; i < call->op->input_count; i++) {
        const struct qk_tensor *tensor = &call->inputs[i];
        size_t bytes;
        if (tensor->type == QK_NONE) {
            assert(call->version->inputs[i].optional);
            continue;
        }
        assert((call->version->inputs[i].types & QK_BIT(tensor->type)) != 0);
        assert(tensor->rank <= QK_RANK_MAX);
        assert(qk_type_bytes(tensor->type, tensor->stored, &bytes));
        for (size_t j = 0; j < bytes; j++)
            sink = (unsigned char)(sink ^ ((const unsigned char *)tensor->data)[j]);
    }
    for (size_t i = 0; i < call->op->attribute_count; i++)
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
    if (qk_create(kernels, &infer->call, memory, &instance, &refusal) != QK_OK ||
        qk_plan(instance, infer->call.inputs, memory, &plan, &refusal) != QK_OK ||
        plan.output_bytes[0] > OUTPUT_BYTES_MAX)
        return;
    void *output = qd_arena_calloc(arena, 1, plan.output_bytes[0]);
    plan.outputs[0].data = output; /* every operator has one */
    if (output != NULL && qd_oip_encode_infer(infer, plan.kernel, plan.outputs, &stages, arena,
                                              answer, error) == QD_OK)
        read_answer(answer);
}

static struct qk_kernels *make_kernels(void)
{
    struct qk_kernels *kernels;
    struct qk_error error;
    if (qk_kernels_create("scalar", "auto", false, 1, &kernels, &error) != QK_OK) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
    return kernels;
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
    const struct qk_operator *op = ops[data[0] % count];
    unsigned header = data[2] | (unsigned)data[3] << 8;
    char header_text[16];
    snprintf(header_text, sizeof(header_text), "%u", header);
    char *body = malloc(bytes - 4 + (bytes == 4));
    if (body == NULL)
        abort();
    memcpy(body, data + 4, bytes - 4);
    static struct qd_builtin builtin;
    qd_builtin_init(&builtin, op, &op->versions[data[1] % op->version_count]);
    struct qd_oip_message message = {.signature = &builtin.signature,
                                     .body = body,
                                     .body_bytes = bytes - 4,
                                     .json_bytes_header = header == NO_HEADER ? NULL : header_text};
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_arena arena;
    struct qd_error error;
    struct qd_answer answer;
    qd_arena_init(&arena, memory);
    if (qd_oip_decode(&message, &arena, &infer, &error) == QD_OK) {
        read_inputs(&infer.call);
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
