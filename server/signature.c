#include "server/signature.h"

#include <stdio.h>

void qd_builtin_init(struct qd_builtin *builtin, const struct qk_operator *op,
                     const struct qk_version *row)
{
    *builtin = (struct qd_builtin){.signature = {.name = op->name,
                                                 .platform = op->platform,
                                                 .about = op->about,
                                                 .version = row->number,
                                                 .inputs = builtin->inputs,
                                                 .input_count = op->input_count,
                                                 .outputs = builtin->outputs,
                                                 .output_count = op->output_count,
                                                 .op = op,
                                                 .row = row}};
    for (size_t i = 0; i < op->input_count; i++) {
        builtin->inputs[i] = (struct qd_port){.name = op->input_names[i],
                                              .types = row->inputs[i].types,
                                              .optional = row->inputs[i].optional,
                                              .shape_text = op->input_shapes[i]};
    }
    for (size_t i = 0; i < op->output_count; i++) {
        builtin->outputs[i] = (struct qd_port){.name = op->output_names[i],
                                               .types = row->output_types[i],
                                               .shape_text = op->output_shapes[i]};
    }
}

void qd_port_print_shape(const struct qd_port *port, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t i = 0; i < port->rank && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i == 0 ? "" : ",",
                                 (long long)port->dims[i]);
    }
    if (used < size)
        snprintf(text + used, size - used, "]");
}

bool qd_port_takes(const struct qd_port *port, const struct qk_tensor *tensor)
{
    bool fits = !port->shaped || port->rank == tensor->rank;
    for (uint32_t i = 0; port->shaped && i < port->rank && fits; i++)
        fits = port->dims[i] == QD_DIM_FREE || (uint64_t)port->dims[i] == tensor->dims[i];
    return fits;
}
