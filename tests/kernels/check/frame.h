/* The state of the kernel checker (check.h): its options, the current case, and its buffers. Only
 * for frame.c, memory.c and main.c. */
#pragma once

#include "tests/kernels/check/check.h"

enum { CHECK_PAGE = 4096, CHECK_BUFFERS_MOST = 24, CHECK_EXCEPTIONS_MOST = 8, CHECK_TEXT = 512 };

/* Pages between two inaccessible ones. Each holds one buffer of a case, and the next case uses it
 * again. */
struct check_slot {
    uint8_t *open;
    size_t open_bytes;
    /* The current case: */
    const char *name;
    enum check_use use;
    uint8_t *begin;
    size_t bytes;
    uint64_t hash; /* hash of an input's contents before the call */
};

struct check_memory {
    struct check_slot slots[CHECK_BUFFERS_MOST];
    size_t used;
    void *scratch[CHECK_BUFFERS_MOST];
    size_t scratch_used;
    uint8_t canary[CHECK_PAGE];
};

struct check {
    uint64_t seed;
    const char *only; /* check only names "function tier" that contain this; NULL: all */
    const char *except[CHECK_EXCEPTIONS_MOST + 1]; /* skip the names that contain one of these */
    size_t part, parts; /* check only every parts-th of the remaining kernels, beginning with number
                           `part`, so that several processes share them */
    size_t seen;        /* the number of the next kernel */
    uint64_t every;     /* run the cases numbered 0, every, 2 * every and so on */
    bool timed;
    bool list;
    size_t passed, failed; /* numbers of subjects */
    size_t checks;         /* number of cases */
    const char *tier;
    char ran[CHECK_TEXT], lacking[CHECK_TEXT]; /* names of tiers, for people */
    /* The current subject: */
    const struct check_subject *subject;
    size_t index;
    size_t failures;
    uint64_t random;
    bool case_failed;
    char label[CHECK_TEXT];
    struct check_memory memory;
};

/* Begin and end a case. The case's buffers are valid in between. The end checks that the bytes
 * around them are unchanged. */
void check_memory_begin(struct check *check);
void check_memory_end(struct check *check);

/* Hash the inputs before a call of the kernel, and check after it that they have not changed. */
void check_memory_hash(struct check *check);
void check_memory_compare(struct check *check);

/* With the memory sanitizer: fails the case if a byte of the kernel's output is uninitialized,
 * because it was not written or comes from uninitialized memory, and the same byte of the
 * reference's is not. */
void check_settle_same(struct check *check, const struct check_pair *pair);

void check_memory_deinit(struct check *check);

/* Prints where an address is, such as "3 bytes behind 'weights' of 64". */
void check_memory_place(const struct check *check, const void *address, char *text, size_t bytes);
