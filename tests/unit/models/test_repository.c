#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/models/repository/repository.h"
#include "server/telemetry/log.h"
#include "tests/unit/scratch.h"

static char base[64];
static int root;
static struct scratch scratch;
static struct qd_repository *repository;
static struct qd_error error;

static void write_file(const char *path, const char *text)
{
    int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void make_folder(const char *path)
{
    cr_assert_eq(mkdirat(root, path, 0700), 0);
}

static void setup(void)
{
    scratch_init(&scratch, 64u << 20);
    qd_log_set_level(QD_LOG_ERROR);
    snprintf(base, sizeof(base), "/tmp/quantd-repository-XXXXXX");
    cr_assert_not_null(mkdtemp(base));
    root = open(base, O_RDONLY | O_DIRECTORY);
    repository = qd_repository_open(base, QD_LINKS_INSIDE, &error);
    cr_assert_not_null(repository, "%s", error.text);
    make_folder("b");
    make_folder("b/2");
    make_folder("b/10");
    make_folder("b/1");
    write_file("b/1/model.onnx", "x");
}

static void teardown(void)
{
    char command[96];
    qd_repository_close(repository);
    close(root);
    snprintf(command, sizeof(command), "rm -r %s", base);
    cr_assert_eq(system(command), 0);
    scratch_deinit(&scratch);
}

TestSuite(repository, .init = setup, .fini = teardown);

static struct qd_model_folder look(const char *name)
{
    struct qd_model_folder folder;
    cr_assert_eq(qd_model_folder_open(repository, name, true, &scratch.arena, &folder, &error),
                 QD_OK, "%s", error.text);
    qd_model_folder_close(&folder);
    return folder;
}

Test(repository, lists_folders_with_names_that_models_may_have)
{
    make_folder("a");
    make_folder(".hidden");
    make_folder("lost+found");
    make_folder("onnx.QLinearConv");
    make_folder("two\nlines");
    write_file("README", "x");
    cr_assert_eq(symlinkat("b", root, "c"), 0);
    cr_assert_eq(symlinkat("nowhere", root, "d"), 0);
    const char **names;
    size_t count;
    cr_assert_eq(qd_repository_list(repository, &scratch.arena, &names, &count, &error), QD_OK);
    cr_assert_eq(count, 4);
    cr_assert_str_eq(names[0], "a");
    cr_assert_str_eq(names[1], "b");
    cr_assert_str_eq(names[2], "c");
    cr_assert_str_eq(names[3], "d"); /* opening it reports that the link leads nowhere */
}

Test(repository, broken_links_are_models_and_versions)
{
    static const char *const links[][2] = {
        {"nowhere", "d"}, {"e", "e"}, {"nowhere", "b/7"}, {"3", "a/3"}};
    static const char *const names[] = {"d", "e", "b", "a"};
    static const char *const texts[] = {"d: expected a folder, got a link to nothing",
                                        "e: ", "b/7: expected a folder, got a link to nothing",
                                        "a/3: "};
    make_folder("a");
    for (size_t i = 0; i < 4; i++) {
        struct qd_model_folder folder;
        cr_assert_eq(symlinkat(links[i][0], root, links[i][1]), 0);
        cr_assert_eq(
            qd_model_folder_open(repository, names[i], true, &scratch.arena, &folder, &error),
            QD_INVALID, "%s", names[i]);
        cr_assert_eq(strncmp(error.text, texts[i], strlen(texts[i])), 0, "%s", error.text);
    }
}

Test(repository, versions_are_numbers_above_0)
{
    make_folder("b/0");
    make_folder("b/03");
    make_folder("b/-4");
    make_folder("b/5a");
    make_folder("b/9999999999999999999");
    write_file("b/6", "no folder");
    write_file("b/config.json", "{}");
    struct qd_model_folder folder = look("b");
    cr_assert_eq(folder.version_count, 3);
    cr_assert_eq(folder.versions[0], 1);
    cr_assert_eq(folder.versions[1], 2);
    cr_assert_eq(folder.versions[2], 10);
    cr_assert(folder.has_config && !folder.has_pbtxt && !folder.has_model);
    write_file("b/model.onnx", "x");
    folder = look("b");
    cr_assert(folder.has_model && !folder.is_flat);
    cr_assert_eq(folder.version_count, 3);
}

Test(repository, models_without_versions)
{
    make_folder("a");
    write_file("a/model.onnx", "x");
    write_file("c.onnx", "x");
    write_file("b.onnx", "x");
    make_folder("1");
    write_file("1/model.onnx", "x");
    struct qd_model_folder folder = look("a");
    cr_assert(folder.is_flat && folder.file[0] == '\0' && folder.version_count == 1);
    folder = look("c");
    cr_assert(folder.is_flat && folder.version_count == 1);
    cr_assert_str_eq(folder.file, "c.onnx");
    cr_assert(look("b").hides_file);
    cr_assert_eq(look("1").version_count, 0);
}

Test(repository, files_that_the_command_line_names)
{
    char value[128];
    snprintf(value, sizeof(value), "b=%s/b/1/model.onnx,./a=c.onnx", base);
    cr_assert_eq(qd_repository_give(repository, value, &error), QD_OK, "%s", error.text);
    cr_assert(qd_repository_given_path(repository, "b") != NULL);
    cr_assert_null(qd_repository_given_path(repository, "a"));
    cr_assert(qd_repository_given_path(repository, "a=c") != NULL);
    struct qd_model_folder folder = look("b");
    cr_assert(folder.is_given && folder.is_flat && folder.version_count == 1);
    cr_assert_str_eq(folder.file, "model.onnx");
}

/* More entries than one read of the folder returns. */
Test(repository, a_folder_of_many_versions)
{
    char path[32];
    make_folder("a");
    for (int i = 1; i <= 1000; i++) {
        snprintf(path, sizeof(path), "a/%d", i);
        make_folder(path);
    }
    struct qd_model_folder folder = look("a");
    cr_assert_eq(folder.version_count, 1000);
    for (size_t i = 0; i < folder.version_count; i++)
        cr_assert_eq(folder.versions[i], i + 1);
}

Test(repository, marks_a_folder_for_who_wants_it)
{
    struct qd_model_folder folder;
    cr_assert_eq(qd_model_folder_open(repository, "b", false, &scratch.arena, &folder, &error),
                 QD_OK);
    qd_model_folder_close(&folder);
    cr_assert_eq(folder.version_count, 3);
    cr_assert_eq(folder.fingerprint, 0);
    cr_assert_neq(look("b").fingerprint, 0);
}

Test(repository, a_folder_that_is_not_there)
{
    struct qd_model_folder folder;
    cr_assert_eq(qd_model_folder_open(repository, "z", true, &scratch.arena, &folder, &error),
                 QD_NOT_FOUND);
    cr_assert_eq(symlinkat("/etc", root, "etc"), 0);
    cr_assert_eq(qd_model_folder_open(repository, "etc", true, &scratch.arena, &folder, &error),
                 QD_INVALID);
    cr_assert_eq(symlinkat("/etc", root, "b/11"), 0);
    cr_assert_eq(qd_model_folder_open(repository, "b", true, &scratch.arena, &folder, &error),
                 QD_INVALID);
    cr_assert_null(qd_repository_open("/nonexistent", QD_LINKS_INSIDE, &error));
}

/* Every change of a file changes the fingerprint. Without a change it stays. */
Test(repository, fingerprints_tell_changes)
{
    uint64_t seen[8];
    size_t count = 0;
    seen[count++] = look("b").fingerprint;
    cr_assert_eq(look("b").fingerprint, seen[0]);
    write_file("b/1/model.onnx", "xy");
    seen[count++] = look("b").fingerprint;
    write_file("b/2/weights.bin", "x");
    seen[count++] = look("b").fingerprint;
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1, .tv_nsec = 1}};
    cr_assert_eq(utimensat(root, "b/1/model.onnx", times, 0), 0);
    seen[count++] = look("b").fingerprint;
    cr_assert_eq(renameat(root, "b/2/weights.bin", root, "b/10/weights.bin"), 0);
    seen[count++] = look("b").fingerprint;
    make_folder("b/11");
    seen[count++] = look("b").fingerprint;
    write_file("b/config.json", "{}");
    seen[count++] = look("b").fingerprint;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            cr_assert_neq(seen[i], seen[k], "%zu and %zu", i, k);
    cr_assert_eq(look("b").fingerprint, seen[count - 1]);
}
