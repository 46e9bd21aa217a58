"""Runs functions at the same time, each in a process of its own.

A job's output is kept in a file and printed when the job ends, so outputs never mix. A process that
loses its parent below a job becomes a child of that job (PR_SET_CHILD_SUBREAPER), so the job can
find and end it.
"""
import ctypes
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this process the parent of each process below it whose own parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ending(status):
    """Returns how a process ended, in words. `status` is as subprocess returns it."""
    if status >= 0:
        return "exited with %d" % status
    try:
        return "was ended by %s" % signal.Signals(-status).name
    except ValueError:
        return "was ended by signal %d" % -status


class Job:
    """A function to run in a process of its own. `function` takes nothing, and its result must be
    picklable."""

    def __init__(self, name, function, expected_s=0.0):
        self.name, self.function, self.expected_s = name, function, expected_s
        self.result = None   # what the function returned
        self.ending = None   # how the process ended, if it returned nothing
        self.seconds = 0.0   # from start to end
        self.cpu_s = 0.0     # user and system time of the process and all below it
        self._pid = None
        self._started = 0.0
        self._output = self._pickle = None

    def run_here(self):
        """Runs the function in this process, with its output unchanged."""
        started, cpu_s = time.monotonic(), cpu_seconds()
        self.result = self.function()
        self.seconds, self.cpu_s = time.monotonic() - started, cpu_seconds() - cpu_s

    def start(self, nice):
        self._output, self._pickle = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._run_in_child(nice)

    def _run_in_child(self, nice):
        """Runs the function in the forked process, and never returns."""
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            adopt_orphans()
            os.nice(nice)
            os.dup2(self._output.fileno(), 1)
            os.dup2(self._output.fileno(), 2)
            pickle.dump(self.function(), self._pickle)
            self._pickle.flush()
            status = 0
        except KeyboardInterrupt:
            pass
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _end(self, status, usage):
        self.seconds = time.monotonic() - self._started
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self._output.seek(0)
        shutil.copyfileobj(self._output, sys.stdout.buffer)
        sys.stdout.flush()
        if status == 0:
            self._pickle.seek(0)
            self.result = pickle.load(self._pickle)
        else:
            self.ending = ending(status)
        self._output.close()
        self._pickle.close()


class Lane:
    """Jobs of which at most `width` run at a time, at this niceness, the longest first."""

    def __init__(self, jobs, width, nice=0):
        self.waiting = sorted(jobs, key=lambda job: job.expected_s)  # popped from the end
        self.width, self.nice = width, nice
        self.running = {}  # pid -> job

    def fill(self):
        while self.waiting and len(self.running) < self.width:
            job = self.waiting.pop()
            job.start(self.nice)
            self.running[job._pid] = job


def run_all(lanes):
    """Runs the jobs of all lanes, and yields each when it has ended. Ends all of them if it is
    interrupted, also by SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        while True:
            for lane in lanes:
                lane.fill()
            if not any(lane.running for lane in lanes):
                return
            pid, status, usage = os.wait4(-1, 0)
            for lane in lanes:
                if pid in lane.running:  # otherwise an orphan of a job that was killed
                    job = lane.running.pop(pid)
                    job._end(os.waitstatus_to_exitcode(status), usage)
                    yield job
    finally:
        running = {pid: job for lane in lanes for pid, job in lane.running.items()}
        if running:
            print("interrupted; these were running: "
                  + ", ".join(job.name for job in running.values()), flush=True)
        for pid in running:
            os.kill(pid, signal.SIGTERM)


def cpu_seconds():
    """Returns user and system time of this process, and of its children that have been waited
    for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
