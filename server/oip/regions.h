/* Keeps the regions that clients have registered, by Triton's system shared memory extension. A
 * region is a part of a POSIX shared memory object, under a name. Requests name it instead of
 * sending bytes.
 *
 * Every client may register and use every object whose key begins with the prefix of
 * --allow-shared-memory and that the server's user may open, including objects of other clients. An
 * unregistered region stays mapped until the last request that uses it has ended. */
#pragma once

#include "server/base/status.h"
#include "server/base/usage.h"
#include "server/memory/mapping.h"
#include "server/memory/text.h"

/* The length of a region's name. The name is a part of paths (QD_PATH_BYTES_MAX), in which the
 * escape of one byte takes three. */
#define QD_REGION_NAME_BYTES_MAX 255

/* How many regions may be registered. The remaining 64 mappings are for unregistered regions that
 * are still in use or being unmapped. */
#define QD_REGION_COUNT_MAX (QD_MAPPING_COUNT_MAX - 64)

struct qd_regions;

struct qd_region {
    const char *name;
    const char *key; /* as the client wrote it */
    struct qd_mapping mapping;

    /* Private. */
    struct qd_regions *table;
    size_t holder_count;    /* the requests that hold it, and the table */
    struct qd_region *next; /* in the table, or in the list of regions to unmap */
};

/* Creates the table. `prefix`, borrowed, is what keys must begin with, not counting leading
 * slashes; "*" allows all keys. `bytes_max` bounds the bytes of all regions together. Returns NULL
 * if there is no memory or no thread. Call it before any other thread starts, because it installs a
 * handler of SIGBUS (mapping.h). */
struct qd_regions *qd_regions_create(const char *prefix, size_t bytes_max);
void qd_regions_destroy(struct qd_regions *regions); /* no region may be in use; NULL is fine */

/* The arguments of a register call. */
struct qd_region_call {
    const char *name;
    const char *key;
    uint64_t offset;
    uint64_t byte_size;
};

/* Registers a region. This function and all below may be called on any thread. */
enum qd_status qd_regions_register(struct qd_regions *regions, const struct qd_region_call *call,
                                   struct qd_error *error);
/* Unregisters a region, or all regions if `name` is NULL. A name that is not registered is fine. */
void qd_regions_unregister(struct qd_regions *regions, const char *name);
/* Prints [{"name":…,"key":…,"offset":…,"byte_size":…}] for one region, or for all if `name` is
 * NULL. */
enum qd_status qd_regions_print(struct qd_regions *regions, const char *name, struct qd_text *text,
                                struct qd_error *error);
/* Sets how many regions and how many of their bytes are mapped, with the bounds. Unregistered
 * regions count until they are unmapped, but the bounds apply to registered regions only. The
 * gauges show all numbers. */
void qd_regions_read_usage(struct qd_regions *regions, struct qd_usage *count,
                           struct qd_usage *bytes);

/* Holds a region: it stays mapped until qd_region_release. Returns NULL if there is none of that
 * name. */
struct qd_region *qd_regions_hold(struct qd_regions *regions, const char *name);
void qd_region_release(struct qd_region *region);
