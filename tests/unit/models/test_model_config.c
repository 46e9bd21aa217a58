#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/models/model_config.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_model_config config;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(model_config, .init = setup, .fini = teardown);

static enum qd_status read_config(const char *json)
{
    return qd_model_config_read(json, strlen(json), true, "config", "layer", &scratch.arena,
                                &config, &error);
}

static void expect_read(const char *json)
{
    cr_assert_eq(read_config(json), QD_OK, "%s: %s", json, error.text);
}

static void expect_error(const char *json, const char *text)
{
    cr_assert_eq(read_config(json), QD_INVALID, "%s", json);
    cr_assert_str_eq(error.text, text);
}

Test(model_config, takes_what_has_no_effect)
{
    static const char *const cases[] = {
        "{}",
        "{\"backend\":\"onnxruntime\"}",
        "{\"name\":\"layer\",\"platform\":\"onnxruntime_onnx\",\"backend\":\"\"}",
        "{\"name\":\"\",\"backend\":null}",
        "{\"instance_group\":[{\"kind\":\"KIND_CPU\",\"count\":2},{\"kind\":\"KIND_AUTO\","
        "\"gpus\":[]}]}",
        "{\"optimization\":{\"execution_accelerators\":{}},\"parameters\":{\"a\":{\"string_value\":"
        "\"b\"}},\"model_warmup\":[{}],\"metric_tags\":{},\"dynamic_batching\":{}}",
        "{\"model_transaction_policy\":{\"decoupled\":false},\"response_cache\":{\"enable\":true}}",
        "{\"default_model_filename\":\"model_int8.onnx\",\"cc_model_filenames\":{}}",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        expect_read(cases[i]);
        cr_assert_eq(config.policy, QD_POLICY_LATEST);
        cr_assert_eq(config.latest_count, 1);
        cr_assert_eq(config.batch_max + config.input_count + config.output_count, 0);
    }
}

Test(model_config, cuts)
{
    expect_read("{\"inputs\":[\"b\",\"a\"],\"outputs\":[\"y\"],\"input\":[]}");
    cr_assert_eq(config.cut.input_count, 2);
    cr_assert_str_eq(config.cut.inputs[0], "b");
    cr_assert_str_eq(config.cut.inputs[1], "a");
    cr_assert_eq(config.cut.output_count, 1);
    cr_assert_str_eq(config.cut.outputs[0], "y");
    cr_assert_eq(config.input_count, 0);
    expect_read("{\"inputs\":null}");
    cr_assert_eq(config.cut.input_count, 0);

    expect_error(
        "{\"inputs\":[]}",
        "config: inputs: expected an array of names of values in the ONNX file, got an array");
    expect_error("{\"outputs\":\"y\"}", "config: outputs: expected an array of names of values in "
                                        "the ONNX file, got \"y\"");
    expect_error("{\"outputs\":[\"x\",{\"name\":\"y\"}]}",
                 "config: outputs[1]: expected the name of a value in the ONNX file, got an "
                 "object");
    expect_error("{\"outputs\":[\"\"]}",
                 "config: outputs[0]: expected the name of a value in the ONNX file, got \"\"");
    expect_error("{\"outputs\":[\"x\",\"y\",\"x\"]}",
                 "config: outputs[2]: expected each name once, got \"x\" twice");
    expect_error("{\"outputs\":[\"x\"],\"outputs\":[\"y\"]}",
                 "config: outputs: expected once, got twice");
}

/* Checks that a configuration fails whose list has the numbers from 1 to `count`, each between two
 * `quote`s. `begin` and `end` are the text around the list. */
static void expect_too_long(const char *begin, const char *quote, unsigned count, const char *end,
                            const char *wanted)
{
    char json[QD_CONFIG_VERSION_COUNT_MAX * 8];
    size_t used = (size_t)snprintf(json, sizeof(json), "%s", begin);
    for (unsigned i = 1; i <= count; i++) {
        cr_assert_lt(used, sizeof(json));
        used += (size_t)snprintf(json + used, sizeof(json) - used, "%s%u%s%s", quote, i, quote,
                                 i < count ? "," : end);
    }
    cr_assert_lt(used, sizeof(json));
    expect_error(json, wanted);
}

Test(model_config, lists_have_bounds)
{
    char wanted[128];
    snprintf(wanted, sizeof(wanted),
             "config: version_policy.specific.versions: expected at most %d versions, got more",
             QD_CONFIG_VERSION_COUNT_MAX);
    expect_too_long("{\"version_policy\":{\"specific\":{\"versions\":[", "",
                    QD_CONFIG_VERSION_COUNT_MAX + 1, "]}}}", wanted);
    expect_too_long("{\"input\":[{\"name\":\"x\",\"dims\":[", "", 32, "]}]}",
                    "config: input[0].dims: expected at most 31 dimensions, got more");
    expect_too_long("{\"inputs\":[", "\"", 33, "]}",
                    "config: inputs: expected at most 32 names, got more");
}

Test(model_config, refuses_what_it_does_not_do)
{
    static const char *const cases[][2] = {
        {"[]", "config: the configuration: expected an object, got an array"},
        {"{", "config: malformed JSON at byte 1: expected a key or '}', got the end of the JSON"},
        {"{\"nme\":\"layer\"}",
         "config: \"nme\" is no key of Triton's model configuration, or one that is not known "
         "here"},
        {"{\"input\":[{\"nme\":1}]}",
         "config: input[0].\"nme\" is no key of Triton's model configuration, or one that is not "
         "known here"},
        {"{\"name\":\"other\"}", "config: name: expected \"layer\", got \"other\""},
        {"{\"backend\":\"python\"}",
         "config: backend: expected \"onnxruntime\" or \"quantd\" or \"\", got \"python\""},
        {"{\"ensemble_scheduling\":{}}", "config: ensemble_scheduling: expected no such key, got "
                                         "an object; this server does not support it"},
        {"{\"sequence_batching\":{}}", "config: sequence_batching: expected no such key, got an "
                                       "object; this server does not support it"},
        {"{\"sequenceBatching\":{}}", "config: sequence_batching: expected no such key, got an "
                                      "object; this server does not support it"},
        {"{\"model_transaction_policy\":{\"decoupled\":true}}",
         "config: model_transaction_policy.decoupled: expected no such key, got true; this server "
         "does not support it"},
        {"{\"instance_group\":[{\"kind\":\"KIND_GPU\"}]}",
         "config: instance_group[0].kind: expected \"KIND_CPU\" or \"KIND_AUTO\", got "
         "\"KIND_GPU\""},
        {"{\"max_batch_size\":-1}", "config: max_batch_size: expected an integer >= 0, got -1"},
        {"{\"max_batch_size\":1,\"maxBatchSize\":1}",
         "config: max_batch_size: expected once, got twice"},
        {"{\"version_policy\":{\"all\":{},\"latest\":{}}}",
         "config: version_policy: expected one of latest, all and specific, got an object"},
        {"{\"version_policy\":{\"latest\":{\"num_versions\":0}}}",
         "config: version_policy.latest.num_versions: expected an integer >= 1, got 0"},
        {"{\"version_policy\":{\"latest\":{\"num_versions\":-1}}}",
         "config: version_policy.latest.num_versions: expected an integer >= 1, got -1"},
        {"{\"version_policy\":{\"specific\":{\"versions\":[]}}}",
         "config: version_policy.specific.versions: expected a version, got none"},
        {"{\"version_policy\":{\"specific\":{\"versions\":[0]}}}",
         "config: version_policy.specific.versions: expected integers > 0, got 0"},
        {"{\"version_policy\":{\"specific\":{}}}",
         "config: version_policy.specific: expected versions in it, got an object"},
        {"{\"input\":{}}", "config: input: expected an array, got an object"},
        {"{\"input\":[{}]}", "config: input[0].name: expected a string, got none"},
        {"{\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_STRING\"}]}",
         "config: input[0].data_type: expected a datatype such as TYPE_UINT8 that operators here "
         "take, got \"TYPE_STRING\""},
        {"{\"input\":[{\"name\":\"x\",\"dims\":[-2]}]}",
         "config: input[0].dims: expected integers >= 0, or -1 where any will do, got -2"},
        {"{\"input\":[{\"name\":\"x\",\"reshape\":{\"shape\":[]}}]}",
         "config: input[0].reshape: expected no such key, got an object; this server does not "
         "support it"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_error(cases[i][0], cases[i][1]);
}

static void expect_wanted(const char *json, unsigned wanted)
{
    static const uint64_t versions[] = {1, 3, 7, 20};
    expect_read(json);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(qd_model_config_wants(&config, versions, 4, i), wanted >> i & 1, "%s: %zu",
                     json, i);
}

Test(model_config, chooses_versions)
{
    static const uint64_t versions[] = {1, 3, 7, 20};
    expect_wanted("{}", 8);
    expect_wanted("{\"version_policy\":{\"latest\":{\"num_versions\":3}}}", 14);
    expect_wanted("{\"versionPolicy\":{\"latest\":{\"numVersions\":\"9\"}}}", 15);
    expect_wanted("{\"version_policy\":{\"all\":{}}}", 15);
    expect_wanted("{\"version_policy\":{\"specific\":{\"versions\":[3,\"20\"]}}}", 10);
    cr_assert_eq(qd_model_config_misses(&config, versions, 4), 0);
    expect_wanted("{\"version_policy\":{\"specific\":{\"versions\":[3,2]}}}", 2);
    cr_assert_eq(qd_model_config_misses(&config, versions, 4), 2);
}

static struct qd_port input, output;

static enum qd_status apply(const char *json)
{
    input = (struct qd_port){.name = "x",
                             .types = QK_BIT(QK_UINT8),
                             .shaped = true,
                             .rank = 3,
                             .dims = {QD_DIM_FREE, 3, QD_DIM_FREE}};
    output = (struct qd_port){.name = "y", .types = QK_BIT(QK_FP32)};
    expect_read(json);
    return qd_model_config_apply(&config, &input, 1, &output, 1, &error);
}

static void expect_clash(const char *json, const char *text)
{
    cr_assert_eq(apply(json), QD_INVALID, "%s", json);
    cr_assert_str_eq(error.text, text);
}

Test(model_config, narrows_what_is_free)
{
    cr_assert_eq(apply("{}"), QD_OK);
    cr_assert_eq(apply("{\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_UINT8\",\"dims\":[-1,3,"
                       "\"8\"]}],\"output\":[{\"name\":\"y\",\"dims\":[4]}]}"),
                 QD_OK, "%s", error.text);
    cr_assert_eq(input.dims[0], QD_DIM_FREE);
    cr_assert_eq(input.dims[2], 8);
    cr_assert(output.shaped && output.rank == 1 && output.dims[0] == 4);
    cr_assert_eq(apply("{\"max_batch_size\":4,\"input\":[{\"name\":\"x\",\"dims\":[3,8]}]}"), QD_OK,
                 "%s", error.text);
    cr_assert(input.dims[0] == QD_DIM_FREE && input.dims[1] == 3 && input.dims[2] == 8);
}

Test(model_config, names_what_does_not_agree)
{
    expect_clash("{\"input\":[{\"name\":\"z\"}]}",
                 "the configuration's input: expected the name of one of the model's, got \"z\"");
    expect_clash("{\"input\":[{\"name\":\"x\"},{\"name\":\"x\"}]}",
                 "the configuration's input \"x\": expected once, got twice");
    expect_clash("{\"output\":[{\"name\":\"y\",\"data_type\":\"TYPE_FP16\"}]}",
                 "the configuration's output \"y\": data_type: expected TYPE_FP32, as the model "
                 "has it, got TYPE_FP16");
    expect_clash("{\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_INT64\"}]}",
                 "the configuration's input \"x\": data_type: expected TYPE_UINT8, as the model "
                 "has it, got TYPE_INT64");
    expect_clash("{\"output\":[{\"name\":\"y\",\"data_type\":\"TYPE_BOOL\"}]}",
                 "the configuration's output \"y\": data_type: expected TYPE_FP32, as the model "
                 "has it, got TYPE_BOOL");
    expect_clash("{\"input\":[{\"name\":\"x\",\"dims\":[3,8]}]}",
                 "the configuration's input \"x\": expected 3 dimensions, for the model's "
                 "[-1,3,-1], got 2");
    expect_clash("{\"input\":[{\"name\":\"x\",\"dims\":[-1,4,8]}]}",
                 "the configuration's input \"x\": dims[1]: expected 3, as the model has it, got "
                 "4");
    expect_clash("{\"input\":[{\"name\":\"x\",\"dims\":[-1,-1,8]}]}",
                 "the configuration's input \"x\": dims[1]: expected 3, as the model has it, got "
                 "-1");
    input.dims[0] = 1;
    cr_assert_eq(read_config("{\"max_batch_size\":4}"), QD_OK);
    cr_assert_eq(qd_model_config_apply(&config, &input, 1, &output, 1, &error), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "the configuration's max_batch_size: expected 0, as the first dimension of "
                     "the input \"x\", [1,3,-1], is not free");
}
