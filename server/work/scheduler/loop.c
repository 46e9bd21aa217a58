#include "server/work/scheduler/loop.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

#include "server/work/scheduler/cpu_yield.h"

enum { NO_EVENT = -1 };

struct qd_loop {
    uv_loop_t uv;
    struct qd_handle *posted;
    pthread_mutex_t lock; /* protects the list of posts that are not called yet */
    struct qd_post *first_post;
    struct qd_post **last_link; /* where the next post is linked */
};

struct qd_handle {
    union {
        uv_handle_t any;
        uv_poll_t poll;
        uv_signal_t signal;
        uv_prepare_t prepare;
        uv_timer_t timer;
    } uv;      /* first, so that a pointer to it is one to the handle */
    int event; /* of an async handle: the eventfd that the loop polls; otherwise NO_EVENT */
    qd_callback *callback;
    void *context;
};

/* Calls all posts that are in the list now. A call may post more. */
static void on_posted(void *context)
{
    struct qd_loop *loop = context;
    pthread_mutex_lock(&loop->lock);
    struct qd_post *post = loop->first_post;
    loop->first_post = NULL;
    loop->last_link = &loop->first_post;
    pthread_mutex_unlock(&loop->lock);
    while (post != NULL) {
        struct qd_post *next = post->next;
        post->callback(post->context);
        post = next;
    }
}

struct qd_loop *qd_loop_create(void)
{
    struct qd_loop *loop = calloc(1, sizeof(*loop));
    if (loop != NULL && uv_loop_init(&loop->uv) != 0) {
        free(loop);
        return NULL;
    }
    if (loop == NULL)
        return NULL;
    pthread_mutex_init(&loop->lock, NULL);
    loop->last_link = &loop->first_post;
    loop->posted = qd_loop_async(loop, on_posted, loop);
    if (loop->posted == NULL) {
        qd_loop_destroy(loop);
        return NULL;
    }
    return loop;
}

void qd_loop_destroy(struct qd_loop *loop)
{
    if (loop == NULL)
        return;
    on_posted(loop);
    assert(loop->first_post == NULL);
    qd_handle_destroy(loop->posted);
    while (uv_run(&loop->uv, UV_RUN_DEFAULT) != 0) { /* finishes closing the handles */
    } /* runs again if qd_loop_stop was called while the loop did not run */
    int result = uv_loop_close(&loop->uv);
    assert(result == 0);
    (void)result;
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void qd_loop_run(struct qd_loop *loop)
{
    qd_cpu_shorten_linux_slices();
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void qd_loop_stop(struct qd_loop *loop)
{
    uv_stop(&loop->uv);
}

void qd_loop_post(struct qd_loop *loop, struct qd_post *post)
{
    post->next = NULL;
    pthread_mutex_lock(&loop->lock);
    const bool wakes = loop->first_post == NULL;
    *loop->last_link = post;
    loop->last_link = &post->next;
    pthread_mutex_unlock(&loop->lock);
    if (wakes)
        qd_async_send(loop->posted);
}

bool qd_loop_is_ready(struct qd_loop *loop)
{
    struct pollfd backend = {.fd = uv_backend_fd(&loop->uv), .events = POLLIN};
    return poll(&backend, 1, 0) > 0;
}

uint64_t qd_loop_memory_bytes(void)
{
    uint64_t total = uv_get_total_memory();
    uint64_t limit = uv_get_constrained_memory(); /* no limit if 0, or more than the machine has */
    return limit == 0 || (total != 0 && total < limit) ? total : limit;
}

static struct qd_handle *handle_create(qd_callback *callback, void *context)
{
    struct qd_handle *handle = calloc(1, sizeof(*handle));
    if (handle != NULL) {
        handle->event = NO_EVENT;
        handle->callback = callback;
        handle->context = context;
    }
    return handle;
}

static void on_closed(uv_handle_t *uv)
{
    const struct qd_handle *handle = (struct qd_handle *)uv;
    if (handle->event != NO_EVENT)
        close(handle->event);
    free(uv);
}

/* Returns the handle, or destroys it and returns NULL if it did not start. `result` is what libuv's
 * start function returned. */
static struct qd_handle *started(struct qd_handle *handle, int result)
{
    if (result != 0) {
        qd_handle_destroy(handle);
        return NULL;
    }
    return handle;
}

void qd_handle_destroy(struct qd_handle *handle)
{
    if (handle != NULL)
        uv_close(&handle->uv.any, on_closed);
}

static void call(void *uv)
{
    struct qd_handle *handle = uv;
    handle->callback(handle->context);
}

/* Reads an eventfd's count before the call, so that a send from now on leads to another call. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
    const struct qd_handle *handle = (struct qd_handle *)poll;
    eventfd_t count;
    (void)status;
    (void)events;
    if (handle->event != NO_EVENT)
        (void)eventfd_read(handle->event, &count);
    call(poll);
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    call(signal);
}

static void on_prepare(uv_prepare_t *prepare)
{
    call(prepare);
}

static void on_timer(uv_timer_t *timer)
{
    call(timer);
}

struct qd_handle *qd_loop_watch(struct qd_loop *loop, int fd, qd_callback *callback, void *context)
{
    struct qd_handle *handle = handle_create(callback, context);
    if (handle == NULL || uv_poll_init(&loop->uv, &handle->uv.poll, fd) != 0) {
        free(handle);
        return NULL;
    }
    return started(handle, uv_poll_start(&handle->uv.poll, UV_READABLE, on_poll));
}

struct qd_handle *qd_loop_signal(struct qd_loop *loop, int signal, qd_callback *callback,
                                 void *context)
{
    struct qd_handle *handle = handle_create(callback, context);
    if (handle == NULL || uv_signal_init(&loop->uv, &handle->uv.signal) != 0) {
        free(handle);
        return NULL;
    }
    return started(handle, uv_signal_start(&handle->uv.signal, on_signal, signal));
}

struct qd_handle *qd_loop_before_sleep(struct qd_loop *loop, qd_callback *callback, void *context)
{
    struct qd_handle *handle = handle_create(callback, context);
    if (handle == NULL)
        return NULL;
    uv_prepare_init(&loop->uv, &handle->uv.prepare); /* cannot fail, nor can its start */
    return started(handle, uv_prepare_start(&handle->uv.prepare, on_prepare));
}

struct qd_handle *qd_loop_timer(struct qd_loop *loop, qd_callback *callback, void *context)
{
    struct qd_handle *handle = handle_create(callback, context);
    if (handle != NULL)
        uv_timer_init(&loop->uv, &handle->uv.timer); /* cannot fail */
    return handle;
}

void qd_timer_start(struct qd_handle *timer, uint64_t first_ms, uint64_t repeat_ms)
{
    uv_update_time(timer->uv.timer.loop); /* otherwise libuv counts from when it woke */
    uv_timer_start(&timer->uv.timer, on_timer, first_ms, repeat_ms);
}

void qd_timer_stop(struct qd_handle *timer)
{
    uv_timer_stop(&timer->uv.timer);
}

/* Uses an eventfd and not a uv_async_t. With a uv_async_t, libuv spins on the loop's thread if a
 * sender loses its CPU in the middle of its call, until the sender gets a CPU again. */
struct qd_handle *qd_loop_async(struct qd_loop *loop, qd_callback *callback, void *context)
{
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct qd_handle *handle =
        event == NO_EVENT ? NULL : qd_loop_watch(loop, event, callback, context);
    if (handle != NULL)
        handle->event = event;
    else if (event != NO_EVENT)
        close(event);
    return handle;
}

/* The write fails only if the loop has not read 2^64 - 2 earlier sends. The eventfd is readable
 * then anyway. */
void qd_async_send(struct qd_handle *async)
{
    (void)eventfd_write(async->event, 1);
}
