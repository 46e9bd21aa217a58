"""quantd --healthcheck: exits with 0 if every listener is ready; otherwise prints one line and
exits with 1."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from quantd import COMMAND, ONE_IO_THREAD, SLOW, Server, has_ipv6

IPV6 = has_ipv6()


def check(*addresses, **environment):
    flags = [word for address in addresses for word in ("--listen", address)]
    return subprocess.run([*COMMAND, "--healthcheck", *flags], stdin=subprocess.DEVNULL,
                          text=True, capture_output=True, timeout=20 * SLOW, check=False,
                          env=dict(os.environ, **environment))


@contextlib.contextmanager
def peer(answer, keep_open=False):
    """Listens like a server that is not quantd, and sends `answer` to its first client. Yields its
    address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        connections = []

        def serve():
            with contextlib.suppress(OSError):
                connection = listener.accept()[0]
                connections.append(connection)
                connection.sendall(answer)
                if not keep_open:
                    connection.recv(4096)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Healthcheck(unittest.TestCase):
    def assert_ready(self, result):
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def assert_not_ready(self, result, address, what):
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "quantd: not ready: %s: %s\n" % (address, what)))

    def test_every_kind_of_listener(self):
        with tempfile.TemporaryDirectory() as folder:
            path = "unix:%s/s" % folder
            server = Server(listen=("127.0.0.1:0", path, "localhost:0") + ("[::1]:0",) * IPV6)
            try:
                addresses = [address.replace("http://", "") for address in server.addresses]
                for address in addresses:
                    with self.subTest(address=address):
                        self.assert_ready(check(address))
                self.assert_ready(check(*addresses))
                self.assert_ready(check("localhost:" + addresses[2].rsplit(":", 1)[1]))
                self.assert_ready(check(QUANTD_LISTEN=",".join(addresses)))
                missing = "unix:%s/other" % folder
                self.assert_not_ready(check(*addresses, missing), missing,
                                      "No such file or directory")
            finally:
                server.stop()

    def test_every_address_means_loopback(self):
        server = Server(listen=("0.0.0.0:0",) + ("[::]:0",) * IPV6)
        try:
            for address in server.addresses:
                with self.subTest(address=address):
                    self.assert_ready(check(address.replace("http://", "")))
        finally:
            server.stop()

    def test_nothing_listens(self):
        address = "127.0.0.1:%d" % free_port()
        self.assert_not_ready(check(address), address, "Connection refused")

    def test_port_0_is_nowhere(self):
        for address in ("127.0.0.1:0", "[::1]:0"):
            self.assert_not_ready(check(address), address,
                                  "expected the port that it listens on, got 0")

    def test_a_server_that_drains(self):
        # An open connection keeps the server alive and gets a 503. A new connection is not
        # accepted.
        server = Server(*ONE_IO_THREAD)
        address = "127.0.0.1:%d" % server.port
        self.assert_ready(check(address))
        with server.connect() as held:
            held.sendall(b"GET /v2/health/ready HTTP/1.1\r\n")
            # By now the server has read the first bytes on `held`.
            self.assert_ready(check(address))
            server.terminate()
            deadline = time.monotonic() + 20 * SLOW
            while check(address).returncode == 0 and time.monotonic() < deadline:
                pass
            self.assert_not_ready(check(address), address, "Connection refused")
            held.sendall(b"Host: x\r\nConnection: close\r\n\r\n")
            self.assertIn(b"HTTP/1.1 503 ", held.recv(4096))
        server.wait()

    def test_answers_that_are_not_200(self):
        for answer, shown in (
                (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
                 "HTTP/1.1 503 Service Unavailable"),
                (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH_9.2"),
                (b"\x16\x03\x01\x1b[31m" + b"\xff" * 9000, "????[31m" + "?" * 52),
                (b"HTTP/1.1 2000 \r\n", "HTTP/1.1 2000 "),
                (b"HTTP/1.1 200", "HTTP/1.1 200"),
                (b"", "")):
            with self.subTest(answer=answer[:20]), peer(answer) as address:
                self.assert_not_ready(check(address), address,
                                      'expected HTTP status 200, got "%s"' % shown)

    def test_another_s_200(self):
        for answer in (b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello",
                       b'HTTP/1.1 200 OK\r\nX: "ready":true\r\n\r\n{"ready":false}'):
            with self.subTest(answer=answer), peer(answer) as address:
                self.assert_not_ready(check(address), address,
                                      'expected "ready":true in the body, got none')

    def test_a_parent_that_blocks_the_alarm(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            with peer(b"", keep_open=True) as address:
                self.assert_not_ready(check(address), address, "no answer within 2 s")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def test_a_peer_that_never_ends(self):
        for answer in (b"", b"HTTP/1.1 "):
            with self.subTest(answer=answer), peer(answer, keep_open=True) as address:
                started = time.monotonic()
                self.assert_not_ready(check(address), address, "no answer within 2 s")
                self.assertTrue(1.5 < time.monotonic() - started < 15 * SLOW)

    def test_a_server_that_hangs(self):
        # The kernel accepts connections for the stopped server, up to its backlog.
        server = Server()
        address = "127.0.0.1:%d" % server.port
        os.kill(server.pid, signal.SIGSTOP)
        try:
            self.assert_not_ready(check(address), address, "no answer within 2 s")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        self.assert_ready(check(address))
        server.stop()

    def test_bad_flags(self):
        for flags in (("--listen", "nowhere"), ("--lisen", "127.0.0.1:1"), ("--threads", "x")):
            result = subprocess.run([*COMMAND, "--healthcheck", *flags], text=True,
                                    capture_output=True, timeout=20 * SLOW, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertRegex(result.stderr, r"\Aquantd: [^\n]*%s[^\n]+\n\Z" % re.escape(flags[0]))

    def test_it_does_not_load_openblas(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": folder + "/loaded"}
            server = Server("--gemm", "blas", env=environment)
            try:
                check("127.0.0.1:%d" % server.port, **environment)
                logs = {int(log.suffix[1:]): log.read_text(errors="replace")
                        for log in Path(folder).iterdir()}
            finally:
                server.stop()
        mine = logs.pop(server.pid)
        self.assertIn("libopenblas", mine)
        self.assertEqual(len(logs), 1)
        self.assertNotIn("libopenblas", logs.popitem()[1])


if __name__ == "__main__":
    unittest.main()
