/* What a loaded model may be called. */
#ifndef SERVER_MODELS_REPOSITORY_NAME_H
#define SERVER_MODELS_REPOSITORY_NAME_H

#include "server/base/status.h"

/* Whether a loaded model may have this name: bytes of UTF-8, not "." or "..", and not beginning as
 * the operators' names do. It has no slashes, backslashes, quotes and control characters, Unicode's
 * among them, so that logs and metrics print it as it is; and it is not "stats", because GET
 * /v2/models/stats is about all models. Pure. */
#define QD_MODEL_NAME_BYTES_MAX 128
enum qd_status qd_model_check_name(const char *name, struct qd_error *error);

#endif
