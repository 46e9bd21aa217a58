"""/metrics counts what happened, in Prometheus' text format; /stats has the same numbers in
Triton's format."""
import math
import os
import re
import resource
import tempfile
import time
import unittest

from quantd import ONE_IO_THREAD, SLOW, Server, ServerTest, parse_metrics
from samples import DEQUANTIZE, dequantize_json, spoiled

HISTOGRAM = "quantd_stage_duration_seconds"


def labels(**pairs):
    return tuple(sorted(pairs.items()))


class Metrics(ServerTest):
    FLAGS = ONE_IO_THREAD

    def infer(self, count=1, version=13):
        for _ in range(count):
            self.assertEqual(self.server.infer(DEQUANTIZE, dequantize_json(), version).status, 200)

    def read(self):
        answer = self.server.get("/metrics")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"],
                         "text/plain; version=0.0.4; charset=utf-8")
        return parse_metrics(answer.body.decode())

    def grown(self, action):
        before = self.read()
        action()
        after = self.read()
        return lambda name, **pairs: (after.get((name, labels(**pairs)), 0)
                                      - before.get((name, labels(**pairs)), 0))

    def test_successes(self):
        grown = self.grown(lambda: self.infer(5))
        key = {"model": DEQUANTIZE, "version": "13"}
        self.assertEqual(grown("nv_inference_request_success", **key), 5)
        self.assertEqual(grown("nv_inference_count", **key), 5)
        # One of them is the answer to /metrics.
        self.assertEqual(grown("quantd_answers_total", code="200"), 6)
        self.assertGreater(grown("nv_inference_request_duration_us", **key), 0)
        other = {"model": DEQUANTIZE, "version": "10"}
        self.assertEqual(grown("nv_inference_request_success", **other), 0)

    def test_operators_appear_with_their_first_request(self):
        server = Server(*ONE_IO_THREAD)
        self.addCleanup(server.stop)
        text = server.get("/metrics").body.decode()
        self.assertNotIn('model="', text)
        self.assertIn("# HELP nv_inference_request_success ", text)
        self.assertEqual(server.infer(DEQUANTIZE, dequantize_json(), 13).status, 200)
        versions = set(re.findall('model="(.*?)",version="(.*?)"',
                                  server.get("/metrics").body.decode()))
        self.assertEqual(versions, {(DEQUANTIZE, "13")})

    def test_failures(self):
        def fail():
            for _ in range(3):
                self.server.infer(DEQUANTIZE, spoiled("x", data=[1]), 13)
            self.server.infer("nope", dequantize_json())

        grown = self.grown(fail)
        self.assertEqual(grown("nv_inference_request_failure", model=DEQUANTIZE, version="13",
                               reason="OTHER"), 3)
        self.assertEqual(grown("quantd_answers_total", code="400"), 3)
        self.assertEqual(grown("quantd_answers_total", code="404"), 1)

    def test_refusals(self):
        server = Server("--max-inflight-bytes", "1M")
        self.addCleanup(server.stop)
        self.assertEqual(server.infer("nope", dequantize_json()).status, 404)
        self.assertEqual(server.refusals("other", 1), 1)
        large = dequantize_json(id="q" * (2 << 20))
        self.assertEqual(server.infer(DEQUANTIZE, large).status, 413)
        self.assertEqual(server.refusals("memory", 1), 1)
        self.assertEqual(server.refusals("other"), 1)

    def test_histograms(self):
        self.infer(3)
        metrics = self.read()
        key = {"model": DEQUANTIZE, "version": "13"}
        count = metrics[("nv_inference_request_success", labels(**key))]
        stages = {dict(pairs)["stage"] for name, pairs in metrics if name == HISTOGRAM + "_count"}
        self.assertEqual(stages, {"receive", "queue", "decode", "compute", "encode", "total",
                                  "send"})
        for stage in stages:
            wanted = dict(key, stage=stage)
            self.assertEqual(metrics[(HISTOGRAM + "_count", labels(**wanted))], count)
            self.assertGreaterEqual(metrics[(HISTOGRAM + "_sum", labels(**wanted))], 0)
            buckets = []
            for (name, pairs), value in metrics.items():
                bound = dict(pairs).get("le")
                if bound is not None and pairs == labels(le=bound, **wanted):
                    buckets.append((float(bound.replace("+Inf", "inf")), value))
            bounds, values = zip(*sorted(buckets))
            self.assertEqual(bounds[-1], math.inf)
            self.assertEqual(list(values), sorted(values))
            self.assertEqual(values[-1], count)

    def test_what_runs(self):
        metrics = self.read()
        info = [dict(pairs) for name, pairs in metrics if name == "quantd_info"]
        self.assertEqual(len(info), 1)
        self.assertNotEqual(info[0]["openblas_core"], "")
        self.assertIn(info[0]["cpu"], ("scalar", "avx2", "avx512", "neon"))
        self.assertIn(info[0]["gemm"], ("blas", "scalar", "avx2", "avxvnni", "vnni_novbmi",
                                          "vnni", "amx", "neon", "dotprod", "i8mm"))
        self.assertIn(info[0]["version"], self.server.get("/v2").json()["version"])

    def test_gauges(self):
        connections = [self.server.connect() for _ in range(5)]
        for connection in connections:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n")
            connection.recv(1000)
        metrics = self.read()
        self.assertGreaterEqual(metrics[("quantd_connections", ())], 6)
        self.assertEqual(metrics[("quantd_queue_length", ())], 0)
        self.assertLess(metrics[("quantd_inflight_bytes", ())], (1 << 20) * SLOW)
        self.assertEqual(metrics[("quantd_inflight_bytes_max", ())], 2 << 30)
        listener = labels(listener=self.server.addresses[0])
        self.assertEqual(metrics[("quantd_listener_connections", listener)],
                         metrics[("quantd_connections", ())])
        self.assertEqual(metrics[("quantd_listener_connections_max", listener)], 4096)
        for connection in connections:
            connection.close()

    def test_bounds(self):
        metrics = self.read()
        for name, bound in (("queue_length", 1024), ("loads_waiting", 16)):
            self.assertEqual(metrics[("quantd_" + name, ())], 0)
            self.assertEqual(metrics[("quantd_%s_max" % name, ())], bound)
        # libuv 1.49 and later also respects the control group's share of the CPUs.
        self.assertIn(metrics[("quantd_workers", ())], range(1, len(os.sched_getaffinity(0)) + 1))
        self.assertLessEqual(metrics[("quantd_workers_busy", ())], metrics[("quantd_workers", ())])
        self.assertGreater(metrics[("quantd_model_bytes_max", ())], 0)
        self.assertLess(metrics[("quantd_inflight_kept_bytes", ())], 2 << 30)

    def test_process(self):
        metrics = self.read()
        rss = self.server.rss_bytes()
        self.assertLess(abs(metrics[("process_resident_memory_bytes", ())] - rss), rss / 2)
        self.assertLess(abs(metrics[("process_open_fds", ())] - self.server.open_fds()), 8)
        self.assertGreaterEqual(metrics[("process_max_fds", ())],
                                resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.assertGreater(metrics[("process_cpu_seconds_total", ())], 0)
        self.assertLess(abs(metrics[("process_start_time_seconds", ())] - time.time()), 600)

    def test_statistics(self):
        paths = ["/v2/models/stats", "/v2/models/%s/stats" % DEQUANTIZE,
                 "/v2/models/%s/versions/13/stats" % DEQUANTIZE]

        def row(path):
            answer = self.server.get(path)
            self.assertEqual(answer.status, 200, answer.body)
            return [row for row in answer.json()["model_stats"]
                    if (row["name"], row["version"]) == (DEQUANTIZE, "13")][0]

        before = [row(path) for path in paths]
        self.infer(4)
        self.server.infer(DEQUANTIZE, spoiled("x", data=[1]), 13)
        for path, old in zip(paths, before):
            new = row(path)
            self.assertEqual(new["inference_count"] - old["inference_count"], 4)
            for name in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
                # perf_analyzer gives up if queue.count does not rise.
                self.assertEqual(new["inference_stats"][name]["count"]
                                 - old["inference_stats"][name]["count"], 4, name)
                self.assertIsInstance(new["inference_stats"][name]["ns"], int)
            self.assertEqual(new["inference_stats"]["fail"]["count"]
                             - old["inference_stats"]["fail"]["count"], 1)
            for name in ("cache_hit", "cache_miss"):
                self.assertEqual(new["inference_stats"][name], {"count": 0, "ns": 0})
        self.assert_error(self.server.get("/v2/models/nope/stats"), 404, "nope")
        self.assert_error(self.server.get("/v2/models/%s/versions/99/stats" % DEQUANTIZE), 404)


class Gauges(unittest.TestCase):
    """Each gauge of a bound shows its own flag."""

    BOUNDS = {"quantd_queue_length_max": 6, "quantd_workers": 2, "quantd_loads_waiting_max": 16,
              "quantd_inflight_bytes_max": 300 << 20, "quantd_model_bytes_max": 12 << 20,
              "quantd_shared_memory_regions_max": 960, "quantd_shared_memory_bytes_max": 1 << 20}
    UNUSED = ("quantd_queue_length", "quantd_loads_waiting", "quantd_models_loaded",
              "quantd_shared_memory_regions", "quantd_shared_memory_bytes")

    def test_bounds_of_flags(self):
        with tempfile.TemporaryDirectory() as folder:
            path = 'unix:%s/a"b\\c' % folder
            server = Server("--max-queue", "6", "--threads", "2", "--max-inflight-bytes", "300M",
                            "--max-model-bytes", "12M", "--allow-shared-memory", "/quantd",
                            "--max-shared-bytes", "1M", "--max-connections", "40",
                            "--io-threads", "3", listen=("127.0.0.1:0", path))
            self.addCleanup(server.stop)
            text = server.get("/metrics").body.decode()
            metrics = parse_metrics(text)
        for name, bound in self.BOUNDS.items():
            self.assertEqual(metrics[(name, ())], bound, name)
        for name in self.UNUSED:
            self.assertEqual(metrics[(name, ())], 0, name)
        threads = [metrics[("quantd_io_thread_connections", labels(thread=str(i)))]
                   for i in range(3)]
        self.assertEqual(sum(threads), metrics[("quantd_connections", ())])
        self.assertEqual(sorted(threads), [0, 0, 1])
        for log in ("access", "events"):
            self.assertEqual(metrics[("quantd_log_lines_dropped_total", labels(log=log))], 0)
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        for name, value in (("", 0), ("_max", 40), ("_refused_total", 0)):
            self.assertIn('quantd_listener_connections%s{listener="%s"} %d\n'
                          % (name, escaped, value), text)
        self.assertIn("# TYPE quantd_listener_connections_refused_total counter\n", text)


if __name__ == "__main__":
    unittest.main()
