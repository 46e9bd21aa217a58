/* A thread that makes pages: whoever touches one first waits while the system finds memory for it
 * and clears it, which is up to 6 ms for 2 MiB where a virtual machine's host has to find it. Those
 * who have others to serve leave that to this thread. */
#ifndef SERVER_MEMORY_PAGES_H
#define SERVER_MEMORY_PAGES_H

#include <stddef.h>

struct qd_pages;

/* Something for the thread to make. It is its maker's, and lasts until it is told of. */
struct qd_pages_order {
    char *start;
    size_t bytes;
    void (*on_made)(struct qd_pages_order *order); /* on the thread; nothing that takes long */
    struct qd_pages_order *next;                   /* private */
};

struct qd_pages *qd_pages_create(void); /* NULL: no memory, or no thread */
/* Returns when every order has been told of; those not yet begun are not made. NULL is fine. */
void qd_pages_destroy(struct qd_pages *pages);

/* Zeros are written to each page: nobody else uses them until on_made. Orders are served as they
 * came. On any thread. */
void qd_pages_make(struct qd_pages *pages, struct qd_pages_order *order);

#endif
