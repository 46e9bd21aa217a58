"""Compares the operators in the schema with the running server's registry, in both directions.

Most tests are about the five operators that the schema describes by hand, with a path for each
version. The others have one generated path each (make_operators.py).

The tests find out what the schema allows by validating requests, and not by reading its text, so it
does not matter how the schema is written.
"""
import re
import unittest

import make_operators
from contract import (DOCUMENT, EXAMPLES, accepts, answer_problem, request_schema, resolve,
                      why_not)
from examples import example_request
from quantd import ServerTest, infer_path

# A value that is valid for each datatype.
VALUES = dict.fromkeys(DOCUMENT["components"]["schemas"]["Datatype"]["enum"], 1)
FOREIGN = ("UINT64", "FP64", "BYTES", "FP8")  # no operator takes these


class Version:
    """One version of one model, as its metadata describes it."""

    def __init__(self, server, model, version):
        self.model, self.version = model, version
        metadata = server.get("/v2/models/%s/versions/%s" % (model, version)).json()
        config = server.get("/v2/models/%s/versions/%s/config" % (model, version)).json()
        properties = metadata["properties"]
        self.inputs = [tensor["name"] for tensor in metadata["inputs"]]
        self.output = metadata["outputs"][0]["name"]
        self.types = {name: properties[name + ".types"].split(", ")
                      for name in self.inputs + [self.output]}
        self.shapes = {name: properties[name + ".shape"] for name in self.inputs}
        self.optional = {part["name"] for part in config["input"] if part["optional"]}
        assert self.optional == {name for name in self.inputs
                                 if properties[name + ".optional"] == "true"}
        self.attributes = {key.partition(".")[2]: text for key, text in properties.items()
                           if key.startswith("parameters.")}
        assert self.attributes == {name: part["string_value"]
                                   for name, part in config["parameters"].items()}
        self.schema, exact = request_schema(model, version)
        assert exact, "no path of its own: %s %s" % (model, version)

    def request(self, **changes):
        """Returns the smallest request that this version accepts, with the datatypes of some inputs
        changed."""
        inputs = [{"name": name, "datatype": changes.get(name, self.types[name][0]),
                   "shape": [1], "data": [1]}
                  for name in self.inputs if name not in self.optional or name in changes]
        return {"inputs": inputs}

    def accepts(self, request):
        return accepts(self.schema, request)


class RegistryTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all = cls.server.request("POST", "/v2/repository/index").json()
        cls.index = [entry for entry in cls.all if entry["name"] in make_operators.BY_HAND]
        cls.versions = [Version(cls.server, entry["name"], entry["version"])
                        for entry in cls.index]

    def each(self):
        for version in self.versions:
            with self.subTest(model=version.model, version=version.version):
                yield version


class Operators(RegistryTest):
    def test_versions_have_paths(self):
        described = set()
        for path in DOCUMENT["paths"]:
            match = re.fullmatch(r"/v2/models/(\w+\.\w+)/versions/(\d+)/infer", path)
            if match:
                described.add(match.groups())
        self.assertEqual(described, {(part["name"], part["version"]) for part in self.index})

    def test_names(self):
        models = list(dict.fromkeys(part["name"] for part in self.all))
        named = DOCUMENT["components"]["parameters"]["model"]["schema"]["examples"]
        self.assertEqual(named, models)

    def test_models(self):
        models = list(dict.fromkeys(part["name"] for part in self.index))
        tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
        for model in models:
            metadata = self.server.get("/v2/models/" + model).json()
            self.assertEqual(tags[model], metadata["properties"]["about"])
            newest, exact = request_schema(model)
            self.assertTrue(exact)
            versions = [part["version"] for part in self.index if part["name"] == model]
            self.assertEqual(newest, request_schema(model, versions[-1])[0])

    def test_inputs(self):
        """Checks which inputs exist and which are optional, and that none may come twice or be
        unknown."""
        for version in self.each():
            least = version.request()
            self.assertIsNone(why_not(version.schema, least))
            for name in version.inputs:
                full = version.request(**{each: version.types[each][0]
                                          for each in version.inputs})
                self.assertTrue(version.accepts(full))
                without = [part for part in full["inputs"] if part["name"] != name]
                self.assertEqual(version.accepts({"inputs": without}), name in version.optional)
                again = next(part for part in full["inputs"] if part["name"] == name)
                self.assertFalse(version.accepts({"inputs": full["inputs"] + [again]}))
                self.assertFalse(version.accepts(
                    {"inputs": full["inputs"] + [dict(again, name=name + "2")]}))

    def test_datatypes(self):
        for version in self.each():
            for name in version.inputs:
                taken = [datatype for datatype in list(VALUES) + list(FOREIGN)
                         if version.accepts(version.request(**{name: datatype}))]
                self.assertEqual(sorted(taken), sorted(version.types[name]), name)

    def test_output(self):
        for version in self.each():
            taken = []
            for datatype in VALUES:
                answer = {"model_name": version.model, "model_version": version.version,
                          "parameters": {"receive_us": 0, "queue_us": 0, "decode_us": 0,
                                         "compute_us": 0, "kernel": "k"},
                          "outputs": [{"name": version.output, "datatype": datatype,
                                       "shape": [1], "data": [1]}]}
                schema = version.model.partition(".")[2] + ".response"
                if accepts(schema, answer):
                    taken.append(datatype)
                answer["outputs"][0]["name"] += "2"
                self.assertFalse(accepts(schema, answer))
            self.assertEqual(sorted(taken), sorted(version.types[version.output]))

    def test_shapes_are_told(self):
        for version in self.each():
            inputs = DOCUMENT["components"]["schemas"][version.schema]["properties"]["inputs"]
            mapping = resolve(inputs["items"])["discriminator"]["mapping"]
            self.assertEqual(list(mapping), version.inputs)
            for name, reference in mapping.items():
                about = DOCUMENT["components"]["schemas"][reference.rsplit("/", 1)[1]]
                self.assertIn("shape: %s" % version.shapes[name].lower(),
                              about["description"].lower())

    def test_attributes(self):
        """Checks which attributes each version has, and that it accepts no others but the
        protocol's."""
        of_model = {}
        for version in self.versions:
            of_model.setdefault(version.model, {}).update(version.attributes)
        for version in self.each():
            taken = {name for name in of_model[version.model] if version.accepts(
                dict(version.request(), parameters={name: example_value(version.model, name)}))}
            self.assertEqual(taken, set(version.attributes))
            self.assertFalse(version.accepts(dict(version.request(), parameters={"axs": 0})))

    def test_attributes_are_told(self):
        """The schema describes kind, default and range of an attribute in the registry's words, and
        declares the same default."""
        schemas = DOCUMENT["components"]["schemas"]
        for version in self.each():
            for name, text in version.attributes.items():
                schema = schemas["%s.%s" % (version.model.partition(".")[2], name)]
                self.assertEqual(schema["description"].lower(), text.lower())
                default = re.search(r"default (-?\w+)[,;:]|(\w+) \(default\)|default (\w+);", text)
                told = next(filter(None, default.groups())) if default else None
                if told is None or text.startswith("integers"):
                    self.assertIsNone(default_of(schema))
                else:
                    self.assertEqual(str(default_of(schema)).lower(), told.lower())

    def test_no_other_attributes(self):
        described = {name for name in DOCUMENT["components"]["schemas"] for model in MODELS
                     if name.startswith(model + ".") and attribute_of(name, model)}
        known = {"%s.%s" % (version.model.partition(".")[2], name)
                 for version in self.versions for name in version.attributes}
        self.assertEqual(described, known)


def default_of(schema):
    """Returns the default of a schema, or of its first form if it has several."""
    return schema.get("anyOf", [schema])[0].get("default")


MODELS = [name.rpartition(".")[2] for name in make_operators.BY_HAND]


def attribute_of(name, model):
    """Returns true if a component's name is that of an attribute: the rest of the name is no
    version, and no part that all versions share."""
    rest = name[len(model) + 1:]
    return not re.match(r"\d|(rules|response|output|plain\..*)$", rest)


# A request to try each attribute on, and values inside and outside its range.
ATTRIBUTES = {
    ("onnx.DequantizeLinear", "axis"):
        ("ok_dequantize_per_axis", [-2, 1, "1", " 1 "], [-33, 32, 0.5, "x", True, [1], {}]),
    ("onnx.DequantizeLinear", "block_size"):
        ("ok_dequantize_blocked", [2, "2"], [-1, "-1", 0.5, "x", True, [2]]),
    ("onnx.DequantizeLinear", "output_dtype"):
        ("ok_dequantize_output_dtype_name", [0, 1, 10, 16, "0", "1", "10", "16", "FP32", "FP16",
                                             "BF16"], [2, 17, -1, "UINT8", "FP8", True, [1]]),
    ("onnx.QuantizeLinear", "axis"):
        ("ok_quantize_per_axis", [-2, 1, "1", " 1 "], [-33, 32, 0.5, "x", True, [1], {}]),
    ("onnx.QuantizeLinear", "block_size"):
        ("ok_quantize_blocked_int4", [2, "2"], [-1, "-1", 0.5, "x", True, [2]]),
    ("onnx.QuantizeLinear", "saturate"):
        ("ok_quantize_fp8e5m2_infinity", [0, 1, "0", "1"], [2, -1, "2", 0.5, "x", True, [1]]),
    ("onnx.QuantizeLinear", "output_dtype"):
        ("ok_quantize_int2_typed",
         [0, 2, 3, 4, 5, 17, 18, 19, 20, 21, 22, 23, 25, 26, "0", "26", "UINT8", "INT8", "UINT16",
          "INT16", "UINT4", "INT4", "UINT2", "INT2", "FP4E2M1", "FP8E4M3FN", "FP8E4M3FNUZ",
          "FP8E5M2", "FP8E5M2FNUZ"],
         [1, 6, 10, 24, -1, "1", "FP32", "INT32", "FP8E8M0", "FP8", True, [2]]),
    ("onnx.QuantizeLinear", "precision"):
        ("ok_quantize_precision", [0, 1, 10, 16, "0", "1", "10", "16", "FP32", "FP16", "BF16"],
         [2, 6, -1, "INT32", "UINT8", "FP8", True, [1]]),
    ("onnx.QLinearConv", "auto_pad"):
        ("ok_conv_auto_pad", ["NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"],
         ["SAME", "valid", 0, True, []]),
    ("onnx.QLinearConv", "dilations"):
        ("ok_conv_1d", [[1], "1", " 1 "], [[0], "0", [-1], [0.5], "1,", 1, True, ["1"]]),
    ("onnx.QLinearConv", "group"):
        ("ok_conv_1d", [1, "1"], [0, -1, "0", 0.5, True, [1]]),
    ("onnx.QLinearConv", "kernel_shape"):
        ("ok_conv_depthwise", [[3], "3"], [[0], "0", [-3], 3, "3,", True, ["3"]]),
    ("onnx.QLinearConv", "pads"):
        ("ok_conv_1d", [[0, 0], [1, 0], "0,1", "0 , 1"], [[-1, 0], "-1,0", 0, [0.5, 0], ["0"]]),
    ("onnx.QLinearConv", "strides"):
        ("ok_conv_1d", [[1], [2], "2"], [[0], "0", [-1], 1, True, ["1"]]),
    ("directml.ElementWiseDequantizeLinear", "InputTensor.strides"):
        ("ok_directml_transposed", [[1, 2], "1,2"], [[-1, 2], "-1,2", 1, [0.5, 1], ["1", 2]]),
    ("directml.ElementWiseDequantizeLinear", "ScaleTensor.strides"):
        ("ok_directml_transposed", [[0, 0], "0,0"], [[-1, 0], "-1,0", 0, [0.5, 0], ["0", 0]]),
    ("directml.ElementWiseDequantizeLinear", "ZeroPointTensor.strides"):
        ("ok_directml_strides", [[0, 0], "0,0"], [[-1, 0], "-1,0", 0, [0.5, 0], ["0", 0]]),
    ("tensorflow.Dequantize", "mode"):
        ("ok_tensorflow_min_combined", ["MIN_COMBINED", "MIN_FIRST", "SCALED"],
         ["", "scaled", 0, True]),
    ("tensorflow.Dequantize", "narrow_range"):
        ("ok_tensorflow_min_combined", [True, False], [0, "true", []]),
    ("tensorflow.Dequantize", "axis"):
        ("ok_tensorflow_axis", [1, "1"], [-2, "-2", 32, 0.5, "x", True]),
    ("tensorflow.Dequantize", "dtype"):
        ("ok_tensorflow_min_combined", ["float32", "FP32", "bfloat16", "BF16"],
         ["float16", "FP16", 1, True]),
}

# The tensors of these examples do not fit without the attribute.
NEEDED = ("ok_dequantize_blocked", "ok_quantize_blocked_int4", "ok_directml_transposed",
          "ok_directml_strides", "ok_tensorflow_axis")


def example_value(model, name):
    return ATTRIBUTES[model, name][1][0]


class Behaviour(RegistryTest):
    """Tries what the schema says of attributes and elements on both the server and the schema."""

    def infer(self, example, request):
        return self.server.infer(example["model"], request, example.get("version"))

    def schema_of(self, example):
        """Returns the schema of the version that runs."""
        version = self.infer(example, example["request"]).json()["model_version"]
        return request_schema(example["model"], version)[0]

    def test_attribute_values(self):
        for (model, name), (example_name, good, bad) in ATTRIBUTES.items():
            example = EXAMPLES[example_name]
            self.assertEqual(example["model"], model)
            schema = self.schema_of(example)
            absent = [] if example_name in NEEDED else [None]
            for value in good + absent + bad:
                with self.subTest(model=model, name=name, value=value):
                    parameters = dict(example["request"].get("parameters") or {}, **{name: value})
                    request = dict(example["request"], parameters=parameters)
                    answer = self.infer(example, request)
                    is_good = value is None or any(value is each for each in good)
                    self.assertEqual(answer.status, 200 if is_good else 400, answer.body)
                    self.assertEqual(accepts(schema, request), is_good)
                    if not is_good:
                        self.assert_error(answer, 400, name)

    def test_all_attributes_are_tried(self):
        known = {(version.model, name) for version in self.versions for name in version.attributes}
        self.assertEqual(set(ATTRIBUTES), known)

    def test_defaults(self):
        """Sending an attribute's default changes nothing."""
        tried = set()
        for example_name, example in EXAMPLES.items():
            if not example_name.startswith("ok_") or "request" not in example or (
                    example["model"] not in make_operators.BY_HAND):
                continue
            body, headers = example_request(example)
            if headers:
                continue
            answer = self.server.request("POST", infer_path(example["model"],
                                                            example.get("version")), body)
            ran = next(version for version in self.versions if version.model == example["model"]
                       and version.version == answer.tree()["model_version"])
            parameters = example["request"].get("parameters") or {}
            for name in set(ran.attributes) - set(parameters):
                schema = DOCUMENT["components"]["schemas"][
                    "%s.%s" % (ran.model.partition(".")[2], name)]
                if default_of(schema) is None:
                    continue
                with self.subTest(example=example_name, name=name):
                    more = dict(parameters, **{name: default_of(schema)})
                    again = self.infer(example, dict(example["request"], parameters=more))
                    self.assertEqual(again.status, 200, again.body)
                    self.assertEqual(again.outputs(), answer.outputs())
                    tried.add((ran.model, name))
        told = {key for key in ATTRIBUTES if default_of(DOCUMENT["components"]["schemas"][
            "%s.%s" % (key[0].partition(".")[2], key[1])]) is not None}
        self.assertEqual(tried, told)

    def test_ranges(self):
        """Elements at and beyond the ends of each datatype's range, as JSON."""
        for datatype in set(VALUES) - {"INT64", "BOOL"}:
            version, name = next((version, name) for version in reversed(self.versions)
                                 for name in version.inputs if datatype in version.types[name])
            for value, good in RANGES[datatype].items():
                with self.subTest(datatype=datatype, value=value):
                    request = version.request(**{name: datatype})
                    if version.model == "onnx.QLinearConv":
                        self.fail("another operator has all datatypes")
                    if datatype == "FP8E8M0" and version.model == "onnx.DequantizeLinear":
                        request["parameters"] = {"output_dtype": 1}
                    tensor = next(part for part in request["inputs"] if part["name"] == name)
                    tensor["data"] = [value]
                    answer = self.server.infer(version.model, request, version.version)
                    self.assertEqual(answer.status, 200 if good else 400, answer.body)
                    self.assertEqual(version.accepts(request), good)


class Generated(RegistryTest):
    """The operators that make_operators.py describes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.operators = make_operators.read_operators(cls.server)

    def each_operator(self):
        for operator in self.operators:
            with self.subTest(model=operator.name):
                yield operator

    def test_is_not_stale(self):
        text = make_operators.DOCUMENT.read_text()
        self.assertTrue(make_operators.fill(text, self.operators) == text,
                        "openapi.yaml: run make schema")

    def least(self, operator, **datatypes):
        return {"inputs": [{"name": name, "shape": [1], "data": [1],
                            "datatype": datatypes.get(name, operator.types[name][0])}
                           for name in operator.inputs
                           if name in operator.needed or name in datatypes]}

    def test_inputs(self):
        for operator in self.each_operator():
            least = self.least(operator)
            self.assertIsNone(why_not(operator.name, least))
            every = self.least(operator, **{name: operator.types[name][0]
                                            for name in operator.inputs})["inputs"]
            self.assertTrue(accepts(operator.name, {"inputs": every}))
            self.assertFalse(accepts(operator.name, {"inputs": every + every[:1]}))
            self.assertFalse(accepts(operator.name, {"inputs": every[:-1] + [
                dict(every[-1], name="other")]}))
            for name in operator.inputs:
                without = [part for part in every if part["name"] != name]
                self.assertEqual(accepts(operator.name, {"inputs": without}),
                                 name not in operator.needed)
                taken = [datatype for datatype in list(VALUES) + list(FOREIGN)
                         if accepts(operator.name, self.least(operator, **{name: datatype}))]
                self.assertEqual(set(taken), set(operator.types[name]) | {"UINT8"})

    def test_attributes(self):
        """The schema and the server refuse an attribute of another kind, and other names."""
        wrong = {"integer": [0.5, "x", True, [1]], "integers": [0.5, "1,", True, ["x"]],
                 "number": ["x", True, [1], 1e39], "string": [1, True, []],
                 "datatype": ["FLOAT", True, [1]]}
        for operator in self.each_operator():
            _, example = make_operators.find_example(operator)
            request = example["request"]
            for name, text in operator.attributes.items():
                kind = make_operators.KINDS[text.partition(": ")[0]]
                for value in wrong[kind]:
                    bad = dict(request, parameters=dict(request.get("parameters", {}),
                                                        **{name: value}))
                    self.assertFalse(accepts(operator.name, bad), (name, value))
                    self.assert_error(self.server.infer(operator.name, bad), 400, name)
            bad = dict(request, parameters={"axs": 1})
            self.assertFalse(accepts(operator.name, bad))
            self.assert_error(self.server.infer(operator.name, bad), 400, "axs")

    def test_answers(self):
        for operator in self.each_operator():
            _, example = make_operators.find_example(operator)
            self.assertIsNone(why_not(operator.name, example["request"]))
            answer = self.server.infer(operator.name, example["request"])
            self.assertEqual(answer.status, 200, answer.body)
            path = "/v2/models/%s/infer" % operator.name
            self.assertIsNone(answer_problem("POST", path, answer))
            for output in answer.json()["outputs"]:
                self.assertIn(output["datatype"], operator.types[output["name"]])

    def test_ranges(self):
        for datatype, values in {
                "INT64": NO_WORDS | {-2**63: True, 2**63 - 1: True, -2**63 - 1: False, 2**63: False,
                                     0.5: False, None: False},
                "BOOL": NO_WORDS | {0: True, 1: True, 2: False, -1: False, None: False,
                                    0.5: False, "true": False}}.items():
            for value, good in values.items():
                with self.subTest(datatype=datatype, value=value):
                    request = {"inputs": [{"name": "input", "datatype": datatype, "shape": [1],
                                           "data": [value]}]}
                    answer = self.server.infer("onnx.Identity", request)
                    self.assertEqual(answer.status, 200 if good else 400, answer.body)
                    self.assertEqual(accepts("onnx.Identity", request), good)


WORDS = {"NaN": True, "Infinity": True, "-Infinity": True, "nan": False, "": False}
NAN = dict(WORDS, **{"Infinity": False, "-Infinity": False})
NO_WORDS = dict.fromkeys(WORDS, False)


def integers(low, high):
    return NO_WORDS | {None: False, low: True, high: True, low - 1: False, high + 1: False,
                       low + 0.5: False}


def floats(most, beyond, words):
    return words | {most: True, -most: True, beyond: False, -beyond: False, None: False}


RANGES = {
    "UINT8": integers(0, 255), "INT8": integers(-128, 127),
    "UINT16": integers(0, 65535), "INT16": integers(-32768, 32767),
    "UINT32": integers(0, 2**32 - 1), "INT32": integers(-2**31, 2**31 - 1),
    "UINT4": integers(0, 15), "INT4": integers(-8, 7),
    "UINT2": integers(0, 3), "INT2": integers(-2, 1),
    "FP16": floats(65519.9, 65520, WORDS),
    "BF16": floats(2**128 - 2**119 - 2**100, 2**128 - 2**119, WORDS),
    "FP32": floats(2**128 - 2**103 - 2**90, 2**128 - 2**103, WORDS),
    "FP4E2M1": floats(6, 7, NO_WORDS),
    "FP8E4M3FN": floats(448, 449, NAN), "FP8E4M3FNUZ": floats(240, 241, NAN),
    "FP8E5M2": floats(57344, 57345, WORDS), "FP8E5M2FNUZ": floats(57344, 57345, NAN),
    "FP8E8M0": NAN | {2.0**127: True, 2.0**128: False, 2.0**-127: True, 0: False, -1: False},
}


if __name__ == "__main__":
    unittest.main()
