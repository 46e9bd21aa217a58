"""Configurations that cut an ONNX file: `inputs` and `outputs` name values."""
import json
import re
import struct
import subprocess
import unittest

from loading import ModelTest, RepositoryTest, conv_inputs, kept_request, scalar, ZEROS
from onnx_writer import FLOAT, INT8, UINT8, model, node, tensor, value_info
from quantd import Tensor, json_request

ROW = [3, 1, 4, 1, 5]


def net_file(x_type=FLOAT):
    """Returns a file of: quantize x to a, convolve a to b, reverse b to r (which quantd does not
    have), convolve r to c, dequantize c to y. Answers are of y and of b."""
    w = tensor("w", INT8, [1, 1, 2], (9, struct.pack("2b", 1, 2)))
    nodes = [node("QuantizeLinear", ["x", "one", "zero"], ["a"]),
             node("QLinearConv", conv_inputs("a"), ["b"]),
             node("Reverse", ["b"], ["r"]),
             node("QLinearConv", conv_inputs("r"), ["c"]),
             node("DequantizeLinear", ["c", "half", "zero"], ["y"])]
    return model(13, nodes, [scalar("one", 1.0), scalar("half", 0.5), w] + ZEROS,
                 [value_info("x", x_type, [1, 1, "length"])],
                 [value_info("y", FLOAT, [1, 1, "out"]), value_info("b", UINT8, [1, 1, "o"])])


def add_file():
    """Returns a file in which two values that quantd cannot compute are convolved and joined."""
    w = tensor("w", INT8, [1, 1, 1], (9, b"\2"))
    nodes = [node("Strange", ["x"], ["p"]), node("Strange", ["x"], ["q"]),
             node("QLinearConv", conv_inputs("p"), ["p2"]),
             node("QLinearConv", conv_inputs("q"), ["q2"]),
             node("Concat", ["p2", "q2"], ["y"], axis=1), node("Identity", ["q"], ["q3"]),
             node("Identity", ["x"], ["free"])]
    return model(13, nodes, [scalar("one", 1.0), w] + ZEROS, [value_info("x", UINT8, ["n", 1, 5])],
                 [value_info("y", UINT8, ["n", 2, 5])])


class Cuts(ModelTest):
    def load(self, config, file=None):
        return self.load_files("net", config, model_onnx=file or net_file())

    def ports(self):
        tree = self.server.get("/v2/models/net").json()
        return tree["inputs"], tree["outputs"]

    def run_net(self, *tensors):
        answer = self.server.infer("net", json_request(list(tensors)))
        self.assertEqual(answer.status, 200, answer.body)
        return {output["name"]: output["data"] for output in answer.json()["outputs"]}

    def test_the_whole_file(self):
        self.assert_error(self.load({}), 400, 'net/1/model.onnx: node 2 ("a Reverse", "Reverse")')

    def assert_hints(self, file, *hints, config=None):
        """Checks which configurations the error names, and that each of them loads."""
        answer = self.load(config or {}, file)
        self.assertEqual(answer.status, 400)
        found = re.findall(r'{"[^}]*}', answer.json()["error"])
        self.assertEqual([json.loads(hint) for hint in found], list(hints), answer.body)
        for hint in found:
            self.assert_done(self.load(json.loads(hint), file))
        return answer.json()["error"]

    def test_the_error_says_where_to_cut(self):
        text = self.assert_hints(net_file(), {"outputs": ["b"]},
                                 {"inputs": ["r"], "outputs": ["y"]})
        self.assertTrue(text.endswith('; the configuration {"outputs": ["b"]} runs 2 of the 5 '
                                      'nodes that depend on inputs, '
                                      '{"inputs": ["r"], "outputs": ["y"]} runs 2'), text)

    def test_hints_begin_where_the_file_is_cut_already(self):
        self.assert_hints(net_file(), {"inputs": ["x"], "outputs": ["b"]},
                          {"inputs": ["r"], "outputs": ["y"]},
                          config={"inputs": ["x"], "outputs": ["y"]})

    def test_all_outputs_need_not_be_named(self):
        self.assert_hints(add_file(), {"inputs": ["p", "q"]})

    def test_a_part_is_smaller_where_preparing_refuses_a_node(self):
        """Clip is known, but not with two lower limits."""
        file = model(14, [node("Identity", ["x"], ["a"]), node("Identity", ["a"], ["b"]),
                          node("Clip", ["b", "low"], ["c"]), node("Strange", ["c"], ["y"])],
                     [tensor("low", UINT8, [2], (9, b"\0\0"))], [value_info("x", UINT8, ["n"])],
                     [value_info("y", UINT8, ["n"])])
        self.assert_hints(file, {"outputs": ["b"]})

    def test_no_hint_where_it_helps_nobody(self):
        files = {"the first node": [node("Strange", ["x"], ["y"])],
                 "too small": [node("Identity", ["x"], ["a"]), node("Strange", ["a"], ["y"])],
                 "a cycle": [node("Identity", ["b"], ["a"]), node("Identity", ["a"], ["b"]),
                             node("Strange", ["b"], ["y"])],
                 "a name": [node("Identity", ["x"], ["a"]), node("Identity", ["a"], ['"']),
                            node("Strange", ['"'], ["y"])],
                 "a long name": [node("Identity", ["x"], ["a"]),
                                 node("Identity", ["a"], ["b" * 600]),
                                 node("Strange", ["b" * 600], ["y"])],
                 "many outputs": [node("Identity", ["x"], ["v%d" % i]) for i in range(33)] +
                                 [node("Strange", ["v%d" % i for i in range(33)], ["y"])]}
        for name, nodes in files.items():
            with self.subTest(name):
                self.assert_hints(model(14, nodes, [], [value_info("x", UINT8, ["n"])],
                                        [value_info("y", UINT8, ["n"])]))

    def test_up_to_a_value(self):
        self.assert_done(self.load({"outputs": ["b"]}))
        self.assertEqual(self.ports(), ([{"name": "x", "datatype": "FP32", "shape": [1, 1, -1]}],
                                        [{"name": "b", "datatype": "UINT8",
                                          "shape": [1, 1, -1]}]))
        row = Tensor.of("x", "FP32", [1, 1, 5], ROW)
        self.assertEqual(self.run_net(row), {"b": [5, 9, 6, 11]})

    def test_from_a_value_on(self):
        """The type of r follows from the nodes that read it. Its shape is free."""
        self.assert_done(self.load({"inputs": ["r"], "outputs": ["y"]}))
        self.assertEqual(self.ports()[0], [{"name": "r", "datatype": "UINT8", "shape": [-1]}])
        for numbers in (ROW, ROW * 3):
            row = Tensor.of("r", "UINT8", [1, 1, len(numbers)], numbers)
            wanted = [(a + 2 * b) / 2 for a, b in zip(numbers, numbers[1:])]
            self.assertEqual(self.run_net(row), {"y": wanted})

    def test_left_out_nodes_say_type_and_shape(self):
        """Convolutions in front of the cut say it. q needs a node that quantd does not have."""
        w = tensor("w", INT8, [3, 1, 1, 2], (9, bytes(6)))
        v = tensor("v", INT8, [1, 3, 1, 1], (9, bytes(3)))
        nodes = [node("QLinearConv", conv_inputs("x"), ["a"]),
                 node("Identity", ["a"], ["p"]), node("Strange", ["x"], ["q"]),
                 node("QLinearConv", conv_inputs("p", "v"), ["y"]),
                 node("QLinearConv", conv_inputs("q"), ["z"])]
        weights = [scalar("one", 1.0), w, v] + ZEROS
        for dims, shape in ((["n", 1, 8, "w"], [-1, 3, 8, -1]), ([2, 1, 8, 8], [2, 3, 8, 7])):
            file = model(13, nodes, weights, [value_info("x", UINT8, dims)],
                         [value_info("y", UINT8, ["n", 1, "h", "w"]),
                          value_info("z", UINT8, ["n", 3, "h", "w"])])
            self.assert_done(self.load({"inputs": ["p", "q"]}, file))
            self.assertEqual(self.ports()[0],
                             [{"name": "p", "datatype": "UINT8", "shape": shape},
                              {"name": "q", "datatype": "UINT8", "shape": [-1]}])
            self.assert_done(self.load({"inputs": ["p"], "outputs": ["y"], "input": [
                {"name": "p", "data_type": "TYPE_UINT8", "dims": [1, 3, -1, 4]}]}, file))
            self.assertEqual(self.ports()[0][0]["shape"], [1, 3, -1, 4])

    def test_both_parts_at_once(self):
        """Outputs have the order of the configuration, and y does not need x."""
        self.assert_done(self.load({"inputs": ["r"], "outputs": ["b", "y", "a"]}))
        inputs, outputs = self.ports()
        self.assertEqual([port["name"] for port in inputs], ["r", "x"])
        self.assertEqual([port["name"] for port in outputs], ["b", "y", "a"])
        answer = self.run_net(Tensor.of("x", "FP32", [1, 1, 5], ROW),
                              Tensor.of("r", "UINT8", [1, 1, 2], [1, 2]))
        self.assertEqual(answer, {"b": [5, 9, 6, 11], "y": [2.5], "a": ROW})

    def test_input_says_type_and_shape(self):
        config = {"inputs": ["r"], "outputs": ["y"],
                  "input": [{"name": "r", "data_type": "TYPE_UINT8", "dims": [1, 1, 7]}]}
        self.assert_done(self.load(config))
        self.assertEqual(self.ports()[0], [{"name": "r", "datatype": "UINT8", "shape": [1, 1, 7]}])
        self.assertEqual(self.ports()[1], [{"name": "y", "datatype": "FP32", "shape": [1, 1, 6]}])
        config["input"][0]["data_type"] = "TYPE_FP32"
        self.assert_error(self.load(config), 400,
                          "net/1/model.onnx: the configuration's input \"r\": data_type: expected "
                          "UINT8, INT8, got TYPE_FP32")

    def test_two_types_that_follow(self):
        self.assert_done(self.load({"inputs": ["q", "p"]}, add_file()))
        self.assertEqual([(port["name"], port["datatype"]) for port in self.ports()[0]],
                         [("q", "UINT8"), ("p", "UINT8")])
        answer = self.run_net(Tensor.of("p", "UINT8", [1, 1, 2], [1, 2]),
                              Tensor.of("q", "UINT8", [1, 1, 2], [3, 4]))
        self.assertEqual(answer, {"y": [2, 4, 6, 8]})

    def test_a_type_that_does_not_follow(self):
        for inputs in (["q"], ["p", "q"]):
            config = {"inputs": inputs, "outputs": ["y", "q3"] if "p" in inputs else ["q3"]}
            if "p" in inputs:
                self.assert_done(self.load(config, add_file()))  # p2 and y tell it of both
                continue
            self.assert_error(self.load(config, add_file()), 400, "net/1/model.onnx: the "
                              "configuration's input: expected \"q\" with its data_type, because "
                              "the file does not say which it has of UINT8, INT8")
            config["input"] = [{"name": "q", "data_type": "TYPE_INT8", "dims": [4]}]
            self.assert_done(self.load(config, add_file()))
            self.assertEqual(self.run_net(Tensor.of("q", "INT8", [4], [1, -2, 3, -4])),
                             {"q3": [1, -2, 3, -4]})

    def test_the_configuration_can_be_read_and_loaded_again(self):
        self.assert_done(self.load({"inputs": ["r"], "outputs": ["y"]}))
        config = self.server.get("/v2/models/net/config").json()
        self.assertEqual((config["inputs"], config["outputs"]), (["r"], ["y"]))
        del config["input"], config["output"]  # a free shape has no dims
        self.assert_done(self.load(config))
        self.assertEqual(self.ports()[0][0]["name"], "r")
        self.assert_done(self.load({"outputs": ["a"]}))
        self.assertNotIn("inputs", self.server.get("/v2/models/net/config").json())

    def test_names_that_are_wrong(self):
        self.assert_done(self.load({"outputs": ["b"]}))
        cases = [({"outputs": ["nowhere"]}, "net/1/model.onnx: the configuration's outputs[0]: "
                  "expected a value that a node makes, such as \"y\", \"c\", \"r\", got "
                  "\"nowhere\", which the file does not have"),
                 ({"outputs": ["w"]}, "got \"w\", which is a constant"),
                 ({"inputs": ["one"]}, "got \"one\", which is a constant"),
                 ({"outputs": ["x"]}, "got \"x\", which is an input"),
                 ({"inputs": ["r"], "outputs": ["r"]}, "got \"r\", which is an input"),
                 ({"inputs": ["c"], "outputs": ["b"]},
                  "inputs[0]: expected a value that the outputs need, got \"c\""),
                 ({"outputs": []}, "parameters.config: outputs: expected an array of names"),
                 ({"outputs": ["b", "b"]}, "expected each name once"),
                 ({"outputs": ["b\0"]}, ""),
                 ({"outputs": "b"}, "expected an array of names"),
                 ({"inputs": [{"name": "b"}]}, "inputs[0]: expected the name of a value")]
        for config, text in cases:
            self.assert_error(self.load(config), 400, text)
        row = Tensor.of("x", "FP32", [1, 1, 5], ROW)
        self.assertEqual(self.run_net(row), {"b": [5, 9, 6, 11]})

    def test_a_million_names(self):
        for count, status, text in ((10 ** 6, 413, "exceeds"), (10 ** 4, 400, "at most 32 names")):
            names = ["%d" % i for i in range(count)]
            self.assert_error(self.load({"outputs": names}), status, text)

    def test_long_names(self):
        self.assert_error(self.load({"inputs": ["\u20ac" * 30000]}), 400,
                          "which the file does not have")

    def test_no_request_can_be_cut(self):
        files = {"file:1/request.json": json.dumps(kept_request([1, 2, 1])).encode()}
        self.assert_error(self.load_named("net", {"outputs": ["y"]}, files), 400,
                          "configuration's outputs: expected an ONNX file to cut, got a request")


class CutsInFolders(RepositoryTest):
    def test_config_json(self):
        self.write("net/1/model.onnx", net_file())
        self.write("net/config.json", json.dumps({"outputs": ["b"]}))
        self.start()
        outputs = self.server.get("/v2/models/net").json()["outputs"]
        self.assertEqual([port["name"] for port in outputs], ["b"])

    def test_a_hint_of_the_log_can_be_pasted(self):
        """Between the quotes of a shell, as the manual says. In JSON, the value is the error."""
        self.write("net/1/model.onnx", net_file())
        self.start("--exit-on-error", "off")
        log = self.server.wait_for_log("model not loaded")
        hint = re.search(r'why=".*; the configuration (\{.*?\})', log).group(1)
        result = subprocess.run(["sh", "-c", 'echo "%s"' % hint], capture_output=True, check=True)
        self.write("net/config.json", result.stdout)
        self.start("--log-format", "json")
        self.assertEqual(len(self.server.get("/v2/models/net").json()["outputs"]), 1)
        self.write("net/config.json", "{}")
        self.start("--exit-on-error", "off", "--log-format", "json")
        log = self.server.wait_for_log("model not loaded")
        why = next(json.loads(line)["why"] for line in log.splitlines() if "not loaded" in line)
        self.assertEqual(why, self.entries("net")[0]["reason"])


if __name__ == "__main__":
    unittest.main()
