/* Positions counted along padded lines, in blocks of up to 64. Private to conv/. */
#ifndef KERNELS_CONV_BLOCKS_H
#define KERNELS_CONV_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct qk_conv_block {
    size_t first;   /* place along the lines; a multiple of 16 */
    size_t vectors; /* of 16 places: 1 to 4 */
    uint64_t keep;  /* the places that are positions; not 0 */
    size_t before;  /* positions in the blocks before */
};

/* Cuts `rows` lines, `pitch` places apart, of which the first `columns` are positions, into blocks
 * as even as can be; gives their number. */
size_t qk_conv_cut_blocks(size_t rows, size_t columns, size_t pitch, struct qk_conv_block *blocks);

/* The most blocks of so many places. */
size_t qk_conv_blocks_most(size_t places);

#endif
