/* Arithmetic that wraps on purpose: sums modulo 2^32. Private to kernels/. */
#pragma once

/* Marks a function whose unsigned numbers wrap on purpose. The fuzzers build planning and packing
 * code with clang's check for unsigned overflow (Makefile). The check skips marked functions. */
#ifdef __clang__
#define QK_WRAPS __attribute__((no_sanitize("unsigned-integer-overflow")))
#else
#define QK_WRAPS
#endif
