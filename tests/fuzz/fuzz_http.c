/* Fuzzes all that a connection can send. A whole server runs in this process and answers on a Unix
 * socket. run.sh builds and runs this target.
 *
 * An input is a byte that says where the rest is cut in two, followed by the bytes to send: raw
 * bytes of any number of requests. The server must send complete answers, one after the other, and
 * then close. Answers with a status from 400 on are {"error":"..."}. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);
int quantd_main(int argc, char **argv); /* main() of server/main.c */

/* The server notices within half a second that a client has shut down its side in the middle of a
 * request. Only few inputs wait for that. */
enum { ANSWERS_BYTES_MAX = 8 << 20, PATIENCE_MS = 200, IMPATIENCE_MS = 4 };
/* The patient wait consists of many short ones. If the system stops this process for a while, that
 * counts as one of them only. */
enum { PATIENT_WAITS_MAX = 150 };

static struct sockaddr_un address = {.sun_family = AF_UNIX};

static int connect_once(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void *serve(void *listen)
{
    char *argv[] = {"quantd",   "--listen",
                    listen,     "--threads",
                    "1",        "--log-level",
                    "error",    "--measure",
                    "off",      "--cpu",
                    "scalar",   "--max-body-bytes",
                    "1M",       "--max-inflight-bytes",
                    "64M",      "--model-control-mode",
                    "explicit", NULL};
    int status = quantd_main(sizeof(argv) / sizeof(argv[0]) - 1, argv);
    fprintf(stderr, "the server ended: %d\n", status);
    abort();
}

/* Ends the process at once: the server's threads still run, and exit would destroy what they use.
 */
static void leave(int status, void *context)
{
    (void)context;
    unlink(address.sun_path);
    _exit(status);
}

static void start(void)
{
    static char listen[sizeof(address.sun_path) + 8];
    pthread_t thread;
    snprintf(address.sun_path, sizeof(address.sun_path), "build/fuzz-%d.sock", (int)getpid());
    snprintf(listen, sizeof(listen), "unix:%s", address.sun_path);
    int fd = pthread_create(&thread, NULL, serve, listen) == 0 ? -1 : 0;
    for (unsigned i = 0; fd < 0 && i < 1000; i++) {
        usleep(10000);
        fd = connect_once();
    }
    assert(fd > 0);
    close(fd);
    assert(on_exit(leave, NULL) == 0);
}

/* Sends all bytes in two pieces, and receives answers meanwhile. Returns false if answers may be
 * missing, because the server reset the connection or this function did not wait. */
static bool exchange(int fd, const unsigned char *data, size_t bytes, size_t cut, bool patient,
                     char *answers, size_t *answer_bytes)
{
    size_t sent = 0;
    bool open = true;
    unsigned waits = 0;
    *answer_bytes = 0;
    if (bytes == 0)
        shutdown(fd, SHUT_WR);
    for (;;) {
        struct pollfd events = {.fd = fd, .events = POLLIN};
        if (sent < bytes && open)
            events.events |= POLLOUT;
        if (poll(&events, 1, patient || sent < bytes ? PATIENCE_MS : IMPATIENCE_MS) <= 0) {
            if (!patient && sent == bytes)
                return false;
            if (++waits < PATIENT_WAITS_MAX)
                continue;
            fprintf(stderr, "no end came\n");
            abort();
        }
        waits = 0;
        if ((events.revents & POLLOUT) != 0 && sent < bytes) {
            size_t end = sent < cut ? cut : bytes;
            ssize_t count = send(fd, data + sent, end - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            open = count > 0 || errno == EAGAIN;
            sent += count > 0 ? (size_t)count : 0;
            if (sent == bytes)
                shutdown(fd, SHUT_WR);
        }
        if ((events.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            ssize_t count =
                recv(fd, answers + *answer_bytes, ANSWERS_BYTES_MAX - *answer_bytes, MSG_DONTWAIT);
            if (count == 0 || *answer_bytes == ANSWERS_BYTES_MAX)
                return count == 0;
            if (count < 0 && errno != EAGAIN)
                return false;
            *answer_bytes += count > 0 ? (size_t)count : 0;
        }
    }
}

/* Returns the value of a header of the head in text[0..bytes), or NULL if there is no such
 * header. */
static const char *find_header(const char *text, size_t bytes, const char *name)
{
    const size_t length = strlen(name);
    for (const char *line = memmem(text, bytes, "\r\n", 2); line != NULL;
         line = memmem(line + 2, bytes - (size_t)(line + 2 - text), "\r\n", 2))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 3 + length;
    return NULL;
}

/* Returns `at` if the end at this offset is among the `bytes` bytes, otherwise SIZE_MAX. Asserts
 * that the end is there if the connection has ended. */
static size_t check_end(size_t at, size_t bytes, bool ended)
{
    assert(!ended || at <= bytes);
    return at <= bytes ? at : SIZE_MAX;
}

/* Returns how many bytes of text[0..bytes) the body takes, or SIZE_MAX if it is incomplete. Asserts
 * that the body is complete if the connection has ended. A body without a length and without
 * chunks, as for an old client, ends with the connection. */
static size_t check_body(const char *length, bool chunked, const char *text, size_t bytes,
                         bool ended)
{
    size_t at = 0;
    if (length != NULL)
        return check_end(strtoull(length, NULL, 10), bytes, ended);
    if (!chunked)
        return ended ? bytes : SIZE_MAX;
    for (size_t size = SIZE_MAX; size > 0;) {
        char *end = NULL;
        if (memmem(text + at, bytes - at, "\r\n", 2) == NULL)
            return check_end(SIZE_MAX, bytes, ended);
        size = strtoull(text + at, &end, 16);
        assert(end > text + at && memcmp(end, "\r\n", 2) == 0);
        at = check_end((size_t)(end + 2 - text) + size + 2, bytes, ended);
        if (at == SIZE_MAX)
            return at;
        assert(memcmp(text + at - 2, "\r\n", 2) == 0);
    }
    return at;
}

/* Checks the first answer of the text. Returns how many bytes it has, or 0 if it is incomplete.
 * Asserts that the answer is complete if the connection has ended. */
static size_t check_answer(const char *text, size_t bytes, bool ended)
{
    unsigned status = 0;
    const char *head_end = memmem(text, bytes, "\r\n\r\n", 4);
    if (!ended && head_end == NULL)
        return 0;
    assert(head_end != NULL && bytes > 12 && memcmp(text, "HTTP/1.", 7) == 0);
    assert(sscanf(text + 9, "%3u", &status) == 1 && status >= 100 && status < 600);
    const size_t head_bytes = (size_t)(head_end + 4 - text);
    if (status == 100 || status == 204)
        return head_bytes;
    const char *length = find_header(text, head_bytes, "Content-Length");
    const bool chunked = find_header(text, head_bytes, "Transfer-Encoding") != NULL;
    const char *body = text + head_bytes;
    const size_t body_bytes = check_body(length, chunked, body, bytes - head_bytes, ended);
    if (body_bytes == SIZE_MAX)
        return 0;
    if (status >= 400) {
        assert(length != NULL && body_bytes >= 12 && memcmp(body, "{\"error\":\"", 10) == 0);
        assert(memcmp(body + body_bytes - 2, "\"}", 2) == 0);
        assert(find_header(text, head_bytes, "Content-Type") != NULL);
    }
    return head_bytes + body_bytes;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    static char *answers;
    size_t answer_bytes;
    if (answers == NULL) {
        answers = malloc(ANSWERS_BYTES_MAX + 1);
        assert(answers != NULL);
        start();
    }
    if (bytes == 0)
        return 0;
    int fd = connect_once();
    assert(fd >= 0);
    const size_t cut = (bytes - 1) * data[0] / 256;
    const bool patient = data[0] % 32 == 31;
    bool ended = exchange(fd, data + 1, bytes - 1, cut, patient, answers, &answer_bytes);
    close(fd);
    answers[answer_bytes] = '\0';
    /* Answers to HEAD have no body, and only a parser of requests can tell which answers these
     * are. */
    if (memmem(data, bytes, "HEAD", 4) != NULL)
        return 0;
    for (size_t at = 0, count = 1; at < answer_bytes && count > 0; at += count)
        count = check_answer(answers + at, answer_bytes - at, ended);
    return 0;
}
