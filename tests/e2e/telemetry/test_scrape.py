"""/metrics, the statistics and the index with the largest number of models. The server prints these
texts while it sends them, so no other request waits for them, and they need almost no memory."""
import json
import re
import tempfile
import threading
import time
import unittest
from pathlib import Path

from loading import ModelTest, kept_request
from quantd import (SANITIZED, Reader, Server, Tensor, exchange, infer_path, json_request,
                    parse_metrics, raw_request, receive_all, run_threads)

MIB = 1 << 20
# Each name has 64 versions, so 16 names make as many models as the server allows.
NAMES = ["%s%02d" % ("m" * 100, index) for index in range(4 if SANITIZED else 16)]
VERSIONS = range(1, 65)
COUNT = len(NAMES) * len(VERSIONS)
SUCCESSES = "nv_inference_request_success"
HISTOGRAM = "quantd_stage_duration_seconds"
STAGES = ("receive", "queue", "decode", "compute", "encode", "total", "send")
SCRAPE = raw_request("GET", "/metrics")


def write_models(folder):
    request = json.dumps(kept_request([1, 2, 3]))
    for name in NAMES:
        for version in VERSIONS:
            path = folder / name / str(version)
            path.mkdir(parents=True)
            (path / "request.json").write_text(request)
        (folder / name / "config.json").write_text('{"version_policy": {"all": {}}}')


class ManyModels(ModelTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        write_models(Path(folder.name))
        cls.server = Server("--model-repository", folder.name, "--model-control-mode", "explicit",
                            "--load-model", "*", "--max-inflight-bytes", "64M", "--min-rate", "0")
        client = cls.server.client()
        for name in NAMES:
            cls.ask_each(client, name)
        client.close()

    @staticmethod
    def ask_each(client, name):
        x = Tensor.of("x", "UINT8", [1, 1, 4], [1, 2, 3, 4])
        body = json.dumps(json_request([x])).encode()
        for version in VERSIONS:
            answer = exchange(client, "POST", infer_path(name, version), body)
            assert answer.status == 200, answer.body
        # A request is counted after its answer has been sent, and surely before the next answer on
        # the same connection.
        assert exchange(client, "GET", "/v2/health/live").status == 200

    def scrape(self):
        answer = self.server.get("/metrics")
        self.assertEqual(answer.status, 200)
        return parse_metrics(answer.body.decode())

    @staticmethod
    def value(samples, name, model, version, **more):
        labels = dict(more, model=model, version=str(version))
        return samples.get((name, tuple(sorted(labels.items()))))

    def check(self, samples, name):
        """Checks that the scrape has all samples of each version of a model, and that they are
        consistent."""
        for version in VERSIONS:
            self.assertGreaterEqual(self.value(samples, SUCCESSES, name, version), 1)
            for stage in STAGES:
                count = self.value(samples, HISTOGRAM + "_count", name, version, stage=stage)
                self.assertGreaterEqual(count, 1)
                self.assertEqual(count, self.value(samples, HISTOGRAM + "_bucket", name, version,
                                                   stage=stage, le="+Inf"))

    def gauge(self, name, text=None):
        """Returns a gauge from a complete text of /metrics, which takes long to read."""
        text = self.server.get("/metrics").body if text is None else text
        self.assertIn(b"\nquantd_info{", text)
        return float(re.search(rb"\n%s (\S+)\n" % name.encode(), text).group(1))

    def test_all_of_them(self):
        samples = self.scrape()
        for name in NAMES:
            self.check(samples, name)
        bounds = sum(name == HISTOGRAM + "_bucket" for name, _ in samples)
        self.assertGreaterEqual(bounds, COUNT * len(STAGES) * 17)
        self.assertEqual(samples[("quantd_models_loaded", ())], COUNT)

    def test_it_takes_no_memory_of_requests(self):
        """The text has about 25 KB for each version."""
        before = self.gauge("quantd_inflight_kept_bytes")
        readers = [Reader(self.server.connect()) for _ in range(8)]
        for reader in readers:
            reader.connection.sendall(SCRAPE)
            # The scrape is in progress, and no client reads on.
            self.assertEqual(reader.connection.recv(1), b"H")
        text = self.server.get("/metrics").body
        self.assertGreater(len(text), COUNT * 20000)
        self.assertLess(self.gauge("quantd_inflight_bytes", text), MIB)
        self.assertLess(self.gauge("quantd_inflight_kept_bytes", text), before + MIB)
        for reader in readers:
            reader.close()

    def test_while_models_come_and_go(self):
        """Models with the first two names come and go. Each number of the other models only grows
        from scrape to scrape."""
        ended = threading.Event()
        healthy = [0]  # health answers so far
        meanwhile = 0  # health answers that came while the server sent the metrics

        def load():
            while not ended.is_set():
                for name in NAMES[:2]:
                    self.assert_done(self.post(name, "unload"))
                for name in NAMES[:2]:
                    self.assert_done(self.post(name, "load"))
                    with_client(lambda client, name=name: self.ask_each(client, name))

        def with_client(function):
            client = self.server.client()
            function(client)
            client.close()

        def infer():
            while not ended.is_set():
                with_client(lambda client: self.ask_each(client, NAMES[3]))

        def be_healthy():
            client = self.server.client()
            while not ended.is_set():
                self.assertEqual(exchange(client, "GET", "/v2/health/live").status, 200)
                healthy[0] += 1
                time.sleep(0.001)
            client.close()

        def scrape():
            nonlocal meanwhile
            last = {}
            try:
                for _ in range(2):
                    before = healthy[0]
                    answer = self.server.get("/metrics")
                    meanwhile += healthy[0] - before
                    samples = parse_metrics(answer.body.decode())
                    for name in NAMES[2:]:
                        self.check(samples, name)
                    gone = tuple(("model", name) for name in NAMES[:2])
                    for (name, labels), value in samples.items():
                        if name.startswith(("nv_", HISTOGRAM)) and not set(gone) & set(labels):
                            self.assertGreaterEqual(value, last.get((name, labels), 0))
                    last = samples
            finally:
                ended.set()

        run_threads([load, infer, be_healthy, scrape])
        # If health requests had to wait for the end of a text, one would be answered for each of
        # the two texts.
        self.assertGreater(meanwhile, 4)

    def test_on_one_connection(self):
        """Answers of unknown length are sent in chunks, so the connection stays open."""
        reader = Reader(self.server.connect())
        reader.connection.sendall(SCRAPE + raw_request("GET", "/v2/models/stats")
                                  + raw_request("POST", "/v2/repository/index")
                                  + raw_request("GET", "/v2/health/live"))
        metrics = reader.answer()
        self.assertEqual(metrics.status, 200)
        self.assertEqual(metrics.headers["Content-Type"],
                         "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(metrics.headers.get_all("Transfer-Encoding"), ["chunked"])
        self.assertNotIn("Content-Length", metrics.headers)
        self.assertEqual(self.gauge("quantd_models_loaded", metrics.body), COUNT)
        rows = reader.answer().json()["model_stats"]
        for name in NAMES:
            told = [(int(row["version"]), row["inference_count"] > 0) for row in rows
                    if row["name"] == name]
            self.assertEqual(sorted(told), [(version, True) for version in VERSIONS])
        index = {(row["name"], row.get("version")): row["state"]
                 for row in reader.answer().json()}
        for name in NAMES:
            for version in VERSIONS:
                self.assertEqual(index[(name, str(version))], "READY")
        self.assertEqual(reader.answer().json(), {"live": True})
        reader.close()

    def test_head(self):
        for version in (b"1.0", b"1.1"):
            connection = self.server.connect()
            connection.sendall(b"HEAD /metrics HTTP/%s\r\nHost: q\r\n\r\n" % version)
            head, end, rest = receive_all(connection).partition(b"\r\n\r\n")
            connection.close()
            self.assertIn(b" 200 ", head)
            self.assertEqual((end, rest), (b"\r\n\r\n", b""))

    def test_an_old_client(self):
        """HTTP/1.0 has no chunks, so the server ends the text by closing the connection."""
        connection = self.server.connect()
        connection.sendall(b"GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head, _, text = receive_all(connection).partition(b"\r\n\r\n")
        connection.close()
        self.assertIn(b" 200 ", head)
        self.assertNotIn(b"chunked", head)
        self.assertEqual(self.gauge("quantd_models_loaded", text), COUNT)

    def test_one_model_has_a_length(self):
        answer = self.server.get("/v2/models/%s/versions/64/stats" % NAMES[-1])
        self.assertEqual(int(answer.headers["Content-Length"]), len(answer.body))
        row, = answer.json()["model_stats"]
        self.assertEqual((row["name"], row["version"]), (NAMES[-1], "64"))


if __name__ == "__main__":
    unittest.main()
