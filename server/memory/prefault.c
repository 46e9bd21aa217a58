#include "server/memory/prefault.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/memory/blocks.h"

struct qd_prefault {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct qd_prefault_order *first;
    struct qd_prefault_order **last_link; /* where to store the pointer to the next order */
    bool ends;
};

/* Touches the pages by writing to them. MADV_POPULATE_WRITE is not used, because it holds the lock
 * on the process' mappings meanwhile, and other threads that map memory would have to wait. */
static void touch(const struct qd_prefault_order *order)
{
    volatile char *bytes = order->start;
    for (size_t at = 0; at < order->bytes; at += QD_PAGE_BYTES)
        bytes[at] = 0;
}

static void *touch_all(void *context)
{
    struct qd_prefault *prefault = context;
    pthread_mutex_lock(&prefault->lock);
    while (prefault->first != NULL || !prefault->ends) {
        struct qd_prefault_order *order = prefault->first;
        if (order == NULL) {
            pthread_cond_wait(&prefault->changed, &prefault->lock);
            continue;
        }
        prefault->first = order->next;
        if (prefault->first == NULL)
            prefault->last_link = &prefault->first;
        const bool wanted = !prefault->ends;
        pthread_mutex_unlock(&prefault->lock);
        if (wanted)
            touch(order);
        order->on_prefaulted(order);
        pthread_mutex_lock(&prefault->lock);
    }
    pthread_mutex_unlock(&prefault->lock);
    return NULL;
}

static void destroy(struct qd_prefault *prefault)
{
    pthread_cond_destroy(&prefault->changed);
    pthread_mutex_destroy(&prefault->lock);
    free(prefault);
}

struct qd_prefault *qd_prefault_create(void)
{
    struct qd_prefault *prefault = calloc(1, sizeof(*prefault));
    if (prefault == NULL)
        return NULL;
    prefault->last_link = &prefault->first;
    pthread_mutex_init(&prefault->lock, NULL);
    pthread_cond_init(&prefault->changed, NULL);
    if (pthread_create(&prefault->thread, NULL, touch_all, prefault) != 0) {
        destroy(prefault);
        return NULL;
    }
    return prefault;
}

void qd_prefault_destroy(struct qd_prefault *prefault)
{
    if (prefault == NULL)
        return;
    pthread_mutex_lock(&prefault->lock);
    prefault->ends = true;
    pthread_cond_signal(&prefault->changed);
    pthread_mutex_unlock(&prefault->lock);
    pthread_join(prefault->thread, NULL);
    destroy(prefault);
}

void qd_prefault_add(struct qd_prefault *prefault, struct qd_prefault_order *order)
{
    order->next = NULL;
    pthread_mutex_lock(&prefault->lock);
    *prefault->last_link = order;
    prefault->last_link = &order->next;
    pthread_cond_signal(&prefault->changed);
    pthread_mutex_unlock(&prefault->lock);
}
