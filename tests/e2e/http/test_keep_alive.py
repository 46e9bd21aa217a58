"""Each answer after which the connection stays open says for how long, in the header Keep-Alive."""
import json
import signal
import socket
import time
import unittest

from quantd import (ONE_IO_THREAD, SLOW, Reader, Server, ServerTest, Tensor, binary_request,
                    infer_path, json_request, raw_request)
from tls import TlsTest

MODEL = "onnx.DequantizeLinear"
SCALE = Tensor.of("x_scale", "FP32", [], [1])
SMALL = json.dumps(json_request([Tensor.of("x", "UINT8", [2], [1, 2]), SCALE])).encode()
FLAGS = ("--idle-timeout", "41.9", "--max-body-bytes", "10000000")


def large(count):
    raw = bytes(count)
    return binary_request([Tensor("x", "UINT8", [len(raw)], raw), SCALE], json_names=("x_scale",))


class Cases:
    def ask(self, *requests):
        """Sends (method, bytes) requests on one connection and returns the answers."""
        reader = Reader(self.server.connect())
        answers = []
        for method, sent in requests:
            reader.connection.sendall(sent)
            answers.append(reader.answer(method))
        reader.close()
        return answers

    def assert_kept(self, answer):
        self.assertEqual((answer.headers["Connection"], answer.headers["Keep-Alive"]),
                         ("Keep-Alive", "timeout=41"))

    def assert_closed(self, answer):
        self.assertEqual((answer.headers["Connection"], answer.headers["Keep-Alive"]),
                         ("close", None))

    def test_answers_of_all_sizes_and_kinds(self):
        body, headers = large(1 << 20)
        answers = self.ask(
            ("POST", raw_request("POST", infer_path(MODEL), SMALL)),
            ("POST", raw_request("POST", infer_path(MODEL), body, headers)),
            ("GET", raw_request("GET", "/v2")), ("GET", raw_request("GET", "/nope")),
            ("POST", raw_request("POST", infer_path(MODEL), b"{}")),
            ("HEAD", raw_request("HEAD", "/v2")), ("GET", raw_request("GET", "/metrics")))
        self.assertEqual([answer.status for answer in answers],
                         [200, 200, 200, 404, 400, 200, 200])
        for answer in answers:
            self.assert_kept(answer)

    def test_a_body_that_is_too_large(self):
        answer, = self.ask(("POST", raw_request("POST", infer_path(MODEL), b"x" * 10000001)))
        self.assertEqual(answer.status, 413)
        self.assert_closed(answer)

    def test_a_client_that_closes(self):
        for more in ({"Connection": "close"}, {"Connection": "keep-alive, close"}):
            self.assert_closed(self.ask(("GET", raw_request("GET", "/v2", headers=more)))[0])

    def test_http_1_0(self):
        old = b"GET %s HTTP/1.0\r\nHost: x\r\n%s\r\n"
        self.assert_closed(self.ask(("GET", old % (b"/v2", b"")))[0])
        for answer in self.ask(("GET", old % (b"/v2", b"Connection: keep-alive\r\n")),
                               ("GET", old % (b"/nope", b"Connection: Keep-Alive\r\n"))):
            self.assert_kept(answer)

    def test_an_answer_of_unknown_length(self):
        """The server closes if the answer cannot be sent in chunks, whatever the client wants."""
        self.server.get("/metrics")
        for sent in (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"):
            answer = self.ask((sent[:4].decode().strip(), sent))[0]
            if "Content-Length" in answer.headers:
                self.assert_kept(answer)
            else:
                self.assert_closed(answer)

    def test_refusals_that_close(self):
        for sent in (b"GET /v2 HTTP/9.9\r\n\r\n", b"GET /v2 HTTP/1.1\r\nHost: x\r\nX\r\n\r\n",
                     raw_request("POST", infer_path(MODEL), b"",
                                 {"Expect": "100-continue"}).replace(b": 0", b": 99999999"),
                     b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx"):
            answer = self.ask(("GET", sent))[0]
            self.assertGreaterEqual(answer.status, 400)
            self.assert_closed(answer)


class Plain(Cases, ServerTest):
    FLAGS = FLAGS

    def test_a_client_that_has_shut_its_sending_side(self):
        """The server reads the end of the client's stream before the answer is there."""
        body, headers = large(4 << 20)
        connection = self.server.connect()
        connection.sendall(raw_request("POST", infer_path(MODEL), body, headers))
        connection.shutdown(socket.SHUT_WR)
        reader = Reader(connection)
        answer = reader.final_answer()
        self.assertEqual(answer.status, 200)
        self.assertEqual("Keep-Alive" in answer.headers,
                         answer.headers.get("Connection") != "close")
        reader.close()


class OverTls(Cases, TlsTest):
    FLAGS = FLAGS


class Elsewhere(unittest.TestCase):
    def test_the_default(self):
        server = Server()
        self.assertEqual(server.get("/v2").headers["Keep-Alive"], "timeout=75")
        server.stop()

    def test_less_than_a_second(self):
        server = Server("--idle-timeout", "0.9")
        answer = server.get("/v2")
        self.assertEqual((answer.status, answer.headers["Keep-Alive"]), (200, None))
        server.stop()

    def test_while_it_drains(self):
        server = Server(*ONE_IO_THREAD)  # another one could drain later than the log says so
        reader = Reader(server.connect())
        reader.connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n")
        server.process.send_signal(signal.SIGTERM)
        server.terminated = True
        deadline = time.monotonic() + 20 * SLOW
        while "draining" not in server.stderr():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        reader.connection.sendall(b"\r\n")
        answer = reader.answer("GET")
        self.assertEqual((answer.headers["Connection"], answer.headers["Keep-Alive"]),
                         ("close", None))
        reader.close()
        server.wait()


if __name__ == "__main__":
    unittest.main()
