/* Names of an output's classes, one on each line of a text: the first line is the name of class 0.
 * An empty line names no class. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/arena.h"

/* The size of the text. ImageNet's 21,841 classes with all their synonyms have 1 MB. */
#define QD_LABELS_BYTES_MAX (4u << 20)
/* The number of lines. Outputs with more elements in a row are not classified (classes.h). */
#define QD_LABELS_COUNT_MAX 1000000u
/* The length of a line. The longest of ImageNet's has 139 bytes. */
#define QD_LABEL_BYTES_MAX 512u

/* One block of memory: behind `begins` is a text, the labels, each with a NUL behind it. */
struct qd_labels {
    size_t count;
    uint32_t begins[]; /* of label i in the text; the last one is the text's end */
};

/* Reads a text into the arena. Lines end with LF or CR LF. A byte order mark is skipped. Refuses
 * what exceeds the bounds above, what is not UTF-8, and control characters other than tabs. The
 * error texts begin with `source`, such as "net/labels.txt". */
enum qd_status qd_labels_read(const char *text, size_t bytes, const char *source,
                              struct qd_arena *arena, const struct qd_labels **labels,
                              struct qd_error *error);

/* Copies labels into another arena. Returns NULL if the arena has no room. */
const struct qd_labels *qd_labels_copy(const struct qd_labels *labels, struct qd_arena *arena);

/* Returns the name of a class, and sets its length. Returns NULL if there is none. `labels` may be
 * NULL. */
const char *qd_labels_find(const struct qd_labels *labels, size_t index, size_t *bytes);
