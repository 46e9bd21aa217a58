/* The commands that --explain prints. tests/e2e/models/test_explain.py has the rest. */
#include "server/models/explain/explain.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/scratch.h"

enum { QUOTES = 5000 }; /* a quote takes four bytes in a command, so these do not fit */

static struct qd_signature signature;
static struct scratch scratch;
static const char *made_commands[QD_EXPLAIN_COMMAND_COUNT_MAX];

static size_t commands(const struct qd_explanation *explanation)
{
    return qd_explanation_commands(explanation, 0, &scratch.arena, made_commands);
}

/* A part of a command would do something else. */
Test(explain, commands_are_never_cut)
{
    struct qd_explanation *made = calloc(1, sizeof(*made));
    char *quotes = calloc(1, QUOTES + 1);
    cr_assert(made != NULL && quotes != NULL);
    scratch_init(&scratch, 1 << 20);
    memset(quotes, '\'', QUOTES);
    *made = (struct qd_explanation){.program = "build/quantd", .name = "net", .file = "x y.onnx"};
    made->cuts.count = 1;
    strcpy(made->cuts.list[0].config, "{}");
    cr_assert_eq(commands(made), 4);
    made->signature = &signature;
    cr_assert_eq(commands(made), 1);
    cr_assert_str_eq(made_commands[0], "build/quantd --model net='x y.onnx'");
    made->file = quotes;
    cr_assert_eq(commands(made), 0);
    made->signature = NULL;
    cr_assert_eq(commands(made), 0);
    made->signature = &signature;
    made->folder = ".";
    cr_assert_eq(commands(made), 1);
    made->folder = quotes;
    cr_assert_eq(commands(made), 0);
    scratch_deinit(&scratch);
    free(quotes);
    free(made);
}
