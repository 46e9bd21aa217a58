#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/memory/text.h"
#include "server/models/onnx/onnx_reader.h"

enum { LOCATION_DEFAULT = 0, LOCATION_EXTERNAL = 1 }; /* TensorProto.DataLocation */

/* ---- Types ------------------------------------------------------------------------------- */

enum qd_status qd_onnx_read_type(int32_t number, const char *where, enum qk_type *type,
                                 struct qd_error *error)
{
    static const char *const strangers[] = {
        [0] = " (UNDEFINED)", [8] = " (STRING)",     [11] = " (DOUBLE)",
        [13] = " (UINT64)",   [14] = " (COMPLEX64)", [15] = " (COMPLEX128)"};
    for (*type = QK_NONE + 1; *type < QK_TYPE_COUNT; ++*type)
        if (qk_type_info(*type)->onnx == number)
            return QD_OK;
    bool named = number >= 0 && number < (int32_t)(sizeof(strangers) / sizeof(strangers[0])) &&
                 strangers[number] != NULL;
    return qd_fail(error, QD_INVALID,
                   "%s: expected a TensorProto.DataType that quantd has, got %" PRId32 "%s", where,
                   number, named ? strangers[number] : "");
}

/* ---- Data -------------------------------------------------------------------------------- */

struct reader {
    const struct qd_onnx_reader *file;
    const Onnx__TensorProto *proto;
    const char *where;
    struct qk_tensor *tensor;
    size_t bytes; /* size of the tensor's data */
    struct qd_error *error;
};

static enum qd_status read_shape(struct reader *reader)
{
    const Onnx__TensorProto *proto = reader->proto;
    struct qk_tensor *tensor = reader->tensor;
    if (proto->n_dims > QK_RANK_MAX)
        return qd_fail(reader->error, QD_INVALID, "%s: dims: expected at most %d, got %zu",
                       reader->where, QK_RANK_MAX, proto->n_dims);
    tensor->rank = (uint32_t)proto->n_dims;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (proto->dims[i] < 0)
            return qd_fail(reader->error, QD_INVALID,
                           "%s: dims[%u]: expected at least 0, got %" PRId64, reader->where, i,
                           proto->dims[i]);
        tensor->dims[i] = (size_t)proto->dims[i];
    }
    if (!qk_tensor_set_count(tensor) || !qk_type_bytes(tensor->type, tensor->count, &reader->bytes))
        return qd_fail(reader->error, QD_INVALID, "%s: dims: their product overflows 64 bits",
                       reader->where);
    return QD_OK;
}

static enum qd_status expect_count(const struct reader *reader, const char *field, const char *unit,
                                   size_t expected, size_t count)
{
    const struct qk_tensor *tensor = reader->tensor;
    if (count == expected)
        return QD_OK;
    return qd_fail(reader->error, QD_INVALID,
                   "%s: %s: expected %zu %s for %zu elements of %s, got %zu", reader->where, field,
                   expected, unit, tensor->count, qk_type_info(tensor->type)->name, count);
}

/* Sets the range of an entry of int32_data or uint64_data. An integer entry is the integer itself.
 * A float's entry is its bits. For types smaller than a byte, an entry holds a whole byte. */
static void entry_range(enum qk_type type, int64_t *min, int64_t *max)
{
    const struct qk_type_info *info = qk_type_info(type);
    const unsigned bits = info->bits < 8 ? 8 : info->bits;
    const bool integer = info->kind != QK_KIND_FLOAT && info->bits >= 8;
    *min = integer ? info->min : info->bits < 8 ? INT8_MIN : 0;
    *max = integer ? info->max : (INT64_C(1) << bits) - 1;
}

static enum qd_status refuse_entry(const struct reader *reader, const char *field, size_t index,
                                   const char *got)
{
    int64_t min;
    int64_t max;
    entry_range(reader->tensor->type, &min, &max);
    return qd_fail(reader->error, QD_INVALID,
                   "%s: %s[%zu]: expected %" PRId64 " to %" PRId64 " for %s, got %s", reader->where,
                   field, index, min, max, qk_type_info(reader->tensor->type)->name, got);
}

/* Copies the lowest bytes of each number, which is little-endian, in the order of the file. */
static enum qd_status read_entries(const struct reader *reader, unsigned char *data)
{
    const Onnx__TensorProto *proto = reader->proto;
    const bool is_wide = reader->tensor->type == QK_UINT32;
    const size_t count = is_wide ? proto->n_uint64_data : proto->n_int32_data;
    const size_t entry_bytes = reader->bytes / count;
    int64_t min;
    int64_t max;
    char got[24];
    entry_range(reader->tensor->type, &min, &max);
    for (size_t i = 0; i < count; i++) {
        /* A number of 64 bits that is too large for max is negative here. */
        const int64_t entry = is_wide ? (int64_t)proto->uint64_data[i] : proto->int32_data[i];
        if (entry < min || entry > max) {
            snprintf(got, sizeof(got), is_wide ? "%" PRIu64 : "%" PRId64, entry);
            return refuse_entry(reader, is_wide ? "uint64_data" : "int32_data", i, got);
        }
        memcpy(data + i * entry_bytes, &entry, entry_bytes);
    }
    return QD_OK;
}

/* Reads the numbers in the type's own field: float_data, int64_data, uint64_data or int32_data. */
static enum qd_status read_numbers(const struct reader *reader)
{
    const Onnx__TensorProto *proto = reader->proto;
    struct qk_tensor *tensor = reader->tensor;
    const unsigned bits = qk_type_info(tensor->type)->bits;
    enum qd_status status;
    if (tensor->type == QK_FP32) {
        tensor->data = proto->float_data;
        return expect_count(reader, "float_data", "numbers", tensor->count, proto->n_float_data);
    }
    if (tensor->type == QK_INT64) {
        tensor->data = proto->int64_data;
        return expect_count(reader, "int64_data", "numbers", tensor->count, proto->n_int64_data);
    }
    if (tensor->type == QK_UINT32)
        status =
            expect_count(reader, "uint64_data", "numbers", tensor->count, proto->n_uint64_data);
    else
        status = expect_count(reader, "int32_data", "numbers",
                              bits < 8 ? reader->bytes : tensor->count, proto->n_int32_data);
    if (status != QD_OK || reader->bytes == 0)
        return status;
    if (tensor->type == QK_INT32) {
        tensor->data = proto->int32_data;
        return QD_OK;
    }
    unsigned char *data = qd_arena_alloc(reader->file->arena, reader->bytes);
    if (data == NULL)
        return qd_onnx_no_memory(reader->file);
    tensor->data = data;
    return read_entries(reader, data);
}

/* ---- External data ----------------------------------------------------------------------- */

struct external {
    const ProtobufCBinaryData *location;
    const ProtobufCBinaryData *offset;
    const ProtobufCBinaryData *length;
};

/* Finds the entries that matter. Other entries, such as a checksum, are ignored. */
static enum qd_status find_external(const struct reader *reader, struct external *external)
{
    *external = (struct external){.location = NULL};
    for (size_t i = 0; i < reader->proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = reader->proto->external_data[i];
        const ProtobufCBinaryData **place = qd_onnx_is(&entry->key, "location")
                                                ? &external->location
                                            : qd_onnx_is(&entry->key, "offset") ? &external->offset
                                            : qd_onnx_is(&entry->key, "length") ? &external->length
                                                                                : NULL;
        if (place == NULL)
            continue;
        if (*place != NULL)
            return qd_fail(reader->error, QD_INVALID,
                           "%s: external_data: expected each key once, got %s twice", reader->where,
                           qd_onnx_show(&entry->key).text);
        *place = &entry->value;
    }
    if (external->location == NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: external_data: expected a location, got none", reader->where);
    return QD_OK;
}

/* Reads the decimal number of an entry. *number is unchanged if there is no such entry. */
static enum qd_status read_decimal(const struct reader *reader, const char *key,
                                   const ProtobufCBinaryData *value, uint64_t *number)
{
    char text[24] = "";
    if (value == NULL)
        return QD_OK;
    if (value->len > 0 && value->len < sizeof(text))
        memcpy(text, value->data, value->len);
    if (strlen(text) == value->len && qd_read_decimal(text, number))
        return QD_OK;
    return qd_fail(reader->error, QD_INVALID, "%s: external_data: %s: expected bytes, got %s",
                   reader->where, key, qd_onnx_show(value).text);
}

static enum qd_status read_external(const struct reader *reader)
{
    struct external external;
    const char *location = NULL;
    uint64_t offset = 0;
    uint64_t length = reader->bytes;
    char where[256];
    snprintf(where, sizeof(where), "%s: external_data: location", reader->where);
    if (find_external(reader, &external) != QD_OK ||
        read_decimal(reader, "offset", external.offset, &offset) != QD_OK ||
        read_decimal(reader, "length", external.length, &length) != QD_OK ||
        qd_onnx_copy_string(external.location, where, reader->file->arena, &location,
                            reader->error) != QD_OK ||
        expect_count(reader, "external_data: length", "bytes", reader->bytes, length) != QD_OK)
        return reader->error->status;
    if (reader->file->only_lists)
        return QD_OK;
    if (reader->file->source->external == NULL)
        return qd_fail(reader->error, QD_INVALID,
                       "%s %s: expected all data in the file itself, for it has no folder", where,
                       qd_show_string(location).text);
    struct qd_error inner;
    const enum qd_status status =
        reader->file->source->external(reader->file->source->context, location, offset, length,
                                       reader->file->arena, &reader->tensor->data, &inner);
    return status == QD_OK ? QD_OK
                           : qd_fail(reader->error, status, "%s %s: %s", where,
                                     qd_show_string(location).text, inner.text);
}

/* ---- All of it --------------------------------------------------------------------------- */

/* Refuses bytes of BOOL other than 0 and 1. `field` has them. Kernels rely on 0 and 1. */
static enum qd_status check_bools(const struct reader *reader, const char *field)
{
    const unsigned char *bytes = reader->tensor->data;
    char got[16];
    for (size_t i = 0; reader->tensor->type == QK_BOOL && i < reader->bytes; i++) {
        if (bytes[i] <= 1)
            continue;
        snprintf(got, sizeof(got), "%u", bytes[i]);
        return refuse_entry(reader, field, i, got);
    }
    return QD_OK;
}

static enum qd_status read_data(const struct reader *reader)
{
    const Onnx__TensorProto *proto = reader->proto;
    const size_t numbers =
        proto->n_float_data + proto->n_int32_data + proto->n_int64_data + proto->n_uint64_data;
    enum qd_status status;
    if (proto->data_location == LOCATION_EXTERNAL) {
        if (proto->raw_data.len > 0 || numbers > 0)
            return qd_fail(reader->error, QD_INVALID,
                           "%s: expected no data beside external_data, got some", reader->where);
        return read_external(reader); /* its bytes may come later, so qk_prepare checks BOOL */
    }
    if (proto->data_location != LOCATION_DEFAULT)
        return qd_fail(reader->error, QD_INVALID,
                       "%s: data_location: expected 0 (DEFAULT) or 1 (EXTERNAL), got %" PRId32,
                       reader->where, proto->data_location);
    if (!proto->has_raw_data || (proto->raw_data.len == 0 && numbers > 0))
        return read_numbers(reader);
    if (numbers > 0)
        return qd_fail(reader->error, QD_INVALID, "%s: expected raw_data or numbers, got both",
                       reader->where);
    reader->tensor->data = proto->raw_data.data;
    status = expect_count(reader, "raw_data", "bytes", reader->bytes, proto->raw_data.len);
    return status == QD_OK ? check_bools(reader, "raw_data") : status;
}

enum qd_status qd_onnx_read_tensor(const struct qd_onnx_reader *file,
                                   const Onnx__TensorProto *proto, const char *where,
                                   struct qk_tensor *tensor)
{
    struct reader reader = {
        .file = file, .proto = proto, .where = where, .tensor = tensor, .error = file->error};
    char field[256];
    snprintf(field, sizeof(field), "%s: data_type", where);
    *tensor = (struct qk_tensor){.type = QK_NONE};
    if (proto->has_segment)
        return qd_fail(file->error, QD_INVALID,
                       "%s: segment: expected the whole tensor, got a part", where);
    if (qd_onnx_read_type(proto->data_type, field, &tensor->type, file->error) != QD_OK ||
        read_shape(&reader) != QD_OK || read_data(&reader) != QD_OK)
        return file->error->status;
    if (tensor->data == NULL)
        tensor->data = ""; /* of no elements */
    return QD_OK;
}
