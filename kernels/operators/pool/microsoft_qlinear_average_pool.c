/* com.microsoft.QLinearAveragePool: the average of each window, of quantized numbers
 * (kernels/pool/pool.h). */
#include "kernels/operators/pool/rules.h"

enum { CHANNELS_LAST = QK_POOL_ATTRIBUTE_COUNT, COUNT_INCLUDE_PAD };

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct qk_pool pool = {.kind = QK_POOL_AVERAGE};
    (void)kernels;
    enum qk_status status = qk_pool_read_windows(call, SIZE_MAX, &pool.desc, error);
    if (status == QK_OK)
        status = qk_pool_read_flag(call, CHANNELS_LAST, &pool.desc.channels_last, error);
    if (status == QK_OK)
        status = qk_pool_read_flag(call, COUNT_INCLUDE_PAD, &pool.count_include_pad, error);
    if (status == QK_OK)
        status = qk_pool_read_parameters(call, &pool, error);
    return status == QK_OK ? qk_pool_make(&pool, memory, instance, error) : status;
}

static const struct qk_attribute_def attributes[] = {
    QK_POOL_ATTRIBUTES(1, 1),
    [CHANNELS_LAST] = QK_ATTRIBUTE("channels_last", INT, 1, "1: X is [N, D1..Dn, C]; default 0"),
    [COUNT_INCLUDE_PAD] = QK_ATTRIBUTE("count_include_pad", INT, 1,
                                       "1: sums are divided by the size of the kernel, not by the "
                                       "number of elements; default 0"),
};

static const struct qk_version versions[] = {QK_POOL_AVERAGE_VERSION};

const struct qk_operator qk_microsoft_qlinear_average_pool = {
    .name = "com.microsoft.QLinearAveragePool",
    .platform = QK_ONNX_PLATFORM,
    .about = "The average of each window of a quantized tensor, quantized again",
    .inputs = QK_POOL_INPUTS,
    .input_count = QK_POOL_INPUT_COUNT,
    .variable_inputs = 1U << QK_POOL_X,
    .outputs = {{"Y", "as X, with other D1..Dn"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = qk_pool_plan_instance},
};
