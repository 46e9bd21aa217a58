/* The commands that serve a model, or a part of one, for a shell. */
#include <string.h>

#include "server/models/explain/explain.h"

enum { COMMAND_BYTES_MAX = 16 << 10 }; /* four times the longest path or configuration */

/* Returns whether a shell takes the text as one word that means itself. */
static bool is_plain(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=+@%:,";
    return *text != '\0' && text[strspn(text, plain)] == '\0';
}

/* Puts a word, in quotes if it needs them. A quote inside becomes '\''. */
static void put_word(struct qd_text *command, const char *text)
{
    if (is_plain(text)) {
        qd_text_string(command, text);
        return;
    }
    qd_text_string(command, "'");
    for (const char *at = text; *at != '\0'; at++)
        qd_text_append(command, *at == '\'' ? "'\\''" : at, *at == '\'' ? 4 : 1);
    qd_text_string(command, "'");
}

/* Puts a path in the folder of a part. The folders of two parts have numbers. */
static void put_path(struct qd_text *command, const struct qd_explanation *explanation, size_t part,
                     const char *file)
{
    const char *const numbers[] = {"-1", "-2"};
    qd_text_string(command, "parts/");
    put_word(command, explanation->name);
    qd_text_string(command, explanation->cuts.count > 1 ? numbers[part] : "");
    qd_text_string(command, file);
}

/* Serves one part: a folder of its own has the file and the configuration. */
static void put_part(const struct qd_explanation *explanation, size_t part,
                     struct qd_text commands[QD_EXPLAIN_COMMAND_COUNT_MAX])
{
    qd_text_string(&commands[0], "mkdir -p -- ");
    put_path(&commands[0], explanation, part, "");
    qd_text_string(&commands[1], "cp -- ");
    put_word(&commands[1], explanation->file);
    qd_text_string(&commands[1], " ");
    put_path(&commands[1], explanation, part, "/model.onnx");
    qd_text_string(&commands[2], "echo ");
    put_word(&commands[2], explanation->cuts.list[part].config);
    qd_text_string(&commands[2], " > ");
    put_path(&commands[2], explanation, part, "/config.json");
    put_word(&commands[3], explanation->program);
    qd_text_string(&commands[3], " --model-repository parts");
}

static void put_whole(const struct qd_explanation *explanation, struct qd_text *command)
{
    put_word(command, explanation->program);
    if (explanation->folder == NULL) {
        qd_text_string(command, " --model ");
        put_word(command, explanation->name);
        qd_text_string(command, "=");
        put_word(command, explanation->file);
        return;
    }
    qd_text_string(command, " --model-repository ");
    put_word(command, explanation->folder);
    qd_text_string(command, " --model-control-mode explicit --load-model ");
    put_word(command, explanation->name);
}

/* A command that is full is not printed, because a part of it would do something else. Only a path
 * of some KiB can have so many quotes. */
size_t qd_explanation_commands(const struct qd_explanation *explanation, size_t part,
                               struct qd_arena *arena,
                               const char *commands[QD_EXPLAIN_COMMAND_COUNT_MAX])
{
    const size_t count = explanation->signature == NULL ? QD_EXPLAIN_COMMAND_COUNT_MAX : 1;
    struct qd_text texts[QD_EXPLAIN_COMMAND_COUNT_MAX];
    for (size_t i = 0; i < count; i++) {
        char *bytes = qd_arena_calloc(arena, 1, COMMAND_BYTES_MAX);
        if (bytes == NULL)
            return 0;
        qd_text_init_in(&texts[i], bytes, COMMAND_BYTES_MAX - 1);
        commands[i] = bytes;
    }
    if (explanation->signature == NULL)
        put_part(explanation, part, texts);
    else
        put_whole(explanation, &texts[0]);
    for (size_t i = 0; i < count; i++)
        if (texts[i].failed)
            return 0;
    return count;
}
