"""Clients of all kinds: some measure, some load, some attack. Each is a process of its own, because
Python's threads would wait for one another."""
import multiprocessing
import os
import random
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

from quantd import (Reader, Tensor, binary_request, infer_path, json_request,  # noqa: E402
                    raw_infer, raw_request, reset)
from samples import (CONV, DEQUANTIZE, conv_tensors, dequantize_json,  # noqa: E402
                     dequantize_tensors)

SECONDS_MAX = 60  # to wait for one answer


def small_json():
    return raw_infer(DEQUANTIZE, dequantize_json())


def small_binary():
    return raw_infer(DEQUANTIZE, *binary_request(dequantize_tensors()))


def large_json(mebibytes):
    """Returns a dequantization whose numbers take `mebibytes` MiB of text."""
    count = mebibytes * (1 << 20) // 4
    body = (b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[' % count
            + b"200," * (count - 1) + b'200]},{"name":"x_scale","datatype":"FP32","shape":[],'
            b'"data":[0.5]}],"parameters":{"binary_data_output":true}}')
    return raw_infer(DEQUANTIZE, body)


def large_binary(mebibytes):
    count = mebibytes << 20
    return raw_infer(DEQUANTIZE, *binary_request([Tensor("x", "UINT8", [count], bytes(count)),
                                                  Tensor.of("x_scale", "FP32", [], [0.5])]))


def large_conv(kernel=3):
    side = 112
    return raw_infer(CONV, *binary_request(conv_tensors(
        [i % 7 for i in range(64 * side * side)], [1, 64, side, side],
        [i % 3 for i in range(128 * 64 * kernel ** 2)], [128, 64, kernel, kernel])))


def growing_request(pad):
    """Returns a convolution of one number whose output has (1 + 2 pad) squared elements."""
    return raw_infer(CONV, json_request(conv_tensors([1], [1, 1, 1, 1], [1], [1, 1, 1, 1]),
                                    parameters={"pads": "%d,%d,%d,%d" % ((pad,) * 4),
                                                "binary_data_output": True}))


def connect(port, timeout=SECONDS_MAX):
    connection = socket.create_connection(("127.0.0.1", port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(port, request, timeout=SECONDS_MAX):
    """Sends the request on a connection of its own and returns the answer. None: no answer came."""
    try:
        reader = Reader(connect(port, timeout))
    except OSError:
        return None
    try:
        try:
            reader.connection.sendall(request)
        except OSError:
            pass  # the server may have answered early
        return reader.answer()
    except (OSError, ValueError):
        return None
    finally:
        reader.close()


# ---- Processes -------------------------------------------------------------------------------

class Running:
    """Functions that run in processes until they are told to stop. Each returns one value."""

    def __init__(self):
        self.stopped = multiprocessing.Event()
        self.processes = []

    def start(self, function, *arguments):
        ours, theirs = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=self.body, daemon=True,
                                          args=(theirs, function, arguments))
        process.start()
        theirs.close()
        self.processes.append((process, ours))

    def body(self, pipe, function, arguments):
        try:
            pipe.send(function(self.stopped.is_set, *arguments))
        except KeyboardInterrupt:
            pass

    def stop(self):
        """Stops the functions and returns their values, in the order of their starts."""
        self.stopped.set()
        results = []
        for process, pipe in self.processes:
            results.append(pipe.recv() if pipe.poll(2 * SECONDS_MAX) else None)
            process.join(5)
            process.kill()
        return results


def probe(stopped, port, request, pause=0.0):
    """Sends one request after the other. Returns ([seconds of each answer with status 200],
    {status: count})."""
    times, statuses = [], {}
    reader = None
    expected = None
    while not stopped():
        started = time.monotonic()
        try:
            if reader is None:
                reader = Reader(connect(port))
            reader.connection.sendall(request)
            answer = reader.answer()
        except OSError:
            answer = None
        status = 0 if answer is None else answer.status
        if status == 200:
            times.append(time.monotonic() - started)
            outputs = answer.outputs()
            expected = expected or outputs
            if outputs != expected:
                status = -1
        statuses[status] = statuses.get(status, 0) + 1
        if answer is None or answer.headers.get("Connection") == "close":
            if reader is not None:
                reader.close()
            reader = None
        time.sleep(pause)
    if reader is not None:
        reader.close()
    return times, statuses


def repeat(stopped, port, request):
    """Sends large requests. Returns {status: count}; status 0: no whole answer came. These clients
    share the CPUs with the server, so they run at the lowest priority: a request that waits for a
    CPU behind them would not have to wait for the server."""
    os.nice(19)
    statuses = {}
    while not stopped():
        answer = ask(port, request)
        status = 0 if answer is None else answer.status
        statuses[status] = statuses.get(status, 0) + 1
        if status != 200:
            time.sleep(0.05)
    return statuses


def vanish(stopped, port, request, seed):
    """Sends part of a request, waits a while, and closes or resets the connection. Returns how
    often."""
    rng = random.Random(seed)
    count = 0
    while not stopped():
        try:
            connection = connect(port)
            connection.sendall(request[:rng.choice((0, 1, 30, 200, len(request) // 2,
                                                    len(request)))])
            time.sleep(rng.choice((0, 0.001, 0.01, 0.1)))
            if rng.random() < 0.3:
                connection.settimeout(0.2)
                connection.recv(1 << 16)
            if rng.random() < 0.7:
                reset(connection)
            else:
                connection.close()
            count += 1
        except OSError:
            pass
    return count


def drip(stopped, port, request, pause):
    """Sends a request byte by byte, with pauses, until all is sent or the server closes. Returns on
    how many connections."""
    count = 0
    while not stopped():
        try:
            connection = connect(port)
            for i in range(len(request)):
                if stopped():
                    break
                connection.sendall(request[i:i + 1])
                time.sleep(pause)
            connection.close()
        except OSError:
            pass
        count += 1
    return count


def read_slowly(stopped, port, request, pause):
    """Asks for a large answer and reads a little of it at a time. Returns how many answers were
    cut."""
    cut = 0
    while not stopped():
        try:
            connection = connect(port)
            connection.sendall(request)
            while not stopped():
                if not connection.recv(64):
                    cut += 1
                    break
                time.sleep(pause)
            connection.close()
        except OSError:
            cut += 1
    return cut


def send_nonsense(stopped, port, seed):
    """Sends requests that the server must refuse, of all kinds. Returns {status: count}; -1: a
    malformed answer."""
    rng = random.Random(seed)
    good = small_json()
    kinds = [b"GET /%s HTTP/1.1\r\nHost: q\r\n\r\n" % (b"x" * 40000),
             b"GET / HTTP/3.0\r\nHost: q\r\n\r\n", b"\0\1\2\3\r\n\r\n",
             b"GET /v2 HTTP/1.1\r\n\r\n",
             b"POST /v2 HTTP/1.1\r\nHost: q\r\nContent-Length: -1\r\n\r\n",
             b"POST %s HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
             % infer_path(DEQUANTIZE).encode(),
             raw_request("GET", "/nowhere"),
             raw_request("POST", "/v2/repository/index", b" " * 100000),
             raw_infer(DEQUANTIZE, b"[" * 5000), raw_infer(DEQUANTIZE, b"{}"),
             raw_infer("nobody", b"{}")]
    statuses = {}
    while not stopped():
        request = rng.choice(kinds)
        if rng.random() < 0.3:
            at = rng.randrange(len(good))
            request = good[:at] + bytes([rng.randrange(256)]) + good[at + 1:]
        answer = ask(port, request, 1)
        status = 0 if answer is None else answer.status
        if status >= 400:
            try:
                assert isinstance(answer.json()["error"], str)
            except (ValueError, KeyError, AssertionError):
                status = -1
        statuses[status] = statuses.get(status, 0) + 1
    return statuses
