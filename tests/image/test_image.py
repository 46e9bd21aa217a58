#!/usr/bin/env python3
"""Runs the built image as docker/README.md says. run.sh prepares everything and calls this program.

test_image.py [Class.test]      the last line is "N passed, N failed"
"""
import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("e2e", "e2e/oip", "support")]

import test_golden  # noqa: E402
from pages import blocks  # noqa: E402
from quantd import (SLOW, Answer, Reader, Server, Tensor, binary_request, exchange,  # noqa: E402
                    infer_path, run_threads, trusting_anybody)
from run_tests import Result  # noqa: E402
from samples import CONV, DEQUANTIZE, DEQUANTIZED, conv_tensors, dequantize_json  # noqa: E402
from tls import make_certificate  # noqa: E402

ENGINE, IMAGE = os.environ["ENGINE"], os.environ["IMAGE"]
PLATFORMS = os.environ["PLATFORM"].split(",")
IMAGE_BYTES_MAX = 60 * 10**6
MIB = 1 << 20
PREFIX = "quantd-test-%d-" % os.getpid()
NUMBERS = itertools.count()
# A network for the tests, because another engine here may use the addresses of the default one.
NETWORK = PREFIX + "network"

# As strict as an engine can be. Otherwise podman would add writable places to a read-only
# container.
STRICT = ["--read-only", "--cap-drop=ALL", "--security-opt", "no-new-privileges",
          "--memory", "512m", "--memory-swap", "512m", "--pids-limit", "64"]
if ENGINE == "podman":
    STRICT.append("--read-only-tmpfs=false")


def engine(*arguments):
    return subprocess.run([ENGINE, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False)


def must(*arguments):
    result = engine(*arguments)
    if result.returncode != 0:
        raise AssertionError("%s %s: %s" % (ENGINE, " ".join(arguments), result.stderr))
    return result.stdout


def new_name():
    return PREFIX + str(next(NUMBERS))


class Container(Server):
    """A running container, with the same requests as any other server."""

    def __init__(self, *flags, options=()):
        self.name = new_name()
        must("run", "--detach", "--name", self.name, "--network", NETWORK, "--publish",
             "127.0.0.1::8000", *STRICT, *options, IMAGE, *flags)
        try:
            deadline = time.monotonic() + 10 * SLOW
            while "quantd listening on" not in self.logs() and time.monotonic() < deadline:
                time.sleep(0.05)
            published = must("port", self.name, "8000/tcp").split()[0]
        except AssertionError:
            self.remove()
            raise
        self.host, self.port = published.rsplit(":", 1)[0], int(published.rsplit(":", 1)[1])

    def logs(self):
        result = engine("logs", self.name)
        return result.stdout + result.stderr

    def state(self):
        return json.loads(must("inspect", self.name))[0]["State"]

    @property
    def pid(self):
        return self.state()["Pid"]

    def remove(self):
        engine("kill", self.name)
        engine("rm", "--force", self.name)

    def stop(self):
        """Stops the container with SIGTERM, as an engine does. Checks that it ends cleanly, and
        returns its logs."""
        must("stop", "--time", "40", self.name)
        state, logs = self.state(), self.logs()
        self.remove()
        if state["ExitCode"] != 0 or state["OOMKilled"]:
            raise AssertionError("ended with %s\n%s" % (state, logs))
        return logs


class ContainerTest(unittest.TestCase):
    def start(self, *flags, options=()):
        container = Container(*flags, options=options)
        self.addCleanup(container.remove)
        return container

    def volume(self):
        name = new_name()
        must("volume", "create", name)
        self.addCleanup(engine, "volume", "rm", name)
        return name

    def assert_works(self, server):
        answer = server.infer(DEQUANTIZE, dequantize_json())
        self.assertEqual(answer.status, 200, answer.body[:500])
        self.assertEqual(answer.json()["outputs"][0]["data"], DEQUANTIZED)


# ---- What is in it -------------------------------------------------------------------------------


ELF_MACHINES = {"amd64": 62, "arm64": 183}


@contextlib.contextmanager
def unpacked(image):
    """Yields the contents of an image as a tar file."""
    name = new_name()
    must("create", "--name", name, image)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "image.tar")
        must("export", "--output", file, name)
        with tarfile.open(file) as tar:
            yield tar
    must("rm", name)


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = json.loads(must("image", "inspect", IMAGE))[0]
        with unpacked(IMAGE) as tar:
            cls.members = {"/" + member.name.strip("./"): member for member in tar}
            cls.passwd = tar.extractfile(cls.members["/etc/passwd"]).read().decode()

    def test_size(self):
        self.assertLessEqual(self.image["Size"], IMAGE_BYTES_MAX)
        print("  the image has %.1f MB" % (self.image["Size"] / 10**6))

    def test_nothing_but_the_server_can_be_run(self):
        # The engines add /dev, /proc, /sys and a few empty files. Libraries are not programs.
        programs = [path for path, member in self.members.items()
                    if member.isfile() and member.mode & 0o111 and member.size > 0
                    and not re.search(r"\.so(\.\d+)*$", path)]
        self.assertEqual(programs, ["/quantd"])
        self.assertEqual([path for path in self.members
                          if re.search(r"/(sh|bash|dash|busybox|apt|dpkg|perl)$", path)], [])

    def test_nobody_may_change_it(self):
        for path, member in self.members.items():
            if member.isfile() and path.startswith(("/quantd", "/usr/", "/lib")):
                self.assertEqual((member.uid, member.mode & 0o022), (0, 0), path)

    def test_user(self):
        self.assertEqual(self.image["Config"]["User"], "65532:65532")
        self.assertIn("quantd:x:65532:65532:", self.passwd)

    def test_health_check(self):
        # Docker and podman report it in different places.
        check = self.image["Config"].get("Healthcheck") or self.image.get("Healthcheck")
        self.assertEqual(check, {
            "Test": ["CMD", "/quantd", "--healthcheck"], "Interval": 10 * 10**9,
            "Timeout": 3 * 10**9, "StartPeriod": 10 * 10**9, "Retries": 3})

    def test_place_for_a_socket(self):
        place = self.members["/run/quantd"]
        self.assertEqual((place.uid, place.gid, place.mode & 0o7777), (65532, 65532, 0o3777))

    def test_licences(self):
        documented = {path.split("/")[4] for path in self.members
                      if path.startswith("/usr/share/doc/") and path.endswith("/copyright")}
        self.assertIn("quantd", documented)
        for library, package in (("openblas", "libopenblas0-pthread"), ("cjson", "libcjson1"),
                                 ("isal", "libisal2"),
                                 ("uv", "libuv1"), ("microhttpd", "libmicrohttpd12"),
                                 ("protobuf-c", "libprotobuf-c1"),
                                 ("gfortran", "libgfortran5"), ("c", "libc6")):
            self.assertTrue(any(re.search(r"/lib%s\.so" % library, path) for path in self.members))
            self.assertTrue(any(name.startswith(package) for name in documented), package)

    def test_openblas_is_found(self):
        """The program is not linked with OpenBLAS: the server loads the library if it is chosen."""
        self.assertRegex(must("run", "--rm", "--network", "none", IMAGE, "--gemm", "blas",
                              "--kernels"), r"\n  OpenBLAS +core \w+\n")

    def test_labels(self):
        prefix = "org.opencontainers.image."
        labels = {name[len(prefix):]: value
                  for name, value in self.image["Config"]["Labels"].items()
                  if name.startswith(prefix)}
        self.assertEqual("quantd %s\n" % labels["version"],
                         must("run", "--rm", "--network", "none", IMAGE, "--version"))
        self.assertEqual((labels["title"], labels["licenses"]), ("quantd", "Apache-2.0"))
        self.assertRegex(labels["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(labels["revision"], r"^[0-9a-f]{40}(-dirty)?$|^unknown$")
        self.assertNotEqual(labels["description"], "")


class Machines(unittest.TestCase):
    """An image for one machine, or one name for the images of both machines."""

    @classmethod
    def setUpClass(cls):
        cls.names = [IMAGE]
        if len(PLATFORMS) > 1:
            if ENGINE == "docker":
                raise unittest.SkipTest("Docker shows lists in registries only")
            listed = json.loads(must("manifest", "inspect", IMAGE))["manifests"]
            cls.names = ["%s@%s" % (IMAGE, entry["digest"]) for entry in listed]
        cls.images = [json.loads(must("image", "inspect", name))[0] for name in cls.names]

    def test_each_is_there_once(self):
        self.assertEqual(sorted("%(Os)s/%(Architecture)s" % image for image in self.images),
                         sorted(PLATFORMS))

    def test_programs_are_for_it(self):
        for name, image in zip(self.names, self.images):
            found = {}
            with unpacked(name) as tar:
                for member in tar:
                    head = tar.extractfile(member).read(20) if member.isfile() else b""
                    if head.startswith(b"\x7fELF"):
                        found[member.name] = struct.unpack_from("<H", head, 18)[0]
            self.assertEqual(set(found.values()), {ELF_MACHINES[image["Architecture"]]}, found)

    def test_they_are_configured_alike(self):
        for image in self.images:
            self.assertEqual(image["Config"], self.images[0]["Config"])


# ---- What it does --------------------------------------------------------------------------------


class Golden(test_golden.Golden):
    """Every golden case, as JSON and as bytes, against a container."""

    @classmethod
    def setUpClass(cls):
        cls.server = Container()
        cls.client = cls.server.client()
        cls.cases = [json.loads(line) for line in test_golden.GOLDEN.read_text().splitlines()]


class Health(ContainerTest):
    def test_the_image_s_own_check(self):
        container = self.start()
        if ENGINE == "podman":  # without systemd nothing runs the check by itself
            must("healthcheck", "run", container.name)
        deadline = time.monotonic() + 30
        while container.state()["Health"]["Status"] == "starting" and time.monotonic() < deadline:
            time.sleep(0.5)
        self.assertEqual(container.state()["Health"]["Status"], "healthy")
        self.assertEqual(container.get("/v2/health/ready").status, 200)
        self.assertEqual(container.get("/v2/health/live").status, 200)
        container.stop()

    def test_says_no(self):
        container = self.start()
        result = engine("exec", container.name, "/quantd", "--healthcheck", "--listen",
                        "127.0.0.1:8001")
        self.assertEqual(result.returncode, 1)
        self.assertIn("127.0.0.1:8001", result.stderr)
        container.stop()

    def test_the_image_s_own_check_says_no(self):
        """The check says no for an instance that listens elsewhere, by a flag that the check does
        not see."""
        container = self.start("--listen", "0.0.0.0:8001")
        if ENGINE == "podman":
            self.assertEqual(engine("healthcheck", "run", container.name).returncode, 1)
        deadline = time.monotonic() + 30
        while not container.state()["Health"]["Log"]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.5)
        health = container.state()["Health"]
        self.assertEqual((health["Status"], health["Log"][-1]["ExitCode"]), ("starting", 1))
        self.assertIn("0.0.0.0:8000", health["Log"][-1]["Output"])
        container.stop()

    def test_any_user(self):
        container = self.start(options=["--user", "12345:12345"])
        self.assert_works(container)
        self.assertEqual(os.stat("/proc/%d" % container.pid).st_uid, 12345)
        must("exec", container.name, "/quantd", "--healthcheck")
        container.stop()

    def test_as_many_threads_as_the_container_has_cpus(self):
        # With version 2 of cgroups, libuv sees a share of the CPUs. It always sees a set of CPUs.
        limit = ["--cpus", "1"] if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else [
            "--cpuset-cpus", "0"]
        self.assertIn("threads=1 ", self.start(options=limit).stop())

    def test_half_of_the_container_s_memory_for_requests(self):
        self.assertRegex(self.start().stop(), r"max_inflight_bytes=%d\b" % (256 * MIB))


class WhoMayComeIn(ContainerTest):
    """TLS and tokens, from files that the engine mounts. Variables name them, so that the check
    sees them."""

    TOKEN = "token-of-the-image-s-test"

    def test_tls_and_tokens(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        for name in ("one", "two"):
            make_certificate(folder.name, name)
        tokens = Path(folder.name, "tokens")
        tokens.write_text(self.TOKEN + " test\n")
        cert, key = Path(folder.name, "cert.pem"), Path(folder.name, "key.pem")

        def use(name):
            for file, suffix in ((cert, ".crt"), (key, ".key")):
                shutil.copy(Path(folder.name, name + suffix), file)
            os.chmod(key, 0o644)

        use("one")
        container = self.start(options=[
            "--volume", folder.name + ":/run/secrets:ro",
            "--env", "QUANTD_TLS_CERT=/run/secrets/cert.pem",
            "--env", "QUANTD_TLS_KEY=/run/secrets/key.pem",
            "--env", "QUANTD_TOKEN_FILE=/run/secrets/tokens"])
        container.tls = trusting_anybody()
        must("exec", container.name, "/quantd", "--healthcheck")
        bearer = {"Authorization": "Bearer " + self.TOKEN}
        self.assertEqual(container.get("/v2").status, 401)
        self.assertEqual(container.request("GET", "/v2", headers=bearer).status, 200)
        (body, headers), floats = large_request(4 << 20)
        answer = container.infer(DEQUANTIZE, body, headers={**headers, **bearer})
        self.assertEqual(answer.status, 200, answer.body[:300])
        self.assertEqual(answer.outputs()["y"][2], floats)
        use("two")
        must("kill", "--signal", "HUP", container.name)
        deadline = time.monotonic() + 10
        while container.logs().count("the certificate is read") < 2:
            self.assertLess(time.monotonic(), deadline, container.logs())
            time.sleep(0.05)
        container.tls = ssl.create_default_context(cafile=folder.name + "/two.crt")
        self.assertEqual(container.get("/v2/health/ready").status, 200)
        self.assertNotIn(self.TOKEN, container.stop())

    def test_a_warning_without_tokens(self):
        self.assertIn("everybody who reaches this address may use it", self.start().stop())


class WrongStart(ContainerTest):
    def start_wrong(self, *flags, options=()):
        """Runs a container that must fail. Returns (exit status, the one line that it prints)."""
        result = engine("run", "--rm", *STRICT, *options, IMAGE, *flags)
        lines = [line for line in result.stderr.splitlines() if line.startswith("quantd: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        return result.returncode, lines[0]

    def test_flag(self):
        self.assertEqual(self.start_wrong("--port", "80", options=["--network", "none"]),
                         (2, 'quantd: expected a flag that --help lists, such as --listen, '
                             'got "--port"'))

    def test_variable(self):
        status, line = self.start_wrong(options=["--network", "none",
                                                 "--env", "QUANTD_MAX_QUEUE=lots"])
        self.assertEqual(status, 2)
        self.assertRegex(line, r'QUANTD_MAX_QUEUE: expected .*, got "lots"')

    def test_port_in_use(self):
        first = self.start()
        status, line = self.start_wrong(options=["--network", "container:" + first.name])
        self.assertEqual(status, 1)
        self.assertRegex(line, r"0\.0\.0\.0:8000: Address already in use")
        self.assert_works(first)
        first.stop()

    def test_socket_in_a_folder_that_is_not_there(self):
        status, line = self.start_wrong("--listen", "unix:/nowhere/s",
                                        options=["--network", "none"])
        self.assertEqual(status, 1)
        self.assertIn("unix:/nowhere/s: its directory does not exist", line)

    def test_socket_without_a_volume(self):
        status, line = self.start_wrong("--listen", "unix:/run/quantd/s",
                                        options=["--network", "none"])
        self.assertEqual(status, 1)
        self.assertIn("/run/quantd/s: Read-only file system", line)


class Socket(ContainerTest):
    LISTEN = ("--listen", "unix:/run/quantd/quantd.sock")

    def ask(self, volume, *options):
        """Runs another container, as another user, that sends its request through the volume."""
        return engine("run", "--rm", *STRICT, "--network", "none", "--volume",
                      volume + ":/run/quantd:ro", "--user", "10001:10001", *options, IMAGE,
                      "--healthcheck", *self.LISTEN)

    def check(self, *options):
        volume = self.volume()
        container = self.start(*self.LISTEN, "--listen", "0.0.0.0:8000", options=[
            "--volume", volume + ":/run/quantd", *options])
        member = self.ask(volume, "--group-add", "65532")
        self.assertEqual(member.returncode, 0, member.stderr)
        stranger = self.ask(volume)
        self.assertEqual(stranger.returncode, 1)
        self.assertIn("Permission denied", stranger.stderr)
        container.stop()
        gone = self.ask(volume, "--group-add", "65532")
        self.assertEqual(gone.returncode, 1)
        self.assertIn("No such file or directory", gone.stderr)

    def test_only_the_group_may_connect(self):
        self.check()

    def test_the_group_is_the_folder_s_whoever_runs_it(self):
        self.check("--user", "12345:12345")


# ---- Memory --------------------------------------------------------------------------------------


def large_request(count):
    """Returns a dequantization whose answer is four times as large, and that answer's bytes."""
    raw = bytes(range(256)) * (count // 256)
    tensors = [Tensor("x", "UINT8", [count], raw), Tensor.of("x_scale", "FP32", [], [1])]
    return binary_request(tensors), struct.pack("<256f", *range(256)) * (count // 256)


class Memory(ContainerTest):
    """Containers with 512 MiB and no swap survive all requests."""

    def post_all(self, container, requests):
        """Sends the requests at the same time. Returns the status of each. Answers with 200 must be
        right."""
        statuses = []

        def post(path, body, headers, want):
            answer = container.request("POST", path, body, headers)
            self.assertIn(answer.status, (200, 400, 413, 503), answer.body[:200])
            if answer.status == 200:
                self.assertEqual(answer.outputs()["y"][2], want)
            else:
                self.assertIn("error", answer.json())
            statuses.append(answer.status)

        run_threads([lambda request=request: post(*request) for request in requests])
        return statuses

    def finish(self, container):
        self.assert_works(container)
        container.stop()

    def test_a_body_larger_than_there_is_memory_for(self):
        container = self.start()
        path = infer_path(DEQUANTIZE)
        for size in (250 * MIB, 600 * MIB, 100 * MIB):
            with self.subTest(mib=size // MIB):
                client = container.connect()
                client.sendall(b"POST %s HTTP/1.1\r\nHost: q\r\nExpect: 100-continue\r\n"
                               b"Inference-Header-Content-Length: 10\r\nContent-Length: %d\r\n\r\n"
                               % (path.encode(), size))
                reader = Reader(client)
                answer = reader.answer()
                if answer.status == 100:
                    try:
                        for _ in range(size // MIB):
                            client.sendall(bytes(MIB))
                    except OSError:
                        pass  # the server has refused it meanwhile
                    answer = reader.answer()
                self.assertIn(answer.status, (400, 413, 503))
                reader.close()
        self.finish(container)

    def test_many_large_ones_at_once(self):
        container = self.start()
        (body, headers), want = large_request(24 * MIB)
        request = (infer_path(DEQUANTIZE), body, headers, want)
        # The bodies alone may fill the memory, so that no answer has room. A request that comes
        # later is answered.
        self.assertIn(503, self.post_all(container, [request] * 16))
        self.assertEqual(self.post_all(container, [request]), [200])
        self.finish(container)

    def test_json_that_swells(self):
        container = self.start()
        path = infer_path(DEQUANTIZE)
        bodies = [b'{"inputs":[{"name":"x","datatype":"FP32","shape":[30000000],"data":['
                  + b"1," * 30000000 + b"1]}]}",
                  b"[" * (60 * MIB),
                  b'{"inputs":[' + b"{}," * (20 * MIB) + b"{}]}",
                  b'{"id":"' + b"\\u0041" * (10 * MIB) + b'"}']
        statuses = self.post_all(container, [(path, body, {}, None) for body in bodies])
        self.assertNotIn(200, statuses)
        self.finish(container)

    def test_thousands_of_unfinished_requests(self):
        container = self.start()
        body_announced = (b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n{"
                          % (infer_path(DEQUANTIZE).encode(), 8 * MIB))
        unfinished_head = b"GET /v2 HTTP/1.1\r\nX-A: " + b"a" * 20000
        connections = []
        for i in range(3000):
            connections.append(container.connect())
            connections[-1].sendall(body_announced if i % 2 else unfinished_head)
        time.sleep(0.5)
        print("  3000 unfinished requests: RSS %d MiB" % (container.rss_bytes() / MIB))
        for connection in connections:
            connection.close()
        time.sleep(0.5)
        self.finish(container)

    def test_clients_that_do_not_read(self):
        volume = self.volume()
        container = self.start("--listen", "0.0.0.0:8000", "--listen", "unix:/run/quantd/s",
                               options=["--volume", volume + ":/run/quantd"])
        # The path through the container's process, because the engine's folder for volumes may be
        # on another machine.
        path = "/proc/%d/root/run/quantd/s" % container.pid
        question = b"GET /openapi.json HTTP/1.1\r\nHost: q\r\n\r\n" * 50
        connections = []
        for i in range(3000):
            if i < 500:
                connection = container.connect()
            else:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
            connection.sendall(question)
            connections.append(connection)
        time.sleep(1)
        self.assertEqual(container.get("/v2/health/ready").status, 200)
        for connection in connections:
            connection.close()
        time.sleep(0.5)
        self.finish(container)


# ---- The end -------------------------------------------------------------------------------------


class StopUnderLoad(ContainerTest):
    def test_nothing_accepted_is_lost(self):
        container = self.start()
        conv = conv_tensors([1], [1], [0], [1])
        conv[0] = Tensor("x", "UINT8", [1, 8, 200, 200], bytes([1]) * 8 * 200 * 200)
        conv[3] = Tensor("w", "INT8", [16, 8, 1, 1], bytes([1]) * 16 * 8)
        kinds = [(CONV, binary_request(conv), bytes([8]) * 16 * 200 * 200),
                 (DEQUANTIZE, *large_request(1 * MIB)),
                 (DEQUANTIZE, (json.dumps(dequantize_json()).encode(), {}),
                  struct.pack("<4f", *DEQUANTIZED))]
        counts, waiting, stopped = [], [], threading.Event()

        def check(answer, want):
            self.assertEqual(answer.status, 200, answer.body[:300])
            self.assertEqual(answer.outputs()["y"][2], want)

        def keep_asking(kind):
            # A connection that was accepted before the stop ends after an answer, never instead of
            # one.
            model, (body, headers), want = kind
            client = container.client(60)
            client.connect()
            count, last = 0, False
            while not last:
                answer = exchange(client, "POST", infer_path(model), body, headers)
                check(answer, want)
                count += 1
                last = (answer.headers.get("Connection") or "").lower() == "close"
            self.assertTrue(stopped.is_set())
            client.close()
            counts.append(count)

        def ask_just_before():
            time.sleep(1)
            try:
                for i in range(60):
                    model, (body, headers), want = kinds[i % 3]
                    client = container.client(60)
                    client.request("POST", infer_path(model), body, headers)
                    waiting.append((client, want))
            finally:
                stopped.set()
                engine("stop", "--time", "40", container.name)

        def collect():
            stopped.wait()
            for client, want in waiting:
                response = client.getresponse()
                check(Answer(response.status, response.headers, response.read()), want)
                client.close()
            counts.append(len(waiting))

        run_threads([lambda kind=kind: keep_asking(kind) for kind in kinds * 4]
                    + [ask_just_before, collect])
        self.assertEqual(len(counts), 13)
        print("  stopped under load: %d requests, every one answered" % sum(counts))
        container.stop()


# ---- The build -----------------------------------------------------------------------------------


class Build(unittest.TestCase):
    """What docker/build.sh prints if it cannot build."""

    def refused(self, *tools, **environment):
        """Returns the one line that the script prints. If tools are given, it finds no others."""
        environment = dict(os.environ, **environment)
        with tempfile.TemporaryDirectory() as folder:
            for tool in tools:
                os.symlink(shutil.which(tool), Path(folder) / tool)
            if tools:
                environment["PATH"] = folder
            result = subprocess.run(["docker/build.sh"], cwd=ROOT, env=environment, text=True,
                                    stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                                    check=False)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        return lines[0]

    def test_no_such_platform(self):
        for platform in ("linux/sparc", "windows/amd64", "amd64", "linux/amd64,linux/sparc"):
            self.assertEqual(self.refused(PLATFORM=platform),
                             "build.sh: PLATFORM: expected linux/amd64, linux/arm64 or "
                             "linux/amd64,linux/arm64, got " + platform)

    def test_no_builder(self):
        self.assertRegex(self.refused("sh", "dirname", "uname"),
                         r"expected a Docker engine that answers, or buildah .*, got neither$")

    @unittest.skipIf(ENGINE == "docker", "Docker looks for the base image itself")
    def test_no_such_base(self):
        self.assertEqual(self.refused(BASE="127.0.0.1:1/nothing"),
                         "build.sh: 127.0.0.1:1/nothing: expected it here or in its registry, "
                         "got neither")


# ---- The documents -------------------------------------------------------------------------------


class Compose(unittest.TestCase):
    """docker/compose.yaml, until the application has its three answers."""

    def compose(self, *arguments):
        command = ["docker", "compose"] if ENGINE == "docker" else [
            str(Path(sys.executable).parent / "podman-compose")]
        return subprocess.run(
            [*command, "-p", self.project, "-f", "docker/compose.yaml", *arguments], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=120, check=False)

    def test_application_gets_its_answers(self):
        self.project = new_name()
        self.addCleanup(self.compose, "down", "--volumes")
        up = self.compose("up", "--detach", "quantd")
        self.assertEqual(up.returncode, 0, up.stdout)
        # Podman 4.3 cannot wait for health, and without systemd does not check it.
        name = must("ps", "--quiet", "--filter", "name=" + self.project).strip()
        if ENGINE == "podman":
            deadline = time.monotonic() + 10
            while engine("healthcheck", "run", name).returncode != 0:
                self.assertLess(time.monotonic(), deadline, engine("logs", name).stderr)
                time.sleep(0.2)
        ran = self.compose("up", "--no-recreate", "--exit-code-from", "application", "application")
        self.assertEqual(ran.returncode, 0, ran.stdout)
        for line in ("TCP -64.0 0.0 0.5 63.5", "socket -64.0 0.0 0.5 63.5",
                     "shared memory -64.0 0.0 0.5 63.5"):
            self.assertIn(line, ran.stdout)
        must("stop", "--time", "40", name)
        self.assertEqual(json.loads(must("inspect", name))[0]["State"]["ExitCode"], 0)


class Sidecar(unittest.TestCase):
    """Runs the blocks of docker/sidecar.md unchanged, except for the names of images and
    containers, which may be taken on this machine. run.sh has done what the first block does, and
    Compose the second."""

    def test_by_hand(self):
        made, composed, *rest = blocks((ROOT / "docker" / "sidecar.md").read_text())
        self.assertEqual(made.code, "make image\n"
                                    "docker build --tag quantd-example docker/example\n")
        self.assertEqual(composed.code, "docker compose -f docker/compose.yaml up "
                                        "--exit-code-from application\n")
        programs = tempfile.TemporaryDirectory()
        self.addCleanup(programs.cleanup)
        Path(programs.name, "docker").symlink_to(shutil.which(ENGINE))
        name = new_name()
        self.addCleanup(engine, "volume", "rm", name + "-socket")
        self.addCleanup(engine, "rm", "--force", name)
        shown = 0
        for block in rest:
            if block.language != "sh":
                continue  # an example of an application's code
            code = block.code.replace("quantd:latest", IMAGE).replace("beside", name)
            code = code.replace("quantd-example:latest", os.environ["APPLICATION"])
            result = subprocess.run(
                ["sh", "-euc", code], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                env=dict(os.environ, PATH=programs.name + ":" + os.environ["PATH"]), timeout=120,
                check=False)
            self.assertEqual(result.returncode, 0, block.code + result.stdout + result.stderr)
            if block.expected:
                self.assertEqual(result.stdout, block.expected)
                shown += 1
        self.assertEqual(shown, 2)


class Kubernetes(unittest.TestCase):
    FILES = sorted((ROOT / "docker" / "kubernetes").glob("*.yaml"))
    VERSIONS = ("1.33.0", "1.35.0", "1.37.0")

    @staticmethod
    def documents(path):
        import yaml
        return [document for document in yaml.safe_load_all(path.read_text()) if document]

    @classmethod
    def pods(cls):
        for path in cls.FILES:
            for document in cls.documents(path):
                if "template" in document.get("spec", {}):
                    yield document["spec"]["template"]["spec"]

    def test_schemas(self):
        import kubernetes_validate
        self.assertEqual([path.name for path in self.FILES], ["sidecar.yaml"])
        for path, version in itertools.product(self.FILES, self.VERSIONS):
            for document in self.documents(path):
                with self.subTest(file=path.name, kind=document["kind"], version=version):
                    kubernetes_validate.validate(document, version, strict=True)
                    document["spec"]["nonsense"] = 1
                    with self.assertRaises(kubernetes_validate.ValidationError):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_restricted(self):
        """Every container satisfies the Pod Security Standard "restricted"."""
        for pod in self.pods():
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in pod["containers"] + pod.get("initContainers", []):
                self.assertEqual(container["securityContext"],
                                 dict(container["securityContext"], allowPrivilegeEscalation=False,
                                      readOnlyRootFilesystem=True, capabilities={"drop": ["ALL"]}))
            for volume in pod.get("volumes", []):
                self.assertIn("emptyDir", volume)

    def quantd_of(self, pod):
        found = [container for container in pod["containers"] + pod.get("initContainers", [])
                 if container["name"] == "quantd"]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_time_to_drain(self):
        for pod in self.pods():
            container = self.quantd_of(pod)
            arguments = container["args"]
            drain = float(arguments[arguments.index("--drain-timeout") + 1])
            self.assertGreater(pod["terminationGracePeriodSeconds"],
                               drain + container["lifecycle"]["preStop"]["sleep"]["seconds"])

    def test_the_image_takes_the_arguments(self):
        for pod in self.pods():
            container = self.quantd_of(pod)
            self.assertEqual(must("run", "--rm", "--network", "none", IMAGE, *container["args"],
                                  "--version"), must("run", "--rm", "--network", "none", IMAGE,
                                                     "--version"))
            probe = container["startupProbe"]["exec"]["command"]
            self.assertEqual(probe[:2], ["/quantd", "--healthcheck"])
            self.assertEqual([flag for flag in probe[2:] if flag not in container["args"]], [])


def main():
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    suite = loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else (
        loader.loadTestsFromModule(module))
    must("network", "create", NETWORK)
    result = Result()
    try:
        suite.run(result)
    finally:
        result.leave()
        engine("network", "rm", NETWORK)
    for name, reason in result.count.skipped:
        print("skipped: %s: %s" % (name, reason))
    print("%d passed, %d failed" % (result.count.passed, result.count.failed))
    return 1 if result.count.failed or not result.count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
