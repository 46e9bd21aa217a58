/* Who is loaded when: at start, by a call, or because the repository has changed. It runs on the
 * main loop, and takes calls on any thread; the work itself is jobs (load.h).
 *
 * One load is made at a time, so that no two hold their files in memory together; it uses all
 * workers that have nothing else to do. Calls come before what the repository asks for, in their
 * order, and a bounded number of them waits. So two loads of one name come one after the other, and
 * an unload takes back those that are not done. */
#ifndef SERVER_WORK_LOADER_H
#define SERVER_WORK_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/models/table.h"
#include "server/work/load.h"
#include "server/work/request.h"
#include "server/work/scheduler/loop.h"

#define QD_LOADER_WAITING_MAX 16 /* load calls */

/* Everything is borrowed. */
struct qd_loader_settings {
    struct qd_models *models;
    struct qd_load_tools tools;
    enum qd_control_mode mode;
    const char *const *load_models; /* as --load-model has them: names, with commas between some */
    size_t load_model_count;
    uint64_t poll_ns;
    uint64_t load_timeout_ns; /* for calls; 0: none */
};

struct qd_loader;

/* NULL: out of memory or descriptors. */
struct qd_loader *qd_loader_create(const struct qd_loader_settings *settings);
/* When it has stopped, or never started. NULL is fine. */
void qd_loader_destroy(struct qd_loader *loader);

/* On the main loop, as all before. Loads what the mode and --load-model ask for, then calls
 * `on_started`, once, which may not call the loader. `error` NULL: all is in service; otherwise it
 * is what went wrong first, and the rest is in service. */
void qd_loader_start(struct qd_loader *loader,
                     void (*on_started)(void *context, const struct qd_error *error),
                     void *context);

/* On any thread, as the next four. Whether a call may load or unload `name` at all, before its body
 * has come. */
enum qd_status qd_loader_check(const struct qd_loader *loader, const char *name,
                               struct qd_error *error);
/* The same, and that there is room for one more. */
enum qd_status qd_loader_try_room(struct qd_loader *loader, const char *name,
                                  struct qd_error *error);

/* Calls that wait for their turn; at most QD_LOADER_WAITING_MAX. */
size_t qd_loader_waiting_count(struct qd_loader *loader);

/* Takes a request whose body has come, until it is in REPLYING and its on_answered is called, on
 * any thread and soon, perhaps before this returns; it calls nothing of this. A failure is in
 * request->error, and nothing happened. */
enum qd_status qd_loader_load(struct qd_loader *loader, const char *name,
                              struct qd_request *request);

/* Takes a name out of service, and loads of it that are not done. */
enum qd_status qd_loader_unload(struct qd_loader *loader, const char *name, struct qd_error *error);

/* On the main loop. Begins nothing more of its own, but makes what calls asked for. `on_stopped`
 * comes when nothing is under way, perhaps at once; it calls nothing of this. What still is by then
 * ends sooner if the scheduler is abandoned.
 */
void qd_loader_stop(struct qd_loader *loader, qd_callback *on_stopped, void *context);

#endif
