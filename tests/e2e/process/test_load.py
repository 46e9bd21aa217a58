"""Many clients at once, full queues, and a shutdown under load."""
import json
import random
import socket
import subprocess
import threading
import time
import unittest

from quantd import (SANITIZED, SLOW, Reader, Server, ServerTest, Tensor, binary_request, exchange,
                    infer_path, json_request, run_threads, to_raw, unless_emulated)
from samples import CONV, DEQUANTIZE, conv_tensors, dequantize_json

MIB = 1 << 20


def heavy_request(size=400, kernel=5):
    """Returns a convolution of [1, 8, size, size] to 16 channels, which takes some milliseconds at
    size 400."""
    tensors = conv_tensors([1], [1], [0], [1])
    tensors[0] = Tensor("x", "UINT8", [1, 8, size, size], bytes(8 * size * size))
    tensors[3] = Tensor("w", "INT8", [16, 8, kernel, kernel], bytes(16 * 8 * kernel * kernel))
    return binary_request(tensors)


def heavy_enough(server):
    """Returns a request that takes this server far longer to compute than to receive and answer,
    however fast the CPU is."""
    for kernel in (1, 3, 5, 9, 17, 33):
        body, headers = heavy_request(400, kernel)
        answer = server.infer(CONV, body, headers=headers)
        if answer.tree()["parameters"]["compute_us"] > 50000:
            break
    return body, headers


@unless_emulated("large convolutions take minutes")
class Concurrent(ServerTest):
    FLAGS = ("--compute-timeout", "600")  # 60 s are too short with a sanitizer on a busy machine

    def test_every_client_gets_its_own_answer(self):
        def client_of(seed):
            rng = random.Random(seed)

            def run():
                client = self.server.client()
                for i in range(25):
                    numbers = [rng.randrange(256) for _ in range(rng.choice((1, 10, 3000, 70000)))]
                    tensors = [Tensor.of("x", "UINT8", [len(numbers)], numbers),
                               Tensor.of("x_scale", "FP32", [], [2.0 ** (seed % 8)])]
                    want = to_raw("FP32", [n * 2.0 ** (seed % 8) for n in numbers])
                    name = "%d/%d" % (seed, i)
                    if rng.random() < 0.5:
                        body, headers = binary_request(tensors, id=name)
                    else:
                        body, headers = json.dumps(json_request(tensors, id=name)), {}
                    answer = exchange(client, "POST", infer_path(DEQUANTIZE), body, headers)
                    self.assertEqual(answer.status, 200, answer.body[:300])
                    self.assertEqual(answer.outputs()["y"][2], want)
                    self.assertIn(('"%s"' % name).encode(), answer.body[:200])
                client.close()
            return run

        run_threads([client_of(seed) for seed in range(16)])

    def test_a_thousand_at_once(self):
        body = json.dumps(dequantize_json()).encode()
        request = (b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"
                   % (infer_path(DEQUANTIZE).encode(), len(body))) + body
        connections = [self.server.connect() for _ in range(1000)]
        for connection in connections:
            connection.sendall(request)
        statuses = []
        for connection in connections:
            reader = Reader(connection)
            statuses.append(reader.answer().status)
            reader.close()
        self.assertLessEqual(set(statuses), {200, 503})
        self.assertIn(200, statuses)

    def check_overtakes(self, ask, large_answers):
        """Calls ask() a hundred times. A small request that waited for the end of a large one would
        be answered after it, each time. A busy machine may delay us, and let the large ones end
        meanwhile. The test then tries again."""
        for _ in range(20):
            before = len(large_answers)
            for _ in range(100):
                self.assertEqual(ask().status, 200)
            if len(large_answers) - before < 80:
                return
        self.fail("%d large answers beside the last 100" % (len(large_answers) - before))

    def check_beside_heavy(self, heavy_count, light):
        """Calls light(client) a hundred times while `heavy_count` other clients send large
        convolutions."""
        body, headers = heavy_enough(self.server)
        stop = threading.Event()
        heavy_answers = []

        def heavy():
            client = self.server.client(60)
            while not stop.is_set():
                answer = exchange(client, "POST", infer_path(CONV), body, headers)
                heavy_answers.append(answer.status)
            client.close()

        def beside():
            client = self.server.client()
            try:
                while not heavy_answers:
                    time.sleep(0.01)
                self.check_overtakes(lambda: light(client), heavy_answers)
            finally:
                stop.set()
                client.close()

        run_threads([heavy] * heavy_count + [beside])
        self.assertEqual(set(heavy_answers), {200})

    def test_small_requests_beside_large_ones(self):
        self.check_beside_heavy(2, lambda client: exchange(client, "POST", infer_path(DEQUANTIZE),
                                                           json.dumps(dequantize_json())))

    def test_small_requests_beside_large_json(self):
        """Reading and printing yield, too. A small request waits for a few quanta of a worker, and
        not for the 100 ms or so for which each large request keeps a worker busy."""
        numbers = [i % 256 for i in range(100000)]
        large_body = json.dumps(json_request([
            Tensor.of("x", "UINT8", [2000000], numbers * 20),
            Tensor.of("x_scale", "FP32", [], [0.0123])])).encode()
        small_body = json.dumps(dequantize_json())
        stop = threading.Event()
        started = threading.Barrier(4)
        statuses = []

        def large():
            client = self.server.client(120)
            first = True
            while not stop.is_set():
                client.request("POST", infer_path(DEQUANTIZE), large_body)
                if first:
                    started.wait(60 * SLOW)
                first = False
                answer = client.getresponse()
                statuses.append(answer.status)
                answer.read()
            client.close()

        def small():
            client = self.server.client(60)
            try:
                started.wait(60 * SLOW)
                self.check_overtakes(lambda: exchange(client, "POST", infer_path(DEQUANTIZE),
                                                      small_body), statuses)
            finally:
                stop.set()
                client.close()

        run_threads([large, large, large, small])
        self.assertEqual(set(statuses), {200})

    def test_health_under_load(self):
        self.check_beside_heavy(3, lambda client: exchange(client, "GET", "/v2/health/ready"))


@unless_emulated("large convolutions take minutes")
class FullQueue(unittest.TestCase):
    def test_more_than_the_queue_holds_is_refused_at_once(self):
        """A busy machine may delay the clients so that never three of them wait. The test then
        tries again."""
        server = Server("--threads", "1", "--max-queue", "2")
        try:
            body, headers = heavy_enough(server)
            answers = []

            def post():
                answers.append(server.infer(CONV, body, headers=headers))

            statuses = []
            for _ in range(20):
                run_threads([post] * 16)
                statuses = [answer.status for answer in answers]
                if 503 in statuses:
                    break
            self.assertEqual(set(statuses), {200, 503})
            for answer in answers:
                if answer.status == 503:
                    self.assertIn("--max-queue", answer.json()["error"])
                    self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
            self.assertEqual(server.refusals("queue", statuses.count(503)),
                             statuses.count(503))
            # The server serves on afterwards.
            self.assertEqual(server.infer(DEQUANTIZE, dequantize_json()).status, 200)
        finally:
            server.stop()

    def test_what_the_loop_computes_needs_no_room(self):
        server = Server("--threads", "1", "--max-queue", "1")
        try:
            body, headers = heavy_enough(server)
            statuses, small_statuses = [], []

            done = threading.Event()

            def large():
                while not done.is_set():
                    statuses.append(server.infer(CONV, body, headers=headers).status)

            def small():
                try:
                    while 503 not in statuses:
                        time.sleep(0.01)
                    for _ in range(50):
                        small_statuses.append(server.infer(DEQUANTIZE, dequantize_json()).status)
                finally:
                    done.set()

            run_threads([large] * 4 + [small])
            self.assertEqual(set(small_statuses), {200})
        finally:
            server.stop()

    def test_a_body_of_unknown_length_is_refused_before_it_is_sent(self):
        """The queue is not full at every moment, so we try often."""
        server = Server("--threads", "1", "--max-queue", "1")
        try:
            body, headers = heavy_enough(server)
            lines, done = [], threading.Event()
            head = (b"POST %s HTTP/1.1\r\nHost: q\r\nExpect: 100-continue\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n" % infer_path(DEQUANTIZE).encode())

            def large():
                while not done.is_set():
                    server.infer(CONV, body, headers=headers)

            def ask():
                try:
                    while len(lines) < 200 and not (lines and b" 503 " in lines[-1]):
                        with server.connect() as client:
                            client.sendall(head)
                            lines.append(client.recv(1000))
                finally:
                    done.set()

            run_threads([large] * 4 + [ask])
            self.assertIn(b" 503 ", lines[-1])
        finally:
            server.stop()

    def test_waiting_longer_than_the_timeout_parameter(self):
        server = Server("--threads", "1")
        try:
            body, headers = heavy_enough(server)
            answers = []

            def heavy():
                answers.append(server.infer(CONV, body, headers=headers))

            def impatient():
                time.sleep(0.05)
                request = dequantize_json(parameters={"timeout": 1})
                answers.append(server.infer(DEQUANTIZE, request))

            run_threads([heavy] * 6 + [impatient] * 3)
            statuses = [answer.status for answer in answers]
            self.assertLessEqual(set(statuses), {200, 503})
            self.assertEqual(server.infer(DEQUANTIZE, dequantize_json(
                parameters={"timeout": 60000000})).status, 200)
            for bad in (-1, "soon", 1.5):
                answer = server.infer(DEQUANTIZE, dequantize_json(parameters={"timeout": bad}))
                self.assertEqual(answer.status, 400)
        finally:
            server.stop()


class ComputeTimeout(unittest.TestCase):
    def test_a_computation_that_would_take_hours_ends(self):
        """A small request may ask for a lot of work: 2000 x 2000 taps at 4000 x 4000 positions."""
        tensors = conv_tensors([1], [1, 1, 1, 1], [1] * 4000000, [1, 1, 2000, 2000])
        body, headers = binary_request(tensors, parameters={"pads": "2999,2999,2999,2999"})
        server = Server("--compute-timeout", "0.5")
        try:
            answer = server.infer(CONV, body, headers=headers)
            self.assertEqual(answer.status, 503)
            self.assertIn("--compute-timeout", answer.json()["error"])
            self.assertEqual(server.refusals("compute_timeout", 1), 1)
            self.assertEqual(server.infer(DEQUANTIZE, dequantize_json()).status, 200)
        finally:
            server.stop()


class InflightBytes(unittest.TestCase):
    def test_bounded_and_refused_with_503(self):
        # There are 24 MiB for all requests: one with 2 MiB in and 8 MiB out fits, eight at once do
        # not.
        server = Server("--max-inflight-bytes", "24M", "--threads", "2")
        try:
            raw = bytes(2 * MIB)
            body, headers = binary_request([Tensor("x", "UINT8", [len(raw)], raw),
                                            Tensor.of("x_scale", "FP32", [], [1])])
            answers = []

            def post():
                answers.append(server.infer(DEQUANTIZE, body, headers=headers))

            run_threads([post] * 12)
            self.assertLessEqual({answer.status for answer in answers}, {200, 503})
            for answer in answers:
                if answer.status == 503:
                    self.assertIn("--max-inflight-bytes", answer.json()["error"])
                    self.assertIn("Retry-After", answer.headers)
            self.assertEqual(server.infer(DEQUANTIZE, body, headers=headers).status, 200)
            if not SANITIZED:
                self.assertLess(server.rss_bytes(), 120 * MIB)
        finally:
            server.stop()

    def test_one_that_never_fits(self):
        server = Server("--max-inflight-bytes", "4M")
        try:
            raw = bytes(3 * MIB)
            body, headers = binary_request([Tensor("x", "UINT8", [len(raw)], raw),
                                            Tensor.of("x_scale", "FP32", [], [1])])
            answer = server.infer(DEQUANTIZE, body, headers=headers)
            self.assertIn(answer.status, (413, 503))
            self.assertIn("--max-inflight-bytes", answer.json()["error"])
            self.assertEqual(server.infer(DEQUANTIZE, dequantize_json()).status, 200)
        finally:
            server.stop()


@unless_emulated("large convolutions take minutes")
class Terminate(unittest.TestCase):
    def test_in_flight_requests_are_answered(self):
        # Sanitizers make each of these some seconds long, and all of them must end in the drain.
        server = Server("--threads", "2", "--drain-timeout", str(60 * SLOW))
        body, headers = heavy_request(kernel=1)
        answers, sent = [], threading.Barrier(9)

        def post():
            client = server.client(60)
            client.connect()
            client.putrequest("POST", infer_path(CONV))
            client.putheader("Content-Length", str(len(body)))
            for pair in headers.items():
                client.putheader(*pair)
            client.endheaders(body)
            sent.wait()
            answers.append(client.getresponse().status)
            client.close()

        def terminate():
            sent.wait()  # from here on the server's kernel has all the requests
            server.terminate()

        run_threads([post] * 8 + [terminate])
        self.assertEqual(answers, [200] * 8)
        server.stop()
        with self.assertRaises(OSError):
            socket.create_connection((server.host, server.port), 1)

    def test_nothing_accepted_is_lost(self):
        server = Server()
        body = json.dumps(dequantize_json()).encode()
        request = (b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"
                   % (infer_path(DEQUANTIZE).encode(), len(body))) + body
        counts = [0] * 12
        ended = []

        def client(index):
            # Every request that was written completely before the server closed must have an
            # answer: the server closes after an answer (Connection: close), never instead of one.
            # Only a client that has sent nothing for half a second may find its connection closed.
            # The server counts from its answer. We may learn of that late, but it comes after the
            # request before it.
            silent_since = time.monotonic()
            reader = Reader(server.connect())
            while True:
                before = time.monotonic()
                try:
                    reader.connection.sendall(request)
                    late = time.monotonic() - silent_since > 0.4
                    answer = reader.answer()
                except OSError:
                    answer, late = None, time.monotonic() - silent_since > 0.4
                if answer is None and late:
                    break
                silent_since = before
                if answer is None:
                    raise AssertionError("closed without an answer")
                if answer.status != 200:
                    raise AssertionError(answer.body)
                counts[index] += 1
                if (answer.headers.get("Connection") or "").lower() == "close":
                    self.assertIsNone(reader.answer())
                    break
            reader.close()
            ended.append(index)

        def terminate():
            end = time.monotonic() + 60 * SLOW
            while min(counts) < 10 and time.monotonic() < end:
                time.sleep(0.01)
            server.terminate()

        run_threads([lambda i=i: client(i) for i in range(12)] + [terminate])
        self.assertEqual(sorted(ended), list(range(12)))
        server.stop()

    def test_ready_says_no_while_draining(self):
        server = Server("--threads", "1")
        body, headers = heavy_request(600)
        reader = Reader(server.connect())
        reader.connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n")
        reader.answer()
        work = [threading.Thread(target=server.infer, args=(CONV, body),
                                 kwargs={"headers": headers}) for _ in range(4)]
        for thread in work:
            thread.start()
        time.sleep(0.1)
        server.terminate()
        answer, end = None, time.monotonic() + 20 * SLOW
        try:
            while (answer is None or answer.status == 200) and time.monotonic() < end:
                reader.connection.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: q\r\n\r\n")
                answer = reader.answer()
                if answer is None:
                    break
        except OSError:
            answer = None  # the server closes connections that are idle for a while
        for thread in work:
            thread.join()
        if answer is not None:
            self.assertEqual(answer.status, 503)
            self.assertIs(answer.json()["ready"], False)
            self.assertIn("error", answer.json())
        reader.close()
        server.stop()

    def test_idle_and_stuck_connections_do_not_hold_it_up(self):
        server = Server("--drain-timeout", "1")
        idle = Reader(server.connect())
        idle.connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: q\r\n\r\n")
        self.assertEqual(idle.answer().status, 200)
        stuck = server.connect()
        stuck.sendall(b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: 100\r\n\r\n{"
                      % infer_path(DEQUANTIZE).encode())
        fresh = server.connect()
        time.sleep(0.1)
        started = time.monotonic()
        server.stop()
        self.assertLess(time.monotonic() - started, 15 * SLOW)
        for connection in (idle, stuck, fresh):
            connection.close()

    def test_sigint_too(self):
        server = Server()
        server.process.send_signal(2)
        server.wait()

    def test_a_second_signal_means_at_once(self):
        server = Server("--drain-timeout", "1000", "--receive-timeout", "1000")
        stuck = server.connect()
        stuck.sendall(b"POST %s HTTP/1.1\r\nHost: q\r\nContent-Length: 100\r\n"
                      b"Expect: 100-continue\r\n\r\n" % infer_path(DEQUANTIZE).encode())
        self.assertIn(b" 100 ", stuck.recv(1000))  # the server has read the head
        server.terminate()
        server.wait_for_log("draining")  # two pending signals would become one
        with self.assertRaises(subprocess.TimeoutExpired):
            server.process.wait(0.5)
        server.process.terminate()
        server.process.wait(20 * SLOW)
        server.process.stdout.close()
        stuck.close()


if __name__ == "__main__":
    unittest.main()
