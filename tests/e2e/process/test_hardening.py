"""The program is built so that a memory error ends it, and objects are rebuilt if their flags
change."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from quantd import BUILD, COMPILER, PROGRAM, ROOT, SANITIZED


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True,
                          text=True).stdout


@unittest.skipIf(shutil.which("readelf") is None, "readelf is not installed")
class Hardening(unittest.TestCase):
    def test_the_program_lies_anywhere(self):
        self.assertRegex(readelf("-h", str(PROGRAM)), r"Type:\s+DYN")
        self.assertRegex(readelf("-d", str(PROGRAM)), r"FLAGS_1.*\bPIE\b")

    def test_what_was_linked_is_read_only(self):
        self.assertRegex(readelf("-l", str(PROGRAM)), r"GNU_RELRO")
        self.assertRegex(readelf("-d", str(PROGRAM)), r"FLAGS_1.*\bNOW\b")

    def test_nothing_is_written_and_run(self):
        segments = re.findall(r"^\s+(\w+)(?:\s+0x\w+){5}\s+([R ][W ][E ])\s",
                              readelf("-l", str(PROGRAM)), re.MULTILINE)
        self.assertIn("GNU_STACK", dict(segments))
        self.assertIn(("LOAD", "R E"), segments)
        self.assertEqual([name for name, rights in segments if "W" in rights and "E" in rights],
                         [])

    @unittest.skipIf(SANITIZED, "a sanitizer looks itself")
    def test_the_stack_and_copies_are_watched(self):
        names = readelf("--dyn-syms", str(PROGRAM))
        self.assertIn("__stack_chk_fail", names)
        self.assertIn("__snprintf_chk", names)
        self.assertIn("__memcpy_chk", names)

    def test_jumps_land_where_they_may(self):
        """Checks that each of our objects is marked. The program is marked only if all parts of its
        libraries are."""
        objects = [path for folder in ("server", "kernels") for path in
                   (BUILD / folder).rglob("*.o")]
        self.assertGreater(len(objects), 100)
        arm = "AArch64" in readelf("-h", str(PROGRAM))
        for path in objects:
            self.assertRegex(readelf("-n", str(path)), "BTI, PAC" if arm else "IBT, SHSTK", path)


class Machines(unittest.TestCase):
    """A machine that quantd cannot be built for is refused with a sentence."""

    def refused(self, *flags):
        return subprocess.run([*COMPILER, *flags, "-fsyntax-only", "-I.", "-x", "c", "-"],
                              input='#include "kernels/qk.h"\n', cwd=ROOT, capture_output=True,
                              text=True, timeout=60, check=False).stderr.splitlines()

    def test_this_one_is_not(self):
        self.assertEqual(self.refused(), [])

    def test_32_bits(self):
        flags = "-mabi=ilp32" if "aarch64" in COMPILER[0] or os.uname().machine == "aarch64" \
            else "-m32"
        self.assertIn("quantd needs a 64-bit machine", " ".join(self.refused(flags)[:2]))

    @unittest.skipUnless("aarch64" in COMPILER[0], "x86 is never big-endian")
    def test_big_endian(self):
        self.assertIn("quantd needs a little-endian machine",
                      " ".join(self.refused("-mbig-endian")[:2]))


class Flags(unittest.TestCase):
    def make(self, folder, *more):
        path = "%s/server/base/status.o" % folder
        subprocess.run(["make", "-s", "B=" + folder, *more, path], cwd=ROOT, check=True,
                       capture_output=True, text=True, timeout=60,
                       env={name: value for name, value in os.environ.items()
                            if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "SAN", "CFLAGS")})
        return Path(path).stat().st_mtime_ns

    def test_objects_are_made_anew_when_their_flags_change(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.make(folder)
            self.assertEqual(self.make(folder), first)
            other = self.make(folder, "CFLAGS=-O1")
            self.assertNotEqual(other, first)
            sanitized = self.make(folder, "CFLAGS=-O1", "SAN=undefined")
            self.assertNotEqual(sanitized, other)
            self.assertEqual(self.make(folder, "CFLAGS=-O1", "SAN=undefined"), sanitized)


if __name__ == "__main__":
    unittest.main()
