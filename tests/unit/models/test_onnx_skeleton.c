/* Large weights of ONNX files, which stay in the file (models/onnx/onnx_skeleton.c). */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/models/onnx_file.h"

TestSuite(onnx_skeleton, .init = setup, .fini = teardown);

enum { COUNT = 8192, BYTES = COUNT * 4 };

static float numbers[2][COUNT]; /* the first is all 1, the second all 2 */

static void fill(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        numbers[0][i] = 1;
        numbers[1][i] = 2;
    }
}

static struct message large_tensor(const char *name, const float *data)
{
    return tensor_of(name, ONNX_FLOAT, DIMS(COUNT), data, BYTES);
}

static void put_large(struct message *file, const char *name, const float *data)
{
    put_message(file, ONNX_GRAPH_INITIALIZER, large_tensor(name, data));
}

static bool is_inside(const struct message *file, const void *data)
{
    const uintptr_t at = (uintptr_t)data, begin = (uintptr_t)file->bytes;
    return at >= begin && at < begin + file->count;
}

static enum qd_status read_kept(const struct message *file)
{
    return read_source((struct qd_onnx_source){.bytes = file->bytes, .count = file->count});
}

/* Checks that the file can be read and that its scales are `expected`. */
static void expect_scales(const struct message *file, const float *expected, bool inside)
{
    cr_assert_eq(read_kept(file), QD_OK, "%s", error.text);
    cr_assert_eq(scale()->count, COUNT);
    cr_assert_eq(memcmp(scale()->data, expected, BYTES), 0);
    cr_assert_eq(is_inside(file, scale()->data), inside);
    cr_assert_eq(graph.points_into_file, inside);
}

Test(onnx_skeleton, large_weights_are_not_copied)
{
    struct message file = dequantize_graph(NAMES("x", "s"));
    fill();
    put_large(&file, "other", numbers[0]);
    put_message(&file, ONNX_GRAPH_INITIALIZER, onnx_tensor("none", ONNX_UINT8, NO_DIMS));
    put_large(&file, "s", numbers[1]);
    put_string(&file, ONNX_GRAPH_NAME, "the end");
    file = onnx_model(file, 13);
    expect_scales(&file, numbers[1], true);
    cr_assert_str_eq(graph.graph_name, "the end");
    message_free(&file);
}

Test(onnx_skeleton, small_weights_are_copied)
{
    struct message file = onnx_model(good_dequantize(), 13);
    cr_assert_eq(read_kept(&file), QD_OK, "%s", error.text);
    cr_assert(!is_inside(&file, scale()->data));
    cr_assert(!graph.points_into_file);
    message_free(&file);
}

/* protobuf's rule: the last value of a field counts. */
Test(onnx_skeleton, the_last_raw_data_counts)
{
    const float small = 3;
    fill();
    for (int last_is_large = 0; last_is_large < 2; last_is_large++) {
        struct message file = dequantize_graph(NAMES("x", "s"));
        struct message tensor = last_is_large ? onnx_tensor("s", ONNX_FLOAT, DIMS(COUNT))
                                              : onnx_tensor("s", ONNX_FLOAT, NO_DIMS);
        put_data(&tensor, ONNX_TENSOR_RAW_DATA, numbers[0], BYTES);
        if (last_is_large)
            put_data(&tensor, ONNX_TENSOR_RAW_DATA, numbers[1], BYTES);
        else
            put_data(&tensor, ONNX_TENSOR_RAW_DATA, &small, sizeof(small));
        put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
        file = onnx_model(file, 13);
        cr_assert_eq(read_kept(&file), QD_OK, "%s", error.text);
        cr_assert_eq(memcmp(scale()->data, last_is_large ? numbers[1] : &small, sizeof(small)), 0);
        message_free(&file);
    }
}

/* protobuf's rule: two messages of one field are merged, and their lists are joined. */
Test(onnx_skeleton, two_graphs_are_merged)
{
    struct message graphs[2] = {dequantize_graph(NAMES("x", "s")), {.bytes = NULL}};
    struct message file = {.bytes = NULL};
    fill();
    put_large(&graphs[0], "a", numbers[0]);
    put_large(&graphs[1], "b", numbers[0]);
    put_large(&graphs[1], "s", numbers[1]);
    put_large(&graphs[1], "c", numbers[0]);
    put_message(&file, ONNX_MODEL_GRAPH, graphs[0]);
    struct message rest = onnx_model(graphs[1], 13);
    put_bytes(&file, rest.bytes, rest.count);
    expect_scales(&file, numbers[1], true);
    message_free(&rest);
    message_free(&file);
}

Test(onnx_skeleton, a_size_that_does_not_fit)
{
    struct message file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, DIMS(COUNT - 1), numbers[0], BYTES));
    expect_error(onnx_model(file, 13),
                 "initializer 0 (\"s\"): raw_data: expected 32764 bytes for 8191 "
                 "elements of FP32, got 32768");
}

/* What is wrong before, in, or behind large weights is refused as in any other file. */
Test(onnx_skeleton, wrong_files)
{
    static const struct {
        const char *bytes;
        size_t count;
    } wrong[] = {
        {"\x0b", 1},     /* a group, which ONNX does not have */
        {"\x3a\x05", 2}, /* a length that does not fit */
        {"\x3a\xff\xff\xff\xff\x7f", 6},
        {"\x80", 1}, /* a tag that does not end */
        {"\x80\x80\x80\x80\x80\x01", 6},
        {"\x09\x01", 2}, /* 8 bytes that are not there */
        {"\x0d\x01", 2}, /* 4 bytes */
        {"\x08\xff", 2}, /* a number that does not end */
        {"\0\0", 2},     /* field 0 */
    };
    fill();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        for (int place = 0; place < 3; place++) {
            struct message file = dequantize_graph(NAMES("x", "s"));
            struct message tensor = large_tensor("s", numbers[1]);
            if (place == 0)
                put_bytes(&tensor, wrong[i].bytes, wrong[i].count);
            put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
            if (place == 1)
                put_bytes(&file, wrong[i].bytes, wrong[i].count);
            put_large(&file, "t", numbers[0]);
            file = onnx_model(file, 13);
            if (place == 2)
                put_bytes(&file, wrong[i].bytes, wrong[i].count);
            cr_assert_eq(read_kept(&file), QD_INVALID, "%zu, %d", i, place);
            message_free(&file);
        }
}

Test(onnx_skeleton, truncated)
{
    struct message file = dequantize_graph(NAMES("x", "s"));
    put_large(&file, "t", numbers[0]);
    put_large(&file, "s", numbers[0]);
    file = onnx_model(file, 13);
    for (size_t count = 0; count < file.count; count += count < 256 ? 1 : 251) {
        char *copy = malloc(count + 1); /* so that sanitizers see reads beyond the end */
        cr_assert_not_null(copy);
        memcpy(copy, file.bytes, count);
        cr_assert_eq(read_source((struct qd_onnx_source){.bytes = copy, .count = count}),
                     QD_INVALID, "the first %zu bytes", count);
        free(copy);
    }
    message_free(&file);
}
