/* Says at which values a refused ONNX file could be cut, so that a part of it runs. */
#ifndef SERVER_MODELS_CUT_HINT_H
#define SERVER_MODELS_CUT_HINT_H

#include "server/models/build.h"

/* Appends to the text of `error`, with which qd_build_read refused a file, which configurations
 * would load a part of the file, such as
 *
 *     ; the configuration {"outputs": ["x"]} runs 41 of the 60 nodes that depend on inputs,
 *     {"inputs": ["y"]} runs 16
 *
 * Each of them was loaded, to be sure. Appends nothing if no part is worth the name, if a part
 * cannot be found by a few attempts, or if its names do not fit in `bytes_max` bytes of text. Takes
 * a small multiple of the time of a load. */
void qd_cut_hint_add(const struct qd_build *refused, const struct qd_source *source,
                     size_t bytes_max, struct qd_error *error);

#endif
