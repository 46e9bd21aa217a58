#include "server/telemetry/prometheus.h"

#include <string.h>

void qd_prometheus_type(struct qd_text *text, const char *name, const char *type, const char *help)
{
    qd_text_format(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void qd_prometheus_label(const char *value, char *label)
{
    for (size_t left = strlen(value), length; left > 0; value += length, left -= length) {
        length = qd_utf8_length(value, left);
        if (length == 0) {
            length = 1;
            *label++ = '?';
            continue;
        }
        if (*value == '\\' || *value == '"' || *value == '\n')
            *label++ = '\\';
        if (*value == '\n')
            *label++ = 'n';
        else
            label = (char *)memcpy(label, value, length) + length;
    }
    *label = '\0';
}
