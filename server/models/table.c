#include "server/models/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/base/limits.h"
#include "server/base/lock.h"
#include "server/json/tree.h"

enum { LIST_BYTES = 320, OPERATORS_BYTES = 144, REASON_BYTES = 512 };

/* All versions of one name. */
struct family {
    char *name;
    const struct qk_operator *op; /* NULL for a loaded name */
    struct qd_model **versions;   /* in service, ascending; NULL if there are none */
    size_t version_count;
    atomic_size_t model_count; /* models in service or held by requests */
    /* Used for loaded names only. */
    enum qd_model_state state; /* the last noted state */
    char reason[REASON_BYTES]; /* why it is not READY, or why a newer load failed; "": none */
    uint64_t last_version;     /* the newest version that was ever in service; 0 if none was */
    bool leaving;              /* forget the name with its last request */
    uint64_t shelved;          /* the value of shelved_count when it was shelved; 0 if it is not */
};

struct qd_models {
    struct qd_metrics *metrics;
    struct family *operators; /* in the registry's order */
    size_t operator_count;

    pthread_mutex_t lock;   /* protects all fields below */
    struct family **loaded; /* sorted by name */
    size_t loaded_count;
    uint64_t shelved_count; /* how often a name was shelved */
};

/* ---- Built-in models ---------------------------------------------------------------------- */

/* Makes a model, with its ports behind it. Returns NULL if malloc failed. */
static struct qd_model *make_builtin(const struct qd_models *models, const struct qk_operator *op,
                                     const struct qk_version *row)
{
    const size_t port_count = op->input_count + op->output_count;
    struct qd_model *model = calloc(1, sizeof(*model) + port_count * sizeof(struct qd_port));
    if (model == NULL)
        return NULL;
    model->reference_count = 1;
    model->counters = qd_metrics_counters(models->metrics, op->name, row->number);
    if (model->counters != NULL)
        qd_counters_hide_zeros(model->counters);
    qd_signature_init(&model->signature, op, row, (struct qd_port *)(model + 1));
    return model;
}

static bool make_builtins(struct qd_models *models)
{
    const struct qk_operator *const *ops = qk_operators(&models->operator_count);
    bool done = (models->operators = calloc(models->operator_count, sizeof(struct family))) != NULL;
    for (size_t i = 0; i < models->operator_count && done; i++) {
        const struct qk_operator *op = ops[i];
        struct family *family = &models->operators[i];
        *family = (struct family){.name = (char *)op->name, .op = op};
        family->versions = calloc(op->version_count, sizeof(struct qd_model *));
        done = family->versions != NULL;
        while (done && family->version_count < op->version_count) {
            struct qd_model *made = make_builtin(models, op, &op->versions[family->version_count]);
            family->versions[family->version_count] = made;
            family->version_count += made != NULL;
            done = made != NULL && made->counters != NULL;
        }
    }
    return done;
}

struct qd_models *qd_models_create(struct qd_metrics *metrics)
{
    struct qd_models *models = calloc(1, sizeof(*models));
    if (models == NULL)
        return NULL;
    models->metrics = metrics;
    pthread_mutex_init(&models->lock, NULL);
    if (!make_builtins(models)) {
        qd_models_destroy(models);
        return NULL;
    }
    return models;
}

static void retire(struct family *family)
{
    for (size_t i = 0; i < family->version_count; i++)
        qd_model_release(family->versions[i]);
    free(family->versions);
    family->versions = NULL;
    family->version_count = 0;
}

void qd_models_destroy(struct qd_models *models)
{
    if (models == NULL)
        return;
    for (size_t i = 0; i < models->loaded_count; i++) {
        struct family *family = models->loaded[i];
        retire(family);
        assert(family->model_count == 0);
        free(family);
    }
    for (size_t i = 0; models->operators != NULL && i < models->operator_count; i++)
        retire(&models->operators[i]);
    free(models->loaded);
    free(models->operators);
    pthread_mutex_destroy(&models->lock);
    free(models);
}

/* ---- Names -------------------------------------------------------------------------------- */

static int compare_name(const void *name, const void *family)
{
    return strcmp(name, (*(struct family *const *)family)->name);
}

static struct family *find_loaded(const struct qd_models *models, const char *name)
{
    struct family **found = models->loaded_count == 0
                                ? NULL
                                : bsearch(name, models->loaded, models->loaded_count,
                                          sizeof(struct family *), compare_name);
    return found == NULL ? NULL : *found;
}

static struct family *find_family(const struct qd_models *models, const char *name)
{
    for (size_t i = 0; i < models->operator_count; i++)
        if (strcmp(models->operators[i].name, name) == 0)
            return &models->operators[i];
    return find_loaded(models, name);
}

static struct family *make_family(const char *name)
{
    const size_t bytes = strlen(name) + 1;
    struct family *family = calloc(1, sizeof(*family) + bytes);
    if (family == NULL)
        return NULL;
    family->name = memcpy(family + 1, name, bytes);
    family->state = QD_MODEL_UNAVAILABLE;
    return family;
}

static bool has_left(const struct family *family)
{
    return family->leaving && atomic_load(&family->model_count) == 0;
}

/* Frees the families that have left. */
static void sweep(struct qd_models *models)
{
    size_t kept = 0;
    for (size_t i = 0; i < models->loaded_count; i++) {
        struct family *family = models->loaded[i];
        if (has_left(family))
            free(family);
        else
            models->loaded[kept++] = family;
    }
    models->loaded_count = kept;
}

/* Finds or creates the family of a loaded name. Returns NULL if malloc failed. */
static struct family *take_family(struct qd_models *models, const char *name)
{
    sweep(models);
    struct family *family = find_loaded(models, name);
    if (family != NULL) {
        family->leaving = false;
        family->shelved = 0;
        return family;
    }
    struct family **grown =
        realloc(models->loaded, (models->loaded_count + 1) * sizeof(struct family *));
    if (grown == NULL)
        return NULL;
    models->loaded = grown;
    family = make_family(name);
    if (family == NULL)
        return NULL;
    size_t place = models->loaded_count++;
    for (; place > 0 && strcmp(name, grown[place - 1]->name) < 0; place--)
        grown[place] = grown[place - 1];
    grown[place] = family;
    return family;
}

/* ---- Finding ------------------------------------------------------------------------------ */

/* Prints the names of some operators, and of as many loaded models as fit. */
static void list_models(const struct qd_models *models, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < models->operator_count; i++)
        if (!qd_list_name(text, OPERATORS_BYTES, models->operators[i].name))
            break;
    const size_t used = strlen(text);
    char *loaded = text + used + strlen(", ");
    loaded[0] = '\0';
    for (size_t i = 0; i < models->loaded_count; i++)
        if (models->loaded[i]->version_count > 0 &&
            !qd_list_name(loaded, size - used - strlen(", "), models->loaded[i]->name))
            break;
    if (loaded[0] != '\0')
        memcpy(text + used, ", ", strlen(", "));
}

/* Returns whether a client that gave `name` may have meant `known`: an operator's domain may be
 * missing. */
static bool is_near(const char *known, const char *name)
{
    const char *last = strrchr(known, '.');
    return qd_is_near(known, name) || (last != NULL && strcasecmp(last + 1, name) == 0);
}

/* Returns the name of a model in service that is near to this one, or NULL. */
static const char *find_near(const struct qd_models *models, const char *name)
{
    for (size_t i = 0; i < models->loaded_count; i++)
        if (models->loaded[i]->version_count > 0 && is_near(models->loaded[i]->name, name))
            return models->loaded[i]->name;
    for (size_t i = 0; i < models->operator_count; i++)
        if (is_near(models->operators[i].name, name))
            return models->operators[i].name;
    return NULL;
}

/* Returns the model with exactly this version, or NULL. */
static struct qd_model *find_exact(const struct family *family, uint64_t number)
{
    for (size_t i = 0; i < family->version_count; i++)
        if (family->versions[i]->signature.version == number)
            return family->versions[i];
    return NULL;
}

/* Prints the numbers of as many versions as fit, and which other numbers a client may give. */
static void list_versions(const struct family *family, char *bytes, size_t size)
{
    const struct qk_operator *op = family->op;
    struct qd_text text;
    memset(bytes, 0, size);
    for (size_t i = 0; i < family->version_count; i++) {
        char number[QD_DECIMAL_BYTES_MAX + 1];
        *qd_print_decimal(family->versions[i]->signature.version, number) = '\0';
        if (!qd_list_name(bytes, size, number))
            break;
    }
    const size_t used = strlen(bytes);
    qd_text_init_in(&text, bytes + used, size - 1 - used);
    if (op == NULL)
        return;
    const uint64_t first = family->versions[0]->signature.version;
    if (op->numbers == NULL && op->version_last >= first + family->version_count) {
        qd_text_string(&text, "; another number from ");
        qd_text_decimal(&text, first);
        qd_text_string(&text, " to ");
        qd_text_decimal(&text, op->version_last);
        qd_text_string(&text, " means the next lower one");
    }
    const size_t begin = text.bytes;
    for (size_t i = 0; i < op->number_count; i++) {
        if (find_exact(family, op->numbers[i]) != NULL)
            continue;
        qd_text_string(&text, text.bytes == begin ? "; " : ", ");
        qd_text_decimal(&text, op->numbers[i]);
    }
    qd_text_string(&text, text.bytes == begin ? "" : " mean the next lower one");
}

static struct qd_model *find_version(const struct family *family, uint64_t number)
{
    if (family->op == NULL)
        return find_exact(family, number);
    const struct qk_version *row = qk_operator_version(family->op, number);
    return row == NULL ? NULL : family->versions[row - family->op->versions];
}

/* Fails for a family that has no version in service. */
static enum qd_status refuse_absent(const struct family *family, struct qd_error *error)
{
    struct qd_shown shown = qd_show_string(family->name);
    if (family->state == QD_MODEL_LOADING) {
        return qd_fail(error, QD_UNAVAILABLE, "model %s is being loaded; try again later",
                       shown.text);
    }
    return qd_fail(error, QD_NOT_FOUND, "model: expected one in service, got %s%s%.300s",
                   shown.text, family->reason[0] == '\0' ? "" : ": ", family->reason);
}

enum qd_status qd_models_find(struct qd_models *models, const char *name, const char *version,
                              struct qd_model **model, struct qd_error *error)
{
    char known[LIST_BYTES];
    QD_LOCKED(&models->lock);
    const struct family *family = find_family(models, name);
    if (family == NULL || has_left(family)) {
        const char *near = find_near(models, name);
        list_models(models, known, sizeof(known));
        return qd_fail(error, QD_NOT_FOUND,
                       "model: expected one in service%s%.64s%s, got %s; the models are %s",
                       near == NULL ? "" : ", such as \"", near == NULL ? "" : near,
                       near == NULL ? "" : "\"", qd_show_string(name).text, known);
    }
    if (family->version_count == 0)
        return refuse_absent(family, error);
    uint64_t number;
    struct qd_model *found = family->versions[family->version_count - 1];
    if (version != NULL)
        found = qd_read_decimal(version, &number) ? find_version(family, number) : NULL;
    if (found == NULL) {
        list_versions(family, known, sizeof(known));
        return qd_fail(error, QD_NOT_FOUND,
                       "version of model %s: expected one in service, got %s; the versions are %s",
                       family->name, qd_show_string(version).text, known);
    }
    atomic_fetch_add(&found->reference_count, 1);
    *model = found;
    return QD_OK;
}

uint64_t *qd_models_versions(struct qd_models *models, const char *name, struct qd_arena *arena,
                             size_t *count)
{
    QD_LOCKED(&models->lock);
    const struct family *family = find_family(models, name);
    *count = family == NULL ? 0 : family->version_count;
    uint64_t *numbers = qd_arena_calloc(arena, *count, sizeof(*numbers));
    for (size_t i = 0; numbers != NULL && i < *count; i++)
        numbers[i] = family->versions[i]->signature.version;
    return numbers;
}

bool qd_models_has(struct qd_models *models, const char *name)
{
    QD_LOCKED(&models->lock);
    const struct family *family = find_loaded(models, name);
    return family != NULL && family->version_count > 0;
}

static size_t count_versions(const struct qd_models *models)
{
    size_t count = 0;
    for (size_t i = 0; i < models->loaded_count; i++)
        count += atomic_load(&models->loaded[i]->model_count);
    return count;
}

size_t qd_models_loaded_count(struct qd_models *models)
{
    QD_LOCKED(&models->lock);
    return count_versions(models);
}

/* ---- In and out of service ---------------------------------------------------------------- */

static int by_version(const void *a, const void *b)
{
    const uint64_t left = (*(struct qd_model *const *)a)->signature.version;
    const uint64_t right = (*(struct qd_model *const *)b)->signature.version;
    return left < right ? -1 : left > right;
}

/* Takes the counters of all versions, or of none. */
static bool take_counters(struct qd_models *models, struct qd_model *const *versions, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        const struct qd_signature *signature = &versions[i]->signature;
        versions[i]->counters =
            qd_metrics_counters(models->metrics, signature->name, signature->version);
        all = all && versions[i]->counters != NULL;
    }
    for (size_t i = 0; i < count && !all; i++) {
        qd_counters_release(versions[i]->counters);
        versions[i]->counters = NULL;
    }
    return all;
}

static enum qd_status try_room(const struct qd_models *models, const char *name, size_t count,
                               struct qd_error *error)
{
    const struct family *family = find_loaded(models, name);
    const size_t replaced = family == NULL ? 0 : family->version_count;
    const size_t all = count_versions(models) - replaced + count;
    if (all <= QD_LOADED_VERSION_COUNT_MAX)
        return QD_OK;
    return qd_fail(error, QD_UNAVAILABLE,
                   "the loaded models: expected at most %u versions of all names together, got %zu "
                   "with %s; unload some",
                   QD_LOADED_VERSION_COUNT_MAX, all, qd_show_string(name).text);
}

enum qd_status qd_models_try_room(struct qd_models *models, const char *name, size_t count,
                                  struct qd_error *error)
{
    QD_LOCKED(&models->lock);
    return try_room(models, name, count, error);
}

enum qd_status qd_models_install(struct qd_models *models, const char *name,
                                 struct qd_model *const *versions, size_t count,
                                 struct qd_error *error)
{
    assert(count > 0);
    QD_LOCKED(&models->lock);
    if (try_room(models, name, count, error) != QD_OK)
        return error->status;
    struct family *family = take_family(models, name);
    struct qd_model **sorted = calloc(count, sizeof(struct qd_model *));
    if (family == NULL || sorted == NULL || !take_counters(models, versions, count)) {
        free(sorted);
        return qd_fail_for(error, QD_REASON_MODEL_MEMORY, QD_UNAVAILABLE,
                           "no memory for the model; try again later");
    }
    memcpy(sorted, versions, count * sizeof(struct qd_model *));
    qsort(sorted, count, sizeof(struct qd_model *), by_version);
    for (size_t i = 0; i < count; i++) {
        assert(strcmp(sorted[i]->signature.name, name) == 0);
        sorted[i]->namesake_count = &family->model_count;
        atomic_fetch_add(&family->model_count, 1);
    }
    retire(family);
    family->versions = sorted;
    family->version_count = count;
    family->state = QD_MODEL_READY;
    family->reason[0] = '\0';
    family->last_version = sorted[count - 1]->signature.version;
    return QD_OK;
}

bool qd_models_remove(struct qd_models *models, const char *name)
{
    QD_LOCKED(&models->lock);
    struct family *family = find_loaded(models, name);
    const bool is_there = family != NULL && family->version_count > 0;
    if (is_there) {
        retire(family);
        family->state = QD_MODEL_UNAVAILABLE;
        snprintf(family->reason, sizeof(family->reason), "unloaded");
    }
    return is_there;
}

bool qd_models_note(struct qd_models *models, const char *name, enum qd_model_state state,
                    const char *reason)
{
    QD_LOCKED(&models->lock);
    struct family *family = take_family(models, name);
    if (family != NULL) {
        family->state = state;
        snprintf(family->reason, sizeof(family->reason), "%s", reason);
    }
    return family != NULL;
}

void qd_models_forget(struct qd_models *models, const char *name)
{
    QD_LOCKED(&models->lock);
    struct family *family = find_loaded(models, name);
    if (family != NULL && family->version_count == 0)
        family->leaving = true;
    sweep(models);
}

void qd_models_shelve(struct qd_models *models, const char *name)
{
    QD_LOCKED(&models->lock);
    struct family *family = find_loaded(models, name);
    if (family == NULL || family->version_count > 0)
        return;
    family->shelved = ++models->shelved_count;
    struct family *oldest = family;
    size_t count = 0;
    for (size_t i = 0; i < models->loaded_count; i++) {
        struct family *other = models->loaded[i];
        if (other->shelved == 0 || other->leaving)
            continue;
        count++;
        if (other->shelved < oldest->shelved)
            oldest = other;
    }
    if (count > QD_MODELS_SHELVED_MAX)
        oldest->leaving = true;
    sweep(models);
}

/* ---- The index ---------------------------------------------------------------------------- */

static const char *const state_names[] = {
    [QD_MODEL_LOADING] = "LOADING",
    [QD_MODEL_READY] = "READY",
    [QD_MODEL_UNLOADING] = "UNLOADING",
    [QD_MODEL_UNAVAILABLE] = "UNAVAILABLE",
};

/* Prints one entry of the index. Leaves out an unknown version (0) and an empty reason, as Triton
 * does. `reason` says why the model is not ready or, if it is, why a newer load failed. */
static void print_entry(struct qd_text *text, const char *name, uint64_t version,
                        enum qd_model_state state, const char *reason)
{
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, name);
    if (version != 0)
        qd_text_format(text, ",\"version\":\"%" PRIu64 "\"", version);
    qd_text_format(text, ",\"state\":\"%s\"", state_names[state]);
    if (reason[0] != '\0') {
        char whole[REASON_BYTES + 64];
        snprintf(whole, sizeof(whole), "%s%s",
                 state == QD_MODEL_READY ? "still in service, because a newer load failed: " : "",
                 reason);
        qd_text_string(text, ",\"reason\":");
        qd_text_json_string(text, whole);
    }
    qd_text_string(text, "}");
}

static bool print_family(struct qd_text *text, const struct family *family, bool only_ready,
                         bool any)
{
    for (size_t i = 0; i < family->version_count; i++) {
        qd_text_string(text, any ? "," : "");
        print_entry(text, family->name, family->versions[i]->signature.version, QD_MODEL_READY,
                    family->reason);
        any = true;
    }
    if (family->version_count > 0 || only_ready)
        return any;
    const bool runs =
        atomic_load(&family->model_count) > 0 && family->state == QD_MODEL_UNAVAILABLE;
    qd_text_string(text, any ? "," : "");
    print_entry(text, family->name, family->last_version, runs ? QD_MODEL_UNLOADING : family->state,
                runs ? "" : family->reason);
    return true;
}

void qd_models_print_index(struct qd_models *models, bool only_ready, struct qd_text *text)
{
    bool any = false;
    qd_text_string(text, "[");
    QD_LOCKED(&models->lock);
    for (size_t i = 0; i < models->operator_count; i++)
        any = print_family(text, &models->operators[i], only_ready, any);
    for (size_t i = 0; i < models->loaded_count; i++)
        if (!has_left(models->loaded[i]))
            any = print_family(text, models->loaded[i], only_ready, any);
    qd_text_string(text, "]");
}
