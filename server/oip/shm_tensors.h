/* Tensors in shared memory: the part of a region from which an input is read, or to which an output
 * is written.
 *
 * The client may change the bytes at any time. Inputs that a model checks before it runs, such as
 * scales and weights, are therefore copied. All other inputs are read in place, because they may
 * have any value. Outputs are written in place. */
#pragma once

#include "server/json/tree.h"
#include "server/oip/decode.h"
#include "server/oip/regions.h"

struct qd_shm_tensor {
    struct qd_region *region; /* held; NULL: the tensor is not in shared memory */
    char *bytes;
    size_t count;
    size_t position; /* index of the tensor in the request's inputs or outputs */
};

struct qd_oip_decoder;

/* Finds the shared memory of an input or output that `parameters` describe. The region is held
 * until qd_shm_tensors_release. `path` is the path of the parameters, for errors. */
enum qd_status qd_shm_tensor_read(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *parameters,
                                  const struct qd_json_path *path, bool is_output, size_t index,
                                  const struct qd_shm_tensor **tensor);

/* Checks, after all tensors were read, that no output overlaps another tensor. */
enum qd_status qd_shm_tensors_check(const struct qd_oip_asked *asked, struct qd_error *error);

/* Returns the bytes of all inputs in shared memory. There are at most 32 inputs, each within
 * --max-shared-bytes. This function and all below also accept a request without shared memory. */
size_t qd_shm_tensors_input_bytes(const struct qd_oip_asked *asked);

/* Copies the inputs whose bit is set in `inputs` into the arena. */
enum qd_status qd_shm_tensors_copy_inputs(const struct qd_oip_asked *asked, uint32_t inputs,
                                          struct qd_arena *arena, struct qd_error *error);

/* Returns whether the client wants an output in shared memory. */
bool qd_shm_tensors_has_output(const struct qd_oip_asked *asked, size_t output);

/* Checks that an output fits into its shared memory. Sets *place to where to compute it, or to NULL
 * if the memory lacks the 64-byte alignment that kernels need. */
enum qd_status qd_shm_tensors_place_output(const struct qd_oip_asked *asked, size_t output,
                                           size_t bytes, void **place, struct qd_error *error);

/* Copies units [begin, end) of an output whose place is not aligned. A unit takes some
 * QD_SHM_TENSOR_UNIT_NS. Copies nothing if a mapping was lost. `from` holds all bytes of the
 * output. */
#define QD_SHM_TENSOR_UNIT_BYTES ((size_t)256 << 10)
#define QD_SHM_TENSOR_UNIT_NS UINT64_C(50000)
void qd_shm_tensors_copy_output(const struct qd_oip_asked *asked, size_t output, const void *from,
                                size_t bytes, size_t begin, size_t end);

/* Returns whether a region of the request was lost (mapping.h), for example because its owner has
 * shrunk it. In this case qd_shm_tensors_refuse_loss fails with QD_INVALID. */
bool qd_shm_tensors_are_lost(const struct qd_oip_asked *asked);
enum qd_status qd_shm_tensors_refuse_loss(const struct qd_oip_asked *asked, struct qd_error *error);

/* Releases all regions of the request, after their last use. */
void qd_shm_tensors_release(struct qd_oip_asked *asked);
