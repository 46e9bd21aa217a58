/* Reads the addresses to listen on, as the user writes them: ADDR:PORT, [ADDR6]:PORT or unix:PATH.
 * ADDR may be a host name. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#include "server/base/status.h"

#define QD_UNIX_PATH_BYTES 108 /* of a Unix socket's path, including the NUL */

/* Returns whether the address has one of the three forms. Does not look up host names. */
bool qd_address_valid(const char *address);

/* Resolves an address for bind and connect. If a host has several addresses, takes the first.
 * Looking up a host name may take a while. Returns false on failure; `error` then gives the reason,
 * without the address. */
bool qd_address_resolve(const char *address, struct sockaddr_storage *name, socklen_t *name_bytes,
                        struct qd_error *error);

#define QD_ADDRESS_TEXT_BYTES 56

/* Prints the address of a peer, for people: "127.0.0.1:40000", "[::1]:40000", "unix". */
void qd_address_print(const struct sockaddr *name, char text[QD_ADDRESS_TEXT_BYTES]);
