#include "server/work/request.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "server/base/clock.h"
#include "tests/unit/scratch.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

struct desk {
    struct qd_memory *memory;
    struct qd_request *request;
};

static struct desk desk_create(size_t bytes_max)
{
    struct desk desk = {.memory = qd_memory_create(bytes_max)};
    desk.request = qd_request_create(desk.memory, qd_clock_ns() - 5 * QD_NS_PER_MS);
    return desk;
}

static void desk_destroy(struct desk *desk)
{
    qd_request_destroy(desk->request);
    cr_assert_eq(qd_memory_used(desk->memory), 0);
    qd_memory_destroy(desk->memory);
}

Test(request, stages_are_differences_of_transitions)
{
    static const enum qd_request_state way[] = {QD_QUEUED,   QD_DECODING, QD_RUNNING, QD_QUEUED,
                                                QD_RUNNING,  QD_QUEUED,   QD_RUNNING, QD_ENCODING,
                                                QD_REPLYING, QD_DONE};
    struct desk desk = desk_create(MIB);
    uint64_t begin_ns = desk.request->times.since_ns;
    for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++) {
        qd_request_advance(desk.request, way[i]);
        cr_assert_eq(desk.request->state, way[i]);
    }
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(desk.request, stage_ns);
    cr_assert_geq(stage_ns[QD_STAGE_RECEIVE], 5 * QD_NS_PER_MS);
    uint64_t sum_ns = 0;
    for (unsigned stage = 0; stage < QD_STAGE_TOTAL; stage++) {
        cr_assert_gt(stage_ns[stage], 0);
        sum_ns += stage_ns[stage];
    }
    cr_assert_eq(stage_ns[QD_STAGE_TOTAL], sum_ns);
    cr_assert_eq(sum_ns + desk.request->times.spent_ns[QD_REPLYING],
                 desk.request->times.since_ns - begin_ns);
    desk_destroy(&desk);
}

ParameterizedTestParameters(request, wrong_steps)
{
    static enum qd_request_state steps[][2] = {
        {QD_READING, QD_RUNNING},  {QD_READING, QD_DECODING}, {QD_READING, QD_READING},
        {QD_QUEUED, QD_READING},   {QD_QUEUED, QD_DONE},      {QD_DECODING, QD_ENCODING},
        {QD_ENCODING, QD_RUNNING}, {QD_REPLYING, QD_QUEUED},  {QD_REPLYING, QD_REPLYING},
        {QD_DONE, QD_READING},     {QD_DONE, QD_REPLYING},    {QD_RUNNING, QD_DONE},
    };
    return cr_make_param_array(enum qd_request_state[2], steps, sizeof(steps) / sizeof(*steps));
}

ParameterizedTest(enum qd_request_state (*step)[2], request, wrong_steps, .signal = SIGABRT)
{
    struct desk desk = desk_create(MIB);
    desk.request->state = (*step)[0];
    fclose(stderr);                               /* hides the expected message */
    qd_request_advance(desk.request, (*step)[1]); /* aborts */
}

Test(request, a_body_of_known_length_is_one_piece)
{
    struct desk desk = desk_create(16 * MIB);
    cr_assert_eq(qd_request_reserve_body(desk.request, 3 * MIB), QD_OK);
    char *body = desk.request->body.bytes;
    static char piece[MIB];
    for (int i = 0; i < 3; i++) {
        memset(piece, 'a' + i, sizeof(piece));
        qd_request_take_body(desk.request, piece, sizeof(piece), 3 * MIB);
    }
    cr_assert_eq(desk.request->error.status, QD_OK);
    cr_assert_eq(desk.request->body.bytes, body);
    cr_assert_eq(desk.request->body.count, 3 * MIB);
    cr_assert_eq(body[0], 'a');
    cr_assert_eq(body[2 * MIB], 'c');
    desk_destroy(&desk);
}

Test(request, a_body_of_unknown_length_grows)
{
    struct desk desk = desk_create(16 * MIB);
    cr_assert_eq(qd_request_reserve_body(desk.request, 0), QD_OK);
    char piece[777];
    for (size_t i = 0; i < 2000; i++) {
        memset(piece, (int)i, sizeof(piece));
        qd_request_take_body(desk.request, piece, sizeof(piece), 2000 * 777);
    }
    cr_assert_eq(desk.request->error.status, QD_OK);
    for (size_t i = 0; i < 2000 * 777; i++)
        cr_assert_eq(desk.request->body.bytes[i], (char)(i / 777));
    qd_request_take_body(desk.request, piece, 1, 2000 * 777);
    cr_assert_eq(desk.request->error.status, QD_TOO_LARGE);
    cr_assert(strstr(desk.request->error.text, "--max-body-bytes") != NULL);
    cr_assert_eq(qd_memory_used(desk.memory), 0, "what was refused holds nothing");
    qd_request_take_body(desk.request, piece, 700, 2000 * 777); /* is dropped */
    desk_destroy(&desk);
}

/* While `takes` is set, takes nearly all memory and gives it back. This evicts pages that bodies
 * touched beyond their use. */
struct taker {
    struct qd_memory *memory;
    atomic_bool takes;
    atomic_bool over;
};

static void *take_much(void *context)
{
    struct taker *taker = context;
    struct qd_arena arena;
    qd_arena_init(&arena, taker->memory);
    while (!atomic_load(&taker->over)) {
        if (atomic_load(&taker->takes))
            qd_arena_alloc(&arena, 4 * MIB - 512 * KIB);
        qd_arena_deinit(&arena);
    }
    return NULL;
}

/* Asserts that the first 60 KiB of a body of unknown length move when the rest comes. */
static void assert_moved(struct taker *taker, const char *bytes, size_t count)
{
    struct qd_request *request = qd_request_create(taker->memory, qd_clock_ns());
    cr_assert_eq(qd_request_reserve_body(request, 0), QD_OK);
    qd_request_take_body(request, bytes, 60 * KIB, MIB);
    atomic_store(&taker->takes, count < MIB / 2);
    qd_request_take_body(request, bytes + 60 * KIB, count - 60 * KIB, MIB);
    atomic_store(&taker->takes, false);
    if (request->error.status == QD_OK && qd_request_end_body(request) == QD_OK)
        cr_assert_eq(memcmp(request->body.bytes, bytes, count), 0);
    qd_request_destroy(request);
}

Test(request, a_body_that_moves_keeps_its_bytes_where_others_want_memory)
{
    static char bytes[MIB];
    struct taker taker = {.memory = qd_memory_create(4 * MIB)};
    pthread_t thread;
    memset(bytes, 1, sizeof(bytes));
    cr_assert_eq(pthread_create(&thread, NULL, take_much, &taker), 0);
    for (int i = 0; i < 3000; i++) {
        assert_moved(&taker, bytes, MIB);
        assert_moved(&taker, bytes, 80 * KIB); /* in pages that the body before has touched */
    }
    atomic_store(&taker.over, true);
    pthread_join(thread, NULL);
    cr_assert_eq(qd_memory_used(taker.memory), 0);
    qd_memory_destroy(taker.memory);
}

Test(request, a_body_is_written_in_its_place)
{
    struct desk desk = desk_create(4 * MIB);
    struct qd_request *request = desk.request;
    cr_assert_eq(qd_request_body_room(request, 0), 0, "nobody wants it");
    cr_assert_eq(qd_request_reserve_body(request, 3 * MIB), QD_OK);
    while (request->body.count < 3 * MIB) {
        const size_t room = qd_request_body_room(request, 0);
        cr_assert_gt(room, 0);
        cr_assert_leq(request->body.count + room, qd_memory_used(desk.memory));
        cr_assert_leq(qd_memory_used(desk.memory), request->body.count + 2 * MIB + 64 * KIB);
        char *end = request->body.bytes + request->body.count;
        memset(end, (int)request->body.count, room);
        qd_request_take_body(request, end, room, 3 * MIB);
        cr_assert_eq(request->error.status, QD_OK);
    }
    cr_assert_eq(request->body.count, 3 * MIB);
    cr_assert_eq(qd_request_body_room(request, 0), 0, "it is complete");
    desk_destroy(&desk);
}

Test(request, what_is_refused_has_no_room)
{
    struct desk desk = desk_create(4 * MIB);
    struct qd_arena other;
    qd_arena_init(&other, desk.memory);
    cr_assert_eq(qd_request_reserve_body(desk.request, 3 * MIB), QD_OK);
    cr_assert_not_null(qd_arena_alloc(&other, 4 * MIB));
    cr_assert_eq(qd_request_body_room(desk.request, 0), 0);
    qd_request_take_body(desk.request, "1", 1, 3 * MIB);
    cr_assert_eq(desk.request->error.status, QD_UNAVAILABLE, "%s", desk.request->error.text);
    cr_assert_eq(qd_request_body_room(desk.request, 0), 0);
    qd_arena_deinit(&other);
    desk_destroy(&desk);
}

Test(request, an_unwanted_body_is_only_counted)
{
    struct desk desk = desk_create(MIB);
    static char piece[100000];
    for (int i = 0; i < 100; i++)
        qd_request_take_body(desk.request, piece, sizeof(piece), 100 * sizeof(piece));
    cr_assert_eq(desk.request->error.status, QD_OK);
    cr_assert_eq(qd_memory_used(desk.memory), 0);
    qd_request_take_body(desk.request, piece, 1, 100 * sizeof(piece));
    cr_assert_eq(desk.request->error.status, QD_TOO_LARGE);
    desk_destroy(&desk);
}

Test(request, a_body_beyond_all_memory)
{
    struct desk desk = desk_create(4 * MIB);
    cr_assert_eq(qd_request_reserve_body(desk.request, 5 * MIB), QD_TOO_LARGE);
    cr_assert(strstr(desk.request->error.text, "--max-inflight-bytes") != NULL);
    desk_destroy(&desk);
}

Test(request, a_body_beyond_the_memory_of_the_moment)
{
    struct desk desk = desk_create(4 * MIB);
    struct qd_arena other;
    qd_arena_init(&other, desk.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 3 * MIB));
    cr_assert_eq(qd_request_reserve_body(desk.request, 2 * MIB), QD_UNAVAILABLE);
    qd_request_refuse(desk.request);
    cr_assert_eq(desk.request->answer.http_status, 503);
    qd_arena_deinit(&other);
    desk_destroy(&desk);
}

Test(request, a_head_alone_holds_nothing)
{
    struct desk desk = desk_create(16 * MIB);
    static char piece[MIB];
    cr_assert_eq(qd_request_reserve_body(desk.request, 12 * MIB), QD_OK);
    cr_assert_leq(qd_memory_used(desk.memory), MIB);
    for (unsigned i = 0; i < 3; i++)
        qd_request_take_body(desk.request, piece, sizeof(piece), 12 * MIB);
    cr_assert_geq(qd_memory_used(desk.memory), 3 * MIB);
    cr_assert_leq(qd_memory_used(desk.memory), 5 * MIB);
    struct qd_arena other;
    qd_arena_init(&other, desk.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 8 * MIB));
    for (unsigned i = 0; i < 9; i++)
        qd_request_take_body(desk.request, piece, sizeof(piece), 12 * MIB);
    cr_assert_eq(desk.request->error.status, QD_UNAVAILABLE, "%s", desk.request->error.text);
    cr_assert_leq(qd_memory_used(desk.memory), 8 * MIB, "what it had is free");
    qd_arena_deinit(&other);
    desk_destroy(&desk);
}

Test(request, a_refusal_keeps_only_its_answer)
{
    struct desk desk = desk_create(4 * MIB);
    cr_assert_eq(qd_request_reserve_body(desk.request, 2 * MIB), QD_OK);
    qd_fail(&desk.request->error, QD_METHOD_NOT_ALLOWED, "no \"%s\"", "PUT");
    desk.request->answer.allow = "GET";
    desk.request->answer.close = true;
    qd_request_refuse(desk.request);
    cr_assert_eq(desk.request->state, QD_REPLYING);
    cr_assert_eq(desk.request->answer.http_status, 405);
    cr_assert_str_eq(desk.request->answer.allow, "GET");
    cr_assert(desk.request->answer.close);
    cr_assert_str_eq(desk.request->answer.content_type, "application/json");
    cr_assert_lt(qd_memory_used(desk.memory), MIB);
    char *body = join_parts(desk.request->answer.parts, desk.request->answer.part_count);
    cr_assert_str_eq(body, "{\"error\":\"no \\\"PUT\\\"\"}");
    free(body);
    desk_destroy(&desk);
}

Test(request, timing_goes_as_far_as_the_request_got)
{
    struct desk desk = desk_create(MIB);
    qd_request_advance(desk.request, QD_QUEUED);
    qd_request_advance(desk.request, QD_DECODING);
    qd_fail(&desk.request->error, QD_INVALID, "no");
    qd_request_refuse(desk.request);
    unsigned ms[4], us[4];
    char rest;
    cr_assert_eq(
        sscanf(desk.request->server_timing,
               "receive;dur=%u.%3u, queue;dur=%u.%3u, decode;dur=%u.%3u, total;dur=%u.%3u%c",
               &ms[0], &us[0], &ms[1], &us[1], &ms[2], &us[2], &ms[3], &us[3], &rest),
        8, "%s", desk.request->server_timing);
    cr_assert_geq(ms[0], 5);
    desk_destroy(&desk);
}
