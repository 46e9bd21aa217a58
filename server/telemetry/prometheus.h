/* Prints parts of Prometheus' text format 0.0.4. */
#ifndef SERVER_TELEMETRY_PROMETHEUS_H
#define SERVER_TELEMETRY_PROMETHEUS_H

#include "server/memory/text.h"

/* Prints the two lines before a metric's values, # HELP and # TYPE. `type` is "counter", "gauge" or
 * "histogram". */
void qd_prometheus_type(struct qd_text *text, const char *name, const char *type, const char *help);

/* Writes a label's value, without quotes around it. Backslashes, quotes and newlines are escaped.
 * Bytes that are not UTF-8 become '?'. `label` has room for 2 * strlen(value) + 1 bytes. */
void qd_prometheus_label(const char *value, char *label);

#endif
