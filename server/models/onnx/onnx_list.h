/* Lists the nodes of an ONNX file as the file has them, for people. Pure. */
#ifndef SERVER_MODELS_ONNX_ONNX_LIST_H
#define SERVER_MODELS_ONNX_ONNX_LIST_H

#include "server/models/onnx/onnx.h"

/* The most nodes that are listed. A graph that runs has fewer (QK_GRAPH_NODE_COUNT_MAX), but a file
 * may have Constant nodes, and nodes that no output needs. */
#define QD_ONNX_LISTED_MAX ((size_t)16384)

/* The most refusals that are listed with their reason. */
#define QD_ONNX_REFUSALS_MAX ((size_t)256)

struct qd_onnx_listed {
    /* In the arena. Bytes that are no UTF-8, and control characters, may be among them. */
    const char *name;          /* "" if it has none */
    const char *operator_name; /* "Conv" or, of other domains, "com.microsoft.QLinearAdd" */
    const uint32_t *reads;     /* [read_count]: the listed nodes whose outputs it reads */
    size_t read_count;
    bool is_constant;    /* a Constant node */
    bool is_needed;      /* an output needs it, and it is not cut off */
    bool is_refused;     /* qd_onnx_read would refuse it */
    const char *refusal; /* why, without the node's name; NULL: not said */
};

struct qd_onnx_list {
    struct qd_onnx_listed *nodes; /* [count]: those of the file, in its order */
    size_t count;
    size_t unlisted; /* nodes behind those that are listed */
};

/* Lists the nodes of a file that is refused, as source->cut cuts it, and finds all nodes that would
 * be refused, not only the first. Takes time that is linear in the size of the file. Fails if the
 * file is not one, or if the arena has no room. (qd_onnx_read lists those of a file that it reads.)
 */
enum qd_status qd_onnx_list_refused(const struct qd_onnx_source *source, struct qd_arena *arena,
                                    struct qd_onnx_list *list, struct qd_error *error);

#endif
