"""make install, the man page, the systemd unit, and the version, which is defined in one place."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from quantd import BUILD, PROGRAM, ROOT, SLOW, unless_emulated

UNIT = ROOT / "docker" / "systemd" / "quantd.service"
# For a make that is not a part of the one that runs these tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B", "DESTDIR", "PREFIX")}


def run(*command):
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True,
                          timeout=60 * SLOW, check=False, stdin=subprocess.DEVNULL)


def files_below(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


@unless_emulated("what is installed is started as it is")
class Install(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)

    def make(self, target, *variables):
        # The program is already built, perhaps with other flags. With -o, make does not rebuild it.
        result = run("make", "-s", "-o", str(PROGRAM.relative_to(ROOT)), target,
                     "B=%s" % BUILD.relative_to(ROOT), *variables)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def expected(self, prefix, page):
        return {prefix + "/bin/quantd", prefix + "/lib/systemd/system/quantd.service",
                prefix + "/share/quantd/LICENSE"} | (
            {prefix + "/share/man/man1/quantd.1"} if page else set()) | (
            {prefix + "/share/quantd/openapi.yaml"}
            if (ROOT / "api_schema" / "openapi.yaml").exists() else set())

    def test_below_destdir_and_gone_again(self):
        where = ("DESTDIR=%s" % self.folder, "PREFIX=/usr", "HELP2MAN=no-such-program")
        said = self.make("install", *where)
        self.assertEqual(said, "The man page is left out: no-such-program is not installed\n")
        self.assertEqual(files_below(self.folder), self.expected("usr", page=False))
        unit = self.folder / "usr/lib/systemd/system/quantd.service"
        self.assertEqual(unit.read_text(),
                         UNIT.read_text().replace("/usr/local/bin/quantd", "/usr/bin/quantd"))
        self.assertIn("\nExecStart=/usr/bin/quantd\n", unit.read_text())
        self.assertEqual(unit.stat().st_mode & 0o777, 0o644)
        version = run(str(self.folder / "usr/bin/quantd"), "--version")
        self.assertEqual(version.stdout, run(str(PROGRAM), "--version").stdout)
        self.make("uninstall", *where)
        self.assertEqual(files_below(self.folder), set())

    def test_prefix_that_the_unit_cannot_hold(self):
        for prefix in ("/opt/a b", "/opt/a&b", "/opt/a|b", "/opt/%n"):
            result = run("make", "-s", "-o", str(PROGRAM.relative_to(ROOT)), "install",
                         "B=%s" % BUILD.relative_to(ROOT), "DESTDIR=%s" % self.folder,
                         "PREFIX=" + prefix)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("PREFIX: expected letters, digits and /._+-, got '%s'\n" % prefix,
                          result.stderr)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_relative_prefix(self):
        result = run("make", "-s", "-o", str(PROGRAM.relative_to(ROOT)), "install",
                     "B=%s" % BUILD.relative_to(ROOT), "PREFIX=build/no-such-prefix")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("PREFIX: expected an absolute path, got 'build/no-such-prefix'\n",
                      result.stderr)
        self.assertFalse((ROOT / "build" / "no-such-prefix").exists())

    def test_uninstall_removes_empty_folders(self):
        where = ("DESTDIR=%s" % self.folder, "PREFIX=/opt/quantd")
        self.make("install", *where)
        prefix = self.folder / "opt" / "quantd"
        (prefix / "share" / "another").mkdir()
        self.make("uninstall", *where)
        self.assertEqual([str(path.relative_to(prefix)) for path in sorted(prefix.rglob("*"))],
                         ["share", "share/another"])

    def test_uninstall_leaves_what_is_not_its_own(self):
        where = ("DESTDIR=%s" % self.folder, "PREFIX=/usr", "HELP2MAN=no-such-program")
        self.make("install", *where)
        (self.folder / "usr/share/quantd/mine").touch()
        self.make("uninstall", *where)
        self.assertEqual(files_below(self.folder), {"usr/share/quantd/mine"})

    def test_usr_local_by_default(self):
        self.make("install", "DESTDIR=%s" % self.folder, "HELP2MAN=no-such-program")
        self.assertEqual(files_below(self.folder), self.expected("usr/local", page=False))
        self.assertEqual((self.folder / "usr/local/lib/systemd/system/quantd.service").read_text(),
                         UNIT.read_text())

    @unittest.skipIf(shutil.which("help2man") is None, "help2man is not installed")
    def test_man_page(self):
        where = ("DESTDIR=%s" % self.folder, "PREFIX=/usr")
        self.assertEqual(self.make("install", *where), "")
        self.assertEqual(files_below(self.folder), self.expected("usr", page=True))
        page = (self.folder / "usr/share/man/man1/quantd.1").read_text()
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT"):
            self.assertIn("\n.SH %s\n" % section, page)
        self.assertIn("quantd \\- quantized neural networks and operators over HTTP\n", page)
        self.assertIn('"%s"' % run(str(PROGRAM), "--version").stdout.strip(), page)
        flags = re.findall(r"^  --([a-z-]+) ", run(str(PROGRAM), "--help").stdout, re.MULTILINE)
        shown = re.findall(r"^\.TP\n\\fB\\-\\-([a-z\\-]+)\\fR", page, re.MULTILINE)
        self.assertEqual([flag.replace("\\", "") for flag in shown], flags)
        self.make("uninstall", *where)
        self.assertEqual(files_below(self.folder), set())

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_systemd_takes_the_unit(self):
        self.make("install", "PREFIX=%s" % self.folder, "HELP2MAN=no-such-program")
        unit = str(self.folder / "lib/systemd/system/quantd.service")
        result = run("systemd-analyze", "verify", "--man=no", unit)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        result = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                     "--threshold=15", unit)
        self.assertEqual(result.returncode, 0, result.stdout[-200:] + result.stderr)


class Changelog(unittest.TestCase):
    TEXT = (ROOT / "api_schema" / "CHANGELOG.md").read_text()

    def test_newest_release_is_the_version(self):
        releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", self.TEXT,
                              re.MULTILINE)
        header = (ROOT / "server" / "base" / "version.h").read_text()
        self.assertEqual(releases[0], re.search(r'#define QD_VERSION "(.*)"', header).group(1))
        self.assertEqual(releases, sorted(releases, reverse=True,
                                          key=lambda text: [int(n) for n in text.split(".")]))

    def test_unreleased_is_first(self):
        headings = re.findall(r"^## (.*)$", self.TEXT, re.MULTILINE)
        self.assertEqual(headings[0], "[Unreleased]")
        for heading in headings[1:]:
            self.assertRegex(heading, r"^\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$")

    def test_kinds_of_changes(self):
        """Each section has each kind once, in this order."""
        kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        for section in self.TEXT.split("\n## ")[1:]:
            found = re.findall(r"^### (.*)$", section, re.MULTILINE)
            self.assertEqual(found, [kind for kind in kinds if kind in found], section[:20])


if __name__ == "__main__":
    unittest.main()
