"""A dequantization in shared memory, plainly and with a compressed body, with Triton's client:
shared_tritonclient.py URL, of a server with --allow-shared-memory quantd-client-
"""
import os
import sys

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, shared_memory

if len(sys.argv) != 2:
    sys.exit("usage: shared_tritonclient.py URL")
url = sys.argv[1]
COUNT = 8
KEYS = {name: f"/quantd-client-{os.getpid()}-{name}" for name in ("x", "y")}
BYTES = {"x": COUNT, "y": 4 * COUNT}


def infer(client, compression):
    x = InferInput("x", [COUNT], "UINT8")
    x.set_shared_memory("x", BYTES["x"])
    scale = InferInput("x_scale", [], "FP32")
    scale.set_data_from_numpy(np.array(0.5, np.float32))
    y = InferRequestedOutput("y")
    y.set_shared_memory("y", BYTES["y"])
    client.infer("onnx.DequantizeLinear", [x, scale], outputs=[y],
                 request_compression_algorithm=compression)


def dequantize(client, regions):
    for name, key in KEYS.items():
        client.register_system_shared_memory(name, key, BYTES[name])
    for factor, compression in ((1, None), (3, "gzip"), (5, "deflate")):
        data = np.arange(COUNT, dtype=np.uint8) * np.uint8(factor)
        shared_memory.set_shared_memory_region(regions["x"], [data])
        infer(client, compression)
        print(shared_memory.get_contents_as_numpy(regions["y"], np.float32, [COUNT]).tolist())
    client.unregister_system_shared_memory()


def main(client):
    regions = {}
    try:
        for name, key in KEYS.items():
            regions[name] = shared_memory.create_shared_memory_region(name, key, BYTES[name])
        dequantize(client, regions)
    finally:
        for region in regions.values():
            shared_memory.destroy_shared_memory_region(region)


try:
    with InferenceServerClient(url.removeprefix("http://")) as client_of_url:
        main(client_of_url)
except (InferenceServerException, shared_memory.SharedMemoryException, OSError,
        ValueError) as error:
    sys.exit(f"{url}: {error}".replace("\n", " "))
