#!/usr/bin/env python3
"""Checks what the compiler does not: layout, text, include rules, sizes; then formatting, headers
that compile alone, and builds with gcc and clang.

lint.py [--fast]    --fast leaves out the builds

A finding is one line, "file:line: rule: what"; the last line is "N passed, N failed", counted in
checks. A tool that is missing, or of another version than pinned, makes its check skipped by name.
"""
import fnmatch
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests" / "support"))

import failures  # noqa: E402  (on the path just now)

TOP_LEVEL = {"Makefile", "server", "kernels", "api_schema", "docker", "tests", "README.md",
             "LICENSE", ".ci", ".github", ".clang-format", ".dockerignore", ".gitignore",
             ".editorconfig"}
CLANG_FORMAT_MAJOR = 14
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_ASKED = 600  # longer files get a note that asks whether the file is one idea
FILE_LINES_MAX = 1000
FOLDER_FILES_MAX = 25  # sources in a folder of kernels/ or server/; nobody remembers more

# The folders of server/, in include order: each may include itself and the folders before it.
# main.c may include all of them.
ROOMS = ("base", "memory", "telemetry", "config", "json", "oip", "models/onnx",
         "models/repository", "models", "models/explain", "work/scheduler", "work", "http/wire",
         "http/mhd", "http", "http/guard", "http/api")

# The headers of outside libraries, and the only files that may include them.
OUTSIDE = {
    "microhttpd.h": {"server/http/endpoint.h",
                     "server/http/exchange.h",
                     "server/http/mhd/trial.c",
                     "server/http/listener.c"},
    "gnutls/gnutls.h": {"server/http/mhd/tls_hooks.c", "server/http/wire/tls.c"},
    "gnutls/x509.h": {"server/http/wire/tls.c"},
    "gnutls/crypto.h": {"server/base/digest.c"},
    "isa-l/igzip_lib.h": {"server/work/compression.c"},
    "uv.h": {"server/work/scheduler/loop.c", "server/work/scheduler/pool.c"},
    "cjson/cJSON.h": {"server/oip/metadata.c"},
    "cJSON.h": set(),
    "protobuf-c/protobuf-c.h": {"server/models/onnx/onnx_reader.h"},
    "cblas.h": {"kernels/gemm/openblas.c"},
    "dlfcn.h": {"kernels/gemm/openblas.c", "server/http/mhd/trial.c"},
}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


# ---- Rules on one file: (path, lines) -> [(line number, what)] ----------------------------------


def is_c(path):
    return path.endswith((".c", ".h"))


def is_source(path):
    """Tells whether the file is a source of the program, not of its tests."""
    return path.startswith(("kernels/", "server/")) and is_c(path)


BINARY = (".ppm", ".jpg", ".onnx", ".f32")


def is_text(path):
    others = BINARY + (".svg", ".jsonl", ".json", ".bin", ".hex")
    return not path.endswith(others) and path != "LICENSE"


def may_begin_with_tab(path):
    return path == "Makefile" or path.endswith(".go")


def rule_text(path, lines):
    if not is_text(path):
        return
    for number, line in enumerate(lines, 1):
        if "\r" in line:
            yield number, "carriage return"
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if "\t" in line.lstrip("\t") or (line.startswith("\t") and not may_begin_with_tab(path)):
            yield number, "tab"
        if len(line) > COLUMNS_MAX and not path.endswith(".md"):
            yield number, "%d columns, at most %d" % (len(line), COLUMNS_MAX)
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and path != "tests/lint/lint.py":
            yield number, "unfinished work; an issue is the place for it"


def rule_machine_paths(path, lines):
    for number, line in enumerate(lines, 1):
        if re.search(r"(?<![\w.}/])/(work|root|home)/", line) and path != "tests/lint/lint.py":
            yield number, "a path of somebody's machine"


def rule_includes(path, lines):
    if not is_c(path):
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        bracket, name = match.groups()
        room = path.split("/")[0]
        if bracket == "<":
            allowed = OUTSIDE.get(name)
            if allowed is not None and room != "tests" and path not in allowed:
                yield number, "<%s> is for %s only" % (name, " and ".join(sorted(allowed)) or
                                                       "nobody (write <cjson/cJSON.h>)")
        elif room == "kernels" and not name.startswith("kernels/"):
            yield number, "kernels/ includes libc and itself, not %s" % name
        elif room == "server" and name != "kernels/qk.h" and not name.startswith("server/"):
            yield number, "server/ includes kernels/qk.h and itself, not %s" % name
        elif room == "server" and name.startswith("server/"):
            yield from upward(path, number, name)


# The only files of kernels/ that may read the environment. All other files get settings from their
# callers.
ENVIRONMENT = {"kernels/cpu.c", "kernels/gemm/openblas.c"}


def rule_environment(path, lines):
    """Finds reads of the environment. A kernel that reads a setting itself may run with a setting
    that it was not tested with."""
    if not path.startswith("kernels/") or not is_c(path) or path in ENVIRONMENT:
        return
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(secure_)?getenv\(|\benviron\b", line):
            yield number, "in kernels/ the environment is for %s only" % " and ".join(
                sorted(ENVIRONMENT))


# The files that may use gather instructions, and why. All other files use permutations or
# arithmetic, because microcode made gathers ten times as slow on most CPUs from Skylake to Ice Lake
# (INTEL-SA-00828).
GATHERS = {
    "kernels/conv/depthwise/kernel_avx512vbmi.c": "weights a depth apart, once at packing",
    "kernels/gemm/igemm_32x32_amx.c": "CPUs with AMX are not affected",
    "kernels/conv/igemm/slab_kernels_zmm.h": "words that lie a stride apart, not neighbours",
}


def rule_gathers(path, lines):
    """Finds gather instructions, which suggest themselves for tables of floats but are slow."""
    if not path.startswith("kernels/") or not is_c(path) or path in GATHERS:
        return
    for number, line in enumerate(lines, 1):
        if re.search(r"_i(32|64)gather_", line):
            yield number, "no gathers, but in %s" % " and ".join(sorted(GATHERS))


def upward(path, number, name):
    here, there = (posixpath.dirname(file)[len("server/"):] for file in (path, name))
    if path == "server/main.c":
        return
    if here not in ROOMS or there not in ROOMS:
        yield number, "%s is in no room; see ROOMS in tests/lint/lint.py" % (
            path if here not in ROOMS else name)
    elif ROOMS.index(there) > ROOMS.index(here):
        yield number, "%s may not include %s: only downward" % (path, name)


def rule_guards(path, lines):
    if path.endswith(".h") and "#pragma once" not in lines:
        yield 1, "a header needs #pragma once"


def rule_typedefs(path, lines):
    if is_c(path):
        for number, line in enumerate(lines, 1):
            if re.match(r"\s*typedef\s+(struct|enum|union)\b", line):
                yield number, "no typedef for structs, enums and unions"


# These functions return how many bytes they have sent. If the caller does not keep the rest, the
# rest is lost or, over TLS, replaces the next call's data.
SENDS = re.compile(r"\s*(\(void\)\s*)?(send|sendto|sendmsg|write|writev|pwrite|pwritev|sendfile|"
                   r"uv_try_write|gnutls_record_send|gnutls_handshake)\s*\(")


def rule_sends(path, lines):
    if not path.startswith("server/") or not path.endswith(".c"):
        return
    ends = True
    for number, line in enumerate(lines, 1):
        if ends and SENDS.match(line):
            yield number, "the result of a send is ignored"
        text = re.sub(r"/\*.*", "", line).strip()
        ends = text == "" or text.endswith((";", "{", "}", ")", "else", ":", "*/"))


def has_bounded_size(path):
    return path.endswith((".c", ".h", ".py", ".sh")) and not path.startswith("tests/")


def rule_sizes(path, lines):
    if has_bounded_size(path) and len(lines) > FILE_LINES_MAX:
        yield len(lines), "%d lines, at most %d" % (len(lines), FILE_LINES_MAX)
    if not is_c(path):
        return
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            if number - start - 1 > FUNCTION_LINES_MAX:
                yield start, "a function of %d lines, at most %d" % (number - start - 1,
                                                                     FUNCTION_LINES_MAX)
            start = None


COMMENT_LINE = re.compile(r"\s*(?:/\*+|\*(?!/))( *)(.*?)\s*(?:\*/)?$")


def rule_comment_lists(path, lines):
    """Finds lists and tables in comments that the formatter has filled: text at the margin that
    follows an indented line, or columns within a paragraph. A list stays whole if its lines fit, if
    continuation lines are indented like the item's text, and if an empty line or another item
    precedes the next text at the margin."""
    if not is_c(path):
        return
    above = 0
    for number, line in enumerate(lines, 1):
        match = COMMENT_LINE.match(line)
        if match is None:
            above = 0
            continue
        indent, text = len(match.group(1)), match.group(2)
        item = re.match(r"(-|\d+\.) ", text) is not None
        if indent == 1 and text and not item and above > 2:
            yield number, "text at the margin under an indented line: a list that was filled?"
        elif indent == 1 and not item and re.search(r"\w {2,}\w", text):
            yield number, "columns in a paragraph: a table that was filled?"
        above = indent if text else 0


FILE_RULES = {"text": rule_text, "machine paths": rule_machine_paths, "includes": rule_includes,
              "environment": rule_environment, "gathers": rule_gathers,
              "include guards": rule_guards, "typedefs": rule_typedefs, "sends": rule_sends,
              "sizes": rule_sizes, "comment lists": rule_comment_lists}


# ---- Rules on the whole tree: (files, contents) -> [(path, line, what)] -------------------------


def rule_layout(files, _contents):
    for path in files:
        if path.split("/")[0] not in TOP_LEVEL:
            yield path, 1, "the top level holds only %s" % " ".join(sorted(TOP_LEVEL))


def rule_final_newline(_files, contents):
    for path, text in contents.items():
        if is_text(path) and (text == "" or not text.endswith("\n") or text.endswith("\n\n")):
            yield path, text.count("\n") + 1, "should end in exactly one newline"


def rule_sources_listed(files, contents):
    makefile = contents["Makefile"]
    for path in files:
        if path.endswith(".c") and path.startswith(("kernels/", "server/")):
            if path not in makefile:
                yield path, 1, "no list in the Makefile has it, so it is never built"


def rule_folder_sizes(files, _contents):
    counts = {}
    for path in files:
        if is_source(path):
            folder = posixpath.dirname(path)
            counts[folder] = counts.get(folder, 0) + 1
    for folder, count in counts.items():
        if count > FOLDER_FILES_MAX:
            yield folder, 1, "%d source files, at most %d" % (count, FOLDER_FILES_MAX)


def circles(edges):
    """Returns the strongly connected components of {node: {node}} with more than one node: in such
    a set, each node reaches each other node."""
    numbers, lowest, stack, found = {}, {}, [], []

    def visit(node):
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in numbers:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], numbers[other])
        if lowest[node] == numbers[node]:
            index = stack.index(node)
            found.append(set(stack[index:]))
            del stack[index:]

    for node in edges:
        if node not in numbers:
            visit(node)
    return [circle for circle in found if len(circle) > 1]


def rule_circles(_files, contents):
    """Finds circles of includes. A source and its header count as one file. Only files of one
    folder may include each other."""
    edges = {}
    for path, text in contents.items():
        if not is_source(path):
            continue
        for line in text.split("\n"):
            match = INCLUDE.match(line)
            if match is not None and is_source(match.group(2)) and match.group(2) != path:
                edges.setdefault(path[:-2], set()).add(match.group(2)[:-2])
    for circle in circles(edges):
        folders = {posixpath.dirname(path) for path in circle}
        if len(folders) > 1:
            yield min(circle) + ".h", 1, "a circle of includes: %s" % " ".join(sorted(circle))


def long_files(contents):
    """Yields notes on files that are within the limit, but so long that they may hold more than one
    idea."""
    for path, text in contents.items():
        if has_bounded_size(path) and FILE_LINES_ASKED < text.count("\n") <= FILE_LINES_MAX:
            yield "note: %s: %d lines. Is it one idea?" % (path, text.count("\n"))


def rule_named_files(files, contents):
    for path, text in contents.items():
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for name in re.findall(r"`([\w./]+/[\w.]+\.[ch])`", line):
                if not any(("/" + file).endswith("/" + name) for file in files):
                    yield path, number, "there is no file %s" % name


MUTATION = "tests/mutation/run.py"


def rule_mutation(files, contents):
    """Checks that the suites, modules and beginnings of paths exist that MUTATION names."""
    suites = {suite for path, text in contents.items() if path.startswith("tests/") and is_c(path)
              for suite in re.findall(r"^(?:Parameterized)?Test\((\w+),", text, re.MULTILINE)}
    modules = {posixpath.basename(path)[:-len(".py")] for path in files
               if path.startswith("tests/e2e/") and path.endswith(".py")}
    mutation = {"__name__": "mutation", "__file__": str(ROOT / MUTATION), "TESTS": (), "AREAS": ()}
    exec(contents.get(MUTATION, ""), mutation)  # pylint: disable=exec-used
    unknown = []
    for tests in mutation["TESTS"]:
        unknown += ["suite " + suite for suite in tests.suites.split("|")
                    if not fnmatch.filter(suites, suite)]
        unknown += ["module " + module for module in tests.e2e if module not in modules]
    for begin in (*mutation["AREAS"], *(tests.begin for tests in mutation["TESTS"])):
        if not any(path.startswith(begin) for path in files):
            unknown.append("file " + begin)
    lines = contents.get(MUTATION, "").split("\n")
    for what in dict.fromkeys(unknown):
        name = what.split(" ")[1]
        number = next(i for i, line in enumerate(lines, 1) if name in line)
        yield MUTATION, number, "there is no " + what


SHORT = "tests/bench/README.md"


def measured_lines(contents, path):
    """Yields (line number, line, whether it is in a table of targets) for each line between make
    bench's marks."""
    is_measured, is_target = False, False
    for number, line in enumerate(contents.get(path, "").split("\n"), 1):
        if line.startswith("<!-- end of "):
            is_measured = is_target = False
        is_target = is_target or line.startswith("| target |")
        if is_measured:
            yield number, line, is_target
        is_measured = is_measured or re.match(r"<!-- .*\w: by make bench -->", line) is not None


def rule_measured(_files, contents):
    """Checks that the targets in the short tables are in the results, and that the README's rows
    are in the short tables."""
    results = contents.get("tests/bench/RESULTS.md", "").split("\n")
    short = [line for _, line, _ in measured_lines(contents, SHORT)]
    for number, line, is_target in measured_lines(contents, SHORT):
        if is_target and line not in results:
            yield SHORT, number, "tests/bench/RESULTS.md has no such line"
    for number, line, _ in measured_lines(contents, "README.md"):
        if line not in short:
            yield "README.md", number, SHORT + " has no such line"


CONSTANTS = "tests/bench/constants.py"


def rule_constants(_files, _contents):
    """Checks that CONSTANTS says of each constant of the scheduler how it was found."""
    sys.path += [str(ROOT / "tests" / part) for part in ("bench", "bench/conv")]
    import constants  # pylint: disable=import-outside-toplevel
    for name in constants.differences():
        yield CONSTANTS, 1, "%s is not in both this file and the scheduler's sources" % name


def anchors(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def rule_links(files, contents):
    """Checks that a page's links lead to files and headings that exist."""
    folders = {"/".join(path.split("/")[:depth]) for path in files
               for depth in range(1, path.count("/") + 1)}
    for path, text in contents.items():
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for link in re.findall(r"\]\(([^()\s]+)\)", line):
                name, _, anchor = link.partition("#")
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) \
                    if name else path
                if ":" in name:
                    continue
                if target not in files and target not in folders:
                    yield path, number, "there is no file %s" % target
                elif anchor and anchor not in anchors(contents.get(target, "")):
                    yield path, number, "%s has no heading #%s" % (target, anchor)


TREE_RULES = {"layout": rule_layout, "final newline": rule_final_newline,
              "sources listed": rule_sources_listed, "folder sizes": rule_folder_sizes,
              "circles": rule_circles, "named files": rule_named_files,
              "mutation": rule_mutation, "measured": rule_measured, "constants": rule_constants,
              "links": rule_links}


def check_text(files, contents):
    """Yields (rule, [finding]) for every rule that needs no tool."""
    for rule, function in FILE_RULES.items():
        found = []
        for path, text in contents.items():
            found += ["%s:%d: %s: %s" % (path, line, rule, what)
                      for line, what in function(path, text.split("\n")[:-1])]
        yield rule, found
    for rule, function in TREE_RULES.items():
        yield rule, ["%s:%d: %s: %s" % (path, line, rule, what)
                     for path, line, what in function(files, contents)]


# ---- Tools ---------------------------------------------------------------------------------------


class Skip(Exception):
    pass


def run(*command):
    result = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.returncode, result.stdout.splitlines()


def need(tool):
    if shutil.which(tool) is None:
        raise Skip("%s is not installed" % tool)


def tool_clang_format(files):
    name = "clang-format-%d" % CLANG_FORMAT_MAJOR
    if shutil.which(name) is None:
        name = "clang-format"
    need(name)
    version = run(name, "--version")[1][0]
    if not re.search(r"version %d\." % CLANG_FORMAT_MAJOR, version):
        raise Skip("pinned to version %d, this is: %s" % (CLANG_FORMAT_MAJOR, version))
    sources = [path for path in files if is_c(path)]
    _, lines = run(name, "--dry-run", "--Werror", *sources)
    return [line for line in lines if ": error: " in line]


def tool_shellcheck(files):
    need("shellcheck")
    scripts = [path for path in files if path.endswith(".sh") or path == ".ci/run"]
    return run("shellcheck", "--format=gcc", *scripts)[1]


def tool_gofmt(files):
    need("gofmt")
    return run("gofmt", "-l", *[path for path in files if path.endswith(".go")])[1]


def tool_rustfmt(files):
    need("rustfmt")
    sources = [path for path in files if path.endswith(".rs")]
    return run("rustfmt", "--edition", "2021", "--check", "-l", *sources)[1]


def build_with(compiler, folder, *settings):
    def build(files):
        need(compiler)
        fuzz = ["%s/%s.o" % (folder, path[:-2]) for path in files
                if path.startswith("tests/fuzz/") and path.endswith(".c")]  # make fuzz links them
        status, lines = run("make", "-s", "-j%d" % cpus(), "B=" + folder, *settings, "all",
                            folder + "/unit-tests", folder + "/check-kernels",
                            folder + "/measure", "headers", *fuzz)
        return lines + ["make exited with %d" % status] if status else []
    return build


def build_with_gcc(files):
    """If gcc is what make takes by itself, the objects of make are made only once."""
    need("gcc")
    usual = "Free Software Foundation" in "".join(run("cc", "--version")[1])
    settings = ("build", "CC=cc") if usual else ("build/lint-gcc", "CC=gcc")
    return build_with("gcc", *settings)(files)


def cpus():
    return int(run("nproc")[1][0])


def main():
    fast = sys.argv[1:] == ["--fast"]
    if sys.argv[1:] and not fast:
        sys.exit(__doc__)
    status, files = run("git", "ls-files", "--cached", "--others", "--exclude-standard")
    if status != 0:
        sys.exit("lint.py: expected a checkout of git, got: %s" % files[0])
    files = [path for path in files if (ROOT / path).is_file()]
    contents = {path: (ROOT / path).read_bytes().decode(errors="replace") for path in files
                if not path.endswith(BINARY)}
    results = list(check_text(files, contents))
    tools = [("clang-format", tool_clang_format), ("shellcheck", tool_shellcheck),
             ("gofmt", tool_gofmt), ("rustfmt", tool_rustfmt)]
    if not fast:
        # clang's warnings need no optimizer, which takes half of its time. make fuzz has it on.
        tools += [("build with gcc", build_with_gcc),
                  ("build with clang", build_with("clang", "build/lint-clang", "CC=clang",
                                                  "CFLAGS=-O0"))]
    for rule, tool in tools:
        try:
            results.append((rule, tool(files)))
        except Skip as reason:
            print("skipped: %s: %s" % (rule, reason))
    for note in long_files(contents):
        print(note)
    failed = 0
    for rule, findings in results:
        failed += bool(findings)
        for finding in findings:
            print(finding)
        if findings:
            failures.say(rule, "\n".join(findings))
    print("%d passed, %d failed" % (len(results) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
