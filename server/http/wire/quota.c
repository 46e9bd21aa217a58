#define _GNU_SOURCE
#include "server/http/wire/quota.h"

#include <assert.h>
#include <netinet/in.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/limits.h"
#include "server/base/lock.h"

/* A client's address at a listener. IPv4 addresses are stored as IPv4-mapped IPv6 addresses. */
struct qd_quota_address {
    struct in6_addr address;
    size_t listener;
    uint64_t count; /* admitted connections from this address */
};

struct counts {
    struct qd_quota_counts shown;
    unsigned refused; /* open connections that were refused */
};

struct qd_quota {
    const struct qd_config *config;
    pthread_mutex_t lock;
    void *addresses; /* a tree of tsearch, balanced whatever addresses clients choose */
    struct counts listeners[QD_LISTEN_COUNT_MAX];
};

struct qd_quota *qd_quota_create(const struct qd_config *config)
{
    struct qd_quota *quota = calloc(1, sizeof(*quota));
    if (quota == NULL)
        return NULL;
    quota->config = config;
    pthread_mutex_init(&quota->lock, NULL);
    return quota;
}

void qd_quota_destroy(struct qd_quota *quota)
{
    if (quota == NULL)
        return;
    assert(quota->addresses == NULL);
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

static int compare(const void *left, const void *right)
{
    const struct qd_quota_address *a = left;
    const struct qd_quota_address *b = right;
    if (a->listener != b->listener)
        return a->listener < b->listener ? -1 : 1;
    return memcmp(&a->address, &b->address, sizeof(a->address));
}

/* Reduces a global IPv6 address to its /64 network. A host with such an address has a whole /64 and
 * may connect from a new address each time. Local addresses stay as they are, because there a /64
 * has many hosts. */
static void keep_network(struct in6_addr *address)
{
    if ((address->s6_addr[0] & 0xe0) == 0x20) /* 2000::/3 */
        memset(address->s6_addr + 8, 0, 8);
}

/* Returns false if the client has no address that is counted. */
static bool read_address(const struct sockaddr *client, struct in6_addr *address)
{
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    *address = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (client->sa_family == AF_INET) {
        memcpy(&in4, client, sizeof(in4));
        memcpy(address->s6_addr + 12, &in4.sin_addr, sizeof(in4.sin_addr));
    } else if (client->sa_family == AF_INET6) {
        memcpy(&in6, client, sizeof(in6));
        *address = in6.sin6_addr;
        keep_network(address);
    } else {
        return false;
    }
    return true;
}

/* Returns the address's entry, and creates it if needed. Returns NULL if malloc failed. */
static struct qd_quota_address *find_address(struct qd_quota *quota,
                                             const struct qd_quota_address *wanted)
{
    void *node = tfind(wanted, &quota->addresses, compare);
    if (node != NULL)
        return *(struct qd_quota_address **)node;
    struct qd_quota_address *made = malloc(sizeof(*made));
    if (made == NULL)
        return NULL;
    *made = *wanted;
    if (tsearch(made, &quota->addresses, compare) != NULL)
        return made;
    free(made);
    return NULL;
}

/* Counts a connection beyond a bound, and returns whether it is refused or closed. */
static enum qd_quota_result refuse(struct counts *counts)
{
    counts->shown.refused++;
    if (counts->refused == QD_REFUSED_COUNT_MAX)
        return QD_QUOTA_CLOSED;
    counts->refused++;
    return QD_QUOTA_REFUSED;
}

struct qd_quota_share qd_quota_take(struct qd_quota *quota, size_t listener,
                                    const struct sockaddr *client)
{
    struct qd_quota_share share = {.result = QD_QUOTA_ADMITTED, .listener = listener};
    struct qd_quota_address wanted = {.listener = listener};
    struct counts *counts = &quota->listeners[listener];
    const bool has_address =
        quota->config->max_connections_per_address > 0 && read_address(client, &wanted.address);
    QD_LOCKED(&quota->lock);
    if (counts->shown.admitted >= quota->config->max_connections) {
        share.result = refuse(counts);
        return share;
    }
    if (has_address) {
        struct qd_quota_address *address = find_address(quota, &wanted);
        if (address == NULL) {
            share.result = QD_QUOTA_CLOSED; /* malloc failed */
            return share;
        }
        if (address->count >= quota->config->max_connections_per_address) {
            share.of_address = true;
            share.result = refuse(counts);
            return share;
        }
        address->count++;
        share.address = address;
    }
    counts->shown.admitted++;
    return share;
}

static void leave(struct qd_quota *quota, struct qd_quota_address *address)
{
    if (address == NULL || --address->count > 0)
        return;
    tdelete(address, &quota->addresses, compare);
    free(address);
}

void qd_quota_give_back(struct qd_quota *quota, const struct qd_quota_share *share)
{
    struct counts *counts = &quota->listeners[share->listener];
    QD_LOCKED(&quota->lock);
    if (share->result == QD_QUOTA_ADMITTED) {
        counts->shown.admitted--;
        leave(quota, share->address);
    } else if (share->result == QD_QUOTA_REFUSED) {
        counts->refused--;
    }
}

enum qd_status qd_quota_explain(const struct qd_quota *quota, const struct qd_quota_share *share,
                                struct qd_error *error)
{
    const struct qd_config *config = quota->config;
    if (share->of_address) {
        return qd_fail_for(error, QD_REASON_CONNECTIONS, QD_UNAVAILABLE,
                           "connections of this client's address: expected at most %llu at a time "
                           "(--max-connections-per-address), got one more",
                           (unsigned long long)config->max_connections_per_address);
    }
    return qd_fail_for(
        error, QD_REASON_CONNECTIONS, QD_UNAVAILABLE,
        "connections: expected at most %llu at a time (--max-connections), got one more",
        (unsigned long long)config->max_connections);
}

struct qd_quota_counts qd_quota_count(struct qd_quota *quota, size_t listener)
{
    QD_LOCKED(&quota->lock);
    return quota->listeners[listener].shown;
}
