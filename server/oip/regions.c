#include "server/oip/regions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/lock.h"
#include "server/json/tree.h"

struct qd_regions {
    const char *prefix; /* NULL: any key */
    size_t bytes_max;

    pthread_mutex_t lock;      /* protects the members below, and the fields of the regions */
    struct qd_region *first;   /* the registered regions, in the order of registration */
    size_t count;              /* how many are registered */
    size_t mapped_count;       /* how many are mapped: registered, in use, or being unmapped */
    size_t mapped_bytes;       /* the bytes of all mapped regions */
    struct qd_region *leaving; /* the regions to unmap */
    pthread_cond_t left;
    bool ends;
    pthread_t unmapper;
};

/* ---- Unmapping ---------------------------------------------------------------------------- */

/* The thread that unmaps regions. Unmapping takes long, and neither the loop nor a request should
 * wait for it. */
static void *unmap_all(void *context)
{
    struct qd_regions *regions = context;
    pthread_mutex_lock(&regions->lock);
    while (!regions->ends || regions->leaving != NULL) {
        struct qd_region *region = regions->leaving;
        if (region == NULL) {
            pthread_cond_wait(&regions->left, &regions->lock);
            continue;
        }
        const size_t bytes = region->mapping.count;
        regions->leaving = region->next;
        pthread_mutex_unlock(&regions->lock);
        qd_mapping_close(&region->mapping);
        free(region);
        pthread_mutex_lock(&regions->lock);
        regions->mapped_count--;
        regions->mapped_bytes -= bytes;
    }
    pthread_mutex_unlock(&regions->lock);
    return NULL;
}

struct qd_regions *qd_regions_create(const char *prefix, size_t bytes_max)
{
    struct qd_regions *regions = calloc(1, sizeof(*regions));
    if (regions == NULL)
        return NULL;
    regions->prefix = strcmp(prefix, "*") == 0 ? NULL : prefix + strspn(prefix, "/");
    regions->bytes_max = bytes_max;
    pthread_mutex_init(&regions->lock, NULL);
    pthread_cond_init(&regions->left, NULL);
    qd_mapping_catch_loss();
    if (pthread_create(&regions->unmapper, NULL, unmap_all, regions) != 0) {
        pthread_cond_destroy(&regions->left);
        pthread_mutex_destroy(&regions->lock);
        free(regions);
        return NULL;
    }
    return regions;
}

void qd_regions_destroy(struct qd_regions *regions)
{
    if (regions == NULL)
        return;
    qd_regions_unregister(regions, NULL);
    pthread_mutex_lock(&regions->lock);
    regions->ends = true;
    pthread_cond_signal(&regions->left);
    pthread_mutex_unlock(&regions->lock);
    pthread_join(regions->unmapper, NULL);
    pthread_cond_destroy(&regions->left);
    pthread_mutex_destroy(&regions->lock);
    free(regions);
}

/* ---- Holding ------------------------------------------------------------------------------ */

/* Returns the link to the region with this name, or the link at the list's end if there is none.
 * The lock is held. */
static struct qd_region **find(struct qd_regions *regions, const char *name)
{
    struct qd_region **at = &regions->first;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

struct qd_region *qd_regions_hold(struct qd_regions *regions, const char *name)
{
    QD_LOCKED(&regions->lock);
    struct qd_region *region = *find(regions, name);
    if (region != NULL)
        region->holder_count++;
    return region;
}

/* Under the lock. */
static void release(struct qd_region *region)
{
    struct qd_regions *regions = region->table;
    if (--region->holder_count > 0)
        return;
    region->next = regions->leaving;
    regions->leaving = region;
    pthread_cond_signal(&regions->left);
}

void qd_region_release(struct qd_region *region)
{
    QD_LOCKED(&region->table->lock);
    release(region);
}

/* ---- Registering -------------------------------------------------------------------------- */

static enum qd_status check_key(const struct qd_regions *regions, const char *key,
                                struct qd_error *error)
{
    const char *prefix = regions->prefix;
    const char *name = qd_mapping_name(key);
    if (name == NULL || prefix == NULL || strncmp(name, prefix, strlen(prefix)) == 0)
        return QD_OK; /* opening a key that names nothing fails later */
    return qd_fail(error, QD_INVALID,
                   "key: expected one that begins with \"/%.100s\" (--allow-shared-memory), got %s",
                   prefix, qd_show_string(key).text);
}

/* Checks the name. It must be UTF-8, because requests and answers contain it. */
static enum qd_status check_name(const char *name, struct qd_error *error)
{
    const size_t bytes = strlen(name);
    if (bytes > QD_REGION_NAME_BYTES_MAX) {
        return qd_fail(error, QD_INVALID, "region: expected a name of at most %d bytes, got %zu",
                       QD_REGION_NAME_BYTES_MAX, bytes);
    }
    for (size_t at = 0; at < bytes;) {
        const size_t length = qd_utf8_length(name + at, bytes - at);
        if (length == 0) {
            return qd_fail(error, QD_INVALID, "region: expected a name in UTF-8, got %s",
                           qd_show_string(name).text);
        }
        at += length;
    }
    return QD_OK;
}

/* Under the lock. */
static enum qd_status check_room(struct qd_regions *regions, const struct qd_region_call *call,
                                 struct qd_error *error)
{
    if (*find(regions, call->name) != NULL) {
        return qd_fail(error, QD_INVALID,
                       "region: expected a name that is not registered yet, got %s",
                       qd_show_string(call->name).text);
    }
    if (regions->count >= QD_REGION_COUNT_MAX) {
        return qd_fail(error, QD_UNAVAILABLE,
                       "region: expected at most %d registered regions, got one more",
                       QD_REGION_COUNT_MAX);
    }
    if (call->byte_size > regions->bytes_max) {
        return qd_fail(error, QD_TOO_LARGE,
                       "byte_size: expected at most %zu, which all regions may have together "
                       "(--max-shared-bytes), got %" PRIu64,
                       regions->bytes_max, call->byte_size);
    }
    if (call->byte_size > regions->bytes_max - regions->mapped_bytes) {
        return qd_fail(error, QD_UNAVAILABLE,
                       "byte_size: expected at most %zu, which are left for regions "
                       "(--max-shared-bytes), got %" PRIu64,
                       regions->bytes_max - regions->mapped_bytes, call->byte_size);
    }
    return QD_OK;
}

/* Allocates a region together with its texts. Returns NULL if malloc failed. */
static struct qd_region *make_region(struct qd_regions *regions, const struct qd_region_call *call)
{
    const size_t name_bytes = strlen(call->name) + 1;
    const size_t key_bytes = strlen(call->key) + 1;
    struct qd_region *region = calloc(1, sizeof(*region) + name_bytes + key_bytes);
    if (region == NULL)
        return NULL;
    char *texts = (char *)(region + 1);
    region->name = memcpy(texts, call->name, name_bytes);
    region->key = memcpy(texts + name_bytes, call->key, key_bytes);
    region->table = regions;
    region->holder_count = 1;
    return region;
}

static enum qd_status open_region(struct qd_regions *regions, const struct qd_region_call *call,
                                  struct qd_region **region, struct qd_error *error)
{
    *region = make_region(regions, call);
    if (*region == NULL)
        return qd_fail(error, QD_UNAVAILABLE, "region: no memory");
    const enum qd_status status =
        qd_mapping_open(&(*region)->mapping, call->key, call->offset, call->byte_size, error);
    if (status != QD_OK)
        free(*region);
    return status;
}

enum qd_status qd_regions_register(struct qd_regions *regions, const struct qd_region_call *call,
                                   struct qd_error *error)
{
    struct qd_region *region;
    if (check_name(call->name, error) != QD_OK || check_key(regions, call->key, error) != QD_OK)
        return error->status;
    QD_LOCKED(&regions->lock);
    if (check_room(regions, call, error) != QD_OK ||
        open_region(regions, call, &region, error) != QD_OK)
        return error->status;
    *find(regions, call->name) = region;
    regions->count++;
    regions->mapped_count++;
    regions->mapped_bytes += region->mapping.count;
    return QD_OK;
}

/* Under the lock. */
static void take_out(struct qd_regions *regions, struct qd_region **at)
{
    struct qd_region *region = *at;
    *at = region->next;
    region->next = NULL;
    regions->count--;
    release(region);
}

void qd_regions_unregister(struct qd_regions *regions, const char *name)
{
    QD_LOCKED(&regions->lock);
    if (name == NULL) {
        while (regions->first != NULL)
            take_out(regions, &regions->first);
    } else {
        struct qd_region **at = find(regions, name);
        if (*at != NULL)
            take_out(regions, at);
    }
}

/* ---- Looking ------------------------------------------------------------------------------ */

static void print_region(const struct qd_region *region, struct qd_text *text)
{
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, region->name);
    qd_text_string(text, ",\"key\":");
    qd_text_json_string(text, region->key);
    qd_text_format(text, ",\"offset\":%" PRIu64 ",\"byte_size\":%zu}", region->mapping.offset,
                   region->mapping.count);
}

enum qd_status qd_regions_print(struct qd_regions *regions, const char *name, struct qd_text *text,
                                struct qd_error *error)
{
    const char *between = "";
    size_t count = 0;
    qd_text_string(text, "[");
    QD_LOCKED(&regions->lock);
    for (struct qd_region *region = regions->first; region != NULL; region = region->next) {
        if (name != NULL && strcmp(region->name, name) != 0)
            continue;
        qd_text_string(text, between);
        print_region(region, text);
        between = ",";
        count++;
    }
    qd_text_string(text, "]");
    return name == NULL || count > 0
               ? QD_OK
               : qd_fail(error, QD_NOT_FOUND, "region: expected one that is registered, got %s",
                         qd_show_string(name).text);
}

void qd_regions_read_usage(struct qd_regions *regions, struct qd_usage *count,
                           struct qd_usage *bytes)
{
    QD_LOCKED(&regions->lock);
    *count = (struct qd_usage){regions->mapped_count, QD_REGION_COUNT_MAX};
    *bytes = (struct qd_usage){regions->mapped_bytes, regions->bytes_max};
}
