"""make dist: the tarball of a commit, the program built from it, and the trees that it refuses."""
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from quantd import BUILD, PROGRAM, ROOT, SANITIZED, unless_emulated

# Without the variables of the make, the checkout and the user that run these tests. The commit's
# date lies far back, so that objects that are already built are newer than its files.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("GIT_")
               and name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B")}
ENVIRONMENT |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
for who in ("AUTHOR", "COMMITTER"):
    ENVIRONMENT |= {"GIT_%s_NAME" % who: "quantd", "GIT_%s_EMAIL" % who: "quantd@example.org",
                    "GIT_%s_DATE" % who: "2026-01-01T00:00:00Z"}


def run(folder, *command, **environment):
    return subprocess.run(command, cwd=folder, env=dict(ENVIRONMENT, **environment), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)


def must(folder, *command, **environment):
    result = run(folder, *command, **environment)
    if result.returncode != 0:
        raise AssertionError("%s: %s" % (" ".join(command), result.stdout + result.stderr))
    return result.stdout


def project_files():
    """Returns the files that git lists; without git, all files outside build/ and .git/."""
    listed = run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
            if path.is_file() and path.relative_to(ROOT).parts[0] not in ("build", ".git")]


@unittest.skipIf(shutil.which("git") is None, "git is not installed")
@unittest.skipIf(SANITIZED, "the same without a sanitizer")
@unless_emulated("the same sources, for this machine")
class Dist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name).resolve()
        ENVIRONMENT["GIT_CEILING_DIRECTORIES"] = str(cls.folder)
        cls.version = must(ROOT, str(PROGRAM), "--version").split()[1]
        cls.name = "quantd-" + cls.version
        # The files as they are, with changes that are not committed yet.
        cls.source = cls.folder / "source"
        for name in project_files():
            (cls.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, cls.source / name)
        must(cls.source, "git", "init", "--quiet")
        must(cls.source, "git", "add", "--all")
        must(cls.source, "git", "commit", "--quiet", "--message", "all: as it is")
        made = cls.clone()
        cls.said = must(made, "make", "-s", "dist", TZ="UTC")
        cls.tarball = made / "build" / (cls.name + ".tar.gz")

    @classmethod
    def clone(cls):
        folder = Path(tempfile.mkdtemp(dir=cls.folder)) / "clone"
        must(cls.folder, "git", "clone", "--quiet", "source", str(folder))
        return folder

    def unpack(self):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        with tarfile.open(self.tarball) as tar:
            tar.extractall(folder)
        self.assertEqual([entry.name for entry in folder.iterdir()], [self.name])
        return folder / self.name

    def assert_refused(self, result, words):
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        said = [line for line in result.stderr.splitlines() if not line.startswith("make")]
        self.assertEqual(len(said), 1, result.stderr)
        self.assertTrue(said[0].startswith("dist.sh: expected "), said)
        self.assertIn(words, said[0])

    def test_the_same_bytes(self):
        """The same commit gives the same bytes, tagged or not, for any user, at any time."""
        old = os.umask(0o077)
        self.addCleanup(os.umask, old)
        other = self.clone()
        must(other, "find", "server", "-name", "*.c", "-exec", "touch", "{}", "+")
        must(other, "git", "tag", "v" + self.version)
        must(other, "make", "-s", "dist", TZ="Asia/Tokyo")
        self.assertEqual(self.tarball.read_bytes(),
                         (other / "build" / self.tarball.name).read_bytes())

    def test_what_is_said_and_what_is_in_it(self):
        commit = must(self.source, "git", "rev-parse", "HEAD").strip()
        self.assertEqual(self.said, "dist.sh: made build/%s of commit %s, SHA-256 %s\n" % (
            self.tarball.name, commit, hashlib.sha256(self.tarball.read_bytes()).hexdigest()))
        self.assertEqual(list(self.tarball.parent.iterdir()), [self.tarball])
        with tarfile.open(self.tarball) as tar:
            names = {member.name.partition("/")[2] for member in tar if member.isfile()}
        committed = must(self.source, "git", "ls-files", "-z").split("\0")
        self.assertEqual(names, set(filter(None, committed)))
        self.assertLess({"Makefile", "LICENSE", ".ci/run", "server/main.c"}, names)

    def test_it_builds_and_answers(self):
        """Copies the objects that are already built, so make only links. Compiling takes minutes,
        and make does it only for an object that is older than its source or whose source is
        missing."""
        folder = self.unpack()
        build = folder / os.path.relpath(BUILD, ROOT)
        for name in ("server", "kernels"):
            shutil.copytree(BUILD / name, build / name)
        shutil.copy2(BUILD / "flags", build)
        must(folder, "make", "-s", "-j2", "B=" + os.path.relpath(BUILD, ROOT))
        self.assertEqual(must(folder, str(build / "quantd"), "--version"),
                         "quantd %s\n" % self.version)
        said = must(folder, "tests/demo/demo.sh", B=str(build))
        self.assertIn("ended with status 0", said)

    def test_changes(self):
        folder = self.clone()
        (folder / "notes").write_text("not committed")
        self.assert_refused(run(folder, "make", "-s", "dist"), "without changes, got 1: ?? notes")
        (folder / "Makefile").write_text("# a change\n")
        self.assert_refused(run(folder, "docker/dist.sh"), "without changes, got 2: ")
        self.assertFalse((folder / "build").exists())

    def test_no_checkout(self):
        folder = self.unpack()
        self.assert_refused(run(folder, "make", "-s", "dist"), "a checkout of git, got: fatal: ")
        must(folder.parent, "git", "init", "--quiet")
        self.assert_refused(run(folder, "make", "-s", "dist"), "got a folder in that of ")

    def test_no_git(self):
        tools = Path(tempfile.mkdtemp(dir=self.folder))
        for name in ("sh", "dirname"):
            (tools / name).symlink_to(shutil.which(name))
        self.assert_refused(run(self.source, "docker/dist.sh", PATH=str(tools)),
                            "git (Debian: apt-get install git), got none")

    def test_a_version_that_another_commit_has(self):
        folder = self.clone()
        must(folder, "git", "tag", "v" + self.version)
        must(folder, "git", "commit", "--quiet", "--allow-empty", "--message", "all: later")
        self.assert_refused(run(folder, "make", "-s", "dist"),
                            "as the tag v%s says, or another QD_VERSION" % self.version)


if __name__ == "__main__":
    unittest.main()
