/* Answers that libmicrohttpd gives by itself, to what it cannot read: HTML, and three of them with
 * their head twice (0.9.75). No option of any version makes them ours.
 *
 * It sends them as anybody would, with MHD_queue_response. That is an exported function, and a
 * library calls its own exported functions through a table that the loader fills with the first
 * definition there is: the program's, before any library's. So error_hook.c defines it once more,
 * and whatever comes there was not queued by us: we call the library's. Debian's 0.9.75 and 1.0.1
 * are both built so; a static library or one linked with -Bsymbolic is not, and qd_error_hook_start
 * tries it out. The other ways were worse: what the library logs before such an answer does not say
 * on which connection. */
#ifndef SERVER_HTTP_ERROR_HOOK_H
#define SERVER_HTTP_ERROR_HOOK_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/base/status.h"

/* Before the first daemon starts. `callback` is called instead of sending http_status and HTML; it
 * returns MHD_YES if it has queued an answer, and MHD_NO to have the connection closed. False: such
 * answers cannot be had, and go out as they are. */
bool qd_error_hook_start(enum MHD_Result (*callback)(struct MHD_Connection *connection,
                                                     unsigned http_status));

/* What the request did that libmicrohttpd answers with http_status, as far as it can be known from
 * outside. in_head, in_body: its first line, its head were fine. */
void qd_error_hook_explain(unsigned http_status, bool in_head, bool in_body,
                           struct qd_error *error);

/* libmicrohttpd before 1.0 goes on after it has refused what a head says of the body, and would put
 * a second head behind the first. */
bool qd_error_hook_would_repeat(struct MHD_Connection *connection, bool in_body);

/* The library's MHD_queue_response. */
enum MHD_Result qd_error_hook_queue(struct MHD_Connection *connection, unsigned http_status,
                                    struct MHD_Response *response);

#endif
