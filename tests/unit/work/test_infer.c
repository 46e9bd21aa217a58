/* Loaded models run by the scheduler: graphs of several nodes, repeated shapes, models that are
 * replaced meanwhile, and requests that end early. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/oip/regions.h"
#include "server/work/inference.h"
#include "tests/support/loaded.h"
#include "tests/unit/scratch.h"
#include "tests/unit/work/service.h"

static struct qd_regions *regions; /* NULL: requests may not name regions */

static void install(const struct graph_case *made, uint64_t version)
{
    struct qd_model *model =
        loaded_create(made, service.kernels, service.model_memory, "chain", version);
    struct qd_error error;
    cr_assert_eq(qd_models_install(service.models, "chain", &model, 1, &error), QD_OK, "%s",
                 error.text);
}

/* Makes a chain from floats to floats over `count` convolutions of 3 x 3. */
static struct graph_case *make_chain(uint64_t seed, const char *shape, size_t count)
{
    struct graph_case *made = graph_case_create(seed);
    uint32_t x = graph_case_quantize(made, graph_case_input(made, QK_FP32, shape), QK_UINT8);
    for (size_t i = 0; i < count; i++)
        x = graph_case_conv(made, x, 8, QK_UINT8);
    graph_case_output(made, x);
    graph_case_output(made, graph_case_dequantize(made, x, QK_FP32));
    return made;
}

/* ---- Requests ----------------------------------------------------------------------------- */

static struct qd_request *ask(const char *body, size_t body_bytes, const char *header)
{
    struct qd_request *request = service_request("chain");
    qd_oip_message_set_header(&request->oip.message, header);
    request->oip.message.regions = regions;
    service_submit(request, body, body_bytes);
    return request;
}

/* Submits the case's input, `batch` times, as bytes. */
static struct qd_request *ask_binary(const struct graph_case *made, size_t batch)
{
    const struct qk_tensor *x = &made->values[0];
    const size_t bytes = x->count * sizeof(float);
    static char headers[REQUEST_COUNT_MAX][16]; /* valid as long as their requests */
    char *header = headers[service.request_count];
    char *body = malloc(512 + batch * bytes);
    int json =
        snprintf(body, 512,
                 "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"v0\","
                 "\"datatype\":\"FP32\",\"shape\":[%zu,%zu,%zu,%zu],\"parameters\":"
                 "{\"binary_data_size\":%zu}}]}",
                 batch * x->dims[0], x->dims[1], x->dims[2], x->dims[3], batch * bytes);
    for (size_t i = 0; i < batch; i++)
        memcpy(body + json + i * bytes, x->data, bytes);
    snprintf(header, sizeof(headers[0]), "%d", json);
    struct qd_request *request = ask(body, (size_t)json + batch * bytes, header);
    free(body);
    return request;
}

static char *body_of(const struct qd_request *request)
{
    return join_parts(request->answer.parts, request->answer.part_count);
}

static void expect_refusal(const struct qd_request *request, unsigned http_status, const char *text)
{
    char *body = body_of(request);
    cr_assert_eq(request->answer.http_status, http_status, "%s", body);
    cr_assert_str_eq(body, text);
    free(body);
}

/* Asserts that the answer has both outputs, each `batch` times the case's. */
static void expect_answer(const struct qd_request *request, const struct graph_case *made,
                          size_t batch)
{
    char *body = body_of(request);
    cr_assert_eq(request->answer.http_status, 200, "%s", body);
    const char *at = body + request->answer.json_bytes;
    for (size_t i = 0; i < made->call.output_count; i++) {
        const struct qk_tensor *wanted = &made->values[made->call.outputs[i]];
        size_t bytes;
        cr_assert(qk_type_bytes(wanted->type, wanted->count, &bytes));
        for (size_t k = 0; k < batch; k++, at += bytes)
            cr_assert_eq(memcmp(at, wanted->data, bytes), 0, "output %zu, image %zu", i, k);
    }
    cr_assert_eq((size_t)(at - body), request->answer.bytes);
    free(body);
}

/* ---- Answers ------------------------------------------------------------------------------ */

static void check_chain(unsigned thread_count)
{
    struct graph_case *made = make_chain(1, "1,3,20,20", 3);
    service_start(thread_count, 256 << 20);
    install(made, 5);
    for (size_t i = 0; i < 60; i++)
        ask_binary(made, 1 + i % 12);
    service_run();
    for (size_t i = 0; i < 60; i++)
        expect_answer(service.requests[i], made, 1 + i % 12);
    service_end();
    graph_case_destroy(made);
}

Test(infer, a_chain_on_one_thread)
{
    check_chain(1);
}

Test(infer, a_chain_on_three_threads)
{
    check_chain(3);
}

/* Every node is large enough for all threads, and gives way to other requests. */
Test(infer, large_nodes_on_three_threads)
{
    struct graph_case *made = make_chain(2, "1,8,150,150", 2);
    service_start(3, 512 << 20);
    install(made, 1);
    for (size_t i = 0; i < 12; i++)
        ask_binary(made, 1 + i % 3);
    service_run();
    for (size_t i = 0; i < 12; i++)
        expect_answer(service.requests[i], made, 1 + i % 3);
    service_end();
    graph_case_destroy(made);
}

Test(infer, json_says_which_kernels_ran)
{
    struct graph_case *made = graph_case_create(3);
    const uint32_t x = graph_case_input(made, QK_UINT8, "2,2");
    graph_case_output(made,
                      graph_case_quantize(made, graph_case_dequantize(made, x, QK_FP32), QK_INT8));
    service_start(1, 16 << 20);
    install(made, 9);
    static const char json[] = "{\"id\":\"i\",\"inputs\":[{\"name\":\"v0\",\"datatype\":\"UINT8\","
                               "\"shape\":[0,2],\"data\":[]}]}";
    const struct qd_request *request = ask(json, strlen(json), NULL);
    service_run();
    char *body = body_of(request);
    const char *kernel = strstr(body, "\"kernel\":\"dequantize_");
    cr_assert(strstr(body, "{\"id\":\"i\",\"model_name\":\"chain\",\"model_version\":\"9\",") ==
                  body,
              "%s", body);
    cr_assert_not_null(kernel, "%s", body);
    cr_assert_not_null(strstr(kernel, "+quantize_"), "%s", body);
    cr_assert_not_null(strstr(body, "\"outputs\":[{\"name\":\"v2\",\"datatype\":\"INT8\","
                                    "\"shape\":[0,2],\"data\":[]}]}"),
                       "%s", body);
    free(body);
    service_end();
    graph_case_destroy(made);
}

/* The second request of a shape takes no memory of the models and no plan of its own. */
Test(infer, a_known_shape_takes_only_its_bytes)
{
    struct graph_case *made = make_chain(4, "1,3,8,8", 3);
    service_start(1, 16 << 20);
    install(made, 1);
    ask_binary(made, 1);
    service_run();
    const size_t planned = qd_memory_used(service.model_memory);
    const size_t first = service.requests[0]->arena.bytes;
    for (size_t i = 1; i < 20; i++) {
        ask_binary(made, 1);
        service_run();
        cr_assert_eq(qd_memory_used(service.model_memory), planned);
        cr_assert_eq(service.requests[i]->arena.bytes, first);
        cr_assert_null(service.requests[i]->oip.inference);
    }
    cr_assert_leq(first, 64 << 10);
    service_end();
    graph_case_destroy(made);
}

/* An answer that waits for its client to read it has no memory that only computing needs. */
Test(infer, an_answer_holds_only_its_bytes)
{
    struct graph_case *made = make_chain(4, "1,8,100,100", 3);
    service_start(2, 256 << 20);
    install(made, 1);
    const struct qd_request *request = ask_binary(made, 5);
    service_run();
    expect_answer(request, made, 5);
    cr_assert_gt(request->answer.bytes, 256 << 10);
    cr_assert_leq(request->arena.bytes, request->answer.bytes + (64 << 10));
    service_end();
    graph_case_destroy(made);
}

static void make_object(const char *key, size_t bytes)
{
    const int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

/* The loop has planned the first request, though it is large, and computes it unless that takes too
 * long. By then it is known how long the model takes, so if that is long, the second request is
 * not planned and takes no memory before a worker has time for it. */
static void check_in_shared_memory(const struct graph_case *made, size_t count)
{
    char key[64], json[256];
    struct qd_error error;
    service_start(1, 256 << 20);
    install(made, 1);
    snprintf(key, sizeof(key), "/quantd-unit-infer-%d", getpid());
    make_object(key, count);
    const struct qd_region_call call = {"r", key, 0, count};
    regions = qd_regions_create("*", count);
    cr_assert_eq(qd_regions_register(regions, &call, &error), QD_OK, "%s", error.text);
    shm_unlink(key);
    snprintf(json, sizeof(json),
             "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"v0\","
             "\"datatype\":\"UINT8\",\"shape\":[%zu],\"parameters\":{"
             "\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":%zu}}]}",
             count, count);
    const struct qd_request *request = ask(json, strlen(json), NULL);
    const struct qd_inference *inference = request->oip.inference;
    cr_assert(inference != NULL && inference->plan != NULL,
              "it waits for a worker, who is to plan");
    const struct qk_plan *node = &inference->plan->nodes[0].plan;
    const bool is_short = node->unit_count * node->unit_cost_ns <= QD_QUANTUM_NS;
    cr_assert_eq(inference->job.may_run_inline, is_short);
    service_run();
    cr_assert_eq(request->answer.http_status, 200);
    service_hold_workers();
    const struct qd_request *second = ask(json, strlen(json), NULL);
    inference = second->oip.inference;
    cr_assert(inference != NULL && inference->read);
    cr_assert_eq(inference->plan != NULL, is_short);
    service_let_workers_go();
    service_run();
    cr_assert_eq(second->answer.http_status, 200);
    service_end();
    qd_regions_destroy(regions);
}

Test(infer, the_loop_computes_from_shared_memory)
{
    struct graph_case *made = graph_case_create(9);
    const uint32_t x = graph_case_input(made, QK_UINT8, "2");
    graph_case_output(made, graph_case_dequantize(made, x, QK_FP32));
    check_in_shared_memory(made, (1 << 20) + 2);
    check_in_shared_memory(made, 24 << 20);
    graph_case_destroy(made);
}

/* ---- Models come and go ------------------------------------------------------------------- */

Test(infer, requests_end_with_the_model_that_they_began_with)
{
    struct graph_case *made[] = {make_chain(5, "1,3,9,9", 1), make_chain(6, "1,3,9,9", 1)};
    service_start(2, 64 << 20);
    install(made[0], 1);
    for (size_t i = 0; i < 100; i++) {
        ask_binary(made[i % 2], 1 + i % 5); /* queued: workers need the loop only at the end */
        install(made[(i + 1) % 2], 2 + i);
    }
    cr_assert(qd_models_remove(service.models, "chain"));
    service_run();
    for (size_t i = 0; i < 100; i++) {
        expect_answer(service.requests[i], made[i % 2], 1 + i % 5);
        cr_assert_eq(service.requests[i]->model->signature.version, 1 + i);
    }
    cr_assert_eq(qd_models_loaded_count(service.models), 100);
    service_forget();
    cr_assert_eq(qd_models_loaded_count(service.models), 0);
    service_end();
    graph_case_destroy(made[0]);
    graph_case_destroy(made[1]);
}

/* ---- Not to their end --------------------------------------------------------------------- */

Test(infer, shapes_that_do_not_fit)
{
    struct graph_case *made = make_chain(7, "1,3,9,9", 1);
    service_start(1, 16 << 20);
    install(made, 1);
    static const char other[] = "{\"inputs\":[{\"name\":\"v0\",\"datatype\":\"FP32\","
                                "\"shape\":[1,3,9,8],\"data\":[]}]}";
    ask(other, strlen(other), NULL);
    service_run();
    expect_refusal(
        service.requests[0], 400,
        "{\"error\":\"inputs[0].shape (\\\"v0\\\"): expected [-1,3,9,9], where -1 is any "
        "size, got [1,3,9,8]\"}");
    service_end();
    graph_case_destroy(made);
}

/* Rules that only the operators know are checked by them. */
Test(infer, what_the_graph_refuses)
{
    struct graph_case *made = make_chain(8, "1,3,9,9", 1);
    service_start(1, 16 << 20);
    struct qd_model *model = loaded_create(made, service.kernels, service.model_memory, "chain", 1);
    ((struct qd_port *)model->signature.inputs)->shaped = false;
    struct qd_error error;
    cr_assert_eq(qd_models_install(service.models, "chain", &model, 1, &error), QD_OK, "%s",
                 error.text);
    static const char other[] = "{\"inputs\":[{\"name\":\"v0\",\"datatype\":\"FP32\","
                                "\"shape\":[0,4,9,9],\"data\":[]}]}";
    ask(other, strlen(other), NULL);
    service_run();
    char *body = body_of(service.requests[0]);
    cr_assert_eq(service.requests[0]->answer.http_status, 400, "%s", body);
    cr_assert_not_null(strstr(body, "n1"), "%s", body);
    free(body);
    service_end();
    graph_case_destroy(made);
}

Test(infer, a_deadline_that_has_passed)
{
    struct graph_case *made = make_chain(9, "1,3,60,60", 3);
    service_start(2, 64 << 20);
    install(made, 1);
    service.tools.compute_timeout_ns = 0;
    for (size_t i = 0; i < 5; i++)
        ask_binary(made, 1 + i);
    service_run();
    for (size_t i = 0; i < 5; i++) {
        expect_refusal(service.requests[i], 503,
                       "{\"error\":\"the request: expected an answer within 0 ms "
                       "(--compute-timeout); it takes longer\"}");
        cr_assert_null(service.requests[i]->oip.inference);
    }
    service_end();
    graph_case_destroy(made);
}

Test(infer, a_server_that_shuts_down)
{
    struct graph_case *made = make_chain(10, "1,8,100,100", 3);
    service_start(2, 256 << 20);
    install(made, 1);
    for (size_t i = 0; i < 20; i++)
        ask_binary(made, 1 + i % 3);
    qd_scheduler_abandon(service.tools.scheduler);
    service_run();
    for (size_t i = 0; i < 20; i++) {
        if (service.requests[i]->answer.http_status == 200)
            expect_answer(service.requests[i], made, 1 + i % 3);
        else
            expect_refusal(service.requests[i], 503, "{\"error\":\"the server shuts down\"}");
        cr_assert_null(service.requests[i]->oip.inference);
    }
    service_end();
    graph_case_destroy(made);
}

/* Some clients disconnect while their requests wait or run. The other requests lose nothing. The
 * first client disconnects before a worker is free. */
Test(infer, clients_that_have_gone)
{
    struct graph_case *made = make_chain(12, "1,8,100,100", 3);
    service_start(2, 256 << 20);
    install(made, 1);
    size_t gone = 0;
    service_hold_workers();
    for (size_t i = 0; i < 20; i++) {
        struct qd_request *request = ask_binary(made, 5);
        for (int k = 0; k < 2 && i % 2 == 0; k++) /* repeating this is allowed */
            qd_infer_abandon(request);
        service_let_workers_go();
    }
    service_run();
    for (size_t i = 0; i < 20; i++) {
        if (i % 2 == 1 || service.requests[i]->answer.http_status == 200) { /* it was quicker */
            expect_answer(service.requests[i], made, 5);
            continue;
        }
        cr_assert_leq(service.requests[i]->arena.bytes, 64 << 10);
        gone++;
        expect_refusal(service.requests[i], 503, "{\"error\":\"the client has gone\"}");
        cr_assert_null(service.requests[i]->oip.inference);
        qd_infer_abandon(service.requests[i]); /* there is nothing left to abandon */
    }
    cr_assert_gt(gone, 0);
    service_end();
    graph_case_destroy(made);
}

/* A request that lacks memory at any point must report that, or complete. */
Test(infer, with_little_memory)
{
    struct graph_case *made = make_chain(11, "1,3,40,40", 2);
    size_t refused = 0;
    for (size_t bytes = 64 << 10; bytes < 512 << 10; bytes += 16 << 10) {
        service_start(2, bytes);
        install(made, 1);
        ask_binary(made, 1);
        service_run();
        const unsigned http_status = service.requests[0]->answer.http_status;
        cr_assert(http_status == 200 || http_status == 413 || http_status == 503);
        if (http_status == 200)
            expect_answer(service.requests[0], made, 1);
        refused += http_status != 200;
        service_end();
    }
    cr_assert_gt(refused, 2);
    cr_assert_lt(refused, 26);
    graph_case_destroy(made);
}
