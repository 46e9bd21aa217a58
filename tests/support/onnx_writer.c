#include "tests/support/onnx_writer.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH_DELIMITED = 2, FIXED32 = 5 };

void message_free(struct message *message)
{
    free(message->bytes);
    *message = (struct message){.bytes = NULL};
}

void put_bytes(struct message *message, const void *bytes, size_t count)
{
    if (count > message->room - message->count) {
        message->room = 2 * (message->count + count) + 64;
        message->bytes = realloc(message->bytes, message->room);
        if (message->bytes == NULL)
            abort();
    }
    if (count > 0)
        memcpy(message->bytes + message->count, bytes, count);
    message->count += count;
}

static void put_varint(struct message *message, uint64_t number)
{
    unsigned char bytes[10];
    size_t count = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[count++] = (unsigned char)(number | 0x80);
    bytes[count++] = (unsigned char)number;
    put_bytes(message, bytes, count);
}

void put_number(struct message *message, unsigned field, uint64_t number)
{
    put_varint(message, field << 3 | VARINT);
    put_varint(message, number);
}

void put_float(struct message *message, unsigned field, float number)
{
    put_varint(message, field << 3 | FIXED32);
    put_bytes(message, &number, sizeof(number));
}

void put_data(struct message *message, unsigned field, const void *data, size_t count)
{
    put_varint(message, field << 3 | LENGTH_DELIMITED);
    put_varint(message, count);
    put_bytes(message, data, count);
}

void put_string(struct message *message, unsigned field, const char *string)
{
    put_data(message, field, string, strlen(string));
}

void put_message(struct message *message, unsigned field, struct message inner)
{
    put_data(message, field, inner.bytes, inner.count);
    message_free(&inner);
}

/* ---- ONNX's messages --------------------------------------------------------------------- */

struct message onnx_node(const char *name, const char *op_type, const char *const *inputs,
                         const char *const *outputs)
{
    struct message node = {.bytes = NULL};
    for (; *inputs != NULL; inputs++)
        put_string(&node, 1, *inputs);
    for (; *outputs != NULL; outputs++)
        put_string(&node, 2, *outputs);
    put_string(&node, 3, name);
    put_string(&node, 4, op_type);
    return node;
}

static struct message attribute(const char *name, unsigned type)
{
    struct message attribute = {.bytes = NULL};
    put_string(&attribute, 1, name);
    put_number(&attribute, 20, type);
    return attribute;
}

struct message onnx_attribute_float(const char *name, float number)
{
    struct message made = attribute(name, 1);
    put_float(&made, 2, number);
    return made;
}

struct message onnx_attribute_int(const char *name, int64_t number)
{
    struct message made = attribute(name, 2);
    put_number(&made, 3, (uint64_t)number);
    return made;
}

struct message onnx_attribute_ints(const char *name, size_t count, const int64_t *numbers)
{
    struct message made = attribute(name, 7);
    for (size_t i = 0; i < count; i++)
        put_number(&made, 8, (uint64_t)numbers[i]);
    return made;
}

struct message onnx_attribute_string(const char *name, const char *string)
{
    struct message made = attribute(name, 3);
    put_string(&made, 4, string);
    return made;
}

struct message onnx_tensor(const char *name, int type, size_t rank, const int64_t *dims)
{
    struct message tensor = {.bytes = NULL};
    for (size_t i = 0; i < rank; i++)
        put_number(&tensor, 1, (uint64_t)dims[i]);
    put_number(&tensor, 2, (uint64_t)type);
    put_string(&tensor, ONNX_TENSOR_NAME, name);
    return tensor;
}

struct message onnx_value_info(const char *name, int type, size_t rank, const int64_t *dims)
{
    struct message info = {.bytes = NULL};
    struct message wrapped = {.bytes = NULL};
    struct message tensor = {.bytes = NULL};
    struct message shape = {.bytes = NULL};
    for (size_t i = 0; i < rank; i++) {
        struct message dim = {.bytes = NULL};
        if (dims[i] < 0)
            put_string(&dim, 2, "batch");
        else
            put_number(&dim, 1, (uint64_t)dims[i]);
        put_message(&shape, 1, dim);
    }
    put_number(&tensor, 1, (uint64_t)type);
    put_message(&tensor, 2, shape);
    put_message(&wrapped, 1, tensor);
    put_string(&info, 1, name);
    put_message(&info, 2, wrapped);
    return info;
}

struct message onnx_model(struct message graph, uint64_t opset)
{
    struct message model = {.bytes = NULL};
    struct message import = {.bytes = NULL};
    put_string(&import, 1, "");
    put_number(&import, 2, opset);
    put_number(&model, ONNX_MODEL_IR_VERSION, 8);
    put_message(&model, ONNX_MODEL_GRAPH, graph);
    put_message(&model, ONNX_MODEL_OPSET_IMPORT, import);
    return model;
}
