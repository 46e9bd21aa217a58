/* The console: a page at / that shows in a browser what the server is and does, and tries its
 * operators. The files of server/console/ are part of the program. They are joined into one page,
 * which loads nothing from elsewhere. The page contains no secrets, so it is served without a
 * token. Its own requests need a token as any client's do. */
#ifndef SERVER_HTTP_API_CONSOLE_H
#define SERVER_HTTP_API_CONSOLE_H

struct qd_console;

/* Makes the page. It is constant, so any thread may answer with it. Returns NULL if there is no
 * memory. */
struct qd_console *qd_console_create(void);

/* NULL is fine. */
void qd_console_destroy(struct qd_console *console);

#endif
