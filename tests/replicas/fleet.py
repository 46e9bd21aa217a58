"""Replicas of quantd on fixed ports, and the shipped HAProxy in front of them."""
import contextlib
import csv
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from quantd import ROOT, SLOW, Server, parse_metrics, read_shared, wait_until

CONFIGURATION = ROOT / "docker" / "haproxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
if HAPROXY is None:
    sys.exit("tests/replicas: expected haproxy (Debian: apt-get install haproxy), got none")

# Longer than anything takes that succeeds, so that a wait that fails reports what is missing.
PATIENCE_S = 40 * SLOW


def free_ports(count):
    """Returns ports outside the range that the kernel gives to connections, so that no connection
    takes a port while its replica is away."""
    found = []
    for port in random.sample(range(15000, 32000), 1000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("expected %d free ports, got %d" % (count, len(found)))


def fetch(address, path):
    """Sends a GET on a connection of its own. Returns (status, headers, text)."""
    try:
        with urllib.request.urlopen("http://%s%s" % (address, path), timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


class Replica:
    """One port, and the quantd that listens there, if any."""

    def __init__(self, port, flags):
        self.port = port
        self.address = "127.0.0.1:%d" % port
        self.flags = flags
        self.server = None

    def start(self):
        """Starts a server, and returns when it is ready."""
        self.server = Server(*self.flags, listen=(self.address,))
        wait_until(lambda: self.server.get("/v2/health/ready").status == 200,
                   "ready at %s" % self.address)

    def restart(self):
        self.server.stop()
        self.start()

    def signal(self, number):
        self.server.process.send_signal(number)

    def kill(self):
        """Kills the server at once, also one that hangs."""
        if self.server is not None:
            self.server.process.kill()
            self.server.process.wait()
            self.server.process.stdout.close()
            self.server.stderr_file.close()
            self.server = None

    def refusals(self, reason):
        metrics = parse_metrics(self.server.get("/metrics").body.decode())
        return metrics[("quantd_refusals_total", (("reason", reason),))]


class Proxy:
    """HAProxy with the shipped haproxy.cfg."""

    def __init__(self, replicas):
        listen, metrics, health = free_ports(3)
        self.address = "127.0.0.1:%d" % listen
        self.port = listen
        self.metrics = "127.0.0.1:%d" % metrics
        self.log = tempfile.TemporaryFile()
        environment = dict(os.environ, LISTEN=self.address, METRICS=self.metrics,
                           HEALTH="127.0.0.1:%d" % health)
        for index, replica in enumerate(replicas):
            environment["REPLICA_%d" % (index + 1)] = replica.address
        self.process = subprocess.Popen(
            [HAPROXY, "-dMglobal", "-f", str(CONFIGURATION)], env=environment,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def servers(self):
        """Returns HAProxy's statistics row of each replica."""
        try:
            rows = list(csv.DictReader(fetch(self.metrics, "/;csv")[2].lstrip("# ").splitlines()))
        except urllib.error.URLError:
            if self.process.poll() is not None:
                raise AssertionError("haproxy ended: %s" % self.said()) from None
            return []
        return [row for row in rows if row["pxname"] == "replicas" and row["svname"] != "BACKEND"]

    def states(self):
        return [server["status"].split()[0] for server in self.servers()]

    def wait_for(self, *states):
        wait_until(lambda: self.states() == list(states),
                   "%s but %s; haproxy says: %s" % (states, self.states(), self.said()))

    def busy(self):
        """Waits until one replica has a request, the only one under way. Returns the replica's
        index."""
        def found():
            return [index for index, server in enumerate(self.servers()) if server["scur"] != "0"]
        index, = wait_until(found, "a replica has the request")
        return index

    def said(self):
        return read_shared(self.log).decode(errors="replace")

    def stop(self):
        """Stops HAProxy as compose.yaml does. It answers the last request before it ends."""
        self.process.send_signal(signal.SIGUSR1)
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


class Fleet:
    """Three ready replicas, and HAProxy, which knows that they are ready."""

    def __init__(self, *flags, count=3):
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as begun:
            self.replicas = [Replica(port, flags) for port in free_ports(3)]
            for replica in self.replicas:
                begun.callback(replica.kill)
            for replica in self.replicas[:count]:
                replica.start()
            self.proxy = Proxy(self.replicas)
            begun.callback(self.proxy.stop)
            self.proxy.wait_for(*["UP"] * count + ["NOLB"] * (3 - count))
            self.stack = begun.pop_all()

    def stop(self):
        self.stack.close()
