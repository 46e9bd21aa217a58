/* Embeds files in the program, so that it needs no file beside it.
 *
 * The assembler embeds them, because C17 has no #embed. It looks for them where make runs, at the
 * root of the repository. The Makefile knows that an object depends on them. ".section .rodata" is
 * written without a type, because the spelling of a type differs between machines. */
#pragma once

#include <stdint.h>

#include "server/memory/text.h"

/* Embeds files, one after the other, and declares name_begin and name_end for QD_EMBEDDED. `files`
 * are QD_FILE()s. */
#define QD_EMBED(name, files)                                                             \
    __asm__(".pushsection .rodata\n"                                                      \
            ".globl " #name "_begin\n.hidden " #name "_begin\n"                           \
            ".globl " #name "_end\n.hidden " #name "_end\n" #name "_begin:\n" files #name \
            "_end:\n"                                                                     \
            ".byte 0\n"                                                                   \
            ".popsection\n");                                                             \
    extern const char name##_begin[] __attribute__((visibility("hidden")));               \
    extern const char name##_end[] __attribute__((visibility("hidden")))
#define QD_FILE(file) ".incbin \"" file "\"\n"

/* The embedded bytes as a struct qd_part. */
#define QD_EMBEDDED(name)                                             \
    (struct qd_part)                                                  \
    {                                                                 \
        name##_begin, (uintptr_t)name##_end - (uintptr_t)name##_begin \
    }
