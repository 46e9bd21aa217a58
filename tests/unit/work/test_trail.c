/* What is kept of a request for its line. */
#include "server/work/trail.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct qd_port ports[32] = {{.name = "x"}, {.name = "scale"}, {.name = "zero"}};
static struct qk_tensor inputs[32];
static struct qd_signature signature = {.inputs = ports, .input_count = 3};

Test(trail, inputs_that_came)
{
    struct qd_trail *trail = qd_trail_create();
    struct qd_oip_asked asked = {.signature = &signature, .inputs = inputs, .id = "an id"};
    inputs[0] = (struct qk_tensor){.type = QK_UINT8, .rank = 3, .dims = {1, 0, SIZE_MAX}};
    inputs[2] = (struct qk_tensor){.type = QK_FP32, .rank = 0};
    qd_trail_note_call(trail, &asked);
    cr_assert_str_eq(trail->id, "an id");
    cr_assert_str_eq(trail->inputs, "x:UINT8[1,0,18446744073709551615] zero:FP32[]");
    qd_trail_destroy(trail);
}

Test(trail, nothing_is_known_yet)
{
    struct qd_trail *trail = qd_trail_create();
    qd_trail_note_call(trail, &(struct qd_oip_asked){.id = NULL});
    qd_trail_note_call(trail, &(struct qd_oip_asked){.signature = &signature});
    cr_assert_str_eq(trail->id, "");
    cr_assert_str_eq(trail->inputs, "");
    qd_trail_destroy(trail);
    qd_trail_destroy(NULL);
}

Test(trail, long_ones_are_cut)
{
    struct qd_port many[32];
    struct qd_signature large = {.inputs = many, .input_count = 32};
    struct qd_trail *trail = qd_trail_create();
    char id[1000];
    memset(id, 'i', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    for (size_t i = 0; i < 32; i++) {
        many[i] = (struct qd_port){.name = "a_rather_long_name"};
        inputs[i] = (struct qk_tensor){.type = QK_UINT8, .rank = QK_RANK_MAX};
    }
    qd_trail_note_call(trail,
                       &(struct qd_oip_asked){.signature = &large, .inputs = inputs, .id = id});
    cr_assert_eq(strlen(trail->id), QD_TRAIL_ID_BYTES - 1);
    cr_assert_lt(strlen(trail->inputs), QD_TRAIL_INPUTS_BYTES);
    cr_assert_gt(strlen(trail->inputs), QD_TRAIL_INPUTS_BYTES - 120);
    cr_assert_str_eq(trail->inputs + strlen(trail->inputs) - 5, "] ...");
    qd_trail_destroy(trail);
}
