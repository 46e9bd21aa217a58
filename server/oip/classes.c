#include "server/oip/classes.h"

#include <stdio.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/memory/text.h"

enum {
    VALUE_BYTES_MAX = 48, /* -FLT_MAX has 47 characters */
    LENGTH_BYTES = 4,     /* of a string's length in binary answers */
    /* A value, an index, two colons, and quotes with a comma or a length. */
    FRAME_BYTES_MAX = VALUE_BYTES_MAX + QD_DECIMAL_BYTES_MAX + 2 + LENGTH_BYTES,
    STRING_BYTES_MAX = VALUE_BYTES_MAX + QD_DECIMAL_BYTES_MAX + 2 + QD_LABEL_BYTES_MAX + 1,
};

void qd_classes_init(struct qd_classes *classes, const struct qd_oip_asked *asked, size_t output,
                     const struct qk_tensor *tensor)
{
    const struct qd_signature *signature = asked->signature;
    const struct qd_port *port = &signature->outputs[output];
    const bool is_one = port->shaped && port->rank > 0 && port->dims[0] == 1;
    const size_t wanted = qd_classes_wanted(asked, output);
    *classes = (struct qd_classes){
        .tensor = tensor,
        .labels = port->labels,
        .is_batch = signature->batch_max > 0 ? tensor->rank > 0 : tensor->rank > 1 && !is_one,
        .is_binary = (asked->binary_outputs >> output & 1) != 0,
        .row_count = 1,
        .row_elements = 1,
    };
    uint32_t first = 0;
    if (classes->is_batch)
        classes->row_count = tensor->dims[first++];
    for (uint32_t i = first; i < tensor->rank; i++)
        if (__builtin_mul_overflow(classes->row_elements, tensor->dims[i], &classes->row_elements))
            classes->row_elements = SIZE_MAX; /* the batch is empty; qd_classes_check refuses it */
    classes->kept = wanted < classes->row_elements ? wanted : classes->row_elements;
}

enum qd_status qd_classes_check(const struct qd_oip_asked *asked, const struct qk_tensor *outputs,
                                size_t count, struct qd_error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct qd_classes classes;
        const uint32_t wanted = qd_classes_wanted(asked, i);
        if (wanted == 0)
            continue;
        const struct qd_shown name = qd_show_string(asked->signature->outputs[i].name);
        qd_classes_init(&classes, asked, i, &outputs[i]);
        if (outputs[i].type == QK_BOOL)
            return qd_fail(error, QD_INVALID,
                           "classification of %s: expected an output of numbers, got BOOL",
                           name.text);
        if (classes.row_elements > QD_CLASS_ROW_ELEMENTS_MAX)
            return qd_fail(error, QD_TOO_LARGE,
                           "classification of %s: expected at most %d elements%s, got %zu",
                           name.text, QD_CLASS_ROW_ELEMENTS_MAX,
                           classes.is_batch ? " for each item of the batch" : "",
                           classes.row_elements);
        if (classes.kept > QD_CLASS_COUNT_MAX)
            return qd_fail(error, QD_TOO_LARGE,
                           "classification of %s: expected at most %d classes, got %zu; the output "
                           "itself has all of them",
                           name.text, QD_CLASS_COUNT_MAX, classes.kept);
    }
    return QD_OK;
}

/* ---- The greatest elements ---------------------------------------------------------------- */

/* Returns a number that grows with the float: its bits, as a magnitude with a sign. */
static int64_t float_key(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const int64_t magnitude = bits & INT32_MAX;
    if (value != value)
        return INT64_MIN;
    return bits >> 31 != 0 ? -magnitude : magnitude;
}

static int64_t integer_of(const struct qk_tensor *tensor, size_t index)
{
    const struct qk_type_info *type = qk_type_info(tensor->type);
    if (tensor->type == QK_INT64) {
        int64_t value;
        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        return value;
    }
    const int64_t value = qk_element_load(tensor->type, tensor->data, index);
    return value > type->max ? value - (INT64_C(1) << type->bits) : value;
}

static float float_of(const struct qk_tensor *tensor, size_t index)
{
    if (tensor->type == QK_FP32) { /* nearly always, so without two calls */
        float value;
        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        return value;
    }
    return qk_float_decode(tensor->type, qk_element_load(tensor->type, tensor->data, index));
}

static bool is_float(const struct qk_tensor *tensor)
{
    return qk_type_info(tensor->type)->kind == QK_KIND_FLOAT;
}

static int64_t key_of(const struct qk_tensor *tensor, size_t index)
{
    return tensor->type == QK_FP32 || is_float(tensor) ? float_key(float_of(tensor, index))
                                                       : integer_of(tensor, index);
}

/* Returns whether `a` comes after `b` in the answer. */
static bool is_after(const struct qd_class *a, const struct qd_class *b)
{
    return a->key != b->key ? a->key < b->key : a->index > b->index;
}

/* Puts an element at the root of a heap in which each element comes after its children. */
static void sift(struct qd_class *heap, size_t count, struct qd_class element)
{
    size_t at = 0;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_after(&heap[child + 1], &heap[child]))
            child++;
        if (!is_after(&heap[child], &element))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = element;
}

void qd_classes_find(const struct qd_classes *classes, size_t row, struct qd_class *found)
{
    const size_t begin = row * classes->row_elements;
    if (classes->kept == 0)
        return;
    /* No element comes after these. */
    for (size_t i = 0; i < classes->kept; i++)
        found[i] = (struct qd_class){INT64_MIN, SIZE_MAX};
    for (size_t i = 0; i < classes->row_elements; i++) {
        const struct qd_class element = {key_of(classes->tensor, begin + i), i};
        if (is_after(&found[0], &element))
            sift(found, classes->kept, element);
    }
    for (size_t left = classes->kept; left > 1; left--) {
        const struct qd_class last = found[left - 1];
        found[left - 1] = found[0];
        sift(found, left - 1, last);
    }
}

/* ---- Strings ------------------------------------------------------------------------------ */

size_t qd_classes_bytes_max(const struct qd_classes *classes, const struct qd_class *found,
                            size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        qd_labels_find(classes->labels, found[i].index, &bytes);
        /* In JSON a quote, a backslash or a tab takes two bytes. */
        sum += FRAME_BYTES_MAX + 2 * bytes;
    }
    return sum;
}

/* Prints "VALUE:INDEX:LABEL" with a NUL behind it. Returns its length. */
static size_t print_string(const struct qd_classes *classes, size_t row,
                           const struct qd_class *found, char string[STRING_BYTES_MAX])
{
    const struct qk_tensor *tensor = classes->tensor;
    const size_t element = row * classes->row_elements + found->index;
    size_t label_bytes;
    const char *label = qd_labels_find(classes->labels, found->index, &label_bytes);
    const int bytes =
        is_float(tensor)
            ? snprintf(string, VALUE_BYTES_MAX, "%f", (double)float_of(tensor, element))
            : snprintf(string, VALUE_BYTES_MAX, "%lld", (long long)found->key);
    char *at = string + bytes;
    *at++ = ':';
    at = qd_print_decimal(found->index, at);
    if (label != NULL) {
        *at++ = ':';
        at = (char *)memcpy(at, label, label_bytes) + label_bytes;
    }
    *at = '\0';
    return (size_t)(at - string);
}

char *qd_classes_print(const struct qd_classes *classes, size_t row, const struct qd_class *found,
                       char *out)
{
    const bool is_last_row = row + 1 == classes->row_count;
    for (size_t i = 0; i < classes->kept; i++) {
        char string[STRING_BYTES_MAX];
        const size_t bytes = print_string(classes, row, &found[i], string);
        if (classes->is_binary) {
            for (size_t k = 0; k < LENGTH_BYTES; k++)
                *out++ = (char)(bytes >> (8 * k) & 0xff);
            out = (char *)memcpy(out, string, bytes) + bytes;
            continue;
        }
        struct qd_text text;
        struct qd_part part;
        qd_text_init_in(&text, &part, out, qd_classes_bytes_max(classes, &found[i], 1));
        qd_text_json_string(&text, string);
        out += part.count;
        if (!is_last_row || i + 1 < classes->kept)
            *out++ = ',';
    }
    return out;
}
