/* Checks the name of a loaded model. */
#ifndef SERVER_MODELS_REPOSITORY_NAME_H
#define SERVER_MODELS_REPOSITORY_NAME_H

#include "server/base/status.h"

/* Returns QD_OK if a loaded model may have this name. It must be UTF-8, not be "." or "..", and not
 * begin as the operators' names do. It must not contain slashes, backslashes, quotes or control
 * characters, including Unicode's, so that logs and metrics can print it unchanged. It must not be
 * "stats", because GET /v2/models/stats is about all models. Pure. */
#define QD_MODEL_NAME_BYTES_MAX 128
enum qd_status qd_model_check_name(const char *name, struct qd_error *error);

#endif
