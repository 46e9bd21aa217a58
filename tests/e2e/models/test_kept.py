"""Models as people keep them: in one file, without folders of versions, in a cache of links."""
import os
import shutil
import unittest

from loading import POLL, RepositoryTest, conv_file, external_file
from quantd import Server, Tensor, json_request, unless_emulated

WEIGHTS = [1, 2, 1]
EXPLICIT = ("--model-control-mode", "explicit")


class KeptTest(RepositoryTest):
    def start_alone(self, *flags):
        """Starts a server without a repository."""
        self.server = Server(*flags)
        self.addCleanup(self.server.stop)

    def file(self, name):
        return str(self.folder / name)


class OneFile(KeptTest):
    """--model."""

    def test_files_without_a_repository(self):
        self.write("layer.onnx", conv_file(WEIGHTS))
        self.write("b/model.onnx", external_file("data/weights"))
        self.write("b/data/weights", b"\3\2\1")
        self.write("blob", conv_file([4, 1]))
        self.start_alone("--model", self.file("layer.onnx"),
                         "--model=other=%s,third=%s" % (self.file("b/model.onnx"),
                                                        self.file("blob")))
        self.assert_convolves("layer", WEIGHTS, 1)
        self.assert_convolves("other", [3, 2, 1])
        self.assert_convolves("third", [4, 1])
        self.assert_error(self.post("layer", "load"), 503, 'got "none"')

    def test_beside_a_repository(self):
        """A file hides a folder of its name."""
        self.write("models/a/1/model.onnx", conv_file([9, 9]))
        self.write("models/b/1/model.onnx", conv_file([5, 1]))
        self.write("a.onnx", conv_file(WEIGHTS))
        self.start_alone("--model", self.file("a.onnx"), "--model-repository",
                         self.file("models"))
        self.assert_convolves("a", WEIGHTS)
        self.assert_convolves("b", [5, 1])

    def test_calls(self):
        """In mode explicit the file is loaded at the start, and calls unload it and load it
        again."""
        self.write("a.onnx", conv_file(WEIGHTS))
        self.start_alone(*EXPLICIT, "--model", self.file("a.onnx"))
        self.assert_convolves("a", WEIGHTS)
        self.write("a.onnx", conv_file([3, 1]))
        self.assert_convolves("a", WEIGHTS)
        self.assert_done(self.post("a", "load"))
        self.assert_convolves("a", [3, 1])
        self.write("a.onnx", b"x")
        self.assert_error(self.post("a", "load"), 400, "a.onnx: ")
        self.assert_convolves("a", [3, 1])
        self.assert_done(self.post("a", "unload"))
        self.assertEqual(self.ask("a", [1, 2, 3]).status, 404)
        os.unlink(self.file("a.onnx"))
        answer = self.post("a", "load")  # the client does not get the path of --model
        self.assert_error(answer, 400, "a.onnx: cannot be opened: No such file")
        self.assertNotIn(self.folder.name, answer.json()["error"] + str(self.entries("a")))
        self.assert_done(self.load_files("a", "{}", model_onnx=conv_file([2, 2])))
        self.assert_convolves("a", [2, 2])

    def test_changes_are_followed(self):
        """Also those of external data whose name is usual."""
        self.write("a.onnx", external_file("a.onnx.data"))
        self.write("a.onnx.data", bytes(WEIGHTS))
        self.start_alone(*POLL, "--model", self.file("a.onnx"))
        self.assert_convolves("a", WEIGHTS)
        self.write("a.onnx.data", b"\3\2\1")
        self.wait_for(lambda: self.is_convolving("a", [3, 2, 1]))
        self.follow("a.onnx", [4, 1])
        os.unlink(self.file("a.onnx"))
        self.wait_for(lambda: "cannot be opened" in self.entries("a")[0].get("reason", ""))
        self.assert_convolves("a", [4, 1])

    def test_files_that_cannot_be_served(self):
        self.write("a.onnx", conv_file(WEIGHTS))
        self.write("bad.onnx", b"x")
        os.mkfifo(self.file("fifo.onnx"))
        a = self.file("a.onnx")
        for value, words in (
                (self.file("none.onnx"), "--model: %s: cannot be opened" % self.file("none.onnx")),
                (self.file("no/a.onnx"), "cannot be opened: No such file"),
                (self.file("bad.onnx"), "--model: %s: expected an ONNX" % self.file("bad.onnx")),
                ("x=" + str(self.folder), "%s: expected a regular file, got a folder; "
                                          "--model-repository serves" % self.folder),
                (self.file("fifo.onnx"), "%s: expected a regular file, got a FIFO"
                                         % self.file("fifo.onnx")),
                ("/" * 5000 + "a.onnx", "File name too long")):
            # The log, which has all lines here, does not say the same again.
            line = self.fail_to_start("--log-level", "warn", "--model", value, repository=False)
            self.assertIn("--model: ", line)
            self.assertIn(words, line)

    def test_wrong_values(self):
        self.write("a.onnx", conv_file(WEIGHTS))
        a = self.file("a.onnx")
        for value, words in (
                (a + "," + a, "expected each name once, got \"a\" twice"),
                ("stats=" + a, "expected another than \"stats\""),
                ("onnx.a=" + a, "does not begin as those of the operators"),
                ("=" + a, "the model's name"),
                ("x=", "expected FILE or NAME=FILE"),
                (str(self.folder) + "/", "expected FILE or NAME=FILE"),
                ("n" * 129 + "=" + a, 'got "%s..."' % ("n" * 57)),
                (self.file("m" * 140 + ".onnx"), 'got "%s..."' % ("m" * 57)),
                (",".join("m%d=%s" % (i, a) for i in range(257)), "expected at most 256 files")):
            line = self.fail_to_start("--model", value, repository=False, status=2)
            self.assertIn("--model: ", line)
            self.assertIn(words, line)

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_a_cache_of_links(self):
        """The file itself may be a link, because the command line names it. Links to external data
        need the flag."""
        self.write("blobs/1", external_file("model.onnx_data"))
        self.write("blobs/2", bytes(WEIGHTS))
        snapshot = self.folder / "snapshots/main"
        snapshot.mkdir(parents=True)
        (snapshot / "model.onnx").symlink_to("../../blobs/1")
        (snapshot / "model.onnx_data").symlink_to("../../blobs/2")
        model = "net=" + str(snapshot / "model.onnx")
        self.assertIn("--allow-repository-links on",
                      self.fail_to_start("--model", model, repository=False))
        self.start_alone("--model", model, "--allow-repository-links", "on")
        self.assert_convolves("net", WEIGHTS)


class WithoutVersions(KeptTest):
    """NAME/model.onnx and NAME.onnx in a repository."""

    def test_both_forms(self):
        self.write("a/model.onnx", external_file("weights"))
        self.write("a/weights", bytes(WEIGHTS))
        self.write("b.onnx", external_file("b.onnx.data"))
        self.write("b.onnx.data", b"\3\2\1")
        self.write("c/quantized.onnx", conv_file([5, 1]))
        self.write("c/config.json", '{"default_model_filename": "quantized.onnx"}')
        self.write("README.md", "x")
        self.write("onnx.mine.onnx", b"x")
        self.start()
        self.assert_convolves("a", WEIGHTS, 1)
        self.assert_convolves("b", [3, 2, 1], 1)
        self.assert_convolves("c", [5, 1])
        self.server.wait_for_log('got \\"onnx.mine\\""\n')

    def test_what_is_meant_if_there_are_two(self):
        """Versions come before a file beside them, and a folder before a file of its name."""
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.write("a/model.onnx", b"x")
        self.write("b/1/model.onnx", conv_file([3, 1]))
        self.write("b.onnx", b"x")
        self.start()
        self.assert_convolves("a", WEIGHTS)
        self.assert_convolves("b", [3, 1])
        self.server.wait_for_log('a model beside folders of versions is ignored" model="a"')
        self.server.wait_for_log('because a folder has its name" model="b" file="b.onnx"')

    def test_what_is_no_file(self):
        os.mkfifo(self.file("d.onnx"))
        self.start("--model-control-mode", "explicit")
        self.assert_error(self.post("d", "load"), 400,
                          "d.onnx: expected a regular file, got a FIFO")

    def test_what_is_refused(self):
        for path, words in (
                ("bad/model.onnx", "bad/model.onnx: "),
                ("bad/other.onnx", "bad: expected model.onnx or request.json, got \"other.onnx\"; "
                                   "the configuration's default_model_filename can name"),
                ("bad.onnx", "bad.onnx: "),
                ("1/model.onnx", "1: expected a model's folder, got a version's; "
                                 "if --model-repository is the folder of one model, give its "
                                 "parent folder; --no-exit-on-error ")):
            self.write(path, b"x")
            self.assertIn(words, self.fail_to_start())
            shutil.rmtree(self.folder)
            self.folder.mkdir()

    def test_changes_are_followed(self):
        self.write("a.onnx", conv_file(WEIGHTS))
        self.write("b/model.onnx", conv_file(WEIGHTS))
        self.start(*POLL)
        self.follow("a.onnx", [3, 1])
        self.follow("b/model.onnx", [4, 1])
        self.follow("b/2/model.onnx", [5, 1])
        os.unlink(self.folder / "a.onnx")
        self.wait_for(lambda: self.entries("a") == [])

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_links(self):
        outside = self.folder.parent / "outside"
        outside.mkdir()
        (outside / "blob").write_bytes(conv_file(WEIGHTS))
        (self.folder / "a.onnx").symlink_to("../outside/blob")
        self.assertIn("a.onnx: expected a file inside the folder where it is looked for",
                      self.fail_to_start())
        (self.folder / "b").mkdir()
        (self.folder / "b/model.onnx").symlink_to("../../outside/blob")
        (self.folder / "c.onnx").symlink_to("missing")
        self.start("--allow-repository-links", "on", "--exit-on-error", "off")
        self.assert_convolves("a", WEIGHTS)
        self.assert_convolves("b", WEIGHTS)
        self.assertIn("c.onnx: expected a file, got a link to nothing", str(self.entries("c")))


class Pbtxt(KeptTest):
    """config.pbtxt, as Triton's repositories have it."""

    TEXT = """
        name: "layer"  # the folder's name
        platform: "onnxruntime_onnx"
        max_batch_size: 2
        default_model_filename: "quantized.onnx"
        input [ { name: "x" data_type: TYPE_UINT8 dims: [ 1, -1 ] } ]
        output { name: 'y', data_type: TYPE_UINT8, dims: 1, dims: -1 }
        version_policy: { specific: { versions: [ 1 ] } }
        instance_group [ { count: 2 kind: KIND_GPU } ]
        dynamic_batching { max_queue_delay_microseconds: 100 }
        parameters { key: "a" value { string_value: "1" } }
        parameters { key: "b" value { string_value: "2" } }
        """

    def test_what_has_an_effect(self):
        self.write("layer/config.pbtxt", self.TEXT)
        self.write("layer/1/quantized.onnx", conv_file(WEIGHTS))
        self.write("layer/2/quantized.onnx", conv_file([9, 9]))
        self.start()
        self.assert_convolves("layer", WEIGHTS, 1)
        batch = Tensor.of("x", "UINT8", [3, 1, 4], list(range(12)))
        self.assert_error(self.server.infer("layer", json_request([batch])), 400, "2")
        config = self.server.request("GET", "/v2/models/layer/config").json()
        self.assertEqual((config["max_batch_size"], config["default_model_filename"]),
                         (2, "quantized.onnx"))
        self.server.wait_for_log('config.pbtxt: these keys have no effect" model="layer" '
                                 'keys="name, platform, instance_group, dynamic_batching, '
                                 'parameters"')

    def test_what_is_refused(self):
        self.write("layer/1/model.onnx", conv_file(WEIGHTS))
        for text, words in (
                ('max_batch_size: "a"', "layer/config.pbtxt: max_batch_size: expected an integer"),
                ("max_batch_size: 010", "line 1: expected a name, a string or a decimal number"),
                ("a: 1\nb", "config.pbtxt: line 2: expected ':' or '{' after the name"),
                ('input { name: "z" }', "expected the name of one of the model's, got \"z\""),
                ('input { name: "x" data_type: TYPE_FP32 }', "expected TYPE_UINT8, as the model"),
                ('input { name: "x" dims: [ 4, 1, -1 ] } output { name: "y" dims: [ 1 ] }',
                 "output \"y\": expected 3 dimensions"),
                ('max_batch_size: 4 input { name: "x" dims: [ 3, 1, -1 ] }',
                 "input \"x\": expected 2 dimensions after the batch's"),
                ('input { name: "x" dims: [ -1, 7, -1 ] }', "dims[1]: expected 1, as the model"),
                ('input { name: "x" reshape: { shape: [ 1 ] } }', "input[0].reshape: expected no"),
                ("max_batch_size: 1 max_batch_size: 2", "expected once, got twice")):
            self.write("layer/config.pbtxt", text)
            self.assertIn(words, self.fail_to_start())


if __name__ == "__main__":
    unittest.main()
