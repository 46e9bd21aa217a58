"""A dequantization whose body and answer are compressed, with Triton's client:
compressed_tritonclient.py URL, of a server with --compress-answers on
"""
import sys

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

if len(sys.argv) != 2:
    sys.exit("usage: compressed_tritonclient.py URL")
url = sys.argv[1]
COUNT = 4096


def dequantize(client, algorithm):
    data = np.arange(COUNT, dtype=np.uint32).astype(np.uint8)
    x = InferInput("x", [COUNT], "UINT8")
    x.set_data_from_numpy(data)
    scale = InferInput("x_scale", [], "FP32")
    scale.set_data_from_numpy(np.array(0.5, np.float32))
    answer = client.infer("onnx.DequantizeLinear", [x, scale], outputs=[InferRequestedOutput("y")],
                          request_compression_algorithm=algorithm,
                          response_compression_algorithm=algorithm)
    y = answer.as_numpy("y")
    if not np.array_equal(y, data.astype(np.float32) / 2):
        sys.exit(f"{algorithm}: expected halves of 0 to 255, got {y.tolist()}"[:200])
    print(f"{algorithm}: {y.sum()}")


try:
    with InferenceServerClient(url.removeprefix("http://")) as client_of_url:
        for name in ("gzip", "deflate"):
            dequantize(client_of_url, name)
except (InferenceServerException, OSError, ValueError) as error:
    sys.exit(f"{url}: {error}".replace("\n", " "))
