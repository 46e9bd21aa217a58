"""The command line: flags, environment variables, exit statuses, and the output on each stream."""
import json
import os
import re
import socket
import subprocess
import tempfile
import unittest

from examples import load_examples
from quantd import COMMAND, ONE_IO_THREAD, ROOT, SLOW, Server, read_shared

FLAG_LINE = re.compile(r"  --([a-z-]+) ")


def run(*arguments, **environment):
    return subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=20 * SLOW,
                          env=dict(os.environ, **environment), check=False)


def flags_of_help():
    return FLAG_LINE.findall(run("--help").stdout)


def kernels(*arguments, **environment):
    """Returns what --kernels prints, without a measurement: name -> value."""
    result = run("--kernels", "--measure", "off", *arguments, **environment)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return dict(re.findall(r"^  (\S.*?)  +(\S.*)$", result.stdout, re.MULTILINE))


def playable():
    """Returns the machines that QK_CPU can name on this CPU: name -> their features."""
    every = {"haswell": "sse4.2 avx avx2", "zen2": "sse4.2 avx avx2",
             "skylakex": "sse4.2 avx avx2 avx512",
             "cascadelake": "sse4.2 avx avx2 avx512 avx512_vnni",
             "icelake": "sse4.2 avx avx2 avx512 avx512_vnni avx512_vbmi",
             "zen4": "sse4.2 avx avx2 avx512 avx512_vnni avx512_vbmi",
             "sapphirerapids": "sse4.2 avx avx2 avx_vnni avx512 avx512_vnni avx512_vbmi amx_int8"}
    here = kernels(QK_CPU="")["features"].split()
    return {name: features for name, features in every.items()
            if set(features.split()) <= set(here)}


MASKS = playable()  # the tests themselves may run under any of these masks
# This machine as it is, an old core if an emulator runs quantd, and each mask.
ENVIRONMENTS = [{}, {"QEMU_CPU": "cortex-a72"}, *({"QK_CPU": name} for name in MASKS)]
# The features that a tier or a backend needs, in the order in which quantd lists them.
NEEDS = {"avx2": ("sse4.2", "avx", "avx2"),
         "avx512": ("sse4.2", "avx", "avx2", "avx512"),
         "avxvnni": ("sse4.2", "avx", "avx2", "avx_vnni"),
         "vnni_novbmi": ("sse4.2", "avx", "avx2", "avx512", "avx512_vnni"),
         "vnni": ("sse4.2", "avx", "avx2", "avx512", "avx512_vnni", "avx512_vbmi"),
         "amx": ("sse4.2", "avx", "avx2", "avx512", "avx512_vnni", "avx512_vbmi", "amx_int8"),
         "neon": ("neon",), "dotprod": ("neon", "dotprod"), "i8mm": ("neon", "dotprod", "i8mm")}


class CommandLine(unittest.TestCase):
    def assert_complaint(self, result, *words):
        self.assertEqual(result.stdout, "")
        self.assertNotEqual(result.returncode, 0)
        self.assertGreater(result.returncode, 0, "killed by a signal")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_help(self):
        result = run("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for flag in ("listen", "threads", "max-body-bytes", "max-queue", "max-inflight-bytes",
                     "version", "help"):
            self.assertIn("--" + flag, result.stdout)
        for line in result.stdout.splitlines():
            self.assertLessEqual(len(line), 120)
            if line.startswith("  --"):  # help2man takes two spaces as the end of a flag
                self.assertRegex(line, r"^  --[a-z-]+( [A-Z:]+)?  +\S")

    def test_short_help(self):
        self.assertEqual(run("-h").stdout, run("--help").stdout)
        self.assertEqual(run("-h").returncode, 0)
        self.assert_complaint(run("-x"), 'got "-x"', "--help")

    def test_kernels_that_the_cpu_lacks(self):
        """The error names what this CPU can run, and each feature that it lacks."""
        for environment in ENVIRONMENTS:
            features = kernels(**environment)["features"].split()
            for flag, of in (("--cpu", "scalar"), ("--gemm", "blas")):
                names = re.search(flag + r" .*?((\w+, )+\w+ or \w+)", run("--help").stdout)[1]
                refused = 0
                for name in re.findall(r"\w+", names.replace(" or ", ", ")):
                    for more in ((), ("--kernels",)):
                        with self.subTest(flag=flag, name=name, more=more, **environment):
                            lacking = [feature for feature in NEEDS.get(name, ())
                                       if feature not in features]
                            if not lacking:
                                continue
                            refused += 1
                            result = run(flag, name, *more, **environment)
                            self.assertEqual(result.returncode, 2)
                            self.assertRegex(result.stderr, r'^quantd: %s: expected auto, [\w, ]*'
                                             r'%s[\w, ]*, got "%s": this CPU lacks %s\n$'
                                             % (flag, of, name, " ".join(lacking)))
                            self.assertNotIn(name, result.stderr.split(", got ")[0].split())

    def test_tiers_bound_on_each_machine(self):
        for environment in ENVIRONMENTS:
            with self.subTest(**environment):
                best = kernels(**environment)
                if "avx2" not in best["features"].split():
                    self.skipTest("no AVX2")
                named = kernels("--cpu", "avx2", **environment)
                self.assertEqual(named["tier"], "avx2")
                self.assertEqual(named["dequantizing"].split(",")[0], "dequantize_avx2")
                self.assertEqual(named["quantizing"], "quantize_avx2")
                self.assertEqual(named["depthwise"], "conv_depthwise_avx2")
                if "avx512" in best["features"].split():
                    self.assertEqual(named["convolutions"], "conv_avx2")
                    self.assertEqual(kernels("--cpu", "avx512", **environment), best)

    def test_masks(self):
        for name in MASKS:
            with self.subTest(name=name):
                described = kernels(QK_CPU=name)
                self.assertEqual(described["mask"], name + ", by QK_CPU")
                self.assertEqual(described["features"].split(), MASKS[name].split())
        self.assertNotIn("mask", kernels(QK_CPU=""))
        result = run("--listen", "127.0.0.1:0", QK_CPU="pentium")
        self.assert_complaint(result, "quantd: QK_CPU: expected ", ', got "pentium"\n')
        self.assertEqual(result.returncode, 2)

    def test_answers_name_the_kernels_of_the_mask(self):
        for name in MASKS:
            described = kernels(QK_CPU=name)
            server = Server("--measure", "off", env={"QK_CPU": name})
            for example, lines in (("ok_dequantize", ("dequantizing",)),
                                   ("ok_quantize", ("quantizing",)),
                                   ("ok_conv_2d", ("convolutions", "few channels", "depthwise"))):
                with self.subTest(name=name, example=example):
                    case = load_examples(example)[example]
                    answer = server.request("POST", "/v2/models/%s/infer" % case["model"],
                                            json.dumps(case["request"]).encode())
                    self.assertIn(answer.json()["parameters"]["kernel"],
                                  [described[line].split(",")[0] for line in lines])
            server.stop()

    @unittest.skipIf(not MASKS, "this CPU can play no other")
    def test_a_masked_server_says_so(self):
        server = Server(env={"QK_CPU": "haswell"})
        self.assertEqual(server.get("/v2/health/ready").status, 200)
        self.assertRegex(server.stop(), r'level=warn .*QK_CPU hides features.* QK_CPU=haswell')

    def test_version(self):
        result = run("--version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^quantd \d+\.\d+\S*\n$")

    def test_threads_run_before_the_first_request(self):
        # If the server cannot start a thread, it must say so at the start and not at the first
        # request.
        counts = []
        for threads in ("1", "4"):
            server = Server("--threads", threads)
            counts.append(len(os.listdir("/proc/%d/task" % server.pid)))
            server.stop()
        self.assertEqual(counts[1] - counts[0], 3)

    def test_unknown_flag(self):
        self.assert_complaint(run("--lisen", "127.0.0.1:0"), "--lisen", "--help")
        self.assert_complaint(run("extra"), "extra")

    def test_flag_without_its_value(self):
        self.assert_complaint(run("--threads"), "--threads")

    def test_bad_values(self):
        for flag, values in (("--threads", ("0", "-1", "x", "", "1.5", "99999999999999999999")),
                             ("--max-body-bytes", ("0", "12q", "-5", "")),
                             ("--max-queue", ("0", "many")),
                             ("--max-inflight-bytes", ("0", "x")),
                             ("--listen", ("", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                           "127.0.0.1:x", "nowhere:80:80", "unix:",
                                           "unix:" + "x" * 200, "127.0.0.1:-1"))):
            for value in values:
                with self.subTest(flag=flag, value=value):
                    self.assert_complaint(run(flag, value), flag.strip("-"))

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            self.assert_complaint(run("--listen", address), address)

    def test_equals_sign(self):
        server = Server("--threads=1", "--max-body-bytes=1000")
        answer = server.request("POST", "/v2/repository/index", b" " * 1001)
        self.assertEqual(answer.status, 413)
        server.stop()

    def test_environment(self):
        server = Server(env={"QUANTD_MAX_BODY_BYTES": "1000"})
        answer = server.request("POST", "/v2/repository/index", b" " * 1001)
        self.assertEqual(answer.status, 413)
        self.assertIn("1000", answer.json()["error"])
        server.stop()
        # The flag takes precedence over the variable.
        server = Server("--max-body-bytes", "2000", env={"QUANTD_MAX_BODY_BYTES": "1000"})
        answer = server.request("POST", "/v2/repository/index", b" " * 1001)
        self.assertEqual(answer.status, 200)
        server.stop()
        self.assert_complaint(run("--listen", "127.0.0.1:0", QUANTD_THREADS="x"), "QUANTD_THREADS")

    def test_listen_from_the_environment(self):
        server = Server(listen=(), env={"QUANTD_LISTEN": "127.0.0.1:0"}, lines=1)
        self.assertEqual(server.get("/v2/health/live").status, 200)
        server.stop()

    def test_several_listeners(self):
        server = Server(listen=("127.0.0.1:0", "127.0.0.1:0"))
        self.assertEqual(len(set(server.addresses)), 2)
        for address in server.addresses:
            port = int(address.rsplit(":", 1)[1])
            socket.create_connection(("127.0.0.1", port), 5).close()
        server.stop()

    def test_scalar_and_automatic_kernels(self):
        for cpu in ("scalar", "auto"):
            server = Server("--cpu", cpu)
            self.assertEqual(server.get("/v2/health/ready").status, 200)
            server.stop()

    def test_blas_can_be_forced(self):
        server = Server("--gemm", "blas")
        self.assertEqual(server.get("/v2/health/ready").status, 200)
        server.stop()

    def test_kernels(self):
        result = run("--kernels", "--gemm", "scalar", "--measure", "off")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", result.stdout, re.MULTILINE))
        self.assertEqual(lines["convolutions"], "conv_scalar")
        self.assertEqual(lines["depthwise"], "conv_depthwise_scalar")
        self.assertEqual(lines["products"], "not measured")
        self.assertEqual(lines["OpenBLAS"], "not loaded")
        self.assertRegex(lines["caches"], r"^\d+ KiB, \d+ KiB, \d+ KiB$")
        self.assertIn("dequantize_", lines["dequantizing"])

    def test_kernels_are_measured(self):
        result = run("--kernels", "--gemm", "blas", "--cpu", "scalar")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^  clock +\d+\.\d GHz, measured$")
        self.assertRegex(result.stdout, r"(?m)^  products +sgemm [\d.]+, .*Gop/s of one thread$")
        self.assertRegex(result.stdout, r"(?m)^  OpenBLAS +core \w+$")
        self.assertRegex(result.stdout, r"(?m)^  tier +scalar$")

    def test_debug_logs_each_answer(self):
        server = Server("--log-level", "debug", *ONE_IO_THREAD)
        server.get("/v2/health/ready")
        server.request("POST", "/v2/models/onnx.DequantizeLinear/infer", b"{}")
        lines = [line for line in server.stop().splitlines() if 'msg="answered"' in line]
        self.assertRegex(lines[0], r'level=debug .* path="/v2/health/ready" status=200 ')
        self.assertRegex(lines[1], r'status=400 model="onnx.DequantizeLinear" .* error="inputs.*"$')

    def test_standard_output_holds_the_listening_lines_only(self):
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen([*COMMAND, "--listen", "127.0.0.1:0"], stdout=output,
                                       stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            for _ in range(1000):
                if read_shared(output).endswith(b"\n"):
                    break
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    pass
            process.terminate()
            process.communicate(timeout=20 * SLOW)
            self.assertRegex(read_shared(output),
                             rb"^quantd listening on http://127\.0\.0\.1:\d+\n$")


class Page(unittest.TestCase):
    def test_flags_table(self):
        # | `--listen ADDR:PORT` | ...
        page = (ROOT / "server" / "flags.md").read_text()
        table = re.findall(r"^\| `--([a-z-]+)[ `]", page, re.MULTILINE)
        self.assertEqual(sorted(table), sorted(flags_of_help()))


if __name__ == "__main__":
    unittest.main()
