/* Names files that users mistake for an ONNX file: a pointer to the file, a web page that explains
 * why the download failed, an archive, a copy that a transfer as text has spoilt, another
 * framework's model. */
#ifndef SERVER_MODELS_ONNX_FOREIGN_H
#define SERVER_MODELS_ONNX_FOREIGN_H

#include <stddef.h>

/* Returns what the bytes are, as a phrase for "expected an ONNX file, got <phrase>". Some phrases
 * also say what to do. Returns NULL if the bytes are of no known kind, or are an ONNX file. The
 * text is constant. Pure.
 *
 * Call it only for bytes that were refused already. It never takes a complete ONNX file for another
 * format, because it parses the fields of the file before it tries other formats. */
const char *qd_foreign_name(const char *bytes, size_t count);

#endif
