/* What the files that read an ONNX file share (onnx.h); they alone see protobuf-c's messages. */
#ifndef SERVER_MODELS_ONNX_ONNX_READER_H
#define SERVER_MODELS_ONNX_ONNX_READER_H

#include "server/json/tree.h"
#include "server/models/onnx/onnx.h"
#include "server/models/onnx/onnx.pb-c.h"

/* Who makes a value. Of one name, an initializer stands before an input. */
enum qd_onnx_maker {
    QD_ONNX_INITIALIZER,
    QD_ONNX_SPARSE,
    QD_ONNX_INPUT,
    QD_ONNX_CONSTANT, /* a node of that operator */
    QD_ONNX_NODE      /* any other */
};

struct qd_onnx_value {
    ProtobufCBinaryData name;
    enum qd_onnx_maker maker;
    size_t position;          /* in the file's list of its makers */
    uint32_t number;          /* of what an input or a node makes, in call */
    struct qk_tensor *tensor; /* of a constant: NULL until a node reads it */
};

struct qd_onnx_reader {
    const struct qd_onnx_source *source;
    const Onnx__ModelProto *model;
    const Onnx__GraphProto *proto;
    struct qd_arena *arena;
    struct qd_onnx_graph *graph;
    bool versioned;               /* the file says which opset of ONNX's domain it means */
    struct qd_onnx_value *values; /* by name */
    size_t value_count;
    struct qk_node *nodes;
    struct qd_onnx_deferred *deferred;
    struct qd_error *error;
};

/* A part of the file, for errors: 'node 3 ("conv1", "QLinearConv")'. */
struct qd_onnx_where {
    char text[192];
};
struct qd_onnx_where qd_onnx_node_where(const struct qd_onnx_reader *reader, size_t position);
struct qd_onnx_where qd_onnx_value_where(const struct qd_onnx_reader *reader,
                                         const struct qd_onnx_value *value);

struct qd_shown qd_onnx_show(const ProtobufCBinaryData *bytes);
bool qd_onnx_is(const ProtobufCBinaryData *bytes, const char *text);
/* The domain of ONNX's own operators, which has two names. */
bool qd_onnx_is_own_domain(const ProtobufCBinaryData *domain);
bool qd_onnx_is_constant(const Onnx__NodeProto *node);

/* A string of the file, with a NUL behind it. Refuses what is no UTF-8 or has a NUL inside. */
enum qd_status qd_onnx_copy_string(const ProtobufCBinaryData *bytes, const char *where,
                                   struct qd_arena *arena, const char **string,
                                   struct qd_error *error);

/* NULL: nobody makes it. */
struct qd_onnx_value *qd_onnx_find_value(const struct qd_onnx_reader *reader,
                                         const ProtobufCBinaryData *name);

/* The last allocation failed. */
enum qd_status qd_onnx_no_memory(const struct qd_onnx_reader *reader);

/* The type with this number in TensorProto.DataType. */
enum qd_status qd_onnx_read_type(int32_t number, const char *where, enum qk_type *type,
                                 struct qd_error *error);

enum qd_status qd_onnx_read_tensor(const struct qd_onnx_reader *reader,
                                   const Onnx__TensorProto *proto, const char *where,
                                   struct qk_tensor *tensor);

/* All nodes but Constant ones, when the values are numbered. */
enum qd_status qd_onnx_read_nodes(struct qd_onnx_reader *reader);

#endif
