/* Another process' POSIX shared memory, mapped. Its owner may shrink it at any moment, and whoever
 * touches a page that is gone gets SIGBUS, which ends a process. Such objects cannot be sealed
 * against that (F_SEAL_SHRINK is for memfds alone), and pread and pwrite, which would only fail,
 * cost a copy. So the signal is caught: its handler puts empty memory of our own in the place of
 * the whole mapping, which is lost from then on, and whoever touched it goes on, with zeros. The
 * same where the system has no page left for it. What was computed meanwhile is worth nothing:
 * whoever has used a mapping asks afterwards whether it is lost. Safe on any thread. */
#ifndef SERVER_MEMORY_MAPPING_H
#define SERVER_MEMORY_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/base/status.h"

/* Of the process. The kernel lets it have some 65,000; the signal's handler looks through them. */
#define QD_MAPPING_COUNT_MAX 1024

#define QD_MAPPING_KEY_BYTES 256 /* with the NUL at its end: it is a file's name */

struct qd_mapping {
    char *bytes; /* of the object from the offset on, aligned as that is */
    size_t count;
    dev_t device; /* these three say which bytes they are: */
    ino_t inode;
    uint64_t offset;

    /* Private. */
    char *pages;
    size_t pages_bytes;
    struct qd_mapping_slot *slot;
};

/* Catches SIGBUS. Before there are other threads. */
void qd_mapping_catch_loss(void);

/* The name of the object that a key means, in /dev/shm: without slashes before it, as shm_open has
 * it. NULL: there is none of that name. */
const char *qd_mapping_name(const char *key);

/* Maps count bytes, at least one, from offset on, to read and write. A failure names the field of a
 * call that registers a region. */
enum qd_status qd_mapping_open(struct qd_mapping *mapping, const char *key, uint64_t offset,
                               uint64_t count, struct qd_error *error);
/* Nobody uses it any more. It takes some 10 ms for each 100 MiB that were touched. */
void qd_mapping_close(struct qd_mapping *mapping);

/* Whether it was lost: seen by whoever has touched it, or has heard of those who have. */
bool qd_mapping_is_lost(const struct qd_mapping *mapping);

#endif
