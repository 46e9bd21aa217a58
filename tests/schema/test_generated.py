"""Generates a client from the document with openapi-python-client, as api_schema/README.md says."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from quantd import ROOT, Server

GENERATOR = ROOT / "build" / "schema" / "venv" / "bin" / "openapi-python-client"
CALL = """
import sys
from quantd_client import Client
from quantd_client.api.onnx_dequantize_linear import onnx_dequantize_linear
from quantd_client.models import DequantizeLinear25
request = DequantizeLinear25.from_dict({"inputs": [
    {"name": "x", "datatype": "UINT8", "shape": [4], "data": [0, 128, 129, 255]},
    {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]}]})
answer = onnx_dequantize_linear.sync(client=Client(sys.argv[1]), body=request)
print(answer.outputs[0].datatype.value, answer.outputs[0].shape, answer.outputs[0].data)
"""


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


class Generated(unittest.TestCase):
    def test_python_client_infers(self):
        server = Server("--log-level", "warn")
        self.addCleanup(server.stop)
        url = "http://%s:%d" % (server.host, server.port)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        client = Path(folder.name) / "client"
        made = run(GENERATOR, "generate", "--url", url + "/openapi.json", "--output-path", client)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        # The generator knows no YAML, but leaves out nothing else of the document.
        said = (made.stdout + made.stderr).splitlines()
        left_out = [line for line in said if line.startswith("WARNING")]
        self.assertEqual(left_out, ["WARNING parsing GET /openapi.yaml within server."])
        called = run(sys.executable, "-c",
                     "import sys; sys.path.insert(0, %r)\n%s" % (str(client), CALL), url)
        self.assertEqual((called.stdout, called.stderr),
                         ("FP32 [4] [0, 64, 64.5, 127.5]\n", ""))


if __name__ == "__main__":
    unittest.main()
