#!/usr/bin/env python3
"""make_seeds.py FOLDER: turns the examples (tests/e2e/examples.py) into seeds for
fuzz_oip_decode."""
import json
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

from examples import LENGTH, example_body, load_examples  # noqa: E402

NO_HEADER = 0xFFFF
LOADED = DECLARES = SINGLE = 0x80
# Operators and versions in the registry's order.
VERSIONS = {"onnx.DequantizeLinear": (10, 13, 19, 21, 23, 24, 25),
            "onnx.QuantizeLinear": (10, 13, 19, 21, 23, 24, 25), "onnx.QLinearConv": (10,),
            "directml.ElementWiseDequantizeLinear": (10, 21, 30, 60, 62),
            "tensorflow.Dequantize": (1,)}


def place(example):
    """Returns the indices of the example's operator and version. For an operator or a version that
    does not exist, the indices may be any."""
    model = example["model"] if example["model"] in VERSIONS else "onnx.DequantizeLinear"
    versions = VERSIONS[model]
    given = example.get("version", "")
    number = int(given) if given.isdigit() else versions[-1]
    return (list(VERSIONS).index(model),
            max(sum(known <= number for known in versions) - 1, 0))


def seed(example, flags=(0, 0)):
    body, header = example_body(example, separators=(",", ":"))
    if header is None:
        header = NO_HEADER
    given = example.get("headers", {}).get(LENGTH, "")
    if given.isdigit():
        header = min(int(given), NO_HEADER - 1)
    operator, version = place(example)
    return struct.pack("<BBH", operator | flags[0], version | flags[1], header) + body


def variants(example):
    """Yields the example as requests to loaded models, and as a request whose first input has no
    data, so it only declares the input."""
    yield "loaded", seed(example, (LOADED, 0))
    yield "single", seed(example, (LOADED, SINGLE))
    inputs = example.get("request", {}).get("inputs")
    if "binary_hex" not in example and isinstance(inputs, list) and inputs \
            and isinstance(inputs[0], dict):
        first = {key: value for key, value in inputs[0].items() if key != "data"}
        request = dict(example["request"], inputs=[first] + inputs[1:])
        yield "declared", seed(dict(example, request=request), (0, DECLARES))


def tensor(name, datatype, **rest):
    return {"name": name, "datatype": datatype, "shape": [2], **rest}


def loaded_seeds():
    """Yields requests to the loaded model with its inputs of BOOL and INT64."""
    inputs = [tensor("x", "UINT8", data=[1, 2]), tensor("x_scale", "FP32", data=[1, 2])]
    carried = {"c.datatype": "BOOL", "c.shape": [1, 2]}
    for name, more, parameters, blob in (
            ("json", [tensor("c", "BOOL", data=[True, 0]),
                      tensor("n", "INT64", data=[-1 << 63, str((1 << 63) - 1)])], {}, b""),
            ("bytes", [tensor("c", "BOOL", parameters={"binary_data_size": 2}),
                       tensor("n", "INT64", parameters={"binary_data_size": 16})], {},
             bytes(range(18))),
            ("carried", [tensor("c", "UINT8", data=[0, 1])], carried, b"")):
        body = json.dumps({"parameters": parameters, "inputs": inputs + more}).encode()
        header = len(body) if blob else NO_HEADER
        yield name, struct.pack("<BBH", LOADED, 0, header) + body + blob


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, bytes_ in loaded_seeds():
        (folder / ("types.%s" % name)).write_bytes(bytes_)
    for count in (0, 1, 2, 3, 300):
        raw = struct.pack("<BBH", LOADED, SINGLE, 0) + bytes(range(256))[:count] + bytes(count)
        (folder / ("raw%d" % count)).write_bytes(raw)
    for name, example in load_examples().items():
        (folder / name).write_bytes(seed(example))
        for kind, variant in variants(example):
            (folder / ("%s.%s" % (name, kind))).write_bytes(variant)


if __name__ == "__main__":
    main()
