/* What lies where a model's file was looked for, in the words of a refusal. */
#ifndef SERVER_MODELS_REPOSITORY_FOUND_H
#define SERVER_MODELS_REPOSITORY_FOUND_H

#include <stdbool.h>
#include <stddef.h>

/* As many names as there is room for: ONNX files, or, where there are none, all others. Zeros:
 * nothing so far. */
struct qd_found {
    char onnx[120];
    char others[120];
};

/* True for the name of an ONNX file: "model_int8.onnx". */
bool qd_found_is_onnx(const char *name);

void qd_found_add(struct qd_found *found, const char *name);

/* Adds the names in a folder, which is a descriptor. Those beyond the first 1,000 are left out. */
void qd_found_read(struct qd_found *found, int folder);

/* "\"a.onnx\", \"b.onnx\"", or "nothing". */
const char *qd_found_text(const struct qd_found *found);

#endif
