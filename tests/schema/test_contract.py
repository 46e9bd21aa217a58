"""Requests and answers: every example, and every path and status, on a live server."""
import re
import unittest

from contract import (DOCUMENT, EXAMPLES, METHODS, answer_problem, example_json,
                      request_schema, resolve, response_problem, why_not)
from examples import example_request
from quantd import ServerTest, infer_path

# Rules that a schema of the JSON cannot express, and the examples that only these rules refuse.
# Every other bad example must fail the schema: it has a wrong type, name, datatype, attribute or
# range, or lacks something, or has it twice.
BEYOND_THE_SCHEMA = {
    "the header, and the bytes behind the JSON": """
        bad_binary_header_huge bad_binary_header_large bad_binary_header_short
        bad_binary_header_sign bad_binary_header_tail bad_binary_header_text
        bad_binary_header_zero bad_binary_left_over bad_binary_size bad_binary_truncated
        bad_binary_without_header bad_fp16_binary_size bad_int4_binary_short
        bad_int4_binary_unpacked bad_strides_binary""",
    "whether there is shared memory": """
        bad_shared_memory""",
    "how a number is written, and members that come twice": """
        bad_data_exponent bad_data_fraction bad_data_minus_zero bad_fp8_minus_zero
        bad_json_duplicate_data bad_json_duplicate_key bad_uint2_fraction""",
    "which numbers a float8 has": """
        bad_fp8_between bad_fp8_hair bad_fp8e8m0_three""",
    "the data, against the shape": """
        bad_data_bare bad_data_nested_wrong bad_data_ragged bad_data_too_deep bad_data_too_few
        bad_data_too_many bad_json_deep_data bad_shape_huge bad_strides_data bad_strides_nested""",
    "products of sizes": """
        bad_carrier_shape_overflow bad_shape_overflow bad_strides_overflow""",
    "one input's shape or datatype, against another's": """
        bad_blocked_shape bad_conv_channels bad_conv_kernel_too_large bad_conv_rank
        bad_conv_zero_point_datatype bad_datatype_zero_point bad_directml_empty bad_directml_rank
        bad_directml_sizes bad_fp8_zero_point bad_quantize_blocked_shape
        bad_quantize_scale_datatype bad_quantize_zero_point_shape bad_zero_point_datatype_int4""",
    "an attribute, against the inputs or another attribute": """
        bad_carrier_bytes bad_carrier_datatype_missing bad_carrier_datatype_too_old
        bad_carrier_declared bad_carrier_no_input bad_carrier_shape_missing bad_conv_kernel_shape
        bad_conv_pads_length bad_fp8e8m0_output bad_parameter_range
        bad_quantize_output_dtype_too_old bad_quantize_output_dtype_zero_point
        bad_strides_length bad_strides_no_input bad_tensorflow_bfloat16_scaled
        bad_tensorflow_min_first_axis bad_tensorflow_range_shape""",
}


class Requests(unittest.TestCase):
    def test_good(self):
        for name, example in EXAMPLES.items():
            if name.startswith("ok_"):
                with self.subTest(name=name):
                    schema, _ = request_schema(example["model"], example.get("version"))
                    self.assertIsNone(why_not(schema, example_json(example)))

    def test_bad(self):
        """A bad example either is no JSON, or names an unknown model, or fails the schema, or is
        listed above, and only one of these."""
        broken, unknown, refused, accepted = [], [], [], []
        for name, example in EXAMPLES.items():
            if not name.startswith("bad_"):
                continue
            if example["expect"]["status"] == 404:
                unknown.append(name)
                continue
            schema, _ = request_schema(example["model"], example.get("version"))
            try:
                tree = example_json(example)
            except ValueError:
                broken.append(name)
                continue
            (refused if why_not(schema, tree) else accepted).append(name)
        listed = " ".join(BEYOND_THE_SCHEMA.values()).split()
        print("bad examples: %d fail the schema, %d are no JSON, %d have an unknown path, %d are "
              "beyond a schema" % (len(refused), len(broken), len(unknown), len(accepted)))
        self.assertEqual(sorted(accepted), sorted(listed))
        self.assertGreaterEqual(len(refused), 90)


class Answers(ServerTest):
    FLAGS = ("--max-body-bytes", "1M")

    def assert_described(self, method, path, answer, status=None):
        if status is not None:
            self.assertEqual(answer.status, status, answer.body)
        self.assertIsNone(answer_problem(method, path, answer))

    def test_examples(self):
        statuses = {}
        for name, example in EXAMPLES.items():
            with self.subTest(name=name):
                path = infer_path(example["model"], example.get("version"))
                body, headers = example_request(example)
                answer = self.server.request("POST", path, body, headers)
                described = path
                # The generic path, because these models have no path of their own.
                if answer.status == 404:
                    described = "/v2/models/m/versions/1/infer"
                self.assert_described("POST", described, answer, example["expect"]["status"])
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
        self.assertEqual(set(statuses), {200, 400, 404})

    def paths(self):
        """Yields every path with names that exist and with names that do not, and whether they
        exist."""
        for template in DOCUMENT["paths"]:
            good = template
            for key, value in (("model", "onnx.QLinearConv"), ("version", "10"), ("region", "r")):
                good = good.replace("{%s}" % key, value)
            yield template, good, True
            for key in ("model", "version"):
                if "{%s}" % key in template:
                    yield template, template.replace("{%s}" % key, "17x").replace(
                        "{model}", "onnx.QLinearConv").replace("{version}", "10"), False

    def test_get(self):
        for template, path, known in self.paths():
            if "get" not in DOCUMENT["paths"][template]:
                continue
            with self.subTest(path=path):
                answer = self.server.get(path)
                known = known and "{region}" not in template  # no region is registered
                self.assert_described("GET", template, answer, 200 if known else 404)
                head = self.server.request("HEAD", path)
                self.assertEqual((head.status, head.body), (answer.status, b""))
                self.assertEqual(head.headers["Content-Type"], answer.headers["Content-Type"])

    def test_post(self):
        for template, path, known in self.paths():
            if "post" not in DOCUMENT["paths"][template]:
                continue
            with self.subTest(path=path):
                answer = self.server.request("POST", path)
                described = set(DOCUMENT["paths"][template]["post"]["responses"])
                expected = "400" if path.endswith("/infer") else (
                    "200" if "200" in described else "501")
                if not known and "404" in described:
                    expected = "404"
                if "/repository/models/" in path:
                    expected = "503"  # the model control mode is none
                if template.endswith("/register"):
                    expected = "501"  # shared memory is off
                self.assert_described("POST", template, answer, int(expected))

    def test_other_methods(self):
        """A method without a described operation gets a 405, in its one described form."""
        response = resolve(DOCUMENT["components"]["responses"]["MethodNotAllowed"])
        for template, path, known in self.paths():
            if not known:
                continue
            item = DOCUMENT["paths"][template]
            for method in METHODS:
                if method in item or (method == "head" and "get" in item):
                    continue
                with self.subTest(path=path, method=method):
                    answer = self.server.request(method.upper(), path)
                    self.assertEqual(answer.status, 405)
                    self.assertEqual(answer.headers["Allow"], ", ".join(
                        ["GET, HEAD"] * ("get" in item) + ["POST"] * ("post" in item)))
                    if method != "head":
                        self.assertIsNone(response_problem(response, answer))

    def test_timeout(self):
        """A request with a timeout of one microsecond gets a 503 if it waits longer. This one is
        too long for the loop to read itself, so a worker must be woken for it."""
        path = "/v2/models/onnx.DequantizeLinear/infer"
        request = dict(EXAMPLES["ok_dequantize"]["request"], parameters={"timeout": 1},
                       id="x" * 5000)
        answer = self.server.infer("onnx.DequantizeLinear", request)
        self.assert_described("POST", path, answer, 503)

    def test_unknown_path(self):
        answer = self.server.get("/v3")
        self.assertEqual(answer.status, 404)
        self.assertIsNone(response_problem(
            resolve(DOCUMENT["components"]["responses"]["NotFound"]), answer))

    def test_the_range_between_versions(self):
        """Versions without a path of their own run on the generic path."""
        example = EXAMPLES["ok_dequantize_version_between"]
        path = infer_path(example["model"], example["version"])
        self.assertFalse(re.fullmatch(r"10|13|19|21|23|24|25", example["version"]))
        answer = self.server.infer(example["model"], example["request"], example["version"])
        self.assert_described("POST", path, answer, 200)


if __name__ == "__main__":
    unittest.main()
