/* What a tier needs of the CPU. */
#ifndef TESTS_KERNELS_CHECK_TIERS_H
#define TESTS_KERNELS_CHECK_TIERS_H

/* What this CPU has not of what the tier of that name needs, for people; NULL: it has all. */
const char *check_lacks(const char *tier);

#endif
