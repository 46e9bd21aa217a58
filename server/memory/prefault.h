/* Prefaults pages, which means that it touches them before anybody uses them, on a thread of its
 * own. The thread that touches a page first waits while the system finds memory for it and clears
 * it. In a virtual machine this takes up to 6 ms for 2 MiB if the host has to find the memory. A
 * loop could not serve its connections meanwhile, so this thread touches the pages instead.
 *
 * Measured while the first body of 80 MB arrived at a fresh server, and the host had to find the
 * pages (AMD EPYC Milan, 2 CPUs): small requests had a p90 of 1.0 ms and a p99 of 5.0 ms, without
 * this thread 4.3 and 7.2 ms. The body was received in 171 ms, without this thread in 237 ms. Where
 * the host has the pages, for bodies of 8 MB, and with small pages, the thread changes nothing that
 * can be measured. Small pages for all bodies would make the thread superfluous, and the p99 was 2
 * ms with them. But forty requests of 80 MB at once took a fifth longer, because small pages are
 * slower to find and to free, and a body was received into used pages 6 to 12 % more slowly. */
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
