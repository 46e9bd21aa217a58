"""ONNX files as models: the results of their operators, and files made to harm the server."""
import random
import struct
import unittest

from loading import ModelTest
from onnx_writer import (BOOL, FLOAT, INT8, INT64, UINT8, constant, message, model, node, tensor,
                         value_info)
from quantd import SANITIZED, Tensor, binary_request

MIB = 1 << 20
NAME = "layer"
SCALE = tensor("s", FLOAT, [], (9, struct.pack("<f", 0.5)))
ZERO = tensor("z", UINT8, [], (9, b"\x80"))
X = value_info("x", UINT8, ["n"])
Y = value_info("y", FLOAT, ["n"])
DEQUANTIZE = node("DequantizeLinear", ["x", "s", "z"], ["y"])
GOOD = model(13, [DEQUANTIZE], [SCALE, ZERO], [X], [Y])


class Files(ModelTest):
    FLAGS = ("--model-control-mode", "explicit", "--max-model-bytes", "16M",
             "--max-inflight-bytes", "64M")

    def load(self, file, name=NAME):
        return self.load_files(name, {}, model_onnx=file)

    def assert_loads(self, file):
        self.assert_done(self.load(file))

    def ask(self, *tensors):
        body, headers = binary_request(tensors)
        answer = self.server.infer(NAME, body, headers=headers)
        self.assertEqual(answer.status, 200, answer.body[:500])
        return answer.outputs()

    def assert_good(self):
        """Checks that the model of GOOD is loaded."""
        self.assertEqual(self.ask(Tensor.of("x", "UINT8", [3], [0, 129, 255])),
                         {"y": ("FP32", [3], struct.pack("<3f", -64, 0.5, 63.5))})


class Computes(Files):
    def test_one_node(self):
        self.assert_loads(GOOD)
        self.assert_good()

    def test_metadata(self):
        self.assert_loads(GOOD)
        tree = self.server.get("/v2/models/" + NAME).json()
        self.assertEqual(tree["inputs"], [{"name": "x", "datatype": "UINT8", "shape": [-1]}])
        self.assertEqual(tree["outputs"], [{"name": "y", "datatype": "FP32", "shape": [-1]}])

    def test_a_scale_that_a_node_makes(self):
        """Weights are often quantized twice: their scales are codes with a scale of their own."""
        self.assert_loads(model(
            13, [node("DequantizeLinear", ["c", "s"], ["scale"]),
                 node("DequantizeLinear", ["x", "scale"], ["y"])],
            [SCALE, tensor("c", UINT8, [], (9, b"\x03"))], [X], [Y]))
        self.assertEqual(self.ask(Tensor.of("x", "UINT8", [2], [0, 200])),
                         {"y": ("FP32", [2], struct.pack("<2f", 0, 300))})

    def test_without_inputs(self):
        """Weights alone, dequantized by each request."""
        self.assert_loads(model(13, [node("DequantizeLinear", ["w", "s"], ["y"])],
                                [SCALE, tensor("w", INT8, [3], (9, b"\1\2\xff"))], [], [Y]))
        self.assertEqual(self.ask(), {"y": ("FP32", [3], struct.pack("<3f", 0.5, 1, -0.5))})

    def test_a_long_condition(self):
        """The JSON is short, but its BOOL tensor is long, so workers check it in pieces."""
        count = 3 << 20
        operands = ["c", "x", "s", "z", "x2", "s", "z", "s", "z"]
        where = node("QLinearWhere", operands, ["y"]) + message((7, "com.microsoft"))
        ports = [value_info("c", BOOL, ["n"]), X, value_info("x2", UINT8, ["n"])]
        file = model(13, [where], [SCALE, ZERO], ports, [value_info("y", UINT8, ["n"])])
        self.assert_loads(file + message((8, message((1, "com.microsoft"), (2, 1)))))
        condition = bytes([1, 0, 0]) * (count // 3)
        tensors = [Tensor("x", "UINT8", [count], bytes([5]) * count),
                   Tensor("x2", "UINT8", [count], bytes([9]) * count)]
        outputs = self.ask(Tensor("c", "BOOL", [count], condition), *tensors)
        self.assertEqual(outputs["y"][2], bytes([5, 9, 9]) * (count // 3))
        body, headers = binary_request([Tensor("c", "BOOL", [count], condition[:-1] + b"\2"),
                                        *tensors])
        answer = self.server.infer(NAME, body, headers=headers)
        self.assertEqual(answer.status, 400)

    def test_a_scale_that_follows_from_an_input(self):
        answer = self.load(model(
            13, [node("DequantizeLinear", ["x", "s"], ["scale"]),
                 node("DequantizeLinear", ["x", "scale"], ["y"])], [SCALE], [X], [Y]))
        self.assertEqual(answer.status, 400)
        self.assertIn(b'node 1 (\\"a DequantizeLinear\\", onnx.DequantizeLinear): x_scale: '
                      b'expected a constant or an input of the graph', answer.body)

    def test_two_outputs_of_which_one_is_read(self):
        self.assert_loads(model(
            13, [node("QuantizeLinear", ["a", "s", "z"], ["x"]), DEQUANTIZE], [SCALE, ZERO],
            [value_info("a", FLOAT, [2, "n"])],
            [value_info("y", FLOAT, ["m", "n"]), value_info("x", UINT8, ["m", "n"])]))
        outputs = self.ask(Tensor.of("a", "FP32", [2, 1], [0.7, -1000]))
        self.assertEqual(outputs, {"y": ("FP32", [2, 1], struct.pack("<2f", 0.5, -64)),
                                   "x": ("UINT8", [2, 1], b"\x81\0")})

    def test_constants_come_with_the_request(self):
        """The constants are inputs, as in ONNX's own node tests."""
        late = node("DequantizeLinear", ["x", "s"], ["y"], axis=0)
        self.assert_loads(model(13, [late], [], [X, value_info("s", FLOAT, ["k"])], [Y]))
        for scale in (0.5, 4):
            outputs = self.ask(Tensor.of("x", "UINT8", [1], [3]),
                               Tensor.of("s", "FP32", [1], [scale]))
            self.assertEqual(outputs["y"][2], struct.pack("<f", 3 * scale))
        body, headers = binary_request([Tensor.of("x", "UINT8", [1], [3]),
                                        Tensor.of("s", "FP32", [2], [1, 2])])
        self.assert_error(self.server.infer(NAME, body, headers=headers), 400,
                          'node 0 ("a DequantizeLinear", onnx.DequantizeLinear): x_scale', "[2]")

    def test_constant_node(self):
        self.assert_loads(model(13, [constant("s", (1, "value_float"), (2, 0.5)), DEQUANTIZE],
                                [ZERO], [X], [Y]))
        self.assert_good()

    def test_a_file_in_pieces(self):
        """protobuf merges fields that appear twice, so bytes can be appended to a file."""
        graph = message((5, SCALE))
        self.assert_loads(model(13, [DEQUANTIZE], [ZERO], [X], [Y]) + message((7, graph)))
        self.assert_good()


def integers(name, *numbers):
    """A constant: a list, or a number if its name is in capitals."""
    return tensor(name, INT64, [] if name.isupper() else [len(numbers)],
                  (9, struct.pack("<%dq" % len(numbers), *numbers)))


ONE = tensor("value", INT64, [1], (9, struct.pack("<q", 1)))


class Shapes(Files):
    """Shapes that nodes compute from those of other values."""

    @staticmethod
    def file(nodes, constants=(), x=("n",), y=("n",), kind=UINT8):
        return model(15, nodes, constants, [value_info("x", UINT8, list(x))],
                     [value_info("y", kind, list(y))])

    def test_of_any_batch(self):
        self.assert_loads(self.file(
            [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "I"], ["n"], axis=0),
             node("Unsqueeze", ["n", "axes"], ["first"]),
             node("Concat", ["first", "rest"], ["sizes"], axis=0),
             node("Reshape", ["x", "sizes"], ["y"])],
            [integers("I", 0), integers("axes", 0), integers("rest", -1)], ["n", 2, 2],
            ["n", "m"]))
        tree = self.server.get("/v2/models/" + NAME).json()
        self.assertEqual(tree["outputs"][0]["shape"], [-1, 4])
        for count in (1, 3, 1, 2):
            data = bytes(range(4 * count))
            outputs = self.ask(Tensor("x", "UINT8", [count, 2, 2], data))
            self.assertEqual(outputs, {"y": ("UINT8", [count, 4], data)})

    def test_that_is_an_output(self):
        self.assert_loads(self.file([node("Shape", ["x"], ["y"], start=1)], (), [2, "n"], [1],
                                    INT64))
        self.assertEqual(self.ask(Tensor("x", "UINT8", [2, 5], bytes(10)))["y"][2],
                         struct.pack("<q", 5))

    def test_with_as_many_dimensions_as_a_size_says(self):
        self.assert_loads(self.file(
            [node("Shape", ["x"], ["n"]), node("Mod", ["n", "eight"], ["rest"]),
             node("Add", ["rest", "one"], ["rank"]),
             node("ConstantOfShape", ["rank"], ["ones"], value=ONE),
             node("Expand", ["x", "ones"], ["y"])],
            [integers("eight", 8), integers("one", 1)]))
        for count, shape in ((1, [1, 1]), (8, [8]), (3, [1, 1, 1, 3])):
            outputs = self.ask(Tensor("x", "UINT8", [count], bytes(count)))
            self.assertEqual(outputs["y"][:2], ("UINT8", shape))

    def test_indices_of_a_request(self):
        """They are checked with each request."""
        self.assert_loads(model(
            15, [node("Gather", ["table", "i"], ["y"])], [tensor("table", UINT8, [3], (9, b"abc"))],
            [value_info("i", INT64, ["n"])], [value_info("y", UINT8, ["n"])]))
        outputs = self.ask(Tensor("i", "INT64", [2], struct.pack("<2q", 2, -3)))
        self.assertEqual(outputs["y"][2], b"ca")
        body, headers = binary_request([Tensor("i", "INT64", [1], struct.pack("<q", 3))])
        self.assert_error(self.server.infer(NAME, body, headers=headers), 400,
                          'node 0 ("a Gather", onnx.Gather): indices', "got 3")

    def test_that_depend_on_data(self):
        answer = self.load(model(
            15, [node("Add", ["i", "i"], ["sizes"]), node("Reshape", ["table", "sizes"], ["y"])],
            [tensor("table", UINT8, [4], (9, b"abcd"))], [value_info("i", INT64, [1])],
            [value_info("y", UINT8, ["n"])]))
        self.assert_error(answer, 400, 'node 1 ("a Reshape", onnx.Reshape): shape: expected a '
                          'constant, or a value that follows from shapes alone', "it is input 0")

    def test_made_to_harm(self):
        shape = node("Shape", ["x"], ["shape"])
        reshape = node("Reshape", ["x", "sizes"], ["y"])
        large = integers("large", 1 << 40)
        for words, nodes, constants in (
                ("onnx.Range): ", [node("Range", ["ZERO", "MOST", "I"], ["r"]),
                                   node("Gather", ["x", "r"], ["y"])],
                 [integers("ZERO", 0), integers("MOST", 1 << 60), integers("I", 1)]),
                ("onnx.Range): output: expected at most 4096", [
                    shape, node("Mul", ["shape", "large"], ["many"]),
                    node("Range", ["ZERO", "many", "I"], ["r"]),
                    node("Gather", ["x", "r"], ["y"])],
                 [integers("ZERO", 0), integers("large", 1 << 20), integers("I", 1)]),
                ("onnx.ConstantOfShape): ", [
                    node("ConstantOfShape", ["large"], ["c"], value=ONE),
                    node("Gather", ["x", "c"], ["y"])], [large]),
                ("onnx.Expand): ", [
                    shape, node("Mul", ["shape", "large"], ["sizes"]),
                    node("Concat", ["sizes", "sizes", "shape"], ["all"], axis=0),
                    node("Expand", ["x", "all"], ["y"])], [large]),
                ("onnx.Reshape): shape: ", [
                    shape, node("Mul", ["shape", "large"], ["a"]), node("Mul", ["a", "a"], ["b"]),
                    node("Sub", ["b", "shape"], ["sizes"]), reshape], [large]),
                ("onnx.Gather): indices: ", [shape, node("Gather", ["shape", "shape"], ["sizes"]),
                                             reshape], []),
                ("onnx.Div): B: expected divisors other than 0", [
                    shape, node("Sub", ["shape", "shape"], ["zero"]),
                    node("Div", ["shape", "zero"], ["sizes"]), reshape], [])):
            with self.subTest(words):
                answer = self.load(self.file(nodes, constants, [4], ["n"]))
                self.assertIn(answer.status, (400, 413), answer.body[:500])
                self.assertIn(words if answer.status == 400 else "memory", answer.json()["error"])


class Refused(Files):
    """Whatever file comes, the model loaded before stays."""

    def setUp(self):
        self.assert_loads(GOOD)

    def tearDown(self):
        self.assert_good()

    def assert_refused(self, file, *words):
        self.assert_error(self.load(file), 400, "1/model.onnx", *words)

    def file(self, nodes=(DEQUANTIZE,), constants=(SCALE, ZERO), inputs=(X,), outputs=(Y,)):
        return model(13, nodes, constants, inputs, outputs)

    def test_no_onnx_file(self):
        for file in (b"", b"\0", b"{}", b"PK\3\4", b"\xff" * 100, GOOD[:-1], GOOD + b"\x0a"):
            self.assert_refused(file)

    def test_truncated(self):
        for count in range(0, len(GOOD), 7):
            self.assert_refused(GOOD[:count])

    def test_operators(self):
        lstm = [DEQUANTIZE, node("LSTM", ["y"], ["r"])]
        self.assert_refused(self.file(lstm, outputs=[Y, value_info("r", FLOAT, [])]),
                            'node 1 ("a LSTM", "LSTM")', "an operator that quantd has")
        self.assert_refused(self.file([node("QLinearAdd", ["x"], ["y"]) + message((7, "com.ms"))]),
                            '"QLinearAdd" of the domain "com.ms"')

    def test_cycles(self):
        first = node("QuantizeLinear", ["y", "s", "z"], ["x"])
        self.assert_refused(self.file([first, DEQUANTIZE], inputs=[]), "DequantizeLinear",
                            "QuantizeLinear")
        self.assert_refused(self.file([node("DequantizeLinear", ["y", "s"], ["y"])]))

    def test_dims(self):
        """More elements than there are bytes, negative sizes, and products beyond 64 bits."""
        for dims, words in (([1 << 40], "raw_data"), ([1 << 62, 1 << 62], "overflows"),
                            ([-1], "dims[0]"), ([1] * 33, "at most 32")):
            weights = tensor("w", INT8, dims, (9, b"\1"))
            self.assert_refused(self.file([node("DequantizeLinear", ["w", "s"], ["y"])],
                                          [weights, SCALE], []), 'initializer 0 ("w")', words)
            external = tensor("w", INT8, dims, (14, 1), (13, message((1, "location"), (2, "w"))))
            self.assert_refused(self.file([node("DequantizeLinear", ["w", "s"], ["y"])],
                                          [external, SCALE], []), 'initializer 0 ("w")')

    def test_names(self):
        self.assert_refused(self.file(inputs=[X, X]), '"x" from input 0')
        self.assert_refused(self.file(constants=[SCALE, SCALE, ZERO]), '"s" from initializer 0')
        self.assert_refused(self.file(inputs=[value_info(b"x\0", UINT8, [])]), "UTF-8")
        self.assert_refused(self.file([DEQUANTIZE, DEQUANTIZE]), '"y" from node 0')
        self.assert_refused(self.file(constants=[ZERO]), '"s"', "nothing makes")
        self.assert_refused(self.file([node("DequantizeLinear", [b"\xff\xfe" * 999, "s"], ["y"])]),
                            "??????", "...")

    def test_rules_of_the_operator(self):
        zero = tensor("z", INT8, [], (9, b"\0"))
        self.assert_refused(self.file(constants=[SCALE, zero]), "x_zero_point", "INT8")
        self.assert_refused(self.file(outputs=[value_info("y", UINT8, [])]), 'output 0 ("y")',
                            "FP32")

    def test_shapes(self):
        """The shapes that the file declares must be those that its nodes give."""
        for x, y, words in (([2, 3], [2, 4], ["expected [2,3]", "got [2,4]"]),
                            (["n", 3], [2, 4], ["expected [-1,3]", "got [2,4]"]),
                            (["n", 3], ["n"], ["expected [-1,3]", "got [-1]"])):
            self.assert_refused(self.file(inputs=[value_info("x", UINT8, x)],
                                          outputs=[value_info("y", FLOAT, y)]),
                                'output 0 ("y"): shape', *words)
        scales = tensor("s", FLOAT, [2], (9, struct.pack("<2f", 1, 2)))
        zeros = tensor("z", UINT8, [2], (9, b"\0\0"))
        self.assert_refused(self.file(constants=[scales, zeros],
                                      inputs=[value_info("x", UINT8, [1, 3])]),
                            "onnx.DequantizeLinear): x_scale", "[1,3]")

    def test_nested_a_million_deep(self):
        levels = 1 << 20
        inner, pieces = 0, []
        for level in range(levels):
            # The field g of an attribute of a node of a graph.
            tag = (b"\x32", b"\x0a", b"\x2a")[level % 3]
            size, length = b"", inner
            while True:
                size += bytes([length & 0x7F | (0x80 if length >= 0x80 else 0)])
                length >>= 7
                if length == 0:
                    break
            pieces.append(tag + size)
            inner += len(tag + size)
        nested = b"".join(reversed(pieces))
        for field in (1, 5, 11):
            answer = self.load(model(13, [DEQUANTIZE], [SCALE, ZERO], [X], [Y])
                               + message((7, message((field, nested)))))
            self.assertIn(answer.status, (200, 400, 413), answer.body[:500])
            self.assert_loads(GOOD)

    @unittest.skipIf(SANITIZED, "sanitizers keep what is freed")
    def test_bombs(self):
        """Each element has two bytes, and takes a hundred once protobuf has parsed it."""
        self.assert_good()
        before = self.server.rss_bytes()
        for field in (1, 5, 11, 12, 15):
            answer = self.load(message((7, message((field, b"")) * (4 * MIB))))
            self.assert_error(answer, 413, "memory")
            answer = self.load(message((7, message((1, message((1, b"")) * (4 * MIB))))))
            self.assertIn(answer.status, (400, 413))
        self.assertLess(self.server.rss_bytes(), before + 80 * MIB)

    def test_flipped_bits(self):
        """Every flipped bit gets an answer."""
        dice = random.Random(12)
        loaded = 0
        for _ in range(300):
            file = bytearray(GOOD)
            for _ in range(dice.randint(1, 4)):
                file[dice.randrange(len(file))] ^= 1 << dice.randrange(8)
            answer = self.load(bytes(file), "flipped")
            self.assertIn(answer.status, (200, 400, 413), answer.body[:500])
            loaded += answer.status == 200
        self.assertGreater(loaded, 10)


if __name__ == "__main__":
    unittest.main()
