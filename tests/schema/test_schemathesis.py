"""Schemathesis plays with a running server: examples, the corners of every schema, and chance."""
import os
import re
import subprocess
import unittest

from contract import DOCUMENT, METHODS
from quantd import ROOT, Server

HERE = ROOT / "tests" / "schema"


class Play(unittest.TestCase):
    def test_all(self):
        """No status, header, content type or body but the described ones; what breaks the schema is
        refused. Of each operation at least one case is tried."""
        server = Server("--log-level", "warn")
        self.addCleanup(server.stop)
        url = "http://%s:%d" % (server.host, server.port)
        result = subprocess.run(
            [ROOT / "build" / "schema" / "venv" / "bin" / "schemathesis", "--config-file",
             HERE / "schemathesis.toml", "run", url + "/openapi.json", "--url", url, "--no-color"],
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env=dict(os.environ, PYTHONPATH=str(HERE), PYTHONIOENCODING="utf-8",
                     HYPOTHESIS_STORAGE_DIRECTORY=str(ROOT / "build" / "schema" / "hypothesis")))
        self.assertEqual(result.returncode, 0, result.stdout[-20000:] + result.stderr)
        operations = sum(method in item for path, item in DOCUMENT["paths"].items()
                         for method in METHODS if path != "/v2/")  # the same as /v2, it says
        self.assertIn("Tested: %d\n" % operations, result.stdout)
        generated, passed = re.search(r"(\d+) generated, (\d+) passed", result.stdout).groups()
        self.assertEqual(generated, passed)
        self.assertGreaterEqual(int(generated), 5000)
        self.assertEqual(server.get("/v2/health/live").status, 200)


if __name__ == "__main__":
    unittest.main()
