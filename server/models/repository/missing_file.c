#include "server/models/repository/missing_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/json/tree.h"

enum { NAME_COUNT_MAX = 1000 };

bool qd_missing_file_is_onnx(const char *name)
{
    const size_t length = strlen(name);
    return length > strlen(".onnx") && strcmp(name + length - strlen(".onnx"), ".onnx") == 0;
}

size_t qd_missing_file_stem(const char *name)
{
    return strlen(name) - (qd_missing_file_is_onnx(name) ? strlen(".onnx") : 0);
}

/* Adds a name to a text of `size` bytes. Adds "..." instead if the name does not fit. */
static void add(char *text, size_t size, const char *name)
{
    const struct qd_shown shown = qd_show_string(name);
    const size_t used = strlen(text);
    const size_t wanted = used + strlen(", ") + strlen(shown.text);
    if (wanted + sizeof(", ...") <= size)
        snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", shown.text);
    else if (used < 3 || strcmp(text + used - 3, "...") != 0)
        snprintf(text + used, size - used, "%s...", used == 0 ? "" : ", ");
}

void qd_missing_file_add(struct qd_missing_file *missing, const char *name)
{
    if (qd_missing_file_is_onnx(name))
        add(missing->onnx, sizeof(missing->onnx), name);
    else
        add(missing->others, sizeof(missing->others), name);
}

void qd_missing_file_read(struct qd_missing_file *missing, int folder)
{
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (entries == NULL) {
        if (again >= 0)
            close(again);
        return;
    }
    const struct dirent *entry;
    for (size_t i = 0; i < NAME_COUNT_MAX && (entry = readdir(entries)) != NULL; i++)
        if (*entry->d_name != '.')
            qd_missing_file_add(missing, entry->d_name);
    closedir(entries);
}

const char *qd_missing_file_text(const struct qd_missing_file *missing)
{
    if (*missing->onnx != '\0')
        return missing->onnx;
    return *missing->others != '\0' ? missing->others : "nothing";
}
