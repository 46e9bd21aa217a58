#!/usr/bin/env python3
"""Writes into api_schema/openapi.yaml what a running server's registry says about operators:
make_operators.py [--check]

Five operators are described by hand in the document. All others have one path each, for their
newest version, between the comments "generated" and "end". Their requests' schemas come from the
operators' metadata, and their examples from tests/e2e/examples.py: the first of each operator.

--check writes nothing, and fails if the document differs from what would be written.
"""
import json
import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "e2e"))

from examples import load_examples  # noqa: E402
from quantd import Server  # noqa: E402

DOCUMENT = TESTS.parent / "api_schema" / "openapi.yaml"
BY_HAND = ("onnx.DequantizeLinear", "onnx.QuantizeLinear", "onnx.QLinearConv",
           "directml.ElementWiseDequantizeLinear", "tensorflow.Dequantize")
KINDS = {"integer": "integer", "integers": "integers", "number": "number", "string": "string",
         "true or false": "boolean", "datatype, by name or ONNX number": "datatype"}
COLUMNS = 100


class Operator:
    """What the metadata of an operator's newest version says."""

    def __init__(self, metadata):
        properties = metadata["properties"]
        self.name = metadata["name"]
        self.version = metadata["versions"][-1]
        self.about = properties["about"]
        self.inputs = [tensor["name"] for tensor in metadata["inputs"]]
        self.outputs = [tensor["name"] for tensor in metadata["outputs"]]
        self.types = {name: properties[name + ".types"].split(", ")
                      for name in self.inputs + self.outputs}
        self.shapes = {name: properties[name + ".shape"] for name in self.inputs + self.outputs}
        self.needed = [name for name in self.inputs if properties[name + ".optional"] == "false"]
        self.attributes = {key.partition(".")[2]: text for key, text in properties.items()
                           if key.startswith("parameters.")}


def read_operators(server):
    index = server.request("POST", "/v2/repository/index").json()
    names = list(dict.fromkeys(entry["name"] for entry in index))
    return [Operator(server.get("/v2/models/" + name).json())
            for name in names if name not in BY_HAND]


def find_example(operator):
    """Returns the name and the example that the document shows, a good one that is all JSON."""
    for name, example in load_examples("ok_").items():
        if example["model"] == operator.name and "version" not in example and (
                "request" in example and "binary_hex" not in example):
            return name, example
    sys.exit("make_operators: expected an example ok_... of %s in api_schema/examples or "
             "tests/data/examples.jsonl, got none" % operator.name)


# ---- YAML ------------------------------------------------------------------------------------


def quoted(text):
    return "'%s'" % text.replace("'", "''")


def folded(prefix, text, indent):
    """Returns a key with a quoted text, in lines of at most COLUMNS."""
    lines, line = [], prefix
    for word in quoted(text).split(" "):
        if len(line) + 1 + len(word) > COLUMNS and line.strip():
            lines.append(line)
            line = " " * indent + word
        else:
            line += (" " if line.strip() and not line.endswith(" ") else "") + word
    return lines + [line]


def listed(prefix, items, indent, after=""):
    """Returns a key with a list in brackets, and what comes after it, in lines of at most
    COLUMNS."""
    lines, line = [], prefix + "["
    for i, item in enumerate(items):
        part = item + ("]" + after if i + 1 == len(items) else ",")
        if len(line) + 1 + len(part) > COLUMNS:
            lines.append(line.rstrip())
            line = " " * indent + part + " "
        else:
            line += part + " "
    return lines + [line.rstrip()]


def listed_object(prefix, members, indent):
    """Returns a key with an object in braces, in lines of at most COLUMNS."""
    parts = ["%s: %s" % (json.dumps(key), json.dumps(value)) for key, value in members.items()]
    lines = listed(prefix, parts, indent)
    lines[0] = lines[0].replace(prefix + "[", prefix + "{")
    lines[-1] = lines[-1][:-1] + "}"
    return lines


def capital(text):
    return text[:1].upper() + text[1:]


# ---- Parts of the document -------------------------------------------------------------------


def tags(operators):
    lines = []
    for operator in operators:
        lines.append("  - name: " + operator.name)
        lines += folded("    description: ", operator.about, 6)
    return lines


def names(operators):
    return ["          - " + operator.name for operator in operators]


PATH = """
  /v2/models/%(name)s/infer:
    parameters:
      - $ref: '#/components/parameters/jsonBytes'
      - $ref: '#/components/parameters/contentEncoding'
      - $ref: '#/components/parameters/acceptEncoding'
    post:
      operationId: %(name)s
      tags: [%(name)s]
      summary: 'The newest version, %(version)s'
%(description)s
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: '#/components/schemas/%(name)s'}
            examples:
              %(example)s:
                $ref: '#/components/examples/%(example)s'
          application/octet-stream:
            schema: {$ref: '#/components/schemas/Binary'}
      responses:
        '200': {$ref: '#/components/responses/Inference'}
        '400': {$ref: '#/components/responses/Invalid'}
        '401': {$ref: '#/components/responses/Unauthorized'}
        '413': {$ref: '#/components/responses/TooLarge'}
        '415': {$ref: '#/components/responses/Encoded'}
        '501': {$ref: '#/components/responses/TransferCoding'}
        '503': {$ref: '#/components/responses/Unavailable'}"""


def paths(operators):
    lines = []
    for operator in operators:
        makes = "; ".join("%s: %s (%s)" % (name, operator.shapes[name],
                                           ", ".join(operator.types[name]))
                          for name in operator.outputs)
        text = "Makes " + makes + "."
        lines += (PATH % {"name": operator.name, "version": operator.version,
                          "example": find_example(operator)[0],
                          "description": "\n".join(folded("      description: ", text, 8))
                          }).split("\n")
    return lines


def tensors(operator):
    """Returns the forms of inputs. Inputs with the same shapes and datatypes share one. UINT8 is
    also the datatype of the carrier form."""
    groups = {}
    for name in operator.inputs:
        key = operator.shapes[name], tuple(operator.types[name])
        groups.setdefault(key, []).append(name)
    lines = []
    for (shape, types), members in groups.items():
        lines += folded("              - description: ", "Shape: " + shape, 18)
        lines.append("                properties:")
        lines += listed("                  name: {type: string, enum: ", members, 20, "}")
        types += ("UINT8",) * ("UINT8" not in types)
        lines += listed("                  datatype: {type: string, enum: ", types, 20, "}")
    return lines


def parameters(operator):
    lines = ["        parameters:",
             "          type: [object, 'null']",
             "          allOf:",
             "            - $ref: '#/components/schemas/ProtocolParameters'"]
    if operator.attributes:
        lines.append("          properties:")
    for name, text in operator.attributes.items():
        kind = KINDS[text.partition(": ")[0]]
        lines.append("            %s:" % name)
        lines += folded("              description: ", capital(text), 16)
        lines.append("              $ref: '#/components/schemas/Attribute.%s'" % kind)
    return lines + ["          patternProperties:",
                    "            '\\.datatype$': {$ref: '#/components/schemas/Carrier.datatype'}",
                    "            '\\.shape$': {$ref: '#/components/schemas/Carrier.shape'}",
                    "          unevaluatedProperties: {type: 'null'}"]


def request(operator):
    lines = ["", "    %s:" % operator.name]
    lines += folded("      description: ", operator.about, 8)
    lines += ["      type: object",
              "      required: [inputs]",
              "      properties:",
              "        id: {$ref: '#/components/schemas/Id'}"]
    lines += parameters(operator)
    lines += ["        inputs:",
              "          description: Each once, in any order.",
              "          type: array",
              "          minItems: %d" % len(operator.needed),
              "          maxItems: %d" % len(operator.inputs),
              "          items:",
              "            allOf:",
              "              - $ref: '#/components/schemas/Tensor'",
              "            oneOf:"]
    lines += tensors(operator)
    lines += ["        outputs:",
              "          $ref: '#/components/schemas/Outputs'",
              "          maxItems: %d" % len(operator.outputs),
              "          items:",
              "            properties:"]
    lines += listed("              name: {type: string, enum: ", operator.outputs, 16, "}")
    lines += ["      dependentSchemas:",
              "        inputs: {$ref: '#/components/schemas/%s.rules'}" % operator.name,
              "",
              "    %s.rules:" % operator.name,
              "      properties:",
              "        inputs:",
              "          allOf:"]
    return lines + ["            - contains: {properties: {name: {const: %s}}}" % name
                    for name in operator.needed]


def schemas(operators):
    return [line for operator in operators for line in request(operator)]


def examples(operators):
    lines = []
    for operator in operators:
        name, example = find_example(operator)
        lines += ["", "    %s:" % name]
        lines += folded("      summary: ", example["about"], 8)
        lines.append("      value:")
        given = example["request"].get("parameters")
        if given:
            lines += listed_object("        parameters: ", given, 10)
        lines.append("        inputs:")
        for part in example["request"]["inputs"]:
            lines += listed("          - {name: \"%s\", datatype: \"%s\", shape: %s, data: "
                            % (part["name"], part["datatype"], part["shape"]),
                            list(map(json.dumps, part["data"])), 15, "}")
    return lines


PARTS = {"tags": tags, "names": names, "paths": paths, "schemas": schemas, "examples": examples}


def fill(document, operators):
    """Returns the document with all generated parts replaced."""
    for part, make in PARTS.items():
        pattern = re.compile(r"( *# generated: %s\n).*?( *# end: %s\n)" % (part, part), re.DOTALL)
        text = "\n".join(make(operators)) + "\n"
        document, count = pattern.subn(lambda match, text=text: match[1] + text + match[2],
                                       document)
        if count != 1:
            sys.exit("make_operators: expected \"# generated: %s\" once in %s, got %d"
                     % (part, DOCUMENT, count))
    return document


def main():
    server = Server("--log-level", "warn")
    try:
        operators = read_operators(server)
    finally:
        server.stop()
    text = DOCUMENT.read_text()
    made = fill(text, operators)
    if sys.argv[1:] == ["--check"]:
        if made != text:
            sys.exit("api_schema/openapi.yaml: expected what the registry says of operators, got "
                     "another text; run make schema")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        DOCUMENT.write_text(made)


if __name__ == "__main__":
    main()
