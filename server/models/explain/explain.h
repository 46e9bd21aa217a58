/* quantd --explain: what would become of a model if it was served. Goes the way of a load
 * (server/work/load.c), with its bounds, on the calling thread and without packing. */
#pragma once

#include <stdio.h>

#include "kernels/qk.h"
#include "server/memory/text.h"
#include "server/models/build.h"
#include "server/models/cut_hint.h"
#include "server/models/repository/repository.h"
#include "server/oip/signature.h"

/* Everything is borrowed. */
struct qd_explanation {
    const char *program; /* the command that runs quantd */
    const char *name;    /* the model's */
    const char *file;    /* path of the model's own file */
    const char *folder;  /* the repository, if the model is a folder; or NULL */
    const char *about;
    const struct qd_signature *signature; /* NULL: the model is refused */
    const struct qd_onnx_list *list;      /* the nodes of the file */
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
    size_t columns;    /* the width of the terminal; 0: it is none, and names are printed whole */
    bool has_progress; /* show on standard error, a terminal, how far it is */
};

/* Prints what would become of the model on `out`. Returns false, with the reason in `error`, if it
 * is refused. */
bool qd_explain(const struct qd_explain_settings *settings, FILE *out, struct qd_error *error);

/* Fills in what became of each of build->listed, and what a request takes for inputs of chosen
 * sizes. What it fills in lies in build->scratch. `model` is not packed yet, and keeps the nodes as
 * qd_explanation_put_nodes prints them. */
#define QD_KEPT_NODES_BYTES_MAX ((size_t)256 << 10)
enum qd_status qd_explain_keep(struct qd_build *build, struct qd_model *model,
                               const struct qk_graph *graph, struct qd_explanation *made,
                               struct qd_error *error);

/* Prints the nodes as a member of a JSON object, as many as fit in `bytes_max`. If the list is not
 * complete, a second member says how many nodes it lacks. */
void qd_explanation_put_nodes(struct qd_text *text, const struct qd_explanation *explanation,
                              size_t bytes_max);

/* Prints an explanation. Returns false if there is no memory or `out` fails. */
bool qd_explanation_print_text(const struct qd_explanation *explanation, size_t terminal_columns,
                               struct qd_arena *arena, FILE *out);
bool qd_explanation_print_json(const struct qd_explanation *explanation, struct qd_arena *arena,
                               FILE *out);

/* Makes the commands of a shell that serve the model or, if it is refused, part `part` of it. They
 * lie in the arena. Returns how many there are: none if one of them is too long or there is no
 * memory. */
#define QD_EXPLAIN_COMMAND_COUNT_MAX 4
size_t qd_explanation_commands(const struct qd_explanation *explanation, size_t part,
                               struct qd_arena *arena,
                               const char *commands[QD_EXPLAIN_COMMAND_COUNT_MAX]);
