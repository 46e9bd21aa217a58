#define _GNU_SOURCE
#include "server/models/repository/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/qk.h"
#include "server/base/file.h"
#include "server/json/tree.h"
#include "server/memory/text.h"
#include "server/telemetry/log.h"

enum {
    VERSION_DIGITS_MAX = 18,
    ENTRY_COUNT_MAX = 65536,  /* entries that are looked at in one folder */
    ENTRIES_BYTES = 16 << 10, /* bytes of entries that are read at once */
};

/* Returns whether the name begins with the domain of an operator, such as "onnx." or
 * "com.microsoft.". */
static bool begins_as_operator(const char *name)
{
    size_t count;
    const struct qk_operator *const *ops = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(ops[i]->name, '.');
        if (dot != NULL && strncmp(name, ops[i]->name, (size_t)(dot - ops[i]->name) + 1) == 0)
            return true;
    }
    return false;
}

enum qd_status qd_model_check_name(const char *name, struct qd_error *error)
{
    const size_t bytes = strlen(name);
    bool valid = bytes > 0 && bytes <= QD_MODEL_NAME_BYTES_MAX && strcmp(name, ".") != 0 &&
                 strcmp(name, "..") != 0 && strpbrk(name, "\"\\/") == NULL;
    for (size_t at = 0; at < bytes && valid;) {
        const size_t length = qd_utf8_length(name + at, bytes - at);
        valid = length > 0 && !qd_is_control(qd_utf8_decode(name + at, length));
        at += length;
    }
    if (!valid) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected 1 to %d bytes of UTF-8 without slashes, "
                       "backslashes, quotes and control characters, got %s",
                       QD_MODEL_NAME_BYTES_MAX, qd_show_string(name).text);
    }
    if (strcmp(name, "stats") == 0) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected another than \"stats\", which the path of all "
                       "models' statistics has");
    }
    if (begins_as_operator(name)) {
        return qd_fail(error, QD_INVALID,
                       "the model's name: expected one that does not begin as those of the "
                       "operators do, got %s",
                       qd_show_string(name).text);
    }
    return QD_OK;
}

/* A file that the command line names. */
struct given {
    char *path;
    char *base;                             /* the last part of `path` */
    char name[QD_MODEL_NAME_BYTES_MAX + 2]; /* one byte more than is allowed, so that a name
                                               that is too long is still seen to be */
};

struct qd_repository {
    char *path; /* NULL: there is no folder */
    bool is_named_as_version;
    enum qd_links links;
    struct given given[QD_REPOSITORY_GIVEN_COUNT_MAX];
    size_t given_count;
};

/* Opens the repository's folder. It is opened anew each time, because some deployments replace the
 * folder, or a link to it, by another one. `shown` is its name for errors, which is not the path if
 * clients see them. */
static enum qd_status open_root(const struct qd_repository *repository, const char *shown, int *fd,
                                struct qd_error *error)
{
    *fd = open(repository->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0)
        return QD_OK;
    return qd_fail(error, QD_UNAVAILABLE, "%.300s: cannot be opened as a folder: %s%s", shown,
                   strerror(errno), errno == ENOTDIR ? "; --model serves a file" : "");
}

/* Returns the number of a version's folder, or 0 if the name is not a version. */
static uint64_t version_of(const char *name)
{
    uint64_t number;
    bool decimal = *name >= '1' && *name <= '9' && strlen(name) <= VERSION_DIGITS_MAX &&
                   qd_read_decimal(name, &number);
    return decimal ? number : 0;
}

struct qd_repository *qd_repository_open(const char *path, enum qd_links links,
                                         struct qd_error *error)
{
    const size_t bytes = path == NULL ? 0 : strlen(path) + 1;
    struct qd_repository *repository = calloc(1, sizeof(*repository) + bytes);
    int fd;
    if (repository == NULL) {
        qd_fail(error, QD_UNAVAILABLE, "no memory for the repository");
        return NULL;
    }
    repository->links = links;
    if (path == NULL)
        return repository;
    repository->path = memcpy(repository + 1, path, bytes);
    if (open_root(repository, path, &fd, error) != QD_OK) {
        free(repository);
        return NULL;
    }
    close(fd);
    char *whole = realpath(path, NULL);
    repository->is_named_as_version = whole != NULL && version_of(strrchr(whole, '/') + 1) != 0;
    free(whole);
    return repository;
}

void qd_repository_close(struct qd_repository *repository)
{
    if (repository == NULL)
        return;
    for (size_t i = 0; i < repository->given_count; i++)
        free(repository->given[i].path);
    free(repository);
}

bool qd_repository_is_named_as_version(const struct qd_repository *repository)
{
    return repository->is_named_as_version;
}

/* ---- Files that the command line names ----------------------------------------------------- */

static const struct given *find_given(const struct qd_repository *repository, const char *name)
{
    for (size_t i = 0; i < repository->given_count; i++)
        if (strcmp(repository->given[i].name, name) == 0)
            return &repository->given[i];
    return NULL;
}

void qd_repository_show_folder(const char *path, struct qd_error *error)
{
    enum { BYTES_MAX = 300 }; /* so that a long path leaves room for the error */
    const char *last = strrchr(path, '/');
    const struct qd_error inner = *error;
    if (last == NULL || last[1] == '\0' || strncmp(inner.text, last + 1, strlen(last + 1)) != 0)
        return;
    const size_t bytes = (size_t)(last + 1 - path);
    qd_fail(error, inner.status, "%.*s%s", (int)(bytes < BYTES_MAX ? bytes : BYTES_MAX), path,
            inner.text);
}

const char *qd_repository_given_path(const struct qd_repository *repository, const char *name)
{
    const struct given *given = find_given(repository, name);
    return given == NULL ? NULL : given->path;
}

const char *qd_repository_given_file(const char *text)
{
    const char *equals = text + strcspn(text, "=/");
    return *equals == '=' ? equals + 1 : text;
}

/* Takes `path`, which the file then owns. Of a name that is too long, as much as fits is taken. */
static void set_file(struct given *given, char *path)
{
    const char *file = qd_repository_given_file(path);
    const char *last = strrchr(file, '/');
    const char *base = last == NULL ? file : last + 1;
    const char *name = file == path ? base : path;
    const size_t bytes = file == path ? qd_missing_file_stem(base) : (size_t)(file - 1 - path);
    snprintf(given->name, sizeof(given->name), "%.*s", (int)bytes, name);
    given->base = path + (base - file);
    given->path = memmove(path, file, strlen(file) + 1);
}

static enum qd_status give(struct qd_repository *repository, const char *file, size_t bytes,
                           struct qd_error *error)
{
    if (repository->given_count == QD_REPOSITORY_GIVEN_COUNT_MAX)
        return qd_fail(error, QD_INVALID, "expected at most %d files",
                       QD_REPOSITORY_GIVEN_COUNT_MAX);
    struct given made;
    char *path = strndup(file, bytes);
    if (path == NULL)
        return qd_fail(error, QD_UNAVAILABLE, "no memory for the files' names");
    set_file(&made, path);
    enum qd_status status = QD_OK;
    if (*made.base == '\0' || strlen(made.base) > NAME_MAX)
        status = qd_fail(error, QD_INVALID, "expected FILE or NAME=FILE, got %s",
                         qd_show_bytes(file, bytes).text);
    if (status == QD_OK)
        status = qd_model_check_name(made.name, error);
    if (status == QD_OK && find_given(repository, made.name) != NULL)
        status = qd_fail(error, QD_INVALID,
                         "expected each name once, got %s twice; NAME=FILE gives another name",
                         qd_show_string(made.name).text);
    if (status == QD_OK)
        repository->given[repository->given_count++] = made;
    else
        free(path);
    return status;
}

enum qd_status qd_repository_give(struct qd_repository *repository, const char *files,
                                  struct qd_error *error)
{
    enum qd_status status = QD_OK;
    while (status == QD_OK && *files != '\0') {
        const size_t bytes = strcspn(files, ",");
        status = give(repository, files, bytes, error);
        files += bytes + (files[bytes] == ',');
    }
    return status;
}

/* ---- Entries of a folder ------------------------------------------------------------------ */

/* Visits all entries of a folder except "." and "..", until `visit` fails. Reads the descriptor to
 * its end, so the folder must have been opened for this. */
static enum qd_status visit_all(int folder, const char *shown,
                                enum qd_status (*visit)(void *context, int folder, const char *name,
                                                        struct qd_error *error),
                                void *context, struct qd_error *error)
{
    alignas(struct dirent64) char entries[ENTRIES_BYTES];
    size_t count = 0;
    ssize_t bytes;
    while ((bytes = getdents64(folder, entries, sizeof(entries))) > 0) {
        const struct dirent64 *entry;
        for (ssize_t at = 0; at < bytes; at += entry->d_reclen) {
            entry = (const struct dirent64 *)(entries + at);
            if (++count > ENTRY_COUNT_MAX)
                return qd_fail(error, QD_TOO_LARGE, "%.200s: expected at most %d entries", shown,
                               ENTRY_COUNT_MAX);
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (visit(context, folder, entry->d_name, error) != QD_OK)
                return error->status;
        }
    }
    return bytes == 0 ? QD_OK
                      : qd_fail(error, QD_UNAVAILABLE, "%.200s: cannot be read: %s", shown,
                                strerror(errno));
}

/* Returns the type of an entry, such as S_IFDIR. The type of a link is that of its target. Returns
 * 0 if there is no entry.
 *
 * Returns S_IFLNK for a link that leads to nothing, to itself, or to a place where the server may
 * not look. Such a link stands for a model or a version, and opening it later says what is wrong.
 * If it were skipped, an older version, or no model, would be loaded silently. */
static mode_t kind_of(int folder, const char *name)
{
    struct stat about;
    return fstatat(folder, name, &about, 0) == 0 ||
                   fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0
               ? about.st_mode & S_IFMT
               : 0;
}

/* ---- Models ------------------------------------------------------------------------------- */

struct name_list {
    const struct qd_repository *repository;
    struct qd_arena *arena;
    const char **names;
    size_t count;
    size_t capacity;
};

/* Returns whether the entry stands for a model by itself, and not because it is NAME.onnx. */
static bool is_model_folder(int folder, const char *name)
{
    const mode_t kind = kind_of(folder, name);
    return kind == S_IFDIR || (kind == S_IFLNK && !qd_missing_file_is_onnx(name));
}

static bool is_model_file(int folder, const char *name)
{
    const mode_t kind = kind_of(folder, name);
    return (kind == S_IFREG || kind == S_IFLNK) && qd_missing_file_is_onnx(name);
}

static enum qd_status append_name(struct name_list *list, const char *name, struct qd_error *error)
{
    if (list->count == QD_REPOSITORY_MODEL_COUNT_MAX)
        return qd_fail(error, QD_TOO_LARGE, "the repository: expected at most %d models",
                       QD_REPOSITORY_MODEL_COUNT_MAX);
    const char **names =
        qd_arena_extend(list->arena, list->names, list->count, &list->capacity, sizeof(*names));
    if (names == NULL)
        return qd_refuse_memory(list->arena, "the repository's names", error);
    list->names = names;
    names[list->count] = qd_arena_copy(list->arena, name);
    if (names[list->count] == NULL)
        return qd_refuse_memory(list->arena, "the repository's names", error);
    list->count++;
    return QD_OK;
}

static enum qd_status add_name(void *context, int folder, const char *entry, struct qd_error *error)
{
    struct name_list *list = context;
    struct qd_error unfit;
    char name[NAME_MAX + 1];
    const bool as_folder = is_model_folder(folder, entry);
    if (*entry == '.' || strcmp(entry, "lost+found") == 0 ||
        !(as_folder || is_model_file(folder, entry)))
        return QD_OK;
    snprintf(name, sizeof(name), "%.*s",
             (int)(as_folder ? strlen(entry) : qd_missing_file_stem(entry)), entry);
    if (qd_model_check_name(name, &unfit) != QD_OK) {
        qd_log(QD_LOG_WARN, "an entry of the repository is ignored", "why=\"%s\"",
               qd_log_value(unfit.text).text);
        return QD_OK;
    }
    if (find_given(list->repository, name) != NULL || (!as_folder && is_model_folder(folder, name)))
        return QD_OK; /* it is in the list already, or will be */
    return append_name(list, name, error);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum qd_status qd_repository_list(const struct qd_repository *repository, struct qd_arena *arena,
                                  const char ***names, size_t *count, struct qd_error *error)
{
    struct name_list list = {.repository = repository, .arena = arena};
    int root;
    enum qd_status status = QD_OK;
    for (size_t i = 0; status == QD_OK && i < repository->given_count; i++)
        status = append_name(&list, repository->given[i].name, error);
    if (status == QD_OK && repository->path != NULL) {
        status = open_root(repository, repository->path, &root, error);
        if (status == QD_OK) {
            status = visit_all(root, repository->path, add_name, &list, error);
            close(root);
        }
    }
    if (list.count > 0)
        qsort(list.names, list.count, sizeof(*list.names), compare_names);
    *names = list.names;
    *count = list.count;
    return status;
}

/* ---- One model ---------------------------------------------------------------------------- */

/* Continues an FNV-1a hash with more bytes. */
static uint64_t hash(uint64_t from, const void *bytes, size_t count)
{
    for (const unsigned char *at = bytes; count-- > 0; at++)
        from = (from ^ *at) * UINT64_C(0x100000001b3);
    return from;
}

/* Returns a hash that changes when the file changes. The fingerprint adds these hashes, so the
 * order of the entries does not matter. */
static uint64_t mark_of(int folder, uint64_t version, const char *name)
{
    struct stat about;
    if (fstatat(folder, name, &about, 0) != 0)
        memset(&about, 0, sizeof(about));
    const uint64_t facts[] = {
        version,
        (uint64_t)about.st_size,
        (uint64_t)about.st_ino,
        (uint64_t)about.st_mtim.tv_sec,
        (uint64_t)about.st_mtim.tv_nsec,
        (uint64_t)about.st_ctim.tv_sec,
        (uint64_t)about.st_ctim.tv_nsec,
    };
    uint64_t mark = hash(UINT64_C(0xcbf29ce484222325), name, strlen(name));
    return hash(mark, facts, sizeof(facts));
}

struct version_list {
    struct qd_model_folder *folder;
    const char *name;
    bool marks;
    struct qd_arena *arena;
    size_t capacity;
    uint64_t version; /* whose folder add_mark looks at */
};

static enum qd_status add_version(void *context, int fd, const char *name, struct qd_error *error)
{
    struct version_list *list = context;
    struct qd_model_folder *folder = list->folder;
    uint64_t number = version_of(name);
    const mode_t kind = kind_of(fd, name);
    const bool as_folder = kind == S_IFDIR || (number != 0 && kind == S_IFLNK);
    folder->has_config |= !as_folder && strcmp(name, "config.json") == 0;
    folder->has_pbtxt |= !as_folder && strcmp(name, "config.pbtxt") == 0;
    folder->has_model |=
        !as_folder && (qd_missing_file_is_onnx(name) || strcmp(name, "request.json") == 0);
    if (!as_folder && list->marks)
        folder->fingerprint += mark_of(fd, 0, name);
    if (!as_folder || number == 0) {
        folder->has_folders |= as_folder;
        qd_log(QD_LOG_DEBUG, "an entry of a model's folder is not a version",
               "model=\"%s\" entry=\"%s\"", list->name, qd_log_value(name).text);
        return QD_OK;
    }
    if (folder->version_count == QD_REPOSITORY_VERSION_COUNT_MAX)
        return qd_fail(error, QD_TOO_LARGE, "%.100s: expected at most %d versions", list->name,
                       QD_REPOSITORY_VERSION_COUNT_MAX);
    uint64_t *versions = qd_arena_extend(list->arena, folder->versions, folder->version_count,
                                         &list->capacity, sizeof(*versions));
    if (versions == NULL)
        return qd_refuse_memory(list->arena, "the model's versions", error);
    folder->versions = versions;
    versions[folder->version_count++] = number;
    return QD_OK;
}

static enum qd_status add_mark(void *context, int folder, const char *name, struct qd_error *error)
{
    const struct version_list *list = context;
    (void)error;
    list->folder->fingerprint += mark_of(folder, list->version, name);
    return QD_OK;
}

static enum qd_status mark_version(struct version_list *list, struct qd_error *error)
{
    struct qd_model_folder *folder = list->folder;
    char path[32];
    char shown[192];
    int fd;
    snprintf(path, sizeof(path), "%llu", (unsigned long long)list->version);
    snprintf(shown, sizeof(shown), "%.128s/%s", list->name, path);
    enum qd_status status = qd_folder_open(folder->fd, path, folder->links, shown, &fd, error);
    /* The version existed a moment ago, so another process is changing the folder. */
    if (status == QD_NOT_FOUND)
        return error->status = QD_UNAVAILABLE;
    if (status != QD_OK)
        return status;
    status = visit_all(fd, shown, add_mark, list, error);
    close(fd);
    folder->fingerprint += list->version;
    return status;
}

static int compare_versions(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

void qd_versions_sort(uint64_t *versions, size_t count)
{
    qsort(versions, count, sizeof(*versions), compare_versions);
}

/* Gives the model its only version. */
static enum qd_status set_only_version(struct qd_model_folder *folder, struct qd_arena *arena,
                                       struct qd_error *error)
{
    folder->versions = qd_arena_calloc(arena, 1, sizeof(*folder->versions));
    if (folder->versions == NULL)
        return qd_refuse_memory(arena, "the model's versions", error);
    folder->versions[0] = 1;
    folder->version_count = 1;
    folder->is_flat = true;
    return QD_OK;
}

/* Makes a model of one file in the folder that is open. */
static enum qd_status set_only_file(struct qd_model_folder *folder, const char *file, bool marks,
                                    struct qd_arena *arena, struct qd_error *error)
{
    static const char *const ends[] = {"", ".data", "_data"};
    char labels[QD_LABEL_FILE_BYTES_MAX];
    snprintf(folder->file, sizeof(folder->file), "%s", file);
    qd_model_folder_label_file(folder, labels);
    if (marks)
        folder->fingerprint += mark_of(folder->fd, 1, labels);
    if (marks && folder->is_given)
        folder->fingerprint += mark_of(folder->fd, 1, QD_LABEL_FILE);
    for (size_t i = 0; marks && i < sizeof(ends) / sizeof(*ends); i++) {
        char name[NAME_MAX + sizeof(".data")];
        snprintf(name, sizeof(name), "%s%s", file, ends[i]);
        folder->fingerprint += mark_of(folder->fd, 1, name);
    }
    return set_only_version(folder, arena, error);
}

static enum qd_status open_given(const struct given *given, bool marks, struct qd_arena *arena,
                                 struct qd_model_folder *folder, struct qd_error *error)
{
    struct stat about;
    char parent[PATH_MAX + 1]; /* one more byte for the "." */
    const size_t bytes = (size_t)(given->base - given->path);
    errno = ENAMETOOLONG;
    if (bytes < sizeof(parent)) {
        memcpy(parent, given->path, bytes);
        strcpy(parent + bytes, bytes == 0 ? "." : "");
        folder->fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (folder->fd < 0 || fstatat(folder->fd, given->base, &about, 0) != 0)
        return qd_fail(error, QD_INVALID, "%s: cannot be opened: %s", given->base, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return qd_fail(error, QD_INVALID, "%s: expected a regular file, got %s%s", given->base,
                       qd_file_kind(about.st_mode),
                       S_ISDIR(about.st_mode) ? "; --model-repository serves a folder of models"
                                              : "");
    folder->is_given = true;
    return set_only_file(folder, given->base, marks, arena, error);
}

/* Reads what lies in a model's folder. */
static enum qd_status read_folder(struct qd_model_folder *folder, const char *name, bool marks,
                                  struct qd_arena *arena, struct qd_error *error)
{
    struct version_list list = {.folder = folder, .name = name, .marks = marks, .arena = arena};
    enum qd_status status = visit_all(folder->fd, name, add_version, &list, error);
    for (size_t i = 0; marks && status == QD_OK && i < folder->version_count; i++) {
        list.version = folder->versions[i];
        status = mark_version(&list, error);
    }
    if (folder->version_count > 0)
        qd_versions_sort(folder->versions, folder->version_count);
    /* A number is the name of a version: the repository is then the folder of one model. */
    else if (status == QD_OK && folder->has_model && version_of(name) == 0)
        status = set_only_version(folder, arena, error);
    return status;
}

static enum qd_status open_in_root(const struct qd_repository *repository, const char *name,
                                   bool marks, struct qd_arena *arena,
                                   struct qd_model_folder *folder, struct qd_error *error)
{
    char file[QD_MODEL_NAME_BYTES_MAX + sizeof(".onnx")];
    int root;
    enum qd_status status = open_root(repository, "the repository", &root, error);
    if (status != QD_OK)
        return status;
    snprintf(file, sizeof(file), "%.*s.onnx", QD_MODEL_NAME_BYTES_MAX, name);
    /* Anything but a regular file is refused when it is opened, with an error that says what it is.
     */
    const mode_t kind = kind_of(root, file);
    const bool has_file = kind != 0 && kind != S_IFDIR;
    if (has_file && !is_model_folder(root, name)) {
        folder->fd = root;
        return set_only_file(folder, file, marks, arena, error);
    }
    folder->hides_file = has_file;
    status = qd_folder_open(root, name, repository->links, name, &folder->fd, error);
    close(root);
    return status == QD_OK ? read_folder(folder, name, marks, arena, error) : status;
}

enum qd_status qd_model_folder_open(const struct qd_repository *repository, const char *name,
                                    bool marks, struct qd_arena *arena,
                                    struct qd_model_folder *folder, struct qd_error *error)
{
    const struct given *given = find_given(repository, name);
    enum qd_status status;
    *folder = (struct qd_model_folder){.fd = -1, .links = repository->links};
    if (given != NULL)
        status = open_given(given, marks, arena, folder, error);
    else if (repository->path == NULL)
        status = qd_fail(error, QD_NOT_FOUND, "%.128s: there is no repository", name);
    else
        status = open_in_root(repository, name, marks, arena, folder, error);
    if (status != QD_OK)
        qd_model_folder_close(folder);
    return status;
}

void qd_model_folder_label_file(const struct qd_model_folder *folder,
                                char name[QD_LABEL_FILE_BYTES_MAX])
{
    snprintf(name, QD_LABEL_FILE_BYTES_MAX, "%.*s.labels.txt",
             (int)qd_missing_file_stem(folder->file), folder->file);
}

void qd_model_folder_close(struct qd_model_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}
