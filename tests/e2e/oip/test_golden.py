"""The golden cases of tests/data."""
import json
import unittest

from elements import same_bits
from quantd import ROOT, ServerTest, Tensor, binary_request, exchange, infer_path, json_request

GOLDEN = ROOT / "tests" / "data" / "golden_cases.jsonl"


class Golden(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.server.client()
        cls.cases = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def post(self, case, binary):
        tensors = [Tensor(t["name"], t["datatype"], t["shape"], bytes.fromhex(t["raw_hex"]))
                   for t in case["inputs"]]
        parameters = dict(case["attributes"])
        for entry in case["inputs"]:
            if "strides" in entry:
                parameters[entry["name"] + ".strides"] = entry["strides"]
        path = infer_path(case["model"], case["version"])
        if binary:
            body, headers = binary_request(tensors, parameters)
        else:
            body, headers = json.dumps(json_request(tensors, parameters)), {}
        return exchange(self.client, "POST", path, body, headers)

    def check(self, name, count):
        cases = [case for case in self.cases if case["model"] == name]
        self.assertEqual(len(cases), count)
        for case in cases:
            for binary in (True, False):
                with self.subTest(case=case["id"], binary=binary, note=case["note"]):
                    self.check_one(case, self.post(case, binary))

    def check_one(self, case, answer):
        if "expect_error" in case:
            self.assert_error(answer, 400)
            return
        self.assertEqual(answer.status, 200, answer.body[:500])
        got = answer.outputs()
        self.assertEqual(list(got), [output["name"] for output in case["outputs"]])
        for output in case["outputs"]:
            datatype, shape, raw = got[output["name"]]
            self.assertEqual((datatype, shape), (output["datatype"], output["shape"]))
            self.assertTrue(same_bits(datatype, raw, bytes.fromhex(output["raw_hex"])),
                            "got %s, expected %s" % (raw.hex(), output["raw_hex"]))

    def test_dequantize_linear(self):
        self.check("onnx.DequantizeLinear", 29)

    def test_quantize_linear(self):
        self.check("onnx.QuantizeLinear", 55)

    def test_qlinear_conv(self):
        self.check("onnx.QLinearConv", 22)

    def test_directml(self):
        self.check("directml.ElementWiseDequantizeLinear", 15)

    def test_tensorflow(self):
        self.check("tensorflow.Dequantize", 21)


if __name__ == "__main__":
    unittest.main()
