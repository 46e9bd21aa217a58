/* An arena for one test. Also joins texts and answers to one C string. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/memory/arena.h"
#include "server/memory/text.h"

struct scratch {
    struct qd_memory *memory;
    struct qd_arena arena;
};

static inline void scratch_init(struct scratch *scratch, size_t bytes_max)
{
    scratch->memory = qd_memory_create(bytes_max);
    if (scratch->memory == NULL)
        abort();
    qd_arena_init(&scratch->arena, scratch->memory);
}

static inline void scratch_deinit(struct scratch *scratch)
{
    qd_arena_deinit(&scratch->arena);
    qd_memory_destroy(scratch->memory);
}

/* Returns all bytes of the parts, with a NUL after them. The caller frees the result. */
static inline char *join_parts(const struct qd_part *parts, size_t part_count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++)
        bytes += parts[i].count;
    char *all = malloc(bytes + 1);
    if (all == NULL)
        abort();
    char *at = all;
    for (size_t i = 0; i < part_count; i++) {
        memcpy(at, parts[i].bytes, parts[i].count);
        at += parts[i].count;
    }
    *at = '\0';
    return all;
}

/* Ends a scratch in which a whole text was printed. Returns the text, which the caller frees. */
static inline char *scratch_take_text(struct scratch *scratch, const struct qd_text *text)
{
    cr_assert_not(text->failed);
    char *printed = join_parts(text->parts, text->part_count);
    scratch_deinit(scratch);
    return printed;
}

static inline void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    cr_assert(at != NULL && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n',
              "no line %s in\n%s", line, text);
}
