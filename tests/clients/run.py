#!/usr/bin/env python3
"""Runs every client in this folder whose toolchain is installed, pages in api_schema/, and the
README's block of Python: run.py [CLIENT...]

Each must print the two right answers. If something is wrong, it must end with a status other than 0
and one clear line: no URL, no server at the address, a refusal, a proxy that answers in HTML, an
answer with a missing or a changed byte. Clients are built, and their packages installed, in
build/clients.

A client without its toolchain or packages is skipped by name. With REQUIRE=all or CI=true in the
environment, missing packages count as a failure. The last line is "N passed, N failed, N skipped".
"""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "support")]

import failures  # noqa: E402
from loading import conv_file, convolve  # noqa: E402
from page import Page, Wrong  # noqa: E402
from pages import URL_HOST, blocks  # noqa: E402
from quantd import ROOT, Server  # noqa: E402

OUT = ROOT / "build" / "clients"
PYTHON = OUT / "venv" / "bin" / "python"
TARGET = OUT / "cargo"
SECONDS_MAX = 60
REQUIRED = os.environ.get("REQUIRE") == "all" or os.environ.get("CI") == "true"
CONVOLUTION = [56, 86, 203, 46, 62, 109, 146, 90, 92, 138, 54, 95, 127, 125, 118, 114, 131, 116]
DEQUANTIZATION = [-64, 0, 63.5, "-inf", "nan", "inf"]


class Skip(Exception):
    pass


class Failure(Exception):
    pass


# ---- What each client needs ----------------------------------------------------------------------


def need(command, *minimum):
    """Skips the client unless the command exists and prints a version of at least `minimum`."""
    if shutil.which(command[0]) is None:
        raise Skip("%s is not installed" % command[0])
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"\d+(\.\d+)+", result.stdout)
    if result.returncode != 0 or match is None:
        raise Skip("`%s` fails" % " ".join(command))
    if tuple(map(int, match[0].split("."))) < minimum:
        raise Skip("it needs %s %s, this is %s" % (command[0], ".".join(map(str, minimum)),
                                                   match[0]))


def execute(log, command, **env):
    """Runs a command with its output in a log in OUT. Returns whether it succeeded."""
    with open(OUT / log, "w", encoding="utf-8") as file:
        return subprocess.run(command, cwd=HERE, env=dict(os.environ, **env), check=False,
                              stdin=subprocess.DEVNULL, stdout=file, stderr=file).returncode == 0


def fetch(what, log, command, **env):
    if not execute(log, command, **env):
        if REQUIRED:
            raise Failure("%s cannot be had, see build/clients/%s" % (what, log))
        raise Skip("%s cannot be had, see build/clients/%s" % (what, log))


def build(log, command, **env):
    if not execute(log, command, **env):
        raise Failure("it does not build:\n" + (OUT / log).read_text())


def python(client, package):
    if not PYTHON.exists():
        fetch("a virtual environment", "venv.log", [sys.executable, "-m", "venv", OUT / "venv"])
    fetch(package, "%s.log" % package, [PYTHON, "-m", "pip", "install", "--quiet", package])
    return [PYTHON, client]


def node(client):
    need(["node", "--version"], 18)
    return ["node", client]


def go(client):
    need(["go", "version"], 1, 18)
    build("go.log", ["go", "build", "-o", OUT / "client-go", client])
    return [OUT / "client-go"]


def java(client):
    need(["javac", "--version"], 17)
    return ["java", client]


def rust(_client):
    need(["cargo", "--version"], 1, 85)
    manifest = ["--manifest-path", "rust/Cargo.toml"]
    fetch("crates", "cargo-fetch.log", ["cargo", "fetch", *manifest])
    build("cargo.log", ["cargo", "build", *manifest], CARGO_TARGET_DIR=str(TARGET))
    return [TARGET / "debug" / "client"]


def c(client):
    need(["pkg-config", "--modversion", "libcurl"], 7, 84)
    need(["pkg-config", "--modversion", "libcjson"], 1)
    build("cc.log", ["cc", "-Wall", "-Wextra", "-Werror", "-o", OUT / "client-c", client, "-lcurl",
                     "-lcjson"])
    return [OUT / "client-c"]


def prometheus(client):
    """Unpacks Debian's package if Prometheus is not installed. Installing the package would start a
    service."""
    programs = [shutil.which(name) for name in ("prometheus", "promtool")]
    if None in programs:
        folder = OUT / "prometheus"
        folder.mkdir(exist_ok=True)
        programs = [folder / "usr" / "bin" / name for name in ("prometheus", "promtool")]
        if not all(program.exists() for program in programs):
            need(["apt-get", "--version"])
            fetch("the package prometheus", "prometheus.log",
                  ["sh", "-c", "cd '%s' && apt-get download prometheus && "
                               "dpkg-deb -x prometheus_*.deb ." % folder])
    return [sys.executable, client], programs


def shell(client):
    need(["curl", "--version"], 7, 84)
    return ["sh", client]


def page(client):
    """Opens a page and runs its first block, which installs what the other blocks need into the
    folder of the clients' packages."""
    opened = Page((HERE / client).resolve(), OUT)
    install = opened.blocks.pop(0).code
    fetch("what the page needs", "page.log", ["sh", "-euc", "cd '%s'\n%s" % (OUT, install)])
    return opened


def readme(client):
    """Returns the README's block of Python."""
    python(client, "numpy")
    text = (HERE / client).read_text()
    return next(block for block in blocks(text) if block.language == "python")


# Clients that differ from the others: TESTS has their tests.
LOADER = "load_tritonclient.py"
SHARER = "shared_tritonclient.py"
COMPRESSOR = "compressed_tritonclient.py"
SCRAPER = "scrape_prometheus.py"
ASKER = "ask_dashboard.py"
PAGES = ("../../api_schema/from_onnx_runtime.md", "../../api_schema/shared_memory.md")
README = "../../README.md"

# File -> the function that returns its command.
CLIENTS = {
    "client_requests.py": lambda client: python(client, "requests"),
    "client_tritonclient.py": lambda client: python(client, "tritonclient[http]"),
    LOADER: lambda client: python(client, "tritonclient[http]"),
    SHARER: lambda client: python(client, "tritonclient[http]"),
    COMPRESSOR: lambda client: python(client, "tritonclient[http]"),
    SCRAPER: prometheus,
    ASKER: prometheus,
    "client.mjs": node,
    "client.go": go,
    "Client.java": java,
    "rust/src/main.rs": rust,
    "client.c": c,
    "client.sh": shell,
    **dict.fromkeys(PAGES, page),
    README: readme,
}


# ---- Servers with wrong answers ------------------------------------------------------------------


class WrongServer(ThreadingHTTPServer):
    """Passes requests on to a quantd, and spoils the answers: change(path, body) -> body."""

    def __init__(self, url, change, status=None):
        super().__init__(("127.0.0.1", 0), WrongHandler)
        self.behind, self.change, self.status, self.changed = url, change, status, 0
        self.url = "http://127.0.0.1:%d" % self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()


class WrongHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):  # pylint: disable=invalid-name
        name = "Inference-Header-Content-Length"
        request = urllib.request.Request(
            self.server.behind + self.path, self.rfile.read(int(self.headers["Content-Length"])),
            {name: self.headers[name]} if name in self.headers else {})
        with urllib.request.urlopen(request) as answer:
            status, headers, right = answer.status, answer.headers, answer.read()
        body = self.server.change(self.path, right)
        self.server.changed += body != right
        self.send_response(self.server.status or status)
        for name in ("Content-Type", "Inference-Header-Content-Length"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        with urllib.request.urlopen(self.server.behind + self.path) as answer:
            status, right = answer.status, answer.read()
        body = self.server.change(self.path, right)
        self.server.changed += body != right
        self.send_response(status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        pass


def flip_a_bit(path, body):
    return body[:-1] + bytes([body[-1] ^ 1]) if "QLinearConv" in path else body


def cut_a_byte(path, body):
    return body[:-1] if "QLinearConv" in path else body


def change_a_number(_path, body):
    return body.replace(b"63.5", b"63.25")


def change_a_special_value(_path, body):
    return body.replace(b'"-Infinity"', b'"Infinity"')


def answer_in_html(_path, _body):
    return b"<html>Bad Gateway</html>"


# ---- The tests -----------------------------------------------------------------------------------


def values_of(line):
    """Returns the values in a client's line, in whatever form the language prints a list."""
    words = re.findall(r"-?[\d.]+|-?\w+", line.partition(":")[2].lower().replace("infinity", "inf"))
    return [float(word) if re.fullmatch(r"-?[\d.]+", word) else word for word in words]


def run(command, *arguments):
    """Returns (exit status, lines of standard output, lines of standard error)."""
    result = subprocess.run([*map(str, command), *arguments], cwd=HERE, capture_output=True,
                            text=True, timeout=SECONDS_MAX, stdin=subprocess.DEVNULL, check=False)
    return result.returncode, result.stdout.splitlines(), result.stderr.splitlines()


def test_right(command, url):
    status, lines, errors = run(command, url)
    values = [values_of(line) for line in lines]
    if (status, values, errors) != (0, [CONVOLUTION, DEQUANTIZATION], []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))


def test_wrong(command, arguments, right_count, *words):
    """Checks that the client fails after `right_count` right answers, with one line of error that
    contains these words."""
    status, lines, errors = run(command, *arguments)
    if status == 0:
        raise Failure("it should have failed, printed %s" % lines)
    if len(lines) != right_count or len(errors) != 1:
        raise Failure("expected %d right answers and one line of error, got %s %s"
                      % (right_count, lines, errors))
    for word in words:
        if word.lower() not in errors[0].lower():
            raise Failure("expected %r in the error, got %r" % (word, errors[0]))


def test_spoiled(command, url, right_count, change, *words, status=None):
    with WrongServer(url, change, status) as server:
        try:
            test_wrong(command, [server.url], right_count, *words)
            if server.changed == 0:
                raise Failure("the client never asked for what was to be spoiled")
        finally:
            server.shutdown()


# Functions that yield the tests of a kind of client: pairs of a name and a function that raises if
# the test fails. `url` is that of a server without flags. Nothing listens at `closed_url`.


def plain_tests(command, url, closed_url):
    yield "right answers", lambda: test_right(command, url)
    yield "no argument", lambda: test_wrong(command, [], 0, "usage: ")
    yield "no URL", lambda: test_wrong(command, ["notaurl"], 0, "notaurl")
    yield "nobody listens", lambda: test_wrong(command, [closed_url], 0, "connect",
                                               closed_url.rpartition(":")[2])
    yield "refused", lambda: test_wrong(command, [url + "/nowhere"], 0, "404",
                                         "expected an endpoint")
    yield "HTML", lambda: test_spoiled(command, url, 0, answer_in_html, status=502)
    for right_count, change, words in ((0, flip_a_bit, ("convolution", "116", "117")),
                                       (0, cut_a_byte, ()),
                                       (1, change_a_number, ("dequantization", "63.25")),
                                       (1, change_a_special_value, ("dequantization",))):
        yield (change.__name__.replace("_", " "), lambda right_count=right_count, change=change,
               words=words: test_spoiled(command, url, right_count, change, *words))


@contextlib.contextmanager
def serving(*flags):
    """Runs a server with these flags. Yields its URL."""
    server = Server(*flags)
    try:
        yield server.addresses[0]
    finally:
        server.stop()


# ---- Loading -------------------------------------------------------------------------------------


def loads(command, url, file):
    status, lines, errors = run(command, url, file)
    expected = convolve([3, 1, 4, 1, 5, 9, 2, 6], [1, 2, 1])
    if (status, [values_of(line) for line in lines], errors) != (0, [expected], []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))


def loader_tests(command, url, _closed_url):
    file, spoiled = OUT / "model.onnx", OUT / "spoiled.onnx"
    file.write_bytes(conv_file([1, 2, 1]))
    spoiled.write_bytes(conv_file([1, 2, 1], colour="red"))
    with serving("--model-control-mode", "explicit") as own:
        yield "loads", lambda: loads(command, own, file)
        yield ("a file that does not fit",
               lambda: test_wrong(command, [own, spoiled], 0, "node 0", "colour"))
        yield ("a server that loads nothing",
               lambda: test_wrong(command, [url, file], 0, "--model-control-mode"))


# ---- Shared memory -------------------------------------------------------------------------------


def shares(command, url):
    status, lines, errors = run(command, url)
    values = [json.loads(line) for line in lines]
    expected = [[factor * i / 2 for i in range(8)] for factor in (1, 3, 5)]
    if (status, values, errors) != (0, expected, []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))


def sharer_tests(command, url, _closed_url):
    if not os.path.isdir("/dev/shm"):
        raise Skip("there is no /dev/shm")
    with serving("--allow-shared-memory", "quantd-client-") as own:
        yield "shares", lambda: shares(command, own)
        yield "no argument", lambda: test_wrong(command, [], 0, "usage: ")
        yield ("a server that has it off",
               lambda: test_wrong(command, [url], 0, "--allow-shared-memory"))


# ---- Compressing ---------------------------------------------------------------------------------


def compresses(command, url, log):
    """Checks that 4 KiB of x and 16 KiB of y take fewer bytes on the wire."""
    status, lines, errors = run(command, url)
    if (status, lines, errors) != (0, ["gzip: 261120.0", "deflate: 261120.0"], []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))
    until = time.monotonic() + SECONDS_MAX
    while log.read_text().count("\n") < 2 and time.monotonic() < until:
        time.sleep(0.01)  # a thread of the server writes the log
    sizes = [(line["bytes_in"], line["bytes_out"])
             for line in map(json.loads, log.read_text().splitlines())]
    if len(sizes) != 2 or not all(came < 4096 and went < 16384 for came, went in sizes):
        raise Failure("expected two small bodies and answers, got %s bytes" % sizes)


def compressor_tests(command, url, _closed_url):
    log = OUT / "access.log"
    log.unlink(missing_ok=True)
    with serving("--compress-answers", "on", "--access-log", str(log), "--log-format",
                 "json") as own:
        yield "compresses", lambda: compresses(command, own, log)
        yield "no argument", lambda: test_wrong(command, [], 0, "usage: ")
        yield "refused", lambda: test_wrong(command, [url + "/nowhere"], 0, "expected an endpoint")


# ---- Scraping ------------------------------------------------------------------------------------


def scrapes(command, url, programs):
    status, lines, errors = run(command, url, *map(str, programs))
    if (status, lines, errors) != (0, ["scraped"], []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))


def does_not_scrape(command, url, programs, change, *words):
    with WrongServer(url, change) as server:
        try:
            test_wrong(command, [server.url, *map(str, programs)], 0, *words)
            if server.changed == 0:
                raise Failure("nobody asked for what was to be spoiled")
        finally:
            server.shutdown()


def spoil_a_value(path, body):
    return body.replace(b"quantd_workers 1", b"quantd_workers one") if path == "/metrics" else body


def spoil_a_name(path, body):
    return body.replace(b"quantd_answers_total", b"quantd_answers") if path == "/metrics" else body


def lose_a_stage(path, body):
    return body.replace(b'stage="send"', b'stage="sent"') if path == "/metrics" else body


def scraper_tests(command, _url, _closed_url):
    command, programs = command
    with serving("--threads", "1") as own:
        yield "scrapes", lambda: scrapes(command, own, programs)
        yield "no arguments", lambda: test_wrong(command, [], 0, "usage: ")
        yield ("a value that is no number",
               lambda: does_not_scrape(command, own, programs, spoil_a_value, "promtool", "one"))
        yield ("a name against the conventions",
               lambda: does_not_scrape(command, own, programs, spoil_a_name, "quantd_answers"))
        yield ("a stage that is missing",
               lambda: does_not_scrape(command, own, programs, lose_a_stage, 'stage="send"'))


# ---- Pages ---------------------------------------------------------------------------------------


def page_tests(opened, _url, _closed_url):
    try:
        for block in opened.blocks:
            yield block.code.partition("\n")[0], lambda block=block: opened.run(block)
    finally:
        opened.close()


def prints(block, url):
    code = block.code.replace("http://" + URL_HOST, url)
    result = subprocess.run([PYTHON, "-c", code], cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                            capture_output=True, timeout=SECONDS_MAX, check=False)
    if (result.returncode, result.stdout) != (0, block.expected):
        raise Wrong("expected %r, got %r, %s" % (block.expected, result.stdout, result.stderr))


def readme_tests(block, _url, _closed_url):
    with serving("--model-repository", str(ROOT / "tests/demo/digits/models")) as own:
        yield "prints", lambda: prints(block, own)


# ---- The dashboard and the alerts ----------------------------------------------------------------


def asks(command, url, programs):
    status, lines, errors = run(command, url, *map(str, programs))
    if (status, lines, errors) != (0, ["asked"], []):
        raise Failure("status %d, printed %s %s" % (status, lines, errors))


def misspell(path, body):
    return body.replace(b"quantd_queue_l", b"quantd_queue_s") if path == "/metrics" else body


def asker_tests(command, _url, _closed_url):
    command, programs = command
    with serving("--max-inflight-bytes", "1M") as own:
        yield "asks", lambda: asks(command, own, programs)
        yield "no arguments", lambda: test_wrong(command, [], 0, "usage: ")
        yield ("a metric that is called otherwise",
               lambda: does_not_scrape(command, own, programs, misspell, "quantd_queue_length",
                                       "quantd_queue_length_max"))


# ---- All clients ---------------------------------------------------------------------------------

TESTS = {LOADER: loader_tests, SHARER: sharer_tests, COMPRESSOR: compressor_tests,
         SCRAPER: scraper_tests, ASKER: asker_tests, **dict.fromkeys(PAGES, page_tests),
         README: readme_tests}


def test_client(client, url, closed_url):
    """Runs a client's tests. Returns (passed, failed)."""
    passed = failed = 0
    try:
        command = CLIENTS[client](client)
    except Failure as failure:
        failures.say(client, str(failure), str(failure))
        return 0, 1
    for name, test in TESTS.get(client, plain_tests)(command, url, closed_url):
        try:
            test()
            passed += 1
        except (Failure, Wrong, subprocess.TimeoutExpired) as failure:
            failures.say("%s, %s" % (client, name), str(failure), str(failure))
            failed += 1
    print("%s: %d passed, %d failed" % (client, passed, failed), flush=True)
    return passed, failed


def main():
    unknown = [name for name in sys.argv[1:] if name not in CLIENTS]
    if unknown:
        sys.exit("run.py: no client %s: %s" % (unknown[0], ", ".join(CLIENTS)))
    OUT.mkdir(parents=True, exist_ok=True)
    passed = failed = skipped = 0
    with socket.socket() as closed, serving() as url:
        closed.bind(("127.0.0.1", 0))  # the port is taken, and nothing listens
        closed_url = "http://127.0.0.1:%d" % closed.getsockname()[1]
        for client in sys.argv[1:] or CLIENTS:
            try:
                counts = test_client(client, url, closed_url)
                passed, failed = passed + counts[0], failed + counts[1]
            except Skip as reason:
                print("%s: skipped: %s" % (client, reason), flush=True)
                skipped += 1
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
