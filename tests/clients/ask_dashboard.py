"""Checks docker/prometheus and docker/grafana against a running quantd, which a Prometheus scrapes:
ask_dashboard.py URL PROMETHEUS PROMTOOL

PROMETHEUS and PROMTOOL are Prometheus' own programs. promtool checks and tests the alerts. Each
query of the dashboard must return numbers, and no query may name a metric that /metrics does not
have. The server must run with --max-inflight-bytes 1M, so that it refuses something.
"""
import json
import math
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

from scrape_prometheus import BODY, VERSION, Prometheus, get

DOCKER = Path(__file__).resolve().parent.parent.parent / "docker"
RULES = DOCKER / "prometheus" / "alerts.yml"
RULES_TEST = DOCKER / "prometheus" / "alerts_test.yml"
DASHBOARD = DOCKER / "grafana" / "quantd.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRID_COLUMNS = 24
PATH = "/v2/models/%(model)s/versions/%(version)s/infer" % VERSION
METRIC = re.compile(r"\b(?:quantd|nv|process)_\w+")
VARIABLES = {"$__rate_interval": "5s", "$job": ".*", "$instance": ".*", "$model": ".*"}


def fail(where, problem):
    sys.exit("%s: %s" % (where, problem))


# ---- The files alone -----------------------------------------------------------------------------


def check_rules(promtool):
    for command in (["check", "config", RULES.parent / "prometheus.yml"], ["check", "rules", RULES],
                    ["test", "rules", RULES_TEST]):
        result = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            fail("promtool " + command[0], " ".join((result.stdout + result.stderr).split()))
    cases = re.findall(r"alertname: (\w+)\n *exp_alerts:( \[\])?", RULES_TEST.read_text())
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text()):
        for empty, what in (("", "fires"), (" []", "does not fire")):
            if (alert, empty) not in cases:
                fail(RULES_TEST.name, "no case in which %s %s" % (alert, what))


def check_place(panel, taken):
    place = panel["gridPos"]
    if place["x"] + place["w"] > GRID_COLUMNS:
        fail(panel["title"], "it leaves the grid")
    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])}
    if cells & taken:
        fail(panel["title"], "it lies on another panel")
    taken |= cells


def check_dashboard(dashboard):
    """Returns the panels that have queries, and checks that each panel has all that its reader
    needs."""
    panels = dashboard["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        fail(DASHBOARD.name, "two panels have one id")
    taken = set()
    for panel in panels:
        check_place(panel, taken)
        if panel["type"] == "row":
            continue
        if not (panel["description"] and panel["fieldConfig"]["defaults"]["unit"]):
            fail(panel["title"], "no description, or no unit")
        references = [target["refId"] for target in panel["targets"]]
        if not references or len(set(references)) != len(references):
            fail(panel["title"], "expected targets, each with a refId of its own")
        for place in (panel, *panel["targets"]):
            if place["datasource"] != DATASOURCE:
                fail(panel["title"], "its datasource is not the variable")
    return [panel for panel in panels if panel["type"] != "row"]


# ---- With a server -------------------------------------------------------------------------------


def check_names(url, *texts):
    """Checks that the texts name no metric that the server lacks."""
    there = set(re.findall(r"^(\w+)", get(url + "/metrics").decode(), re.MULTILINE))
    unknown = sorted(set(METRIC.findall("\n".join(texts))) - there)
    if unknown:
        fail("not in /metrics", ", ".join(unknown))


class Load:
    """Sends inferences, requests to an unknown model and bodies that are too large for the memory,
    until stopped."""

    def __init__(self, url):
        self.url, self.over = url, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        large = b" " * (2 << 20) + BODY
        while not self.over.wait(0.02):
            for path, body in ((PATH, BODY), ("/v2/models/nope/infer", BODY), (PATH, large)):
                try:
                    get(urllib.request.Request(self.url + path, body))
                except (urllib.error.URLError, ConnectionError):
                    pass

    def stop(self):
        self.over.set()
        self.thread.join()


def expand(text):
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    if "$" in text:
        fail(text, "a variable that is not known")
    return text


def has_numbers(prometheus, query):
    return any(math.isfinite(value) for _, value in prometheus.query(query))


def check_queries(prometheus, panels):
    for panel in panels:
        for target in panel["targets"]:
            query = expand(target["expr"])
            prometheus.wait_for("%s returns a number: %s" % (panel["title"], query),
                                lambda query=query: has_numbers(prometheus, query))
    for query in ('rate(quantd_refusals_total{reason="memory"}[5s]) > 0',
                  'rate(quantd_answers_total{code="404"}[5s]) > 0'):
        prometheus.wait_for(query, lambda query=query: has_numbers(prometheus, query))


def check_variables(prometheus, dashboard):
    for variable in dashboard["templating"]["list"]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.get("definition", ""))
        if variable["type"] != "query":
            continue
        if match is None or not any(match[2] in labels for labels, _
                                    in prometheus.query(expand(match[1]))):
            fail(variable["name"], "it has no values")


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: ask_dashboard.py URL PROMETHEUS PROMTOOL")
    url, program, promtool = sys.argv[1:]
    dashboard = json.loads(DASHBOARD.read_text())
    panels = check_dashboard(dashboard)
    get(urllib.request.Request(url + PATH, BODY))  # histograms appear with the first request
    check_names(url, RULES.read_text(), DASHBOARD.read_text())
    check_rules(promtool)
    load = Load(url)
    with tempfile.TemporaryDirectory() as folder:
        prometheus = Prometheus(program, url.removeprefix("http://"), folder)
        try:
            check_queries(prometheus, panels)
            check_variables(prometheus, dashboard)
        finally:
            load.stop()
            prometheus.stop()
    print("asked")


if __name__ == "__main__":
    main()
