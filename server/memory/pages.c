#include "server/memory/pages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/memory/blocks.h"

struct qd_pages {
    pthread_t thread;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t changed;
    struct qd_pages_order *first;
    struct qd_pages_order **last_link; /* the pointer that the next one goes to */
    bool ends;
};

/* By writing, and not with madvise's MADV_POPULATE_WRITE: that holds the lock over all of the
 * process' mappings meanwhile, and who maps memory would wait for it as long. */
static void touch(const struct qd_pages_order *order)
{
    volatile char *bytes = order->start;
    for (size_t at = 0; at < order->bytes; at += QD_PAGE_BYTES)
        bytes[at] = 0;
}

static void *make_all(void *context)
{
    struct qd_pages *pages = context;
    pthread_mutex_lock(&pages->lock);
    while (pages->first != NULL || !pages->ends) {
        struct qd_pages_order *order = pages->first;
        if (order == NULL) {
            pthread_cond_wait(&pages->changed, &pages->lock);
            continue;
        }
        pages->first = order->next;
        if (pages->first == NULL)
            pages->last_link = &pages->first;
        const bool wanted = !pages->ends;
        pthread_mutex_unlock(&pages->lock);
        if (wanted)
            touch(order);
        order->on_made(order);
        pthread_mutex_lock(&pages->lock);
    }
    pthread_mutex_unlock(&pages->lock);
    return NULL;
}

static void destroy(struct qd_pages *pages)
{
    pthread_cond_destroy(&pages->changed);
    pthread_mutex_destroy(&pages->lock);
    free(pages);
}

struct qd_pages *qd_pages_create(void)
{
    struct qd_pages *pages = calloc(1, sizeof(*pages));
    if (pages == NULL)
        return NULL;
    pages->last_link = &pages->first;
    pthread_mutex_init(&pages->lock, NULL);
    pthread_cond_init(&pages->changed, NULL);
    if (pthread_create(&pages->thread, NULL, make_all, pages) != 0) {
        destroy(pages);
        return NULL;
    }
    return pages;
}

void qd_pages_destroy(struct qd_pages *pages)
{
    if (pages == NULL)
        return;
    pthread_mutex_lock(&pages->lock);
    pages->ends = true;
    pthread_cond_signal(&pages->changed);
    pthread_mutex_unlock(&pages->lock);
    pthread_join(pages->thread, NULL);
    destroy(pages);
}

void qd_pages_make(struct qd_pages *pages, struct qd_pages_order *order)
{
    order->next = NULL;
    pthread_mutex_lock(&pages->lock);
    *pages->last_link = order;
    pages->last_link = &order->next;
    pthread_cond_signal(&pages->changed);
    pthread_mutex_unlock(&pages->lock);
}
