/* Decides which model is loaded when: at start, by a call, or because the repository has changed.
 * It runs on the main loop, and takes calls on any thread. The loading itself is done in jobs
 * (load.h).
 *
 * One load is made at a time, so that no two loads hold their files in memory together. A load uses
 * all workers that have nothing else to do. Calls come before the loads that the repository asks
 * for, in the order of the calls, and a bounded number of calls waits. So two loads of one name
 * come one after the other, and an unload cancels loads of its name that are not done. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/models/table.h"
#include "server/work/load.h"
#include "server/work/request.h"
#include "server/work/scheduler/loop.h"

#define QD_LOADER_WAITING_MAX 16 /* the most load calls that wait */

/* All pointers are borrowed. */
struct qd_loader_settings {
    struct qd_models *models;
    struct qd_load_tools tools;
    enum qd_control_mode mode;
    const char *const *load_models; /* values of --load-model: names, some separated by commas */
    size_t load_model_count;
    uint64_t poll_ns;
    uint64_t load_timeout_ns; /* for calls; 0: no timeout */
    bool exit_on_error;       /* an error at start ends the process, which prints that error */
};

struct qd_loader;

/* Returns NULL if memory or descriptors have run out. */
struct qd_loader *qd_loader_create(const struct qd_loader_settings *settings);
/* Called when the loader has stopped, or was never started. NULL is fine. */
void qd_loader_destroy(struct qd_loader *loader);

/* Loads what the mode and --load-model ask for, then calls `on_started` once, which must not call
 * the loader. It gets NULL as `error` if all models are in service. Otherwise it gets the first
 * error, and the other models are in service. On the main loop, as are the functions above. */
void qd_loader_start(struct qd_loader *loader,
                     void (*on_started)(void *context, const struct qd_error *error),
                     void *context);

/* Checks, before the body comes, whether a call may load or unload `name` at all. On any thread, as
 * are the next four functions. */
enum qd_status qd_loader_check(const struct qd_loader *loader, const char *name,
                               struct qd_error *error);
/* Like qd_loader_check, and also checks whether there is room for one more load. */
enum qd_status qd_loader_try_room(struct qd_loader *loader, const char *name,
                                  struct qd_error *error);

/* Returns how many load calls wait, at most QD_LOADER_WAITING_MAX. */
size_t qd_loader_waiting_count(struct qd_loader *loader);

/* Takes a request whose body is complete. When the request is in REPLYING, or its error says why it
 * is not, calls its on_answered, on any thread, perhaps before this function returns. on_answered
 * must return soon and must not call the loader. If the function fails, the error is in
 * request->error, and there is no other effect. */
enum qd_status qd_loader_load(struct qd_loader *loader, const char *name,
                              struct qd_request *request);

/* Takes a name out of service, and cancels loads of it that are not done. */
enum qd_status qd_loader_unload(struct qd_loader *loader, const char *name, struct qd_error *error);

/* Stops the loader: it begins no loads of its own any more, but still makes the loads that calls
 * asked for. Calls `on_stopped` when no load is left, perhaps at once; on_stopped must not call the
 * loader. The remaining loads end sooner if the scheduler is abandoned. On the main loop. */
void qd_loader_stop(struct qd_loader *loader, qd_callback *on_stopped, void *context);
