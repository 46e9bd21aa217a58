"""Operators of networks, called by themselves: the golden cases of tests/data/operators over HTTP,
and what clients may ask of small calls."""
import collections
import json
import unittest

from elements import same_bits
from quantd import ROOT, ServerTest, Tensor, binary_request, exchange, infer_path, json_request

CASES = ROOT / "tests" / "data" / "operators"


def load_cases():
    """Returns model -> cases."""
    found = collections.defaultdict(list)
    for path in sorted(CASES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            found[case["model"]].append(case)
    return found


class Golden(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.server.client()
        cls.cases = load_cases()
        index = cls.server.request("POST", "/v2/repository/index").json()
        cls.models = list(dict.fromkeys(entry["name"] for entry in index))

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def post(self, case, binary):
        tensors = [Tensor(t["name"], t["datatype"], t["shape"], bytes.fromhex(t["raw_hex"]))
                   for t in case["inputs"]]
        attributes = dict(case["attributes"])
        if case["model"] == "onnx.Split" and int(case["version"]) < 18 and (
                "outputs" in case and "split" not in attributes and len(tensors) == 1):
            attributes["num_outputs"] = len(case["outputs"])  # a call names no outputs
        path = infer_path(case["model"], case["version"])
        if binary:
            body, headers = binary_request(tensors, attributes)
        else:
            body, headers = json.dumps(json_request(tensors, attributes)), {}
        return exchange(self.client, "POST", path, body, headers)

    def check(self, case, answer):
        if "expect_error" in case:
            self.assert_error(answer, 400)
            return
        self.assertEqual(answer.status, 200, answer.body[:500])
        got = list(answer.outputs().values())  # some cases have other names than the operator
        self.assertEqual(len(got), len(case["outputs"]))
        for (datatype, shape, raw), output in zip(got, case["outputs"]):
            self.assertEqual((datatype, shape), (output["datatype"], output["shape"]))
            self.assertTrue(same_bits(datatype, raw, bytes.fromhex(output["raw_hex"])),
                            "got %s, expected %s" % (raw.hex(), output["raw_hex"]))

    def test_all(self):
        for model in self.models:
            for case in self.cases[model]:
                for binary in (True, False):
                    with self.subTest(case=case["id"], binary=binary, note=case["note"]):
                        self.check(case, self.post(case, binary))

    def test_every_operator_has_cases(self):
        """The operators that were first have theirs in golden_cases.jsonl (test_golden.py)."""
        first = {"onnx.DequantizeLinear", "onnx.QuantizeLinear", "onnx.QLinearConv",
                 "directml.ElementWiseDequantizeLinear", "tensorflow.Dequantize"}
        self.assertEqual({model for model in self.models if not self.cases[model]}, first)


class Outputs(ServerTest):
    """onnx.Split makes as many outputs as its call says, and not all that its metadata has."""

    def split(self, *outputs):
        request = json_request([Tensor.of("input", "UINT8", [4], [1, 2, 3, 4])],
                               {"num_outputs": 2})
        if outputs:
            request["outputs"] = [{"name": name} for name in outputs]
        return self.server.infer("onnx.Split", request)

    def test_without_a_list(self):
        self.assertEqual(self.split().outputs(), {
            "output_0": ("UINT8", [2], b"\1\2"), "output_1": ("UINT8", [2], b"\3\4")})

    def test_some(self):
        self.assertEqual(list(self.split("output_1").outputs()), ["output_1"])

    def test_one_that_is_not_made(self):
        self.assert_error(self.split("output_1", "output_2"), 400, "outputs", "output_2")


class Small(ServerTest):
    """Calls of some 300 bytes that could take long, or much memory."""

    def refused(self, model, tensors, parameters, status, *words):
        answer = self.server.infer(model, json_request(tensors, parameters))
        self.assert_error(answer, status, *words)

    def test_long_axes(self):
        x = Tensor.of("X", "UINT8", [3], [1, 2, 3])
        data = Tensor.of("data", "UINT8", [3], [1, 2, 3])
        for size in (2 ** 20 + 1, 2 ** 24, 2 ** 40):
            self.refused("onnx.Resize", [x, Tensor.of("sizes", "INT64", [1], [size])], {}, 400,
                         "1048576")
            self.refused("onnx.Pad", [data, Tensor.of("pads", "INT64", [2], [size, 0])],
                         {"mode": "edge"}, 400, "1048576")
        self.refused("onnx.Pad", [data, Tensor.of("pads", "INT64", [2], [2 ** 40, 0])], {}, 413,
                     "the output")

    def test_a_table_of_a_million(self):
        x = Tensor.of("X", "UINT8", [3], [1, 2, 3])
        answer = self.server.infer("onnx.Resize", json_request(
            [x, Tensor.of("sizes", "INT64", [1], [2 ** 20])], {"binary_data_output": True}))
        self.assertEqual(answer.status, 200)
        raw = answer.outputs()["Y"][2]
        self.assertEqual((len(raw), raw[0], raw[-1]), (2 ** 20, 1, 3))

    def test_huge_windows(self):
        x = Tensor.of("X", "UINT8", [1, 1, 1, 1], [7])
        largest = 2 ** 31 - 1
        self.refused("onnx.MaxPool", [x], {"kernel_shape": [largest] * 2,
                                           "pads": [largest - 1] * 4}, 413, "the output")
        answer = self.server.infer("onnx.MaxPool", json_request(
            [x], {"kernel_shape": [8000, 8000], "pads": [4000, 4000, 4001, 4001]}))
        self.assertEqual(answer.json()["outputs"][0]["data"], [7] * 9)


if __name__ == "__main__":
    unittest.main()
