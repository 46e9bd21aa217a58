#include "server/work/loader.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/lock.h"
#include "server/memory/text.h"
#include "server/telemetry/log.h"
#include "server/work/load.h"

enum {
    RETRY_MS = 100, /* the scheduler's queue was full */
};

/* A model of the repository, as the last scan found it. */
struct folder {
    char name[QD_MODEL_NAME_BYTES_MAX + 1];
    uint64_t fingerprint; /* of what was last loaded, or failed to load; 0: load again */
    bool wanted;          /* must be loaded */
    bool failed;          /* the last scan could not read it, and said so */
};

struct qd_loader {
    struct qd_loader_settings settings;
    struct qd_handle *wake; /* tells the loop that a call waits */

    pthread_mutex_t lock;   /* protects all below, and the loads that wait */
    struct folder *folders; /* sorted by name */
    size_t folder_count;
    size_t wanted_from;      /* index; no folder before it is wanted */
    struct qd_load *current; /* the load on the workers, or NULL */
    bool dropped;            /* the current load's models are not installed */
    uint64_t begun_ns;
    struct qd_load *waiting; /* load calls, in order */
    size_t waiting_count;
    struct qd_scan scan;
    bool scanning;
    struct qd_handle *timer; /* until the next scan or the next try */
    bool stopping;

    void (*on_started)(void *context, const struct qd_error *error); /* NULL if it was called */
    void *started_context;
    struct qd_error error;   /* the first error while the loader starts */
    qd_callback *on_stopped; /* NULL before qd_loader_stop, and after the call */
    void *stopped_context;
};

static void go_on(struct qd_loader *loader);
static void look(void *context);

struct qd_loader *qd_loader_create(const struct qd_loader_settings *settings)
{
    struct qd_loader *loader = calloc(1, sizeof(*loader));
    if (loader == NULL)
        return NULL;
    loader->settings = *settings;
    loader->settings.tools.marks_folders = settings->mode != QD_CONTROL_EXPLICIT;
    pthread_mutex_init(&loader->lock, NULL);
    loader->timer = qd_loop_timer(settings->tools.loop, look, loader);
    loader->wake = qd_loop_async(settings->tools.loop, look, loader);
    if (loader->timer != NULL && loader->wake != NULL)
        return loader;
    qd_loader_destroy(loader);
    return NULL;
}

void qd_loader_destroy(struct qd_loader *loader)
{
    if (loader == NULL)
        return;
    assert(loader->current == NULL && loader->waiting == NULL && !loader->scanning);
    qd_handle_destroy(loader->timer);
    qd_handle_destroy(loader->wake);
    pthread_mutex_destroy(&loader->lock);
    free(loader->folders);
    free(loader);
}

/* Keeps the first error while the loader starts: `what`, and why. Returns true if that error ends
 * the process, which prints it then. It need not be logged, too, and nothing more is loaded. */
static bool keep_failure(struct qd_loader *loader, const char *what, const char *why)
{
    if (loader->on_started == NULL || loader->error.status != QD_OK)
        return false;
    qd_fail_startup(&loader->error, "%s%s", what, why);
    return loader->settings.exit_on_error;
}

/* Returns the path of the model's file if --model gave it, otherwise NULL. */
static const char *given_path(const struct qd_loader *loader, const char *name)
{
    const struct qd_repository *repository = loader->settings.tools.repository;
    return repository == NULL ? NULL : qd_repository_given_path(repository, name);
}

/* Returns whether the command line asks for the model: --model or --load-model. */
static bool is_asked(const struct qd_loader *loader, const char *name)
{
    const char *const *lists = loader->settings.load_models;
    bool asked = given_path(loader, name) != NULL;
    for (size_t i = 0; i < loader->settings.load_model_count; i++)
        asked |= qd_list_has(lists[i], name) || qd_list_has(lists[i], "*");
    return asked;
}

/* Returns the error of a model as the operator may see it: with the folder of a file of --model. */
static struct qd_error shown_error(const struct qd_loader *loader, const char *name,
                                   const char *why)
{
    struct qd_error shown;
    const char *path = given_path(loader, name);
    qd_fail(&shown, QD_INVALID, "%s", why);
    if (path != NULL)
        qd_repository_show_folder(path, &shown);
    return shown;
}

/* Like keep_failure, for a model. Begins with the flag that the model comes from. */
static bool keep_model_failure(struct qd_loader *loader, const char *name, const char *why)
{
    const bool is_given = given_path(loader, name) != NULL;
    return keep_failure(loader, is_given ? "--model: " : "a model of --model-repository: ",
                        shown_error(loader, name, why).text);
}

/* ---- The repository's folders ------------------------------------------------------------- */

static int compare_name(const void *name, const void *folder)
{
    return strcmp(name, ((const struct folder *)folder)->name);
}

static struct folder *find_folder(const struct qd_loader *loader, const char *name)
{
    return loader->folder_count == 0 ? NULL
                                     : bsearch(name, loader->folders, loader->folder_count,
                                               sizeof(*loader->folders), compare_name);
}

/* Sets the state of a name in the index. */
static void note(struct qd_loader *loader, const char *name, enum qd_model_state state,
                 const char *reason)
{
    if (!qd_models_note(loader->settings.models, name, state, reason))
        qd_log(QD_LOG_WARN, "no memory to note a model's state", "model=\"%s\"", name);
}

/* Updates a folder from a scan. `before`: what the scan before found; NULL if nothing. */
static void update_folder(struct qd_loader *loader, struct folder *folder,
                          const struct folder *before, const struct qd_scan_entry *entry)
{
    *folder = before != NULL ? *before : (struct folder){.wanted = false};
    snprintf(folder->name, sizeof(folder->name), "%s", entry->name);
    folder->failed = entry->failure != NULL;
    if (folder->failed) {
        const bool loads =
            loader->settings.mode != QD_CONTROL_EXPLICIT || is_asked(loader, entry->name);
        const bool ends = loads && keep_model_failure(loader, entry->name, entry->failure);
        const bool is_new = before == NULL || before->fingerprint != 0;
        if (is_new && !ends)
            qd_log(QD_LOG_WARN, "a model cannot be read", "model=\"%s\" why=\"%s\"", entry->name,
                   qd_log_value(shown_error(loader, entry->name, entry->failure).text).text);
        if (is_new)
            note(loader, folder->name, QD_MODEL_UNAVAILABLE, entry->failure);
        folder->fingerprint = 0;
        return;
    }
    if (loader->settings.mode == QD_CONTROL_EXPLICIT) {
        if (before == NULL)
            note(loader, folder->name, QD_MODEL_UNAVAILABLE, "not loaded");
        return;
    }
    folder->wanted |= before == NULL || before->fingerprint != entry->fingerprint;
    folder->fingerprint = entry->fingerprint;
    if (folder->wanted)
        note(loader, folder->name, QD_MODEL_LOADING, "");
}

/* Takes a model out of service whose folder is gone. */
static void remove_gone(struct qd_loader *loader, const char *name)
{
    qd_log(QD_LOG_INFO, "a model is gone from the repository: unloaded", "model=\"%s\"", name);
    if (loader->current != NULL && strcmp(loader->current->name, name) == 0)
        loader->dropped = true;
    qd_models_remove(loader->settings.models, name);
    qd_models_forget(loader->settings.models, name);
}

static void take_scan(struct qd_loader *loader, const struct qd_scan *scan)
{
    struct folder *const before = loader->folders;
    const size_t before_count = loader->folder_count;
    struct folder *folders = calloc(scan->count + 1, sizeof(*folders));
    if (folders == NULL) {
        qd_log(QD_LOG_WARN, "no memory for the repository's list", "%s", "");
        return;
    }
    for (size_t i = 0; i < scan->count; i++)
        update_folder(loader, &folders[i], find_folder(loader, scan->entries[i].name),
                      &scan->entries[i]);
    loader->folders = folders;
    loader->folder_count = scan->count;
    loader->wanted_from = 0;
    for (size_t i = 0; i < before_count; i++)
        if (find_folder(loader, before[i].name) == NULL)
            remove_gone(loader, before[i].name);
    free(before);
}

/* Returns whether the repository has one model, which a version's file in its own folder makes. */
static bool is_one_version(const struct qd_scan *scan)
{
    return scan->holds_model && scan->count == 1;
}

/* Refuses a name of --load-model, and says which names there are. */
static void refuse_name(struct qd_loader *loader, const char *name)
{
    static const char path_too_deep[] = "; if --model-repository is the folder of one model or "
                                        "version, give the folder that holds the model's";
    static const char path_too_shallow[] = "; if one of these folders is or holds the repository, "
                                           "give that to --model-repository";
    enum {
        LIST_BYTES = 160,
        HINT_BYTES = sizeof(path_too_deep) > sizeof(path_too_shallow) ? sizeof(path_too_deep)
                                                                      : sizeof(path_too_shallow),
    };
    char known[LIST_BYTES] = "";
    char why[QD_MODEL_NAME_BYTES_MAX + LIST_BYTES + sizeof("\"\"; the repository has ") +
             HINT_BYTES];
    for (size_t i = 0; i < loader->folder_count; i++)
        if (!qd_list_name(known, sizeof(known), loader->folders[i].name))
            break;
    snprintf(why, sizeof(why), "\"%s\"; the repository has %s%s", name,
             *known == '\0' ? "none" : known,
             loader->scan.holds_version || is_one_version(&loader->scan) ? path_too_deep
             : loader->scan.holds_folders                                ? path_too_shallow
                                                                         : "");
    keep_failure(loader, "--load-model: expected a model of the repository, got ", why);
}

/* Refuses a list of names, a value of --load-model, if the repository lacks one of them. */
static void check_names(struct qd_loader *loader, const char *names)
{
    while (*names != '\0') {
        char name[QD_MODEL_NAME_BYTES_MAX + 1];
        const size_t bytes = strcspn(names, ",");
        snprintf(name, sizeof(name), "%.*s", (int)bytes, names);
        names += bytes + (names[bytes] == ',');
        const bool is_known = bytes < sizeof(name) && find_folder(loader, name) != NULL;
        if (!is_known && bytes > 0 && strcmp(name, "*") != 0)
            refuse_name(loader, name);
    }
}

/* Marks what the command line asks for as wanted, in mode explicit: --model and --load-model. */
static void want_at_start(struct qd_loader *loader)
{
    const struct qd_loader_settings *settings = &loader->settings;
    for (size_t i = 0; i < loader->folder_count; i++)
        loader->folders[i].wanted |= is_asked(loader, loader->folders[i].name);
    for (size_t i = 0; i < settings->load_model_count; i++)
        check_names(loader, settings->load_models[i]);
}

static void on_scanned(struct qd_scan *scan)
{
    struct qd_loader *loader = scan->context;
    QD_LOCKED(&loader->lock);
    loader->scanning = false;
    if (scan->error.status != QD_OK) {
        if (!keep_failure(loader, "", scan->error.text))
            qd_log(QD_LOG_WARN, "the repository cannot be read", "why=\"%s\"",
                   qd_log_value(scan->error.text).text);
    } else if (!loader->stopping) {
        take_scan(loader, scan);
        if (loader->on_started != NULL && loader->folder_count == 0)
            qd_log(QD_LOG_WARN, "the repository has no models", "expected=\"%s\"",
                   "NAME/1/model.onnx, NAME/model.onnx or NAME.onnx");
        if (loader->on_started != NULL && is_one_version(scan) &&
            qd_repository_is_named_as_version(scan->repository))
            qd_log(QD_LOG_WARN, "the repository looks like a version of one model",
                   "expected=\"%s\"", "the folder that holds the model's folder");
        if (loader->on_started != NULL)
            want_at_start(loader);
    }
    qd_scan_clear(scan);
    go_on(loader);
}

static void begin_scan(struct qd_loader *loader)
{
    const struct qd_load_tools *tools = &loader->settings.tools;
    loader->scan =
        (struct qd_scan){.repository = tools->repository, .on_done = on_scanned, .context = loader};
    loader->scanning = qd_scan_submit(&loader->scan, tools->scheduler, tools->loop, tools->memory);
    if (!loader->scanning)
        qd_timer_start(loader->timer, RETRY_MS, 0);
}

/* ---- One load after the other ------------------------------------------------------------- */

/* Answers a call. A success has an empty body, as with Triton. */
static void answer(struct qd_request *request, const struct qd_error *error)
{
    request->error = *error;
    if (error->status == QD_OK)
        qd_request_reply_empty(request);
    request->on_answered(request);
}

/* Refuses load calls for a name, or for any name if it is NULL, whose loads have not begun. Returns
 * whether there were any. */
static bool refuse_waiting(struct qd_loader *loader, const char *name, const char *why)
{
    bool any = false;
    for (struct qd_load **link = &loader->waiting; *link != NULL;) {
        struct qd_load *load = *link;
        if (name != NULL && strcmp(load->name, name) != 0) {
            link = &load->next;
            continue;
        }
        *link = load->next;
        loader->waiting_count--;
        any = true;
        qd_fail(&load->error, QD_UNAVAILABLE, "%s", why);
        answer(load->request, &load->error);
        qd_load_destroy(load);
    }
    return any;
}

/* Puts the loaded models into service. */
static void install(struct qd_loader *loader, struct qd_load *load)
{
    if (loader->dropped) {
        qd_fail(&load->error, QD_UNAVAILABLE, "%s was unloaded while it was loading", load->name);
        return;
    }
    if (load->error.status != QD_OK ||
        qd_models_install(loader->settings.models, load->name, load->models, load->model_count,
                          &load->error) != QD_OK)
        return;
    size_t bytes = 0;
    for (size_t i = 0; i < load->model_count; i++)
        bytes += load->models[i]->resident_bytes;
    qd_log(QD_LOG_INFO, "model loaded", "model=\"%s\" version=%llu versions=%zu bytes=%zu ms=%llu",
           load->name, (unsigned long long)load->models[load->model_count - 1]->signature.version,
           load->model_count, bytes,
           (unsigned long long)((qd_clock_ns() - loader->begun_ns) / QD_NS_PER_MS));
    load->model_count = 0; /* they belong to the table now */
}

/* Logs the failure and sets the name's state. A name that is neither in service nor in the
 * repository is kept in the index for a while. */
static void note_failure(struct qd_loader *loader, const struct qd_load *load)
{
    const bool in_service = qd_models_has(loader->settings.models, load->name);
    const struct folder *folder = find_folder(loader, load->name);
    /* At start, a file of --model is loaded even if the scan could not read it. */
    const bool was_said = loader->on_started != NULL && folder != NULL && folder->failed;
    if (!loader->dropped) {
        if (!keep_model_failure(loader, load->name, load->error.text) && !was_said)
            qd_log(QD_LOG_WARN, "model not loaded", "model=\"%s\" still_in_service=%s why=\"%s\"",
                   load->name, in_service ? "yes" : "no",
                   qd_log_value(shown_error(loader, load->name, load->error.text).text).text);
        note(loader, load->name, QD_MODEL_UNAVAILABLE, load->error.text);
    }
    if (!in_service && folder == NULL)
        qd_models_shelve(loader->settings.models, load->name);
}

static void on_loaded(struct qd_load *load)
{
    struct qd_loader *loader = load->context;
    QD_LOCKED(&loader->lock);
    struct folder *folder = find_folder(loader, load->name);
    install(loader, load);
    if (load->error.status != QD_OK)
        note_failure(loader, load);
    if (folder != NULL && load->error.status == QD_UNAVAILABLE)
        folder->fingerprint = 0; /* the next try may succeed: other models may have been unloaded */
    else if (folder != NULL && load->from_repository)
        folder->fingerprint = load->fingerprint;
    if (load->request != NULL)
        answer(load->request, &load->error);
    qd_load_destroy(load);
    loader->current = NULL;
    go_on(loader);
}

static struct folder *next_wanted(struct qd_loader *loader)
{
    const bool start_fails = loader->on_started != NULL && loader->error.status != QD_OK;
    if (loader->stopping || (start_fails && loader->settings.exit_on_error))
        return NULL;
    while (loader->wanted_from < loader->folder_count) {
        struct folder *folder = &loader->folders[loader->wanted_from];
        if (folder->wanted)
            return folder;
        loader->wanted_from++;
    }
    return NULL;
}

static struct qd_load *make_load(struct qd_loader *loader, const char *name)
{
    struct qd_load *load = qd_load_create(&loader->settings.tools, name);
    if (load != NULL) {
        load->on_done = on_loaded;
        load->context = loader;
    }
    return load;
}

/* Begins the next load, of a call or of a wanted folder. If the table has no room for the model,
 * the load fails at once. If the scheduler has no room now, or there was no memory for the load, a
 * timer tries again. Returns false if there is nothing to load. */
static bool begin_next(struct qd_loader *loader)
{
    struct qd_load *const call = loader->waiting;
    struct folder *folder = call != NULL ? NULL : next_wanted(loader);
    if (call == NULL && folder == NULL)
        return false;
    struct qd_load *load = call != NULL ? call : make_load(loader, folder->name);
    if (load != NULL) {
        load->error.status = QD_OK;
        qd_models_try_room(loader->settings.models, load->name, 1, &load->error);
    }
    if (load == NULL || !qd_load_submit(load)) {
        if (load != call)
            qd_load_destroy(load);
        qd_timer_start(loader->timer, RETRY_MS, 0);
        return true;
    }
    if (call != NULL) {
        loader->waiting = call->next;
        loader->waiting_count--;
    } else {
        folder->wanted = false;
    }
    loader->current = load;
    loader->dropped = false;
    loader->begun_ns = qd_clock_ns();
    note(loader, load->name, QD_MODEL_LOADING, "");
    return true;
}

static void end_start(struct qd_loader *loader)
{
    void (*on_started)(void *context, const struct qd_error *error) = loader->on_started;
    loader->on_started = NULL;
    on_started(loader->started_context, loader->error.status == QD_OK ? NULL : &loader->error);
}

static bool polls(const struct qd_loader *loader)
{
    return loader->settings.mode == QD_CONTROL_POLL && !loader->stopping;
}

/* Begins the next load, or calls on_started and on_stopped if there is none. Under the lock, and on
 * the loop's thread, because of the timer. */
static void go_on(struct qd_loader *loader)
{
    if (loader->current != NULL || loader->scanning)
        return;
    if (qd_scheduler_is_abandoned(loader->settings.tools.scheduler))
        refuse_waiting(loader, NULL, "the server shuts down");
    if (begin_next(loader))
        return;
    if (polls(loader))
        qd_timer_start(loader->timer, loader->settings.poll_ns / QD_NS_PER_MS, 0);
    if (loader->on_started != NULL)
        end_start(loader);
    if (loader->on_stopped != NULL) {
        qd_callback *on_stopped = loader->on_stopped;
        loader->on_stopped = NULL;
        on_stopped(loader->stopped_context);
    }
}

/* Begins a scan, or goes on with loads that wait: calls, and those for which there was no room. */
static void look(void *context)
{
    struct qd_loader *loader = context;
    QD_LOCKED(&loader->lock);
    const bool waits = loader->waiting != NULL || next_wanted(loader) != NULL;
    const bool idle = loader->current == NULL && !loader->scanning;
    if (idle && !waits && (polls(loader) || loader->on_started != NULL))
        begin_scan(loader);
    else
        go_on(loader);
}

/* ---- The interface ------------------------------------------------------------------------ */

void qd_loader_start(struct qd_loader *loader,
                     void (*on_started)(void *context, const struct qd_error *error), void *context)
{
    loader->on_started = on_started;
    loader->started_context = context;
    QD_LOCKED(&loader->lock);
    if (loader->settings.tools.repository != NULL)
        begin_scan(loader);
    else
        end_start(loader);
}

enum qd_status qd_loader_check(const struct qd_loader *loader, const char *name,
                               struct qd_error *error)
{
    if (loader->settings.mode != QD_CONTROL_EXPLICIT) {
        return qd_fail(error, QD_NOT_OFFERED,
                       "--model-control-mode: expected explicit, which lets calls load and unload "
                       "models, got \"%s\"",
                       loader->settings.mode == QD_CONTROL_POLL ? "poll" : "none");
    }
    return qd_model_check_name(name, error);
}

/* Under the lock. */
static enum qd_status try_room(const struct qd_loader *loader, const char *name,
                               struct qd_error *error)
{
    enum qd_status status = qd_loader_check(loader, name, error);
    if (status == QD_OK && qd_scheduler_is_abandoned(loader->settings.tools.scheduler))
        return qd_fail_for(error, QD_REASON_SHUTDOWN, QD_UNAVAILABLE, "the server shuts down");
    if (status == QD_OK && loader->waiting_count == QD_LOADER_WAITING_MAX) {
        return qd_fail_for(error, QD_REASON_QUEUE, QD_UNAVAILABLE,
                           "%d loads wait already; try again later", QD_LOADER_WAITING_MAX);
    }
    return status != QD_OK ? status : qd_models_try_room(loader->settings.models, name, 1, error);
}

enum qd_status qd_loader_try_room(struct qd_loader *loader, const char *name,
                                  struct qd_error *error)
{
    QD_LOCKED(&loader->lock);
    return try_room(loader, name, error);
}

size_t qd_loader_waiting_count(struct qd_loader *loader)
{
    QD_LOCKED(&loader->lock);
    return loader->waiting_count;
}

static enum qd_status wait_in_line(struct qd_loader *loader, const char *name,
                                   struct qd_request *request)
{
    if (try_room(loader, name, &request->error) != QD_OK)
        return request->error.status;
    struct qd_load *load = make_load(loader, name);
    if (load == NULL)
        return qd_fail(&request->error, QD_UNAVAILABLE, "no memory for the load; try again later");
    load->request = request;
    load->timeout_ns = loader->settings.load_timeout_ns;
    struct qd_load **link = &loader->waiting;
    while (*link != NULL)
        link = &(*link)->next;
    *link = load;
    loader->waiting_count++;
    qd_request_advance(request, QD_QUEUED);
    return QD_OK;
}

enum qd_status qd_loader_load(struct qd_loader *loader, const char *name,
                              struct qd_request *request)
{
    pthread_mutex_lock(&loader->lock);
    const enum qd_status status = wait_in_line(loader, name, request);
    pthread_mutex_unlock(&loader->lock);
    if (status == QD_OK)
        qd_async_send(loader->wake);
    return status;
}

enum qd_status qd_loader_unload(struct qd_loader *loader, const char *name, struct qd_error *error)
{
    if (qd_loader_check(loader, name, error) != QD_OK)
        return error->status;
    QD_LOCKED(&loader->lock);
    bool any = refuse_waiting(loader, name, "the model was unloaded before it was loaded");
    if (loader->current != NULL && strcmp(loader->current->name, name) == 0) {
        loader->dropped = true;
        any = true;
    }
    struct folder *folder = find_folder(loader, name);
    if (folder != NULL)
        folder->wanted = false;
    any |= qd_models_remove(loader->settings.models, name);
    if (!any && folder == NULL)
        return qd_fail(error, QD_NOT_FOUND, "model: expected one that is loaded, got \"%s\"", name);
    note(loader, name, QD_MODEL_UNAVAILABLE, "unloaded");
    if (folder == NULL)
        qd_models_shelve(loader->settings.models, name);
    qd_log(QD_LOG_INFO, "model unloaded", "model=\"%s\"", name);
    return QD_OK;
}

void qd_loader_stop(struct qd_loader *loader, qd_callback *on_stopped, void *context)
{
    QD_LOCKED(&loader->lock);
    loader->stopping = true;
    loader->on_stopped = on_stopped;
    loader->stopped_context = context;
    qd_timer_stop(loader->timer);
    go_on(loader);
}
