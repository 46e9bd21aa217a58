/* Raw binary requests: how a body is read as a tensor, and what is refused. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "server/oip/decode.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_oip_asked asked;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 1u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(raw, .init = setup, .fini = teardown);

#define FREE QD_DIM_FREE

static const struct qd_port output = {.name = "y", .types = QK_BIT(QK_FP32)};

static struct qd_signature model_of(const struct qd_port *input, uint64_t batch_max)
{
    return (struct qd_signature){.name = "net",
                                 .version = 1,
                                 .inputs = input,
                                 .input_count = 1,
                                 .outputs = &output,
                                 .output_count = 1,
                                 .batch_max = batch_max};
}

/* Copies the body to the heap, so that a sanitizer sees reads beyond the end. */
static enum qd_status decode(const struct qd_signature *signature, size_t bytes)
{
    static char *body;
    free(body);
    body = calloc(bytes + (bytes == 0), 1);
    const struct qd_oip_message message = {.signature = signature,
                                           .body = bytes == 0 ? NULL : body,
                                           .body_bytes = bytes,
                                           .json_bytes_header = "0"};
    error.text[0] = '\0';
    return qd_oip_decode(&message, &scratch.arena, &asked, &error);
}

struct good {
    struct qd_port port;
    uint64_t batch_max;
    size_t bytes;
    size_t dims[3];
};

static const struct good good_cases[] = {
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {2, 3}},
     0,
     24,
     {2, 3}},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     0,
     24,
     {2, 3}},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {2, FREE}},
     0,
     24,
     {2, 3}},
    {{.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2, .dims = {0, 3}},
     0,
     0,
     {0, 3}},
    {{.name = "x", .types = QK_BIT(QK_INT8), .shaped = true}, 0, 1, {0}},
    /* If the rank is unknown, the tensor is a list. */
    {{.name = "x", .types = QK_BIT(QK_FP16)}, 0, 10, {5}},
    /* The batch is the free dimension, or 1. */
    {{.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     4,
     12,
     {4, 3}},
    {{.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2, .dims = {FREE, FREE}},
     4,
     12,
     {1, 12}},
    {{.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 3, .dims = {FREE, 2, FREE}},
     4,
     12,
     {1, 2, 6}},
    /* Elements of less than a byte. */
    {{.name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 1, .dims = {3}}, 0, 2, {3}},
    {{.name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     0,
     5,
     {3, 3}},
    {{.name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     0,
     2,
     {1, 3}},
    {{.name = "x", .types = QK_BIT(QK_UINT2), .shaped = true, .rank = 2, .dims = {FREE, 4}},
     0,
     7,
     {7, 4}},
};

Test(raw, the_body_is_the_only_input)
{
    for (size_t i = 0; i < sizeof(good_cases) / sizeof(good_cases[0]); i++) {
        const struct good *good = &good_cases[i];
        const struct qd_signature signature = model_of(&good->port, good->batch_max);
        cr_assert_eq(decode(&signature, good->bytes), QD_OK, "%zu: %s", i, error.text);
        const struct qk_tensor *x = &asked.inputs[0];
        size_t bytes;
        cr_assert(qk_type_bytes(x->type, x->stored, &bytes));
        cr_assert_eq(bytes, good->bytes);
        cr_assert_not_null(x->data);
        for (uint32_t k = 0; k < x->rank; k++)
            cr_assert_eq(x->dims[k], good->dims[k], "%zu: dims[%u] is %zu", i, k, x->dims[k]);
        cr_assert_eq(asked.outputs, 1);
        cr_assert_eq(asked.binary_outputs & 1, 1);
        cr_assert_null(asked.id);
    }
}

/* Like DirectML's buffers, bodies may be up to four bytes longer. */
Test(raw, strides_say_how_many_elements_there_are)
{
    static const int64_t list[] = {0, 2};
    static const struct qk_attribute strides = {.present = true, .list = list, .list_count = 2};
    const struct qd_port port = {.name = "x",
                                 .types = QK_BIT(QK_UINT8),
                                 .shaped = true,
                                 .rank = 2,
                                 .dims = {2, 3},
                                 .strides = &strides};
    const struct qd_signature signature = model_of(&port, 0);
    cr_assert_eq(decode(&signature, 5), QD_OK, "%s", error.text);
    cr_assert_eq(asked.inputs[0].stored, 5);
    cr_assert_eq(decode(&signature, 8), QD_OK, "%s", error.text);
    cr_assert_eq(decode(&signature, 6), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "the body: expected 5 or 8 bytes, the input \"x\", UINT8 [2,3], got 6");
}

struct bad {
    struct qd_port port;
    uint64_t batch_max;
    size_t bytes;
    const char *error;
};

static const struct bad bad_cases[] = {
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 1, .dims = {3}},
     0,
     13,
     "the body: expected 12 bytes, the input \"x\", FP32 [3], got 13"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 1, .dims = {3}},
     0,
     0,
     "the body: expected 12 bytes, the input \"x\", FP32 [3], got 0"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {2, FREE}},
     0,
     0,
     "the body: expected the bytes of the input \"x\", FP32 [2,-1], got an empty body; JSON can "
     "say "
     "an empty shape"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     0,
     13,
     "the body: expected a multiple of 12 bytes, the input \"x\", FP32 [-1,3], got 13"},
    {{.name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     0,
     4,
     "the body: expected the bytes of a multiple of 12 bits, the input \"x\", INT4 [-1,3], "
     "got 4"},
    {{.name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 1, .dims = {FREE}},
     0,
     4,
     "the body: expected bytes from which one size follows, the input \"x\", INT4 [-1], got 4, "
     "which may be 7 or 8; JSON can say the shape"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {FREE, FREE}},
     0,
     12,
     "the input \"x\": expected one free size at most in a raw binary request, got [-1,-1]; JSON "
     "can say the shape"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 3, .dims = {FREE, FREE, FREE}},
     8,
     12,
     "the input \"x\": expected one free size at most in a raw binary request, got [-1,-1,-1]; "
     "JSON can say the shape"},
    {{.name = "x", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2, .dims = {FREE, 0}},
     0,
     0,
     "the input \"x\": expected a size that follows from the bytes of a raw binary request, got "
     "[-1,0], which is empty; JSON can say the shape"},
    {{.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2, .dims = {FREE, 3}},
     4,
     15,
     "the body: expected a first dimension of at most 4 (max_batch_size), got 15 bytes, which "
     "make it 5"},
    {{.name = "x",
      .types = QK_BIT(QK_UINT8),
      .shaped = true,
      .rank = 3,
      .dims = {FREE, INT64_C(1) << 40, INT64_C(1) << 40}},
     0,
     15,
     "the body: expected less than 2^64 bytes, the input \"x\", UINT8 "
     "[-1,1099511627776,1099511627776], got 15"},
};

Test(raw, refusals_name_the_bytes)
{
    for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++) {
        const struct qd_signature signature = model_of(&bad_cases[i].port, bad_cases[i].batch_max);
        cr_assert_eq(decode(&signature, bad_cases[i].bytes), QD_INVALID, "%zu", i);
        cr_assert_str_eq(error.text, bad_cases[i].error);
    }
}

Test(raw, only_a_loaded_model_of_one_input_takes_it)
{
    static struct qd_builtin builtin;
    const struct qk_operator *op = qk_operator_by_name("onnx.DequantizeLinear");
    qd_builtin_init(&builtin, op, qk_operator_version(op, 25));
    cr_assert_eq(decode(&builtin.signature, 3), QD_INVALID);
    cr_assert_str_eq(error.text, "Inference-Header-Content-Length: 0 means a raw binary request: "
                                 "expected a loaded model with one input, got "
                                 "onnx.DequantizeLinear with 3 inputs, an operator");
    const struct qd_port ports[2] = {{.name = "a", .types = QK_BIT(QK_UINT8)},
                                     {.name = "b", .types = QK_BIT(QK_UINT8)}};
    struct qd_signature two = model_of(ports, 0);
    two.input_count = 2;
    cr_assert_eq(decode(&two, 3), QD_INVALID);
    cr_assert_str_eq(error.text, "Inference-Header-Content-Length: 0 means a raw binary request: "
                                 "expected a loaded model with one input, got net with 2 inputs");
}

static void expect_json_error(const struct qd_signature *signature, const char *body, size_t bytes,
                              const char *text)
{
    const struct qd_oip_message message = {
        .signature = signature, .body = body, .body_bytes = bytes};
    cr_assert_eq(qd_oip_decode(&message, &scratch.arena, &asked, &error), QD_INVALID);
    cr_assert_str_eq(error.text, text);
}

Test(raw, a_tensor_without_the_header_is_told_of_it)
{
    const struct qd_port port = {.name = "x", .types = QK_BIT(QK_UINT8)};
    const struct qd_signature signature = model_of(&port, 0);
    expect_json_error(&signature, "\1\2\3", 3,
                      "malformed JSON at byte 0: expected a value, got byte 0x01; a tensor without "
                      "JSON needs the header Inference-Header-Content-Length: 0");
    expect_json_error(&signature, "\0\0", 2,
                      "malformed JSON at byte 0: expected a value, got byte 0x00; a tensor without "
                      "JSON needs the header Inference-Header-Content-Length: 0");
    expect_json_error(&signature, "{,", 2,
                      "malformed JSON at byte 1: expected a key or '}', got ','");
}
