/* Says at which values a refused ONNX file could be cut, so that a part of it runs, and what comes
 * in where a configuration cuts a file. */
#pragma once

#include "server/models/build.h"

#define QD_CUT_HINTS_MAX 2 /* a part before the refused nodes, and one behind them */
#define QD_CUT_HINT_CONFIG_BYTES                                    \
    4096 /* room for some ten names of the longest that tools write \
          */

/* A part of a refused file that loads. */
struct qd_cut_hint {
    size_t node_count;                     /* how many of the nodes that depend on inputs it has */
    char config[QD_CUT_HINT_CONFIG_BYTES]; /* what a configuration has to say: {"outputs": ["x"]} */
};

struct qd_cut_hints {
    struct qd_cut_hint list[QD_CUT_HINTS_MAX];
    size_t count;
    size_t node_count; /* how many nodes of the file depend on inputs; set if there is a hint */
};

/* Finds which configurations would load a part of a file that qd_build_read or qd_build_prepare
 * refused with `error`. A load asks only after qd_build_read, because the file's bytes may be gone
 * later; --explain keeps them and asks after both. Each of them was loaded, to be sure. Finds
 * nothing if no part is worth the name, if a part cannot be found by a few attempts, or if its
 * names are too long. Takes a small multiple of the time of a load. */
void qd_cut_hints_find(const struct qd_build *refused, const struct qd_source *source,
                       const struct qd_error *error, struct qd_cut_hints *hints);

/* Appends the hints to the error's text, such as
 *
 *     ; the configuration {"outputs": ["x"]} runs 41 of the 60 nodes that depend on inputs,
 *     {"inputs": ["y"]} runs 16
 *
 * Leaves out those that do not fit in `bytes_max` bytes of text. */
void qd_cut_hints_print(const struct qd_cut_hints *hints, size_t bytes_max, struct qd_error *error);

/* Finds the types and shapes of the values at which a configuration cuts an ONNX file, where the
 * file does not describe them: fills in what is not known of the inputs that the configuration
 * names. The nodes that are left out know it: they are loaded, up to these inputs, and planned with
 * the shapes of the file's own inputs. Call it between qd_build_read and qd_build_prepare. What the
 * configuration's `input` says of an input is not looked for.
 *
 * Often the nodes that are left out cannot be loaded, which is why the file is cut. What follows
 * from them then stays unknown. Takes a small multiple of the time of a load (qd_build_try). */
void qd_cut_inputs_describe(struct qd_build *build, const struct qd_source *source);
