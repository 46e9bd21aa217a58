/* Addresses of peers, printed for people. */
#include "server/config/address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <sys/un.h>

static void assert_printed(const void *name, const char *expected)
{
    char text[QD_ADDRESS_TEXT_BYTES] = "";
    qd_address_print(name, text);
    cr_assert_str_eq(text, expected);
}

Test(address, peers)
{
    static const char *const ends[][2] = {{"0.0.0.0", "0.0.0.0:0"},
                                          {"127.0.0.1", "127.0.0.1:9"},
                                          {"255.255.255.255", "255.255.255.255:65535"},
                                          {"10.100.200.30", "10.100.200.30:10000"}};
    static const unsigned short ports[] = {0, 9, 65535, 10000};
    for (size_t i = 0; i < 4; i++) {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(ports[i])};
        cr_assert_eq(inet_pton(AF_INET, ends[i][0], &name.sin_addr), 1);
        assert_printed(&name, ends[i][1]);
    }
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(8000)};
    cr_assert_eq(inet_pton(AF_INET6, "fe80:1111:2222:3333:4444:5555:6666:7777", &name.sin6_addr),
                 1);
    assert_printed(&name, "[fe80:1111:2222:3333:4444:5555:6666:7777]:8000");
    cr_assert_eq(inet_pton(AF_INET6, "::ffff:1.2.3.4", &name.sin6_addr), 1);
    assert_printed(&name, "1.2.3.4:8000");
    assert_printed(&(struct sockaddr_un){.sun_family = AF_UNIX}, "unix");
}
