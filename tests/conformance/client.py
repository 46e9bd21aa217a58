"""Four ways to send one call: JSON, binary, the carrier form, and Triton's own Python client."""
import base64
import http.client
import json
import shlex
import shutil
import time
import urllib.parse

from elements import BITS, to_raw
from quantd import Tensor, binary_request, exchange, infer_path, json_request

# The datatypes that OIP, and so Triton's client, has names for.
PLAIN = ("BOOL", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "INT64", "FP16", "BF16",
         "FP32")
# The server closes connections that were idle for longer (--idle-timeout), as when a suite asks in
# other ways for minutes.
IDLE_SECONDS = 30
LENGTH = "Inference-Header-Content-Length"


class Refused(Exception):
    """The server answered with an error: (status, text)."""


def as_text(attributes):
    """Returns the attributes with lists as strings, for clients whose parameters must be scalars.
    """
    return {name: ",".join(map(str, value)) if isinstance(value, list) else value
            for name, value in attributes.items()}


def carried(case, which):
    """Returns the tensors, with those that `which` picks as plain bytes, and the parameters that
    describe these."""
    tensors, parameters = [], as_text(case.attributes)
    for tensor in case.tensors:
        if which(tensor):
            parameters[tensor.name + ".datatype"] = tensor.datatype
            parameters[tensor.name + ".shape"] = ",".join(map(str, tensor.shape))
            tensor = Tensor(tensor.name, "UINT8", [len(tensor.raw)], tensor.raw)
        tensors.append(tensor)
    return tensors, parameters


class Loader:
    """Loads ONNX files as models."""

    def __init__(self, url, repository=None):
        """`repository`: the server's folder of models, if this process may write it."""
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=60)
        self.prefix = parts.path.rstrip("/")
        self.repository = repository

    def post(self, name, action, parameters):
        answer = exchange(self.connection, "POST",
                          "%s/v2/repository/models/%s/%s" % (self.prefix, name, action),
                          json.dumps({"parameters": parameters}).encode())
        if answer.status != 200:
            raise Refused(answer.status, answer.json()["error"])

    def load(self, name, model):
        """Sends the file in the call, as Triton's client does."""
        file = base64.b64encode(model.SerializeToString()).decode()
        self.post(name, "load", {"config": "{}", "file:1/model.onnx": file})

    def load_folder(self, name, model, threshold):
        """Loads from the repository, with constants of `threshold` bytes or more as external data.
        """
        import onnx
        folder = self.repository / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "1").mkdir(parents=True)
        copy = onnx.ModelProto.FromString(model.SerializeToString())  # save_model changes it
        onnx.save_model(copy, folder / "1" / "model.onnx", save_as_external_data=True,
                        all_tensors_to_one_file=threshold == 0, location="weights",
                        size_threshold=threshold, convert_attribute=True)
        self.post(name, "load", {})

    def unload(self, name):
        self.post(name, "unload", {})


class Plain:
    """Sends requests with the standard library's HTTP client, over one connection."""

    def __init__(self, url, way):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=60)
        self.prefix = parts.path.rstrip("/")
        self.way = way
        self.used = time.monotonic()

    def takes(self, case):
        """Tells whether the case can be sent in this way. A request to a loaded model has no
        parameters that could carry types."""
        return self.way != "carrier" or case.model.partition(".")[2]

    def request(self, case):
        """Returns (path, body, headers)."""
        path = self.prefix + infer_path(case.model, case.version)
        if self.way == "json":
            body = json.dumps(json_request(case.tensors, case.attributes)).encode()
            return path, body, {"Content-Type": "application/json"}
        if self.way == "carrier":
            tensors, parameters = carried(case, lambda tensor: True)
            return (path,) + binary_request(tensors, parameters)
        return (path,) + binary_request(case.tensors, as_text(case.attributes))

    def infer(self, case):
        """Sends the case and returns name -> (datatype, shape, raw)."""
        path, body, headers = self.request(case)
        if time.monotonic() - self.used > IDLE_SECONDS:
            self.connection.close()  # the next request opens another
        self.used = time.monotonic()
        try:
            answer = exchange(self.connection, "POST", path, body, headers)
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if answer.status != 200:
            raise Refused(answer.status, answer.json()["error"])
        assert answer.tree()["model_version"] == case.version
        return answer.outputs()


class Triton:
    """Sends requests with an unchanged tritonclient[http]. Types that OIP has no name for go in the
    carrier form, and come back as JSON."""

    way = "triton"

    def __init__(self, url):
        import ml_dtypes
        import numpy
        import tritonclient.http
        from tritonclient.utils import InferenceServerException
        self.library, self.error = tritonclient.http, InferenceServerException
        self.numpy, self.bfloat16 = numpy, ml_dtypes.bfloat16
        parts = urllib.parse.urlsplit(url)
        self.client = tritonclient.http.InferenceServerClient(
            (parts.netloc + parts.path).rstrip("/"), network_timeout=60, connection_timeout=60)

    def takes(self, case):
        return case.model.partition(".")[2] or all(tensor.datatype in PLAIN
                                                   for tensor in case.tensors)

    def array(self, tensor):
        if tensor.datatype == "BF16":
            kind = self.bfloat16
        elif tensor.datatype == "BOOL":
            kind = "bool"
        else:
            kind = {"U": "u", "I": "i", "F": "f"}[tensor.datatype[0]] + str(
                BITS[tensor.datatype] // 8)
        return self.numpy.frombuffer(tensor.raw, kind).reshape(tensor.shape)

    def arguments(self, case):
        tensors, parameters = carried(case, lambda tensor: tensor.datatype not in PLAIN or (
            tensor.name + ".strides" in case.attributes))
        inputs = []
        for tensor in tensors:
            entry = self.library.InferInput(tensor.name, tensor.shape, tensor.datatype)
            # Its JSON form has no 16-bit floats, and no words for infinities and NaN.
            binary = len(tensor.raw) % 2 == 0 or tensor.datatype.startswith("F")
            entry.set_data_from_numpy(self.array(tensor),
                                      binary_data=binary or tensor.datatype == "BF16")
            inputs.append(entry)
        return {"inputs": inputs, "parameters": parameters or None}

    def request(self, case):
        body, length = self.library.InferenceServerClient.generate_request_body(
            **self.arguments(case))
        headers = {} if length is None else {LENGTH: str(length)}
        return infer_path(case.model, case.version), body, headers

    def send(self, case, **more):
        try:
            return self.client.infer(case.model, model_version=case.version,
                                     **self.arguments(case), **more)
        except self.error as error:
            raise Refused(int(error.status()), error.message()) from None

    def infer(self, case):
        result = self.send(case)
        names = [output["name"] for output in result.get_response()["outputs"]
                 if output["datatype"] not in PLAIN]
        if names:  # it makes no arrays of these, but passes on JSON's numbers
            result = self.send(case, outputs=[
                self.library.InferRequestedOutput(name, binary_data=False) for name in names])
        answer = {}
        for output in result.get_response()["outputs"]:
            if output["name"] in names:
                raw = to_raw(output["datatype"], output["data"])
            else:
                array = result.as_numpy(output["name"])
                raw = array.tobytes()
                if output["datatype"] == "BF16" and array.dtype.itemsize == 4:
                    raw = (array.view("u4") >> 16).astype("u2").tobytes()  # older clients
            answer[output["name"]] = (output["datatype"], list(output["shape"]), raw)
        return answer


def curl(client, case, url, folder):
    """Writes the request to a file. Returns the command that sends it again."""
    path, body, headers = client.request(case)
    file = folder / ("%s.%s.bin" % (case.name.replace("/", "-"), client.way))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    words = ["curl", "-s", "--data-binary", "@%s" % file, "-o", "answer"]
    for name, value in headers.items():
        words += ["-H", "%s: %s" % (name, value)]
    return shlex.join(words + [url.rstrip("/") + path])
