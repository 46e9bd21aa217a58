"""Random graphs of the operators that quantized networks have, and what ONNX Runtime makes of them.

A graph grows node by node. ONNX Runtime runs each node alone as soon as it is added, so the shapes
and elements of all values are known, and a node that it refuses is dropped again. The finished
graph runs twice more as a whole, with ONNX Runtime's optimizations and without them. Where the two
differ, an answer may have the bits of either.
"""
import dataclasses
import os
import pickle
import signal
import traceback

import onnx

import oracles
from graph_steps import PART_STEPS, STEPS, probe
from graph_writer import Graph, session
from quantd import Tensor

OUTPUT_COUNT_MAX = 32  # of a graph that the server loads
NODE_COUNT_MAX = 12
LATE_COUNT_MAX = 3
PARTS_EVERY = 8  # one of so many graphs consists of parts that lie in wholes

# What the server does not have: words of the error with which it refuses such a graph or request,
# and a name.
GAPS = (
    ("pads: expected to crop at most the 0 elements", "Pad that crops an axis without elements"),
    # ONNX Runtime's result then has elements that nothing has written.
    ("apart from axis", "Concat of an empty tensor whose other sizes differ"),
    ("except for axis", "QLinearConcat of an empty tensor whose other sizes differ"),
    ("because the operator takes it once", "parameters that nodes compute"),
    ("or a value that follows from shapes alone", "shapes that nodes compute from elements"),
)


@dataclasses.dataclass
class Made:
    """A graph, and requests to it."""
    graph: Graph
    model: object
    outputs: list  # of names
    feeds: list    # of input name -> elements


def make(seed, number):
    """Returns the random graph of this number."""
    graph = Graph([seed, number])
    has_parts = number % PARTS_EVERY == PARTS_EVERY - 1
    if has_parts:
        graph.begin_planes()
    else:
        graph.begin()
    wanted = graph.number(2, NODE_COUNT_MAX)
    for _ in range(5 * wanted):
        if len(graph.nodes) >= wanted:
            break
        graph.grow(PART_STEPS if has_parts else STEPS)
    made = [value for value in graph.values
            if value not in graph.inputs and value.name not in graph.constants]
    read = {name for node in graph.nodes for name in node.input}
    if has_parts and graph.chance(0.7):
        made = [probe(graph, value) for value in made if value.quantized] or made
    elif not graph.chance(0.4):  # else what each node makes is an output
        made = [value for value in made if value.name not in read or graph.chance(0.15)]
    outputs = made[-OUTPUT_COUNT_MAX:]
    symbolic = graph.chance()
    late = [name for name in graph.constants if name in read] if graph.chance(0.1) else []
    late = sorted(graph.dice.choice(late, min(len(late), LATE_COUNT_MAX), replace=False).tolist())
    feeds = [{value.name: value.array for value in graph.inputs}]
    for batch in (1, 3) if symbolic else ():
        feeds.append({value.name: graph.array(value.kind, (batch, *value.shape[1:]))
                      for value in graph.inputs})
    for feed in feeds:
        feed.update({name: graph.known[name] for name in late})
    return Made(graph, graph.model(outputs, symbolic, late), [value.name for value in outputs],
                feeds)


def computed(made):
    """Returns, for each feed, the inputs and [what ONNX Runtime computes with optimizations, and
    without]. A text says why it refuses."""
    result = []
    for feed in made.feeds:
        wants = []
        for optimized in (True, False):
            try:
                one = session(made.model, optimized)
                names = [value.name for value in one.get_outputs()]
                wants.append([oracles.out(*pair) for pair in zip(names, one.run(None, feed))])
            except Exception as error:  # ONNX Runtime has many kinds
                wants.append(str(error))
        result.append(([Tensor(*oracles.out(*pair)) for pair in feed.items()], wants))
    return result


def judged(seed, start, end):
    """Yields (number, model, what `computed` returns) for the random graphs of these numbers. ONNX
    Runtime runs in a process of its own, because some empty tensors end it with a division by 0.
    Leaves out such graphs."""
    while start < end:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            send_judged(seed, start, end, writer)
        os.close(writer)
        try:
            with os.fdopen(reader, "rb") as pipe:
                for start in range(start, end):
                    try:
                        number, model, cases = pickle.load(pipe)
                    except (EOFError, pickle.UnpicklingError):
                        break
                    yield number, onnx.ModelProto.FromString(model), cases
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        start += 1


def send_judged(seed, start, end, writer):
    """Writes what `judged` yields to a pipe, and ends the process."""
    try:
        with os.fdopen(writer, "wb") as pipe:
            for number in range(start, end):
                made = make(seed, number)
                pickle.dump((number, made.model.SerializeToString(), computed(made)), pipe)
                pipe.flush()
    except BaseException:  # nothing of the caller may run in this process
        traceback.print_exc()
    os._exit(0)


def refused(wants):
    """Tells whether ONNX Runtime refuses a request, with its optimizations or without them."""
    return any(isinstance(want, str) for want in wants)


def gap(refusal):
    """Returns the name of what the server does not have. None: the refusal is a failure."""
    return next((name for words, name in GAPS if words in refusal), None)
