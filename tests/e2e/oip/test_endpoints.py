"""All GET requests, and how wrong paths and methods are refused."""
import json
import unittest

from quantd import ServerTest, infer_path
from samples import CONV, DEQUANTIZE, dequantize_json

OPERATORS = (DEQUANTIZE, CONV)

# The 13 names of fixed-size datatypes that perf_analyzer knows. It calls the shape of any other
# dynamic.
KNOWN_DATATYPES = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
                   "FP16", "BF16", "FP32", "FP64"}


class Endpoints(ServerTest):
    def get_json(self, path):
        answer = self.server.get(path)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        return answer.json()

    def test_health(self):
        self.assertEqual(self.get_json("/v2/health/live"), {"live": True})
        self.assertEqual(self.get_json("/v2/health/ready"), {"ready": True, "live": True})
        for name in OPERATORS:
            self.assertEqual(self.get_json("/v2/models/%s/ready" % name),
                             {"name": name, "ready": True})
            self.assertEqual(self.get_json("/v2/models/%s/versions/10/ready" % name)["ready"], True)

    def test_server_metadata(self):
        tree = self.get_json("/v2")
        self.assertEqual(tree["name"], "quantd")
        self.assertIsInstance(tree["version"], str)
        self.assertIsInstance(tree["extensions"], list)
        self.assertIn("binary_tensor_data", tree["extensions"])
        self.assertIn("parameters", tree["extensions"])
        # perf_analyzer polls a statistics endpoint if the server advertises one.
        for extension in ("statistics", "system_shared_memory"):
            if extension in tree["extensions"]:
                path = {"statistics": "/v2/models/stats",
                        "system_shared_memory": "/v2/systemsharedmemory/status"}[extension]
                self.assertEqual(self.server.get(path).status, 200)

    def test_server_metadata_with_slash(self):
        answer = self.server.get("/v2/")
        if answer.status == 200:
            self.assertEqual(answer.body, self.server.get("/v2").body)
        else:
            self.assert_error(answer, 404)

    def test_model_metadata(self):
        for name in OPERATORS:
            tree = self.get_json("/v2/models/%s" % name)
            self.assertEqual(tree["name"], name)
            self.assertIsInstance(tree["platform"], str)
            self.assertEqual(tree["versions"], sorted(tree["versions"], key=int))
            self.assertIn("10", tree["versions"])
            for tensor in tree["inputs"] + tree["outputs"]:
                self.assertIsInstance(tensor["name"], str)
                self.assertIn(tensor["datatype"], KNOWN_DATATYPES)
                self.assertGreaterEqual(len(tensor["shape"]), 1)
            for key, value in tree.get("properties", {}).items():
                self.assertIsInstance(value, str, key)

    def test_model_metadata_names_the_tensors(self):
        tree = self.get_json("/v2/models/" + DEQUANTIZE)
        self.assertEqual([t["name"] for t in tree["inputs"]], ["x", "x_scale", "x_zero_point"])
        self.assertEqual([t["name"] for t in tree["outputs"]], ["y"])
        self.assertTrue({"10", "13"} <= set(tree["versions"]))
        tree = self.get_json("/v2/models/" + CONV)
        self.assertEqual([t["name"] for t in tree["inputs"]],
                         ["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale",
                          "y_zero_point", "B"])
        self.assertEqual(tree["versions"], ["10"])

    def test_model_metadata_of_a_version(self):
        self.assertEqual(self.get_json("/v2/models/%s/versions/13" % DEQUANTIZE)["versions"],
                         ["13"])

    def test_model_config(self):
        for name in OPERATORS:
            for path in ("/v2/models/%s", "/v2/models/%s/versions/10"):
                metadata = self.get_json(path % name)
                config = self.get_json(path % name + "/config")
                self.assertEqual(config["name"], name)
                self.assertEqual(config["max_batch_size"], 0)
                for kind in ("input", "output"):
                    self.assertEqual([t["name"] for t in config[kind]],
                                     [t["name"] for t in metadata[kind + "s"]])
                    for tensor in config[kind]:
                        self.assertRegex(tensor["data_type"], "^TYPE_[A-Z0-9]+$")
                        self.assertIs(tensor["is_shape_tensor"], False)
                        self.assertIsInstance(tensor.get("optional", False), bool)
                        self.assertTrue(all(type(d) is int for d in tensor["dims"]))

    def test_optional_inputs_are_marked(self):
        config = self.get_json("/v2/models/%s/config" % DEQUANTIZE)
        self.assertEqual({t["name"]: t["optional"] for t in config["input"]},
                         {"x": False, "x_scale": False, "x_zero_point": True})

    def test_repository_index(self):
        for body, headers in ((None, {}), (b"", {}), (b"{}", {}), (b'{"ready": true}', {})):
            answer = self.server.request("POST", "/v2/repository/index", body, headers)
            self.assertEqual(answer.status, 200, answer.body)
            rows = answer.json()
            self.assertEqual({row["name"] for row in rows} & set(OPERATORS), set(OPERATORS))
            for row in rows:
                self.assertEqual(row["state"], "READY")
                self.assertRegex(row["version"], "^[0-9]+$")

    def test_repository_index_refuses_nonsense(self):
        for body in (b'{"ready": 1}', b"[", b"[]", b'"x"', b"\0", b"{}\0"):
            self.assert_error(self.server.request("POST", "/v2/repository/index", body), 400)

    def test_shared_memory_is_not_there(self):
        # perf_analyzer unregisters all regions of both kinds, whatever its options are.
        for kind in ("systemsharedmemory", "cudasharedmemory"):
            for path in ("/v2/%s/unregister", "/v2/%s/region/r/unregister"):
                self.assertEqual(self.server.request("POST", path % kind).status, 200)
            self.assertEqual(self.get_json("/v2/%s/status" % kind), [])
            answer = self.server.request("POST", "/v2/%s/region/r/register" % kind,
                                         b'{"key": "/k", "byte_size": 4}')
            self.assert_error(answer, 501)

    def test_loading_is_off(self):
        for action in ("load", "unload"):
            answer = self.server.request("POST", "/v2/repository/models/layer/%s" % action)
            self.assert_error(answer, 503, "--model-control-mode: expected explicit")

    def test_unknown_model(self):
        for path in ("", "/ready", "/config", "/versions/10", "/versions/10/ready",
                     "/versions/10/config"):
            self.assert_error(self.server.get("/v2/models/nope" + path), 404, "nope")
        answer = self.server.infer("nope", dequantize_json())
        self.assert_error(answer, 404, "nope")

    def test_unknown_version(self):
        for version in ("1", "9", "99", "18446744073709551616", "99999999999999999999999"):
            for path in ("", "/ready", "/config"):
                answer = self.server.get("/v2/models/%s/versions/%s" % (DEQUANTIZE, version) + path)
                self.assert_error(answer, 404, version, "10", "13")
            self.assert_error(self.server.infer(DEQUANTIZE, dequantize_json(), version), 404,
                              version)

    def test_version_that_is_no_number(self):
        for version in ("x", "1x", "-1", "+10", "10.0", "", "0x0a", "1%200"):
            path = "/v2/models/%s/versions/%s" % (DEQUANTIZE, version)
            self.assert_error(self.server.get(path), 404)

    def test_version_between_two_means_the_older(self):
        for version, ran in (("10", "10"), ("11", "10"), ("12", "10"), ("13", "13"), ("14", "13")):
            request = dequantize_json()
            answer = self.server.infer(DEQUANTIZE, request, version)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.json()["model_version"], ran)

    def test_no_version_means_the_newest(self):
        newest = self.get_json("/v2/models/" + DEQUANTIZE)["versions"][-1]
        answer = self.server.infer(DEQUANTIZE, dequantize_json())
        self.assertEqual(answer.json()["model_version"], newest)

    def test_unknown_paths(self):
        for path in ("/v2/nothing", "/v1/models", "/v2/health", "/v2/health/alive", "/v3",
                     "/v2/models/%s/" % DEQUANTIZE, "/v2/models/%s/infer/" % DEQUANTIZE,
                     "/v2/models/%s/versions" % DEQUANTIZE, "/v2/models//ready", "//v2", "/V2",
                     "/v2/models/%s/version/10" % DEQUANTIZE, "/v2%2fhealth%2flive", "/v2/../v2",
                     "/favicon.ico"):
            self.assert_error(self.server.get(path), 404)

    def test_broken_escapes(self):
        for path in ("/v2/models/%s%%00/ready" % DEQUANTIZE, "/v2%00", "/%", "/v2/models/%zz",
                     "/v2/models/%2/ready"):
            answer = self.server.get(path)
            self.assertIn(answer.status, (400, 404))
            self.assert_error(answer, answer.status)

    def test_percent_encoding_is_decoded(self):
        self.assertEqual(self.server.get("/v2/health/%6cive").status, 200)
        self.assertEqual(self.server.get("/v2/models/onnx%2EDequantizeLinear/ready").status, 200)

    def test_query_is_ignored(self):
        self.assertEqual(self.get_json("/v2/health/live?verbose=1&x=%zz"), {"live": True})
        answer = self.server.request("POST", infer_path(DEQUANTIZE) + "?a=b",
                                     json.dumps(dequantize_json()))
        self.assertEqual(answer.status, 200)

    def test_head(self):
        for path in ("/v2/health/live", "/v2", "/metrics", "/v2/models/" + DEQUANTIZE):
            head, get = self.server.request("HEAD", path), self.server.get(path)
            self.assertEqual(head.status, 200)
            self.assertEqual(head.body, b"")
            self.assertEqual(head.headers["Content-Type"], get.headers["Content-Type"])
        self.assertEqual(self.server.request("HEAD", "/v2/nothing").status, 404)
        self.assertEqual(self.server.request("HEAD", infer_path(DEQUANTIZE)).status, 405)

    def test_wrong_methods(self):
        for method, path, allow in (
                ("GET", infer_path(DEQUANTIZE), {"POST"}),
                ("PUT", infer_path(DEQUANTIZE, 13), {"POST"}),
                ("GET", "/v2/repository/index", {"POST"}),
                ("POST", "/v2/health/live", {"GET", "HEAD"}),
                ("DELETE", "/v2", {"GET", "HEAD"}),
                ("POST", "/v2/models/" + DEQUANTIZE, {"GET", "HEAD"}),
                ("PATCH", "/metrics", {"GET", "HEAD"}),
                ("OPTIONS", "/v2", {"GET", "HEAD"}),
                ("foo", "/v2", {"GET", "HEAD"})):
            answer = self.server.request(method, path)
            self.assert_error(answer, 405)
            got = {word.strip() for word in answer.headers["Allow"].split(",")}
            self.assertTrue(allow <= got | ({"HEAD"} if "GET" in got else set()), got)

    def test_get_with_a_body(self):
        answer = self.server.request("GET", "/v2/health/live", b"x" * 1000)
        self.assertEqual(answer.status, 200)
        self.assert_alive()


if __name__ == "__main__":
    unittest.main()
