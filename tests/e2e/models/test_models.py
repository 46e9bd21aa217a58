"""Models that calls load."""
import json
import struct
import threading
import time
import unittest

from loading import (ModelTest, chain_file, conv_file, convolve, external_file, kept_binary_request,
                     kept_request)
from quantd import (LENGTH, SANITIZED, SLOW, Reader, Server, Tensor, exchange, infer_path,
                    json_request, parse_metrics, run_threads)

WEIGHTS = [1, 2, 1]
ROW = Tensor.of("x", "UINT8", [1, 1, 20], list(range(20)))


class Sources(ModelTest):
    """The sources of a model, all of which make a model like any other."""

    def tearDown(self):
        self.post("layer", "unload")

    def test_onnx_file(self):
        self.assert_done(self.load_files("layer", model_onnx=conv_file(WEIGHTS)))
        self.assert_convolves("layer", WEIGHTS)
        self.assert_convolves("layer", WEIGHTS, "1")

    def test_onnx_file_with_a_configuration(self):
        config = {"name": "layer", "backend": "onnxruntime", "max_batch_size": 0,
                  "input": [{"name": "x", "data_type": "TYPE_UINT8", "dims": [-1, 1, "-1"]}],
                  "output": [{"name": "y", "data_type": "TYPE_UINT8", "dims": [-1, -1, -1]}],
                  "instance_group": [{"kind": "KIND_CPU", "count": 2}]}
        self.assert_done(self.load_files("layer", config, model_onnx=conv_file(WEIGHTS)))
        self.assert_convolves("layer", WEIGHTS)

    def test_a_configuration_narrows_shapes(self):
        config = {"input": [{"name": "x", "dims": [1, 1, 4]}]}
        self.assert_done(self.load_files("layer", config, model_onnx=conv_file(WEIGHTS)))
        self.assertEqual(self.ask("layer", [1, 2, 3, 4]).status, 200)
        self.assert_error(self.ask("layer", [1, 2, 3, 4, 5]), 400, "[1,1,4]")

    def test_a_batch_has_a_bound(self):
        config = {"max_batch_size": 2, "input": [{"name": "x", "dims": [1, -1]}]}
        self.assert_done(self.load_files("layer", config, model_onnx=conv_file(WEIGHTS)))
        for batch, status in ((0, 200), (1, 200), (2, 200), (3, 400)):
            x = Tensor.of("x", "UINT8", [batch, 1, 4], [1] * 4 * batch)
            answer = self.server.infer("layer", json_request([x]))
            self.assertEqual(answer.status, status, answer.body)
        self.assert_error(answer, 400, "at most 2 (max_batch_size), got 3")
        tree = self.server.get("/v2/models/layer/config").json()
        self.assertEqual((tree["max_batch_size"], tree["input"][0]["dims"]), (2, [1, -1]))
        tree = self.server.get("/v2/models/layer").json()
        self.assertEqual(tree["inputs"][0]["shape"], [-1, 1, -1])
        fixed = conv_file(WEIGHTS, dims=(1, 1, "length"))
        self.assert_error(self.load_files("layer", config, model_onnx=fixed), 400, "max_batch_size")

    def test_a_chain_of_operators(self):
        self.assert_done(self.load_files("layer", model_onnx=chain_file()))
        numbers = [3, 1, 4, 1, 5]
        x = Tensor.of("x", "FP32", [1, 1, 5], numbers)
        answer = self.server.infer("layer", json_request([x])).json()
        expected = convolve(convolve(numbers, [1, 2]), [1, 2])
        self.assertEqual(answer["outputs"][0]["data"], [number / 2 for number in expected])
        self.assertEqual(len(answer["parameters"]["kernel"].split("+")), 4)

    def test_request_as_body(self):
        declared = {"name": "x", "datatype": "UINT8", "shape": [1, 1, -1]}
        self.assert_done(self.post("layer", "load", kept_request(WEIGHTS, declared)))
        self.assert_convolves("layer", WEIGHTS)
        tree = self.server.get("/v2/models/layer").json()
        self.assertEqual(tree["inputs"], [declared])
        self.assertEqual(tree["outputs"], [{"name": "y", "datatype": "UINT8",
                                            "shape": [1, 1, -1]}])

    def shapes(self):
        """Returns the output's shape, which metadata and configuration must both have."""
        shape = self.server.get("/v2/models/layer").json()["outputs"][0]["shape"]
        config = self.server.get("/v2/models/layer/config").json()
        self.assertEqual(config["output"][0]["dims"], shape)
        return shape

    def test_shapes_of_outputs(self):
        file = conv_file([1, 2, 3] * 4, dims=("n", 1, "length"), w_dims=[4, 1, 3],
                         strides=[32], kernel_shape=[3])
        self.assert_done(self.load_files("layer", model_onnx=file))
        self.assertEqual(self.shapes(), [-1, 4, -1])
        config = {"input": [{"name": "x", "dims": [2, 1, 67]}]}
        self.assert_done(self.load_files("layer", config, model_onnx=file))
        self.assertEqual(self.shapes(), [2, 4, 3])
        config["output"] = [{"name": "y", "dims": [2, 4, 2]}]
        self.assert_error(self.load_files("layer", config, model_onnx=file), 400,
                          'output 0 ("y")', "expected [2,4,3]", "got [2,4,2]")

    def test_shapes_that_no_request_could_have(self):
        wrong = {"name": "x", "datatype": "UINT8", "shape": [1, 3, 6]}
        answer = self.post("layer", "load", kept_request(WEIGHTS, wrong))
        self.assert_error(answer, 400, "shapes: x: expected C = 1", "[1,3,6]")
        file = conv_file(WEIGHTS, dims=(1, 1, 2))
        self.assert_error(self.load_files("layer", model_onnx=file), 400, "node 0",
                          "fit in D1, got 2")

    def test_request_without_a_declaration(self):
        # x_zero_point leaves only one possible datatype for x.
        self.assert_done(self.post("layer", "load", kept_request(WEIGHTS, model_version="10")))
        self.assert_convolves("layer", WEIGHTS)
        tree = self.server.get("/v2/models/layer").json()
        self.assertEqual([port["datatype"] for port in tree["inputs"]], ["UINT8"])

    def test_several_datatypes_need_a_declaration(self):
        request = json_request([Tensor.of("x_scale", "FP32", [], [0.5])],
                               model_name="onnx.DequantizeLinear")
        self.assert_error(self.post("layer", "load", request), 400, '"x"', "datatype")
        request["inputs"].append({"name": "x", "datatype": "INT8", "shape": [-1]})
        self.assert_done(self.post("layer", "load", request))
        x = Tensor.of("x", "INT8", [3], [-2, 0, 5])
        answer = self.server.infer("layer", json_request([x])).json()
        self.assertEqual(answer["outputs"][0]["data"], [-1, 0, 2.5])

    def test_operators_of_others(self):
        request = json_request([Tensor.of("min_range", "FP32", [], [0]),
                                Tensor.of("max_range", "FP32", [], [255])],
                               model_name="tensorflow.Dequantize", model_version=1,
                               parameters={"mode": "MIN_COMBINED"})
        request["inputs"].append({"name": "input", "datatype": "UINT8", "shape": [-1]})
        self.assert_done(self.post("layer", "load", request))
        x = Tensor.of("input", "UINT8", [3], [0, 7, 255])
        answer = self.server.infer("layer", json_request([x])).json()
        self.assertEqual(answer["outputs"][0]["data"], [0, 7, 255])

    def test_request_with_binary_tensors(self):
        text, blobs = kept_binary_request(WEIGHTS)
        answer = self.post("layer", "load", text + blobs, {LENGTH: str(len(text))})
        self.assert_done(answer)
        self.assert_convolves("layer", WEIGHTS)

    def test_request_as_files(self):
        text, blobs = kept_binary_request(WEIGHTS)
        self.assert_done(self.load_files("layer", "{}", request_json=text, request_bin=blobs))
        self.assert_convolves("layer", WEIGHTS)
        self.assert_error(self.load_files("layer", request_json=text), 400,
                          "layer/1/request.json: ", "request.bin has only 0 left")
        answer = self.load_files("layer", request_json=text, request_bin=blobs + b"12")
        self.assert_error(answer, 400, "request.bin: expected its end", "got 2 bytes more")

    def test_external_data_in_the_call(self):
        weights = struct.pack("5b", 9, *WEIGHTS, 9)
        files = {"file:1/model.onnx": external_file("weights.bin", 1),
                 "file:1/weights.bin": weights}
        self.assert_done(self.load_named("layer", None, files))
        self.assert_convolves("layer", WEIGHTS)
        answer = self.load_named("layer", None, dict(files, **{"file:1/weights.bin": b"123"}))
        self.assert_error(answer, 400, "weights.bin", "at least 3 bytes from 1 on")
        del files["file:1/weights.bin"]
        self.assert_error(self.load_named("layer", None, files), 400, "file:1/weights.bin")
        self.assert_convolves("layer", WEIGHTS)

    def test_escapes_that_json_allows_in_base64(self):
        body = json.dumps({"parameters": {"file:1/model.onnx": "@"}})
        import base64  # pylint: disable=import-outside-toplevel
        text = base64.b64encode(conv_file(list(range(-1, 120)))).decode()
        text = text.replace("/", "\\/").replace("+", "\\u002b").replace("=", "\\u003D")
        self.assertIn("\\", text)
        self.assert_done(self.post("layer", "load", body.replace("@", text).encode()))

    def test_versions(self):
        files = {"file:%d/model.onnx" % version: conv_file([version, 1])
                 for version in (2, 10, 3)}
        self.assert_done(self.load_named("layer", "{}", files))
        self.assertEqual([entry["version"] for entry in self.entries("layer")], ["10"])
        self.assert_error(self.ask("layer", [1, 2, 3], "2"), 404, "10")
        config = self.server.get("/v2/models/layer/config").json()
        self.assertEqual(config["version_policy"], {"latest": {"num_versions": 1}})
        for policy, expected in (({"all": {}}, [2, 3, 10]),
                                 ({"latest": {"num_versions": 2}}, [3, 10]),
                                 ({"specific": {"versions": [2, 3]}}, [2, 3])):
            self.assert_done(self.load_named("layer", {"version_policy": policy}, files))
            tree = self.server.get("/v2/models/layer").json()
            self.assertEqual(tree["versions"], [str(version) for version in expected])
            config = self.server.get("/v2/models/layer/config").json()
            self.assertEqual(config["version_policy"], policy)
            self.assert_done(self.load_named("layer", config, files))
            self.assertEqual(self.server.get("/v2/models/layer").json(), tree)
            for version in expected:
                self.assert_convolves("layer", [version, 1], version)
            self.assert_convolves("layer", [expected[-1], 1])

    def test_like_any_other_model(self):
        self.assert_done(self.load_files("layer", model_onnx=conv_file(WEIGHTS)))
        self.assert_convolves("layer", WEIGHTS)
        tree = self.server.get("/v2/models/layer").json()
        self.assertEqual(tree["inputs"],
                         [{"name": "x", "datatype": "UINT8", "shape": [-1, 1, -1]}])
        self.assertEqual(tree["outputs"],
                         [{"name": "y", "datatype": "UINT8", "shape": [-1, 1, -1]}])
        self.assertEqual((tree["platform"], tree["versions"]), ("onnx_onnxv1", ["1"]))
        config = self.server.get("/v2/models/layer/config").json()
        self.assertEqual([port["name"] for port in config["input"] + config["output"]],
                         ["x", "y"])
        self.assertEqual(self.server.get("/v2/models/layer/versions/1/ready").status, 200)
        self.assertEqual(self.server.metric_once(1, "nv_inference_request_success", model="layer",
                                                 version="1"), 1)
        stats = self.server.get("/v2/models/layer/stats").json()["model_stats"]
        self.assertEqual([(one["name"], one["version"], one["inference_count"]) for one in stats],
                         [("layer", "1", 1)])
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        self.assertGreater(metrics[("quantd_model_bytes", ())], 0)
        self.assertEqual(metrics[("quantd_models_loaded", ())], 1)
        labels = {dict(key[1]).get("model") for key in metrics}
        self.assertIn("layer", labels)
        self.assertEqual(self.entries("layer"),
                         [{"name": "layer", "version": "1", "state": "READY"}])
        self.assert_done(self.post("layer", "unload"))
        self.assert_error(self.server.get("/v2/models/layer"), 404, "layer")
        entry, = self.entries("layer")
        self.assertEqual((entry["version"], entry["state"], entry["reason"]),
                         ("1", "UNAVAILABLE", "unloaded"))
        self.assertEqual(self.entries("layer", ready=True), [])
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        self.assertEqual(metrics[("quantd_models_loaded", ())], 0)


class Refusals(ModelTest):
    def assert_refused(self, answer, *words):
        self.assert_error(answer, 400, *words)
        self.assertEqual(self.states("layer"), ["UNAVAILABLE"])
        self.assertIn(self.entries("layer")[0]["reason"][:300], answer.json()["error"])

    def test_bodies(self):
        form = '{"parameters": {"file:1/model.onnx": "..."}}'
        self.assert_refused(self.post("layer", "load", b"{"), "malformed JSON at byte 1")
        self.assert_refused(self.post("layer", "load", b"[]"), "expected a JSON object")
        self.assert_refused(self.post("layer", "load", conv_file([1, 2])),
                            "malformed JSON at byte 0", "a file comes as base64 in JSON: " + form)
        self.assert_refused(self.post("layer", "load", {"parameters": 1}), "parameters")
        for outside in ("file:1/model.onnx", "config"):
            self.assert_refused(self.post("layer", "load", {outside: ""}),
                                '"%s": expected it inside parameters: %s' % (outside, form))
        self.assert_refused(self.post("layer", "load", {"parameters": {"x": 1}}), form, 'got "x"')
        misspelt = {"paramters": {"file:1/model.onnx": 400000 * "A"}}
        self.assert_error(self.post("layer", "load", misspelt), 413, "exceeds", form)
        self.assert_error(self.post("layer", "load", {"config": None, "parameters": {}}), 404)
        for body in ({}, {"parameters": {}}, {"path": "a"}, b""):
            self.assert_error(self.post("layer", "load", body), 404, "got neither", form)
        self.assert_refused(self.post("layer", "load", {"parameters": {"config": {}}}),
                            "parameters.config", "expected a string")
        self.assert_refused(self.post("layer", "load", b'{"parameters":{}}{}'), "malformed")
        self.assert_refused(self.post("layer", "load", b"{}x", {LENGTH: "2"}),
                            "after the JSON, got 1 bytes more")

    def test_files(self):
        for key, value, words in (
                ("file:1/model.onnx", 0, ("expected a string",)),
                ("file:1/model.onnx", None, ("expected a string",)),
                ("file:1/model.onnx", ["AAAA"], ("expected a string",)),
                ("file:1/model.onnx", "AAAAA", ("file:1/model.onnx", "base64", "character 5")),
                ("file:1/model.onnx", "A.AA", ("base64, character 1", "got '.'")),
                ("file:1/model.onnx", "", ("layer/1/model.onnx: ", "got an empty file")),
                ("file:1/other.onnx", "AAAA", ("expected model.onnx or request.json",)),
                ("file:0/model.onnx", "AAAA", ("file:VERSION/NAME",)),
                ("file:model.onnx", "AAAA", ("file:VERSION/NAME",)),
                ("file:1/", "AAAA", ("file:VERSION/NAME",)),
                ("file:", "AAAA", ("file:VERSION/NAME",)),
                ("file:99999999999999999999999/x", "AAAA", ("file:VERSION/NAME",))):
            body = {"parameters": {key: value}}
            self.assert_refused(self.post("layer", "load", body), *words)
        twice = b'{"parameters":{"file:1/model.onnx":"AAAA","file:1/model.onnx":"AAAA"}}'
        self.assert_refused(self.post("layer", "load", twice), "expected once, got twice")

    def test_both_kinds_of_files(self):
        answer = self.load_files("layer", model_onnx=conv_file(WEIGHTS), request_json=b"{}")
        self.assert_refused(answer, "expected model.onnx or request.json, got both")

    def test_configurations(self):
        for config, words in (
                ("{", ("parameters.config", "malformed JSON")),
                ({"name": "other"}, ("name", '"other"')),
                ({"backend": "python"}, ("backend",)),
                ({"sequence_batching": {}}, ("sequence_batching: expected no such key",)),
                ({"ensemble_scheduling": {}}, ("ensemble_scheduling: expected no such key",)),
                ({"input": [{"name": "z"}]}, ("the configuration's input",)),
                ({"input": [{"name": "x", "data_type": "TYPE_INT8"}]}, ("TYPE_UINT8",)),
                ({"input": [{"name": "x", "dims": [1, 2, 3]}]}, ("dims[1]",)),
                ({"version_policy": {"specific": {"versions": [7]}}}, ("got 7",)),
                ({"colour": 1}, ('"colour"',))):
            answer = self.load_files("layer", config, model_onnx=conv_file(WEIGHTS))
            self.assert_refused(answer, *words)

    def test_requests(self):
        declared = {"name": "x", "datatype": "UINT8", "shape": [1, 1, -1]}
        good = kept_request(WEIGHTS, declared)
        for spoil, words in (({"model_name": None}, ("model_name",)),
                             ({"model_name": "onnx.Nothing"}, ("model_name", "onnx.Nothing")),
                             ({"model_version": 9}, ("model_version", "9")),
                             ({"model_version": "x"}, ("model_version",)),
                             ({"parameters": {"pads": [1]}}, ("pads",)),
                             ({"inputs": good["inputs"][1:]}, ("x_scale",)),
                             ({"inputs": 1}, ("inputs",))):
            self.assert_refused(self.post("layer", "load", dict(good, **spoil)), *words)
        full = dict(good, inputs=good["inputs"][:-1] + [
            Tensor.of("x", "UINT8", [1, 1, 4], [1, 2, 3, 4]).as_json()])
        self.assert_refused(self.post("layer", "load", full), "x")

    def test_names(self):
        for name in ("onnx.QLinearConv", "onnx.layer", "directml.x", "tensorflow.", "..", "a%2Fb",
                     "a%0Ab", "x" * 129):
            for action in ("load", "unload"):
                self.assert_error(self.post(name, action), 400, "the model's name")
        self.assert_error(self.post("%25", "load"), 404)

    def test_what_is_not_there(self):
        self.assert_error(self.post("layer", "load"), 404, "--model-repository")
        self.assert_error(self.post("layer", "load", {"parameters": {"config": "{}"}}), 404)
        self.assert_error(self.post("layer", "unload"), 404, "layer")
        self.assert_error(self.post("layer", "unload", {"parameters": {"unload_dependents": 1}}),
                          400, "unload_dependents")
        self.assert_error(self.post("layer", "unload", b"["), 400)
        self.assertEqual(self.server.get("/v2/repository/models/layer/load").status, 405)
        self.assert_error(self.post("layer", "load", b"", {"Content-Encoding": "gzip"}), 415)

    def test_made_up_names_are_forgotten(self):
        for i in range(70):
            self.assert_error(self.post("made-up-%d" % i, "load", b"{"), 400)
        self.assertEqual(self.entries("made-up-5"), [])
        self.assertEqual(self.states("made-up-69"), ["UNAVAILABLE"])
        self.assert_error(self.ask("made-up-69", [1]), 404, "malformed JSON")

    def test_hostile_onnx_files(self):
        good = conv_file(WEIGHTS)
        for end in range(0, len(good), 7):
            answer = self.load_files("layer", model_onnx=good[:end])
            self.assert_refused(answer, "layer/1/model.onnx")
        for data in (b"\x3a" * 1000, b"\xff" * 1000, b"\0" * 1000, good * 2,
                     conv_file(WEIGHTS, w_dims=[1 << 40, 1 << 40, 3]),
                     conv_file(WEIGHTS, w_dims=[1, 1, 1 << 62]),
                     conv_file(WEIGHTS, w_dims=[-1, 1, 3]),
                     conv_file(WEIGHTS, colour="red"),
                     conv_file(WEIGHTS, strides=[0])):
            self.assert_refused(self.load_files("layer", model_onnx=data), "layer/1/model.onnx")
        for location in ("/etc/passwd", "../../x", "", "weights.bin"):
            answer = self.load_files("layer", model_onnx=external_file(location))
            self.assert_refused(answer, "layer/1/model.onnx")
        self.assert_alive()

    def test_a_failed_load_leaves_what_is_in_service(self):
        self.assert_done(self.load_files("kept", model_onnx=conv_file(WEIGHTS)))
        for load in (lambda: self.load_files("kept", model_onnx=b"x"),
                     lambda: self.load_files("kept", {"name": "a"}, model_onnx=conv_file([1, 1])),
                     lambda: self.post("kept", "load", b"{")):
            answer = load()
            self.assert_error(answer, 400)
            self.assert_convolves("kept", WEIGHTS)
            entry, = self.entries("kept")
            self.assertEqual(entry["state"], "READY")
            still, reason = entry["reason"].split(" failed: ", 1)
            self.assertEqual(still, "still in service, because a newer load")
            self.assertIn(reason, answer.json()["error"])
        self.assert_done(self.load_files("kept", model_onnx=conv_file([1, 1])))
        self.assert_convolves("kept", [1, 1])
        self.assertEqual(self.entries("kept"),
                         [{"name": "kept", "version": "1", "state": "READY"}])
        self.assert_done(self.post("kept", "unload"))


class Life(ModelTest):
    """Loads, unloads and requests at the same time."""

    FLAGS = ModelTest.FLAGS + ("--threads", "2")

    def tearDown(self):
        for name in ("layer", "other"):
            self.post(name, "unload")

    def test_a_thousand_reloads_under_load(self):
        """No request fails, and each answer is entirely that of one of the two models."""
        files = [conv_file([1, 2]), conv_file([2, 1])]
        expected = [convolve(list(range(20)), weights) for weights in ([1, 2], [2, 1])]
        body = json.dumps(json_request([ROW])).encode()
        self.assert_done(self.load_files("layer", model_onnx=files[0]))
        over = threading.Event()
        answers = [0, 0, 0]

        def ask(index):
            client = self.server.client()
            while not over.is_set():
                answer = exchange(client, "POST", infer_path("layer"), body)
                self.assertEqual(answer.status, 200, answer.body)
                self.assertIn(answer.json()["outputs"][0]["data"], expected)
                answers[index] += 1
            client.close()

        def reload():
            try:
                for i in range(100 if SANITIZED else 1000):
                    self.assert_done(self.load_files("layer", model_onnx=files[i % 2]))
            finally:
                over.set()

        run_threads([reload] + [lambda i=i: ask(i) for i in range(3)])
        self.assertGreater(min(answers), 0)
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        self.assertEqual(metrics[("quantd_models_loaded", ())], 1)

    def test_unload_while_requests_run(self):
        body = json.dumps(json_request([ROW])).encode()
        expected = convolve(list(range(20)), WEIGHTS)
        over = threading.Event()
        seen = {200: 0, 404: 0, 503: 0}

        def ask():
            client = self.server.client()
            while not over.is_set():
                answer = exchange(client, "POST", infer_path("layer"), body)
                seen[answer.status] += 1
                if answer.status == 200:
                    self.assertEqual(answer.json()["outputs"][0]["data"], expected)
                else:
                    self.assert_error(answer, answer.status, "layer")
            client.close()

        def wait_for_more(status):
            wanted, end = seen[status] + 2, time.monotonic() + 30 * SLOW
            while seen[status] < wanted:
                self.assertLess(time.monotonic(), end, seen)
                time.sleep(0.001)

        def switch():
            try:
                for _ in range(50):
                    self.assert_done(self.load_files("layer", model_onnx=conv_file(WEIGHTS)))
                    wait_for_more(200)
                    self.assert_done(self.post("layer", "unload"))
                wait_for_more(404)
            finally:
                over.set()

        run_threads([switch, ask, ask])
        self.assertEqual(self.server.metric_once(0, "quantd_models_loaded"), 0)
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)

    def test_loads_at_the_same_time_come_one_after_the_other(self):
        done = []

        def load(weights):
            self.assert_done(self.load_files("layer", model_onnx=conv_file(weights)))
            done.append(weights)

        run_threads([lambda i=i: load([i, 1, i]) for i in range(12)])
        answer = self.ask("layer", [1, 2, 3]).json()["outputs"][0]["data"]
        self.assertIn(answer, [convolve([1, 2, 3], weights) for weights in done])
        self.assertEqual(len(done), 12)

    def large_file(self):
        """Returns a file that takes long to load: 2048 filters of 3 * 2048 weights, 12 MB."""
        return conv_file([1] * 3 * 2048 * 2048, dims=(1, 2048, "length"), w_dims=[2048, 2048, 3])

    def test_unload_takes_back_a_load_under_way(self):
        answers = {}
        large = self.large_file()

        def load():
            answers["load"] = self.load_files("layer", model_onnx=large)

        def unload():
            while self.states("layer") != ["LOADING"] and "load" not in answers:
                pass
            answers["unload"] = self.post("layer", "unload")

        for _ in range(3):
            answers.clear()
            run_threads([load, unload])
            self.assert_done(answers["unload"])
            self.assertIn(answers["load"].status, (200, 503), answers["load"].body)
            self.assertEqual(self.entries("layer")[0]["reason"], "unloaded")
            self.assert_error(self.ask("layer", [1, 2, 3]), 404)

    def test_a_large_load_holds_up_nobody(self):
        body = self.load_body(None, {"file:1/model.onnx": self.large_file()})
        self.assert_done(self.load_files("other", model_onnx=conv_file(WEIGHTS)))
        over = threading.Event()
        meanwhile = {"live": 0, "infer": 0}

        def load():
            try:
                for _ in range(3):
                    self.assert_done(self.server.request(
                        "POST", "/v2/repository/models/layer/load", body))
            finally:
                over.set()

        def watch(what, call):
            while not over.is_set():
                call()
                meanwhile[what] += 1

        run_threads([load, lambda: watch("live", self.assert_alive),
                     lambda: watch("infer", lambda: self.assert_convolves("other", WEIGHTS))])
        # A client that had to wait for the end of each of the three loads would get only a few
        # answers.
        self.assertGreater(meanwhile["live"], 30)
        self.assertGreater(meanwhile["infer"], 30)

    def test_the_client_goes_while_it_loads(self):
        body = json.dumps(kept_request(WEIGHTS)).encode()
        for _ in range(20):
            connection = self.server.connect()
            connection.sendall(b"POST /v2/repository/models/layer/load HTTP/1.1\r\nHost: x\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            connection.close()
        end = time.monotonic() + 60 * SLOW
        while self.states("layer") != ["READY"] and time.monotonic() < end:
            time.sleep(0.05)
        self.assert_convolves("layer", WEIGHTS)

    def test_the_end_while_models_load(self):
        body = self.load_body(None, {"file:1/model.onnx": self.large_file()})
        for seconds in (0, 0.02, 0.05, 0.1):
            server = Server(*self.FLAGS)
            connection = server.connect()
            connection.sendall(b"POST /v2/repository/models/layer/load HTTP/1.1\r\nHost: x\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(seconds)
            server.terminate()
            reader = Reader(connection)
            self.assertIn(reader.answer().status, (200, 503))
            reader.close()
            server.wait()


class Bounds(ModelTest):
    FLAGS = ModelTest.FLAGS + ("--max-model-bytes", "16M", "--max-body-bytes", "32M")

    def model_bytes(self):
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        self.assertEqual(metrics[("quantd_model_bytes_max", ())], 16 << 20)
        return metrics[("quantd_model_bytes", ())]

    def file(self, mib):
        return conv_file(b"\1" * (mib << 20), dims=(1, 1024, "length"),
                         w_dims=[mib << 10, 1024, 1])

    def test_model_bytes_are_bounded(self):
        answer = self.load_files("layer", model_onnx=self.file(20))
        self.assert_error(answer, 413, "--max-model-bytes", "bytes are missing")
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)
        # Each file alone would fit, and no other model holds memory.
        files = {"file:%d/model.onnx" % version: self.file(3) for version in range(1, 8)}
        answer = self.load_named("layer", {"version_policy": {"all": {}}}, files)
        self.assert_error(answer, 413, "--max-model-bytes", "and others 0")
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)
        loaded = 0
        for i in range(40):
            answer = self.load_files("m%d" % i, model_onnx=self.file(1))
            if answer.status != 200:
                break
            loaded += 1
        self.assertGreater(loaded, 2)  # some kernels keep weights as floats
        self.assert_error(answer, 503, "--max-model-bytes", "bytes are missing", "and others ")
        self.assertLessEqual(self.model_bytes(), 16 << 20)
        self.assert_done(self.post("m0", "unload"))
        self.assert_done(self.post("m1", "unload"))
        self.assert_done(self.post("m2", "unload"))
        self.assert_done(self.load_files("again", model_onnx=self.file(1)))
        for i in range(3, loaded):
            self.assert_done(self.post("m%d" % i, "unload"))
        self.assert_done(self.post("again", "unload"))
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)

    def test_bodies_are_bounded(self):
        answer = self.load_files("layer", model_onnx=self.file(30))
        self.assert_error(answer, 413, "--max-body-bytes")

    @unittest.skipIf(SANITIZED, "sanitizers keep freed memory")
    def test_loads_leave_nothing_behind(self):
        file = self.file(1)
        for i in range(150):
            if i == 50:
                before = self.server.rss_bytes()
            self.assert_done(self.load_files("layer", model_onnx=file))
            self.load_files("layer", model_onnx=file[:-i - 1])
            self.load_files("name%d" % i, model_onnx=b"x")
        self.assertLess(self.server.rss_bytes(), before + (8 << 20))
        self.assert_done(self.post("layer", "unload"))
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)


class Timeout(ModelTest):
    FLAGS = ModelTest.FLAGS + ("--compute-timeout", "0.001")

    def test_a_load_has_a_deadline(self):
        large = conv_file([1] * 3 * 2048 * 2048, dims=(1, 2048, "length"), w_dims=[2048, 2048, 3])
        answer = self.load_files("layer", model_onnx=large)
        self.assert_error(answer, 503, "--compute-timeout")
        self.assertIn("--compute-timeout", self.entries("layer")[0]["reason"])
        self.assertEqual(self.server.metric_once(0, "quantd_model_bytes"), 0)


class Off(ModelTest):
    FLAGS = ()

    def test_calls_are_refused_before_their_body(self):
        for action in ("load", "unload"):
            answer = self.post("layer", action, kept_request(WEIGHTS))
            self.assert_error(answer, 503, "--model-control-mode: expected explicit", 'got "none"')
            self.assertNotIn("Retry-After", answer.headers)


if __name__ == "__main__":
    unittest.main()
