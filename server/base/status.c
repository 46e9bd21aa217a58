#include "server/base/status.h"

#include <stdarg.h>
#include <stdio.h>

unsigned qd_status_http(enum qd_status status)
{
    static const unsigned http[] = {
#define X(name, code) [QD_##name] = (code),
        QD_STATUS_LIST(X)
#undef X
    };
    return http[status];
}

enum qd_status qd_fail_for(struct qd_error *error, enum qd_reason reason, enum qd_status status,
                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    error->reason = reason;
    error->status = status;
    return status;
}

bool qd_fail_startup(struct qd_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    error->reason = QD_REASON_OTHER;
    error->status = QD_INVALID;
    return false;
}
