/* The commands that serve a model, or a part of one, for a shell. */
#include <stdio.h>
#include <stdlib.h>
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

/* A command that grows. */
struct command {
    char text[COMMAND_BYTES_MAX];
    size_t count;
};

static void put(struct command *command, const char *text)
{
    const size_t bytes = strlen(text);
    if (bytes >= sizeof(command->text) - command->count)
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
static void put_part(const struct qd_explanation *explanation, size_t part, struct command *command,
                     qd_explanation_put *call, void *context)
{
    const char *config = explanation->cuts.list[part].config;
    *command = (struct command){.count = 0};
    put(command, "mkdir -p ");
    put_path(command, explanation, part, "");
    call(context, command->text);
    *command = (struct command){.count = 0};
    put(command, "cp ");
    put_word(command, explanation->file);
    put(command, " ");
    put_path(command, explanation, part, "/model.onnx");
    call(context, command->text);
    *command = (struct command){.count = 0};
    put(command, "echo ");
    put_word(command, config);
    put(command, " > ");
    put_path(command, explanation, part, "/config.json");
    call(context, command->text);
    call(context, "quantd --model-repository parts");
}

static void put_whole(const struct qd_explanation *explanation, struct command *command)
{
    if (explanation->folder == NULL) {
        put(command, "quantd --model ");
        put_word(command, explanation->path);
        return;
    }
    put(command, "quantd --model-repository ");
    put_word(command, explanation->folder);
    put(command, " --model-control-mode explicit --load-model ");
    put_word(command, explanation->name);
}

void qd_explanation_commands(const struct qd_explanation *explanation, size_t part,
                             qd_explanation_put *call, void *context)
{
    struct command *command = calloc(1, sizeof(*command));
    if (command == NULL)
        return;
    if (explanation->signature == NULL) {
        put_part(explanation, part, command, call, context);
    } else {
        put_whole(explanation, command);
        call(context, command->text);
    }
    free(command);
}
