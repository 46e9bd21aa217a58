"""Runs a page's code blocks unchanged, in one folder and one Python: see pages.py.

A block that is a command of quantd starts a server with the block's flags, on a free port, and
stops the server before it. From then on the page's address means the new server. With --explain,
the command is run, and what it prints is compared if the page shows it.
"""
import json
import re
import shlex
import subprocess
import tempfile
import threading

from pages import URL_HOST, blocks, blur
from quantd import COMMAND, Server

SECONDS_MAX = 120

# Reads blocks, each as a line of JSON, and answers each block with the text that it prints.
INTERPRETER = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(json.loads(line), "the page", "exec"), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""


class Wrong(Exception):
    """A block did not do what the page says."""


class Page:
    def __init__(self, path, folder):
        self.blocks = blocks(path.read_text())
        self.folder, self.server = folder, None
        self.errors = tempfile.TemporaryFile("w+")
        self.python = None

    def close(self):
        if self.python is not None:
            self.python.communicate()
        self.errors.close()
        if self.server is not None:
            self.server.stop()

    def run(self, block):
        command = re.fullmatch(r"build/quantd( .*)?\n", block.code)
        if command is not None and "--explain" in block.code:
            self.explain(shlex.split(command[1]), block.expected)
            return
        if command is not None:
            self.serve(shlex.split(command[1] or ""))
            return
        code = block.code
        if self.server is not None:
            code = code.replace(URL_HOST, "127.0.0.1:%d" % self.server.port)
        printed = self.run_python(code) if block.language == "python" else self.run_shell(code)
        if blur(printed) != blur(block.expected):
            raise Wrong("expected %r, got %r" % (block.expected, printed))

    def serve(self, flags):
        if self.server is not None:
            self.server.stop()
        self.server = Server(*flags, before=("env", "-C", str(self.folder)))

    def explain(self, flags, expected):
        result = subprocess.run([*COMMAND, *flags], cwd=self.folder, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        if result.returncode != 0:
            raise Wrong("exit status %d: %s" % (result.returncode, result.stderr))
        if expected and result.stdout != expected:
            raise Wrong("expected %r, got %r" % (expected, result.stdout))

    def run_shell(self, code):
        result = subprocess.run(["sh", "-euc", code], cwd=self.folder, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        if result.returncode != 0:
            raise Wrong("exit status %d: %s" % (result.returncode, result.stderr))
        return result.stdout

    def run_python(self, code):
        if self.python is None:
            self.python = subprocess.Popen(
                ["venv/bin/python", "-c", INTERPRETER], cwd=self.folder, stdin=subprocess.PIPE,
                text=True, stdout=subprocess.PIPE, stderr=self.errors)
        timer = threading.Timer(SECONDS_MAX, self.python.kill)
        timer.start()
        try:
            self.python.stdin.write(json.dumps(code) + "\n")
            self.python.stdin.flush()
            answer = self.python.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.errors.seek(0)
            raise Wrong("Python ended: " + self.errors.read()[-2000:])
        return json.loads(answer)
