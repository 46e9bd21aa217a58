/* Reads Triton's model configuration, as JSON, from a load call's parameters.config or from
 * NAME/config.json in a repository, or as protobuf's text from NAME/config.pbtxt. Pure.
 *
 * These keys have an effect: name, platform and backend (which must be ours), max_batch_size (a
 * bound of the first dimension), input and output (which must agree with the model, and may narrow
 * dimensions that it leaves free; an output's label_filename names its classes), version_policy,
 * default_model_filename. inputs and outputs are
 * keys of our own: they cut an ONNX file (qd_onnx_cut). Keys that only place
 * work or speed it up have no effect on CPUs, and are accepted. Keys that would change results are
 * refused, and so is any key that Triton does not have. A request for a GPU, such as KIND_GPU, is
 * refused, so that nobody believes that a model runs on one. Numbers may be strings, and keys may
 * be in camel case, as protobuf's JSON allows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/models/onnx/onnx.h"
#include "server/oip/signature.h"

#define QD_CONFIG_VERSION_COUNT_MAX 64 /* versions in a version_policy */

/* An input or output, in the arena. */
struct qd_config_port {
    const char *name;
    enum qk_type type; /* QK_NONE if not given */
    bool shaped;
    uint32_t rank;
    int64_t dims[QK_RANK_MAX]; /* without the batch dimension, if there is one */
    const char *label_file;    /* an output's label_filename; NULL: none */
};

enum qd_version_policy { QD_POLICY_LATEST, QD_POLICY_ALL, QD_POLICY_SPECIFIC };

struct qd_model_config {
    uint64_t batch_max; /* 0 if the first dimension is not a batch */
    enum qd_version_policy policy;
    uint64_t latest_count;
    uint64_t versions[QD_CONFIG_VERSION_COUNT_MAX]; /* for QD_POLICY_SPECIFIC */
    size_t version_count;
    const char *file_name; /* each version's; in the arena; NULL: model.onnx or request.json */
    const struct qd_config_port *inputs; /* NULL if not given */
    size_t input_count;
    const struct qd_config_port *outputs;
    size_t output_count;
    struct qd_onnx_cut cut; /* in the arena */
};

/* Sets the defaults, which apply if there is no configuration: load the latest version, and change
 * nothing about the model. */
void qd_model_config_init(struct qd_model_config *config);

/* Reads a configuration. The error texts begin with `source`, such as "parameters.config". `name`
 * is the model's name. If is_json is false, the text is in protobuf's text format, as config.pbtxt
 * has it: max_batch_size, input, output, default_model_filename and version_policy have the effects
 * that they have in JSON. All other keys are ignored, and one line of the log names them. */
enum qd_status qd_model_config_read(const char *text, size_t bytes, bool is_json,
                                    const char *source, const char *name, struct qd_arena *arena,
                                    struct qd_model_config *config, struct qd_error *error);

/* Returns whether versions[index] is to be loaded. `versions` are all versions of the model,
 * ascending. */
bool qd_model_config_wants(const struct qd_model_config *config, const uint64_t *versions,
                           size_t version_count, size_t index);
/* Returns the first version that the policy names and `versions` lacks, or 0 if there is none. */
uint64_t qd_model_config_misses(const struct qd_model_config *config, const uint64_t *versions,
                                size_t version_count);

/* Returns the policy as JSON in the form of the configuration, in the arena. Returns NULL if the
 * arena has no room. */
const char *qd_model_config_print_policy(const struct qd_model_config *config,
                                         struct qd_arena *arena);

/* Refuses an input for which the configuration's `input` has a type that is not one of `types`. */
enum qd_status qd_model_config_refuse_type(const char *name, uint32_t types, enum qk_type type,
                                           struct qd_error *error);

/* Checks a model's ports against the configuration's, and narrows free dimensions that the
 * configuration fixes. */
enum qd_status qd_model_config_apply(const struct qd_model_config *config, struct qd_port *inputs,
                                     size_t input_count, struct qd_port *outputs,
                                     size_t output_count, struct qd_error *error);
