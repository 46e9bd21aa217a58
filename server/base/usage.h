/* How much of a bound is in use. */
#ifndef SERVER_BASE_USAGE_H
#define SERVER_BASE_USAGE_H

#include <stdint.h>

struct qd_usage {
    uint64_t used;
    uint64_t max;
};

#endif
