/* Pieces of Prometheus' text format 0.0.4. */
#ifndef SERVER_TELEMETRY_PROMETHEUS_H
#define SERVER_TELEMETRY_PROMETHEUS_H

#include "server/memory/text.h"

/* The two lines before a metric's values. type: "counter", "gauge" or "histogram". */
void qd_prometheus_type(struct qd_text *text, const char *name, const char *type, const char *help);

/* A label's value, without its quotes: backslashes, quotes and ends of lines are escaped, and what
 * is not UTF-8 becomes '?'. `label` has room for 2 * strlen(value) + 1 bytes. */
void qd_prometheus_label(const char *value, char *label);

#endif
