"""Libraries to preload into the server, which make system calls fail, wait or return false results:
the C files of shims/."""
import os
import subprocess
import tempfile

from quantd import COMPILER, ROOT


def shim(test, name):
    """Compiles the C file of that name. Returns the library's path, which exists until the test
    ends."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return build_shim(folder.name, name)


def build_shim(folder, name):
    """Compiles the C file of that name into the folder. Returns the library's path."""
    path = os.path.join(folder, name + ".so")
    source = ROOT / "tests" / "e2e" / "shims" / (name + ".c")
    subprocess.run([*COMPILER, "-O1", "-shared", "-fPIC", "-o", path, str(source)], check=True)
    return path
