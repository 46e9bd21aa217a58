/* The console: a page at / that shows in a browser what the server is and does, and tries its
 * operators. The files of server/console/ are part of the program, and are joined here into one
 * page, which needs nothing from elsewhere. It holds nothing that is secret, so it comes without a
 * token; what it then asks for, it asks for as any client does. */
#ifndef SERVER_HTTP_API_CONSOLE_H
#define SERVER_HTTP_API_CONSOLE_H

#include "server/http/api/visit.h"

/* Constant: any thread may answer with it. NULL: no memory. */
struct qd_console *qd_console_create(void);

/* NULL is fine. */
void qd_console_destroy(struct qd_console *console);

/* GET /; 404 where the router has no console. */
enum qd_status qd_answer_console(const struct qd_visit *visit);

#endif
