/* Decodes an OIP inference request: bytes to tensors and, for a built-in model, to a qk_call. Pure.
 *
 * The code names no operator. The signature says which inputs, datatypes and attributes a model
 * has.
 *
 * BOOL as bytes: "true is a single byte with value 1 and false is a single byte with value 0"
 * (OIP's binary tensor data extension). Other bytes are refused, in every form of a request, so
 * kernels may rely on 0 and 1. BOOL in shared memory is copied before it is checked, because a
 * client may change shared memory while its request runs. */
#pragma once

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

struct qd_oip_message {
    const struct qd_signature *signature; /* borrowed for as long as the result is used */
    /* True if the request is not to be run but to be loaded as a model. A built-in model's variable
     * inputs may then be absent, or come without data but with datatype and shape, in which -1
     * stands for a free size. */
    bool declares;
    const char *body; /* borrowed like the signature; binary tensors become views of it */
    size_t body_bytes;
    /* Inference-Header-Content-Length as received, and its value, which is UINT64_MAX if it is not
     * a decimal number. NULL: absent; then all of the body is JSON. */
    const char *json_bytes_header;
    uint64_t json_bytes;
    struct qd_regions *regions; /* shared memory; NULL: tensors may not be in shared memory */
    const char *blobs_source;   /* what errors call the source of binary tensors; NULL: the body */
    size_t piece_bytes;         /* bytes of JSON in a step or unit, for tests; 0: the default */
};

/* Sets json_bytes_header, which is borrowed, and json_bytes. */
void qd_oip_message_set_header(struct qd_oip_message *message, const char *json_bytes_header);

/* What a request asks for. The struct may not be moved, because `inputs` may point into it. */
struct qd_oip_asked {
    const struct qd_signature *signature;
    const char *id;          /* to be echoed; NULL: absent or "" */
    uint32_t outputs;        /* bit i: the answer has output i */
    bool lists_outputs;      /* the request names the outputs that it wants */
    uint32_t binary_outputs; /* bit i: output i is sent as bytes, in the body or in shared memory,
                                not as JSON */
    /* By output: how many of its greatest elements the answer has (classes.h), 0: all
     * elements, as they are. NULL: 0 for all outputs. */
    uint32_t *class_counts;
    uint64_t timeout_us; /* the parameter `timeout`: how long the request may wait in the queue; 0:
                            no limit */
    uint64_t priority;   /* the parameter `priority`: 1 is the highest; 0: the server's default */
    bool profiles;       /* the parameter `profile`: the answer has the time of each node */
    struct qk_tensor *inputs; /* by the signature's index; type QK_NONE: absent */
    /* Only if the message `declares`: describes the inputs that came without data, by the
     * signature's index, with the strides that the parameters give. For all other inputs, `types`
     * is 0. call.variable has a bit for each of these inputs, and for each variable input of the
     * operator that did not come at all (its type in `inputs` is QK_NONE). */
    struct qd_port *declared;
    /* The inputs and, after them, the outputs that are in shared memory (shm_tensors.h); NULL:
     * there are none. The caller releases them with qd_shm_tensors_release. */
    struct qd_shm_tensor *shm_tensors;
    struct qk_call
        call; /* the call of a built-in model, to which `inputs` belong; empty for a loaded model */
};

/* Creates a reader. It decodes a message in steps and units, because a body may take long to read.
 * The reader lies in the arena and borrows all four arguments. Returns NULL, with the error set, if
 * there is no memory, or the body is empty, or shorter than Inference-Header-Content-Length says.
 *
 * The caller has cleared *asked, but need not clear call.inputs, which is large: the reader clears
 * the inputs that the operator has, and nothing reads the others. A loaded model's inputs are not
 * in call.inputs. */
struct qd_oip_reader;
struct qd_oip_reader *qd_oip_reader_create(const struct qd_oip_message *message,
                                           struct qd_arena *arena, struct qd_oip_asked *asked,
                                           struct qd_error *error);

/* Reads the next 64 KiB or so of JSON. Sets *done when all of it has been read and *asked is
 * complete except for the tensors' numbers. */
enum qd_status qd_oip_reader_step(struct qd_oip_reader *reader, bool *done);

/* Convert the tensors' numbers, in units, after the last step. There may be no units. They may run
 * in any order, on several threads at once. If several fail, the error that comes first in the text
 * is kept. */
size_t qd_oip_reader_unit_count(const struct qd_oip_reader *reader);
uint64_t qd_oip_reader_unit_cost_ns(const struct qd_oip_reader *reader);
void qd_oip_reader_convert(struct qd_oip_reader *reader, size_t begin, size_t end);

/* Completes *asked after all units, or returns the error that was kept. */
enum qd_status qd_oip_reader_end(struct qd_oip_reader *reader);

/* Decodes a message in one call: clears *asked, creates a reader, and runs all its steps and units.
 */
enum qd_status qd_oip_decode(const struct qd_oip_message *message, struct qd_arena *arena,
                             struct qd_oip_asked *asked, struct qd_error *error);
