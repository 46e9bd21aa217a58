#include "server/work/body_prefault.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/memory/blocks.h"

/* A smaller body has no huge page to wait for: blocks.c uses small pages for the first 2 MiB, and
 * for what follows the last whole huge page. */
#define BODY_BYTES_LEAST (2 * QD_HUGE_PAGE_BYTES)
/* How many bytes must have come before pages are prefaulted. A head alone gets none. */
#define BYTES_LEAST (QD_HUGE_PAGE_BYTES / 2)

/* Pages of one body that the thread touches. */
struct qd_body_prefault {
    struct qd_body_prefault *next;
    char *body;
    size_t from, to; /* offsets in the body */
    struct qd_post post;
    struct qd_loop *loop;
    struct qd_request *request; /* NULL if it has ended and left the body in `arena` */
    struct qd_arena arena;
};

struct qd_prefaulter {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct qd_body_prefault *first;
    struct qd_body_prefault **last_link; /* where to store the pointer to the next one */
    bool ends;                           /* touches nothing more */
};

/* ---- The thread --------------------------------------------------------------------------- */

/* Touches the pages by writing to them. MADV_POPULATE_WRITE is not used, because it holds the lock
 * on the process' mappings meanwhile, and other threads that map memory would have to wait. */
static void touch(const struct qd_body_prefault *prefault)
{
    volatile char *bytes = prefault->body;
    for (size_t at = prefault->from; at < prefault->to; at += QD_PAGE_BYTES)
        bytes[at] = 0;
}

static void *touch_all(void *context)
{
    struct qd_prefaulter *prefaulter = context;
    pthread_mutex_lock(&prefaulter->lock);
    while (prefaulter->first != NULL || !prefaulter->ends) {
        struct qd_body_prefault *prefault = prefaulter->first;
        if (prefault == NULL) {
            pthread_cond_wait(&prefaulter->changed, &prefaulter->lock);
            continue;
        }
        prefaulter->first = prefault->next;
        if (prefaulter->first == NULL)
            prefaulter->last_link = &prefaulter->first;
        const bool wanted = !prefaulter->ends;
        pthread_mutex_unlock(&prefaulter->lock);
        if (wanted)
            touch(prefault);
        qd_loop_post(prefault->loop, &prefault->post);
        pthread_mutex_lock(&prefaulter->lock);
    }
    pthread_mutex_unlock(&prefaulter->lock);
    return NULL;
}

static void destroy(struct qd_prefaulter *prefaulter)
{
    pthread_cond_destroy(&prefaulter->changed);
    pthread_mutex_destroy(&prefaulter->lock);
    free(prefaulter);
}

struct qd_prefaulter *qd_prefaulter_create(void)
{
    struct qd_prefaulter *prefaulter = calloc(1, sizeof(*prefaulter));
    if (prefaulter == NULL)
        return NULL;
    prefaulter->last_link = &prefaulter->first;
    pthread_mutex_init(&prefaulter->lock, NULL);
    pthread_cond_init(&prefaulter->changed, NULL);
    if (pthread_create(&prefaulter->thread, NULL, touch_all, prefaulter) != 0) {
        destroy(prefaulter);
        return NULL;
    }
    return prefaulter;
}

void qd_prefaulter_destroy(struct qd_prefaulter *prefaulter)
{
    if (prefaulter == NULL)
        return;
    pthread_mutex_lock(&prefaulter->lock);
    prefaulter->ends = true;
    pthread_cond_signal(&prefaulter->changed);
    pthread_mutex_unlock(&prefaulter->lock);
    pthread_join(prefaulter->thread, NULL);
    destroy(prefaulter);
}

/* ---- A body ------------------------------------------------------------------------------- */

/* On the loop's thread, when the pages are there. */
static void on_there(void *context)
{
    struct qd_body_prefault *prefault = context;
    struct qd_request *request = prefault->request;
    if (request == NULL) {
        qd_arena_deinit(&prefault->arena);
    } else {
        request->body.prefault = NULL;
        request->body.on_room(request);
    }
    free(prefault);
}

/* Has the thread touch the pages in [from, to) of the body. If malloc fails, the loop touches them
 * when it writes. */
static void begin(struct qd_request *request, size_t from, size_t to)
{
    struct qd_prefaulter *prefaulter = request->body.prefaulter;
    struct qd_body_prefault *prefault = malloc(sizeof(*prefault));
    if (prefault == NULL)
        return;
    *prefault = (struct qd_body_prefault){
        .body = request->body.bytes,
        .from = from,
        .to = to,
        .post = {.callback = on_there, .context = prefault},
        .loop = request->loop,
        .request = request,
    };
    request->body.prefault = prefault;
    pthread_mutex_lock(&prefaulter->lock);
    *prefaulter->last_link = prefault;
    prefaulter->last_link = &prefault->next;
    pthread_cond_signal(&prefaulter->changed);
    pthread_mutex_unlock(&prefaulter->lock);
}

size_t qd_body_prefault(struct qd_request *request, size_t bytes)
{
    struct qd_body *body = &request->body;
    if (body->prefault == NULL && body->prefaulter != NULL && body->capacity >= BODY_BYTES_LEAST &&
        bytes >= BYTES_LEAST) {
        const size_t ahead = bytes + QD_HUGE_PAGE_BYTES;
        size_t fresh;
        const size_t there = qd_arena_commit(
            &request->arena, body->bytes, ahead < body->capacity ? ahead : body->capacity, &fresh);
        if (fresh < there)
            begin(request, fresh, there);
    }
    if (body->prefault != NULL && body->prefault->from < bytes)
        bytes = body->prefault->from;
    const size_t there = qd_arena_commit(&request->arena, body->bytes, bytes, NULL);
    return there < bytes ? there : bytes;
}

void qd_body_prefault_abandon(struct qd_request *request)
{
    struct qd_body_prefault *prefault = request->body.prefault;
    if (prefault == NULL)
        return;
    qd_arena_init(&prefault->arena, request->arena.memory);
    qd_arena_move(&request->arena, &prefault->arena, request->body.bytes);
    prefault->request = NULL;
    request->body.prefault = NULL;
}
