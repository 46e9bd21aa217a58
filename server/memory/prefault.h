/* A thread that prefaults pages. The thread that touches a page first waits while the system finds
 * memory for it and clears it. That is up to 6 ms for 2 MiB where a virtual machine's host has to
 * find it. A loop has connections to serve meanwhile, so it leaves that to this thread. */
#ifndef SERVER_MEMORY_PREFAULT_H
#define SERVER_MEMORY_PREFAULT_H

#include <stddef.h>

struct qd_prefault;

/* Pages for the thread to touch. The caller owns the order, which lasts until on_prefaulted. */
struct qd_prefault_order {
    char *start;
    size_t bytes;
    void (*on_prefaulted)(
        struct qd_prefault_order *order); /* on the thread; nothing that takes long */
    struct qd_prefault_order *next;       /* private */
};

struct qd_prefault *qd_prefault_create(void); /* NULL: no memory, or no thread */
/* Returns when on_prefaulted was called for every order. The pages of orders that have not begun
 * are not touched. NULL is fine. */
void qd_prefault_destroy(struct qd_prefault *prefault);

/* Zeros are written to each page: nobody else uses them until on_prefaulted. Orders are served as
 * they came. On any thread. */
void qd_prefault_add(struct qd_prefault *prefault, struct qd_prefault_order *order);

#endif
