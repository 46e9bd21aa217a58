"""Tensors in shared memory, for the wire's part: the regions and the requests that name them."""
import json
import mmap
import os
import statistics
import time

from services import post

FOLDER = "/dev/shm"
PREFIX = "quantd-bench-"
FIRST_ROUNDS = 5


def is_here():
    return os.path.isdir(FOLDER)


class Region:
    """A shared-memory object of this process, like one of a server's client. All of its pages have
    been written."""

    def __init__(self, name, content):
        self.name, self.count = name, len(content)
        self.key = "/%s%d-%s" % (PREFIX, os.getpid(), name)
        self.path = FOLDER + self.key
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(fd, self.count)
            self.bytes = mmap.mmap(fd, self.count)
        finally:
            os.close(fd)
        self.bytes[:] = content

    def close(self):
        self.bytes.close()
        os.unlink(self.path)

    def parameters(self):
        return {"shared_memory_region": self.name, "shared_memory_byte_size": self.count}

    def register(self, port):
        post(port, "/v2/systemsharedmemory/region/%s/register" % self.name,
             json.dumps({"key": self.key, "byte_size": self.count}), {})


def register_all(port, regions):
    for region in regions:
        region.register(port)


def unregister_all(port):
    post(port, "/v2/systemsharedmemory/unregister", b"", {})


def request_of(x, y, scale):
    """Returns the body of a request that dequantizes the region x into the region y."""
    return json.dumps({
        "inputs": [{"name": "x", "datatype": "UINT8", "shape": [x.count],
                    "parameters": x.parameters()},
                   {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [scale]}],
        "outputs": [{"name": "y", "parameters": y.parameters()}]}).encode()


def first_ns(port, regions, path, body, rounds):
    """Returns the nanoseconds of the first request after its regions are registered. At that time
    the pages are mapped in the client, but not in the server. Leaves the regions registered."""
    took = []
    for _ in range(rounds):
        unregister_all(port)
        register_all(port, regions)
        start = time.perf_counter_ns()
        post(port, path, body, {})
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took)
