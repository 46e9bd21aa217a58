/* Reads, for tests, the files of tests/data that hold one case a line, as JSON. */
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"

/* Calls `run` with each line of the file, and `context`. Returns how many lines there are. Fails
 * the test if the file cannot be opened, or if a line is not JSON. */
size_t cases_run(const char *path, void (*run)(const cJSON *line, const void *context),
                 const void *context);

/* Returns the string at `key`. Fails the test if there is none. */
const char *cases_string(const cJSON *object, const char *key);

/* Decodes a text of hexadecimal digits, and writes its bytes to `out`. Returns how many bytes there
 * are. */
size_t cases_read_hex(const char *hex, void *out);

/* Decodes a text of hexadecimal digits. Returns its bytes, which the caller frees, and sets *count
 * to their number. */
uint8_t *cases_bytes(const char *hex, size_t *count);

/* Copies the "shape" of a tensor to `dims`. Returns its rank. */
uint32_t cases_dims(const cJSON *tensor, size_t *dims);

/* The call that a line of golden_cases.jsonl describes, and the memory that the call points at. */
struct cases_call {
    struct qk_call call;
    uint8_t *data[QK_INPUT_COUNT_MAX];
    int64_t lists[QK_ATTRIBUTE_COUNT_MAX][16];
    int64_t strides[QK_INPUT_COUNT_MAX][16];
};

/* Makes the call of a line. The caller frees its memory with cases_unload_call. */
void cases_load_call(struct cases_call *loaded, const cJSON *line);
void cases_unload_call(struct cases_call *loaded);
