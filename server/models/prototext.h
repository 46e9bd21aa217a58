/* Reads protobuf's text format, in which Triton's config.pbtxt is written, into the tree of a JSON
 * text (json/tree.h). Pure.
 *
 * No library of Debian reads the format in C: protobuf-c has no text format, and upb only prints
 * it. Only libprotobuf does, in C++ and with a generated schema.
 *
 * The reader has no schema. A message becomes an object, and so does each message that a field has.
 * A name such as TYPE_FP32 becomes a string, true and false become booleans, and numbers stay as
 * they are written. A field whose name is in `repeated`, or whose values are in brackets, becomes
 * an array. Another field that is there twice stays twice in the object. Refuses what Triton's
 * configurations do not need: octal and hexadecimal numbers, escapes in strings other than quotes
 * and backslashes, strings that continue, names in brackets, and deep nesting. */
#pragma once

#include <stddef.h>

#include "server/base/status.h"
#include "server/json/tree.h"
#include "server/memory/arena.h"

#define QD_PROTOTEXT_DEPTH_MAX 16     /* a configuration has 5 */
#define QD_PROTOTEXT_VALUES_MAX 65536 /* a configuration has some hundred */
#define QD_PROTOTEXT_REPEATED_MAX 8

/* Reads a message. The tree is in the arena, and points nowhere else. `repeated` ends with NULL. */
enum qd_status qd_prototext_read(const char *text, size_t bytes, const char *const *repeated,
                                 struct qd_arena *arena, const struct qd_json_value **tree,
                                 struct qd_error *error);
