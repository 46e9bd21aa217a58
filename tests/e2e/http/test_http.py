"""HTTP itself: connections, bodies, and the input of hostile or clumsy clients."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from quantd import (SLOW, Reader, Server, ServerTest, Tensor, binary_request, connect_unix,
                    infer_path, receive_all, to_raw)
from samples import DEQUANTIZE, DEQUANTIZED, dequantize_json

MIB = 1 << 20


def large_request(elements):
    """Returns (body, headers, expected float bytes) of a binary request with `elements` UINT8
    elements."""
    raw = bytes(range(256)) * (elements // 256)
    body, headers = binary_request([Tensor("x", "UINT8", [len(raw)], raw),
                                    Tensor.of("x_scale", "FP32", [], [2])])
    return body, headers, to_raw("FP32", [2 * value for value in range(256)]) * (elements // 256)


def raw_request(body, path=infer_path(DEQUANTIZE), headers=()):
    """Returns a request as bytes, with a correct Content-Length."""
    lines = ["POST %s HTTP/1.1" % path, "Host: quantd", "Content-Length: %d" % len(body)]
    return "\r\n".join(lines + list(headers) + ["", ""]).encode() + body


SMALL = json.dumps(dequantize_json()).encode()
SMALL_Y = ("FP32", [4], to_raw("FP32", DEQUANTIZED))


class HttpTest(ServerTest):
    def setUp(self):
        self.connections = []

    def tearDown(self):
        for connection in self.connections:
            connection.close()

    def open(self):
        reader = Reader(self.server.connect())
        self.connections.append(reader)
        return reader

    def talk(self, *parts):
        """Sends raw bytes without a half-close. Returns all bytes that come until the server
        closes."""
        connection = self.server.connect(timeout=10)
        try:
            for part in parts:
                connection.sendall(part)
            return receive_all(connection)
        finally:
            connection.close()

    def assert_small(self, answer):
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.outputs()["y"], SMALL_Y)


class Connections(HttpTest):
    def test_keep_alive(self):
        reader = self.open()
        for _ in range(50):
            reader.connection.sendall(raw_request(SMALL))
            self.assert_small(reader.answer())
        reader.connection.sendall(b"GET /v2/nothing HTTP/1.1\r\nHost: q\r\n\r\n")
        self.assertEqual(reader.answer().status, 404)
        reader.connection.sendall(raw_request(b"{"))
        self.assertEqual(reader.answer().status, 400)
        reader.connection.sendall(raw_request(SMALL))
        self.assert_small(reader.answer())

    def test_pipelining(self):
        reader = self.open()
        requests, wanted = b"", []
        for i in range(20):
            request = dequantize_json(id="request %d" % i)
            requests += raw_request(json.dumps(request).encode())
            requests += b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n"
            wanted += ["request %d" % i, None]
        reader.connection.sendall(requests)
        for name in wanted:
            answer = reader.answer()
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.json().get("id"), name)

    def test_pipelined_after_an_error(self):
        reader = self.open()
        reader.connection.sendall(raw_request(b"{}") + raw_request(SMALL)
                                  + raw_request(SMALL, path="/v2/nothing") + raw_request(SMALL))
        self.assertEqual([reader.answer().status for _ in range(4)], [400, 200, 404, 200])

    def test_pipelined_and_not_read(self):
        """Answers are small. When the sockets are full, the server stops in the middle of one."""
        count = 4000
        reader = self.open()
        reader.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        requests = b"".join(raw_request(json.dumps(dequantize_json(id="%d" % i)).encode())
                            for i in range(count))
        sender = threading.Thread(target=reader.connection.sendall, args=(requests,))
        sender.start()
        time.sleep(1)
        for i in range(count):
            answer = reader.answer()
            self.assert_small(answer)
            self.assertEqual(answer.json()["id"], "%d" % i)
        sender.join()

    def test_byte_by_byte(self):
        reader = self.open()
        for byte in raw_request(SMALL):
            reader.connection.sendall(bytes([byte]))
        self.assert_small(reader.answer())

    def test_connection_close(self):
        reader = self.open()
        reader.connection.sendall(raw_request(SMALL, headers=["Connection: close"]))
        self.assert_small(reader.answer())
        self.assertIsNone(reader.answer())

    def test_http_1_0(self):
        reader = self.open()
        reader.connection.sendall(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n"
                                  % (infer_path(DEQUANTIZE).encode(), len(SMALL)) + SMALL)
        self.assert_small(reader.answer())
        self.assertIsNone(reader.answer())

    def test_half_closed_client_gets_its_answer(self):
        reader = self.open()
        reader.connection.sendall(raw_request(SMALL))
        reader.connection.shutdown(socket.SHUT_WR)
        self.assert_small(reader.final_answer())

    def test_post_without_a_length_is_empty(self):
        reader = self.open()
        reader.connection.sendall(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n\r\n")
        self.assertEqual(reader.answer().status, 200)

    def test_a_query_of_many_arguments(self):
        """The query has more arguments than libmicrohttpd has memory for."""
        for query in (b"a=b&" * 5000, b"&" * 20000, b"?=%&" * 1000):
            reader = self.open()
            reader.connection.sendall(b"GET /v2/health/live?" + query + b" HTTP/1.1\r\nHost: q\r\n"
                                      b"\r\n" + raw_request(SMALL))
            self.assertEqual(reader.answer().status, 200)
            self.assert_small(reader.answer())

    def test_absolute_form(self):
        reader = self.open()
        reader.connection.sendall(b"GET http://q/v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n")
        self.assertEqual(reader.answer().status, 200)


class Bodies(HttpTest):
    def test_expect_continue(self):
        body, headers, want = large_request(2 * MIB)
        reader = self.open()
        fields = ["%s: %s" % pair for pair in headers.items()] + ["Expect: 100-continue"]
        head = raw_request(body, headers=fields)[:-len(body)]
        reader.connection.sendall(head)
        self.assertEqual(reader.answer().status, 100)
        reader.connection.sendall(body)
        answer = reader.answer()
        self.assertEqual(answer.outputs()["y"][2], want)

    def test_expect_continue_refused_before_the_body(self):
        reader = self.open()
        reader.connection.sendall(
            b"POST /v2/models/nope/infer HTTP/1.1\r\nHost: q\r\nContent-Length: 9000000\r\n"
            b"Expect: 100-continue\r\n\r\n")
        answer = reader.answer()
        self.assert_error(answer, 404)

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_expect_continue_with_curl(self):
        body, headers, want = large_request(2 * MIB)
        with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile() as result:
            file.write(body)
            file.flush()
            # Without a 100 Continue, curl would wait for 1000 s.
            command = ["curl", "-sS", "-o", result.name, "-w", "%{http_code}",
                       "--expect100-timeout", "1000", "--data-binary", "@" + file.name]
            for pair in headers.items():
                command += ["-H", "%s: %s" % pair]
            url = self.server.addresses[0] + infer_path(DEQUANTIZE)
            output = subprocess.check_output(command + ["-H", "Expect: 100-continue", url],
                                             timeout=60 * SLOW)
            self.assertEqual(output, b"200")
            self.assertTrue(result.read().endswith(want))

    def chunked(self, body, size, trailer=b"", extension=b""):
        head = ("POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
                % infer_path(DEQUANTIZE)).encode()
        chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(body[i:i + size]), extension, body[i:i + size])
                          for i in range(0, len(body), size))
        return head + chunks + b"0\r\n" + trailer + b"\r\n"

    def test_chunked(self):
        reader = self.open()
        for size in (1, 7, 100000):
            reader.connection.sendall(self.chunked(SMALL, size))
            self.assert_small(reader.answer())
        reader.connection.sendall(self.chunked(SMALL, 50, b"X-Trailer: 1\r\n"))
        self.assert_small(reader.answer())

    def test_chunk_extensions(self):
        reader = self.open()
        reader.connection.sendall(self.chunked(SMALL, 50, extension=b";name=value"))
        self.assert_small(reader.answer())
        reader.connection.sendall(self.chunked(SMALL, 50, extension=b' ; a="b;c" ;d'))
        self.assert_small(reader.answer())
        reader.connection.sendall(self.chunked(SMALL, 50, extension=b";%s" % (b"x" * 40000)))
        self.assert_error(reader.answer(), 400, "extensions")

    def test_zeros_before_a_chunks_size(self):
        reader = self.open()
        whole = self.chunked(SMALL, 50)
        for zeros in (1, 7, 15, 16, 40):
            reader.connection.sendall(whole.replace(b"\r\n32\r\n", b"\r\n%s32\r\n" % (b"0" * zeros))
                                      .replace(b"\r\n0\r\n", b"\r\n0%s\r\n" % (b"0" * zeros)))
            self.assert_small(reader.answer())
        reader.connection.sendall(whole.replace(b"\r\n32\r\n", b"\r\n%s\r\n" % (b"0" * 40000)))
        self.assert_error(reader.answer(), 400, "zeros")

    def test_blanks_behind_values(self):
        reader = self.open()
        reader.connection.sendall(self.chunked(SMALL, 50).replace(b": chunked", b":chunked \t "))
        self.assert_small(reader.answer())
        for field in ("Content-Encoding: identity ", "Content-Encoding:identity\t "):
            request = raw_request(SMALL, headers=[field])
            reader.connection.sendall(request.replace(b": %d" % len(SMALL),
                                                      b":\t%d\t  " % len(SMALL)))
            self.assert_small(reader.answer())

    def test_chunked_binary(self):
        body, headers, want = large_request(MIB)
        client = self.server.client()
        pieces = (body[i:i + 50000] for i in range(0, len(body), 50000))
        client.request("POST", infer_path(DEQUANTIZE), pieces, headers, encode_chunked=True)
        response = client.getresponse()
        self.assertEqual(response.status, 200)
        self.assertTrue(response.read().endswith(want))
        client.close()

    def test_64_mib(self):
        body, headers, want = large_request(64 * MIB)
        answer = self.server.infer(DEQUANTIZE, body, headers=headers)
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.header_part()["outputs"][0]["parameters"],
                         {"binary_data_size": 256 * MIB})
        self.assertTrue(answer.body.endswith(want[:MIB]))
        self.assertEqual(len(answer.body) - len(want),
                         int(answer.headers["Inference-Header-Content-Length"]))

    def test_json_of_some_megabytes(self):
        numbers = [value % 251 for value in range(500000)]
        tensors = [Tensor.of("x", "UINT8", [len(numbers)], numbers),
                   Tensor.of("x_scale", "FP32", [], [0.125])]
        request = {"inputs": [tensor.as_json() for tensor in tensors]}
        answer = self.server.infer(DEQUANTIZE, request)
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.json()["outputs"][0]["data"], [n / 8 for n in numbers])


class Limits(HttpTest):
    FLAGS = ("--max-body-bytes", "1000000")

    def test_too_large(self):
        answer = self.server.infer(DEQUANTIZE, b" " * 1000001)
        self.assert_error(answer, 413, "1000000", "--max-body-bytes")
        answer = self.server.infer(DEQUANTIZE, SMALL + b" " * (1000000 - len(SMALL)))
        self.assertNotIn("--max-body-bytes", answer.body.decode())

    def test_readable_when_sent_first(self):
        # This client, like geventhttpclient, sends everything before it reads.
        connection = self.server.connect()
        connection.sendall(raw_request(b"x" * 8000000))
        reader = Reader(connection)
        self.connections.append(reader)
        self.assert_error(reader.answer(), 413)

    def test_readable_when_much_is_sent_first(self):
        # The body is far above the default limit, too, under which every refused body is large.
        connection = self.server.connect()
        reader = Reader(connection)
        self.connections.append(reader)
        piece, count = bytes(MIB), 300
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"
                           % (infer_path(DEQUANTIZE).encode(), len(piece) * count))
        for _ in range(count):
            connection.sendall(piece)
        self.assert_error(reader.answer(), 413, "1000000", "--max-body-bytes")

    def test_refused_at_once_with_expect(self):
        reader = self.open()
        reader.connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: 8000000000\r\n"
            b"Expect: 100-continue\r\n\r\n" % infer_path(DEQUANTIZE).encode())
        self.assert_error(reader.answer(), 413)

    def test_absurd_length_without_a_body(self):
        for length in (b"9223372036854775807", b"18446744073709551615", b"4294967296"):
            answer = self.talk(b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %s\r\n\r\n"
                               % (infer_path(DEQUANTIZE).encode(), length))
            self.assertRegex(answer[:12], rb"^HTTP/1.1 (413|400)$")
        self.assert_alive()

    def test_endless_small_chunks(self):
        reader = self.open()
        before = self.server.rss_bytes()
        reader.connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
            % infer_path(DEQUANTIZE).encode())
        for _ in range(300):
            reader.connection.sendall(b"1\r\nx\r\n" * 5000)
        reader.connection.sendall(b"0\r\n\r\n")
        self.assert_error(reader.answer(), 413, "1000000", "--max-body-bytes")
        self.assertLess(self.server.rss_bytes() - before, 16 * MIB * SLOW)
        self.assert_alive()


class Smuggling(HttpTest):
    """No two parsers may disagree about where a request ends."""

    FLAGS = ("--receive-timeout", "2")
    HIDDEN = b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n"

    def assert_one_refusal(self, request, statuses):
        """Checks that the request gets one answer with one of the statuses, and that the server
        then closes without reading anything else."""
        got = self.talk(request)
        self.assertIn(got[:12].decode(), ["HTTP/1.1 %d" % status for status in statuses])
        self.assertNotIn(b'{"live":true}', got)
        self.assert_alive()

    def test_two_lengths(self):
        for lengths in ((5, 60), (60, 5), (0, 40)):
            head = b"POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE).encode()
            head += b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % lengths
            self.assert_one_refusal(head + b"01234" + self.HIDDEN * 2, (400,))

    def test_two_lengths_in_one_field(self):
        self.assert_one_refusal(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n"
                                b"Content-Length: 5, 5\r\n\r\n01234" + self.HIDDEN, (400, 413))

    def test_length_and_chunked(self):
        for fields in (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                       b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"):
            self.assert_one_refusal(b"POST %s HTTP/1.1\r\nHost: q\r\n%s\r\n0\r\n\r\n"
                                    % (infer_path(DEQUANTIZE).encode(), fields) + self.HIDDEN,
                                    (400,))

    def test_other_transfer_encodings(self):
        for coding in (b"gzip", b"gzip, chunked", b"foo", b"identity", b"chunked, identity",
                       b"xchunked", b"chunked\r\nTransfer-Encoding: gzip"):
            self.assert_one_refusal(b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: %s\r\n\r\n"
                                    b"0\r\n\r\n" % (infer_path(DEQUANTIZE).encode(), coding)
                                    + self.HIDDEN, (400, 501))

    def test_bad_lengths(self):
        for value in (b"-1", b"+5", b"0x5", b"5 5", b"five", b"5;", b"1e1",
                      b"99999999999999999999999999"):
            self.assert_one_refusal(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n"
                                    b"Content-Length: %s\r\n\r\n01234" % value + self.HIDDEN,
                                    (400, 413))

    def test_space_before_the_colon(self):
        # A field name with a space must not make the length disappear.
        self.assert_one_refusal(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n"
                                b"Content-Length : %d\r\n\r\n" % len(self.HIDDEN) + self.HIDDEN,
                                (400,))

    def test_length_in_a_second_line(self):
        for framing in (b"Content-Length:\r\n %d" % len(self.HIDDEN),
                        b"Content-Length: %d\r\n " % len(self.HIDDEN),
                        b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding: chun\r\n ked"):
            got = self.talk(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n%s\r\n"
                            b"Connection: close\r\n\r\n" % framing + self.HIDDEN)
            self.assertNotIn(b'{"live":true}', got)
        got = self.talk(b"GET /v2 HTTP/1.1\r\nHost: q\r\nContent-Length:\r\n %d\r\n\r\n"
                        % len(self.HIDDEN) + self.HIDDEN + b"GET /v2 HTTP/1.1\r\nHost: q\r\n"
                        b"Connection: close\r\n\r\n")
        self.assertNotIn(b'{"live":true}', got)
        self.assert_alive()

    def test_bad_chunk_sizes(self):
        for chunk in (b"x\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc"):
            got = self.talk(b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
                            % infer_path(DEQUANTIZE).encode() + chunk)
            self.assertRegex(got[:12], rb"^(HTTP/1.1 (400|408|413))?$")
        self.assert_alive()

    def test_chunks_that_end_elsewhere(self):
        """The server refuses bad chunks at once, and not only when the client is too slow."""
        self.assert_told(((chunks, status) for chunks, status in (
            (b"x\r\n", 400), (b"-1\r\n", 400), (b"2\n", 400), (b"2\r\nabc", 400),
            (b"2\r\nab\n", 400), (b"10000000000000000\r\n", 413), (b"2 2\r\n", 400),
            (b"0\r\nX: a\0\r\n", 400), (b"fffffffffffffffff\r\n", 413),
            (b"ffffffffffffffff\r\n", 413), (b"7fffffffffffffff\r\n", 413))),
            b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
            % infer_path(DEQUANTIZE).encode())

    def test_lines_that_end_elsewhere(self):
        """libmicrohttpd 0.9.75 accepts NUL LF as CR LF, a lone LF, and names in two lines. A line
        that begins with its colon ends the head for it."""
        self.assert_told(((lines, 400) for lines in (
            b"X: a\0\nContent-Length: 43\r\n\r\n", b"X: a\0b\r\n\r\n", b"X: a\x7f\r\n\r\n",
            b"X: a\nContent-Length: 43\r\n\r\n", b"X: a\rContent-Length: 43\r\n\r\n",
            b"X: a\r\n\n", b"X: a\r\n\r\r\n", b"X: a\r\n b\r\n\r\n", b"X: a\r\n\tb: c\r\n\r\n",
            b": a\r\nContent-Length: 43\r\n\r\n", b"X: a\r\n:\r\n\r\n",
            b"Content-Length\0: 43\r\n\r\n", b"Transfer-Encoding\0\0: chunked\r\n\r\n",
            b"Host\0: a\r\n\r\n", b"Cookie\0: a\r\n\r\n",
            b"Content-Length: 4 3\r\n\r\n", b"Content-Length: \r\n\r\n",
            b"Content-Length: 43\r\nContent-Length: x\r\n\r\n")),
            b"POST %s HTTP/1.1\r\nHost: q\r\n" % infer_path(DEQUANTIZE).encode())

    def assert_told(self, cases, before):
        """Checks that each case is refused, in whatever pieces it comes, and also after another
        request."""
        first = b"GET /v2 HTTP/1.1\r\nHost: q\r\n\r\n"
        sent = []
        for end, status in cases:
            for request in (before + end, before + end + self.HIDDEN):
                for parts in ((request,), (before + end[:1], request[len(before) + 1:]),
                              (first + request,), (first + before, request[len(before):])):
                    reader = self.open()
                    for part in parts:
                        reader.connection.sendall(part)
                    sent.append((reader, parts[0].startswith(first), status))
        for reader, is_second, status in sent:
            if is_second:
                self.assertEqual(reader.answer().status, 200)
            answer = reader.answer()
            self.assert_error(answer, status)
            self.assertEqual(answer.headers["Connection"], "close")
            self.assertIsNone(reader.answer(), "an answer behind the last")
        self.assert_alive()

    def test_head_with_a_length_that_is_none(self):
        reader = self.open()
        reader.connection.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: q\r\nContent-Length: x\r\n\r\n")
        self.assertRegex(receive_all(reader.connection),
                         rb"^HTTP/1\.1 400 [^\n]*\r\n([^\r\n]+\r\n)+\r\n$")

    def test_nothing_comes_behind_the_answer_that_closes(self):
        """Bytes that cannot be parsed do not get a further answer."""
        for first in (b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\nConnection: x, Close\r\n\r\n",
                      b"GET /v2/health/live HTTP/1.0\r\n\r\n",
                      raw_request(SMALL, headers=["Connection: close"])):
            reader = self.open()
            reader.connection.sendall(first + b"GET /\1 HTTP/1.1\r\n\r\n")
            answer = reader.answer()
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.headers.get_all("Connection"), ["close"])
            self.assertIsNone(reader.answer(), "an answer behind the last")

    def test_http_1_0_is_kept_alive(self):
        reader = self.open()
        reader.connection.sendall(b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                                  b"GET /\1 HTTP/1.1\r\n\r\n")
        self.assertEqual(reader.answer().status, 200)
        self.assert_error(reader.answer(), 400)
        self.assertIsNone(reader.answer())

    def test_a_method_that_is_refused_before_its_body_ends(self):
        reader = self.open()
        reader.connection.sendall(b"DELETE /v2 HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked"
                                  b"\r\n\r\n200000\r\n" + bytes(0x200000))
        answer = reader.answer()
        self.assert_error(answer, 405)
        self.assertEqual(answer.headers["Allow"], "GET, HEAD")

    def test_http_1_0_has_no_chunks(self):
        self.assert_one_refusal(b"POST /v2/repository/index HTTP/1.0\r\nTransfer-Encoding: chunked"
                                b"\r\n\r\n0\r\n\r\n", (400,))


class Garbage(HttpTest):
    FLAGS = ("--receive-timeout", "1")

    def test_not_http(self):
        client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        for garbage in (b"GARBAGE\r\n\r\n", client_hello + bytes(500),
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 1000, b"\r\n" * 1000,
                        b"GET / HTTP/9.9\r\n\r\n", b"GET /v2\r\n\r\n", b"GET\r\n\r\n",
                        os.urandom(2000)):
            self.talk(garbage)  # the server closes within its time limit
        self.assert_alive()

    def test_absurd_headers(self):
        big = b"X-Big: %s\r\n" % (b"a" * 100000)
        many = b"".join(b"X-%d: 1\r\n" % i for i in range(5000))
        for fields in (big, many, b"X\r\n", b": v\r\n", b"X-Nul: a\0b\r\n", b"X-High: \xff\xfe\r\n",
                       b" folded: first\r\n"):
            got = self.talk(b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\nX-First: 1\r\n" + fields
                            + b"Connection: close\r\n\r\n")
            self.assertRegex(got[:12], rb"^(HTTP/1.1 (200|400|431))?$")
        self.assert_alive()

    def test_absurd_paths(self):
        for path in (b"/" + b"a" * 100000, b"/v2/models/" + b"m" * 20000 + b"/infer",
                     b"/%2e" * 5000, b"/\xff\xfe", b"/v2/models/<script>alert(1)</script>",
                     b"*", b"//////"):
            got = self.talk(b"GET " + path + b" HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n")
            self.assertRegex(got[:12], rb"^(HTTP/1.1 (404|400|414|431))?$", path[:50])
        for path in (b"http://", b"http://x"):  # no path means "/", the console
            got = self.talk(b"GET " + path + b" HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n")
            self.assertRegex(got[:12], rb"^HTTP/1.1 200$", path)
        self.assert_alive()

    def test_no_host(self):
        got = self.talk(b"GET /v2/health/live HTTP/1.1\r\nConnection: close\r\n\r\n")
        self.assertRegex(got[:12], rb"^HTTP/1.1 400$")


class SlowSenders(HttpTest):
    """A head must be complete within --receive-timeout seconds, even if bytes keep coming. A body
    must keep a minimum rate."""

    FLAGS = ("--receive-timeout", "1")

    def seconds_until_closed(self, first, drip):
        connection = self.server.connect()
        started = time.monotonic()
        connection.sendall(first)
        connection.settimeout(0.2)
        try:
            while time.monotonic() - started < 60 * SLOW:
                try:
                    if connection.recv(65536) == b"":
                        break
                except socket.timeout:
                    connection.sendall(drip)
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            connection.close()
        return time.monotonic() - started

    def test_trickled_header(self):
        seconds = self.seconds_until_closed(b"GET /v2 HTTP/1.1\r\nHost: q\r\nX-A: ", b"a")
        self.assertLess(seconds, 25 * SLOW)

    def test_trickled_body(self):
        seconds = self.seconds_until_closed(raw_request(SMALL)[:-len(SMALL)], b" ")
        self.assertLess(seconds, 25 * SLOW)

    def test_trickled_chunks(self):
        head = b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n"
        seconds = self.seconds_until_closed(head % infer_path(DEQUANTIZE).encode(), b"1\r\n \r\n")
        self.assertLess(seconds, 25 * SLOW)

    def test_silent(self):
        self.assertLess(self.seconds_until_closed(b"", b""), 25 * SLOW)

    def test_others_are_served_meanwhile(self):
        server = Server("--receive-timeout", "1000")
        slow = [server.connect() for _ in range(50)]
        for connection in slow:
            connection.sendall(raw_request(SMALL)[:-1])
        self.assert_small(server.infer(DEQUANTIZE, SMALL))
        for connection in slow:
            connection.close()
        server.stop()

    def test_clients_that_leave(self):
        fds = self.server.open_fds()
        for cut in (1, 30, 100, 300):
            for _ in range(20):
                connection = self.server.connect()
                connection.sendall(raw_request(SMALL)[:cut])
                connection.close()
        for _ in range(20):
            connection = self.server.connect()
            connection.sendall(raw_request(SMALL))
            connection.close()
        self.assert_alive()
        deadline = time.monotonic() + 10 * SLOW
        while self.server.open_fds() > fds and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertLessEqual(self.server.open_fds(), fds)

    def test_a_normal_client_is_not_cut(self):
        reader = self.open()
        for _ in range(4):
            reader.connection.sendall(raw_request(SMALL))
            self.assert_small(reader.answer())
            time.sleep(0.6)


class UnixSocket(unittest.TestCase):
    def test_same_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "quantd.sock")
            server = Server(listen=("unix:" + path, "127.0.0.1:0"))
            try:
                connection = connect_unix(path)
                reader = Reader(connection)
                connection.sendall(raw_request(SMALL))
                answer = reader.answer()
                self.assertEqual(answer.outputs()["y"], SMALL_Y)
                self.assertEqual(server.infer(DEQUANTIZE, SMALL).outputs()["y"], SMALL_Y)
                if shutil.which("curl"):
                    text = subprocess.check_output(["curl", "-sS", "--unix-socket", path,
                                                    "http://quantd/v2/health/live"])
                    self.assertEqual(text, b'{"live":true}')
                reader.close()
            finally:
                server.stop()
            self.assertFalse(os.path.exists(path), "the socket file was left behind")

    def test_a_stale_socket_file_is_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "quantd.sock")
            stale = socket.socket(socket.AF_UNIX)
            stale.bind(path)
            stale.close()
            server = Server(listen=("unix:" + path,))
            connect_unix(path).close()
            server.stop()


if __name__ == "__main__":
    unittest.main()
