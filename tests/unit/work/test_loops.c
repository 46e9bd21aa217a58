/* Several loops: posts from other threads, and the loops on which jobs end. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/scheduler.h"
#include "tests/unit/work/toys.h"

/* ---- Posts -------------------------------------------------------------------------------- */

enum { POSTER_COUNT = 3, POST_COUNT = 2000 };

struct note {
    struct qd_post post;
    struct poster *poster;
    unsigned number;
};

struct poster {
    struct mailbox *mailbox;
    pthread_t thread;
    unsigned expected; /* number of notes that it expects */
    struct note notes[POST_COUNT];
};

struct mailbox {
    struct qd_loop *loop;
    pthread_t thread;
    unsigned left;
    struct poster posters[POSTER_COUNT];
};

static void on_note(void *context)
{
    struct note *note = context;
    struct mailbox *mailbox = note->poster->mailbox;
    cr_assert(pthread_equal(pthread_self(), mailbox->thread));
    cr_assert_eq(note->number, note->poster->expected++, "those of one thread in their order");
    if (--mailbox->left == 0)
        qd_loop_stop(mailbox->loop);
}

static void *post_all(void *context)
{
    struct poster *poster = context;
    for (unsigned i = 0; i < POST_COUNT; i++) {
        struct note *note = &poster->notes[i];
        *note = (struct note){{.callback = on_note, .context = note}, poster, i};
        qd_loop_post(poster->mailbox->loop, &note->post);
    }
    return NULL;
}

Test(loops, each_post_is_called_once_on_the_loops_thread)
{
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
    mailbox->loop = qd_loop_create();
    mailbox->thread = pthread_self();
    mailbox->left = POSTER_COUNT * POST_COUNT;
    for (size_t i = 0; i < POSTER_COUNT; i++) {
        mailbox->posters[i].mailbox = mailbox;
        pthread_create(&mailbox->posters[i].thread, NULL, post_all, &mailbox->posters[i]);
    }
    qd_loop_run(mailbox->loop);
    for (size_t i = 0; i < POSTER_COUNT; i++) {
        pthread_join(mailbox->posters[i].thread, NULL);
        cr_assert_eq(mailbox->posters[i].expected, POST_COUNT);
    }
    qd_loop_destroy(mailbox->loop);
    free(mailbox);
}

/* A post may be posted again by its own callback, and then waits for the next iteration. */
static void post_again(void *context)
{
    struct mailbox *mailbox = context;
    if (--mailbox->left == 0)
        qd_loop_stop(mailbox->loop);
    else
        qd_loop_post(mailbox->loop, &mailbox->posters[0].notes[0].post);
}

Test(loops, a_post_may_be_posted_from_its_call)
{
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
    struct qd_post *post = &mailbox->posters[0].notes[0].post;
    mailbox->loop = qd_loop_create();
    mailbox->left = 3;
    *post = (struct qd_post){.callback = post_again, .context = mailbox};
    qd_loop_post(mailbox->loop, post);
    qd_loop_run(mailbox->loop);
    cr_assert_eq(mailbox->left, 0);
    qd_loop_destroy(mailbox->loop);
    free(mailbox);
}

/* ---- Jobs --------------------------------------------------------------------------------- */

enum { LOOP_COUNT = 3, UNIT_COUNT = 20 };

/* Returns a desk with its own loop and jobs, and the scheduler of another desk. */
static struct desk *desk_beside(const struct desk *first)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    desk->loop = qd_loop_create();
    desk->scheduler = first->scheduler;
    return desk;
}

static void close_beside(struct desk *desk)
{
    desk->scheduler = NULL;
    desk_destroy(desk);
}

static atomic_uint strayed; /* number of jobs that ended on another thread than their loop's */
static _Thread_local struct desk *own;

static void on_done(struct toy *toy)
{
    if (toy->desk != own)
        atomic_fetch_add(&strayed, 1);
    if (--toy->desk->left == 0)
        qd_loop_stop(toy->desk->loop);
}

/* Runs a loop like one with connections. */
static void *serve(void *context)
{
    own = context;
    for (size_t i = 0; i < JOB_COUNT_MAX; i++) {
        struct toy *toy = &own->toys[i];
        toy->may_run_inline = i % 2 == 0;
        toy->on_done = on_done;
        if (!desk_submit(own, i, UNIT_COUNT, i % 3 == 0 ? 1000 : 20000))
            abort();
        if (i % 4 == 3)
            qd_scheduler_on_idle(own->scheduler, own->loop);
    }
    while (own->left > 0) {
        while (qd_scheduler_on_idle(own->scheduler, own->loop)) {
        }
        if (own->left > 0)
            qd_loop_run(own->loop); /* or it only takes notice of an earlier stop */
    }
    return NULL;
}

Test(loops, jobs_end_on_the_loop_that_submitted_them)
{
    struct desk *first = desk_create(2, LOOP_COUNT * JOB_COUNT_MAX);
    struct desk *desks[LOOP_COUNT];
    pthread_t threads[LOOP_COUNT];
    for (size_t i = 0; i < LOOP_COUNT; i++) {
        desks[i] = desk_beside(first);
        pthread_create(&threads[i], NULL, serve, desks[i]);
    }
    for (size_t i = 0; i < LOOP_COUNT; i++) {
        pthread_join(threads[i], NULL);
        for (size_t job = 0; job < JOB_COUNT_MAX; job++)
            toy_assert_whole(&desks[i]->toys[job]);
        close_beside(desks[i]);
    }
    cr_assert_eq(atomic_load(&strayed), 0);
    cr_assert_eq(qd_scheduler_queue_count(first->scheduler), 0);
    desk_destroy(first);
}

/* Whether workers are asleep depends on timing, so the test repeats until the first loop has found
 * them asleep. */
Test(loops, a_loop_leaves_anothers_job_alone)
{
    struct desk *first = desk_create(1, 4);
    struct desk *other = desk_beside(first);
    bool helped = false;
    for (size_t i = 0; i < JOB_COUNT_MAX && !helped; i++) {
        first->toys[i].may_run_inline = true;
        cr_assert(desk_submit(first, i, 4, QD_BATCH_NS));
        cr_assert_not(qd_scheduler_on_idle(other->scheduler, other->loop));
        helped = qd_scheduler_on_idle(first->scheduler, first->loop);
        qd_loop_run(first->loop); /* or it only takes notice of an earlier stop */
        toy_assert_whole(&first->toys[i]);
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
    }
    cr_assert(helped, "nor does anybody wake the worker for it");
    close_beside(other);
    desk_destroy(first);
}

/* ---- The queue's bound -------------------------------------------------------------------- */

static atomic_uint taken;

static void *submit_all(void *context)
{
    struct desk *desk = context;
    for (size_t i = 0; i < JOB_COUNT_MAX; i++)
        atomic_fetch_add(&taken, desk_submit(desk, i, 1, 1000));
    return NULL;
}

static bool has_begun(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) > 0;
}

Test(loops, the_queue_has_its_bound_whoever_submits)
{
    enum { ROOM = 5 };
    struct desk *first = desk_create(1, ROOM);
    struct desk *desks[LOOP_COUNT];
    pthread_t threads[LOOP_COUNT];
    first->toys[0].gated = true; /* this toy holds the worker */
    cr_assert(desk_submit(first, 0, 1, 1000));
    cr_assert(toy_wait_until(has_begun, &first->toys[0]));
    for (size_t i = 0; i < LOOP_COUNT; i++) {
        desks[i] = desk_beside(first);
        pthread_create(&threads[i], NULL, submit_all, desks[i]);
    }
    for (size_t i = 0; i < LOOP_COUNT; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(atomic_load(&taken), ROOM);
    atomic_store(&first->toys[0].gate, true);
    qd_loop_run(first->loop);
    for (size_t i = 0; i < LOOP_COUNT; i++) {
        if (desks[i]->left > 0)
            qd_loop_run(desks[i]->loop);
        close_beside(desks[i]);
    }
    desk_destroy(first);
}
