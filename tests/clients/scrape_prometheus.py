"""Has a Prometheus scrape a running quantd, and compares what it stored with what the server says:
scrape_prometheus.py URL PROMETHEUS PROMTOOL

PROMETHEUS and PROMTOOL are Prometheus' own programs. promtool checks the text first. It may
complain of Triton's names, which exist because dashboards use them, but of nothing else.
"""
import json
import math
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TRITONS = "nv_inference_"
SECONDS_MAX = 30
CONFIGURATION = """
scrape_configs:
  - job_name: quantd
    scrape_interval: 250ms
    scrape_timeout: 250ms
    static_configs: [{targets: ["%s"]}]
"""
BODY = json.dumps({"inputs": [
    {"name": "x", "datatype": "UINT8", "shape": [4], "data": [0, 128, 129, 255]},
    {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]}]}).encode()
VERSION = {"model": "onnx.DequantizeLinear", "version": "13"}
STAGES = ("receive", "queue", "decode", "compute", "encode", "total", "send")


def get(url):
    with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
        return answer.read()


def check_text(text, promtool):
    """Checks the text with promtool. Returns its complaints without those about Triton's names."""
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                            check=False)
    lines = (result.stdout + result.stderr).decode().splitlines()
    others = [line for line in lines if line and not line.startswith(TRITONS)]
    if others:
        sys.exit("promtool: " + "; ".join(others))


class Prometheus:
    """A Prometheus that runs in a folder of its own and scrapes only this server."""

    def __init__(self, program, target, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % probe.getsockname()[1]
        configuration = Path(folder) / "prometheus.yml"
        configuration.write_text(CONFIGURATION % target)
        self.log = open(Path(folder) / "log", "w+b")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [program, "--config.file=%s" % configuration, "--storage.tsdb.path=%s/data" % folder,
             "--web.listen-address=" + self.address], stdout=self.log, stderr=self.log,
            stdin=subprocess.DEVNULL, cwd=folder)

    def stop(self):
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        self.log.close()

    def ask(self, path):
        return json.loads(get("http://%s/api/v1/%s" % (self.address, path)))["data"]

    def query(self, expression):
        """Returns the query's result: labels -> value."""
        data = self.ask("query?query=" + urllib.parse.quote(expression))
        return [(entry["metric"], float(entry["value"][1])) for entry in data["result"]]

    def one(self, expression):
        found = self.query(expression)
        if len(found) != 1:
            sys.exit("%s: expected one value, got %s" % (expression, found))
        return found[0]

    def wait_for(self, what, test):
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            try:
                if test():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            target = None
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit("prometheus ended: %r" % self.log.read()[-500:].decode())
            try:
                target = self.ask("targets")["activeTargets"][0]
            except (urllib.error.URLError, ConnectionError, IndexError):
                pass
            if target is not None and target["lastError"]:
                sys.exit("prometheus: " + target["lastError"])
            time.sleep(0.05)
        sys.exit("prometheus: not within %d s: %s" % (SECONDS_MAX, what))


def samples_of(text):
    return [line for line in text.decode().splitlines() if line and not line.startswith("#")]


def expression(name, **labels):
    return "%s{%s}" % (name, ",".join('%s="%s"' % pair for pair in labels.items()))


def compare(prometheus, url, count):
    """Checks one metric of each kind whose value is known."""
    successes = expression("nv_inference_request_success", **VERSION)
    prometheus.wait_for("%s is %d" % (successes, count),
                        lambda: [value for _, value in prometheus.query(successes)] == [count])
    for stage in STAGES:
        histogram = expression("quantd_stage_duration_seconds_count", stage=stage, **VERSION)
        if prometheus.one(histogram)[1] != count:
            sys.exit("%s: expected %d, got %g" % (histogram, count, prometheus.one(histogram)[1]))
        quantile = prometheus.one("histogram_quantile(0.99, %s)" % expression(
            "quantd_stage_duration_seconds_bucket", stage=stage, **VERSION))[1]
        if not 0 < quantile < math.inf:
            sys.exit("stage %s: no quantile but %g" % (stage, quantile))
    listener = prometheus.one("quantd_listener_connections_max")[0]["listener"]
    if listener != url:
        sys.exit("expected the listener %s, got %s" % (url, listener))
    for name in ("process_resident_memory_bytes", "process_open_fds", "quantd_workers"):
        if not prometheus.one(name)[1] > 0:
            sys.exit("%s is 0" % name)
    scraped = prometheus.one("scrape_samples_scraped")[1]
    told = len(samples_of(get(url + "/metrics")))
    if abs(scraped - told) > 2:  # a new HTTP status adds a sample meanwhile
        sys.exit("the server tells %d samples, prometheus has %d" % (told, scraped))


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: scrape_prometheus.py URL PROMETHEUS PROMTOOL")
    url, program, promtool = sys.argv[1:]
    path = "/v2/models/%(model)s/versions/%(version)s/infer" % VERSION
    before = 0
    for line in samples_of(get(url + "/metrics")):
        match = re.fullmatch(r'nv_inference_request_success\{model="%(model)s",'
                             r'version="%(version)s"\} (\d+)' % VERSION, line)
        before = int(match[1]) if match else before
    for _ in range(3):
        get(urllib.request.Request(url + path, BODY))
    check_text(get(url + "/metrics"), promtool)
    with tempfile.TemporaryDirectory() as folder:
        prometheus = Prometheus(program, url.removeprefix("http://"), folder)
        try:
            compare(prometheus, url, before + 3)
        finally:
            prometheus.stop()
    print("scraped")


if __name__ == "__main__":
    main()
