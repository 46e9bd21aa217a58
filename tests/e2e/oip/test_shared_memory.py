"""Triton's system shared memory: tensors in an object of /dev/shm that client and server both map.
The client here is Python's mmap of a file there, because such an object is just a file."""
import gzip
import mmap
import os
import resource
import signal
import struct
import subprocess
import threading
import unittest

from quantd import EMULATOR, SANITIZED, SLOW, Server, exchange, infer_path, json, parse_metrics

MODEL = "onnx.DequantizeLinear"
STATUS = "/v2/systemsharedmemory/status"
BYTES = 64 << 10


def prefix():
    """Returns the prefix of this process' objects: other test processes may run at the same
    time."""
    return "quantd-test-%d-" % os.getpid()


class Shared:
    """A shared memory object and this process' mapping of it."""

    def __init__(self, name, size):
        self.key, self.path = "/" + prefix() + name, "/dev/shm/" + prefix() + name
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)

    def resize(self, size):
        os.ftruncate(self.fd, size)

    def close(self):
        self.map.close()
        os.close(self.fd)
        os.unlink(self.path)


def in_region(name, size, offset=None):
    parameters = {"shared_memory_region": name, "shared_memory_byte_size": size}
    if offset is not None:
        parameters["shared_memory_offset"] = offset
    return parameters


def request_of(count, x, y=None, scale=0.5):
    """Returns a request. x and y are parameters as returned by in_region."""
    request = {"inputs": [{"name": "x", "datatype": "UINT8", "shape": [count], "parameters": x},
                          {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [scale]}]}
    if y is not None:
        request["outputs"] = [{"name": "y", "parameters": y}]
    return request


def halves(numbers):
    return b"".join(struct.pack("<f", number / 2) for number in numbers)


@unittest.skipUnless(os.path.isdir("/dev/shm"), "no /dev/shm")
class SharedMemory(unittest.TestCase):
    environment = {}
    flags = None  # by default, the objects of this process are allowed

    def setUp(self):
        if self.flags is None:
            self.flags = ("--allow-shared-memory", prefix())
        self.server = Server(*self.flags, env=self.environment)
        self.addCleanup(self.server.stop)
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def shared(self, name, size):
        made = Shared(name, size)
        self.addCleanup(made.close)
        return made

    def ask(self, method, path, body=None):
        body = None if body is None else json.dumps(body)
        return exchange(self.client, method, path, body)

    def register(self, name, key, size, offset=None):
        body = {"key": key, "byte_size": size}
        if offset is not None:
            body["offset"] = offset
        return self.ask("POST", "/v2/systemsharedmemory/region/%s/register" % name, body)

    def unregister(self, name=None):
        path = "/v2/systemsharedmemory/unregister"
        if name is not None:
            path = "/v2/systemsharedmemory/region/%s/unregister" % name
        self.assertEqual(self.ask("POST", path).status, 200)

    def infer(self, request):
        return self.ask("POST", infer_path(MODEL), request)

    def refused(self, answer, status, *words):
        self.assertEqual(answer.status, status, answer.body)
        for word in words:
            self.assertIn(word, answer.json()["error"])

    def both(self, size=BYTES):
        """Registers an input of size bytes (0, 1, 2…) and an object for its output as regions x and
        y."""
        x, y = self.shared("x", size), self.shared("y", 4 * size)
        x.map[:] = bytes(range(256)) * (size // 256)
        self.assertEqual(self.register("x", x.key, size).status, 200)
        self.assertEqual(self.register("y", y.key, 4 * size).status, 200)
        return x, y


class Regions(SharedMemory):
    def test_regions_come_and_go(self):
        x = self.shared("x", 8192)
        self.assertIn("system_shared_memory", self.ask("GET", "/v2").json()["extensions"])
        self.assertEqual(self.ask("GET", STATUS).json(), [])
        self.assertEqual(self.register("a", x.key, 8192).status, 200)
        self.assertEqual(self.register("b", "/" + x.key, 100, 4097).status, 200)
        a = {"name": "a", "key": x.key, "offset": 0, "byte_size": 8192}
        b = {"name": "b", "key": "/" + x.key, "offset": 4097, "byte_size": 100}
        self.assertEqual(self.ask("GET", STATUS).json(), [a, b])
        one = self.ask("GET", "/v2/systemsharedmemory/region/b/status")
        self.assertEqual(one.json(), [b])
        self.refused(self.register("a", x.key, 1), 400, "region", "a")
        self.unregister("a")
        self.unregister("a")
        self.assertEqual(self.ask("GET", STATUS).json(), [b])
        self.refused(self.ask("GET", "/v2/systemsharedmemory/region/a/status"), 404, "a")
        self.unregister()
        self.assertEqual(self.ask("GET", STATUS).json(), [])

    def test_gauges(self):
        x = self.shared("x", 8192)
        self.register("a", x.key, 8192)
        metrics = parse_metrics(self.ask("GET", "/metrics").body.decode())
        self.assertEqual(metrics["quantd_shared_memory_regions", ()], 1)
        self.assertEqual(metrics["quantd_shared_memory_bytes", ()], 8192)
        self.assertGreater(metrics["quantd_shared_memory_regions_max", ()], 1)
        self.assertGreater(metrics["quantd_shared_memory_bytes_max", ()], 8192)

    def test_hostile_keys(self):
        x = self.shared("x", 4096)
        folder, link = "/dev/shm/" + prefix() + "folder", "/dev/shm/" + prefix() + "link"
        pipe = "/dev/shm/" + prefix() + "pipe"
        os.mkdir(folder)
        self.addCleanup(os.rmdir, folder)
        os.symlink(x.path, link)
        self.addCleanup(os.unlink, link)
        os.mkfifo(pipe)
        self.addCleanup(os.unlink, pipe)
        for name in ("folder", "link", "pipe", "none", "x/", "folder/../" + prefix() + "x",
                     "n" * 300, "x\0y"):
            self.refused(self.register("r", "/" + prefix() + name, 1), 400)
        for key in ("", "/", "//", ".", "..", "/..", "/etc/passwd", "../etc/passwd", "other", 7,
                    None, ["x"], {}):
            self.refused(self.register("r", key, 1), 400, "key")
        self.assertEqual(self.ask("GET", STATUS).json(), [])

    def test_another_users_object(self):
        # The server may not open this object. tritonclient's objects are like that if the server
        # runs as another user.
        without = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
        if subprocess.run([*without, "true"], check=False).returncode != 0:
            self.skipTest("this root may not give up its capabilities")
        x = self.shared("x", 4096)
        os.fchmod(x.fd, 0o040)
        server = Server(*self.flags, before=without)
        self.addCleanup(server.stop)
        answer = server.request("POST", "/v2/systemsharedmemory/region/r/register",
                                json.dumps({"key": x.key, "byte_size": 4096}))
        self.refused(answer, 400, "key: ", "server's user, %d," % os.geteuid(), x.key[1:],
                     "user %d's, of group %d, with mode 0040" % (os.geteuid(), os.getegid()),
                     "mode 0660")

    def test_hostile_sizes(self):
        x = self.shared("x", 4096)
        for size, offset in ((0, None), (4097, None), (1, 4096), (4096, 1), (1 << 52, None),
                             (1, 1 << 52), (1 << 52, 1 << 52), (2 ** 64 - 1, 2), (-1, None),
                             (1, -1), (1.5, None), ("1", None), (None, None), (1, "0")):
            answer = self.register("r", x.key, size, offset)
            self.assertIn(answer.status, (400, 413), (size, offset, answer.body))
            self.assertRegex(answer.json()["error"], "byte_size|offset")
        for body in (b"", b"[]", b"{", b"null", b'{"key": "/x", "key": "/x", "byte_size": 1}'):
            answer = exchange(self.client, "POST", "/v2/systemsharedmemory/region/r/register", body)
            self.refused(answer, 400)
        self.assertEqual(self.ask("GET", STATUS).json(), [])
        self.assertEqual(self.register("r", x.key, 1, 4095).status, 200)

    def test_names(self):
        x = self.shared("x", 4096)
        for path, name in (("a%2Fb", "a/b"), ("%2e%2e", ".."), ("%C3%A9", "\xe9"), ("%0A", "\n")):
            self.assertEqual(self.register(path, x.key, 4096).status, 200)
            self.assertEqual([region["name"] for region in self.ask("GET", STATUS).json()], [name])
            self.assertEqual(self.infer(request_of(4, in_region(name, 4))).status, 200)
            self.unregister(path)
            self.assertEqual(self.ask("GET", STATUS).json(), [])
        # Names that no JSON request could contain.
        for path in ("%FF", "a%C0%80", "%ED%A0%80", "%C3"):
            self.refused(self.register(path, x.key, 4096), 400, "region", "UTF-8")

    def test_no_descriptor_left(self):
        # The server lacks a descriptor for a while: this is not an error of the client.
        x = self.shared("x", 4096)
        self.assertEqual(self.ask("GET", STATUS).json(), [])
        soft, hard = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir("/proc/%d/fd" % self.server.pid)}
        least = min(set(range(len(taken) + 1)) - taken)
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (least, hard))
        self.refused(self.register("r", x.key, 4096), 503, "descriptor")
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(self.register("r", x.key, 4096).status, 200)

    def test_as_many_as_there_may_be(self):
        x = self.shared("x", 4096)
        count = 0
        while True:
            answer = self.register("r%d" % count, x.key, 4096)
            if answer.status != 200:
                break
            count += 1
            self.assertLess(count, 2000)
        self.refused(answer, 503, "region", str(count))
        self.unregister("r0")
        # The number of regions falls when a thread has unmapped the region.
        self.assertEqual(self.register("r0", x.key, 4096).status, 200)


class Bytes(SharedMemory):
    flags = ("--allow-shared-memory", "*", "--max-shared-bytes", "64K")

    def test_bytes_of_all_are_bounded(self):
        x = self.shared("x", 1 << 20)
        self.refused(self.register("a", x.key, 65537), 413, "byte_size", "65536")
        self.assertEqual(self.register("a", x.key, 65535).status, 200)
        self.refused(self.register("b", x.key, 2), 503, "byte_size")
        self.assertEqual(self.register("b", x.key, 1).status, 200)


class Off(SharedMemory):
    flags = ()

    def test_off(self):
        x = self.shared("x", 4096)
        self.assertNotIn("system_shared_memory", self.ask("GET", "/v2").json()["extensions"])
        self.refused(self.register("x", x.key, 4096), 501, "--allow-shared-memory")
        self.refused(self.infer(request_of(4, in_region("x", 4))), 400, "inputs[0]",
                     "--allow-shared-memory")
        self.refused(self.ask("GET", "/v2/systemsharedmemory/region/x/status"), 404)
        self.unregister()


class Tensors(SharedMemory):
    def test_in_and_out(self):
        _, y = self.both()
        answer = self.infer(request_of(BYTES, in_region("x", BYTES), in_region("y", 4 * BYTES)))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["outputs"],
                         [{"name": "y", "datatype": "FP32", "shape": [BYTES]}])
        self.assertEqual(y.map[:], halves(bytes(range(256))) * (BYTES // 256))

    def test_any_place(self):
        _, y = self.both()
        for count, at, to in ((4, 3, 1), (1000, 17, 64), (5000, 4097, 4097), (1, BYTES - 1, 0)):
            y.map[:] = b"\xff" * (4 * BYTES)
            answer = self.infer(request_of(count, in_region("x", count, at),
                                           in_region("y", 4 * count + 2, to)))
            self.assertEqual(answer.status, 200, answer.body)
            wanted = halves((at + i) % 256 for i in range(count))
            self.assertEqual(y.map[to:to + 4 * count], wanted)
            self.assertEqual(set(y.map[:to]) | set(y.map[to + 4 * count:]), {255})

    def test_in_alone_and_out_alone(self):
        _, y = self.both()
        answer = self.infer(request_of(3, in_region("x", 3, 5)))
        self.assertEqual(answer.json()["outputs"][0]["data"], [2.5, 3, 3.5])
        request = request_of(3, None, in_region("y", 12))
        del request["inputs"][0]["parameters"]
        request["inputs"][0]["data"] = [8, 6, 4]
        self.assertEqual(self.infer(request).status, 200)
        self.assertEqual(y.map[:12], halves((8, 6, 4)))

    def test_compressed(self):
        # The body must be inflated before the server knows where the tensors lie.
        _, y = self.both()
        body = json.dumps(request_of(BYTES, in_region("x", BYTES), in_region("y", 4 * BYTES)))
        answer = exchange(self.client, "POST", infer_path(MODEL), gzip.compress(body.encode()),
                          {"Content-Encoding": "gzip"})
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(y.map[:], halves(bytes(range(256))) * (BYTES // 256))

    def test_constants(self):
        _, y = self.both()
        self.assertEqual(self.register("scale", y.key, 4).status, 200)
        y.map[:4] = struct.pack("<f", 0.25)
        request = request_of(2, in_region("x", 2, 4))
        del request["inputs"][1]["data"]
        request["inputs"][1]["parameters"] = in_region("scale", 4)
        self.assertEqual(self.infer(request).json()["outputs"][0]["data"], [1, 1.25])

    def test_empty(self):
        self.both()
        # An empty tensor overlaps no other tensor, wherever it lies.
        for x in (in_region("x", 0, BYTES), in_region("y", 0, 8)):
            for y in (in_region("y", 0), in_region("y", 64)):
                answer = self.infer(request_of(0, x, y))
                self.assertEqual(answer.status, 200, answer.body)

    def test_hostile_windows(self):
        self.both()
        for x, word in ((in_region("none", 4), "none"), (in_region("x", 3), "4 bytes"),
                        (in_region("x", BYTES + 1), "within"), (in_region("x", 4, BYTES), "within"),
                        (in_region("x", 4, 2 ** 53 - 1), "within"), (in_region("x", -4), "integer"),
                        (in_region("x", 4, -1), "integer"), (in_region("x", "4"), "integer"),
                        (in_region("x", None), "integer"), (in_region(7, 4), "string"),
                        (in_region("x", 4, 2 ** 64), "integer")):
            self.refused(self.infer(request_of(4, x)), 400, "inputs[0].parameters.shared_memory",
                         word)
        both = request_of(4, in_region("x", 4))
        both["inputs"][0]["data"] = [1, 2, 3, 4]
        self.refused(self.infer(both), 400, "one of")
        for y, word in ((in_region("y", 15), "at least 16"), (in_region("none", 16), "registered"),
                        (in_region("y", 16, 4 * BYTES - 15), "within"),
                        (dict(in_region("y", 16), binary_data=True), "binary_data"),
                        (in_region("x", 16), "bytes of its own")):
            self.refused(self.infer(request_of(4, in_region("x", 4), y)), 400,
                         "outputs[0].parameters", word)
        y = dict(in_region("y", 16), binary_data=False)
        self.assertEqual(self.infer(request_of(4, in_region("x", 4), y)).status, 200)

    def test_another_name_for_the_same_bytes(self):
        x, _ = self.both()
        self.assertEqual(self.register("again", x.key, 4096, 4096).status, 200)
        near = request_of(4, in_region("x", 4, 4092), in_region("again", 16))
        self.assertEqual(self.infer(near).status, 200)
        on = request_of(4, in_region("x", 4, 4093), in_region("again", 16))
        self.refused(self.infer(on), 400, "bytes of its own", "inputs[0]")

    def test_a_region_that_is_replaced_stays_what_it_was(self):
        x, _ = self.both()
        os.unlink(x.path)
        fd = os.open(x.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(fd)
        answer = self.infer(request_of(2, in_region("x", 2, 6)))
        self.assertEqual(answer.json()["outputs"][0]["data"], [3, 3.5])


class Signal(unittest.TestCase):
    def test_one_that_is_sent_ends_the_server(self):
        """The signal does not come from a page fault, so it acts as if it had no handler."""
        server = Server("--allow-shared-memory", prefix())
        self.addCleanup(server.stderr_file.close)
        self.addCleanup(server.process.stdout.close)
        resource.prlimit(server.pid, resource.RLIMIT_CORE, (0, 0))
        server.process.send_signal(signal.SIGBUS)
        status = server.process.wait(30 * SLOW)
        if not SANITIZED:  # sanitizers have handlers of their own
            self.assertEqual(status, -signal.SIGBUS)


class Losses(SharedMemory):
    """A thread that touches a page behind the end of an object gets SIGBUS. QEMU 7.2 continues
    wrongly after a SIGBUS in a load of SVE, in any program, so the emulated CPU has no SVE here."""

    environment = {"QEMU_CPU": "max,sve=off"} if EMULATOR else {}

    def test_a_smaller_input(self):
        x, _ = self.both()
        request = request_of(BYTES, in_region("x", BYTES), in_region("y", 4 * BYTES))
        self.assertEqual(self.infer(request).status, 200)
        x.resize(0)
        self.refused(self.infer(request), 400, "inputs[0]", "\"x\"", "smaller")
        x.resize(BYTES)
        x.map[:] = b"\2" * BYTES
        self.refused(self.infer(request), 400, "inputs[0]", "register it again")
        self.unregister("x")
        self.assertEqual(self.register("x", x.key, BYTES).status, 200)
        self.assertEqual(self.infer(request).status, 200)

    def test_smaller_constants_and_outputs(self):
        x, y = self.both()
        y.resize(0)
        for offset in (0, 1):
            request = request_of(4096, in_region("x", 4096), in_region("y", 16384, offset))
            self.refused(self.infer(request), 400, "outputs[0]", "\"y\"")
        x.resize(0)
        request = request_of(2, None)
        request["inputs"] = [{"name": "x", "datatype": "UINT8", "shape": [1], "data": [1]},
                             {"name": "x_scale", "datatype": "FP32", "shape": [],
                              "parameters": in_region("x", 4)}]
        self.refused(self.infer(request), 400, "inputs[1]", "\"x\"")

    def test_truncated_all_the_time(self):
        # In any order of events, the server answers each request, either correctly or with a 400.
        size = 1 << 20
        x, y = self.shared("x", size), self.shared("y", 4 * size)
        stop = threading.Event()

        def shrink_and_grow():
            while not stop.wait(0.001):
                for shared, full in ((x, size), (y, 4 * size)):
                    shared.resize(0)
                    shared.resize(full // 2)
                    shared.resize(full)

        request = request_of(size, in_region("x", size), in_region("y", 4 * size, 0))
        unaligned = request_of(size - 64, in_region("x", size - 64, 7),
                               in_region("y", 4 * size - 256, 1))
        thread = threading.Thread(target=shrink_and_grow)
        thread.start()
        try:
            for _ in range(20 if SANITIZED else 150):
                for name, shared, full in (("x", x, size), ("y", y, 4 * size)):
                    answer = self.register(name, shared.key, full)
                    self.assertIn(answer.status, (200, 400), answer.body)
                for each in (request, unaligned):
                    self.assertIn(self.infer(each).status, (200, 400))
                self.unregister()
        finally:
            stop.set()
            thread.join()
        for name, shared, full in (("x", x, size), ("y", y, 4 * size)):
            self.assertEqual(self.register(name, shared.key, full).status, 200)
        self.assertEqual(self.infer(request).status, 200)
        self.assertEqual(y.map[:64], bytes(64))

    def test_unregistered_in_the_middle(self):
        # A request keeps its regions, so its answer is right even if they are unregistered
        # meanwhile.
        _, y = self.both()
        other = self.server.client()
        self.addCleanup(other.close)
        request = json.dumps(request_of(BYTES, in_region("x", BYTES), in_region("y", 4 * BYTES)))
        for _ in range(50):
            y.map[:] = bytes(4 * BYTES)
            other.request("POST", infer_path(MODEL), request)
            self.unregister()
            response = other.getresponse()
            body = response.read()
            self.assertIn(response.status, (200, 400), body)
            if response.status == 200:
                self.assertEqual(y.map[:], halves(bytes(range(256))) * (BYTES // 256))
            for name in "x", "y":
                size = BYTES if name == "x" else 4 * BYTES
                self.assertEqual(self.register(name, "/" + prefix() + name, size).status, 200)


if __name__ == "__main__":
    unittest.main()
