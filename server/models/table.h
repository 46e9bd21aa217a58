/* Finds the model that serves under a name: a built-in model, or a loaded one.
 *
 * A name has versions. A request without a version gets the newest. Finding a model takes a
 * reference, so the model stays valid even after another model has replaced it. All functions may
 * be called on any thread. */
#pragma once

#include "server/base/status.h"
#include "server/memory/text.h"
#include "server/models/model.h"

/* The state of a loaded name in the index. */
enum qd_model_state {
    QD_MODEL_LOADING,
    QD_MODEL_READY,
    QD_MODEL_UNLOADING, /* no longer in service, but requests still run it */
    QD_MODEL_UNAVAILABLE
};

struct qd_models;

/* Creates a table with all built-in models. Borrows `metrics`. Returns NULL if malloc failed. */
struct qd_models *qd_models_create(struct qd_metrics *metrics);
/* Destroys the table. All requests must have released their models. NULL is fine. */
void qd_models_destroy(struct qd_models *models);

/* Finds a model and takes a reference, which the caller releases with qd_model_release. A NULL
 * `version` finds the newest version. The number of a built-in model means the newest version that
 * is not above it, as in an ONNX opset import. The number of a loaded model must be exact. Fails
 * with QD_NOT_FOUND, and lists the known models or versions in the error text. Fails with
 * QD_UNAVAILABLE if the name is being loaded and no version is in service yet. */
enum qd_status qd_models_find(struct qd_models *models, const char *name, const char *version,
                              struct qd_model **model, struct qd_error *error);

/* Puts versions of a loaded name into service. They replace all versions that the name had. A
 * replaced version is destroyed when the last request that uses it ends. The models' signatures
 * have that name and different versions. Takes over the caller's references. Fails with
 * QD_UNAVAILABLE, and changes nothing in service, if there is no room or no memory; the caller then
 * keeps its references. */
enum qd_status qd_models_install(struct qd_models *models, const char *name,
                                 struct qd_model *const *versions, size_t count,
                                 struct qd_error *error);
/* Returns QD_OK if `count` versions of a name could now replace all versions that the name has.
 * QD_LOADED_VERSION_COUNT_MAX bounds the versions of all names. Otherwise fails with
 * QD_UNAVAILABLE. The error text gives the bound and the number of versions that would exceed it.
 */
enum qd_status qd_models_try_room(struct qd_models *models, const char *name, size_t count,
                                  struct qd_error *error);

/* Takes a loaded name out of service. Requests that have begun still end normally. Returns false if
 * the name was not in service. */
bool qd_models_remove(struct qd_models *models, const char *name);

/* Sets what the index says about a loaded name: a load begins (LOADING), or has failed
 * (UNAVAILABLE, and `reason` says why). Versions that are in service stay there, and the index
 * lists them as READY. Returns false if malloc failed. */
bool qd_models_note(struct qd_models *models, const char *name, enum qd_model_state state,
                    const char *reason);
/* Marks a name that is neither in service nor in a repository. The index still shows the last noted
 * state of a marked name. Clients can make up any number of such names, so at most
 * QD_MODELS_SHELVED_MAX are kept: the name that was marked longest ago is removed first. */
#define QD_MODELS_SHELVED_MAX 64
void qd_models_shelve(struct qd_models *models, const char *name);
/* Removes a loaded name from the index, unless a version of it is in service. If requests still use
 * a model of this name, the name is removed after the last of them has ended. A new load of the
 * name cancels the removal. */
void qd_models_forget(struct qd_models *models, const char *name);

/* Returns the numbers of the versions in service, ascending, in the arena. Returns NULL if the
 * arena has no room. */
uint64_t *qd_models_versions(struct qd_models *models, const char *name, struct qd_arena *arena,
                             size_t *count);
/* Returns whether any version of a loaded name is in service. */
bool qd_models_has(struct qd_models *models, const char *name);

/* Returns how many loaded models (versions of all names) are in service or still held by requests.
 */
size_t qd_models_loaded_count(struct qd_models *models);

/* Prints the repository's index: each version with its state and reason. `only_ready` leaves out
 * all versions that are not READY. */
void qd_models_print_index(struct qd_models *models, bool only_ready, struct qd_text *text);
