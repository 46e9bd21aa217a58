/* Reads the fields of a protobuf message without knowing the message. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tag of field `number` if it has a length and bytes, as strings and messages do. */
#define QD_PROTOBUF_BYTES(number) ((number) << 3 | 2)

struct qd_protobuf_field {
    const uint8_t *begin; /* its tag */
    uint64_t tag;         /* the number of the field and its wire type */
    const uint8_t *data;  /* its bytes, or its number as the file has it */
    const uint8_t *end;
    uint64_t value;      /* the length of the bytes, the value of a varint, or 0 */
    size_t length_bytes; /* how many bytes the length before the data has; 0: it has a number */
    bool is_cut;         /* fewer bytes are left than its length says */
};

/* Reads the field at `at`, which is before `end`. Returns false if there is no valid field;
 * `*field` has no meaning then. */
bool qd_protobuf_read(const uint8_t *at, const uint8_t *end, struct qd_protobuf_field *field);
