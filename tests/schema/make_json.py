#!/usr/bin/env python3
"""Makes api_schema/openapi.json from openapi.yaml beside it: make_json.py [--check]

--check writes nothing, and fails if the file differs from what would be written.
"""
import json
import sys
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parent.parent.parent / "api_schema"


class Loader(yaml.SafeLoader):
    """A loader that refuses a repeated key, as YAML does; PyYAML would take the last one."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, "expected each key once, got %r twice" % key, node.start_mark)
        return super().construct_mapping(node, deep)


def load():
    return yaml.load((FOLDER / "openapi.yaml").read_text(), Loader)


def text():
    """Returns the document as JSON on one line, because only programs read it."""
    tree = load()
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def is_stale():
    path = FOLDER / "openapi.json"
    return not path.exists() or path.read_text() != text()


def main():
    if sys.argv[1:] == ["--check"]:
        if is_stale():
            sys.exit("api_schema/openapi.json: expected what openapi.yaml says, got another text; "
                     "run make schema")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        (FOLDER / "openapi.json").write_text(text())


if __name__ == "__main__":
    main()
