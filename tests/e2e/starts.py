"""Starts of the server that fail."""
import os
import resource
import shutil
import subprocess
import tempfile
import unittest

from quantd import EMULATOR, PROGRAM, SLOW

SOMEBODY = 65532  # without any rights, if we are root and may choose


class StartTest(unittest.TestCase):
    """Each test has a folder. A server that is started there is expected to fail."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = directory.name
        os.chmod(self.folder, 0o755)

    def start(self, *flags, unprivileged=False, limit=None, **environment):
        """Of a start that fails. limit: (RLIMIT_..., value)"""
        if EMULATOR and (limit or unprivileged):
            self.skipTest("the emulator would meet the limit, or lack the rights, too")
        program, more = str(PROGRAM), {}
        if unprivileged and os.geteuid() == 0:
            program = shutil.copy(program, self.folder)  # where somebody may go
            more = {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []}
        if limit:
            more["preexec_fn"] = lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))
        return subprocess.run([*EMULATOR, program, "--log-level", "error", *flags], text=True,
                              capture_output=True, timeout=20 * SLOW, check=False,
                              cwd=self.folder, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **environment), **more)

    def assert_fails(self, result, line):
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (1, "", "quantd: %s\n" % line))
