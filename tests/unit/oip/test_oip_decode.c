/* What the examples (test_examples.c) cannot test: the resulting call, memory, hostile text. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/oip/decode.h"
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

TestSuite(oip_decode, .init = setup, .fini = teardown);

static enum qd_status decode_in(struct qd_arena *arena, const char *model, const char *version,
                                const char *body, size_t body_bytes, const char *header)
{
    static struct qd_builtin builtin;
    const struct qk_operator *op = qk_operator_by_name(model);
    const unsigned long number = version == NULL ? op->version_last : strtoul(version, NULL, 10);
    qd_builtin_init(&builtin, op, qk_operator_version(op, number));
    struct qd_oip_message message = {
        .signature = &builtin.signature, .body = body, .body_bytes = body_bytes};
    qd_oip_message_set_header(&message, header);
    error.text[0] = '\0';
    return qd_oip_decode(&message, arena, &asked, &error);
}

static enum qd_status decode(const char *model, const char *body)
{
    return decode_in(&scratch.arena, model, NULL, body, strlen(body), NULL);
}

#define DEQUANTIZE "onnx.DequantizeLinear"
#define CONV "onnx.QLinearConv"
#define X "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[2],\"data\":[1,2]}"
#define SCALE "{\"name\":\"x_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[0.5]}"
#define INPUTS "\"inputs\":[" X "," SCALE "]"

static void expect_error(const char *model, const char *body, const char *text)
{
    cr_assert_eq(decode(model, body), QD_INVALID, "%s", body);
    cr_assert_str_eq(error.text, text);
}

static size_t attribute_index(const char *name)
{
    size_t i = 0;
    while (strcmp(asked.call.op->attributes[i].name, name) != 0)
        i++;
    return i;
}

/* ---- The call ---------------------------------------------------------------------------- */

Test(oip_decode, tensors_stand_at_the_operators_places)
{
    cr_assert_eq(decode(DEQUANTIZE, "{\"inputs\":[" SCALE "," X "]}"), QD_OK, "%s", error.text);
    const struct qk_tensor *x = &asked.call.inputs[0];
    const struct qk_tensor *scale = &asked.call.inputs[1];
    cr_assert_eq(x->type, QK_UINT8);
    cr_assert_eq(x->rank, 1);
    cr_assert_eq(x->dims[0], 2);
    cr_assert_eq(x->count, 2);
    cr_assert_eq(memcmp(x->data, "\1\2", 2), 0);
    cr_assert_eq(scale->type, QK_FP32);
    cr_assert_eq(scale->rank, 0);
    cr_assert_eq(scale->count, 1);
    cr_assert_eq(memcmp(scale->data, &(float){0.5f}, 4), 0);
    cr_assert_eq(asked.call.inputs[2].type, QK_NONE);
    cr_assert_str_eq(asked.call.op->name, DEQUANTIZE);
    cr_assert_null(asked.id);
    cr_assert_eq(asked.outputs, 1);
    cr_assert_eq(asked.binary_outputs & asked.outputs, 0);
    cr_assert_eq(asked.timeout_us, 0);
}

Test(oip_decode, binary_tensors_are_views_on_the_body)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[3],\"parameters\":"
        "{\"binary_data_size\":3}}," SCALE ",{\"name\":\"x_zero_point\",\"datatype\":\"UINT8\","
        "\"shape\":[],\"parameters\":{\"binary_data_size\":1}}]}";
    char body[512];
    char header[16];
    size_t json_bytes = strlen(json);
    memcpy(body, json, json_bytes);
    memcpy(body + json_bytes, "abcz", 4);
    snprintf(header, sizeof(header), "%zu", json_bytes);
    cr_assert_eq(decode_in(&scratch.arena, DEQUANTIZE, NULL, body, json_bytes + 4, header), QD_OK,
                 "%s", error.text);
    cr_assert_eq(asked.call.inputs[0].data, body + json_bytes);
    cr_assert_eq(asked.call.inputs[2].data, body + json_bytes + 3);
}

Test(oip_decode, id_and_own_parameters)
{
    cr_assert_eq(decode(DEQUANTIZE,
                        "{\"id\":\"a\\u00e9\",\"parameters\":{\"timeout\":1500,\"priority\":2,"
                        "\"binary_data_output\":true}," INPUTS "}"),
                 QD_OK, "%s", error.text);
    cr_assert_str_eq(asked.id, "a\xc3\xa9");
    cr_assert_eq(asked.binary_outputs & asked.outputs, 1);
    cr_assert_eq(asked.timeout_us, 1500);
    cr_assert_eq(asked.priority, 2);
    cr_assert_eq(decode(DEQUANTIZE, "{\"id\":\"\"," INPUTS "}"), QD_OK);
    cr_assert_null(asked.id);
}

/* ---- Attributes -------------------------------------------------------------------------- */

static void expect_axis(const char *json, int64_t axis)
{
    char body[512];
    snprintf(body, sizeof(body), "{\"parameters\":{\"axis\":%s}," INPUTS "}", json);
    cr_assert_eq(decode(DEQUANTIZE, body), QD_OK, "%s", error.text);
    const struct qk_attribute *attribute = &asked.call.attributes[attribute_index("axis")];
    cr_assert(attribute->present);
    cr_assert_eq(attribute->number, axis);
}

Test(oip_decode, integer_attributes)
{
    expect_axis("-1", -1);
    expect_axis("1.0", 1);
    expect_axis("\"-7\"", -7);
    expect_axis("\" 7 \"", 7);
    expect_axis("9007199254740991", 9007199254740991);
    expect_axis("9007199254740993", 9007199254740993);
    expect_axis("9223372036854775807", INT64_MAX);
    expect_axis("-9223372036854775808", INT64_MIN);
    expect_axis("\"9223372036854775807\"", INT64_MAX);
    cr_assert_eq(decode(DEQUANTIZE, "{\"parameters\":{\"axis\":null}," INPUTS "}"), QD_OK);
    cr_assert_not(asked.call.attributes[attribute_index("axis")].present);
}

Test(oip_decode, integer_attributes_are_exact)
{
    static const char *const bad[] = {"9223372036854775808",
                                      "9007199254740992.0",
                                      "1e16",
                                      "0.5",
                                      "true",
                                      "[1]",
                                      "\"\"",
                                      "\"x\"",
                                      "\"1.0\"",
                                      "\"1,2\"",
                                      "\"9223372036854775808\"",
                                      "{}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char body[512];
        snprintf(body, sizeof(body), "{\"parameters\":{\"axis\":%s}," INPUTS "}", bad[i]);
        cr_assert_eq(decode(DEQUANTIZE, body), QD_INVALID, "%s", bad[i]);
        static const char wanted[] = "parameters.axis: expected an integer in [-2^63, 2^63), got ";
        cr_assert_eq(strncmp(error.text, wanted, sizeof(wanted) - 1), 0, "%s", error.text);
    }
}

/* Clients send the largest number that they have if they mean no bound. */
Test(oip_decode, the_largest_of_protocol_integers)
{
    static const char *const numbers[] = {"9007199254740993", "9223372036854775807",
                                          "9223372036854775808", "18446744073709551615", "1.5e1"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char body[512];
        const uint64_t wanted = i == 4 ? 15 : strtoull(numbers[i], NULL, 10);
        snprintf(body, sizeof(body), "{\"parameters\":{\"timeout\":%s,\"priority\":%s}," INPUTS "}",
                 numbers[i], numbers[i]);
        cr_assert_eq(decode(DEQUANTIZE, body), QD_OK, "%s", error.text);
        cr_assert_eq(asked.timeout_us, wanted);
        cr_assert_eq(asked.priority, wanted);
    }
    static const char *const bad[] = {
        "18446744073709551616", "-1", "-9223372036854775808", "0.5", "1e20", "\"1\"", "true"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        static const char wanted[] = "parameters.timeout: expected microseconds, an integer in "
                                     "[0, 2^64), got ";
        char body[512];
        snprintf(body, sizeof(body), "{\"parameters\":{\"timeout\":%s}," INPUTS "}", bad[i]);
        cr_assert_eq(decode(DEQUANTIZE, body), QD_INVALID, "%s", bad[i]);
        cr_assert_eq(strncmp(error.text, wanted, sizeof(wanted) - 1), 0, "%s", error.text);
    }
}

static void decode_pads(const char *json)
{
    char body[512];
    snprintf(body, sizeof(body), "{\"parameters\":{\"pads\":%s},\"inputs\":[]}", json);
    cr_assert_eq(decode(CONV, body), QD_INVALID); /* parameters come first; then x is missing */
}

Test(oip_decode, lists_of_integers)
{
    static const char *const forms[] = {"[1,-2,3,4]", "\"1,-2,3,4\"", "\" 1 , -2,3,4 \""};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        decode_pads(forms[i]);
        cr_assert_eq(strncmp(error.text, "inputs: expected \"x\", got none", 30), 0, "%s",
                     error.text);
        const struct qk_attribute *pads = &asked.call.attributes[attribute_index("pads")];
        cr_assert(pads->present);
        cr_assert_eq(pads->list_count, 4);
        cr_assert_eq(memcmp(pads->list, ((int64_t[]){1, -2, 3, 4}), 32), 0);
    }
    decode_pads("[9223372036854775807,-9223372036854775808,0,0]");
    const int64_t *pads = asked.call.attributes[attribute_index("pads")].list;
    cr_assert(pads[0] == INT64_MAX && pads[1] == INT64_MIN);
    expect_error(CONV, "{\"parameters\":{\"pads\":[0,9223372036854775808]},\"inputs\":[]}",
                 "parameters.pads[1]: expected an integer in [-2^63, 2^63), got "
                 "9223372036854775808");
    decode_pads("[]");
    cr_assert_eq(asked.call.attributes[attribute_index("pads")].list_count, 0);
    decode_pads("\"\"");
    cr_assert_eq(asked.call.attributes[attribute_index("pads")].list_count, 0);
}

Test(oip_decode, lists_of_something_else)
{
    static const char *const bad[] = {"1",        "true",    "{}",      "\"1,\"",  "\",1\"",
                                      "\"1,,2\"", "\"1 2\"", "\"1;2\"", "\"1,x\"", "[1,\"2\"]",
                                      "[[1]]",    "[1.5]",   "[null]",  "\"1, \"", "\",\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        decode_pads(bad[i]);
        cr_assert_eq(strncmp(error.text, "parameters.pads", 15), 0, "%s: %s", bad[i], error.text);
    }
    expect_error(CONV, "{\"parameters\":{\"pads\":true},\"inputs\":[]}",
                 "parameters.pads: expected an array of integers, or a string such as "
                 "\"1,1,1,1\", got true");
}

Test(oip_decode, text_attributes)
{
    decode(CONV, "{\"parameters\":{\"auto_pad\":\"VALID\"},\"inputs\":[]}");
    cr_assert_str_eq(asked.call.attributes[attribute_index("auto_pad")].string, "VALID");
    expect_error(CONV, "{\"parameters\":{\"auto_pad\":1},\"inputs\":[]}",
                 "parameters.auto_pad: expected a string, got 1");
}

/* ---- The carrier form and strides -------------------------------------------------------- */

#define CARRIED "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[3,1],\"data\":[[33],[67],[5]]}"

Test(oip_decode, carrier_form_names_type_and_shape)
{
    cr_assert_eq(decode(DEQUANTIZE, "{\"parameters\":{\"x.datatype\":\"UINT4\",\"x.shape\":"
                                    "\"1,5\"},\"inputs\":[" CARRIED "," SCALE "]}"),
                 QD_OK, "%s", error.text);
    const struct qk_tensor *x = &asked.call.inputs[0];
    cr_assert_eq(x->type, QK_UINT4);
    cr_assert_eq(x->rank, 2);
    cr_assert(x->dims[0] == 1 && x->dims[1] == 5);
    cr_assert(x->count == 5 && x->stored == 5);
    cr_assert_eq(memcmp(x->data, "\x21\x43\x05", 3), 0);
}

Test(oip_decode, carrier_parameters_come_once)
{
    expect_error(DEQUANTIZE,
                 "{\"parameters\":{\"x.datatype\":\"INT4\",\"x.datatype\":\"INT4\"}," INPUTS "}",
                 "parameters.x.datatype: expected once, got twice");
    expect_error(DEQUANTIZE, "{\"parameters\":{\"x.shape\":\"2\",\"x.shape\":[2]}," INPUTS "}",
                 "parameters.x.shape: expected once, got twice");
}

Test(oip_decode, carried_shapes_have_a_rank)
{
    char body[512] = "{\"parameters\":{\"x.datatype\":\"INT8\",\"x.shape\":\"1";
    for (size_t i = 0; i < QK_RANK_MAX; i++)
        strcat(body, ",1");
    strcat(body, "\"}," INPUTS "}");
    cr_assert_eq(decode(DEQUANTIZE, body), QD_INVALID);
    cr_assert_eq(strncmp(error.text, "parameters.x.shape: expected up to 32 integers", 46), 0, "%s",
                 error.text);
}

#define DIRECTML "directml.ElementWiseDequantizeLinear"
#define DML_INPUT \
    "{\"name\":\"InputTensor\",\"datatype\":\"UINT8\",\"shape\":[2,3],\"data\":[1,2,3,4,5,6]}"

Test(oip_decode, strides_say_how_much_data_there_is)
{
    cr_assert_eq(decode(DIRECTML,
                        "{\"parameters\":{\"ScaleTensor.strides\":[0,2]},\"inputs\":[" DML_INPUT
                        ",{\"name\":\"ScaleTensor\",\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":"
                        "[1,2,3,4,5]}]}"),
                 QD_OK, "%s", error.text);
    const struct qk_tensor *scale = &asked.call.inputs[1];
    cr_assert_eq(scale->rank, 2);
    cr_assert_eq(scale->count, 6);
    cr_assert_eq(scale->stored, 5);
    cr_assert_eq(memcmp(scale->data, ((float[]){1, 2, 3, 4, 5}), 20), 0);
    cr_assert_eq(asked.call.inputs[0].stored, 6);
}

/* Strides describe the carried tensor, whose bytes are counted exactly. */
Test(oip_decode, refusals_of_layouts_say_what_came)
{
    char body[512];
    char ones[QK_RANK_MAX * 2 + 2] = "1";
    for (size_t i = 0; i < QK_RANK_MAX; i++)
        strcat(ones, ",1");
    snprintf(body, sizeof(body),
             "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[%s],\"data\":[]}]}",
             ones);
    expect_error(DEQUANTIZE, body,
                 "inputs[0].shape (\"x\"): expected at most 32 dimensions, got 33");
    expect_error(
        DEQUANTIZE,
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT16\",\"shape\":[4294967296,"
        "2147483648],\"data\":[]}]}",
        "inputs[0].shape (\"x\"): expected sizes whose product does not overflow 64 bits, got "
        "[4294967296,2147483648] of INT16");
    expect_error(
        DIRECTML, "{\"parameters\":{\"InputTensor.strides\":[4,-1]},\"inputs\":[" DML_INPUT "]}",
        "parameters.InputTensor.strides: expected 2 integers from 0 to 4294967295, one for "
        "each dimension, "
        "that reach less than 2^64 bytes, got 2: [4,-1]");
}

Test(oip_decode, strides_of_a_carried_tensor)
{
    static const char form[] =
        "{\"parameters\":{\"InputTensor.strides\":\"0,1\",\"InputTensor.datatype\":\"INT16\","
        "\"InputTensor.shape\":\"2,3\"},\"inputs\":[{\"name\":\"InputTensor\",\"datatype\":"
        "\"UINT8\",\"shape\":[%u],\"data\":[1,0,2,0,255,255%s]},{\"name\":\"ScaleTensor\","
        "\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[1,2,3,4,5,6]}]}";
    char body[512];
    snprintf(body, sizeof(body), form, 6u, "");
    cr_assert_eq(decode(DIRECTML, body), QD_OK, "%s", error.text);
    cr_assert_eq(asked.call.inputs[0].type, QK_INT16);
    cr_assert_eq(asked.call.inputs[0].stored, 3);
    cr_assert_eq(memcmp(asked.call.inputs[0].data, ((int16_t[]){1, 2, -1}), 6), 0);
    snprintf(body, sizeof(body), form, 8u, ",0,0");
    expect_error(DIRECTML, body,
                 "inputs[0].shape (\"InputTensor\"): expected 6 bytes, for the 3 elements of INT16 "
                 "in parameters.InputTensor, got 8");
}

/* ---- Attributes of the other kinds ------------------------------------------------------- */

static void expect_number(const char *model, const char *name, const char *json, int64_t wanted)
{
    char body[128];
    snprintf(body, sizeof(body), "{\"parameters\":{\"%s\":%s},\"inputs\":[]}", name, json);
    decode(model, body); /* parameters come first; then inputs are missing */
    cr_assert_eq(strncmp(error.text, "inputs: ", 8), 0, "%s", error.text);
    const struct qk_attribute *attribute = &asked.call.attributes[attribute_index(name)];
    cr_assert(attribute->present);
    cr_assert_eq(attribute->number, wanted);
}

Test(oip_decode, boolean_attributes)
{
    expect_number("tensorflow.Dequantize", "narrow_range", "true", 1);
    expect_number("tensorflow.Dequantize", "narrow_range", "false", 0);
    static const char *const bad[] = {"1", "0", "\"true\"", "[true]", "{}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char body[128];
        snprintf(body, sizeof(body), "{\"parameters\":{\"narrow_range\":%s},\"inputs\":[]}",
                 bad[i]);
        cr_assert_eq(decode("tensorflow.Dequantize", body), QD_INVALID);
        cr_assert_eq(
            strncmp(error.text, "parameters.narrow_range: expected true or false, got ", 53), 0,
            "%s", error.text);
    }
}

/* A type may be given by name or by number, with the same result for every type. */
Test(oip_decode, type_attributes)
{
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        const struct qk_type_info *info = qk_type_info(type);
        char json[32];
        snprintf(json, sizeof(json), "\"%s\"", info->name);
        expect_number(DEQUANTIZE, "output_dtype", json, info->onnx);
        snprintf(json, sizeof(json), "%u", info->onnx);
        expect_number(DEQUANTIZE, "output_dtype", json, info->onnx);
        snprintf(json, sizeof(json), "\" %u \"", info->onnx);
        expect_number(DEQUANTIZE, "output_dtype", json, info->onnx);
    }
    static const char *const bad[] = {"true", "1.5", "\"\"", "\"fp16\"", "\"FLOAT\"", "[1]", "{}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char body[128];
        snprintf(body, sizeof(body), "{\"parameters\":{\"output_dtype\":%s},\"inputs\":[]}",
                 bad[i]);
        cr_assert_eq(decode(DEQUANTIZE, body), QD_INVALID);
        cr_assert_eq(
            strncmp(error.text, "parameters.output_dtype: expected a datatype such as ", 53), 0,
            "%s", error.text);
    }
}

/* ---- Hostile text ------------------------------------------------------------------------ */

Test(oip_decode, clients_text_is_shown_bounded_and_on_one_line)
{
    expect_error(DEQUANTIZE,
                 "{\"inputs\":[{\"name\":\"a\\nb\\u0001\\\"\\u007f"
                 "жжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжжж\"}]}",
                 "inputs[0].name: expected an input of onnx.DequantizeLinear, got "
                 "\"a?b?\"?жжжжжжжжжжжжжжжжжжжжжжжжж...\"; its inputs are x, x_scale, "
                 "x_zero_point (optional)");
}

Test(oip_decode, errors_never_fill_their_buffer)
{
    size_t bytes = 100000;
    char *name = malloc(bytes + 1);
    char *body = malloc(bytes + 200);
    memset(name, 'n', bytes);
    name[bytes] = '\0';
    static const char *const forms[] = {
        "{\"inputs\":[{\"name\":\"%s\"}]}",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"%s\"}]}",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":\"%s\"}]}",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[\"%s\"]}]}",
        "{\"parameters\":{\"%s\":1}}",
        "{\"parameters\":{\"triton_%s\":1}}",
        "{\"parameters\":{\"axis\":\"%s\"}}",
        "{" INPUTS ",\"outputs\":[{\"name\":\"%s\"}]}",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        snprintf(body, bytes + 200, forms[i], name);
        cr_assert_eq(decode(DEQUANTIZE, body), QD_INVALID);
        cr_assert_lt(strlen(error.text), 300, "%s", error.text);
    }
    free(name);
    free(body);
}

Test(oip_decode, header_is_digits_within_the_body)
{
    static const char *const bad[] = {"",    " 1",   "1 ",         "+1",
                                      "-1",  "0x10", "1e1",        "12abc",
                                      "1,1", "20",   "4294967296", "18446744073709551617",
                                      "٣"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(decode_in(&scratch.arena, DEQUANTIZE, NULL, "{\"inputs\":[]}   ", 16, bad[i]),
                     QD_INVALID);
        cr_assert_eq(strncmp(error.text, "Inference-Header-Content-Length: expected ", 42), 0,
                     "%s: %s", bad[i], error.text);
    }
    cr_assert_eq(decode_in(&scratch.arena, DEQUANTIZE, NULL, "{\"inputs\":[]}   ", 16, "013"),
                 QD_INVALID);
    cr_assert_eq(strncmp(error.text, "inputs: expected \"x\", got none", 30), 0, "%s", error.text);
}

Test(oip_decode, sums_of_blobs_do_not_overflow)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[2251799813685248],"
        "\"parameters\":{\"binary_data_size\":9007199254740988}},"
        "{\"name\":\"x_scale\",\"datatype\":\"FP32\",\"shape\":[2251799813685247],\"parameters\":"
        "{\"binary_data_size\":9007199254740988}}]}";
    char header[16];
    snprintf(header, sizeof(header), "%zu", strlen(json));
    cr_assert_eq(decode_in(&scratch.arena, DEQUANTIZE, NULL, json, strlen(json), header),
                 QD_INVALID);
    cr_assert_str_eq(error.text,
                     "inputs[0].parameters.binary_data_size (\"x\"): expected 9007199254740992 "
                     "bytes for 2251799813685248 elements of INT32, got 9007199254740988");
}

/* Every prefix of a request is refused. Every byte may be replaced by any other without a crash or
 * a leak. */
Test(oip_decode, spoiled_requests)
{
    static const char good[] =
        "{\"id\":\"7\",\"parameters\":{\"axis\":\"0\"},\"inputs\":[" X "," SCALE
        "],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":"
        "false}}]}";
    char body[sizeof(good)];
    cr_assert_eq(decode(DEQUANTIZE, good), QD_OK, "%s", error.text);
    for (size_t bytes = 0; bytes < sizeof(good) - 1; bytes++)
        cr_assert_eq(decode_in(&scratch.arena, DEQUANTIZE, NULL, good, bytes, NULL), QD_INVALID);
    static const char others[] = "\"{}[],:0-\\x\x01\xff";
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        for (size_t j = 0; j < sizeof(others); j++) {
            struct scratch own;
            scratch_init(&own, 1u << 20);
            memcpy(body, good, sizeof(good));
            body[i] = others[j];
            enum qd_status status =
                decode_in(&own.arena, DEQUANTIZE, NULL, body, sizeof(good) - 1, NULL);
            cr_assert(status == QD_OK || status == QD_INVALID);
            scratch_deinit(&own);
        }
    }
}

/* ---- Memory ------------------------------------------------------------------------------ */

static char *large_request(size_t count)
{
    char *body = malloc(count * 2 + 1000);
    char *at = body + sprintf(body,
                              "{\"id\":\"i\",\"parameters\":{\"axis\":0},\"inputs\":[" SCALE
                              ",{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[%zu],\"data\":[7",
                              count);
    for (size_t i = 1; i < count; i++) {
        *at++ = ',';
        *at++ = '7';
    }
    strcpy(at, "]}]}");
    return body;
}

Test(oip_decode, refuses_softly_without_memory)
{
    char *body = large_request(100000);
    enum qd_status status = QD_TOO_LARGE;
    unsigned refusals = 0;
    for (size_t bytes_max = 0; status != QD_OK; bytes_max += 16 << 10) {
        struct scratch tight;
        scratch_init(&tight, bytes_max);
        status = decode_in(&tight.arena, DEQUANTIZE, NULL, body, strlen(body), NULL);
        if (status != QD_OK) {
            cr_assert_eq(status, QD_TOO_LARGE, "%s", error.text);
            cr_assert_not_null(strstr(error.text, "--max-inflight-bytes"), "%s", error.text);
            refusals++;
        }
        scratch_deinit(&tight);
    }
    cr_assert_gt(refusals, 10);
    free(body);
}

/* While other requests hold the memory, the client should try again. */
Test(oip_decode, tells_full_from_too_small)
{
    char *body = large_request(100000);
    struct scratch shared;
    struct qd_arena other;
    scratch_init(&shared, 1u << 20);
    qd_arena_init(&other, shared.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 700u << 10));
    cr_assert_eq(decode_in(&shared.arena, DEQUANTIZE, NULL, body, strlen(body), NULL),
                 QD_UNAVAILABLE);
    cr_assert_not_null(strstr(error.text, "try again later"), "%s", error.text);
    qd_arena_deinit(&other);
    cr_assert_eq(decode_in(&shared.arena, DEQUANTIZE, NULL, body, strlen(body), NULL), QD_OK);
    scratch_deinit(&shared);
    free(body);
}

/* A shape is not trusted. Memory is allocated only for the elements that the text can hold. */
Test(oip_decode, takes_no_memory_for_a_claim)
{
    expect_error(DEQUANTIZE,
                 "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[1000000000000],"
                 "\"data\":[1,2]}," SCALE "]}",
                 "inputs[0].data (\"x\"): expected 1000000000000 elements for shape "
                 "[1000000000000], got 2");
    cr_assert_lt(qd_memory_used(scratch.memory), 1u << 16);
}
