#include "server/http/wire/quota.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/limits.h"

enum { THREADS = 4, ROUNDS = 20000, ADDRESSES = 50 };

static const struct sockaddr_storage unix_client = {.ss_family = AF_UNIX};

static const struct sockaddr *somebody = (const struct sockaddr *)&unix_client;

static struct sockaddr_storage client(const char *text)
{
    struct sockaddr_storage name = {.ss_family = AF_INET};
    struct sockaddr_in *in4 = (struct sockaddr_in *)&name;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&name;
    in4->sin_port = (in_port_t)rand();
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1)
        return name;
    in6->sin6_family = AF_INET6;
    cr_assert_eq(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
    return name;
}

static struct qd_quota_share take(struct qd_quota *quota, size_t listener, const char *text)
{
    const struct sockaddr_storage name = client(text);
    return qd_quota_take(quota, listener, (const struct sockaddr *)&name);
}

/* Ends a test. The quota asserts that no share is left. */
static void end(struct qd_quota *quota, const struct qd_quota_share *shares, size_t count)
{
    for (size_t i = 0; i < count; i++)
        qd_quota_give_back(quota, &shares[i]);
    qd_quota_destroy(quota);
}

Test(quota, each_listener_has_its_own)
{
    const struct qd_config config = {.max_connections = 2};
    struct qd_quota *quota = qd_quota_create(&config);
    struct qd_quota_share shares[4];
    for (size_t i = 0; i < 4; i++) {
        shares[i] = qd_quota_take(quota, i % 2, somebody);
        cr_assert_eq(shares[i].result, QD_QUOTA_ADMITTED);
    }
    struct qd_quota_share more = qd_quota_take(quota, 1, somebody);
    cr_assert_eq(more.result, QD_QUOTA_REFUSED);
    cr_assert_eq(qd_quota_count(quota, 1).admitted, 2);
    cr_assert_eq(qd_quota_count(quota, 1).refused, 1);
    cr_assert_eq(qd_quota_count(quota, 0).refused, 0);
    struct qd_error error;
    cr_assert_eq(qd_quota_explain(quota, &more, &error), QD_UNAVAILABLE);
    cr_assert(strstr(error.text, "at most 2 at a time (--max-connections)") != NULL);
    qd_quota_give_back(quota, &shares[3]);
    cr_assert_eq(qd_quota_count(quota, 1).admitted, 1);
    qd_quota_give_back(quota, &more); /* a refused client has no place to give to others */
    cr_assert_eq(qd_quota_count(quota, 1).admitted, 1);
    shares[3] = qd_quota_take(quota, 1, somebody);
    cr_assert_eq(shares[3].result, QD_QUOTA_ADMITTED);
    for (size_t i = 0; i < 4; i++)
        qd_quota_give_back(quota, &shares[i]);
    qd_quota_destroy(quota);
}

Test(quota, so_many_are_refused_at_a_time)
{
    const struct qd_config config = {.max_connections = 1};
    struct qd_quota *quota = qd_quota_create(&config);
    struct qd_quota_share first = qd_quota_take(quota, 0, somebody);
    struct qd_quota_share refused[QD_REFUSED_COUNT_MAX];
    for (size_t i = 0; i < QD_REFUSED_COUNT_MAX; i++) {
        refused[i] = qd_quota_take(quota, 0, somebody);
        cr_assert_eq(refused[i].result, QD_QUOTA_REFUSED);
    }
    struct qd_quota_share more = qd_quota_take(quota, 0, somebody);
    cr_assert_eq(more.result, QD_QUOTA_CLOSED);
    qd_quota_give_back(quota, &more);
    cr_assert_eq(qd_quota_take(quota, 0, somebody).result, QD_QUOTA_CLOSED);
    qd_quota_give_back(quota, &refused[0]);
    refused[0] = qd_quota_take(quota, 0, somebody);
    cr_assert_eq(refused[0].result, QD_QUOTA_REFUSED);
    cr_assert_eq(qd_quota_count(quota, 0).refused, QD_REFUSED_COUNT_MAX + 3);
    cr_assert_eq(qd_quota_count(quota, 0).admitted, 1);
    qd_quota_give_back(quota, &first);
    qd_quota_destroy(quota);
}

Test(quota, each_address_has_its_share)
{
    static const char *const names[] = {"127.0.0.1", "127.0.0.2", "::1", "fe80::1", "fe80::1:1"};
    enum { COUNT = sizeof(names) / sizeof(*names) };
    const struct qd_config config = {.max_connections = 1000, .max_connections_per_address = 3};
    struct qd_quota *quota = qd_quota_create(&config);
    struct qd_quota_share shares[COUNT][3];
    for (size_t i = 0; i < 3; i++) {
        for (size_t at = 0; at < COUNT; at++) {
            shares[at][i] = take(quota, 0, names[at]);
            cr_assert_eq(shares[at][i].result, QD_QUOTA_ADMITTED);
        }
    }
    struct qd_error error;
    for (size_t at = 0; at < COUNT; at++) {
        const struct qd_quota_share more = take(quota, 0, names[at]);
        cr_assert_eq(more.result, QD_QUOTA_REFUSED, "%s", names[at]);
        qd_quota_explain(quota, &more, &error);
        cr_assert(strstr(error.text, "at most 3 at a time (--max-connections-per-address)"));
        qd_quota_give_back(quota, &more);
        qd_quota_give_back(quota, &shares[at][1]);
        shares[at][1] = take(quota, 0, names[at]);
        cr_assert_eq(shares[at][1].result, QD_QUOTA_ADMITTED, "%s", names[at]);
    }
    const struct qd_quota_share there = take(quota, 1, names[0]);
    cr_assert_eq(there.result, QD_QUOTA_ADMITTED, "at another listener");
    qd_quota_give_back(quota, &there);
    for (size_t at = 0; at < COUNT; at++)
        for (size_t i = 0; i < 3; i++)
            qd_quota_give_back(quota, &shares[at][i]);
    qd_quota_destroy(quota); /* asserts that no address is left */
}

Test(quota, an_ipv4_address_is_the_same_for_both_kinds_of_listeners)
{
    const struct qd_config config = {.max_connections = 9, .max_connections_per_address = 1};
    struct qd_quota *quota = qd_quota_create(&config);
    const struct qd_quota_share shares[] = {
        take(quota, 0, "10.1.2.3"),
        take(quota, 0, "::ffff:10.1.2.3"),
        take(quota, 0, "::10.1.2.3"),
    };
    cr_assert_eq(shares[0].result, QD_QUOTA_ADMITTED);
    cr_assert_eq(shares[1].result, QD_QUOTA_REFUSED);
    cr_assert_eq(shares[2].result, QD_QUOTA_ADMITTED);
    end(quota, shares, 3);
}

Test(quota, a_global_ipv6_network_is_one_client)
{
    const struct qd_config config = {.max_connections = 9, .max_connections_per_address = 1};
    struct qd_quota *quota = qd_quota_create(&config);
    struct qd_quota_share shares[6] = {take(quota, 0, "2001:db8::1")};
    shares[1] = take(quota, 0, "2001:db8::ffff:0:0:2");
    cr_assert_eq(shares[1].result, QD_QUOTA_REFUSED);
    static const char *const others[] = {"2001:db8:0:1::1", "fd00::1", "fd00::2", "64:ff9b::1"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        shares[2 + i] = take(quota, 0, others[i]);
        cr_assert_eq(shares[2 + i].result, QD_QUOTA_ADMITTED, "%s", others[i]);
    }
    end(quota, shares, 6);
}

Test(quota, unix_sockets_have_no_address)
{
    const struct qd_config config = {.max_connections = 9, .max_connections_per_address = 1};
    struct qd_quota *quota = qd_quota_create(&config);
    struct qd_quota_share shares[10];
    for (size_t i = 0; i < 10; i++) {
        shares[i] = qd_quota_take(quota, 0, somebody);
        cr_assert_eq(shares[i].result, i < 9 ? QD_QUOTA_ADMITTED : QD_QUOTA_REFUSED);
    }
    end(quota, shares, 10);
}

static void *come_and_go(void *context)
{
    struct qd_quota *quota = context;
    struct qd_quota_share shares[8];
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[32];
        struct qd_quota_share *share = &shares[i % 8];
        if (i >= 8)
            qd_quota_give_back(quota, share);
        snprintf(name, sizeof(name), "fe80::%x", i * 7919u % ADDRESSES);
        *share = take(quota, i % 2, name);
    }
    for (size_t i = 0; i < 8; i++)
        qd_quota_give_back(quota, &shares[i]);
    return NULL;
}

Test(quota, counts_for_several_threads)
{
    const struct qd_config config = {.max_connections = 5, .max_connections_per_address = 2};
    struct qd_quota *quota = qd_quota_create(&config);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, come_and_go, quota), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(qd_quota_count(quota, 0).admitted, 0);
    cr_assert_eq(qd_quota_count(quota, 1).admitted, 0);
    struct qd_quota_share shares[5 + QD_REFUSED_COUNT_MAX];
    for (size_t i = 0; i < 5 + QD_REFUSED_COUNT_MAX; i++) {
        shares[i] = qd_quota_take(quota, 0, somebody);
        cr_assert_eq(shares[i].result, i < 5 ? QD_QUOTA_ADMITTED : QD_QUOTA_REFUSED);
    }
    cr_assert_eq(qd_quota_take(quota, 0, somebody).result, QD_QUOTA_CLOSED);
    end(quota, shares, 5 + QD_REFUSED_COUNT_MAX);
}
