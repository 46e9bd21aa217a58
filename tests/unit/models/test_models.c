/* The table of models: names, versions, which model replaces which, and the index. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "server/base/limits.h"
#include "server/models/repository/repository.h"
#include "server/models/table.h"
#include "tests/support/loaded.h"
#include "tests/unit/scratch.h"

#define DEQUANTIZE "onnx.DequantizeLinear"
#define DIRECTML "directml.ElementWiseDequantizeLinear"

static struct qd_metrics *metrics;
static struct qd_models *models;
static struct qd_memory *memory; /* memory of the loaded models */
static struct graph_case *made;
static struct qd_error error;

static void setup(void)
{
    metrics = qd_metrics_create();
    models = qd_models_create(metrics);
    memory = qd_memory_create(64 << 20);
    made = graph_case_create(1);
    graph_case_output(
        made, graph_case_dequantize(made, graph_case_input(made, QK_UINT8, "2,3"), QK_FP32));
}

/* Checks that the test gave back all memory. */
static void teardown(void)
{
    qd_models_destroy(models);
    cr_assert_eq(qd_memory_used(memory), 0);
    qd_memory_destroy(memory);
    qd_metrics_destroy(metrics); /* asserts that no counter is held */
    graph_case_destroy(made);
}

TestSuite(models, .init = setup, .fini = teardown);

static struct qd_model *make(const char *name, uint64_t version)
{
    return loaded_create(made, made->scalar, memory, name, version);
}

static void install(const char *name, uint64_t version)
{
    struct qd_model *model = make(name, version);
    cr_assert_eq(qd_models_install(models, name, &model, 1, &error), QD_OK, "%s", error.text);
}

static struct qd_model *find(const char *name, const char *version)
{
    struct qd_model *model = NULL;
    cr_assert_eq(qd_models_find(models, name, version, &model, &error), QD_OK, "%s", error.text);
    return model;
}

static void expect_absent(const char *name, const char *version, enum qd_status status,
                          const char *text)
{
    struct qd_model *model;
    cr_assert_eq(qd_models_find(models, name, version, &model, &error), status);
    cr_assert_str_eq(error.text, text);
}

static void expect_index(bool only_ready, const char *wanted)
{
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 1 << 20);
    qd_text_init(&text, &scratch.arena);
    qd_models_print_index(models, only_ready, &text);
    cr_assert_not(text.failed);
    char *printed = join_parts(text.parts, text.part_count);
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    const struct qk_operator *op = ops[count - 1];
    char last[128];
    snprintf(last, sizeof(last), "{\"name\":\"%s\",\"version\":\"%u\",\"state\":\"READY\"}",
             op->name, op->versions[op->version_count - 1].number);
    const char *end = strstr(printed, last);
    cr_assert_not_null(end, "%s", printed);
    cr_assert_str_eq(end + strlen(last), wanted);
    free(printed);
    scratch_deinit(&scratch);
}

/* ---- Built-in models ---------------------------------------------------------------------- */

static uint64_t version_of(const char *name, const char *version)
{
    struct qd_model *model;
    if (qd_models_find(models, name, version, &model, &error) != QD_OK)
        return 0;
    const uint64_t number = model->signature.version;
    cr_assert_str_eq(model->signature.name, name);
    cr_assert_eq(model->signature.row->number, number);
    cr_assert_null(model->graph);
    qd_model_release(model);
    return number;
}

Test(models, versions_of_operators_resolve_downwards)
{
    const struct qk_operator *op = qk_operator_by_name(DEQUANTIZE);
    cr_assert_eq(version_of(DEQUANTIZE, NULL), op->versions[op->version_count - 1].number);
    cr_assert_eq(version_of(DEQUANTIZE, "10"), 10);
    cr_assert_eq(version_of(DEQUANTIZE, "12"), 10);
    cr_assert_eq(version_of(DEQUANTIZE, "13"), 13);
    static const char *const bad[] = {"",   "0",    "9",   "1000", "x",
                                      "-1", "10.0", "1e1", "10 ",  "18446744073709551626"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(version_of(DEQUANTIZE, bad[i]), 0, "%s", bad[i]);
        cr_assert_eq(error.status, QD_NOT_FOUND);
    }
    expect_absent(DEQUANTIZE, "5", QD_NOT_FOUND,
                  "version of model onnx.DequantizeLinear: expected one in service, got \"5\"; the "
                  "versions are 10, 13, 19, 21, 23, 24, 25; another number from 10 to 25 means the "
                  "next lower one");
    expect_absent("onnx.QLinearConv", "9", QD_NOT_FOUND,
                  "version of model onnx.QLinearConv: expected one in service, got \"9\"; the "
                  "versions are 10; another number from 10 to 25 means the next lower one");
    expect_absent("tensorflow.Dequantize", "2", QD_NOT_FOUND,
                  "version of model tensorflow.Dequantize: expected one in service, got \"2\"; the "
                  "versions are 1");
}

Test(models, feature_levels_are_known_one_by_one)
{
    cr_assert_eq(version_of(DIRECTML, "52"), 30);
    expect_absent(
        DIRECTML, "22", QD_NOT_FOUND,
        "version of model directml.ElementWiseDequantizeLinear: expected one in service, "
        "got \"22\"; the versions are 10, 21, 30, 60, 62; 20, 31, 40, 41, 50, 51, 52, 61, "
        "63, 64 mean the next lower one");
}

Test(models, the_index_has_every_version_of_every_operator)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 1 << 20);
    qd_text_init(&text, &scratch.arena);
    qd_models_print_index(models, false, &text);
    char *printed = join_parts(text.parts, text.part_count);
    const char *at = printed;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < ops[i]->version_count; k++) {
            char entry[128];
            int bytes = snprintf(entry, sizeof(entry),
                                 "%c{\"name\":\"%s\",\"version\":\"%u\",\"state\":\"READY\"}",
                                 i + k == 0 ? '[' : ',', ops[i]->name, ops[i]->versions[k].number);
            cr_assert_eq(strncmp(at, entry, (size_t)bytes), 0, "%s at %s", entry, at);
            at += bytes;
        }
    }
    cr_assert_str_eq(at, "]");
    free(printed);
    scratch_deinit(&scratch);
    expect_index(true, "]");
}

/* ---- Names -------------------------------------------------------------------------------- */

Test(models, names)
{
    char long_name[QD_MODEL_NAME_BYTES_MAX + 2];
    static const char *const good[] = {
        "a",       "A-b_c.1", "onnx",   "onnxy.a",    "...", "a b'",  "\u00e9",       "tensorflow",
        "a\u00a0", "\u2027",  "\u202f", "\U0001f600", "com", "com.a", "com.microsoft"};
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "a/b",
                                      "a\nb",
                                      "a\x7f",
                                      "\xff",
                                      "a\xc3",
                                      "onnx.a",
                                      "onnx.QLinearConv",
                                      "com.microsoft.QLinearAdd",
                                      "com.microsoft.x",
                                      "directml.",
                                      "tensorflow.x",
                                      "a\"b",
                                      "a\\b",
                                      "stats",
                                      "a\u202eb",
                                      "a\u2028",
                                      "\u2069a",
                                      "a\xc2\x9b"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_assert_eq(qd_model_check_name(good[i], &error), QD_OK, "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(qd_model_check_name(bad[i], &error), QD_INVALID, "%s", bad[i]);
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    cr_assert_eq(qd_model_check_name(long_name, &error), QD_INVALID);
    long_name[QD_MODEL_NAME_BYTES_MAX] = '\0';
    cr_assert_eq(qd_model_check_name(long_name, &error), QD_OK);
    cr_assert_eq(qd_model_check_name("onnx.a", &error), QD_INVALID);
    cr_assert_str_eq(error.text, "the model's name: expected one that does not begin as those of "
                                 "the operators do, got \"onnx.a\"");
}

Test(models, many_names_in_any_order)
{
    enum { COUNT = 100 };
    char name[16];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "m%zu", i * 37 % COUNT);
        install(name, 1 + i);
    }
    cr_assert_eq(qd_models_loaded_count(models), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "m%zu", i * 37 % COUNT);
        struct qd_model *model = find(name, NULL);
        cr_assert_eq(model->signature.version, 1 + i);
        qd_model_release(model);
        if (i % 2 == 0)
            cr_assert(qd_models_remove(models, name));
        if (i % 4 == 0)
            qd_models_forget(models, name);
    }
    cr_assert_eq(qd_models_loaded_count(models), COUNT / 2);
    for (size_t i = 0; i < COUNT; i++) {
        struct qd_model *model;
        snprintf(name, sizeof(name), "m%zu", i * 37 % COUNT);
        error.text[0] = '\0';
        enum qd_status status = qd_models_find(models, name, NULL, &model, &error);
        cr_assert_eq(status, i % 2 == 0 ? QD_NOT_FOUND : QD_OK);
        cr_assert_eq(strstr(error.text, "; the models are ") != NULL, i % 4 == 0);
        if (status == QD_OK)
            qd_model_release(model);
        else
            cr_assert_eq(qd_models_remove(models, name), false);
    }
}

/* A name with a slip in it, or an operator without its domain, is told the right name. */
Test(models, an_unknown_name_is_told_a_near_one)
{
    static const struct {
        const char *given, *near;
    } cases[] = {
        {"onnx.QLinearConf", "onnx.QLinearConv"},
        {"qlinearconv", "onnx.QLinearConv"},
        {"ONNX.QLinerConv", "onnx.QLinearConv"},
        {"mobilnet", "mobilenet"},
        {"mobilenett2", "mobilenet"},
        {"mobile", NULL},
        {"", NULL},
        {"mobilenet/../../x", NULL},
    };
    install("mobilenet", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[128] = "model: expected one in service, got ";
        struct qd_model *model;
        if (cases[i].near != NULL)
            snprintf(text, sizeof(text),
                     "model: expected one in service, such as \"%s\", got \"%s\";", cases[i].near,
                     cases[i].given);
        cr_assert_eq(qd_models_find(models, cases[i].given, NULL, &model, &error), QD_NOT_FOUND);
        cr_expect_eq(strncmp(error.text, text, strlen(text)), 0, "%s", error.text);
    }
}

/* Some operators, and as many loaded models as fit into the text. No name is cut in two. */
Test(models, an_unknown_name_is_told_the_others)
{
    char name[64];
    expect_absent(
        "nope", NULL, QD_NOT_FOUND,
        "model: expected one in service, got \"nope\"; the models are onnx.DequantizeLinear, "
        "onnx.QuantizeLinear, onnx.QLinearConv, directml.ElementWiseDequantizeLinear, "
        "tensorflow.Dequantize, ...");
    for (unsigned i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "a model whose name is rather long, number %u", i);
        install(name, 1);
    }
    expect_absent(
        "nope", NULL, QD_NOT_FOUND,
        "model: expected one in service, got \"nope\"; the models are onnx.DequantizeLinear, "
        "onnx.QuantizeLinear, onnx.QLinearConv, directml.ElementWiseDequantizeLinear, "
        "tensorflow.Dequantize, ..., a model whose name is rather long, number 0, "
        "a model whose name is rather long, number 1, "
        "a model whose name is rather long, number 2, "
        "a model whose name is rather long, number 3");
    install("another model with a name that is rather long", 1);
    expect_absent(
        "nope", NULL, QD_NOT_FOUND,
        "model: expected one in service, got \"nope\"; the models are onnx.DequantizeLinear, "
        "onnx.QuantizeLinear, onnx.QLinearConv, directml.ElementWiseDequantizeLinear, "
        "tensorflow.Dequantize, ..., a model whose name is rather long, number 0, "
        "a model whose name is rather long, number 1, "
        "a model whose name is rather long, number 2, "
        "a model whose name is rather long, number 3, ...");
}

/* The bound counts versions: those of one name, and those that still run. */
Test(models, no_more_than_the_bound)
{
    char name[16];
    install("m", 1);
    struct qd_model *held = find("m", NULL);
    for (unsigned i = 1; i < QD_LOADED_VERSION_COUNT_MAX; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        install(name, 1);
    }
    struct qd_model *pair[] = {make("more", 1), make("more", 2)};
    cr_assert_eq(qd_models_install(models, "more", pair, 2, &error), QD_UNAVAILABLE);
    cr_assert_str_eq(error.text, "the loaded models: expected at most 1024 versions of all names "
                                 "together, got 1026 with \"more\"; unload some");
    cr_assert_eq(qd_models_has(models, "more"), false);
    cr_assert(qd_models_remove(models, "m1"));
    cr_assert(qd_models_remove(models, "m"));
    cr_assert_eq(qd_models_try_room(models, "more", 2, &error), QD_UNAVAILABLE);
    qd_model_release(held);
    cr_assert_eq(qd_models_install(models, "more", pair, 2, &error), QD_OK, "%s", error.text);
    cr_assert_eq(qd_models_try_room(models, "m2", 1, &error), QD_OK); /* it takes its own place */
    cr_assert_eq(qd_models_try_room(models, "m2", 2, &error), QD_UNAVAILABLE);
    cr_assert_eq(qd_models_loaded_count(models), QD_LOADED_VERSION_COUNT_MAX);
}

/* ---- In and out of service ---------------------------------------------------------------- */

static uint64_t version_of_loaded(const char *version)
{
    struct qd_model *model = find("m", version);
    const uint64_t number = model->signature.version;
    qd_model_release(model);
    return number;
}

Test(models, versions_of_a_loaded_one_are_exact)
{
    struct qd_model *all[] = {make("m", 7), make("m", 2), make("m", 18446744073709551615U)};
    size_t count;
    cr_assert_eq(qd_models_install(models, "m", all, 3, &error), QD_OK, "%s", error.text);
    struct scratch scratch;
    scratch_init(&scratch, 1 << 20);
    const uint64_t *versions = qd_models_versions(models, "m", &scratch.arena, &count);
    cr_assert_not_null(versions);
    cr_assert_eq(count, 3);
    cr_assert_eq(versions[0], 2);
    cr_assert_eq(versions[1], 7);
    cr_assert_eq(versions[2], 18446744073709551615U);
    scratch_deinit(&scratch);
    cr_assert(qd_models_has(models, "m"));
    cr_assert_not(qd_models_has(models, "n"));
    cr_assert_eq(version_of_loaded("2"), 2);
    cr_assert_eq(version_of_loaded("7"), 7);
    cr_assert_eq(version_of_loaded(NULL), 18446744073709551615U);
    expect_absent("m", "3", QD_NOT_FOUND,
                  "version of model m: expected one in service, got \"3\"; the versions are 2, 7, "
                  "18446744073709551615");
    expect_index(false,
                 ",{\"name\":\"m\",\"version\":\"2\",\"state\":\"READY\"},"
                 "{\"name\":\"m\",\"version\":\"7\",\"state\":\"READY\"},"
                 "{\"name\":\"m\",\"version\":\"18446744073709551615\",\"state\":\"READY\"}]");
}

Test(models, a_long_list_of_versions_says_that_it_is_cut)
{
    enum { COUNT = 64 };
    struct qd_model *all[COUNT];
    struct qd_model *model;
    for (size_t i = 0; i < COUNT; i++)
        all[i] = make("m", 10000000 + i);
    cr_assert_eq(qd_models_install(models, "m", all, COUNT, &error), QD_OK, "%s", error.text);
    cr_assert_eq(qd_models_find(models, "m", "3", &model, &error), QD_NOT_FOUND);
    const size_t length = strlen(error.text);
    cr_assert_str_eq(error.text + length - strlen(", 10000029, 10000030, ..."),
                     ", 10000029, 10000030, ...");
}

Test(models, requests_keep_what_was_replaced)
{
    install("m", 1);
    struct qd_model *first = find("m", NULL);
    struct qd_model *again = find("m", "1");
    cr_assert_eq(first, again);
    struct qd_counters *counters = first->counters;
    install("m", 1);
    struct qd_model *second = find("m", NULL);
    cr_assert_neq(first, second);
    cr_assert_eq(second->counters, counters); /* counters outlive a reload */
    cr_assert_eq(qd_models_loaded_count(models), 2);
    qd_model_release(again);
    cr_assert_str_eq(first->signature.name, "m");
    cr_assert_eq(first->graph->node_count, 1);
    const size_t used = qd_memory_used(memory);
    qd_model_release(first);
    cr_assert_lt(qd_memory_used(memory), used);
    cr_assert_eq(qd_models_loaded_count(models), 1);
    qd_model_release(second);
    cr_assert_eq(qd_models_loaded_count(models), 1);
}

Test(models, a_removed_one_ends_with_its_last_request)
{
    install("m", 3);
    struct qd_model *held = find("m", NULL);
    cr_assert(qd_models_remove(models, "m"));
    cr_assert_not(qd_models_remove(models, "m"));
    cr_assert_not(qd_models_remove(models, "n"));
    cr_assert_not(qd_models_remove(models, DEQUANTIZE));
    expect_absent("m", NULL, QD_NOT_FOUND, "model: expected one in service, got \"m\": unloaded");
    expect_index(false, ",{\"name\":\"m\",\"version\":\"3\",\"state\":\"UNLOADING\"}]");
    expect_index(true, "]");
    cr_assert_gt(qd_memory_used(memory), 0);
    qd_model_release(held);
    cr_assert_eq(qd_memory_used(memory), 0);
    expect_index(false, ",{\"name\":\"m\",\"version\":\"3\",\"state\":\"UNAVAILABLE\","
                        "\"reason\":\"unloaded\"}]");
    qd_models_forget(models, "m");
    expect_index(false, "]");
    qd_models_forget(models, "m");
}

Test(models, one_that_still_runs_is_forgotten_with_its_last_request)
{
    install("m", 3);
    struct qd_model *held = find("m", NULL);
    cr_assert(qd_models_remove(models, "m"));
    qd_models_forget(models, "m");
    expect_index(false, ",{\"name\":\"m\",\"version\":\"3\",\"state\":\"UNLOADING\"}]");
    qd_model_release(held);
    expect_index(false, "]");
    install("m", 4); /* once more, but now the model is loaded again before that */
    held = find("m", NULL);
    cr_assert(qd_models_remove(models, "m"));
    qd_models_forget(models, "m");
    install("m", 5);
    qd_model_release(held);
    qd_models_forget(models, "n");
    expect_index(false, ",{\"name\":\"m\",\"version\":\"5\",\"state\":\"READY\"}]");
}

/* If there are too many, the oldest is forgotten. A model that comes back later counts from 0. */
Test(models, names_without_a_model_are_kept_for_a_while)
{
    char name[16];
    install("m", 3);
    cr_assert(qd_models_remove(models, "m"));
    qd_models_shelve(models, "m");
    expect_index(false, ",{\"name\":\"m\",\"version\":\"3\",\"state\":\"UNAVAILABLE\","
                        "\"reason\":\"unloaded\"}]");
    for (int i = 1; i <= QD_MODELS_SHELVED_MAX; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        cr_assert(qd_models_note(models, name, QD_MODEL_UNAVAILABLE, "bad"));
        qd_models_shelve(models, name);
        if (i == 1) {
            install("served", 1);
            qd_models_shelve(models, "served");
            qd_models_shelve(models, "nobody");
            cr_assert(qd_models_note(models, "m", QD_MODEL_UNAVAILABLE, "again"));
            qd_models_shelve(models, "m");
        }
    }
    expect_absent("m", NULL, QD_NOT_FOUND, "model: expected one in service, got \"m\": again");
    expect_absent("n2", NULL, QD_NOT_FOUND, "model: expected one in service, got \"n2\": bad");
    struct qd_model *model;
    cr_assert_eq(qd_models_find(models, "n1", NULL, &model, &error), QD_NOT_FOUND);
    cr_assert_not_null(strstr(error.text, "; the models are "), "%s", error.text);
    qd_model_release(find("served", NULL));
}

Test(models, what_loads_say)
{
    cr_assert(qd_models_note(models, "m", QD_MODEL_LOADING, ""));
    expect_absent("m", NULL, QD_UNAVAILABLE, "model \"m\" is being loaded; try again later");
    expect_index(false, ",{\"name\":\"m\",\"state\":\"LOADING\"}]");
    cr_assert(qd_models_note(models, "m", QD_MODEL_UNAVAILABLE, "no \"file\""));
    expect_absent("m", NULL, QD_NOT_FOUND,
                  "model: expected one in service, got \"m\": no \"file\"");
    expect_index(false,
                 ",{\"name\":\"m\",\"state\":\"UNAVAILABLE\",\"reason\":\"no \\\"file\\\"\"}]");
    install("m", 1);
    expect_index(false, ",{\"name\":\"m\",\"version\":\"1\",\"state\":\"READY\"}]");
    cr_assert(qd_models_note(models, "m", QD_MODEL_LOADING, ""));
    qd_model_release(find("m", NULL));
    expect_index(true, ",{\"name\":\"m\",\"version\":\"1\",\"state\":\"READY\"}]");
    cr_assert(qd_models_note(models, "m", QD_MODEL_UNAVAILABLE, "broken"));
    qd_model_release(find("m", NULL));
    expect_index(false, ",{\"name\":\"m\",\"version\":\"1\",\"state\":\"READY\","
                        "\"reason\":\"still in service, because a newer load failed: broken\"}]");
}

/* A model that was loaded but never put into service. */
Test(models, one_that_never_served)
{
    struct qd_model *model = make("m", 1);
    cr_assert_null(model->counters);
    cr_assert_gt(model->resident_bytes, 0);
    qd_model_release(model);
    qd_model_release(NULL);
}
