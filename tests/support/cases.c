#include "tests/support/cases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

size_t cases_run(const char *path, void (*run)(const cJSON *line, const void *context),
                 const void *context)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    size_t count = 0;
    cr_assert_not_null(file, "%s: run the tests from the top of the repository", path);
    while (getline(&line, &room, file) > 0) {
        cJSON *parsed = cJSON_Parse(line);
        count++;
        cr_assert_not_null(parsed, "%s:%zu: expected JSON", path, count);
        run(parsed, context);
        cJSON_Delete(parsed);
    }
    free(line);
    fclose(file);
    return count;
}

const char *cases_string(const cJSON *object, const char *key)
{
    const char *string = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    cr_assert_not_null(string, "a case without %s", key);
    return string;
}

size_t cases_read_hex(const char *hex, void *out)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        ((unsigned char *)out)[i] = (unsigned char)byte;
    }
    return count;
}

/* ---- Calls of operators ---- */

uint8_t *cases_bytes(const char *hex, size_t *count)
{
    uint8_t *bytes = malloc(strlen(hex) / 2 + 1);
    cr_assert_not_null(bytes);
    *count = cases_read_hex(hex, bytes);
    return bytes;
}

uint32_t cases_dims(const cJSON *tensor, size_t *dims)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
    uint32_t rank = (uint32_t)cJSON_GetArraySize(shape);
    cr_assert_leq(rank, QK_RANK_MAX);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = (size_t)cJSON_GetNumberValue(cJSON_GetArrayItem(shape, (int)i));
    return rank;
}

static size_t integers_of(const cJSON *array, int64_t (*list)[16])
{
    const size_t count = (size_t)cJSON_GetArraySize(array);
    cr_assert_leq(count, sizeof(*list) / sizeof((*list)[0]));
    for (size_t i = 0; i < count; i++)
        (*list)[i] = (int64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(array, (int)i));
    return count;
}

static void load_input(struct cases_call *loaded, const cJSON *tensor)
{
    const char *name = cases_string(tensor, "name");
    size_t index = qk_test_input_index(loaded->call.op, name);
    enum qk_type type = qk_type_by_name(cases_string(tensor, "datatype"));
    size_t dims[QK_RANK_MAX];
    uint32_t rank = cases_dims(tensor, dims);
    size_t given;
    size_t expected;
    cr_assert_neq(type, QK_NONE);
    loaded->data[index] = cases_bytes(cases_string(tensor, "raw_hex"), &given);
    qk_test_call_input(&loaded->call, name, type, loaded->data[index], rank, dims);
    const cJSON *strides = cJSON_GetObjectItemCaseSensitive(tensor, "strides");
    if (strides)
        qk_test_call_strides(&loaded->call, name, loaded->strides[index],
                             integers_of(strides, &loaded->strides[index]));
    cr_assert(qk_type_bytes(type, loaded->call.inputs[index].stored, &expected));
    cr_assert_eq(given, expected);
}

static bool is_float(const struct qk_operator *op, const char *attribute)
{
    return op->attributes[qk_test_attribute_index(op, attribute)].kind == QK_ATTRIBUTE_FLOAT;
}

static void load_attribute(struct cases_call *loaded, const cJSON *value)
{
    struct qk_call *call = &loaded->call;
    if (cJSON_IsString(value)) {
        qk_test_call_string(call, value->string, value->valuestring);
    } else if (cJSON_IsArray(value)) {
        int64_t(*list)[16] = &loaded->lists[qk_test_attribute_index(call->op, value->string)];
        const size_t count = integers_of(value, list);
        qk_test_call_ints(call, value->string, *list, count);
    } else if (cJSON_IsBool(value)) {
        qk_test_call_bool(call, value->string, cJSON_IsTrue(value));
    } else if (is_float(call->op, value->string)) {
        qk_test_call_float(call, value->string, (float)cJSON_GetNumberValue(value));
    } else {
        cr_assert(cJSON_IsNumber(value));
        qk_test_call_int(call, value->string, (int64_t)value->valuedouble);
    }
}

void cases_load_call(struct cases_call *loaded, const cJSON *line)
{
    const unsigned long version = strtoul(cases_string(line, "version"), NULL, 10);
    const cJSON *item;
    memset(loaded, 0, sizeof(*loaded));
    qk_test_call_init(&loaded->call, cases_string(line, "model"), version);
    loaded->call.output_count =
        (size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(line, "outputs"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "inputs"))
        load_input(loaded, item);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(line, "attributes"))
        load_attribute(loaded, item);
}

void cases_unload_call(struct cases_call *loaded)
{
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        free(loaded->data[i]);
}
