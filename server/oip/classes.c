#include "server/oip/classes.h"

#include <stdio.h>
#include <string.h>

#include "server/json/tree.h"
#include "server/memory/text.h"

enum {
    VALUE_BYTES_MAX = 48,           /* -FLT_MAX has 47 characters */
    INTEGER_BYTES_MAX = 20,         /* as INT64_MIN has */
    INDEX_BYTES_MAX = 7,            /* of an element of QD_CLASS_ROW_ELEMENTS_MAX */
    LENGTH_BYTES = 4,               /* of a string's length in binary answers */
    FRAME_BYTES = 2 + LENGTH_BYTES, /* two colons, and a length, or quotes with a comma */
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

/* Floats keep their keys above this one. */
#define NAN_KEY ((int64_t)INT32_MIN)

/* Returns the key of a float with a sign bit: its magnitude's bits, with the sign. A greater
 * magnitude than `magnitude_max`, that of the greatest number or infinity, is NaN. */
static inline int64_t float_key(uint32_t code, uint32_t sign, uint32_t magnitude_max)
{
    const int64_t magnitude = code & (sign - 1);
    if (magnitude > magnitude_max)
        return NAN_KEY;
    return (code & sign) != 0 ? -magnitude : magnitude;
}

/* Like float_key, for the types in which minus zero stands for NaN. */
static inline int64_t fnuz_key(uint32_t code)
{
    return code == 0x80 ? NAN_KEY : float_key(code, 0x80, 0x7f);
}

/* Returns the bits of an element of 2 or 4 bits. */
static inline unsigned packed_code(const void *data, size_t index, unsigned bits)
{
    const unsigned per_byte = 8 / bits;
    const unsigned byte = ((const unsigned char *)data)[index / per_byte];
    return byte >> index % per_byte * bits & ((1U << bits) - 1);
}

static inline int64_t signed_key(unsigned code, int64_t sign)
{
    return ((int64_t)code ^ sign) - sign;
}

/* One loop for each type: looking at the type for each element takes ten times as long. */
#define LOAD_EACH(element, key)                                  \
    for (size_t i = 0; i < count; i++) {                         \
        element value;                                           \
        memcpy(&value, from + i * sizeof(value), sizeof(value)); \
        keys[i] = (key);                                         \
    }                                                            \
    break

#define LOAD_EACH_PACKED(bits, key)                                       \
    for (size_t i = 0; i < count; i++) {                                  \
        const unsigned code = packed_code(tensor->data, begin + i, bits); \
        keys[i] = (key);                                                  \
    }                                                                     \
    break

/* Loads the keys of elements [begin, begin + count). */
static void load_keys(const struct qk_tensor *tensor, size_t begin, size_t count, int64_t *keys)
{
    const size_t whole_bytes = qk_type_info(tensor->type)->bits / 8;
    const char *from = (const char *)tensor->data + begin * whole_bytes;
    switch (tensor->type) {
    case QK_INT8:
        LOAD_EACH(int8_t, value);
    case QK_UINT16:
        LOAD_EACH(uint16_t, value);
    case QK_INT16:
        LOAD_EACH(int16_t, value);
    case QK_UINT32:
        LOAD_EACH(uint32_t, value);
    case QK_INT32:
        LOAD_EACH(int32_t, value);
    case QK_INT64:
        LOAD_EACH(int64_t, value);
    case QK_FP16:
        LOAD_EACH(uint16_t, float_key(value, 0x8000, 0x7c00));
    case QK_BF16:
        LOAD_EACH(uint16_t, float_key(value, 0x8000, 0x7f80));
    case QK_FP32:
        LOAD_EACH(uint32_t, float_key(value, 0x80000000, 0x7f800000));
    case QK_FP8E4M3FN:
        LOAD_EACH(uint8_t, float_key(value, 0x80, 0x7e));
    case QK_FP8E5M2:
        LOAD_EACH(uint8_t, float_key(value, 0x80, 0x7c));
    case QK_FP8E4M3FNUZ:
    case QK_FP8E5M2FNUZ:
        LOAD_EACH(uint8_t, fnuz_key(value));
    case QK_FP8E8M0: /* has no sign; 0xff is NaN */
        LOAD_EACH(uint8_t, float_key(value, 0x100, 0xfe));
    case QK_UINT4:
        LOAD_EACH_PACKED(4, code);
    case QK_INT4:
        LOAD_EACH_PACKED(4, signed_key(code, 8));
    case QK_UINT2:
        LOAD_EACH_PACKED(2, code);
    case QK_INT2:
        LOAD_EACH_PACKED(2, signed_key(code, 2));
    case QK_FP4E2M1:
        LOAD_EACH_PACKED(4, float_key(code, 8, 7));
    default: /* UINT8; qd_classes_check refuses BOOL */
        LOAD_EACH(uint8_t, value);
    }
}

/* Returns whether `a` comes after `b` in the answer. */
static bool is_after(const struct qd_class *a, const struct qd_class *b)
{
    return a->key != b->key ? a->key < b->key : a->index > b->index;
}

/* Puts an element at place `at` of a heap in which each element comes after its children, and then
 * below those children that come after it. */
static void sift(struct qd_class *heap, size_t count, size_t at, struct qd_class element)
{
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_after(&heap[child + 1], &heap[child]))
            child++;
        if (!is_after(&heap[child], &element))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = element;
}

enum {
    BLOCK_ELEMENTS = 1024, /* their keys, 8 KiB, are on the stack and stay in the L1 cache */
    BLOCK_COUNT_MAX = QD_CLASS_ROW_ELEMENTS_MAX / BLOCK_ELEMENTS + 1,
};

/* Shuffles the numbers of blocks, by a rule that begins with the address of the row. A client
 * cannot know the address. */
static void shuffle_blocks(uintptr_t address, size_t count, uint16_t order[BLOCK_COUNT_MAX])
{
    uint64_t state = address;
    for (size_t i = 0; i < count; i++) {
        state = (state + 1) * UINT64_C(6364136223846793005);
        const size_t at = (state >> 33) % (i + 1);
        order[i] = (uint16_t)i;
        order[i] = order[at];
        order[at] = (uint16_t)i;
    }
}

/* Keeps the greatest elements so far in a heap, which is fast if few elements enter the heap. In an
 * ascending row all elements would enter it, so blocks are looked at in a random order, in which
 * few do, however the elements are arranged. */
void qd_classes_find(const struct qd_classes *classes, size_t row, struct qd_class *found)
{
    const size_t begin = row * classes->row_elements;
    const size_t block_count =
        (classes->row_elements + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS; /* at most BLOCK_COUNT_MAX */
    uint16_t order[BLOCK_COUNT_MAX];
    if (classes->kept == 0)
        return;
    shuffle_blocks((uintptr_t)classes->tensor->data + begin, block_count, order);
    /* No element comes after these. */
    for (size_t i = 0; i < classes->kept; i++)
        found[i] = (struct qd_class){INT64_MIN, SIZE_MAX};
    for (size_t block = 0; block < block_count; block++) {
        const size_t from = (size_t)order[block] * BLOCK_ELEMENTS;
        const size_t left = classes->row_elements - from;
        const size_t count = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        int64_t keys[BLOCK_ELEMENTS];
        load_keys(classes->tensor, begin + from, count, keys);
        for (size_t i = 0; i < count; i++) {
            const struct qd_class element = {keys[i], from + i};
            if (keys[i] >= found[0].key && is_after(&found[0], &element))
                sift(found, classes->kept, 0, element);
        }
    }
    for (size_t left = classes->kept; left > 1; left--) {
        const struct qd_class last = found[left - 1];
        found[left - 1] = found[0];
        sift(found, left - 1, 0, last);
    }
}

/* ---- Strings ------------------------------------------------------------------------------ */

static float float_of(const struct qk_tensor *tensor, size_t index)
{
    return qk_float_decode(tensor->type, qk_element_load(tensor->type, tensor->data, index));
}

static bool is_float(const struct qk_tensor *tensor)
{
    return qk_type_info(tensor->type)->kind == QK_KIND_FLOAT;
}

/* Returns an upper bound for the bytes of one string. */
static size_t string_bytes_max(const struct qd_classes *classes, const struct qd_class *found)
{
    const size_t value_bytes = is_float(classes->tensor) ? VALUE_BYTES_MAX : INTEGER_BYTES_MAX;
    size_t bytes = 0, escapes = 0;
    const char *label = qd_labels_find(classes->labels, found->index, &bytes);
    /* In JSON a quote, a backslash or a tab takes two bytes. Other control characters are refused.
     */
    for (size_t i = 0; i < bytes && !classes->is_binary; i++)
        escapes += label[i] == '"' || label[i] == '\\' || label[i] == '\t';
    return FRAME_BYTES + value_bytes + INDEX_BYTES_MAX + bytes + escapes;
}

size_t qd_classes_bytes_max(const struct qd_classes *classes, const struct qd_class *found)
{
    size_t sum = 0;
    for (size_t i = 0; i < classes->kept; i++)
        sum += string_bytes_max(classes, &found[i]);
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
        qd_text_init_in(&text, out, string_bytes_max(classes, &found[i]));
        qd_text_json_string(&text, string);
        out += text.bytes;
        if (!is_last_row || i + 1 < classes->kept)
            *out++ = ',';
    }
    return out;
}
