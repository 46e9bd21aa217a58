/* Maps another process' POSIX shared memory. That process may shrink the shared memory object at
 * any moment. A thread that then touches a missing page gets SIGBUS, which would end the server.
 * Such objects cannot be sealed against shrinking (F_SEAL_SHRINK is for memfds only). pread and
 * pwrite would only fail, but they cost a copy.
 *
 * The server therefore catches the signal. The handler replaces the whole mapping by empty memory
 * of the server's own. The mapping is lost from then on, and the thread continues and reads zeros.
 * The same happens if the system has no page left. Results computed meanwhile are worthless, so
 * after using a mapping, the caller asks whether it was lost.
 *
 * All functions may be called on any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/base/status.h"

/* How many mappings the process may have. The kernel allows some 65,000. The signal handler
 * searches all of them. */
#define QD_MAPPING_COUNT_MAX 1024

#define QD_MAPPING_KEY_BYTES 256 /* including the NUL; a key is a file name */

struct qd_mapping {
    char *bytes; /* the object's bytes from the offset on, with the offset's alignment */
    size_t count;
    dev_t device; /* device, inode and offset identify the bytes */
    ino_t inode;
    uint64_t offset;

    /* Private. */
    char *pages;
    size_t pages_bytes;
    struct qd_mapping_slot *slot;
};

/* Installs the handler of SIGBUS. Call it before other threads start. */
void qd_mapping_catch_loss(void);

/* Returns the name of a key's object in /dev/shm: the key without its leading slashes, as in
 * shm_open. Returns NULL if the key cannot name an object. */
const char *qd_mapping_name(const char *key);

/* Maps `count` bytes, at least one, from `offset` on, for reading and writing. An error names the
 * field of the call that registers a region. */
enum qd_status qd_mapping_open(struct qd_mapping *mapping, const char *key, uint64_t offset,
                               uint64_t count, struct qd_error *error);
/* Unmaps a mapping that is no longer used. Takes some 10 ms for each 100 MiB that were touched. */
void qd_mapping_close(struct qd_mapping *mapping);

/* Returns whether the mapping was lost. A thread sees the loss if it touched the mapping itself, or
 * synchronized with the thread that did. */
bool qd_mapping_is_lost(const struct qd_mapping *mapping);
