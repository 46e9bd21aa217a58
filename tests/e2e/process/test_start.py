"""Starts that fail: one line gives the reason, and the exit status is 1. A stale socket is no
failure."""
import fcntl
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

from quantd import COMMAND, COMPILER, SANITIZED, SLOW, SOMEBODY, Server, StartTest, has_ipv6
from shim import shim


def unprivileged_ports_begin():
    return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


def is_new(path):
    """Returns true if the file is there and is not one that a test made look old."""
    try:
        return os.stat(path).st_mtime > 1
    except FileNotFoundError:
        return False


class Start(StartTest):
    def assert_cannot_listen(self, address, why, before=None, **how):
        result = self.start(*["--listen", before] if before else [], "--listen", address, **how)
        self.assert_fails(result, "cannot listen on %s: %s" % (address, why))

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assert_cannot_listen("127.0.0.1:%d" % taken.getsockname()[1],
                                      "Address already in use: another process listens there; "
                                      "--listen takes another port")

    def test_address_of_another_host(self):
        self.assert_cannot_listen("192.0.2.1:8000", "this host has no such address")
        if has_ipv6():
            self.assert_cannot_listen("[2001:db8::1]:8000", "this host has no such address")

    def test_host_without_address(self):
        self.assert_cannot_listen("no.such.host.invalid:8000", "Name or service not known")

    @unittest.skipIf(unprivileged_ports_begin() <= 1, "every port is for everybody here")
    def test_port_for_the_privileged(self):
        self.assert_cannot_listen("127.0.0.1:%d" % (unprivileged_ports_begin() - 1),
                                  "no right to listen on so low a port (CAP_NET_BIND_SERVICE "
                                  "gives it)", unprivileged=True)

    def test_no_directory_for_the_socket(self):
        self.assert_cannot_listen("unix:%s/none/s" % self.folder, "its directory does not exist")

    def test_no_right_to_make_the_socket(self):
        os.mkdir(self.folder + "/closed", 0o500 if os.geteuid() else 0o755)
        self.assert_cannot_listen("unix:%s/closed/s" % self.folder,
                                  "no right to make it, or to replace what is there",
                                  unprivileged=True)

    def test_something_else_is_there(self):
        Path(self.folder, "file").touch()
        for name in (".", "file"):
            self.assert_cannot_listen("unix:%s/%s" % (self.folder, name),
                                      "there is a file of that name, and it is no socket")
        self.assertTrue(Path(self.folder, "file").exists())

    def test_path_too_long(self):
        result = self.start("--listen", "unix:" + "x" * 108)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("quantd: --listen: expected ADDR:PORT (such as 127.0.0.1:8000), "
                      "[ADDR6]:PORT or unix:PATH (at most 107 bytes, no @NAME), ", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_a_comma_or_an_at_in_the_path(self):
        for address in ("unix:/a,b.sock", "unix:@abc"):
            result = self.start("--listen", address)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("with commas between, got \"%s\"\n" % address, result.stderr)

    def test_a_live_server_keeps_its_socket(self):
        address = "unix:%s/s" % self.folder
        server = Server(listen=(address,))
        self.assert_cannot_listen(address, "another process listens on it")
        self.assertTrue(Path(self.folder, "s").is_socket())
        # If the second of two listeners fails, the first leaves nothing behind.
        other = "unix:%s/other" % self.folder
        result = self.start("--listen", other, "--listen", address)
        self.assert_fails(result, "cannot listen on %s: another process listens on it" % address)
        self.assertFalse(Path(self.folder, "other").exists())
        server.stop()

    def test_a_dead_server_leaves_its_socket_to_the_next(self):
        address = "unix:%s/s" % self.folder
        dead = Server(listen=(address,))
        os.kill(dead.pid, signal.SIGKILL)
        self.assertRaises(AssertionError, dead.wait)
        self.assertTrue(Path(self.folder, "s").is_socket())
        server = Server(listen=(address,))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.folder + "/s")
        server.stop()
        self.assertFalse(Path(self.folder, "s").exists())

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_two_start_at_once(self):
        library = shim(self, "slow_start")
        for left_behind in (False, True):
            path = "%s/%d" % (self.folder, left_behind)
            if left_behind:
                with socket.socket(socket.AF_UNIX) as dead:
                    dead.bind(path)
                os.utime(path, (1, 1))
            first = threading.Thread(target=lambda path=path: servers.append(
                Server(listen=("unix:" + path,), env={"LD_PRELOAD": library})))
            servers = []
            first.start()
            deadline = time.monotonic() + 60
            while not is_new(path) and time.monotonic() < deadline:
                time.sleep(0.01)  # the preloaded library takes a second between bind and listen
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o660, "open to more for a while")
            self.assert_cannot_listen("unix:" + path, "another process listens on it")
            first.join()
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
            servers[0].stop()
            self.assertFalse(os.path.exists(path))

    def test_owners_that_nobody_has(self):
        for owner in ("nobody-of-this-name", ":nobody-of-this-name", "0:", "4294967295"):
            self.assert_fails(
                self.start("--listen", "unix:%s/s" % self.folder, "--unix-owner", owner),
                '--unix-owner: expected USER, USER:GROUP or :GROUP that this system knows, or '
                'numbers, got "%s"' % owner)
        os.chmod(self.folder, 0o777)
        self.assert_cannot_listen("unix:%s/s" % self.folder,
                                  "no right to give it that owner (--unix-owner)",
                                  unprivileged=True, QUANTD_UNIX_OWNER="0:0")
        self.assertFalse(Path(self.folder, "s").exists())

    @unittest.skipIf(os.geteuid() != 0, "only root may give a file away")
    def test_mode_and_owner_say_who_may_connect(self):
        path = self.folder + "/s"

        def connect(user, group):
            code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
            return subprocess.run(["python3", "-c", code, path], user=user, group=group,
                                  extra_groups=[], capture_output=True, check=False).returncode

        for mode, owner, user, group, others in (("0660", ":%d" % SOMEBODY, 1, 0, 1),
                                                 ("0600", "%d:0" % SOMEBODY, 0, 1, 1),
                                                 ("0666", "nobody:nogroup", 0, 0, 0)):
            server = Server("--unix-mode", mode, "--unix-owner", owner, listen=("unix:" + path,))
            self.assertEqual(os.stat(path).st_mode & 0o7777, int(mode, 8))
            self.assertEqual([connect(SOMEBODY, 2), connect(1, SOMEBODY), connect(1, 2)],
                             [user, group, others], (mode, owner))
            server.stop()

    def test_somebody_locks_the_directory(self):
        held = os.open(self.folder, os.O_DIRECTORY)
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assert_cannot_listen("unix:%s/s" % self.folder,
                                  "another process holds a lock on its directory")

    def test_a_directory_that_may_not_be_read(self):
        os.mkdir(self.folder + "/private")
        os.chown(self.folder + "/private", *(SOMEBODY, SOMEBODY) if os.geteuid() == 0 else (-1, -1))
        os.chmod(self.folder + "/private", 0o300)
        # The second address, in a directory that does not exist, makes the start fail.
        self.assert_cannot_listen("unix:none/s", "its directory does not exist", unprivileged=True,
                                  before="unix:%s/private/s" % self.folder)

    def test_no_openblas(self):
        library = Path(self.folder, "libopenblas.so.0")
        library.write_text("nothing")
        result = self.start("--gemm", "blas", LD_LIBRARY_PATH=self.folder)
        self.assert_fails(result, "OpenBLAS: %s: file too short: install libopenblas0" % library)

    def test_something_else_than_openblas(self):
        subprocess.run([*COMPILER, "-shared", "-fPIC", "-x", "c", "/dev/null",
                        "-o", self.folder + "/libopenblas.so.0"], check=True)
        result = self.start("--gemm", "blas", LD_LIBRARY_PATH=self.folder)
        self.assert_fails(result, "libopenblas.so.0 has no cblas_sgemm: install libopenblas0")

    @unittest.skipIf(SANITIZED, "a sanitizer wants more address space than there is")
    def test_openblas_without_room(self):
        for mebibytes, threads in ((60, 1), (120, 1), (180, 2), (290, 2), (400, 64)):
            for measure in ("on", "off"):
                result = self.start("--gemm", "blas", "--measure", measure, "--threads",
                                    str(threads), limit=(resource.RLIMIT_AS, mebibytes << 20))
                self.assert_fails(result, "OpenBLAS: expected 128 MiB of address space for each of "
                                  "%d threads, which the limit on it (ulimit -v) or memory does "
                                  "not allow" % threads)

    @unittest.skipIf(SANITIZED, "a sanitizer wants more address space than there is")
    def test_kernels_of_openblas_without_room(self):
        # --kernels has to work out itself how many threads there would be.
        result = self.start("--kernels", "--gemm", "blas", limit=(resource.RLIMIT_AS, 150 << 20))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^quantd: OpenBLAS: expected 128 MiB of address space for "
                         r"each of [1-9]\d* threads, which the limit ")

    @unittest.skipIf(SANITIZED, "a sanitizer wants more address space than there is")
    def test_no_room_for_openblas_but_for_others(self):
        result = self.start("--kernels", limit=(resource.RLIMIT_AS, 150 << 20))
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    @unittest.skipIf(SANITIZED, "a sanitizer wants more address space than there is")
    def test_more_threads_than_openblas_has_buffers(self):
        """OpenBLAS itself would complain: to stderr beyond its buffers, and to stdout beyond 512
        more."""
        for threads in ("500", "1024"):
            result = self.start("--gemm", "blas", "--threads", threads)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertRegex(result.stderr, r"^quantd: --gemm: blas: expected at most \d+ threads "
                             r"\(--threads\), one for each buffer of OpenBLAS, got %s\n$" % threads)
            result = self.start("--kernels", "--threads", threads)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("This machine\n"), result.stdout)

    def test_without_openblas(self):
        Path(self.folder, "libopenblas.so.0").write_text("nothing")
        server = Server(env={"LD_LIBRARY_PATH": self.folder})
        self.assertEqual(server.get("/v2/health/ready").status, 200)
        self.assertIn(" openblas_core=none ", server.stop())

    def test_a_signal_that_comes_first(self):
        """A signal that comes before its handler is installed stays pending and then ends the
        server in order."""
        def held():
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
            os.kill(os.getpid(), signal.SIGTERM)

        result = subprocess.run([*COMMAND, "--listen", "127.0.0.1:0"], preexec_fn=held,
                                text=True, capture_output=True, timeout=60 * SLOW, check=False,
                                stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("draining", result.stderr)
        self.assertNotIn("second signal", result.stderr)

    def test_a_second_signal_ends_it_at_once(self):
        """The second signal ends the server although it has accepted a request that is not
        answered."""
        server = Server("--drain-timeout", "86400", "--min-rate", "0")
        self.addCleanup(server.stderr_file.close)
        self.addCleanup(server.process.stdout.close)
        waiting = server.connect()
        self.addCleanup(waiting.close)
        waiting.sendall(b"POST /v2/repository/index HTTP/1.1\r\nHost: q\r\n"
                        b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        self.assertEqual(waiting.recv(12), b"HTTP/1.1 100")
        server.terminate()
        deadline = time.monotonic() + 60 * SLOW
        while "draining" not in server.stderr():  # two pending signals would become one
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertIsNone(server.process.poll())
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60 * SLOW), 1)
        self.assertIn("second signal", server.stderr())

    def test_the_access_log_comes_before_the_models(self):
        os.mkdir(self.folder + "/models")
        for flags in ((), ("--listen", "192.0.2.1:8000"), ("--model-repository",
                      self.folder + "/models", "--load-model", "none",
                      "--model-control-mode", "explicit")):
            result = self.start("--access-log", self.folder + "/none/log", *flags)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("/none/log", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)

    def test_too_few_descriptors(self):
        for count in (5, 63):
            result = self.start("--listen", "127.0.0.1:0", limit=(resource.RLIMIT_NOFILE, count))
            self.assert_fails(result, "file descriptors (ulimit -n): expected at least 64, got %d"
                              % count)

    @unittest.skipIf(SANITIZED, "a sanitizer has a thread of its own")
    def test_too_few_threads(self):
        result = self.start("--listen", "127.0.0.1:0", "--threads", "50", unprivileged=True,
                            limit=(resource.RLIMIT_NPROC, 2))
        self.assert_fails(result, "--threads: cannot start 50; memory or the limit on processes "
                          "is short")


if __name__ == "__main__":
    unittest.main()
