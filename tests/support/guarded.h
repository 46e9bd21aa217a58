/* Memory between two inaccessible pages. */
#ifndef TESTS_SUPPORT_GUARDED_H
#define TESTS_SUPPORT_GUARDED_H

#include <stddef.h>

/* Returns `bytes` bytes, filled with values that are not 0. They end where the next page begins or,
 * if that would break `alignment`, as near as possible. Every second block instead begins where the
 * previous page ends. The other bytes of the block's pages are watched: guarded_free fails the test
 * if they were written. Never returns NULL. */
void *guarded_alloc(size_t bytes, size_t alignment);
void guarded_free(void *block);

#endif
