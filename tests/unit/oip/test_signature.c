/* How a loaded model's signature affects a request, its metadata and its answer. Also requests that
 * declare what a model will take. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "server/oip/decode.h"
#include "tests/support/encode.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_oip_asked asked;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(signature, .init = setup, .fini = teardown);

/* ---- A loaded model ----------------------------------------------------------------------- */

static const struct qd_port inputs[] = {
    {.name = "image",
     .types = QK_BIT(QK_UINT8),
     .shaped = true,
     .rank = 4,
     .dims = {QD_DIM_FREE, 3, 2, QD_DIM_FREE}},
    {.name = "a\"b", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 1, .dims = {4}},
    {.name = "rest", .types = QK_BIT(QK_FP16)},
};
static const struct qd_port outputs[] = {
    {.name = "y", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2, .dims = {QD_DIM_FREE, 10}},
    {.name = "z", .types = QK_BIT(QK_FP32)},
    {.name = "s", .types = QK_BIT(QK_INT8), .shaped = true},
};
static const struct qd_signature loaded = {
    .name = "my \"net\"",
    .platform = "quantd_onnx",
    .about = "a net",
    .version = 12345678901,
    .inputs = inputs,
    .input_count = 3,
    .outputs = outputs,
    .output_count = 3,
};

static enum qd_status decode_with(const struct qd_signature *signature, bool declares,
                                  const char *body)
{
    struct qd_oip_message message = {
        .signature = signature, .declares = declares, .body = body, .body_bytes = strlen(body)};
    error.text[0] = '\0';
    return qd_oip_decode(&message, &scratch.arena, &asked, &error);
}

static void expect_error(const char *body, const char *text)
{
    cr_assert_eq(decode_with(&loaded, false, body), QD_INVALID, "%s", body);
    cr_assert_str_eq(error.text, text);
}

#define IMAGE(shape, data) \
    "{\"name\":\"image\",\"datatype\":\"UINT8\",\"shape\":" shape ",\"data\":" data "}"
#define IMAGE_1 IMAGE("[1,3,2,1]", "[1,2,3,4,5,6]")
#define AB "{\"name\":\"a\\\"b\",\"datatype\":\"INT4\",\"shape\":[4],\"data\":[-8,7,0,1]}"
#define REST "{\"name\":\"rest\",\"datatype\":\"FP16\",\"shape\":[],\"data\":[1]}"
#define ALL IMAGE_1 "," AB "," REST

Test(signature, tensors_stand_at_its_places)
{
    cr_assert_eq(decode_with(&loaded, false, "{\"inputs\":[" REST "," AB "," IMAGE_1 "]}"), QD_OK,
                 "%s", error.text);
    cr_assert_eq(asked.signature, &loaded);
    cr_assert_null(asked.call.op);
    cr_assert_eq(asked.outputs, 7);
    cr_assert_eq(asked.inputs[0].count, 6);
    cr_assert_eq(memcmp(asked.inputs[0].data, "\1\2\3\4\5\6", 6), 0);
    cr_assert_eq(asked.inputs[1].type, QK_INT4);
    cr_assert_eq(asked.inputs[2].rank, 0);
}

Test(signature, known_sizes_are_checked)
{
    expect_error("{\"inputs\":[" IMAGE("[1,4,2,1]", "[1]") "]}",
                 "inputs[0].shape (\"image\"): expected [-1,3,2,-1], where -1 is any size, got "
                 "[1,4,2,1]");
    expect_error("{\"inputs\":[" IMAGE("[3,2,1]", "[1]") "]}",
                 "inputs[0].shape (\"image\"): expected [-1,3,2,-1], where -1 is any size, got "
                 "[3,2,1]");
    expect_error("{\"inputs\":[{\"name\":\"a\\\"b\",\"datatype\":\"INT4\",\"shape\":[],"
                 "\"data\":[1]}]}",
                 "inputs[0].shape (\"a\"b\"): expected [4], got []");
    expect_error("{\"parameters\":{\"a\\\"b.datatype\":\"INT4\",\"a\\\"b.shape\":[2,2]},"
                 "\"inputs\":[{\"name\":\"a\\\"b\",\"datatype\":\"UINT8\",\"shape\":[2],"
                 "\"data\":[1,2]}]}",
                 "parameters.a\"b.shape: expected [4], got [2,2]");
    cr_assert_eq(decode_with(&loaded, false,
                             "{\"inputs\":[" IMAGE("[0,3,2,7]", "[]") "," AB ",{\"name\":\"rest\","
                                                                      "\"datatype\":\"FP16\","
                                                                      "\"shape\":[1,1,1],"
                                                                      "\"data\":[1]}]}"),
                 QD_OK, "%s", error.text);
}

Test(signature, carrier_form)
{
    cr_assert_eq(decode_with(&loaded, false,
                             "{\"parameters\":{\"a\\\"b.datatype\":\"INT4\",\"a\\\"b.shape\":[4]},"
                             "\"inputs\":[" IMAGE_1 "," REST
                             ",{\"name\":\"a\\\"b\",\"datatype\":\"UINT8\",\"shape\":[2],"
                             "\"data\":[1,2]}]}"),
                 QD_OK, "%s", error.text);
    cr_assert_eq(asked.inputs[1].type, QK_INT4);
    cr_assert_eq(asked.inputs[1].count, 4);
}

Test(signature, refusals_name_the_model)
{
    expect_error("{\"inputs\":[" IMAGE_1 "]}",
                 "inputs: expected \"a\"b\", got none; my \"net\" takes image, a\"b, rest");
    expect_error(
        "{\"inputs\":[{\"name\":\"x\"}]}",
        "inputs[0].name: expected an input of my \"net\", got \"x\"; its inputs are image, "
        "a\"b, rest");
    expect_error("{\"inputs\":[{\"name\":\"image\",\"datatype\":\"INT8\"}]}",
                 "inputs[0].datatype (\"image\"): expected UINT8 for version 12345678901 of my "
                 "\"net\", got \"INT8\"");
    expect_error("{\"inputs\":[" ALL "],\"outputs\":[{\"name\":\"x\"}]}",
                 "outputs[0].name: expected \"y\" or \"z\" or \"s\", got \"x\"");
}

/* Triton's "parameters" extension. */
Test(signature, parameters_of_nobody_are_ignored)
{
    static const char *const good[] = {"\"axis\":1",
                                       "\"a\":-0.5e3",
                                       "\"a\":\"\"",
                                       "\"a\":true",
                                       "\"a\":false",
                                       "\"a\":null",
                                       "\"\":1",
                                       "\"file:1/x\":\"AAAA\"",
                                       "\"imagine.strides\":1",
                                       "\"a\":1,\"b\":\"c\",\"timeout\":7"};
    static const struct {
        const char *parameters;
        const char *error;
    } bad[] = {
        {"\"axis\":[1]",
         "parameters.axis: expected a number, a string, true or false, got an array"},
        {"\"a\":{}", "parameters.a: expected a number, a string, true or false, got an object"},
        {"\"file:1/x\":[1]",
         "parameters.file:1/x: expected a number, a string, true or false, got data"},
        {"\"image.strides\":\"0,1\"", "parameters.image.strides: expected none, as a loaded model "
                                      "has its strides from its load, got \"0,1\""},
        {"\"triton_x\":1", "parameters: expected no key that begins with triton_, which is "
                           "reserved, got \"triton_x\""},
        {"\"timeout\":\"soon\"",
         "parameters.timeout: expected microseconds, an integer in [0, 2^64), got \"soon\""},
    };
    char body[1024];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        snprintf(body, sizeof(body), "{\"parameters\":{%s},\"inputs\":[" ALL "]}", good[i]);
        cr_assert_eq(decode_with(&loaded, false, body), QD_OK, "%s: %s", good[i], error.text);
    }
    cr_assert_eq(asked.timeout_us, 7);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(body, sizeof(body), "{\"parameters\":{%s},\"inputs\":[" ALL "]}",
                 bad[i].parameters);
        expect_error(body, bad[i].error);
    }
}

Test(signature, thirty_two_ports)
{
    enum { COUNT = QK_GRAPH_PORT_COUNT_MAX };
    static char names[COUNT][8];
    static struct qd_port ports[COUNT];
    struct qd_signature wide = loaded;
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "p%zu", i);
        ports[i] = (struct qd_port){.name = names[i], .types = QK_BIT(QK_UINT8)};
    }
    wide.inputs = wide.outputs = ports;
    wide.input_count = wide.output_count = COUNT;
    cr_assert_eq(qd_signature_check(&wide, &error), QD_OK, "%s", error.text);
    char body[4096] = "{\"inputs\":[";
    for (size_t i = COUNT; i-- > 0;) {
        size_t used = strlen(body);
        snprintf(body + used, sizeof(body) - used,
                 "{\"name\":\"p%zu\",\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[%zu]}%s", i, i,
                 i == 0 ? "],\"outputs\":[{\"name\":\"p31\"}]}" : ",");
    }
    cr_assert_eq(decode_with(&wide, false, body), QD_OK, "%s", error.text);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(*(const unsigned char *)asked.inputs[i].data, i);
    cr_assert_eq(asked.outputs, UINT32_C(1) << 31);
    strcpy(strstr(body, ",\"outputs\""), "}");
    cr_assert_eq(decode_with(&wide, false, body), QD_OK, "%s", error.text);
    cr_assert_eq(asked.outputs, UINT32_MAX);
}

Test(signature, without_memory)
{
    for (size_t bytes = 0; bytes < 2; bytes++) {
        struct scratch small;
        scratch_init(&small, bytes == 0 ? 0 : 1 << 20);
        struct qd_oip_message message = {.signature = &loaded,
                                         .body = "{\"inputs\":[" ALL "]}",
                                         .body_bytes = strlen("{\"inputs\":[" ALL "]}")};
        cr_assert_eq(qd_oip_decode(&message, &small.arena, &asked, &error),
                     bytes == 0 ? QD_TOO_LARGE : QD_OK);
        scratch_deinit(&small);
    }
}

/* ---- Metadata ----------------------------------------------------------------------------- */

static struct qd_text text;

static void expect_text(const char *wanted)
{
    cr_assert_not(text.failed);
    char *joined = join_parts(text.parts, text.part_count);
    cr_assert_str_eq(joined, wanted);
    free(joined);
}

#define NAME "{\"name\":\"my \\\"net\\\"\","

Test(signature, metadata)
{
    static const uint64_t versions[] = {3, 12345678901};
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_metadata(&text, &loaded, versions, 2, 0);
    expect_text(NAME
                "\"versions\":[\"3\",\"12345678901\"],\"platform\":\"quantd_onnx\",\"inputs\":["
                "{\"name\":\"image\",\"datatype\":\"UINT8\",\"shape\":[-1,3,2,-1]},"
                "{\"name\":\"a\\\"b\",\"datatype\":\"INT4\",\"shape\":[4]},"
                "{\"name\":\"rest\",\"datatype\":\"FP16\",\"shape\":[-1]}],\"outputs\":["
                "{\"name\":\"y\",\"datatype\":\"UINT8\",\"shape\":[-1,10]},"
                "{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[-1]},"
                "{\"name\":\"s\",\"datatype\":\"INT8\",\"shape\":[]}],"
                "\"properties\":{\"about\":\"a net\","
                "\"image.types\":\"UINT8\",\"image.optional\":\"false\","
                "\"a\\\"b.types\":\"INT4\",\"a\\\"b.optional\":\"false\","
                "\"rest.types\":\"FP16\",\"rest.optional\":\"false\","
                "\"y.types\":\"UINT8\",\"z.types\":\"FP32\",\"s.types\":\"INT8\"}}");
}

Test(signature, config)
{
#define INPUT_REST "\"is_shape_tensor\":false,\"allow_ragged_batch\":false,\"optional\":false}"
#define OUTPUT_REST "\"label_filename\":\"\",\"is_shape_tensor\":false}"
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_config(&text, &loaded);
    expect_text(NAME "\"platform\":\"quantd_onnx\",\"backend\":\"quantd\",\"max_batch_size\":0,"
                     "\"version_policy\":{\"all\":{}},\"input\":["
                     "{\"name\":\"image\",\"data_type\":\"TYPE_UINT8\",\"format\":\"FORMAT_NONE\","
                     "\"dims\":[-1,3,2,-1]," INPUT_REST
                     ",{\"name\":\"a\\\"b\",\"data_type\":\"TYPE_INT4\",\"format\":\"FORMAT_NONE\","
                     "\"dims\":[4]," INPUT_REST
                     ",{\"name\":\"rest\",\"data_type\":\"TYPE_FP16\",\"format\":\"FORMAT_NONE\","
                     "\"dims\":[-1]," INPUT_REST "],\"output\":["
                     "{\"name\":\"y\",\"data_type\":\"TYPE_UINT8\",\"dims\":[-1,10]," OUTPUT_REST
                     ",{\"name\":\"z\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1]," OUTPUT_REST
                     ",{\"name\":\"s\",\"data_type\":\"TYPE_INT8\",\"dims\":[]," OUTPUT_REST
                     "],\"instance_group\":[" NAME
                     "\"kind\":\"KIND_CPU\",\"count\":1,\"gpus\":[]}],\"parameters\":{}}");
}

Test(signature, answers_name_the_model_and_its_outputs)
{
    static const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    static const struct qk_tensor made[] = {
        {.type = QK_UINT8, .rank = 2, .dims = {1, 2}, .count = 2, .data = "\1\2"},
        {.type = QK_FP32, .rank = 1, .dims = {0}},
        {.type = QK_INT8, .count = 1, .data = "\3"},
    };
    struct qd_oip_asked subset = {.signature = &loaded, .outputs = 5, .binary_outputs = 4};
    struct qd_answer answer;
    cr_assert_eq(encode_whole(&subset, "a+b", made, stage_ns, &scratch.arena, &answer, &error),
                 QD_OK);
    char *joined = join_parts(answer.parts, answer.part_count);
    cr_assert_str_eq(
        joined, "{\"model_name\":\"my \\\"net\\\"\",\"model_version\":\"12345678901\","
                "\"parameters\":{\"receive_us\":0,\"queue_us\":0,\"decode_us\":0,\"compute_us\":0,"
                "\"kernel\":\"a+b\"},\"outputs\":[{\"name\":\"y\",\"datatype\":\"UINT8\","
                "\"shape\":[1,2],\"data\":[1,2]},{\"name\":\"s\",\"datatype\":\"INT8\","
                "\"shape\":[],\"parameters\":{\"binary_data_size\":1}}]}\3");
    free(joined);
}

/* ---- Bounds ------------------------------------------------------------------------------- */

static void expect_bad_ports(const struct qd_port *ports, size_t count, const char *wanted)
{
    struct qd_signature bad = loaded;
    bad.outputs = ports;
    bad.output_count = count;
    cr_assert_eq(qd_signature_check(&bad, &error), QD_INVALID);
    cr_assert_str_eq(error.text, wanted);
}

Test(signature, ports_are_bounded)
{
    static char long_name[QD_PORT_NAME_BYTES_MAX + 2];
    static struct qd_port many[QK_GRAPH_PORT_COUNT_MAX + 1];
    memset(long_name, 'a', sizeof(long_name) - 1);
    struct qd_port ports[] = {{.name = "a", .types = QK_BIT(QK_UINT8)},
                              {.name = "b", .types = QK_BIT(QK_UINT8)},
                              {.name = "a", .types = QK_BIT(QK_UINT8)}};
    cr_assert_eq(qd_signature_check(&loaded, &error), QD_OK);
    struct qd_signature constant = loaded;
    constant.input_count = 0;
    cr_assert_eq(qd_signature_check(&constant, &error), QD_OK);
    expect_bad_ports(ports, 3, "the name of outputs[2]: expected another than outputs[0] has");
    expect_bad_ports(many, 33, "outputs: expected 1 to 32, got 33");
    expect_bad_ports(many, 0, "outputs: expected 1 to 32, got 0");
    ports[1].name = "";
    expect_bad_ports(ports, 2, "the name of outputs[1]: expected 1 to 4096 bytes, got 0");
    ports[1].name = long_name;
    expect_bad_ports(ports, 2, "the name of outputs[1]: expected 1 to 4096 bytes, got 4097");
    long_name[QD_PORT_NAME_BYTES_MAX] = '\0';
    static char all_names[18][QD_PORT_NAME_BYTES_MAX + 1];
    for (size_t i = 0; i < 18; i++) {
        memset(all_names[i], 'a', QD_PORT_NAME_BYTES_MAX - i);
        many[i] = (struct qd_port){.name = all_names[i], .types = QK_BIT(QK_UINT8)};
    }
    expect_bad_ports(many, 18,
                     "the names of inputs and outputs: expected at most 65536 bytes "
                     "together, got 73587");
    struct qd_signature good = loaded;
    good.outputs = ports;
    good.output_count = 2;
    cr_assert_eq(qd_signature_check(&good, &error), QD_OK);
    static const uint64_t version = 1;
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_metadata(&text, &good, &version, 1, 0);
    char *joined = join_parts(text.parts, text.part_count);
    cr_assert_not_null(strstr(joined, "aaa.types\":"));
    free(joined);
}

/* ---- Declaring ---------------------------------------------------------------------------- */

static const struct qd_signature *signature_of(const char *name)
{
    static struct qd_builtin builtin;
    const struct qk_operator *op = qk_graph_operator_by_name(name);
    qd_builtin_init(&builtin, op, &op->versions[op->version_count - 1]);
    return &builtin.signature;
}

static enum qd_status declare(const char *body)
{
    return decode_with(signature_of("onnx.DequantizeLinear"), true, body);
}

static void expect_undeclared(const char *body, const char *wanted)
{
    cr_assert_eq(declare(body), QD_INVALID, "%s", body);
    cr_assert_str_eq(error.text, wanted);
}

#define SCALE "{\"name\":\"x_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[0.5]}"
#define X(shape) "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":" shape "}"

Test(signature, a_variable_input_is_declared)
{
    cr_assert_eq(declare("{\"inputs\":[" SCALE "," X("[-1,3,0]") "]}"), QD_OK, "%s", error.text);
    cr_assert_eq(asked.call.variable, 1);
    cr_assert_not(asked.call.constants_stay);
    cr_assert_eq(asked.call.inputs[0].type, QK_UINT8);
    cr_assert_eq(asked.call.inputs[1].type, QK_FP32);
    const struct qd_port *x = &asked.declared[0];
    cr_assert_str_eq(x->name, "x");
    cr_assert_eq(x->types, QK_BIT(QK_UINT8));
    cr_assert(x->shaped);
    cr_assert_eq(x->rank, 3);
    cr_assert_eq(x->dims[0], QD_DIM_FREE);
    cr_assert_eq(x->dims[1], 3);
    cr_assert_eq(x->dims[2], 0);
    cr_assert_eq(asked.declared[1].types, 0);
    cr_assert_eq(asked.declared[2].types, 0);
}

Test(signature, a_variable_input_need_not_come)
{
    cr_assert_eq(declare("{\"inputs\":[" SCALE "]}"), QD_OK, "%s", error.text);
    cr_assert_eq(asked.call.variable, 1);
    cr_assert_eq(asked.call.inputs[0].type, QK_NONE);
    cr_assert_eq(asked.declared[0].types, 0);
    expect_undeclared("{\"inputs\":[" X("[1]") "]}", "inputs: expected \"x_scale\", got none; "
                                                     "onnx.DequantizeLinear takes x, x_scale, "
                                                     "x_zero_point (optional)");
}

/* A model without variable inputs is useless, and the tensors of a plain request cannot be kept. */
Test(signature, what_cannot_be_declared)
{
    cr_assert_eq(
        decode_with(signature_of("onnx.ConstantOfShape"), true,
                    "{\"inputs\":[{\"name\":\"input\",\"datatype\":\"INT64\",\"shape\":[1],"
                    "\"data\":[4]}]}"),
        QD_INVALID);
    cr_assert_str_eq(error.text, "inputs: expected one without data, which each request brings; "
                                 "onnx.ConstantOfShape has none that can be one");
    expect_undeclared("{\"inputs\":[" SCALE
                      ",{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[1]}]}",
                      "inputs: expected one without data, which each request brings; \"x\" can be "
                      "one");
    expect_undeclared("{\"inputs\":[" X("[1]") ",{\"name\":\"x_scale\",\"datatype\":\"FP32\","
                                               "\"shape\":[]}]}",
                      "inputs[1] (\"x_scale\"): expected one of data, "
                      "parameters.binary_data_size and parameters.shared_memory_region, got none");
    expect_undeclared("{\"inputs\":[" X("[-2]") "]}",
                      "inputs[0].shape (\"x\"): expected an integer in [-1, 2^53) for dimension 0, "
                      "got -2");
    expect_undeclared("{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\"}]}",
                      "inputs[0].shape (\"x\"): expected an array of integers, -1 where a size is "
                      "free, got none");
    expect_undeclared("{\"inputs\":[" X("[1]") "," X("[1]") "]}",
                      "inputs[1].name: expected each input once, got \"x\" twice");
    expect_undeclared(
        "{\"inputs\":[" X("[4294967296,4294967296,-1]") "]}",
        "inputs[0].shape (\"x\"): expected sizes whose product does not overflow 64 bits, got "
        "[4294967296,4294967296,-1] of UINT8");
    expect_undeclared("{\"parameters\":{\"x.datatype\":\"INT4\",\"x.shape\":[2]},\"inputs\":["
                      "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1]}]}",
                      "parameters.x.datatype: expected together with data, got none: name the "
                      "datatype itself");
    cr_assert_eq(
        decode_with(signature_of("onnx.DequantizeLinear"), false, "{\"inputs\":[" X("[1]") "]}"),
        QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[0] (\"x\"): expected one of data, "
                                 "parameters.binary_data_size and "
                                 "parameters.shared_memory_region, got none");
}

/* The data of a loaded DirectML operator lies as its strides say, in every request. */
Test(signature, declared_strides)
{
    static const char body[] =
        "{\"parameters\":{\"InputTensor.strides\":[8,1]},\"inputs\":["
        "{\"name\":\"InputTensor\",\"datatype\":\"UINT8\",\"shape\":[-1,2]},"
        "{\"name\":\"ScaleTensor\",\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[0.5]}]}";
    static const char *const requests[] = {
        "{\"inputs\":[{\"name\":\"InputTensor\",\"datatype\":\"UINT8\",\"shape\":[2,2],"
        "\"data\":[1,2,3,4,5,6,7,8,9,10]}]}",
        "{\"inputs\":[{\"name\":\"InputTensor\",\"datatype\":\"UINT8\",\"shape\":[1,2],"
        "\"data\":[1,2]}]}",
    };
    const struct qd_signature *directml = signature_of("directml.ElementWiseDequantizeLinear");
    cr_assert_eq(decode_with(directml, true, body), QD_OK, "%s", error.text);
    struct qd_port kept = asked.declared[0];
    cr_assert_not_null(kept.strides);
    const struct qk_attribute strides = *kept.strides;
    kept.strides = &strides;
    const struct qd_signature made = {.name = "m",
                                      .version = 1,
                                      .inputs = &kept,
                                      .input_count = 1,
                                      .outputs = outputs,
                                      .output_count = 1};
    cr_assert_eq(decode_with(&made, false, requests[0]), QD_OK, "%s", error.text);
    cr_assert_eq(asked.inputs[0].count, 4);
    cr_assert_eq(asked.inputs[0].stored, 10);
    cr_assert_eq(decode_with(&made, false, requests[1]), QD_OK, "%s", error.text);
    cr_assert_eq(asked.inputs[0].stored, 2);
    cr_assert_eq(decode_with(directml, true,
                             "{\"parameters\":{\"InputTensor.strides\":[8]},\"inputs\":[{\"name\":"
                             "\"InputTensor\",\"datatype\":\"UINT8\",\"shape\":[-1,2]}]}"),
                 QD_INVALID);
    cr_assert_str_eq(
        error.text, "parameters.InputTensor.strides: expected 2 integers from 0 to 4294967295, one "
                    "for each dimension, that reach less than 2^64 bytes, got 1: [8]");
}
