#include "server/base/schema.h"

#include <stdint.h>

/* The assembler puts the files in, as C17 has no #embed. It looks for them where make runs, at the
 * root of the repository; the Makefile knows that this object depends on them. ".section .rodata"
 * needs no type, whose spelling differs between machines. */
#define EMBED(name, file)                                                     \
    __asm__(".pushsection .rodata\n"                                          \
            ".globl " #name "_begin\n.hidden " #name "_begin\n"               \
            ".globl " #name "_end\n.hidden " #name "_end\n" #name "_begin:\n" \
            ".incbin \"" file "\"\n" #name "_end:\n"                          \
            ".byte 0\n"                                                       \
            ".popsection\n");                                                 \
    extern const char name##_begin[] __attribute__((visibility("hidden")));   \
    extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(qd_schema_yaml_file, "api_schema/openapi.yaml");
EMBED(qd_schema_json_file, "api_schema/openapi.json");

static struct qd_part part(const char *begin, const char *end)
{
    return (struct qd_part){begin, (uintptr_t)end - (uintptr_t)begin};
}

struct qd_part qd_schema_yaml(void)
{
    return part(qd_schema_yaml_file_begin, qd_schema_yaml_file_end);
}

struct qd_part qd_schema_json(void)
{
    return part(qd_schema_json_file_begin, qd_schema_json_file_end);
}
