/* The frame of the kernel checker, in the manner of dav1d's checkasm: it compares each kernel with
 * its reference, and times it.
 *
 * A subject is one function of one tier. Its body draws a case, random or extreme, calls the
 * reference and the kernel with the case, and compares the outputs bit for bit. If kernels are
 * timed, the same body makes one large, ordinary case. Scalar kernels are compared with themselves,
 * which checks that they stay inside their buffers, and times them.
 *
 * All that a kernel reads or writes lies in buffers between two inaccessible pages. The buffers
 * have exactly the bytes that the contract grants, and one end of each lies at such a page. A
 * kernel that accesses bytes beyond that end faults, and the case fails. The bytes between the
 * other end and its page are watched: they must not change. Nor may inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check; /* the state of the checker: frame.h */

typedef void check_body_fn(struct check *check, const void *kernel);

struct check_subject {
    const char *function; /* such as "gemm/multiply" */
    check_body_fn *body;
    const void *kernel; /* what the body calls */
    size_t cases;
};

/* Begins a tier: all subjects up to the next call belong to it. `lacks` says what this CPU lacks
 * for the tier, as check_lacks does, or is NULL. Returns false if the tier cannot run here, and
 * notes that for the report. */
bool check_tier(struct check *check, const char *tier, const char *lacks);

/* Runs all cases of the subject, or times it. */
void check_run(struct check *check, const struct check_subject *subject);

/* ---- For bodies: numbers ----------------------------------------------------------------- */

/* Returns the number of the case, from 0. Bodies derive from it what must not be left to chance. */
size_t check_index(const struct check *check);

/* Returns true if the body is to make a large, ordinary case for timing. */
bool check_is_timed(const struct check *check);

uint64_t check_random(struct check *check);
size_t check_below(struct check *check, size_t limit);                /* [0, limit) */
size_t check_between(struct check *check, size_t least, size_t most); /* both included */
bool check_chance(struct check *check, size_t one_in);

/* Fills with bytes: random ones, all the same extreme, or a mix of extremes. */
void check_fill_bytes(struct check *check, void *to, size_t bytes);

/* Returns a random int32: an extreme one, one around 0, or one of any magnitude. */
int32_t check_int32(struct check *check);

/* Returns a random float. Most are like `ordinary`. The others are zero, infinity, NaN, a subnormal
 * number, the least or the greatest number, or any bits. */
float check_float(struct check *check, float ordinary);

/* ---- For bodies: buffers ----------------------------------------------------------------- */

enum check_use {
    CHECK_INPUT, /* the kernel must not change it */
    CHECK_OUTPUT
};

/* Returns a guarded buffer for this case, filled with random bytes. Its end or, sometimes, its
 * beginning lies at a page that must not be touched. The buffer is aligned to `alignment`, and no
 * more, because the contract grants no more. `name` is for reports. */
void *check_buffer(struct check *check, const char *name, enum check_use use, size_t bytes,
                   size_t alignment);

/* Two output buffers with the same bytes, one for the reference and one for the kernel. */
struct check_pair {
    const char *name;
    void *expected, *actual;
    size_t bytes;
};

struct check_pair check_outputs(struct check *check, const char *name, size_t bytes,
                                size_t alignment);

/* Tells the memory sanitizer that the bytes are uninitialized until they are written again. Outputs
 * are uninitialized from the beginning. */
void check_forget(void *begin, size_t bytes);

/* Returns scratch memory for the body. It is not guarded, and is freed after the case. */
void *check_scratch(struct check *check, size_t bytes);

/* ---- For bodies: calls ------------------------------------------------------------------- */

/* Describes the case for reports of failures. */
void check_describe(struct check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef void check_call_fn(void *context);

/* Calls the reference and the kernel, or times both. `elements` is how many elements they process;
 * `unit` is what an element is called in the report of times. Returns false if the kernel faulted
 * or did not return; there is nothing to compare then. */
bool check_calls(struct check *check, check_call_fn *reference, check_call_fn *kernel,
                 void *context, double elements, const char *unit);

/* Compares all bytes of the two outputs. `element_bytes` only serves the report. */
void check_same(struct check *check, const struct check_pair *pair, size_t element_bytes);

/* Fails the case unless `ok`. */
void check_that(struct check *check, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the name of the features that a tier needs, for people, if this CPU lacks any of them.
 * Otherwise returns NULL. */
const char *check_lacks(const char *tier);

/* ---- The families of kernels ------------------------------------------------------------- */

void check_gemm(struct check *check);
void check_dequantize(struct check *check);
void check_quantize(struct check *check);
void check_argmax(struct check *check);
void check_binary(struct check *check);
void check_cast(struct check *check);
void check_floats(struct check *check);
void check_matmul(struct check *check);
void check_pool(struct check *check);
void check_pool_planes(struct check *check);
void check_lookup(struct check *check);
void check_move(struct check *check);
void check_slabs(struct check *check);
void check_winograd(struct check *check);
void check_depthwise(struct check *check);
void check_sgemm(struct check *check);
