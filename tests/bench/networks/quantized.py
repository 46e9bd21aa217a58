"""Files of architectures.py's networks, as floats and as ONNX Runtime's quantizer makes them. They
stay in build/bench until a file that makes them, or ONNX Runtime, changes."""
import hashlib
import logging
import re
import shutil
from pathlib import Path

import architectures
import numpy as np
import onnx
import onnxruntime
from libqk import FILES, ROOT
from networks_report import FLOATS
from onnxruntime import quantization

NAMES = tuple(architectures.NETWORKS)
SERVED = "QDQ U8S8"  # the form that is loaded and asked over HTTP
SAMPLES = 2  # of the input, for the quantizer


class Reader(quantization.CalibrationDataReader):
    def __init__(self, network):
        self.left = [sample(network, seed) for seed in range(SAMPLES)]

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


def sample(network, seed):
    """Returns an input."""
    shape = architectures.NETWORKS[network][0]
    return np.random.default_rng(seed).normal(0, 1, (1, *shape)).astype(np.float32)


def folder():
    """Returns the folder of the files. Files of another version are removed."""
    digest = hashlib.sha256(onnxruntime.__version__.encode())
    for source in (__file__, architectures.__file__):
        digest.update(Path(source).read_bytes())
    path = ROOT / FILES / "networks" / digest.hexdigest()[:16]
    if not path.exists():
        shutil.rmtree(path.parent, ignore_errors=True)
        path.mkdir(parents=True)
    return path


def file(network, form):
    """Returns the path of the file, which is made if it is missing."""
    path = folder() / (name(network, form) + ".onnx")
    if not path.exists():
        unfinished = path.with_suffix(".part")
        if form == FLOATS:
            unfinished.write_bytes(architectures.make(network).SerializeToString())
        else:
            print("bench: quantizing %s, %s" % (network, form), flush=True)
            quantize(file(network, FLOATS), unfinished, *form.split(), Reader(network))
        unfinished.rename(path)
    return path


def name(network, form):
    """Returns a name for files and URLs."""
    return re.sub("[^a-z0-9]+", "-", ("%s %s" % (network, form)).lower())


def weight_bytes(path):
    tensors = onnx.load(path).graph.initializer
    return sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in tensors)


def quantize(source, path, layout, types, reader):
    """Quantizes U8S8 per channel and S8S8 per tensor."""
    logging.disable(logging.WARNING)  # the quantizer recommends its other tool
    unsigned = types == "U8S8"
    quantization.quantize_static(
        source, path, reader, quant_format=quantization.QuantFormat[layout], per_channel=unsigned,
        activation_type=quantization.QuantType.QUInt8 if unsigned else
        quantization.QuantType.QInt8, weight_type=quantization.QuantType.QInt8)
    logging.disable(logging.NOTSET)
