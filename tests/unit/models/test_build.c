/* What a load may try, and what it computes while it tries. */
#include <stdio.h>

#include "kernels/network/compute.h"
#include "server/models/build.h"
#include "tests/support/kernels/qk_test.h"
#include "tests/unit/models/onnx_file.h"

enum { CUTS = QK_GRAPH_PORT_COUNT_MAX };

static char names[2 * CUTS][8]; /* of the inputs, then of the outputs */
static const char *inputs[CUTS];
static struct qk_kernels *kernels;
static struct qd_build_work work;
static struct qd_model_config config;

static void set_up(void)
{
    setup();
    for (int i = 0; i < 2 * CUTS; i++)
        snprintf(names[i], sizeof(names[i]), "%c%d", i < CUTS ? 'q' : 'y', i % CUTS);
    for (int i = 0; i < CUTS; i++)
        inputs[i] = names[i];
    kernels = qk_test_kernels("scalar");
    work = (struct qd_build_work){.tried_nodes = 0};
    qd_model_config_init(&config);
    config.cut.inputs = inputs;
    config.cut.input_count = CUTS;
}

static void tear_down(void)
{
    qk_kernels_destroy(kernels);
    teardown();
}

TestSuite(build, .init = set_up, .fini = tear_down);

/* Nodes that quantd does not have make q0 to q31, and DequantizeLinear makes y0 to y31 of them. Its
 * zero point has the type UINT8, and another DequantizeLinear computes its scale. */
static struct message net(void)
{
    struct message file = {.bytes = NULL};
    add_parameters(&file);
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("a", ONNX_FLOAT, DIMS(2, 0)));
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("fold", "DequantizeLinear", NAMES("z", "s"), NAMES("scale")));
    for (int i = 0; i < CUTS; i++) {
        put_message(&file, ONNX_GRAPH_NODE, onnx_node("", "Reverse", NAMES("a"), NAMES(names[i])));
        put_message(&file, ONNX_GRAPH_NODE,
                    onnx_node("", "DequantizeLinear", NAMES(names[i], "scale", "z"),
                              NAMES(names[CUTS + i])));
        put_message(&file, ONNX_GRAPH_OUTPUT,
                    onnx_value_info(names[CUTS + i], ONNX_FLOAT, DIMS(0)));
    }
    return onnx_model(file, 14);
}

static enum qd_status load_file(struct message file, struct qd_model **model)
{
    struct qk_graph *made;
    const struct qd_source source = {.kind = QD_SOURCE_ONNX,
                                     .content = {.bytes = file.bytes, .count = file.count}};
    struct qd_build build = {.kernels = kernels,
                             .name = "net",
                             .version = 1,
                             .config = &config,
                             .scratch = &scratch.arena,
                             .memory = scratch.arena.memory,
                             .work = &work};
    enum qd_status status = qd_build_read(&build, &source, &error);
    if (status == QD_OK) {
        status = qd_build_prepare(&build, model, &made, &error);
        cr_expect(status == QD_OK || (*model == NULL && made == NULL));
    }
    message_free(&file);
    return status;
}

static enum qd_status load(void)
{
    struct qd_model *model = NULL;
    const enum qd_status status = load_file(net(), &model);
    for (size_t i = 0; i < CUTS && status == QD_OK; i++)
        cr_expect_eq(model->signature.inputs[i].types, QK_BIT(QK_UINT8));
    qd_model_release(model);
    return status;
}

/* Many types are tried for each input, but constants are computed once. */
Test(build, constants_are_folded_before_types_are_tried)
{
    struct qd_config_port ports[CUTS];
    cr_assert_eq(load(), QD_OK, "%s", error.text);
    const struct qd_build_work tried = work;
    cr_assert_gt(tried.tried_nodes, CUTS * CUTS);
    work = (struct qd_build_work){.tried_nodes = 0};
    for (size_t i = 0; i < CUTS; i++)
        ports[i] = (struct qd_config_port){.name = names[i], .type = QK_UINT8};
    config.inputs = ports;
    config.input_count = CUTS;
    cr_assert_eq(load(), QD_OK, "%s", error.text);
    cr_assert_eq(work.tried_nodes, 0);
    cr_assert_gt(work.computed.cost_ns, 0);
    cr_assert_eq(work.computed.cost_ns, tried.computed.cost_ns);
}

Test(build, tries_are_bounded)
{
    work.tried_nodes = QD_TRIED_NODES_MAX - 100;
    cr_assert_eq(load(), QD_INVALID);
    cr_assert_str_eq(error.text,
                     "the configuration's input: expected \"q0\" and all other inputs with their "
                     "data_type, because the file does not say which they have, and it takes too "
                     "long to try all types");
    cr_assert_leq(work.tried_nodes, QD_TRIED_NODES_MAX);
}

/* The bound of what nodes compute holds for a load, not for each try. */
Test(build, computed_constants_are_bounded)
{
    work.computed.cost_ns = QK_COMPUTE_NS_MAX;
    cr_assert_eq(load(), QD_INVALID);
    cr_assert_str_eq(error.text, "node 0 (\"fold\", onnx.DequantizeLinear): expected constants "
                                 "that take at most 1 s to compute, got more");
}

Test(build, what_counts_as_a_try)
{
    cr_assert(qd_build_try(&work, 3, 5 * QD_TRIED_NODE_BYTES));
    cr_assert_eq(work.tried_nodes, 8);
    cr_assert_not(qd_build_try(&work, 0, SIZE_MAX));
    cr_assert_not(qd_build_try(&work, QD_TRIED_NODES_MAX - 7, 0));
    cr_assert(qd_build_try(&work, QD_TRIED_NODES_MAX - 8, 0));
}

/* A Clip of opset 13 with the attribute min, and with a limit that comes with each request. */
static struct message clip(void)
{
    const float scale = 0.5f;
    struct message file = {.bytes = NULL};
    struct message node = onnx_node("clip", "Clip", NAMES("sum", "low"), NAMES("clipped"));
    put_message(&node, ONNX_NODE_ATTRIBUTE, onnx_attribute_float("min", 0));
    put_message(&file, ONNX_GRAPH_INITIALIZER,
                tensor_of("s", ONNX_FLOAT, NO_DIMS, &scale, sizeof(scale)));
    put_message(&file, ONNX_GRAPH_INITIALIZER, tensor_of("z", ONNX_UINT8, NO_DIMS, "\3", 1));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("x", ONNX_UINT8, DIMS(2)));
    put_message(&file, ONNX_GRAPH_INPUT, onnx_value_info("low", ONNX_FLOAT, NO_DIMS));
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "DequantizeLinear", NAMES("x", "s", "z"), NAMES("a")));
    put_message(&file, ONNX_GRAPH_NODE, onnx_node("", "Add", NAMES("a", "a"), NAMES("sum")));
    put_message(&file, ONNX_GRAPH_NODE, node);
    put_message(&file, ONNX_GRAPH_NODE,
                onnx_node("", "QuantizeLinear", NAMES("clipped", "s", "z"), NAMES("y")));
    put_message(&file, ONNX_GRAPH_OUTPUT, onnx_value_info("y", ONNX_UINT8, DIMS(2)));
    return onnx_model(file, 13);
}

/* A fused node would have no place for the limit. */
Test(build, a_limit_of_a_request_is_not_fused)
{
    struct qd_model *model = NULL;
    qd_model_config_init(&config);
    const enum qd_status status = load_file(clip(), &model);
    cr_expect_eq(status, QD_OK, "%s", error.text);
    qd_model_release(model);
}
