/* The answers that grow with the number of models: metrics, statistics. They are printed while they
 * are sent (stream.h), and the first QD_SCRAPE_SPARE_COUNT at a time take no memory of requests:
 * when that is at its bound, one wants to see it. */
#ifndef SERVER_HTTP_API_SCRAPE_H
#define SERVER_HTTP_API_SCRAPE_H

#include "server/http/api/visit.h"

enum qd_status qd_answer_stats(const struct qd_visit *visit);
enum qd_status qd_answer_metrics(const struct qd_visit *visit);

#endif
