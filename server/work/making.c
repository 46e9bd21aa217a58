#include "server/work/making.h"

#include <stdlib.h>

#include "server/memory/blocks.h"
#include "server/memory/pages.h"

/* A body of less has no huge page that would be waited for: blocks.c has the first 2 MiB of small
 * ones, and what is left behind the last whole one. */
#define BODY_BYTES_LEAST (2 * QD_HUGE_PAGE_BYTES)
/* Pages are made only once so many bytes have come: a head alone gets none. */
#define BYTES_LEAST (QD_HUGE_PAGE_BYTES / 2)

struct qd_making {
    struct qd_pages_order order;
    struct qd_post post;
    struct qd_loop *loop;
    size_t from;                /* of the body */
    struct qd_request *request; /* NULL: it has ended, and left this memory's block: */
    struct qd_memory *memory;
    struct qd_block *block;
};

size_t qd_making_end(const struct qd_request *request)
{
    return request->making != NULL ? request->making->from
                                   : qd_arena_committed(&request->arena, request->body);
}

/* On the loop. */
static void on_there(void *context)
{
    struct qd_making *making = context;
    struct qd_request *request = making->request;
    if (request == NULL) {
        qd_block_give(making->memory, making->block);
    } else {
        request->making = NULL;
        request->on_room(request);
    }
    free(making);
}

static void on_made(struct qd_pages_order *order)
{
    struct qd_making *making = (struct qd_making *)order;
    qd_loop_post(making->loop, &making->post);
}

/* NULL: malloc failed, and whoever writes there makes them. */
static struct qd_making *make(struct qd_request *request, size_t from, size_t to)
{
    struct qd_making *making = malloc(sizeof(*making));
    if (making == NULL)
        return NULL;
    *making = (struct qd_making){
        .order = {.start = request->body + from, .bytes = to - from, .on_made = on_made},
        .post = {.callback = on_there, .context = making},
        .loop = request->loop,
        .from = from,
        .request = request,
        .memory = request->arena.memory,
    };
    qd_pages_make(qd_memory_pages(request->arena.memory), &making->order);
    return making;
}

/* A huge page at a time: bytes come into the one before while it is made. */
void qd_making_go_on(struct qd_request *request, size_t bytes)
{
    struct qd_arena *arena = &request->arena;
    if (qd_memory_pages(arena->memory) == NULL || request->body_capacity < BODY_BYTES_LEAST ||
        bytes < BYTES_LEAST)
        return;
    size_t wanted = qd_round_up(bytes, QD_HUGE_PAGE_BYTES) + QD_HUGE_PAGE_BYTES;
    wanted = wanted < request->body_capacity ? wanted : request->body_capacity;
    while (request->making == NULL) {
        size_t fresh;
        size_t committed = qd_arena_committed(arena, request->body);
        const size_t next = qd_round_up(committed + 1, QD_HUGE_PAGE_BYTES);
        if (committed >= wanted ||
            !qd_arena_commit_fresh(arena, request->body, next < wanted ? next : wanted, &fresh))
            return;
        committed = qd_arena_committed(arena, request->body);
        if (fresh < committed)
            request->making = make(request, fresh, committed);
    }
}

void qd_making_abandon(struct qd_request *request)
{
    struct qd_making *making = request->making;
    if (making == NULL)
        return;
    making->block = qd_arena_detach(&request->arena, request->body);
    making->request = NULL;
    request->making = NULL;
}
