#!/usr/bin/env python3
"""Makes short load runs over TCP and a Unix socket, which fail on any wrong or lost answer, and
checks that load.sh notices such answers. The environment variable B is the build directory. The
last line is "N passed, N failed"."""
import csv
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "support"))

from faulty_server import FaultyServer  # noqa: E402
from run_tests import Result  # noqa: E402

ROOT = HERE.parent.parent
BUILD = ROOT / os.environ.get("B", "build")


def load(*arguments, out, timeout=60):
    return subprocess.run([HERE / "load.sh", "--out", out, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=timeout, check=False)


class LoadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = Path(cls.folder.name) / "out"
        cls.socket = Path(cls.folder.name) / "socket"
        cls.server = subprocess.Popen(
            [BUILD / "quantd", "--listen", "127.0.0.1:0", "--listen", "unix:%s" % cls.socket],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        cls.url = cls.server.stdout.readline().split()[-1]
        cls.server.stdout.readline()
        cls.port = int(cls.url.rpartition(":")[2])

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait(30)
        cls.server.stdout.close()
        cls.folder.cleanup()

    def rows(self):
        with (self.out / "load.csv").open() as file:
            return list(csv.DictReader(file))


class Right(LoadTest):
    """Runs every operator in every form: all answers must arrive and be right."""

    def run_all(self, *arguments):
        result = load(*arguments, "--requests", "200", "--concurrency", "1 8", out=self.out)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        rows = self.rows()
        self.assertEqual([row["concurrency"] for row in rows], ["1", "8"])
        for row in rows:
            self.assertEqual((row["right"], row["errors"]), ("200", ""))
            self.assertGreater(float(row["requests_per_s"]), 0)
            times = [float(row[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
            self.assertEqual(times, sorted(times))
            self.assertLess(float(row["server_ms"]), times[-1])
            # Five stages and their total are each rounded to half a microsecond, and percentages to
            # a tenth. For a request that takes 10 us these errors may add up to 30 %.
            stages = ("receive", "queue", "decode", "compute", "encode")
            self.assertAlmostEqual(sum(float(row[name + "_percent"]) for name in stages), 100,
                                   delta=100 * 6 * 0.0005 / float(row["server_ms"]) + 0.5)
        self.assertIn("<svg", (self.out / "load.svg").read_text())

    def test_dequantize_json(self):
        self.run_all("--url", self.url, "--operator", "dequantize", "--size", "10",
                     "--form", "json")

    def test_dequantize_binary(self):
        self.run_all("--unix-socket", self.socket, "--operator", "dequantize",
                     "--size", "100000")

    def test_quantize_json(self):
        self.run_all("--url", self.url, "--operator", "quantize", "--size", "3000",
                     "--form", "json")

    def test_quantize_binary(self):
        self.run_all("--unix-socket", self.socket, "--operator", "quantize", "--size", "50000")

    def test_convolution_json(self):
        self.run_all("--unix-socket", self.socket, "--operator", "qlinearconv", "--size", "4x9x7",
                     "--form", "json")

    def test_convolution_binary(self):
        self.run_all("--url", self.url, "--operator", "qlinearconv", "--size", "16x28x28")

    def test_directml_binary(self):
        self.run_all("--url", self.url + "/", "--operator", "directml")

    def test_directml_json(self):
        self.run_all("--unix-socket", self.socket, "--operator", "directml", "--form", "json")

    def test_tensorflow_binary(self):
        self.run_all("--unix-socket", self.socket, "--operator", "tensorflow")

    def test_tensorflow_json(self):
        self.run_all("--url", self.url, "--operator", "tensorflow", "--form", "json")

    def test_a_server_of_its_own_for_a_second(self):
        result = load("--duration", "1", "--concurrency", "4", out=self.out)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        row, = self.rows()
        self.assertGreater(int(row["right"]), 20)
        self.assertEqual(row["errors"], "")
        # The run must last as long as asked, and its rate must be that of the requests that it
        # counts.
        seconds = int(row["right"]) / float(row["requests_per_s"])
        self.assertTrue(0.9 < seconds < 4, seconds)


class Faults(LoadTest):
    """Spoils every fiftieth answer: load.sh must count exactly these, and end with exit status 1.
    """

    def expect(self, fault, errors, *arguments, form="binary", every=50):
        server = FaultyServer(self.port, fault, every)
        try:
            result = load("--url", server.url, "--requests", "200", "--concurrency", "4",
                          "--form", form, *arguments, out=self.out)
        finally:
            server.stop()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        row, = self.rows()
        if errors is not None:
            self.assertEqual(row["errors"], errors)
        self.assertIn(row["errors"], result.stdout)
        self.assertIn("wrong, refused or lost", result.stderr)
        return row

    def test_a_wrong_byte(self):
        row = self.expect("flip", "wrong:4")
        self.assertEqual(row["right"], "196")
        wrong, expected = (self.out / "wrong_answer", self.out / "wrong_answer.expected")
        self.assertEqual(wrong.read_bytes()[-3999:-1], expected.read_bytes()[-3999:-1])
        self.assertNotEqual(wrong.read_bytes()[-1], expected.read_bytes()[-1])

    def test_a_wrong_digit(self):
        self.expect("flip", "wrong:4", form="json")

    def test_a_byte_too_few(self):
        self.expect("shorter", "wrong:4")
        self.expect("shorter", "wrong:4", form="json")

    def test_a_byte_too_many(self):
        self.expect("longer", "wrong:4")
        self.expect("longer", "wrong:4", form="json")

    def test_a_byte_in_the_answer_before(self):
        # One request after the other, so that the two answers are neighbours when they are checked.
        self.expect("shift", "wrong:8", "--concurrency", "1", form="json")

    def test_a_wrong_header(self):
        self.expect("header", "wrong:4")

    def test_the_answer_to_another_request(self):
        self.expect("crossed", "wrong:4")

    def test_cut_off_within_the_answer(self):
        self.assertEqual(self.expect("truncate", "cut:4")["right"], "196")

    def test_closed_before_the_answer(self):
        # curl repeats the request by itself, except on a new connection. The answer was lost
        # nevertheless.
        errors = dict(error.split(":") for error in self.expect("close", None)["errors"].split())
        self.assertLessEqual(set(errors), {"lost", "cut"})
        self.assertEqual(sum(map(int, errors.values())), 4)
        self.assertGreaterEqual(int(errors["lost"]), 1)

    def test_refused(self):
        self.assertEqual(self.expect("unavailable", "503:4")["right"], "196")

    def test_too_late(self):
        self.expect("hang", "timeout:1", "--timeout", "1", every=150)


class BadInput(LoadTest):
    """Bad input must lead to one clear line, and exit status 2."""

    def refuse(self, text, *arguments):
        result = load(*arguments, out=self.out)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Aload\.sh: [^\n]*\n\Z")
        self.assertIn(text, result.stderr)

    def test_options(self):
        for text, *arguments in (
                ("--help lists, got '--frobnicate'", "--frobnicate"),
                ("--size: expected a value, got none", "--size"),
                ("--operator: expected one that --help lists, got 'relu'", "--operator", "relu"),
                ("got 'many'", "--size", "many"),
                ("expected elements in [1, 4194304], got '0'", "--size", "0"),
                ("got '4194305'", "--size", "4194305"),
                ("such as 64x56x56, got '100'", "--operator", "qlinearconv", "--size", "100"),
                ("at most 512 channels", "--operator", "qlinearconv", "--size", "513x2x2"),
                ("--form: expected json or binary, got 'xml'", "--form", "xml"),
                ("--concurrency: expected 1 to 1000, got '0'", "--concurrency", "1 0"),
                ("--concurrency: expected numbers, got none", "--concurrency", ""),
                ("--duration: expected 1 to 3600, got '1.5'", "--duration", "1.5"),
                ("--requests: expected 1 to 1000000, got '-3'", "--requests", "-3"),
                ("--url: expected http:// or https://", "--url", "localhost:8000"),
                ("--url: expected one URL", "--url", "http://{a,b}:8000"),
                ("--url: expected one URL", "--url", "http://localhost:8000/[1-3]")):
            with self.subTest(arguments=arguments):
                self.refuse(text, *arguments)

    def test_no_program(self):
        self.refuse("expected a program at nowhere/quantd (run make)", "--server", "nowhere/quantd")

    def test_a_program_that_ends(self):
        self.refuse("did not start", "--server", "/bin/false")

    def test_nothing_behind_the_port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.refuse("nothing answers at http://127.0.0.1:%d" % port,
                    "--url", "http://127.0.0.1:%d" % port)

    def test_no_socket(self):
        self.refuse("which is none", "--unix-socket", "/nowhere/quantd.sock")
        self.refuse("which is none", "--unix-socket", __file__)

    def test_nobody_at_the_socket(self):
        path = Path(self.folder.name) / "deserted"
        with socket.socket(socket.AF_UNIX) as deserted:
            deserted.bind(str(path))
        self.refuse("nothing answers at %s" % path, "--unix-socket", path)

    def test_no_folder(self):
        self.refuse("--out: expected a folder to write to", "--out", __file__ + "/load")

    def test_another_server(self):
        self.refuse("HTTP 404", "--url", self.url + "/elsewhere")

    def test_larger_than_the_server_takes(self):
        server = subprocess.Popen([BUILD / "quantd", "--listen", "127.0.0.1:0", "--max-body-bytes",
                                   "1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True)
        try:
            self.refuse("HTTP 413", "--url", server.stdout.readline().split()[-1])
        finally:
            server.terminate()
            server.wait(30)
            server.stdout.close()


class CleanUp(LoadTest):
    def test_killed_in_the_middle(self):
        """load.sh ends the processes that it started, and leaves nothing in its folders."""
        pid_file = Path(self.folder.name) / "pid"
        wrapper = Path(self.folder.name) / "quantd"
        wrapper.write_text('#!/bin/sh\necho $$ >"%s"\nexec "%s" "$@"\n'
                           % (pid_file, BUILD / "quantd"))
        wrapper.chmod(0o755)
        with subprocess.Popen([HERE / "load.sh", "--out", self.out, "--server", wrapper],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            run.stdout.readline()  # the head of the table: load.sh is about to post
            time.sleep(1)
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(30), 1)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)
        self.assertEqual({path.name for path in self.out.iterdir()},
                         {"load.csv", "request.binary"})
        self.assertEqual(list(Path("/dev/shm").glob("quantd-load.%d.*" % run.pid)), [])

    def test_without_gnuplot(self):
        """Everything but the picture works, and one line says so."""
        tools = Path(self.folder.name) / "bin"
        tools.mkdir()
        for folder in ("/bin", "/usr/bin"):
            for tool in Path(folder).iterdir():
                if not tool.name.startswith("gnuplot") and not (tools / tool.name).is_symlink():
                    (tools / tool.name).symlink_to(tool)
        result = subprocess.run(
            [HERE / "load.sh", "--out", self.out, "--url", self.url, "--requests", "5"],
            env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("load.svg needs gnuplot", result.stdout)
        self.assertFalse((self.out / "load.svg").exists())

    def test_help(self):
        result = load("--help", out=self.out)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("--concurrency LIST", result.stdout)


def main():
    loader = unittest.TestLoader()
    result = Result()
    loader.loadTestsFromModule(sys.modules["__main__"]).run(result)
    result.leave()
    print("%d passed, %d failed" % (result.count.passed, result.count.failed), flush=True)
    return 1 if result.count.failed or not result.count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
