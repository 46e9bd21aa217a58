/* W3C trace context, read from headers. */
#include "server/http/api/access_log.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

Test(trace, a_request_has_a_span_of_its_own)
{
    struct qd_trace trace, other;
    char response[100];
    cr_assert(qd_trace_read("00-" TRACE "-" PARENT "-01", &trace));
    cr_assert(qd_trace_read("00-" TRACE "-" PARENT "-01", &other));
    cr_assert_str_eq(trace.trace_id, TRACE);
    cr_assert_str_eq(trace.parent_id, PARENT);
    cr_assert_eq(strspn(trace.span_id, "0123456789abcdef"), 16);
    cr_assert_neq(strcmp(trace.span_id, other.span_id), 0);
    snprintf(response, sizeof(response), "00-" TRACE "-%s-01", trace.span_id);
    cr_assert_str_eq(trace.response, response);
}

Test(trace, nothing_is_filled_by_what_is_invalid)
{
    static const char *const invalid[] = {
        "",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-0x",
        "00-" TRACE "-" PARENT "-01x",
        "00-" TRACE "-" PARENT "-01-",
        "01-" TRACE "-" PARENT "-01x",
        "ff-" TRACE "-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
    };
    for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++) {
        struct qd_trace trace = {.response = ""};
        cr_assert_not(qd_trace_read(invalid[i], &trace), "%s", invalid[i]);
        cr_assert_str_eq(trace.response, "");
        cr_assert_str_eq(trace.trace_id, "");
    }
}

Test(trace, states)
{
    static const char *const valid[] = {"a=b", "a=b,c=d", " a=b , c@d=e ", "a=b,,c=d,",
                                        "0-*/_@z=!\"#$%&'()*+-./:;<>?@[]^_`{|}~"};
    static const char *const invalid[] = {"",     ",",     "a",     "=b",   "a=",     "A=b",
                                          "a=b=", "a=b;c", "a=b,c", "_a=b", "a=\x01", "a=\xc3\xa9"};
    for (size_t i = 0; i < sizeof(valid) / sizeof(*valid); i++)
        cr_assert(qd_trace_is_state(valid[i]), "%s", valid[i]);
    for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++)
        cr_assert_eq(qd_trace_is_state(invalid[i]), strcmp(invalid[i], "a=b;c") == 0, "%s",
                     invalid[i]);
    char many[33 * 4 + 1] = "";
    for (int i = 0; i < 33; i++) {
        cr_assert_eq(qd_trace_is_state(many), i > 0);
        strcat(many, "a=b,");
    }
    cr_assert_not(qd_trace_is_state(many), "33 members");
    char key[257 + 3];
    memset(key, 'a', sizeof(key));
    strcpy(key + 256, "=b");
    cr_assert(qd_trace_is_state(key));
    strcpy(key + 257, "b");
    key[256] = 'a';
    cr_assert_not(qd_trace_is_state(key), "no =");
}
