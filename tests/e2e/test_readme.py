"""The README's shell examples, run as they stand, and its tables against the server."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from loading import kept_request
from quantd import ROOT, SLOW, ServerTest

README = (ROOT / "README.md").read_text()


def shell_blocks():
    """(commands, expected output): a ```sh block, and a ```text block right behind it, if any."""
    return re.findall(r"```sh\n(.*?)```(?:\n+```text\n(.*?)```)?", README, re.DOTALL)


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Examples(ServerTest):
    FLAGS = ("--model-control-mode", "explicit")

    def test_curl_examples(self):
        done = 0
        for commands, expected in shell_blocks():
            if "curl" not in commands:
                continue
            with self.subTest(commands=commands), tempfile.TemporaryDirectory() as folder:
                commands = commands.replace("http://127.0.0.1:8000", self.server.addresses[0])
                Path(folder, "build").mkdir()
                Path(folder, "tests").symlink_to(ROOT / "tests")
                result = subprocess.run(["sh", "-euc", commands], cwd=folder, text=True,
                                        stdin=subprocess.DEVNULL, capture_output=True,
                                        timeout=20 * SLOW, env=dict(os.environ), check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(blur(result.stdout.strip("\n")), blur(expected.strip("\n")))
                done += 1
        self.assertGreaterEqual(done, 3)

    def test_endpoints_table(self):
        rows = re.findall(r"^\| `(GET|POST) (/[^`]*)` \|", README, re.MULTILINE)
        self.assertGreaterEqual(len(rows), 10)
        for method, path in rows:
            with self.subTest(method=method, path=path):
                path = path.replace("[/versions/V]", "").replace("M", "onnx.QLinearConv", 1)
                path = path.replace("/N/", "/layer/")
                body = json.dumps(kept_request([1, 2])) if path.endswith("/load") else None
                answer = self.server.request(method, path, body)
                # Without a body an inference is a 400, and that is an answer of its own.
                self.assertIn(answer.status, (200, 400) if path.endswith("/infer") else (200,))
                self.assertEqual(self.server.request("PUT", path).status, 405)


class Tour(unittest.TestCase):
    def test_every_path_exists(self):
        for path in re.findall(r"`((?:server|kernels|tests|api_schema|\.ci)/[\w./-]*)`", README):
            with self.subTest(path=path):
                self.assertTrue((ROOT / path).exists() or list(ROOT.glob(path + ".*")), path)

    def test_every_server_file_is_on_the_tour(self):
        missing = [file.stem for file in (ROOT / "server").glob("*.c")
                   if not re.search(r"`server/%s[.`]" % file.stem, README)]
        missing += [file.name for file in (ROOT / "server/models").glob("*.c")
                    if not re.search(r"`(server/models/)?%s`" % re.escape(file.name), README)]
        self.assertEqual(missing, [])


def blur(text):
    """Times differ from run to run, and the kernel from CPU to CPU."""
    text = re.sub(r'"(receive|queue|decode|compute)_us":[0-9.]+', r'"\1_us":0', text)
    return re.sub(r'"kernel":"[\w+]+"', '"kernel":"k"', text)


if __name__ == "__main__":
    unittest.main()
