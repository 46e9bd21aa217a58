"""The schema as the tests use it: finds its parts by path and status, and validates with
jsonschema."""
import copy
import functools
import json
import re

import jsonschema_rs
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

import make_json
from examples import example_request, load_examples
from quantd import ROOT, infer_path

FOLDER = ROOT / "api_schema"
DOCUMENT = make_json.load()
EXAMPLES = load_examples()
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def seal(schema):
    """Returns the schema without undescribed members: the server must not send what the schema does
    not describe."""
    if isinstance(schema, list):
        return [seal(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    sealed = {key: seal(part) for key, part in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        sealed.setdefault("additionalProperties", False)
    return sealed


SEALED = copy.deepcopy(DOCUMENT)
SEALED["components"]["schemas"] = seal(SEALED["components"]["schemas"])
DOCUMENTS = {"urn:open": DOCUMENT, "urn:sealed": SEALED}
REGISTRY = Registry().with_resources(
    [(name, DRAFT202012.create_resource(tree)) for name, tree in DOCUMENTS.items()])
FAST_REGISTRY = jsonschema_rs.Registry(list(DOCUMENTS.items()), draft=jsonschema_rs.Draft202012)


def component(name, sealed):
    return {"$ref": "%s#/components/schemas/%s" % ("urn:sealed" if sealed else "urn:open", name)}


@functools.cache
def fast_validator(name, sealed=False):
    """Returns a validator of a schema component that says only yes or no, a hundred times as fast
    as the one that says why."""
    return jsonschema_rs.Draft202012Validator(component(name, sealed), registry=FAST_REGISTRY)


def accepts(name, value):
    return fast_validator(name).is_valid(value)


def why_not(name, value, sealed=False):
    """Returns None if the value fits, otherwise the most specific error."""
    if fast_validator(name, sealed).is_valid(value):
        return None
    validator = Draft202012Validator(component(name, sealed), registry=REGISTRY)
    errors = list(validator.iter_errors(value))
    if not errors:
        return "only one of two validators takes it"
    while errors[0].context:
        errors = errors[0].context
    return "%s: %s" % (errors[0].json_path, errors[0].message[:300])


def resolve(node):
    """Returns the node that a $ref refers to."""
    while isinstance(node, dict) and "$ref" in node:
        target = DOCUMENT
        for part in node["$ref"][2:].split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def name_of(schema):
    return schema["$ref"].rsplit("/", 1)[1]


def find_path(path):
    """Returns the key of `paths` for a request's path. As in OpenAPI, a literal match goes
    first."""
    if path in DOCUMENT["paths"]:
        return path
    for template in DOCUMENT["paths"]:
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path):
            return template
    return None


def operation(method, path):
    return DOCUMENT["paths"][find_path(path)][method.lower()]


def request_schema(model, version=None):
    """Returns the name of the schema of an inference's JSON, and whether the path is of one
    version."""
    exact = infer_path(model, version) in DOCUMENT["paths"]
    body = resolve(operation("post", infer_path(model, version))["requestBody"])
    return name_of(body["content"]["application/json"]["schema"]), exact


def header_problem(headers, name, header):
    value = headers.get(name)
    if value is None:
        return "no header %s" % name if header.get("required") else None
    schema = header["schema"]
    if schema["type"] == "integer":
        if not re.fullmatch("[0-9]+", value):
            return "header %s: %r is no integer" % (name, value)
        value = int(value)
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
    return "header %s: %s" % (name, errors[0]) if errors else None


def answer_problem(method, path, answer):
    """Returns None if an answer fits the schema, otherwise a description of the problem."""
    responses = operation(method, path)["responses"]
    if str(answer.status) not in responses:
        return "status %d is not described" % answer.status
    return response_problem(resolve(responses[str(answer.status)]), answer)


# OpenAPI leaves HTTP's own headers to HTTP: how a message is framed, and what it says of itself.
UNDESCRIBED = {"Date", "Content-Length", "Transfer-Encoding", "Content-Type", "Connection",
               "Keep-Alive"}


def response_problem(response, answer):
    described = response.get("headers", {})
    for name, header in described.items():
        problem = header_problem(answer.headers, name, resolve(header))
        if problem:
            return problem
    more = set(answer.headers) - set(described) - UNDESCRIBED
    if more:
        return "headers %s are not described" % ", ".join(sorted(more))
    kind = answer.headers["Content-Type"]
    if "content" not in response:
        return None if kind is None and answer.body == b"" else "a body is not described"
    if kind not in response["content"]:
        return "content type %s is not described" % kind
    if kind == "application/octet-stream":
        schema = response["content"]["application/json"]["schema"]
        return why_not(name_of(schema), answer.header_part(), sealed=True)
    schema = response["content"][kind]["schema"]
    if kind != "application/json":
        return None
    if "$ref" in schema:
        return why_not(name_of(schema), answer.json(), sealed=True)
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(answer.json())]
    return errors[0] if errors else None


def example_json(example):
    """Returns the tree of an example's JSON, with the tokens NaN and Infinity as strings. Raises
    ValueError if it is no JSON."""
    if "request" in example:
        return example["request"]
    body, _ = example_request(example)
    return json.loads(body.decode("utf-8"), parse_constant=str)
