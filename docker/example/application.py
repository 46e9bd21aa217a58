#!/usr/bin/env python3
"""An example of an application with quantd beside it. It sends a request over TCP, one over a Unix
socket, and one with tensors in shared memory if quantd accepts them.

application.py HOST:PORT SOCKET [SECONDS]     sends them once, or every SECONDS
"""
import contextlib
import http.client
import json
import mmap
import os
import signal
import socket
import struct
import sys
import time

INFER = "/v2/models/onnx.DequantizeLinear/infer"
EXAMPLE = (bytes([0, 128, 129, 255]), 0.5, 128)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, headers=None):
    """Sends a request and returns (headers, body) of the answer. Exits on any status but 200."""
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit("quantd answered %d: %s" % (response.status, body.decode()))
    return response.headers, body


def describe(x, count, scale, zero_point):
    """Returns the inputs of (x - zero_point) * scale. `x`: the parameters that say where the bytes
    of x are."""
    return [{"name": "x", "datatype": "UINT8", "shape": [count], "parameters": x},
            {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [scale]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [zero_point]}]


def dequantize(connection, raw, scale, zero_point):
    """Sends the bytes after the JSON. The floats come back in the same way."""
    header = json.dumps({
        "inputs": describe({"binary_data_size": len(raw)}, len(raw), scale, zero_point),
        "parameters": {"binary_data_output": True}}).encode()
    headers, body = ask(connection, "POST", INFER, header + raw,
                        {"Inference-Header-Content-Length": str(len(header))})
    length = int(headers["Inference-Header-Content-Length"])
    return struct.unpack("<%df" % len(raw), body[length:])


class Region:
    """Memory that this process shares with quantd: a file in /dev/shm, a folder that both
    containers mount. The containers run as different users. The folder gives its files quantd's
    group, so quantd may use the file by the group's permissions."""

    def __init__(self, name, size):
        self.name, self.size = name, size
        self.path = "/dev/shm/application-" + name
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # left by a run that was killed
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(fd, 0o660)
        os.posix_fallocate(fd, 0, size)  # fails now if memory is short, instead of SIGBUS later
        self.bytes = mmap.mmap(fd, size)
        os.close(fd)

    def register(self, connection):
        """Registers the region. quantd forgets regions when it restarts, but may still have this
        one from an earlier run of the application, so it is unregistered first."""
        path = "/v2/systemsharedmemory/region/%s/" % self.name
        ask(connection, "POST", path + "unregister")
        ask(connection, "POST", path + "register",
            json.dumps({"key": os.path.basename(self.path), "byte_size": self.size}))

    def parameters(self):
        return {"shared_memory_region": self.name, "shared_memory_byte_size": self.size}

    def close(self):
        self.bytes.close()
        os.unlink(self.path)


def dequantize_shared(connection, raw, scale, zero_point):
    """Like dequantize, in shared memory: HTTP transfers only the names of the regions."""
    x, y = Region("x", len(raw)), Region("y", 4 * len(raw))
    x.bytes[:] = raw
    for region in (x, y):
        region.register(connection)
    ask(connection, "POST", INFER, json.dumps({
        "inputs": describe(x.parameters(), len(raw), scale, zero_point),
        "outputs": [{"name": "y", "parameters": y.parameters()}]}))
    floats = struct.unpack("<%df" % len(raw), y.bytes)
    for region in (x, y):
        region.close()
    return floats


def takes_shared_memory(connection):
    return "system_shared_memory" in json.loads(ask(connection, "GET", "/v2")[1])["extensions"]


def main(address, path, seconds=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        tcp, unix = http.client.HTTPConnection(address, timeout=10), UnixConnection(path)
        print("TCP", *dequantize(tcp, *EXAMPLE), flush=True)
        print("socket", *dequantize(unix, *EXAMPLE), flush=True)
        if takes_shared_memory(unix):
            print("shared memory", *dequantize_shared(unix, *EXAMPLE), flush=True)
        tcp.close()
        unix.close()
        if seconds is None:
            return
        time.sleep(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
