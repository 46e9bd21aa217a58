/* Reads a JSON text once, strictly (RFC 8259: one value, UTF-8, strict numbers), into a tree in an
 * arena. It reads in steps, and any time may pass between two steps.
 *
 * The reader does not parse the value of inputs[i].data, so the elements of tensors do not become
 * nodes of the tree. It only finds the value's end by brackets and quotes. The value becomes a
 * QD_JSON_DATA with marks, at which several threads can begin to convert its numbers (tensor.h).
 * The reader treats the files of a load call in the same way: these are the members of the
 * top-level parameters whose names begin with "file:". Errors inside data are found when the data
 * is converted.
 *
 * QD_ENVELOPE_BYTES_MAX and QD_ENVELOPE_DEPTH_MAX (limits.h) bound everything else. Errors name the
 * byte offset. Pure. */
#pragma once

#include "server/base/limits.h"
#include "server/base/status.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"

/* How many bytes a step reads, and the distance of two marks in data. On a Zen 4 EPYC a step takes
 * 8 us if all of it is flat numbers, 80 us if each number is nested, and 150 us if it has no data.
 */
#define QD_JSON_PIECE_BYTES (64u << 10)

/* An array or an object that is not closed yet. */
struct qd_json_open {
    const struct qd_json_value **link; /* where to store its next value */
    char close;                        /* ']' or '}' */
};

/* `root` and `marks` are the result. All other members are private. */
struct qd_json_reader {
    const struct qd_json_value *root;
    struct qd_json_mark *marks; /* may be reallocated by each step */
    struct qd_arena *arena;
    struct qd_error *error;
    const char *begin;
    const char *at;
    const char *end;
    const char *step_end; /* the step ends not far beyond this */
    const char *pause; /* step_end, or the point at which the JSON without data would be too large,
                          if that comes first */
    const char *token; /* the first byte of the current string or data */
    size_t piece_bytes;
    size_t data_bytes; /* the bytes of all data so far */
    unsigned state;
    bool in_inputs;           /* the value of the top-level key "inputs" is open or comes next */
    bool in_parameters;       /* the same for "parameters" */
    const char *key;          /* the key of the next value */
    struct qd_json_open *top; /* the innermost entry of the stack */
    struct qd_json_open stack[QD_ENVELOPE_DEPTH_MAX + 1]; /* the first entry is the whole text */
    char *room; /* memory in the arena for nodes and strings */
    char *room_end;
    /* The state inside data. */
    size_t brackets; /* how many are open */
    bool in_string;
    const char *string; /* its first byte, if in_string */
    size_t commas;
    const char *marked; /* the last mark, or the begin of the data */
    size_t mark_first;  /* the index of the first mark of the current data */
    size_t mark_count;  /* the marks of all data */
    size_t mark_capacity;
};

/* Borrows all arguments. piece_bytes is QD_JSON_PIECE_BYTES except in tests. */
void qd_json_reader_init(struct qd_json_reader *reader, const char *json, size_t bytes,
                         size_t piece_bytes, struct qd_arena *arena, struct qd_error *error);

/* Reads the next piece. Sets *done when the text has ended and `root` is complete. */
enum qd_status qd_json_reader_step(struct qd_json_reader *reader, bool *done);

/* Reads a whole text in one call. */
enum qd_status qd_json_read(const char *json, size_t bytes, struct qd_arena *arena,
                            const struct qd_json_value **root, struct qd_error *error);
