/* Which other files are recognised in place of an ONNX file. */
#include <stdlib.h>

#include "server/models/onnx/onnx.h"
#include "tests/unit/models/onnx_file.h"

TestSuite(foreign, .init = setup, .fini = teardown);

struct sample {
    size_t bytes;
    const char *text;
    const char *name; /* beginning of the expected name; NULL: not recognised */
};

#define SAMPLE(text, name)               \
    {                                    \
        sizeof(text) - 1, (text), (name) \
    }

static const struct sample samples[] = {
    SAMPLE("", "an empty file"),
    SAMPLE("\n \t\r\n", "nothing but blanks"),
    /* Pointers. */
    SAMPLE("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
           "a Git LFS pointer"),
    SAMPLE("/annex/objects/SHA256E-s12345--4d7a.onnx\n", "a git-annex pointer"),
    SAMPLE("../../.git/annex/objects/Xk/0Q/SHA256E-s1--4d.onnx/SHA256E-s1--4d.onnx",
           "a git-annex pointer"),
    SAMPLE("# xet version 0\nfilesize = 12345\nhash = '4d7a'\n", "a Git Xet pointer"),
    SAMPLE("outs:\n- md5: 4d7a\n  size: 1\n  path: model.onnx\n", "a DVC pointer"),
    SAMPLE("../../blobs/4d7a21", "a path"),
    /* Texts. */
    SAMPLE("\n<!DOCTYPE html>\n<html>", "an HTML page"),
    SAMPLE("<HTML><body>404</body>", "an HTML page"),
    SAMPLE("<?xml version=\"1.0\"?>\n<net name=\"a\" version=\"11\">", "a model of OpenVINO"),
    SAMPLE("<net name=\"a\" version=\"11\">", "a model of OpenVINO"),
    SAMPLE("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "an XML text"),
    SAMPLE("{\"detail\": \"Not Found\"}", "JSON"),
    SAMPLE("\xef\xbb\xbf[1]", "JSON"),
    SAMPLE("{\"model_name\": \"onnx.QLinearConv\"}", "JSON, a request to keep"),
    SAMPLE("ir_version: 8\ngraph {\n}\n", "an ONNX file as protobuf's text"),
    SAMPLE("CAgSB3B5dG9yY2g6AAAAAAAA\n",
           "text in base64: decode it, as base64 -d does; a call encodes a file only once"),
    SAMPLE("Entry not found", "text"),
    SAMPLE("b'\\x08\\x07\\x12'", "text"),
    /* Archives. */
    SAMPLE("\x1f\x8b\x08\x08", "a gzip archive"),
    SAMPLE("BZh91AY&SY\1", "a bzip2 archive"),
    SAMPLE("\3757zXZ\0\0", "an xz archive"),
    SAMPLE("\x28\xb5\x2f\xfd\x24", "a Zstandard archive"),
    SAMPLE("\x04\x22\x4d\x18\x64", "an LZ4 archive"),
    SAMPLE("7z\xbc\xaf\x27\x1c\0\4", "a 7-Zip archive"),
    SAMPLE("Rar!\x1a\x07\x01\0", "a RAR archive"),
    SAMPLE("PK\3\4\x14\0\0\0model.onnx\1PK\1\2model.onnx", "a zip archive"),
    SAMPLE("PK\5\6\0\0\0\0", "a zip archive"),
    SAMPLE("PK\3\4\x14\0\0\0resnet/data.pkl\1PK\1\2resnet/data.pkl", "a PyTorch file"),
    SAMPLE("PK\3\4\x14\0\0\0net/data.pkl\1PK\1\2net/constants.pkl", "a TorchScript file"),
    SAMPLE("PK\3\4\x14\0\0\0arr_0.npy\1PK\1\2arr_0.npy", "NumPy arrays"),
    SAMPLE("PK\3\4\x14\0\0\0metadata.json\1PK\1\2model.weights.h5", "a Keras model"),
    SAMPLE("PK\3\4\x14\0\0\0a.mlpackage/\1PK\1\2Data/com.apple.CoreML/model.mlmodel", "a Core ML"),
    /* Other frameworks. */
    SAMPLE("\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
    SAMPLE("\x1c\0\0\0TFL3\x14\0", "a TensorFlow Lite model"),
    SAMPLE("\x20\0\0\0ORTM\0\0", "a model in ONNX Runtime's own format"),
    SAMPLE("\x20\0\0\0ET12\0\0", "an ExecuTorch program"),
    SAMPLE("GGUF\3\0\0\0", "a GGUF file"),
    SAMPLE("lmgg\1\0", "a GGML file"),
    SAMPLE("ftrt\xf0\0", "a TensorRT engine"),
    SAMPLE("ptrt\xf0\0", "a TensorRT engine"),
    SAMPLE("\x93NUMPY\1\0", "a NumPy array"),
    SAMPLE("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M", "a PyTorch file"),
    SAMPLE("\x80\x04\x95\x0b\0\0\0\0\0\0\0}.", "a Python pickle"),
    SAMPLE("\x11\0\0\0\0\0\0\0{\"__metadata__\":{}}", "a file of safetensors"),
    SAMPLE("\x11\0\0\0\0\0\0\1{\"__metadata__\":{}}", NULL),
    /* SavedModel {schema 1, meta_graphs {meta_info_def {tags "serve"}}} */
    SAMPLE("\x08\x01\x12\x09\x0a\x07\x22\x05serve", "a TensorFlow SavedModel"),
    /* GraphDef {node {name "x", op "Placeholder"}, versions {producer 1}} */
    SAMPLE("\x0a\x10\x0a\x01x\x12\x0bPlaceholder\x22\x02\x08\x01", "a TensorFlow graph"),
    /* ProgramDesc {blocks {idx 0, parent_idx 0}} */
    SAMPLE("\x0a\x04\x08\0\x10\0", "a PaddlePaddle program"),
    /* NetParameter {name "net", layer {}} */
    SAMPLE("\x0a\x03net\xa2\x06\0", "a Caffe model"),
    /* Model {specificationVersion 4, description {input {name "x"}}, neuralNetwork {}} */
    SAMPLE("\x08\x04\x12\x05\x0a\x03\x0a\x01x\xa2\x1f\0", "a Core ML model"),
    /* TensorProto {dims 1, data_type 1, name "x", raw_data} */
    SAMPLE("\x08\x01\x10\x01\x42\x01x\x4a\x04\0\0\0\0", "one tensor"),
    /* GraphProto {node {output "y"}, name "g", output {name "y"}} */
    SAMPLE("\x0a\x03\x12\x01y\x12\x01g\x62\x03\x0a\x01y", "an ONNX graph"),
    SAMPLE("ML\xefR\x06", "MLIR"),
    SAMPLE("\177ELF\2", "a program"),
    SAMPLE("%PDF-1.7", "a PDF"),
    /* Unknown files. */
    SAMPLE("\0\0\0\0", NULL),
    SAMPLE("\xde\xad\xbe\xef", NULL),
    SAMPLE("\x3a\xff\xff\x7f", "the beginning of one"),
    SAMPLE("\x08", NULL),
};

/* Copies the bytes to the heap, so that a sanitizer sees reads beyond the end. */
static const char *name_of(const char *bytes, size_t count)
{
    char *copy = malloc(count + (count == 0));
    memcpy(copy, bytes, count);
    const char *name = qd_foreign_name(copy, count);
    free(copy);
    return name;
}

Test(foreign, files_are_recognised)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
        const struct sample *sample = &samples[i];
        const char *name = name_of(sample->text, sample->bytes);
        const char *wanted = sample->name;
        cr_expect((name == NULL) == (wanted == NULL) &&
                      (name == NULL || strncmp(name, wanted, strlen(wanted)) == 0),
                  "%zu: expected %s, got %s", i, wanted, name);
    }
}

Test(foreign, a_tar_archive)
{
    static char bytes[1024] = "model.onnx";
    memcpy(bytes + 257,
           "ustar\0"
           "00",
           8);
    cr_assert_str_eq(name_of(bytes, sizeof(bytes)), "a tar archive: unpack it first");
}

/* The files are cut at every length. */
Test(foreign, parts_of_them_do_no_harm)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++)
        for (size_t count = 0; count < samples[i].bytes; count++)
            name_of(samples[i].text, count);
}

static struct message small_model(const char *producer)
{
    struct message model = {.bytes = NULL};
    put_number(&model, 1, 8);
    put_string(&model, 2, producer);
    struct message graph_proto = {.bytes = NULL};
    put_message(&graph_proto, 1, onnx_node("n", "DequantizeLinear", NAMES("x", "s"), NAMES("y")));
    put_string(&graph_proto, 2, "g");
    put_message(&model, 7, graph_proto);
    struct message import = {.bytes = NULL};
    put_number(&import, 2, 13);
    put_message(&model, 8, import);
    return model;
}

/* Also an ONNX file whose producer's name is at the position of a flatbuffer's kind. */
Test(foreign, an_onnx_file_is_none_of_them)
{
    static const char *const producers[] = {"", "pytorch", "ORTModule", "TFL3", "ET12", "\n"};
    for (size_t i = 0; i < sizeof(producers) / sizeof(*producers); i++) {
        struct message model = small_model(producers[i]);
        cr_assert_null(name_of(model.bytes, model.count), "\"%s\"", producers[i]);
        message_free(&model);
    }
}

/* An ONNX file may also have texts before its graph, and fields of unknown numbers and kinds. */
Test(foreign, nor_is_an_odd_one)
{
    char text[100];
    memset(text, 'a', sizeof(text));
    struct message model = {.bytes = NULL};
    for (size_t i = 0; i < 20; i++)
        put_data(&model, 6, text, sizeof(text)); /* doc_string, "2d" before it */
    struct message rest = small_model("\n");
    put_bytes(&model, rest.bytes, rest.count);
    put_bytes(&model, "\xa2\x1f\0\x99\6abcdefgh\x9d\6abcd", 19); /* fields 500 and 99 */
    cr_assert_null(name_of(model.bytes, model.count));
    cr_assert_not_null(name_of(model.bytes, 1024));
    message_free(&rest);
    message_free(&model);
}

/* No message has a field 0, so a file with zeros behind it is not read on. */
Test(foreign, zeros_are_no_fields)
{
    static const char bytes[] = "\x0a\x02\x0a\0"; /* a TensorFlow graph with one empty node */
    cr_assert_not_null(name_of(bytes, 4));
    cr_assert_null(name_of("\x0a\x02\x0a\0\0\0", 6));
}

/* If the cut is at the end of a field, the part looks like a complete file without a graph. */
Test(foreign, a_part_of_an_onnx_file_is_called_one)
{
    struct message model = small_model("pytorch");
    size_t called = 0;
    for (size_t count = 1; count < model.count; count++) {
        const char *name = name_of(model.bytes, count);
        cr_assert(name == NULL || strncmp(name, "the beginning of one", 20) == 0, "%zu: %s", count,
                  name);
        called += name != NULL;
    }
    cr_assert_geq(called, model.count - 12);
    message_free(&model);
}

/* Returns the file after a transfer as text, on Windows or by ftp, which replaces each LF by
 * CRLF. */
static struct message as_text(const struct message *file)
{
    struct message text = {.bytes = NULL};
    for (size_t i = 0; i < file->count; i++) {
        if (file->bytes[i] == '\n')
            put_bytes(&text, "\r", 1);
        put_bytes(&text, &file->bytes[i], 1);
    }
    return text;
}

Test(foreign, a_transfer_as_text_is_called_so)
{
    static const char *const producers[] = {"", "a\r\n\r\r\n", "a\n\n\n", "\n"};
    for (size_t i = 0; i < sizeof(producers) / sizeof(*producers); i++) {
        struct message model = small_model(producers[i]);
        struct message text = as_text(&model);
        const char *name = name_of(text.bytes, text.count);
        cr_expect_not_null(name);
        cr_expect_not_null(strstr(name == NULL ? "" : name, "each LF became CRLF"), "%zu: %s", i,
                           name);
        message_free(&text);
        message_free(&model);
    }
}

/* No such transfer makes a file that has an LF without a CR before it. */
Test(foreign, other_files_with_crlf_are_not)
{
    struct message model = small_model("a\n\n\n");
    struct message text = as_text(&model);
    put_bytes(&text, "\x28\n", 2); /* model_version 10 */
    const char *name = name_of(text.bytes, text.count);
    cr_expect(name == NULL || strstr(name, "CRLF") == NULL, "%s", name);
    message_free(&text);
    message_free(&model);
}

Test(foreign, refusals_have_the_name)
{
    struct message file = {.bytes = NULL};
    put_bytes(&file, "GGUF\3\0\0\0", 8);
    expect_error(file, "expected an ONNX file, got a GGUF file of llama.cpp");
    file = (struct message){.bytes = NULL};
    put_bytes(&file, "\x08\x01\x12\x09\x0a\x07\x22\x05serve", 13);
    expect_error(file,
                 "expected an ONNX file, got a TensorFlow SavedModel: convert it with tf2onnx");
    file = (struct message){.bytes = NULL};
    put_number(&file, 1, 8);
    expect_error(file, "graph: expected one, got none");
}
