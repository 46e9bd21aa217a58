"""Servers that speak TLS, with certificates made for the tests."""
import io
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from quantd import Server, ServerTest, Tensor, infer_path, json_request

MODEL = "onnx.DequantizeLinear"
SCALE = Tensor.of("x_scale", "FP32", [], [1])
BODY = json.dumps(json_request([Tensor.of("x", "UINT8", [2], [1, 2]), SCALE])).encode()
REQUEST = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
    infer_path(MODEL).encode(), len(BODY), BODY)


def make_certificate(folder, name, *more):
    """Makes the files NAME.crt and NAME.key."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=" + name,
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout",
                    "%s/%s.key" % (folder, name), "-out", "%s/%s.crt" % (folder, name), *more],
                   check=True, capture_output=True)


class TwoWayTls(io.RawIOBase):
    """A client's connection that one thread may read while another one sends. An ssl.SSLSocket is
    not made for that: OpenSSL demands one call at a time, and the reader then sometimes sees an end
    of the connection that has not come."""

    def __init__(self, connection, context):
        super().__init__()
        self.connection = connection
        self.lock = threading.Lock()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        done = False
        while not done:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            self.connection.sendall(self.outgoing.read())
            if not done:
                self.receive()

    def receive(self):
        received = self.connection.recv(16384)
        with self.lock:
            if received:
                self.incoming.write(received)
            else:
                self.incoming.write_eof()

    def sendall(self, data):
        for at in range(0, len(data), 16384):
            with self.lock:
                self.tls.write(data[at:at + 16384])
                record = self.outgoing.read()
            self.connection.sendall(record)

    def readable(self):
        return True

    def readinto(self, buffer):
        while True:
            try:
                with self.lock:
                    return self.tls.read(len(buffer), buffer)
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLWantReadError:
                self.receive()

    def fileno(self):
        return self.connection.fileno()

    def makefile(self, mode):
        assert mode == "rb"
        return io.BufferedReader(self)

    def close(self):
        self.connection.close()
        super().close()


@unittest.skipIf(shutil.which("openssl") is None, "openssl is not installed")
class TlsTest(ServerTest):
    FLAGS = ()
    LISTEN = ("127.0.0.1:0",)

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.directory.name)
        make_certificate(cls.folder, "one")
        make_certificate(cls.folder, "two")
        cls.use("one")
        cls.server = Server("--tls-cert", str(cls.folder / "cert"), "--tls-key",
                            str(cls.folder / "key"), *cls.FLAGS, listen=cls.LISTEN)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.directory.cleanup()

    @classmethod
    def use(cls, cert, key=None):
        shutil.copy(cls.folder / (cert + ".crt"), cls.folder / "cert")
        shutil.copy(cls.folder / ((key or cert) + ".key"), cls.folder / "key")
        os.chmod(cls.folder / "key", 0o600)

    def trusting(self, name):
        context = ssl.create_default_context(cafile=str(self.folder / (name + ".crt")))
        return context

    def assert_served(self):
        self.assertEqual(self.server.infer(MODEL, BODY).status, 200)
