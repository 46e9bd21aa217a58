/* Makes a model from the bytes of one version, up to a graph that is ready to be packed. Uses no
 * loop, no clock, and no files except those that `external` reads. It takes two steps, so that
 * external data may be read between them: qd_build_read parses the source, and qd_build_prepare
 * needs the external data. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/model.h"
#include "server/models/model_config.h"
#include "server/models/onnx/onnx_list.h"

enum qd_source_kind { QD_SOURCE_ONNX, QD_SOURCE_REQUEST };

/* What a version is made of. All pointers are borrowed until the graph is packed. */
struct qd_source {
    enum qd_source_kind kind;
    /* The bytes of the ONNX file, or of a request: its JSON followed by its binary tensors.
     * `external` is for ONNX files only. */
    struct qd_onnx_source content;
    size_t json_bytes; /* length of a request's JSON */
    bool is_file;      /* the request is request.json, and its binary tensors are request.bin */
};

/* How much a load has done beside reading its file once, over all builds of the load. */
struct qd_build_work {
    struct qk_graph_work computed; /* constants that nodes compute */
    size_t tried_nodes;            /* of graphs that were only tried; see qd_build_try */
    size_t planned_bytes;          /* of plans that were only tried; see plans.h */
};

/* The most that a load may try, in nodes: QD_TRIED_NODES_MAX nodes take about a second. A graph of
 * 1,024 nodes whose 32 inputs have two possible types each is tried 34 times. A file that is read
 * again to find its parts counts as QD_TRIED_FILE_NODES nodes, more than most networks have.
 * QD_TRIED_NODE_BYTES bytes of constants count as a node, because they take as long to check. */
#define QD_TRIED_NODES_MAX ((size_t)64 << 10)
#define QD_TRIED_FILE_NODES ((size_t)2048)
#define QD_TRIED_NODE_BYTES ((size_t)64 << 10)

struct qd_build {
    /* Borrowed. */
    const struct qk_kernels *kernels;
    const char *name; /* the model's name */
    uint64_t version;
    const struct qd_model_config *config;
    struct qd_arena *scratch; /* holds everything that is needed until the graph is packed */
    struct qd_memory *memory; /* holds what the model keeps; counts in --max-model-bytes */
    struct qd_build_work *work;
    bool lists_nodes;               /* fill in `listed` and call.fates, for people */
    const struct qd_labels *labels; /* of outputs without labels of their own; NULL: none */
    /* By the configuration's outputs: the labels in its label_file. NULL: none has one. */
    const struct qd_labels *const *output_labels;

    /* Set by qd_build_read, in the scratch arena. */
    /* A request sets only the call and the ports. The outputs' types are known once the graph is
     * prepared. A node that a later step refuses becomes refused_node, too. */
    struct qd_onnx_graph graph;
    bool is_onnx;               /* false: the version is a request */
    uint32_t untyped;           /* bit i: the source does not say which type input i has */
    struct qd_onnx_list listed; /* of an ONNX file; empty without lists_nodes */
    /* What the passes take. A build that is a copy of this one, and frees its own arena, counts
     * from here on. */
    struct qk_graph_memory computed;
    const char *platform;
    char about[160];
};

/* Counts a graph that is tried: read, or prepared. Returns false, and does not count it, if the
 * load would then have tried too much. */
bool qd_build_try(struct qd_build_work *work, size_t node_count, size_t constant_bytes);

enum qd_status qd_build_read(struct qd_build *build, const struct qd_source *source,
                             struct qd_error *error);

/* Makes the model with its graph, which is not packed yet. The caller packs `graph`; it is NULL if
 * each request makes a graph of its own. The caller releases the model. If it is refused, both are
 * NULL. */
enum qd_status qd_build_prepare(struct qd_build *build, struct qd_model **model,
                                struct qk_graph **graph, struct qd_error *error);

/* Makes a model of a part of the file that `whole` was read from, without external data and with no
 * configuration but this one. The caller releases the model, which is NULL if the part is refused,
 * and then the arena. Sets *refused_node as qd_onnx_graph has it. */
enum qd_status qd_build_part(const struct qd_build *whole, const struct qd_source *source,
                             const struct qd_onnx_cut *cut, uint64_t batch_max,
                             struct qd_arena *arena, struct qd_model **model,
                             uint32_t *refused_node);
