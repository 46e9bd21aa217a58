#define _GNU_SOURCE
#include "server/models/explain/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/memory/arena.h"
#include "server/models/onnx/onnx_list.h"
#include "server/models/sources.h"

struct explainer {
    const struct qd_explain_settings *settings;
    struct qd_repository *repository;
    struct qd_sources sources; /* their arena lives as long as the explanation */
    struct qd_source source;
    struct qd_build build;
    struct qd_build_work work;
    struct qd_model *model;
    struct qk_graph *graph;
    struct qd_explanation made;
    struct qd_error *error;
};

/* ---- The model ----------------------------------------------------------------------------- */

/* Copies a text and another one behind it. Returns "" if the arena has no room. */
static const char *join(struct explainer *explainer, const char *first, const char *second)
{
    const size_t bytes = strlen(first);
    char *made = qd_arena_alloc(&explainer->sources.arena, bytes + strlen(second) + 1);
    if (made == NULL)
        return "";
    memcpy(made, first, bytes);
    strcpy(made + bytes, second);
    return made;
}

/* Opens a folder as a model of the folder around it. */
static enum qd_status open_folder(struct explainer *explainer, const char *path)
{
    char *whole = realpath(path, NULL);
    char *last = whole == NULL ? NULL : strrchr(whole, '/');
    if (last == NULL || last[1] == '\0') {
        free(whole);
        return qd_fail(explainer->error, QD_INVALID, "%.200s: expected a file, or a model's folder",
                       path);
    }
    *last = '\0';
    explainer->made.folder = join(explainer, last == whole ? "/" : whole, "");
    explainer->made.name = join(explainer, last + 1, "");
    free(whole);
    explainer->repository =
        qd_repository_open(explainer->made.folder, explainer->settings->links, explainer->error);
    return explainer->repository == NULL
               ? explainer->error->status
               : qd_model_check_name(explainer->made.name, explainer->error);
}

static enum qd_status open_file(struct explainer *explainer, const char *path)
{
    const char **names;
    size_t count;
    explainer->repository = qd_repository_open(NULL, explainer->settings->links, explainer->error);
    if (explainer->repository == NULL)
        return explainer->error->status;
    if (qd_repository_give(explainer->repository, path, explainer->error) != QD_OK ||
        qd_repository_list(explainer->repository, &explainer->sources.arena, &names, &count,
                           explainer->error) != QD_OK)
        return explainer->error->status;
    if (count != 1)
        return qd_fail(explainer->error, QD_INVALID, "expected one file, got %zu", count);
    explainer->made.name = names[0];
    explainer->made.file = qd_repository_given_file(path);
    return QD_OK;
}

/* Returns the name of the first model with a version in a repository, or NULL. */
static const char *find_model(struct explainer *explainer, const char *path)
{
    struct qd_arena *arena = &explainer->sources.arena;
    struct qd_error ignored;
    const char **names;
    const char *found = NULL;
    size_t count = 0;
    struct qd_repository *repository =
        qd_repository_open(path, explainer->settings->links, &ignored);
    if (repository != NULL &&
        qd_repository_list(repository, arena, &names, &count, &ignored) != QD_OK)
        count = 0;
    for (size_t i = 0; i < count && found == NULL; i++) {
        struct qd_model_folder folder;
        if (qd_model_folder_open(repository, names[i], false, arena, &folder, &ignored) != QD_OK)
            continue;
        if (folder.version_count > 0)
            found = names[i];
        qd_model_folder_close(&folder);
    }
    qd_repository_close(repository);
    return found;
}

/* Says what --explain takes, if a folder has no versions: it may be a repository, or the folder of
 * one version. */
static enum qd_status refuse_folder(struct explainer *explainer)
{
    static const char taken[] =
        "--explain takes one model: a file, or a model's folder in a repository";
    const struct qd_model_folder *folder = &explainer->sources.folder;
    const struct qd_error inner = *explainer->error;
    if (folder->version_count > 0)
        return inner.status;
    if (folder->has_model)
        return qd_fail(explainer->error, inner.status,
                       "%s: expected a model's folder, got a version's; %s", explainer->made.name,
                       taken);
    if (!folder->has_folders)
        return qd_fail(explainer->error, inner.status, "%.300s; %s", inner.text, taken);
    const char *path = explainer->settings->path;
    const char *model = find_model(explainer, path);
    if (model == NULL)
        return qd_fail(explainer->error, inner.status,
                       "%s: expected one model, got a folder of folders; %s", explainer->made.name,
                       taken);
    return qd_fail(explainer->error, inner.status,
                   "%s: expected one model, got a folder of models; give a model's folder, such "
                   "as %.150s%s%s",
                   explainer->made.name, path, path[strlen(path) - 1] == '/' ? "" : "/", model);
}

static enum qd_status open_model(struct explainer *explainer)
{
    struct stat about;
    const char *path = explainer->settings->path;
    const bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    struct qd_sources *sources = &explainer->sources;
    enum qd_status status = is_folder ? open_folder(explainer, path) : open_file(explainer, path);
    if (status != QD_OK) {
        struct qd_error inner = *explainer->error;
        return qd_fail(explainer->error, inner.status, "--explain: %s", inner.text);
    }
    sources->name = explainer->made.name;
    sources->repository = explainer->repository;
    status = qd_sources_open(sources, explainer->error);
    return status != QD_OK && is_folder ? refuse_folder(explainer) : status;
}

/* ---- The steps of a load ------------------------------------------------------------------- */

/* Shows which step begins, and how much of all steps is done. */
static void set_step(const struct explainer *explainer, const char *step, unsigned percent)
{
    static const char bar[] = "##############################";
    enum { CELLS = sizeof(bar) - 1 };
    const int done = (int)(percent * CELLS / 100);
    if (explainer->settings->has_progress)
        fprintf(stderr, "\r[%.*s%*s] %s\033[K", done, bar, CELLS - done, "", step);
}

/* Fetches what the sources have to fetch, between two shares of the work in percent. */
static enum qd_status fetch(struct explainer *explainer, unsigned from, unsigned to)
{
    struct qd_sources *sources = &explainer->sources;
    const size_t count = sources->unit_count;
    for (size_t i = 0; i < count; i++) {
        set_step(explainer, "reading", from + (unsigned)((to - from) * i / count));
        qd_sources_fetch(sources, i, i + 1);
    }
    return qd_sources_check(sources, explainer->error);
}

/* Says where the file could be cut. */
static enum qd_status refuse(struct explainer *explainer)
{
    struct qd_cut_hints *hints = &explainer->made.cuts;
    set_step(explainer, "looking where to cut", 70);
    qd_cut_hints_find(&explainer->build, &explainer->source, explainer->error, hints);
    return qd_sources_fail(&explainer->sources, hints, explainer->error);
}

/* Lists the nodes of a file that is refused, with all reasons. A file that cannot be listed has
 * none. A load does not do that, so it does not count in the load's work. */
static void list_refused(struct explainer *explainer)
{
    struct qd_build_work work = {.tried_nodes = 0};
    struct qd_onnx_source source = explainer->source.content;
    struct qd_onnx_list *list = &explainer->build.listed;
    struct qd_error ignored;
    list->count = 0;
    if (explainer->source.kind != QD_SOURCE_ONNX)
        return;
    source.cut = explainer->sources.config.cut;
    if (!qd_build_try(&work, QD_TRIED_FILE_NODES, source.count / 4) ||
        qd_onnx_list_refused(&source, &explainer->sources.arena, list, &ignored) != QD_OK)
        list->count = 0;
}

static enum qd_status read_source(struct explainer *explainer)
{
    struct qd_sources *sources = &explainer->sources;
    struct qd_error *error = explainer->error;
    if (qd_sources_find(sources, sources->version_count - 1, error) != QD_OK)
        return error->status;
    if (explainer->made.folder != NULL)
        explainer->made.file =
            join(explainer, join(explainer, explainer->made.folder, "/"), sources->shown);
    if (fetch(explainer, 0, 20) != QD_OK ||
        qd_sources_take(sources, &explainer->source, error) != QD_OK ||
        qd_sources_set_build(sources, explainer->settings->kernels, &explainer->work,
                             &explainer->build, error) != QD_OK)
        return error->status;
    set_step(explainer, "parsing", 20);
    if (qd_build_read(&explainer->build, &explainer->source, error) != QD_OK) {
        const enum qd_status refused = refuse(explainer);
        list_refused(explainer);
        return refused;
    }
    qd_cut_inputs_describe(&explainer->build, &explainer->source);
    return fetch(explainer, 30, 40);
}

/* Marks the node that a load is refused for, with the reason of the error, whose text begins with
 * the node. */
static void mark_refused(struct explainer *explainer, uint32_t index)
{
    struct qd_onnx_list *list = &explainer->build.listed;
    char where[32];
    if (index >= list->count)
        return;
    struct qd_onnx_listed *node = &list->nodes[index];
    node->fate = QD_FATE_REFUSED;
    snprintf(where, sizeof(where), "node %" PRIu32 " (", index);
    const char *begin = strstr(explainer->error->text, where);
    const char *end = begin == NULL ? NULL : strstr(begin, "): ");
    if (node->refusal == NULL)
        node->refusal = qd_arena_copy(&explainer->sources.arena,
                                      end == NULL ? explainer->error->text : end + strlen("): "));
}

static enum qd_status prepare(struct explainer *explainer)
{
    struct qd_build *build = &explainer->build;
    set_step(explainer, "folding, fusing and checking", 40);
    const enum qd_status status =
        qd_build_prepare(build, &explainer->model, &explainer->graph, explainer->error);
    if (status == QD_OK)
        return status;
    mark_refused(explainer, build->graph.refused_node);
    return refuse(explainer);
}

/* ---- All ----------------------------------------------------------------------------------- */

/* Prints the explanation. If nothing is known of the file, prints no text, but JSON with the error.
 * If a text says why the file is refused, the error becomes shorter, so that a terminal does not
 * have the reason twice. */
static bool print(struct explainer *explainer, FILE *out)
{
    const struct qd_explain_settings *settings = explainer->settings;
    const struct qd_explanation *made = &explainer->made;
    if (settings->as_json)
        return qd_explanation_print_json(made, &explainer->sources.arena, out);
    if (made->signature == NULL && made->list->count == 0)
        return true;
    if (made->signature == NULL)
        qd_fail(explainer->error, explainer->error->status, "%.300s is refused", made->file);
    return qd_explanation_print_text(made, settings->columns, &explainer->sources.arena, out);
}

bool qd_explain(const struct qd_explain_settings *settings, FILE *out, struct qd_error *error)
{
    struct explainer *explainer = calloc(1, sizeof(*explainer));
    error->status = QD_OK;
    if (explainer == NULL)
        return qd_fail_startup(error, "out of memory");
    struct qd_explanation *made = &explainer->made;
    made->program = settings->program;
    made->name = made->file = made->about = "";
    made->list = &explainer->build.listed;
    explainer->settings = settings;
    explainer->error = error;
    qd_sources_init(&explainer->sources, "", NULL, settings->memory);
    enum qd_status status = open_model(explainer);
    if (status == QD_OK)
        status = read_source(explainer);
    if (status == QD_OK)
        status = prepare(explainer);
    set_step(explainer, "planning", 80);
    if (status == QD_OK)
        status =
            qd_explain_keep(&explainer->build, explainer->model, explainer->graph, made, error);
    if (status != QD_OK)
        qd_repository_show_folder(qd_repository_given_file(settings->path), error);
    made->error = *error;
    fputs(settings->has_progress ? "\r\033[K" : "", stderr); /* removes the last step */
    if (!print(explainer, out) && status == QD_OK)
        status = qd_fail(error, QD_INTERNAL, "--explain: the output cannot be written");
    qd_model_release(explainer->model);
    qd_sources_close(&explainer->sources);
    qd_repository_close(explainer->repository);
    free(explainer);
    return status == QD_OK;
}
