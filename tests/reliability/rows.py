"""The rows of the table. Each function tries something, and returns what happened and whether that
keeps the bound. `short`: this is a short run. A function's docstring has the row's first columns:
"what is tried; bound"."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import clients
from clients import Reader, Running, ask, connect, raw_request
from quantd import PROGRAM, Server, parse_metrics, wait_until

MIB = 1 << 20
MEASURE = PROGRAM.parent / "measure"
ROWS = []
TIMED = []  # rows whose bound is a time, which other work on the machine may break


def row(function):
    ROWS.append(function)
    return function


def timed(function):
    TIMED.append(function)
    return function


def loosely(bound, short):
    """Returns the bound, three times as large in a short run, which may have other work beside it.
    """
    return 3 * bound if short else bound


def gauges(server):
    samples = parse_metrics(server.get("/metrics").body.decode())
    return {name: value for (name, labels), value in samples.items() if not labels}


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else 1e9


def started(*flags):
    return Server("--threads", "2", "--log-level", "error", *flags)


class Row:
    """A server, and client processes that are stopped with it."""

    def __init__(self, *flags):
        self.flags = flags

    def __enter__(self):
        self.server = started(*self.flags)
        self.running = Running()
        return self

    def __exit__(self, *_):
        self.running.stop()
        self.server.stop()

    def p99(self, seconds, request=None, load=()):
        """Returns (p99 in ms, statuses, what the load's processes returned)."""
        load_running, probing = Running(), Running()
        for function, *arguments in load:
            load_running.start(function, self.server.port, *arguments)
        if load:
            time.sleep(0.5)
        probing.start(clients.probe, self.server.port, request or clients.small_binary())
        time.sleep(seconds)
        (times, statuses), = probing.stop()
        return percentile(times, 0.99), statuses, load_running.stop()


def only(statuses, *wanted):
    return statuses and set(statuses) <= set(wanted)


# ---- Small requests beside large ones --------------------------------------------------------

class Bare:
    """A server of build/measure that only moves bytes, in a process of its own; see measure.c."""

    def __init__(self, *words):
        self.process = subprocess.Popen([MEASURE, "scalar"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.process.stdout.readline()
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


def bare_p99(port, load, seconds):
    """Returns the p99 in ms beside the same clients if nothing is computed: libmicrohttpd answers
    the small requests with a constant, and one thread reads the large requests' bytes and writes as
    many bytes as their answers have. This time is due to the clients, which share the CPUs with the
    server."""
    request = load[0][1]
    large_bytes = len(ask(port, request).body)
    small = ask(port, clients.small_binary())
    lines = ["HTTP/1.1 200 OK"] + ["%s: %s" % pair for pair in small.headers.items()]
    with tempfile.NamedTemporaryFile() as file:
        file.write("\r\n".join(lines + ["", ""]).encode() + small.body)
        file.flush()
        bare = [Bare("constant", file.name), Bare("echo", len(request), large_bytes, 1, "0")]
    load_running, probing = Running(), Running()
    for function, *arguments in load:
        load_running.start(function, bare[1].port, *arguments)
    time.sleep(0.5)
    probing.start(clients.probe, bare[0].port, clients.small_binary())
    time.sleep(seconds)
    (times, _), = probing.stop()
    load_running.stop()
    for server in bare:
        server.stop()
    return percentile(times, 0.99)


def beside(load, short):
    with Row("--max-inflight-bytes", "4G") as row_:
        seconds = 2 if short else 10
        alone, _, _ = row_.p99(seconds)
        loaded, statuses, _ = row_.p99(seconds, load=load)
        bare = None if short or not MEASURE.exists() else bare_p99(row_.server.port, load, seconds)
    bound = 3 * alone + 2 + (100 if short else 0)  # other work may run beside a short run
    clients_own = "" if bare is None else ", beside the clients alone %.2f ms" % bare
    return ("alone %.2f ms, beside it %.2f ms (bound %.2f)%s"
            % (alone, loaded, bound, clients_own),
            loaded <= bound and only(statuses, 200))


@row
@timed
def beside_json(short):
    """small requests' p99 beside three clients with JSON bodies of 42 MB; 3 x unloaded + 2 ms"""
    return beside([(clients.repeat, clients.large_json(40))] * (2 if short else 3), short)


@row
@timed
def beside_binary(short):
    """small requests' p99 beside three clients with binary bodies of 256 MiB; 3 x unloaded + 2 ms
    """
    return beside([(clients.repeat, clients.large_binary(64 if short else 255))] * 3, short)


@row
@timed
def beside_convolutions(short):
    """small requests' p99 beside four clients with convolutions; 3 x unloaded + 2 ms"""
    return beside([(clients.repeat, clients.large_conv())] * 4, short)


# ---- Memory and time that a client holds -----------------------------------------------------

@row
@timed
def growing_answer(short):
    """400 bytes that ask for an answer of 1 GiB; refused with 413, at once"""
    with Row() as row_:
        begun = time.monotonic()
        answer = ask(row_.server.port, clients.growing_request(16384))
        seconds = time.monotonic() - begun
        held = row_.server.metric_once(0, "quantd_inflight_bytes")
    status = None if answer is None else answer.status
    return ("%s in %.1f ms, %d bytes held behind it" % (status, seconds * 1000, held),
            status == 413 and held == 0 and seconds < loosely(1, short))


@row
@timed
def slow_reader(_short):
    """an answer of 16 MiB of which the client takes 64 bytes a tenth of a second; cut within 10 s
    with --receive-timeout 2, its memory free"""
    with Row("--receive-timeout", "2") as row_:
        connection = connect(row_.server.port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(clients.large_binary(4))
        begun = time.monotonic()
        while time.monotonic() < begun + 30:
            try:
                connection.settimeout(0.1)
                connection.recv(64)
            except TimeoutError:
                pass
            except OSError:
                break
            if time.monotonic() > begun + 1 and \
                    gauges(row_.server)["quantd_inflight_bytes"] == 0:
                break
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        wait_until(lambda: gauges(row_.server)["quantd_inflight_bytes"] == 0, "no bytes held")
        held = gauges(row_.server)["quantd_inflight_bytes"]
        connection.close()
    return "cut after %.1f s, %d bytes held" % (seconds, held), seconds < 10 and held == 0


@row
def promised_bodies(_short):
    """eight heads with Content-Length 268435456 and no body, while another sends 64 MiB; 200, less
    than 1 MiB held by the heads"""
    head = clients.large_binary(1).split(b"\r\n\r\n")[0]
    head = re.sub(rb"Content-Length: \d+", b"Content-Length: 268435456", head, count=1)
    with Row("--max-inflight-bytes", "1G") as row_:
        held = [connect(row_.server.port) for _ in range(8)]
        for connection in held:
            connection.sendall(head + b"\r\n\r\n")
        time.sleep(0.3)
        used = gauges(row_.server)["quantd_inflight_bytes"]
        answer = ask(row_.server.port, clients.large_binary(64))
        for connection in held:
            connection.close()
    status = None if answer is None else answer.status
    return "%s, %d bytes held" % (status, used), status == 200 and used < MIB


@row
def buffer_of_a_power(_short):
    """16 MiB in, 64 MiB out, not yet read; at most 82 MiB held"""
    with Row() as row_:
        connection = connect(row_.server.port)
        connection.sendall(clients.large_binary(16))
        most, samples, begun = 0, 0, time.monotonic()
        while samples < 30:  # from when the answer is there
            most = max(most, gauges(row_.server)["quantd_inflight_bytes"])
            samples += most >= 78 * MIB or time.monotonic() > begun + 30
            time.sleep(0.02)
        connection.close()
    return "%.1f MiB" % (most / MIB), 78 * MIB <= most <= 82 * MIB


@row
@timed
def compute_timeout(short):
    """a JSON body of 42 MB with --compute-timeout 0.02; 503 within 200 ms of its last byte"""
    request = clients.large_json(40)
    with Row("--compute-timeout", "0.02") as row_:
        connection = connect(row_.server.port)
        connection.sendall(request)
        begun = time.monotonic()
        answer = Reader(connection).answer()
        seconds = time.monotonic() - begun
        connection.close()
    return ("%d in %.0f ms" % (answer.status, seconds * 1000),
            answer.status == 503 and seconds < loosely(0.2, short))


@row
@timed
def drain_timeout(short):
    """SIGTERM with --drain-timeout 0.2 while 16 convolutions of 0.1 s and more wait; ends in 1 s"""
    with Row("--drain-timeout", "0.2") as row_:
        request = clients.large_conv()
        waiting = [connect(row_.server.port) for _ in range(16)]
        for connection in waiting:
            connection.sendall(request * 3)
        begun = time.monotonic()
        row_.server.terminate()
        row_.server.process.wait(30)
        seconds = time.monotonic() - begun
        for connection in waiting:
            connection.close()
    return "%.2f s" % seconds, seconds < loosely(1, short)


# ---- Endless senders -------------------------------------------------------------------------

def answer_to(server, head, pieces, pause, seconds):
    """Sends a body in pieces. Returns (status or None, seconds until the answer came)."""
    connection = connect(server.port)
    connection.settimeout(seconds)
    begun = time.monotonic()
    reader = Reader(connection)
    got = []

    def read():
        try:
            answer = reader.answer()
            got.append(None if answer is None else answer.status)
        except OSError:
            got.append(None)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        connection.sendall(head)
        while thread.is_alive() and time.monotonic() < begun + seconds:
            connection.sendall(pieces)
            time.sleep(pause)
    except OSError:
        pass
    thread.join()
    reader.close()
    return got[0], time.monotonic() - begun


CHUNKED = ("POST /v2/models/onnx.DequantizeLinear/infer HTTP/1.1\r\nHost: q\r\n"
           "Transfer-Encoding: chunked\r\n\r\n").encode()
LONG = CHUNKED.replace(b"Transfer-Encoding: chunked", b"Content-Length: 1000000")


@row
@timed
def endless_chunks(short):
    """endless chunks of one byte to --max-body-bytes 1K; 413 within 2 s"""
    with Row("--max-body-bytes", "1K") as row_:
        status, seconds = answer_to(row_.server, CHUNKED, b"1\r\nx\r\n" * 10000, 0, 20)
    return "%s in %.2f s" % (status, seconds), status == 413 and seconds < loosely(2, short)


@row
@timed
def drip_over_the_limit(_short):
    """chunks of 100 bytes, ten a second, to --max-body-bytes 1K; 413 within 3 s"""
    with Row("--max-body-bytes", "1K") as row_:
        status, seconds = answer_to(row_.server, CHUNKED, b"64\r\n" + b"x" * 100 + b"\r\n", .1, 20)
    return "%s in %.2f s" % (status, seconds), status == 413 and seconds < 3


@row
@timed
def stalled_upload(short):
    """an upload that stops, with --receive-timeout 1; 408 within 4 s"""
    with Row("--receive-timeout", "1") as row_:
        status, seconds = answer_to(row_.server, LONG + b"{", b"", 0.2, 20)
    return "%s in %.2f s" % (status, seconds), status == 408 and seconds < loosely(4, short)


@row
def steady_upload(short):
    """an upload at 1 MB/s that takes longer than --receive-timeout 2; 200"""
    request = clients.large_binary(4 if short else 16)
    with Row("--receive-timeout", "2") as row_:
        connection = connect(row_.server.port)
        begun = time.monotonic()
        try:
            for at in range(0, len(request), 1 << 17):
                connection.sendall(request[at:at + (1 << 17)])
                time.sleep(max(0, begun + at / 1e6 - time.monotonic()))
            answer = Reader(connection).answer()
        except OSError:
            answer = None
        seconds = time.monotonic() - begun
        connection.close()
    status = None if answer is None else answer.status
    return "%s after %.1f s" % (status, seconds), status == 200


@row
@timed
def index_of_blanks(short):
    """POST /v2/repository/index with 100 MB of blanks; refused with 413, health's slowest answer
    meanwhile under 100 ms"""
    with Row() as row_:
        request = raw_request("POST", "/v2/repository/index", b" " * 100_000_000)
        health = raw_request("GET", "/v2/health/live")
        probing = Running()
        probing.start(slowest, row_.server.port, health)
        answers = [ask(row_.server.port, request) for _ in range(3)]
        slow, = probing.stop()
    statuses = [answer and answer.status for answer in answers]
    return ("%s, %.1f ms" % (statuses, slow * 1000),
            all(status in (None, 413) for status in statuses) and 413 in statuses
            and slow < loosely(0.1, short))


def slowest(stopped, port, request):
    worst = 0
    while not stopped():
        begun = time.monotonic()
        ask(port, request)
        worst = max(worst, time.monotonic() - begun)
    return worst


# ---- Waiting requests ------------------------------------------------------------------------

def busy(server, count):
    """Sends convolutions that keep both workers busy for a while. Returns the connections."""
    request = clients.large_conv()
    connections = [connect(server.port) for _ in range(count)]
    for connection in connections:
        connection.sendall(request)
    return connections


@row
@timed
def gone_before_its_turn(short):
    """200 convolutions whose clients reset at once; the queue is empty within a fifth of the time
    that computing them takes"""
    request = clients.large_conv()
    with Row("--max-inflight-bytes", "4G") as row_:
        count = 50 if short else 200
        begun = time.monotonic()
        for connection in [asked(row_.server, request) for _ in range(count)]:
            Reader(connection).answer()
            connection.close()
        whole = time.monotonic() - begun
        connections = [asked(row_.server, request) for _ in range(count)]
        begun = time.monotonic()
        for connection in connections:
            clients.reset(connection)
        while gauges(row_.server)["quantd_inflight_bytes"] > 0 and \
                time.monotonic() < begun + 60:
            time.sleep(0.005)
        seconds = time.monotonic() - begun
    return ("%.0f ms, computing them %.0f ms" % (seconds * 1000, whole * 1000),
            seconds < whole / 5 + 0.05)


def asked(server, request):
    connection = connect(server.port)
    connection.sendall(request)
    return connection


@row
@timed
def timeout_before_the_decode(_short):
    """a JSON body of 10 MB with timeout 1 us, behind others; 503 in less than 200 ms"""
    with Row("--max-inflight-bytes", "4G") as row_:
        request = clients.large_json(10)
        body = request.split(b"\r\n\r\n", 1)[1].replace(
            b'"parameters":{', b'"parameters":{"timeout":1,')
        body = b"{" + body[body.index(b'"parameters"'):-1] + b"," + \
            body[1:body.index(b',"parameters"')] + b"}"
        connections = busy(row_.server, 8)
        begun = time.monotonic()
        answer = ask(row_.server.port, clients.raw_infer(clients.DEQUANTIZE, body))
        seconds = time.monotonic() - begun
        for connection in connections:
            connection.close()
    return ("%d in %.0f ms" % (answer.status, seconds * 1000),
            answer.status == 503 and seconds < 0.2)


@row
def retry_after(_short):
    """Retry-After where 200 long convolutions come at once to --max-queue 50; between a third of
    what the queue then takes, at least 1 s, and 2 s more than three times that"""
    request = clients.large_conv(9)
    with Row("--max-queue", "50", "--max-inflight-bytes", "8G") as row_:
        readers = [Reader(asked(row_.server, request[:-1])) for _ in range(200)]
        time.sleep(0.5)
        begun = time.monotonic()
        for reader in readers:
            reader.connection.sendall(request[-1:])
        answers = [reader.answer() for reader in readers]
        seconds = time.monotonic() - begun
        for reader in readers:
            reader.close()
    waits = [int(answer.headers["Retry-After"]) for answer in answers if answer.status == 503]
    if not waits:
        return "nobody was refused", False
    return ("%d refused, %d to %d s told, %.1f s taken" % (len(waits), min(waits), max(waits),
                                                          seconds),
            max(1, seconds / 3) <= max(waits) <= 3 * seconds + 2)


@row
@timed
def idle_connections(_short):
    """1,000 connections that do nothing for 3 s; less than 1 % of a CPU"""
    with Row() as row_:
        idle = [connect(row_.server.port) for _ in range(1000)]
        time.sleep(0.5)
        before = cpu_seconds(row_.server)
        time.sleep(3)
        used = cpu_seconds(row_.server) - before
        for connection in idle:
            connection.close()
    return "%.2f %%" % (used / 3 * 100), used <= 0.03


def cpu_seconds(server):
    with open("/proc/%d/stat" % server.pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@row
def the_librarys_own_answers(_short):
    """414, 431, 505, 400 for lengths and chunks that are none; JSON with one head, or closed"""
    path = clients.infer_path(clients.DEQUANTIZE).encode()
    post = b"POST %s HTTP/1.1\r\nHost: q\r\n" % path
    cases = {
        414: b"GET /%s HTTP/1.1\r\nHost: q\r\n\r\n" % (b"x" * 40000),
        431: b"GET /v2 HTTP/1.1\r\nHost: q\r\nX: %s\r\n\r\n" % (b"x" * 40000),
        505: b"GET /v2 HTTP/3.0\r\nHost: q\r\n\r\n",
        400: post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n0\r\n\r\n",
        (400, 1): post + b"Content-Length: -1\r\n\r\n",
        (400, 2): post + b"Content-Length: 1x\r\n\r\n",
        (413, 3): post + b"Content-Length: 99999999999999999999999\r\n\r\n",
    }
    seen, bad = [], []
    with Row() as row_:
        for key, request in cases.items():
            connection = connect(row_.server.port, 5)
            connection.sendall(request)
            received = b""
            try:
                while piece := connection.recv(65536):
                    received += piece
            except OSError:
                pass
            connection.close()
            seen.append(received[9:12].decode() or "closed")
            if received and not is_one_refusal(received, key if isinstance(key, int) else key[0]):
                bad.append(key)
    return ", ".join(seen) + (", wrong: %s" % bad if bad else ""), not bad


def is_one_refusal(received, status):
    head, _, body = received.partition(b"\r\n\r\n")
    try:
        return (head.startswith(b"HTTP/1.1 %d " % status) and b"application/json" in head
                and set(json.loads(body)) == {"error"})
    except ValueError:
        return False


# ---- Attack tools ----------------------------------------------------------------------------

def under_slowhttptest(mode, short):
    if shutil.which("slowhttptest") is None:
        return "slowhttptest is not installed", None
    seconds = 5 if short else 30
    with Row("--receive-timeout", "2") as row_:
        alone, _, _ = row_.p99(2)
        tool = subprocess.Popen(
            ["slowhttptest", *mode, "-c", "1000", "-r", "500", "-l", str(seconds), "-u",
             "http://127.0.0.1:%d%s" % (row_.server.port,
                                        clients.infer_path(clients.DEQUANTIZE)
                                        if "-B" in mode else "/openapi.yaml")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        loaded, statuses, _ = row_.p99(seconds - 1)
        tool.terminate()
        tool.wait()
        late = time.monotonic()
        while gauges(row_.server)["quantd_connections"] > 1 and time.monotonic() < late + 20:
            time.sleep(0.1)
        left = gauges(row_.server)["quantd_connections"] - 1
    return ("a normal client's p99 %.2f ms (alone %.2f), %s; %d connections left"
            % (loaded, alone, statuses, left),
            only(statuses, 200) and loaded < loosely(20, short) and left == 0)


@row
@timed
def slow_heads(short):
    """slowhttptest, 1,000 slow heads; a normal client is answered, p99 under 20 ms"""
    return under_slowhttptest(["-H", "-i", "1"], short)


@row
@timed
def slow_bodies(short):
    """slowhttptest, 1,000 slow bodies; a normal client is answered, p99 under 20 ms"""
    return under_slowhttptest(["-B", "-i", "1", "-s", "8192"], short)


@row
@timed
def slow_reads(short):
    """slowhttptest, 1,000 slow readers; a normal client is answered, p99 under 20 ms"""
    return under_slowhttptest(["-X", "-k", "3", "-n", "1", "-z", "32"], short)


COUNT_LUA = """
local function add(t, k) t[k] = (t[k] or 0) + 1 end
threads = {}
function setup(thread) table.insert(threads, thread) end
function init() ok, refused, bad = 0, 0, 0 end
function response(status, headers, body)
  if status == 200 then ok = ok + 1
  elseif (status == 503 or status == 429) and body:match('^{"error":".*"}$')
     and headers["Retry-After"] then refused = refused + 1
  else bad = bad + 1 end
end
function done(summary)
  local o, r, b = 0, 0, 0
  for _, t in ipairs(threads) do
    o = o + t:get("ok"); r = r + t:get("refused"); b = b + t:get("bad")
  end
  io.write(string.format("COUNT %d %d %d %d\\n", o, r, b,
           summary.errors.connect + summary.errors.read + summary.errors.write))
end
wrk.method = "POST"
"""


@row
def a_thousand_connections(short):
    """wrk, 1,000 connections, a queue of 64; each answer is 200 or a well-formed refusal"""
    if shutil.which("wrk") is None:
        return "wrk is not installed", None
    body = json.dumps(clients.json_request(clients.dequantize_tensors()))
    script = os.path.join(os.environ.get("TMPDIR", "/tmp"), "quantd-wrk-%d.lua" % os.getpid())
    with open(script, "w") as file:
        file.write(COUNT_LUA + "wrk.body = %s\n" % json.dumps(body))
    with Row("--max-queue", "64") as row_:
        result = subprocess.run(
            ["wrk", "-t2", "-c1000", "-d%d" % (3 if short else 20), "-s", script,
             "http://127.0.0.1:%d%s" % (row_.server.port, clients.infer_path(clients.DEQUANTIZE))],
            capture_output=True, text=True, check=False)
    os.unlink(script)
    counts = re.search(r"COUNT (\d+) (\d+) (\d+) (\d+)", result.stdout)
    if counts is None:
        return result.stdout[-200:] + result.stderr[-200:], False
    good, refused, bad, errors = map(int, counts.groups())
    return ("%d answered, %d refused, %d others, %d socket errors" % (good, refused, bad, errors),
            good > 0 and bad == 0 and errors == 0)


# ---- Shutdown --------------------------------------------------------------------------------

def drained_probe(stopped, port, request):
    """Returns (answered, lost). A request is lost if the server read all of it and did not answer.
    """
    answered = lost = 0
    reader, used = None, False
    while not stopped():
        try:
            if reader is None:
                reader, used = Reader(connect(port, 10)), False
        except OSError:
            return answered, lost  # the server no longer listens
        try:
            reader.connection.sendall(request)
            answer = reader.answer()
        except OSError:
            answer = None
        answered += answer is not None
        # A server may close a connection at any time between two requests: HTTP tells clients to
        # try again.
        lost += answer is None and not used
        used = True
        if answer is None or answer.headers.get("Connection") == "close":
            reader.close()
            reader = None
    return answered, lost


@row
def drains(short):
    """SIGTERM under load, 100 times; what was accepted is answered, exit status 0"""
    answered = lost = bad = 0
    for _ in range(5 if short else 100):
        server = started()
        running = Running()
        for request in (clients.small_json(), clients.small_binary(), clients.large_conv()):
            running.start(drained_probe, server.port, request)
        time.sleep(0.25)
        server.process.send_signal(signal.SIGTERM)
        server.terminated = True
        try:
            server.wait()
        except AssertionError:
            bad += 1
        for result in running.stop():
            answered += result[0]
            lost += result[1]
    return ("%d answered, %d lost, %d bad ends" % (answered, lost, bad),
            answered > 0 and lost == 0 and bad == 0)
