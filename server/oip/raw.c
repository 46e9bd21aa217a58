#include "server/oip/inputs.h"

#include <stdio.h>

#include "server/json/tree.h"
#include "server/memory/text.h"

enum { NO_DIM = QK_RANK_MAX };

/* The state of decoding a raw request. */
struct raw {
    const struct qd_signature *signature;
    const struct qd_port *port;
    size_t body_bytes;
    struct qk_tensor *tensor;
    uint32_t free_dim; /* the dimension whose size follows from the number of bytes; NO_DIM: none */
    struct qd_error *error;
    char shape[96]; /* the port's shape, for errors */
};

static const struct qk_type_info *type_of(const struct raw *raw)
{
    return qk_type_info(raw->tensor->type);
}

/* Fails with "the body: expected 12 bytes, the input "x", FP32 [3], got 13". */
static enum qd_status refuse_bytes(const struct raw *raw, const char *wanted)
{
    return qd_fail(raw->error, QD_INVALID, "the body: expected %s, the input %s, %s %s, got %zu",
                   wanted, qd_show_string(raw->port->name).text, type_of(raw)->name, raw->shape,
                   raw->body_bytes);
}

/* Refuses models other than loaded ones with one input, because only these need no JSON. */
static enum qd_status check_model(const struct qd_signature *signature, struct qd_error *error)
{
    if (signature->op == NULL && signature->input_count == 1)
        return QD_OK;
    return qd_fail(error, QD_INVALID,
                   QD_OIP_JSON_BYTES_HEADER ": 0 means a raw binary request: expected a loaded "
                                            "model with one input, got %s with %zu inputs%s",
                   signature->name, signature->input_count,
                   signature->op == NULL ? "" : ", an operator");
}

/* Finds the dimension whose size follows from the number of bytes. As in Triton, the batch is 1 if
 * another size is free. */
static enum qd_status find_free_dim(struct raw *raw)
{
    const struct qd_port *port = raw->port;
    const bool has_batch = raw->signature->batch_max > 0;
    size_t free_count = 0;
    raw->free_dim = NO_DIM;
    for (uint32_t i = 0; i < port->rank; i++) {
        if (port->dims[i] != QD_DIM_FREE) {
            raw->tensor->dims[i] = (size_t)port->dims[i];
            continue;
        }
        raw->tensor->dims[i] = 1;
        if (has_batch && raw->free_dim == 0)
            free_count--;
        raw->free_dim = i;
        free_count++;
    }
    if (free_count <= 1)
        return QD_OK;
    return qd_fail(raw->error, QD_INVALID,
                   "the input %s: expected one free size at most in a raw binary request, got %s; "
                   "JSON can say the shape",
                   qd_show_string(port->name).text, raw->shape);
}

/* Finds the only size for which the tensor has as many bytes as the body. With elements smaller
 * than a byte there may be several: UINT4 [3] and UINT4 [4] both have two bytes. These are refused.
 */
static enum qd_status find_size(struct raw *raw)
{
    const size_t others = raw->tensor->count; /* the free size counts as 1 here */
    size_t step_bits, came_bits;
    char wanted[96];
    if (others == 0)
        return qd_fail(raw->error, QD_INVALID,
                       "the input %s: expected a size that follows from the bytes of a raw binary "
                       "request, got %s, which is empty; JSON can say the shape",
                       qd_show_string(raw->port->name).text, raw->shape);
    if (raw->body_bytes == 0) /* more likely forgotten than meant */
        return qd_fail(raw->error, QD_INVALID,
                       "the body: expected the bytes of the input %s, %s %s, got an empty body; "
                       "JSON can say an empty shape",
                       qd_show_string(raw->port->name).text, type_of(raw)->name, raw->shape);
    if (__builtin_mul_overflow(others, (size_t)type_of(raw)->bits, &step_bits) ||
        __builtin_mul_overflow(raw->body_bytes, (size_t)8, &came_bits))
        return refuse_bytes(raw, "less than 2^61 bytes");
    const size_t size = came_bits / step_bits;
    /* Every size of more than came_bits - 8 bits takes as many bytes. */
    const size_t unused_bits = came_bits - size * step_bits;
    if (unused_bits >= 8) {
        if (step_bits % 8 == 0)
            snprintf(wanted, sizeof(wanted), "a multiple of %zu bytes", step_bits / 8);
        else
            snprintf(wanted, sizeof(wanted), "the bytes of a multiple of %zu bits", step_bits);
        return refuse_bytes(raw, wanted);
    }
    if (size > 0 && unused_bits + step_bits < 8)
        return qd_fail(raw->error, QD_INVALID,
                       "the body: expected bytes from which one size follows, the input %s, %s %s, "
                       "got %zu, which may be %zu or %zu; JSON can say the shape",
                       qd_show_string(raw->port->name).text, type_of(raw)->name, raw->shape,
                       raw->body_bytes, size - 1, size);
    raw->tensor->dims[raw->free_dim] = size;
    return QD_OK;
}

static enum qd_status check_batch(const struct raw *raw)
{
    const uint64_t batch_max = raw->signature->batch_max;
    if (batch_max == 0 || raw->tensor->rank == 0 || raw->tensor->dims[0] <= batch_max)
        return QD_OK;
    return qd_fail(raw->error, QD_INVALID,
                   "the body: expected a first dimension of at most %llu (max_batch_size), got %zu "
                   "bytes, which make it %zu",
                   (unsigned long long)batch_max, raw->body_bytes, raw->tensor->dims[0]);
}

/* Checks that the number of bytes fits the shape. A tensor with strides may be padded to a multiple
 * of four bytes, as DirectML's buffers are. */
static enum qd_status check_bytes(const struct raw *raw)
{
    const struct qk_attribute *strides = raw->port->strides;
    size_t bytes;
    char wanted[96];
    if (!qk_tensor_set_count(raw->tensor) ||
        (strides != NULL &&
         !qk_tensor_set_strides(raw->tensor, strides->list, strides->list_count)) ||
        !qk_type_bytes(raw->tensor->type, raw->tensor->stored, &bytes))
        return refuse_bytes(raw, "less than 2^64 bytes");
    const size_t padding = strides == NULL ? 0 : -bytes % 4;
    if (raw->body_bytes == bytes || raw->body_bytes - bytes == padding)
        return QD_OK;
    if (padding == 0)
        snprintf(wanted, sizeof(wanted), "%zu bytes", bytes);
    else
        snprintf(wanted, sizeof(wanted), "%zu or %zu bytes", bytes, bytes + padding);
    return refuse_bytes(raw, wanted);
}

/* Uses the port, or, if its rank is unknown, a list of shape [-1], as the model's metadata says. */
static void take_port(struct raw *raw, const struct qd_port *port, struct qd_port *list)
{
    *list = (struct qd_port){.name = port->name,
                             .types = port->types,
                             .shaped = true,
                             .rank = 1,
                             .dims = {QD_DIM_FREE},
                             .strides = port->strides};
    raw->port = port->shaped ? port : list;
    qd_print_integers(raw->port->dims, raw->port->rank, raw->shape, sizeof(raw->shape));
    *raw->tensor = (struct qk_tensor){.type = (enum qk_type)__builtin_ctz(port->types),
                                      .rank = raw->port->rank};
}

enum qd_status qd_oip_read_raw(const struct qd_oip_message *message, struct qd_oip_asked *asked,
                               struct qd_error *error)
{
    struct qd_port list;
    struct raw raw = {.signature = message->signature,
                      .body_bytes = message->body_bytes,
                      .tensor = &asked->inputs[0],
                      .error = error};
    if (check_model(message->signature, error) != QD_OK)
        return error->status;
    take_port(&raw, &message->signature->inputs[0], &list);
    if (find_free_dim(&raw) != QD_OK)
        return error->status;
    if (raw.free_dim != NO_DIM && raw.port->strides != NULL)
        return qd_fail(
            error, QD_INVALID,
            "the input %s: expected no free size beside strides in a raw binary request, "
            "got %s; JSON can say the shape",
            qd_show_string(raw.port->name).text, raw.shape);
    if (!qk_tensor_set_count(raw.tensor))
        return refuse_bytes(&raw, "less than 2^64 bytes");
    if ((raw.free_dim != NO_DIM && find_size(&raw) != QD_OK) || check_batch(&raw) != QD_OK ||
        check_bytes(&raw) != QD_OK)
        return error->status;
    raw.tensor->data = message->body_bytes == 0 ? "" : message->body;
    asked->binary_outputs = UINT32_MAX;
    return QD_OK;
}
