/* quantd --explain: what would become of a model if it was served. Goes the way of a load
 * (server/work/load.c), with its bounds, on the calling thread and without packing. */
#ifndef SERVER_MODELS_EXPLAIN_EXPLAIN_H
#define SERVER_MODELS_EXPLAIN_EXPLAIN_H

#include <stdio.h>

#include "kernels/qk.h"
#include "server/memory/text.h"
#include "server/models/build.h"
#include "server/models/cut_hint.h"
#include "server/models/repository/repository.h"
#include "server/oip/signature.h"

/* What became of a node of the file: constant, name in JSON, words for people. In these, %s is the
 * operator that it runs as, and %u is node `into`. The order counts: a node that became several has
 * the first of their fates, so those that runs compute come first (add_left). */
#define QD_EXPLAINED_LIST(X)                                                                    \
    X(READ, "read", "")           /* the model is refused, but not because of this node */      \
    X(OPERATOR, "operator", "%s") /* runs compute it */                                         \
    X(TABLE, "table", "a table")  /* runs look it up in a table, with other nodes */            \
    X(ALIAS, "alias", "%s, moves nothing")           /* its outputs lie where its inputs lie */ \
    X(PLANNED, "planned", "%s, once for each shape") /* shapes depend on it */                  \
    X(UNUSED, "unused", "%s, which no run needs")                                               \
    X(FOLDED, "folded", "a constant")                                                           \
    X(FUSED, "fused", "a part of node %u")                                                      \
    X(IN_TABLE, "in_table", "a part of the table at node %u")                                   \
    X(CANCELLED, "cancelled", "nothing: it cancels with node %u") /* undoes what that does */   \
    X(REMOVED, "removed", "nothing: no node needs it")                                          \
    X(CONSTANT, "constant", "a constant")                  /* a Constant node */                \
    X(LEFT_OUT, "left_out", "nothing: no output needs it") /* or it is cut off */               \
    X(REFUSED, "refused", "refused")

enum qd_explained_fate {
#define X(name, json, words) QD_EXPLAINED_##name,
    QD_EXPLAINED_LIST(X)
#undef X
};

struct qd_explained_node {
    const char *name;          /* "" if it has none; not always UTF-8 */
    const char *operator_name; /* as the file has it: "Conv" or "com.microsoft.QLinearAdd" */
    enum qd_explained_fate fate;
    uint32_t into;            /* index of a node in the file, or QK_VALUE_NONE */
    const char *runs_as;      /* quantd's operator, if runs or plans compute it; or NULL */
    const char *kernel;       /* NULL: not known */
    uint64_t multiplications; /* for the sizes of `inputs` */
    const uint32_t *reads;    /* [read_count]: nodes in the file whose outputs it reads */
    size_t read_count;
    const char *refusal; /* why it is refused; NULL: not said */
};

/* Everything is borrowed. */
struct qd_explanation {
    const char *program; /* the command that runs quantd */
    const char *path;    /* as the caller gave it */
    const char *name;    /* the model's */
    const char *file;    /* path of the model's own file */
    const char *folder;  /* the repository, if the model is a folder; or NULL */
    const char *about;
    const struct qd_signature *signature; /* NULL: the model is refused */
    struct qd_explained_node *nodes;      /* those of the file */
    size_t node_count;
    size_t unlisted;       /* more nodes */
    bool brings_constants; /* requests bring constants, so that each makes a graph of its own */
    size_t resident_bytes;
    /* The plan for inputs of these shapes. Without a plan, why_unplanned says why there is none. */
    bool is_planned;
    const char *why_unplanned;
    struct qk_tensor inputs[QK_GRAPH_PORT_COUNT_MAX];
    bool has_free_sizes; /* some of these sizes were chosen */
    size_t free_size;    /* for the dimensions behind the first; that is 1 */
    size_t scratch_bytes;
    size_t workspace_bytes;
    uint64_t multiplications;
    /* If the model is refused. */
    struct qd_error error;
    struct qd_cut_hints cuts;
};

struct qd_explain_settings {
    const struct qk_kernels *kernels;
    struct qd_memory *memory; /* of models */
    enum qd_links links;
    const char *program; /* the command that runs quantd */
    const char *path;    /* FILE or NAME=FILE, as of --model, or a folder as in a repository */
    bool as_json;
    size_t columns;    /* the width of the text */
    bool has_progress; /* show on standard error, a terminal, how far it is */
};

/* Prints what would become of the model on `out`. Returns false, with the reason in `error`, if it
 * is refused. */
bool qd_explain(const struct qd_explain_settings *settings, FILE *out, struct qd_error *error);

/* Fills in the nodes, what became of each, and what a request takes for inputs of chosen sizes. If
 * the model is refused, `model` and `graph` are NULL. What it fills in lies in build->scratch. */
enum qd_status qd_explain_nodes(const struct qd_build *build, const struct qd_model *model,
                                const struct qk_graph *graph, struct qd_explanation *made,
                                struct qd_error *error);

/* Does the same for a model that is not packed yet, and keeps the nodes in it, as
 * qd_explanation_put_nodes prints them. */
#define QD_KEPT_NODES_BYTES_MAX ((size_t)256 << 10)
enum qd_status qd_explain_keep(const struct qd_build *build, struct qd_model *model,
                               const struct qk_graph *graph, struct qd_explanation *made,
                               struct qd_error *error);

/* Prints the nodes as a member of a JSON object, as many as fit in `bytes_max`. If the list is not
 * complete, a second member says how many nodes it lacks. */
void qd_explanation_put_nodes(struct qd_text *text, const struct qd_explanation *explanation,
                              size_t bytes_max);

/* Prints an explanation. Returns false if there is no memory or `out` fails. */
bool qd_explanation_print_text(const struct qd_explanation *explanation, size_t columns, FILE *out);
bool qd_explanation_print_json(const struct qd_explanation *explanation, struct qd_arena *arena,
                               FILE *out);

/* Calls `put` for each command of a shell that serves the model or, if it is refused, part `part`
 * of it. Does not call it if one of the commands is too long or there is no memory. */
typedef void qd_explanation_put(void *context, const char *command);
void qd_explanation_commands(const struct qd_explanation *explanation, size_t part,
                             qd_explanation_put *put, void *context);

#endif
