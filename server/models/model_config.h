/* Triton's model configuration as JSON: what a load call brings in parameters.config, or a
 * repository has as NAME/config.json. Pure.
 *
 * Honoured are name, platform and backend (which must be ours), max_batch_size (a bound of the
 * first dimension), input and output (which must agree with the model, and may narrow what it
 * leaves free), version_policy, default_model_filename. What only places or speeds up work has no
 * effect on CPUs and is accepted; what would change results or asks for a GPU (KIND_GPU, too:
 * nobody is to believe that it has one) is refused, and so is any key that Triton does not have.
 * Numbers may be strings, and keys in camel case, as protobuf's JSON allows. */
#ifndef SERVER_MODELS_MODEL_CONFIG_H
#define SERVER_MODELS_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

#define QD_CONFIG_VERSION_COUNT_MAX 64 /* that a version_policy may name */

/* An input or output, in the arena. */
struct qd_config_port {
    const char *name;
    enum qk_type type; /* QK_NONE: not given */
    bool shaped;
    uint32_t rank;
    int64_t dims[QK_RANK_MAX]; /* without the batch, where there is one */
};

enum qd_version_policy { QD_POLICY_LATEST, QD_POLICY_ALL, QD_POLICY_SPECIFIC };

struct qd_model_config {
    uint64_t batch_max; /* 0: the first dimension is like the others */
    enum qd_version_policy policy;
    uint64_t latest_count;
    uint64_t versions[QD_CONFIG_VERSION_COUNT_MAX]; /* specific */
    size_t version_count;
    const char *file_name; /* of each version, in the arena; NULL: model.onnx or request.json */
    const struct qd_config_port *inputs; /* NULL: as the model has them */
    size_t input_count;
    const struct qd_config_port *outputs;
    size_t output_count;
};

/* What holds without one: the latest version, and all as the model has it. */
void qd_model_config_init(struct qd_model_config *config);

/* `source` begins the errors: "parameters.config". `name`: the model's. */
enum qd_status qd_model_config_read(const char *json, size_t bytes, const char *source,
                                    const char *name, struct qd_arena *arena,
                                    struct qd_model_config *config, struct qd_error *error);

/* Whether versions[index] of those there are, ascending, is to be loaded. */
bool qd_model_config_wants(const struct qd_model_config *config, const uint64_t *versions,
                           size_t version_count, size_t index);
/* The first version that the policy names and that is not there; 0: none. */
uint64_t qd_model_config_misses(const struct qd_model_config *config, const uint64_t *versions,
                                size_t version_count);

/* The policy as JSON, in the arena, as a configuration has it. NULL: no memory. */
const char *qd_model_config_print_policy(const struct qd_model_config *config,
                                         struct qd_arena *arena);

/* Compares a model's ports with the configuration's, which may narrow dimensions that are free. */
enum qd_status qd_model_config_apply(const struct qd_model_config *config, struct qd_port *inputs,
                                     size_t input_count, struct qd_port *outputs,
                                     size_t output_count, struct qd_error *error);

#endif
