"""Networks that are made to harm: sizes that overflow or explode, cycles, indices and sums that are
wrong. Each is refused by the node's rule, before memory is asked for, or costs little."""
import struct

from loading import ModelTest
from onnx_writer import FLOAT, INT8, INT64, UINT8, message, model, node, tensor, value_info
from quantd import Tensor, binary_request

ALIASES = 1024
NODES_MAX = 4096
CONSTANTS = [tensor("s", FLOAT, [], (9, struct.pack("<f", 0.5))),
             tensor("z", UINT8, [], (9, b"\x80")),
             tensor("byte", UINT8, [1], (9, b"\1"))]
X = value_info("x", UINT8, [1, 2, 4, 4])
DATA = Tensor.of("x", "UINT8", [1, 2, 4, 4], list(range(32)))
PLANNED = "with inputs of the declared shapes: "


def integers(name, *numbers):
    return tensor(name, INT64, [len(numbers)], (9, struct.pack("<%dq" % len(numbers), *numbers)))


def floats(name, *numbers):
    return tensor(name, FLOAT, [len(numbers)], (9, struct.pack("<%df" % len(numbers), *numbers)))


def output(name):
    """An output of UINT8 whose shape the file does not say."""
    return message((1, name), (2, message((1, message((1, UINT8))))))


def network(*nodes, constants=(), outputs=("y",)):
    return model(18, nodes, [*CONSTANTS, *constants], [X], [output(name) for name in outputs])


class Networks(ModelTest):
    FLAGS = ("--model-control-mode", "explicit", "--max-model-bytes", "128M",
             "--max-inflight-bytes", "64M")

    def load(self, file):
        return self.load_files("n", {}, model_onnx=file)

    def assert_loads(self, file):
        self.assert_done(self.load(file))

    def infer(self):
        body, headers = binary_request([DATA])
        return self.server.infer("n", body, headers=headers)

    def assert_refused(self, text, *nodes, **rest):
        with self.subTest(text):
            answer = self.load(network(*nodes, **rest))
            self.assertEqual((answer.status, answer.json()["error"]),
                             (400, "n/1/model.onnx: " + text))

    def test_constants_that_explode(self):
        """More bytes than there is time for, and more than 64 bits can count."""
        join = node("Concat", ["x", "many"], ["y"], axis=0)
        expand = node("Expand", ["byte", "sizes"], ["many"])
        self.assert_refused(
            'node 0 ("a Expand", onnx.Expand): expected constants that take at most 1 s to '
            'compute, got more', expand, join, constants=[integers("sizes", 1 << 46)])
        self.assert_refused(
            'node 0 ("a Expand", onnx.Expand): output: expected an output that fits in memory, '
            'got a larger one', expand, join, constants=[integers("sizes", 1 << 40, 1 << 40)])
        self.assert_refused(
            'node 0 ("a Expand", onnx.Expand): shape: expected sizes in [0, 140737488355327], '
            'got 1125899906842624', expand, join, constants=[integers("sizes", 1 << 50)])
        fill = node("ConstantOfShape", ["sizes"], ["many"],
                    value=tensor("v", UINT8, [1], (9, b"\1")))
        self.assert_refused(
            'node 0 ("a ConstantOfShape", onnx.ConstantOfShape): expected constants that take at '
            'most 1 s to compute, got more', fill, join, constants=[integers("sizes", 1 << 46)])

    def test_sizes_that_overflow(self):
        self.assert_refused(
            PLANNED + 'node 1 ("a Reshape", onnx.Reshape): shape: expected a shape with the 32 '
            'elements of data, which has shape [1,2,4,4], got another',
            node("Mul", ["sizes", "sizes"], ["squares"]), node("Reshape", ["x", "squares"], ["y"]),
            constants=[integers("sizes", 1 << 40)])
        self.assert_refused(
            PLANNED + 'node 0 ("a Pad", onnx.Pad): output: expected an output that fits in '
            'memory, got a larger one',
            node("Pad", ["x", "pads"], ["y"]), constants=[integers("pads", *[1 << 40] * 8)])

    def test_a_large_value(self):
        """Whoever asks for it is refused; whoever does not is answered."""
        self.assert_loads(network(
            node("Expand", ["x", "sizes"], ["many"]), node("Slice", ["many", "a", "b"], ["y"]),
            constants=[integers("sizes", 1 << 40, 2, 4, 4), integers("a", 0), integers("b", 1)]))
        answer = self.infer()
        self.assertEqual(answer.status, 413, answer.body[:500])
        self.assertIn("--max-inflight-bytes", answer.json()["error"])

    def test_a_table_of_a_cycle(self):
        self.assert_refused(
            'node 0 ("a DequantizeLinear", onnx.DequantizeLinear): x: expected no cycle, got one: '
            'it reads node 2 ("a QuantizeLinear", onnx.QuantizeLinear), which reads node 1 '
            '("a Relu", onnx.Relu), which reads node 0 ("a DequantizeLinear", '
            'onnx.DequantizeLinear)',
            node("DequantizeLinear", ["y", "s", "z"], ["a"]), node("Relu", ["a"], ["b"]),
            node("QuantizeLinear", ["b", "s", "z"], ["y"]))

    def test_thousands_of_aliases(self):
        """One after another, and all of one value."""
        names = ["x", *["a%d" % i for i in range(ALIASES - 1)], "y"]
        self.assert_loads(network(*[node("Identity", [names[i]], [names[i + 1]])
                                    for i in range(ALIASES)]))
        self.assertEqual(self.infer().outputs()["y"][2], bytes(range(32)))
        rows = integers("rows", 8, 4)
        self.assert_loads(network(
            node("Identity", ["x"], ["a"]),
            *[node("Reshape", ["a", "rows"], [name]) for name in names[2:ALIASES - 31]],
            *[node("Concat", names[i:i + 32], ["y%d" % i], axis=0)
              for i in range(2, ALIASES - 64, 32)],
            constants=[rows], outputs=["y%d" % i for i in range(2, ALIASES - 64, 32)]))
        self.assertEqual(self.infer().outputs()["y2"][2], bytes(range(32)) * 32)
        self.assert_refused('graph: expected at most 4096 nodes, Constant aside, that its outputs '
                            'need, got 4097',
                            *[node("Identity", ["x" if i == 0 else "b%d" % i],
                                   ["y" if i == NODES_MAX else "b%d" % (i + 1)])
                              for i in range(NODES_MAX + 1)])

    def test_thousands_of_parts(self):
        """Parts lie in the whole. So many are copied instead, because the time of placing them
        grows with the square of their number."""
        for count, lie_in_whole in ((8, True), (500, False)):
            rest, parts, constants, nodes = "x", [], [], []
            for i in range(count):
                names = ["s%d_%d" % (i, k) for k in range(8)]
                nodes.append(node("Split", [rest, "sizes%d" % i], names, axis=0))
                constants.append(integers("sizes%d" % i, 7 * (count - 1 - i) + 1, *[1] * 7))
                rest, parts = names[0], names[1:] + parts
            names = [rest, *parts]
            while len(names) > 1:
                joined = ["c%d" % (len(nodes) + i) for i in range(-(-len(names) // 32))]
                nodes += [node("Concat", names[32 * i:32 * (i + 1)], [name], axis=0)
                          for i, name in enumerate(joined)]
                names = joined
            nodes.append(node("Relu", names, ["y"]))
            size = 7 * count + 1
            self.assert_loads(model(18, nodes, constants, [value_info("x", INT8, [size])],
                                    [message((1, "y"), (2, message((1, message((1, INT8))))))]))
            listed = self.server.get("/v2/models/n/nodes").json()["nodes"]
            fates = {one["fate"] for one in listed if one["operator"] == "Concat"}
            self.assertEqual("alias" in fates, lie_in_whole)
            codes = [i % 127 for i in range(size)]
            body, headers = binary_request([Tensor.of("x", "INT8", [size], codes)])
            answer = self.server.infer("n", body, headers=headers)
            self.assertEqual(answer.outputs()["y"][2], bytes(codes))

    def test_resize(self):
        by_size = node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
        by_scale = node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
        where = PLANNED + 'node 0 ("a Resize", onnx.Resize): '
        long_axis = where + ('X: expected resized axes of at most 1048576 elements, got '
                             '1099511627776')
        self.assert_refused(long_axis, by_size, constants=[integers("sizes", 1, 2, 1 << 40, 4)])
        self.assert_refused(long_axis, by_scale, constants=[floats("scales", 1, 1, 2.0 ** 38, 1)])
        self.assert_refused(where + 'Y: expected an output that fits in memory, got a larger one',
                            by_scale, constants=[floats("scales", 1, 1, 2.0 ** 40, 2.0 ** 40)])

    def test_gather_out_of_range(self):
        for index in (2, -3, 1 << 62):
            self.assert_refused(
                PLANNED + 'node 0 ("a Gather", onnx.Gather): indices: expected integers in '
                '[-2, 1], got %d' % index,
                node("Gather", ["x", "i"], ["y"], axis=1), constants=[integers("i", 0, index)])

    def test_split_that_does_not_add_up(self):
        split = node("Split", ["x", "sizes"], ["y", "w"], axis=1)
        where = 'node 0 ("a Split", onnx.Split): split: expected sizes '
        self.assert_refused(PLANNED + where + "with the sum 2, got 3", split, outputs=("y", "w"),
                            constants=[integers("sizes", 1, 2)])
        for sizes, got in (((-1, 3), -1), ((1 << 62, 1 << 62), 1 << 62),
                           (((1 << 63) - 1, 3 - (1 << 63)), (1 << 63) - 1)):
            self.assert_refused(where + "in [0, 140737488355327], got %d" % got, split,
                                outputs=("y", "w"), constants=[integers("sizes", *sizes)])
