/* What the sources that read an ONNX file (onnx.h) share. No other source uses protobuf-c's
 * messages. */
#pragma once

#include "server/json/tree.h"
#include "server/models/onnx/onnx.h"
#include "server/models/onnx/onnx.pb-c.h"

/* Where a value comes from. The order of these constants matters: onnx.c sorts values of the same
 * name by it. Its drop_duplicates then drops an input that comes after an initializer of the same
 * name, and takes all kinds up to QD_ONNX_SPARSE for initializers. */
enum qd_onnx_maker {
    QD_ONNX_INITIALIZER,
    QD_ONNX_SPARSE,
    QD_ONNX_INPUT,    /* an input of the file, or a value that the caller sends instead */
    QD_ONNX_CONSTANT, /* a Constant node */
    QD_ONNX_NODE      /* any other node */
};

struct qd_onnx_value {
    ProtobufCBinaryData name;
    enum qd_onnx_maker maker;
    size_t position;          /* in the file's list of initializers, inputs or nodes */
    uint32_t number;          /* number in `call` of a value from an input or a node */
    struct qk_tensor *tensor; /* a constant's tensor; NULL until a node reads it */
    bool is_needed;           /* a node that is taken reads it */
    bool is_refused;          /* a constant whose tensor could not be read */
};

struct qd_onnx_reader {
    const struct qd_onnx_source *source;
    const Onnx__ModelProto *model;
    const Onnx__GraphProto *proto;
    struct qd_arena *arena;
    struct qd_onnx_graph *graph;
    bool only_lists;              /* external data is not asked for */
    uint64_t microsoft_opset;     /* the version of com.microsoft; 0: the file imports none */
    struct qd_onnx_value *values; /* sorted by name */
    size_t value_count;
    bool *is_taken; /* for each node of the file: whether an output needs it */
    size_t *order; /* [taken_count]: these nodes, each behind those that it reads, but for cycles */
    size_t taken_count;
    struct qd_port *inputs; /* those of `graph` */
    struct qk_node *nodes;
    const char **value_names; /* those of `graph`, once nodes are read */
    struct qd_error *error;
};

/* The raw_data of an initializer that is not in the skeleton. */
struct qd_onnx_taken {
    size_t tensor; /* the initializer's number in the file's list */
    const uint8_t *data;
    size_t bytes; /* 0: another raw_data of the same tensor comes later, and counts */
};

/* The file without large weights (onnx_skeleton.c). */
struct qd_onnx_skeleton {
    const uint8_t *bytes; /* in the arena; the file itself if nothing was taken out */
    size_t count;
    const struct qd_onnx_taken *taken;
    size_t taken_count;
};

/* Makes the skeleton of the file. Fails if the arena has no room. Does not check the file. */
enum qd_status qd_onnx_make_skeleton(const struct qd_onnx_reader *reader,
                                     struct qd_onnx_skeleton *skeleton);
/* Points the parsed initializers at what was taken out. */
void qd_onnx_put_back(const struct qd_onnx_skeleton *skeleton, Onnx__GraphProto *graph);

/* A part of the file, for errors: 'node 3 ("conv1", "QLinearConv")'. */
struct qd_onnx_where {
    char text[192];
};
struct qd_onnx_where qd_onnx_node_where(const struct qd_onnx_reader *reader, size_t position);
struct qd_onnx_where qd_onnx_value_where(const struct qd_onnx_reader *reader,
                                         const struct qd_onnx_value *value);

struct qd_shown qd_onnx_show(const ProtobufCBinaryData *bytes);
bool qd_onnx_is(const ProtobufCBinaryData *bytes, const char *text);
/* Returns whether the domain is ONNX's own, which has two names: "" and "ai.onnx". */
bool qd_onnx_is_own_domain(const ProtobufCBinaryData *domain);
bool qd_onnx_is_constant(const Onnx__NodeProto *node);

/* Copies a string of the file into the arena, with a NUL at its end. Refuses a string that is not
 * UTF-8, has a NUL inside, or is longer than QD_ONNX_NAME_BYTES_MAX. */
enum qd_status qd_onnx_copy_string(const ProtobufCBinaryData *bytes, const char *where,
                                   struct qd_arena *arena, const char **string,
                                   struct qd_error *error);

/* Finds a value by its name. Returns NULL if the file has no value of this name. */
struct qd_onnx_value *qd_onnx_find_value(const struct qd_onnx_reader *reader,
                                         const ProtobufCBinaryData *name);

/* Puts the reason why the arena refused the last allocation into the reader's error, and returns
 * its status. */
enum qd_status qd_onnx_no_memory(const struct qd_onnx_reader *reader);

/* Sets *type to the type with this number in TensorProto.DataType. */
enum qd_status qd_onnx_read_type(int32_t number, const char *where, enum qk_type *type,
                                 struct qd_error *error);

enum qd_status qd_onnx_read_tensor(const struct qd_onnx_reader *reader,
                                   const Onnx__TensorProto *proto, const char *where,
                                   struct qk_tensor *tensor);

/* Starts and ends the graph where reader->source says: the values that callers send become inputs.
 * Marks and orders the nodes that the outputs need, and marks the values that these nodes read.
 * Constant nodes are not marked. Takes time linear in the size of the file. */
enum qd_status qd_onnx_select(struct qd_onnx_reader *reader);

/* The outputs: those that the caller wants, or the file's. */
size_t qd_onnx_output_count(const struct qd_onnx_reader *reader);
ProtobufCBinaryData qd_onnx_output_name(const struct qd_onnx_reader *reader, size_t index);

/* Finds what the file says of a value's type and shape. Returns NULL if it says nothing. */
const Onnx__ValueInfoProto *qd_onnx_find_info(const struct qd_onnx_reader *reader,
                                              const ProtobufCBinaryData *name);

/* Returns whether the caller names this input of the graph, which has a number. */
bool qd_onnx_is_cut(const struct qd_onnx_reader *reader, const struct qd_onnx_value *value);

/* Does what is done before nodes and outputs are read: parses the file, selects its nodes, reads
 * the inputs and numbers the values. */
enum qd_status qd_onnx_open(struct qd_onnx_reader *reader);

/* Lists the nodes of the file. Needs qd_onnx_open. Fails if the arena has no room. */
enum qd_status qd_onnx_list_nodes(const struct qd_onnx_reader *reader, struct qd_onnx_list *list);

/* Reads one node alone, and forgets it. Needs qd_onnx_open. Fails as qd_onnx_read_nodes would. */
enum qd_status qd_onnx_try_node(struct qd_onnx_reader *reader, size_t position);

/* Reads the nodes that are marked. The values must have been numbered. */
enum qd_status qd_onnx_read_nodes(struct qd_onnx_reader *reader);
