"""Clients that send requests all the time, each on a connection that it keeps, and compare every
byte of the answers."""
import contextlib
import http.client
import json
import random
import threading
import time

from fleet import PATIENCE_S, wait_until
from loading import convolve
from pages import blur
from quantd import LENGTH, Tensor, binary_request, exchange, infer_path, json_request
from samples import CONV, DEQUANTIZE, conv_tensors, dequantize_tensors

REQUESTS_MAX = 50000  # of a client; more would mean that something has gone wrong
PAUSE_S = 0.002       # between two requests of a client, which leaves CPU time to the servers
FAILURES_MAX = 20     # how many are reported


def content(answer):
    """Returns all of an answer except its times and the name of its kernel."""
    if LENGTH not in answer.headers:
        return answer.status, blur(answer.body.decode()), b""
    json_bytes = int(answer.headers[LENGTH])
    return answer.status, blur(answer.body[:json_bytes].decode()), answer.body[json_bytes:]


class Work:
    """A request, and its right answers. `at` is host and port of a server that is up. `outputs` are
    what its first answer must contain: name -> raw bytes."""

    def __init__(self, at, path, body, headers, outputs):
        self.path, self.body, self.headers = path, body, headers
        self.right = (self.answer_of(at, outputs),)

    def ask(self, client):
        return exchange(client, "POST", self.path, self.body, self.headers)

    def answer_of(self, at, outputs):
        """Sends the request, checks its outputs, and returns what other answers are compared
        with."""
        with contextlib.closing(http.client.HTTPConnection(*at, timeout=PATIENCE_S)) as client:
            answer = self.ask(client)
        if answer.status != 200:
            raise AssertionError("%s: %s %s" % (self.path, answer.status, answer.body[:300]))
        found = {name: raw for name, (_, _, raw) in answer.outputs().items()}
        if found != outputs:
            raise AssertionError("%s: another answer than expected" % self.path)
        return content(answer)


def json_work(at):
    """Returns the dequantization of four numbers."""
    y = Tensor.of("y", "FP32", [4], [-64, 0, 0.5, 63.5]).raw
    tensors = json_request(dequantize_tensors())
    return Work(at, infer_path(DEQUANTIZE), json.dumps(tensors), {}, {"y": y})


def binary_work(at, x_bytes):
    """Returns the convolution of a row, with weights so small that some sums fit UINT8."""
    x = bytes(random.Random(x_bytes).choices(range(100), k=x_bytes))
    body, headers = binary_request(conv_tensors(list(x), [1, 1, x_bytes], [1, 2, -1], [1, 1, 3]))
    return Work(at, infer_path(CONV), body, headers, {"y": bytes(convolve(x, [1, 2, -1]))})


class Traffic:
    """Sends requests: with Traffic(proxy.port, [work]) as traffic: ... Raises all failures at its
    end."""

    def __init__(self, port, works, count=6):
        self.port = port
        self.works = works
        self.done = [0] * count
        self.failures = []
        self.slowest_s = 0.0
        self.over = False
        self.threads = [threading.Thread(target=self.run, args=(index,), daemon=True)
                        for index in range(count)]

    def run(self, index):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        for turn in range(index, index + REQUESTS_MAX):
            if self.over or len(self.failures) >= FAILURES_MAX:
                break
            work = self.works[turn % len(self.works)]
            right = work.right
            began = time.monotonic()
            try:
                found = content(work.ask(client))
                if found not in right:
                    self.failures.append("%s: %s" % (work.path, found[:2]))
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append("%s: %r after %.3f s" % (work.path, error,
                                                              time.monotonic() - began))
                client.close()  # the next request opens a new connection
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.done[index] += 1
            time.sleep(PAUSE_S)
        client.close()

    def go_on(self, count=20):
        """Returns when each client has had `count` more answers."""
        goal = [done + count for done in self.done]
        wait_until(lambda: self.failures or all(map(int.__ge__, self.done, goal)),
                   "%d more answers for each" % count)
        self.check()

    def check(self):
        if self.failures:
            raise AssertionError("%d of %d requests failed: %s" % (
                len(self.failures), sum(self.done), "; ".join(self.failures)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, kind, *_):
        self.over = True
        for thread in self.threads:
            thread.join(2 * PATIENCE_S)
        if kind is None:
            self.check()
