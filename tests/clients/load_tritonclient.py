"""Loads an ONNX file with Triton's client, runs it, loads it again, and unloads it:
load_tritonclient.py URL FILE

The model must have one input, of UINT8 and three dimensions.
"""
import sys
from pathlib import Path

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

NAME = "layer"

if len(sys.argv) != 3:
    sys.exit("usage: load_tritonclient.py URL FILE")
url, path = sys.argv[1:]


def load(client):
    config = '{"backend": "onnxruntime", "default_model_filename": "model_int8.onnx"}'
    client.load_model(NAME, config=config,
                      files={"file:1/model_int8.onnx": Path(path).read_bytes()})
    state, = [model["state"] for model in client.get_model_repository_index()
              if model["name"] == NAME]
    if state != "READY" or not client.is_model_ready(NAME):
        sys.exit(f"expected it to be READY, it is {state}")


def ask(client):
    x = np.array([[[3, 1, 4, 1, 5, 9, 2, 6]]], np.uint8)
    tensor = InferInput(client.get_model_metadata(NAME)["inputs"][0]["name"], x.shape, "UINT8")
    tensor.set_data_from_numpy(x)
    # The server ignores a parameter that only the client knows.
    return client.infer(NAME, [tensor], parameters={"asked_by": "a test"}).as_numpy("y")


try:
    with InferenceServerClient(url.removeprefix("http://")) as client_of_url:
        load(client_of_url)
        load(client_of_url)
        print(f"y: {ask(client_of_url).ravel().tolist()}")
        client_of_url.unload_model(NAME)
        if client_of_url.is_model_ready(NAME):
            sys.exit("expected it to be unloaded")
except (InferenceServerException, OSError, ValueError) as error:
    sys.exit(f"{url}: {error}".replace("\n", " "))
