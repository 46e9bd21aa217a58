"""Schemathesis tests a running server: examples, the edge cases of every schema, and random
data."""
import os
import re
import subprocess
import unittest

from contract import DOCUMENT, METHODS
from quantd import ROOT, Server

HERE = ROOT / "tests" / "schema"


class Play(unittest.TestCase):
    EXPECTED_S = 60  # the others end beside it

    def test_all(self):
        """Only the described statuses, headers, content types and bodies occur, and requests that
        violate the schema are refused. At least one case of each operation is tried."""
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
                         for method in METHODS if path != "/v2/")  # described as the same as /v2
        self.assertIn("Tested: %d\n" % operations, result.stdout)
        generated, passed = re.search(r"(\d+) generated, (\d+) passed", result.stdout).groups()
        self.assertEqual(generated, passed)
        self.assertGreaterEqual(int(generated), 5000)
        self.assertEqual(server.get("/v2/health/live").status, 200)


if __name__ == "__main__":
    unittest.main()
