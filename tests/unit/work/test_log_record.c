/* What is recorded of a request for its log line. */
#include "server/work/request.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct qd_port ports[32] = {{.name = "x"}, {.name = "scale"}, {.name = "zero"}};
static struct qk_tensor inputs[32];
static struct qd_signature signature = {.inputs = ports, .input_count = 3};

Test(log_record, inputs_that_came)
{
    struct qd_log_record record = {.id = ""};
    struct qd_oip_asked asked = {.signature = &signature, .inputs = inputs, .id = "an id"};
    inputs[0] = (struct qk_tensor){.type = QK_UINT8, .rank = 3, .dims = {1, 0, SIZE_MAX}};
    inputs[2] = (struct qk_tensor){.type = QK_FP32, .rank = 0};
    qd_log_record_note_call(&record, &asked);
    cr_assert_str_eq(record.id, "an id");
    cr_assert_str_eq(record.inputs, "x:UINT8[1,0,18446744073709551615] zero:FP32[]");
}

Test(log_record, nothing_is_known_yet)
{
    struct qd_log_record record = {.id = ""};
    qd_log_record_note_call(&record, &(struct qd_oip_asked){.id = NULL});
    qd_log_record_note_call(&record, &(struct qd_oip_asked){.signature = &signature});
    cr_assert_str_eq(record.id, "");
    cr_assert_str_eq(record.inputs, "");
}

Test(log_record, long_ones_are_cut)
{
    struct qd_port many[32];
    struct qd_signature large = {.inputs = many, .input_count = 32};
    struct qd_log_record record = {.id = ""};
    char id[1000];
    memset(id, 'i', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    for (size_t i = 0; i < 32; i++) {
        many[i] = (struct qd_port){.name = "a_rather_long_name"};
        inputs[i] = (struct qk_tensor){.type = QK_UINT8, .rank = QK_RANK_MAX};
    }
    qd_log_record_note_call(
        &record, &(struct qd_oip_asked){.signature = &large, .inputs = inputs, .id = id});
    cr_assert_eq(strlen(record.id), QD_LOG_RECORD_ID_BYTES - 1);
    cr_assert_lt(strlen(record.inputs), QD_LOG_RECORD_INPUTS_BYTES);
    cr_assert_gt(strlen(record.inputs), QD_LOG_RECORD_INPUTS_BYTES - 120);
    cr_assert_str_eq(record.inputs + strlen(record.inputs) - 5, "] ...");
}
