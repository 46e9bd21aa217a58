#include "server/http/guard/tokens.h"
#include "tests/support/random.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct qd_error error;

static struct qd_tokens *create(const char *text)
{
    error.text[0] = '\0';
    return qd_tokens_create(text, strlen(text), &error);
}

static const char *find(const struct qd_tokens *tokens, const char *token)
{
    const char *name = qd_tokens_find(tokens, token, strlen(token));
    return name == NULL ? "none" : name;
}

Test(tokens, lines_names_and_comments)
{
    struct qd_tokens *tokens = create("# who may come in\n"
                                      "\n"
                                      "Vb3pXl0sQ2rT9wYz\n"
                                      "  abc-._~+/==\tmobile-app # until May\r\n"
                                      "secret#no blank before it\n"
                                      " \t \n"
                                      "0123456789abcdef x@y.example/z:1");
    cr_assert_not_null(tokens, "%s", error.text);
    cr_assert_eq(tokens->count, 4);
    cr_assert_eq(tokens->short_count, 2);
    cr_assert_str_eq(find(tokens, "Vb3pXl0sQ2rT9wYz"), "line-3");
    cr_assert_str_eq(find(tokens, "abc-._~+/=="), "mobile-app");
    cr_assert_str_eq(find(tokens, "secret"), "line-5");
    cr_assert_str_eq(find(tokens, "0123456789abcdef"), "x@y.example/z:1");
    static const char *const wrong[] = {"",
                                        "Vb3pXl0sQ2rT9wY",
                                        "Vb3pXl0sQ2rT9wYz ",
                                        "vb3pXl0sQ2rT9wYz",
                                        "Vb3pXl0sQ2rT9wYzz",
                                        "abc-._~+/=",
                                        "#",
                                        "mobile-app",
                                        "line-3"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        cr_assert_str_eq(find(tokens, wrong[i]), "none", "%s", wrong[i]);
    cr_assert_null(qd_tokens_find(tokens, "secret\0", 7));
    free(tokens);
}

Test(tokens, what_is_no_file_of_tokens)
{
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"", "got none"},
        {"\n\n# nothing\n", "got none"},
        {"good\nb\"ad\n", "line 2: expected a token of letters"},
        {"\xef\xbb\xbfgood\n", "line 1: expected a token of letters"},
        {"gr\xc3\xbc\xc3\x9f"
         "e\n",
         "line 1: expected a token of letters"},
        {"====\n", "line 1: expected a token of letters"},
        {"a=b\n", "line 1: expected a token of letters"},
        {"good name more\n", "line 1: expected a token and perhaps its name"},
        {"good na\"me\n", "line 1: the name after the token: "},
        {"good na\x01me\n", "line 1: the name after the token: "},
        {"good na\xffme\n", "line 1: the name after the token: "},
        {"good a=b\n", "line 1: the name after the token: "},
        {"good 12345678901234567890123456789012345678901234567890123456789012345\n",
         "line 1: the name after the token: "},
        {"one\ntwo x\none y\n",
         "line 3: expected a token that no other line has, got that of line 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_null(create(cases[i].text), "%s", cases[i].text);
        cr_assert(strstr(error.text, cases[i].part) != NULL, "%s: %s", cases[i].text, error.text);
        cr_assert(strstr(error.text, "good") == NULL, "a token is in it: %s", error.text);
    }
    cr_assert_null(qd_tokens_create("good\0more\n", 10, &error));
    cr_assert(strstr(error.text, "line 1") != NULL, "%s", error.text);
    struct qd_tokens *tokens =
        create("good 1234567890123456789012345678901234567890123456789012345678901234\n");
    cr_assert_not_null(tokens, "%s", error.text);
    free(tokens);
}

Test(tokens, as_many_and_as_long_as_there_may_be)
{
    size_t room = (QD_TOKEN_COUNT_MAX + 1) * 24;
    char *text = malloc(room);
    size_t count = 0;
    for (unsigned i = 0; i <= QD_TOKEN_COUNT_MAX; i++)
        count += (size_t)snprintf(text + count, room - count, "token-%u name-%u\n", i, i);
    cr_assert_null(create(text));
    cr_assert(strstr(error.text, "line 1025: expected at most 1024") != NULL, "%s", error.text);
    *strstr(text, "token-1024") = '\0';
    struct qd_tokens *tokens = create(text);
    cr_assert_not_null(tokens, "%s", error.text);
    cr_assert_eq(tokens->count, QD_TOKEN_COUNT_MAX);
    cr_assert_str_eq(find(tokens, "token-0"), "name-0");
    cr_assert_str_eq(find(tokens, "token-1023"), "name-1023");
    cr_assert_str_eq(find(tokens, "token-1024"), "none");
    free(tokens);
    free(text);

    char *longest = calloc(1, QD_TOKEN_BYTES_MAX + 2);
    memset(longest, 'a', QD_TOKEN_BYTES_MAX + 1);
    cr_assert_null(create(longest));
    cr_assert_null(qd_tokens_find(tokens = create("b"), longest, QD_TOKEN_BYTES_MAX + 1));
    free(tokens);
    longest[QD_TOKEN_BYTES_MAX] = '\0';
    tokens = create(longest);
    cr_assert_not_null(tokens, "%s", error.text);
    cr_assert_str_eq(find(tokens, longest), "line-1");
    free(tokens);
    free(longest);
}

/* All bytes occur, bytes with a meaning more often. */
Test(tokens, any_bytes)
{
    static const char likely[] = "ab=# \t\r\n\n\"\\.";
    uint64_t random = 19;
    for (unsigned round = 0; round < 20000; round++) {
        char bytes[64];
        size_t count = (random_next(&random) >> 33) % sizeof(bytes);
        for (size_t i = 0; i < count; i++) {
            const uint64_t seed = random_next(&random);
            bool any = (seed >> 60) == 0;
            bytes[i] = any ? (char)(seed >> 40) : likely[(seed >> 40) % (sizeof(likely) - 1)];
        }
        char *exact = malloc(count + 1); /* so that a sanitizer sees a read beyond the end */
        memcpy(exact, bytes, count);
        char *shrunk = realloc(exact, count > 0 ? count : 1);
        error.text[0] = '\0';
        struct qd_tokens *tokens = qd_tokens_create(shrunk, count, &error);
        cr_assert((tokens == NULL) ==
                  (error.text[0] != '\0' && strcmp(error.text, "out of memory") != 0));
        if (tokens != NULL)
            cr_assert_null(qd_tokens_find(tokens, "", 0));
        free(tokens);
        free(shrunk);
    }
}
