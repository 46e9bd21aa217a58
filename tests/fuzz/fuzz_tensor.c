/* Fuzzes the conversion of numbers between JSON and tensors. A printed tensor must read back to the
 * same bits, and a tensor that was read must print to a text that reads the same. run.sh builds and
 * runs this target.
 *
 * An input is a byte with the type, and a byte with the number of columns and, in its upper half,
 * the length of the pieces in which JSON is read. Then comes JSON if bit 7 of the first byte is
 * set, otherwise a tensor's bytes. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/reader.h"
#include "server/json/tensor.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum { MEMORY_BYTES = 64 << 20 };

static bool is_nan(enum qk_type type, uint32_t bits)
{
    return qk_type_info(type)->kind == QK_KIND_FLOAT && isnan(qk_float_decode(type, bits));
}

static bool is_same(enum qk_type type, const char *a, const char *b, size_t index)
{
    if (type == QK_INT64)
        return memcmp(a + index * 8, b + index * 8, 8) == 0;
    const uint32_t a_bits = qk_element_load(type, a, index);
    const uint32_t b_bits = qk_element_load(type, b, index);
    return a_bits == b_bits || (is_nan(type, a_bits) && is_nan(type, b_bits));
}

/* Returns inputs[0].data of a request with this text as its data, or NULL if the request is refused
 * or has no such data. */
static const struct qd_json_value *find_data(struct qd_json_reader *reader, const char *text,
                                             size_t bytes)
{
    static const char before[] = "{\"inputs\":[{\"data\":", after[] = "}]}";
    struct qd_error *error = reader->error;
    char *whole = qd_arena_alloc(reader->arena, bytes + sizeof(before) + sizeof(after));
    bool done = false;
    if (whole == NULL)
        return NULL;
    memcpy(whole, before, sizeof(before) - 1);
    memcpy(whole + sizeof(before) - 1, text, bytes);
    memcpy(whole + sizeof(before) - 1 + bytes, after, sizeof(after) - 1);
    qd_json_reader_init(reader, whole, sizeof(before) - 1 + bytes + sizeof(after) - 1,
                        reader->piece_bytes, reader->arena, error);
    while (!done)
        if (qd_json_reader_step(reader, &done) != QD_OK)
            return NULL;
    const struct qd_json_value *inputs = reader->root->first;
    if (inputs == NULL || inputs->next != NULL || inputs->first == NULL ||
        inputs->first->first == NULL || inputs->first->first->next != NULL)
        return NULL;
    return inputs->first->first->kind == QD_JSON_DATA ? inputs->first->first : NULL;
}

/* Reads the text, the last piece first, into memory of the exact size that the contract asks for.
 * Returns NULL if the text is refused. */
static void *read_text(const char *text, size_t bytes, size_t piece_bytes,
                       const struct qk_tensor *tensor, struct qd_arena *arena)
{
    struct qd_error error = {.status = QD_OK};
    struct qd_json_reader reader = {.arena = arena, .error = &error, .piece_bytes = piece_bytes};
    const struct qd_json_value *data = find_data(&reader, text, bytes);
    size_t out_bytes;
    if (data == NULL)
        return NULL;
    const size_t come = data->data->commas + 1;
    struct qd_json_numbers numbers;
    if (!qk_type_bytes(tensor->type, tensor->count < come ? tensor->count : come, &out_bytes))
        return NULL;
    void *out = malloc(out_bytes + (out_bytes == 0));
    assert(out != NULL);
    qd_json_numbers_init(&numbers, data, reader.marks, tensor);
    numbers.out = out;
    bool refused = false;
    for (size_t piece = numbers.mark_count + 1; piece-- > 0;)
        refused = qd_json_numbers_read(&numbers, piece, "x", &error) != QD_OK || refused;
    if (!refused)
        return out;
    assert(error.text[0] != '\0');
    free(out);
    return NULL;
}

/* Prints the tensor, joined to one block. */
static char *print(const struct qk_tensor *tensor, struct qd_arena *arena, size_t *bytes)
{
    struct qd_text text;
    qd_text_init(&text, arena);
    qd_json_tensor_print(&text, tensor);
    if (text.failed)
        return NULL;
    char *all = malloc(text.bytes + 1);
    assert(all != NULL);
    *bytes = 0;
    for (size_t i = 0; i < text.part_count; i++) {
        memcpy(all + *bytes, text.parts[i].bytes, text.parts[i].count);
        *bytes += text.parts[i].count;
    }
    assert(*bytes == text.bytes);
    return all;
}

static void check_round_trip(const struct qk_tensor *tensor, size_t piece_bytes,
                             struct qd_arena *arena)
{
    size_t bytes;
    char *text = print(tensor, arena, &bytes);
    if (text == NULL)
        return;
    void *again = read_text(text, bytes, piece_bytes, tensor, arena);
    assert(again != NULL || qd_memory_used(arena->memory) > MEMORY_BYTES / 2);
    for (size_t i = 0; again != NULL && i < tensor->count; i++)
        assert(is_same(tensor->type, tensor->data, again, i));
    free(again);
    free(text);
}

/* Sets dims for `count` elements. */
static bool set_shape(struct qk_tensor *tensor, size_t columns, size_t count)
{
    if (columns == 0) {
        tensor->rank = 1;
        tensor->dims[0] = count;
    } else {
        tensor->rank = 2;
        tensor->dims[0] = count / columns;
        tensor->dims[1] = columns;
    }
    return qk_tensor_set_count(tensor);
}

static size_t count_commas(const unsigned char *data, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += data[i] == ',';
    return count;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    struct qk_tensor tensor = {.type = (enum qk_type)(1 + (data[0] & 127) % (QK_TYPE_COUNT - 1))};
    const bool is_json = data[0] >> 7;
    const size_t columns = data[1] % 16;
    const size_t piece_bytes = data[1] < 16 ? QD_JSON_PIECE_BYTES : data[1] >> 4;
    const size_t rest = bytes - 2;
    /* A block of the exact length, for the sanitizer. */
    char *copy = malloc(rest + (rest == 0));
    assert(copy != NULL);
    memcpy(copy, data + 2, rest);
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_arena arena;
    qd_arena_init(&arena, memory);
    if (is_json) {
        if (set_shape(&tensor, columns, count_commas(data + 2, rest) + 1)) {
            void *out = read_text(copy, rest, piece_bytes, &tensor, &arena);
            tensor.data = out;
            if (out != NULL)
                check_round_trip(&tensor, piece_bytes, &arena);
            free(out);
        }
    } else if (set_shape(&tensor, columns, rest * 8 / qk_type_info(tensor.type)->bits)) {
        for (size_t i = 0; tensor.type == QK_BOOL && i < rest; i++)
            copy[i] &= 1; /* BOOL has no other bytes */
        tensor.data = copy;
        check_round_trip(&tensor, piece_bytes, &arena);
    }
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    free(copy);
    return 0;
}
