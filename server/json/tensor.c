#include "server/json/tensor.h"

#include <stdio.h>
#include <string.h>

#include "server/json/element.h"

enum { BATCH = 64 }; /* integers that are read as 32 bits before they are stored with fewer */

struct reader {
    const char *at;
    const char *end;
    const char *stop; /* begin of the next piece, behind a comma; NULL: there is none */
    const struct qk_tensor *tensor;
    const struct qk_type_info *type;
    const char *field; /* NULL: the caller does not need an error's text */
    char *out;
    uint32_t depth; /* of the arrays that hold the elements */
    size_t index;   /* elements read so far */
    size_t run_end; /* the index at which the current array should end; the caller refuses more
                       elements */
    struct qd_error *error;
};

/* ---- Errors ------------------------------------------------------------------------------ */

enum {
    SHOWN_BYTES = 40,
    SHAPE_BYTES = 96, /* QK_RANK_MAX dims whose product fits 64 bits take at most 84 bytes, because
                         each further digit multiplies the product by ten */
};

/* Measures the value at `at` as it is written, for an error text. Returns how many bytes to show.
 * Sets *more to "..." if the value is longer, otherwise to "". */
static int shown_bytes(const struct reader *reader, const char **more)
{
    const bool far = reader->end - reader->at > SHOWN_BYTES;
    const char *limit = far ? reader->at + SHOWN_BYTES + 1 : reader->end;
    const char *end = reader->at;
    if (end < limit && *end == '"') {
        for (end++; end < limit && *end != '"'; end++)
            end += *end == '\\' && end + 1 < limit;
        end += end < limit;
    } else {
        while (!qd_json_element_ends(end, limit))
            end++;
        end += end == reader->at && end < limit; /* a comma, a bracket */
    }
    *more = end - reader->at > SHOWN_BYTES ? "..." : "";
    return (int)(end - reader->at > SHOWN_BYTES ? SHOWN_BYTES : end - reader->at);
}

/* Refuses an entry that is nested less or more than the others. */
static enum qd_status refuse_depth(const struct reader *reader, const char *where, size_t got)
{
    const struct qk_tensor *tensor = reader->tensor;
    const bool is_flat = reader->depth == 1 && tensor->rank > 1 && tensor->dims[0] != 0;
    char shape[SHAPE_BYTES] = "";
    char found[64] = "an object";
    if (reader->field == NULL)
        return QD_INVALID;
    if (reader->at == reader->end || *reader->at != '{')
        snprintf(found, sizeof(found), "%s %zu deep", got > reader->depth ? "brackets" : "one",
                 got);
    if (!is_flat)
        qd_print_integers((const int64_t *)tensor->dims, tensor->rank, shape, sizeof(shape));
    return qd_fail(reader->error, QD_INVALID, "%s: %s: expected elements %u deep%s%s, got %s",
                   reader->field, where, reader->depth, is_flat ? ", as before" : " for shape ",
                   shape, found);
}

static enum qd_status refuse_element(const struct reader *reader)
{
    if (reader->field == NULL)
        return QD_INVALID;
    const struct qk_type_info *type = reader->type;
    size_t depth = reader->depth;
    for (const char *at = reader->at; at < reader->end && strchr("[ \t\r\n", *at); at++)
        depth += *at == '[';
    if (depth > reader->depth) {
        char where[40];
        snprintf(where, sizeof(where), "element %zu", reader->index);
        return refuse_depth(reader, where, depth);
    }
    char wanted[120];
    if (type->kind == QK_KIND_FLOAT)
        qd_json_float_expected(reader->tensor->type, reader->at, reader->end, wanted,
                               sizeof(wanted));
    else if (reader->tensor->type == QK_BOOL)
        snprintf(wanted, sizeof(wanted), "true, false, 1 or 0 (BOOL)");
    else
        snprintf(wanted, sizeof(wanted), "an integer in [%lld, %lld] (%s)", (long long)type->min,
                 (long long)type->max, type->name);
    const bool after_comma = reader->at < reader->end && *reader->at == ']';
    const char *more;
    int shown = shown_bytes(reader, &more);
    return qd_fail(reader->error, QD_INVALID, "%s: element %zu: expected %s%s, got %.*s%s",
                   reader->field, reader->index, wanted, after_comma ? " after the last comma" : "",
                   shown, reader->at, more);
}

static enum qd_status expected(const struct reader *reader, const char *what)
{
    if (reader->field == NULL)
        return QD_INVALID;
    const char *more;
    int shown = shown_bytes(reader, &more);
    char where[40] = "";
    if (reader->index > 0)
        snprintf(where, sizeof(where), " after element %zu", reader->index - 1);
    return qd_fail(reader->error, QD_INVALID, "%s: expected %s%s, got %.*s%s", reader->field, what,
                   where, shown, reader->at, more);
}

/* Returns true if `comma` is a comma, with ']' behind it. */
static bool has_trailing_comma(const struct reader *reader, const char *comma)
{
    if (comma == reader->end || *comma != ',')
        return false;
    do {
        comma++;
    } while (comma < reader->end && qd_json_is_space(*comma));
    return comma < reader->end && *comma == ']';
}

#define PLACE_BYTES (SHAPE_BYTES + sizeof("the array at index "))

/* Names the array at an index of `axis` numbers. */
static void print_place(const size_t *position, uint32_t axis, char *text)
{
    const size_t used = (size_t)snprintf(text, PLACE_BYTES,
                                         axis == 0 ? "the outermost array" : "the array at index ");
    if (axis > 0)
        qd_print_integers((const int64_t *)position, axis, text + used, PLACE_BYTES - used);
}

/* Refuses a comma before the closing bracket of an array. `position` is the index of the array in
 * the data, of `axis` numbers. */
static enum qd_status refuse_comma(const struct reader *reader, const size_t *position,
                                   uint32_t axis)
{
    if (reader->field == NULL)
        return QD_INVALID;
    char where[PLACE_BYTES];
    print_place(position, axis, where);
    return qd_fail(reader->error, QD_INVALID,
                   "%s: %s: expected an entry after the last comma, got ]", reader->field, where);
}

#define MORE SIZE_MAX /* more entries than expected, not counted */

/* Refuses an array of the wrong length. `position` is the index of the array in the data, or NULL
 * if the data is flat. `end` is the array's last comma or its bracket, as far as it was read. */
static enum qd_status refuse_count(const struct reader *reader, const size_t *position,
                                   uint32_t axis, size_t wanted, size_t got, const char *end)
{
    if (reader->field == NULL)
        return QD_INVALID;
    char shape[SHAPE_BYTES];
    qd_print_integers((const int64_t *)reader->tensor->dims, reader->tensor->rank, shape,
                      sizeof(shape));
    if (position == NULL) {
        return qd_fail(reader->error, QD_INVALID, "%s: expected %zu elements for shape %s, got %zu",
                       reader->field, wanted, shape, got);
    }
    if (has_trailing_comma(reader, end))
        return refuse_comma(reader, position, axis);
    char where[PLACE_BYTES];
    print_place(position, axis, where);
    char got_text[24] = "more";
    if (got != MORE)
        snprintf(got_text, sizeof(got_text), "%zu", got);
    return qd_fail(reader->error, QD_INVALID, "%s: %s: expected %zu entries for shape %s, got %s",
                   reader->field, where, wanted, shape, got_text);
}

/* ---- Elements ---------------------------------------------------------------------------- */

static inline void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && qd_json_is_space(*reader->at))
        reader->at++;
}

/* Stores an element of less than 8 bits. Elements are stored in order. The first element in a byte
 * sets the whole byte, so that the bits behind the last element are 0. */
static void store_part(char *out, size_t index, uint32_t value, unsigned bits)
{
    size_t place = index * bits % 8;
    uint32_t part = (value & ((UINT32_C(1) << bits) - 1)) << place;
    char *byte = out + index / (8 / bits);
    *byte = (char)(place == 0 ? part : part | (unsigned char)*byte);
}

/* Stores the low bits of each value. For integers in two's complement, these are the value in the
 * smaller type. The machine is little-endian, and so is the wire format. */
static inline void store(char *out, size_t index, const uint32_t *values, size_t count,
                         unsigned bits)
{
    switch (bits) {
    case 8:
        for (size_t i = 0; i < count; i++)
            out[index + i] = (char)values[i];
        break;
    case 16:
        for (size_t i = 0; i < count; i++)
            memcpy(out + (index + i) * 2, &values[i], 2);
        break;
    case 32:
        memcpy(out + index * 4, values, count * 4);
        break;
    default:
        for (size_t i = 0; i < count; i++)
            store_part(out, index + i, values[i], bits);
    }
}

/* Reads the bits of one element. Returns its end, or NULL if it is not an element of the type. */
static inline const char *read_bits(const struct reader *reader, uint64_t *bits)
{
    const enum qk_type type = reader->tensor->type;
    struct qd_json_number number;
    const char *end;
    int64_t integer = 0;
    uint32_t real = 0;
    bool flag = false;
    if (reader->type->kind == QK_KIND_FLOAT) {
        end = qd_json_float_read(type, reader->at, reader->end, &real);
        *bits = real;
        return end;
    }
    if (type == QK_BOOL) {
        end = qd_json_bool_read(reader->at, reader->end, &flag);
        *bits = flag;
        return end;
    }
    if (type == QK_INT64) {
        end = qd_json_int64_read(reader->at, reader->end, &integer);
    } else {
        end = qd_json_number_scan(reader->at, reader->end, &number);
        if (end == NULL || !qd_json_element_ends(end, reader->end) ||
            !qd_json_number_to_int64(&number, &integer) || integer < reader->type->min ||
            integer > reader->type->max)
            return NULL;
    }
    *bits = (uint64_t)integer;
    return end;
}

/* Reads one element, and stores it unless it is beyond the tensor's end. */
static inline enum qd_status read_element(struct reader *reader)
{
    uint64_t bits;
    const char *end = read_bits(reader, &bits);
    if (end == NULL)
        return refuse_element(reader);
    reader->at = end;
    if (reader->index < reader->tensor->count && reader->type->bits == 64)
        memcpy(reader->out + reader->index * sizeof(bits), &bits, sizeof(bits));
    else if (reader->index < reader->tensor->count)
        store(reader->out, reader->index, &(uint32_t){(uint32_t)bits}, 1, reader->type->bits);
    reader->index++;
    return QD_OK;
}

/* Reads at most BATCH integers. The caller reads the separator behind the last one. */
static size_t read_integers(struct reader *reader, const char *end, size_t count)
{
    const struct qk_type_info *type = reader->type;
    uint32_t values[BATCH];
    const size_t read = qd_json_integers_read(&reader->at, end, type->min, type->max, values,
                                              count < BATCH ? count : BATCH);
    store(reader->out, reader->index, values, read, type->bits);
    return read;
}

/* Reads ordinary elements until one is unusual, and returns how many it read. read_element reads or
 * refuses the next one. */
static size_t read_row(struct reader *reader)
{
    const char *end = reader->stop != NULL ? reader->stop : reader->end;
    const size_t count = reader->tensor->count;
    const size_t index_end = reader->run_end < count ? reader->run_end : count;
    if (reader->index >= index_end)
        return 0;
    if (reader->tensor->type == QK_INT64)
        return qd_json_int64s_read(&reader->at, end, (int64_t *)reader->out + reader->index,
                                   index_end - reader->index);
    if (reader->type->kind != QK_KIND_FLOAT)
        return read_integers(reader, end, index_end - reader->index);
    return reader->tensor->type != QK_FP32
               ? 0
               : qd_json_floats_read(&reader->at, end, (float *)reader->out + reader->index,
                                     index_end - reader->index);
}

/* ---- Arrays ------------------------------------------------------------------------------ */

/* Returns, behind a comma, whether the piece ends there, or the array already has all its elements.
 */
static inline bool stops(const struct reader *reader)
{
    return reader->at == reader->stop ||
           (reader->index >= reader->run_end && reader->at[-1] == ',');
}

/* Reads elements, at least one. Ends behind the closing bracket, or behind a comma at which stops()
 * is true. */
static enum qd_status read_run(struct reader *reader)
{
    do {
        const size_t count = read_row(reader);
        reader->index += count;
        if (count == 0) {
            skip_space(reader);
            enum qd_status status = read_element(reader);
            if (status != QD_OK)
                return status;
        }
        skip_space(reader);
        if (reader->at == reader->end || (*reader->at != ',' && *reader->at != ']'))
            return expected(reader, "',' or ']'");
    } while (*reader->at++ == ',' && !stops(reader));
    return QD_OK;
}

/* Like read_run, for an array that may be empty. The opening bracket has been read. */
static enum qd_status read_array(struct reader *reader)
{
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != ']')
        return read_run(reader);
    reader->at++;
    return QD_OK;
}

static enum qd_status read_flat(struct reader *reader, size_t commas)
{
    reader->index = commas;
    reader->run_end = SIZE_MAX; /* surplus elements are counted too, for the error text */
    enum qd_status status = commas == 0 ? read_array(reader) : read_run(reader);
    const size_t wanted = reader->tensor->count;
    if (status == QD_OK && reader->at != reader->stop && reader->index != wanted)
        return refuse_count(reader, NULL, 0, wanted, reader->index, NULL);
    return status;
}

/* Moves from the end of an entry to the next entry. The entry is in the array at *axis - 1. If that
 * array ends, leaves it and all outer arrays that end with it. *axis is the number of open arrays.
 */
static enum qd_status next_entry(struct reader *reader, size_t *position, uint32_t *axis)
{
    const size_t *dims = reader->tensor->dims;
    while (*axis > 0) {
        size_t *at = &position[*axis - 1];
        skip_space(reader);
        char byte = reader->at < reader->end ? *reader->at : '\0';
        if (byte != ',' && byte != ']')
            return expected(reader, "',' or ']'");
        size_t got = *at + 1;
        size_t wanted = dims[*axis - 1];
        if ((byte == ',') != (got < wanted))
            return refuse_count(reader, position, *axis - 1, wanted, byte == ',' ? MORE : got,
                                reader->at);
        reader->at++;
        if (byte == ',') {
            ++*at;
            return QD_OK;
        }
        --*axis;
    }
    return QD_OK;
}

/* Opens the arrays from *axis to the leaf. */
static enum qd_status open_arrays(struct reader *reader, size_t *position, uint32_t axis,
                                  uint32_t leaf)
{
    for (; axis <= leaf; axis++) {
        skip_space(reader);
        const char byte = reader->at < reader->end ? *reader->at : '\0';
        if (byte == ']' && axis > 0 && position[axis - 1] > 0)
            return refuse_comma(reader, position, axis - 1);
        if (byte == ']' && axis > 0)
            return refuse_count(reader, position, axis - 1, reader->tensor->dims[axis - 1], 0,
                                reader->at);
        if (byte != '[') {
            char where[SHAPE_BYTES + sizeof("index ")] = "index ";
            qd_print_integers((const int64_t *)position, axis, strchr(where, '\0'), SHAPE_BYTES);
            return refuse_depth(reader, where, axis);
        }
        reader->at++;
        position[axis] = 0;
    }
    return QD_OK;
}

/* Sets `position` to the index of the element, or of the array without elements, that follows the
 * first `commas` commas of the data. Returns how many arrays are open before it. */
static uint32_t find_place(const struct qk_tensor *tensor, uint32_t leaf, size_t commas,
                           size_t *position)
{
    uint32_t open = leaf + 1;
    bool at_begin = true;
    for (uint32_t axis = leaf + 1; axis-- > 0;) {
        const size_t size = tensor->dims[axis] == 0 ? 1 : tensor->dims[axis];
        position[axis] = axis == 0 ? commas : commas % size;
        commas /= size;
        at_begin = at_begin && axis > 0 && position[axis] == 0;
        open -= at_begin;
    }
    return open;
}

/* Counts the entries of an array that has the wrong number of them, of which `count` have been
 * read. Returns MORE if the array does not end soon. Sets *last to the array's last comma or its
 * bracket. */
static size_t count_entries(const struct reader *reader, size_t count, const char **last)
{
    enum { FAR_BYTES = 64 << 10 };
    const char *at = reader->at;
    const char *end = reader->end - at > FAR_BYTES ? at + FAR_BYTES : reader->end;
    *last = at - 1;
    if (**last == ']')
        return count;
    for (count++; at < end && strchr("[]{}\"", *at) == NULL; at++) {
        if (*at == ',') {
            count++;
            *last = at;
        }
    }
    return at < end && *at == ']' ? count : MORE;
}

/* Reads a piece of nested data. Either `commas` is 0 and the outermost opening bracket has been
 * read, or the earlier pieces have this many commas. Arrays without entries end the nesting early:
 * the shape [2,0,3] is written [[],[]]. */
static enum qd_status read_nested(struct reader *reader, size_t commas)
{
    const struct qk_tensor *tensor = reader->tensor;
    size_t position[QK_RANK_MAX] = {0};
    uint32_t leaf = 0;
    while (leaf + 1 < tensor->rank && tensor->dims[leaf] != 0)
        leaf++;
    const size_t wanted = tensor->dims[leaf];
    reader->depth = leaf + 1;
    uint32_t axis = commas == 0 ? 1 : find_place(tensor, leaf, commas, position);
    reader->index = wanted == 0 ? 0 : commas;
    do {
        const bool is_inside = axis > leaf; /* the previous piece ended inside an innermost array */
        enum qd_status status = open_arrays(reader, position, axis, leaf);
        if (status != QD_OK)
            return status;
        const size_t begin = reader->index - position[leaf];
        reader->run_end = begin + wanted;
        status = is_inside ? read_run(reader) : read_array(reader);
        if (status != QD_OK)
            return status;
        const bool goes_on = reader->at[-1] == ',';
        if (goes_on ? reader->index >= reader->run_end : reader->index != reader->run_end) {
            const char *last;
            const size_t got = count_entries(reader, reader->index - begin, &last);
            return refuse_count(reader, position, leaf, wanted, got, last);
        }
        if (goes_on)
            return QD_OK;
        axis = leaf;
        status = next_entry(reader, position, &axis);
        if (status != QD_OK || reader->at == reader->stop)
            return status;
    } while (axis > 0);
    return QD_OK;
}

bool qd_json_row_read(const struct qd_json_value *data, const struct qk_tensor *tensor, void *out)
{
    struct reader reader = {.at = data->text,
                            .end = data->text + data->bytes,
                            .tensor = tensor,
                            .type = qk_type_info(tensor->type),
                            .out = out,
                            .run_end = BATCH};
    const size_t count = tensor->count;
    if (count > BATCH || data->data->commas + 1 != count || reader.at == reader.end ||
        *reader.at++ != '[')
        return false;
    return read_row(&reader) == count && reader.at + 1 == reader.end;
}

void qd_json_numbers_init(struct qd_json_numbers *numbers, const struct qd_json_value *data,
                          const struct qd_json_mark *marks, const struct qk_tensor *tensor)
{
    const char *end = data->text + data->bytes;
    const size_t mark_count = data->data->mark_count;
    *numbers =
        (struct qd_json_numbers){.begin = data->text,
                                 .end = end,
                                 .marks = mark_count == 0 ? NULL : marks + data->data->mark_first,
                                 .mark_count = mark_count,
                                 .tensor = tensor};
    if (tensor->rank > 1 && data->bytes > 0 && *data->text == '[') {
        const char *at = data->text + 1;
        while (at < end && qd_json_is_space(*at))
            at++;
        numbers->is_nested = at < end && *at == '[';
    }
}

enum qd_status qd_json_numbers_read(const struct qd_json_numbers *numbers, size_t piece,
                                    const char *field, struct qd_error *error)
{
    const struct qk_tensor *tensor = numbers->tensor;
    const bool is_last = piece == numbers->mark_count;
    const struct qd_json_mark begin =
        piece == 0 ? (struct qd_json_mark){numbers->begin, 0} : numbers->marks[piece - 1];
    struct reader reader = {.at = begin.at,
                            .end = numbers->end,
                            .stop = is_last ? NULL : numbers->marks[piece].at,
                            .tensor = tensor,
                            .type = qk_type_info(tensor->type),
                            .field = field,
                            .depth = 1,
                            .out = numbers->out,
                            .error = error};
    enum qd_status status;
    if (piece == 0 && (reader.at == reader.end || *reader.at != '[')) {
        status = tensor->rank == 0 ? read_element(&reader) : expected(&reader, "an array");
    } else {
        reader.at += piece == 0;
        if (piece == 0 && numbers->is_nested)
            skip_space(&reader);
        status = numbers->is_nested ? read_nested(&reader, begin.commas)
                                    : read_flat(&reader, begin.commas);
    }
    /* If an earlier piece has an array too many, for which that piece is refused, the data of this
     * piece seems to end early. */
    if (status == QD_OK && reader.at != (is_last ? reader.end : reader.stop))
        return expected(&reader, "the end of the data");
    return status;
}
