/* Fuzzes reading a body in steps and units of any size, units in any order. The result must be the
 * same as in one go: the error's text and every bit of the tensors. */
#include <assert.h>
#include <stdio.h>

#include "tests/fuzz/fuzz_message.h"
#include "tests/support/random.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum { MEMORY_BYTES = 64 << 20, UNITS_MAX = 4096 };

struct reading {
    struct qd_memory *memory;
    struct qd_arena arena;
    struct qd_oip_asked asked;
    struct qd_error error;
    enum qd_status status;
};

/* Converts each unit once, alone or together with its neighbour. */
static void convert(struct qd_oip_reader *reader, uint64_t *random)
{
    const size_t count = qd_oip_reader_unit_count(reader);
    assert(count <= UNITS_MAX);
    static size_t order[UNITS_MAX];
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        const size_t other = random_next(random) % i;
        const size_t kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t begin = order[i];
        size_t end = begin + 1;
        for (; i + 1 < count && order[i + 1] == end; i++)
            end++;
        qd_oip_reader_convert(reader, begin, end);
    }
}

static void begin(struct reading *reading)
{
    reading->memory = qd_memory_create(MEMORY_BYTES);
    qd_arena_init(&reading->arena, reading->memory);
    reading->error.text[0] = '\0';
    reading->asked = (struct qd_oip_asked){.signature = NULL};
}

static void end(struct reading *reading)
{
    qd_arena_deinit(&reading->arena);
    qd_memory_destroy(reading->memory);
}

static void read_in_steps(struct reading *reading, const struct qd_oip_message *message,
                          uint64_t *random)
{
    struct qd_oip_reader *reader =
        qd_oip_reader_create(message, &reading->arena, &reading->asked, &reading->error);
    bool done = false;
    reading->status = reader == NULL ? reading->error.status : QD_OK;
    while (reading->status == QD_OK && !done)
        reading->status = qd_oip_reader_step(reader, &done);
    if (reading->status != QD_OK)
        return;
    convert(reader, random);
    reading->status = qd_oip_reader_end(reader);
}

static void compare_tensors(const struct qk_tensor *a, const struct qk_tensor *b, bool has_data)
{
    size_t bytes;
    assert(a->type == b->type && a->rank == b->rank);
    if (a->type == QK_NONE)
        return;
    assert(memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0 && a->stored == b->stored);
    assert(qk_type_bytes(a->type, a->stored, &bytes));
    if (has_data)
        assert(memcmp(a->data, b->data, bytes) == 0);
}

static void compare_attributes(const struct qk_attribute *a, const struct qk_attribute *b)
{
    assert(a->present == b->present && a->number == b->number && a->list_count == b->list_count);
    assert(a->list_count == 0 || memcmp(a->list, b->list, a->list_count * sizeof(*a->list)) == 0);
    assert(a->string == b->string || strcmp(a->string, b->string) == 0);
}

static void compare(const struct qd_oip_asked *a, const struct qd_oip_asked *b)
{
    assert(a->outputs == b->outputs && a->binary_outputs == b->binary_outputs);
    assert(a->timeout_us == b->timeout_us && a->priority == b->priority);
    assert((a->id == NULL) == (b->id == NULL) && (a->id == NULL || strcmp(a->id, b->id) == 0));
    assert(a->call.variable == b->call.variable);
    for (size_t i = 0; i < a->signature->input_count; i++)
        compare_tensors(&a->inputs[i], &b->inputs[i],
                        a->declared == NULL || (a->call.variable >> i & 1) == 0);
    for (size_t i = 0; a->call.op != NULL && i < a->call.op->attribute_count; i++)
        compare_attributes(&a->call.attributes[i], &b->call.attributes[i]);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct reading whole, pieces;
    uint64_t random = bytes;
    if (bytes < MESSAGE_BYTES_MIN)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        random = random * 31 + data[i];
    random |= 1; /* the state must not be 0 */
    struct message made;
    make_message(&made, data, bytes);
    made.oip.piece_bytes = SIZE_MAX;
    begin(&whole);
    whole.status = qd_oip_decode(&made.oip, &whole.arena, &whole.asked, &whole.error);
    made.oip.piece_bytes = 1 + random_next(&random) % 64;
    begin(&pieces);
    read_in_steps(&pieces, &made.oip, &random);
    assert(whole.status == pieces.status && strcmp(whole.error.text, pieces.error.text) == 0);
    if (whole.status == QD_OK)
        compare(&whole.asked, &pieces.asked);
    end(&whole);
    end(&pieces);
    free(made.body);
    return 0;
}
