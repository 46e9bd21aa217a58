/* Fuzzes the readers of configuration: Triton's model configuration as JSON and as protobuf's text,
 * and the command line. run.sh builds and runs this target.
 *
 * An input is a byte that picks one of the three, followed by the text. Arguments of the command
 * line end with a NUL. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/models/model_config.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

enum { MEMORY_BYTES = 4 << 20, ARGUMENT_COUNT_MAX = 64 };

static void read_model_config(const char *text, size_t bytes, bool is_json)
{
    static const uint64_t versions[] = {1, 2, 3, 7, 100};
    struct qd_memory *memory = qd_memory_create(MEMORY_BYTES);
    struct qd_model_config config;
    struct qd_arena arena;
    struct qd_error error;
    qd_arena_init(&arena, memory);
    qd_model_config_init(&config);
    if (qd_model_config_read(text, bytes, is_json, "config", "m", &arena, &config, &error) ==
        QD_OK) {
        struct qd_port input = {.name = "x", .types = QK_BIT(QK_UINT8), .shaped = true, .rank = 2};
        struct qd_port output = {.name = "y", .types = QK_BIT(QK_FP32), .shaped = true, .rank = 2};
        input.dims[0] = input.dims[1] = output.dims[0] = output.dims[1] = QD_DIM_FREE;
        for (size_t i = 0; i < 5; i++)
            qd_model_config_wants(&config, versions, 5, i);
        qd_model_config_misses(&config, versions, 5);
        const char *policy = qd_model_config_print_policy(&config, &arena);
        assert(policy == NULL || policy[0] == '{');
        qd_model_config_apply(&config, &input, 1, &output, 1, &error);
        for (uint32_t i = 0; i < input.rank; i++)
            assert(input.dims[i] >= QD_DIM_FREE);
    } else {
        assert(error.text[0] != '\0');
    }
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
}

static void read_command_line(char *text, size_t bytes)
{
    static struct qd_config config;
    struct qd_error error = {.text = ""};
    char *arguments[ARGUMENT_COUNT_MAX + 1] = {"quantd"};
    int count = 1;
    for (size_t at = 0; at < bytes && count < ARGUMENT_COUNT_MAX; at += strlen(text + at) + 1)
        arguments[count++] = text + at;
    if (qd_config_parse(&config, count, arguments, &error) == QD_CONFIG_BAD)
        assert(error.text[0] != '\0' && strlen(error.text) < sizeof(error.text));
    else
        assert(config.listen_count <= QD_LISTEN_COUNT_MAX);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    char *copy = malloc(bytes);
    assert(copy != NULL);
    memcpy(copy, data + 1, bytes - 1);
    copy[bytes - 1] = '\0';
    if (data[0] % 4 == 0 || data[0] % 4 == 2)
        read_model_config(copy, bytes - 1, data[0] % 4 == 0);
    else
        read_command_line(copy, bytes);
    free(copy);
    return 0;
}
