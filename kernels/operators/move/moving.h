/* What the operators that only move elements share: the types they take, constants that are lists
 * of integers, and axes. Private to kernels/. */
#pragma once

#include "kernels/move/move.h"
#include "kernels/operators/operator.h"

/* A row of a descriptor's versions. The other arguments of QK_MOVING_VERSION are the inputs after
 * the first. */
#define QK_MOVING_VERSION(number, types, ...)      \
    {                                              \
        (number), {{(types), false}, __VA_ARGS__}, \
        {                                          \
            (types)                                \
        }                                          \
    }
#define QK_MOVING_VERSION_1(number, types) \
    {                                      \
        (number), {{(types), false}},      \
        {                                  \
            (types)                        \
        }                                  \
    }

/* An input that lists axes, sizes or positions, and that a call must have. */
#define QK_MOVING_INTEGERS      \
    {                           \
        QK_BIT(QK_INT64), false \
    }

/* The longest axis of an output for which a plan makes a table. A table has 8 bytes for each index,
 * is made before the output's own size is refused, and by one thread that cannot stop meanwhile:
 * one of this length takes some 20 ms. */
#define QK_MOVING_TABLE_MAX ((size_t)1 << 20)
#define QK_INDEX_TYPES (QK_BIT(QK_INT32) | QK_BIT(QK_INT64))

/* A list of integers that an attribute or an input gives: one for each axis, or fewer. */
struct qk_integers {
    bool present;
    size_t count;
    int64_t numbers[2 * QK_RANK_MAX]; /* Pad has two for each axis */
};

/* Allocates an operator's instance, filled with zeros. All its outputs have the type of input 0.
 * Returns NULL, with an error, if memory has run out. */
void *qk_moving_alloc(const struct qk_call *call, size_t bytes, struct qk_memory memory,
                      struct qk_error *error);

/* Reads a list of at most `most` integers, which are at most 2 * QK_RANK_MAX. An absent list is
 * empty. */
enum qk_status qk_read_attribute_list(const struct qk_call *call, size_t attribute, size_t most,
                                      struct qk_integers *list, struct qk_error *error);
enum qk_status qk_read_input_list(const struct qk_call *call, size_t input, size_t most,
                                  struct qk_integers *list, struct qk_error *error);

enum qk_status qk_read_list(const struct qk_tensor *given, const char *name, size_t most,
                            struct qk_integers *list, struct qk_error *error);

/* Returns whether one of these planned inputs, a mask, comes with each plan, so that prepare cannot
 * check it. */
bool qk_is_planned(const struct qk_call *call, uint32_t inputs);

/* Sets *axis to an axis of a tensor of this rank, which a call may also count back from the end. */
enum qk_status qk_find_axis(const char *name, int64_t number, uint32_t rank, uint32_t *axis,
                            struct qk_error *error);

/* Sets bit i of *axes if the list names axis i. Refuses an axis that the list names twice, unless
 * `repeats`. */
enum qk_status qk_find_axes(const char *name, const struct qk_integers *list, uint32_t rank,
                            bool repeats, uint32_t *axes, struct qk_error *error);
