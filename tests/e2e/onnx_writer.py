"""A writer of valid and invalid ONNX files, for tests that have no onnx package.

The numbers are field numbers of ONNX's published schema, onnx/onnx.proto. Each function returns a
message's bytes. Bytes appended to a message add fields: if a field appears twice, the last one
counts.
"""
import struct

FLOAT, UINT8, INT8, INT32, INT64, BOOL, INT4 = 1, 2, 3, 6, 7, 9, 22


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """Returns a field of a message: an integer, a float, or a value with a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(*fields):
    return b"".join(field(number, value) for number, value in fields)


def tensor(name, kind, dims, *data):
    return message(*[(1, dim) for dim in dims], (2, kind), (8, name), *data)


def value_info(name, kind, dims=None):
    """Describes a value. Without `dims`, it has no shape."""
    if dims is None:
        return message((1, name), (2, message((1, message((1, kind))))))
    shape = message(*[(1, message((1, dim) if isinstance(dim, int) else (2, dim)))
                      for dim in dims])
    return message((1, name), (2, message((1, message((1, kind), (2, shape))))))


def attribute(name, value):
    if isinstance(value, int):
        return message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, 1))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, 3))
    if isinstance(value, bytes):  # a tensor
        return message((1, name), (5, value), (20, 4))
    return message((1, name), *[(8, number) for number in value], (20, 7))


def node(operator, inputs, outputs, **attributes):
    return message(*[(1, name) for name in inputs], *[(2, name) for name in outputs],
                   (3, "a " + operator), (4, operator),
                   *[(5, attribute(name, value)) for name, value in attributes.items()])


def constant(name, *value):
    return message((2, name), (4, "Constant"), (5, message(*value)))


def model(opset, nodes, constants, inputs, outputs):
    graph = message(*[(1, one) for one in nodes], (2, "graph"), *[(5, one) for one in constants],
                    *[(11, one) for one in inputs], *[(12, one) for one in outputs])
    return message((1, 8), (2, "a test"), (7, graph), (8, message((1, ""), (2, opset))))
