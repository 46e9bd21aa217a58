"""What the graphs of graphs.py have: functions that add an operator, or a few that belong together,
with random attributes. They raise Unfit if the graph has no value for it."""
import numpy as np

from graph_writer import MICROSOFT


def is_image(value):
    return value.rank == 4 and value.quantized and value.array.size


def is_quantized(value):
    return value.quantized


def is_bytes(value):
    return value.kind.itemsize == 1 and value.kind != np.bool_


def has_elements(value):
    return value.rank >= 1 and value.array.size > 0


# ---- Arithmetic on quantized values ----------------------------------------------------------


def windows(graph, value, dilated=True):
    """Returns the attributes of a convolution or a pool over a value's last dimensions."""
    spatial = value.rank - 2
    kernel = [graph.number(1, min(4, size + 1)) for size in value.shape[2:]]
    found = {"kernel_shape": kernel}
    if graph.chance():
        found["strides"] = [graph.number(1, 3) for _ in range(spatial)]
    if dilated and graph.chance(0.2):
        found["dilations"] = [graph.number(1, 2) for _ in range(spatial)]
    if graph.chance(0.6):
        found["pads"] = [graph.number(0, size - 1) for size in kernel * 2]
    elif graph.chance(0.3):
        found["auto_pad"] = "VALID"
    elif "dilations" not in found and graph.chance(0.3):
        found["auto_pad"] = graph.choose("SAME_UPPER", "SAME_LOWER")
        found["strides"] = [graph.number(1, size) for size in kernel]
    return found


def weighed(graph, source, shape, filters, axis=None):
    """Returns weights with a scale and a zero point for all of them or for each filter, and the
    parameters of a result."""
    kind = graph.choose(np.int8, np.uint8) if source.kind == np.uint8 else np.int8
    per_channel = (filters,) if axis is not None and graph.chance() else ()
    given = graph.parameters(kind, 0.02, per_channel)
    fan = np.sqrt(max(1, np.prod(shape) // filters))
    result = graph.parameters(source.kind, graph.scale_of(source) * 0.02 * 100 * fan)
    return [graph.constant(graph.array(kind, shape), "w"), *given], result


def conv(graph):
    x = graph.pick(lambda value: value.quantized and value.rank in (3, 4) and value.array.size)
    channels = x.shape[1]
    group = graph.choose(1, 1, channels, *(d for d in (2, 3, 4) if channels % d == 0))
    filters = group * (graph.choose(1, 2, 3, 5, 8, 16, 33) if group < 4 else graph.number(1, 2))
    attributes = windows(graph, x)
    shape = (filters, channels // group, *attributes["kernel_shape"])
    weights, result = weighed(graph, x, shape, filters, 0)
    inputs = [x, x.scale, x.zero, *weights, *result]
    if graph.chance():
        inputs.append(graph.constant(graph.dice.integers(-9000, 9000, filters).astype(np.int32)))
    graph.add("QLinearConv", inputs, quantized=result, group=group, **attributes)


def operand(graph, x):
    """Returns another value that broadcasts with x, with its parameters."""
    def fits(value):
        try:
            np.broadcast_shapes(value.shape, x.shape)
        except ValueError:
            return False
        return value.quantized and value.kind == x.kind
    if graph.chance(0.6):
        other = graph.pick(fits)
        return [other, other.scale, other.zero]
    shape = [size if graph.chance() else 1 for size in x.shape][graph.number(0, x.rank):]
    return [graph.constant(graph.array(x.kind, shape)), *graph.parameters(x.kind, 0.03)]


def binary(graph):
    x = graph.pick(is_quantized)
    pair = [[x, x.scale, x.zero], operand(graph, x)]
    if graph.chance():
        pair.reverse()
    op = graph.choose("QLinearAdd", "QLinearMul")
    result = graph.parameters(x.kind, graph.scale_of(x) * graph.choose(1, 2, 4))
    graph.add(op, [*pair[0], *pair[1], *result], quantized=result, domain=MICROSOFT)


def pooled(graph):
    x = graph.pick(is_image)
    result = graph.parameters(x.kind, graph.scale_of(x) / graph.choose(1, 2))
    given = [x, x.scale, x.zero, *result]
    if graph.chance(0.3):
        graph.add("QLinearGlobalAveragePool", given, quantized=result, domain=MICROSOFT)
        return
    graph.add("QLinearAveragePool", given, quantized=result, domain=MICROSOFT,
              ceil_mode=graph.number(0, 1), count_include_pad=graph.number(0, 1),
              **windows(graph, x, dilated=False))


def joinable(graph, x, axis):
    """Returns values that concatenate with x, x among them."""
    def fits(value):
        alike = (value.kind, value.rank, value.quantized) == (x.kind, x.rank, x.quantized)
        return alike and all(i == axis or size == x.shape[i] for i, size in enumerate(value.shape))
    found = [x] + [graph.pick(fits) for _ in range(graph.number(0, 2))]
    return [found[i] for i in graph.dice.permutation(len(found))]


def joined(graph):
    x = graph.pick(lambda value: value.quantized and value.rank)
    axis = graph.number(0, x.rank - 1)
    result = graph.parameters(x.kind, graph.scale_of(x))
    parts = [part for value in joinable(graph, x, axis)
             for part in (value, value.scale, value.zero)]
    graph.add("QLinearConcat", [*result, *parts], quantized=result, domain=MICROSOFT,
              axis=axis - graph.choose(0, x.rank))


def activated(graph):
    x = graph.pick(is_quantized)
    op = graph.choose("QLinearSigmoid", "QLinearLeakyRelu")
    result = graph.parameters(x.kind, 1 / 256 if op == "QLinearSigmoid" else graph.scale_of(x))
    attributes = {"alpha": float(graph.dice.uniform(-0.5, 1))} if "Relu" in op else {}
    graph.add(op, [x, x.scale, x.zero, *result], quantized=result, domain=MICROSOFT, **attributes)


def softmax(graph):
    x = graph.pick(lambda value: value.quantized and has_elements(value))
    result = (graph.constant(np.float32(graph.choose(1 / 256, 1 / 255, 0.01)), "s"),
              graph.constant(np.array(0 if x.kind == np.uint8 else -128, x.kind), "z"))
    graph.add("QLinearSoftmax", [x, x.scale, x.zero, *result], quantized=result, domain=MICROSOFT,
              axis=graph.number(-x.rank, x.rank - 1), opset=graph.choose(11, 13))


def chosen(graph):
    x = graph.pick(is_quantized)
    shape = [size if graph.chance() else 1 for size in x.shape]
    result = graph.parameters(x.kind, graph.scale_of(x))
    graph.add("QLinearWhere", [graph.constant(graph.array(np.bool_, shape)), x, x.scale, x.zero,
                               *operand(graph, x), *result], quantized=result, domain=MICROSOFT)


def gemm(graph):
    x = graph.pick(lambda value: value.quantized and value.rank == 2 and value.array.size)
    across, over = graph.number(0, 1), graph.number(0, 1)
    depth, columns = x.shape[0 if across else 1], graph.number(1, 20)
    weights, result = weighed(graph, x, (columns, depth) if over else (depth, columns), columns, 1)
    bias = ""
    if graph.chance():
        rows = x.shape[1 if across else 0]
        shape = graph.choose((), (1,), (columns,), (1, columns), (rows, 1), (rows, columns))
        bias = graph.constant(graph.dice.integers(-9000, 9000, shape).astype(np.int32))
    given = [x, x.scale, x.zero, *weights, bias]
    attributes = {"transA": across, "transB": over}
    if graph.chance(0.3):
        attributes["alpha"] = float(graph.dice.uniform(0.3, 2))
    if graph.chance(0.25):
        graph.add("QGemm", given, domain=MICROSOFT, **attributes)
    else:
        graph.add("QGemm", given + list(result), quantized=result, domain=MICROSOFT, **attributes)


def product(graph):
    x = graph.pick(lambda value: value.quantized and has_elements(value))
    columns = graph.number(1, 20)
    if graph.chance(0.3):
        other = graph.pick(lambda value: value.quantized and value.rank >= 2 and
                           x.shape[-1] == value.shape[-2])
        result = graph.parameters(x.kind, graph.scale_of(x) * graph.scale_of(other) * 300)
        weights = [other, other.scale, other.zero]
    else:
        shape = (x.shape[-1], columns)
        weights, result = weighed(graph, x, shape, columns, 1)
    graph.add("QLinearMatMul", [x, x.scale, x.zero, *weights, *result], quantized=result)


def exact(graph):
    """Integer products, whose result has 32 bits, and its floats."""
    x = graph.pick(lambda value: value.quantized and value.rank in (2, 4) and value.array.size)
    kind = graph.choose(np.int8, np.uint8)
    zeros = [x.zero, graph.constant(graph.array(kind, ()))][:graph.number(0, 2)]
    if x.rank == 2:
        w = graph.constant(graph.array(kind, (x.shape[1], graph.number(1, 9))))
        made = graph.add("MatMulInteger", [x, w, *zeros])
    else:
        attributes = windows(graph, x)
        w = graph.constant(graph.array(kind, (graph.number(1, 5), x.shape[1],
                                              *attributes["kernel_shape"])))
        made = graph.add("ConvInteger", [x, w, *zeros], **attributes)
    if graph.chance():
        made = graph.add("Cast", [made], to=1)
        graph.quantize(made, graph.choose(np.uint8, np.int8))


def dynamic(graph):
    x = graph.pick(lambda value: value.kind == np.float32 and value.array.size)
    y, scale, zero = graph.add("DynamicQuantizeLinear", [x], count=3)
    graph.values = [value for value in graph.values if value not in (scale, zero)]
    if y.rank == 2 and graph.chance():
        w = graph.constant(graph.array(np.int8, (y.shape[1], 5)))
        made = graph.add("MatMulInteger", [y, w, zero])
        made = graph.add("Mul", [graph.add("Cast", [made], to=1), scale])
    elif graph.chance():
        graph.quantize(graph.add("Cast", [y], to=1), np.uint8)


# ---- Floats between DequantizeLinear and QuantizeLinear --------------------------------------

FUNCTIONS = ({"op": "Sigmoid"}, {"op": "HardSigmoid", "alpha": 0.2}, {"op": "HardSwish"},
             {"op": "Relu"}, {"op": "LeakyRelu", "alpha": 0.1}, {"op": "Tanh"}, {"op": "Abs"},
             {"op": "Neg"}, {"op": "Exp"}, {"op": "Sqrt"}, {"op": "Erf"}, {"op": "Floor"},
             {"op": "Ceil"}, {"op": "Sign"}, {"op": "Round"}, {"op": "Softsign"},
             {"op": "Identity"}, {"op": "Reciprocal"}, {"op": "ThresholdedRelu"})
# ONNX Runtime computes the last elements of a tensor by another function, so the last bit may
# differ there. Quantized, it almost never does.
ROUGH = ({"op": "Elu"}, {"op": "Selu"}, {"op": "Softplus"}, {"op": "Log"}, {"op": "Celu"},
         {"op": "Mish"})


def function(graph, at, inner):
    """Adds a function of one value. `inner`: nothing else reads what it makes."""
    what = graph.number(0, 5)
    if what <= 2:
        attributes = dict(graph.choose(*FUNCTIONS, *(ROUGH if inner else ())))
        return graph.add(attributes.pop("op"), [at], **attributes)
    if what == 3:
        limits = sorted(graph.dice.normal(0, 3, 2).astype(np.float32))
        names = [graph.constant(limit) for limit in limits]
        return graph.add("Clip", [at, *graph.choose(names, names[:1], ["", names[1]])])
    pair = [at, graph.constant(np.float32(graph.dice.uniform(0.2, 3)))]
    if what == 4 and at.rank >= 2:
        shape = (at.shape[1], *[1] * (at.rank - 2))
        pair[1] = graph.constant(graph.dice.uniform(0.2, 3, shape).astype(np.float32))
    op = graph.choose("Add", "Sub", "Mul", "Div", "Max", "Min")
    return graph.add(op, pair[::-1] if graph.chance(0.3) else pair)


def floating(graph):
    """Operators of floats that the quantizer leaves in a file."""
    x = graph.pick(lambda value: value.kind == np.float32 and has_elements(value))
    what = graph.number(0, 6)
    channels = x.shape[1] if x.rank >= 2 else 1
    if what == 0:
        graph.add("PRelu", [x, graph.constant(graph.dice.uniform(
            -1, 1, (channels, *[1] * (x.rank - 2))).astype(np.float32))])
    elif what == 1 and x.rank >= 2:
        graph.add("BatchNormalization", [x, *[graph.constant(graph.dice.uniform(
            0.2, 2, channels).astype(np.float32)) for _ in range(4)]])
    elif what == 2 and x.rank == 4:
        graph.add("AveragePool", [x], count_include_pad=graph.number(0, 1),
                  **windows(graph, x, dilated=False))
    elif what == 3 and x.rank == 4:
        graph.add("GlobalAveragePool", [x])
    elif what == 4 and graph.opset < 18:
        first = graph.number(0, x.rank - 1)
        graph.add("ReduceMean", [x], axes=list(range(first, x.rank)), keepdims=graph.number(0, 1))
    elif what == 5:
        other = graph.pick(lambda value: value.kind == np.float32 and value.shape == x.shape)
        graph.add(graph.choose("Sum", "Max", "Min"), [x, other])
    else:
        condition = graph.constant(graph.array(np.bool_, x.shape[-1:]))
        graph.add("Where", [condition, x, graph.constant(graph.array(np.float32, ()))])


def table(graph):
    x = graph.pick(is_quantized)
    inner = graph.chance(0.6)
    start = len(graph.values)
    at = graph.add("DequantizeLinear", [x, x.scale, x.zero])
    for _ in range(graph.number(0, 3)):
        at = function(graph, at, inner)
        if graph.chance(0.25):
            at = graph.add(graph.choose("Mul", "Add"), [at, graph.pick(
                lambda value: value.kind == np.float32 and value.shape == at.shape)])
    if inner or graph.chance(0.8):
        graph.quantize(at, x.kind if graph.chance(0.8) else graph.choose(np.uint8, np.int8))
    if inner:
        del graph.values[start:-1]


# ---- Moves -----------------------------------------------------------------------------------


def moved(graph, op, source, more=(), **keywords):
    """Adds an operator whose result is quantized as its source."""
    quantized = (source.scale, source.zero) if source.quantized else ()
    return graph.add(op, [source, *more], quantized=quantized, **keywords)


def transpose(graph):
    x = graph.pick(lambda value: value.rank >= 2)
    order = [int(axis) for axis in graph.dice.permutation(x.rank)]
    moved(graph, "Transpose", x, **({"perm": order} if graph.chance(0.9) else {}))


def new_shape(graph, x):
    """Returns a shape that x can be given, with 0 and -1."""
    sizes = list(x.shape)
    for _ in range(graph.number(1, 2)):
        at = graph.number(0, len(sizes) - 1)
        if graph.chance() and len(sizes) > 1:
            at = min(at, len(sizes) - 2)
            sizes[at:at + 2] = [sizes[at] * sizes[at + 1]]
        else:
            factors = [d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0] or [1]
            factor = graph.choose(*factors)
            sizes[at:at + 1] = graph.choose([factor, sizes[at] // factor],
                                            [sizes[at] // factor, factor])
    if sizes[0] == x.shape[0]:
        sizes[0] = 0
    if graph.chance(0.7):
        sizes[graph.number(min(1, len(sizes) - 1), len(sizes) - 1)] = -1
    return sizes


def reshape(graph):
    x = graph.pick(has_elements)
    moved(graph, "Reshape", x, [graph.integers(*new_shape(graph, x))])


def computed(graph):
    """A Reshape to sizes that nodes compute from those of a value, as exporters write them."""
    x = graph.pick(lambda value: value.rank >= 2 and value.array.size)
    shape = graph.add("Shape", [x])
    last = x.rank - 1
    form = graph.number(0, 3)
    if form == 0:
        batch = graph.add("Gather", [shape, graph.integers(0)], axis=0)
        sizes = graph.add("Concat", [batch, graph.integers(-1)], axis=0)
    elif form == 1:
        head = graph.add("Slice", [shape, graph.integers(0), graph.integers(last)])
        sizes = graph.add("Concat", [graph.integers(-1), head], axis=0) if graph.chance() else (
            graph.add("Concat", [head, graph.integers(1, -1)], axis=0))
    elif form == 2:
        one = graph.add("Gather", [shape, graph.constant(np.array(last))], axis=0)
        two = graph.add("Gather", [shape, graph.constant(np.array(last - 1))], axis=0)
        flat = graph.add("Mul", [one, two])
        half = graph.add("Div", [flat, graph.constant(np.array(1))])
        half = graph.add("Unsqueeze", [half, graph.integers(0)])
        sizes = graph.add("Concat", [graph.integers(-1), half], axis=0)
    else:
        sizes = graph.add("Gather", [shape, graph.constant(np.arange(x.rank)[::-1].copy())])
        sizes = graph.add("Cast", [graph.add("Cast", [sizes], to=6)], to=7)
    moved(graph, "Reshape", x, [sizes])


def computed_sizes(graph):
    """Other operators whose shapes nodes compute."""
    x = graph.pick(lambda value: value.rank >= 2 and value.array.size)
    axis = graph.number(0, x.rank - 1)
    size = graph.add("Gather", [graph.add("Shape", [x]), graph.constant(np.array(axis))], axis=0)
    form = graph.number(0, 7)
    listed = None
    if form not in (3, 4):
        listed = graph.add("Unsqueeze", [size, graph.integers(0)])
    if form == 0:  # the first half
        half = graph.add("Div", [listed, graph.integers(2)])
        moved(graph, "Slice", x, graph.choose(
            [graph.integers(0), half, graph.integers(axis)],
            [half, listed, graph.integers(axis)]))
    elif form == 1:
        ones = graph.add("ConstantOfShape", [graph.integers(x.rank)], value=one())
        wanted = graph.add("Where", [graph.constant(np.arange(x.rank) == axis), listed, ones])
        narrow = moved(graph, "Slice", x, [graph.integers(0), graph.integers(1),
                                           graph.integers(axis)])
        moved(graph, "Expand", narrow, [wanted])
    elif form == 2:
        filled = graph.add("ConstantOfShape", [graph.add("Concat", [listed, listed], axis=0)],
                           value=one())
        graph.add("Cast", [filled], to=1)
    elif form == 3:  # upside down
        zero, unit = graph.constant(np.array(0)), graph.constant(np.array(1))
        rows = graph.add("Range", [zero, size, unit])
        last = graph.add("Sub", [size, unit])
        moved(graph, "Gather", x, [graph.add("Sub", [last, rows])], axis=axis)
    elif form == 4:  # every second
        rows = graph.add("Range", [graph.constant(np.array(0)), size, graph.constant(np.array(2))])
        rows = graph.add("Mod", [rows, size])
        moved(graph, "Gather", x, [rows], axis=axis)
    elif form == 5:
        head = graph.add("Slice", [graph.add("Shape", [x]), graph.integers(0), graph.integers(2)])
        tail = graph.integers(*[graph.number(1, 9) for _ in x.shape[2:]])
        sizes = graph.add("Concat", [head, tail], axis=0)
        roi = graph.constant(np.zeros(0, np.float32)) if graph.opset == 11 else ""
        none = graph.constant(np.zeros(0, np.float32)) if graph.opset == 11 else ""
        moved(graph, "Resize", x, [roi, none, sizes], mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    elif form == 6:
        half = graph.add("Div", [listed, graph.integers(2)])
        moved(graph, "Split", x, [graph.add("Concat", [half, graph.add("Sub", [listed, half])],
                                            axis=0)], count=2, axis=axis)
    else:
        some = graph.add("Mod", [listed, graph.integers(3)])
        none = graph.integers(*[0] * axis)
        rest = graph.integers(*[0] * (2 * x.rank - 1 - axis))
        moved(graph, "Pad", x, [graph.add("Concat", [none, some, rest], axis=0)])


def one():
    from onnx import helper
    return helper.make_tensor("value", 7, [1], [1])


def flatten(graph):
    x = graph.pick()
    moved(graph, "Flatten", x, axis=graph.number(-x.rank, x.rank))


def slice_(graph):
    x = graph.pick(lambda value: value.rank >= 1)
    axes = [int(axis) for axis in graph.dice.permutation(x.rank)[:graph.number(1, x.rank)]]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        step = graph.choose(1, 1, 2, 3, -1, -2)
        pair = sorted((graph.number(0, size), graph.number(0, size)))
        if graph.chance(0.3):
            pair = [0, graph.choose(size, 2 ** 31 - 1, 2 ** 63 - 1)]
        starts.append(pair[step < 0] if pair[1] <= size or step > 0 else -1)
        ends.append(pair[step > 0] if pair[1] <= size or step > 0 else -2 ** 62)
        steps.append(step)
    lists = [starts, ends, [axis - graph.choose(0, x.rank) for axis in axes], steps]
    moved(graph, "Slice", x, [graph.integers(*numbers) for numbers in lists])


def split(graph):
    x = graph.pick(lambda value: value.rank >= 1 and max(value.shape) >= 2)
    axis = graph.choose(*(axis for axis, size in enumerate(x.shape) if size >= 2))
    count = graph.number(2, min(4, x.shape[axis]))
    sizes = np.diff([0, *sorted(graph.dice.permutation(x.shape[axis] - 1)[:count - 1] + 1),
                     x.shape[axis]])
    attributes, more = {"axis": axis}, []
    if graph.opset < 13:
        attributes["split"] = [int(size) for size in sizes]
    elif x.shape[axis] % count == 0 and graph.chance(0.4):
        attributes.update({"num_outputs": count} if graph.opset >= 18 else {})
    else:
        more = [graph.integers(*sizes)]
    moved(graph, "Split", x, more, count=count, **attributes)


def pad(graph):
    x = graph.pick(lambda value: value.rank >= 1)
    modes = ["constant", "constant", "edge", "reflect"] + ["wrap"] * (graph.opset >= 19)
    mode = graph.choose(*modes)
    pads = [graph.choose(0, 0, 1, 2, -1) for _ in range(2 * x.rank)]
    more = [graph.integers(*pads)]
    if mode == "constant" and graph.chance():
        more.append(graph.constant(graph.array(x.kind, ())))
    moved(graph, "Pad", x, more, mode=mode)


def resize(graph):
    x = graph.pick(lambda value: value.rank in (2, 3, 4) and value.array.size)
    mode = graph.choose("nearest", "nearest", "linear") if x.rank in (2, 4) and (
        x.quantized) else "nearest"
    attributes = {"mode": mode, "coordinate_transformation_mode": graph.choose(
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}
    if mode == "nearest":
        attributes["nearest_mode"] = graph.choose("round_prefer_floor", "round_prefer_ceil",
                                                  "floor", "ceil")
    images = x.rank > 2
    if graph.chance(0.6):
        scales = [1.0 if images and axis < 2 else graph.choose(0.5, 1, 1.5, 2, 2, 3, 0.7)
                  for axis in range(x.rank)]
        more = ["", graph.constant(np.array(scales, np.float32))]
    else:
        sizes = [size if images and axis < 2 else graph.number(1, 2 * size)
                 for axis, size in enumerate(x.shape)]
        more = ["", "", graph.integers(*sizes)]
    if graph.opset == 11:
        more[0] = graph.constant(np.zeros(0, np.float32))
    moved(graph, "Resize", x, more, **attributes)


def gather(graph):
    x = graph.pick(has_elements)
    axis = graph.number(-x.rank, x.rank - 1)
    size = x.shape[axis]
    shape = graph.choose((), (1,), (3,), (2, 2), (size,))
    kind = graph.choose(np.int32, np.int64)
    more = [graph.constant(graph.dice.integers(-size, size, shape).astype(kind))]
    moved(graph, "Gather", x, more, axis=axis)


def blocks(graph):
    x = graph.pick(lambda value: value.rank == 4)
    block = graph.choose(2, 2, 3, 1)
    if graph.chance():
        moved(graph, "SpaceToDepth", x, blocksize=block)
    elif graph.chance():
        moved(graph, "DepthToSpace", x, blocksize=block, mode=graph.choose("DCR", "CRD"))
    else:
        moved(graph, "DepthToSpace", x, blocksize=block)


def squeeze(graph):
    x = graph.pick(lambda value: value.rank <= 5)
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    op = "Squeeze" if ones and graph.chance() else "Unsqueeze"
    axes = [graph.choose(*ones)] if op == "Squeeze" else [graph.number(0, x.rank)]
    if graph.chance(0.4):
        axes[0] -= x.rank + (op == "Unsqueeze")
    if graph.opset < 13:
        moved(graph, op, x, axes=axes)
    else:
        moved(graph, op, x, [graph.integers(*axes)])


def concat(graph):
    x = graph.pick(lambda value: value.rank >= 1)
    axis = graph.number(0, x.rank - 1)
    parts = joinable(graph, x, axis)
    if graph.chance(0.3):
        shape = [graph.number(1, 3) if i == axis else size for i, size in enumerate(x.shape)]
        parts.append(graph.constant(graph.array(x.kind, shape)))
    # Only parts that are quantized alike make a quantized value.
    quantized = (x.scale, x.zero) if x.quantized else ()
    graph.add("Concat", parts, quantized=quantized, axis=axis)


def max_pool(graph):
    x = graph.pick(lambda value: value.rank in (3, 4) and value.array.size)
    moved(graph, "MaxPool", x, ceil_mode=graph.number(0, 1), **windows(graph, x))


def clip(graph):
    x = graph.pick(lambda value: value.kind == np.float32 or is_bytes(value))
    if graph.chance(0.3):
        moved(graph, "Relu", x)
        return
    if x.kind == np.float32:
        limits = [np.float32(-1), np.float32(1.5)]
    else:
        limits = np.sort(graph.array(x.kind, (2,)))
    names = [graph.constant(np.array(limit, x.kind)) for limit in limits]
    moved(graph, "Clip", x, graph.choose(names, names[:1], ["", names[1]]))


def best(graph):
    x = graph.pick(lambda value: has_elements(value) and value.kind != np.int64)
    attributes = {"select_last_index": graph.number(0, 1)} if graph.opset >= 12 else {}
    graph.add(graph.choose("ArgMax", "ArgMin"), [x], axis=graph.number(-x.rank, x.rank - 1),
              keepdims=graph.number(0, 1), **attributes)


def cast(graph):
    x = graph.pick(lambda value: value.kind != np.float32)
    graph.add("Cast", [x], to=graph.choose(1, 2, 3, 5, 6, 7, 9))


def expand(graph):
    x = graph.pick(lambda value: value.array.size < 2000)
    sizes = [graph.number(1, 3) if size == 1 else graph.choose(1, size) for size in x.shape]
    moved(graph, "Expand", x, [graph.integers(*[graph.number(1, 2)][:graph.number(0, 1)], *sizes)])


def identity(graph):
    if graph.chance():
        moved(graph, "Identity", graph.pick())
    else:
        moved(graph, "Dropout", graph.pick(lambda value: value.kind == np.float32))


def dequantize(graph):
    x = graph.pick(is_quantized)
    graph.add("DequantizeLinear", [x, x.scale, x.zero])


STEPS = (conv, conv, conv, binary, binary, pooled, joined, joined, activated, softmax, chosen,
         gemm, gemm, product, product, exact, dynamic, floating, table, table, table, transpose,
         transpose, reshape, reshape, computed, computed_sizes, flatten, flatten, slice_, split,
         pad, resize, resize, gather, blocks, squeeze, concat, max_pool, clip, best, cast, expand,
         identity, dequantize)


# ---- Parts that lie in the whole -------------------------------------------------------------


def part(graph):
    """Adds a convolution that keeps the planes and the parameters of its input."""
    x = graph.pick(is_image)
    filters = graph.number(1, 6)
    kernel = graph.choose(1, 3)
    weights, _ = weighed(graph, x, (filters, x.shape[1], kernel, kernel), filters, 0)
    graph.add("QLinearConv", [x, x.scale, x.zero, *weights, x.scale, x.zero],
              quantized=(x.scale, x.zero), kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)


def whole(graph):
    x = graph.pick(is_image)
    axis = graph.choose(0, *[1] * 8, 2)
    values = joinable(graph, x, axis) + joinable(graph, x, axis)[:graph.number(0, 2)]
    if graph.chance(0.9):
        values = list(dict.fromkeys(values))  # a value that comes twice is copied
    if graph.chance():
        graph.add("Concat", values, quantized=(x.scale, x.zero), axis=axis)
        return
    parts = [part for value in values for part in (value, value.scale, value.zero)]
    graph.add("QLinearConcat", [x.scale, x.zero, *parts], quantized=(x.scale, x.zero),
              domain=MICROSOFT, axis=axis)


def summed(graph):
    x = graph.pick(is_image)
    other = graph.pick(lambda value: value.quantized and value.shape == x.shape)
    graph.add("QLinearAdd", [x, x.scale, x.zero, other, other.scale, other.zero, x.scale, x.zero],
              quantized=(x.scale, x.zero), domain=MICROSOFT)


def probe(graph, value):
    """Reads a value once more. Returns what an answer may have of it. The value itself does not
    leave the graph, so that it may lie in another one."""
    return graph.add("DequantizeLinear", [value, value.scale, value.zero])


PART_STEPS = (part, part, part, part, whole, whole, whole, whole, split, split, summed, identity,
              flatten, max_pool, transpose)
