#!/usr/bin/env python3
"""An application with quantd beside it, asking it over TCP and over a Unix socket.

application.py HOST:PORT SOCKET [SECONDS]     once, or every SECONDS
"""
import http.client
import json
import signal
import socket
import struct
import sys
import time


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def dequantize(connection, raw, scale, zero_point):
    """(raw - zero_point) * scale: the bytes go behind the JSON, and the floats come back so."""
    header = json.dumps({
        "inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [len(raw)],
             "parameters": {"binary_data_size": len(raw)}},
            {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [scale]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [zero_point]}],
        "parameters": {"binary_data_output": True}}).encode()
    connection.request("POST", "/v2/models/onnx.DequantizeLinear/infer", header + raw,
                       {"Inference-Header-Content-Length": str(len(header))})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit("quantd answered %d: %s" % (response.status, body.decode()))
    length = int(response.headers["Inference-Header-Content-Length"])
    return struct.unpack("<%df" % len(raw), body[length:])


def main(address, path, seconds=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        for name, connection in (("TCP", http.client.HTTPConnection(address, timeout=10)),
                                 ("socket", UnixConnection(path))):
            print(name, *dequantize(connection, bytes([0, 128, 129, 255]), 0.5, 128), flush=True)
            connection.close()
        if seconds is None:
            return
        time.sleep(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
