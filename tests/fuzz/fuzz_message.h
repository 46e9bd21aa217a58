/* How the fuzz targets of inferences read an input:
 *
 * - a byte that picks the operator; bit 7 picks a loaded model instead
 * - a byte that picks its version; bit 7 says that the request declares, or that the loaded model
 *   has one input
 * - two bytes with the value of Inference-Header-Content-Length (0xffff: no header)
 * - the body */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip/decode.h"

enum { MESSAGE_BYTES_MIN = 4, NO_HEADER = 0xffff };

/* The signature of a loaded model. There are seeds with its names. */
static const struct qd_port loaded_inputs[] = {
    {.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 1, .dims = {QD_DIM_FREE}},
    {.name = "x_scale", .types = QK_BIT(QK_FP32)},
    {.name = "c", .types = QK_BIT(QK_BOOL), .optional = true},
    {.name = "n", .types = QK_BIT(QK_INT64), .optional = true},
};
static const struct qd_port loaded_outputs[] = {{.name = "y", .types = QK_BIT(QK_FP32)},
                                                {.name = "z", .types = QK_BIT(QK_INT4)}};
static const struct qd_signature loaded = {.name = "loaded",
                                           .platform = "",
                                           .about = "",
                                           .version = 1,
                                           .inputs = loaded_inputs,
                                           .input_count = 4,
                                           .outputs = loaded_outputs,
                                           .output_count = 2};

/* The signature of a model that takes raw binary requests, in which a dimension follows from the
 * number of bytes. */
static const struct qd_port single_input = {
    .name = "x", .types = QK_BIT(QK_INT4), .shaped = true, .rank = 2, .dims = {QD_DIM_FREE, 3}};
static const struct qd_signature single = {.name = "single",
                                           .platform = "",
                                           .about = "",
                                           .version = 1,
                                           .inputs = &single_input,
                                           .input_count = 1,
                                           .outputs = loaded_outputs,
                                           .output_count = 2,
                                           .batch_max = 1000};

struct message {
    struct qd_builtin builtin;
    char header[16];
    char *body; /* the caller frees it */
    struct qd_oip_message oip;
};

/* Makes the message. `data` has at least MESSAGE_BYTES_MIN bytes. The message must not be moved,
 * because it points into itself. */
static inline void make_message(struct message *message, const unsigned char *data, size_t bytes)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    const struct qk_operator *op = ops[(data[0] & 127) % count];
    const unsigned header = data[2] | (unsigned)data[3] << 8;
    snprintf(message->header, sizeof(message->header), "%u", header);
    message->body = malloc(bytes - 4 + (bytes == 4));
    if (message->body == NULL)
        abort();
    memcpy(message->body, data + 4, bytes - 4);
    qd_builtin_init(&message->builtin, op, &op->versions[(data[1] & 127) % op->version_count]);
    const bool is_loaded = data[0] >> 7;
    message->oip = (struct qd_oip_message){
        .signature = !is_loaded     ? &message->builtin.signature
                     : data[1] >> 7 ? &single
                                    : &loaded,
        .declares = !is_loaded && data[1] >> 7,
        .body = message->body,
        .body_bytes = bytes - 4,
    };
    qd_oip_message_set_header(&message->oip, header == NO_HEADER ? NULL : message->header);
}
