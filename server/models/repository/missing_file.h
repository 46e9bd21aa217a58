/* Lists what lies in the place where a model's file was expected, for an error text. */
#ifndef SERVER_MODELS_REPOSITORY_MISSING_FILE_H
#define SERVER_MODELS_REPOSITORY_MISSING_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* As many names as fit: the ONNX files, and all other files. Initialize it with zeros. */
struct qd_missing_file {
    char onnx[120];
    char others[120];
};

/* Returns whether the name is that of an ONNX file, such as "model_int8.onnx". */
bool qd_missing_file_is_onnx(const char *name);

/* Returns the length of a name without ".onnx" at its end. */
size_t qd_missing_file_stem(const char *name);

void qd_missing_file_add(struct qd_missing_file *missing, const char *name);

/* Adds the names in the folder with this descriptor, except names that begin with a dot. Looks at
 * 1,000 entries at most. */
void qd_missing_file_read(struct qd_missing_file *missing, int folder);

/* Returns the names of the ONNX files, as "\"a.onnx\", \"b.onnx\"". Returns all other names if
 * there are no ONNX files, and "nothing" if there are no names. */
const char *qd_missing_file_text(const struct qd_missing_file *missing);

#endif
