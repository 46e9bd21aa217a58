"""Requests with their answers: the files of api_schema/examples, whose README describes the format,
and the lines of tests/data/examples.jsonl."""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LENGTH = "Inference-Header-Content-Length"


def load_examples(prefix=""):
    """Returns name -> example, sorted, for all names that begin with the prefix."""
    found = {path.stem: json.loads(path.read_text())
             for path in (ROOT / "api_schema" / "examples").glob("*.json")}
    with open(ROOT / "tests" / "data" / "examples.jsonl", encoding="utf-8") as lines:
        for example in map(json.loads, lines):
            found[example.pop("name")] = example
    return {name: found[name] for name in sorted(found) if name.startswith(prefix)}


def example_body(example, separators=None, ensure_ascii=True):
    """Returns (body, bytes of its JSON or None) of an example. The other arguments are passed to
    json.dumps."""
    if "body_hex" in example:
        return bytes.fromhex(example["body_hex"]), None
    if "body" in example:
        return example["body"].encode(), None
    body = json.dumps(example["request"], separators=separators, ensure_ascii=ensure_ascii).encode()
    if "binary_hex" in example:
        return body + bytes.fromhex(example["binary_hex"]), len(body)
    return body, None


def example_request(example):
    """Returns (body, headers) of an example."""
    body, json_bytes = example_body(example, ensure_ascii=False)
    headers = {} if json_bytes is None else {LENGTH: str(json_bytes)}
    headers.update(example.get("headers", {}))
    return body, headers
