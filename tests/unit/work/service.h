/* Everything that inferences need except sockets, for tests: one loop, its workers, models, and
 * requests. */
#pragma once

#include "server/models/table.h"
#include "server/work/infer.h"

enum { REQUEST_COUNT_MAX = 200 };

/* Each test has its own service. */
extern struct service {
    struct qk_kernels *kernels;
    struct qd_loop *loop;
    struct qd_infer_tools tools; /* each request has a minute, unless the test changes that */
    struct qd_memory *memory;
    struct qd_memory *model_memory;
    struct qd_metrics *metrics;
    struct qd_models *models; /* no model is loaded */
    struct qd_request *requests[REQUEST_COUNT_MAX];
    size_t request_count;
    size_t order[REQUEST_COUNT_MAX]; /* indices of the requests, in the order of their answers */
    size_t answered_count;
} service;

/* Starts the service. `bytes_max` bounds the memory for requests. The service may be started again
 * after it has ended. */
void service_start(unsigned thread_count, size_t bytes_max);

/* Returns a request to a model. The test may fill in more before it submits the request with its
 * body. */
struct qd_request *service_request(const char *model);
void service_submit(struct qd_request *request, const void *body, size_t bytes);

/* Keeps all workers busy from now on, so that the next requests wait. */
void service_hold_workers(void);
void service_let_workers_go(void);

void service_run(void); /* until all requests are answered */

void service_forget(void); /* frees all requests */
void service_end(void);    /* also asserts that all memory was given back */
