"""--threads auto and --max-inflight-bytes auto: taken from the machine or the container."""
import os
import re
import tempfile
import unittest

from quantd import SANITIZED, Server
from shim import build_shim

GIB = 1 << 30


def resolved(server):
    """Ends the server, and returns (threads, max_inflight_bytes) from its first log line."""
    text = server.stop()
    match = re.search(r'msg="quantd starts".* threads=(\d+) max_inflight_bytes=(\d+)$', text,
                      re.MULTILINE)
    return int(match.group(1)), int(match.group(2))


class Limits(unittest.TestCase):
    def test_explicit(self):
        server = Server("--threads", "3", "--max-inflight-bytes", "5M")
        self.assertEqual(resolved(server), (3, 5 << 20))

    def test_less_in_flight_than_a_body_may_have(self):
        for flags, warned in ((("--max-inflight-bytes", "5M"), 1), ((), 0),
                              (("--max-inflight-bytes", "5M", "--max-body-bytes", "5M"), 0)):
            text = Server(*flags).stop()
            self.assertEqual(text.count("level=warn msg=\"--max-inflight-bytes below "
                                        "--max-body-bytes"), warned, text)

    def test_auto_is_the_default(self):
        self.assertEqual(resolved(Server()),
                         resolved(Server("--threads", "auto", "--max-inflight-bytes", "auto")))

    def test_here(self):
        threads, inflight = resolved(Server())
        self.assertTrue(1 <= threads <= len(os.sched_getaffinity(0)))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.assertTrue(1 << 20 <= inflight <= min(2 * GIB, memory // 2), inflight)

    def test_one_cpu(self):
        cpu = min(os.sched_getaffinity(0))
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {cpu})
        try:
            server = Server()
        finally:
            os.sched_setaffinity(0, before)
        self.assertEqual(resolved(server)[0], 1)


@unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
class OfAContainer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.shim = build_shim(cls.folder.name, "fake_limits")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def in_container(self, parallelism=1, total=0, constrained=0):
        return {"LD_PRELOAD": self.shim, "FAKE_PARALLELISM": str(parallelism),
                "FAKE_TOTAL_MEMORY": str(total), "FAKE_CONSTRAINED_MEMORY": str(constrained)}

    def test_memory(self):
        for total, constrained, expected in (
                (64 * GIB, 0, 2 * GIB),  # no container
                (64 * GIB, 512 << 20, 256 << 20),
                (64 * GIB, 32 * GIB, 2 * GIB),
                (3 * GIB, 0, 3 * GIB // 2),
                (3 * GIB, (1 << 64) - 1, 3 * GIB // 2),  # "max" in version 2
                (3 * GIB, 0x7ffffffffffff000, 3 * GIB // 2),  # no limit in version 1
                (0, 512 << 20, 256 << 20),
                (0, 0, 2 * GIB)):  # neither is known
            with self.subTest(total=total, constrained=constrained):
                environment = self.in_container(1, total, constrained)
                self.assertEqual(resolved(Server(env=environment))[1], expected)

    def test_threads(self):
        server = Server(env=self.in_container(parallelism=3))
        tasks = len(os.listdir("/proc/%d/task" % server.pid))
        self.assertEqual(resolved(server)[0], 3)
        server = Server(env=self.in_container(parallelism=1))
        self.assertEqual(tasks - len(os.listdir("/proc/%d/task" % server.pid)), 2)
        server.stop()

    def test_the_limit_is_the_limit(self):
        # 2 MiB of memory: half of that can never hold a body of 1 MiB and its tensors.
        server = Server(env=self.in_container(constrained=2 << 20))
        answer = server.request("POST", "/v2/models/onnx.DequantizeLinear/infer",
                                b" " * (2 << 20))
        self.assertEqual(answer.status, 413, answer.body)
        self.assertIn("--max-inflight-bytes", answer.json()["error"])
        server.stop()


if __name__ == "__main__":
    unittest.main()
