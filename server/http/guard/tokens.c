#define _GNU_SOURCE
#include "server/http/guard/tokens.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word of a line; comments have no words. */
struct word {
    const char *bytes;
    size_t count;
};

static const char blanks[] = " \t\r";

static struct word next_word(const char **at, const char *end)
{
    while (*at < end && memchr(blanks, **at, sizeof(blanks) - 1) != NULL)
        (*at)++;
    struct word word = {.bytes = *at};
    while (*at < end && memchr(blanks, **at, sizeof(blanks) - 1) == NULL)
        (*at)++;
    word.count = (size_t)(*at - word.bytes);
    return word;
}

/* RFC 6750's b64token: letters, digits, -._~+/ and then any number of =. */
static bool is_token(struct word word)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "-._~+/";
    size_t count = word.count;
    while (count > 0 && word.bytes[count - 1] == '=')
        count--;
    for (size_t i = 0; i < count; i++)
        if (memchr(known, word.bytes[i], sizeof(known) - 1) == NULL)
            return false;
    return count > 0 && word.count <= QD_TOKEN_BYTES_MAX;
}

/* Returns true if the word can be a name. Log lines contain names, perhaps between quotes. */
static bool is_name(struct word word)
{
    for (size_t i = 0; i < word.count; i++)
        if (word.bytes[i] <= ' ' || word.bytes[i] > '~' || strchr("\"\\=", word.bytes[i]) != NULL)
            return false;
    return word.count < QD_USER_BYTES;
}

/* Returns the line that has the same token, or 0 if no line has it. */
static size_t line_of(const struct qd_tokens *tokens, const struct qd_digest *digest)
{
    for (size_t i = 0; i < tokens->count; i++)
        if (qd_digest_equal(&tokens->all[i].digest, digest))
            return tokens->all[i].line;
    return 0;
}

static bool add(struct qd_tokens *tokens, size_t line, struct word word, struct word name,
                struct qd_error *error)
{
    struct qd_token *token = &tokens->all[tokens->count];
    if (!qd_digest_of(word.bytes, word.count, &token->digest))
        return qd_fail_startup(error, "out of memory");
    size_t same = line_of(tokens, &token->digest);
    if (same != 0) /* otherwise removing one of the two lines would not revoke the token */
        return qd_fail_startup(
            error, "line %zu: expected a token that no other line has, got that of line %zu", line,
            same);
    token->line = line;
    if (name.count > 0)
        memcpy(token->name, name.bytes, name.count);
    else
        snprintf(token->name, sizeof(token->name), "line-%zu", line);
    tokens->count++;
    tokens->short_count += word.count < QD_TOKEN_SHORT_BYTES;
    return true;
}

static bool read_line(struct qd_tokens *tokens, size_t line, const char *at, const char *end,
                      struct qd_error *error)
{
    const char *comment = memchr(at, '#', (size_t)(end - at));
    end = comment == NULL ? end : comment;
    struct word token = next_word(&at, end);
    struct word name = next_word(&at, end);
    if (token.count == 0)
        return true;
    const char *wrong = NULL;
    if (!is_token(token))
        wrong = "expected a token of letters, digits and -._~+/ with = at its end, at most 4096";
    else if (!is_name(name))
        wrong = "the name after the token: expected at most 64 characters, no quotes, no =";
    else if (next_word(&at, end).count > 0)
        wrong = "expected a token and perhaps its name, got more";
    else if (tokens->count == QD_TOKEN_COUNT_MAX)
        wrong = "expected at most 1024 tokens";
    if (wrong == NULL)
        return add(tokens, line, token, name, error);
    return qd_fail_startup(error, "line %zu: %s", line, wrong);
}

static bool read_lines(struct qd_tokens *tokens, const char *text, size_t bytes,
                       struct qd_error *error)
{
    const char *end = text + bytes;
    size_t line = 0;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline == NULL ? end : newline;
        if (!read_line(tokens, ++line, text, line_end, error))
            return false;
        text = newline == NULL ? end : newline + 1;
    }
    if (tokens->count == 0)
        qd_fail_startup(error, "expected at least one token, got none");
    return tokens->count > 0;
}

struct qd_tokens *qd_tokens_create(const char *text, size_t bytes, struct qd_error *error)
{
    struct qd_tokens *tokens = calloc(1, sizeof(*tokens));
    qd_fail_startup(error, "out of memory");
    if (tokens == NULL)
        return NULL;
    if (read_lines(tokens, text, bytes, error))
        return tokens;
    free(tokens);
    return NULL;
}

const char *qd_tokens_find(const struct qd_tokens *tokens, const char *token, size_t bytes)
{
    struct qd_digest digest;
    if (bytes > QD_TOKEN_BYTES_MAX || !qd_digest_of(token, bytes, &digest))
        return NULL;
    const struct qd_token *found = NULL;
    for (size_t i = 0; i < tokens->count; i++) { /* no early exit: the time must tell nothing */
        bool equal = qd_digest_equal(&tokens->all[i].digest, &digest);
        found = equal ? &tokens->all[i] : found;
    }
    return found == NULL ? NULL : found->name;
}
