/* INT64, BOOL and attributes of the kind FLOAT in requests, answers and metadata. Signatures and an
 * operator made by hand have them, so these tests do not depend on the registry. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/oip/decode.h"
#include "server/oip/regions.h"
#include "server/oip/shm_tensors.h"
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

TestSuite(types, .init = setup, .fini = teardown);

/* ---- A loaded model ----------------------------------------------------------------------- */

static const struct qd_port ports[] = {
    {.name = "n", .types = QK_BIT(QK_INT64), .optional = true},
    {.name = "c", .types = QK_BIT(QK_BOOL), .optional = true},
};
static const struct qd_signature loaded = {.name = "net",
                                           .platform = "p",
                                           .about = "a net",
                                           .version = 1,
                                           .inputs = ports,
                                           .input_count = 2,
                                           .outputs = ports,
                                           .output_count = 2};
static const struct qd_signature only_n = {.name = "net",
                                           .version = 1,
                                           .inputs = &ports[0],
                                           .input_count = 1,
                                           .outputs = &ports[0],
                                           .output_count = 1};
static const struct qd_signature only_c = {.name = "net",
                                           .version = 1,
                                           .inputs = &ports[1],
                                           .input_count = 1,
                                           .outputs = &ports[1],
                                           .output_count = 1};

/* Decodes JSON with bytes behind it. The body stays until the next call. */
static enum qd_status decode_with(const struct qd_signature *signature, struct qd_regions *regions,
                                  const char *json, const void *bytes, size_t count)
{
    static char *body;
    const size_t json_bytes = strlen(json);
    char header[24];
    free(body); /* of the exact size, so that a sanitizer sees reads beyond the end */
    body = malloc(json_bytes + count);
    cr_assert_not_null(body);
    memcpy(body, json, json_bytes);
    if (count > 0)
        memcpy(body + json_bytes, bytes, count);
    snprintf(header, sizeof(header), "%zu", json_bytes);
    const struct qd_oip_message message = {.signature = signature,
                                           .body = body,
                                           .body_bytes = json_bytes + count,
                                           .json_bytes_header = count > 0 ? header : NULL,
                                           .json_bytes = json_bytes,
                                           .regions = regions};
    error.text[0] = '\0';
    return qd_oip_decode(&message, &scratch.arena, &asked, &error);
}

static void expect_input(size_t index, const void *data, size_t bytes)
{
    size_t own;
    cr_assert(qk_type_bytes(asked.inputs[index].type, asked.inputs[index].stored, &own));
    cr_assert_eq(own, bytes);
    cr_assert_eq(memcmp(asked.inputs[index].data, data, bytes), 0);
}

#define N(rest) "{\"inputs\":[{\"name\":\"n\",\"datatype\":\"INT64\"," rest "}]}"
#define C(rest) "{\"inputs\":[{\"name\":\"c\",\"datatype\":\"BOOL\"," rest "}]}"

Test(types, json)
{
    static const char both[] =
        "{\"inputs\":[{\"name\":\"c\",\"datatype\":\"BOOL\",\"shape\":[2,2],\"data\":[[true,false],"
        "[0,1]]},{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[2],\"data\":"
        "[-9223372036854775808,\"9223372036854775807\"]}]}";
    cr_assert_eq(decode_with(&loaded, NULL, both, NULL, 0), QD_OK, "%s", error.text);
    expect_input(0, (const int64_t[]){INT64_MIN, INT64_MAX}, 16);
    expect_input(1, "\1\0\0\1", 4);
    cr_assert_eq(
        decode_with(&loaded, NULL, N("\"shape\":[1],\"data\":[9223372036854775808]"), NULL, 0),
        QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[0].data (\"n\"): element 0: expected an integer in "
                                 "[-9223372036854775808, 9223372036854775807] (INT64), got "
                                 "9223372036854775808");
    cr_assert_eq(decode_with(&loaded, NULL, C("\"shape\":[2],\"data\":[1,2]"), NULL, 0),
                 QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[0].data (\"c\"): element 1: expected true, false, 1 or 0 "
                                 "(BOOL), got 2");
}

Test(types, bytes)
{
    static const int64_t numbers[] = {INT64_MAX, -2};
    cr_assert_eq(decode_with(&loaded, NULL,
                             N("\"shape\":[2],\"parameters\":{\"binary_data_size\":16}"), numbers,
                             16),
                 QD_OK, "%s", error.text);
    expect_input(0, numbers, 16);
    cr_assert_eq(decode_with(&loaded, NULL,
                             N("\"shape\":[2],\"parameters\":{\"binary_data_size\":8}"), numbers,
                             8),
                 QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[0].parameters.binary_data_size (\"n\"): expected 16 bytes "
                                 "for 2 elements of INT64, got 8");
    for (size_t wrong = 0; wrong <= 21; wrong++) {
        char bools[21] = "\1\0\1\1";
        char text[128];
        if (wrong < 21)
            bools[wrong] = (char)(2 << wrong % 7);
        const enum qd_status status =
            decode_with(&loaded, NULL,
                        C("\"shape\":[3,7],\"parameters\":{\"binary_data_size\":21}"), bools, 21);
        cr_assert_eq(status, wrong < 21 ? QD_INVALID : QD_OK);
        snprintf(text, sizeof(text),
                 "inputs[0] (\"c\"): element %zu: expected a byte of 0 or 1 (BOOL), got %d", wrong,
                 2 << wrong % 7);
        cr_assert_str_eq(error.text, wrong < 21 ? text : "");
    }
    expect_input(1, (const char[21]){1, 0, 1, 1}, 21);
}

Test(types, raw_bytes)
{
    static const int64_t numbers[] = {1, 2, 3};
    const struct qd_oip_message message = {.signature = &only_n,
                                           .body = (const char *)numbers,
                                           .body_bytes = sizeof(numbers),
                                           .json_bytes_header = "0"};
    cr_assert_eq(qd_oip_decode(&message, &scratch.arena, &asked, &error), QD_OK);
    cr_assert_eq(asked.inputs[0].dims[0], 3);
    struct qd_oip_message bools = {
        .signature = &only_c, .body = "\1\0\1\2", .body_bytes = 3, .json_bytes_header = "0"};
    cr_assert_eq(qd_oip_decode(&bools, &scratch.arena, &asked, &error), QD_OK);
    expect_input(0, "\1\0\1", 3);
    bools.body_bytes = 4;
    cr_assert_eq(qd_oip_decode(&bools, &scratch.arena, &asked, &error), QD_INVALID);
    cr_assert_str_eq(error.text, "the body: element 3: expected a byte of 0 or 1 (BOOL), got 2");
}

Test(types, carrier_form)
{
    static const char head[] =
        "{\"parameters\":{\"c.datatype\":\"BOOL\",\"c.shape\":[2,2]},\"inputs\":[{\"name\":\"c\","
        "\"datatype\":\"UINT8\",\"shape\":[4],";
    char body[512];
    snprintf(body, sizeof(body), "%s\"data\":[1,0,0,1]}]}", head);
    cr_assert_eq(decode_with(&loaded, NULL, body, NULL, 0), QD_OK, "%s", error.text);
    cr_assert_eq(asked.inputs[1].type, QK_BOOL);
    cr_assert_eq(asked.inputs[1].rank, 2);
    expect_input(1, "\1\0\0\1", 4);
    snprintf(body, sizeof(body), "%s\"data\":[1,0,0,2]}]}", head);
    cr_assert_eq(decode_with(&loaded, NULL, body, NULL, 0), QD_INVALID);
    cr_assert_str_eq(error.text, "inputs[0].data (\"c\"): element 3: expected true, false, 1 or 0 "
                                 "(BOOL), got 2");
    snprintf(body, sizeof(body), "%s\"parameters\":{\"binary_data_size\":4}}]}", head);
    cr_assert_eq(decode_with(&loaded, NULL, body, "\1\0\3\1", 4), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "inputs[0] (\"c\"): element 2: expected a byte of 0 or 1 (BOOL), got 3");
    static const char number[] =
        "{\"parameters\":{\"n.datatype\":\"INT64\",\"n.shape\":[1]},\"inputs\":[{\"name\":\"n\","
        "\"datatype\":\"UINT8\",\"shape\":[8],\"data\":[255,255,255,255,255,255,255,127]}]}";
    cr_assert_eq(decode_with(&loaded, NULL, number, NULL, 0), QD_OK, "%s", error.text);
    expect_input(0, &(int64_t){INT64_MAX}, 8);
}

/* Many bytes are checked in units, of which the first refused one in the data is reported. */
Test(types, many_bools)
{
    enum { COUNT = 1000003 };
    static char json[256];
    char *bools = calloc(COUNT, 1);
    cr_assert_not_null(bools);
    snprintf(json, sizeof(json), C("\"shape\":[%d],\"parameters\":{\"binary_data_size\":%d}"),
             COUNT, COUNT);
    bools[COUNT - 1] = 1;
    cr_assert_eq(decode_with(&loaded, NULL, json, bools, COUNT), QD_OK, "%s", error.text);
    expect_input(1, bools, COUNT);
    bools[COUNT - 1] = 7;
    cr_assert_eq(decode_with(&loaded, NULL, json, bools, COUNT), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "inputs[0] (\"c\"): element 1000002: expected a byte of 0 or 1 (BOOL), got 7");
    bools[COUNT / 2] = 9;
    const struct qd_oip_message message = {
        .signature = &only_c, .body = bools, .body_bytes = COUNT, .json_bytes_header = "0"};
    bool done = false;
    asked = (struct qd_oip_asked){.signature = NULL};
    struct qd_oip_reader *reader = qd_oip_reader_create(&message, &scratch.arena, &asked, &error);
    cr_assert_eq(qd_oip_reader_step(reader, &done), QD_OK);
    cr_assert(done);
    const size_t unit_count = qd_oip_reader_unit_count(reader);
    cr_assert(unit_count > 1 && qd_oip_reader_unit_cost_ns(reader) > 0);
    for (size_t i = unit_count; i-- > 0;)
        qd_oip_reader_convert(reader, i, i + 1);
    cr_assert_eq(qd_oip_reader_end(reader), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "the body: element 500001: expected a byte of 0 or 1 (BOOL), got 9");
    free(bools);
}

/* ---- Shared memory ------------------------------------------------------------------------ */

enum { SHARED_BYTES = 300000 };

/* Asks for a BOOL tensor of this many bytes in the shared region. */
static enum qd_status decode_shared(struct qd_regions *regions, size_t count)
{
    char json[256];
    snprintf(json, sizeof(json),
             C("\"shape\":[%zu],\"parameters\":{\"shared_memory_region\":\"a\","
               "\"shared_memory_byte_size\":%zu}"),
             count, count);
    return decode_with(&loaded, regions, json, NULL, 0);
}

/* The checked bytes are a copy, which the client cannot change any more. */
Test(types, bools_in_shared_memory)
{
    char key[64];
    snprintf(key, sizeof(key), "/quantd-types-%d", getpid());
    const int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(ftruncate(fd, SHARED_BYTES), 0);
    char *bytes = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(bytes != MAP_FAILED);
    struct qd_regions *regions = qd_regions_create("*", 1 << 20);
    const struct qd_region_call call = {"a", key, 0, SHARED_BYTES};
    cr_assert_eq(qd_regions_register(regions, &call, &error), QD_OK, "%s", error.text);
    for (size_t count = 3; count <= SHARED_BYTES; count *= 100000) {
        memset(bytes, 1, SHARED_BYTES);
        cr_assert_eq(decode_shared(regions, count), QD_OK, "%s", error.text);
        bytes[count - 1] = 5;
        cr_assert_eq(qd_shm_tensors_copy_inputs(&asked, UINT32_MAX, &scratch.arena, &error), QD_OK);
        cr_assert_eq(asked.inputs[1].count, count);
        cr_assert_eq(((const char *)asked.inputs[1].data)[count - 1], 1);
        qd_shm_tensors_release(&asked);
        cr_assert_eq(decode_shared(regions, count), QD_INVALID);
        cr_assert_not_null(strstr(error.text, "expected a byte of 0 or 1 (BOOL), got 5"), "%s",
                           error.text);
        qd_shm_tensors_release(&asked);
    }
    qd_regions_destroy(regions);
    munmap(bytes, SHARED_BYTES);
    close(fd);
    shm_unlink(key);
}

/* ---- Answers and metadata ------------------------------------------------------------------ */

Test(types, answers)
{
    static const int64_t numbers[] = {INT64_MIN, INT64_MAX};
    static const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    const struct qk_tensor outputs[] = {
        {.type = QK_INT64, .rank = 1, .dims = {2}, .count = 2, .data = numbers},
        {.type = QK_BOOL, .rank = 1, .dims = {3}, .count = 3, .data = "\1\0\1"}};
    struct qd_oip_asked wanted = {.signature = &loaded, .outputs = 3};
    struct qd_answer answer;
    cr_assert_eq(encode_whole(&wanted, "k", outputs, stage_ns, &scratch.arena, &answer, &error),
                 QD_OK);
    char *joined = join_parts(answer.parts, answer.part_count);
    cr_assert_str_eq(strstr(joined, "\"outputs\":"),
                     "\"outputs\":[{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[2],\"data\":"
                     "[-9223372036854775808,9223372036854775807]},{\"name\":\"c\",\"datatype\":"
                     "\"BOOL\",\"shape\":[3],\"data\":[true,false,true]}]}");
    free(joined);
    wanted.binary_outputs = 3;
    cr_assert_eq(encode_whole(&wanted, "k", outputs, stage_ns, &scratch.arena, &answer, &error),
                 QD_OK);
    joined = join_parts(answer.parts, answer.part_count);
    cr_assert_eq(answer.bytes - answer.json_bytes, 19);
    cr_assert_eq(memcmp(joined + answer.json_bytes, numbers, 16), 0);
    cr_assert_eq(memcmp(joined + answer.json_bytes + 16, "\1\0\1", 3), 0);
    cr_assert_not_null(strstr(joined, "{\"binary_data_size\":16}"));
    free(joined);
}

static void expect_text_has(struct qd_text *text, const char *wanted)
{
    cr_assert_not(text->failed);
    char *joined = join_parts(text->parts, text->part_count);
    cr_assert_not_null(strstr(joined, wanted), "%s", joined);
    free(joined);
}

Test(types, metadata)
{
    static const uint64_t versions[] = {1};
    struct qd_text text;
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_metadata(&text, &loaded, versions, 1, 0);
    expect_text_has(&text, "{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[-1]},"
                           "{\"name\":\"c\",\"datatype\":\"BOOL\",\"shape\":[-1]}");
    expect_text_has(&text, "\"n.types\":\"INT64\"");
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_config(&text, &loaded);
    expect_text_has(&text, "{\"name\":\"n\",\"data_type\":\"TYPE_INT64\"");
    expect_text_has(&text, "{\"name\":\"c\",\"data_type\":\"TYPE_BOOL\"");
}

/* ---- An operator --------------------------------------------------------------------------- */

static const struct qk_attribute_def attributes[] = {
    {.name = "alpha", .kind = QK_ATTRIBUTE_FLOAT, .since = 1, .about = "default 0.01"}};
static const struct qk_version version = {.number = 1,
                                          .inputs = {{QK_BIT(QK_INT64) | QK_BIT(QK_BOOL), false}},
                                          .output_types = {QK_BIT(QK_BOOL)}};
static const struct qk_operator leaky = {.name = "test.Leaky",
                                         .platform = "p",
                                         .about = "an operator",
                                         .inputs = {{"x", "any"}},
                                         .input_count = 1,
                                         .variable_inputs = 1,
                                         .outputs = {{"y", "any"}},
                                         .output_count = 1,
                                         .attributes = attributes,
                                         .attribute_count = 1,
                                         .versions = &version,
                                         .version_count = 1,
                                         .version_last = 1};

Test(types, float_attributes)
{
    static const struct {
        const char *json;
        float value;
    } good[] = {{"0.25", 0.25f},   {"-1e-3", -1e-3f},   {"3", 3},
                {"\"0.5\"", 0.5f}, {"3.4e38", 3.4e38f}, {"16777217", 16777216}};
    static const char *const bad[] = {"1e39", "true", "\"\"",   "\"a\"",
                                      "[1]",  "{}",   "\"1 \"", "\"-1e99\""};
    struct qd_builtin builtin;
    char body[256];
    qd_builtin_init(&builtin, &leaky, &version);
#define WITH_ALPHA                                                                       \
    "{\"parameters\":{\"alpha\":%s},\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT64\"," \
    "\"shape\":[1],\"data\":[1]}]}"
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(body, sizeof(body), WITH_ALPHA, good[i].json);
        cr_assert_eq(decode_with(&builtin.signature, NULL, body, NULL, 0), QD_OK, "%s", error.text);
        cr_assert(asked.call.attributes[0].present);
        cr_assert_eq(asked.call.attributes[0].real, good[i].value, "%s", good[i].json);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        static const char expected[] = "parameters.alpha: expected a number in the range of FP32";
        snprintf(body, sizeof(body), WITH_ALPHA, bad[i]);
        cr_assert_eq(decode_with(&builtin.signature, NULL, body, NULL, 0), QD_INVALID, "%s", body);
        cr_assert_eq(strncmp(error.text, expected, strlen(expected)), 0, "%s", error.text);
    }
    struct qd_text text;
    qd_text_init(&text, &scratch.arena);
    qd_oip_encode_model_config(&text, &builtin.signature);
    expect_text_has(&text, "\"alpha\":{\"string_value\":\"number: default 0.01\"}");
    expect_text_has(&text, "\"data_type\":\"TYPE_INT64\"");
}

/* A load call may declare an input of these types. */
Test(types, declared_inputs)
{
    static const char body[] =
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"BOOL\",\"shape\":[-1,2]}]}";
    struct qd_builtin builtin;
    qd_builtin_init(&builtin, &leaky, &version);
    const struct qd_oip_message message = {.signature = &builtin.signature,
                                           .declares = true,
                                           .body = body,
                                           .body_bytes = strlen(body)};
    cr_assert_eq(qd_oip_decode(&message, &scratch.arena, &asked, &error), QD_OK, "%s", error.text);
    cr_assert_eq(asked.declared[0].types, QK_BIT(QK_BOOL));
    cr_assert_eq(asked.call.variable, 1);
}
