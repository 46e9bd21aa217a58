/* Constants of ONNX files, in all forms that ONNX has for them. */
#include <stdio.h>

#include "server/models/onnx/onnx_reader.h"
#include "tests/unit/models/onnx_file.h"

TestSuite(onnx_tensors, .init = setup, .fini = teardown);

/* ---- Constants --------------------------------------------------------------------------- */

static struct message constant_node(const char *name, struct message attribute)
{
    struct message node = onnx_node("c", "Constant", NAMES(NULL), NAMES(name));
    put_message(&node, ONNX_NODE_ATTRIBUTE, attribute);
    return node;
}

Test(onnx_tensors, constant_nodes)
{
    struct message attribute = {.bytes = NULL};
    put_string(&attribute, 1, "value_float");
    put_float(&attribute, 2, 0.25f);
    struct message file = dequantize_graph(NAMES("x", "s", "z"));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("s", attribute));
    attribute = (struct message){.bytes = NULL};
    put_string(&attribute, 1, "value");
    put_message(&attribute, 5, tensor_of("", ONNX_UINT8, NO_DIMS, "\7", 1));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("z", attribute));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(graph.call.node_count, 1);
    cr_assert_eq(scale()->type, QK_FP32);
    cr_assert_eq(scale()->rank, 0);
    cr_assert_eq(memcmp(scale()->data, &(float){0.25f}, 4), 0);
    cr_assert_eq(*(const unsigned char *)zero_point()->data, 7);

    attribute = (struct message){.bytes = NULL};
    put_string(&attribute, 1, "value_floats");
    put_float(&attribute, 7, 0.25f);
    put_float(&attribute, 7, 2);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE, constant_node("s", attribute));
    expect_model(onnx_model(file, 13));
    cr_assert_eq(scale()->rank, 1);
    cr_assert_eq(scale()->dims[0], 2);
    cr_assert_eq(memcmp(scale()->data, (const float[]){0.25f, 2}, 8), 0);

    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE,
                constant_node("s", onnx_attribute_string("value_string", "a")));
    expect_error(onnx_model(file, 13),
                 "node 1 (\"c\", \"Constant\"): \"value_string\": expected a value that is a "
                 "tensor, value_float, value_floats, value_int or value_ints: no operator here "
                 "takes others");
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("c", "Constant", NAMES(NULL), NAMES("s")));
    expect_error(onnx_model(file, 13), "node 1 (\"c\", \"Constant\"): expected one attribute and "
                                       "one output, got 0 and 1");
}

/* No operator takes an INT64 as its second input, so the node refuses the constant, by its type. */
Test(onnx_tensors, constant_nodes_of_integers)
{
    const struct message attributes[] = {onnx_attribute_int("value_int", -1),
                                         onnx_attribute_ints("value_ints", DIMS(1, -1)),
                                         onnx_attribute_ints("value_ints", NO_DIMS)};
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        struct message file = dequantize_graph(NAMES("x", "s"));
        put_message(&file, ONNX_GRAPH_NODE, constant_node("s", attributes[i]));
        expect_error(onnx_model(file, 13),
                     "node 0 (\"dq\", \"DequantizeLinear\"): x_scale: expected FP32 for version 13 "
                     "of onnx.DequantizeLinear, got INT64");
    }
}

/* Makes a file whose zero point is this tensor, and whose x has the tensor's type. */
static struct message zero_point_file(struct message tensor, int type)
{
    struct message file = {.bytes = NULL};
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "DequantizeLinear", NAMES("x", "s", "z"), NAMES("y")));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", type, DIMS(-1)));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_FLOAT, DIMS(-1)));
    add_scale(&file);
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    return onnx_model(file, 25);
}

/* Puts a packed list of int32s, each of which takes up to ten bytes as a varint. */
static void put_int32s(struct message *tensor, size_t count, const int32_t *numbers)
{
    struct message list = {.bytes = NULL};
    for (size_t i = 0; i < count; i++) {
        struct message one = {.bytes = NULL};
        put_number(&one, 1, (uint64_t)(int64_t)numbers[i]);
        put_bytes(&list, one.bytes + 1, one.count - 1); /* without the field number */
        message_free(&one);
    }
    put_message(tensor, ONNX_TENSOR_INT32_DATA, list);
}

Test(onnx_tensors, int32_data)
{
    const struct {
        int type;
        size_t elements;
        size_t count;
        int32_t numbers[3];
        const char *bytes;
        size_t byte_count;
    } cases[] = {
        {2, 3, 3, {0, 128, 255}, "\0\x80\xff", 3},       /* UINT8 */
        {3, 3, 3, {-128, -1, 127}, "\x80\xff\x7f", 3},   /* INT8 */
        {4, 2, 2, {1, 65535}, "\1\0\xff\xff", 4},        /* UINT16 */
        {5, 2, 2, {-32768, 32767}, "\0\x80\xff\x7f", 4}, /* INT16 */
        {6, 1, 1, {-2}, "\xfe\xff\xff\xff", 4},          /* INT32 */
        {17, 2, 2, {0, 255}, "\0\xff", 2},               /* FP8E4M3FN */
        {21, 3, 2, {0x21, 3}, "\x21\3", 2},              /* UINT4 */
        {22, 3, 2, {0xf8, -8}, "\xf8\xf8", 2},           /* INT4 */
        {23, 2, 1, {0x7f}, "\x7f", 1},                   /* FP4E2M1 */
        {25, 5, 2, {0xe4, 1}, "\xe4\1", 2},              /* UINT2 */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int packed = 0; packed < 2; packed++) {
            struct message tensor =
                onnx_tensor("z", cases[i].type, DIMS((int64_t)cases[i].elements));
            for (size_t j = 0; j < cases[i].count && !packed; j++)
                put_number(&tensor, ONNX_TENSOR_INT32_DATA, (uint64_t)(int64_t)cases[i].numbers[j]);
            if (packed)
                put_int32s(&tensor, cases[i].count, cases[i].numbers);
            expect_model(zero_point_file(tensor, cases[i].type));
            cr_assert_eq(qk_type_info(zero_point()->type)->onnx, cases[i].type);
            cr_assert_eq(zero_point()->count, cases[i].elements);
            cr_assert_eq(memcmp(zero_point()->data, cases[i].bytes, cases[i].byte_count), 0,
                         "type %d", cases[i].type);
        }
    }
}

Test(onnx_tensors, numbers_beyond_their_type)
{
    const struct {
        int type;
        int32_t number;
        const char *text;
    } cases[] = {
        {2, 256, "int32_data[0]: expected 0 to 255 for UINT8, got 256"},
        {2, -1, "int32_data[0]: expected 0 to 255 for UINT8, got -1"},
        {3, 128, "int32_data[0]: expected -128 to 127 for INT8, got 128"},
        {5, 32768, "int32_data[0]: expected -32768 to 32767 for INT16, got 32768"},
        {17, -1, "int32_data[0]: expected 0 to 255 for FP8E4M3FN, got -1"},
        {22, 256, "int32_data[0]: expected -128 to 255 for INT4, got 256"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct message tensor = onnx_tensor("z", cases[i].type, NO_DIMS);
        put_int32s(&tensor, 1, &cases[i].number);
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        expect_error(zero_point_file(tensor, cases[i].type), text);
    }
}

Test(onnx_tensors, float_data_and_raw_data)
{
    struct message tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(2));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    struct message file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_model(onnx_model(file, 13));
    cr_assert_eq(memcmp(scale()->data, (const float[]){1, 2}, 8), 0);

    tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(2));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, (const float[]){1, 2}, 8);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_error(onnx_model(file, 13),
                 "initializer 0 (\"s\"): expected raw_data or numbers, got both");

    tensor = onnx_tensor("s", ONNX_FLOAT, DIMS(3));
    put_data(&tensor, ONNX_TENSOR_FLOAT_DATA, (const float[]){1, 2}, 8);
    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor);
    expect_error(onnx_model(file, 13), "initializer 0 (\"s\"): float_data: expected 3 numbers for "
                                       "3 elements of FP32, got 2");

    file = dequantize_graph(NAMES("x", "s"));
    put_message(&file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, DIMS(2), "\0\0\0\0\0\0\0", 7));
    expect_error(onnx_model(file, 13), "initializer 0 (\"s\"): raw_data: expected 8 bytes for 2 "
                                       "elements of FP32, got 7");
}

/* directml.ElementWiseDequantizeLinear takes UINT32, but ONNX's operators do not. Such a tensor is
 * read before its node refuses it. */
Test(onnx_tensors, uint64_data)
{
    struct message tensor = onnx_tensor("z", 12, NO_DIMS);
    put_number(&tensor, ONNX_TENSOR_UINT64_DATA, UINT32_MAX);
    cr_assert_eq(read_model(zero_point_file(tensor, ONNX_UINT8)), QD_INVALID);
    cr_assert_not_null(strstr(error.text, "got UINT32"), "%s", error.text);
    tensor = onnx_tensor("z", 12, NO_DIMS);
    put_number(&tensor, ONNX_TENSOR_UINT64_DATA, UINT32_MAX + UINT64_C(1));
    expect_error(zero_point_file(tensor, ONNX_UINT8),
                 "initializer 1 (\"z\"): uint64_data[0]: expected 0 to 4294967295 for UINT32, got "
                 "4294967296");
}

/* Reads a tensor by itself, because no operator takes every type. Frees it. */
static enum qd_status read_tensor(struct message message, struct qk_tensor *tensor)
{
    struct qd_onnx_reader reader = {.arena = &scratch.arena, .error = &error};
    ProtobufCAllocator *const allocator = NULL; /* malloc */
    Onnx__TensorProto *proto =
        onnx__tensor_proto__unpack(allocator, message.count, (const unsigned char *)message.bytes);
    cr_assert_not_null(proto);
    error.text[0] = '\0';
    const enum qd_status status = qd_onnx_read_tensor(&reader, proto, "t", tensor);
    size_t bytes = 0;
    if (status == QD_OK && qk_type_bytes(tensor->type, tensor->count, &bytes)) {
        void *data = qd_arena_alloc(&scratch.arena, bytes);
        tensor->data = memcpy(data, tensor->data, bytes);
    }
    onnx__tensor_proto__free_unpacked(proto, allocator);
    message_free(&message);
    return status;
}

static void expect_tensor_error(struct message message, const char *text)
{
    struct qk_tensor tensor;
    cr_assert_eq(read_tensor(message, &tensor), QD_INVALID);
    cr_assert_str_eq(error.text, text);
}

Test(onnx_tensors, int64_data)
{
    static const int64_t numbers[] = {0, -1, INT64_MAX, INT64_MIN};
    for (int form = 0; form < 3; form++) {
        struct message message = onnx_tensor("t", ONNX_INT64, DIMS(2, 2));
        struct message list = {.bytes = NULL};
        struct qk_tensor tensor;
        for (size_t i = 0; i < 4; i++) {
            struct message one = {.bytes = NULL};
            put_number(&one, ONNX_TENSOR_INT64_DATA, (uint64_t)numbers[i]);
            if (form == 0)
                put_bytes(&message, one.bytes, one.count);
            put_bytes(&list, one.bytes + 1, one.count - 1); /* without the field number */
            message_free(&one);
        }
        if (form == 1)
            put_data(&message, ONNX_TENSOR_INT64_DATA, list.bytes, list.count);
        if (form == 2)
            put_data(&message, ONNX_TENSOR_RAW_DATA, numbers, sizeof(numbers));
        message_free(&list);
        cr_assert_eq(read_tensor(message, &tensor), QD_OK, "%s", error.text);
        cr_assert_eq(tensor.type, QK_INT64);
        cr_assert_eq(tensor.rank, 2);
        cr_assert_eq(memcmp(tensor.data, numbers, sizeof(numbers)), 0, "form %d", form);
    }
    struct message message = onnx_tensor("t", ONNX_INT64, DIMS(2));
    put_number(&message, ONNX_TENSOR_INT64_DATA, 1);
    expect_tensor_error(message,
                        "t: int64_data: expected 2 numbers for 2 elements of INT64, got 1");
    message = onnx_tensor("t", ONNX_INT64, DIMS(1));
    put_number(&message, ONNX_TENSOR_INT64_DATA, 1);
    put_data(&message, ONNX_TENSOR_RAW_DATA, numbers, 8);
    expect_tensor_error(message, "t: expected raw_data or numbers, got both");
    expect_tensor_error(tensor_of("t", ONNX_INT64, DIMS(1), "\1\2\3\4", 4),
                        "t: raw_data: expected 8 bytes for 1 elements of INT64, got 4");
}

Test(onnx_tensors, bools)
{
    struct qk_tensor tensor;
    struct message message = onnx_tensor("t", ONNX_BOOL, DIMS(3));
    put_int32s(&message, 3, (const int32_t[]){1, 0, 1});
    cr_assert_eq(read_tensor(message, &tensor), QD_OK, "%s", error.text);
    cr_assert_eq(tensor.type, QK_BOOL);
    cr_assert_eq(memcmp(tensor.data, "\1\0\1", 3), 0);
    cr_assert_eq(read_tensor(tensor_of("t", ONNX_BOOL, DIMS(3), "\0\1\1", 3), &tensor), QD_OK);
    cr_assert_eq(memcmp(tensor.data, "\0\1\1", 3), 0);
    message = onnx_tensor("t", ONNX_BOOL, DIMS(2));
    put_int32s(&message, 2, (const int32_t[]){1, 2});
    expect_tensor_error(message, "t: int32_data[1]: expected 0 to 1 for BOOL, got 2");
    expect_tensor_error(tensor_of("t", ONNX_BOOL, DIMS(3), "\0\1\xff", 3),
                        "t: raw_data[2]: expected 0 to 1 for BOOL, got 255");
}

Test(onnx_tensors, dims)
{
    const struct {
        size_t rank;
        int64_t dims[2];
        const char *text;
    } cases[] = {
        {1, {-3}, "dims[0]: expected at least 0, got -3"},
        {2, {INT64_MAX, 4}, "dims: their product overflows 64 bits"},
        {2,
         {INT64_MAX, 2},
         "raw_data: expected 18446744073709551614 bytes for "
         "18446744073709551614 elements of UINT8, got 1"},
        {1, {2}, "raw_data: expected 2 bytes for 2 elements of UINT8, got 1"},
        {2, {0, 7}, "raw_data: expected 0 bytes for 0 elements of UINT8, got 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        expect_error(
            zero_point_file(tensor_of("z", ONNX_UINT8, cases[i].rank, cases[i].dims, "\1", 1),
                            ONNX_UINT8),
            text);
    }
    int64_t ones[33];
    for (size_t i = 0; i < 33; i++)
        ones[i] = 1;
    expect_error(zero_point_file(tensor_of("z", ONNX_UINT8, 33, ones, "\1", 1), ONNX_UINT8),
                 "initializer 1 (\"z\"): dims: expected at most 32, got 33");
    expect_error(
        zero_point_file(tensor_of("z", ONNX_DOUBLE, NO_DIMS, "\1\0\0\0\0\0\0\0", 8), ONNX_UINT8),
        "initializer 1 (\"z\"): data_type: expected a TensorProto.DataType that quantd "
        "has, got 11 (DOUBLE)");
    expect_error(zero_point_file(tensor_of("z", 99, NO_DIMS, "\1", 1), ONNX_UINT8),
                 "initializer 1 (\"z\"): data_type: expected a TensorProto.DataType that quantd "
                 "has, got 99");
    expect_model(zero_point_file(tensor_of("z", ONNX_UINT8, DIMS(0), "", 0), ONNX_UINT8));
    cr_assert_eq(zero_point()->count, 0);
    cr_assert_not_null(zero_point()->data);
}

/* ---- External data ----------------------------------------------------------------------- */

struct folder {
    enum qd_status status;
    unsigned calls;
    unsigned char byte; /* each byte of the data */
    char location[64];
    uint64_t offset;
    uint64_t length;
};

static enum qd_status read_folder(void *context, const char *location, uint64_t offset,
                                  uint64_t length, struct qd_arena *arena, const void **data,
                                  struct qd_error *refusal)
{
    struct folder *folder = context;
    folder->calls++;
    snprintf(folder->location, sizeof(folder->location), "%s", location);
    folder->offset = offset;
    folder->length = length;
    void *bytes = qd_arena_alloc(arena, length);
    *data = memset(bytes, folder->byte, length);
    return folder->status == QD_OK ? QD_OK : qd_fail(refusal, folder->status, "no such file");
}

static void put_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {.bytes = NULL};
    put_string(&entry, 1, key);
    put_string(&entry, 2, value);
    put_message(tensor, ONNX_TENSOR_EXTERNAL_DATA, entry);
}

static struct message external_tensor(const char *location, const char *offset, const char *length)
{
    struct message tensor = onnx_tensor("z", ONNX_UINT8, DIMS(3));
    put_number(&tensor, ONNX_TENSOR_DATA_LOCATION, 1);
    if (location != NULL)
        put_entry(&tensor, "location", location);
    if (offset != NULL)
        put_entry(&tensor, "offset", offset);
    if (length != NULL)
        put_entry(&tensor, "length", length);
    return tensor;
}

static enum qd_status read_in(struct folder *folder, struct message tensor)
{
    struct message model = zero_point_file(tensor, ONNX_UINT8);
    enum qd_status status = read_source((struct qd_onnx_source){
        .bytes = model.bytes, .count = model.count, .external = read_folder, .context = folder});
    message_free(&model);
    return status;
}

Test(onnx_tensors, external_data)
{
    struct folder folder = {.status = QD_OK};
    struct message tensor = external_tensor("weights/z.bin", "4096", "3");
    put_entry(&tensor, "checksum", "ab");
    cr_assert_eq(read_in(&folder, tensor), QD_OK, "%s", error.text);
    cr_assert_str_eq(folder.location, "weights/z.bin");
    cr_assert_eq(folder.offset, 4096);
    cr_assert_eq(folder.length, 3);
    cr_assert_eq(memcmp(zero_point()->data, "\0\0\0", 3), 0);
    cr_assert_eq(read_in(&folder, external_tensor("z", NULL, NULL)), QD_OK);
    cr_assert_eq(folder.offset, 0);
    cr_assert_eq(folder.length, 3);
    folder.status = QD_NOT_FOUND;
    cr_assert_eq(read_in(&folder, external_tensor("../z", NULL, NULL)), QD_NOT_FOUND);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): external_data: location \"../z\": no such "
                                 "file");
    expect_error(zero_point_file(external_tensor("z", NULL, NULL), ONNX_UINT8),
                 "initializer 1 (\"z\"): external_data: location \"z\": expected all data in the "
                 "file itself, for it has no folder");
}

Test(onnx_tensors, external_data_that_is_wrong)
{
    struct folder folder = {.status = QD_OK};
    const struct {
        const char *location, *offset, *length, *text;
    } cases[] = {
        {NULL, "0", NULL, "external_data: expected a location, got none"},
        {"z", "-1", NULL, "external_data: offset: expected bytes, got \"-1\""},
        {"z", "0x10", NULL, "external_data: offset: expected bytes, got \"0x10\""},
        {"z", "", NULL, "external_data: offset: expected bytes, got \"\""},
        {"z", "100000000000000000000", NULL,
         "external_data: offset: expected bytes, got \"100000000000000000000\""},
        {"z", "0", "4", "external_data: length: expected 3 bytes for 3 elements of UINT8, got 4"},
        {"\xff", NULL, NULL, "external_data: location: expected UTF-8 without NULs, got \"?\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "initializer 1 (\"z\"): %s", cases[i].text);
        cr_assert_eq(
            read_in(&folder, external_tensor(cases[i].location, cases[i].offset, cases[i].length)),
            QD_INVALID);
        cr_assert_str_eq(error.text, text);
    }
    struct message tensor = external_tensor("z", NULL, NULL);
    put_entry(&tensor, "location", "other");
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): external_data: expected each key once, "
                                 "got \"location\" twice");
    tensor = external_tensor("z", NULL, NULL);
    put_data(&tensor, ONNX_TENSOR_RAW_DATA, "\1\2\3", 3);
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): expected no data beside external_data, "
                                 "got some");
    tensor = external_tensor("z", NULL, NULL);
    put_number(&tensor, ONNX_TENSOR_DATA_LOCATION, 2);
    cr_assert_eq(read_in(&folder, tensor), QD_INVALID);
    cr_assert_str_eq(error.text, "initializer 1 (\"z\"): data_location: expected 0 (DEFAULT) or 1 "
                                 "(EXTERNAL), got 2");
    cr_assert_eq(folder.calls, 0);
}

Test(onnx_tensors, external_bools_and_int64s)
{
    struct folder folder = {.status = QD_OK, .byte = 2};
    const struct qd_onnx_source source = {.external = read_folder, .context = &folder};
    struct qd_onnx_reader reader = {.source = &source, .arena = &scratch.arena, .error = &error};
    struct qk_tensor tensor;
    int64_t dims[] = {3};
    Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    Onnx__StringStringEntryProto *entries[] = {&entry};
    Onnx__TensorProto proto = ONNX__TENSOR_PROTO__INIT;
    entry.key = (ProtobufCBinaryData){8, (uint8_t *)"location"};
    entry.value = (ProtobufCBinaryData){1, (uint8_t *)"z"};
    proto.dims = dims;
    proto.n_dims = 1;
    proto.data_type = ONNX_BOOL;
    proto.data_location = 1;
    proto.external_data = entries;
    proto.n_external_data = 1;
    /* The bytes may come after the file has been read, so nothing looks at them here. */
    cr_assert_eq(qd_onnx_read_tensor(&reader, &proto, "t", &tensor), QD_OK, "%s", error.text);
    proto.data_type = ONNX_INT64;
    cr_assert_eq(qd_onnx_read_tensor(&reader, &proto, "t", &tensor), QD_OK, "%s", error.text);
    cr_assert_eq(folder.length, 24);
    cr_assert_eq(((const int64_t *)tensor.data)[2], 0x0202020202020202);
}
