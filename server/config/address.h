/* Where to listen, as the user writes it: ADDR:PORT, [ADDR6]:PORT or unix:PATH. ADDR may be a
 * host's name. */
#ifndef SERVER_CONFIG_ADDRESS_H
#define SERVER_CONFIG_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "server/base/status.h"

#define QD_UNIX_PATH_BYTES 108 /* of a Unix socket, with the NUL at its end */

/* Whether it is one of the three. Looks no host up. */
bool qd_address_valid(const char *address);

/* What bind and connect take; of a host with several addresses the first. A host's name may take a
 * while. False: `error` says why, without the address. */
bool qd_address_resolve(const char *address, struct sockaddr_storage *name, socklen_t *name_bytes,
                        struct qd_error *error);

#define QD_ADDRESS_TEXT_BYTES 56

/* A peer's, for people: "127.0.0.1:40000", "[::1]:40000", "unix". */
void qd_address_print(const struct sockaddr *name, char text[QD_ADDRESS_TEXT_BYTES]);

#endif
