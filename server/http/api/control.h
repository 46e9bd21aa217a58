/* Calls about models: which there are, to load one, to unload one. */
#ifndef SERVER_HTTP_API_CONTROL_H
#define SERVER_HTTP_API_CONTROL_H

#include "server/http/api/visit.h"

enum qd_status qd_begin_index(const struct qd_visit *visit);
enum qd_status qd_begin_load(const struct qd_visit *visit);
enum qd_status qd_begin_unload(const struct qd_visit *visit);

#endif
