/* The frame of the kernel checker, in the manner of dav1d's checkasm.
 *
 * A subject is one function of one tier. Its body draws a case, random or extreme, calls the
 * reference and the kernel with it, and compares what they wrote, bit for bit. The same body makes
 * one large, ordinary case where kernels are timed.
 *
 * Scalar kernels are compared with themselves, so that they are seen to keep to their buffers, and
 * timed.
 *
 * All that a kernel reads or writes lies in buffers between two pages that nobody may touch, which
 * have exactly the bytes that the contract grants: a kernel that reads beyond them takes a fault,
 * which is a failure of that case. What lies between a buffer and the page farther away is watched,
 * and so is every input.
 */
#ifndef TESTS_KERNELS_CHECK_CHECK_H
#define TESTS_KERNELS_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check; /* frame.c */

typedef void check_body_fn(struct check *check, const void *kernel);

struct check_subject {
    const char *function; /* "gemm/multiply" */
    check_body_fn *body;
    const void *kernel; /* for the body: what to call */
    size_t cases;
};

/* Begins a tier: subjects up to the next one are its own. `lacks`: what this CPU has not, for
 * people, or NULL. False: it cannot run here, which is noted. */
bool check_tier(struct check *check, const char *tier, const char *lacks);

/* Runs all cases of the subject, or times it. */
void check_run(struct check *check, const struct check_subject *subject);

/* ---- For bodies: numbers ----------------------------------------------------------------- */

/* Number of the case, from 0 on: bodies take what must not be left to chance from it. */
size_t check_index(const struct check *check);

/* Whether an ordinary, large case is wanted, to be timed. */
bool check_is_timed(const struct check *check);

uint64_t check_random(struct check *check);
size_t check_below(struct check *check, size_t limit);                /* [0, limit) */
size_t check_between(struct check *check, size_t least, size_t most); /* both included */
bool check_chance(struct check *check, size_t one_in);

/* Fills with bytes: random ones, all the same extreme, or a mix of extremes. */
void check_fill_bytes(struct check *check, void *to, size_t bytes);

/* One of the numbers where int32 ends or turns its sign, or a random one of any magnitude. */
int32_t check_int32(struct check *check);

/* Zero, infinity, NaN, subnormals, the least and the greatest, or any bits; `ordinary` ones most of
 * the time. */
float check_float(struct check *check, float ordinary);

/* ---- For bodies: buffers ----------------------------------------------------------------- */

enum check_use {
    CHECK_INPUT, /* must be left as it is */
    CHECK_OUTPUT
};

/* A guarded buffer for this case, filled with random bytes. Its end or, sometimes, its beginning is
 * where a page begins that may not be touched; `alignment` is all that it has. */
void *check_buffer(struct check *check, const char *name, enum check_use use, size_t bytes,
                   size_t alignment);

/* Two output buffers with the same bytes in them: what the reference and what the kernel writes. */
struct check_pair {
    const char *name;
    void *expected, *actual;
    size_t bytes;
};

struct check_pair check_outputs(struct check *check, const char *name, size_t bytes,
                                size_t alignment);

/* With the memory sanitizer: nobody may depend on what is there until it is written anew. Outputs
 * are so from the beginning. */
void check_forget(void *begin, size_t bytes);

/* Scratch memory for the body, not guarded; gone with the case. */
void *check_scratch(struct check *check, size_t bytes);

/* ---- For bodies: calls ------------------------------------------------------------------- */

/* Says which case it is, for failures. */
void check_describe(struct check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef void check_call_fn(void *context);

/* Call the reference and the kernel, or take the time of both; `elements`: what they work on, in
 * `unit`. False: the kernel faulted or did not come back, and there is nothing to compare. */
bool check_calls(struct check *check, check_call_fn *reference, check_call_fn *kernel,
                 void *context, double elements, const char *unit);

/* Compares the two outputs whole; `element_bytes` is for the text. */
void check_same(struct check *check, const struct check_pair *pair, size_t element_bytes);

/* Fails the case unless `ok`. */
void check_that(struct check *check, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- The families of kernels ------------------------------------------------------------- */

void check_gemm(struct check *check);
void check_dequantize(struct check *check);
void check_quantize(struct check *check);
void check_slabs(struct check *check);
void check_depthwise(struct check *check);
void check_sgemm(struct check *check);

#endif
