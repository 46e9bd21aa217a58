"""The base of all end-to-end tests: a running server, raw HTTP, and tensors as bytes or JSON.

Uses only Python's standard library. Nothing here knows how the server is implemented: it uses a
program, its command line, its two output streams and its sockets.
"""
import functools
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from elements import count_of, to_numbers, to_raw
from examples import LENGTH

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("B", "build")
PROGRAM = BUILD / "quantd"
# An emulator runs programs built for another machine; `make test ARCH=arm64` sets EMULATOR.
EMULATOR = os.environ.get("EMULATOR", "").split()
COMMAND = [*EMULATOR, str(PROGRAM)]
COMPILER = [os.environ.get("CC", "cc").split()[-1], *os.environ.get("SYSROOT", "").split()]
# Sanitizers make everything a few times slower, and emulators more. Deadlines and sizes in the
# tests scale with this factor.
SANITIZED = BUILD.name in ("address", "undefined", "thread")
SLOW = 8 if EMULATOR else 4 if SANITIZED else 1



def unless_emulated(why):
    """Skips a test, or a class of tests, that needs what an emulator lacks."""
    return unittest.skipIf(EMULATOR, "emulated: " + why)


SANITIZER_REPORT = re.compile(r"(Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|"
                              r"runtime error:|Assertion .* failed")


def has_ipv6():
    """Returns true if the machine has IPv6, which not every container has."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def environment(more):
    """Returns the environment of a program that we start: ours and `more`. The program, and not an
    emulator around it, loads LD_PRELOAD."""
    if EMULATOR and "LD_PRELOAD" in more:
        more = dict(more, QEMU_SET_ENV="LD_PRELOAD=" + more["LD_PRELOAD"])
        del more["LD_PRELOAD"]
    return dict(os.environ, **more)


def read_shared(file):
    """Returns all of a file to which a process of ours is writing. That process shares our file
    position, so seeking here would make it overwrite what it has written."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


# Flags for a test that counts, or that reads log lines in order. A request is counted and logged,
# and its memory is released, on its connection's I/O thread just after its client has the answer.
# With several I/O threads, a request on another connection may be answered before that.
ONE_IO_THREAD = ("--io-threads", "1")


class Server:
    """A quantd for the tests, on a free port, with flags as on its command line. `before`: a
    command that starts it. `stderr`: a descriptor that the caller reads; this class then does not
    see the log."""

    tls = None  # the TLS context of the clients, if the server speaks HTTPS

    def __init__(self, *flags, listen=("127.0.0.1:0",), env=None, lines=None, before=(),
                 stderr=None):
        arguments = [*before, *COMMAND]
        for address in listen:
            arguments += ["--listen", address]
        self.terminated = False
        self.stderr_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            arguments + list(flags), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self.stderr_file if stderr is None else stderr,
            env=environment(env or {}))
        self.addresses = []
        for _ in range(len(listen) if lines is None else lines):
            line = self.process.stdout.readline().decode()
            match = re.fullmatch(r"quantd listening on (\S+)\n", line)
            if match is None:
                self.process.kill()
                self.process.wait()
                self.process.stdout.close()
                raise AssertionError("no listening line but %r; stderr:\n%s"
                                     % (line, self.stderr()))
            self.addresses.append(match.group(1))
        self.host, self.port = None, None
        for address in self.addresses:
            match = re.fullmatch(r"(https?)://([0-9.]+|\[[0-9a-f:]+\]):(\d+)", address)
            if match and self.port is None:
                self.host, self.port = match.group(2).strip("[]"), int(match.group(3))
                if match.group(1) == "https":  # test_tls.py checks certificates
                    self.tls = trusting_anybody()

    @property
    def pid(self):
        return self.process.pid

    def stderr(self):
        return read_shared(self.stderr_file).decode(errors="replace")

    def rss_bytes(self):
        with open("/proc/%d/statm" % self.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_fds(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def terminate(self):
        """Sends SIGTERM once only: a second signal means "at once" and makes the exit unclean."""
        if not self.terminated:
            self.terminated = True
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=20):
        """Waits for the end and checks that it was clean."""
        try:
            status = self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("quantd did not end; stderr:\n%s" % self.stderr())
        finally:
            self.process.stdout.close()
        text = self.stderr()
        self.stderr_file.close()
        if status != 0 or SANITIZER_REPORT.search(text):
            raise AssertionError("quantd ended with status %s; stderr:\n%s" % (status, text))
        return text

    def stop(self):
        """Sends SIGTERM and expects exit status 0 and no sanitizer report. Returns the log."""
        self.terminate()
        return self.wait()

    def wait_for_log(self, text, count=1):
        """Returns the log once it contains the text `count` times: a separate thread writes the
        log."""
        deadline = time.monotonic() + 20 * SLOW
        while True:
            log = self.stderr()
            if log.count(text) >= count:
                return log
            if time.monotonic() > deadline:
                raise AssertionError("%r is not in the log:\n%s" % (text, log))
            time.sleep(0.005)

    def connect(self, timeout=30):
        connection = self.connect_tcp(timeout)
        return self.tls.wrap_socket(connection) if self.tls else connection

    def connect_tcp(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout * SLOW)

    def client(self, timeout=30):
        """Returns a keep-alive connection, which the caller closes."""
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout * SLOW,
                                               context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout * SLOW)

    def request(self, method, path, body=None, headers=None):
        """Sends one request on a connection of its own."""
        client = self.client()
        try:
            return exchange(client, method, path, body, headers)
        finally:
            client.close()

    def get(self, path):
        return self.request("GET", path)

    def refusals(self, reason, count=0):
        """Returns how many requests were refused for that reason, once there are at least `count`:
        a request is counted when it ends."""
        deadline = time.monotonic() + 30 * SLOW
        while True:
            metrics = parse_metrics(self.get("/metrics").body.decode())
            found = metrics[("quantd_refusals_total", (("reason", reason),))]
            if found >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def metric_once(self, wanted, name, **labels):
        """Returns a metric's value as soon as it is `wanted`, and after 30 s whatever it is, for
        tests that run with several I/O threads (see ONE_IO_THREAD)."""
        deadline = time.monotonic() + 30 * SLOW
        key = (name, tuple(sorted(labels.items())))
        while True:
            found = parse_metrics(self.get("/metrics").body.decode()).get(key, 0)
            if found == wanted or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def infer(self, model, body, version=None, headers=None):
        """POSTs a dict as JSON, or bytes as they are."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        return self.request("POST", infer_path(model, version), body, headers or {})


def trusting_anybody():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # an http.client.HTTPMessage, which ignores case
        self.body = body

    def json(self):
        """Parses the body strictly: no NaN or Infinity tokens, no duplicate keys."""
        return json.loads(self.body.decode("utf-8"), parse_constant=refuse_constant,
                          object_pairs_hook=refuse_duplicates)

    def header_part(self):
        """Returns the JSON of an answer with binary tensors after it."""
        json_bytes = int(self.headers[LENGTH])
        return Answer(self.status, self.headers, self.body[:json_bytes]).json()

    def tree(self):
        """Returns the JSON, with or without binary tensors after it."""
        return self.header_part() if LENGTH in self.headers else (
            self.json())

    def outputs(self):
        """Returns name -> (datatype, shape, raw bytes), whatever the encoding of each output."""
        length = self.headers.get(LENGTH)
        tree = self.tree()
        rest = b"" if length is None else self.body[int(length):]
        result = {}
        for output in tree["outputs"]:
            if "data" in output:
                raw = to_raw(output["datatype"], output["data"])
            else:
                size = output["parameters"]["binary_data_size"]
                raw, rest = rest[:size], rest[size:]
                assert len(raw) == size, "the answer is shorter than its binary_data_size"
            result[output["name"]] = (output["datatype"], output["shape"], raw)
        assert rest == b"", "bytes behind the last output"
        return result

    def stages(self):
        """Returns Server-Timing as name -> milliseconds, in the header's order."""
        result = {}
        for entry in self.headers["Server-Timing"].split(","):
            name, duration = re.fullmatch(r"([a-z]+);dur=(\d+\.\d{3})", entry.strip()).groups()
            assert name not in result, "a stage twice"
            result[name] = float(duration)
        return result


def refuse_constant(token):
    raise ValueError("%s is not JSON" % token)


def refuse_duplicates(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key twice in %s" % [key for key, _ in pairs])
    return result


def exchange(client, method, path, body=None, headers=None):
    """Sends one request on an open http.client connection and returns its answer."""
    client.request(method, path, body, headers or {})
    response = client.getresponse()
    return Answer(response.status, response.headers, response.read())


def infer_path(model, version=None):
    part = "" if version is None else "/versions/%s" % version
    return "/v2/models/%s%s/infer" % (model, part)


def connect_unix(path, timeout=30):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout * SLOW)
    connection.connect(path)
    return connection


def reset(connection):
    """Closes the connection so that the other side gets RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def wait_until(condition, what, seconds=40):
    """Returns the condition's value once it is true."""
    end = time.monotonic() + seconds * SLOW
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError("waited %d s, and not %s" % (seconds * SLOW, what))
        time.sleep(0.02)
    return value


def receive_all(connection):
    """Returns everything until the server closes; a reset counts as a close."""
    received = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not chunk:
            return received
        received += chunk


def raw_request(method, path, body=b"", headers=None):
    """Returns a request as the bytes that go over a connection; a dict is sent as JSON."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: q", "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % pair for pair in (headers or {}).items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def raw_infer(model, body, headers=None):
    return raw_request("POST", infer_path(model), body, headers)


class Reader:
    """Reads one answer after another from a raw socket."""

    def __init__(self, connection):
        self.connection = connection
        self.file = connection.makefile("rb")

    def answer(self, method="POST"):
        """Returns the next answer, or None at the end of the connection. A 100 Continue is an
        answer of its own."""
        line = self.file.readline()
        if line == b"":
            return None
        status = int(line.split()[1])
        headers = http.client.parse_headers(self.file)
        if method == "HEAD" or status == 100:
            body = b""
        elif headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self.file.read(int(headers.get("Content-Length", 0)))
        return Answer(status, headers, body)

    def final_answer(self):
        """Returns the next answer that is not interim. A client that has shut its sending side gets
        100 Continue while its answer takes long, as it may on a busy machine."""
        answer = self.answer()
        while answer is not None and answer.status == 100:
            answer = self.answer()
        return answer

    def chunks(self):
        while True:
            size = int(self.file.readline(), 16)
            chunk = self.file.read(size)
            end = self.file.readline()
            if (len(chunk), end) != (size, b"\r\n"):
                raise AssertionError("a chunk of %d bytes has %d, and %r" % (size, len(chunk), end))
            if size == 0:
                return
            yield chunk

    def close(self):
        self.file.close()
        self.connection.close()


# ---- Tensors ---------------------------------------------------------------------------------

class Tensor:
    def __init__(self, name, datatype, shape, raw):
        self.name, self.datatype, self.shape, self.raw = name, datatype, list(shape), raw

    @staticmethod
    def of(name, datatype, shape, numbers):
        return Tensor(name, datatype, shape, to_raw(datatype, numbers))

    def as_json(self):
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape,
                "data": to_numbers(self.datatype, self.raw, count_of(self.shape))}

    def as_binary(self):
        return {"name": self.name, "datatype": self.datatype, "shape": self.shape,
                "parameters": {"binary_data_size": len(self.raw)}}


def json_request(tensors, parameters=None, **more):
    request = {"inputs": [tensor.as_json() for tensor in tensors]}
    if parameters is not None:
        request["parameters"] = parameters
    request.update(more)
    return request


def binary_request(tensors, parameters=None, json_names=(), **more):
    """Returns (body, headers) with the tensors after the JSON, except for the tensors in
    json_names. The output is binary."""
    request = {"inputs": [tensor.as_json() if tensor.name in json_names else tensor.as_binary()
                          for tensor in tensors],
               "parameters": dict(parameters or {}, binary_data_output=True)}
    request.update(more)
    header = json.dumps(request).encode()
    tail = b"".join(tensor.raw for tensor in tensors if tensor.name not in json_names)
    return header + tail, {LENGTH: str(len(header)), "Content-Type": "application/octet-stream"}


# ---- Prometheus text -------------------------------------------------------------------------

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


@functools.lru_cache(maxsize=1 << 18)
def parse_labels(labels):
    """Returns the labels between the braces, sorted. Cached, because a long text has the same
    labels in each scrape."""
    pairs, end = [], 0
    for label in LABEL.finditer(labels):
        if label.start() != end:
            raise ValueError("bad labels: %s" % labels)
        pairs.append(label.groups())
        end = label.end()
    if end != len(labels):
        raise ValueError("bad labels: %s" % labels)
    return tuple(sorted(pairs))


def parse_metrics(text):
    """Returns (name, sorted labels) -> value. Raises on anything that is not Prometheus' text
    format."""
    if not text.endswith("\n"):
        raise ValueError("no newline at the end")
    samples, kinds, last = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in kinds or kind not in ("counter", "gauge", "histogram", "summary"):
                raise ValueError("bad line: %s" % line)
            kinds[name], last = kind, name
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError("bad line: %s" % line)
        name, labels, value = match.groups()
        family = name
        if kinds.get(last) in ("histogram", "summary"):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
        if family != last:
            raise ValueError("not behind its TYPE: %s" % line)
        key = (name, parse_labels(labels or ""))
        if key in samples:
            raise ValueError("twice: %s" % line)
        samples[key] = float(value)
    return samples


# ---- Test classes ----------------------------------------------------------------------------


class ServerTest(unittest.TestCase):
    """Has one server for all tests of a class. SIGTERM stops it, and its exit must be clean."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def assert_error(self, answer, status, *words):
        """Checks an error as OIP clients need it: exactly application/json, and {"error": text}."""
        self.assertEqual(answer.status, status, answer.body[:500])
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertIsNone(answer.headers.get("Content-Encoding"))
        tree = answer.json()
        self.assertIsInstance(tree.get("error"), str)
        self.assertNotEqual(tree["error"], "")
        for word in words:
            self.assertIn(word, tree["error"])

    def assert_alive(self):
        answer = self.server.get("/v2/health/live")
        self.assertEqual((answer.status, answer.json()), (200, {"live": True}))


def run_threads(functions):
    """Runs the functions at the same time, and raises the first exception of any."""
    errors = []

    def guard(function):
        try:
            function()
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


SOMEBODY = 65532  # a user without any rights, if we are root and may choose


class StartTest(unittest.TestCase):
    """Each test has a folder. A server that a test starts there is expected to fail."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = directory.name
        os.chmod(self.folder, 0o755)

    def start(self, *flags, unprivileged=False, limit=None, **environment):
        """Runs a server whose start must fail. limit: (RLIMIT_..., value)"""
        if EMULATOR and (limit or unprivileged):
            self.skipTest("the emulator would meet the limit, or lack the rights, too")
        program, more = str(PROGRAM), {}
        if unprivileged and os.geteuid() == 0:
            # The other user may enter this folder.
            program = shutil.copy(program, self.folder)
            more = {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []}
        if limit:
            more["preexec_fn"] = lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))
        return subprocess.run([*EMULATOR, program, "--log-level", "error", *flags], text=True,
                              capture_output=True, timeout=20 * SLOW, check=False,
                              cwd=self.folder, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **environment), **more)

    def assert_fails(self, result, line):
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "quantd: %s\n" % line))
