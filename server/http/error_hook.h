/* Replaces the answers that libmicrohttpd gives by itself to requests that it cannot read, so that
 * clients get an error in JSON for these, too. The library's own answers are HTML, and 0.9.75 sends
 * three of them with their head twice. No version has an option to replace them.
 *
 * libmicrohttpd sends such an answer by calling MHD_queue_response. That is an exported function. A
 * shared library calls its own exported functions through a table that the loader fills with the
 * first definition that it finds, and the program's definitions come before any library's.
 * error_hook.c therefore defines MHD_queue_response again. Our own code never calls that
 * definition, so every call of it comes from libmicrohttpd. Debian's 0.9.75 and 1.0.1 are both
 * built so that this works. A static library, or one linked with -Bsymbolic, is not, so
 * qd_error_hook_start tries it out. libmicrohttpd also logs before such an answer, but the log does
 * not say on which connection, so it cannot be used instead. */
#ifndef SERVER_HTTP_ERROR_HOOK_H
#define SERVER_HTTP_ERROR_HOOK_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/base/status.h"

/* Sets the callback that is called instead of sending http_status and HTML. The callback returns
 * MHD_YES if it has queued an answer, and MHD_NO to have the connection closed. Must be called
 * before any daemon runs. Returns false if the hook does not work; then these answers go out
 * unchanged. */
bool qd_error_hook_start(enum MHD_Result (*callback)(struct MHD_Connection *connection,
                                                     unsigned http_status));

/* Fills `error` with what is wrong with a request that libmicrohttpd answers with http_status, as
 * far as it can be known from outside. in_head: its first line was fine. in_body: its head was
 * fine. */
void qd_error_hook_explain(unsigned http_status, bool in_head, bool in_body,
                           struct qd_error *error);

/* Returns true if libmicrohttpd would send a second head after the first. Versions before 1.0 do so
 * after they have refused what a head says about the body. */
bool qd_error_hook_would_repeat(struct MHD_Connection *connection, bool in_body);

/* Calls libmicrohttpd's own MHD_queue_response. */
enum MHD_Result qd_error_hook_queue(struct MHD_Connection *connection, unsigned http_status,
                                    struct MHD_Response *response);

#endif
