#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/models/model_config.h"

/* ---- Versions ----------------------------------------------------------------------------- */

static bool is_named(const struct qd_model_config *config, uint64_t version)
{
    for (size_t i = 0; i < config->version_count; i++)
        if (config->versions[i] == version)
            return true;
    return false;
}

bool qd_model_config_wants(const struct qd_model_config *config, const uint64_t *versions,
                           size_t version_count, size_t index)
{
    switch (config->policy) {
    case QD_POLICY_LATEST:
        return version_count - index <= config->latest_count;
    case QD_POLICY_SPECIFIC:
        return is_named(config, versions[index]);
    default:
        return true;
    }
}

uint64_t qd_model_config_misses(const struct qd_model_config *config, const uint64_t *versions,
                                size_t version_count)
{
    for (size_t i = 0; config->policy == QD_POLICY_SPECIFIC && i < config->version_count; i++) {
        size_t at = 0;
        while (at < version_count && versions[at] != config->versions[i])
            at++;
        if (at == version_count)
            return config->versions[i];
    }
    return 0;
}

const char *qd_model_config_print_policy(const struct qd_model_config *config,
                                         struct qd_arena *arena)
{
    enum { FRAME_BYTES = 64, NUMBER_BYTES = 24 };
    const bool specific = config->policy == QD_POLICY_SPECIFIC;
    const size_t size = FRAME_BYTES + (specific ? config->version_count * NUMBER_BYTES : 0);
    char *text = qd_arena_alloc(arena, size);
    if (text == NULL)
        return NULL;
    if (config->policy == QD_POLICY_ALL)
        snprintf(text, size, "{\"all\":{}}");
    else if (!specific)
        snprintf(text, size, "{\"latest\":{\"num_versions\":%" PRIu64 "}}", config->latest_count);
    if (!specific)
        return text;
    size_t used = (size_t)snprintf(text, size, "{\"specific\":{\"versions\":[");
    for (size_t i = 0; i < config->version_count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i == 0 ? "" : ",",
                                 config->versions[i]);
    snprintf(text + used, size - used, "]}}");
    return text;
}

/* ---- Inputs and outputs ------------------------------------------------------------------- */

static enum qd_status apply_dims(const struct qd_config_port *wanted, const char *kind,
                                 uint64_t batch_max, struct qd_port *port, struct qd_error *error)
{
    uint32_t first = batch_max > 0 ? 1 : 0;
    if (!port->shaped) { /* nothing is known, so the configuration says it */
        port->shaped = true;
        port->rank = wanted->rank + first;
        port->dims[0] = QD_DIM_FREE;
        memcpy(&port->dims[first], wanted->dims, wanted->rank * sizeof(*wanted->dims));
        return QD_OK;
    }
    char shape[160];
    qd_port_print_shape(port, shape, sizeof(shape));
    if (port->rank != wanted->rank + first) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s %s: expected %u dimensions%s, for the "
                       "model's %s, got %u",
                       kind, qd_show_string(port->name).text, port->rank - first,
                       first == 1 ? " after the batch's" : "", shape, wanted->rank);
    }
    for (uint32_t i = 0; i < wanted->rank; i++) {
        int64_t *dim = &port->dims[i + first];
        if (*dim != QD_DIM_FREE && *dim != wanted->dims[i]) {
            return qd_fail(error, QD_INVALID,
                           "the configuration's %s %s: dims[%u]: expected %lld, as the "
                           "model has it, got %lld",
                           kind, qd_show_string(port->name).text, i, (long long)*dim,
                           (long long)wanted->dims[i]);
        }
        *dim = wanted->dims[i];
    }
    return QD_OK;
}

static enum qd_status apply_port(const struct qd_config_port *wanted, const char *kind,
                                 uint64_t batch_max, struct qd_port *ports, size_t count,
                                 uint64_t *seen, struct qd_error *error)
{
    size_t i = 0;
    while (i < count && strcmp(ports[i].name, wanted->name) != 0)
        i++;
    if (i == count) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s %s: the model has none of this "
                       "name",
                       kind, qd_show_string(wanted->name).text);
    }
    if ((*seen >> i & 1) != 0) {
        return qd_fail(error, QD_INVALID, "the configuration's %s %s: expected once, got twice",
                       kind, qd_show_string(wanted->name).text);
    }
    *seen |= UINT64_C(1) << i;
    if (wanted->type != QK_NONE && ports[i].types != QK_BIT(wanted->type)) {
        enum qk_type type = (enum qk_type)__builtin_ctz(ports[i].types);
        return qd_fail(error, QD_INVALID,
                       "the configuration's %s %s: data_type: expected TYPE_%s, as the "
                       "model has it, got TYPE_%s",
                       kind, qd_show_string(wanted->name).text, qk_type_info(type)->name,
                       qk_type_info(wanted->type)->name);
    }
    return wanted->shaped ? apply_dims(wanted, kind, batch_max, &ports[i], error) : QD_OK;
}

/* With a batch, every first dimension is free. */
static enum qd_status check_batch(const struct qd_port *ports, size_t count, const char *kind,
                                  struct qd_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char shape[160];
        qd_port_print_shape(&ports[i], shape, sizeof(shape));
        if (ports[i].shaped && (ports[i].rank == 0 || ports[i].dims[0] != QD_DIM_FREE)) {
            return qd_fail(error, QD_INVALID,
                           "the configuration's max_batch_size: expected 0, as the first dimension "
                           "of the %s %s, %s, is not free",
                           kind, qd_show_string(ports[i].name).text, shape);
        }
    }
    return QD_OK;
}

enum qd_status qd_model_config_apply(const struct qd_model_config *config, struct qd_port *inputs,
                                     size_t input_count, struct qd_port *outputs,
                                     size_t output_count, struct qd_error *error)
{
    uint64_t seen[2] = {0, 0};
    enum qd_status status = QD_OK;
    if (config->batch_max > 0) {
        status = check_batch(inputs, input_count, "input", error);
        if (status == QD_OK)
            status = check_batch(outputs, output_count, "output", error);
    }
    for (size_t i = 0; status == QD_OK && i < config->input_count; i++)
        status = apply_port(&config->inputs[i], "input", config->batch_max, inputs, input_count,
                            &seen[0], error);
    for (size_t i = 0; status == QD_OK && i < config->output_count; i++)
        status = apply_port(&config->outputs[i], "output", config->batch_max, outputs, output_count,
                            &seen[1], error);
    if (status == QD_OK && config->input_count > 0 && config->input_count != input_count) {
        return qd_fail(error, QD_INVALID,
                       "the configuration's input: expected all %zu inputs of "
                       "the model, or none, got %zu",
                       input_count, config->input_count);
    }
    return status;
}
