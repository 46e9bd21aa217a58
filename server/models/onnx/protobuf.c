#include "server/models/onnx/protobuf.h"

enum { VARINT, FIXED64, LENGTH_PREFIXED, FIXED32 = 5 };
/* protobuf-c takes no longer tags and lengths. */
enum { VARINT_BYTES_MAX = 10, SHORT_VARINT_BYTES_MAX = 5 };

/* Reads a varint. Returns its number of bytes, or 0 if it does not end before `end` or within
 * `bytes_max` bytes. */
static size_t read_varint(const uint8_t *at, const uint8_t *end, size_t bytes_max, uint64_t *number)
{
    const size_t left = (size_t)(end - at);
    *number = 0;
    for (size_t i = 0; i < bytes_max && i < left; i++) {
        *number |= (uint64_t)(at[i] & 0x7f) << 7 * i;
        if (at[i] < 0x80)
            return i + 1;
    }
    return 0;
}

bool qd_protobuf_read(const uint8_t *at, const uint8_t *end, struct qd_protobuf_field *field)
{
    *field = (struct qd_protobuf_field){.begin = at};
    const size_t tag_bytes = read_varint(at, end, SHORT_VARINT_BYTES_MAX, &field->tag);
    const unsigned wire = field->tag & 7;
    uint64_t bytes = wire == FIXED64 ? 8 : 4;
    if (tag_bytes == 0 || field->tag >> 3 == 0 || field->tag > UINT32_MAX)
        return false;
    at += tag_bytes;
    if (wire == VARINT) {
        bytes = read_varint(at, end, VARINT_BYTES_MAX, &field->value);
    } else if (wire == LENGTH_PREFIXED) {
        field->length_bytes = read_varint(at, end, SHORT_VARINT_BYTES_MAX, &field->value);
        at += field->length_bytes;
        bytes = field->value;
    } else if (wire != FIXED64 && wire != FIXED32) {
        return false;
    }
    const size_t left = (size_t)(end - at);
    field->is_cut = bytes > left;
    field->data = at;
    field->end = at + (field->is_cut ? left : (size_t)bytes);
    return wire == LENGTH_PREFIXED ? field->length_bytes > 0 : bytes > 0 && !field->is_cut;
}
