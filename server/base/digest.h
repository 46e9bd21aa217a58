/* Computes SHA-256: for tokens, of which the server keeps only digests, and for the console's ETag
 * and Content-Security-Policy. Only digest.c includes GnuTLS for it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define QD_DIGEST_BYTES 32

struct qd_digest {
    unsigned char bytes[QD_DIGEST_BYTES];
};

/* Computes the digest of `count` bytes. Returns false if there is no memory. */
bool qd_digest_of(const void *bytes, size_t count, struct qd_digest *digest);

/* Compares two digests in constant time. */
bool qd_digest_equal(const struct qd_digest *left, const struct qd_digest *right);
