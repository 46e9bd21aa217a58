/* What each tier needs from the CPU. */
#ifndef TESTS_KERNELS_CHECK_TIERS_H
#define TESTS_KERNELS_CHECK_TIERS_H

/* Returns what this CPU lacks for the named tier, for people. Returns NULL if it lacks nothing. */
const char *check_lacks(const char *tier);

#endif
