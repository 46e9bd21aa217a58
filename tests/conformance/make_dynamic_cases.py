"""Makes tests/data/operators/dynamic.jsonl: DynamicQuantizeLinear, run by ONNX Runtime. See
operator_cases.py."""
import numpy as np
from operator_cases import Cases


def main():
    cases = Cases(11)

    def add(note, values, opset=11):
        cases.add(note, "DynamicQuantizeLinear", opset, {"x": np.asarray(values, np.float32)},
                  ("y", "y_scale", "y_zero_point"), types=[np.uint8, np.float32, np.uint8])

    for count in (1, 2, 7, 15, 16, 17, 33, 100):
        for low, high in ((-1, 1), (0.5, 3), (-70, -0.1), (-1e-3, 2e3)):
            add("ranges and lengths", cases.dice.uniform(low, high, count))
    for shape in ((), (1,), (2, 3, 4), (1, 1, 5, 1), (0,), (2, 0)):
        add("shapes", cases.dice.normal(0, 2, shape), 21)
    for values in ([0, 0, 0], [0.0, -0.0], [5], [-5], [0, 1e-30], [3e38, 0],
                   [0, 255, 1.5, 2.5, 3.5],
                   [-127.5, 127.5, 0.5, -0.5, 1, 2], [-1, 254, 0.5, 1.5],
                   [1e-38, 2e-38]):
        add("extremes and ties", values)
    for values in ([-np.inf, 1], [np.inf, 1], [-np.inf, np.inf], [-3e38, 3e38], [1e-45], [-1e-45]):
        add("scales of infinity and 0", values)
    cases.write("tests/data/operators/dynamic.jsonl")


if __name__ == "__main__":
    main()
