"""`quantd --explain`: what would become of a file, without serving it. A server tells the same of
the nodes of a loaded model."""
import fcntl
import json
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

from loading import ModelTest, conv_inputs, external_file, kept_request, scalar, ZEROS
from onnx_writer import (FLOAT, INT64, INT8, UINT8, constant, field, message, model, node,
                         tensor, value_info)
from quantd import COMMAND, ROOT, SLOW

DIGITS = ROOT / "tests" / "demo" / "digits" / "models" / "digits" / "1" / "model.onnx"
WEIGHTS = tensor("w", INT8, [1, 1, 2], (9, struct.pack("2b", 1, 2)))
SCALES = [scalar("one", 1.0), scalar("half", 0.5)] + ZEROS


def qdq_file(*more):
    """Returns a file of the form QDQ: a convolution, a reshape, and a sigmoid, which is a table."""
    nodes = [constant("shape", (1, "value"), (20, 4),
                      (5, tensor("", INT64, [2], (9, struct.pack("<2q", 0, -1))))),
             node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
             node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
             node("DequantizeLinear", ["w", "one", "w_zero"], ["wd"]),
             node("Conv", ["xd", "wd"], ["c"]), node("Relu", ["c"], ["r"]),
             node("QuantizeLinear", ["r", "half", "zero"], ["rq"]),
             node("DequantizeLinear", ["rq", "half", "zero"], ["rd"]),
             node("Reshape", ["rd", "shape"], ["flat"]),
             node("QuantizeLinear", ["flat", "half", "zero"], ["fq"]),
             node("DequantizeLinear", ["fq", "half", "zero"], ["fd"]),
             node("Sigmoid", ["fd"], ["s"]),
             node("QuantizeLinear", ["s", "half", "zero"], ["sq"]),
             node("DequantizeLinear", ["sq", "half", "zero"], ["y"]),
             node("Identity", ["s"], ["nobody"]), *more]
    return model(13, nodes, [WEIGHTS] + SCALES, [value_info("x", FLOAT, ["n", 1, 9])],
                 [value_info("y", FLOAT, ["n", "k"])])


def refused_file():
    """Returns a file with two nodes that quantd does not have, and 2 nodes before and behind them.
    """
    nodes = [node("QuantizeLinear", ["x", "one", "zero"], ["a"]),
             node("QLinearConv", conv_inputs("a"), ["b"]),
             node("Reverse", ["b"], ["r"]), node("Strange", ["r"], ["t's"]),
             node("QLinearConv", conv_inputs("t's"), ["c"]),
             node("DequantizeLinear", ["c", "half", "zero"], ["y"])]
    return model(13, nodes, [WEIGHTS] + SCALES, [value_info("x", FLOAT, [1, 1, "length"])],
                 [value_info("y", FLOAT, [1, 1, "out"])])


def untyped_file(count):
    """Returns a file that is cut at q0, q1 and so on. quantd cannot read the nodes before these, so
    it tries their types. Also returns the configuration."""
    nodes = [node("Reverse", ["x"], ["q%d" % i]) for i in range(count)]
    nodes += [node("DequantizeLinear", ["q%d" % i, "half", "zero"], ["y%d" % i])
              for i in range(count)]
    file = model(13, nodes, SCALES, [value_info("x", FLOAT, [1])],
                 [value_info("y%d" % i, FLOAT, [1]) for i in range(count)])
    return file, json.dumps({"inputs": ["q%d" % i for i in range(count)]}).encode()


def widest(lines):
    """Returns the length of the longest line that may be broken: a path and a command may not."""
    return max(len(line) for line in lines
               if not line.startswith(("file ", "to serve it ")))


class Explain(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def run_it(self, path, *flags, status=0):
        result = subprocess.run([*COMMAND, "--measure", "off", "--explain", str(path), *flags],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=30 * SLOW, check=False, cwd=self.folder)
        self.assertEqual(result.returncode, status, result.stderr)
        if status != 0:
            self.assertRegex(result.stderr, r"\Aquantd: [^\n]+\n\Z")
        else:
            self.assertEqual(result.stderr, "")
        return result

    def explain(self, path, *flags, status=0):
        result = self.run_it(path, "--explain-format", "json", *flags, status=status)
        tree = json.loads(result.stdout)
        self.assertEqual(tree["served"], status == 0)
        for index, one in enumerate(tree["nodes"]):
            self.assertEqual(one["index"], index)
            if "into" in one:
                self.assertLess(one["into"], len(tree["nodes"]))
            self.assertLess(max(one["reads"], default=-1), len(tree["nodes"]))
        page = (ROOT / "api_schema" / "loading.md").read_text()
        for fate in {one["fate"] for one in tree["nodes"]}:
            self.assertIn(f"| `{fate}` |", page)
        return tree, result.stderr

    def fates(self, tree):
        return [one["fate"] for one in tree["nodes"]]

    def test_the_network_of_the_demo(self):
        tree, _ = self.explain(DIGITS)
        command = shlex.join([COMMAND[-1], "--model", f"model={DIGITS}"])
        self.assertEqual(tree["commands"], [command])
        products = sum(one.get("multiplications", 0) for one in tree["nodes"])
        self.assertEqual(tree["multiplications"], products)
        self.assertGreater(products, 0)
        self.assertGreater(tree["resident_bytes"], 0)
        text = self.run_it(DIGITS).stdout
        self.assertIn("\n\nbecomes          a node with nothing there runs as it is\nmemory ", text)
        self.assertIn(f"{products:,} for each request", text)
        self.assertIn(f"{tree['resident_bytes']:,} bytes for the model", text)
        self.assertIn(f"{command}\n", text)

    def test_qdq(self):
        tree, _ = self.explain(self.write("qdq.onnx", qdq_file()))
        self.assertEqual(self.fates(tree), [
            "constant", "operator", "fused", "fused", "operator", "fused", "fused", "cancelled",
            "alias", "cancelled", "in_table", "in_table", "table", "operator", "left_out"])
        into = {one["index"]: one["into"] for one in tree["nodes"] if "into" in one}
        self.assertEqual(into, {2: 4, 3: 4, 5: 4, 6: 4, 7: 9, 9: 7, 10: 12, 11: 12})
        self.assertEqual([one["reads"] for one in tree["nodes"]], [
            [], [], [1], [], [2, 3], [4], [5], [6], [7, 0], [8], [9], [10], [11], [12], [11]])
        conv = tree["nodes"][4]
        self.assertEqual((conv["operator"], conv["runs_as"], conv["multiplications"]),
                         ("Conv", "onnx.QLinearConv", 8 * 2))
        self.assertEqual(tree["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 1, 9]}])
        self.assertEqual(tree["planned_shapes"], {"x": [1, 1, 9]})

    def test_a_repository_is_not_a_model(self):
        path = self.write("all/a/1/model.onnx", qdq_file()).parents[2]
        for flags in ((), ("--explain-format", "json")):
            self.assertEqual(self.run_it(path, *flags, status=1).stderr,
                             f"quantd: {path}: expected one model, got a folder of models; give "
                             f"a model's folder, such as {path}/a\n")
            self.assertIn("expected one model, got a folder of folders; --explain takes one model",
                          self.run_it(f"{self.folder}/", *flags, status=1).stderr)
        version = path / "a" / "1"
        for shown, given in ((str(version), str(version)), ("1", f"{version}/")):
            _, error = self.explain(given, status=1)
            self.assertEqual(error, f"quantd: {shown}: expected a model's folder, got a version's; "
                                    "--explain takes one model: a file, or a model's folder in a "
                                    "repository\n")

    def test_parts_in_the_whole(self):
        """Split and Concat of one image move nothing along its channels, and copy along its rows.
        """
        for axis, fate in ((1, "alias"), (2, "operator")):
            nodes = [node("Split", ["x"], ["a", "b"], axis=axis),
                     *(node("MaxPool", [name], [name + "p"], kernel_shape=[1, 1]) for name in "ab"),
                     node("Concat", ["ap", "bp"], ["y"], axis=axis)]
            path = self.write("parts.onnx", model(
                12, nodes, [], [value_info("x", UINT8, ["n", 2, 8, 8])],
                [value_info("y", UINT8, ["n", 2, 8, 8])]))
            tree, _ = self.explain(path)
            self.assertEqual(self.fates(tree), [fate, "operator", "operator", fate])
            self.assertEqual(tree["planned_shapes"], {"x": [1, 2, 8, 8]})
            text = self.run_it(path).stdout
            self.assertEqual(text.count("  moves nothing\n"), 2 if axis == 1 else 0)

    def run_on_terminal(self, path, status=0, columns=100):
        """Returns the text on a terminal of so many columns."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
        with subprocess.Popen([*COMMAND, "--measure", "off", "--explain", str(path)],
                              stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
                              cwd=self.folder) as process:
            os.close(theirs)
            text = b""
            try:
                while got := os.read(ours, 1 << 16):
                    text += got
            except OSError:  # the terminal's other end is closed
                pass
            os.close(ours)
        self.assertEqual(process.returncode, status)
        return text.decode().replace("\r\n", "\n")

    def test_text_fits_its_width(self):
        path = self.write("qdq.onnx", qdq_file(node("Identity", ["y"], ["n" * 300])))
        for columns in (60, 80, 100):
            lines = self.run_on_terminal(path, columns=columns).splitlines()
            table = lines[lines.index("") + 1:]
            table = table[:table.index("")]
            self.assertEqual(len(table), 1 + 16)
            self.assertEqual(table[1 + 4].split()[-2:], ["QLinearConv", "16"])
            self.assertLessEqual(widest(lines), columns)
            self.assertEqual([line for line in table if line.endswith(" ")], [])
            self.assertIn("  DequantizeLinear  ", table[1 + 2])
            self.assertEqual(table[1 + 2].split()[-3:], ["in", "node", "4"])
            self.assertIn("\nbecomes          a node with nothing there runs as it is\n",
                          "\n".join(lines))
            begin = table[0].index("becomes")
            self.assertTrue(all(line[begin - 1:begin] in " " for line in table), table)

    def test_cuts(self):
        """No separator follows the dots of a name. What a node becomes is cut at its end."""
        path = self.write("qdq.onnx", qdq_file(
            node("Identity", ["y"], ["i"]) + field(3, "n" * 300 + "/_a._b/_._c/1")))
        for columns in range(60, 80):
            text = self.run_on_terminal(path, columns=columns)
            self.assertRegex(text, r"\n  15  Identity          \.\.[nabc1].*  no output")
            self.assertNotRegex(text, r"  \.\.([./_]|.*  \.\.)")

    def test_a_node_that_stays_as_it_is_becomes_nothing_else(self):
        nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1])]
        path = self.write("pool.onnx", model(12, nodes, [], [value_info("x", UINT8, [1, 1, 2, 2])],
                                             [value_info("y", UINT8, [1, 1, 2, 2])]))
        self.assertRegex(self.run_it(path).stdout,
                         r"\n\nnode  operator  name *\n   0  MaxPool   a MaxPool\n\n")

    def test_long_names_lose_the_quantizers_ending_first(self):
        """The operator has a column, so that ending says nothing."""
        nodes = [node("DequantizeLinear", ["sq", "half", "zero"], ["z%d" % i]) + field(3, name)
                 for i, name in enumerate(("the_value_of_a_layer_DequantizeLinear",
                                           "the_value_of_a_layer_of_a_LinearDequantize",
                                           "n" * 4000 + "_DequantizeLinear"))]
        path = self.write("qdq.onnx", qdq_file(*nodes))
        text = self.run_on_terminal(path, columns=80)
        self.assertIn("  the_value_of_a_layer_..  ", text)
        self.assertIn("_LinearDequantize  ", text)
        self.assertIn("nnnn_..  ", text)
        self.assertLessEqual(widest(text.splitlines()), 80)
        text = self.run_it(path).stdout  # in a pipe, all names are whole
        self.assertIn("  the_value_of_a_layer_of_a_LinearDequantize    ", text)
        self.assertIn("  %s_DequantizeLinear  no output needs it" % ("n" * 4000), text)

    def test_long_operators_are_whole_in_a_pipe(self):
        """A terminal has no room for the domain."""
        nodes = [node("QLinearGlobalAveragePool", ["y"], ["p"]) + field(7, "com.microsoft"),
                 node("O" * 4000, ["p"], ["q"])]
        path = self.write("net.onnx", qdq_file(*nodes))
        self.assertIn("  QLinearGlobalAveragePool  ", self.run_on_terminal(path))
        text = self.run_it(path).stdout
        self.assertIn(" com.microsoft.QLinearGlobalAveragePool  ", text)
        self.assertIn("  %s  a O" % ("O" * 4000), text)

    def test_refused(self):
        """The commands serve what they say."""
        path = self.write("it's refused.onnx", refused_file())
        tree, error = self.explain("net=" + str(path), status=1)
        self.assertEqual(self.fates(tree), ["read", "read", "refused", "refused", "read", "read"])
        self.assertIn("Reverse", tree["nodes"][2]["refusal"] + tree["nodes"][2]["operator"])
        self.assertIn("expected an operator", tree["nodes"][3]["refusal"])
        self.assertEqual(error, f"quantd: {tree['error']}\n")
        self.assertEqual([cut["config"] for cut in tree["cuts"]],
                         [{"outputs": ["b"]}, {"inputs": ["t's"]}])
        for number, cut in enumerate(tree["cuts"], 1):
            self.assertEqual((cut["nodes"], cut["of_nodes"]), (2, 6))
            *commands, last = cut["commands"]
            self.assertEqual(last, shlex.join([COMMAND[-1], "--model-repository", "parts"]))
            for command in commands:
                subprocess.run(["sh", "-ec", command], check=True, cwd=self.folder)
            part, _ = self.explain(f"parts/net-{number}")
            self.assertEqual(self.fates(part).count("left_out"), 4)
            self.assertIn(f"--load-model net-{number}", part["commands"][0])
            text = self.run_it(f"parts/net-{number}").stdout
            self.assertEqual(text.count("  no output needs it\n"), 4)
        text = self.run_it("net=" + str(path), status=1).stdout
        self.assertNotIn("runs as it is", text)
        self.assertIn("quantd can serve 2 of the 6 nodes", text)

    def test_refused_by_preparing(self):
        """Clip is known, but not with two lower limits."""
        nodes = [node("Identity", ["x"], ["a"]), node("Identity", ["a"], ["b"]),
                 node("Clip", ["b", "low"], ["y"])]
        low = tensor("low", UINT8, [2], (9, b"\0\0"))
        file = model(14, nodes, [low], [value_info("x", UINT8, ["n"])],
                     [value_info("y", UINT8, ["n"])])
        tree, _ = self.explain(self.write("clip.onnx", file), status=1)
        self.assertEqual(self.fates(tree), ["read", "read", "refused"])
        self.assertTrue(tree["nodes"][2]["refusal"].startswith("min: expected"), tree["nodes"][2])
        self.assertEqual(tree["cuts"][0]["config"], {"outputs": ["b"]})

    def test_a_network_of_floats(self):
        """All nodes that would have to be quantized are refused. The text has each reason once."""
        nodes = [node("Relu", ["x"], ["a"]), node("Conv", ["a", "f"], ["b"]),
                 node("Conv", ["b", "f"], ["c"]), node("Relu", ["c"], ["d"]),
                 node("MatMul", ["d", "f"], ["y"])]
        floats = tensor("f", FLOAT, [1, 1, 1], (9, struct.pack("<f", 2)))
        file = model(13, nodes, [floats], [value_info("x", FLOAT, [1, 1, 1])],
                     [value_info("y", FLOAT, [1, 1, 1])])
        path = self.write("net.onnx", file)
        tree, error = self.explain(path, status=1)
        self.assertEqual(self.fates(tree), ["read", "refused", "refused", "read", "refused"])
        for index, name in ((1, "Conv"), (2, "Conv"), (4, "MatMul")):
            self.assertRegex(tree["nodes"][index]["refusal"],
                             r"\Aexpected a quantized network, got one of .* onnx.%s" % name)
        self.assertIn(", onnx.Conv): expected a quantized network", error)
        result = self.run_it(path, status=1)
        self.assertRegex(result.stdout,
                         r"(?s)\nnode 1 +expected .*\nnode 2 +as node 1\nnode 4 +expected ")
        self.assertEqual(result.stdout.count("computes onnx.Conv only"), 1)
        self.assertEqual(result.stderr, f"quantd: {path} is refused\n")

    def test_the_part_behind_a_node_that_is_refused_by_preparing(self):
        """As in networks whose first convolution was not quantized."""
        nodes = [node("Relu", ["x"], ["a"]), node("Conv", ["a", "f"], ["b"]),
                 node("QuantizeLinear", ["b", "half", "zero"], ["c"]),
                 node("QLinearConv", conv_inputs("c"), ["d"]),
                 node("DequantizeLinear", ["d", "half", "zero"], ["y"])]
        floats = tensor("f", FLOAT, [1, 1, 1], (9, struct.pack("<f", 2)))
        file = model(13, nodes, [WEIGHTS, floats] + SCALES, [value_info("x", FLOAT, [1, 1, 9])],
                     [value_info("y", FLOAT, [1, 1, 8])])
        file += message((7, message((13, value_info("b", FLOAT, [1, 1, 9])))))
        tree, _ = self.explain(self.write("net.onnx", file), status=1)
        self.assertEqual([cut["config"] for cut in tree["cuts"]], [{"inputs": ["b"]}])
        self.assertEqual((tree["cuts"][0]["nodes"], tree["cuts"][0]["of_nodes"]), (3, 5))

    def test_two_nodes_that_were_not_quantized(self):
        """The part behind the first one is tried, too, and refused because of the second one."""
        nodes = [node("Conv", ["x", "f"], ["b"]),
                 node("QuantizeLinear", ["b", "half", "zero"], ["c"]),
                 node("DequantizeLinear", ["c", "half", "zero"], ["d"]),
                 node("Conv", ["d", "f"], ["e"]),
                 node("QuantizeLinear", ["e", "half", "zero"], ["g"]),
                 node("DequantizeLinear", ["g", "half", "zero"], ["y"])]
        floats = tensor("f", FLOAT, [1, 1, 1], (9, struct.pack("<f", 2)))
        file = model(13, nodes, [floats] + SCALES, [value_info("x", FLOAT, [1, 1, 9])],
                     [value_info("y", FLOAT, [1, 1, 9])])
        file += message((7, message((13, value_info("b", FLOAT, [1, 1, 9])))))
        tree, _ = self.explain(self.write("net.onnx", file), status=1)
        self.assertEqual(self.fates(tree)[::3], ["refused", "refused"])
        for index in (0, 3):
            self.assertRegex(tree["nodes"][index]["refusal"], r"\A[WX]: expected the output of Deq")

    def test_a_folder(self):
        """A configuration counts as if the folder was served."""
        self.write("models/net/2/model.onnx", refused_file())
        self.write("models/net/config.json", b'{"outputs": ["b"]}')
        tree, _ = self.explain("models/net")
        self.assertEqual(self.fates(tree), ["operator", "operator"] + ["left_out"] * 4)
        self.assertEqual(tree["outputs"][0]["name"], "b")
        self.write("models/kept/1/request.json", json.dumps(kept_request([1, 2])).encode())
        tree, _ = self.explain("models/kept")
        self.assertEqual(tree["nodes"], [])
        self.run_it("models/kept")

    def test_the_list_of_nodes_takes_nothing_from_the_load(self):
        """With 30 inputs to look for, a load does nearly as much work as it may."""
        file, config = untyped_file(30)
        self.write("models/net/1/model.onnx", file)
        self.write("models/net/config.json", config)
        tree, _ = self.explain("models/net")
        self.assertEqual(tree["inputs"][29]["datatype"], "UINT8")

    def test_layers_behind_an_unknown_node(self):
        """What a Conv and a Relu become may take more nodes than they do, where the nodes lie after
        a search for types."""
        constants = [tensor("ones", INT8, [4, 4, 1, 1], (9, b"\1" * 16)), *SCALES,
                     tensor("low", INT8, [], (9, b"\0")), tensor("middle", UINT8, [], (9, b"\x80"))]
        for count in (1, 2, 3, 4, 8):
            nodes = [node("Strange", ["x"], ["q0"])]
            for i in range(count):
                last = "y" if i + 1 == count else "q%d" % (i + 1)
                nodes += [node("DequantizeLinear", ["q%d" % i, "half", "zero"], ["d%d" % i]),
                          node("DequantizeLinear", ["ones", "half", "low"], ["w%d" % i]),
                          node("Conv", ["d%d" % i, "w%d" % i], ["c%d" % i]),
                          node("Relu", ["c%d" % i], ["r%d" % i]),
                          node("QuantizeLinear", ["r%d" % i, "half", "middle"], [last])]
            self.write("net.onnx", model(13, nodes, constants,
                                         [value_info("x", FLOAT, [1, 4, 8, 8])],
                                         [value_info("y", UINT8, [1, 4, 8, 8])]))
            tree, _ = self.explain("net.onnx", status=1)
            self.assertEqual([cut["nodes"] for cut in tree["cuts"]], [4 * count])

    def test_a_file_that_begins_with_a_hyphen(self):
        self.write("-x.onnx", refused_file())
        tree, _ = self.explain("net=-x.onnx", status=1)
        for command in tree["cuts"][0]["commands"][:-1]:
            subprocess.run(["sh", "-ec", command], check=True, cwd=self.folder)
        self.explain("parts/net-1")

    def test_a_long_path_is_printed_whole(self):
        self.write("qdq.onnx", qdq_file())
        path = "./" * 500 + "qdq.onnx"
        lines = self.run_it(path).stdout.splitlines()
        self.assertEqual(lines[0].split(), ["file", path])

    def test_labels(self):
        """Labels that a load refuses are refused here, too."""
        self.write("models/net/1/model.onnx", qdq_file())
        self.write("models/net/config.json",
                   b'{"output": [{"name": "y", "label_filename": "names"}]}')
        tree, _ = self.explain("models/net", status=1)
        self.assertIn("net/names: ", tree["error"])
        self.write("models/net/names", b"cat\n")
        self.explain("models/net")
        self.write("models/net/labels.txt", b"\xff")
        tree, _ = self.explain("models/net", status=1)
        self.assertIn("net/labels.txt: line 1: expected UTF-8", tree["error"])
        path = self.write("one.onnx", qdq_file())
        self.explain(path)
        self.write("one.labels.txt", b"\0")
        tree, _ = self.explain(path, status=1)
        self.assertIn("one.labels.txt: line 1: ", tree["error"])

    def test_a_configuration_that_does_not_fit(self):
        self.write("models/net/1/model.onnx", qdq_file())
        for config in ({"output": [{"name": "y", "data_type": "TYPE_INT8"}]},
                       {"output": [{"name": "nobody"}]}, {"input": [{"name": "x", "dims": [7]}]}):
            self.write("models/net/config.json", json.dumps(config).encode())
            tree, _ = self.explain("models/net", status=1)
            self.assertIn("put", tree["error"])
            self.run_it("models/net", status=1)

    def test_external_data(self):
        path = self.write("net.onnx", external_file("w.bin"))
        tree, _ = self.explain(path, status=1)
        self.assertIn("w.bin", tree["error"])
        self.write("w.bin", b"\1\2\3")
        tree, _ = self.explain(path)
        self.assertEqual(self.fates(tree), ["operator"])

    def test_names_that_a_terminal_obeys(self):
        for name, status in ((b"\x1b]0;title", 0), (b"\x1b]0;\xff\0...", 1)):
            file = qdq_file().replace(b"a Sigmoid", name)
            path = self.write("qdq.onnx", file)
            text = self.run_it(path, status=status).stdout
            self.assertIn("?]0;", text)
            self.assertNotIn("\x1b", text)
            self.explain(path, status=status)

    def test_a_long_name(self):
        """Each of its characters is looked at once."""
        long = qdq_file(node("Strange" * 150000, ["x"], ["t"]))
        text = self.run_on_terminal(self.write("long.onnx", long))
        self.assertIn("..", text)
        self.assertLessEqual(widest(text.splitlines()), 100)

    def test_hostile_files(self):
        whole = qdq_file()
        many = model(13, [node("Identity", ["x"], ["y%d" % i]) for i in range(20000)], [],
                     [value_info("x", FLOAT, [1])], [value_info("y7", FLOAT, [1])])
        ring = model(13, [node("Identity", ["b"], ["a"]), node("Identity", ["a"], ["b"])], [],
                     [value_info("x", FLOAT, [1])], [value_info("b", FLOAT, [1])])
        files = {"empty": b"", "text": b"hello\n", "cut": whole[:len(whole) // 2], "ring": ring,
                 "noise": bytes(range(256)) * 40, "no graph": whole[:10],
                 "a long field": b"\x3a\xff\xff\xff\xff\x0f" + whole}
        for name, data in files.items():
            with self.subTest(name):
                tree, error = self.explain(self.write("hostile.onnx", data), status=1)
                self.assertIn("hostile.onnx", error)
                self.assertEqual(tree["cuts"], [])
                self.run_it(self.folder / "hostile.onnx", status=1)
        tree, _ = self.explain(self.write("many.onnx", many))
        self.assertEqual(len(tree["nodes"]) + tree["unlisted_nodes"], 20000)

    def test_what_is_no_file(self):
        for path in (self.folder / "none.onnx", "none.onnx"):
            said = self.run_it(path, status=1).stderr
            self.assertTrue(said.startswith("quantd: %s: cannot be opened" % path), said)
        self.run_it("/", status=1)
        self.run_it("a.onnx,b.onnx", status=1)
        os.mkfifo(self.folder / "pipe.onnx")
        self.run_it(self.folder / "pipe.onnx", status=1)
        os.mkdir(self.folder / "folder")
        self.run_it(self.folder / "folder", status=1)


class Nodes(ModelTest):
    """GET /v2/models/{model}/nodes."""

    FLAGS = ModelTest.FLAGS + ("--measure", "off")
    BYTES_MAX = 256 << 10

    def nodes(self, path="net"):
        answer = self.server.get("/v2/models/%s/nodes" % path)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    def test_they_are_those_of_explain(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            for file in (qdq_file(), DIGITS.read_bytes()):
                path.write_bytes(file)
                explained = json.loads(subprocess.run(
                    [*COMMAND, "--measure", "off", "--explain", str(path),
                     "--explain-format", "json"],
                    capture_output=True, timeout=30 * SLOW, check=True).stdout)
                self.assert_done(self.load_files("net", model_onnx=file))
                self.assertEqual(self.nodes(), {"name": "net", "version": "1",
                                                "nodes": explained["nodes"]})
                metadata = self.server.get("/v2/models/net").json()
                self.assertEqual(metadata["properties"]["bytes"],
                                 str(explained["resident_bytes"]))

    def test_versions(self):
        files = {"file:1/model.onnx": qdq_file(), "file:2/model.onnx": DIGITS.read_bytes()}
        self.assert_done(self.load_named("net", {"version_policy": {"all": {}}}, files))
        first, second = self.nodes("net/versions/1"), self.nodes("net/versions/2")
        self.assertEqual((first["version"], second["version"]), ("1", "2"))
        self.assertEqual(first["nodes"][11]["operator"], "Sigmoid")
        self.assertNotEqual(first["nodes"], second["nodes"])
        self.assertEqual(self.nodes(), second)
        head = self.server.request("HEAD", "/v2/models/net/nodes")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(int(head.headers["Content-Length"]),
                         len(self.server.get("/v2/models/net/nodes").body))

    def test_models_that_are_no_file(self):
        self.assertEqual(self.nodes("onnx.QuantizeLinear/versions/10"),
                         {"name": "onnx.QuantizeLinear", "version": "10", "nodes": []})
        self.assert_done(self.post("kept", "load", kept_request([1, 2])))
        self.assertEqual(self.nodes("kept")["nodes"], [])

    def test_constants_that_come_with_requests(self):
        file = model(13, [node("DequantizeLinear", ["x", "scale"], ["y"])], [],
                     [value_info("x", UINT8, [2]), value_info("scale", FLOAT, [])],
                     [value_info("y", FLOAT, [2])])
        self.assert_done(self.load_files("net", model_onnx=file))
        self.assertEqual([(one["fate"], one["runs_as"]) for one in self.nodes()["nodes"]],
                         [("operator", "onnx.DequantizeLinear")])

    def test_models_that_are_not_loaded(self):
        self.assert_done(self.load_files("gone", model_onnx=qdq_file()))
        self.assert_error(self.server.get("/v2/models/gone/versions/2/nodes"), 404, "version")
        self.assert_done(self.post("gone", "unload"))
        for path in ("gone", "gone/versions/1", "nobody", "onnx.QuantizeLinear/versions/99"):
            self.assert_error(self.server.get("/v2/models/%s/nodes" % path), 404)
        self.assert_error(self.server.request("POST", "/v2/models/gone/nodes", b"{}"), 405)

    def test_the_answer_is_bounded(self):
        """A node is listed whole or not at all."""
        def chain(names):
            values = ["x"] + ["v%d" % i for i in range(1, len(names))] + ["y"]
            nodes = [node("Identity", [values[i]], [values[i + 1]]).replace(
                b"a Identity", name) for i, name in enumerate(names)]
            return model(13, nodes, [], [value_info("x", UINT8, [1])],
                         [value_info("y", UINT8, [1])])
        for name, count in (((b"%010d"), 4096), (b"\1\2\x7f\"\\\1\2\3%02d", 3000)):
            file = chain([name % (i % 100) for i in range(count)])
            self.assert_done(self.load_files("net", model_onnx=file))
            answer = self.server.get("/v2/models/net/nodes")
            tree = answer.json()
            self.assertLessEqual(len(answer.body), self.BYTES_MAX + 100)
            self.assertGreater(len(answer.body), self.BYTES_MAX - 2000)
            self.assertEqual(len(tree["nodes"]) + tree["unlisted_nodes"], count)
            self.assertEqual(tree["nodes"][-1]["reads"], [len(tree["nodes"]) - 2])


if __name__ == "__main__":
    unittest.main()
