"""Triton's extensions as clients use them beyond the protocol: raw binary requests, unknown
parameters, and names as long as converters make them."""
import gzip
import json
import struct
import unittest
import zlib

from loading import ModelTest, conv_file, kept_request
from onnx_writer import FLOAT, UINT8, model, node, tensor, value_info
from quantd import LENGTH, Tensor, binary_request, infer_path, json_request
from samples import CONV, DEQUANTIZE, QUANTIZE

RAW = {LENGTH: "0", "Content-Type": "application/octet-stream"}


def scale_of(value):
    return tensor("scale", FLOAT, [], (9, struct.pack("<f", value)))


def dequantize_file(dims=(3,), outputs=("y",), x="x"):
    """Returns a file whose outputs are all x / 2."""
    nodes = [node("DequantizeLinear", [x, "scale"], [y]) for y in outputs]
    return model(13, nodes, [scale_of(0.5)], [value_info(x, UINT8, dims)],
                 [value_info(y, FLOAT, dims) for y in outputs])


def two_inputs_file():
    nodes = [node("DequantizeLinear", [x, "scale"], ["y" + x]) for x in ("a", "b")]
    return model(13, nodes, [scale_of(0.5)], [value_info(x, UINT8, [3]) for x in ("a", "b")],
                 [value_info(y, FLOAT, [3]) for y in ("ya", "yb")])


class RawRequests(ModelTest):
    """The body is the only input; Inference-Header-Content-Length is 0."""

    def load(self, data, config=None):
        self.assert_done(self.load_files("raw", config, model_onnx=data))

    def ask_raw(self, body, **headers):
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.request("POST", infer_path("raw"), body, RAW | more)

    def assert_halves(self, answer, body, shape, outputs=("y",)):
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/octet-stream")
        raw = struct.pack("<%df" % len(body), *[byte / 2 for byte in body])
        self.assertEqual(answer.outputs(), {name: ("FP32", shape, raw) for name in outputs})

    def test_a_fixed_shape(self):
        self.load(dequantize_file())
        answer = self.ask_raw(b"\1\2\3")
        self.assert_halves(answer, b"\1\2\3", [3])
        tree = answer.tree()
        self.assertNotIn("id", tree)
        self.assertEqual((tree["model_name"], tree["model_version"]), ("raw", "1"))
        answer = self.server.request("POST", infer_path("raw", 1), b"\1\2\3", {LENGTH: "0"})
        self.assert_halves(answer, b"\1\2\3", [3])

    def test_all_outputs_come_as_bytes(self):
        self.load(dequantize_file(outputs=("y", "z")))
        self.assert_halves(self.ask_raw(b"\1\2\3"), b"\1\2\3", [3], ("y", "z"))

    def test_wrong_sizes(self):
        self.load(dequantize_file())
        for body in (b"", b"\1", b"\1\2\3\4", b'{"inputs":[]}'):
            self.assert_error(self.ask_raw(body), 400, "the body: expected 3 bytes", '"x"', "[3]",
                              "got %d" % len(body))

    def test_a_free_size_follows_from_the_bytes(self):
        self.load(dequantize_file(dims=("n", 2)))
        for count in (1, 500000):
            body = bytes(range(1, 101)) * (count // 50) + b"\1\2" * (count % 50)
            self.assert_halves(self.ask_raw(body), body, [len(body) // 2, 2])
        self.assert_error(self.ask_raw(b""), 400, '"x", UINT8 [-1,2], got an empty body')
        self.assert_error(self.ask_raw(b"\1\2\3"), 400, "a multiple of 2 bytes", "got 3")

    def test_a_batch(self):
        self.load(dequantize_file(dims=("n", 3)), {"max_batch_size": 2})
        self.assert_halves(self.ask_raw(b"\1\2\3"), b"\1\2\3", [1, 3])
        self.assert_halves(self.ask_raw(b"\1\2\3\4\5\6"), b"\1\2\3\4\5\6", [2, 3])
        self.assert_error(self.ask_raw(bytes(9)), 400, "at most 2 (max_batch_size)")

    def test_two_free_sizes(self):
        self.load(dequantize_file(dims=("n", "m")))
        self.assert_error(self.ask_raw(b"\1\2"), 400, "one free size at most", "[-1,-1]")
        self.load(dequantize_file(dims=("n", "m")), {"max_batch_size": 4})
        self.assert_halves(self.ask_raw(b"\1\2"), b"\1\2", [1, 2])  # as in Triton

    def test_compressed(self):
        self.load(dequantize_file(dims=("n",)))
        body = bytes(range(256)) * 20
        for coding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            answer = self.ask_raw(compress(body), Content_Encoding=coding)
            self.assert_halves(answer, body, [len(body)])
        self.load(dequantize_file())
        answer = self.ask_raw(gzip.compress(bytes(5)), Content_Encoding="gzip")
        self.assert_error(answer, 400, "expected 3 bytes", "got 5")
        answer = self.ask_raw(gzip.compress(b""), Content_Encoding="gzip")
        self.assert_error(answer, 400, "expected 3 bytes", "got 0")

    def test_chunked(self):
        self.load(dequantize_file())
        client = self.server.client()
        client.request("POST", infer_path("raw"), iter([b"\1", b"\2\3"]), RAW, encode_chunked=True)
        response = client.getresponse()
        self.assertEqual(response.status, 200)
        self.assertEqual(response.read()[-12:], struct.pack("<3f", .5, 1, 1.5))
        client.close()

    def test_models_that_do_not_take_it(self):
        self.load(two_inputs_file())
        self.assert_error(self.ask_raw(b"\1\2\3"), 400, "raw binary request", "with 2 inputs")
        for name in (DEQUANTIZE, QUANTIZE, CONV):
            answer = self.server.infer(name, b"\1\2\3", headers=RAW)
            self.assert_error(answer, 400, LENGTH, "raw binary request", name)

    def test_a_tensor_without_the_header(self):
        self.load(dequantize_file())
        for body in (b"\0\1\2", b"\xff\1\2"):
            answer = self.server.request("POST", infer_path("raw"), body,
                                         {"Content-Type": "application/octet-stream"})
            self.assert_error(answer, 400, "malformed JSON at byte 0", LENGTH + ": 0")

    def test_a_request_that_is_kept(self):
        """x has no shape, but the convolution expects three dimensions."""
        self.assert_done(self.post("raw", "load", kept_request([1, 2, 1])))
        self.assertEqual(self.server.get("/v2/models/raw").json()["inputs"][0]["shape"], [-1])
        self.assert_error(self.ask_raw(bytes(8)), 400, "x: ", "rank 3", "got 1")
        declared = {"name": "x", "datatype": "UINT8", "shape": [1, 1, -1]}
        self.assert_done(self.post("raw", "load", kept_request([1, 2, 1], declared)))
        answer = self.ask_raw(bytes([1, 2, 3]))
        self.assertEqual(answer.outputs(), {"y": ("UINT8", [1, 1, 1], b"\x08")})


class CustomParameters(ModelTest):
    def test_a_loaded_model_ignores_them(self):
        self.assert_done(self.load_files("custom", model_onnx=conv_file([1, 1])))
        row = Tensor.of("x", "UINT8", [1, 1, 3], [1, 2, 3])
        for value in (42, -1, 1.5, 1e300, "text", "", True, False, None, 2**70):
            answer = self.server.infer("custom", json_request([row], {"my_parameter": value}))
            self.assertEqual(answer.status, 200, answer.body)
        body, headers = binary_request([row], {"my_parameter": 1, "axis": 7, "other": "b"})
        answer = self.server.infer("custom", body, headers=headers)
        self.assertEqual(answer.outputs(), {"y": ("UINT8", [1, 1, 2], b"\3\5")})

    def test_of_inputs_and_outputs(self):
        self.assert_done(self.load_files("custom", model_onnx=conv_file([1, 1])))
        row = Tensor.of("x", "UINT8", [1, 1, 3], [1, 2, 3]).as_json()
        request = {"inputs": [dict(row, parameters={"mine": 1, "content_type": "np"})],
                   "outputs": [{"name": "y", "parameters": {"mine": {"deep": [1]}}}]}
        self.assertEqual(self.server.infer("custom", request).status, 200)

    def test_refused(self):
        self.assert_done(self.load_files("custom", model_onnx=conv_file([1, 1])))
        row = Tensor.of("x", "UINT8", [1, 1, 3], [1, 2, 3])
        for key, value, words in (
                ("mine", [1], ("parameters.mine", "got an array")),
                ("mine", {"a": 1}, ("parameters.mine", "got an object")),
                ("triton_final", True, ("triton_", "reserved")),
                ("timeout", -1, ("parameters.timeout",)),
                ("priority", "high", ("parameters.priority",)),
                ("binary_data_output", 1, ("parameters.binary_data_output",)),
                ("x.datatype", "INT8", ("parameters.x.datatype",)),
                ("x.strides", "0,1", ("parameters.x.strides",))):
            answer = self.server.infer("custom", json_request([row], {key: value}))
            self.assert_error(answer, 400, *words)

    def test_an_operator_has_attributes(self):
        tensors = [Tensor.of("x", "UINT8", [1], [1]), Tensor.of("x_scale", "FP32", [], [1])]
        answer = self.server.infer(DEQUANTIZE, json_request(tensors, {"my_parameter": 1}))
        self.assert_error(answer, 400, 'got "my_parameter"', "axis")


class LongNames(ModelTest):
    """Converters join the names of the layers that they fuse."""

    LONGEST = 4096

    def names(self, count, length):
        """Returns `count` names of `length` bytes that differ only at the end."""
        return [("Model/Block_ä\"\\/" + "x" * length)[:length - 4] + "%03d" % i
                for i in range(count)]

    def test_they_work_everywhere(self):
        x, = self.names(1, self.LONGEST - 1)
        outputs = [name + "yz" for name in self.names(2, 2000)]
        self.assert_done(self.load_files("long", model_onnx=dequantize_file((2,), outputs, x)))
        metadata = self.server.get("/v2/models/long").json()
        self.assertEqual([metadata["inputs"][0]["name"]], [x])
        self.assertEqual([output["name"] for output in metadata["outputs"]], outputs)
        self.assertIn(x + ".types", metadata["properties"])
        config = self.server.get("/v2/models/long/config").json()
        self.assertEqual(config["input"][0]["name"], x)
        row = Tensor.of(x, "UINT8", [2], [1, 2])
        halves = ("FP32", [2], struct.pack("<2f", .5, 1))
        answer = self.server.infer("long", json_request([row]))
        self.assertEqual(answer.outputs(), {name: halves for name in outputs})
        body, headers = binary_request([row])
        answer = self.server.infer("long", body, headers=headers)
        self.assertEqual(answer.outputs(), {name: halves for name in outputs})
        answer = self.server.infer("long", json_request([row], outputs=[{"name": outputs[1]}]))
        self.assertEqual(answer.outputs(), {outputs[1]: halves})
        carried = json_request([row], {x + ".datatype": "UINT8", x + ".shape": "2"})
        self.assertEqual(self.server.infer("long", carried).status, 200)
        narrowed = {"input": [{"name": x, "dims": [2]}]}
        self.assert_done(self.load_files("long", narrowed,
                                         model_onnx=dequantize_file((2,), outputs, x)))

    def test_refusals_are_whole(self):
        """The error cuts off the name, but has all of the expected and the actual value."""
        x, = self.names(1, 3000)
        self.assert_done(self.load_files("long", model_onnx=dequantize_file((2,), ["y"], x)))
        good = Tensor.of(x, "UINT8", [2], [1, 2])
        for request, words in (
                (json_request([Tensor.of(x, "UINT8", [3], [1, 2, 3])]), ("[2]", "got [3]")),
                (json_request([Tensor.of(x, "INT8", [2], [1, 2])]),
                 ("expected UINT8", 'got "INT8"')),
                (json_request([Tensor.of(x + "x", "UINT8", [2], [1, 2])]), ("expected an input",)),
                (json_request([good, good]), ("expected each input once, got ",)),
                (json_request([good], {x + ".datatype": "INT8"}),
                 ("expected UINT8", 'got "INT8"')),
                (json_request([good], {x + ".datatype": "UINT8"}), ("got none",)),
                (json_request([good], outputs=[{"name": x}]), ('expected "y", got "Model',)),
                ({"inputs": []}, ("got none",))):
            self.assert_error(self.server.infer("long", request), 400, *words)

    def test_bounds(self):
        for length, words in ((self.LONGEST + 1, "expected at most 4096 bytes in a name, got 4097"),
                              (0, "name")):
            x = "x" * length
            answer = self.load_files("long", model_onnx=dequantize_file((2,), ["y"], x))
            self.assert_error(answer, 400, words)
        outputs = self.names(18, 4000)
        answer = self.load_files("long", model_onnx=dequantize_file((2,), outputs))
        self.assert_error(answer, 400, "expected at most 65536 bytes together, got 72001")
        most = self.names(31, 2114)  # 65,535 bytes together with "x"
        self.assert_done(self.load_files("long", model_onnx=dequantize_file((2,), most)))
        wanted = [{"name": name} for name in most]
        row = Tensor.of("x", "UINT8", [2], [1, 2])
        answer = self.server.infer("long", json_request([row], outputs=wanted))
        self.assertEqual(len(answer.outputs()), 31)
        self.assertEqual(json.loads(answer.body)["outputs"][30]["name"], most[30])


class Listed(ModelTest):
    """GET /v2 lists an extension only if its calls work."""

    FLAGS = ("--model-control-mode", "explicit", "--allow-shared-memory", "/quantd-test-")

    def works(self, method, path, body=None):
        answer = self.server.request(method, path, body)
        self.assertEqual(answer.status, 200, (path, answer.body))
        return answer

    def check_binary_tensor_data(self):
        body, headers = binary_request([Tensor.of("x", "UINT8", [3], [1, 2, 3])])
        for body, headers in ((body, headers), (b"\1\2\3", RAW)):
            answer = self.server.infer("layer", body, headers=headers)
            self.assertEqual(answer.outputs()["y"][2], struct.pack("<3f", .5, 1, 1.5))

    def check_classification(self):
        row = Tensor.of("x", "UINT8", [3], [1, 3, 2])
        wanted = [{"name": "y", "parameters": {"classification": 2}}]
        answer = self.server.infer("layer", json_request([row], outputs=wanted)).json()
        self.assertEqual(answer["outputs"][0]["data"], ["1.500000:1", "1.000000:2"])

    def check_parameters(self):
        row = Tensor.of("x", "UINT8", [3], [1, 2, 3])
        self.assertEqual(self.server.infer("layer", json_request([row], {"mine": 1})).status, 200)

    def check_model_repository(self):
        self.works("POST", "/v2/repository/index", b"")
        self.works("POST", "/v2/repository/models/layer/unload", b"")
        self.assert_done(self.load_files("layer", model_onnx=dequantize_file()))

    def check_model_configuration(self):
        self.assertEqual(self.works("GET", "/v2/models/layer/config").json()["name"], "layer")

    def check_statistics(self):
        self.works("GET", "/v2/models/layer/stats")
        self.works("GET", "/v2/models/stats")

    def check_logging(self):
        settings = self.works("GET", "/v2/logging").json()
        self.works("POST", "/v2/logging", json.dumps({"log_info": settings["log_info"]}).encode())

    def check_system_shared_memory(self):
        self.works("GET", "/v2/systemsharedmemory/status")

    def test_each(self):
        self.assert_done(self.load_files("layer", model_onnx=dequantize_file()))
        extensions = self.server.get("/v2").json()["extensions"]
        self.assertEqual(len(extensions), 8)
        for extension in extensions:
            with self.subTest(extension=extension):
                getattr(self, "check_" + extension)()


if __name__ == "__main__":
    unittest.main()
