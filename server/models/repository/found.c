#include "server/models/repository/found.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/json/tree.h"

enum { NAME_COUNT_MAX = 1000 };

bool qd_found_is_onnx(const char *name)
{
    const size_t length = strlen(name);
    return length > strlen(".onnx") && strcmp(name + length - strlen(".onnx"), ".onnx") == 0;
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

void qd_found_add(struct qd_found *found, const char *name)
{
    if (qd_found_is_onnx(name))
        add(found->onnx, sizeof(found->onnx), name);
    else
        add(found->others, sizeof(found->others), name);
}

void qd_found_read(struct qd_found *found, int folder)
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
            qd_found_add(found, entry->d_name);
    closedir(entries);
}

const char *qd_found_text(const struct qd_found *found)
{
    if (*found->onnx != '\0')
        return found->onnx;
    return *found->others != '\0' ? found->others : "nothing";
}
