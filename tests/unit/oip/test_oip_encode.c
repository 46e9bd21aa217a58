#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "server/base/limits.h"
#include "tests/support/encode.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_answer answer;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(oip_encode, .init = setup, .fini = teardown);

/* ---- Answers to inferences --------------------------------------------------------------- */

static struct qd_oip_asked infer_of(const char *id, bool binary)
{
    static struct qd_builtin builtin;
    const struct qk_operator *op = qk_operator_by_name("onnx.DequantizeLinear");
    qd_builtin_init(&builtin, op, qk_operator_version(op, 10));
    return (struct qd_oip_asked){
        .signature = &builtin.signature, .id = id, .outputs = 1, .binary_outputs = binary};
}

static enum qd_status encode(const struct qd_oip_asked *asked, const struct qk_tensor *output)
{
    static const uint64_t stage_ns[QD_STAGE_COUNT] = {1499, 1500, 999999, 2000000};
    return encode_whole(asked, "dequantize_scalar", output, stage_ns, &scratch.arena, &answer,
                        &error);
}

static const float values[] = {-64.0f, 0.5f};
static const struct qk_tensor output = {
    .type = QK_FP32, .rank = 2, .dims = {2, 1}, .count = 2, .data = values};
static const struct qk_tensor empty = {.type = QK_FP32, .rank = 1, .dims = {0}};

#define HEAD                                                                             \
    "\"model_name\":\"onnx.DequantizeLinear\",\"model_version\":\"10\",\"parameters\":{" \
    "\"receive_us\":1,\"queue_us\":2,\"decode_us\":1000,\"compute_us\":2000,"            \
    "\"kernel\":\"dequantize_scalar\"},\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\","

static void expect_body(const char *json, const char *content_type, size_t json_bytes,
                        const void *blob, size_t blob_bytes)
{
    char *joined = join_parts(answer.parts, answer.part_count);
    cr_assert_eq(answer.bytes, strlen(json) + blob_bytes);
    cr_assert_eq(strncmp(joined, json, strlen(json)), 0, "%s", joined);
    cr_assert_eq(memcmp(joined + strlen(json), blob, blob_bytes), 0);
    cr_assert_str_eq(answer.content_type, content_type);
    cr_assert_eq(answer.http_status, 200);
    cr_assert_eq(answer.json_bytes, json_bytes);
    free(joined);
}

Test(oip_encode, json_answer)
{
    struct qd_oip_asked asked = infer_of(NULL, false);
    cr_assert_eq(encode(&asked, &output), QD_OK);
    expect_body("{" HEAD "\"shape\":[2,1],\"data\":[-64,0.5]}]}", "application/json", 0, "", 0);
}

Test(oip_encode, id_comes_first_and_is_escaped)
{
    struct qd_oip_asked asked = infer_of("a\"\n\xff", false);
    cr_assert_eq(encode(&asked, &empty), QD_OK);
    expect_body("{\"id\":\"a\\\"\\n\uFFFD\"," HEAD "\"shape\":[0],\"data\":[]}]}",
                "application/json", 0, "", 0);
}

Test(oip_encode, scalar_answer)
{
    struct qd_oip_asked asked = infer_of(NULL, false);
    struct qk_tensor scalar = {.type = QK_FP32, .count = 1, .data = &(float){NAN}};
    cr_assert_eq(encode(&asked, &scalar), QD_OK);
    expect_body("{" HEAD "\"shape\":[],\"data\":[\"NaN\"]}]}", "application/json", 0, "", 0);
}

Test(oip_encode, binary_answer_borrows_the_tensor)
{
    static const char json[] =
        "{" HEAD "\"shape\":[2,1],\"parameters\":{\"binary_data_size\":8}}]}";
    struct qd_oip_asked asked = infer_of(NULL, true);
    cr_assert_eq(encode(&asked, &output), QD_OK);
    expect_body(json, "application/octet-stream", strlen(json), values, sizeof(values));
    cr_assert_eq(answer.parts[answer.part_count - 1].bytes, values);
}

/* If there are no bytes after the JSON, there is no header, and the content is JSON. */
Test(oip_encode, empty_binary_answer)
{
    struct qd_oip_asked asked = infer_of(NULL, true);
    cr_assert_eq(encode(&asked, &empty), QD_OK);
    expect_body("{" HEAD "\"shape\":[0],\"parameters\":{\"binary_data_size\":0}}]}",
                "application/json", 0, "", 0);
}

Test(oip_encode, answers_are_bounded)
{
    struct qd_oip_asked asked = infer_of(NULL, true);
    struct qk_tensor large = {.type = QK_UINT8,
                              .rank = 1,
                              .dims = {QD_ANSWER_BYTES_MAX},
                              .count = QD_ANSWER_BYTES_MAX,
                              .data = values}; /* borrowed, never read */
    cr_assert_eq(encode(&asked, &large), QD_TOO_LARGE);
    cr_assert_not_null(strstr(error.text, "expected at most 2147483647"), "%s", error.text);
}

/* The units keep the loop's thread from printing many numbers itself. */
Test(oip_encode, large_outputs_are_printed_in_units)
{
    static const size_t counts[][2] = {{1, 0},
                                       {QD_OIP_UNIT_NUMBERS, 0},
                                       {QD_OIP_UNIT_NUMBERS + 1, 2},
                                       {2 * QD_OIP_UNIT_NUMBERS, 2},
                                       {10 * QD_OIP_UNIT_NUMBERS + 1, 11}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct qd_oip_asked asked = infer_of(NULL, false);
        struct qk_tensor large = output;
        large.count = large.dims[0] = counts[i][0];
        cr_expect_eq(qd_oip_unit_count(&asked, &large), counts[i][1], "%zu numbers: %zu units",
                     counts[i][0], qd_oip_unit_count(&asked, &large));
        asked.binary_outputs = 1;
        cr_expect_eq(qd_oip_unit_count(&asked, &large), 0);
    }
}

/* Workers take so many units that a batch ends in time, so a row's real time must be known. */
Test(oip_encode, units_of_classes_cost_what_their_rows_have)
{
    struct qd_oip_asked asked = infer_of(NULL, false);
    uint32_t wanted = 0;
    struct qk_tensor wide = {
        .type = QK_UINT8, .rank = 2, .dims = {3, 1000000}, .count = 3000000, .data = values};
    asked.class_counts = &wanted;
    cr_expect_eq(qd_oip_unit_ns(&asked, &wide), QD_OIP_UNIT_NS);
    wanted = 5;
    cr_expect_geq(qd_oip_unit_ns(&asked, &wide), 1000000);
    wide.dims[1] = 10; /* many rows a unit */
    cr_expect_eq(qd_oip_unit_ns(&asked, &wide), QD_OIP_UNIT_NS);
    wide.dims[1] = 0;
    cr_expect_eq(qd_oip_unit_ns(&asked, &wide), QD_OIP_UNIT_NS);
}

Test(oip_encode, refuses_softly_without_memory)
{
    enum { COUNT = 100000 };
    struct qd_oip_asked asked = infer_of("id", false);
    float *many = calloc(COUNT, sizeof(*many));
    struct qk_tensor tensor = {
        .type = QK_FP32, .rank = 1, .dims = {COUNT}, .count = COUNT, .data = many};
    uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    enum qd_status status = QD_TOO_LARGE;
    for (size_t bytes_max = 0; status != QD_OK; bytes_max += 16 << 10) {
        struct scratch tight;
        scratch_init(&tight, bytes_max);
        status = encode_whole(&asked, "k", &tensor, stage_ns, &tight.arena, &answer, &error);
        cr_assert(status == QD_OK || status == QD_TOO_LARGE);
        cr_assert(status != QD_OK || answer.bytes > 2 * COUNT);
        scratch_deinit(&tight);
    }
    free(many);
}

/* ---- Errors ------------------------------------------------------------------------------ */

static void expect_error_body(enum qd_status status, const char *text, const char *body)
{
    qd_fail(&error, status, "%s", text);
    qd_oip_encode_error(&error, &scratch.arena, &answer);
    char *joined = join_parts(answer.parts, answer.part_count);
    cr_assert_str_eq(joined, body);
    cr_assert_eq(answer.bytes, strlen(body));
    cr_assert_eq(answer.http_status, qd_status_http(status));
    cr_assert_str_eq(answer.content_type, "application/json");
    cr_assert_eq(answer.json_bytes, 0);
    free(joined);
}

Test(oip_encode, errors)
{
    expect_error_body(QD_INVALID, "x: expected 1, got \"2\"",
                      "{\"error\":\"x: expected 1, got \\\"2\\\"\"}");
    expect_error_body(QD_NOT_FOUND, "\xc3", "{\"error\":\"\uFFFD\"}");
    expect_error_body(QD_UNAVAILABLE, "full", "{\"error\":\"full\"}");
    cr_assert_eq(answer.http_status, 503);
    expect_error_body(QD_NOT_OFFERED, "off", "{\"error\":\"off\"}");
    cr_assert_eq(answer.http_status, 503);
}

Test(oip_encode, errors_need_no_memory)
{
    struct scratch none;
    scratch_init(&none, 0);
    qd_fail(&error, QD_TOO_LARGE, "no memory for it");
    qd_oip_encode_error(&error, &none.arena, &answer);
    char *joined = join_parts(answer.parts, answer.part_count);
    cr_assert_str_eq(joined, "{\"error\":\"no memory to say what went wrong\"}");
    cr_assert_eq(answer.bytes, strlen(joined));
    cr_assert_eq(answer.http_status, 413);
    free(joined);
    scratch_deinit(&none);
}

/* ---- Texts from the registry ------------------------------------------------------------- */

static struct qd_text text;
static struct qd_builtin builtin;

static cJSON *parse_text(void)
{
    cr_assert_not(text.failed);
    char *joined = join_parts(text.parts, text.part_count);
    cJSON *json = cJSON_Parse(joined);
    cr_assert_not_null(json, "%s", joined);
    free(joined);
    return json;
}

static const cJSON *at(const cJSON *json, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);
    cr_assert_not_null(value, "%s", key);
    return value;
}

static const char *string_at(const cJSON *json, const char *key)
{
    const char *string = cJSON_GetStringValue(at(json, key));
    cr_assert_not_null(string, "%s", key);
    return string;
}

Test(oip_encode, server_metadata)
{
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_server_metadata(&text, NULL, NULL);
    cJSON *json = parse_text();
    cr_assert_str_eq(string_at(json, "name"), "quantd");
    cr_assert_gt(strlen(string_at(json, "version")), 0);
    const cJSON *extension;
    cr_assert(cJSON_IsArray(at(json, "extensions")));
    cJSON_ArrayForEach(extension, at(json, "extensions"))
    {
        cr_assert(cJSON_IsString(extension));
    }
    cJSON_Delete(json);
}

Test(oip_encode, server_properties)
{
    struct qd_config config;
    char *const arguments[] = {"quantd", "--threads", "3", "--idle-timeout", "1.5", "--no-console"};
    cr_assert_eq(qd_config_parse(&config, 6, arguments, &error), QD_CONFIG_RUN);
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_server_metadata(&text, &config, "a \"CPU\"\nof lines");
    cJSON *json = parse_text();
    const cJSON *properties = at(json, "properties");
    cr_assert_str_eq(string_at(properties, "kernels"), "a \"CPU\"\nof lines");
    cr_assert_str_eq(string_at(properties, "threads"), "3");
    cr_assert_str_eq(string_at(properties, "max-body-bytes"), "268435456");
    cr_assert_str_eq(string_at(properties, "idle-timeout"), "1.5");
    cr_assert_str_eq(string_at(properties, "console"), "off");
    cr_assert_str_eq(string_at(properties, "model-control-mode"), "none");
    cr_assert_not(cJSON_HasObjectItem(properties, "token-file"));
    cJSON_Delete(json);
}

/* Clients compute with the sizes of these types and know no others (perf_analyzer). */
static bool is_oip_type(const char *name)
{
    static const char *const names[] = {"UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32",
                                        "INT64", "FP16", "BF16",   "FP32",  "BOOL"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Checks what OIP clients read without checks: names, one datatype, rank 1. */
static void expect_tensors(const cJSON *tensors, const struct qk_port *ports, size_t count)
{
    cr_assert_eq((size_t)cJSON_GetArraySize(tensors), count);
    const cJSON *tensor = tensors->child;
    for (size_t i = 0; i < count; i++, tensor = tensor->next) {
        cr_assert_str_eq(string_at(tensor, "name"), ports[i].name);
        cr_assert(is_oip_type(string_at(tensor, "datatype")), "%s", ports[i].name);
        cr_assert_eq(cJSON_GetArraySize(at(tensor, "shape")), 1);
        cr_assert_eq(at(tensor, "shape")->child->valueint, -1);
    }
}

/* Encodes the metadata of version `row`. If `row` is NULL, encodes the newest, and lists all
 * versions. */
static void encode_metadata(const struct qk_operator *op, const struct qk_version *row)
{
    uint64_t versions[32];
    size_t count = 0;
    for (; row == NULL && count < op->version_count; count++)
        versions[count] = op->versions[count].number;
    if (row != NULL)
        versions[count++] = row->number;
    qd_builtin_init(&builtin, op, row == NULL ? &op->versions[op->version_count - 1] : row);
    qd_oip_encode_model_metadata(&text, &builtin.signature, versions, count, 0);
}

static void expect_metadata(const struct qk_operator *op, const struct qk_version *row)
{
    qd_text_init(&text, &scratch.arena);
    encode_metadata(op, row);
    cJSON *json = parse_text();
    cr_assert_str_eq(string_at(json, "name"), op->name);
    cr_assert_str_eq(string_at(json, "platform"), op->platform);
    const cJSON *versions = at(json, "versions");
    cr_assert_eq((size_t)cJSON_GetArraySize(versions), row == NULL ? op->version_count : 1);
    const cJSON *version = versions->child;
    for (size_t i = 0; version != NULL; i++, version = version->next) {
        char number[16];
        snprintf(number, sizeof(number), "%u", row == NULL ? op->versions[i].number : row->number);
        cr_assert_str_eq(version->valuestring, number);
    }
    expect_tensors(at(json, "inputs"), op->inputs, builtin.signature.input_count);
    expect_tensors(at(json, "outputs"), op->outputs, op->output_count);
    const cJSON *property;
    cJSON_ArrayForEach(property, at(json, "properties"))
    {
        cr_assert(cJSON_IsString(property), "%s", property->string);
    }
    unsigned number = row == NULL ? op->versions[op->version_count - 1].number : row->number;
    for (size_t i = 0; i < op->attribute_count; i++) {
        char key[64];
        snprintf(key, sizeof(key), "parameters.%s", op->attributes[i].name);
        cr_assert_eq(cJSON_HasObjectItem(at(json, "properties"), key),
                     op->attributes[i].since <= number, "%s", key);
    }
    cJSON_Delete(json);
}

static void expect_config(const struct qk_operator *op, const struct qk_version *row)
{
    qd_text_init(&text, &scratch.arena);
    qd_builtin_init(&builtin, op, row == NULL ? &op->versions[op->version_count - 1] : row);
    qd_oip_encode_model_config(&text, &builtin.signature);
    cJSON *json = parse_text();
    cr_assert_str_eq(string_at(json, "name"), op->name);
    cr_assert(cJSON_IsNumber(at(json, "max_batch_size")));
    const size_t input_count = builtin.signature.input_count;
    cr_assert_eq((size_t)cJSON_GetArraySize(at(json, "input")), input_count);
    const cJSON *input = at(json, "input")->child;
    const struct qk_version *shown = row == NULL ? &op->versions[op->version_count - 1] : row;
    for (size_t i = 0; i < input_count; i++, input = input->next) {
        cr_assert_str_eq(string_at(input, "name"), op->inputs[i].name);
        cr_assert_eq(strncmp(string_at(input, "data_type"), "TYPE_", 5), 0);
        cr_assert(is_oip_type(string_at(input, "data_type") + 5));
        cr_assert(cJSON_IsFalse(at(input, "is_shape_tensor")));
        cr_assert_eq(cJSON_IsTrue(at(input, "optional")), shown->inputs[i].optional);
    }
    cr_assert_str_eq(string_at(at(json, "output")->child, "name"), op->outputs[0].name);
    cr_assert(cJSON_IsFalse(at(at(json, "output")->child, "is_shape_tensor")));
    cJSON_Delete(json);
}

Test(oip_encode, metadata_and_config_of_every_version)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        expect_metadata(ops[i], NULL);
        expect_config(ops[i], NULL);
        for (size_t j = 0; j < ops[i]->version_count; j++) {
            expect_metadata(ops[i], &ops[i]->versions[j]);
            expect_config(ops[i], &ops[i]->versions[j]);
        }
    }
}

static void expect_property(const cJSON *properties, const char *key, const char *wanted)
{
    cr_assert_str_eq(string_at(properties, key), wanted, "%s", key);
}

Test(oip_encode, properties_say_what_a_version_takes)
{
    const struct qk_operator *op = qk_operator_by_name("onnx.DequantizeLinear");
    qd_text_init(&text, &scratch.arena);
    encode_metadata(op, qk_operator_version(op, 19));
    cJSON *json = parse_text();
    const cJSON *properties = at(json, "properties");
    expect_property(properties, "x.types",
                    "UINT8, INT8, INT32, FP8E4M3FN, FP8E4M3FNUZ, FP8E5M2, FP8E5M2FNUZ");
    expect_property(properties, "x_scale.types", "FP16, BF16, FP32");
    expect_property(properties, "x_zero_point.optional", "true");
    expect_property(properties, "y.types", "FP16, BF16, FP32");
    cr_assert_eq(strncmp(string_at(properties, "parameters.axis"), "integer: ", 9), 0);
    cr_assert_not(cJSON_HasObjectItem(properties, "parameters.block_size"));
    cJSON_Delete(json);
}

/* The text of an attribute is complete, and begins with its kind. */
Test(oip_encode, properties_have_every_attribute)
{
    static const char *const kinds[] = {
        "integer: ", "integers: ",      "number: ",
        "string: ",  "true or false: ", "datatype, by name or ONNX number: ",
        "integers: "};
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        qd_text_init(&text, &scratch.arena);
        encode_metadata(ops[i], NULL);
        cJSON *json = parse_text();
        for (size_t j = 0; j < ops[i]->attribute_count; j++) {
            const struct qk_attribute_def *def = &ops[i]->attributes[j];
            char key[64];
            char wanted[512];
            snprintf(key, sizeof(key), "parameters.%s", def->name);
            snprintf(wanted, sizeof(wanted), "%s%s", kinds[def->kind], def->about);
            expect_property(at(json, "properties"), key, wanted);
        }
        cJSON_Delete(json);
    }
}

Test(oip_encode, the_least_that_an_answer_has)
{
    static const struct qd_port ports[] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    static const struct qd_signature three = {.outputs = ports, .output_count = 3};
    struct qk_tensor outputs[] = {{.type = QK_INT8, .count = 1u << 30},
                                  {.type = QK_FP32, .count = 1000},
                                  {.type = QK_INT8, .count = SIZE_MAX / 2 + 1}};
    struct qd_oip_asked asked = {.signature = &three, .outputs = 1, .binary_outputs = 0};
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), (size_t)1 << 31);
    asked.binary_outputs = 1;
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), (size_t)1 << 30);
    asked.outputs = 3;
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), ((size_t)1 << 30) + 2000);
    asked.binary_outputs = 3;
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), ((size_t)1 << 30) + 4000);
    asked.outputs = 7;
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), SIZE_MAX);
    asked.outputs = 0;
    cr_assert_eq(qd_oip_least_answer_bytes(&asked, outputs), 0);
}
