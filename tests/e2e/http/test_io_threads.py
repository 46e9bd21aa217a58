"""--io-threads: connections are distributed over several threads, and clients see no difference.

The kernel chooses the thread of a TCP connection by a hash of its ports with a secret key. With
CONNECTIONS connections, one of three threads has none once in 10^16 times.
"""
import collections
import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from elements import to_raw
from loading import ModelTest, conv_file, convolve, load, unload
from quantd import (COMMAND, SANITIZED, SLOW, Reader, Server, Tensor, binary_request, connect_unix,
                    infer_path, json_request, parse_metrics, raw_infer, raw_request, wait_until)
from samples import CONV, DEQUANTIZE, DEQUANTIZED, conv_tensors, dequantize_json
from shim import shim

THREADS = 3
CONNECTIONS = 96
LIVE = raw_request("GET", "/v2/health/live")


def gauges(reader):
    """Returns the number of all connections, and the numbers of each thread, as read on one of
    these connections."""
    reader.connection.sendall(raw_request("GET", "/metrics"))
    samples = parse_metrics(reader.answer().body.decode())
    return samples[("quantd_connections", ())], [
        samples[("quantd_io_thread_connections", (("thread", str(index)),))]
        for index in range(THREADS)]


def start(*flags, **more):
    return Server("--io-threads", str(THREADS), "--threads", "2", *flags, **more)


class IoThreads(unittest.TestCase):
    def start(self, *flags, **more):
        """Starts a server. The test must stop it; if the test fails, the server is killed."""
        server = start(*flags, **more)
        self.addCleanup(lambda: server.process.poll() is None and server.process.kill())
        return server

    def keep(self, connection):
        reader = Reader(connection)
        self.addCleanup(reader.close)
        return reader

    def connect(self, server, count=CONNECTIONS):
        """Returns readers of `count` connections, each of which one of the server's threads has
        accepted."""
        readers = [self.keep(server.connect()) for _ in range(count)]
        for answer in self.ask_all(readers, LIVE):
            self.assertEqual(answer.status, 200)
        return readers

    @staticmethod
    def ask_all(readers, request):
        """Sends the same request on all connections before the first answer is read. Returns the
        answers."""
        for reader in readers:
            reader.connection.sendall(request)
        return [reader.answer() for reader in readers]


class Serve(IoThreads):
    def test_each_thread_has_connections(self):
        server = self.start()
        readers = self.connect(server)
        total, counts = gauges(readers[0])
        self.assertEqual(total, CONNECTIONS)
        self.assertEqual(sum(counts), CONNECTIONS)
        self.assertGreater(min(counts), 0)
        for reader in readers[1:]:
            reader.close()
        wait_until(lambda: gauges(readers[0])[0] == 1, "one connection")
        self.assertEqual(sorted(gauges(readers[0])[1]), [0, 0, 1])
        readers[0].close()
        server.stop()

    def test_answers_are_right(self):
        """Requests computed on the I/O thread, by one worker, and by several workers."""
        server = self.start()
        readers = self.connect(server)
        row = [(i * i) % 251 for i in range(50000)]
        halves = to_raw("FP32", [number / 2 for number in row])

        def halve(count):
            return [Tensor.of("x", "UINT8", [count], row[:count]),
                    Tensor.of("x_scale", "FP32", [], [0.5])]

        convolution = conv_tensors(row, [1, 1, len(row)], [1, -2, 3], [1, 1, 3])
        for request, expected in (
                (raw_infer(DEQUANTIZE, dequantize_json()), to_raw("FP32", DEQUANTIZED)),
                (raw_infer(DEQUANTIZE, json_request(halve(1000))), halves[:4000]),
                (raw_infer(DEQUANTIZE, *binary_request(halve(len(row)))), halves),
                (raw_infer(CONV, *binary_request(convolution)), bytes(convolve(row, [1, -2, 3])))):
            for answer in self.ask_all(readers, request):
                self.assertEqual(answer.status, 200, answer.body[:300])
                self.assertEqual(answer.outputs()["y"][2], expected)
        server.stop()

    def test_a_model_is_in_service_for_all(self):
        server = self.start("--model-control-mode", "explicit")
        readers = self.connect(server)
        numbers = [3, 1, 4, 1, 5, 9]
        ask = raw_infer("layer", json_request([Tensor.of("x", "UINT8", [1, 1, 6], numbers)]))
        for index, weights in enumerate(([1, 2, 1], [5, 0, 2])):
            file = {"file:1/model.onnx": conv_file(weights)}
            call = load("layer", ModelTest.load_body(None, file))
            answer, = self.ask_all([readers[index]], call)
            self.assertEqual(answer.status, 200, answer.body)
            for answer in self.ask_all(readers, ask):
                self.assertEqual(answer.json()["outputs"][0]["data"], convolve(numbers, weights))
        answer, = self.ask_all([readers[2]], unload("layer"))
        self.assertEqual(answer.status, 200, answer.body)
        for answer in self.ask_all(readers, ask):
            self.assertEqual(answer.status, 404, answer.body)
        server.stop()

    def test_unix_socket(self):
        """The first thread that wakes accepts the connection, which may always be the same
        thread."""
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/s"
            server = self.start(listen=("unix:" + path,))
            readers = []
            for _ in range(CONNECTIONS):
                readers.append(self.keep(connect_unix(path)))
            for answer in self.ask_all(readers, raw_infer(DEQUANTIZE, dequantize_json())):
                self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", DEQUANTIZED))
            total, counts = gauges(readers[0])
            self.assertEqual((total, sum(counts)), (CONNECTIONS, CONNECTIONS))
            server.stop()
            self.assertEqual(os.listdir(folder), [])

    def test_the_bound_is_of_all_threads(self):
        server = self.start("--max-connections", str(CONNECTIONS))
        readers = self.connect(server)
        late = [self.keep(server.connect()) for _ in range(8)]
        for answer in self.ask_all(late, raw_infer(DEQUANTIZE, dequantize_json())):
            self.assertEqual(answer.status, 503)
            self.assertIn("--max-connections", answer.json()["error"])
        readers.pop().close()
        wait_until(lambda: gauges(readers[0])[0] == CONNECTIONS - 1, "one connection less")
        self.connect(server, 1)
        server.stop()


class Fail(IoThreads):
    def settled(self, reader, gauge):
        """Returns the gauge as soon as it is 0. A thread of its own unmaps an unregistered region,
        which counts until then."""
        deadline = time.monotonic() + 60
        while True:
            reader.connection.sendall(raw_request("GET", "/metrics"))
            value = parse_metrics(reader.answer().body.decode())[(gauge, ())]
            if value == 0 or time.monotonic() > deadline:
                return value

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "no /dev/shm")
    def test_requests_on_a_region_that_fail(self):
        """Every thread logs its requests, those that fail with the reason, and no failure keeps
        the region."""
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="quantd-test-") as shared, \
                tempfile.TemporaryDirectory() as folder:
            shared.truncate(4096)
            log = Path(folder, "access.log")
            server = self.start("--access-log", str(log), "--log-format", "json",
                                "--allow-shared-memory", "quantd-test-")
            readers = self.connect(server)
            path = "/v2/systemsharedmemory/region/x/"
            body = json.dumps({"key": "/" + os.path.basename(shared.name), "byte_size": 4096})
            readers[0].connection.sendall(raw_request("POST", path + "register", body.encode()))
            self.assertEqual(readers[0].answer().status, 200)

            def ask(name, size, scale_shape):
                region = {"shared_memory_region": name, "shared_memory_byte_size": size}
                return raw_infer(DEQUANTIZE, {"inputs": [
                    {"name": "x", "datatype": "UINT8", "shape": [size], "parameters": region},
                    {"name": "x_scale", "datatype": "FP32", "shape": scale_shape,
                     "data": [1] * (scale_shape + [1])[0]}]})

            requests = ((ask("x", 4096, []), 200), (ask("x", 4096, [2]), 400),
                        (ask("x", 4097, []), 400), (ask("z", 9, []), 400))
            errors = collections.Counter()
            for request, status in requests:
                for answer in self.ask_all(readers, request):
                    self.assertEqual(answer.status, status, answer.body[:300])
                errors[answer.json()["error"] if status == 400 else None] += CONNECTIONS
            self.assertEqual(len(errors), len(requests))
            readers[0].connection.sendall(raw_request("POST", path + "unregister"))
            self.assertEqual(readers[0].answer().status, 200)
            for gauge in ("regions", "bytes"):
                self.assertEqual(self.settled(readers[0], "quantd_shared_memory_" + gauge), 0)
            server.stop()
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            self.assertEqual(errors, collections.Counter(
                line.get("error") for line in lines if line.get("model") == DEQUANTIZE))


class End(IoThreads):
    def begin(self, server):
        """Opens requests on all threads whose heads the server has read. Returns their readers and
        the body that each still has to send."""
        readers = self.connect(server)
        body, headers = binary_request([Tensor.of("x", "UINT8", [5], [0, 1, 2, 3, 255]),
                                        Tensor.of("x_scale", "FP32", [], [0.5])])
        headers.update({"Expect": "100-continue", "Content-Length": len(body)})
        lines = ["POST %s HTTP/1.1" % infer_path(DEQUANTIZE), "Host: q"]
        lines += ["%s: %s" % header for header in headers.items()]
        head = "\r\n".join(lines + ["", ""]).encode()
        for answer in self.ask_all(readers, head):
            self.assertEqual(answer.status, 100)
        return readers, body

    def test_what_has_begun_is_answered(self):
        server = self.start()
        readers, body = self.begin(server)
        server.terminate()
        wait_until(lambda: "draining" in server.stderr(), "draining")
        for answer in self.ask_all(readers, body):
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.outputs()["y"][2], to_raw("FP32", [0, 0.5, 1, 1.5, 127.5]))
        for reader in readers:
            self.assertIsNone(reader.answer())
        server.stop()

    def test_what_does_not_come_is_cut_off(self):
        server = self.start("--drain-timeout", "1")
        readers, _ = self.begin(server)
        server.terminate()
        for reader in readers:
            answer = reader.answer()
            self.assertTrue(answer is None or answer.status == 408, answer)
        self.assertIn("closing the remaining connections", server.stop())


class Start(unittest.TestCase):
    def run_and_fail(self, *flags, env=None):
        """Runs a server whose start must fail, and returns what it prints."""
        result = subprocess.run([*COMMAND, *flags], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                env=dict(os.environ, **(env or {})), timeout=60 * SLOW)
        said = result.stderr.decode()
        self.assertEqual((result.returncode, result.stdout), (1, b""), said)
        return said

    def test_an_address_is_one_servers(self):
        server = start()
        address = "%s:%d" % (server.host, server.port)
        for threads in ("1", "3"):
            said = self.run_and_fail("--listen", address, "--io-threads", threads)
            self.assertIn("cannot listen on %s: Address already in use" % address, said)
        self.assertEqual(server.get("/v2/health/live").status, 200)
        server.stop()

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_threads_cannot_start(self):
        """The order in which threads start: the log's thread, three workers, the prefault thread,
        and two I/O threads beside the main one. Either the first of these two cannot start, or the
        second, which leaves a first one without work."""
        flags = ("--threads", "3", "--io-threads", "3", "--gemm", "scalar")
        library = shim(self, "nth_thread")
        for number in (6, 7):
            said = self.run_and_fail("--listen", "127.0.0.1:0", *flags,
                                     env={"LD_PRELOAD": library, "NTH_THREAD": str(number)})
            self.assertIn("--io-threads: cannot start 3; memory or the limit on processes", said)
        server = Server(*flags, env={"LD_PRELOAD": library, "NTH_THREAD": "8"})
        self.assertEqual(server.get("/v2/health/live").status, 200)
        server.stop()

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_any_thread_cannot_start(self):
        """With an access log and shared memory, which have threads of their own. Whichever thread
        is the first that cannot start, there is one line with the reason."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "access.log")
            flags = ("--threads", "2", "--io-threads", "3", "--gemm", "scalar", "--log-level",
                     "error", "--access-log", str(log), "--allow-shared-memory", "*")
            library = shim(self, "nth_thread")
            short = "; memory or the limit on processes is short"
            for number, reason in enumerate((
                    "standard error: out of memory, or of threads",
                    "--access-log: out of memory, or of threads",
                    "--allow-shared-memory: out of memory or threads",
                    "--threads: cannot start 2" + short, "--threads: cannot start 2" + short,
                    "out of memory, file descriptors or threads",
                    "--io-threads: cannot start 3" + short,
                    "--io-threads: cannot start 3" + short), 1):
                said = self.run_and_fail("--listen", "127.0.0.1:0", *flags,
                                         env={"LD_PRELOAD": library, "NTH_THREAD": str(number)})
                self.assertEqual(said, "quantd: %s\n" % reason)
                self.assertFalse(log.exists() and log.read_text())
            server = Server(*flags, env={"LD_PRELOAD": library, "NTH_THREAD": "9"})
            self.assertEqual(server.get("/v2/health/live").status, 200)
            server.stop()
            self.assertEqual(len(log.read_text().splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
