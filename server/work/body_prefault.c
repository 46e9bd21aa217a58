#include "server/work/body_prefault.h"

#include <stdlib.h>

#include "server/memory/blocks.h"
#include "server/memory/prefault.h"

/* A smaller body has no huge page to wait for: blocks.c uses small pages for the first 2 MiB, and
 * for what follows the last whole huge page. */
#define BODY_BYTES_LEAST (2 * QD_HUGE_PAGE_BYTES)
/* How many bytes must have come before pages are prefaulted. A head alone gets none. */
#define BYTES_LEAST (QD_HUGE_PAGE_BYTES / 2)

struct qd_body_prefault {
    struct qd_prefault_order order;
    struct qd_post post;
    struct qd_loop *loop;
    size_t from;                /* offset in the body */
    struct qd_request *request; /* NULL if it has ended and left `block` of `memory` */
    struct qd_memory *memory;
    struct qd_block *block;
};

size_t qd_body_prefault_end(const struct qd_request *request)
{
    return request->body.prefault != NULL
               ? request->body.prefault->from
               : qd_arena_committed(&request->arena, request->body.bytes);
}

/* On the loop's thread, when the pages are there. */
static void on_there(void *context)
{
    struct qd_body_prefault *prefault = context;
    struct qd_request *request = prefault->request;
    if (request == NULL) {
        qd_block_give(prefault->memory, prefault->block);
    } else {
        request->body.prefault = NULL;
        request->body.on_room(request);
    }
    free(prefault);
}

static void on_prefaulted(struct qd_prefault_order *order)
{
    struct qd_body_prefault *prefault = (struct qd_body_prefault *)order;
    qd_loop_post(prefault->loop, &prefault->post);
}

/* Orders the pages in [from, to) of the body. Returns NULL if malloc failed; the loop then touches
 * the pages when it writes. */
static struct qd_body_prefault *make(struct qd_request *request, size_t from, size_t to)
{
    struct qd_body_prefault *prefault = malloc(sizeof(*prefault));
    if (prefault == NULL)
        return NULL;
    *prefault = (struct qd_body_prefault){
        .order = {.start = request->body.bytes + from,
                  .bytes = to - from,
                  .on_prefaulted = on_prefaulted},
        .post = {.callback = on_there, .context = prefault},
        .loop = request->loop,
        .from = from,
        .request = request,
        .memory = request->arena.memory,
    };
    qd_prefault_add(qd_memory_prefault(request->arena.memory), &prefault->order);
    return prefault;
}

/* Orders one huge page at a time, so that bytes can come into the page before it meanwhile. */
void qd_body_prefault_go_on(struct qd_request *request, size_t bytes)
{
    struct qd_arena *arena = &request->arena;
    if (qd_memory_prefault(arena->memory) == NULL || request->body.capacity < BODY_BYTES_LEAST ||
        bytes < BYTES_LEAST)
        return;
    size_t wanted = qd_round_up(bytes, QD_HUGE_PAGE_BYTES) + QD_HUGE_PAGE_BYTES;
    wanted = wanted < request->body.capacity ? wanted : request->body.capacity;
    while (request->body.prefault == NULL) {
        size_t fresh;
        size_t committed = qd_arena_committed(arena, request->body.bytes);
        const size_t next = qd_round_up(committed + 1, QD_HUGE_PAGE_BYTES);
        if (committed >= wanted || !qd_arena_commit_fresh(arena, request->body.bytes,
                                                          next < wanted ? next : wanted, &fresh))
            return;
        committed = qd_arena_committed(arena, request->body.bytes);
        if (fresh < committed)
            request->body.prefault = make(request, fresh, committed);
    }
}

void qd_body_prefault_abandon(struct qd_request *request)
{
    struct qd_body_prefault *prefault = request->body.prefault;
    if (prefault == NULL)
        return;
    prefault->block = qd_arena_detach(&request->arena, request->body.bytes);
    prefault->request = NULL;
    request->body.prefault = NULL;
}
