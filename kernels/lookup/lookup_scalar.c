/* The reference of the lookup kernels, in plain C. */
#include "kernels/lookup/lookup.h"

static void lookup(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                   bool stream)
{
    (void)stream;
    for (size_t i = 0; i < count; i++)
        y[i] = table->entries[x[i]];
}

const struct qk_lookup_kernel qk_lookup_kernel__scalar = {"lookup_scalar", lookup, 1.2, NULL};
