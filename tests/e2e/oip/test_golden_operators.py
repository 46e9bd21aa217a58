"""The golden cases of tests/data/operators, of every operator with an endpoint, over HTTP."""
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
        path = infer_path(case["model"], case["version"])
        if binary:
            body, headers = binary_request(tensors, case["attributes"])
        else:
            body, headers = json.dumps(json_request(tensors, case["attributes"])), {}
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


if __name__ == "__main__":
    unittest.main()
