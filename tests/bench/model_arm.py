#!/usr/bin/env python3
"""Estimates the speed of the inner loops of ARM's kernels with llvm-mca, a simulator, because there
is no such machine to measure them on.

    model_arm.py FOLDER    reads the objects that `make model-arm` put there, and writes RESULTS.md

Each loop is taken from its object as the compiler made it. Of all paths through a function's loops
that have what the row asks for, the shortest one counts, which is the path of long runs. A path
without branches comes before all others. llvm-mca simulates a hundred iterations of it, with the
CPU's ports and latencies. Every access hits the L1 cache.
"""
import re
import subprocess
import sys
from pathlib import Path

import figures

CPUS = ("neoverse-n1", "neoverse-v1", "neoverse-v2")
VECTOR_BITS = {"neoverse-v1": 256, "neoverse-v2": 128}  # of an SVE vector
ITERATIONS = 100
PATHS_MOST, PATH_MOST = 400, 220  # how many paths through a loop; how many instructions in one path
OBJDUMP = "aarch64-linux-gnu-objdump"
MCA_LEAST = 18  # the first version that has a model for each of the three CPUs


class Row:
    """A loop. `is_it` says whether a list of instructions is this loop, one iteration of which does
    `units` of work. `is_limit` says which instructions are the limit: the loop should be as fast as
    these alone. `cpus` have all of the instructions. `vectors`: a unit counts a vector of 128 bits;
    the CPU's vectors may be longer."""

    def __init__(self, name, path, function, units, is_it, is_limit, cpus=CPUS, vectors=False):
        self.name, self.path, self.function = name, path, function
        self.units, self.is_it, self.is_limit, self.cpus = units, is_it, is_limit, cpus
        self.vectors = vectors

    def units_on(self, cpu):
        return self.units * (VECTOR_BITS[cpu] // 128 if self.vectors else 1)


def is_access(line):
    return re.match(r"(ld|st)[^\s]*\s", line) is not None


def stored_bytes(text):
    """Returns how many bytes an STR or STP of Q or D registers stores; 0 for other instructions."""
    store = re.match(r"st(p|r|ur)\s+([qd])", text)
    return (2 if store[1] == "p" else 1) * {"q": 16, "d": 8}[store[2]] if store else 0


DEQUANTIZED = 32  # elements in a chunk


def dequantize(name, function, y_bytes, mnemonic):
    def is_it(loop):
        return any(text.startswith(mnemonic) for text in loop) and \
            sum(map(stored_bytes, loop)) == DEQUANTIZED * y_bytes

    return Row(name, "kernels/dequantize/dequantize_neon.o", function, DEQUANTIZED, is_it,
               is_access)


ROWS = [dequantize("%s to %s" % (name, y_type), function, y_bytes, mnemonic)
        for name, function in (("UINT8", "u8"), ("INT8", "s8"), ("UINT16", "u16"),
                               ("INT16", "s16"), ("INT32", "s32_wrapped"))
        for y_type, y_bytes, mnemonic in (("FP32", 4, "fmul"), ("FP16", 2, "fcvtn"),
                                          ("BF16", 2, "addhn"))]
ROWS += [dequantize("%s to %s" % (name, y_type), function, y_bytes, "tbl")
         for name, function in (("4 bits", "bits4"), ("2 bits", "bits2"))
         for y_type, y_bytes in (("FP32", 4), ("FP16 or BF16", 2))]


# Loops of 16 elements, and of four vectors of 32-bit lanes.
ROWS += [Row("%s to FP16, scales that are FP16" % name, "kernels/dequantize/dequantize_fp16.o",
             "qk_dequantize_bytes__fp16", 16,
             lambda loop, widen=widen: any(text.startswith(widen) for text in loop), is_access)
         for name, widen in (("UINT8", "uaddw"), ("INT8", "saddw"))]


def dequantize_sve(name, function, instructions, left_out):
    """Returns the row of the loop that has all of `instructions` and none of `left_out`."""
    def is_it(loop):
        return not any(text.startswith("whilelo") for text in loop) and \
            any(text.startswith("ld1") for text in loop) and \
            all(any(text.startswith(part) for text in loop) for part in instructions) and \
            not any(text.startswith(part) for text in loop for part in left_out)

    return Row(name + ", by SVE", "kernels/dequantize/dequantize_sve.o", function, 4 * 4, is_it,
               is_access, CPUS[1:], True)


ROWS += [dequantize_sve("%s to %s" % (name, y_type), function, parts, left_out)
         for name, function in (("UINT8", "u8"), ("INT8", "s8"), ("UINT16", "u16"),
                                ("INT16", "s16"))
         for y_type, parts, left_out in (("FP32", ["fsub"], ["bfcvt"]),
                                         ("BF16", ["fsub", "bfcvt"], []))]
ROWS += [dequantize_sve("%s to FP32, zero point 0" % name, function, ["fm"], ["fsub", "bfcvt"])
         for name, function in (("UINT8", "u8"), ("UINT16", "u16"))]


def multiply(path, function, products, terms, mnemonic, cpus=CPUS):
    """Returns the row of a loop with `products` products of `terms` terms each."""
    def is_product(text):
        return text.startswith(mnemonic)

    return Row("%s, by %s" % (path.split("/", 1)[1].rsplit(".")[0], mnemonic.upper()),
               path, function, products * terms,
               lambda loop: sum(map(is_product, loop)) == products, is_product, cpus)


DEPTHWISE = "kernels/conv/depthwise/kernel_%s.o"
PRODUCTS = [multiply("kernels/gemm/igemm_6x8_neon.o", "multiply", 24, 8, "smull"),
            multiply("kernels/gemm/igemm_6x16_dotprod.o", "multiply", 24, 16, "sdot"),
            multiply("kernels/gemm/igemm_12x8_i8mm.o", "multiply", 24, 32, "smmla", CPUS[1:]),
            multiply(DEPTHWISE % "neon", "run_bytes", 16, 8, "smull"),
            multiply(DEPTHWISE % "dotprod", "run_bytes", 8, 16, "sdot")]


def others(name, path, function, units, counts, bytes_stored):
    """Returns the row of the loop that has exactly `counts` of these instructions and stores
    `bytes_stored` bytes."""
    def is_it(loop):
        return sum(map(stored_bytes, loop)) == bytes_stored and \
            all(sum(text.startswith(part) for text in loop) == count
                for part, count in counts.items())

    return Row(name, path, function, units, is_it, is_access)


SLABS = "kernels/conv/igemm/slab_kernels_neon.o"
OTHERS = [others("QuantizeLinear, %s" % name, "kernels/quantize/quantize_neon.o", "quantize", 32,
                 dict(counts, fdiv=0), stored)
          for name, counts, stored in (("FP32 to INT8", {"fmls": 8, "sqxtn": 12}, 32),
                                       ("FP32 to INT16", {"fmls": 8, "sqxtn": 8}, 64),
                                       ("FP32 to INT4", {"fmls": 8, "sqxtn": 12}, 16),
                                       ("BF16 to INT8", {"fmls": 0, "sqxtn": 12}, 32))]
OTHERS += [others("a convolution's sums to bytes", SLABS, "requantize", 16, {"scvtf": 4}, 16),
           others("quads of a slab", SLABS, "fill_bytes", 16, {"zip": 8}, 64)]


# The best loop that a compiler could make for UINT8 to FP32. For four floats it has one operation
# each that makes them, subtracts the zero point and multiplies by the scale.
LEAST = ["ldp q20, q21, [x2]", "add x2, x2, #32"]
LEAST += [text.replace("v0", "v%d" % i) for i in range(8)
          for text in ("zip1 v0.8h, v20.8h, v28.8h", "fsub v0.4s, v0.4s, v29.4s",
                       "fmul v0.4s, v0.4s, v30.4s")]
LEAST += ["stp q%d, q%d, [x9, #%d]" % (i, i + 1, 16 * i) for i in range(0, 8, 2)]
LEAST += ["add x9, x9, #128", "cmp x9, x12", "b.ne 0 <loop>"]


def alone(mnemonic, terms, registers, vectors):
    """Returns the row and the lines of a loop of products alone: one product for each register of
    sums. The factors are constants."""
    text = "%s %%s, %s, %s" % (mnemonic, registers.format(30, "16b" if not vectors else "b"),
                              registers.format(31, "16b" if not vectors else "b"))
    sums = [registers.format(i, "4s" if not vectors else "s") for i in range(24)]
    lines = [text % name for name in sums]
    name = "%s alone, by %s" % (mnemonic.upper(), "SVE" if vectors else "NEON")
    return (Row(name, None, None, 24 * terms, None, lambda text: True, CPUS[1:], vectors), lines)


# Would products be faster in SVE's vectors? What the CPU does with products alone.
ALONE = [alone(mnemonic, terms, registers, vectors)
         for mnemonic, terms in (("sdot", 16), ("smmla", 32))
         for registers, vectors in (("v{}.{}", False), ("z{}.{}", True))]


# ---- Loops of an object --------------------------------------------------------------------------


def instructions(path):
    """Returns function -> [(address, text)], the instructions of each function."""
    functions = {}
    dump = subprocess.run([OBJDUMP, "-d", "--no-show-raw-insn", str(path)], check=True,
                          capture_output=True, text=True).stdout
    for line in dump.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:", line)
        code = re.match(r"\s*([0-9a-f]+):\s+(.*?)\s*(//.*)?$", line)
        if head:
            code_of = functions.setdefault(head[1], [])
        elif code:
            code_of.append((int(code[1], 16), code[2]))
    return functions


def target(text):
    jump = re.match(r"(?:b(?:\.\w+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+) <", text)
    return int(jump[1], 16) if jump else None


def is_branch(text):
    return re.match(r"(b(\.\w+)?|cbn?z|tbn?z)\s", text) is not None


def paths(code, places, head):
    """Yields each path from instruction number `head` back to it. Paths follow only forward
    branches before that."""
    begun = [(head, [])]  # where a path continues, and its instructions so far
    for _ in range(PATHS_MOST):
        if not begun:
            return
        at, path = begun.pop()
        while at < len(code) and len(path) < PATH_MOST:
            text = code[at][1]
            path = path + [text]
            to = places.get(target(text))
            if to == head:
                yield path
            elif to is not None and to > at:
                begun.append((to, path))
            if re.match(r"(ret|br|b)\s*(\s|$)", text) or text.startswith("bl"):
                break
            at += 1


def loops(code):
    places = {address: index for index, (address, _) in enumerate(code)}
    heads = {places[target(text)] for address, text in code
             if target(text) in places and target(text) <= address}
    for head in sorted(heads):
        yield from paths(code, places, head)


def loop_of(row, folder, cache={}):
    if row.path not in cache:
        cache[row.path] = instructions(folder / row.path)
    found = [loop for loop in loops(cache[row.path][row.function]) if row.is_it(loop)]
    if not found:
        raise SystemExit("model-arm: %s has no such loop in %s" % (row.function, row.path))
    return min(found, key=lambda loop: (sum(map(is_branch, loop)) > 1, len(loop)))


# ---- Running llvm-mca ----------------------------------------------------------------------------


def find_mca():
    """Returns the newest llvm-mca: older versions treat Neoverse N1 as a Cortex-A57."""
    names = [path for folder in ("/usr/bin", "/usr/local/bin")
             for path in Path(folder).glob("llvm-mca*")]
    versions = {}
    for name in names:
        said = subprocess.run([str(name), "--version"], capture_output=True, text=True).stdout
        version = re.search(r"LLVM version (\d+)", said)
        if version:
            versions[int(version[1])] = str(name)
    newest = max(versions, default=0)
    if newest < MCA_LEAST:
        raise SystemExit("model-arm: expected llvm-mca %d or newer (Debian's llvm-19), got %s" %
                         (MCA_LEAST, newest or "none"))
    return versions[newest], newest


def run_mca(mca, cpu, lines):
    """Returns (cycles of an iteration, cycles that its busiest port alone takes)."""
    text = "loop:\n" + "".join("\t%s\n" % re.sub(r"[0-9a-f]+ <.*", "loop", line) for line in lines)
    said = subprocess.run([mca, "-mtriple=aarch64", "-mcpu=" + cpu, "-iterations=%d" % ITERATIONS,
                           "-instruction-info=0"],
                          input=text, capture_output=True, text=True, check=True).stdout
    cycles = int(re.search(r"Total Cycles:\s+(\d+)", said)[1]) / ITERATIONS
    return cycles, busiest_port(said)


def busiest_port(said):
    pressure = re.search(r"Resource pressure per iteration:\n.*\n(.*)\n", said)[1].split()
    return max(float(cell) for cell in pressure if cell != "-")


def measure(mca, cpu, row, loop):
    if cpu not in row.cpus:
        return "– | – | –"
    cycles, ports = run_mca(mca, cpu, loop)
    _, limit = run_mca(mca, cpu, [line for line in loop if row.is_limit(line)])
    return "%.3f | %.2f | %.2f" % (cycles / row.units_on(cpu), limit / cycles, ports / cycles)


# ---- The table -----------------------------------------------------------------------------------


def table(rows, limit, mca):
    """Returns the table of the rows and their loops."""
    heads = ["%s: cycles | %s | ports" % (cpu, limit) for cpu in CPUS]
    yield "| loop | %s |" % " | ".join(heads)
    yield "|---|" + "---:|" * 3 * len(CPUS)
    for row, loop in rows:
        cells = [measure(mca, cpu, row, loop) for cpu in CPUS]
        yield "| %s | %s |" % (row.name, " | ".join(cells))


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    mca, version = find_mca()
    folder = Path(sys.argv[1])
    least = Row("least of UINT8 to FP32", None, None, DEQUANTIZED, None, is_access)
    dequantizers = [(row, loop_of(row, folder)) for row in ROWS] + [(least, LEAST)]
    products = [(row, loop_of(row, folder)) for row in PRODUCTS] + ALONE
    lines = list(table(dequantizers, "accesses", mca))
    of_least = [run_mca(mca, cpu, LEAST)[0] / run_mca(mca, cpu, dequantizers[0][1])[0]
                for cpu in CPUS]
    rest = list(table([(row, loop_of(row, folder)) for row in OTHERS], "accesses", mca))
    more = list(table(products, "products", mca))
    print("\n".join(lines + rest + more))
    figures.write_section(Path(__file__).parent, [
        "# Model of ARM's inner loops", "",
        "Written by `make model-arm`; not by hand. This is a model, which any machine can make:",
        "nothing here was measured. llvm-mca %d, LLVM's simulator of a CPU's pipelines, runs the"
        % version, "loops that gcc makes. The runs are long, with one scale and zero point, and",
        "all data is in the L1 cache. The words are those of",
        "[kernels/README.md](../../kernels/README.md#words). – means that the CPU does not have",
        "the instructions.", "",
        "- *cycles* is the number of cycles for one element.",
        "- *accesses* is the speed of the loop, relative to its own loads and stores alone, as",
        "  gcc made them. So rows with different loads and stores cannot be compared. No loop of",
        "  NEON can reach 1: to make four floats, subtract the zero point and multiply takes at",
        "  least three vector operations, and their store takes a vector port, too. The row",
        "  *least of UINT8 to FP32* is written by hand and has no more than these. The first row",
        "  has %.2f, %.2f and %.2f of its speed on the three CPUs. SVE needs fewer operations,"
        % tuple(of_least), "  because its loads put each element into a lane of 32 bits.",
        "- *ports* is the share of the speed that its busiest port allows.",
        "",
        "Scales are FP32, except in the rows that say FP16. With FP16, eight products at a time",
        "can be rounded to FP16.", "", *lines, "",
        "Other loops. *cycles* are for one element, for one sum in the row of sums, and for one",
        "quad in the row of quads:", "", *rest, "",
        "Integer products, of whole tiles:", "",
        "- *cycles* is the number of cycles for one term, which is a product and its addition.",
        "- *products* is the share of the speed that the multiplications alone would have.", "",
        "The last rows show that SVE's multiplications are no faster than NEON's: a V1 does half",
        "as many of twice the size. So quantd has no products by SVE.", "",
        *more])


if __name__ == "__main__":
    main()
