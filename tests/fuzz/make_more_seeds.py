#!/usr/bin/env python3
"""make_more_seeds.py FOLDER: makes seeds for the fuzzers of connections, numbers, configurations,
operators, answers and compressed bodies.

The seeds go into FOLDER/http and so on. They come from the examples (tests/e2e/examples.py), from
some lines here, and from tests/fuzz/corpus.hex: each of its lines is a fuzzer's name and an input
that an earlier run found worth keeping.
"""
import collections
import gzip
import random
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from examples import LENGTH, example_body, load_examples  # noqa: E402

LINES = (b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n",
         b"GET /v2 HTTP/1.1\r\nHost: q\r\nHost\0X: q\r\n\r\n",
         b"GET /v2 HTTP/1.0\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: q\r\n\r\n",
         b"GET http://q/metrics?x=1 HTTP/1.1\r\nHost: q\r\n\r\n",
         b"GET /v2/models/onnx.QLinearConv/versions/10/config HTTP/1.1\r\nHost: q\r\n\r\n",
         b"GET /v2/models/digits/versions/1/nodes HTTP/1.1\r\nHost: q\r\n\r\n",
         b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\nContent-Length: 14\r\n\r\n"
         b'{"ready":true}',
         b"POST /v2/repository/models/m/load HTTP/1.1\r\nHost: q\r\nContent-Length: 17\r\n\r\n"
         b'{"parameters":{}}',
         b"POST /v2/logging HTTP/1.1\r\nHost: q\r\nContent-Length: 2\r\n\r\n{}",
         b"POST /v2/models/stats HTTP/1.1\r\nHost: q\r\nExpect: 100-continue\r\n"
         b"Content-Length: 2\r\n\r\n{}")
CONFIGS = ('{"name":"m","platform":"onnxruntime_onnx","backend":"onnxruntime","max_batch_size":8,'
           '"input":[{"name":"x","data_type":"TYPE_UINT8","dims":[4]}],'
           '"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}],'
           '"version_policy":{"specific":{"versions":[1,3]}},'
           '"instance_group":[{"count":2,"kind":"KIND_CPU"}],"dynamic_batching":{}}',
           '{"versionPolicy":{"latest":{"numVersions":"2"}},"maxBatchSize":"0"}',
           '{"version_policy":{"all":{}},"optimization":{"priority":"PRIORITY_MAX"}}')
PBTXTS = [
    'name: "m" platform: "onnxruntime_onnx" max_batch_size: 8 # eight\n'
    'input [ { name: "x" data_type: TYPE_UINT8 dims: [ 3 ] } ]\n'
    'output { name: \'y\' data_type: TYPE_FP32 dims: -1 label_filename: "labels.txt" }\n'
    'version_policy: { specific { versions: [1, 3] versions: 7 } };\n'
    'instance_group < count: 2 kind: KIND_CPU > dynamic_batching { }\n',
    'default_model_filename: "a\\"b\\\\c.onnx", parameters { key: "k" value { string_value: "" } }',
    "a{b<c{d{}}>}",
]
ARGUMENTS = ("--listen\0127.0.0.1:80\0--listen\0unix:/x\0--threads\0auto\0--max-queue\0" "7",
             "--listen=[::1]:0\0--max-body-bytes\0" "1G\0--receive-timeout\0" "1.5",
             "--load-model\0a,b\0--model-control-mode\0explicit\0--exit-on-error\0off", "--help")
TEXTS = ("[1,2,3,4]", "[[0.5,-1e-3],[1e9,\"NaN\"]]", "7", "[]", "[-0.0,\"-Infinity\",6.1e-5]",
         "[true,false,1, 0]", "[9223372036854775807,\"-9223372036854775808\",12345678901234567]")
KINDS = 21  # the element types


# Depthwise convolutions whose sizes wrap in 64 bits, as (kernel, strides, dilations, pads) for x
# [1, 8, 30, 3]. The first two once read and wrote outside their buffers; the others stay within
# bounds.
HUGE, MOST = 1 << 62, (1 << 31) - 1
GEOMETRIES = (([4, 3], [2, 1], [1537228672809129302, 1], [HUGE, 1, 0, 1]),
              ([1, 3], [HUGE, 1], [1, 1], [HUGE, 1, 0, 1]),
              ([4, 3], [2, 1], [MOST, 1], [MOST, 1, MOST, 1]),
              ([2, 3], [MOST, 2], [MOST, 1], [MOST, 1, 0, 1]),
              ([1, 3], [MOST, 1], [1, MOST], [0, MOST, 0, MOST]),
              ([3, 2], [1, MOST], [1, MOST], [1, MOST, 1, MOST]))


def write(folder, name, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def request_of(example):
    body, json_bytes = example_body(example)
    headers = dict(example.get("headers", {}))
    if json_bytes is not None:
        headers.setdefault(LENGTH, str(json_bytes))
    headers["Content-Length"] = str(len(body))
    version = "/versions/" + example["version"] if example.get("version") else ""
    lines = ["POST /v2/models/%s%s/infer HTTP/1.1" % (example["model"], version), "Host: q"]
    return "\r\n".join(lines + ["%s: %s" % pair for pair in headers.items()]
                       + ["", ""]).encode(), body


def chunked(head, body):
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 99]), body[i:i + 99])
                           for i in range(0, len(body), 99)) + b"0\r\n\r\n"


def number(value):
    """Returns the bytes that take_number of fuzz_operator.c reads as `value`."""
    return bytes([value + 3]) if -3 <= value < 17 else b"\xf0" + value.to_bytes(8, "little")


def dims(*lengths):
    """Returns the bytes that take_dim of fuzz_operator.c reads as these lengths, each below 127."""
    return bytes(length if length < 9 else length + 118 for length in lengths)


def conv_seed(backend, kernel, strides, dilations, pads):
    """Returns a call of QLinearConv for fuzz_operator.c: x [1, 8, 30, 3], group 8."""
    # The backend, the operator, the version, the variable inputs, the constant inputs, the random
    # state.
    call = bytes([backend, 2, 0, 0, 0, 7])
    x = bytes([4]) + dims(1, 8, 30, 3) + b"\0"
    attributes = b"\1"  # no auto_pad
    attributes += b"\0\1" + b"".join(map(number, dilations))
    attributes += b"\0" + number(8)
    attributes += b"\1"  # no kernel_shape
    attributes += b"\0\2" + b"".join(map(number, pads))
    attributes += b"\0\1" + b"".join(map(number, strides))
    # For each input: its type, its shape (0: x's shape, 1: [], 6: any), where its data begins, its
    # data.
    whole, scalar = b"\0\0\0\0", b"\0\1\0\1"
    w = b"\1\6\4" + dims(8, 1, *kernel) + b"\0\0"
    inputs = whole + scalar + scalar + w + scalar + b"\1\1\0\1" + scalar * 2 + b"\0"
    return call + x + attributes + inputs


def main():
    folder = Path(sys.argv[1])
    for index, line in enumerate(LINES):
        write(folder / "http", "line%d" % index, b"\0" + line * 2)
    for name, example in load_examples().items():
        head, body = request_of(example)
        write(folder / "http", name, b"\x80" + head + body)
        write(folder / "http", name + ".chunked", b"\x40" + chunked(head, body))
    rng = random.Random(1)
    for kind in range(KINDS):
        write(folder / "tensor", "bytes%d" % kind, bytes([kind, kind % 4]) + rng.randbytes(9000))
        for index, text in enumerate(TEXTS):
            write(folder / "tensor", "text%d.%d" % (kind, index),
                  bytes([128 + kind, 2 * (index == 1)]) + text.encode())
        write(folder / "tensor", "long%d" % kind,
              bytes([128 + kind, 0]) + b"[" + b"1," * 9000 + b"0]")
    for index, text in enumerate(CONFIGS):
        write(folder / "config", "model%d" % index, b"\0" + text.encode())
    for index, text in enumerate(PBTXTS):
        write(folder / "config", "pbtxt%d" % index, b"\2" + text.encode())
    for index, text in enumerate(ARGUMENTS):
        write(folder / "config", "arguments%d" % index, b"\1" + text.encode())
    for index in range(100):
        write(folder / "operator", "random%d" % index, rng.randbytes(200))
        write(folder / "oip_encode", "random%d" % index, rng.randbytes(3 * index))
    for index, geometry in enumerate(GEOMETRIES):
        for backend in range(8):
            write(folder / "operator", "geometry%d.%d" % (index, backend),
                  conv_seed(backend, *geometry))
    for index, data in enumerate((b"", TEXTS[0].encode(), bytes(3000), rng.randbytes(300),
                                  bytes(i * i % 11 for i in range(3000)))):
        for level in (0, 1, 9):
            member = gzip.compress(data, level, mtime=0)
            frame = zlib.compress(data, level)
            for name, body in (("gzip", b"\1" + member), ("members", b"\1" + member * 3),
                               ("named", b"\1" + member[:3] + b"\x08" + member[4:10] + b"a\0"
                                + member[10:]),
                               ("zlib", b"\0" + frame), ("bare", b"\0" + frame[2:-4]),
                               ("short", b"\0" + frame[:-1]), ("small", b"\x42" + frame)):
                write(folder / "inflate", "%s%d.%d" % (name, index, level), body)
    kept = collections.Counter()
    for line in (HERE / "corpus.hex").read_text().splitlines():
        name, _, data = line.partition(" ")
        write(folder / name, "kept%d" % kept[name], bytes.fromhex(data))
        kept[name] += 1


if __name__ == "__main__":
    main()
