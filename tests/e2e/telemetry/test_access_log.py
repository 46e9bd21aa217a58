"""--access-log: one line for each request, with the request, its outcome and its duration; and W3C
trace context, which is copied into that line."""
import json
import os
import random
import re
import signal
import stat
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from quantd import (COMMAND, ONE_IO_THREAD, SLOW, Reader, Server, infer_path, parse_metrics,
                    refuse_constant, refuse_duplicates)
from samples import DEQUANTIZE, dequantize_json, spoiled

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = "00-%s-%s-01" % (TRACE, PARENT)
NASTY = ['"', "\\", "\\\\", "\n", "\r\n", "\t", "\x00", "\x1b[31m", "\x7f", "}{", "'", "=", " ",
         "é", "\u2028", "\U0001f600", "\ud800", "/", "%22", "%00", "%ff", "a" * 300]


def strictly(line):
    return json.loads(line.decode("utf-8"), parse_constant=refuse_constant,
                      object_pairs_hook=refuse_duplicates)


class AccessLog(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "access.log"

    def start(self, *flags, path=None, **more):
        server = self.server = Server("--access-log", str(path or self.path), *flags, **more)
        self.addCleanup(lambda: server.terminated or server.stop())

    def lines(self):
        """Ends the server and returns all lines of the log, parsed as JSON."""
        self.server.stop()
        return [strictly(line) for line in self.path.read_bytes().splitlines()]

    def dropped(self):
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        return metrics[("quantd_log_lines_dropped_total", (("log", "access"),))]

    def test_an_inference(self):
        self.start("--log-format", "json")
        body = json.dumps(dict(dequantize_json(), id="an id")).encode()
        answer = self.server.infer(DEQUANTIZE, body, 13, {
            "traceparent": TRACEPARENT, "tracestate": "a=b,c@d=e"})
        self.assertEqual(answer.status, 200)
        line, = self.lines()
        self.assertRegex(line["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertRegex(line["client"], r"^127\.0\.0\.1:\d+$")
        expected = {"level": "info", "msg": "answered", "method": "POST",
                    "path": infer_path(DEQUANTIZE, 13), "status": 200, "model": DEQUANTIZE,
                    "version": 13, "id": "an id",
                    "inputs": "x:UINT8[4] x_scale:FP32[] x_zero_point:UINT8[]",
                    "bytes_in": len(body), "bytes_out": len(answer.body), "trace_id": TRACE,
                    "parent_id": PARENT, "tracestate": "a=b,c@d=e"}
        self.assertEqual({key: line[key] for key in expected}, expected)
        stages = answer.stages()
        for name in ("receive", "queue", "decode", "compute", "encode", "total"):
            self.assertAlmostEqual(line[name + "_us"], stages.get(name, 0) * 1000, delta=1)
        self.assertIn("send_us", line)
        self.assertEqual(answer.headers["traceresponse"],
                         "00-%s-%s-01" % (TRACE, line["span_id"]))
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o640)

    def test_refusals(self):
        self.start("--log-format", "json", "--max-body-bytes", "1000")
        self.server.infer(DEQUANTIZE, dict(spoiled("x", data=[1]), id="i"))
        self.server.infer(DEQUANTIZE, b" " * 1001)
        self.server.request("DELETE", "/v2/nowhere?query=is+cut")
        with self.server.connect() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
            Reader(connection).answer()
        with self.server.connect() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000)
            Reader(connection).answer()
        # Several I/O threads may write the lines in another order.
        hosts, bad, nowhere, large, head = sorted(
            self.lines(), key=lambda line: (line["status"], line.get("path", "")))
        self.assertEqual((bad["status"], bad["id"]), (400, "i"))
        self.assertTrue(bad["inputs"].startswith("x:UINT8[4]"), bad)
        self.assertIn("expected 4 elements", bad["error"])
        self.assertEqual((large["status"], large["path"]), (413, infer_path(DEQUANTIZE)))
        self.assertEqual((nowhere["status"], nowhere["method"], nowhere["path"]),
                         (404, "DELETE", "/v2/nowhere"))
        self.assertNotIn("model", nowhere)
        self.assertEqual(hosts["status"], 400)
        self.assertNotIn("path", hosts)  # it is refused before anybody reads the first line
        self.assertIn("Host", hosts["error"])
        self.assertEqual(head["status"], 431)
        self.assertRegex(head["client"], r"^127\.0\.0\.1:")

    def test_text(self):
        self.start(*ONE_IO_THREAD,
                   listen=("unix:%s/socket" % self.folder.name, "127.0.0.1:0"))
        self.server.infer(DEQUANTIZE, dict(dequantize_json(), id='a"b\nc'), 13)
        subprocess.run(["curl", "-sf", "--unix-socket", self.folder.name + "/socket",
                        "http://localhost/v2/health/live"], check=True, stdout=subprocess.DEVNULL)
        self.server.stop()
        infer, health = self.path.read_text().splitlines()
        self.assertRegex(infer, r'^ts=\S+Z level=info msg="answered" client="127\.0\.0\.1:\d+" '
                                r'method="POST" path="\S+" status=200 model="%s" version=13 '
                                r'id="a\\"b\?c" inputs="x:UINT8\[4\] x_scale:FP32\[\] [^"]*" '
                                r'bytes_in=\d+ bytes_out=\d+ receive_us=\d+ queue_us=\d+ '
                                r'decode_us=\d+ compute_us=\d+ encode_us=\d+ total_us=\d+ '
                                r'send_us=\d+$' % re.escape(DEQUANTIZE))
        self.assertRegex(health, r'client="unix" method="GET" path="/v2/health/live" status=200 '
                                 r'bytes_in=0 bytes_out=13 receive_us=\d+ total_us=\d+ '
                                 r'send_us=\d+$')

    def test_many_inputs_are_cut(self):
        self.start("--log-format", "json")
        shape = [1] * 7 + [4]
        request = dequantize_json()
        request["inputs"][0]["shape"] = shape
        self.server.infer(DEQUANTIZE, dict(request, id="i" * 1000), 13)
        line, = self.lines()
        self.assertEqual(line["id"], "i" * 128)
        self.assertTrue(line["inputs"].startswith("x:UINT8[1,1,1,1,1,1,1,4] "), line["inputs"])

    def test_whoever_leaves_is_there_too(self):
        self.start("--log-format", "json")
        with self.server.connect() as connection:
            connection.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
                               % infer_path(DEQUANTIZE).encode())
        end = time.monotonic() + 10 * SLOW
        while not self.path.read_bytes() and time.monotonic() < end:
            time.sleep(0.01)
        line, = self.lines()
        self.assertEqual((line["msg"], line["model"], line["bytes_in"]),
                         ("gone before the answer", DEQUANTIZE, 1))
        self.assertNotIn("bytes_out", line)

    def test_hostile_values_stay_in_their_places(self):
        """Whatever names, paths and headers contain, a line is one object with only our keys."""
        self.start("--log-format", "json", *ONE_IO_THREAD)  # so that the lines are in order
        chance = random.Random(7)
        keys = {"ts", "level", "msg", "client", "method", "path", "status", "model", "version",
                "id", "inputs", "bytes_in", "bytes_out", "trace_id", "span_id", "parent_id",
                "tracestate", "error"}
        ids, count = [], 300
        connection = self.server.connect()
        self.addCleanup(connection.close)
        reader = Reader(connection)
        self.addCleanup(reader.close)
        for _ in range(count):
            text = "".join(chance.choice(NASTY) for _ in range(chance.randrange(1, 6)))
            target = text.encode("utf-8", "surrogatepass").translate(None, b" \r\n\t\x00?#")
            fields = "".join(c for c in text if c not in "\r\n\x00").encode("utf-8", "replace")
            body = json.dumps(dict(dequantize_json(), id=text.replace("\x00", ""))).encode()
            method, path = chance.choice((
                (b"GET", b"/" + target), (b"POST", infer_path(DEQUANTIZE, 13).encode()),
                (b"POST", b"/v2/models/" + target + b"/infer"), (b"A'B", b"/v2")))
            connection.sendall(b"%s %s HTTP/1.1\r\nHost: a\r\ntraceparent: %s\r\ntracestate: %s\r\n"
                               b"Content-Length: %d\r\n\r\n%s"
                               % (method, path, chance.choice((TRACEPARENT.encode(), fields)),
                                  chance.choice((b"a=b", fields)), len(body), body))
            answer = reader.answer()
            if answer.headers.get("Connection") == "close":
                reader.close()
                connection = self.server.connect()
                reader = Reader(connection)
            if answer.status == 200 and path != b"/":
                ids.append(json.loads(body)["id"])
        reader.close()
        lines = self.lines()
        self.assertEqual(len(lines), count)
        for line in lines:
            self.assertEqual({key for key in line if not key.endswith("_us")} - keys, set())
        logged = [line["id"] for line in lines if line["status"] == 200 and line["path"] != "/"]
        self.assertGreater(len(ids), 10)
        for mine, theirs in zip(ids, logged, strict=True):
            self.assertTrue(mine.encode().startswith(theirs.encode().rstrip(b"\xef\xbf\xbd")))

    def test_a_full_disk_loses_lines_and_nothing_else(self):
        self.start("--log-format", "json", path="/dev/full")
        for _ in range(5):
            self.assertEqual(self.server.get("/v2/health/live").status, 200)
        end = time.monotonic() + 10 * SLOW
        while self.dropped() < 5 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertGreaterEqual(self.dropped(), 5)
        self.assertEqual(self.server.stop().count("cannot be written"), 1)

    def test_a_reader_that_stands_still_stops_nobody(self):
        os.mkfifo(self.path)
        pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, pipe)
        self.start("--log-format", "json")
        sent, longest = 0, 0
        client = self.server.client()
        target = "/" + "\\" * 900
        while self.dropped() == 0:
            for _ in range(500):
                begin = time.monotonic()
                client.request("GET", target)
                client.getresponse().read()
                longest = max(longest, time.monotonic() - begin)
            sent += 500
            self.assertLess(sent, 20000)
        client.close()
        self.assertLess(longest, 10 * SLOW)
        # Requests for the metrics count, too. The last two lines may have been dropped.
        sent += sent // 500 + 2
        dropped = self.dropped()
        got, end = b"", time.monotonic() + 10 * SLOW
        while got.count(b"\n") < sent - dropped - 2 and time.monotonic() < end:
            try:
                got += os.read(pipe, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        lines = [strictly(line) for line in got.splitlines()]
        self.assertAlmostEqual(len(lines), sent - dropped, delta=2)

    def test_a_moved_file_is_made_anew(self):
        self.start("--log-format", "json")
        old = self.path.with_suffix(".1")
        self.server.get("/first")
        end = time.monotonic() + 10 * SLOW
        while not self.path.read_bytes() and time.monotonic() < end:
            time.sleep(0.01)
        self.path.rename(old)
        os.kill(self.server.pid, signal.SIGHUP)
        while not self.path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        self.server.get("/second")
        line, = self.lines()
        self.assertEqual(line["path"], "/second")
        self.assertIn(b"/first", old.read_bytes())
        self.assertNotIn(b"/second", old.read_bytes())

    def test_a_file_that_cannot_be(self):
        result = subprocess.run([*COMMAND, "--listen", "127.0.0.1:0", "--access-log",
                                 "/nowhere/access.log"], capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(b"--access-log", result.stderr)
        self.assertIn(b"/nowhere/access.log", result.stderr)

    def test_standard_error_and_nothing(self):
        for path, there in (("-", True), ("off", False)):
            server = Server("--access-log", path)
            server.get("/v2/models")
            self.assertEqual('path="/v2/models"' in server.stop(), there)

    def test_calls_do_not_touch_it(self):
        self.start()
        self.server.request("POST", "/v2/logging", b'{"log_info":false,"log_format":"json"}')
        self.server.get("/v2/health/live")
        self.server.stop()
        self.assertEqual(self.path.read_text().count("ts="), 2)


class TraceContext(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.stop)

    def response(self, *fields):
        with self.server.connect() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n%s\r\n" % b"".join(
                b"traceparent: %s\r\n" % field.encode() for field in fields))
            reader = Reader(connection)
            answer = reader.answer()
            reader.close()
            self.assertEqual(answer.status, 200)
            return answer.headers.get("traceresponse")

    def test_valid(self):
        spans = set()
        for given, flags in ((TRACEPARENT, "01"), (TRACEPARENT[:-2] + "00", "00"),
                             (TRACEPARENT + " ", "01"), ("cc" + TRACEPARENT[2:], "01"),
                             ("cc" + TRACEPARENT[2:] + "-what.comes", "01")):
            match = re.fullmatch(r"00-(\w{32})-([0-9a-f]{16})-(\w\w)", self.response(given))
            self.assertEqual((match[1], match[3]), (TRACE, flags))
            spans.add(match[2])
        self.assertEqual(len(spans), 5)
        self.assertNotIn(PARENT, spans)

    def test_invalid_ones_are_ignored(self):
        for given in ("", "00", TRACEPARENT[:-1], TRACEPARENT + "-", TRACEPARENT + "-00",
                      TRACEPARENT.upper(), "ff" + TRACEPARENT[2:], "0g" + TRACEPARENT[2:],
                      TRACEPARENT.replace("-", "_"), "00-%s-%s-01" % ("0" * 32, PARENT),
                      "00-%s-%s-01" % (TRACE, "0" * 16), "cc" + TRACEPARENT[2:] + "x",
                      TRACEPARENT.replace("4bf9", "4bF9"), "00-" + TRACE + PARENT + "-01-0"):
            with self.subTest(given):
                self.assertIsNone(self.response(given))
        self.assertIsNone(self.response())
        self.assertIsNone(self.response(TRACEPARENT, TRACEPARENT))

    def test_refusals_have_it(self):
        answer = self.server.request("GET", "/nowhere", headers={"Traceparent": TRACEPARENT})
        self.assertEqual(answer.status, 404)
        self.assertIn(TRACE, answer.headers["traceresponse"])


if __name__ == "__main__":
    unittest.main()
