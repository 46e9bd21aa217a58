/* Runs every example of api_schema/examples and tests/data/examples.jsonl through decode, create,
 * plan, run and encode. */
#include <criterion/criterion.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>

#include "server/models/table.h"
#include "server/oip/decode.h"
#include "tests/support/cases.h"
#include "tests/support/encode.h"
#include "tests/unit/scratch.h"

/* A client's message. */
struct message {
    char *body;
    size_t body_bytes;
    char header[32]; /* Inference-Header-Content-Length; "": none */
};

static struct qk_kernels *kernels;
static struct qd_metrics *metrics;
static struct qd_models *models;

static void setup(void)
{
    struct qk_error error;
    cr_assert_eq(qk_kernels_create("auto", "auto", false, 1, &kernels, &error), QK_OK, "%s",
                 error.text);
    metrics = qd_metrics_create();
    models = qd_models_create(metrics);
}

static void teardown(void)
{
    qd_models_destroy(models);
    qd_metrics_destroy(metrics);
    qk_kernels_destroy(kernels);
}

TestSuite(examples, .init = setup, .fini = teardown);

/* Newer versions of cJSON print -0 as 0, which would change a request with -0. */
static void keep_negative_zeros(cJSON *item)
{
    for (; item != NULL; item = item->next) {
        if (cJSON_IsNumber(item) && item->valuedouble == 0 && signbit(item->valuedouble)) {
            item->type = cJSON_Raw;
            item->valuestring = strdup("-0.0"); /* freed with the tree */
        }
        keep_negative_zeros(item->child);
    }
}

static cJSON *read_example(const char *path)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    static char text[1 << 16];
    size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    cJSON *example = cJSON_ParseWithLength(text, bytes);
    cr_assert_not_null(example, "%s is not JSON", path);
    return example;
}

static const char *string_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static struct message build_message(const cJSON *example)
{
    struct message message = {.header = ""};
    cJSON *request = cJSON_GetObjectItemCaseSensitive(example, "request");
    const char *binary = string_of(example, "binary_hex");
    const char *body = string_of(example, "body");
    const char *body_hex = string_of(example, "body_hex");
    keep_negative_zeros(request == NULL ? NULL : request->child);
    char *printed = request == NULL ? NULL : cJSON_PrintUnformatted(request);
    const char *text = printed != NULL ? printed : body != NULL ? body : "";
    const char *hex = binary != NULL ? binary : body_hex != NULL ? body_hex : "";
    /* There is no NUL after the body, so that the sanitizer sees reads beyond its end. */
    message.body = malloc(strlen(text) + strlen(hex) / 2 + 1);
    memcpy(message.body, text, strlen(text));
    message.body_bytes = strlen(text) + cases_read_hex(hex, message.body + strlen(text));
    message.body = realloc(message.body, message.body_bytes + (message.body_bytes == 0));
    if (binary != NULL)
        snprintf(message.header, sizeof(message.header), "%zu", strlen(text));
    const cJSON *headers = cJSON_GetObjectItemCaseSensitive(example, "headers");
    const char *header = string_of(headers, "Inference-Header-Content-Length");
    if (header != NULL)
        snprintf(message.header, sizeof(message.header), "%s", header);
    cJSON_free(printed);
    return message;
}

static void *take(void *context, size_t bytes)
{
    return qd_arena_alloc(context, bytes);
}

/* Answers a message like the server. */
static enum qd_status answer_message(const struct qd_model *model, const struct message *message,
                                     struct qd_arena *arena, struct qd_answer *answer,
                                     struct qd_error *error)
{
    static struct qd_oip_asked asked;
    struct qd_oip_message oip = {
        .signature = &model->signature, .body = message->body, .body_bytes = message->body_bytes};
    qd_oip_message_set_header(&oip, message->header[0] == '\0' ? NULL : message->header);
    enum qd_status status = qd_oip_decode(&oip, arena, &asked, error);
    if (status != QD_OK)
        return status;
    struct qk_memory memory = {take, arena};
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error refusal;
    if (qk_create(kernels, &asked.call, memory, &instance, &refusal) != QK_OK ||
        qk_plan(instance, asked.call.inputs, memory, &plan, &refusal) != QK_OK) {
        cr_assert_eq(refusal.status, QK_INVALID, "%s", refusal.text);
        return qd_fail(error, QD_INVALID, "%s", refusal.text);
    }
    const void *inputs[QK_INPUT_COUNT_MAX];
    void *outputs[QK_OUTPUT_COUNT_MAX];
    for (size_t i = 0; i < asked.call.op->input_count; i++)
        inputs[i] = asked.call.inputs[i].data;
    for (size_t i = 0; i < plan.output_count; i++)
        plan.outputs[i].data = outputs[i] = qd_arena_alloc(arena, plan.output_bytes[i]);
    qk_run(&plan, inputs, outputs, qd_arena_alloc(arena, plan.workspace_bytes), 0, plan.unit_count);
    uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    return encode_whole(&asked, plan.kernel, plan.outputs, stage_ns, arena, answer, error);
}

/* ---- What came against what was expected -------------------------------------------------- */

static double number_of(const cJSON *item)
{
    const char *word = cJSON_GetStringValue(item);
    if (word == NULL)
        return cJSON_GetNumberValue(item);
    return strcmp(word, "NaN") == 0         ? (double)NAN
           : strcmp(word, "Infinity") == 0  ? (double)INFINITY
           : strcmp(word, "-Infinity") == 0 ? (double)-INFINITY
                                            : 1e300;
}

static bool same_number(double a, double b)
{
    return (isnan(a) && isnan(b)) || ((float)a == (float)b && signbit(a) == signbit(b));
}

static double load(const char *data, const char *datatype, size_t index)
{
    enum qk_type type = qk_type_by_name(datatype);
    if (qk_type_info(type)->kind == QK_KIND_FLOAT)
        return (double)qk_float_decode(type, qk_element_load(type, data, index));
    const double value = qk_element_load(type, data, index);
    const double past = ldexp(1, qk_type_info(type)->bits);
    return value > (double)qk_type_info(type)->max ? value - past : value;
}

static void expect_data(const char *name, const cJSON *wanted, const cJSON *got, const char *blob)
{
    size_t index = 0;
    const cJSON *item;
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(got, "data");
    const cJSON *got_item = data == NULL ? NULL : data->child;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(wanted, "data"))
    {
        double value = NAN;
        if (strcmp(string_of(wanted, "datatype"), "BYTES") == 0) {
            cr_assert(cJSON_Compare(item, got_item, true), "%s: element %zu", name, index++);
            got_item = got_item->next;
            continue;
        }
        if (blob != NULL) {
            value = load(blob, string_of(wanted, "datatype"), index);
        } else {
            cr_assert_not_null(got_item, "%s: too few elements", name);
            value = number_of(got_item);
            got_item = got_item->next;
        }
        cr_assert(same_number(number_of(item), value), "%s: element %zu is %.9g, expected %.9g",
                  name, index, value, number_of(item));
        index++;
    }
    cr_assert_null(got_item, "%s: too many elements", name);
}

static void expect_output(const char *name, const cJSON *expect, const cJSON *answer,
                          const char *blob, size_t blob_bytes)
{
    static const char *const keys[] = {"name", "datatype", "shape"};
    const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(expect, "outputs")->child;
    const cJSON *got = cJSON_GetObjectItemCaseSensitive(answer, "outputs")->child;
    for (size_t i = 0; i < 3; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(got, keys[i]);
        cr_assert(cJSON_Compare(value, cJSON_GetObjectItemCaseSensitive(wanted, keys[i]), true),
                  "%s: %s", name, keys[i]);
    }
    bool binary = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(expect, "binary"));
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(got, "parameters");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(parameters, "binary_data_size");
    cr_assert_eq(parameters != NULL, binary, "%s: parameters of the output", name);
    cr_assert_eq(cJSON_HasObjectItem(got, "data"), !binary, "%s: data of the output", name);
    cr_assert(!binary || (size_t)size->valuedouble == blob_bytes, "%s: binary_data_size", name);
    expect_data(name, wanted, got, binary ? blob : NULL);
}

static void expect_answer(const char *name, const cJSON *expect, const struct qd_answer *answer)
{
    char *joined = join_parts(answer->parts, answer->part_count);
    size_t json_bytes = answer->json_bytes == 0 ? answer->bytes : answer->json_bytes;
    cJSON *json = cJSON_ParseWithLength(joined, json_bytes);
    cr_assert_not_null(json, "%s: %s", name, joined);
    cr_assert_eq(answer->http_status, 200);
    cr_assert_str_eq(answer->content_type,
                     answer->json_bytes == 0 ? "application/json" : "application/octet-stream");
    expect_output(name, expect, json, joined + json_bytes, answer->bytes - json_bytes);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(expect, "id");
    const cJSON *got_id = cJSON_GetObjectItemCaseSensitive(json, "id");
    cr_assert((id == NULL && got_id == NULL) || cJSON_Compare(id, got_id, true), "%s: id", name);
    const char *version = string_of(expect, "model_version");
    cr_assert(version == NULL || strcmp(version, string_of(json, "model_version")) == 0,
              "%s: model_version", name);
    cJSON_Delete(json);
    free(joined);
}

static void expect_refusal(const char *name, const cJSON *expect, const struct qd_error *error)
{
    const cJSON *part;
    double status = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(expect, "status"));
    cr_assert_eq((unsigned)status, qd_status_http(error->status), "%s: %s", name, error->text);
    cr_assert_lt(strlen(error->text), sizeof(error->text) - 1, "%s: text was cut", name);
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(expect, "error_contains"))
    {
        cr_assert_not_null(strstr(error->text, part->valuestring), "%s: \"%s\" is not in: %s", name,
                           part->valuestring, error->text);
    }
}

static void run_example(const char *name, const cJSON *example)
{
    struct scratch scratch;
    struct qd_answer answer;
    struct qd_error error = {.text = ""};
    scratch_init(&scratch, 64u << 20);
    const cJSON *expect = cJSON_GetObjectItemCaseSensitive(example, "expect");
    struct message message = build_message(example);
    struct qd_model *model = NULL;
    enum qd_status status = qd_models_find(models, string_of(example, "model"),
                                           string_of(example, "version"), &model, &error);
    if (status == QD_OK)
        status = answer_message(model, &message, &scratch.arena, &answer, &error);
    qd_model_release(model);
    bool refused = cJSON_HasObjectItem(expect, "error_contains");
    cr_assert_eq(status != QD_OK, refused, "%s: %s", name, error.text);
    if (refused)
        expect_refusal(name, expect, &error);
    else
        expect_answer(name, expect, &answer);
    free(message.body);
    scratch_deinit(&scratch);
}

/* The examples of one kind, "ok_" or "bad_", and their number. */
struct kind {
    const char *prefix;
    size_t *count;
};

static void run_line(const cJSON *line, const void *context)
{
    const struct kind *kind = context;
    const char *name = cases_string(line, "name");
    if (strncmp(name, kind->prefix, strlen(kind->prefix)) != 0)
        return;
    run_example(name, line);
    ++*kind->count;
}

static void run_examples(const char *prefix, size_t count_min)
{
    char pattern[64];
    glob_t found;
    size_t count = 0;
    snprintf(pattern, sizeof(pattern), "api_schema/examples/%s*.json", prefix);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "no %s: run this at the top of the tree",
                 pattern);
    for (; count < found.gl_pathc; count++) {
        cJSON *example = read_example(found.gl_pathv[count]);
        run_example(found.gl_pathv[count], example);
        cJSON_Delete(example);
    }
    globfree(&found);
    const struct kind kind = {prefix, &count};
    cases_run("tests/data/examples.jsonl", run_line, &kind);
    cr_assert_geq(count, count_min);
}

Test(examples, good_ones_are_answered)
{
    run_examples("ok_", 100);
}

Test(examples, bad_ones_are_refused)
{
    run_examples("bad_", 201);
}
