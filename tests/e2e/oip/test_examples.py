"""Sends every example (see examples.py) over HTTP."""
import unittest

from elements import same_bits, to_raw
from examples import LENGTH, example_request, load_examples
from quantd import ServerTest, Tensor, binary_request, exchange, infer_path


class Examples(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def post(self, example, body, headers):
        path = infer_path(example["model"], example.get("version"))
        return exchange(self.client, "POST", path, body, headers)

    def send(self, example):
        """Sends the example unchanged."""
        body, headers = example_request(example)
        return self.post(example, body, headers)

    def assert_outputs(self, answer, expected):
        got = answer.outputs()
        self.assertEqual(list(got), [output["name"] for output in expected])
        for output in expected:
            datatype, shape, raw = got[output["name"]]
            self.assertEqual((datatype, shape), (output["datatype"], output["shape"]))
            want = to_raw(datatype, output["data"])
            self.assertTrue(same_bits(datatype, raw, want), (raw.hex(), want.hex()))

    def assert_ok(self, answer, expect):
        self.assertEqual(answer.status, 200, answer.body[:500])
        self.assert_outputs(answer, expect["outputs"])
        binary = expect.get("binary", False)
        self.assertEqual(LENGTH in answer.headers,
                         binary and any(output["data"] for output in expect["outputs"]))
        self.assertEqual(answer.headers["Content-Type"],
                         "application/octet-stream" if LENGTH in answer.headers
                         else "application/json")
        tree = answer.header_part() if LENGTH in answer.headers else answer.json()
        self.assertEqual(tree.get("id"), expect.get("id"))
        if "model_version" in expect:
            self.assertEqual(tree["model_version"], expect["model_version"])

    def test_good(self):
        examples = load_examples("ok_")
        self.assertGreaterEqual(len(examples), 100)
        for name, example in examples.items():
            with self.subTest(name=name, about=example["about"]):
                self.assert_ok(self.send(example), example["expect"])

    def test_good_with_every_tensor_binary(self):
        """Sends the same tensors as binary data, and gets binary outputs. The bytes must be the
        same."""
        done = 0
        for name, example in load_examples("ok_").items():
            tensors = plain_tensors(example)
            if tensors is None:
                continue
            with self.subTest(name=name):
                parameters = example["request"].get("parameters")
                body, headers = binary_request(tensors, parameters)
                answer = self.post(example, body, headers)
                self.assertEqual(answer.status, 200, answer.body[:500])
                self.assert_outputs(answer, example["expect"]["outputs"])
                done += 1
        self.assertGreaterEqual(done, 20)

    def test_bad(self):
        examples = load_examples("bad_")
        self.assertGreaterEqual(len(examples), 201)
        for name, example in examples.items():
            with self.subTest(name=name, about=example["about"]):
                expect = example["expect"]
                self.assert_error(self.send(example), expect["status"],
                                  *expect.get("error_contains", []))
        self.assert_alive()


def plain_tensors(example):
    """Returns the inputs of an example as tensors, or None if they are not all JSON data, or if the
    answer's outputs are no tensors."""
    request = example.get("request")
    if request is None or any(not isinstance(tensor.get("data"), (list, int, float))
                              for tensor in request["inputs"]):
        return None
    if any("classification" in (output.get("parameters") or {})
           for output in request.get("outputs") or []):
        return None
    return [Tensor(tensor["name"], tensor["datatype"], tensor["shape"],
                   to_raw(tensor["datatype"], tensor["data"])) for tensor in request["inputs"]]


if __name__ == "__main__":
    unittest.main()
