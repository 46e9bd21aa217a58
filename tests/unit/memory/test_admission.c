/* Which requests give way, and which may begin, if memory is short. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "server/base/clock.h"
#include "server/memory/arena.h"
#include "server/work/inference.h"
#include "server/work/scheduler/queue.h"

enum { MIB = 1 << 20, COUNT_MAX = 4 };

/* The bodies of some requests, in the order in which the requests came. */
struct crowd {
    struct qd_memory *memory;
    struct qd_arena arenas[COUNT_MAX];
    char *bodies[COUNT_MAX];
};

static void crowd_init(struct crowd *crowd, size_t bytes_max)
{
    crowd->memory = qd_memory_create(bytes_max);
    cr_assert_not_null(crowd->memory);
    for (int i = 0; i < COUNT_MAX; i++)
        qd_arena_init(&crowd->arenas[i], crowd->memory);
}

static void crowd_deinit(struct crowd *crowd)
{
    for (int i = 0; i < COUNT_MAX; i++)
        qd_arena_deinit(&crowd->arenas[i]);
    cr_assert_eq(qd_memory_used(crowd->memory), 0);
    qd_memory_destroy(crowd->memory);
}

/* Receives the body's first `bytes` bytes. */
static bool come(struct crowd *crowd, int i, size_t bytes)
{
    struct qd_arena *arena = &crowd->arenas[i];
    if (crowd->bodies[i] == NULL) {
        crowd->bodies[i] = qd_arena_reserve(arena, qd_memory_max(crowd->memory));
        cr_assert_not_null(crowd->bodies[i]);
        cr_assert(qd_arena_set_reservation(arena, crowd->bodies[i], QD_RESERVATION_COMING));
    }
    if (qd_arena_commit(arena, crowd->bodies[i], bytes, NULL) < bytes)
        return false;
    memset(crowd->bodies[i], i + 1, bytes);
    return true;
}

static bool reserve_as(struct crowd *crowd, int i, enum qd_reservation what)
{
    return qd_arena_set_reservation(&crowd->arenas[i], crowd->bodies[i], what);
}

static bool has_lost(const struct crowd *crowd, int i)
{
    return qd_arena_has_lost(&crowd->arenas[i], crowd->bodies[i]);
}

Test(admission, who_came_last_gives_way_to_who_came_before)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 12 * MIB);
    for (int i = 0; i < 3; i++)
        cr_assert(come(&crowd, i, 4 * MIB));
    cr_assert_not(come(&crowd, 2, 6 * MIB), "nobody came later");
    cr_assert(come(&crowd, 0, 6 * MIB));
    cr_assert(has_lost(&crowd, 2));
    cr_assert_not(has_lost(&crowd, 1));
    cr_assert_eq(qd_memory_used(crowd.memory), 10 * MIB);
    cr_assert_not(come(&crowd, 2, 1), "it stays lost");
    cr_assert_not(reserve_as(&crowd, 2, QD_RESERVATION_WAITING));
    crowd.bodies[2][0] = 1; /* its request may still write there */
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < 4 * MIB; k += 1000)
            cr_assert_eq(crowd.bodies[i][k], i + 1);
    crowd_deinit(&crowd);
}

Test(admission, bodies_that_wait_give_way_to_work_alone)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 12 * MIB);
    for (int i = 0; i < 3; i++)
        cr_assert(come(&crowd, i, 4 * MIB));
    cr_assert(reserve_as(&crowd, 1, QD_RESERVATION_WAITING));
    cr_assert(reserve_as(&crowd, 2, QD_RESERVATION_WAITING));
    cr_assert_not(come(&crowd, 0, 6 * MIB), "it is not whole itself");
    cr_assert(reserve_as(&crowd, 0, QD_RESERVATION_FIRM));
    cr_assert_null(qd_arena_alloc(&crowd.arenas[0], 9 * MIB), "both together have not as much");
    cr_assert_not(has_lost(&crowd, 2), "in vain");
    cr_assert_not_null(qd_arena_alloc(&crowd.arenas[0], 2 * MIB));
    cr_assert(has_lost(&crowd, 2));
    cr_assert_not(has_lost(&crowd, 1));
    crowd_deinit(&crowd);
}

Test(admission, work_that_has_begun_gives_way_to_nobody)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 8 * MIB);
    for (int i = 0; i < 2; i++) {
        cr_assert(come(&crowd, i, 4 * MIB));
        cr_assert(reserve_as(&crowd, i, QD_RESERVATION_FIRM));
    }
    cr_assert_null(qd_arena_alloc(&crowd.arenas[0], MIB));
    cr_assert_not(has_lost(&crowd, 1));
    cr_assert_not(qd_memory_has_room(crowd.memory, 1));
    crowd_deinit(&crowd);
}

Test(admission, what_is_lost_is_not_handed_out_again)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 12 * MIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            cr_assert(come(&crowd, i, 4 * MIB));
        cr_assert(come(&crowd, 0, 12 * MIB));
        cr_assert(has_lost(&crowd, 1) && has_lost(&crowd, 2));
        for (int i = 2; i >= 0; i--) {
            qd_arena_deinit(&crowd.arenas[i]);
            crowd.bodies[i] = NULL;
        }
        cr_assert_eq(qd_memory_used(crowd.memory), 0);
        cr_assert_eq(qd_memory_kept(crowd.memory), 12 * MIB, "of the one that was not lost");
    }
    crowd_deinit(&crowd);
}

static void count_call(void *context)
{
    ++*(int *)context;
}

Test(admission, who_fits_beside_others_begins_and_who_is_alone_always)
{
    struct crowd crowd = {.memory = NULL};
    int calls = 0;
    crowd_init(&crowd, 16 * MIB);
    qd_memory_set_on_room(crowd.memory, count_call, &calls);
    cr_assert(qd_arena_try_begin(&crowd.arenas[0], 10 * MIB));
    cr_assert_not(qd_arena_try_begin(&crowd.arenas[1], 7 * MIB));
    cr_assert(qd_arena_try_begin(&crowd.arenas[2], 6 * MIB));
    cr_assert_not_null(qd_arena_alloc(&crowd.arenas[0], 12 * MIB), "2 more than were spoken for");
    cr_assert_eq(calls, 0);
    qd_arena_end_work(&crowd.arenas[2]);
    cr_assert_eq(calls, 1);
    cr_assert_not(qd_arena_try_begin(&crowd.arenas[1], 7 * MIB));
    cr_assert(qd_arena_try_begin(&crowd.arenas[3], 4 * MIB));
    qd_arena_deinit(&crowd.arenas[3]);
    qd_arena_deinit(&crowd.arenas[2]);
    qd_arena_deinit(&crowd.arenas[0]);
    cr_assert_eq(calls, 7, "each at its end, when its memory is back, and for the one large block");
    cr_assert(qd_arena_try_begin(&crowd.arenas[1], SIZE_MAX), "alone");
    crowd_deinit(&crowd);
}

struct room {
    struct qd_memory *memory;
    size_t used; /* the memory in use at the last notification */
};

static void note_room(void *context)
{
    struct room *room = context;
    room->used = qd_memory_used(room->memory);
}

/* Nothing else would wake the waiting requests, because an answer may take long to send and a
 * body's client may just disconnect. */
Test(admission, whoever_gives_memory_back_tells_those_who_wait)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 16 * MIB);
    struct room room = {crowd.memory, SIZE_MAX};
    qd_memory_set_on_room(crowd.memory, note_room, &room);
    cr_assert(come(&crowd, 0, 4 * MIB));
    cr_assert(come(&crowd, 1, 4 * MIB));
    cr_assert(reserve_as(&crowd, 0, QD_RESERVATION_FIRM));
    cr_assert(qd_arena_try_begin(&crowd.arenas[0], 4 * MIB));
    cr_assert_not_null(qd_arena_alloc(&crowd.arenas[0], 4 * MIB));
    qd_arena_end_work(&crowd.arenas[0]);
    qd_arena_release(&crowd.arenas[0], crowd.bodies[0], qd_memory_max(crowd.memory));
    cr_assert_eq(room.used, 8 * MIB, "the body, whose answer goes out, went");
    qd_arena_deinit(&crowd.arenas[1]);
    cr_assert_eq(room.used, 4 * MIB, "a body went that still came");
    crowd_deinit(&crowd);
}

/* Asserts that the arena may not begin, unless a second has passed since `since_ns`, as it may on a
 * busy machine. */
static void assert_waits(struct qd_arena *arena, uint64_t since_ns)
{
    const bool begins = qd_arena_try_begin(arena, 8 * MIB);
    cr_assert(!begins || qd_clock_ns() - since_ns >= QD_NS_PER_S);
    if (begins)
        qd_arena_deinit(arena);
}

Test(admission, the_next_waits_for_an_answers_memory_for_a_second)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 16 * MIB);
    cr_assert(qd_arena_try_begin(&crowd.arenas[0], 10 * MIB));
    cr_assert_not_null(qd_arena_alloc(&crowd.arenas[0], 10 * MIB));
    const struct timespec pause = {.tv_nsec = 10000000};
    uint64_t ended_ns = qd_clock_ns();
    qd_arena_end_work(&crowd.arenas[0]);
    assert_waits(&crowd.arenas[1], ended_ns);
    while (!qd_arena_try_begin(&crowd.arenas[1], 8 * MIB))
        nanosleep(&pause, NULL);
    ended_ns = qd_clock_ns();
    qd_arena_end_work(&crowd.arenas[1]);
    assert_waits(&crowd.arenas[2], ended_ns); /* for the second answer */
    qd_arena_deinit(&crowd.arenas[1]);
    cr_assert(qd_arena_try_begin(&crowd.arenas[2], 8 * MIB), "nobody reads the first answer");
    crowd_deinit(&crowd);
}

Test(admission, a_time_to_come_back)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 16 * MIB);
    cr_assert_eq(qd_memory_retry_after_s(crowd.memory), 1);
    cr_assert(qd_arena_try_begin(&crowd.arenas[0], MIB));
    const struct timespec pause = {.tv_nsec = 600000000};
    nanosleep(&pause, NULL);
    cr_assert(come(&crowd, 1, MIB));
    cr_assert(come(&crowd, 2, MIB));
    cr_assert_geq(qd_memory_retry_after_s(crowd.memory), 2, "three times the time of the first");
    crowd_deinit(&crowd);
}

static struct qd_queue queue;

/* The job's deadline says whether it may start. No job overtakes waiting ones. */
static bool may_start(struct qd_job *job, bool others_wait)
{
    cr_assert_gt(atomic_load(&queue.held_count), 0, "who makes room now would wake nobody");
    return !others_wait && job->deadline_ns == 1000;
}

Test(admission, a_job_that_is_held_is_new_and_nobody_takes_it)
{
    static const struct qd_job_code code = {.may_start = may_start};
    struct qd_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct qd_job){.code = &code, .deadline_ns = i == 0 ? 1000 : 2000};
    qd_queue_add(&queue, &jobs[0]);
    cr_assert_eq(qd_queue_take(&queue, 1), &jobs[0]);
    qd_queue_add(&queue, &jobs[1]);
    qd_queue_add(&queue, &jobs[0]);
    cr_assert(jobs[0].held, "another came before it");
    cr_assert_eq(atomic_load(&queue.held_count), 2);
    cr_assert_null(qd_queue_take(&queue, 1));
    qd_queue_release(&queue, 0);
    cr_assert_eq(atomic_load(&queue.held_count), 2);
    qd_queue_remove(&queue, &jobs[1]);
    qd_queue_release(&queue, 0);
    cr_assert_eq(qd_queue_take(&queue, 1), &jobs[0]);
    qd_queue_add(&queue, &jobs[2]);
    cr_assert(jobs[2].held);
    qd_queue_release(&queue, 2000);
    cr_assert_eq(qd_queue_take(&queue, 1), &jobs[2], "its deadline has passed");
    cr_assert_eq(atomic_load(&queue.count), 0);
    cr_assert_eq(atomic_load(&queue.held_count), 0);
}

/* The last four bytes of a gzip body are its inflated size. */
static bool is_small_gzip(struct crowd *crowd, const char *body, size_t bytes)
{
    const struct qd_infer_tools tools = {.max_body_bytes = 256 * MIB};
    struct qd_request request = {.oip.coding = QD_CODING_GZIP,
                                 .oip.message = {.body = body, .body_bytes = bytes}};
    const struct qd_inference inference = {
        .tools = &tools, .request = &request, .arena = &crowd->arenas[0]};
    return qd_inference_is_small(&inference);
}

Test(admission, what_gzip_says_is_believed_within_reason)
{
    struct crowd crowd = {.memory = NULL};
    crowd_init(&crowd, 256 * MIB); /* 1 MiB, five times 200 KiB, is small */
    static char body[MIB];
    cr_assert(is_small_gzip(&crowd, "\0\0\0\0\0\0\2\0", 8), "128 KiB is too much of 8 bytes");
    cr_assert(is_small_gzip(&crowd, "\0\0\0\0\377\377\377\377", 8), "so are 4 GiB");
    cr_assert(is_small_gzip(&crowd, body, 1000), "an empty member at its end");
    cr_assert_not(is_small_gzip(&crowd, body, MIB), "and before it, more than nothing");
    memcpy(body + 996, "\0\0\4\0", 4);
    cr_assert_not(is_small_gzip(&crowd, body, 1000), "256 KiB");
    crowd_deinit(&crowd);
}
