#define _GNU_SOURCE
#include "server/models/onnx/onnx.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "server/memory/text.h"
#include "server/models/onnx/protobuf.h"

enum {
    HEAD_BYTES = 512,         /* how much of a text is looked at */
    ARCHIVE_BYTES = 64 << 10, /* at each end of an archive, for the names in it */
    TAR_MAGIC_AT = 257,
    POINTER_BYTES_MAX = 4 << 10,
};

struct file {
    const char *bytes;
    size_t count;
};

/* ---- Bytes at a place ---------------------------------------------------------------------- */

static bool has_at(struct file file, size_t at, const char *magic, size_t bytes)
{
    return file.count >= at && file.count - at >= bytes &&
           memcmp(file.bytes + at, magic, bytes) == 0;
}

/* Returns whether the first or last `bytes` bytes contain the text. */
static bool holds(struct file file, size_t bytes, const char *text)
{
    const size_t length = strlen(text);
    const size_t part = file.count < bytes ? file.count : bytes;
    return memmem(file.bytes, part, text, length) != NULL ||
           memmem(file.bytes + file.count - part, part, text, length) != NULL;
}

#define MAGIC(at, magic, name)                   \
    {                                            \
        (at), sizeof(magic) - 1, (magic), (name) \
    }

/* No ONNX file begins like any of these. Their first bytes are not a protobuf field, or are one
 * that ONNX does not have. The identifier of a flatbuffer follows the offset of the root, which
 * ends with zeros, because the root is near the start. Without the zeros, an ONNX file whose
 * producer has such a name at this place would match. */
static const struct {
    size_t at;
    size_t bytes;
    const char *magic;
    const char *name;
} magics[] = {
    MAGIC(0, "\x1f\x8b", "a gzip archive: unpack it first"),
    MAGIC(4, "1AY&SY", "a bzip2 archive: unpack it first"),
    MAGIC(0, "\3757zXZ\0", "an xz archive: unpack it first"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "a Zstandard archive: unpack it first"),
    MAGIC(0, "\x04\x22\x4d\x18", "an LZ4 archive: unpack it first"),
    MAGIC(0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"),
    MAGIC(0, "Rar!\x1a\x07", "a RAR archive: unpack it first"),
    MAGIC(TAR_MAGIC_AT, "ustar", "a tar archive: unpack it first"),
    MAGIC(0, "\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras's .h5: convert it with tf2onnx"),
    MAGIC(0, "GGUF", "a GGUF file of llama.cpp"),
    MAGIC(0, "lmgg", "a GGML file of llama.cpp"),
    MAGIC(0, "tjgg", "a GGML file of llama.cpp"),
    MAGIC(0, "ftrt", "a TensorRT engine: take the ONNX file that it was made of"),
    MAGIC(0, "ptrt", "a TensorRT engine: take the ONNX file that it was made of"),
    MAGIC(0, "\x93NUMPY", "a NumPy array, .npy"),
    MAGIC(0, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
          "a PyTorch file of torch.save: export the model with torch.onnx.export"),
    MAGIC(0, "ML\xefR", "MLIR bytecode"),
    MAGIC(0, "RKNN", "a model of RKNN"),
    MAGIC(0, "\177ELF", "a program or library (ELF)"),
    MAGIC(0, "\x89PNG\r\n\x1a\n", "a PNG image"),
    MAGIC(0, "\xff\xd8\xff", "a JPEG image"),
    MAGIC(0, "%PDF-", "a PDF document"),
    MAGIC(2, "\0\0TFL3", "a TensorFlow Lite model: convert it with tf2onnx --tflite"),
    MAGIC(2, "\0\0ORTM",
          "a model in ONNX Runtime's own format, .ort: take the ONNX file that it was "
          "made of"),
    MAGIC(2, "\0\0ET12", "an ExecuTorch program"),
};

static const char *name_by_magic(struct file file)
{
    for (size_t i = 0; i < sizeof(magics) / sizeof(*magics); i++)
        if (has_at(file, magics[i].at, magics[i].magic, magics[i].bytes))
            return magics[i].name;
    return NULL;
}

/* ---- Containers that hold several kinds ---------------------------------------------------- */

/* Names a zip archive by the names in it. All names are at the archive's end, and the first one is
 * also at its beginning. */
static const char *name_zip(struct file file)
{
    if (!has_at(file, 0, "PK\3\4", 4) && !has_at(file, 0, "PK\5\6", 4))
        return NULL;
    if (holds(file, ARCHIVE_BYTES, "/constants.pkl"))
        return "a TorchScript file of PyTorch: export the model with torch.onnx.export";
    if (holds(file, ARCHIVE_BYTES, "data.pkl"))
        return "a PyTorch file of torch.save: export the model with torch.onnx.export";
    if (holds(file, ARCHIVE_BYTES, "model.weights.h5"))
        return "a Keras model, .keras: convert it with tf2onnx";
    if (holds(file, ARCHIVE_BYTES, ".mlmodel"))
        return "a Core ML package in a zip archive";
    if (holds(file, ARCHIVE_BYTES, ".npy"))
        return "NumPy arrays, .npz";
    return "a zip archive: unpack it first";
}

/* Recognizes a pickle: its protocol is 2 to 5, and its last byte is STOP. */
static const char *name_pickle(struct file file)
{
    if (file.count < 3 || file.bytes[0] != '\x80' || file.bytes[1] < 2 || file.bytes[1] > 5 ||
        file.bytes[file.count - 1] != '.')
        return NULL;
    return "a Python pickle: export the model to ONNX where it was made";
}

/* Recognizes safetensors: 8 bytes have the length of the JSON that follows. */
static const char *name_safetensors(struct file file)
{
    uint64_t length = 0;
    if (file.count < 10 || file.bytes[8] != '{')
        return NULL;
    for (size_t i = 8; i-- > 0;)
        length = length << 8 | (unsigned char)file.bytes[i];
    if (length < 2 || length > file.count - 8)
        return NULL;
    return "a file of safetensors, which has weights and no graph: export the model to ONNX";
}

/* ---- Texts --------------------------------------------------------------------------------- */

/* Returns whether the first bytes are a text: UTF-8 without control characters, except tabs, line
 * ends and form feeds. */
static bool is_text(struct file file)
{
    const size_t end = file.count < HEAD_BYTES ? file.count : HEAD_BYTES;
    for (size_t at = 0, length; at < end; at += length) {
        const unsigned char byte = (unsigned char)file.bytes[at];
        length = qd_utf8_length(file.bytes + at, file.count - at);
        if (length == 0 || byte == 0 || byte == 0x7f ||
            (byte < 0x20 && strchr("\t\n\f\r", byte) == NULL))
            return false;
    }
    return end > 0;
}

static bool begins(struct file file, const char *text)
{
    const size_t length = strlen(text);
    return file.count >= length && strncasecmp(file.bytes, text, length) == 0;
}

static struct file skip_blanks(struct file file)
{
    if (has_at(file, 0, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        file.bytes += 3;
        file.count -= 3;
    }
    while (file.count > 0 && strchr(" \t\r\n", *file.bytes) != NULL && *file.bytes != '\0') {
        file.bytes++;
        file.count--;
    }
    return file;
}

static const char *name_pointer(struct file file)
{
    if (begins(file, "version https://git-lfs.") || begins(file, "version https://hawser."))
        return "a Git LFS pointer: `git lfs pull` fetches the file itself";
    if (begins(file, "/annex/objects/") || holds(file, POINTER_BYTES_MAX, ".git/annex/objects/"))
        return "a git-annex pointer: `git annex get` fetches the file itself";
    if (begins(file, "# xet version"))
        return "a Git Xet pointer: `git xet` fetches the file itself";
    if (begins(file, "outs:") && holds(file, HEAD_BYTES, "md5:"))
        return "a DVC pointer: `dvc pull` fetches the file itself";
    if (begins(file, "../") && file.count < POINTER_BYTES_MAX)
        return "a path, as of a link that was copied as a text";
    return NULL;
}

static const char *name_markup(struct file file)
{
    if (begins(file, "<!doctype html") || begins(file, "<html") || begins(file, "<head"))
        return "an HTML page, such as an error or a login in the place of a download";
    if (begins(file, "<net") || (begins(file, "<?xml") && holds(file, HEAD_BYTES, "<net")))
        return "a model of OpenVINO (IR): take the ONNX file that it was made of";
    if (begins(file, "<?xml") || begins(file, "<error"))
        return "an XML text, such as an error of a storage service";
    return NULL;
}

static bool is_base64(struct file file)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_\r\n";
    for (size_t i = 0; i < file.count && i < HEAD_BYTES; i++)
        if (memchr(characters, file.bytes[i], sizeof(characters) - 1) == NULL)
            return false;
    return file.count >= 16;
}

static const char *name_text(struct file whole)
{
    const struct file file = skip_blanks(whole);
    if (!is_text(whole))
        return NULL;
    if (file.count == 0)
        return "nothing but blanks";
    const char *name = name_pointer(file);
    if (name == NULL)
        name = name_markup(file);
    if (name != NULL)
        return name;
    if (*file.bytes == '{' || *file.bytes == '[')
        return holds(file, POINTER_BYTES_MAX, "\"model_name\"")
                   ? "JSON, a request to keep: its file is request.json"
                   : "JSON";
    if (begins(file, "ir_version:"))
        return "an ONNX file as protobuf's text: save it with onnx.save";
    if (begins(file, "7767517"))
        return "a model of ncnn";
    if (is_base64(file))
        return "text in base64: decode it, as base64 -d does; a call encodes a file only once";
    return "text";
}

/* ---- Protobuf ------------------------------------------------------------------------------ */

/* The fields of ONNX's ModelProto that are numbers, and the fields that are bytes. */
#define ONNX_NUMBERS (UINT64_C(1) << 1 | UINT64_C(1) << 5)
#define ONNX_BYTES                                                                 \
    (UINT64_C(1) << 2 | UINT64_C(1) << 3 | UINT64_C(1) << 4 | UINT64_C(1) << 6 |   \
     UINT64_C(1) << 7 | UINT64_C(1) << 8 | UINT64_C(1) << 14 | UINT64_C(1) << 20 | \
     UINT64_C(1) << 25 | UINT64_C(1) << 26)
enum { ONNX_GRAPH = 7, ONNX_GRAPH_OUTPUT = 12 };

/* The top level of a message. */
struct message {
    uint64_t numbers; /* bit i: field i occurs and is a number, for i up to 63 */
    uint64_t bytes;
    bool has_higher;                   /* there are fields above 63 */
    bool is_cut;                       /* the last field is longer than the rest of the file */
    bool is_whole;                     /* the whole file consists of fields */
    struct qd_protobuf_field first[3]; /* the first field 1 and field 2; tag is 0 if none */
};

static bool is_bytes(const struct qd_protobuf_field *field)
{
    return field->length_bytes > 0;
}

static bool is_number(const struct qd_protobuf_field *field)
{
    return field->tag != 0 && !is_bytes(field);
}

static void read_message(struct file file, struct message *message)
{
    const uint8_t *at = (const uint8_t *)file.bytes;
    const uint8_t *const end = at + file.count;
    struct qd_protobuf_field field;
    *message = (struct message){.numbers = 0};
    for (; at < end && qd_protobuf_read(at, end, &field); at = field.end) {
        const uint64_t number = field.tag >> 3;
        const uint64_t bit = number < 64 ? UINT64_C(1) << number : 0;
        *(is_bytes(&field) ? &message->bytes : &message->numbers) |= bit;
        message->has_higher |= bit == 0;
        if (number < 3 && message->first[number].tag == 0)
            message->first[number] = field;
        message->is_cut = field.is_cut;
        message->is_whole = field.end == end && !field.is_cut;
    }
}

/* Returns whether the field's bytes are a message whose first field has this tag. */
static bool starts_with(const struct qd_protobuf_field *field, char tag)
{
    return field->data < field->end && *field->data == (uint8_t)tag;
}

/* Recognizes models of other frameworks that use protobuf. In an ONNX file, field 1 is a number,
 * and field 2 is the producer's name, which does not begin with a byte that is a field's tag. */
static const char *name_other_message(const struct message *message)
{
    const struct qd_protobuf_field *one = &message->first[1];
    const struct qd_protobuf_field *two = &message->first[2];
    const bool only_two = (message->numbers | message->bytes) == (1u << 1 | 1u << 2);
    if ((message->bytes >> ONNX_GRAPH_OUTPUT & 1) != 0 && is_bytes(one))
        return "an ONNX graph (GraphProto) without the model (ModelProto) around it";
    if (is_bytes(one) && starts_with(one, '\n') && (message->numbers & ~(1u << 3)) == 0)
        return "a TensorFlow graph (GraphDef): convert it with tf2onnx";
    if (is_bytes(one) && starts_with(one, '\b') && !message->has_higher)
        return "a PaddlePaddle program: convert it with paddle2onnx";
    if (is_bytes(one) && message->has_higher)
        return "a Caffe model";
    if (!is_number(one))
        return NULL;
    if (is_number(two))
        return "one tensor (TensorProto), not a model";
    if (!starts_with(two, '\n'))
        return NULL;
    if (only_two && one->value == 1)
        return "a TensorFlow SavedModel: convert it with tf2onnx";
    return message->has_higher ? "a Core ML model" : NULL;
}

static bool has_graph(const struct message *message)
{
    return (message->bytes >> ONNX_GRAPH & 1) != 0;
}

/* Returns whether all fields belong to ModelProto, and ir_version or the graph is among them. */
static bool is_onnx(const struct message *message)
{
    return !message->has_higher && (message->numbers & ~ONNX_NUMBERS) == 0 &&
           (message->bytes & ~ONNX_BYTES) == 0 &&
           ((message->numbers & 2) != 0 || has_graph(message));
}

/* Returns whether the file begins with a number, as ONNX files do, and has CRLFs in the place of
 * LFs. LF is a tag in each node, almost always behind another byte than CR. Takes time in
 * proportion to the file's size, and no memory. */
static bool was_transferred_as_text(struct file file)
{
    bool found = false;
    const char *lf;
    if (!has_at(file, 0, "\b", 1))
        return false;
    while ((lf = memchr(file.bytes, '\n', file.count)) != NULL) {
        if (lf == file.bytes || lf[-1] != '\r')
            return false;
        file.count -= (size_t)(lf - file.bytes) + 1;
        file.bytes = lf + 1;
        found = true;
    }
    return found;
}

static const char *name_message(const struct message *message)
{
    if (is_onnx(message) && message->is_cut && !starts_with(&message->first[2], '\n'))
        return "the beginning of one, whose end is missing";
    return message->is_whole || message->is_cut ? name_other_message(message) : NULL;
}

/* ---- All of them --------------------------------------------------------------------------- */

const char *qd_foreign_name(const char *bytes, size_t count)
{
    static const char *(*const kinds[])(struct file file) = {
        name_by_magic, name_zip, name_safetensors, name_pickle, name_text};
    const struct file file = {.bytes = bytes, .count = count};
    struct message message;
    if (count == 0)
        return "an empty file";
    if (was_transferred_as_text(file)) /* first, because such a file may also parse as it is */
        return "one that was transferred as text, in which each LF became CRLF: transfer it again "
               "as binary";
    read_message(file, &message);
    if (message.is_whole && has_graph(&message))
        return NULL; /* the top level of an ONNX file is complete */
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const char *name = kinds[i](file);
        if (name != NULL)
            return name;
    }
    return name_message(&message);
}
