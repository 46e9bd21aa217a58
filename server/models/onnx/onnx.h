/* Turns an ONNX file into a graph of quantd's operators, in the terms of kernels/qk.h.
 *
 * Pure, except that a callback reads external data. The file is not trusted: every size is checked
 * before memory is allocated, and the arena's bound limits the memory. Errors name the part of the
 * file, the node with its index, name and operator, the field, the rule and the value that broke
 * it.
 *
 * It reads one graph of nodes in ONNX's own domain and in com.microsoft. Initializers and Constant
 * nodes become constants. So does an initializer that is also an input, although ONNX would let a
 * caller override it. Functions in these two domains are refused, because they could stand for an
 * operator. Other domains, subgraphs, and sparse, sequence and map values are refused if a node
 * needs them. Nodes that no output needs, and parts that no other node reads, are not looked at. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

struct qd_onnx_list;

/* The number of values of all kinds in one file. A graph of QK_GRAPH_NODE_COUNT_MAX nodes needs far
 * fewer. */
#define QD_ONNX_VALUE_COUNT_MAX 65536

/* The length of a name of a node, a value or a graph, and of a string that is an attribute.
 * Converters join the names of all layers that they fuse: names of 345 bytes have been seen. What
 * is made of a file may have a name several times, so a long one would take a multiple of the
 * file's bytes. Inputs and outputs of a model have the same bound (QD_PORT_NAME_BYTES_MAX). */
#define QD_ONNX_NAME_BYTES_MAX ((size_t)4096)

/* Where to cut a file. All lists are of different names, and at most QK_GRAPH_PORT_COUNT_MAX long.
 * {0} takes the whole file. */
struct qd_onnx_cut {
    /* Values that callers send, although nodes of the file compute them. They are the first inputs,
     * in this order. The other inputs are those of the file that a node still needs. */
    const char *const *inputs;
    size_t input_count;
    /* The values that are the outputs, in this order. If there are none, the file's outputs. */
    const char *const *outputs;
    size_t output_count;
};

struct qd_onnx_source {
    const char *bytes; /* the file; see points_into_file */
    size_t count;
    /* Gives bytes [offset, offset + length) of a file in the model's folder. `location` is the
     * file's name exactly as the ONNX file has it, so it is not trusted; the callback checks the
     * length of the file before it allocates memory. The data lives as long as the arena. It may be
     * filled in later, because nothing reads it before the graph is prepared or copied. NULL if
     * there is no folder. */
    enum qd_status (*external)(void *context, const char *location, uint64_t offset,
                               uint64_t length, struct qd_arena *arena, const void **data,
                               struct qd_error *error);
    void *context;
    struct qd_onnx_cut cut;
    struct qd_onnx_list *list; /* qd_onnx_read lists the file's nodes here; NULL: nobody asks */
};

/* A graph that was read. It lies in the arena, with its weights, but large weights may stay in the
 * file. External data lies where `external` says. All of it must stay until the graph made from it
 * is packed. */
struct qd_onnx_graph {
    struct qk_graph_call call;
    size_t node_room;      /* how many nodes call.nodes has room for, as in call.node_room */
    uint32_t refused_node; /* the index in the file of a node that is refused, or QK_VALUE_NONE */
    /* [call.input_count]. If the file does not say which type an input has, call.inputs[i].type is
     * QK_NONE, and the port has all types that the nodes take that read it. */
    const struct qd_port *inputs;
    struct qd_port *outputs; /* [call.output_count]; no types if the file says none */
    bool has_deferred;       /* some nodes have deferred constants (model.h) */
    uint64_t opset;
    const char *graph_name; /* "" if it has none */
    const char *producer;   /* "" if unknown */
    bool points_into_file;  /* some weights are in the source's bytes, which must stay */
};

/* Reads a file. Fails with QD_INVALID if the file is wrong, with QD_TOO_LARGE or QD_UNAVAILABLE if
 * the arena has no room, and with any status that `external` returns. */
enum qd_status qd_onnx_read(const struct qd_onnx_source *source, struct qd_arena *arena,
                            struct qd_onnx_graph *graph, struct qd_error *error);

/* Sets the outputs' types. `types` are the types that qk_graph found. It is NULL if there are
 * deferred constants, because there is no graph yet. The file must then declare all types, and is
 * refused otherwise. A file that declares a type other than the one in `types` is refused, too. */
enum qd_status qd_onnx_settle_outputs(const struct qd_onnx_graph *graph, const enum qk_type *types,
                                      struct qd_error *error);

/* ---- Files that are mistaken for an ONNX file: foreign.c ----------------------------------- */

/* Returns what the bytes are, as a phrase for "expected an ONNX file, got <phrase>": a pointer to
 * the file, a web page that explains why the download failed, an archive, a copy that a transfer as
 * text has spoilt, or another framework's model. Some phrases also say what to do. Returns NULL if
 * the bytes are of no known kind, or are an ONNX file. The text is constant. Pure.
 *
 * Call it only for bytes that were refused already. It never takes a complete ONNX file for another
 * format, because it parses the fields of the file before it tries other formats. */
const char *qd_foreign_name(const char *bytes, size_t count);
