"""Servers that speak TLS, with certificates made for the tests."""
import json
import os
import shutil
import ssl
import subprocess
import tempfile
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
