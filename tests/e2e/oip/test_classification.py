"""Triton's classification extension: the greatest elements of an output, with the names of their
classes from files beside the model."""
import os
import struct
import unittest

from loading import POLL, ModelTest, RepositoryTest
from onnx_writer import FLOAT, UINT8, model, node, tensor, value_info
from quantd import Tensor, binary_request, json_request, unless_emulated

LABELS = "cat\ndog\n\nfox\n"


def halves_file(dims=("n", 4), outputs=("y",)):
    """Returns a file whose outputs are all x / 2."""
    scale = tensor("scale", FLOAT, [], (9, struct.pack("<f", 0.5)))
    nodes = [node("DequantizeLinear", ["x", "scale"], [y]) for y in outputs]
    return model(13, nodes, [scale], [value_info("x", UINT8, dims)],
                 [value_info(y, FLOAT, dims) for y in outputs])


def wanted(count, output="y", **parameters):
    return {"name": output, "parameters": dict(classification=count, **parameters)}


class ClassTest(ModelTest):
    """Helpers for requests to a model of halves_file."""

    def classify_as_json(self, x, count, output, name):
        answer = self.server.infer(name, json_request([x], outputs=[wanted(count, output)]))
        self.assertEqual(answer.status, 200, answer.body)
        got, = answer.json()["outputs"]
        self.assertEqual((got["name"], got["datatype"]), (output, "BYTES"))
        return got

    def classify(self, count, shape=(1, 4), data=(2, 9, 9, 4), output="y", name="net"):
        """Returns the shape and the strings of the answer, as JSON and as bytes."""
        x = Tensor.of("x", "UINT8", list(shape), list(data))
        got = self.classify_as_json(x, count, output, name)
        body, headers = binary_request([x], outputs=[wanted(count, output, binary_data=True)])
        raw = b"".join(struct.pack("<I", len(text.encode())) + text.encode()
                       for text in got["data"])
        answer = self.server.infer(name, body, headers=headers)
        self.assertEqual(answer.outputs(), {output: ("BYTES", got["shape"], raw)})
        return got["shape"], got["data"]


class Requests(ClassTest):
    def test_rows(self):
        self.assert_done(self.load_files("net", model_onnx=halves_file()))
        self.assertEqual(self.classify(3), ([1, 3], ["4.500000:1", "4.500000:2", "2.000000:3"]))
        self.assertEqual(self.classify(1, (2, 4), range(8)), ([2, 1], ["1.500000:3", "3.500000:3"]))
        self.assertEqual(self.classify(2**40)[0], [1, 4])
        self.assertEqual(self.classify(2, (0, 4), ()), ([0, 2], []))
        count = 3000
        shape, data = self.classify(2, (count, 4), [3, 1, 2, 0] * count)
        self.assertEqual((shape, data), ([count, 2], ["1.500000:0", "1.000000:2"] * count))

    def test_one_item(self):
        """The model says that there is one item, so there is no batch."""
        self.assert_done(self.load_files("net", model_onnx=halves_file((1, 4))))
        self.assertEqual(self.classify(2), ([2], ["4.500000:1", "4.500000:2"]))

    def test_beside_other_outputs(self):
        self.assert_done(self.load_files("net", model_onnx=halves_file(outputs=("y", "z", "u"))))
        x = Tensor.of("x", "UINT8", [1, 4], [2, 9, 9, 4])
        outputs = [wanted(1, binary_data=True), {"name": "z"}, wanted(2, "u")]
        answer = self.server.infer("net", json_request([x], outputs=outputs))
        raw = struct.pack("<4f", 1, 4.5, 4.5, 2)
        self.assertEqual(answer.outputs(), {
            "y": ("BYTES", [1, 1], b"\x0a\0\0\0004.500000:1"), "z": ("FP32", [1, 4], raw),
            "u": ("BYTES", [1, 2], b"\x0a\0\0\0004.500000:1\x0a\0\0\0004.500000:2")})

    def test_refused(self):
        self.assert_done(self.load_files("net", model_onnx=halves_file()))
        x = Tensor.of("x", "UINT8", [1, 4], [2, 9, 9, 4])
        for count in (0, -1, 1.5, "3", True, [1], {}, 2**53, 2**64):
            answer = self.server.infer("net", json_request([x], outputs=[wanted(count)]))
            self.assert_error(answer, 400, "outputs[0].parameters.classification: expected an "
                                           "integer in [1, 2^53), got ")
        shared = wanted(1, shared_memory_region="r", shared_memory_byte_size=4)
        answer = self.server.infer("net", json_request([x], outputs=[shared]))
        self.assertEqual(answer.status, 400)
        wide = Tensor("x", "UINT8", [1, 3000], bytes(3000))
        self.assert_done(self.load_files("net", model_onnx=halves_file(("n", "m"))))
        answer = self.server.infer("net", json_request([wide], outputs=[wanted(2049)]))
        self.assert_error(answer, 413, 'classification of "y": expected at most 2048 classes')
        flags = Tensor("input", "BOOL", [2], b"\0\1")
        answer = self.server.infer("onnx.Identity",
                                   json_request([flags], outputs=[wanted(1, "output")]))
        self.assert_error(answer, 400, 'classification of "output": expected an output of numbers')

    def test_labels_in_a_call(self):
        files = {"file:1/model.onnx": halves_file(outputs=("y", "z")),
                 "file:1/labels.txt": LABELS.encode(), "file:1/more": b"a\nb"}
        self.assert_done(self.load_named("net", None, files))
        self.assertEqual(self.classify(4)[1], ["4.500000:1:dog", "4.500000:2", "2.000000:3:fox",
                                               "1.000000:0:cat"])
        config = {"output": [{"name": "z", "label_filename": "more"}]}
        self.assert_done(self.load_named("net", config, files))
        self.assertEqual(self.classify(1)[1], ["4.500000:1:dog"])
        self.assertEqual(self.classify(4, output="z")[1], ["4.500000:1:b", "4.500000:2",
                                                           "2.000000:3", "1.000000:0:a"])
        names = [output["label_filename"] for output
                 in self.server.get("/v2/models/net/config").json()["output"]]
        self.assertEqual(names, ["", "more"])
        config["output"][0]["label_filename"] = "none"
        self.assert_error(self.load_named("net", config, files), 400,
                          "file:1/none: expected a file, got none")
        files["file:1/labels.txt"] = b"\xff"
        self.assert_error(self.load_named("net", None, files), 400,
                          "file:1/labels.txt: line 1: expected UTF-8")


class Labels(RepositoryTest, ClassTest):
    """Files beside a model in the repository."""

    def label(self, name="net", output="y"):
        """Asks once, because the model may be loaded again between two requests."""
        x = Tensor.of("x", "UINT8", [1, 4], [2, 9, 9, 4])
        return self.classify_as_json(x, 1, output, name)["data"][0].split(":")[2:]

    def test_places(self):
        for name in ("net/1", "own/1", "flat"):
            self.write(name + "/model.onnx", halves_file())
        self.write("alone.onnx", halves_file())
        self.write("none.onnx", halves_file())
        self.write("labels.txt", "0\nnot of a model")
        self.write("net/labels.txt", LABELS)
        self.write("own/labels.txt", LABELS)
        self.write("own/1/labels.txt", "a\r\nof the version\r\n")
        self.write("flat/labels.txt", "a\nb")
        self.write("alone.labels.txt", "a\n\xe4\u4e16\n")
        self.start()
        for name, labels in (("net", ["dog"]), ("own", ["of the version"]), ("flat", ["b"]),
                             ("alone", ["\xe4\u4e16"]), ("none", [])):
            self.assertEqual(self.label(name), labels)

    def test_named(self):
        self.write("net/1/model.onnx", halves_file(outputs=("y", "z", "u")))
        self.write("net/config.pbtxt", """max_batch_size: 8
            output { name: "z" label_filename: "of_z.txt" }
            output { name: "u" label_filename: "sub/of_u.txt" }""")
        self.write("net/labels.txt", LABELS)
        self.write("net/of_z.txt", "0\nz")
        self.write("net/sub/of_u.txt", "0\nu")
        self.start()
        self.assertEqual([self.label(output=y) for y in "yzu"], [["dog"], ["z"], ["u"]])
        self.write("net/config.json", '{"output": [{"name": "y", "labelFilename": "of_z.txt"}]}')
        self.start()
        self.assertEqual([self.label(output=y) for y in "yz"], [["z"], ["dog"]])

    def test_changes_are_followed(self):
        self.write("net/1/model.onnx", halves_file())
        self.write("alone.onnx", halves_file())
        self.start(*POLL)
        self.assertEqual((self.label(), self.label("alone")), ([], []))
        self.write("net/labels.txt", LABELS)
        self.write("alone.labels.txt", "0\nb")
        self.wait_for(lambda: (self.label(), self.label("alone")) == (["dog"], ["b"]))
        self.write("net/labels.txt", b"\xff\xff")
        self.wait_for(lambda: "line 1: expected UTF-8" in str(self.entries("net")))
        self.assertEqual(self.label(), ["dog"])
        os.unlink(self.folder / "net/labels.txt")
        self.wait_for(lambda: self.label() == [])

    def test_of_one_file(self):
        self.write("net.onnx", halves_file())
        self.write("labels.txt", "0\nof the folder")
        model_file = ("--model", str(self.folder / "net.onnx"))
        self.start(*model_file)
        self.assertEqual(self.label(), ["of the folder"])
        self.write("net.labels.txt", "0\nof the file")
        self.start(*model_file)
        self.assertEqual(self.label(), ["of the file"])

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_refused(self):
        self.write("net/1/model.onnx", halves_file())
        (self.folder.parent / "secret").write_text("a\nb\n")
        for path, data, words in (
                ("labels.txt", b"a\nb\xc3\n", "net/labels.txt: line 2: expected UTF-8"),
                ("labels.txt", b"a" * 513, "net/labels.txt: line 1: expected at most 512 bytes"),
                ("labels.txt", b"a\n" * 2097153, "net/labels.txt: expected at most 4194304 bytes"),
                ("1/labels.txt", b"\n" * 1000001, "net/1/labels.txt: expected at most 1000000"),
                ("1/labels.txt", b"a\x1b", "net/1/labels.txt: line 1: expected no control"),
                ("config.json", b'{"output": [{"name": "y", "label_filename": "none"}]}',
                 "net/none: expected a file, got none"),
                ("config.json", b'{"output": [{"name": "y", "label_filename": "../../secret"}]}',
                 "net/../../secret: expected a file inside the folder"),
                ("config.json", b'{"output": [{"name": "y", "label_filename": "/etc/hostname"}]}',
                 "net//etc/hostname: expected a file inside the folder"),
                ("config.json", b'{"output": [{"name": "y", "label_filename": "1"}]}',
                 "net/1: expected a regular file, got a folder"),
                ("config.json", b'{"output": [{"name": "y", "label_filename": 1}]}',
                 "label_filename: expected the name of a file in the model's folder")):
            self.write("net/" + path, data)
            self.assertIn(words, self.fail_to_start())
            os.unlink(self.folder / "net" / path)
        os.mkfifo(self.folder / "net/labels.txt")
        self.assertIn("net/labels.txt: expected a regular file, got a FIFO", self.fail_to_start())
        os.unlink(self.folder / "net/labels.txt")
        (self.folder / "net/labels.txt").symlink_to("../../secret")
        self.assertIn("net/labels.txt: expected a file inside", self.fail_to_start())
        self.start("--allow-repository-links", "on")
        self.assertEqual(self.label(), ["b"])


if __name__ == "__main__":
    unittest.main()
