"""SIGHUP: requests do not wait while files are read again, and the signal may come at any time."""
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from loading import conv_file
from quantd import COMMAND, SANITIZED, SLOW, Server, read_shared, unless_emulated
from shim import shim
from tls import make_certificate

TOKENS = ("first-token-0123456789", "second-token-0123456789")


class Reload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def status(self, server, token):
        return server.request("GET", "/v2", headers={"Authorization": "Bearer " + token}).status

    @unless_emulated("preloading")
    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_requests_do_not_wait_for_files(self):
        file, held = self.folder / "slow", self.folder / "slow.held"
        file.write_text(TOKENS[0])
        server = Server("--token-file", str(file), env={"LD_PRELOAD": shim(self, "slow_file")})
        held.touch()
        file.write_text(TOKENS[1])
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
            for _ in range(50):
                self.assertEqual([self.status(server, token) for token in TOKENS], [200, 401])
        self.assertEqual(server.stderr().count("tokens are read"), 1)
        held.unlink()
        # The read that waited, and one more for the signals that came meanwhile.
        server.wait_for_log("tokens are read", 3)
        self.assertEqual([self.status(server, token) for token in TOKENS], [401, 200])
        self.assertEqual(server.stop().count("tokens are read"), 3)

    @unless_emulated("preloading")
    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_the_end_does_not_wait_for_long(self):
        file = self.folder / "slow"
        file.write_text(TOKENS[0])
        server = Server("--token-file", str(file), env={"LD_PRELOAD": shim(self, "slow_file")})
        (self.folder / "slow.held").touch()
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.status(server, TOKENS[0]), 200)
        self.assertIn("quantd ends", server.stop())

    def test_it_comes_before_anybody_is_listened_to(self):
        make_certificate(self.folder, "one")
        for i in range(40):
            path = self.folder / ("models/m%d/1/model.onnx" % i)
            path.parent.mkdir(parents=True)
            path.write_bytes(conv_file([1, 2, 3, 4]))
        log = tempfile.TemporaryFile()
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [*COMMAND, "--listen", "127.0.0.1:0", "--tls-cert", str(self.folder / "one.crt"),
             "--tls-key", str(self.folder / "one.key"), "--model-repository",
             str(self.folder / "models")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log)
        self.addCleanup(process.stdout.close)
        deadline = time.monotonic() + 20 * SLOW
        while b"quantd starts" not in read_shared(log):
            self.assertLess(time.monotonic(), deadline)
        listening = threading.Event()

        def send():
            while not listening.wait(0.0005):
                process.send_signal(signal.SIGHUP)

        thread = threading.Thread(target=send)
        thread.start()
        line = process.stdout.readline()
        listening.set()
        thread.join()
        process.terminate()
        self.assertEqual((process.wait(20 * SLOW), line[:25]), (0, b"quantd listening on https"),
                         read_shared(log))
        self.assertIn(b"the certificate is read", read_shared(log))



if __name__ == "__main__":
    unittest.main()
