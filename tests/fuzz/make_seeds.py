#!/usr/bin/env python3
"""make_seeds.py FOLDER: turns api_schema/examples into seeds for fuzz_oip_decode."""
import json
import struct
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "api_schema" / "examples"
NO_HEADER = 0xFFFF
# In the registry's order.
VERSIONS = {"onnx.DequantizeLinear": (10, 13, 19, 21, 23, 24, 25),
            "onnx.QuantizeLinear": (10, 13, 19, 21, 23, 24, 25), "onnx.QLinearConv": (10,),
            "directml.ElementWiseDequantizeLinear": (10, 21, 30, 60, 62),
            "tensorflow.Dequantize": (1,)}


def place(example):
    """Where the example's operator and version stand; those that do not exist: anywhere."""
    model = example["model"] if example["model"] in VERSIONS else "onnx.DequantizeLinear"
    versions = VERSIONS[model]
    given = example.get("version", "")
    number = int(given) if given.isdigit() else versions[-1]
    return (list(VERSIONS).index(model),
            max(sum(known <= number for known in versions) - 1, 0))


def seed(example):
    header = NO_HEADER
    if "request" in example:
        body = json.dumps(example["request"], separators=(",", ":")).encode()
        if "binary_hex" in example:
            header = len(body)
            body += bytes.fromhex(example["binary_hex"])
    elif "body_hex" in example:
        body = bytes.fromhex(example["body_hex"])
    else:
        body = example["body"].encode()
    given = example.get("headers", {}).get("Inference-Header-Content-Length", "")
    if given.isdigit():
        header = min(int(given), NO_HEADER - 1)
    operator, version = place(example)
    return struct.pack("<BBH", operator, version, header) + body


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.json")):
        (folder / path.stem).write_bytes(seed(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
