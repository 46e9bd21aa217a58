#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/models/base64.h"

static struct qd_error error;

/* Decodes a copy in place, `step` characters at a time. Returns the size, or SIZE_MAX after a
 * failure. */
static size_t decode(const char *text, size_t step, char *bytes)
{
    size_t count = strlen(text);
    char *copy = malloc(count + (count == 0));
    memcpy(copy, text, count);
    struct qd_base64 decoder;
    qd_base64_init(&decoder, copy, count, copy);
    enum qd_status status = QD_OK;
    while (status == QD_OK && !qd_base64_at_end(&decoder))
        status = qd_base64_step(&decoder, step, &error);
    if (status == QD_OK)
        status = qd_base64_finish(&decoder, &error);
    size_t decoded = (size_t)(decoder.out - copy);
    memcpy(bytes, copy, decoded);
    free(copy);
    return status == QD_OK ? decoded : SIZE_MAX;
}

Test(base64, decodes_rfc_4648_in_steps_of_any_size)
{
    static const struct {
        const char *text;
        const char *bytes;
    } cases[] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm8=", "fo"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {"Zm9vYmE=", "fooba"},
        {"Zm9vYmFy", "foobar"},
        {"Pz8/Pj4+", "\?\?\?>>>"},
        {"Pz8\\/Pj4\\u002b", "\?\?\?>>>"},
        {"Pz8\\u002FPj4\\u002B", "\?\?\?>>>"},
        {"Zg\\u003d\\u003D", "f"},
        /* Variants of other programs: for URLs, without padding, in lines. */
        {"Pz8_Pj4-", "\?\?\?>>>"},
        {"Zg", "f"},
        {"Zm8", "fo"},
        {"Zg=", "f"},
        {"Zm9vYg", "foob"},
        {"Zm9v\\nYmFy\\n", "foobar"},
        {"Zm9v\\r\\nYmFy\\r\\n", "foobar"},
        {"Zm\\n9vY\\nmF\\ny", "foobar"},
        {"\\tZm9v YmE=\\u000a \\u000D\n\r\t", "fooba"},
        {" ", ""},
        {"\\n", ""},
    };
    char bytes[32];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (size_t step = 1; step < 20; step++) {
            size_t count = decode(cases[i].text, step, bytes);
            cr_assert_eq(count, strlen(cases[i].bytes), "%s: %s", cases[i].text, error.text);
            cr_assert_eq(memcmp(bytes, cases[i].bytes, count), 0);
        }
    }
}

Test(base64, decodes_every_byte_value)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char bytes[8];
    for (unsigned value = 0; value < 1u << 16; value++) {
        char text[5] = {alphabet[value >> 10], alphabet[value >> 4 & 63],
                        alphabet[(value & 15) * 4], '=', '\0'};
        cr_assert_eq(decode(text, 4, bytes), 2);
        cr_assert_eq((unsigned)(uint8_t)bytes[0] << 8 | (uint8_t)bytes[1], value);
    }
}

#define ONE "expected a letter, a digit, '+', '/', '-', '_' or, at the end, '='"

Test(base64, refuses_all_else_and_says_where)
{
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"Z", "base64, character 1: expected a second character of the last byte, got the end"},
        {"Zm9vZ", "base64, character 5: expected a second character of the last byte, got the end"},
        {"Z===", "base64, character 1: " ONE ", got '='"},
        {"====", "base64, character 0: " ONE ", got '='"},
        {"Zm9v=", "base64, character 4: " ONE ", got '='"},
        {"Zg==Zg==", "base64, character 4: expected the end, got 'Z'"},
        {"Zg===", "base64, character 4: expected the end, got '='"},
        {"Zg=v", "base64, character 3: expected '=', got 'v'"},
        {"Zh==", "base64, character 3: expected zeros as the last bits before it, got '='"},
        {"Zm9=", "base64, character 3: expected zeros as the last bits before it, got '='"},
        {"Zm9", "base64, character 3: expected zeros as the last bits before it, got the end"},
        {"Zm9v\1", "base64, character 4: " ONE ", got byte 0x01"},
        {"Zm9v\\f", "base64, character 4: " ONE ", got '\\'"},
        {"Zm.v", "base64, character 2: " ONE ", got '.'"},
        {"data:;base64,Zm9v", "base64, character 4: " ONE ", got ':'"},
        {"Zm9\\u01", "base64, character 3: " ONE ", got '\\'"},
        {"\xc3\xa4YQ", "base64, character 0: " ONE ", got byte 0xc3"},
    };
    char bytes[32];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cr_assert_eq(decode(cases[i].text, 7, bytes), SIZE_MAX, "%s", cases[i].text);
        cr_assert_str_eq(error.text, cases[i].error);
    }
}
