/* Tensors in shared memory: what of a region an input is read from, or an output written to.
 *
 * The bytes belong to the client, who may change them at any time. So what a model takes
 * before it runs, which it checks, such as scales and weights, is copied; the inputs of a run are
 * read where they lie, for which no value can be wrong, and outputs are written there. */
#ifndef SERVER_OIP_SHM_TENSORS_H
#define SERVER_OIP_SHM_TENSORS_H

#include "server/json/tree.h"
#include "server/oip/decode.h"
#include "server/oip/regions.h"

struct qd_shm_tensor {
    struct qd_region *region; /* held; NULL: the tensor is not in shared memory */
    char *bytes;
    size_t count;
    size_t position; /* of the tensor, in the request's inputs or outputs */
};

/* What a decoder has for them. All borrowed. */
struct qd_shm_tensor_reader {
    struct qd_regions *regions; /* NULL: clients may register none */
    struct qd_arena *arena;
    struct qd_oip_asked *asked;
    struct qd_error *error;
};

/* The place of an input, or of an output, that `parameters` describe: the region is held until
 * qd_shm_tensors_release. `path` is that of the parameters. */
enum qd_status qd_shm_tensor_read(const struct qd_shm_tensor_reader *reader,
                                  const struct qd_json_value *parameters,
                                  const struct qd_json_path *path, bool is_output, size_t index,
                                  const struct qd_shm_tensor **tensor);

/* After all were read: no output lies on another tensor. */
enum qd_status qd_shm_tensors_check(const struct qd_oip_asked *asked, struct qd_error *error);

/* All that follow take a request without shared memory, too. Bytes of inputs in shared memory;
 * there are at most 32, each within --max-shared-bytes. */
size_t qd_shm_tensors_input_bytes(const struct qd_oip_asked *asked);

/* Copies those inputs whose bit is set. */
enum qd_status qd_shm_tensors_copy_inputs(const struct qd_oip_asked *asked, uint32_t inputs,
                                          struct qd_arena *arena, struct qd_error *error);

/* Whether an output is to be in shared memory. If it has room there: *place is where to compute it,
 * or NULL where that has not the 64-byte alignment that computing needs. */
bool qd_shm_tensors_has_output(const struct qd_oip_asked *asked, size_t output);
enum qd_status qd_shm_tensors_place_output(const struct qd_oip_asked *asked, size_t output,
                                           size_t bytes, void **place, struct qd_error *error);

/* Copies units [begin, end) of an output that had no alignment, some 50 us each, unless one is lost
 * by now. `from` holds all of its bytes. */
#define QD_SHM_TENSOR_UNIT_BYTES ((size_t)256 << 10)
void qd_shm_tensors_copy_output(const struct qd_oip_asked *asked, size_t output, const void *from,
                                size_t bytes, size_t begin, size_t end);

/* Whether one of them was cut off by its owner meanwhile (mapping.h), and the error for it. */
bool qd_shm_tensors_are_lost(const struct qd_oip_asked *asked);
enum qd_status qd_shm_tensors_refuse_loss(const struct qd_oip_asked *asked, struct qd_error *error);

/* Nobody touches them any more. */
void qd_shm_tensors_release(struct qd_oip_asked *asked);

#endif
