/* Arithmetic that wraps on purpose: sums modulo 2^32. Private to kernels/. */
#ifndef KERNELS_WRAP_H
#define KERNELS_WRAP_H

/* Marks a function whose unsigned numbers wrap on purpose. Fuzzers run code that plans and packs
 * under clang's check for unsigned overflow (Makefile), which then leaves this function out. */
#ifdef __clang__
#define QK_WRAPS __attribute__((no_sanitize("unsigned-integer-overflow")))
#else
#define QK_WRAPS
#endif

#endif
