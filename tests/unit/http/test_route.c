#include "server/http/api/server.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "tests/unit/scratch.h"

enum { STREAM_BYTES_MAX = 1 << 20 };

struct desk {
    struct qd_server server;
    struct qd_loop *loop;
    struct qd_request *request;
    char *body; /* the body of the last answer */
};

static struct desk desk_create(void)
{
    struct qk_error error;
    struct qk_kernels *kernels;
    struct desk desk = {.loop = qd_loop_create()};
    cr_assert_eq(qk_kernels_create("scalar", "auto", false, 1, &kernels, &error), QK_OK, "%s",
                 error.text);
    desk.server = (struct qd_server){
        .tools = {.kernels = kernels,
                  .scheduler = qd_scheduler_create(
                      &(struct qd_scheduler_settings){.thread_count = 1, .queue_max = 1}),
                  .thread_count = 1},
        .memory = qd_memory_create(64 << 20),
        .metrics = qd_metrics_create(),
    };
    desk.server.models = qd_models_create(desk.server.metrics);
    desk.server.model_memory = qd_memory_create(64 << 20);
    const struct qd_loader_settings settings = {.models = desk.server.models,
                                                .tools = {.loop = desk.loop}};
    desk.server.loader = qd_loader_create(&settings);
    return desk;
}

static void forget_answer(struct desk *desk)
{
    qd_request_destroy(desk->request);
    free(desk->body);
    desk->request = NULL;
    desk->body = NULL;
}

static void desk_destroy(struct desk *desk)
{
    forget_answer(desk);
    qk_kernels_destroy((struct qk_kernels *)desk->server.tools.kernels);
    qd_loader_destroy(desk->server.loader);
    qd_scheduler_destroy(desk->server.tools.scheduler);
    qd_models_destroy(desk->server.models);
    qd_metrics_destroy(desk->server.metrics);
    qd_memory_destroy(desk->server.memory);
    qd_memory_destroy(desk->server.model_memory);
    qd_loop_destroy(desk->loop);
}

/* Returns the answer's HTTP status, or 0 if the request would go to a worker. */
static unsigned ask(struct desk *desk, const char *method, const char *path)
{
    struct qd_handler handler = qd_server_handler(&desk->server);
    struct qd_head head;
    forget_answer(desk);
    qd_head_init(&head, method, path, "HTTP/1.1");
    desk->request = qd_request_create(desk->server.memory, qd_clock_ns());
    struct qd_request *request = desk->request;
    handler.begin(handler.context, &head, request);
    if (request->error.status == QD_OK && request->oip.message.signature != NULL)
        return 0;
    cr_assert(request->error.status != QD_OK || handler.end(handler.context, request));
    if (request->error.status != QD_OK)
        qd_request_refuse(request);
    if (request->stream != NULL) {
        desk->body = calloc(STREAM_BYTES_MAX, 1);
        qd_stream_read(request->stream, desk->body, STREAM_BYTES_MAX - 1);
        return request->answer.http_status;
    }
    desk->body = join_parts(request->answer.parts, request->answer.part_count);
    cr_assert_eq(strlen(desk->body), request->answer.bytes);
    return request->answer.http_status;
}

#define D "/v2/models/onnx.DequantizeLinear"

#define PATH_WANTED "path: expected an endpoint that GET /openapi.yaml describes, got "

Test(route, every_path)
{
    static const struct {
        const char *method;
        const char *path;
        unsigned http_status;
        const char *part; /* a part of the expected body */
    } cases[] = {
        {"GET", "/v2/health/live", 200, "{\"live\":true}"},
        {"HEAD", "/v2/health/live", 200, "{\"live\":true}"},
        {"GET", "/v2/health/ready", 200, "{\"ready\":true,\"live\":true}"},
        {"GET", "/v2", 200, "\"extensions\":["},
        {"GET", "/v2/", 200, "\"extensions\":["},
        {"GET", D, 200, "\"versions\":[\"10\",\"13\",\"19\","},
        {"GET", D "/versions/10", 200, "\"versions\":[\"10\"]"},
        {"GET", D "/versions/11", 200, "\"versions\":[\"10\"]"},
        {"GET", D "/ready", 200, "{\"name\":\"onnx.DequantizeLinear\",\"ready\":true}"},
        {"GET", D "/versions/13/ready", 200, "\"ready\":true"},
        {"GET", D "/config", 200, "\"max_batch_size\":0"},
        {"GET", D "/versions/13/config", 200, "\"max_batch_size\":0"},
        {"GET", D "/stats", 200, "\"version\":\"10\""},
        {"GET", D "/versions/13/stats", 200, "\"version\":\"13\""},
        {"GET", "/v2/models/stats", 200, "onnx.QLinearConv"},
        {"GET", "/metrics", 200, "quantd_info{"},
        {"POST", "/v2/repository/index", 200, "\"state\":\"READY\""},
        {"POST", "/v2/repository/models/a/load", 503, "--model-control-mode"},
        {"POST", "/v2/repository/models/a/unload", 503, "--model-control-mode"},
        {"POST", "/v2/systemsharedmemory/region/a/register", 501, "error"},
        {"POST", "/v2/cudasharedmemory/region/a/register", 501, "error"},
        {"POST", "/v2/cudasharedmemory/unregister", 200, "[]"},
        {"GET", "/v2/systemsharedmemory/status", 200, "[]"},
        {"POST", D "/infer", 0, NULL},
        {"POST", D "/versions/13/infer", 0, NULL},
        {"POST", D "/versions/9/infer", 404, "13"},
        {"POST", "/v2/models/nope/infer", 404, "nope"},
        {"GET", "/v2/models/nope", 404, "nope"},
        {"GET", "/v2/models/nope/stats", 404, "nope"},
        {"GET", D "/versions/x", 404, "x"},
        {"GET", "/", 404, "openapi.yaml describes, got \\\"/\\\"; POST /v2/repository/index"},
        {"GET", "", 404, PATH_WANTED},
        {"GET", "*", 404, PATH_WANTED},
        {"GET", "/v2/health", 404, PATH_WANTED},
        {"GET", "/v2/health/live/", 404, PATH_WANTED},
        {"GET", "//v2", 404, PATH_WANTED},
        {"GET", "/v2//models", 404, PATH_WANTED},
        {"GET", "/v2/models/", 404, PATH_WANTED},
        {"GET", "/v2/models//ready", 404, PATH_WANTED},
        {"GET", "/a/b/c/d/e/f/g/h/i/j/k", 404, PATH_WANTED},
        {"GET", "/v2/health/%6Cive", 200, "live"},
        {"GET", "/v2%2fhealth%2flive", 404, PATH_WANTED},
        {"GET", "/v2/models/a%2Fb", 404, "a/b"},
        {"GET", "/v2/models/a%22b", 404, "a\\"},
        {"GET", "/v2/models/%00", 400, "%00"},
        {"GET", "/v2/models/%", 400, "%"},
        {"GET", "/v2/models/%4", 400, "%4"},
        {"GET", "/v2/models/%g1", 400, "%g1"},
        {"GET", "/v2/models/%1g", 400, "%1g"},
    };
    struct desk desk = desk_create();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_eq(ask(&desk, cases[i].method, cases[i].path), cases[i].http_status, "%s %s: %s",
                     cases[i].method, cases[i].path, desk.body);
        if (cases[i].part != NULL) {
            cr_assert(strstr(desk.body, cases[i].part) != NULL, "%s %s: no %s in %s",
                      cases[i].method, cases[i].path, cases[i].part, desk.body);
            bool is_metrics = strcmp(cases[i].path, "/metrics") == 0;
            cr_assert_str_eq(desk.request->answer.content_type,
                             is_metrics ? "text/plain; version=0.0.4; charset=utf-8"
                                        : "application/json");
        }
    }
    desk_destroy(&desk);
}

Test(route, methods)
{
    static const struct {
        const char *method;
        const char *path;
        const char *allow;
    } cases[] = {
        {"POST", "/v2/health/live", "GET, HEAD"},
        {"PUT", "/v2", "GET, HEAD"},
        {"get", "/v2", "GET, HEAD"},
        {"GET", D "/infer", "POST"},
        {"HEAD", D "/infer", "POST"},
        {"DELETE", "/metrics", "GET, HEAD"},
        {"GET", "/v2/repository/index", "POST"},
        {"", "/v2", "GET, HEAD"},
    };
    struct desk desk = desk_create();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_eq(ask(&desk, cases[i].method, cases[i].path), 405);
        cr_assert_str_eq(desk.request->answer.allow, cases[i].allow);
    }
    desk_destroy(&desk);
}

Test(route, a_path_longer_than_any)
{
    static char path[5000];
    struct desk desk = desk_create();
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    cr_assert_eq(ask(&desk, "GET", path), 404);
    for (size_t bytes = 1020; bytes < 1030; bytes++) { /* sizes around that of the buffer */
        path[bytes] = '\0';
        cr_assert_eq(ask(&desk, "GET", path), 404);
        path[bytes] = 'a';
    }
    desk_destroy(&desk);
}

Test(route, draining)
{
    struct desk desk = desk_create();
    desk.server.draining = true;
    cr_assert_eq(ask(&desk, "GET", "/v2/health/ready"), 503);
    cr_assert(strstr(desk.body, "\"ready\":false") != NULL);
    cr_assert(strstr(desk.body, "\"error\":") != NULL);
    cr_assert_eq(ask(&desk, "GET", D "/ready"), 503);
    cr_assert_eq(ask(&desk, "GET", "/v2/health/live"), 200);
    desk_destroy(&desk);
}

/* The metrics need no memory either, for a few clients. */
Test(route, health_needs_no_memory)
{
    struct desk desk = desk_create();
    struct qd_arena hog;
    qd_arena_init(&hog, desk.server.memory);
    while (qd_arena_alloc(&hog, 1 << 20) != NULL || qd_arena_alloc(&hog, 1) != NULL) {
    }
    cr_assert_eq(ask(&desk, "GET", "/v2/health/live"), 200);
    cr_assert_eq(ask(&desk, "GET", "/v2/health/ready"), 200);
    cr_assert_eq(ask(&desk, "GET", "/v2/nothing"), 404);
    struct qd_request *watching[QD_SCRAPE_RESERVED_COUNT];
    for (unsigned i = 0; i < QD_SCRAPE_RESERVED_COUNT; i++) {
        cr_assert_eq(ask(&desk, "GET", i % 2 == 0 ? "/metrics" : "/v2/models/stats"), 200);
        watching[i] = desk.request;
        desk.request = NULL;
    }
    cr_assert_eq(ask(&desk, "GET", "/metrics"), 503);
    cr_assert_eq(ask(&desk, "GET", "/metrics"), 503, "a refused one gives nothing back");
    qd_request_destroy(watching[1]);
    cr_assert_eq(ask(&desk, "GET", "/metrics"), 200);
    cr_assert_eq(ask(&desk, "GET", "/metrics"), 200, "the one before is over");
    watching[1] = NULL;
    for (unsigned i = 0; i < QD_SCRAPE_RESERVED_COUNT; i++)
        qd_request_destroy(watching[i]);
    qd_arena_deinit(&hog);
    desk_destroy(&desk);
}
