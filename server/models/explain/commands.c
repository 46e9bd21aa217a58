/* The commands that serve a model, or a part of one, for a shell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/models/explain/explain.h"

enum {
    COMMAND_BYTES_MAX = 16 << 10, /* four times the longest path or configuration */
    PART_COMMAND_COUNT = 4,
};

/* Returns whether a shell takes the text as one word that means itself. */
static bool is_plain(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=+@%:,";
    return *text != '\0' && text[strspn(text, plain)] == '\0';
}

/* A command that grows. One that is full is not printed: a part of it would do something else. */
struct command {
    char text[COMMAND_BYTES_MAX];
    size_t count;
    bool is_full;
};

static void put(struct command *command, const char *text)
{
    const size_t bytes = strlen(text);
    command->is_full |= bytes >= sizeof(command->text) - command->count;
    if (command->is_full)
        return; /* only a path of some KiB can have so many quotes */
    memcpy(command->text + command->count, text, bytes + 1);
    command->count += bytes;
}

/* Puts a word, in quotes if it needs them. A quote inside becomes '\''. */
static void put_word(struct command *command, const char *text)
{
    if (is_plain(text)) {
        put(command, text);
        return;
    }
    put(command, "'");
    for (const char *at = text; *at != '\0'; at++)
        put(command, *at == '\'' ? "'\\''" : (char[]){*at, '\0'});
    put(command, "'");
}

/* Puts a path in the folder of a part. The folders of two parts have numbers. */
static void put_path(struct command *command, const struct qd_explanation *explanation, size_t part,
                     const char *file)
{
    const char *const numbers[] = {"-1", "-2"};
    put(command, "parts/");
    put_word(command, explanation->name);
    put(command, explanation->cuts.count > 1 ? numbers[part] : "");
    put(command, file);
}

/* Serves one part: a folder of its own has the file and the configuration. */
static void put_part(const struct qd_explanation *explanation, size_t part,
                     struct command commands[PART_COMMAND_COUNT])
{
    put(&commands[0], "mkdir -p -- ");
    put_path(&commands[0], explanation, part, "");
    put(&commands[1], "cp -- ");
    put_word(&commands[1], explanation->file);
    put(&commands[1], " ");
    put_path(&commands[1], explanation, part, "/model.onnx");
    put(&commands[2], "echo ");
    put_word(&commands[2], explanation->cuts.list[part].config);
    put(&commands[2], " > ");
    put_path(&commands[2], explanation, part, "/config.json");
    put_word(&commands[3], explanation->program);
    put(&commands[3], " --model-repository parts");
}

static void put_whole(const struct qd_explanation *explanation, struct command *command)
{
    put_word(command, explanation->program);
    if (explanation->folder == NULL) {
        put(command, " --model ");
        put_word(command, explanation->path);
        return;
    }
    put(command, " --model-repository ");
    put_word(command, explanation->folder);
    put(command, " --model-control-mode explicit --load-model ");
    put_word(command, explanation->name);
}

void qd_explanation_commands(const struct qd_explanation *explanation, size_t part,
                             qd_explanation_put *call, void *context)
{
    const size_t count = explanation->signature == NULL ? PART_COMMAND_COUNT : 1;
    struct command *commands = calloc(count, sizeof(*commands));
    bool is_full = commands == NULL;
    if (commands != NULL && explanation->signature == NULL)
        put_part(explanation, part, commands);
    else if (commands != NULL)
        put_whole(explanation, commands);
    for (size_t i = 0; i < count && !is_full; i++)
        is_full = commands[i].is_full;
    for (size_t i = 0; i < count && !is_full; i++)
        call(context, commands[i].text);
    free(commands);
}
