#!/usr/bin/env python3
"""make_seeds.py FOLDER: turns api_schema/examples into seeds for fuzz_oip_decode."""
import json
import struct
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "api_schema" / "examples"
NO_HEADER = 0xFFFF


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
    operator = 1 if example["model"].endswith("Conv") else 0
    version = 0 if example.get("version") in ("10", "11") else 1
    return struct.pack("<BBH", operator, version, header) + body


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.json")):
        (folder / path.stem).write_bytes(seed(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
