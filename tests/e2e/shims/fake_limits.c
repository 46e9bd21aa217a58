/* Preloaded into a server: the machine and its container as $FAKE_PARALLELISM, $FAKE_TOTAL_MEMORY
 * and $FAKE_CONSTRAINED_MEMORY have it, where libuv would ask the system. */
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
