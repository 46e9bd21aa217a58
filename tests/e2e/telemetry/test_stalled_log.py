"""The reader of standard error stops reading. The server does not wait for it, and the reader
learns how many lines were dropped."""
import os
import pty
import re
import threading
import time
import unittest

from quantd import SLOW, Reader, Server, parse_metrics, raw_request, run_threads

REQUESTS = 1000
THREADS = 6
LOST = re.compile(rb'level=warn msg="log: lines were dropped, as nobody read them" '
                  rb'count=(\d+)\r?\n')


class Stalled(unittest.TestCase):
    def start(self, writable, *flags):
        server = Server("--log-level", "debug", "--io-threads", "3", *flags, stderr=writable)
        os.close(writable)
        return server

    def dropped(self, server):
        return int(parse_metrics(server.get("/metrics").body.decode())[
            ("quantd_log_lines_dropped_total", (("log", "events"),))])

    def ask(self, server):
        """Sends requests. Each makes a log line, written by the thread of its connection's loop."""
        reader = Reader(server.connect())
        request = raw_request("GET", "/v2/" + "a" * 600)
        for _ in range(REQUESTS // 50):
            reader.connection.sendall(request * 50)
            for _ in range(50):
                self.assertEqual(reader.answer("GET").status, 404)
        reader.close()

    def check(self, readable, writable):
        server = self.start(writable)
        while self.dropped(server) == 0:
            run_threads([lambda: self.ask(server)] * THREADS)
        received, told = bytearray(), threading.Event()

        def read():
            try:
                while data := os.read(readable, 1 << 16):
                    received.extend(data)
                    if LOST.search(received[-200000:]):
                        told.set()
            except OSError:
                pass  # the other end of a terminal has been closed

        thread = threading.Thread(target=read)
        thread.start()
        self.assertTrue(told.wait(60))
        self.assertEqual(server.get("/v2").status, 200)
        self.assertGreater(self.dropped(server), 0)
        server.stop()
        thread.join()
        os.close(readable)
        lines = bytes(received).replace(b"\r\n", b"\n").split(b"\n")
        self.assertEqual(lines.pop(), b"")
        for line in lines:
            self.assertRegex(line[:60], rb"^ts=\S+ level=\w+ msg=\"")
        self.assertIn(b'msg="quantd ends"', lines[-1])

    def test_a_pipe(self):
        self.check(*os.pipe())

    def test_a_terminal(self):
        """A terminal reports that it is writable if it has room for a part of a line; writing the
        whole line blocks."""
        try:
            self.check(*pty.openpty())
        except FileNotFoundError:
            self.skipTest("no terminals here")

    def test_the_end_does_not_wait_for_long(self):
        readable, writable = pty.openpty()
        server = self.start(writable)
        run_threads([lambda: self.ask(server)] * THREADS)
        server.stop()
        os.close(readable)

    def test_a_reader_that_has_gone(self):
        readable, writable = os.pipe()
        server = self.start(writable)
        os.close(readable)
        self.ask(server)
        self.assertEqual(server.get("/v2").status, 200)
        end = time.monotonic() + 30 * SLOW  # the last request's line follows its answer
        while self.dropped(server) < REQUESTS and time.monotonic() < end:
            time.sleep(0.01)
        self.assertGreaterEqual(self.dropped(server), REQUESTS)
        server.stop()


if __name__ == "__main__":
    unittest.main()
