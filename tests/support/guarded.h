/* Memory between two pages that nobody may touch. */
#ifndef TESTS_SUPPORT_GUARDED_H
#define TESTS_SUPPORT_GUARDED_H

#include <stddef.h>

/* `bytes` bytes, filled with something that is not 0. They end where the page behind begins, or if
 * that would break `alignment`, as near as can be; every second block instead begins where the page
 * before ends. What is left of their pages is watched: guarded_free fails the test if it was
 * written. Never NULL. */
void *guarded_alloc(size_t bytes, size_t alignment);
void guarded_free(void *block);

#endif
