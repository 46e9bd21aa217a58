#include "tests/support/cases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t cases_run(const char *path, void (*run)(const cJSON *line, const void *context),
                 const void *context)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    size_t count = 0;
    cr_assert_not_null(file, "%s: run the tests from the top of the repository", path);
    while (getline(&line, &room, file) > 0) {
        cJSON *parsed = cJSON_Parse(line);
        count++;
        cr_assert_not_null(parsed, "%s:%zu: expected JSON", path, count);
        run(parsed, context);
        cJSON_Delete(parsed);
    }
    free(line);
    fclose(file);
    return count;
}

const char *cases_string(const cJSON *object, const char *key)
{
    const char *string = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    cr_assert_not_null(string, "a case without %s", key);
    return string;
}

size_t cases_read_hex(const char *hex, void *out)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        ((unsigned char *)out)[i] = (unsigned char)byte;
    }
    return count;
}
