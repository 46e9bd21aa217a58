/* An OIP inference request, from bytes to tensors, and to a qk_call for a built-in model. Pure:
 * body, arena, output, error.
 *
 * Names no operator: the signature says which inputs, datatypes and attributes there are. */
#ifndef SERVER_OIP_DECODE_H
#define SERVER_OIP_DECODE_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

struct qd_oip_message {
    const struct qd_signature *signature; /* borrowed as long as what comes out */
    /* Not to be run, but to be kept: a built-in model's variable inputs need not come, or come
     * without data, with their datatype and shape, where -1 is a size that is free. */
    bool declares;
    const char *body; /* borrowed as the signature; binary tensors become views on it */
    size_t body_bytes;
    const char *json_bytes_header; /* Inference-Header-Content-Length as it came; NULL: absent */
    struct qd_regions *regions;    /* of shared memory; NULL: tensors may not be there */
    const char *blobs_source; /* what errors call it that holds binary tensors; NULL: the body */
    size_t piece_bytes;       /* of JSON in one step or unit; 0: as is good. For tests */
};

/* What a request asks for, and of which model. It may not be moved: `inputs` may point into it. */
struct qd_oip_asked {
    const struct qd_signature *signature;
    const char *id;          /* to echo; NULL: absent or "" */
    uint32_t outputs;        /* bit i: the answer has output i */
    uint32_t binary_outputs; /* and as bytes, not as JSON: in the body, or in shared memory */
    uint64_t timeout_us; /* the parameter `timeout`: how long it may wait in the queue; 0: none */
    uint64_t priority;   /* the parameter `priority`: 1 is the highest; 0: the server's choice */
    struct qk_tensor *inputs; /* by the signature's index; type QK_NONE: it did not come */
    /* Of a message that declares: each input that came without data, by the same index, with
     * strides that are among the call's attributes; types 0: others. The call's `variable` has
     * these inputs and those that did not come, whose type is QK_NONE. */
    struct qd_port *declared;
    /* Of inputs and, behind them, outputs in shared memory (shm_tensors.h). NULL: none is there.
     * For qd_shm_tensors_release. */
    struct qd_shm_tensor *shm_tensors;
    struct qk_call call; /* a built-in model's, and `inputs` are its; of a loaded one: empty */
};

/* The same as qd_oip_decode below, in steps and units, for bodies whose reading takes long. It
 * lives in the arena, and borrows all four; *asked is all zeros, but for call.inputs. NULL: no
 * memory; the error says so. */
struct qd_oip_reader;
struct qd_oip_reader *qd_oip_reader_create(const struct qd_oip_message *message,
                                           struct qd_arena *arena, struct qd_oip_asked *asked,
                                           struct qd_error *error);

/* Reads on, some 64 KiB of JSON. *done: all of it has been read, and *asked is complete but
 * for the tensors' numbers. */
enum qd_status qd_oip_reader_step(struct qd_oip_reader *reader, bool *done);

/* After that: the numbers, converted in any order, by several threads at once. Errors are kept: of
 * several, the text's first one. There may be no units. */
size_t qd_oip_reader_unit_count(const struct qd_oip_reader *reader);
uint64_t qd_oip_reader_unit_cost_ns(const struct qd_oip_reader *reader);
void qd_oip_reader_convert(struct qd_oip_reader *reader, size_t begin, size_t end);

/* After all units: *asked is complete, or there is that error. */
enum qd_status qd_oip_reader_end(struct qd_oip_reader *reader);

/* All of it at once. */
enum qd_status qd_oip_decode(const struct qd_oip_message *message, struct qd_arena *arena,
                             struct qd_oip_asked *asked, struct qd_error *error);

#endif
