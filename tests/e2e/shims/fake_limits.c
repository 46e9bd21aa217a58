/* Preloaded into a server. Replaces the functions by which libuv asks the system for the limits of
 * the machine and the container. Their results are $FAKE_PARALLELISM, $FAKE_TOTAL_MEMORY and
 * $FAKE_CONSTRAINED_MEMORY. */
#include <stdint.h>
#include <stdlib.h>

unsigned uv_available_parallelism(void)
{
    return (unsigned)strtoul(getenv("FAKE_PARALLELISM"), NULL, 10);
}

uint64_t uv_get_total_memory(void)
{
    return strtoull(getenv("FAKE_TOTAL_MEMORY"), NULL, 10);
}

uint64_t uv_get_constrained_memory(void)
{
    return strtoull(getenv("FAKE_CONSTRAINED_MEMORY"), NULL, 10);
}
