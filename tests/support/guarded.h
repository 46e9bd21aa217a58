/* Gives tests memory between two inaccessible pages, so that an access beyond it crashes. */
#pragma once

#include <stddef.h>

/* Returns `bytes` bytes, filled with values that are not 0. Every other block ends at an
 * inaccessible page or, if that would break `alignment`, as near to it as possible. The blocks
 * between these begin at an inaccessible page. The other bytes of the block's pages are watched:
 * guarded_free fails the test if they were written. Never returns NULL. */
void *guarded_alloc(size_t bytes, size_t alignment);
void guarded_free(void *block);
