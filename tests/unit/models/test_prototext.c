#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/models/prototext.h"
#include "tests/unit/scratch.h"

static struct scratch scratch;
static struct qd_error error;
static const struct qd_json_value *tree;

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
}

static void teardown(void)
{
    scratch_deinit(&scratch);
}

TestSuite(prototext, .init = setup, .fini = teardown);

static enum qd_status read_bytes(const char *text, size_t bytes)
{
    static const char *const repeated[] = {"dims", "input", NULL};
    return qd_prototext_read(text, bytes, repeated, &scratch.arena, &tree, &error);
}

/* Prints a value as JSON, which is easy to compare. */
static size_t print(const struct qd_json_value *value, char *to, size_t room)
{
    static const char *const words[] = {"null", "false", "true"};
    if (value->kind == QD_JSON_NUMBER)
        return (size_t)snprintf(to, room, "%s", value->text);
    if (value->kind == QD_JSON_STRING)
        return (size_t)snprintf(to, room, "'%s'", value->text);
    if (value->kind < QD_JSON_NUMBER)
        return (size_t)snprintf(to, room, "%s", words[value->kind]);
    const bool is_array = value->kind == QD_JSON_ARRAY;
    size_t used = (size_t)snprintf(to, room, is_array ? "[" : "{");
    for (const struct qd_json_value *item = value->first; item != NULL; item = item->next) {
        if (item->key != NULL)
            used += (size_t)snprintf(to + used, room - used, "%s:", item->key);
        used += print(item, to + used, room - used);
        used += (size_t)snprintf(to + used, room - used, item->next == NULL ? "" : ",");
    }
    return used + (size_t)snprintf(to + used, room - used, is_array ? "]" : "}");
}

Test(prototext, what_it_reads)
{
    static const char *const cases[][2] = {
        {"", "{}"},
        {" # only a comment", "{}"},
        {"a: 1", "{a:1}"},
        {"a: -1 b: TYPE_FP32, c: true; d: false e: 1.5e3 f: 0", "{a:-1,b:'TYPE_FP32',c:true,"
                                                                "d:false,e:1.5e3,f:0}"},
        {"a: \"x\" b: 'y' c: \"it's\" d: '\\'\\\\\\\"'", "{a:'x',b:'y',c:'it's',d:''\\\"'}"},
        {"dims: 1", "{dims:[1]}"},
        {"dims: [1, 2] a: 0 dims: 3 dims: []", "{dims:[1,2,3],a:0}"},
        {"dims: []", "{dims:[]}"},
        {"a: [x, y]", "{a:['x','y']}"},
        {"a: 1 a: 2", "{a:1,a:2}"},
        {"input { a: 1 } input < b { c: 2 } >", "{input:[{a:1},{b:{c:2}}]}"},
        {"input [ { dims: 1 }, { dims: 2 } ]", "{input:[{dims:[1]},{dims:[2]}]}"},
        {"a: { } # end\n\tb\n:\n1", "{a:{},b:1}"},
    };
    char printed[256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_eq(read_bytes(cases[i][0], strlen(cases[i][0])), QD_OK, "%s: %s", cases[i][0],
                     error.text);
        print(tree, printed, sizeof(printed));
        cr_assert_str_eq(printed, cases[i][1]);
    }
}

Test(prototext, what_it_refuses)
{
    static const char *const cases[] = {
        "a",         "a:",         "a 1",      ": 1",          "1: 1",     "a: }",
        "}",         "a {",        "a { ]",    "a { >",        "a < }",    "a: [1",
        "a: [1 2]",  "a: [1,]",    "a: 'x",    "a: \"x'",      "a: '\n'",  "a: '\\n'",
        "a: '\\",    "a: '\\x41'", "a: 010",   "a: 0x10",      "a: - 1",   "a: -inf",
        "a: '\xff'", "[a.b]: 1",   "a: 1 'x'", "\xef\xbb\xbf", "a: [[1]]", "a: 'x' 'y'",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_eq(read_bytes(cases[i], strlen(cases[i])), QD_INVALID, "%s", cases[i]);
        cr_assert(strncmp(error.text, "line ", 5) == 0, "%s: %s", cases[i], error.text);
    }
    cr_assert_eq(read_bytes("a: 'x\0y'", 8), QD_INVALID);
    cr_assert_eq(read_bytes("\0", 1), QD_INVALID);
}

/* Depth, values and the length of names are bounded. */
Test(prototext, what_is_too_much)
{
    static char text[3 * (QD_PROTOTEXT_VALUES_MAX + 1)];
    memset(text, '{', 100);
    for (size_t i = 0; i < 100; i += 2)
        text[i] = 'a';
    cr_assert_eq(read_bytes(text, 100), QD_INVALID);
    cr_assert(strstr(error.text, "at most 16 messages") != NULL, "%s", error.text);
    for (size_t i = 0; i < sizeof(text); i += 3)
        memcpy(text + i, "a:1", 3);
    memset(text, 'n', 65);
    cr_assert_eq(read_bytes(text, 65), QD_INVALID);
    for (size_t i = 0; i < sizeof(text); i += 3)
        memcpy(text + i, "a{}", 3);
    cr_assert_eq(read_bytes(text, sizeof(text) - 3), QD_OK, "%s", error.text);
    cr_assert_eq(read_bytes(text, sizeof(text)), QD_INVALID);
    cr_assert_str_eq(error.text, "expected at most 65536 values");
}
