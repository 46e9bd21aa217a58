#include "kernels/conv/alloc.h"

void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size)
{
    size_t bytes;
    if (!qk_mul_size(count == 0 ? 1 : count, size, &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}
