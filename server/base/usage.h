/* How much of a bound is in use. */
#pragma once

#include <stdint.h>

struct qd_usage {
    uint64_t used;
    uint64_t max;
};
