"""Request bodies and answers compressed with gzip or deflate."""
import gzip
import json
import os
import struct
import subprocess
import unittest
import zlib

from quantd import LENGTH, SLOW, Answer, ServerTest, Tensor, binary_request, infer_path, \
    to_raw
from samples import DEQUANTIZE, DEQUANTIZED, dequantize_json

SMALL = json.dumps(dequantize_json()).encode()
SMALL_Y = ("FP32", [4], to_raw("FP32", DEQUANTIZED))
MIB = 1 << 20


def bare(data):
    """Returns deflate without zlib's frame, as some clients send it."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def members(data):
    """Returns several gzip members, with an empty one after each."""
    return b"".join(gzip.compress(data[i:i + 50]) + gzip.compress(b"")
                    for i in range(0, len(data), 50))


def named(data):
    """Returns gzip with a file name and a date, as the tool gzip writes it."""
    compressed = gzip.compress(data, mtime=1234567890)
    return compressed[:3] + b"\x08" + compressed[4:10] + b"request.json\0" + compressed[10:]


def member(data, extra, name):
    """Returns gzip with all optional fields of its header, and the header's checksum."""
    head = (b"\x1f\x8b\x08\x1e" + bytes(6) + struct.pack("<H", len(extra)) + extra + name + b"\0"
            + b"a comment\0")
    return (head + struct.pack("<H", zlib.crc32(head) & 0xffff) + bare(data)
            + struct.pack("<II", zlib.crc32(data), len(data)))


FORMS = {"gzip": gzip.compress, "deflate": zlib.compress, "x-gzip": gzip.compress}


def large_request(count):
    """Returns (body, headers, expected) of a binary request with `count` elements."""
    raw = bytes(i * i % 251 for i in range(count))
    body, headers = binary_request([Tensor("x", "UINT8", [count], raw),
                                    Tensor.of("x_scale", "FP32", [], [2])])
    return body, headers, to_raw("FP32", [2 * value for value in raw])


def inflate(answer):
    """Returns the answer inflated and without its Content-Encoding."""
    body = {"gzip": gzip.decompress, "deflate": zlib.decompress,
            None: bytes}[answer.headers["Content-Encoding"]](answer.body)
    return Answer(answer.status, answer.headers, body)


class CompressionTest(ServerTest):
    def ask(self, body, encoding, headers=None):
        return self.server.infer(DEQUANTIZE, body,
                                 headers=dict(headers or {}, **{"Content-Encoding": encoding}))

    def assert_y(self, answer, expected):
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.outputs()["y"], expected)


class Requests(CompressionTest):
    FLAGS = ("--max-body-bytes", "1M", "--max-inflight-bytes", "64M")

    def test_json(self):
        for encoding, compress in FORMS.items():
            for level in (0, 1, 9):
                self.assert_y(self.ask(compress(SMALL, level), encoding), SMALL_Y)
        for encoding, body in (("deflate", bare(SMALL)), ("gzip", members(SMALL)),
                               ("gzip", named(SMALL)), (" GZip ", gzip.compress(SMALL)),
                               ("identity", SMALL), ("", SMALL)):
            self.assert_y(self.ask(body, encoding), SMALL_Y)

    def test_heads_with_checksums(self):
        """The header may be longer than what the server reads at once, and that read may end
        anywhere in it."""
        for extra, name in ((b"", b""), (bytes(65535), b""), (b"", b"n" * 100000),
                            (b"e" * 40000, b"n" * 40000)):
            self.assert_y(self.ask(member(SMALL, extra, name), "gzip"), SMALL_Y)
            wrong = bytearray(member(SMALL, extra, name))
            wrong[5] ^= 1  # a bit of the date, which the checksum covers
            answer = self.ask(bytes(wrong), "gzip")
            self.assert_error(answer, 400)
        for bit in (0x20, 0x40, 0x80):  # reserved bits
            reserved = bytearray(gzip.compress(SMALL))
            reserved[3] |= bit
            self.assert_error(self.ask(bytes(reserved), "gzip"), 400)
        before = len(member(b"", b"", b""))
        for end in range(40):
            first = member(b"", bytes((16 << 10) - before - end), b"")
            self.assert_y(self.ask(first + member(SMALL, b"12345", b"name"), "gzip"), SMALL_Y)

    def test_binary(self):
        # Inference-Header-Content-Length counts the JSON's bytes after inflation.
        body, headers, expected = large_request(500000)
        for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress),
                                   ("deflate", bare), ("gzip", lambda data: gzip.compress(
                                       data[:99999], 0) + gzip.compress(data[99999:], 6))):
            answer = self.ask(compress(body), encoding, headers)
            self.assert_y(answer, ("FP32", [500000], expected))
            self.assertIsNone(answer.headers.get("Content-Encoding"))
            self.assertGreater(answer.stages()["decode"], 0)
        answer = self.ask(gzip.compress(body), "gzip", dict(headers, **{LENGTH: "99999999"}))
        self.assert_error(answer, 400, LENGTH)

    def test_chunked(self):
        body = gzip.compress(SMALL)
        client = self.server.client()
        client.request("POST", infer_path(DEQUANTIZE), iter([body[:7], body[7:]]),
                       {"Content-Encoding": "gzip"}, encode_chunked=True)
        self.assertEqual(client.getresponse().status, 200)
        client.close()

    def test_curl(self):
        done = subprocess.run(
            ["curl", "-s", "-S", "--max-time", str(60 * SLOW), "--compressed", "-H",
             "Content-Encoding: gzip", "--data-binary", "@-",
             self.server.addresses[0] + infer_path(DEQUANTIZE)],
            input=gzip.compress(SMALL), stdout=subprocess.PIPE, check=True)
        self.assertEqual(json.loads(done.stdout)["outputs"][0]["data"], DEQUANTIZED)

    def test_what_cannot_be_inflated(self):
        whole = gzip.compress(SMALL)
        wrong_sum = whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]
        for body, words in ((b"", "its end too early"), (whole[:-1], "its end too early"),
                            (whole[:30], "its end too early"), (SMALL, "other data"),
                            (whole + b"\n", "1 bytes more"), (wrong_sum, "checksum"),
                            (zlib.compress(SMALL), "other data")):
            answer = self.ask(body, "gzip")
            self.assert_error(answer, 400, "the body: expected gzip data (Content-Encoding)", words)
        self.assert_error(self.ask(gzip.compress(b"{"), "gzip"), 400, "malformed JSON")

    def test_unknown_codings(self):
        for encoding in ("br", "zstd", "gzip, gzip", "gzip, identity", "nonsense"):
            answer = self.ask(gzip.compress(SMALL), encoding)
            self.assert_error(answer, 415, "gzip or deflate", encoding)
            self.assertEqual(answer.headers["Accept-Encoding"], "gzip, deflate")
        client = self.server.client()
        client.putrequest("POST", infer_path(DEQUANTIZE))
        for value in ("gzip", "identity"):
            client.putheader("Content-Encoding", value)
        client.putheader("Content-Length", "0")
        client.endheaders()
        response = client.getresponse()
        self.assert_error(Answer(response.status, response.headers, response.read()), 415, "got 2")
        client.close()

    def test_calls_without_tensors_take_none(self):
        for path in ("/v2/repository/models/m/unload", "/v2/repository/index", "/v2/logging"):
            answer = self.server.request("POST", path, gzip.compress(b"{}"),
                                         {"Content-Encoding": "gzip"})
            if answer.status != 503:  # 503 means that this server loads no models by calls
                self.assert_error(answer, 415, "expected identity")
                self.assertEqual(answer.headers["Accept-Encoding"], "identity")

    def test_bombs(self):
        zeros = bytes(16 * MIB)
        for encoding, compress in FORMS.items():
            for data in (zeros, b"[" * (8 * MIB)):
                answer = self.ask(compress(data, 9), encoding)
                self.assert_error(answer, 413, "1048576 bytes (--max-body-bytes)")
        self.assert_y(self.ask(gzip.compress(SMALL), "gzip"), SMALL_Y)
        self.assertEqual(self.server.metric_once(0, "quantd_inflight_bytes"), 0)

    def test_zeros(self):
        # Zeros compress best: a compressed byte becomes about a thousand.
        body, headers = binary_request([Tensor("x", "UINT8", [1000000], bytes(1000000)),
                                        Tensor.of("x_scale", "FP32", [], [2])])
        for encoding, compress in FORMS.items():
            compressed = compress(body, 9)
            self.assertGreater(len(body), 800 * len(compressed))
            self.assert_y(self.ask(compressed, encoding, headers),
                          ("FP32", [1000000], bytes(4000000)))

    def test_just_as_large_as_it_may_be(self):
        count = 2 * MIB - 1000 - len(large_request(MIB - 1000)[0])
        body, headers, expected = large_request(count)
        self.assertEqual(len(body), MIB)
        self.assert_y(self.ask(gzip.compress(body, 1), "gzip", headers),
                      ("FP32", [count], expected))
        answer = self.ask(gzip.compress(body + b" ", 1), "gzip", headers)
        self.assert_error(answer, 413, "--max-body-bytes")

    def test_answers_stay_as_they_are(self):
        body, headers, _ = large_request(100000)
        answer = self.server.infer(DEQUANTIZE, body, headers=dict(
            headers, **{"Accept-Encoding": "gzip, deflate"}))
        self.assertIsNone(answer.headers.get("Content-Encoding"))
        self.assertIsNone(answer.headers.get("Vary"))


class Answers(CompressionTest):
    FLAGS = ("--compress-answers", "on")

    def large(self, accept, binary=True, **more):
        body, headers, expected = large_request(100000)
        if not binary:
            body = body[:int(headers.pop(LENGTH))]
            tree = json.loads(body)
            tree["inputs"][0] = Tensor("x", "UINT8", [100000], bytes(
                i * i % 251 for i in range(100000))).as_json()
            tree["inputs"][1] = Tensor.of("x_scale", "FP32", [], [2]).as_json()
            tree["parameters"] = {}
            body = json.dumps(tree).encode()
        if accept is not None:
            headers["Accept-Encoding"] = accept
        answer = self.server.infer(DEQUANTIZE, body, headers=dict(headers, **more))
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.headers["Vary"], "Accept-Encoding")
        self.assert_y(inflate(answer), ("FP32", [100000], expected))
        return answer

    def test_as_the_client_would_have_it(self):
        for accept, coding in (("gzip", "gzip"), ("deflate", "deflate"), ("gzip, deflate", "gzip"),
                               ("gzip;q=0.5, deflate", "deflate"), ("*", "gzip"),
                               ("br, *;q=0.1", "gzip"), ("gzip;q=0", None), ("identity", None),
                               ("br, zstd", None), (None, None), ("", None)):
            for binary in (True, False):
                answer = self.large(accept, binary)
                self.assertEqual(answer.headers.get("Content-Encoding"), coding, accept)
                if coding is not None:
                    self.assertLess(len(answer.body), 200000)
                self.assertEqual(LENGTH in answer.headers, binary)
                self.assertGreater(answer.stages()["encode"], 0)

    def test_both_ways(self):
        body, headers, expected = large_request(500000)
        answer = self.ask(zlib.compress(body), "deflate", dict(headers,
                                                               **{"Accept-Encoding": "deflate"}))
        self.assertEqual(answer.headers["Content-Encoding"], "deflate")
        self.assert_y(inflate(answer), ("FP32", [500000], expected))

    def test_curl(self):
        body, headers, expected = large_request(100000)
        command = ["curl", "-s", "-S", "--max-time", str(60 * SLOW), "--compressed",
                   "--data-binary", "@-", self.server.addresses[0] + infer_path(DEQUANTIZE)]
        for pair in headers.items():
            command += ["-H", "%s: %s" % pair]
        done = subprocess.run(command, input=body, stdout=subprocess.PIPE, check=True)
        self.assertTrue(done.stdout.endswith(expected))

    def test_small_ones_and_others_stay(self):
        asks = {"Accept-Encoding": "gzip"}
        answer = self.server.infer(DEQUANTIZE, SMALL, headers=asks)
        self.assert_y(answer, SMALL_Y)
        self.assertEqual(answer.headers["Vary"], "Accept-Encoding")
        answers = [answer, self.server.infer(DEQUANTIZE, b"[" * 2000, headers=asks)]
        for path in ("/metrics", "/openapi.json", "/v2/models/" + DEQUANTIZE):
            answers.append(self.server.request("GET", path, headers=asks))
            answers.append(self.server.request("HEAD", path, headers=asks))
        for answer in answers:
            self.assertIsNone(answer.headers.get("Content-Encoding"))
        self.assert_error(answers[1], 400)

    def test_noise_stays_as_it_is(self):
        noise = os.urandom(50000)
        body, headers = binary_request([
            Tensor("x", "FP32", [50000], to_raw("FP32", list(noise))),
            Tensor.of("y_scale", "FP32", [], [1]), Tensor.of("y_zero_point", "UINT8", [], [0])])
        answer = self.server.infer("onnx.QuantizeLinear", body,
                                   headers=dict(headers, **{"Accept-Encoding": "gzip"}))
        self.assert_y(answer, ("UINT8", [50000], noise))
        self.assertIsNone(answer.headers.get("Content-Encoding"))
        self.assertEqual(answer.headers["Vary"], "Accept-Encoding")

    def test_keep_alive(self):
        client = self.server.client()
        for accept, coding in (("gzip", "gzip"), ("identity", None), ("deflate", "deflate")):
            body, headers, expected = large_request(30000)
            client.request("POST", infer_path(DEQUANTIZE), body,
                           dict(headers, **{"Accept-Encoding": accept}))
            response = client.getresponse()
            answer = Answer(response.status, response.headers, response.read())
            self.assertEqual(answer.headers.get("Content-Encoding"), coding)
            self.assert_y(inflate(answer), ("FP32", [30000], expected))
        client.close()


if __name__ == "__main__":
    unittest.main()
