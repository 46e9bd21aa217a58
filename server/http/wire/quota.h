/* Bounds the number of open connections: --max-connections for each listener, and of these
 * --max-connections-per-address from each client address.
 *
 * A connection beyond a bound is refused. It is accepted nevertheless, gets a 503 as its first
 * answer, and is closed. At most QD_REFUSED_COUNT_MAX connections of a listener are in this state
 * at a time, for a short while each. Beyond that, connections that the library still accepts are
 * closed without an answer, and the rest wait in the kernel's backlog.
 *
 * One object counts for all loops. Its functions may be called on any of their threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "server/base/status.h"
#include "server/config/config.h"

struct qd_quota;

enum qd_quota_result {
    QD_QUOTA_ADMITTED,
    QD_QUOTA_REFUSED, /* it gets a 503 */
    QD_QUOTA_CLOSED,  /* it is closed at once */
};

/* A connection's share of the quota. */
struct qd_quota_share {
    enum qd_quota_result result;
    bool of_address; /* the bound of the address is reached, not that of the listener */
    size_t listener; /* its index in config->listen */
    struct qd_quota_address *address; /* NULL: no address counts the connection */
};

/* Returns NULL if malloc failed. `config` is borrowed. */
struct qd_quota *qd_quota_create(const struct qd_config *config);
/* All shares must have been given back. NULL is fine. */
void qd_quota_destroy(struct qd_quota *quota);

/* Takes a share for a new connection. Clients of Unix sockets have no address that is counted. */
struct qd_quota_share qd_quota_take(struct qd_quota *quota, size_t listener,
                                    const struct sockaddr *client);
void qd_quota_give_back(struct qd_quota *quota, const struct qd_quota_share *share);

/* Puts the reason of a refusal into `error`, and returns its status. */
enum qd_status qd_quota_explain(const struct qd_quota *quota, const struct qd_quota_share *share,
                                struct qd_error *error);

struct qd_quota_counts {
    uint64_t admitted; /* open connections that were admitted */
    uint64_t refused;  /* connections refused since the start, including those closed at once */
};

struct qd_quota_counts qd_quota_count(struct qd_quota *quota, size_t listener);
