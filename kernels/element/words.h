/* Elements of any type, a lot at a time. Private to kernels/. */
#ifndef KERNELS_ELEMENT_WORDS_H
#define KERNELS_ELEMENT_WORDS_H

#include "kernels/qk.h"

/* Elements first, first + stride, first + 2 * stride and so on, `count` of them, as 32 bits each:
 * sign-extended for signed integers, the bare bits for all others. */
void qk_load_words(enum qk_type type, const void *data, size_t first, size_t stride, size_t count,
                   int32_t *words);

#endif
