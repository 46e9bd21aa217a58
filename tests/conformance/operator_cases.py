"""Cases of single operators with the bytes that ONNX Runtime gives them.

A family's script, such as make_pool_cases.py, describes nodes and operands. `Cases` runs each node
in a session of its own and writes a line for it, as tests/data/README.md describes. The files are
committed, so the unit tests need no ONNX Runtime.
"""
import json
import sys

import numpy as np

PREFIXES = {"": "onnx.", "com.microsoft": "com.microsoft."}


class Cases:
    def __init__(self, seed):
        self.dice = np.random.default_rng(seed)
        self.lines = []

    def add(self, note, op, version, operands, outputs=("y",), domain="", types=None, **attributes):
        """Adds a case. `operands` is a dict of name to array, or None for an absent one, in the
        order of the operator's inputs. `version` is the opset of ONNX's own domain, or the version
        in `domain`. `types` are the outputs' types; the default is the first operand's. What ONNX
        Runtime refuses becomes a case with expect_error."""
        import onnx
        import onnxruntime
        from onnx import helper
        names = ["" if array is None else name for name, array in operands.items()]
        arrays = {name: np.asarray(array) for name, array in operands.items() if array is not None}
        node = helper.make_node(op, names, list(outputs), domain=domain, **attributes)
        first = next(iter(arrays.values())).dtype
        kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(kind))
                 for kind in types or [first] * len(outputs)]
        graph = helper.make_graph(
            [node], op,
            [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                           array.shape) for name, array in arrays.items()],
            [helper.make_tensor_value_info(name, kind, None)
             for name, kind in zip(outputs, kinds)])
        opsets = [helper.make_opsetid("", 21 if domain else version)]
        if domain:
            opsets.append(helper.make_opsetid(domain, version))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        line = {"id": f"{op}-{len(self.lines):03}", "model": PREFIXES[domain] + op,
                "version": str(version), "attributes": attributes,
                "inputs": [tensor(name, array) for name, array in arrays.items()]}
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                                   providers=["CPUExecutionProvider"])
            results = session.run(None, arrays)
            line["outputs"] = [tensor(*pair) for pair in zip(outputs, results)]
        except Exception as error:  # pylint: disable=broad-except
            line["expect_error"] = True
            print(f"{line['id']}: {note}: refused: {str(error)[:120]}", file=sys.stderr)
        line["note"] = note
        line["how"] = f"run in ORT {onnxruntime.__version__}"
        self.lines.append(line)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for line in self.lines:
                file.write(json.dumps(line) + "\n")
        print(f"{path}: {len(self.lines)} cases")


NAMES = {"uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "int32": "INT32",
         "uint32": "UINT32", "int64": "INT64", "float32": "FP32", "bool": "BOOL", "float16": "FP16"}


def tensor(name, array):
    return {"name": name, "datatype": NAMES[array.dtype.name], "shape": list(array.shape),
            "raw_hex": array.tobytes().hex()}
