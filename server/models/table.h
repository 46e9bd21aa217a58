/* Who is in service under which name: the built-in models, always, and the loaded ones.
 *
 * A name has versions; a request without one gets the newest. Whoever finds a model has a reference
 * to it, and so keeps it after others have taken its place. All calls may come on any thread. */
#ifndef SERVER_MODELS_TABLE_H
#define SERVER_MODELS_TABLE_H

#include "server/base/status.h"
#include "server/memory/text.h"
#include "server/models/model.h"

/* What a loaded name is about, for the index. */
enum qd_model_state {
    QD_MODEL_LOADING,
    QD_MODEL_READY,
    QD_MODEL_UNLOADING, /* taken out of service, while requests still run */
    QD_MODEL_UNAVAILABLE
};

struct qd_models;

/* With all built-in models. `metrics` is borrowed. NULL: malloc failed. */
struct qd_models *qd_models_create(struct qd_metrics *metrics);
/* When no request holds a model any more. NULL is fine. */
void qd_models_destroy(struct qd_models *models);

/* Takes a reference: qd_model_release gives it back. `version` NULL: the newest. A built-in model's
 * number means the newest version not above it, as in an ONNX opset import; a loaded one's is
 * exact. QD_NOT_FOUND with what there is in the text. */
enum qd_status qd_models_find(struct qd_models *models, const char *name, const char *version,
                              struct qd_model **model, struct qd_error *error);

/* Puts versions of a loaded name into service, in place of all that it had; these end with their
 * last request. Their signatures have that name and different versions. Takes over the caller's
 * references. QD_UNAVAILABLE: there is no room, or no memory, and nothing has changed. */
enum qd_status qd_models_install(struct qd_models *models, const char *name,
                                 struct qd_model *const *versions, size_t count,
                                 struct qd_error *error);
/* Whether so many versions of a name could be put into service now, in place of all that it has:
 * QD_LOADED_VERSION_COUNT_MAX bounds those of all names. Else QD_UNAVAILABLE, with both numbers. */
enum qd_status qd_models_try_room(struct qd_models *models, const char *name, size_t count,
                                  struct qd_error *error);

/* Takes a loaded name out of service. Its requests that are under way end as they would. False:
 * nothing was in service under it. */
bool qd_models_remove(struct qd_models *models, const char *name);

/* What the index says of a loaded name: a load begins (LOADING), or has failed (UNAVAILABLE, and
 * why). What is in service stays there, and is READY meanwhile. False: malloc failed. */
bool qd_models_note(struct qd_models *models, const char *name, enum qd_model_state state,
                    const char *reason);
/* Keeps in the index, for a while, what was noted last of a name of which nothing is in service,
 * and that no repository has: anybody can make up names, so the oldest of too many are forgotten.
 */
#define QD_MODELS_SHELVED_MAX 64
void qd_models_shelve(struct qd_models *models, const char *name);
/* Forgets a name of which nothing is in service, with its last request. */
void qd_models_forget(struct qd_models *models, const char *name);

/* The versions in service, ascending, in the arena. NULL: there is no memory. */
uint64_t *qd_models_versions(struct qd_models *models, const char *name, struct qd_arena *arena,
                             size_t *count);
bool qd_models_has(struct qd_models *models, const char *name); /* any of a loaded name */

/* Of all loaded models that are in service or still run. */
size_t qd_models_loaded_count(struct qd_models *models);

/* The repository's index: each version with state and reason. `only_ready`: no others. */
void qd_models_print_index(struct qd_models *models, bool only_ready, struct qd_text *text);

#endif
