#define _GNU_SOURCE
#include "server/http/api/healthcheck.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/config/address.h"
#include "server/http/wire/tls.h"

static const char question[] = "GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n"
                               "Connection: close\r\n\r\n";
static const char good[] = "HTTP/1.1 200 ";

enum { ANSWER_BYTES_MAX = 4096, SHOWN_BYTES_MAX = 60 };

/* The text that the alarm's handler prints. The alarm may come while the name of a host is looked
 * up, which nothing else can end. */
static char too_late[QD_LISTEN_BYTES_MAX + 64];

static void on_alarm(int signal)
{
    (void)signal;
    ssize_t written = write(STDERR_FILENO, too_late, strlen(too_late));
    (void)written; /* a failure cannot be reported */
    _exit(EXIT_FAILURE);
}

static void set_deadline(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    sigset_t alarms; /* the parent process may have blocked SIGALRM */
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    alarm(QD_HEALTHCHECK_S);
}

/* Fills `error`, and returns false. */
static bool refuse(const char *address, const char *what, struct qd_error *error)
{
    return qd_fail_startup(error, "not ready: %s: %s", address, what);
}

/* Replaces "every address of this host", which no client can connect to, by loopback. Returns false
 * for port 0, because the port that the instance got in its place is unknown. */
static bool aim(struct sockaddr_storage *name)
{
    if (name->ss_family == AF_INET) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)name;
        if (ipv4->sin_addr.s_addr == htonl(INADDR_ANY))
            ipv4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return ipv4->sin_port != 0;
    }
    if (name->ss_family == AF_INET6) {
        struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)name;
        if (IN6_IS_ADDR_UNSPECIFIED(&ipv6->sin6_addr))
            ipv6->sin6_addr = in6addr_loopback;
        return ipv6->sin6_port != 0;
    }
    return true;
}

/* Like qd_tls_ask, without TLS. */
static ssize_t ask_plainly(int fd, char *answer, size_t room, struct qd_error *error)
{
    size_t count = 0;
    ssize_t got = send(fd, question, strlen(question), MSG_NOSIGNAL);
    while (got > 0 && count < room) {
        got = recv(fd, answer + count, room - count, 0);
        count += got > 0 ? (size_t)got : 0;
    }
    if (got >= 0 || count > 0)
        return (ssize_t)count;
    qd_fail_startup(error, "%s", strerror(errno));
    return -1;
}

/* Returns true if the answer says that the instance is ready. An error shows the answer's first
 * line, with bytes that do not fit a terminal replaced. */
static bool judge(const char *address, char *answer, struct qd_error *error)
{
    if (strncmp(answer, good, strlen(good)) == 0) {
        const char *body = strstr(answer, "\r\n\r\n");
        bool ready = body != NULL && strstr(body, "\"ready\":true") != NULL;
        return ready || refuse(address, "expected \"ready\":true in the body, got none", error);
    }
    answer[strcspn(answer, "\r\n")] = '\0';
    for (char *byte = answer; *byte != '\0'; byte++)
        if (*byte < ' ' || *byte > '~')
            *byte = '?';
    char what[128];
    snprintf(what, sizeof(what), "expected HTTP status 200, got \"%.*s\"", SHOWN_BYTES_MAX, answer);
    return refuse(address, what, error);
}

static bool ask(const char *address, bool is_https, struct qd_error *error)
{
    struct sockaddr_storage name;
    socklen_t name_bytes;
    struct qd_error why;
    char answer[ANSWER_BYTES_MAX];
    snprintf(too_late, sizeof(too_late), "quantd: not ready: %s: no answer within %d s\n", address,
             QD_HEALTHCHECK_S);
    if (!qd_address_resolve(address, &name, &name_bytes, &why))
        return refuse(address, why.text, error);
    if (!aim(&name))
        return refuse(address, "expected the port that it listens on, got 0", error);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return refuse(address, strerror(errno), error);
    ssize_t count = -1;
    if (connect(fd, (struct sockaddr *)&name, name_bytes) != 0)
        qd_fail_startup(&why, "%s", strerror(errno));
    else if (is_https && name.ss_family != AF_UNIX)
        count = qd_tls_ask(fd, question, answer, ANSWER_BYTES_MAX - 1, &why);
    else
        count = ask_plainly(fd, answer, ANSWER_BYTES_MAX - 1, &why);
    close(fd);
    if (count < 0)
        return refuse(address, why.text, error);
    answer[count] = '\0';
    return judge(address, answer, error);
}

bool qd_healthcheck(const struct qd_config *config, struct qd_error *error)
{
    set_deadline();
    bool ready = true;
    for (size_t i = 0; ready && i < config->listen_count; i++)
        ready = ask(config->listen[i], config->tls_cert[0] != '\0', error);
    alarm(0);
    return ready;
}
