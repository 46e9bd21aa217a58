/* The paths that are answered at once, on the loop: what there is, and how it is. */
#ifndef SERVER_HTTP_API_ANSWERS_H
#define SERVER_HTTP_API_ANSWERS_H

#include "server/http/api/visit.h"

enum qd_status qd_answer_live(const struct qd_visit *visit);
enum qd_status qd_answer_ready(const struct qd_visit *visit);
enum qd_status qd_answer_server(const struct qd_visit *visit);
enum qd_status qd_answer_model(const struct qd_visit *visit);
enum qd_status qd_answer_model_ready(const struct qd_visit *visit);
enum qd_status qd_answer_config(const struct qd_visit *visit);
enum qd_status qd_answer_schema_yaml(const struct qd_visit *visit);
enum qd_status qd_answer_schema_json(const struct qd_visit *visit);

#endif
