"""Runs ONNX Runtime on the same bytes: a model of one node, with input and output bound to our
buffers. It therefore pays for no more page faults than libqk does."""
import ctypes
import mmap
import time

from rows import DEQUANTIZE, Row
from stopwatch import time_round
from tensors import NUMBERS, OPSET, size_text

HUGE_PAGE_BYTES = 2 << 20
SPIN_SECONDS = 0.03  # ONNX Runtime's threads spin this long for more work, and so keep CPUs busy


class Unsupported(Exception):
    """ONNX Runtime has no such kernel."""


class Buffer:
    """Memory whose pages have all been touched; on huge pages, if the system provides them."""

    def __init__(self, size, raw=b""):
        size = (size // HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES
        self.size = size
        self.map = mmap.mmap(-1, size + HUGE_PAGE_BYTES)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = (start + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        ctypes.memset(self.address, 1, size)
        ctypes.memmove(self.address, raw, len(raw))


def run_fresh(session, binding):
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    binding.clear_binding_outputs()


def part_names(row):
    """Returns the names of the outputs, which have one shape: Split has several."""
    count = getattr(row, "parts", 1)
    return ["y"] if count == 1 else ["y_%d" % i for i in range(count)]


class OnnxRuntime:
    """A contestant. The constructor raises ImportError if ONNX Runtime is not installed."""

    def __init__(self, x):
        import onnx.helper
        import onnxruntime
        self.helper, self.library = onnx.helper, onnxruntime
        self.version = onnxruntime.__version__
        self.x = Buffer(len(x), x)
        self.y = None
        self.nothing = {}  # threads -> a run of one element

    def reserve(self, size):
        """Allocates memory for the largest output. The caller does this before the first row."""
        self.y = None
        self.y = Buffer(size)

    def nodes(self, row, variable):
        """Returns (nodes, constants) of the row's stages. Each stage's output is the x of the next
        one."""
        make, stages = self.helper, getattr(row, "stages", (row,))
        nodes, constants = [], []
        for k, stage in enumerate(stages):
            end = "_%d" % k if k > 0 else ""
            inputs = [name and name + end for name, *_ in stage.inputs]
            for name, (_, datatype, shape, raw) in zip(inputs, stage.inputs):
                if raw is not None and name not in variable:
                    constants.append(make.make_tensor(name, NUMBERS[datatype], shape, raw,
                                                      raw=True))
            domain, _, operator = stage.model.removeprefix("onnx.").rpartition(".")
            nodes.append(make.make_node(
                operator, inputs, part_names(row) if stage is stages[-1] else ["x_%d" % (k + 1)],
                domain=domain, **stage.attributes))
        return nodes, constants

    def model(self, row, variable):
        make = self.helper
        nodes, constants = self.nodes(row, variable)
        graph = make.make_graph(
            nodes, "row",
            [make.make_tensor_value_info(name, NUMBERS[datatype], shape)
             for name, datatype, shape, _ in row.inputs if name in variable],
            [make.make_tensor_value_info(name, NUMBERS[row.y], row.y_shape)
             for name in part_names(row)], constants)
        opsets = [make.make_opsetid("", OPSET), make.make_opsetid("com.microsoft", 1)]
        return make.make_model(graph, opset_imports=opsets, ir_version=13)

    def session(self, row, variable):
        options = self.library.SessionOptions()
        options.intra_op_num_threads = row.threads
        options.log_severity_level = 4
        try:
            return self.library.InferenceSession(self.model(row, variable).SerializeToString(),
                                                 options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            raise Unsupported(str(error)) from None

    def prepare(self, row, variable=("x",), fresh=False):
        """Returns a function that runs the row once. `variable`: the inputs that are not constants
        of the model. `fresh`: ONNX Runtime allocates the output itself."""
        session = self.session(row, variable)
        if self.y is None or self.y.size < row.y_bytes:
            raise Unsupported("no buffer of " + size_text(row.y_bytes))
        binding = session.io_binding()
        buffers = []  # kept alive by the function
        for name, datatype, shape, raw in row.inputs:
            if name not in variable:
                continue
            buffers.append(self.x if raw is None else Buffer(len(raw), raw))
            binding.bind_input(name, "cpu", 0, NUMBERS[datatype], shape, buffers[-1].address)
        if fresh:
            return lambda: run_fresh(session, binding)
        names = part_names(row)
        for i, name in enumerate(names):
            binding.bind_output(name, "cpu", 0, NUMBERS[row.y], row.y_shape,
                                self.y.address + i * (row.y_bytes // len(names)))
        return lambda _=buffers: session.run_with_iobinding(binding)

    def time_round(self, run, threads):
        ns = time_round(run)
        if threads > 1:
            time.sleep(SPIN_SECONDS)
        return ns

    def output(self, row, run):
        """Runs the row once more and returns the bytes of y. y is cleared before, so earlier
        results do not count, and the unused bits after 2-bit elements, which are not written, are
        0."""
        ctypes.memset(self.y.address, 0, row.y_bytes)
        run()
        return ctypes.string_at(self.y.address, row.y_bytes)

    def call_ns(self, threads):
        """Returns the nanoseconds of a call that computes next to nothing: the cost of Python,
        session and binding."""
        if threads not in self.nothing:
            self.nothing[threads] = self.prepare(
                Row(DEQUANTIZE, "UINT8", "FP32", "tensor", 1, threads))
        return self.time_round(self.nothing[threads], threads)
