/* Fuzzes the answers to inferences: the outputs of each operator and of a loaded model, of every
 * datatype and any shape, as JSON and as bytes. The reader of requests must read the same bits from
 * the answer that were printed. Units printed in another order must give the same bytes, also of
 * answers with classes, whose labels are the id's text if that may be labels. run.sh builds and
 * runs this target.
 *
 * An input is the operator, its version, the requested outputs and which of them are binary, and
 * for each output its datatype, rank and dims; then the id, with its length before it; then the
 * outputs' data, which repeats. */
#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip/classes.h"
#include "server/oip/decode.h"
#include "tests/support/encode.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum {
    MEMORY_BYTES = 64 << 20,
    OUTPUTS_MAX = QK_OUTPUT_COUNT_MAX,
    COUNT_MAX = 5000,
    UNITS_MAX = 256
};

struct input {
    const unsigned char *at, *end;
};

static unsigned take(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

/* ---- The answer ------------------------------------------------------------------------------ */

struct made {
    struct qd_builtin builtin;
    struct qd_signature signature; /* its outputs are `ports` */
    struct qd_port ports[OUTPUTS_MAX];
    struct qk_tensor outputs[OUTPUTS_MAX];
    void *data[OUTPUTS_MAX];
    char id[256];
    struct qd_oip_asked asked;
};

/* Makes a shape of up to four dims. The last dim is cut so that there are not too many elements. */
static void make_shape(struct qk_tensor *tensor, struct input *input)
{
    size_t room = COUNT_MAX;
    tensor->rank = take(input) % 5;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const size_t dim = take(input) * (i + 1 == tensor->rank ? 32u : 1u);
        tensor->dims[i] = dim < room ? dim : room;
        room /= dim > 1 ? tensor->dims[i] : 1;
    }
    bool fits = qk_tensor_set_count(tensor);
    assert(fits);
}

static void make_output(struct made *made, size_t index, struct input *input)
{
    struct qk_tensor *output = &made->outputs[index];
    output->type = (enum qk_type)(1 + take(input) % (QK_TYPE_COUNT - 1));
    make_shape(output, input);
}

static void make_data(struct made *made, size_t index, const struct input *input)
{
    struct qk_tensor *output = &made->outputs[index];
    const size_t come = (size_t)(input->end - input->at);
    size_t bytes;
    bool fits = qk_type_bytes(output->type, output->count, &bytes);
    assert(fits);
    unsigned char *data = malloc(bytes + (bytes == 0));
    assert(data != NULL);
    for (size_t i = 0; i < bytes; i++)
        data[i] = come == 0 ? (unsigned char)i : input->at[(i + 7 * index) % come];
    for (size_t i = 0; output->type == QK_BOOL && i < bytes; i++)
        data[i] &= 1; /* BOOL has no other bytes */
    made->data[index] = data;
    output->data = data;
}

static void make_signature(struct made *made, struct input *input)
{
    static const char *const names[] = {"y", "a longer name", "\xc3\xa9"};
    const unsigned pick = take(input);
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    const struct qk_operator *op = ops[pick % 128 % count];
    qd_builtin_init(&made->builtin, op, &op->versions[take(input) % op->version_count]);
    made->signature = made->builtin.signature;
    if (pick >= 128)
        made->signature = (struct qd_signature){.name = "loaded \"\\",
                                                .platform = "",
                                                .about = "",
                                                .version = UINT64_MAX,
                                                .output_count = sizeof(names) / sizeof(names[0])};
    for (size_t i = 0; i < made->signature.output_count; i++)
        made->ports[i] = (struct qd_port){
            .name = pick >= 128 ? names[i] : made->builtin.signature.outputs[i].name,
            .types = QK_BIT(QK_TYPE_COUNT) - 2, /* all types */
            .optional = true};
    made->signature.outputs = made->ports;
}

static void make(struct made *made, const unsigned char *data, size_t bytes)
{
    struct input input = {data, data + bytes};
    memset(made, 0, sizeof(*made));
    make_signature(made, &input);
    assert(made->signature.output_count <= OUTPUTS_MAX);
    const uint32_t all = QK_BIT(made->signature.output_count) - 1;
    const unsigned asked = take(&input);
    made->asked = (struct qd_oip_asked){.signature = &made->signature,
                                        .outputs = (asked & all) == 0 ? all : asked & all,
                                        .binary_outputs = asked >> 4 & all};
    for (size_t i = 0; i < made->signature.output_count; i++)
        make_output(made, i, &input);
    const size_t id_bytes = take(&input);
    for (size_t i = 0; i < id_bytes; i++) {
        const unsigned byte = take(&input);
        made->id[i] = (char)(byte == 0 ? 1 : byte);
    }
    made->asked.id = id_bytes == 0 ? NULL : made->id;
    for (size_t i = 0; i < made->signature.output_count; i++)
        make_data(made, i, &input);
}

static char *join(const struct qd_answer *answer)
{
    char *all = malloc(answer->bytes + 1);
    size_t bytes = 0;
    assert(all != NULL);
    for (size_t i = 0; i < answer->part_count; i++) {
        memcpy(all + bytes, answer->parts[i].bytes, answer->parts[i].count);
        bytes += answer->parts[i].count;
    }
    assert(bytes == answer->bytes && answer->json_bytes <= bytes);
    all[bytes] = '\0';
    return all;
}

static const uint64_t stage_ns[QD_STAGE_COUNT] = {1, 2000, 3000000, UINT64_MAX};

/* Prints the answer in units, from the last to the first or in pairs. Returns NULL if there is no
 * memory. */
static char *print_in_units(const struct made *made, struct qd_memory *memory, bool backward,
                            size_t *bytes)
{
    static char workspace[QD_OIP_PRINT_BYTES];
    static const struct qk_graph_plan plan = {.kernel = "kernel"};
    struct qd_arena arena;
    struct qd_error error;
    struct qd_answer answer = {0};
    char *all = NULL;
    qd_arena_init(&arena, memory);
    struct qd_oip_writer *writer =
        qd_oip_writer_create(&made->asked, &plan, NULL, made->outputs, &arena, &error);
    if (writer != NULL) {
        const size_t count = qd_oip_unit_count(&made->asked, made->outputs);
        assert(count <= UNITS_MAX);
        for (size_t i = count; backward && i-- > 0;)
            qd_oip_writer_print(writer, workspace, i, i + 1);
        for (size_t i = 0; !backward && i < count; i += 2)
            qd_oip_writer_print(writer, workspace, i, i + 2 < count ? i + 2 : count);
        if (qd_oip_writer_end(writer, stage_ns, &answer) == QD_OK)
            all = join(&answer);
        qd_oip_writer_deinit(writer);
    }
    *bytes = answer.bytes;
    qd_arena_deinit(&arena);
    return all;
}

/* ---- Reading back ---------------------------------------------------------------------------- */

static bool is_same(enum qk_type type, const char *a, const char *b, size_t index)
{
    if (type == QK_INT64)
        return memcmp(a + index * 8, b + index * 8, 8) == 0;
    const uint32_t a_bits = qk_element_load(type, a, index);
    const uint32_t b_bits = qk_element_load(type, b, index);
    return a_bits == b_bits ||
           (qk_type_info(type)->kind == QK_KIND_FLOAT && isnan(qk_float_decode(type, a_bits)) &&
            isnan(qk_float_decode(type, b_bits)));
}

static void compare(const struct made *made, const struct qk_tensor *read)
{
    for (size_t i = 0; i < made->signature.output_count; i++) {
        const struct qk_tensor *a = &made->outputs[i], *b = &read[i];
        if ((made->asked.outputs >> i & 1) == 0) {
            assert(b->type == QK_NONE);
            continue;
        }
        assert(a->type == b->type && a->rank == b->rank && a->count == b->count);
        assert(memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0);
        for (size_t j = 0; j < a->count; j++)
            assert(is_same(a->type, a->data, b->data, j));
    }
}

/* Checks that another library can read the answer, too. */
static void check_json(const struct made *made, const char *json, size_t bytes)
{
    cJSON *tree = cJSON_ParseWithLength(json, bytes);
    assert(tree != NULL);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(tree, "id");
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(tree, "outputs");
    assert((id != NULL) == (made->asked.id != NULL));
    assert(cJSON_GetArraySize(outputs) == __builtin_popcount(made->asked.outputs));
    cJSON_Delete(tree);
}

/* Reads the outputs back, as inputs of a request. */
static void read_back(const struct made *made, const char *all, const struct qd_answer *answer,
                      struct qd_arena *arena)
{
    static const char key[] = "\"outputs\":", begin[] = "{\"inputs\":";
    const size_t json_bytes = answer->json_bytes == 0 ? answer->bytes : answer->json_bytes;
    check_json(made, all, json_bytes);
    const char *from = strstr(all, key); /* in the id the quotes are escaped */
    assert(from != NULL);
    from += sizeof(key) - 1;
    const size_t bytes = sizeof(begin) - 1 + (size_t)(all + answer->bytes - from);
    char *body = malloc(bytes), header[24];
    assert(body != NULL);
    memcpy(body, begin, sizeof(begin) - 1);
    memcpy(body + sizeof(begin) - 1, from, (size_t)(all + answer->bytes - from));
    snprintf(header, sizeof(header), "%zu", bytes - (answer->bytes - json_bytes));
    const struct qd_signature reading = {.name = "read",
                                         .platform = "",
                                         .about = "",
                                         .version = 1,
                                         .inputs = made->ports,
                                         .input_count = made->signature.output_count,
                                         .outputs = made->ports,
                                         .output_count = made->signature.output_count};
    struct qd_oip_message message = {.signature = &reading, .body = body, .body_bytes = bytes};
    qd_oip_message_set_header(&message, answer->json_bytes == 0 ? NULL : header);
    static struct qd_oip_asked asked;
    struct qd_error error;
    if (qd_oip_decode(&message, arena, &asked, &error) != QD_OK) {
        fprintf(stderr, "%s: %.2000s\n", error.text, body);
        abort();
    }
    compare(made, asked.inputs);
    free(body);
}

/* Checks that units printed in another order give the same bytes. */
static void print_again(const struct made *made, struct qd_memory *memory, const char *all,
                        size_t bytes)
{
    for (unsigned backward = 0; backward < 2; backward++) {
        size_t again_bytes;
        char *again = print_in_units(made, memory, backward == 1, &again_bytes);
        assert(again != NULL && again_bytes == bytes);
        assert(memcmp(all, again, bytes) == 0);
        free(again);
    }
}

/* Prints the answer once more, with the greatest elements of the outputs. */
static void print_classes(struct made *made, struct qd_memory *memory, struct qd_arena *arena)
{
    uint32_t counts[OUTPUTS_MAX];
    struct qd_error error;
    struct qd_answer answer;
    if (qd_labels_read(made->id, strlen(made->id), "id", arena, &made->ports[0].labels, &error) !=
        QD_OK)
        assert(error.text[0] != '\0' && made->ports[0].labels == NULL);
    for (size_t i = 0; i < made->signature.output_count; i++)
        counts[i] = 1 + (uint32_t)(made->outputs[i].count * 7 + i) % 20;
    made->asked.class_counts = counts;
    if (qd_classes_check(&made->asked, made->outputs, made->signature.output_count, &error) ==
        QD_OK) {
        const enum qd_status status =
            encode_whole(&made->asked, "kernel", made->outputs, stage_ns, arena, &answer, &error);
        assert(status == QD_OK);
        char *all = join(&answer);
        check_json(made, all, answer.json_bytes == 0 ? answer.bytes : answer.json_bytes);
        print_again(made, memory, all, answer.bytes);
        free(all);
    }
    made->asked.class_counts = NULL;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static struct made made;
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_arena arena;
    struct qd_error error;
    struct qd_answer answer;
    qd_arena_init(&arena, memory);
    make(&made, data, bytes);
    const enum qd_status status =
        encode_whole(&made.asked, "kernel", made.outputs, stage_ns, &arena, &answer, &error);
    assert(status == QD_OK);
    char *all = join(&answer);
    read_back(&made, all, &answer, &arena);
    print_again(&made, memory, all, answer.bytes);
    print_classes(&made, memory, &arena);
    free(all);
    for (size_t i = 0; i < OUTPUTS_MAX; i++)
        free(made.data[i]);
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    return 0;
}
