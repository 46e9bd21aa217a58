/* The console: a page at / that shows in a browser what the server is and does, and tries its
 * operators. The files of server/console/ are part of the program, and are joined here into one
 * page, which needs nothing from elsewhere. It holds nothing that is secret, so it comes without a
 * token; what it then asks for, it asks for as any client does. */
#ifndef SERVER_HTTP_API_CONSOLE_H
#define SERVER_HTTP_API_CONSOLE_H

struct qd_console;

/* Constant: any thread may answer with it. NULL: no memory. */
struct qd_console *qd_console_create(void);

/* NULL is fine. */
void qd_console_destroy(struct qd_console *console);

#endif
