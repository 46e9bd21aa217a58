#include "server/oip/signature.h"

#include <inttypes.h>
#include <string.h>

void qd_signature_init(struct qd_signature *signature, const struct qk_operator *op,
                       const struct qk_version *row, struct qd_port *ports)
{
    struct qd_port *outputs = ports + op->input_count;
    size_t input_count = op->input_count;
    while (row->inputs[input_count - 1].types == 0) /* later versions have more inputs */
        input_count--;
    *signature = (struct qd_signature){.name = op->name,
                                       .platform = op->platform,
                                       .about = op->about,
                                       .version = row->number,
                                       .inputs = ports,
                                       .input_count = input_count,
                                       .outputs = outputs,
                                       .output_count = op->output_count,
                                       .op = op,
                                       .row = row};
    for (size_t i = 0; i < input_count; i++) {
        ports[i] = (struct qd_port){.name = op->inputs[i].name,
                                    .types = row->inputs[i].types,
                                    .optional = row->inputs[i].optional,
                                    .shape_text = op->inputs[i].shape};
    }
    for (size_t i = 0; i < op->output_count; i++) {
        outputs[i] = (struct qd_port){.name = op->outputs[i].name,
                                      .types = row->output_types[i],
                                      .shape_text = op->outputs[i].shape};
    }
}

void qd_builtin_init(struct qd_builtin *builtin, const struct qk_operator *op,
                     const struct qk_version *row)
{
    qd_signature_init(&builtin->signature, op, row, builtin->ports);
}

bool qd_port_takes(const struct qd_port *port, const struct qk_tensor *tensor)
{
    bool fits = !port->shaped || port->rank == tensor->rank;
    for (uint32_t i = 0; port->shaped && i < port->rank && fits; i++)
        fits = port->dims[i] == QD_DIM_FREE || (uint64_t)port->dims[i] == tensor->dims[i];
    return fits;
}

bool qd_port_make_tensor(const struct qd_port *port, size_t size, uint32_t axis, size_t axis_size,
                         struct qk_tensor *tensor)
{
    const struct qk_attribute *strides = port->strides;
    *tensor =
        (struct qk_tensor){.type = (enum qk_type)__builtin_ctz(port->types), .rank = port->rank};
    for (uint32_t i = 0; i < port->rank; i++)
        tensor->dims[i] = port->dims[i] != QD_DIM_FREE ? (size_t)port->dims[i]
                          : i == axis                  ? axis_size
                                                       : size;
    return qk_tensor_set_count(tensor) &&
           (strides == NULL || qk_tensor_set_strides(tensor, strides->list, strides->list_count));
}

enum qd_status qd_refuse_type(const char *name, uint64_t version, uint32_t types, const char *field,
                              const char *got, struct qd_error *error)
{
    char known[320];
    qk_print_types(types, known, sizeof(known));
    return qd_fail(error, QD_INVALID, "%s: expected %s for version %" PRIu64 " of %s, got %s",
                   field, known, version, name, got);
}

/* Checks the ports and adds the lengths of their names to *sum. `least` is the smallest number of
 * ports: a model may compute all its outputs from constants. */
static enum qd_status check_ports(const struct qd_port *ports, size_t count, size_t least,
                                  const char *what, size_t *sum, struct qd_error *error)
{
    if (count < least || count > QK_GRAPH_PORT_COUNT_MAX) {
        return qd_fail(error, QD_INVALID, "%s: expected %zu to %d, got %zu", what, least,
                       QK_GRAPH_PORT_COUNT_MAX, count);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = strlen(ports[i].name);
        if (bytes == 0 || bytes > QD_PORT_NAME_BYTES_MAX) {
            return qd_fail(error, QD_INVALID,
                           "the name of %s[%zu]: expected 1 to %u bytes, got %zu", what, i,
                           QD_PORT_NAME_BYTES_MAX, bytes);
        }
        *sum += bytes;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(ports[i].name, ports[j].name) == 0) {
                return qd_fail(error, QD_INVALID,
                               "the name of %s[%zu]: expected another than %s[%zu] has", what, i,
                               what, j);
            }
        }
    }
    return QD_OK;
}

enum qd_status qd_signature_check(const struct qd_signature *signature, struct qd_error *error)
{
    size_t sum = 0;
    if (check_ports(signature->inputs, signature->input_count, 0, "inputs", &sum, error) != QD_OK ||
        check_ports(signature->outputs, signature->output_count, 1, "outputs", &sum, error) !=
            QD_OK)
        return error->status;
    if (sum > QD_PORT_NAMES_BYTES_MAX) {
        return qd_fail(error, QD_INVALID,
                       "the names of inputs and outputs: expected at most %u bytes together, got "
                       "%zu",
                       QD_PORT_NAMES_BYTES_MAX, sum);
    }
    return QD_OK;
}
