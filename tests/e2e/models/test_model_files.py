"""Model files as users have them: other names, files of other formats, base64 as other programs
write it, and trees of links."""
import base64
import json
import os
import unittest

from loading import ModelTest, RepositoryTest, conv_file, external_file, kept_request

WEIGHTS = [1, 2, 1]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


class NamesInCalls(ModelTest):
    """default_model_filename for the files of a call."""

    def load(self, config, *names):
        files = {"file:1/" + name: conv_file(WEIGHTS) for name in names}
        return self.load_named("layer", config, files)

    def test_another_name(self):
        for key in ("default_model_filename", "defaultModelFilename"):
            config = {key: "model_quantized.onnx"}
            self.assert_done(self.load(config, "model_quantized.onnx"))
            self.assert_convolves("layer", WEIGHTS)
        self.assert_shown("layer", "model_quantized.onnx")
        other = {"file:1/a b.bin": conv_file([2, 1]), "file:1/model.onnx": conv_file(WEIGHTS),
                 "file:2/a b.bin": conv_file([3, 1]), "file:1/request.json": b"{}"}
        self.assert_done(self.load_named("layer", {"default_model_filename": "a b.bin"}, other))
        self.assert_convolves("layer", [3, 1])
        config = self.assert_shown("layer/versions/2", "a b.bin")
        self.assert_done(self.load_named("layer", config, other))
        self.assert_convolves("layer", [3, 1])

    def assert_shown(self, path, name):
        """Checks that the configuration has the name, and returns the configuration."""
        config = self.server.get("/v2/models/%s/config" % path).json()
        self.assertEqual(config["default_model_filename"], name)
        return config

    def test_a_kept_request(self):
        files = {"file:1/request.json": json.dumps(kept_request(WEIGHTS)).encode(),
                 "file:1/model.onnx": conv_file([1, 1])}
        self.assert_done(self.load_named("layer", {"default_model_filename": "request.json"},
                                         files))
        self.assert_convolves("layer", WEIGHTS)
        self.assert_shown("layer", "request.json")

    def test_a_wrong_name_names_what_came(self):
        config = {"default_model_filename": "model_int8.onnx"}
        self.assert_error(self.load(config, "model.onnx", "x.onnx"), 400,
                          'expected "model_int8.onnx" (default_model_filename), got "model.onnx", '
                          '"x.onnx"')
        self.assert_error(self.load(config, "model.bin"), 400, 'got "model.bin"')
        self.assert_error(self.load({}, "model_int8.onnx"), 400,
                          "expected model.onnx or request.json", 'got "model_int8.onnx"',
                          "default_model_filename")
        many = ["a%02d%s.onnx" % (i, "x" * 40) for i in range(40)]
        self.assert_error(self.load({}, *many), 400, '"a00', "...; ", "default_model_filename")

    def test_names_that_are_no_files_of_the_version(self):
        for name in ("../model.onnx", "a/b.onnx", "/etc/passwd", "..", ".", "x" * 256, 1, ["a"]):
            answer = self.load({"default_model_filename": name}, "model.onnx")
            self.assert_error(answer, 400, "default_model_filename: expected the name of a file")
        for name in ("", None):
            self.assert_done(self.load({"default_model_filename": name}, "model.onnx"))
            config = self.server.get("/v2/models/layer/config").json()
            self.assertNotIn("default_model_filename", config)


class NamesInFolders(RepositoryTest):
    def test_another_name(self):
        self.write("layer/config.json", '{"default_model_filename": "model_quantized.onnx"}')
        self.write("layer/1/model_quantized.onnx", conv_file(WEIGHTS))
        self.write("layer/1/model.onnx", b"x")
        self.write("layer/1/config.json", b"{}")
        self.start()
        self.assert_convolves("layer", WEIGHTS)

    def test_a_wrong_name_names_what_is_there(self):
        self.write("layer/1/model_int8.onnx", conv_file(WEIGHTS))
        self.write("layer/1/tokenizer.json", b"{}")
        line = self.fail_to_start()
        self.assertIn('layer/1: expected model.onnx or request.json, got "model_int8.onnx"', line)
        self.assertIn("default_model_filename", line)
        self.write("layer/config.json", '{"default_model_filename": "model_int4.onnx"}')
        self.assertIn('layer/1: expected "model_int4.onnx" (default_model_filename), '
                      'got "model_int8.onnx"', self.fail_to_start())
        os.remove(self.folder / "layer/1/model_int8.onnx")
        self.assertIn('got "tokenizer.json"', self.fail_to_start())
        os.remove(self.folder / "layer/1/tokenizer.json")
        self.assertIn("got nothing", self.fail_to_start())

    def test_a_folder_of_that_name(self):
        self.write("layer/config.json", '{"default_model_filename": "a.onnx"}')
        (self.folder / "layer/1/a.onnx").mkdir(parents=True)
        self.assertIn("layer/1/a.onnx: expected a regular file, got a folder", self.fail_to_start())

    def test_a_change_of_the_name_is_followed(self):
        self.write("layer/1/a.onnx", conv_file(WEIGHTS))
        self.write("layer/1/b.onnx", conv_file([2, 1]))
        self.write("layer/config.json", '{"default_model_filename": "a.onnx"}')
        self.start("--model-control-mode", "poll", "--repository-poll-secs", "1")
        self.assert_convolves("layer", WEIGHTS)
        self.write("layer/config.json", '{"default_model_filename": "b.onnx"}')
        self.wait_for(lambda: self.ask("layer", [1, 0, 0]).json()["outputs"][0]["shape"][2] == 2)
        self.assert_convolves("layer", [2, 1])


class InItsPlace(RepositoryTest):
    """The error names the format of a file that is no ONNX file; test_foreign.c tests all of
    them."""

    THINGS = ((LFS, "a Git LFS pointer"), (b"<!DOCTYPE html><html>", "an HTML page"),
              (b"PK\x03\x04" + bytes(26) + b"data.pkl", "a PyTorch file"),
              (b"\x89HDF\r\n\x1a\n", "an HDF5 file"), (b"", "an empty file"),
              (conv_file(WEIGHTS)[:-1], "the beginning of one"),
              (conv_file(WEIGHTS).replace(b"\n", b"\r\n"), "one that was transferred as text"))

    def test_in_calls_and_folders(self):
        self.start("--model-control-mode", "explicit")
        for data, name in self.THINGS:
            wanted = "layer/1/model.onnx: expected an ONNX file, got " + name
            self.assert_error(self.load_files("layer", model_onnx=data), 400, wanted)
            self.write("layer/1/model.onnx", data)
            self.assert_error(self.post("layer", "load"), 400, wanted)
        self.assert_done(self.load_files("layer", model_onnx=conv_file(WEIGHTS)))

    def test_requests_and_external_data(self):
        self.start("--model-control-mode", "explicit")
        self.write("layer/1/request.json", LFS)
        self.assert_error(self.post("layer", "load"), 400, "layer/1/request.json: expected a "
                          "request in JSON, got a Git LFS pointer")
        self.write("weights/1/model.onnx", external_file("weights.bin", 1000))
        self.write("weights/1/weights.bin", LFS)
        self.assert_error(self.post("weights", "load"), 400, "weights.bin",
                          "the file has %d, and is a Git LFS pointer" % len(LFS))


class Links(RepositoryTest):
    """A cache of models is a tree of links, like that of Hugging Face: its snapshots are links to
    blobs, and the repository has links to snapshots."""

    ALLOW = ("--allow-repository-links", "on")

    def cache(self, path, blob, data):
        """Writes a file into the cache, which lies beside the repository, and replaces its link in
        one step. Returns the link."""
        blobs = self.folder.parent / "cache" / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        (blobs / blob).write_bytes(data)
        link = self.folder.parent / "cache" / "snapshots" / path
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name(".new")
        new.symlink_to(os.path.relpath(blobs / blob, link.parent))
        new.rename(link)
        return link

    def link(self, path, target):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def test_they_are_refused_without_the_flag(self):
        self.link("layer/1/model.onnx", self.cache("a1/model.onnx", "4d7a", conv_file(WEIGHTS)))
        line = self.fail_to_start()
        self.assertIn("layer/1/model.onnx: expected a file inside the folder", line)
        self.assertIn("--allow-repository-links on", line)
        os.remove(self.folder / "layer/1/model.onnx")
        os.rmdir(self.folder / "layer/1")
        self.link("layer/1", self.folder.parent / "cache" / "snapshots" / "a1")
        self.assertIn("--allow-repository-links on", self.fail_to_start())

    def test_files_versions_and_models(self):
        snapshot = self.cache("a1/model.onnx", "4d7a", conv_file(WEIGHTS))
        self.link("file/1/model.onnx", snapshot)
        self.link("version/7", snapshot.parent)
        self.write("../elsewhere/1/model.onnx", conv_file([2, 1]))
        self.link("model", self.folder.parent / "elsewhere")
        self.cache("b2/model.onnx", "0001", external_file("weights.bin", 1))
        self.cache("b2/weights.bin", "0002", bytes([9, 1, 1, 1]))
        self.link("external/1", self.folder.parent / "cache" / "snapshots" / "b2")
        self.start(*self.ALLOW)
        self.assert_convolves("file", WEIGHTS)
        self.assert_convolves("version", WEIGHTS, 7)
        self.assert_convolves("model", [2, 1])
        self.assert_convolves("external", [1, 1, 1])

    def test_what_is_refused_all_the_same(self):
        self.start("--model-control-mode", "explicit", *self.ALLOW)
        path = self.folder / "layer/1/model.onnx"
        path.parent.mkdir(parents=True)
        os.mkfifo(self.folder.parent / "fifo")
        (self.folder.parent / "large").touch()
        os.truncate(self.folder.parent / "large", 1 << 42)
        for target, words in (("/dev/zero", "expected a regular file, got a device"),
                              (self.folder.parent / "fifo", "expected a regular file, got a FIFO"),
                              (self.folder, "expected a regular file, got a folder"),
                              ("model.onnx", "got a loop of links"),
                              ("/proc/self/fd/0", "layer/1/model.onnx"),
                              (self.folder.parent / "large", "--max-model-bytes"),
                              ("/nonexistent", "got a link to nothing")):
            path.symlink_to(target)
            self.assert_error(self.post("layer", "load"), 413 if "max" in words else 400, words)
            path.unlink()
        (self.folder / "layer/1/a").mkdir()
        for location in ("../../secret", "/etc/passwd", "a/../../b"):
            self.write("layer/1/model.onnx", external_file(location))
            self.assert_error(self.post("layer", "load"), 400, "the path or a link leaves it")

    def test_a_change_of_the_target_is_followed(self):
        self.link("layer/1/model.onnx", self.cache("a1/model.onnx", "4d7a", conv_file(WEIGHTS)))
        self.start("--model-control-mode", "poll", "--repository-poll-secs", "1", *self.ALLOW)
        self.assert_convolves("layer", WEIGHTS)
        self.cache("a1/model.onnx", "5e8b", conv_file([2, 1]))  # replaces the snapshot's link
        self.wait_for(lambda: self.ask("layer", [1, 0, 0]).json()["outputs"][0]["shape"][2] == 2)
        self.write("../cache/blobs/5e8b", conv_file([1, 2, 3]))  # replaces the blob itself
        self.wait_for(lambda: self.ask("layer", [1, 0, 0]).json()["outputs"][0]["shape"][2] == 1)
        self.assert_convolves("layer", [1, 2, 3])


class Base64(ModelTest):
    """The server accepts everything that libb64 reads, as Triton's does."""

    def load_text(self, text):
        return self.post("layer", "load", {"parameters": {"file:1/model.onnx": text}})

    def test_as_other_programs_write_it(self):
        weights = [1, 2, 3, 4, 5] * 40  # more than two lines of MIME
        for more in range(3):  # with all lengths of padding
            data = conv_file(weights[:200 - more])
            mime = base64.encodebytes(data).decode()  # as Python's email and openssl do
            plain = base64.b64encode(data).decode()
            wide = "\r\n".join(plain[i:i + 65] for i in range(0, len(plain), 65))
            for text in (mime, mime.replace("\n", "\r\n"), plain.rstrip("="), wide,
                         " " + plain + " ", base64.urlsafe_b64encode(data).decode(),
                         base64.urlsafe_b64encode(data).decode().rstrip("=")):
                self.assert_done(self.load_text(text))
                self.assert_convolves_long(weights[:200 - more])

    def assert_convolves_long(self, weights):
        answer = self.ask("layer", [1] + [0] * 199)
        self.assertEqual(answer.json()["outputs"][0]["data"][0], weights[0])
        self.assertEqual(answer.json()["outputs"][0]["shape"][2], 201 - len(weights))

    def test_garbage(self):
        text = base64.b64encode(conv_file(WEIGHTS)).decode()
        for wrong, words in ((text[:40] + "*" + text[40:], "character 40: expected a letter"),
                             (text[:41], "character 41"), (text + "AAAA", "expected the end"),
                             ("data:application/octet-stream;base64," + text, "character 4")):
            if "=" in text or "end" not in words:
                self.assert_error(self.load_text(wrong), 400, "file:1/model.onnx", words)


if __name__ == "__main__":
    unittest.main()
