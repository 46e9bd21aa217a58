"""ONNX Runtime on the same bytes: one node, constant parameters, input and output bound to buffers
of ours, so that it pays for page faults no more than libqk does."""
import ctypes
import mmap

from rows import NUMBERS, OPSET, Row, size_text
from stopwatch import time_round

HUGE_PAGE_BYTES = 2 << 20


class Unsupported(Exception):
    """ONNX Runtime has no such kernel."""


class Buffer:
    """Memory on huge pages, where the system gives them; touched."""

    def __init__(self, size):
        size = (size // HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES
        self.size = size
        self.map = mmap.mmap(-1, size + HUGE_PAGE_BYTES)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = (start + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        ctypes.memset(self.address, 1, size)


def run_fresh(session, binding):
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    binding.clear_binding_outputs()


class OnnxRuntime:
    """Raises ImportError where it is not installed."""

    def __init__(self, x):
        import numpy
        import onnx.helper
        import onnxruntime
        self.numpy, self.helper, self.library = numpy, onnx.helper, onnxruntime
        self.version = onnxruntime.__version__
        self.x = Buffer(len(x))
        ctypes.memmove(self.x.address, x, len(x))
        self.y = None
        self.nothing = {}  # threads -> a run of one element

    def reserve(self, size):
        """Room for the largest output, before the first row."""
        self.y = None
        self.y = Buffer(size)

    def model(self, row):
        make = self.helper
        shape, scale_shape, attributes = row.shapes
        number, y_number = NUMBERS[row.x], NUMBERS[row.y]
        names = ["x", "x_scale"]
        constants = [make.make_tensor("x_scale", y_number, scale_shape, row.scales(), raw=True)]
        zero_points = row.zero_points()
        if zero_points is not None:
            names.append("x_zero_point")
            constants.append(make.make_tensor("x_zero_point", number, scale_shape, zero_points,
                                              raw=True))
        graph = make.make_graph(
            [make.make_node("DequantizeLinear", names, ["y"], **attributes)], "row",
            [make.make_tensor_value_info("x", number, shape)],
            [make.make_tensor_value_info("y", y_number, shape)], constants)
        return make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=13)

    def session(self, row):
        options = self.library.SessionOptions()
        options.intra_op_num_threads = row.threads
        options.log_severity_level = 4
        try:
            return self.library.InferenceSession(self.model(row).SerializeToString(), options,
                                                 providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no class of their own
            raise Unsupported(str(error)) from None

    def prepare(self, row, fresh=False):
        """A function that runs the row once; `fresh`: with an output that it allocates."""
        session = self.session(row)
        shape = row.shapes[0]
        if self.y is None or self.y.size < row.y_bytes:
            raise Unsupported("no buffer of " + size_text(row.y_bytes))
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, NUMBERS[row.x], shape, self.x.address)
        if fresh:
            return lambda: run_fresh(session, binding)
        binding.bind_output("y", "cpu", 0, NUMBERS[row.y], shape, self.y.address)
        return lambda: session.run_with_iobinding(binding)

    def sum(self, row):
        """Of the output's 64-bit words, after a run."""
        raw = ctypes.string_at(self.y.address, row.y_bytes)
        words = self.numpy.frombuffer(raw + bytes(-len(raw) % 8), self.numpy.uint64)
        return int(words.sum(dtype=self.numpy.uint64))

    def call_ns(self, threads):
        """What a call costs that computes next to nothing: Python, session, binding."""
        if threads not in self.nothing:
            self.nothing[threads] = self.prepare(Row("UINT8", "FP32", "tensor", 1, threads))
        return time_round(self.nothing[threads])
