"""Runs the conformance suites against a server: run.py [--url URL] [--seed N] [--only CASE] ...

    --url URL      a server that runs already, with --model-control-mode explicit; without it,
                   build/quantd on a port of its own
    --seed N       other random cases (default 1)
    --cases N      at least N random cases for each operator (default 2000), N / 10 random files
                   and graphs, and 10 N random graphs of the form QDQ
    --only CASE    one case, as a failure names it: dequantize/17, golden/dql-a01, node/NAME,
                   files/NAME, networks/NAME, operators/NAME, graphs/17, pairs/17; or all cases that
                   begin like this: golden/
    --ways LIST    of json,binary,carrier,triton; without it, all
    --newest-only  do not compare with the release of ONNX Runtime before the newest

The table goes to build/conformance/RESULTS.md, and to tests/conformance/RESULTS.md when all suites
ran as they do by default. Exit status 1: a case failed, or CI=true and an expected package is
missing. The last line is "N passed, N failed", counted in cases.
"""
import argparse
import contextlib
import itertools
import json
import os
import platform
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import cases  # noqa: E402
import client  # noqa: E402
from elements import same_bits  # noqa: E402
from quantd import ROOT, Server  # noqa: E402
from table import Table  # noqa: E402

HOME = ROOT / "build" / "conformance"
FAILURES = HOME / "failures"
REPOSITORY = HOME / "models"
SAY_SECONDS = 5
SHOWN_MAX = 10
PAIRS = 10  # random graphs of the form QDQ for each random case of an operator
BOTH = "ONNX Runtime refuses it, too, with its optimizations or without them"

# Suite -> the modules without which it cannot run.
NEEDS = {"node": ("numpy", "ml_dtypes", "onnx"),
         "dequantize": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "quantize": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "conv": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "directml": ("numpy",),
         "tensorflow": ("numpy", "tensorflow"),
         "golden": (),
         "files": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "networks": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "operators": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "nodes": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "graphs": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "pairs": ("numpy", "ml_dtypes", "onnx", "onnxruntime"),
         "triton": ("numpy", "ml_dtypes", "tritonclient.http")}
NAMES = {"node": "onnx node tests", "golden": "golden cases", "files": "ONNX files",
         "networks": "networks", "nodes": "node tests as files", "graphs": "random graphs",
         "pairs": "random graphs of the form QDQ",
         "triton": "Triton's Python client"}

NOTES = [" ".join(note.split()) for note in """
DequantizeLinear: ONNX Runtime has no BF16, no FP8E8M0, no FP4E2M1 and no output_dtype that
differs from the scale's type; onnx's reference evaluator judges those.

DequantizeLinear of INT32 with a zero point: quantd subtracts modulo 2^32, as ONNX Runtime does.
The reference subtracts in floating point; where only it has the types, the written rule judges:
wrap, round to float32, multiply in float32, round to the output type.

DequantizeLinear: all oracles multiply in float32 and round once to the output type, whatever "the
output type also determines the precision of the multiplication" may mean. So does quantd.

DequantizeLinear: a one-dimensional x with one block is accepted, as by the reference; ONNX
Runtime refuses it.

QuantizeLinear: ONNX Runtime has x and y_scale of FP32 and FP16, but no FP4E2M1 and no division in
BF16; onnx's reference evaluator judges the others. Where the two differ, ONNX Runtime's is the
answer: kernels/quantize/quantize.h says where.

QuantizeLinear since opset 23 divides in the type of y_scale, says the definition, and so does
ONNX Runtime. The reference takes NumPy's common type of x and y_scale instead: of FP32 and BF16,
FP32; of INT32 and any, FP64. It gets the type of y_scale as precision, unless that is INT32 or
FP8E8M0.

QuantizeLinear: the reference converts infinity, NaN and quotients beyond 32 bits to INT32_MIN,
which is no saturation. Where it would judge a case with such a quotient, the written rule does.

QuantizeLinear of nothing in blocks crashes ONNX Runtime: the written rule, no bytes, judges.

QLinearConv: ONNX Runtime has kernels for three of the eight combinations of types. The others
reach it as UINT8, with 128 added to a tensor and to its zero point, which changes no result.

QLinearConv: SAME padding reaches ONNX Runtime as explicit pads, computed by the operator's
definition: it refuses dilations with SAME, and skips elements where the stride exceeds the
kernel.

ONNX files: each is loaded, by turns in the call as Triton's client does it, and from a folder with
external data; asked in all ways but the carrier form; and unloaded. The random ones are chains of
QuantizeLinear, one to four QLinearConv and DequantizeLinear. ONNX Runtime's quantizer is given
networks of floats, with convolutions of all kinds; of what it makes, the parts that quantd knows
are taken.

Networks: each is made of floats and quantized by ONNX Runtime as QOperator and as QDQ, and computed
in its default session, but with session.qdqisint8allowed. The quantizer's file is loaded unchanged,
and, as QOperator, once more with all values between the nodes as outputs; with batch 1, batch 3,
and a batch of any size, which is also asked for zeros, for tiny and for huge numbers.

Operators: each case is a node with random types, shapes and attributes, asked by the operator's
endpoint, or, of operators that only graphs have, loaded as a file. Where both refuse, both are
right; what only one refuses is counted by the reason that it gives. Of QLinearAdd and QLinearMul,
16 cases are all pairs of codes.

Random graphs: 2 to 12 operators with random shapes and attributes, branches and several outputs,
for a part of them all values; UINT8, INT8 and floats; loaded with fixed sizes or a batch of any
size, which is then asked for three batches. An answer passes if it has the bits of ONNX Runtime
with its optimizations or without them. These differ in linear Resize that is moved into NHWC, in
averages of floats in blocks of 16 channels, in pairs of DequantizeLinear and QuantizeLinear that
are merged, and where a size of MaxPool or Resize that ONNX Runtime infers is not the one that it
computes. quantd then has the bits of the operators as the file has them.

Random graphs of the form QDQ: operators on floats, most of them between DequantizeLinear and
QuantizeLinear, with codes of UINT8, of INT8, or of both. A graph is compared part by part: ONNX
Runtime computes the value of each QuantizeLinear, and each output, from the codes that quantd has
computed before. A part that has other bits than in a session with defaults must match a row of the
table of differences in api_schema/loading.md, and the outcome is that row. INT8 activations must
have the bits of a session with session.qdqisint8allowed. All other codes must be the exact result,
computed in FP64, rounded to the nearest code: they lie at most 0.501 from it, or 0.601 where a bias
of floats is quantized at load. Floats of a product may differ in their last bits. If no part
differs, the whole must have the bits of a session in which the codes between the parts are outputs,
or which keeps INT8. A graph or a part that ONNX Runtime refuses with its defaults must have the
bits of another session, or be the exact result in the same way. The answer must also have the same
bits if the codes of all parts are outputs.

Of some operators, ONNX Runtime computes the last elements, which fill no vector, by another
function. Only there may Celu, Elu, Log, Mish, Selu and Softplus differ in last bits, and Max and
Min in which one of two zeros they return. Float pools are compared with ONNX Runtime's level
ORT_ENABLE_EXTENDED: the level above it arranges channels by the CPU's vectors, and then adds in an
order that differs from CPU to CPU.

Node tests as files: all tests of the onnx package whose operators the table of
api_schema/loading.md has, unchanged. ONNX Runtime gives the right bits, with opset 25 if it refuses
the test's opset. The test's own bits are right if ONNX Runtime refuses that, too. Where the two
differ, they agree within the test's tolerance, but for one test of Resize. A refusal is a failure
unless loading.md says that quantd refuses such nodes.

DirectML runs on Windows alone. Its oracle is the documentation's formula in NumPy: widen,
subtract exactly, round to float32, multiply, round to the output type.

TensorFlow runs with TF_ENABLE_ONEDNN_OPTS=0: its own kernels. oneDNN's have other arithmetic for
quint8 and qint8, and none for the other types.
""".split("\n\n")]


def say(text):
    print(text, flush=True)


def load_oracles():
    """Imports the oracles. An oracle imports its packages itself, and oracles without their
    packages are never asked for."""
    import oracles
    return oracles


def difference(answer, wants, allowance=None):
    """Returns a text on what is wrong with the outputs. None: nothing. `allowance`: an
    operators.Allowance."""
    if list(answer) != [want[0] for want in wants]:
        return "outputs %s, expected %s" % (list(answer), [want[0] for want in wants])
    for name, datatype, shape, raw in wants:
        if answer[name][:2] != (datatype, shape):
            return "%s: got %s %s, expected %s %s" % (name, *answer[name][:2], datatype, shape)
        if not same_bits(datatype, answer[name][2], raw) and not (
                allowance and allowance.allows(datatype, answer[name][2], raw)):
            return "%s\n    got      %s\n    expected %s" % (name, answer[name][2].hex(), raw.hex())
    return None


class Run:
    """One run: the server, the ways of asking it, the counts."""

    def __init__(self, url, options):
        self.url, self.options = url, options
        self.clients = [client.Plain(url, way) for way in ("json", "binary", "carrier")
                        if way in options.ways]
        self.table = Table()
        self.passed = self.failed = self.unjudged = self.requests = 0
        self.previous = None  # the previous release of ONNX Runtime

    def wanted(self, name):
        only = self.options.only
        return only is None or name == only or (only.endswith("/") and name.startswith(only))

    def differences(self, case, want, allowance=None):
        """Yields (client, what is wrong) for each way in which the case fails. `want`: an output,
        or a list of outputs. None: the server must refuse."""
        for way in self.clients:
            if not way.takes(case):
                continue
            self.requests += 1
            try:
                answer = way.infer(case)
            except client.Refused as refusal:
                status, text = refusal.args
                if want is not None or status != 400 or not text:
                    yield way, "refused with %d: %s" % (status, text)
                continue
            except Exception as error:  # a broken connection, or an answer that is not OIP
                yield way, "%s: %s" % (type(error).__name__, error)
                continue
            if want is None:
                yield way, "accepted, but must be refused"
                continue
            wrong = difference(answer, want if isinstance(want, list) else [want], allowance)
            if wrong:
                yield way, wrong

    def check(self, suite, key, case, want, oracle):
        found = list(self.differences(case, want))
        self.table.add(suite, key, not found, oracle)
        if not found:
            self.passed += 1
            return
        self.failed += 1
        if self.failed > SHOWN_MAX:
            return
        self.show(case, found, suite)
        if self.failed == SHOWN_MAX:
            say("Further failures are only counted.")

    def show(self, case, found, suite):
        """Prints what fails, once for all ways that fail alike, and how to reproduce it."""
        seed = ", seed %s" % self.options.seed if suite == "random cases" else ""
        say("FAILED %s%s: %s version %s, %s %s" % (case.name, seed, case.model, case.version,
                                                   case.kind, case.granularity))
        say("    attributes %s, inputs %s" % (case.attributes, ", ".join(
            "%s %s%s" % (tensor.name, tensor.datatype, tensor.shape) for tensor in case.tensors)))
        for what in dict.fromkeys(what for _, what in found):
            ways = [way for way, its in found if its == what]
            say("    as %s: %s" % (", ".join(way.way for way in ways), what[:2000]))
            say("    " + client.curl(ways[0], case, self.options.url or "http://127.0.0.1:8000",
                                     FAILURES))

    # ---- Suites ------------------------------------------------------------------------------

    def node(self):
        import onnx
        for case, want in load_oracles().node_cases():
            if isinstance(case, str):
                self.table.notes.append("Node test %s is left out: quantd has no %s."
                                        % (case, want))
            elif self.wanted(case.name):
                test = "%s, %s" % (case.name.partition("/")[2], case.granularity)
                self.check(NAMES["node"], (case.model, case.version, case.kind, test), case, want,
                           "onnx " + onnx.__version__)

    def golden(self):
        for case, want in cases.golden_cases():
            if self.wanted(case.name):
                kind = case.kind if want is not None else "refusals"
                self.check(NAMES["golden"], (case.model, case.version, kind), case, want,
                           "tests/data/golden_cases.jsonl")

    def loads(self):
        """Returns the server's loader, and functions that load a file, to be used in turn: by
        sending the file in the call, and from the repository, if this process may write that."""
        loader = client.Loader(self.url, None if self.options.url else REPOSITORY)
        ways = [loader.load]
        if loader.repository:
            ways += [lambda *args: loader.load_folder(*args, threshold=0), loader.load,
                     lambda *args: loader.load_folder(*args, threshold=16)]
        return loader, itertools.cycle(ways)

    def not_loaded(self, suite, key, name, oracle, refusal):
        self.table.add(suite, key, False, oracle)
        self.failed += 1
        say("FAILED %s: not loaded: %d: %s" % (name, *refusal.args))

    def files(self):
        """Loads one file after the other under one name, and checks each."""
        import onnx_files
        loader, loads = self.loads()
        for key, file in onnx_files.all_files(int(self.options.seed), self.options.cases // 10):
            if not self.wanted("files/" + file.name):
                continue
            case = cases.Case("files/" + file.name, "loaded", "1", *key, file.inputs, {})
            try:
                next(loads)(case.model, file.model)
            except client.Refused as refusal:
                self.not_loaded(NAMES["files"], key, case.name, file.oracle, refusal)
                continue
            self.check(NAMES["files"], key, case, file.wants, file.oracle)
            loader.unload(case.model)

    def networks(self):
        """Checks networks as the files. One whose operators the server lacks is skipped, and
        counted."""
        import networks
        loader, loads = self.loads()
        compared, skipped = 0, {}
        for network in networks.networks(int(self.options.seed)):
            reason = network.skipped
            for name, model, inputs in network.files if reason is None else ():
                if not self.wanted("networks/" + name):
                    continue
                key = network.name, network.way
                try:
                    next(loads)("loaded", model)
                except client.Refused as refusal:
                    reason = networks.lacks(refusal.args[1])
                    if reason:
                        break
                    self.not_loaded("networks", key, "networks/" + name, "none", refusal)
                    continue
                for file in networks.judge(name, model, inputs):
                    case = cases.Case("networks/" + file.name, "loaded", "1", *key, file.inputs, {})
                    self.check("networks", key, case, file.wants, file.oracle)
                    compared += len(file.wants)
                loader.unload("loaded")
            if reason:
                skipped.setdefault((network.name, reason), []).append(network.way)
        say("networks: %d values compared in each way of asking" % compared)
        for (name, reason), quantized in skipped.items():
            text = "%s (%s): %s" % (name, "; ".join(quantized), reason)
            say("SKIPPED network " + text)
            self.table.notes.append("Skipped network %s." % text)

    def nodes(self):
        """Loads the tests of all operators that quantd has in graphs. ONNX Runtime's bits are
        right, and the test's where it has none; both must be within the test's tolerance."""
        import node_tests
        import operators
        loader, unknown = self.loads()[0], Counter()
        with operators.Judge() as judge:
            for test in node_tests.tests():
                if self.wanted("nodes/" + test.name) and not test.unknown:
                    self.node_test(test, loader, judge)
                unknown[test.unknown] += 1
        del unknown[None]
        counts = Counter()
        for (_, outcome), row in self.table.suites.get(NAMES["nodes"], {}).items():
            counts[outcome] += row.run
        for title, found in (("Node tests as files, by outcome: ", counts),
                             ("Node tests that are not asked, because quantd has no such values: ",
                              unknown)):
            self.table.notes.append(title + "; ".join(
                "%d %s" % (count, what) for what, count in found.most_common()) + ".")

    def node_test(self, test, loader, judge):
        import node_tests
        import operators
        want, oracle = node_tests.judged(judge, test)
        case = cases.Case("nodes/" + test.name, "loaded", "1", "", "", test.inputs, {})
        allowance = operators.Allowance(test.operator,
                                        (tuple(item.shape) for item in test.inputs))
        found = self.ask_loaded(loader, test.model, case, want, allowance)
        other = node_tests.OTHERS.get(test.name)
        if not other and not node_tests.is_near(test, want):
            found.append((None, "%s is beyond the test's tolerance" % oracle))
        refused = [what for _, what in found if what.startswith("refused with 400")]
        said = node_tests.explained(refused[0]) if refused else None
        outcome = ("refused: " + (said or "for no known reason") if refused else
                   "the test's bytes" if want == test.wants else
                   other or "within the test's tolerance")
        passed = bool(said) or not found
        self.table.add(NAMES["nodes"], (test.operator, outcome), passed,
                       "none" if refused else oracle)
        self.passed += passed
        self.failed += not passed
        if found and not said and self.failed <= SHOWN_MAX:
            self.show(case, [(way or self.clients[0], what) for way, what in found],
                      NAMES["nodes"])

    def versions(self, model):
        """Returns the versions of an operator, as the server lists them."""
        with urllib.request.urlopen("%s/v2/models/%s" % (self.url, model)) as answer:
            return [int(version) for version in json.load(answer)["versions"]]

    def operators(self):
        """Compares nodes with ONNX Runtime. What one side refuses is counted by reason; it is a
        failure only if quantd refuses and no document says so."""
        import numpy as np
        import onnxruntime
        import operators
        loader, oracle = self.loads()[0], "ONNX Runtime " + onnxruntime.__version__
        with operators.Judge() as judge:
            for name, model, version, node, domain, endpoint in operators.random_cases(
                    int(self.options.seed), self.options.cases // 10, self.versions):
                if not self.wanted(name):
                    continue
                op = model.rpartition(".")[2]
                file = operators.proto(op, domain, version, node)
                want, why = judge.run(op, file, node)
                case = cases.Case(name, model, str(version), "", "", operators.tensors(node),
                                  node.attributes)
                allowance = operators.Allowance(op, map(np.shape, node.operands.values()))
                if endpoint:
                    found = list(self.differences(case, want, allowance))
                else:
                    case.model, case.version, case.attributes = "loaded", "1", {}
                    found = self.ask_loaded(loader, file, case, want, allowance)
                self.compare(model, case, want, why or allowance.used, found, oracle)

    def ask_loaded(self, loader, file, case, want, allowance):
        """Returns what is wrong with the answers of a file. If the file is refused, no way of
        asking is named."""
        try:
            loader.load(case.model, file)
        except client.Refused as refusal:
            return [(None, "refused with %d: %s" % refusal.args)]
        found = list(self.differences(case, want, allowance))
        loader.unload(case.model)
        return found

    def compare(self, model, case, want, why, found, oracle):
        """Counts the case by what both sides did. `why`: why ONNX Runtime refuses, or what is
        allowed to differ."""
        import operators
        refused = [what for _, what in found if what.startswith("refused with 400")]
        said = operators.explained(model, refused[0]) if refused else None
        outcome, passed = "the same bytes" if want is not None else "both refuse", not found
        if want is None and (not found or found[0][0] is None):
            passed = True
        elif want is None and all(what.startswith("accepted") for _, what in found):
            outcome, passed = "only ONNX Runtime refuses: " + why, True
        elif said:
            outcome, passed = "only quantd refuses: " + said, True
        elif refused:
            outcome = "only quantd refuses: " + operators.reason(refused[0])
        elif want is not None and passed and why:
            outcome = why
        self.table.add("operators", (model, outcome), passed, oracle)
        self.passed += passed
        self.failed += not passed
        if not passed and self.failed <= SHOWN_MAX:
            self.show(case, [(way or self.clients[0], what) for way, what in found], "random cases")

    def graphs(self):
        """Checks random graphs. ONNX Runtime's levels differ, so each may be the judge."""
        import graphs
        import onnxruntime
        loader, loads = self.loads()
        oracle, gaps = "ONNX Runtime " + onnxruntime.__version__, Counter()
        start, end = self.numbers(self.options.cases // 10)
        with contextlib.closing(graphs.judged(int(self.options.seed), start, end)) as made:
            for number, model, judged in made:
                name, few = "graphs/%d" % number, len(model.graph.node) < 8
                key = ("fewer than 8 nodes" if few else "8 nodes or more", "")
                try:
                    next(loads)("loaded", model)
                except client.Refused as refusal:
                    self.graph_refused(key, name, oracle, refusal, judged, gaps)
                    continue
                for tensors, wants in judged:
                    case = cases.Case(name, "loaded", "1", "graph", "", tensors, {})
                    self.graph(case, key, wants, oracle, gaps)
                loader.unload("loaded")
        for what, count in sorted(gaps.items()):
            self.table.notes.append("Random graphs: %d refused: %s." % (count, what))

    def graph_refused(self, key, name, oracle, refusal, judged, gaps):
        import graphs
        both = all(graphs.refused(wants) for _, wants in judged)
        gap = BOTH if both else graphs.gap(refusal.args[1])
        if gap:
            gaps[gap] += 1
        else:
            self.not_loaded("random graphs", key, name, oracle, refusal)

    def graph(self, case, key, wants, oracle, gaps):
        """Checks one request to a graph. It is not sent if both runs of ONNX Runtime refuse it."""
        import graphs
        either = graphs.refused(wants)
        wants = [want for want in wants if not isinstance(want, str)]
        if not wants:
            return
        found = list(self.differences(case, wants[0]))
        gap = graphs.gap(found[0][1]) if found else None
        if either and found and all(what.startswith("refused with 400") for _, what in found):
            gap = BOTH
        if gap:
            gaps[gap] += 1
            return
        if found and len(wants) > 1:
            found = list(self.differences(case, wants[1]))
        self.table.add("random graphs", key, not found, oracle)
        self.passed += not found
        self.failed += bool(found)
        if found and self.failed <= SHOWN_MAX:
            self.show(case, found, "random cases")

    def pairs(self):
        """Checks random graphs of the form QDQ, value by value. Differences are counted by their
        row in loading.md's table."""
        import onnxruntime
        import oracles
        import pairs
        loader, loads = self.loads()
        way = client.Plain(self.url, "binary")
        suite, oracle = NAMES["pairs"], "ONNX Runtime " + onnxruntime.__version__

        def ask(model, feed):
            next(loads)("loaded", model)
            tensors = [oracles.Tensor(*oracles.out(*item)) for item in feed.items()]
            self.requests += 1
            found = way.infer(cases.Case(name, "loaded", "1", "", "", tensors, {}))
            return {key: pairs.array_of(*value) for key, value in found.items()}

        text = (ROOT / "api_schema" / "loading.md").read_text()
        absent = [row for row in pairs.DOCUMENTED if "\n| %s |" % row not in text]
        if absent:
            self.failed += 1
            say("FAILED pairs: api_schema/loading.md lacks the rows %s" % absent)
        runtime = pairs.Runtime()
        start, end = self.numbers(PAIRS * self.options.cases)
        for number in range(start, end):
            name = "pairs/%d" % number
            model, feed = pairs.make(int(self.options.seed), number)
            try:
                outcome, wrong = pairs.comparison(model, feed, ask, runtime)
            except client.Refused as refusal:
                outcome = pairs.gap(model, refusal.args[1])
                wrong = None if outcome else "refused with %d: %s" % refusal.args
                outcome = "refused: " + (outcome or "for no known reason")
            self.table.add(suite, (outcome, ""), not wrong, oracle)
            self.passed += not wrong
            self.failed += bool(wrong)
            if wrong and self.failed <= SHOWN_MAX:
                say("FAILED %s, seed %s: %s" % (name, self.options.seed, wrong[:2000]))
        runtime.close()
        loader.unload("loaded")

    def numbers(self, count):
        """Returns the first number of the random graphs, and the one behind the last."""
        if self.options.only and not self.options.only.endswith("/"):
            number = int(self.options.only.partition("/")[2])
            return number, number + 1
        return 0, count

    def random(self, family, oracle):
        _, rows, _ = cases.FAMILIES[family]
        count = -(-self.options.cases // len(rows)) * len(rows)
        numbers = range(count)
        if self.options.only and not self.options.only.endswith("/"):
            numbers = [int(self.options.only.partition("/")[2])]
        # Go row by row, so that the table has the rows in order.
        said = time.monotonic()
        for done, number in enumerate(sorted(numbers, key=lambda n: (n % len(rows), n))):
            case = cases.random_case(self.options.seed, family, number)
            try:
                name, *output = oracle.run(case)
            except load_oracles().Unsupported as error:
                self.unjudged += 1
                say("NO ORACLE %s: %s" % (case.name, error))
                continue
            want = ({"directml": "OutputTensor", "tensorflow": "output"}.get(family, "y"), *output)
            self.check("random cases", (case.model, case.version, case.kind, case.granularity),
                       case, want, name)
            self.compare_previous(case, want)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                say("%s: %d of %d, %d failed so far" % (family, done, len(numbers), self.failed))

    def compare_previous(self, case, want):
        """Checks that the previous release gives the same answer, or that its difference is a known
        one."""
        if self.previous is None or not case.model.startswith("onnx."):
            return
        answer = self.previous.run(case)
        if answer is None:
            return
        same = answer[1] == want[2] and same_bits(want[1], answer[2], want[3])
        known = load_oracles().known_difference(case)
        self.table.compare(case.model, known, same)
        if not same and not known:
            self.failed += 1
            say("FAILED %s: %s differs, and nobody has said why: %s, expected %s"
                % (case.name, self.previous.name, answer[2].hex()[:200], want[3].hex()[:200]))

    def suite(self, name):
        before = self.passed, self.failed
        start = time.monotonic()
        if name in cases.FAMILIES:
            oracle = getattr(load_oracles(), {"dequantize": "Dequantize",
                                              "quantize": "Quantize", "conv": "Conv",
                                              "directml": "DirectML",
                                              "tensorflow": "TensorFlow"}[name])()
            self.random(name, oracle)
            if name == "conv":
                self.table.notes.append(
                    "QLinearConv: onnx's reference evaluator, as a second opinion where it can "
                    "compute the case, gives another value for %d of %d outputs: it adds the zero "
                    "point before it rounds, and in float64." % (oracle.differ, oracle.compared))
        else:
            getattr(self, name)()
        say("%s: %d passed, %d failed, in %.0f s" % (NAMES.get(name, "random " + name),
                                                     self.passed - before[0],
                                                     self.failed - before[1],
                                                     time.monotonic() - start))


def missing_modules():
    """Returns module -> what setup says about it, for the missing modules."""
    modules = json.loads((HOME / "setup.json").read_text())["modules"]
    return {module: state for module, state in modules.items() if "missing" in state}


def made_with():
    """Returns a line that names the CPU and the versions of the packages."""
    modules = json.loads((HOME / "setup.json").read_text())["modules"]
    found = ["%s %s" % (module.partition(".")[0], state["version"])
             for module, state in modules.items() if "version" in state and module != "previous"]
    cpu = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    model = "%s, family %s, model %s" % (cpu.get("model name", platform.machine()),
                                         cpu.get("cpu family", "-"), cpu.get("model", "-"))
    return "CPU: %s. Python %s, %s." % (model, platform.python_version(), ", ".join(found))


def skipped_suites(missing):
    """Returns suite -> why it is skipped."""
    result = {}
    for suite, modules in NEEDS.items():
        lacking = [module for module in modules if module in missing]
        if lacking:
            result[suite] = ", ".join("no %s: %s" % (module, missing[module]["missing"])
                                      for module in lacking)
    return result


def run_suites(run, skipped):
    if "triton" not in skipped and "triton" in run.options.ways:
        run.clients.append(client.Triton(run.url))
    only = run.options.only
    for suite in NEEDS:
        if suite == "triton" or suite in skipped or (only and not only.startswith(suite + "/")):
            continue
        run.suite(suite)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--url")
    parser.add_argument("--seed", default=1)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--only")
    parser.add_argument("--ways", default="json,binary,carrier,triton")
    parser.add_argument("--newest-only", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    missing = missing_modules()
    skipped = skipped_suites(missing)
    REPOSITORY.mkdir(exist_ok=True)
    server = None if options.url else Server(
        "--log-level", "warn", "--model-control-mode", "explicit", "--model-repository",
        str(REPOSITORY))
    run = Run(options.url or server.addresses[0], options)
    run.table.made_with = made_with()
    if not options.newest_only and "quantize" not in skipped and "previous" not in missing:
        run.previous = load_oracles().Previous(HOME / "previous")
        run.table.previous = run.previous.name
    try:
        run_suites(run, skipped)
    finally:
        if run.previous is not None:
            run.previous.close()
        if server is not None:
            server.stop()
    run.table.notes += NOTES
    ways = [way.way for way in run.clients]
    run.table.write(HOME / "RESULTS.md", ways, options.seed)
    if not skipped and not run.unjudged and not sys.argv[1:]:
        run.table.write(HERE / "RESULTS.md", ways, options.seed)
    for suite, why in skipped.items():
        say("SKIPPED %s: %s" % (NAMES.get(suite, "random " + suite), why))
    expected = any(state["expected"] for state in missing.values())
    if expected and os.environ.get("CI") == "true":
        say("CI=true, and packages are missing that this machine should have.")
        run.failed += 1
    say("%d requests, %d cases without an oracle" % (run.requests, run.unjudged))
    say("%d passed, %d failed" % (run.passed, run.failed))
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
