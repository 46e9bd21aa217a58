/* Bodies whose pages a thread prefaults. */
#include <criterion/criterion.h>

#include "server/base/clock.h"
#include "server/work/body_prefault.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* A sender. Its request is notified of room while the loop runs, and then stops the loop. */
struct sender {
    struct qd_loop *loop;
    struct qd_prefaulter *prefaulter;
    struct qd_memory *memory;
    struct qd_request *request;
    uint64_t bytes_max;
};

static void on_room(struct qd_request *request)
{
    qd_loop_stop(request->loop);
}

static void start(struct sender *sender)
{
    sender->request = qd_request_create(sender->memory, qd_clock_ns());
    sender->request->loop = sender->loop;
    sender->request->body.prefaulter = sender->prefaulter;
    sender->request->body.on_room = on_room;
}

static struct sender sender_create(size_t memory_bytes, uint64_t bytes_max)
{
    struct sender sender = {qd_loop_create(), qd_prefaulter_create(),
                            qd_memory_create(memory_bytes), NULL, bytes_max};
    start(&sender);
    return sender;
}

static void sender_destroy(struct sender *sender)
{
    qd_request_destroy(sender->request);
    qd_prefaulter_destroy(sender->prefaulter);
    qd_loop_destroy(sender->loop);
    cr_assert_eq(qd_memory_used(sender->memory), 0);
    qd_memory_destroy(sender->memory);
}

/* Returns the value of the body's byte at `at`. */
static char value(size_t at)
{
    return (char)(at * 2654435761u >> 13);
}

/* Sends the body up to `end`, and runs the loop whenever pages are missing. Returns how often the
 * loop ran. */
static unsigned send_up_to(struct sender *sender, size_t end, size_t piece)
{
    struct qd_request *request = sender->request;
    static char bytes[3 * MIB];
    unsigned waits = 0;
    while (request->body.count < end && request->error.status == QD_OK) {
        const size_t at = (size_t)request->body.count;
        const size_t count = end - at < piece ? end - at : piece;
        for (size_t i = 0; i < count; i++)
            bytes[i] = value(at + i);
        const size_t taken = qd_request_take_body(request, bytes, count, sender->bytes_max);
        cr_assert_leq(taken, count);
        cr_assert_eq(request->body.count, at + taken);
        cr_assert_leq(request->arena.bytes, at + count + 4 * MIB + 64 * KIB);
        if (taken == count)
            continue;
        cr_assert_not_null(request->body.prefault);
        cr_assert_eq(qd_request_body_room(request, 0), 0);
        qd_loop_run(sender->loop);
        cr_assert_null(request->body.prefault);
        waits++;
    }
    return waits;
}

static void assert_body(const struct qd_request *request, size_t bytes)
{
    cr_assert_eq(request->error.status, QD_OK, "%s", request->error.text);
    cr_assert_eq(request->body.count, bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += request->body.bytes[i] != value(i);
    cr_assert_eq(wrong, 0);
}

Test(prefault, a_body_waits_for_fresh_pages_only)
{
    struct sender sender = sender_create(40 * MIB, 40 * MIB);
    cr_assert_eq(qd_request_reserve_body(sender.request, 13 * MIB + 5), QD_OK);
    cr_assert_geq(send_up_to(&sender, 13 * MIB + 5, 100000), 6,
                  "the loop runs only when it has to");
    assert_body(sender.request, 13 * MIB + 5);
    qd_request_destroy(sender.request);
    start(&sender);
    cr_assert_eq(qd_request_reserve_body(sender.request, 13 * MIB), QD_OK);
    cr_assert_eq(send_up_to(&sender, 13 * MIB, 3 * MIB), 0, "they are there");
    assert_body(sender.request, 13 * MIB);
    sender_destroy(&sender);
}

Test(prefault, a_body_of_unknown_length_waits_too)
{
    struct sender sender = sender_create(40 * MIB, 20 * MIB);
    cr_assert_eq(qd_request_reserve_body(sender.request, 0), QD_OK);
    cr_assert_gt(send_up_to(&sender, 20 * MIB, 2 * MIB + 1), 0);
    assert_body(sender.request, 20 * MIB);
    qd_request_take_body(sender.request, "1", 1, 20 * MIB);
    cr_assert_eq(sender.request->error.status, QD_TOO_LARGE);
    sender_destroy(&sender);
}

Test(prefault, what_is_being_made_outlives_its_request)
{
    for (unsigned way = 0; way < 3; way++) {
        struct sender sender = sender_create(40 * MIB, 20 * MIB);
        struct qd_request *request = sender.request;
        cr_assert_eq(qd_request_reserve_body(request, 0), QD_OK);
        static char bytes[3 * MIB];
        while (request->body.prefault == NULL)
            qd_request_take_body(request, bytes, 300 * KIB, 20 * MIB);
        if (way == 0) { /* the body becomes too large */
            qd_request_take_body(request, bytes, sizeof(bytes), request->body.count + 1);
            cr_assert_eq(request->error.status, QD_TOO_LARGE);
        } else if (way == 1) {
            qd_fail(&request->error, QD_TOO_SLOW, "too slow");
            qd_request_refuse(request);
            cr_assert_null(request->body.bytes);
        } else { /* its client disconnects */
            qd_request_destroy(request);
            start(&sender);
        }
        cr_assert_null(sender.request->body.prefault);
        cr_assert_gt(qd_memory_used(sender.memory), MIB, "the thread still writes there");
        sender_destroy(&sender);
    }
}

/* There is not enough memory for the piece ahead, but enough for the bytes that have arrived. */
Test(prefault, no_memory_for_what_is_ahead_is_no_error)
{
    struct sender sender = sender_create(8 * MIB, 8 * MIB);
    cr_assert_eq(qd_request_reserve_body(sender.request, 8 * MIB), QD_OK);
    struct qd_arena other;
    qd_arena_init(&other, sender.memory);
    cr_assert_not_null(qd_arena_alloc(&other, 4 * MIB));
    send_up_to(&sender, 4 * MIB, 100000);
    assert_body(sender.request, 4 * MIB);
    send_up_to(&sender, 8 * MIB, 100000);
    cr_assert_eq(sender.request->error.status, QD_UNAVAILABLE, "%s", sender.request->error.text);
    qd_arena_deinit(&other);
    sender_destroy(&sender);
}
