/* Writes ONNX files, valid or invalid, for tests of the model loader: protobuf messages, field by
 * field. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A message, as far as it has been written. {0} is an empty one. */
struct message {
    char *bytes;
    size_t count;
    size_t room;
};

void message_free(struct message *message);

void put_bytes(struct message *message, const void *bytes, size_t count); /* verbatim */
/* Append a field to the message. `field` is the number of the field. */
void put_number(struct message *message, unsigned field, uint64_t number);
void put_float(struct message *message, unsigned field, float number);
void put_data(struct message *message, unsigned field, const void *data, size_t count);
void put_string(struct message *message, unsigned field, const char *string);
void put_message(struct message *message, unsigned field, struct message inner); /* frees `inner` */

/* ---- ONNX's messages; lists of names end with NULL --------------------------------------- */

enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_BOOL = 9,
    ONNX_DOUBLE = 11
};

#define NAMES(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define DIMS(...)                                                               \
    sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]) \
    {                                                                           \
        __VA_ARGS__                                                             \
    }
#define NO_DIMS 0, NULL

struct message onnx_node(const char *name, const char *op_type, const char *const *inputs,
                         const char *const *outputs);
struct message onnx_attribute_float(const char *name, float number);
struct message onnx_attribute_int(const char *name, int64_t number);
struct message onnx_attribute_ints(const char *name, size_t count, const int64_t *numbers);
struct message onnx_attribute_string(const char *name, const char *string);
/* Makes a tensor without data. put_data(&tensor, ONNX_TENSOR_RAW_DATA, ...) adds the data. */
struct message onnx_tensor(const char *name, int type, size_t rank, const int64_t *dims);
struct message onnx_value_info(const char *name, int type, size_t rank, const int64_t *dims);
/* Makes a whole file. Frees the graph. */
struct message onnx_model(struct message graph, uint64_t opset);

enum onnx_field {
    ONNX_GRAPH_NODE = 1,
    ONNX_GRAPH_NAME = 2,
    ONNX_GRAPH_INITIALIZER = 5,
    ONNX_GRAPH_INPUT = 11,
    ONNX_GRAPH_OUTPUT = 12,
    ONNX_GRAPH_SPARSE_INITIALIZER = 15,
    ONNX_NODE_ATTRIBUTE = 5,
    ONNX_NODE_DOMAIN = 7,
    ONNX_TENSOR_FLOAT_DATA = 4,
    ONNX_TENSOR_INT32_DATA = 5,
    ONNX_TENSOR_INT64_DATA = 7,
    ONNX_TENSOR_NAME = 8,
    ONNX_TENSOR_RAW_DATA = 9,
    ONNX_TENSOR_UINT64_DATA = 11,
    ONNX_TENSOR_EXTERNAL_DATA = 13,
    ONNX_TENSOR_DATA_LOCATION = 14,
    ONNX_MODEL_IR_VERSION = 1,
    ONNX_MODEL_PRODUCER_NAME = 2,
    ONNX_MODEL_GRAPH = 7,
    ONNX_MODEL_OPSET_IMPORT = 8,
    ONNX_MODEL_FUNCTIONS = 25
};
