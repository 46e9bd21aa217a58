#include "server/base/digest.h"

#include <gnutls/crypto.h>

bool qd_digest_of(const void *bytes, size_t count, struct qd_digest *digest)
{
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, count, digest->bytes) == 0;
}

bool qd_digest_equal(const struct qd_digest *left, const struct qd_digest *right)
{
    return gnutls_memcmp(left->bytes, right->bytes, QD_DIGEST_BYTES) == 0;
}
