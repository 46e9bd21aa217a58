/* From one version's bytes to a model whose graph is ready to be packed. No loop, no clock, no
 * files but those that `external` reads. In two steps, so that external data may be read between
 * them: qd_build_read parses, qd_build_prepare looks at constants' data. */
#ifndef SERVER_MODELS_BUILD_H
#define SERVER_MODELS_BUILD_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/model.h"
#include "server/models/model_config.h"
#include "server/models/onnx/onnx.h"

enum qd_source_kind { QD_SOURCE_ONNX, QD_SOURCE_REQUEST };

/* What a version is made of. All borrowed until the graph is packed. */
struct qd_source {
    enum qd_source_kind kind;
    struct qd_onnx_source onnx; /* a request: its JSON, and binary tensors behind it */
    size_t json_bytes;          /* of a request: how much of it is the JSON */
    bool is_file;               /* of a request: its binary tensors are request.bin */
};

struct qd_build {
    /* Borrowed. */
    const struct qk_kernels *kernels;
    const char *name; /* of the model */
    uint64_t version;
    const struct qd_model_config *config;
    struct qd_arena *scratch; /* whatever is needed until the graph is packed */
    struct qd_memory *memory; /* the models' own: what stays */

    /* qd_build_read's, in the scratch. */
    struct qk_graph_call call;
    const struct qd_port *inputs;
    const struct qd_port *outputs;    /* types are known when the graph is prepared */
    uint32_t untyped;                 /* bit i: whoever runs it says which type input i has */
    const struct qd_onnx_graph *onnx; /* NULL: it was a request */
    const char *platform;
    char about[160];
};

enum qd_status qd_build_read(struct qd_build *build, const struct qd_source *source,
                             struct qd_error *error);

/* The model has the graph, which is not packed yet; `graph` is to pack it, or NULL where each
 * request makes its own. */
enum qd_status qd_build_prepare(struct qd_build *build, struct qd_model **model,
                                struct qk_graph **graph, struct qd_error *error);

#endif
