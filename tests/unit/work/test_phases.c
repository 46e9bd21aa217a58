/* Large requests: every phase in units, and what may end a request in any phase. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "tests/unit/scratch.h"
#include "tests/unit/work/service.h"

static enum qd_coding coding; /* the coding of requests and of answers */

/* Returns the body encoded by `coding`, in the arena. */
static struct qd_part encode(const char *body, struct qd_arena *arena)
{
    const struct qd_part plain = {body, strlen(body)};
    const struct qd_part *part = &plain;
    if (coding == QD_CODING_IDENTITY)
        return plain;
    struct qd_deflater *deflater = qd_deflater_create(coding, &plain, 1, plain.count, arena);
    cr_assert_not_null(deflater);
    while (!qd_deflater_end(deflater, &part))
        qd_deflater_step(deflater);
    cr_assert_not_null(part);
    return *part;
}

static struct qd_request *ask(const char *model, const char *text)
{
    struct scratch scratch;
    scratch_init(&scratch, 64 << 20);
    const struct qd_part body = encode(text, &scratch.arena);
    struct qd_request *request = service_request(model);
    request->oip.coding = request->oip.answer_coding = coding;
    service_submit(request, body.bytes, body.count);
    scratch_deinit(&scratch);
    return request;
}

/* ---- A large one -------------------------------------------------------------------------- */

/* Returns a request that multiplies 0 ... 255, repeated, by 2. `parameters` is JSON with a comma
 * after it, or "". */
static char *large_body(size_t count, const char *parameters)
{
    char *body = malloc(256 + 4 * count);
    char *at = body + sprintf(body,
                              "{%s\"inputs\":[{\"name\":\"x_scale\",\"datatype\":\"FP32\","
                              "\"shape\":[],\"data\":[2]},{\"name\":\"x\",\"datatype\":\"UINT8\","
                              "\"shape\":[%zu],\"data\":[",
                              parameters, count);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%zu,", i % 256);
    strcpy(at - 1, "]}]}");
    return body;
}

/* Returns the answer's body, decompressed. The caller frees it. */
static char *decode(const struct qd_answer *answer)
{
    const char *bytes;
    size_t count;
    struct scratch scratch;
    struct qd_error error = {.status = QD_OK};
    if (answer->coding == NULL)
        return join_parts(answer->parts, answer->part_count);
    cr_assert_str_eq(answer->coding, qd_coding_name(coding));
    cr_assert_eq(answer->part_count, 1);
    cr_assert_eq(answer->bytes, answer->parts[0].count);
    scratch_init(&scratch, 256 << 20);
    struct qd_inflater *inflater = qd_inflater_create(coding, answer->parts[0].bytes, answer->bytes,
                                                      128 << 20, &scratch.arena, &error);
    cr_assert_not_null(inflater);
    while (!qd_inflater_end(inflater, &bytes, &count)) {
        qd_inflater_step(inflater);
        cr_assert_eq(error.status, QD_OK, "%s", error.text);
    }
    char *body = join_parts(&(struct qd_part){bytes, count}, 1);
    scratch_deinit(&scratch);
    return body;
}

static void expect_large(const struct qd_request *request, size_t count)
{
    char *body = decode(&request->answer);
    cr_assert_eq(request->answer.http_status, 200, "%.300s", body);
    cr_assert_eq(request->answer.coding != NULL, coding != QD_CODING_IDENTITY);
    cr_assert(request->answer.coding != NULL || strlen(body) == request->answer.bytes);
    const char *at = strstr(body, "\"data\":[");
    cr_assert_not_null(at);
    at += strlen("\"data\":[");
    for (size_t i = 0; i < count; i++) {
        char number[8];
        const int bytes = sprintf(number, i == 0 ? "%zu" : ",%zu", i % 256 * 2);
        cr_assert_eq(memcmp(at, number, (size_t)bytes), 0, "number %zu: %.20s", i, at);
        at += bytes;
    }
    cr_assert_str_eq(at, "]}]}");
    free(body);
}

static void check_large(unsigned thread_count, enum qd_coding both_ways)
{
    static const size_t counts[] = {2047, 2048, 2049, 4096, 30000, 300001};
    service_start(thread_count, 512 << 20);
    coding = both_ways;
    for (size_t i = 0; i < 18; i++) {
        char *body = large_body(counts[i % 6], "");
        ask("onnx.DequantizeLinear", body);
        free(body);
    }
    service_run();
    for (size_t i = 0; i < 18; i++) {
        const struct qd_request *request = service.requests[i];
        expect_large(request, counts[i % 6]);
        uint64_t stage_ns[QD_STAGE_COUNT];
        qd_request_stages(request, stage_ns);
        for (unsigned stage = 0; stage < QD_STAGE_TOTAL; stage++)
            cr_assert_gt(stage_ns[stage], 0, "stage %u", stage);
    }
    service_end();
}

Test(phases, large_json_on_one_thread)
{
    check_large(1, QD_CODING_IDENTITY);
}

Test(phases, large_json_on_three_threads)
{
    check_large(3, QD_CODING_IDENTITY);
}

Test(phases, compressed_both_ways_on_one_thread)
{
    check_large(1, QD_CODING_GZIP);
}

Test(phases, compressed_both_ways_on_three_threads)
{
    check_large(3, QD_CODING_DEFLATE);
}

/* ---- Ends before the end ------------------------------------------------------------------ */

static enum qd_request_state wanted_state;

/* Workers change the state, and only a test reads it meanwhile, so the thread sanitizer must ignore
 * that. */
__attribute__((no_sanitize("thread"))) static bool
is_in_wanted_state(const struct qd_request *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_RELAXED) == wanted_state;
}

static void abandon_there(void *context)
{
    (void)context;
    if (is_in_wanted_state(service.requests[0]))
        qd_infer_abandon(service.requests[0]);
}

/* Disconnects the client when its request is seen in that state. Returns false if the request was
 * never seen there, or was about to leave the state, and has been answered. */
static bool goes_in(enum qd_request_state state, unsigned threads, const char *model,
                    const char *body)
{
    wanted_state = state;
    service_start(threads, 512 << 20);
    const struct qd_request *request = ask(model, body);
    struct qd_handle *timer = qd_loop_timer(service.loop, abandon_there, NULL);
    qd_timer_start(timer, 1, 1);
    service_run();
    qd_timer_stop(timer);
    qd_handle_destroy(timer);
    const bool gone = request->answer.http_status != 200;
    if (gone) {
        cr_assert_eq(request->answer.http_status, 503);
        cr_assert_str_eq(request->error.text, "the client has gone");
        cr_assert_lt(request->arena.bytes, 64 << 10);
    }
    service_end();
    return gone;
}

/* Returns a convolution with 31 x 31 products for each byte of y, which takes a hundred
 * milliseconds or more. */
static char *long_convolution(void)
{
    char *body = malloc(8192);
    char *at = body + sprintf(body, "{\"parameters\":{\"pads\":[2048,2048,2048,2048],"
                                    "\"binary_data_output\":true},\"inputs\":[");
    static const char *const scales[] = {"x", "w", "y"};
    for (size_t i = 0; i < 3; i++) {
        at += sprintf(at,
                      "{\"name\":\"%s_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[1]},"
                      "{\"name\":\"%s_zero_point\",\"datatype\":\"UINT8\",\"shape\":[],"
                      "\"data\":[0]},",
                      scales[i], scales[i]);
    }
    at += sprintf(at, "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1,1,1,1],\"data\":[1]},"
                      "{\"name\":\"w\",\"datatype\":\"UINT8\",\"shape\":[1,1,31,31],\"data\":[");
    for (size_t i = 0; i < 31 * 31; i++)
        at += sprintf(at, "1,");
    strcpy(at - 1, "]}]}");
    return body;
}

/* Reading, computing and printing take so long that nearly every try sees them. */
Test(phases, a_client_goes_in_each_of_them)
{
    char *numbers = large_body(3000000, "");
    char *convolution = long_convolution();
    const struct {
        enum qd_request_state state;
        const char *model;
        const char *body;
    } cases[] = {
        {QD_DECODING, "onnx.DequantizeLinear", numbers},
        {QD_RUNNING, "onnx.QLinearConv", convolution},
        {QD_ENCODING, "onnx.DequantizeLinear", numbers},
    };
    for (unsigned threads = 1; threads < 4; threads++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            unsigned tries = 1;
            while (!goes_in(cases[i].state, threads, cases[i].model, cases[i].body))
                cr_assert_lt(tries++, 20, "state %d was never left", cases[i].state);
        }
    }
    free(numbers);
    free(convolution);
}

/* The body is compressed and must be inflated, and the answer is deflated. */
Test(phases, a_client_goes_while_its_body_is_inflated)
{
    char *body = large_body(3000000, "");
    for (unsigned threads = 1; threads < 4; threads++) {
        service_start(threads, 512 << 20);
        coding = QD_CODING_GZIP;
        struct qd_request *request = ask("onnx.DequantizeLinear", body);
        qd_infer_abandon(request);
        service_run();
        cr_assert_eq(request->answer.http_status, 503);
        cr_assert_lt(request->arena.bytes, 64 << 10);
        service_end();
        service_start(threads, 512 << 20);
        coding = QD_CODING_GZIP;
        request = ask("onnx.DequantizeLinear", body);
        wanted_state = QD_DECODING;
        struct qd_handle *timer = qd_loop_timer(service.loop, abandon_there, NULL);
        qd_timer_start(timer, 1, 1);
        service_run();
        qd_timer_stop(timer);
        qd_handle_destroy(timer);
        cr_assert(request->answer.http_status == 503 || request->answer.http_status == 200);
        cr_assert(request->answer.http_status == 200 || request->arena.bytes < 64 << 10);
        service_end();
    }
    free(body);
}

Test(phases, the_deadline_is_over_all_of_them)
{
    char *body = large_body(3000000, "");
    for (uint64_t ms = 2; ms < 40; ms += 8) {
        service_start(2, 512 << 20);
        service.tools.compute_timeout_ns = ms * QD_NS_PER_MS;
        struct qd_request *request = ask("onnx.DequantizeLinear", body);
        service_run();
        uint64_t stage_ns[QD_STAGE_COUNT];
        qd_request_stages(request, stage_ns);
        const uint64_t spent_ns = stage_ns[QD_STAGE_TOTAL] - stage_ns[QD_STAGE_RECEIVE];
        if (request->answer.http_status == 200) {
            expect_large(request, 3000000);
        } else {
            cr_assert_eq(request->answer.http_status, 503);
            cr_assert_not_null(strstr(request->error.text, "--compute-timeout"));
            cr_assert_geq(spent_ns, ms * QD_NS_PER_MS);
        }
        service_end();
    }
    free(body);
}

/* Memory may be lacking at any point, with several threads at work. */
Test(phases, with_little_memory)
{
    char *body = large_body(200000, "");
    size_t refused = 0;
    size_t whole = 0;
    for (size_t bytes = 1 << 20; bytes < 4 << 20; bytes += 128 << 10) {
        service_start(3, bytes);
        struct qd_request *request = ask("onnx.DequantizeLinear", body);
        service_run();
        const unsigned http_status = request->answer.http_status;
        cr_assert(http_status == 200 || http_status == 413 || http_status == 503);
        if (http_status == 200)
            expect_large(request, 200000);
        refused += http_status != 200;
        whole += http_status == 200;
        service_end();
    }
    cr_assert_gt(refused, 2);
    cr_assert_gt(whole, 2);
    free(body);
}

/* ---- Priority and timeout ----------------------------------------------------------------- */

/* The only worker is held until all requests wait. */
Test(phases, the_higher_priority_is_answered_first)
{
    static const unsigned priorities[] = {5, 4, 0, 2, 1};
    service_start(1, 512 << 20);
    service_hold_workers();
    for (size_t i = 0; i < 5; i++) {
        char parameters[64];
        sprintf(parameters, "\"parameters\":{\"priority\":%u},", priorities[i]);
        char *body = large_body(200000, parameters); /* some ms: they give way */
        ask("onnx.DequantizeLinear", body);
        free(body);
    }
    service_let_workers_go();
    service_run();
    size_t place[5] = {0};
    for (size_t i = 0; i < 5; i++) {
        cr_assert_eq(service.requests[i]->answer.http_status, 200);
        place[service.order[i]] = i;
    }
    cr_assert_lt(place[4], place[3], "1 before 2");
    cr_assert_lt(place[3], place[2], "2 before the others");
    cr_assert_lt(place[2], place[1], "the others before 4");
    cr_assert_lt(place[1], place[0], "4 before 5");
    service_end();
}

/* The request is refused once its envelope has been read. None of its numbers is converted. */
Test(phases, a_timeout_is_looked_at_before_numbers)
{
    service_start(1, 512 << 20);
    char *first = large_body(3000000, "");
    char *body = large_body(1000000, "\"parameters\":{\"timeout\":1},");
    ask("onnx.DequantizeLinear", first);
    free(first);
    body[strlen(body) - 5] = 'x'; /* the last number is never read */
    struct qd_request *request = ask("onnx.DequantizeLinear", body);
    free(body);
    service_run();
    cr_assert_eq(request->answer.http_status, 503, "%s", request->error.text);
    cr_assert_not_null(strstr(request->error.text, "parameters.timeout"), "%s",
                       request->error.text);
    expect_large(service.requests[0], 3000000);
    service_end();
}

static atomic_bool second_gate;

static bool wait_for_second_gate(struct qd_job *job)
{
    (void)job;
    while (!atomic_load(&second_gate))
        usleep(1000);
    return false;
}

static void ignore(struct qd_job *job)
{
    (void)job;
}

/* Asks for the elements of x times 2, as bytes. They take more than a time slice. `header` gets the
 * length of the JSON, and must stay. */
static struct qd_request *ask_bytes(size_t count, const char *parameters, char *header)
{
    char *body = calloc(1, 512 + count);
    const int json =
        sprintf(body,
                "{\"parameters\":{%s\"binary_data_output\":true},\"inputs\":[{\"name\":"
                "\"x_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[2]},{\"name\":"
                "\"x\",\"datatype\":\"UINT8\",\"shape\":[%zu],\"parameters\":{"
                "\"binary_data_size\":%zu}}]}",
                parameters, count, count);
    sprintf(header, "%d", json);
    struct qd_request *request = service_request("onnx.DequantizeLinear");
    qd_oip_message_set_header(&request->oip.message, header);
    service_submit(request, body, (size_t)json + count);
    free(body);
    return request;
}

/* The second request is planned, and lines up behind the first one. The only worker is then held
 * until the second one's timeout is over. */
Test(phases, a_timeout_counts_for_a_request_that_lines_up)
{
    static const struct qd_job_code code = {.start = wait_for_second_gate, .done = ignore};
    static struct qd_job second;
    char headers[2][16];
    service_start(1, 512 << 20);
    service_hold_workers();
    struct qd_request *first = ask_bytes(16 << 20, "", headers[0]);
    struct qd_request *request = ask_bytes(48 << 20, "\"timeout\":300000,", headers[1]);
    cr_assert(
        qd_scheduler_submit(service.tools.scheduler, service.loop, &second, &code, 0, UINT64_MAX));
    service_let_workers_go();
    usleep(400000);
    atomic_store(&second_gate, true);
    service_run();
    cr_assert_eq(first->answer.http_status, 200, "%s", first->error.text);
    cr_assert_eq(request->answer.http_status, 503, "%s", request->error.text);
    cr_assert_not_null(strstr(request->error.text, "parameters.timeout"), "%s",
                       request->error.text);
    service_end();
}

/* ---- What a request may become ------------------------------------------------------------ */

Test(phases, an_output_is_bounded_by_what_came)
{
    static const char body[] =
        "{\"parameters\":{\"pads\":[8192,8192,8192,8192]},\"inputs\":["
        "{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1,1,1,1],\"data\":[1]},"
        "{\"name\":\"x_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[1]},"
        "{\"name\":\"x_zero_point\",\"datatype\":\"UINT8\",\"shape\":[],\"data\":[0]},"
        "{\"name\":\"w\",\"datatype\":\"UINT8\",\"shape\":[1,1,1,1],\"data\":[1]},"
        "{\"name\":\"w_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[1]},"
        "{\"name\":\"w_zero_point\",\"datatype\":\"UINT8\",\"shape\":[],\"data\":[0]},"
        "{\"name\":\"y_scale\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[1]},"
        "{\"name\":\"y_zero_point\",\"datatype\":\"UINT8\",\"shape\":[],\"data\":[0]}]}";
    service_start(1, 2u << 30);
    const struct qd_request *request = ask("onnx.QLinearConv", body);
    service_run();
    char expected[64];
    snprintf(expected, sizeof(expected), "expected at most %zu bytes",
             (64u << 20) + 16 * strlen(body));
    cr_assert_eq(request->answer.http_status, 413, "%s", request->error.text);
    cr_assert_not_null(strstr(request->error.text, expected), "%s", request->error.text);
    cr_assert_lt(qd_memory_kept(service.memory), 16 << 20, "it was refused before it had memory");
    service_end();
}
