"""Inference requests: which are accepted, what they return, and which errors the others get."""
import json
import struct
import unittest

from elements import to_raw
from quantd import ServerTest, Tensor, binary_request, infer_path, json_request
from samples import (CONV, DEQUANTIZE, DEQUANTIZED, conv_tensors, dequantize_json,
                     dequantize_tensors, spoiled)


class InferTest(ServerTest):
    def assert_dequantized(self, answer):
        self.assertEqual(answer.status, 200, answer.body[:500])
        self.assertEqual(answer.outputs()["y"], ("FP32", [4], to_raw("FP32", DEQUANTIZED)))

    def assert_refused(self, request, *words, headers=None, status=400):
        answer = self.server.infer(DEQUANTIZE, request, headers=headers)
        self.assert_error(answer, status, *words)
        return answer


class Json(InferTest):
    def test_answer(self):
        answer = self.server.infer(DEQUANTIZE, dequantize_json(), version=13)
        self.assert_dequantized(answer)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertIsNone(answer.headers.get("Inference-Header-Content-Length"))
        tree = answer.json()
        self.assertEqual((tree["model_name"], tree["model_version"]), (DEQUANTIZE, "13"))
        self.assertNotIn("id", tree)
        # The C++ client takes `parameters` on an output for an announcement of binary data.
        self.assertEqual(set(tree["outputs"][0]), {"name", "datatype", "shape", "data"})
        self.assertEqual(tree["outputs"][0]["data"], DEQUANTIZED)

    def test_content_type_and_accept_do_not_matter(self):
        body = json.dumps(dequantize_json())
        for content_type in ("application/x-www-form-urlencoded", "text/plain", "application/json",
                             "multipart/form-data; boundary=x", "application/octet-stream", ""):
            answer = self.server.infer(DEQUANTIZE, body, headers={
                "Content-Type": content_type, "Accept": "text/html",
                "Accept-Encoding": "gzip, deflate, br, zstd"})
            self.assert_dequantized(answer)
            self.assertIsNone(answer.headers.get("Content-Encoding"))

    def test_id(self):
        answer = self.server.infer(DEQUANTIZE, dequantize_json(id="näme \"7\"\\\u0001"))
        self.assertEqual(answer.json()["id"], "näme \"7\"\\\u0001")
        answer = self.server.infer(DEQUANTIZE, dequantize_json(id=""))
        self.assert_dequantized(answer)
        self.assertEqual(answer.json().get("id", ""), "")
        for bad in (7, True, [], {}):
            self.assert_refused(dequantize_json(id=bad), "id")

    def test_unknown_keys_are_ignored(self):
        request = dequantize_json(model_name="zzz", foo={"deep": [1, {"x": None}]})
        request["inputs"][0]["parameters"] = {"content_type": "np"}
        request["inputs"][0]["note"] = [1, 2]
        self.assert_dequantized(self.server.infer(DEQUANTIZE, request))

    def test_null_means_absent(self):
        request = dequantize_json(id=None, parameters=None, outputs=None)
        for tensor in request["inputs"]:
            tensor["parameters"] = None
        self.assert_dequantized(self.server.infer(DEQUANTIZE, request))

    def test_data_may_be_nested_to_the_shape(self):
        nested = spoiled("x", shape=[2, 2], data=[[0, 128], [129, 255]])
        answer = self.server.infer(DEQUANTIZE, nested)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["outputs"][0]["shape"], [2, 2])
        self.assertEqual(answer.json()["outputs"][0]["data"], DEQUANTIZED)

    def test_nesting_that_does_not_fit(self):
        for data in ([[0, 128, 129], [255]], [[0], [128], [129], [255]], [[[0, 128], [129, 255]]],
                     [[0, 128], 129, 255], [[0, 128], [129, 255], []]):
            self.assert_refused(spoiled("x", shape=[2, 2], data=data), "x")

    def test_element_count(self):
        self.assert_refused(spoiled("x", data=[1, 2, 3]), "x", "4", "3")
        self.assert_refused(spoiled("x", data=[1, 2, 3, 4, 5]), "x", "4")
        self.assert_refused(spoiled("x", data=[]), "x", "4")

    def test_scalar(self):
        for data in ([0.5], 0.5):
            self.assert_dequantized(self.server.infer(DEQUANTIZE, spoiled("x_scale", data=data)))
        one = json_request([Tensor.of("x", "INT8", [], [-3]),
                            Tensor.of("x_scale", "FP32", [1], [2])])
        answer = self.server.infer(DEQUANTIZE, one)
        self.assertEqual(answer.outputs()["y"], ("FP32", [], to_raw("FP32", [-6])))

    def test_empty_tensor(self):
        request = json_request([Tensor.of("x", "INT8", [2, 0, 3], []),
                                Tensor.of("x_scale", "FP32", [], [2])])
        answer = self.server.infer(DEQUANTIZE, request)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["outputs"][0]["shape"], [2, 0, 3])
        self.assertEqual(answer.json()["outputs"][0]["data"], [])

    def test_integers_are_exact_and_in_range(self):
        for value in (256, -1, 1.5, 1.0, 1e2, "1", "NaN", True, None, [1], {},
                      18446744073709551616, -9223372036854775809, 1e400):
            self.assert_refused(spoiled("x", data=[0, value, 129, 255]), "x")
        self.assert_refused(spoiled("x", data=[0, 1, 300, 2]), "x", "300")
        x = Tensor.of("x", "INT32", [3], [-2147483648, 2147483647, 16777217])
        answer = self.server.infer(DEQUANTIZE, json_request([x, Tensor.of("x_scale", "FP32", [],
                                                                          [1])]))
        self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", [-2147483648, 2147483648,
                                                                  16777216]))

    def test_numbers_are_strict_json(self):
        for text in ("01", "1.", ".5", "+1", "0x10", "1e", "--1", "1 2", "- 1", "1,", ",1", "NaN"):
            body = json.dumps(dequantize_json()).replace("[0, 128, 129, 255]",
                                                         "[%s, 128, 129, 255]" % text)
            self.assert_refused(body)
        for text in (".5", "5.", "+5", "nan", "Inf", "1e999", "-1e999", "3.5e38"):
            body = json.dumps(dequantize_json()).replace("[0.5]", "[%s]" % text)
            self.assert_refused(body, "x_scale")

    def test_floats_round_once(self):
        # Decimals halfway between two binary32 numbers, which a conversion by way of a double
        # rounds wrongly.
        for text, bits in (("0.1", 0x3dcccccd), ("1.00000017881393432617187499", 0x3f800001),
                           ("1.00000017881393432617187500", 0x3f800002),
                           ("1.00000017881393432617187501", 0x3f800002),
                           ("7.006492321624085e-46", 0x00000000), ("1.4e-45", 0x00000001),
                           ("3.4028235677973366e38", 0x7f7fffff),
                           ("3.4028235677973367e38", None), ("3.4028235e38", 0x7f7fffff),
                           ("-0.0", 0x80000000), ("1e-60", 0)):
            body = json.dumps(spoiled("x", shape=[1], data=[129])).replace("[0.5]", "[%s]" % text)
            if bits is None:
                self.assert_refused(body, "x_scale")
                continue
            answer = self.server.infer(DEQUANTIZE, body)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.outputs()["y"][2], struct.pack("<I", bits), text)

    def test_non_finite_floats(self):
        for text in ('"NaN"', '"Infinity"', '"-Infinity"', "NaN", "Infinity", "-Infinity"):
            body = json.dumps(spoiled("x", shape=[2], data=[129, 130])).replace("[0.5]",
                                                                               "[%s]" % text)
            answer = self.server.infer(DEQUANTIZE, body)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.json()["outputs"][0]["data"], [text.strip('"')] * 2)

    def test_negative_zero_survives(self):
        request = spoiled("x", shape=[1], data=[128])
        request["inputs"][1]["data"] = [-1.0]
        answer = self.server.infer(DEQUANTIZE, request)
        self.assertEqual(answer.outputs()["y"][2], struct.pack("<f", -0.0))

    def test_shapes(self):
        for shape in ([-4], [4.5], ["4"], "4", 4, [None], {}, [[4]], [True], [2, -2],
                      [18446744073709551616]):
            self.assert_refused(spoiled("x", shape=shape), "x")
        self.assert_refused(spoiled("x", shape=None), "x", "shape")
        for shape in ([4611686018427387904, 8], [1 << 63], [(1 << 64) - 1, (1 << 64) - 1],
                      [1 << 32, 1 << 32], [1 << 62]):
            self.assert_refused(spoiled("x", shape=shape, data=[1]), "x")
        self.assert_refused(spoiled("x", shape=[1] * 1000 + [4]), "x")
        self.assert_alive()

    def test_datatypes(self):
        self.assert_refused(spoiled("x", datatype="UINT9"), "UINT9", "UINT8")
        self.assert_refused(spoiled("x", datatype="uint8"), "uint8")
        self.assert_refused(spoiled("x", datatype=8), "x", "datatype")
        self.assert_refused(spoiled("x", datatype=None), "x", "datatype")
        for known in ("BOOL", "INT64", "FP64", "BYTES", "FP32"):
            self.assert_refused(spoiled("x", datatype=known), "x", known, "UINT8")
        # Version 13 takes no FP16 as scale, whatever the encoding.
        answer = self.server.infer(DEQUANTIZE, spoiled("x_scale", datatype="FP16"), version=13)
        self.assert_error(answer, 400, "x_scale", "FP16")
        self.assert_refused(spoiled("x_zero_point", datatype="INT8", data=[0]), "x_zero_point")

    def test_inputs(self):
        for inputs in ([], None, {}, "x", [1], [None], [[]], 3):
            self.assert_refused({"inputs": inputs}, "input")
        self.assert_refused({}, "inputs")
        request = dequantize_json()
        self.assert_refused({"inputs": request["inputs"] + [request["inputs"][0]]}, "x")
        self.assert_refused({"inputs": request["inputs"][:1]}, "x_scale")
        self.assert_refused({"inputs": request["inputs"]
                             + [dict(request["inputs"][0], name="q")]}, "q")
        self.assert_refused(spoiled("x", name=None), "name")
        self.assert_refused(spoiled("x", name=5), "name")
        self.assert_refused(spoiled("x", name="X"), "X")
        self.assert_refused(spoiled("x", data=None), "x", "data")

    def test_case_of_keys_matters(self):
        request = dequantize_json()
        self.assert_refused({"Inputs": request["inputs"]}, "inputs")

    def test_optional_input_may_be_left_out(self):
        request = dequantize_json()
        del request["inputs"][2]
        answer = self.server.infer(DEQUANTIZE, request)
        self.assertEqual(answer.json()["outputs"][0]["data"], [0, 64, 64.5, 127.5])

    def test_inputs_in_any_order(self):
        request = dequantize_json()
        request["inputs"].reverse()
        self.assert_dequantized(self.server.infer(DEQUANTIZE, request))

    def test_outputs(self):
        for outputs in ([], [{"name": "y"}], [{"name": "y", "parameters": {}}],
                        [{"name": "y", "parameters": {"binary_data": False}}]):
            answer = self.server.infer(DEQUANTIZE, dequantize_json(outputs=outputs))
            self.assert_dequantized(answer)
            self.assertIn("data", answer.json()["outputs"][0])
        for outputs in ([{"name": "z"}], [{"name": "y"}, {"name": "y"}], {}, [{}], ["y"], [7],
                        [{"name": "y", "parameters": {"classification": 0}}],
                        [{"name": "y", "parameters": {"binary_data": "yes"}}],
                        [{"name": "y", "parameters": {"binary_data": 1}}]):
            self.assert_refused(dequantize_json(outputs=outputs))
        self.assert_refused(dequantize_json(outputs=[{"name": "z"}]), "z")

    def test_parameters(self):
        self.assert_refused(dequantize_json(parameters={"triton_x": 1}), "triton_x")
        self.assert_refused(dequantize_json(parameters={"binary_data_output": "yes"}),
                            "binary_data_output")
        for bad in ([], "x", 3):
            self.assert_refused(dequantize_json(parameters=bad), "parameters")

    def test_attributes(self):
        request = dequantize_json()
        for bad in ("zero", 9, -3, 1.5, [0], {}, True):
            per_axis = json_request(
                [Tensor.of("x", "UINT8", [2, 2], [1, 2, 3, 4]),
                 Tensor.of("x_scale", "FP32", [2], [1, 2])], {"axis": bad})
            self.assert_refused(per_axis, "axis")
        self.assert_refused(dequantize_json(parameters={"block_sise": 1}), "block_sise")
        request["parameters"] = {"axis": 0}
        self.assert_error(self.server.infer(DEQUANTIZE, request, version=10), 400, "axis")

    def test_per_axis(self):
        tensors = [Tensor.of("x", "UINT8", [2, 2], [1, 2, 3, 4]),
                   Tensor.of("x_scale", "FP32", [2], [1, 10]),
                   Tensor.of("x_zero_point", "UINT8", [2], [1, 0])]
        for axis, want in ((0, [0, 1, 30, 40]), (1, [0, 20, 2, 40]), (-1, [0, 20, 2, 40]),
                           (-2, [0, 1, 30, 40])):
            answer = self.server.infer(DEQUANTIZE, json_request(tensors, {"axis": axis}))
            self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", want))
        answer = self.server.infer(DEQUANTIZE, json_request(tensors))
        self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", [0, 20, 2, 40]))

    def test_lists_as_arrays_or_text(self):
        tensors = conv_tensors([1, 2, 3, 4], [1, 1, 2, 2], [1], [1, 1, 1, 1])
        answers = []
        for pads in ([1, 0, 0, 2], "1,0,0,2", "1, 0, 0, 2"):
            answer = self.server.infer(CONV, json_request(tensors, {"pads": pads}))
            self.assertEqual(answer.status, 200, answer.body)
            answers.append(answer.outputs()["y"])
        want = ("UINT8", [1, 1, 3, 4], bytes([0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0]))
        self.assertEqual(answers, [want] * 3)
        for pads in ("1,0,0", "1,0,0,x", "1,,0,0", "", [1, 0, 0, -1], [1.5, 0, 0, 0], ["1"], 7,
                     [9223372036854775808, 0, 0, 0], [9223372036854775807, 0, 0, 1],
                     "99999999999999999999,0,0,0", [1] * 100):
            answer = self.server.infer(CONV, json_request(tensors, {"pads": pads}))
            self.assert_error(answer, 400, "pads")

    def test_malformed_json_names_the_offset(self):
        good = json.dumps(dequantize_json()).encode()
        for body in (b"", b"{", b"nonsense", b"[]", b"7", b'"x"', b"null", good[:-1], good + b"x",
                     good + good, b"\xef\xbb\xbf" + good, b"\xff\xfe" + good,
                     good.replace(b'"name"', b"'name'"), good.replace(b",", b",,", 1),
                     good.replace(b"}]", b"},]"), good + b"\0", b"\0" + good,
                     good.replace(b'"x"', b'"\xff"', 1), good.replace(b'"x"', b'"x\n"', 1),
                     good.replace(b'"x"', b'"\\ud800"', 1)):
            self.assert_error(self.server.infer(DEQUANTIZE, body), 400)
        answer = self.server.infer(DEQUANTIZE, b'{"inputs": [}')
        self.assert_error(answer, 400, "12")

    def test_escaped_nul_in_a_name(self):
        body = json.dumps(dequantize_json()).replace('"x"', '"x\\u0000y"')
        self.assert_refused(body)

    def test_errors_do_not_echo_broken_bytes(self):
        answer = self.server.infer(DEQUANTIZE, dequantize_json(inputs=[
            {"name": "\"<\\\u0007é", "datatype": "UINT8", "shape": [1], "data": [1]}]))
        self.assert_error(answer, 400)

    def test_repeated_keys(self):
        # Some JSON readers take the first value, and some the last. The server must do one of the
        # two, or refuse.
        body = '{"inputs": [], ' + json.dumps(dequantize_json())[1:]
        self.assertIn(self.server.infer(DEQUANTIZE, body).status, (200, 400))
        self.assert_alive()

    def test_timing_in_the_answer(self):
        answer = self.server.infer(DEQUANTIZE, dequantize_json())
        stages = answer.stages()
        self.assertEqual(list(stages), ["receive", "queue", "decode", "compute", "encode", "total"])
        parameters = answer.json()["parameters"]
        for name in ("receive", "queue", "decode", "compute"):
            self.assertAlmostEqual(parameters[name + "_us"] / 1000, stages[name], delta=0.0011)
        self.assertRegex(parameters["kernel"], "^[a-z0-9_]+$")
        parts = sum(milliseconds for name, milliseconds in stages.items() if name != "total")
        self.assertLessEqual(parts, stages["total"] + 0.005)
        self.assertGreater(stages["total"], 0)

    def test_timing_of_an_error(self):
        stages = self.assert_refused(spoiled("x", data=[1])).stages()
        self.assertIn("receive", stages)
        self.assertIn("total", stages)
        self.assertNotIn("compute", stages)


class Binary(InferTest):
    def post(self, tensors, **more):
        body, headers = binary_request(tensors, **more)
        return self.server.infer(DEQUANTIZE, body, headers=headers)

    def send(self, request, tail, header=None):
        head = json.dumps(request).encode()
        value = str(len(head)) if header is None else header
        return self.server.infer(DEQUANTIZE, head + tail,
                                 headers={"Inference-Header-Content-Length": value})

    def announced(self, **sizes):
        """Returns dequantize_json with binary sizes instead of data for the named inputs."""
        request = dequantize_json()
        for tensor in request["inputs"]:
            if tensor["name"] in sizes:
                del tensor["data"]
                tensor["parameters"] = {"binary_data_size": sizes[tensor["name"]]}
        return request

    def test_answer(self):
        answer = self.post(dequantize_tensors())
        self.assert_dequantized(answer)
        self.assertEqual(answer.headers["Content-Type"], "application/octet-stream")
        head = answer.header_part()
        self.assertEqual(head["outputs"], [{"name": "y", "datatype": "FP32", "shape": [4],
                                            "parameters": {"binary_data_size": 16}}])
        self.assertEqual(int(answer.headers["Content-Length"]), len(answer.body))

    def test_mixed(self):
        for names in (("x",), ("x_scale",), ("x_zero_point",), ("x", "x_zero_point")):
            self.assert_dequantized(self.post(dequantize_tensors(), json_names=names))

    def test_blobs_follow_the_order_of_the_inputs(self):
        self.assert_dequantized(self.post(list(reversed(dequantize_tensors()))))

    def test_json_output_for_binary_input(self):
        answer = self.send(self.announced(x=4), bytes([0, 128, 129, 255]))
        self.assert_dequantized(answer)
        self.assertEqual(answer.headers["Content-Type"], "application/json")

    def test_header_name_in_any_case(self):
        body, headers = binary_request(dequantize_tensors())
        value = headers["Inference-Header-Content-Length"]
        answer = self.server.infer(DEQUANTIZE, body,
                                   headers={"inference-header-content-length": value})
        self.assert_dequantized(answer)

    def test_blanks_behind_the_header(self):
        body, headers = binary_request(dequantize_tensors())
        value = headers["Inference-Header-Content-Length"] + " \t "
        self.assert_dequantized(self.server.infer(
            DEQUANTIZE, body, headers={"Inference-Header-Content-Length": value}))

    def test_header_as_long_as_the_body(self):
        # The C++ client sends the header with every request.
        self.assert_dequantized(self.send(dequantize_json(id=""), b""))

    def test_which_outputs_are_binary(self):
        for listed, request_wide, binary in (
                (None, True, True), (None, False, False), (None, None, False),
                (True, None, True), (True, False, True), (False, True, False),
                ("absent", True, False), ("absent", None, False)):
            request = dequantize_json()
            if request_wide is not None:
                request["parameters"] = {"binary_data_output": request_wide}
            if listed is not None:
                request["outputs"] = [{"name": "y"}]
                if listed != "absent":
                    request["outputs"][0]["parameters"] = {"binary_data": listed}
            answer = self.server.infer(DEQUANTIZE, request)
            self.assert_dequantized(answer)
            self.assertEqual("Inference-Header-Content-Length" in answer.headers, binary,
                             (listed, request_wide))

    def test_empty_tensor(self):
        answer = self.post([Tensor("x", "UINT8", [0, 3], b""),
                            Tensor.of("x_scale", "FP32", [], [1])])
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertIsNone(answer.headers.get("Inference-Header-Content-Length"))
        self.assertEqual(answer.json()["outputs"][0]["parameters"], {"binary_data_size": 0})

    def test_null_data_beside_a_binary_size(self):
        request = self.announced(x=4)
        request["inputs"][0]["data"] = None
        self.assert_dequantized(self.send(request, bytes([0, 128, 129, 255])))

    def test_bad_header_values(self):
        for value in ("abc", "-1", "99999999999", "12abc", "0x10", "1e2", "+5", " ", "",
                      "18446744073709551617", "340282366920938463463374607431768211456", "1,2"):
            self.assert_error(self.send(dequantize_json(), b"", value), 400,
                              "Inference-Header-Content-Length")
        size = len(json.dumps(dequantize_json()))
        self.assert_error(self.send(dequantize_json(), b"", str(size + 1)), 400)
        self.assert_error(self.send(dequantize_json(), b"", str(size - 1)), 400)
        self.assert_error(self.send(dequantize_json(), b"", "0"), 400)
        self.assert_alive()

    def test_two_headers(self):
        head = json.dumps(dequantize_json())
        client = self.server.client()
        client.putrequest("POST", infer_path(DEQUANTIZE))
        client.putheader("Content-Length", str(len(head)))
        client.putheader("Inference-Header-Content-Length", "5")
        client.putheader("Inference-Header-Content-Length", str(len(head)))
        client.endheaders(head.encode())
        self.assertEqual(client.getresponse().status, 400)
        client.close()

    def test_no_header(self):
        head = json.dumps(self.announced(x=4)).encode()
        answer = self.server.infer(DEQUANTIZE, head + bytes([0, 128, 129, 255]))
        self.assert_error(answer, 400, "Inference-Header-Content-Length")
        self.assert_error(self.server.infer(DEQUANTIZE, self.announced(x=4)), 400,
                          "Inference-Header-Content-Length")

    def test_sizes_that_do_not_fit(self):
        self.assert_error(self.send(self.announced(x=3), bytes(3)), 400, "x", "4", "3")
        self.assert_error(self.send(self.announced(x=4), bytes(3)), 400, "x")
        self.assert_error(self.send(self.announced(x=4), bytes(5)), 400)
        self.assert_error(self.send(self.announced(x=4, x_zero_point=1), bytes(4)), 400,
                          "x_zero_point")
        self.assert_error(self.send(self.announced(x_scale=3), bytes(3)), 400, "x_scale")
        for size in (-1, 4.5, "4", True, [4], 18446744073709551620, 1e300):
            self.assert_error(self.send(self.announced(x=size), bytes(4)), 400, "binary_data_size")

    def test_data_and_binary_size(self):
        request = dequantize_json()
        request["inputs"][0]["parameters"] = {"binary_data_size": 4}
        self.assert_error(self.send(request, bytes(4)), 400, "x")

    def test_shared_memory_is_refused(self):
        request = dequantize_json()
        del request["inputs"][0]["data"]
        request["inputs"][0]["parameters"] = {"shared_memory_region": "r",
                                              "shared_memory_byte_size": 4}
        answer = self.server.infer(DEQUANTIZE, request)
        self.assertIn(answer.status, (400, 404, 501))
        self.assert_error(answer, answer.status)

    def test_unaligned_tensors(self):
        # Binary data has no padding, so the scale may start at any address.
        for length in range(1, 9):
            x = Tensor("x", "UINT8", [length], bytes(range(length)))
            answer = self.post([x, Tensor.of("x_scale", "FP32", [1], [0.25])])
            self.assertEqual(answer.outputs()["y"][2],
                             to_raw("FP32", [value / 4 for value in range(length)]))

    def test_every_truncation(self):
        body, headers = binary_request(dequantize_tensors())
        for length in range(0, len(body), 7):
            answer = self.server.infer(DEQUANTIZE, body[:length], headers=headers)
            self.assert_error(answer, 400)
        self.assert_alive()

    def test_timing_in_the_answer(self):
        answer = self.post(dequantize_tensors())
        self.assertEqual(len(answer.stages()), 6)
        self.assertIn("compute_us", answer.header_part()["parameters"])


if __name__ == "__main__":
    unittest.main()
