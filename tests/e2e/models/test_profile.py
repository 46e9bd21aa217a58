"""The parameter `profile`: how long each node of a network took."""
import unittest

from loading import ModelTest, ZEROS, conv_inputs, scalar
from onnx_writer import FLOAT, INT8, UINT8, model, node, tensor, value_info
from quantd import Tensor, json_request


def net_file():
    """Returns a file of: quantize, convolve, move nothing, dequantize."""
    nodes = [node("QuantizeLinear", ["x", "one", "zero"], ["a"]),
             node("QLinearConv", conv_inputs("a"), ["b"]), node("Identity", ["b"], ["c"]),
             node("DequantizeLinear", ["c", "one", "zero"], ["y"])]
    weights = tensor("w", INT8, [1, 1, 2], (9, b"\1\2"))
    return model(13, nodes, [scalar("one", 1.0), weights] + ZEROS,
                 [value_info("x", FLOAT, [1, 1, "length"])],
                 [value_info("y", FLOAT, [1, 1, "out"])])


class Profile(ModelTest):
    def ask_net(self, count, parameters):
        numbers = Tensor.of("x", "FP32", [1, 1, count], [1.0] * count)
        answer = self.server.infer("net", json_request([numbers], parameters))
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()["parameters"]

    def setUp(self):
        self.assert_done(self.load_files("net", model_onnx=net_file()))

    def test_a_network(self):
        for count in (2, 50, 40000):
            told = self.ask_net(count, {"profile": True})
            profile = told["profile"]
            self.assertEqual([(one["index"], one["name"], one["operator"]) for one in profile],
                             [(0, "a QuantizeLinear", "onnx.QuantizeLinear"),
                              (1, "a QLinearConv", "onnx.QLinearConv"),
                              (3, "a DequantizeLinear", "onnx.DequantizeLinear")])
            kernels = told["kernel"].split("+")
            self.assertEqual([one["kernel"] for one in profile], kernels[:2] + kernels[3:])
            self.assertGreater(sum(one["ns"] for one in profile), 0)
            # compute_us is rounded to the nearest microsecond.
            self.assertLessEqual(sum(one["ns"] for one in profile), 1000 * told["compute_us"] + 500)

    def test_only_on_request(self):
        for parameters in (None, {}, {"profile": False}, {"profile": None}):
            self.assertNotIn("profile", self.ask_net(5, parameters))

    def test_an_operator(self):
        tensors = [Tensor.of("x", "UINT8", [2], [1, 2]), Tensor.of("x_scale", "FP32", [], [0.5])]
        answer = self.server.infer("onnx.DequantizeLinear",
                                   json_request(tensors, {"profile": True}))
        one, = answer.json()["parameters"]["profile"]
        self.assertEqual((one["index"], one["name"], one["operator"]),
                         (0, "", "onnx.DequantizeLinear"))

    def test_constants_that_come_with_requests(self):
        file = model(13, [node("DequantizeLinear", ["x", "scale"], ["y"])], [],
                     [value_info("x", UINT8, [2]), value_info("scale", FLOAT, [])],
                     [value_info("y", FLOAT, [2])])
        self.assert_done(self.load_files("deferred", model_onnx=file))
        tensors = [Tensor.of("x", "UINT8", [2], [1, 2]), Tensor.of("scale", "FP32", [], [0.5])]
        answer = self.server.infer("deferred", json_request(tensors, {"profile": True}))
        one, = answer.json()["parameters"]["profile"]
        self.assertEqual(one["name"], "a DequantizeLinear")

    def test_what_is_no_switch(self):
        numbers = Tensor.of("x", "FP32", [1, 1, 2], [1.0] * 2)
        for value in (1, "true", []):
            answer = self.server.infer("net", json_request([numbers], {"profile": value}))
            self.assert_error(answer, 400, "parameters.profile: expected true or false")


if __name__ == "__main__":
    unittest.main()
