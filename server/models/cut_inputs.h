/* Finds the types and shapes of the values at which a configuration cuts an ONNX file, where the
 * file does not describe them. */
#ifndef SERVER_MODELS_CUT_INPUTS_H
#define SERVER_MODELS_CUT_INPUTS_H

#include "server/models/build.h"

/* Fills in what is not known of the inputs that the configuration names. The nodes that are left
 * out know it: they are loaded, up to these inputs, and planned with the shapes of the file's own
 * inputs. Call it between qd_build_read and qd_build_prepare. What the configuration's `input` says
 * of an input is not looked for.
 *
 * Often the nodes that are left out cannot be loaded, which is why the file is cut. What follows
 * from them then stays unknown. Takes a small multiple of the time of a load (qd_build_try). */
void qd_cut_inputs_describe(struct qd_build *build, const struct qd_source *source);

#endif
