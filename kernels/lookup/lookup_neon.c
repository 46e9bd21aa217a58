/* Lookups with NEON: TBL looks up 16 bytes in 64 entries, and gives 0 for bytes beyond these. TBX
 * leaves such bytes as they were, so three more look up the remaining quarters of the table. */
#include "kernels/lookup/lookup.h"

#ifdef __aarch64__

#include <arm_neon.h>

enum { CHUNK = 16, QUARTER = 64 };

static void lookup(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                   bool stream)
{
    const uint8_t *entries = table->entries;
    const uint8x16x4_t a = vld1q_u8_x4(entries);
    const uint8x16x4_t b = vld1q_u8_x4(entries + QUARTER);
    const uint8x16x4_t c = vld1q_u8_x4(entries + 2 * QUARTER);
    const uint8x16x4_t d = vld1q_u8_x4(entries + 3 * QUARTER);
    const uint8x16_t step = vdupq_n_u8(QUARTER);
    size_t i = 0;
    (void)stream;
    for (; i + CHUNK <= count; i += CHUNK) {
        uint8x16_t at = vld1q_u8(x + i);
        uint8x16_t made = vqtbl4q_u8(a, at);
        at = vsubq_u8(at, step);
        made = vqtbx4q_u8(made, b, at);
        at = vsubq_u8(at, step);
        made = vqtbx4q_u8(made, c, at);
        at = vsubq_u8(at, step);
        vst1q_u8(y + i, vqtbx4q_u8(made, d, at));
    }
    for (; i < count; i++)
        y[i] = entries[x[i]];
}

const struct qk_lookup_kernel qk_lookup_kernel__neon = {"lookup_neon", lookup, 0.6, NULL};

#endif
