#!/usr/bin/env python3
"""Changes single lines of the sources and counts how many of the changes the tests notice.

run.py [--sample N] [--seed N] [--only TEXT] [--mutant ID] [--jobs N]

universalmutator makes the changes ("mutants") by rules such as "< becomes <=". A mutant whose
object code is that of the original cannot be noticed and does not count, nor does one that does not
compile. The checkout stays as it is: everything happens in a copy, in build/mutation.

For each mutant the tests run in this order, and end with the first failure: the kernel checker and
the unit tests of its folder, with a part of the cases and then with all of them; then all unit
tests; then the end-to-end tests of its folder. So the tests that most likely fail come first. A
program that computes for longer than CPU_SECONDS, or hangs, has failed as well.

README.md beside this file says what to do with survivors. The last line is
"N passed, N failed": mutants that were killed, and that survived.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import difflib
import fnmatch
import io
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "build" / "mutation"
TREE = HOME / "tree"
TOOL = "universalmutator==1.14.1"
RULES = ["universal.rules", "c_like.rules", "c.rules"]
CPU_SECONDS = 20    # for one test process; the longest test takes 6
WALL_SECONDS = 600  # for a test that hangs; long, because the machine may be loaded
FEW = "29"          # the first steps run each 29th case of long tests

# Areas that are sampled equally often, each given by the beginning of its files' paths.
AREAS = ("kernels/a", "kernels/call.c", "kernels/graph", "kernels/c", "kernels/d",
         "kernels/element/", "kernels/operators/", "kernels/elementwise/", "kernels/dequantize/",
         "kernels/quantize/", "kernels/binary/", "kernels/lookup/", "kernels/gemm/",
         "kernels/conv/igemm/", "kernels/conv/winograd/", "kernels/conv/depthwise/",
         "kernels/conv/sgemm/", "kernels/conv/",
         "server/json/", "server/oip/", "server/http/wire/framing.c")
# Files for other machines, and files that cannot change results: they measure speed or write the
# log.
LEFT_OUT = ("*_neon.c", "*_dotprod.c", "*_i8mm.c", "*_fp16.c", "*_sve.c", "kernels/measure.c",
            "kernels/describe.c")


class Tests:
    """The tests of a part of the sources. The first entry counts whose `begin` starts a file's
    path."""

    def __init__(self, begin, suites, kernels=(), e2e=()):
        self.begin, self.suites, self.kernels, self.e2e = begin, suites, kernels, e2e


ELEMENTWISE = "broadcast|*dequantize*|onnx_quantize_linear*|quantize|element"
CONV = "conv|conv_*|golden|openblas"
OPERATORS = ("test_golden", "test_operators", "test_random")
OIP = ("test_infer", "test_endpoints", "test_examples", "test_operators", "test_shared_memory")
TESTS = (
    Tests("kernels/operators/conv/", "conv_rules|conv_axes|registry|" + CONV, (),
          OPERATORS),
    Tests("kernels/operators/lookup/", "qlinear_concat|qlinear_where|lookup|golden"),
    Tests("kernels/operators/", "registry|*_refusals|onnx_*|tensorflow_*|directml_*|conv_rules|"
          "signature|golden", (), OPERATORS),
    Tests("kernels/dequantize/", ELEMENTWISE, (["dequantize/"],), OPERATORS),
    Tests("kernels/quantize/", ELEMENTWISE, (["quantize/", "--except", "dequantize/"],), OPERATORS),
    Tests("kernels/binary/", "binary|golden", (["binary/"],)),
    Tests("kernels/argmax/", "argmax|golden", (["argmax/"],)),
    Tests("kernels/cast/", "cast|golden", (["cast/"],)),
    Tests("kernels/lookup/", "lookup|golden", (["lookup/"],)),
    Tests("kernels/elementwise/", ELEMENTWISE, (["quantize/"],), OPERATORS),
    Tests("kernels/element/", ELEMENTWISE, (["quantize/"],), OPERATORS),
    Tests("kernels/gemm/", CONV, (["gemm/"],), OPERATORS),
    Tests("kernels/conv/igemm/", CONV, (["slabs/"],), OPERATORS),
    Tests("kernels/conv/winograd/", CONV, (["winograd/"],), OPERATORS),
    Tests("kernels/conv/depthwise/", CONV, (["depthwise/"],), OPERATORS),
    Tests("kernels/conv/sgemm/", CONV, (["sgemm/"],), OPERATORS),
    Tests("kernels/conv/", CONV, (), OPERATORS),
    Tests("kernels/graph", "graph|graph_*|models|plans|deferred_constants|contract", (),
          ("test_onnx_files",)),
    Tests("kernels/", "contract|choice|cpu|dispatch|registry|golden|graph|openblas|conv_machines",
          (), ("test_command_line", *OPERATORS)),
    Tests("server/json/", "json_*|oip_*|raw|infer", (), OIP),
    Tests("server/oip/", "oip_*|classes|labels|raw|signature|infer|golden|trace|examples|models|"
          "folder", (), OIP),
    Tests("server/http/", "framing|head|request|connection|io_hooks", (),
          ("test_http", "test_hostile")),
)


# ---- The copy --------------------------------------------------------------------------------


def install_tool():
    """Installs universalmutator into an environment of its own. Returns the folder of its modules.
    """
    venv = HOME / "venv"
    if not list(venv.glob("lib/*/site-packages/universalmutator")):
        print("installing %s" % TOOL, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin" / "python", "-m", "pip", "install", "--no-input", "--quiet",
                        "--no-deps", "--disable-pip-version-check", TOOL], check=True)
    return next(venv.glob("lib/*/site-packages"))


def copy_sources():
    """Copies the checkout, with uncommitted changes. Unchanged files keep their times."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in listed.decode().split("\0"):
        source, copy = ROOT / name, TREE / name
        if not name or not source.is_file():
            continue
        if copy.exists() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        shutil.copymode(source, copy)


def make(*arguments):
    result = subprocess.run(["make", "--no-print-directory", *arguments], cwd=TREE,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                            check=False)
    if result.returncode != 0:
        sys.exit("run.py: make %s ended with status %d" % (" ".join(arguments), result.returncode))
    return result.stdout


PROGRAMS = {"check-kernels": "tests/kernels/check/main.c",
            "unit-tests": "tests/unit/memory/test_text.c", "quantd": "server/main.c"}


def link_commands():
    """Returns program -> its link command, as words."""
    commands = {}
    for program, source in PROGRAMS.items():
        last = make("-n", "-W", source, "build/" + program).strip().splitlines()[-1]
        commands[program] = shlex.split(last)
    return commands


def compile_command(path):
    """Returns the words of the command that compiles a file, without debug information and with the
    copy's paths."""
    last = make("-n", "-W", path, "build/" + path[:-1] + "o").strip().splitlines()[-1]
    words = [word for word in shlex.split(last) if word not in ("-g", "-MMD", "-MP")]
    places = {"-I.": "-I%s" % TREE, "-Ibuild": "-I%s/build" % TREE}
    return [places.get(word, word) for word in words[:words.index("-o")]]


# ---- Mutants ---------------------------------------------------------------------------------


Mutant = collections.namedtuple("Mutant", "path line number text")


def name_of(mutant):
    return "%s:%d#%d" % (mutant.path, mutant.line, mutant.number)


def without_comments(text):
    text = re.sub(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', lambda found: found[1] or " ", text,
                  flags=re.DOTALL)
    return text.split()


def mutants_of(path):
    """Returns all mutants of a file, in the tool's order."""
    from universalmutator import mutator  # pylint: disable=import-outside-toplevel
    lines = (TREE / path).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(lines, ruleFiles=RULES, ignorePatterns=[])
    numbers = collections.Counter()
    for line, text, *_ in made:
        numbers[line] += 1
        yield Mutant(path, line, numbers[line], text)


def mutated(mutant):
    lines = (TREE / mutant.path).read_text().splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.text
    return "".join(lines)


def candidates(only):
    """Returns area -> mutants, for the files whose path contains one of the texts in `only`."""
    files = sorted(str(path.relative_to(TREE)) for folder in ("kernels", "server")
                   for path in (TREE / folder).rglob("*.c"))
    texts = only.split(",")
    areas = collections.defaultdict(list)
    for path in files:
        area = next((area for area in AREAS if path.startswith(area)), None)
        if area and any(text in path for text in texts) and not any(
                fnmatch.fnmatch(path, out) for out in LEFT_OUT):
            areas[area] += mutants_of(path)
    return areas


def shuffled(areas, seed):
    """Yields a random mutant of each area in turn."""
    chance = random.Random(seed)
    for mutants in areas.values():
        chance.shuffle(mutants)
    while any(areas.values()):
        for mutants in areas.values():
            if mutants:
                yield mutants.pop()


# ---- One mutant ------------------------------------------------------------------------------


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setpgid(0, 0)


def passes(command, cwd, log, variables=None):
    """Runs a command. Returns whether it ends with status 0, in time."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, preexec_fn=limit,
                                   env=os.environ | (variables or {}))
        try:
            return process.wait(WALL_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


class Bench:
    """What all mutants share: the commands, and the objects of the originals."""

    def __init__(self):
        self.links = link_commands()
        self.originals = {}  # path -> (command, object code, symbols)

    def object_of(self, path, text, folder):
        """Compiles a file's text. Returns the object's path. None: the text does not compile."""
        command = self.originals[path][0]
        source = folder / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        done = subprocess.run([*command, "-c", "-o", "mutant.o", path], cwd=folder, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        return folder / "mutant.o" if done.returncode == 0 else None

    @staticmethod
    def symbols(object_file):
        """Returns the names that an object defines. If a mutant lacked one of them, its original
        would be linked, too."""
        lines = subprocess.run(["nm", "--defined-only", "--extern-only", "--format=just-symbols",
                                object_file], stdout=subprocess.PIPE, check=True).stdout
        return lines.split()

    def prepare(self, path):
        """Compiles the original, to compare mutants with it."""
        if path in self.originals:
            return
        self.originals[path] = (compile_command(path), None, None)
        with tempfile.TemporaryDirectory(dir=HOME) as folder:
            made = self.object_of(path, (TREE / path).read_text(), Path(folder))
            self.originals[path] = (self.originals[path][0], made.read_bytes(), self.symbols(made))

    def link(self, program, folder):
        """Links a program with the mutant before the archives, so that the mutant replaces its
        original. Returns whether that worked."""
        words = self.links[program]
        at = words.index("-o")
        archive = next(i for i, word in enumerate(words) if word.endswith(".a"))
        command = [*words[:at], "-Wl,--strip-debug", "-o", str(folder / program),
                   *words[at + 2:archive], str(folder / "mutant.o"), *words[archive:]]
        return subprocess.run(command, cwd=TREE, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def steps(mutant, folder, quick):
    """Yields (name, program, command, environment) of each step, the quickest first."""
    tests = next(tests for tests in TESTS if mutant.path.startswith(tests.begin))
    path = Path(mutant.path)
    unit = [str(folder / "unit-tests"), "--fail-fast", "--filter"]
    own = "@(%s)/*" % tests.suites
    check = [str(folder / "check-kernels"), "--seed", "1", "--every"]
    for words in tests.kernels:
        yield "check-kernels, some cases", "check-kernels", check + [FEW, "--only", *words], {}
    yield "unit tests of that name, some cases", "unit-tests", unit + [
        "@(*%s*|*%s*)/*" % (path.stem, path.parent.name)], {"QK_TEST_EVERY": FEW}
    yield "unit tests of the folder, some cases", "unit-tests", unit + [own], {
        "QK_TEST_EVERY": FEW}
    if quick:
        return
    for words in tests.kernels:
        yield "check-kernels", "check-kernels", check + ["1", "--only", *words], {}
    yield "unit tests of the folder", "unit-tests", unit + [own], {}
    yield "unit tests, some cases", "unit-tests", unit + ["*/*"], {"QK_TEST_EVERY": FEW}
    for module in tests.e2e:
        yield module, "quantd", [sys.executable, "tests/support/run_tests.py", "--e2e", module], {
            "B": str(folder)}


def fate(bench, mutant, quick):
    """Tests a mutant. Returns "invalid", "equivalent", "killed by ..." or "survived"."""
    text = mutated(mutant)
    if without_comments(text) == without_comments((TREE / mutant.path).read_text()):
        return "equivalent"
    with tempfile.TemporaryDirectory(dir=HOME) as name:
        folder = Path(name)
        made = bench.object_of(mutant.path, text, folder)
        if made is None or bench.symbols(made) != bench.originals[mutant.path][2]:
            return "invalid"
        if made.read_bytes() == bench.originals[mutant.path][1]:
            return "equivalent"
        linked = set()
        for what, program, command, variables in steps(mutant, folder, quick):
            if program not in linked and not bench.link(program, folder):
                return "invalid"
            linked.add(program)
            if not passes(command, TREE, folder / "log", variables):
                return "killed by " + what
    return "survived"


def show(mutant):
    """Prints the change as a diff of one line."""
    before = (TREE / mutant.path).read_text().splitlines()
    after = mutated(mutant).splitlines()
    for line in list(difflib.unified_diff(before, after, lineterm="", n=0))[3:]:
        print("    " + line)


# ---- All mutants -----------------------------------------------------------------------------


def chosen(options):
    areas = candidates(options.mutant.split(":")[0] if options.mutant else options.only)
    if not options.mutant:
        return shuffled(areas, options.seed)
    found = [mutant for mutants in areas.values() for mutant in mutants
             if name_of(mutant) == options.mutant]
    if not found:
        sys.exit("--mutant: expected a name such as kernels/cpu.c:70#3, got %s" % options.mutant)
    return iter(found)


def run(options):
    """Yields (mutant, fate) until as many mutants as the sample asks for have counted."""
    bench = Bench()
    source = chosen(options)
    counted = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {}
        while True:
            while len(running) < min(options.jobs, options.sample - counted):
                mutant = next(source, None)
                if mutant is None:
                    break
                bench.prepare(mutant.path)
                running[pool.submit(fate, bench, mutant, options.quick)] = mutant
            if not running:
                return
            done, _ = concurrent.futures.wait(running, None, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                counted += outcome not in ("invalid", "equivalent")
                yield running.pop(future), outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="how many mutants that count")
    parser.add_argument("--seed", type=int, default=1, help="another seed takes other mutants")
    parser.add_argument("--only", default="",
                        help="files whose path has this in it, or one of several, as a,b")
    parser.add_argument("--mutant", help="one of them, as FILE:LINE#NUMBER")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--quick", action="store_true", help="the first steps alone")
    options = parser.parse_args()

    HOME.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(install_tool()))
    copy_sources()
    make("-s", "-j%d" % len(os.sched_getaffinity(0)),
         *("build/" + program for program in PROGRAMS))
    outcomes = collections.Counter()
    survivors = []
    began = time.monotonic()
    for mutant, outcome in run(options):
        outcomes[outcome.split()[0]] += 1
        if outcome not in ("invalid", "equivalent"):
            print("%5d s  %s: %s" % (time.monotonic() - began, name_of(mutant), outcome),
                  flush=True)
        if outcome == "survived":
            survivors.append(mutant)
            show(mutant)
    print("%d do not compile, %d have the original's code" % (outcomes["invalid"],
                                                              outcomes["equivalent"]))
    print("survivors: %s" % (" ".join(map(name_of, survivors)) or "none"))
    killed = outcomes["killed"]
    print("killed: %.2f" % (killed / max(1, killed + len(survivors))))
    print("%d passed, %d failed" % (killed, len(survivors)))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
