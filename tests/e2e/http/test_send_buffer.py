"""How much of an answer the kernel keeps for a client that does not read."""
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

from quantd import SLOW, Reader, Server, Tensor, binary_request, connect_unix, infer_path

COUNT = 512 << 10  # the elements of a large answer of 2 MiB
WIDE_COUNT = 16  # connections with a larger buffer while they send a large answer
TCP_BYTES_MAX = 320 << 10, 1088 << 10  # bytes, narrow and wide: one packet beyond the limit
UNIX_BYTES_MAX = 80 << 10, 1088 << 10
LINUX_MAX = Path("/proc/sys/net/core/wmem_max")  # Linux may grant less than the server wants


def request(count=COUNT):
    body, headers = binary_request([Tensor("x", "UINT8", [count], bytes(count)),
                                    Tensor.of("x_scale", "FP32", [], [0.5])])
    lines = ["POST %s HTTP/1.1" % infer_path("onnx.DequantizeLinear"), "Host: q",
             "Content-Length: %d" % len(body)] + ["%s: %s" % pair for pair in headers.items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def unix_queued(connections):
    """Returns how many bytes the server has sent that each client has not read."""
    return [struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0]
            for connection in connections]


def tcp_queued(connections):
    """Returns how many bytes wait in the server's sockets for each of these clients."""
    queued = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        ports = tuple(int(address.split(":")[1], 16) for address in (remote, local))
        queued[ports] = int(queues.split(":")[0], 16)
    return [queued[connection.getsockname()[1], connection.getpeername()[1]]
            for connection in connections]


class SendBuffer(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "s")
        self.server = Server("--min-rate", "0", listen=("127.0.0.1:0", "unix:" + self.path))

    def connect_unix(self):
        return connect_unix(self.path, 60)

    def most(self, connections, queued, enough):
        """Returns the largest number of queued bytes of each connection, after an answer that the
        client reads as fast as possible and one that it does not read."""
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            reader = Reader(connection)
            connection.sendall(request())
            self.assertEqual(reader.answer().status, 200)
        for connection in connections:
            connection.sendall(request())
        for connection in connections:
            ready, _, _ = select.select([connection], [], [], 60 * SLOW)
            self.assertTrue(ready, "no answer")
        most, samples, deadline = [0] * len(connections), 0, time.monotonic() + 30 * SLOW
        while samples < 20:
            most = list(map(max, most, queued(connections)))
            samples += max(most) > enough or time.monotonic() > deadline
            time.sleep(0.02)
        return most

    def check(self, connect, queued, bytes_max):
        """Checks that at most WIDE_COUNT connections have a wide buffer, and the same again when
        these connections are closed."""
        narrow_bytes_max, wide_bytes_max = bytes_max
        can_be_wide = int(LINUX_MAX.read_text()) >= 512 << 10
        for _ in range(2):
            connections = [connect() for _ in range(WIDE_COUNT + 4)]
            most = self.most(connections, queued,
                             narrow_bytes_max if can_be_wide else narrow_bytes_max // 4)
            wide = [count for count in most if count > narrow_bytes_max]
            self.assertLessEqual(len(wide), WIDE_COUNT, most)
            self.assertTrue(narrow_bytes_max // 4 < max(most) <= wide_bytes_max, most)
            if can_be_wide:
                self.assertTrue(wide, most)
            for connection in connections:
                connection.close()
        self.server.stop()

    def test_tcp(self):
        self.check(self.server.connect, tcp_queued, TCP_BYTES_MAX)

    def test_unix(self):
        self.check(self.connect_unix, unix_queued, UNIX_BYTES_MAX)


if __name__ == "__main__":
    unittest.main()
