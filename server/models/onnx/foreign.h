/* What people give in the place of an ONNX file: a pointer to it, a page that says why it did not
 * come, an archive of it, a copy that a transfer as text has spoilt, another framework's model. */
#ifndef SERVER_MODELS_ONNX_FOREIGN_H
#define SERVER_MODELS_ONNX_FOREIGN_H

#include <stddef.h>

/* Says what the bytes are, as in "expected an ONNX file, got <this>"; the text may go on with what
 * to do. NULL: nothing that is known here, or an ONNX file.
 *
 * It is for bytes that were refused already. It never names an ONNX file that is whole as something
 * else: what begins as one is looked at field by field. A constant text; pure. */
const char *qd_foreign_name(const char *bytes, size_t count);

#endif
