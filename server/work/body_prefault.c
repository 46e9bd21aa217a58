#include "server/work/body_prefault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/memory/blocks.h"

/* A smaller body has no huge page to wait for: blocks.c uses small pages for the first 2 MiB, and
 * for what follows the last whole huge page. */
#define BODY_BYTES_LEAST (2 * QD_HUGE_PAGE_BYTES)
/* How many bytes must have come before pages are prefaulted. A head alone gets none. */
#define BYTES_LEAST (QD_HUGE_PAGE_BYTES / 2)

/* Pages of one body that the thread touches. */
struct qd_body_prefault {
    char *body;
    size_t from, to;     /* offsets in the body */
    struct qd_post post; /* first to the thread, and then to `loop` */
    struct qd_loop *loop;
    struct qd_request *request; /* NULL if it has ended and left the body in `arena` */
    struct qd_prefaulter *prefaulter;
    struct qd_arena arena;
};

struct qd_prefaulter {
    pthread_t thread;
    struct qd_loop *loop; /* of the thread */
    struct qd_post stop;
    atomic_bool ends; /* touches nothing more */
};

/* ---- The thread --------------------------------------------------------------------------- */

static void on_there(void *context);

/* Touches the pages by writing to them. MADV_POPULATE_WRITE is not used, because it holds the lock
 * on the process' mappings meanwhile, and other threads that map memory would have to wait. */
static void touch(void *context)
{
    struct qd_body_prefault *prefault = context;
    volatile char *bytes = prefault->body;
    const bool wanted = !atomic_load(&prefault->prefaulter->ends);
    for (size_t at = prefault->from; wanted && at < prefault->to; at += QD_PAGE_BYTES)
        bytes[at] = 0;
    prefault->post = (struct qd_post){.callback = on_there, .context = prefault};
    qd_loop_post(prefault->loop, &prefault->post);
}

static void *run(void *loop)
{
    qd_loop_run(loop);
    return NULL;
}

static void stop(void *loop)
{
    qd_loop_stop(loop);
}

struct qd_prefaulter *qd_prefaulter_create(void)
{
    struct qd_prefaulter *prefaulter = calloc(1, sizeof(*prefaulter));
    struct qd_loop *loop = prefaulter == NULL ? NULL : qd_loop_create();
    if (loop == NULL || pthread_create(&prefaulter->thread, NULL, run, loop) != 0) {
        qd_loop_destroy(loop);
        free(prefaulter);
        return NULL;
    }
    prefaulter->loop = loop;
    return prefaulter;
}

void qd_prefaulter_destroy(struct qd_prefaulter *prefaulter)
{
    if (prefaulter == NULL)
        return;
    prefaulter->stop = (struct qd_post){.callback = stop, .context = prefaulter->loop};
    atomic_store(&prefaulter->ends, true);
    qd_loop_post(prefaulter->loop, &prefaulter->stop);
    pthread_join(prefaulter->thread, NULL);
    qd_loop_destroy(prefaulter->loop);
    free(prefaulter);
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
    struct qd_body_prefault *prefault = malloc(sizeof(*prefault));
    if (prefault == NULL)
        return;
    *prefault = (struct qd_body_prefault){
        .body = request->body.bytes,
        .from = from,
        .to = to,
        .post = {.callback = touch, .context = prefault},
        .loop = request->loop,
        .request = request,
        .prefaulter = request->body.prefaulter,
    };
    request->body.prefault = prefault;
    qd_loop_post(prefault->prefaulter->loop, &prefault->post);
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
