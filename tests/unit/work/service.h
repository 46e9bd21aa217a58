/* All that inferences need but sockets, for tests: one loop, its workers, models, and requests. */
#ifndef TESTS_UNIT_WORK_SERVICE_H
#define TESTS_UNIT_WORK_SERVICE_H

#include "server/models/table.h"
#include "server/work/infer.h"

enum { REQUEST_COUNT_MAX = 200 };

/* There is one for each test. */
extern struct service {
    struct qk_kernels *kernels;
    struct qd_loop *loop;
    struct qd_infer_tools tools; /* a minute for each request, unless the test changes that */
    struct qd_memory *memory;
    struct qd_memory *model_memory;
    struct qd_metrics *metrics;
    struct qd_models *models; /* none is loaded */
    struct qd_request *requests[REQUEST_COUNT_MAX];
    size_t request_count;
    size_t order[REQUEST_COUNT_MAX]; /* in which they were answered, as indices */
    size_t answered_count;
} service;

/* bytes_max: of the memory for requests. It may be started again once it has ended. */
void service_start(unsigned thread_count, size_t bytes_max);

/* A request to a model, which the test may fill in before it is submitted with its body. */
struct qd_request *service_request(const char *model);
void service_submit(struct qd_request *request, const void *body, size_t bytes);

void service_run(void); /* until all have their answers */

void service_forget(void); /* all requests */
void service_end(void);    /* the same, and whatever they had must have come back */

#endif
