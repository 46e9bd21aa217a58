/* Reads a JSON text once, strictly (RFC 8259: one value, UTF-8, strict numbers), into a tree in an
 * arena, in steps that may be hours apart.
 *
 * The value of each inputs[i].data is not looked into, so that a tensor's elements make no nodes:
 * it is found by its brackets and quotes, and becomes a QD_JSON_DATA with marks, from which its
 * numbers can be converted on several threads (tensor.h). So are the members of the top-level
 * parameters whose names begin with "file:", a load call's files. Who converts data judges it.
 *
 * QD_ENVELOPE_BYTES_MAX and QD_ENVELOPE_DEPTH_MAX (limits.h) bound the rest. Errors name the byte
 * offset. Pure. */
#ifndef SERVER_JSON_READER_H
#define SERVER_JSON_READER_H

#include "server/base/limits.h"
#include "server/base/status.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"

/* JSON that one step reads, and data from one mark to the next. On a Zen 4 EPYC a step takes 8 us
 * where it is all flat numbers, 80 where each is nested, 150 where it is all envelope. */
#define QD_JSON_PIECE_BYTES (64u << 10)

/* An array or an object of which more comes. */
struct qd_json_open {
    const struct qd_json_value **link; /* to its next value */
    char close;                        /* ']' or '}' */
};

/* All but `root` and `marks` is the reader's own. */
struct qd_json_reader {
    const struct qd_json_value *root;
    struct qd_json_mark *marks; /* may move in each step */
    struct qd_arena *arena;
    struct qd_error *error;
    const char *begin;
    const char *at;
    const char *end;
    const char *step_end; /* the step does not go far beyond it */
    const char *pause;    /* nor beyond this: the same, or where the envelope is too large */
    const char *token;    /* the first byte of the string or data that is being read */
    size_t piece_bytes;
    size_t data_bytes; /* of all data so far */
    unsigned state;
    bool in_inputs;     /* the value of the top-level key "inputs" is open, or comes next */
    bool in_parameters; /* likewise of "parameters" */
    const char *key;    /* of the value that comes next */
    struct qd_json_open *top;
    struct qd_json_open stack[QD_ENVELOPE_DEPTH_MAX + 1]; /* the first one is the text */
    char *room;                                           /* in the arena, for nodes and strings */
    char *room_end;
    /* In data. */
    size_t brackets; /* open */
    bool in_string;
    const char *string; /* its first byte, when in_string */
    size_t commas;
    const char *marked; /* the last mark, or the data's begin */
    size_t mark_first;
    size_t mark_count; /* of all data */
    size_t mark_capacity;
};

/* Borrows all. piece_bytes: QD_JSON_PIECE_BYTES, but for tests. */
void qd_json_reader_init(struct qd_json_reader *reader, const char *json, size_t bytes,
                         size_t piece_bytes, struct qd_arena *arena, struct qd_error *error);

/* Reads on for a piece. *done: the text has ended, and root is its tree. */
enum qd_status qd_json_reader_step(struct qd_json_reader *reader, bool *done);

/* All at once. */
enum qd_status qd_json_read(const char *json, size_t bytes, struct qd_arena *arena,
                            const struct qd_json_value **root, struct qd_error *error);

#endif
