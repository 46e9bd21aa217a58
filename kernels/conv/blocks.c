#include "kernels/conv/blocks.h"

#include "kernels/conv/sizes.h"

enum { VECTOR = 16, VECTORS_MOST = 4 };

size_t qk_conv_blocks_most(size_t places)
{
    return places / (VECTOR * VECTORS_MOST) + 1;
}

/* The positions among places [begin, end), at most 64. */
static uint64_t find_kept(size_t begin, size_t end, size_t columns, size_t pitch)
{
    uint64_t keep = 0;
    for (size_t at = begin; at < end;) {
        const size_t column = at % pitch;
        const size_t next = qk_size_min(at - column + pitch, end);
        if (column < columns) {
            const size_t count = qk_size_min(next - at, columns - column);
            keep |= UINT64_MAX >> (64 - count) << (at - begin);
        }
        at = next;
    }
    return keep;
}

size_t qk_conv_cut_blocks(size_t rows, size_t columns, size_t pitch, struct qk_conv_block *blocks)
{
    const size_t places = (rows - 1) * pitch + columns;
    const size_t vectors = (places - 1) / VECTOR + 1;
    const size_t count = (vectors - 1) / VECTORS_MOST + 1;
    size_t before = 0;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = vectors * i / count;
        const size_t end = vectors * (i + 1) / count;
        const uint64_t keep =
            find_kept(begin * VECTOR, qk_size_min(end * VECTOR, places), columns, pitch);
        if (keep == 0)
            continue; /* a pitch so wide that no position is in it */
        blocks[kept++] = (struct qk_conv_block){begin * VECTOR, end - begin, keep, before};
        before += (size_t)__builtin_popcountll(keep);
    }
    return kept;
}
