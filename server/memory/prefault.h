/* Prefaults pages, which means that it touches them before anybody uses them, on a thread of its
 * own. The thread that touches a page first waits while the system finds memory for it and clears
 * it. In a virtual machine this takes up to 6 ms for 2 MiB if the host has to find the memory. A
 * loop could not serve its connections meanwhile, so this thread touches the pages instead. */
#ifndef SERVER_MEMORY_PREFAULT_H
#define SERVER_MEMORY_PREFAULT_H

#include <stddef.h>

struct qd_prefault;

/* Pages for the thread to touch. The caller owns the order, and keeps it until on_prefaulted is
 * called. */
struct qd_prefault_order {
    char *start;
    size_t bytes;
    void (*on_prefaulted)(
        struct qd_prefault_order *order); /* called on the prefault thread; must be short */
    struct qd_prefault_order *next;       /* private */
};

struct qd_prefault *qd_prefault_create(void); /* returns NULL if there is no memory or no thread */
/* Ends the thread. Before it returns, on_prefaulted has been called for every order. The pages of
 * orders that have not begun are not touched. NULL is fine. */
void qd_prefault_destroy(struct qd_prefault *prefault);

/* Adds an order, on any thread. Orders are served in the order in which they arrive. The thread
 * writes zeros to each page, so the pages may not be used until on_prefaulted is called. */
void qd_prefault_add(struct qd_prefault *prefault, struct qd_prefault_order *order);

#endif
