/* The moving kernels in plain C: the reference of all other tiers. */
#include <stdbool.h>
#include <string.h>

#include "kernels/move/kernels.h"

/* One function moves every tile. The other tiers' kernels differ in what they may assume. */
#define KERNEL(bytes)                                                                             \
    static void moved_##bytes(char *y, const char *x, const struct qk_move_tile *tile)            \
    {                                                                                             \
        const struct qk_move_axis *outer = &tile->axes[QK_MOVE_OUTER];                            \
        const struct qk_move_axis *inner = &tile->axes[QK_MOVE_INNER];                            \
        const struct qk_move_axis *rows = &tile->axes[QK_MOVE_ROWS];                              \
        const struct qk_move_axis *columns = &tile->axes[QK_MOVE_COLUMNS];                        \
        const bool is_run =                                                                       \
            !columns->offsets && columns->x_stride == (bytes) && columns->y_stride == (bytes);    \
        for (size_t a = 0; a < outer->size; a++)                                                  \
            for (size_t b = 0; b < inner->size; b++)                                              \
                for (size_t i = 0; i < rows->size; i++) {                                         \
                    const char *from =                                                            \
                        qk_move_x_at(qk_move_x_at(qk_move_x_at(x, outer, a), inner, b), rows, i); \
                    char *to = y + (int64_t)a * outer->y_stride + (int64_t)b * inner->y_stride +  \
                               (int64_t)i * rows->y_stride;                                       \
                    if (is_run)                                                                   \
                        memcpy(to, from, columns->size *(bytes));                                 \
                    for (size_t k = 0; !is_run && k < columns->size; k++)                         \
                        memcpy(to + (int64_t)k * columns->y_stride,                               \
                               qk_move_x_at(from, columns, k), bytes);                            \
                }                                                                                 \
    }

KERNEL(1)
KERNEL(2)
KERNEL(4)
KERNEL(8)

static void streamed(char *y, const char *x, size_t bytes)
{
    memcpy(y, x, bytes);
}

static void finish(void)
{
}

void qk_move_init_scalar(struct qk_move_kernels *kernels)
{
    *kernels = (struct qk_move_kernels){
        .copied = moved_1,
        .strided = {moved_1, moved_2, moved_4, moved_8},
        .gathered = {moved_1, moved_2, moved_4, moved_8},
        .transposed = {moved_1, moved_2, moved_4, moved_8},
        .dealt = {moved_1, moved_2, moved_4, moved_8},
        .streamed = streamed,
        .finish = finish,
    };
}
