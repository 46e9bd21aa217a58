#include "server/oip/regions.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OBJECT_BYTES = 3 << 12 };

struct object {
    char key[64];
    int fd;
};

static struct object object_create(void)
{
    struct object object;
    snprintf(object.key, sizeof(object.key), "/quantd-unit-%d", getpid());
    object.fd = shm_open(object.key, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert(object.fd >= 0);
    cr_assert_eq(ftruncate(object.fd, OBJECT_BYTES), 0);
    return object;
}

static void object_destroy(struct object *object)
{
    close(object->fd);
    shm_unlink(object->key);
}

static enum qd_status add(struct qd_regions *regions, const struct object *object, const char *name,
                          uint64_t offset, uint64_t bytes)
{
    const struct qd_region_call call = {name, object->key, offset, bytes};
    struct qd_error error;
    return qd_regions_register(regions, &call, &error);
}

Test(regions, are_held)
{
    struct object object = object_create();
    struct qd_regions *regions = qd_regions_create("/quantd-", 1 << 20);
    cr_assert_eq(add(regions, &object, "a", 5, 4091), QD_OK);
    cr_assert_eq(add(regions, &object, "a", 0, 1), QD_INVALID);
    struct qd_region *region = qd_regions_hold(regions, "a");
    cr_assert_not_null(region);
    cr_assert_null(qd_regions_hold(regions, "b"));
    qd_regions_unregister(regions, "a");
    cr_assert_null(qd_regions_hold(regions, "a"));
    cr_assert_eq(pwrite(object.fd, "hello", 5, 5), 5);
    cr_assert_eq(memcmp(region->mapping.bytes, "hello", 5), 0);
    struct qd_usage count, bytes;
    qd_regions_read_usage(regions, &count, &bytes);
    cr_assert_eq(count.used, 1, "it is still mapped");
    cr_assert_eq(bytes.used, 4091);
    cr_assert_eq(add(regions, &object, "a", 0, 1), QD_OK, "the name is free");
    qd_region_release(region);
    qd_regions_destroy(regions);
    object_destroy(&object);
}

Test(regions, have_a_prefix_and_bounds)
{
    struct object object = object_create();
    struct qd_regions *regions = qd_regions_create("other-", 1 << 20);
    cr_assert_eq(add(regions, &object, "a", 0, 1), QD_INVALID);
    qd_regions_destroy(regions);
    regions = qd_regions_create("*", 8192);
    cr_assert_eq(add(regions, &object, "a", 0, 8193), QD_TOO_LARGE);
    cr_assert_eq(add(regions, &object, "a", 0, 8192), QD_OK);
    cr_assert_eq(add(regions, &object, "b", 0, 1), QD_UNAVAILABLE);
    qd_regions_destroy(regions);
    regions = qd_regions_create("*", SIZE_MAX);
    static const uint64_t beyond[][2] = {
        {0, 0},          {0, OBJECT_BYTES + 1}, {OBJECT_BYTES, 1},  {1, OBJECT_BYTES},
        {UINT64_MAX, 1}, {1, UINT64_MAX / 2},   {UINT64_MAX - 1, 2}};
    for (size_t i = 0; i < sizeof(beyond) / sizeof(*beyond); i++)
        cr_assert_eq(add(regions, &object, "a", beyond[i][0], beyond[i][1]), QD_INVALID);
    struct qd_usage count, bytes;
    qd_regions_read_usage(regions, &count, &bytes);
    cr_assert_eq(count.used, 0);
    qd_regions_destroy(regions);
    object_destroy(&object);
}

Test(regions, print_as_json)
{
    struct object object = object_create();
    struct qd_regions *regions = qd_regions_create("*", 1 << 20);
    struct qd_memory *memory = qd_memory_create(1 << 20);
    struct qd_arena arena;
    struct qd_text text;
    struct qd_error error;
    char wanted[256];
    qd_arena_init(&arena, memory);
    cr_assert_eq(add(regions, &object, "a\"", 1, 2), QD_OK);
    cr_assert_eq(add(regions, &object, "b", 0, 4), QD_OK);
    qd_text_init(&text, &arena);
    cr_assert_eq(qd_regions_print(regions, "a\"", &text, &error), QD_OK);
    snprintf(wanted, sizeof(wanted),
             "[{\"name\":\"a\\\"\",\"key\":\"%s\",\"offset\":1,\"byte_size\":2}]", object.key);
    cr_assert_eq(text.bytes, strlen(wanted));
    cr_assert_eq(memcmp(text.parts[0].bytes, wanted, strlen(wanted)), 0);
    cr_assert_eq(qd_regions_print(regions, "c", &text, &error), QD_NOT_FOUND);
    qd_arena_deinit(&arena);
    qd_memory_destroy(memory);
    qd_regions_destroy(regions);
    object_destroy(&object);
}

Test(regions, survive_that_they_shrink)
{
    struct object object = object_create();
    struct qd_regions *regions = qd_regions_create("*", 1 << 20);
    cr_assert_eq(add(regions, &object, "a", 100, OBJECT_BYTES - 100), QD_OK);
    cr_assert_eq(add(regions, &object, "b", 0, 4096), QD_OK);
    struct qd_region *a = qd_regions_hold(regions, "a");
    struct qd_region *b = qd_regions_hold(regions, "b");
    volatile char *bytes = a->mapping.bytes;
    bytes[0] = 1;
    cr_assert_eq(ftruncate(object.fd, 4096), 0);
    cr_assert_eq(bytes[0], 1, "what is left is as before");
    cr_assert(!qd_mapping_is_lost(&a->mapping));
    cr_assert_eq(bytes[4096], 0);
    cr_assert(qd_mapping_is_lost(&a->mapping));
    cr_assert(!qd_mapping_is_lost(&b->mapping));
    cr_assert_eq(bytes[0], 0, "all of it is gone");
    bytes[OBJECT_BYTES - 101] = 7;
    cr_assert_eq(b->mapping.bytes[100], 1, "the object is as it was");
    qd_region_release(a);
    qd_region_release(b);
    qd_regions_destroy(regions);
    object_destroy(&object);
}
