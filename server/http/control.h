/* The calls that change the server: which models there are, and what it logs. */
#ifndef SERVER_HTTP_CONTROL_H
#define SERVER_HTTP_CONTROL_H

#include "server/http/visit.h"

enum qd_status qd_begin_index(const struct qd_visit *visit);
enum qd_status qd_begin_load(const struct qd_visit *visit);
enum qd_status qd_begin_unload(const struct qd_visit *visit);

#endif
