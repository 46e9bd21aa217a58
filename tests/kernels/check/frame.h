/* What the frame of the checker keeps. Only for frame.c, memory.c and main.c. */
#ifndef TESTS_KERNELS_CHECK_FRAME_H
#define TESTS_KERNELS_CHECK_FRAME_H

#include "tests/kernels/check/check.h"

enum { CHECK_PAGE = 4096, CHECK_BUFFERS_MOST = 24, CHECK_EXCEPTIONS_MOST = 8, CHECK_TEXT = 512 };

/* Pages between two that are closed; a slot serves case after case. */
struct check_slot {
    uint8_t *open;
    size_t open_bytes;
    /* Of this case: */
    const char *name;
    enum check_use use;
    uint8_t *begin;
    size_t bytes;
    uint64_t hash; /* of an input */
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
    const char *only;                              /* part of "function tier"; NULL: all */
    const char *except[CHECK_EXCEPTIONS_MOST + 1]; /* the same of those that are left out */
    size_t part,
        parts;      /* the kernels numbered part, part + parts and so on, of those that are left */
    size_t seen;    /* the next one's number */
    uint64_t every; /* of their cases those numbered 0, every, 2 * every and so on */
    bool timed;
    bool list;
    size_t passed, failed; /* subjects */
    size_t checks;         /* cases */
    const char *tier;
    char ran[CHECK_TEXT], lacking[CHECK_TEXT]; /* tiers, for people */
    /* Of the subject: */
    const struct check_subject *subject;
    size_t index;
    size_t failures;
    uint64_t random;
    bool case_failed;
    char label[CHECK_TEXT];
    struct check_memory memory;
};

/* Before and after a case, whose buffers live in between; the end looks whether what lies around
 * them is as it was. */
void check_memory_begin(struct check *check);
void check_memory_end(struct check *check);

/* Before a call, and behind it: inputs must be what they were. */
void check_memory_hash(struct check *check);
void check_memory_compare(struct check *check);

/* With the memory sanitizer: fails where a kernel's bytes come from memory that nobody has written
 * and the reference's do not. */
void check_settle_same(struct check *check, const struct check_pair *pair);

void check_memory_deinit(struct check *check);

/* "3 bytes behind 'weights' of 64", for an address. */
void check_memory_place(const struct check *check, const void *address, char *text, size_t bytes);

#endif
