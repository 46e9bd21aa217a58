"""Each file of kernels contains only instructions that its suffix allows, so no CPU runs an
instruction that it may lack."""
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from quantd import EMULATOR, ROOT

OBJECTS = Path(ROOT, os.environ.get("B", "build"), "kernels")
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+(?:\{\w+\}\s+)?(\w+)(.*)$", re.MULTILINE)
VBMI = re.compile(r"vperm(b|i2b|t2b)|vpmultishiftqb|vpcompress[bw]|vpexpand[bw]|vpsh[lr]dv?[wdq]")
VNNI = re.compile(r"vpdp(bus|wss)ds?")
# The instructions and registers that a file with this suffix must not have.
FORBIDDEN = {
    "avx2": (VNNI, "zmm|%k[0-7]"),
    "avxvnni": (VBMI, "zmm|%k[0-7]"),
    "avx512bw": (re.compile("%s|%s" % (VBMI.pattern, VNNI.pattern)), None),
    "avx512vnni": (VBMI, None),
}


def suffix_of(path):
    return path.stem.rsplit("_", 1)[-1]


@unittest.skipIf(shutil.which("objdump") is None, "objdump is not installed")
@unittest.skipIf(EMULATOR or os.uname().machine != "x86_64", "only x86-64 has such files")
class Instructions(unittest.TestCase):
    def found(self, path, mnemonics, registers):
        """Returns the forbidden instructions in an object file, and how many instructions the file
        has."""
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], check=True,
                              capture_output=True, text=True).stdout
        all_of_it = INSTRUCTION.findall(text)
        return [name + rest for name, rest in all_of_it
                if (mnemonics and mnemonics.fullmatch(name)) or
                (registers and re.search(registers, rest))], len(all_of_it)

    def sources(self, suffix):
        found = [path for path in Path(ROOT, "kernels").rglob("*_%s.c" % suffix)]
        self.assertNotEqual(found, [])
        return [OBJECTS / path.relative_to(ROOT / "kernels").with_suffix(".o") for path in found]

    def test_a_suffix_has_its_instructions_only(self):
        for suffix, (mnemonics, registers) in FORBIDDEN.items():
            for path in self.sources(suffix):
                with self.subTest(path=str(path)):
                    found, count = self.found(path, mnemonics, registers)
                    self.assertGreater(count, 20)
                    self.assertEqual(found[:5], [])

    def test_files_without_a_suffix_run_anywhere(self):
        for source in Path(ROOT, "kernels").rglob("*.c"):
            if suffix_of(source) not in ("amx", "avx512vbmi", *FORBIDDEN):
                path = OBJECTS / source.relative_to(ROOT / "kernels").with_suffix(".o")
                with self.subTest(path=str(path)):
                    self.assertEqual(self.found(path, None, "[yz]mm|%k[0-7]")[0][:5], [])

    def test_what_is_looked_for_is_there_where_it_may_be(self):
        for suffix, mnemonics in (("avx512vbmi", VBMI), ("avx512vnni", VNNI)):
            self.assertTrue(any(self.found(path, mnemonics, None)[0]
                                for path in self.sources(suffix)))


if __name__ == "__main__":
    unittest.main()
