"""What the kernel keeps of an answer for a client that does not read it."""
import fcntl
import os
import select
import socket
import struct
import tempfile
import termios
import time
import unittest
from pathlib import Path

from quantd import SLOW, Reader, Server, Tensor, binary_request, infer_path

COUNT = 4 << 20  # an answer of 16 MiB
WIDE_COUNT = 16  # Unix sockets whose buffer is larger while they send a large answer
NARROW_BYTES_MAX, WIDE_BYTES_MAX = 80 << 10, 640 << 10  # one packet beyond the limit


def request(count=COUNT):
    body, headers = binary_request([Tensor("x", "UINT8", [count], bytes(count)),
                                    Tensor.of("x_scale", "FP32", [], [0.5])])
    lines = ["POST %s HTTP/1.1" % infer_path("onnx.DequantizeLinear"), "Host: q",
             "Content-Length: %d" % len(body)] + ["%s: %s" % pair for pair in headers.items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def unread(connection):
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0]


def tcp_queued(connection):
    """In the server's socket, towards this client."""
    here, there = ("%04X" % address[1] for address in (connection.getsockname(),
                                                       connection.getpeername()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        if local.endswith(":" + there) and remote.endswith(":" + here):
            return int(queues.split(":")[0], 16)
    raise AssertionError("the server's end is not in /proc/net/tcp")


class SendBuffer(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "s")
        self.server = Server(listen=("127.0.0.1:0", "unix:" + self.path))

    def most(self, connection, queued):
        """After an answer that is read, as fast as may be, and one that is not."""
        reader = Reader(connection)
        connection.sendall(request())
        self.assertEqual(reader.answer().status, 200)
        connection.sendall(request())
        most, deadline = 0, time.monotonic() + 10 * SLOW
        while unread(connection) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(20):
            most = max(most, queued(connection))
            time.sleep(0.02)
        reader.close()
        self.server.stop()
        return most

    def test_tcp(self):
        most = self.most(self.server.connect(), tcp_queued)
        self.assertTrue(64 << 10 <= most <= 320 << 10, most)  # one packet beyond the limit

    def test_unix(self):
        """Some have more, but only so many, and again when those have gone."""
        for _ in range(2):
            connections = [self.connect_unix() for _ in range(WIDE_COUNT + 4)]
            for connection in connections:
                connection.sendall(request(COUNT // 8))
            for connection in connections:
                ready, _, _ = select.select([connection], [], [], 60 * SLOW)
                self.assertTrue(ready, "no answer")
            most = [0] * len(connections)
            for _ in range(20):
                most = list(map(max, most, map(unread, connections)))
                time.sleep(0.02)
            wide = [count for count in most if count > NARROW_BYTES_MAX]
            self.assertTrue(0 < len(wide) <= WIDE_COUNT, most)
            self.assertLessEqual(max(wide), WIDE_BYTES_MAX)
            for connection in connections:
                connection.close()
        self.server.stop()

    def connect_unix(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60 * SLOW)
        connection.connect(self.path)
        return connection


if __name__ == "__main__":
    unittest.main()
