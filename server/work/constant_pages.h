/* Gives the memory of constants back to the system while they are packed.
 *
 * A load reads a model's file, and then packs its weights into new memory. If the file stayed in
 * memory until all weights are packed, a load would need both at once, which is twice the memory
 * that the model keeps. So the pages of a constant are given back as soon as all nodes that read
 * the constant are packed. The block of memory that they belong to is freed later, as usual. */
#ifndef SERVER_WORK_CONSTANT_PAGES_H
#define SERVER_WORK_CONSTANT_PAGES_H

#include <stddef.h>

#include "kernels/qk.h"
#include "server/memory/arena.h"

struct qd_constant_pages;

/* Finds the constants of all nodes that have units of packing. `graph` was prepared from `call`,
 * and nothing but packing may read the constants any more. Returns NULL if the arena has no room.
 * No page is then given back before its block is freed. */
struct qd_constant_pages *qd_constant_pages_find(const struct qk_graph_call *call,
                                                 const struct qk_graph *graph,
                                                 struct qd_arena *arena);

/* Records that units [begin, end) have been packed. Gives back the pages of constants that no other
 * unit reads. Their bytes have no meaning any more. `pages` may be NULL. May be called on several
 * threads at once, once for each unit. */
void qd_constant_pages_packed(struct qd_constant_pages *pages, size_t begin, size_t end);

#endif
