#include "server/models/repository/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "server/json/tree.h"
#include "server/memory/text.h"

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

void qd_missing_file_add(struct qd_missing_file *missing, const char *name)
{
    const bool is_onnx = qd_missing_file_is_onnx(name);
    qd_list_name(is_onnx ? missing->onnx : missing->others, sizeof(missing->onnx),
                 qd_show_string(name).text);
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
