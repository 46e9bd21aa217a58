"""Replicas end, are killed, hang or come back while clients send requests, and no request fails."""
import contextlib
import os
import signal
import socket
import unittest

from fleet import Fleet, fetch, wait_until
from traffic import Traffic, binary_work, json_work

ROUNDS = int(os.environ.get("ROUNDS", "2"))  # of restarts
ALL_UP = ("UP",) * 3


class FleetTest(unittest.TestCase):
    """Three replicas behind HAProxy for the tests of a class."""

    FLAGS = ("--threads", "2", "--measure", "off")

    @classmethod
    def setUpClass(cls):
        cls.fleet = Fleet(*cls.FLAGS)
        cls.replicas, cls.proxy = cls.fleet.replicas, cls.fleet.proxy

    @classmethod
    def tearDownClass(cls):
        cls.fleet.stop()

    def setUp(self):
        for replica in self.replicas:
            if replica.server is None:
                replica.start()
        self.proxy.wait_for(*ALL_UP)
        self.at = ("127.0.0.1", self.replicas[0].server.port)

    def states_but(self, index, state):
        return [state if other == index else "UP" for other in range(3)]


class UnderLoad(FleetTest):
    def traffic(self):
        return Traffic(self.proxy.port, [json_work(self.at), binary_work(self.at, 300),
                                         binary_work(self.at, 5000)])

    def test_a_rolling_restart(self):
        """HAProxy is not told of the restarts, and the test does not wait until it has noticed
        them."""
        with self.traffic() as traffic:
            for _ in range(ROUNDS):
                for replica in self.replicas:
                    replica.restart()
                    traffic.check()

    def test_a_replica_is_killed(self):
        with self.traffic() as traffic:
            for index, replica in enumerate(self.replicas):
                replica.kill()
                traffic.go_on()
                self.proxy.wait_for(*self.states_but(index, "NOLB"))
                traffic.go_on()
                replica.start()
                self.proxy.wait_for(*ALL_UP)
                traffic.go_on()

    def test_a_replica_hangs(self):
        with self.traffic() as traffic:
            self.replicas[1].signal(signal.SIGSTOP)
            try:
                self.proxy.wait_for(*self.states_but(1, "DOWN"))
                traffic.go_on()
            finally:
                self.replicas[1].signal(signal.SIGCONT)
            self.proxy.wait_for(*ALL_UP)
            traffic.go_on()
        # Some requests were at the stopped replica. They waited for two checks, of 2 s each.
        self.assertGreater(traffic.slowest_s, 3.9)
        self.replicas[1].restart()  # shows that the replica is unharmed

    def test_the_way_to_a_replica_is_lost(self):
        """The replica's port sends nothing back, not even a refusal, like a socket whose queue is
        full. The clients start when HAProxy knows; README.md says what requests before that may
        cost."""
        with contextlib.ExitStack() as sockets:
            self.replicas[2].kill()
            there = ("127.0.0.1", self.replicas[2].port)
            hole = sockets.enter_context(socket.socket())
            hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            hole.bind(there)
            hole.listen(0)
            for _ in range(4):
                filler = sockets.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(there)
            self.proxy.wait_for(*self.states_but(2, "DOWN"))
            with self.traffic():
                pass


class AllAreGone(FleetTest):
    def refused(self):
        status, headers, text = fetch(self.proxy.address, "/v2/health/ready")
        self.assertEqual((status, headers["Content-Type"], headers["Retry-After"], text),
                         (503, "application/json", "1", '{"error":"no replica is ready"}'))

    def test_and_come_back(self):
        for name, end in (("ended", lambda replica: replica.server.stop()), ("killed", None)):
            with self.subTest(name):
                for replica in self.replicas:
                    if end:
                        end(replica)
                    else:
                        replica.kill()
                self.refused()  # whether or not HAProxy has already noticed
                self.proxy.wait_for("NOLB", "NOLB", "NOLB")
                self.refused()
                self.replicas[2].start()
                wait_until(lambda: fetch(self.proxy.address, "/v2/health/ready")[0] == 200,
                           "ready behind HAProxy")
                with Traffic(self.proxy.port, [json_work(("127.0.0.1",
                                                          self.replicas[2].server.port))]):
                    for replica in self.replicas[:2]:
                        replica.start()
                    self.proxy.wait_for(*ALL_UP)


if __name__ == "__main__":
    unittest.main()
