"""A failure below the server fails one request, or is reported at the start. The next request is
answered correctly."""
import gzip
import json
import mmap
import os
import resource
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from loading import (ModelTest, chain_file, conv_file, external_file, kept_binary_request,
                     kept_request, load, unload)
from quantd import (COMMAND, ONE_IO_THREAD, SANITIZED, SLOW, Answer, Reader, Server, Tensor,
                    binary_request, environment, infer_path, json_request, parse_metrics,
                    raw_infer, raw_request, reset, wait_until)
from samples import CONV, DEQUANTIZE, conv_tensors, dequantize_json, dequantize_tensors
from shim import shim


def gauges(server):
    samples = parse_metrics(server.get("/metrics").body.decode())
    return {name: value for (name, labels), value in samples.items()
            if not labels and not name.endswith("_total")}


class Control:
    """The counters of nth_malloc.c, in a file that the server and this process both map."""

    FIELDS = ("first", "last", "calls", "failed", "live")

    def __init__(self, path):
        path.write_bytes(bytes(8 * len(self.FIELDS)))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def get(self, field):
        return struct.unpack_from("q", self.map, 8 * self.FIELDS.index(field))[0]

    def set(self, field, value):
        struct.pack_into("q", self.map, 8 * self.FIELDS.index(field), value)

    def fail(self, first, last):
        self.set("first", 0)
        self.set("last", last)
        self.set("failed", 0)
        self.set("calls", 0)
        self.set("first", first)

    def reset(self):
        """Stops the failures, and returns how many allocations have failed."""
        self.set("first", 0)
        return self.get("failed")


@unittest.skipIf(SANITIZED, "a sanitizer brings its own malloc")
class NthAllocation(unittest.TestCase):
    """Makes each allocation of each kind of request fail once, alone and with all allocations after
    it."""

    FAILURES_MAX = 4000  # for one kind of request, so the loop ends

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.models = Path(folder.name) / "models"
        self.control = Control(Path(folder.name) / "control")
        self.write("convolve", "model.onnx", conv_file([1, 2, 1]))
        self.write("chain", "model.onnx", chain_file())
        self.write("external", "model.onnx", external_file("weights.bin", 1))
        self.write("external", "weights.bin", struct.pack("4b", 9, 1, 1, 1))
        self.write("json", "request.json", json.dumps(kept_request([2, 1])).encode())
        text, blobs = kept_binary_request([1, 1])
        self.write("binary", "request.json", text)
        self.write("binary", "request.bin", blobs)
        self.server = Server(*ONE_IO_THREAD,  # another one could fill its caches in any round
                             "--model-repository", str(self.models), "--model-control-mode",
                             "explicit", "--load-model", "convolve", "--threads", "2",
                             "--log-level", "error", "--access-log", "/dev/null",
                             "--compress-answers", "on",
                             env={"LD_PRELOAD": shim(self, "nth_malloc"),
                                  "NTH_MALLOC": str(Path(folder.name) / "control")})
        self.reader = None

    def tearDown(self):
        self.close()
        self.server.stop()

    def write(self, model, name, data):
        path = self.models / model / "1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def close(self):
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def ask(self, request):
        """Returns the answer on a connection that stays open, or None if the server closed it
        instead."""
        if self.reader is None:
            self.reader = Reader(self.server.connect())
        try:
            self.reader.connection.sendall(request)
            answer = self.reader.answer()
        except (ConnectionError, BrokenPipeError):
            answer = None
        if answer is None or answer.headers.get("Connection") == "close":
            self.close()
        return answer

    @staticmethod
    def told(answer):
        """Returns the content of an answer without the parts that vary."""
        if b"quantd_" in answer.body or b"inference_stats" in answer.body:
            return answer.status, None
        if answer.headers.get("Content-Encoding") == "gzip":
            answer = Answer(answer.status, answer.headers, gzip.decompress(answer.body))
        if b'"model_version"' in answer.body:
            return answer.status, answer.outputs()
        return answer.status, answer.body

    def prepare(self, before):
        for request in before:
            self.assertIn(self.ask(request).status, (200, 400, 404))

    def try_all(self, name, request, expected, before, forever):
        """Sends the request until no allocation fails any more. Returns how many failures there
        were."""
        for number in range(1, self.FAILURES_MAX):
            self.prepare(before)
            self.control.fail(number, number if not forever else 1 << 62)
            answer = self.ask(request)
            failed = self.control.reset()
            if failed == 0 and answer is not None:
                self.assertEqual(self.told(answer), expected, (name, number))
                return number - 1
            if answer is None:
                pass
            elif answer.status == expected[0] and answer.status != 503:
                self.assertEqual(self.told(answer), expected, (name, number))
            else:
                self.assertEqual(answer.status, 503, (name, number, answer.body[:300]))
                self.assertIn("memory", answer.json()["error"], (name, number))
            self.prepare(before)
            after = self.ask(request)
            self.assertIsNotNone(after, (name, number, self.server.stderr()))
            self.assertEqual(self.told(after), expected, (name, number))
        self.fail("%s: no end" % name)

    def check(self, name, request, before=(), after=()):
        """Returns how many failures there were. A request that allocates nothing has none."""
        self.prepare(before)
        expected = self.told(self.ask(request))
        live, failures = [], 0
        # The first round fills the caches. The second must leave no more blocks than the first.
        for _ in range(2):
            for forever in (False, True):
                failures += self.try_all(name, request, expected, before, forever)
            self.prepare(before)
            self.prepare(after)
            self.close()
            live.append(self.blocks(live[-1] if live else None))
        self.assertLessEqual(live[1], live[0], "%s: blocks that are lost" % name)
        self.assertEqual(self.server.metric_once(0, "quantd_inflight_bytes"), 0, name)
        return failures

    def blocks(self, hoped):
        """Returns how many blocks live once the connections are closed and the work after them has
        ended."""
        end = time.monotonic() + (1 if hoped is None else 30)
        last, steady = self.control.get("live"), 0
        while time.monotonic() < end and (steady < 3 if hoped is None else last > hoped):
            time.sleep(0.005)
            now = self.control.get("live")
            steady = steady + 1 if now == last else 0
            last = now
        return last

    def check_kinds(self, kinds):
        failures = 0
        for name, request in kinds.items():
            with self.subTest(kind=name):
                failures += self.check(name, request)
        self.assertGreater(failures, 0)

    def test_inferences(self):
        count = 3000
        large = [Tensor.of("x", "UINT8", [count], [i % 256 for i in range(count)]),
                 Tensor.of("x_scale", "FP32", [], [0.5])]
        planes = conv_tensors([i % 3 for i in range(32 * 32 * 32)], [1, 32, 32, 32],
                              [i % 2 for i in range(64 * 32 * 9)], [64, 32, 3, 3])
        row = Tensor.of("x", "UINT8", [1, 1, 5], [3, 1, 4, 1, 5])
        self.check_kinds({
            "json": raw_infer(DEQUANTIZE, dequantize_json(id="7")),
            "json, long": raw_infer(DEQUANTIZE, json_request(large)),
            "binary": raw_infer(DEQUANTIZE, *binary_request(large)),
            "chunked": self.chunked(infer_path(DEQUANTIZE), json.dumps(dequantize_json()).encode()),
            "shared by threads": raw_infer(CONV, *binary_request(planes)),
            "compressed": raw_infer(DEQUANTIZE,
                                    gzip.compress(json.dumps(json_request(large)).encode()),
                                    {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}),
            "loaded": raw_infer("convolve", json_request([row])),
            "loaded, binary": raw_infer("convolve", *binary_request([row])),
        })

    @staticmethod
    def chunked(path, body):
        head = "POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n" % path
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 50]), body[i:i + 50])
                          for i in range(0, len(body), 50))
        return head.encode() + chunks + b"0\r\n\r\n"

    def test_what_is_told(self):
        self.check_kinds({
            "server": raw_request("GET", "/v2"),
            "metadata": raw_request("GET", "/v2/models/%s" % CONV),
            "config": raw_request("GET", "/v2/models/convolve/config"),
            "nodes": raw_request("GET", "/v2/models/convolve/nodes"),
            "stats": raw_request("GET", "/v2/models/%s/stats" % DEQUANTIZE),
            "index": raw_request("POST", "/v2/repository/index", b'{"ready":true}'),
            "metrics": raw_request("GET", "/metrics"),
            "logging": raw_request("POST", "/v2/logging", b'{"log_info":false}'),
            "traced": raw_request("GET", "/v2/health/live", headers={
                "traceparent": "00-%s-%s-01" % ("1" * 32, "2" * 16), "tracestate": "a=b"}),
            "schema": raw_request("GET", "/openapi.yaml"),
        })

    def test_refusals(self):
        self.check_kinds({
            "no such model": raw_request("GET", "/v2/models/nobody"),
            "no such path": raw_request("GET", "/nowhere"),
            "no JSON": raw_infer(DEQUANTIZE, b"{"),
            "an input too many": raw_infer(DEQUANTIZE, json_request(dequantize_tensors() * 2)),
            "a wrong shape": raw_infer(DEQUANTIZE, json_request(
                [Tensor.of("x", "UINT8", [4], [1, 2, 3, 4]),
                 Tensor.of("x_scale", "FP32", [3], [1, 2, 3])])),
            "no such file": load("nobody"),
            "no ONNX": load("bad", ModelTest.load_body(None, {"file:1/model.onnx": b"\x08no"})),
        })

    def test_loads(self):
        body = ModelTest.load_body(None, {"file:1/model.onnx": chain_file()})
        for name, request in {"chain": load("chain"), "external": load("external"),
                              "json": load("json"), "binary": load("binary"),
                              "sent": load("sent", body)}.items():
            with self.subTest(kind=name):
                self.prepare([request])
                self.check(name, request, before=[unload(name)])
                self.check("unload " + name, unload(name), before=[request], after=[unload(name)])



class Descriptors(ModelTest):
    """No file descriptors are left: clients that are connected are served, and new ones wait until
    a client leaves. With several I/O threads each would report the shortage, and the order in which
    they accept waiting clients would not be known."""

    FLAGS = ("--log-level", "error", "--io-threads", "1")

    def cpu_seconds(self, server=None):
        with open("/proc/%d/stat" % (server or self.server).pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self, count):
        """Lets the server open `count` more descriptors."""
        hard = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE,
                         (self.server.open_fds() + count, hard))

    def test_none_for_those_who_come(self):
        request = raw_infer(DEQUANTIZE, dequantize_json())
        soft, hard = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)
        self.addCleanup(resource.prlimit, self.server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.leave(1)
        reader = Reader(self.server.connect())
        reader.connection.sendall(request)
        expected = reader.answer().outputs()
        late = [Reader(self.server.connect()) for _ in range(3)]
        for other in late:
            other.connection.sendall(request)
        burned = self.cpu_seconds()
        for _ in range(20):
            reader.connection.sendall(request)
            self.assertEqual(reader.answer().outputs(), expected)
            time.sleep(0.02)
        self.assertLess(self.cpu_seconds() - burned, 0.2 * SLOW, "it tries again and again")
        reader.close()
        for other in late:  # one client after another gets the only descriptor
            self.assertEqual(other.answer().outputs(), expected)
            other.close()

    def test_none_and_nobody_there(self):
        """No descriptor is left, and no connection is open whose end would free one. The server
        retries now and then, and reports it once."""
        server = Server("--log-level", "error", "--io-threads", "1")
        self.addCleanup(server.process.kill)
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        taken = set(map(int, os.listdir("/proc/%d/fd" % server.pid)))
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (free, hard))
        readers = [Reader(server.connect()) for _ in range(3)]
        for reader in readers:
            reader.connection.sendall(raw_request("GET", "/v2/health/live"))
        deadline = time.monotonic() + 30 * SLOW
        while "they wait" not in server.stderr() and time.monotonic() < deadline:
            time.sleep(0.05)
        burned = self.cpu_seconds(server)
        time.sleep(2)
        self.assertLess(self.cpu_seconds(server) - burned, 0.3 * SLOW, "it tries at once")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        for reader in readers:
            self.assertEqual(reader.answer().status, 200)
            reader.close()
        self.assertEqual(server.stop().count("they wait"), 1)

    def test_none_for_a_load(self):
        body = ModelTest.load_body(None, {"file:1/model.onnx": conv_file([1, 2, 1])})
        soft, hard = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)
        self.addCleanup(resource.prlimit, self.server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.leave(1)
        reader = Reader(self.server.connect())
        for _ in range(3):
            reader.connection.sendall(load("sent", body) + raw_request("GET", "/metrics"))
            self.assertIn(reader.answer().status, (200, 503))
            self.assertEqual(reader.answer().status, 200)
        reader.close()


class Start(unittest.TestCase):
    def assert_serves(self, arguments):
        """Checks that the server serves and that it ends well."""
        with socket.socket(socket.AF_UNIX) as connection, tempfile.TemporaryDirectory() as folder:
            path = folder + "/s"
            process = subprocess.Popen(["sh", "-c", 'exec "$@" ' + arguments, "sh", *COMMAND,
                                        "--listen", "unix:" + path, "--log-level", "debug"],
                                       stdout=subprocess.DEVNULL)
            end = time.monotonic() + 30 * SLOW
            # The file of the socket exists before the server listens.
            while connection.connect_ex(path) != 0:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            reader = Reader(connection)
            for _ in range(20):
                connection.sendall(raw_infer(DEQUANTIZE, dequantize_json()) +
                                   raw_request("GET", "/nowhere"))
                self.assertEqual(reader.answer().status, 200)
                self.assertEqual(reader.answer().status, 404)
            reader.file.close()
            process.terminate()
            self.assertEqual(process.wait(20 * SLOW), 0)

    def test_the_logs_disk_is_full(self):
        self.assert_serves("2>/dev/full")

    def test_nobody_listens(self):
        for closed in ("2>&-", ">/dev/null 2>&- <&-", ">&- 2>&- <&-"):
            self.assert_serves(closed)

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_threads_cannot_start(self):
        library = shim(self, "nth_thread")
        for number in (1, 2, 3, 4, 5, 100):
            result = subprocess.Popen(
                [*COMMAND, "--listen", "127.0.0.1:0", "--threads", "3"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment({"LD_PRELOAD": library, "NTH_THREAD": str(number)}))
            line = result.stdout.readline()
            if line:
                result.terminate()
            said = result.stderr.read().decode()
            result.stdout.close()
            result.stderr.close()
            self.assertEqual(result.wait(20), 0 if line else 1, (number, said))
            if not line:
                expected = ("standard error: out of memory, or of threads" if number == 1 else
                            "--threads: cannot start 3; memory or the limit" if number <= 4 else
                            "out of memory, file descriptors or threads")
                self.assertIn(expected, said, number)
        self.assertNotEqual(line, b"")


class Resets(ModelTest):
    """The client resets its connection in each state of its request."""

    FLAGS = ("--threads", "1", "--max-inflight-bytes", "512M")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fds = cls.server.open_fds()
        side = 192
        cls.slow = raw_infer(CONV, *binary_request(conv_tensors(
            [i % 3 for i in range(64 * side * side)], [1, 64, side, side],
            [i % 2 for i in range(256 * 64 * 49)], [256, 64, 7, 7])))
        count = 8 << 20
        cls.long = raw_infer(DEQUANTIZE, *binary_request([
            Tensor("x", "UINT8", [count], bytes(count)), Tensor.of("x_scale", "FP32", [], [2])]))

    def wait_for(self, name, wanted):
        wait_until(lambda: gauges(self.server)[name] == wanted, "%s of %d" % (name, wanted), 20)

    def assert_nothing_is_left(self):
        self.wait_for("quantd_connections", 1)
        self.wait_for("quantd_queue_length", 0)
        self.wait_for("quantd_inflight_bytes", 0)
        self.assertEqual(self.server.infer(DEQUANTIZE, dequantize_json()).status, 200)
        wait_until(lambda: self.server.open_fds() <= self.fds, "as few descriptors as before", 20)

    def test_in_the_head_and_in_the_body(self):
        request = raw_infer(DEQUANTIZE, *binary_request(dequantize_tensors()))
        head = request.index(b"\r\n\r\n") + 4
        for sent in (0, 1, 20, head - 2, head, head + 1, len(request) - 1):
            for _ in range(5):
                connection = self.server.connect()
                connection.sendall(request[:sent])
                reset(connection)
        self.assert_nothing_is_left()

    def test_while_it_runs_and_while_it_waits(self):
        asked = []
        # If bodies come no faster than they are computed, none waits for long.
        while gauges(self.server)["quantd_queue_length"] < 2 and len(asked) < 40:
            asked.append(self.server.connect())
            asked[-1].sendall(self.slow)
        for connection in asked[4:] + asked[:4]:
            reset(connection)
        self.assert_nothing_is_left()

    def test_while_it_is_answered(self):
        for taken in (0, 1, 1 << 10, 1 << 20):
            connection = self.server.connect()
            connection.sendall(self.long)
            while taken > 0:
                taken -= len(connection.recv(min(taken, 1 << 16)))
            reset(connection)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
