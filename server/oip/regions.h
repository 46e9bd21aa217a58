/* Triton's system shared memory extension: the regions that clients have registered. A region is a
 * piece of a POSIX shared memory object, under a name; requests name it instead of sending bytes.
 *
 * Whoever may ask the server may register and use every object that its user may open and whose key
 * begins with the prefix, also another client's. An unregistered region stays mapped until the
 * last request that uses it has ended. */
#ifndef SERVER_OIP_REGIONS_H
#define SERVER_OIP_REGIONS_H

#include "server/base/status.h"
#include "server/memory/mapping.h"
#include "server/memory/text.h"
#include "server/telemetry/gauges.h"

/* A region's name is a part of paths (QD_PATH_BYTES_MAX), where each byte may take three. */
#define QD_REGION_NAME_BYTES_MAX 255

/* Beside those registered, some may still be in use, or be unmapped just now. */
#define QD_REGION_COUNT_MAX (QD_MAPPING_COUNT_MAX - 64)

struct qd_regions;

struct qd_region {
    const char *name;
    const char *key; /* as its client wrote it */
    struct qd_mapping mapping;

    /* Private. */
    struct qd_regions *table;
    size_t holder_count;    /* requests, and the table itself */
    struct qd_region *next; /* in the table, or among those to be unmapped */
};

/* prefix: what keys begin with, slashes before it left out; "*": whatever they like. It is
 * borrowed. bytes_max: of all regions together. NULL: no memory, or no thread. Before any other
 * thread starts: it catches SIGBUS (mapping.h). */
struct qd_regions *qd_regions_create(const char *prefix, size_t bytes_max);
void qd_regions_destroy(struct qd_regions *regions); /* none is in use; NULL is fine */

/* What a client asks for. */
struct qd_region_call {
    const char *name;
    const char *key;
    uint64_t offset;
    uint64_t byte_size;
};

/* On any thread, as all that follow. */
enum qd_status qd_regions_register(struct qd_regions *regions, const struct qd_region_call *call,
                                   struct qd_error *error);
/* NULL: all of them. A name that is not registered is fine. */
void qd_regions_unregister(struct qd_regions *regions, const char *name);
/* [{"name":…,"key":…,"offset":…,"byte_size":…}]; NULL: all of them. */
enum qd_status qd_regions_print(struct qd_regions *regions, const char *name, struct qd_text *text,
                                struct qd_error *error);
/* Regions, or their bytes, with those that are not unmapped yet; and the bounds of registered ones.
 */
struct qd_bound qd_regions_count(struct qd_regions *regions);
struct qd_bound qd_regions_bytes(struct qd_regions *regions);

/* It stays mapped until the release. NULL: there is none of that name. */
struct qd_region *qd_regions_hold(struct qd_regions *regions, const char *name);
void qd_region_release(struct qd_region *region);

#endif
