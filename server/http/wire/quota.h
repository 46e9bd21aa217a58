/* How many may be connected at a time: to each listener --max-connections, and of these from each
 * address --max-connections-per-address. Who comes beyond that is refused: it is let in all the
 * same, gets a 503 as its first answer, and is closed. QD_REFUSED_COUNT_MAX of a listener's are so
 * at a time, for a short while each; of more, those that the library still accepts are closed
 * without a word, and the rest wait in the kernel's backlog.
 *
 * One object counts for all loops, on any of their threads. */
#ifndef SERVER_HTTP_WIRE_QUOTA_H
#define SERVER_HTTP_WIRE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "server/base/status.h"
#include "server/config/config.h"

struct qd_quota;

enum qd_quota_result {
    QD_QUOTA_ADMITTED,
    QD_QUOTA_REFUSED, /* to be told so */
    QD_QUOTA_CLOSED,  /* to be closed at once */
};

/* What a connection takes of the quota. */
struct qd_quota_share {
    enum qd_quota_result result;
    bool of_address;                  /* which of the two bounds is reached */
    size_t listener;                  /* its index in config->listen */
    struct qd_quota_address *address; /* NULL: it is not counted there */
};

/* NULL: malloc failed. config is borrowed. */
struct qd_quota *qd_quota_create(const struct qd_config *config);
/* All shares are given back. NULL is fine. */
void qd_quota_destroy(struct qd_quota *quota);

/* Somebody has connected. Clients of Unix sockets have no address that counts. */
struct qd_quota_share qd_quota_take(struct qd_quota *quota, size_t listener,
                                    const struct sockaddr *client);
void qd_quota_give_back(struct qd_quota *quota, const struct qd_quota_share *share);

/* Why it is refused. */
enum qd_status qd_quota_explain(const struct qd_quota *quota, const struct qd_quota_share *share,
                                struct qd_error *error);

struct qd_quota_counts {
    uint64_t admitted; /* that are connected */
    uint64_t refused;  /* ever, also those that were closed */
};

struct qd_quota_counts qd_quota_count(struct qd_quota *quota, size_t listener);

#endif
