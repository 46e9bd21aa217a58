#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip/classes.h"
#include "tests/support/encode.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_error error;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(classes, .init = setup, .fini = teardown);

/* ---- A model with one output ---------------------------------------------------------------- */

static struct qd_port port;
static struct qd_signature signature;
static uint32_t count_wanted;
static struct qd_oip_asked asked;

static void ask(uint32_t wanted)
{
    port = (struct qd_port){.name = "y", .types = UINT32_MAX};
    signature =
        (struct qd_signature){.name = "net", .version = 1, .outputs = &port, .output_count = 1};
    count_wanted = wanted;
    asked =
        (struct qd_oip_asked){.signature = &signature, .outputs = 1, .class_counts = &count_wanted};
}

static void read_labels(const char *text)
{
    cr_assert_eq(qd_labels_read(text, strlen(text), "labels", &scratch.arena, &port.labels, &error),
                 QD_OK);
}

static struct qk_tensor tensor_of(enum qk_type type, const void *data, size_t count)
{
    return (struct qk_tensor){
        .type = type, .rank = 1, .dims = {count}, .count = count, .data = data};
}

/* Returns the answer's first output, as JSON from its name on, or an error's text. */
static const char *encode(const struct qk_tensor *tensor)
{
    static const uint64_t stage_ns[QD_STAGE_COUNT];
    static char text[1 << 16];
    struct qd_answer answer;
    if (qd_classes_check(&asked, tensor, 1, &error) != QD_OK ||
        encode_whole(&asked, "k", tensor, stage_ns, &scratch.arena, &answer, &error) != QD_OK)
        return error.text;
    char *joined = join_parts(answer.parts, answer.part_count);
    const char *from = strstr(joined, "\"outputs\":[") + strlen("\"outputs\":[");
    cr_assert_lt(answer.bytes, sizeof(text));
    memcpy(text, from, answer.bytes + 1 - (size_t)(from - joined));
    free(joined);
    return text;
}

/* ---- Order ---------------------------------------------------------------------------------- */

/* An element as a float of 80 bits, which holds each value of each type. */
static long double value_of(const struct qk_tensor *tensor, size_t index)
{
    const struct qk_type_info *type = qk_type_info(tensor->type);
    if (tensor->type == QK_INT64) {
        int64_t value;
        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        return (long double)value;
    }
    const uint32_t bits = qk_element_load(tensor->type, tensor->data, index);
    if (type->kind == QK_KIND_FLOAT)
        return (long double)qk_float_decode(tensor->type, bits);
    const long double value = bits;
    return value > (long double)type->max ? value - ldexpl(1, type->bits) : value;
}

static const struct qk_tensor *compared;

static int compare(const void *a, const void *b)
{
    const size_t left = *(const size_t *)a, right = *(const size_t *)b;
    const long double x = value_of(compared, left), y = value_of(compared, right);
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    if (!isnan(x) && x != y)
        return x < y ? 1 : -1;
    return left < right ? -1 : 1;
}

/* Compares with sorting all elements, which are random bits: ties, NaN, infinities, both zeros. */
Test(classes, all_types_in_order)
{
    enum { COUNT = 300, SIZE = 8 };
    static unsigned char data[COUNT * SIZE];
    static const uint32_t wanted[] = {1, 2, 5, 100, COUNT - 1, COUNT, QD_CLASS_ROW_ELEMENTS_MAX};
    uint32_t state = 1;
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++) {
        if (type == QK_BOOL)
            continue;
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
        const struct qk_tensor tensor = tensor_of(type, data, COUNT);
        size_t order[COUNT];
        for (size_t i = 0; i < COUNT; i++)
            order[i] = i;
        compared = &tensor;
        qsort(order, COUNT, sizeof(*order), compare);
        for (size_t k = 0; k < sizeof(wanted) / sizeof(*wanted); k++) {
            struct qd_classes classes;
            struct qd_class found[COUNT];
            ask(wanted[k]);
            qd_classes_init(&classes, &asked, 0, &tensor);
            cr_assert_eq(classes.kept, wanted[k] < COUNT ? wanted[k] : COUNT);
            qd_classes_find(&classes, 0, found);
            for (size_t i = 0; i < classes.kept; i++)
                cr_assert_eq(found[i].index, order[i], "%s: %u classes, %zu: %zu, expected %zu",
                             qk_type_info(type)->name, wanted[k], i, found[i].index, order[i]);
        }
    }
}

/* Sets `count` elements of 4 bytes. Most patterns grow along the row, the last one from block to
 * block of 512 elements if the bits of their numbers are reversed. */
static void set_rows(unsigned pattern, size_t count, uint32_t *data)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t at = (uint32_t)i;
        uint32_t rank = 0;
        for (unsigned bit = 0; bit < 6; bit++)
            rank = 2 * rank + (at / 512 >> bit & 1);
        const uint32_t patterns[] = {at,
                                     at << 16,
                                     at / 3000 << 5,
                                     at >> 12 ^ 0x7f800000,
                                     0xfffffff0U - at,
                                     at * 0x9e3779b1U,
                                     7,
                                     rank * 512 + at % 512};
        data[i] = patterns[pattern];
    }
}

/* Long rows, of many blocks. */
Test(classes, long_rows_in_order)
{
    enum { COUNT = 30000, PATTERN_COUNT = 8 };
    static const enum qk_type types[] = {QK_UINT8, QK_INT16,  QK_FP16, QK_INT32,
                                         QK_FP32,  QK_UINT32, QK_INT64};
    static const uint32_t wanted[] = {5, 2000};
    static uint32_t data[COUNT];
    static size_t order[COUNT];
    static struct qd_class found[2000];
    for (unsigned i = 0; i < PATTERN_COUNT * sizeof(types) / sizeof(*types); i++) {
        const enum qk_type type = types[i / PATTERN_COUNT];
        const size_t count = COUNT * sizeof(*data) * 8 / qk_type_info(type)->bits;
        const size_t used = count < COUNT ? count : COUNT;
        const struct qk_tensor tensor = tensor_of(type, data, used);
        set_rows(i % PATTERN_COUNT, COUNT, data);
        for (size_t k = 0; k < used; k++)
            order[k] = k;
        compared = &tensor;
        qsort(order, used, sizeof(*order), compare);
        for (size_t k = 0; k < sizeof(wanted) / sizeof(*wanted); k++) {
            struct qd_classes classes;
            ask(wanted[k]);
            qd_classes_init(&classes, &asked, 0, &tensor);
            qd_classes_find(&classes, 0, found);
            for (size_t n = 0; n < classes.kept; n++)
                cr_assert_eq(found[n].index, order[n], "%s, pattern %u, %u classes, %zu",
                             qk_type_info(type)->name, i % PATTERN_COUNT, wanted[k], n);
        }
    }
}

Test(classes, ties_and_nan)
{
    static const float values[] = {NAN, -0.0f, 2, 0, 2, -INFINITY, -NAN, INFINITY};
    const struct qk_tensor tensor = tensor_of(QK_FP32, values, 8);
    ask(8);
    cr_assert_str_eq(encode(&tensor),
                     "{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":[8],\"data\":["
                     "\"inf:7\",\"2.000000:2\",\"2.000000:4\",\"-0.000000:1\",\"0.000000:3\","
                     "\"-inf:5\",\"nan:0\",\"-nan:6\"]}]}");
}

/* ---- Strings -------------------------------------------------------------------------------- */

#define BYTES "{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":"

/* As std::to_string prints them. */
Test(classes, values)
{
    static const float floats[] = {-FLT_MAX, 0.1f, 1e-7f, FLT_MAX};
    static const int8_t bytes[] = {-128, 127};
    static const int64_t longs[] = {INT64_MIN, INT64_MAX, -1};
    const struct qk_tensor numbers = tensor_of(QK_FP32, floats, 4);
    const struct qk_tensor small = tensor_of(QK_INT8, bytes, 2);
    const struct qk_tensor large = tensor_of(QK_INT64, longs, 3);
    const struct qk_tensor nibbles = tensor_of(QK_INT4, "\x87", 2);
    ask(4);
    cr_assert_str_eq(encode(&numbers),
                     BYTES "[4],\"data\":[\"340282346638528859811704183484516925440.000000:3\","
                           "\"0.100000:1\",\"0.000000:2\","
                           "\"-340282346638528859811704183484516925440.000000:0\"]}]}");
    cr_assert_str_eq(encode(&small), BYTES "[2],\"data\":[\"127:1\",\"-128:0\"]}]}");
    cr_assert_str_eq(encode(&large), BYTES "[3],\"data\":[\"9223372036854775807:1\",\"-1:2\","
                                           "\"-9223372036854775808:0\"]}]}");
    cr_assert_str_eq(encode(&nibbles), BYTES "[2],\"data\":[\"7:0\",\"-8:1\"]}]}");
}

Test(classes, labels)
{
    static const uint8_t bytes[] = {1, 10, 5, 2};
    const struct qk_tensor tensor = tensor_of(QK_UINT8, bytes, 4);
    ask(4);
    read_labels("quo\"te\\\tx\n\napple: red\n");
    cr_assert_str_eq(encode(&tensor), BYTES "[4],\"data\":[\"10:1\",\"5:2:apple: red\",\"2:3\","
                                            "\"1:0:quo\\\"te\\\\\\tx\"]}]}");
    ask(1);
    read_labels("a\nb\nc\nd\ne\n");
    cr_assert_str_eq(encode(&tensor), BYTES "[1],\"data\":[\"10:1:b\"]}]}");
}

Test(classes, as_bytes)
{
    static const uint8_t bytes[] = {1, 10, 5, 2};
    static const char json[] = BYTES "[2],\"parameters\":{\"binary_data_size\":17}}]}";
    static const char blob[] = "\6\0\0\0"
                               "10:1:b"
                               "\3\0\0\0"
                               "5:2";
    const struct qk_tensor tensor = tensor_of(QK_UINT8, bytes, 4);
    ask(2);
    asked.binary_outputs = 1;
    read_labels("a\nb\n");
    const char *got = encode(&tensor);
    cr_assert_eq(strncmp(got, json, strlen(json)), 0, "%s", got);
    cr_assert_eq(memcmp(got + strlen(json), blob, sizeof(blob)), 0);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static const uint8_t rows[] = {3, 1, 2, 7, 9, 8};

static struct qk_tensor matrix(void)
{
    return (struct qk_tensor){
        .type = QK_UINT8, .rank = 2, .dims = {2, 3}, .count = 6, .data = rows};
}

Test(classes, a_batch)
{
    struct qk_tensor tensor = matrix();
    ask(2);
    read_labels("a\nb\nc\n");
    cr_assert_str_eq(encode(&tensor),
                     BYTES "[2,2],\"data\":[\"3:0:a\",\"2:2:c\",\"9:1:b\",\"8:2:c\"]}]}");
    /* [2,3,1,1] is the same */
    tensor.rank = 4;
    tensor.dims[2] = tensor.dims[3] = 1;
    cr_assert_str_eq(encode(&tensor),
                     BYTES "[2,2],\"data\":[\"3:0:a\",\"2:2:c\",\"9:1:b\",\"8:2:c\"]}]}");
}

/* A model whose output always has one item has no batch, as in Triton. */
Test(classes, one_item)
{
    struct qk_tensor tensor = matrix();
    tensor.dims[0] = 1;
    tensor.count = 3;
    ask(2);
    cr_assert_str_eq(encode(&tensor), BYTES "[1,2],\"data\":[\"3:0\",\"2:2\"]}]}");
    port.shaped = true;
    port.rank = 2;
    port.dims[0] = QD_DIM_FREE;
    cr_assert_str_eq(encode(&tensor), BYTES "[1,2],\"data\":[\"3:0\",\"2:2\"]}]}");
    port.dims[0] = 1;
    cr_assert_str_eq(encode(&tensor), BYTES "[2],\"data\":[\"3:0\",\"2:2\"]}]}");
}

Test(classes, rank_below_two)
{
    struct qk_tensor tensor = tensor_of(QK_UINT8, rows, 3);
    ask(2);
    cr_assert_str_eq(encode(&tensor), BYTES "[2],\"data\":[\"3:0\",\"2:2\"]}]}");
    signature.batch_max = 8; /* one element for each item of the batch */
    cr_assert_str_eq(encode(&tensor), BYTES "[3,1],\"data\":[\"3:0\",\"1:0\",\"2:0\"]}]}");
    tensor.rank = 0;
    tensor.count = 1;
    cr_assert_str_eq(encode(&tensor), BYTES "[1],\"data\":[\"3:0\"]}]}");
}

Test(classes, empty)
{
    struct qk_tensor tensor = matrix();
    ask(2);
    tensor.count = tensor.dims[0] = 0;
    cr_assert_str_eq(encode(&tensor), BYTES "[0,2],\"data\":[]}]}");
    asked.binary_outputs = 1;
    cr_assert_str_eq(encode(&tensor), BYTES "[0,2],\"parameters\":{\"binary_data_size\":0}}]}");
    asked.binary_outputs = 0;
    tensor.dims[0] = 2;
    tensor.dims[1] = 0;
    cr_assert_str_eq(encode(&tensor), BYTES "[2,0],\"data\":[]}]}");
}

/* Each string of each row is there once, in whatever units they are printed. */
Test(classes, units)
{
    static const size_t shapes[][3] = {
        {1, 5000, 3}, {300, 10, 1}, {500, 10, 10}, {41, 1000, 5}, {3, 2048, QD_CLASS_COUNT_MAX}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        const size_t row_count = shapes[s][0], width = shapes[s][1], kept = shapes[s][2];
        float *data = malloc(row_count * width * sizeof(*data));
        for (size_t i = 0; i < row_count * width; i++)
            data[i] = (float)(i * 7919 % 65537);
        struct qk_tensor tensor = {.type = QK_FP32,
                                   .rank = 2,
                                   .dims = {row_count, width},
                                   .count = row_count * width,
                                   .data = data};
        ask((uint32_t)kept);
        struct qd_answer answer;
        const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
        cr_assert_eq(encode_whole(&asked, "k", &tensor, stage_ns, &scratch.arena, &answer, &error),
                     QD_OK);
        char *joined = join_parts(answer.parts, answer.part_count);
        cJSON *json = cJSON_ParseWithLength(joined, answer.bytes);
        const cJSON *output = cJSON_GetObjectItem(json, "outputs")->child;
        const cJSON *string = cJSON_GetObjectItem(output, "data")->child;
        for (size_t row = 0; row < row_count; row++) {
            double before = INFINITY;
            for (size_t i = 0; i < kept; i++, string = string->next) {
                double value;
                size_t index;
                cr_assert_eq(sscanf(string->valuestring, "%lf:%zu", &value, &index), 2);
                cr_assert_lt(index, width);
                cr_assert_eq(value, (double)data[row * width + index]);
                cr_assert_leq(value, before);
                before = value;
            }
        }
        cr_assert_null(string);
        cJSON_Delete(json);
        free(joined);
        free(data);
    }
}

/* A string takes a fraction of the room that is reserved for it. */
Test(classes, answers_take_their_own_memory)
{
    enum { ROWS = 100, WIDTH = 2048 };
    static const size_t wanted[] = {3, WIDTH};
    const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    uint8_t *data = calloc(ROWS, WIDTH);
    const struct qk_tensor tensor = {.type = QK_UINT8,
                                     .rank = 2,
                                     .dims = {ROWS, WIDTH},
                                     .count = (size_t)ROWS * WIDTH,
                                     .data = data};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        struct scratch own;
        struct qd_answer answer;
        ask((uint32_t)wanted[i]);
        scratch_init(&own, 64u << 20);
        cr_assert_eq(encode_whole(&asked, "k", &tensor, stage_ns, &own.arena, &answer, &error),
                     QD_OK);
        cr_assert_leq(qd_memory_used(own.memory), 2 * answer.bytes + (1u << 20), "%zu of %zu",
                      qd_memory_used(own.memory), answer.bytes);
        scratch_deinit(&own);
    }
    free(data);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

Test(classes, refuses)
{
    struct qk_tensor tensor = tensor_of(QK_BOOL, rows, 3);
    ask(1);
    cr_assert_str_eq(encode(&tensor),
                     "classification of \"y\": expected an output of numbers, got BOOL");
    tensor = tensor_of(QK_UINT8, rows, QD_CLASS_ROW_ELEMENTS_MAX + 1);
    cr_assert_str_eq(encode(&tensor),
                     "classification of \"y\": expected at most 1000000 elements, got 1000001");
    tensor.rank = 2;
    tensor.dims[1] = tensor.dims[0];
    tensor.dims[0] = 0;
    tensor.count = 0;
    cr_assert_str_eq(encode(&tensor),
                     "classification of \"y\": expected at most 1000000 elements for each item of "
                     "the batch, got 1000001");
    tensor.rank = 3;
    tensor.dims[1] = tensor.dims[2] = SIZE_MAX;
    cr_assert_not_null(strstr(encode(&tensor), "expected at most 1000000 elements for each item"));
    tensor = tensor_of(QK_UINT8, rows, QD_CLASS_COUNT_MAX + 1);
    ask(QD_CLASS_COUNT_MAX + 2);
    cr_assert_str_eq(encode(&tensor),
                     "classification of \"y\": expected at most 2048 classes, got 2049; the output "
                     "itself has all of them");
    ask(0);
    cr_assert_eq(qd_classes_check(&asked, &tensor, 1, &error), QD_OK);
}

Test(classes, refuses_softly_without_memory)
{
    enum { COUNT = 20000 };
    float *many = calloc(COUNT, sizeof(*many));
    const struct qk_tensor tensor = {
        .type = QK_FP32, .rank = 2, .dims = {COUNT / 2, 2}, .count = COUNT, .data = many};
    const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    enum qd_status status = QD_TOO_LARGE;
    ask(2);
    for (size_t bytes_max = 0; status != QD_OK; bytes_max += 64 << 10) {
        struct scratch tight;
        struct qd_answer answer;
        scratch_init(&tight, bytes_max);
        status = encode_whole(&asked, "k", &tensor, stage_ns, &tight.arena, &answer, &error);
        cr_assert(status == QD_OK || status == QD_TOO_LARGE, "%d", (int)status);
        scratch_deinit(&tight);
        cr_assert_lt(bytes_max, 64u << 20);
    }
    free(many);
}
