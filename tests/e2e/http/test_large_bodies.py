"""Bodies that are larger than what libmicrohttpd reads at a time, cut at any place."""
import array
import os
import random
import socket
import tempfile
import threading
import time
import unittest

from quantd import (SANITIZED, Reader, Server, Tensor, binary_request, connect_unix, exchange,
                    infer_path, parse_metrics, raw_infer, reset, wait_until)

MODEL = "onnx.DequantizeLinear"
ROUNDS = 12


def request(x):
    body, headers = binary_request([Tensor("x", "UINT8", [len(x)], x),
                                    Tensor.of("x_scale", "FP32", [], [0.5])])
    return raw_infer(MODEL, body, headers)


def expected(x):
    return array.array("f", [byte / 2 for byte in x]).tobytes()


def send_cut(connection, stream, chance):
    at = 0
    while at < len(stream):
        count = int(2 ** chance.uniform(0, 19))
        connection.sendall(stream[at:at + count])
        at += count
        time.sleep(chance.choice((0, 0, 0.001)))


class LargeBodies(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "s")
        self.server = Server(listen=("127.0.0.1:0", "unix:" + self.path))

    def tearDown(self):
        self.server.stop()

    def connect_unix(self):
        return connect_unix(self.path, 60)

    def check(self, answer, x):
        self.assertEqual(answer.status, 200, answer.body[:200])
        self.assertEqual(answer.outputs()["y"][2], expected(x))

    def cut(self, connect, seed):
        """Sends some requests of random sizes after one another, cut at random places."""
        chance = random.Random(seed)
        tensors = [chance.randbytes(int(2 ** chance.uniform(10, 19.5))) for _ in range(3)]
        stream = b"".join(map(request, tensors))
        with connect() as connection:
            reader = Reader(connection)
            sender = threading.Thread(target=send_cut, args=(connection, stream, chance))
            sender.start()
            for x in tensors:
                self.check(reader.answer(), x)
            sender.join()
            reader.close()

    def test_cut_anywhere_over_tcp(self):
        for seed in range(ROUNDS):
            with self.subTest(seed=seed):
                self.cut(self.server.connect, seed)

    def test_cut_anywhere_over_a_unix_socket(self):
        for seed in range(ROUNDS):
            with self.subTest(seed=seed):
                self.cut(self.connect_unix, ROUNDS + seed)

    def test_who_sends_no_more_behind_it_gets_its_answer(self):
        x = random.Random(0).randbytes(600 << 10)
        stream = request(x)
        for connect in (self.server.connect, self.connect_unix):
            for left in (100 << 10, 200 << 10, 400 << 10):
                with connect() as connection:
                    reader = Reader(connection)
                    connection.sendall(stream[:-left])
                    # The connection is now old enough for the server to check whether the client
                    # has left.
                    time.sleep(0.4)
                    connection.sendall(stream[-left:])
                    connection.shutdown(socket.SHUT_WR)
                    self.check(reader.final_answer(), x)
                    reader.close()

    def test_who_leaves_in_the_middle_holds_nothing(self):
        stream = request(bytes(1 << 20))
        for count in range(100 << 10, 1 << 20, 100 << 10):
            connection = self.server.connect()
            connection.sendall(stream[:count])
            reset(connection)
        wait_until(lambda: b"quantd_inflight_bytes 0\n" in self.server.get("/metrics").body,
                   "memory that is free", 60)
        x = bytes(range(256)) * 4096
        with self.server.connect() as connection:
            reader = Reader(connection)
            connection.sendall(request(x))
            self.check(reader.answer(), x)
            reader.close()

    def test_body_goes_before_its_answer(self):
        x = bytes(range(256)) * (16 << 10)
        with self.server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            reader = Reader(connection)
            connection.sendall(request(x))
            connection.recv(1, socket.MSG_PEEK)
            metrics = parse_metrics(self.server.get("/metrics").body.decode())
            self.check(reader.answer(), x)
            reader.close()
        held = metrics["quantd_inflight_bytes", ()]
        self.assertGreater(held, 4 * len(x))
        self.assertLess(held, 4 * len(x) + len(x) // 2)


class LongAnswers(unittest.TestCase):
    def test_of_many_pieces(self):
        # The text printed by several threads consists of some hundred pieces. libmicrohttpd 0.9.75
        # aborts the process if there is no room for their addresses after the request's head.
        count = (4 if SANITIZED else 24) << 20
        tensors = [Tensor("x", "UINT8", [count], b"\1" * count),
                   Tensor.of("x_scale", "FP32", [], [1 / 3])]
        body, headers = binary_request(tensors)
        body = body.replace(b'"binary_data_output": true', b'"binary_data_output":false')
        server = Server("--threads", "16")
        client = server.client(timeout=120)
        for _ in range(2):
            answer = exchange(client, "POST", infer_path(MODEL), body,
                              dict(headers, Fill="f" * 22000))
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.body.count(b"0.33333334"), count)
        client.close()
        server.stop()


if __name__ == "__main__":
    unittest.main()
