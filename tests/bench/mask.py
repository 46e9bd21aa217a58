"""Makes everything that is measured see an older CPU, for `make bench A="--cpu cascadelake"`."""
import os
import subprocess
import sys

from libqk import FILES, ROOT

CPUS = ("haswell", "skylakex", "cascadelake", "icelake")  # of peers/mask_cpu.c


def shown():
    """Returns the name of the CPU that this process sees instead of the machine's. None: it sees
    the machine's."""
    return os.environ.get("MASK_CPU")


def show(name):
    """Restarts this program with a library that hides the features that the CPU of that name lacks.
    Does not return."""
    library = ROOT / FILES / "mask_cpu.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library,
                    ROOT / "tests" / "bench" / "peers" / "mask_cpu.c"], check=True)
    environment = dict(os.environ, MASK_CPU=name, LD_PRELOAD=str(library))
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)
