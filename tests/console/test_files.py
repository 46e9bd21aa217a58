"""Inputs from files: arrays of NumPy, images, ONNX models."""
import re
import struct
import zlib

from browser import PageTest, ROOT, expect
from loading import chain_file
from onnx_writer import FLOAT, UINT8, model, node, tensor, value_info


def npy(descr, shape, data, fortran=False, version=1):
    """Returns an array as numpy.save writes it."""
    head = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode()
    size = "<H" if version == 1 else "<I"
    head += b" " * (-(8 + struct.calcsize(size) + len(head) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(size, len(head)) + head + data


def png(width, height, rgb):
    """Returns a PNG image. `rgb` are the bytes of all rows."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    rows = b"".join(b"\0" + rgb[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0,
                                                             0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Files(PageTest):
    def upload(self, name, data, to="x"):
        self.field(to).locator("input[type=file]").set_input_files(
            {"name": name, "mimeType": "", "buffer": data})

    def setUp(self):
        super().setUp()
        self.open()

    def test_arrays(self):
        for model, descr, shape, data, note, expected in (
                ("onnx.DequantizeLinear", "|u1", (2, 2), bytes([0, 128, 129, 255]),
                 "UINT8 [2, 2], 4 B", [["-64", "0"], ["0.5", "63.5"]]),
                ("onnx.QuantizeLinear", "<f4", (3,), struct.pack("<3f", 1, -1, 100),
                 "FP32 [3], 12 B", None),
                ("onnx.QuantizeLinear", "<f8", (1, 2), struct.pack("<2d", 1, -1),
                 "FP32 [1, 2], 8 B", None)):
            for version in (1, 2):
                with self.subTest(descr=descr, version=version):
                    self.choose(model)
                    self.upload("x.npy", npy(descr, shape, data, version=version))
                    expect(self.field("x")).to_contain_text("From the file: %s." % note)
                    self.run_and_wait()
                    expect(self.page.locator("#answered")).to_contain_text("Answered")
                    if expected:
                        self.assertEqual(self.table(), expected)

    def test_a_large_array_comes_back_as_bytes(self):
        self.choose("onnx.DequantizeLinear")
        self.upload("x.npy", npy("|u1", (100, 1000), bytes(range(250)) * 400))
        self.run_and_wait()
        table = self.table()
        self.assertEqual(table[0][:3], ["-64", "-63.5", "-63"])
        self.assertEqual((len(table), len(table[0])), (100, 64))
        expect(self.page.locator("#outputs")).to_contain_text("64 of 1000 columns")

    def test_typing_again_instead(self):
        self.choose("onnx.DequantizeLinear")
        self.upload("x.npy", npy("|u1", (4,), bytes(4)))
        expect(self.field("x").get_by_label("Values")).to_be_hidden()
        self.field("x").get_by_role("button", name="Type values instead").click()
        expect(self.field("x").get_by_label("Values")).to_be_focused()
        self.run_and_wait()
        self.assertEqual(self.table(), [["-64", "0", "0.5", "63.5"]])

    def test_arrays_that_are_none(self):
        self.choose("onnx.DequantizeLinear")
        for name, data, words in (
                ("x.npy", b"", "numpy.save"), ("x.npy", b"\x93NUMPY", "numpy.save"),
                ("x.npy", npy("<u8", (2,), bytes(16)), "<u8"),
                ("x.npy", npy(">u2", (2,), bytes(4)), ">u2"),
                ("x.npy", npy("|u1", (5,), bytes(4)), "expected 5 bytes"),
                ("x.npy", npy("|u1", (2, 2), bytes(4), fortran=True), "ascontiguousarray"),
                ("x.png", b"no image", "an image that this browser can show"),
                ("notes.txt", b"text", "an image that this browser can show")):
            with self.subTest(name=name, words=words):
                self.upload(name, data)
                error = self.page.locator("#input-0-error")
                expect(error).to_contain_text(words)
                expect(self.field("x").locator("input[type=file]")).to_have_attribute(
                    "aria-invalid", "true")
        self.run_and_wait()  # with the values typed before
        self.assertEqual(self.table(), [["-64", "0", "0.5", "63.5"]])

    def test_image(self):
        picture = png(3, 2, bytes([255, 0, 0, 0, 255, 0, 0, 0, 255] + [10, 20, 30] * 3))
        self.choose("onnx.DequantizeLinear")
        self.upload("x.png", picture)
        expect(self.field("x")).to_contain_text("UINT8 [2, 3], 6 B")
        self.field("x").get_by_label("Convert the image to").select_option("RGB, [1, 3, H, W]")
        expect(self.field("x")).to_contain_text("UINT8 [1, 3, 2, 3], 18 B")
        expect(self.field("x").get_by_label("Shape")).to_have_value("[1, 3, 2, 3]")
        self.run_and_wait()
        self.assertEqual(self.table(), [["63.5", "-64", "-64"], ["-59", "-59", "-59"],
                                        ["-64", "63.5", "-64"], ["-54", "-54", "-54"],
                                        ["-64", "-64", "63.5"], ["-49", "-49", "-49"]])
        self.choose("onnx.QLinearConv")
        self.upload("x.png", picture)
        expect(self.field("x")).to_contain_text("UINT8 [1, 1, 2, 3], 6 B")
        self.run_and_wait()
        expect(self.page.locator("#outputs")).to_contain_text("y: UINT8 [1, 1, 2, 3]")
        self.choose("onnx.QuantizeLinear")  # this model takes no bytes
        self.upload("x.png", picture)
        expect(self.field("x")).to_contain_text("FP32 [2, 3], 24 B")
        self.run_and_wait()
        expect(self.page.locator("#outputs")).to_contain_text("y: UINT8 [2, 3]")


class Pictures(PageTest):
    """Images for networks that take one size."""

    GREEN = png(6, 8, bytes([0, 250, 50] * 48))

    def load(self, name, dims, operator):
        data = model(13, [node(operator, ["x"], ["y"])], [], [value_info("x", FLOAT, dims)],
                     [value_info("y", FLOAT, ["n", "a", "b", "c"])])
        self.page.get_by_label("File", exact=True).set_input_files([
            {"name": "names.txt", "mimeType": "", "buffer": b"red\ngreen\nblue <b>\n"},
            {"name": name + ".onnx", "mimeType": "", "buffer": data}])
        expect(self.page.get_by_label("Name")).to_have_value(name)
        self.page.get_by_role("button", name="Load", exact=True).click()
        expect(self.page.locator("#loaded")).to_contain_text(name + " is loaded")
        expect(self.page.locator("#model")).to_have_value(name)
        self.program_url()
        x = self.field("x")
        x.locator("input[type=file]").set_input_files(
            {"name": "x.png", "mimeType": "", "buffer": self.GREEN})
        return x

    def classes(self):
        self.run_and_wait()
        expect(self.page.locator("#outputs").get_by_label("Classes")).to_be_checked()
        table = self.page.locator("#outputs table").filter(has_text="The greatest elements of y")
        expect(table).to_be_visible()
        return table.locator("tbody").evaluate(
            "body => [...body.rows].map(row => [...row.cells].slice(0, 3).map(c => c.textContent))")

    def test_a_classifier(self):
        """A network whose scores are the means of red, green and blue."""
        self.open()
        x = self.load("colors", ("n", 3, 4, 5), "GlobalAveragePool")
        expect(x.get_by_label("Resize to")).to_have_value("4, 5")
        expect(x).to_contain_text("From the file: FP32 [1, 3, 4, 5], 240 B.")
        self.assertEqual(self.classes(), [["1", "green", "250.000000"],
                                          ["2", "blue <b>", "50.000000"], ["0", "red", "0.000000"]])
        self.check_accessible(self.page, "classes")
        x.get_by_label("Subtract mean").fill("10, 250, 0")
        x.get_by_label("Divide by").fill("100")
        x.get_by_label("Divide by").blur()
        self.assertEqual(self.classes(), [["2", "blue <b>", "0.500000"],
                                          ["1", "green", "0.000000"], ["0", "red", "-0.100000"]])
        for label, text, words in (("Subtract mean", "1, 2", "Expected a number, or 3"),
                                   ("Divide by", "0", "number other than 0"),
                                   ("Resize to", "4", "Expected rows and columns")):
            before = x.get_by_label(label).input_value()
            x.get_by_label(label).fill(text)
            x.get_by_label(label).blur()
            expect(self.page.locator("#input-0-error")).to_contain_text(words)
            x.get_by_label(label).fill(before)
            x.get_by_label(label).blur()
            expect(self.page.locator("#input-0-error")).to_be_empty()

    def test_layouts(self):
        self.open()
        x = self.load("last", ("n", 4, 5, 3), "Relu")
        expect(x).to_contain_text("From the file: FP32 [1, 4, 5, 3], 240 B.")
        self.run_and_wait()
        self.assertEqual(self.table()[:2], [["0", "250", "50"]] * 2)
        x = self.load("four", (1, 4, 2, 2), "Relu")
        expect(x).to_contain_text("From the file: FP32 [1, 4, 2, 2], 64 B.")
        self.run_and_wait()
        self.assertEqual(self.table(), [["0", "0"]] * 2 + [["250", "250"]] * 2 +
                         [["50", "50"]] * 2 + [["255", "255"]] * 2)


class Models(PageTest):
    def load(self, name, data=None):
        self.page.get_by_label("File", exact=True).set_input_files(
            {"name": "model.onnx", "mimeType": "", "buffer": data or chain_file()})
        expect(self.page.get_by_label("Name")).not_to_be_empty()  # filled from the file
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_role("button", name="Load", exact=True).click()

    def unload(self, name):
        self.page.once("dialog", lambda dialog: dialog.accept())
        self.page.get_by_role("button", name="Unload " + name).click()
        expect(self.page.locator("#loaded")).to_have_text(name + " is unloaded.")

    def test_load_run_unload(self):
        self.open()
        self.load("layer")
        expect(self.page.locator("#loaded")).to_contain_text("layer is loaded")
        expect(self.page.locator("#model")).to_have_value("layer")
        self.program_url()
        self.run_and_wait()
        expect(self.page.locator("#answered")).to_contain_text("quantize")
        nodes = self.page.locator("#nodes table")
        expect(nodes).to_contain_text("Time of each node, together")
        expect(nodes.locator("tbody tr").last).to_contain_text("quantize")
        # What is looked for is in sight without scrolling: the outputs, and each node's bar.
        expect(nodes.locator("thead th")).to_have_text(
            ["Node", "Time", "Share", "Name", "Operator", "Kernel"])
        self.assertLess(self.page.locator("#outputs").bounding_box()["y"],
                        self.page.locator("#nodes").bounding_box()["y"])
        self.check_accessible(self.page, "times of nodes")
        row = self.page.locator("#models tbody tr").filter(has_text="layer 1")
        expect(row).to_contain_text("READY")
        expect(row).to_contain_text(re.compile(r"[0-9.]+ KiB"))
        self.unload("layer")
        expect(self.page.locator("#model option").filter(has_text="layer")).to_have_count(0)
        self.assertEqual(self.program_url(), "/v2/models/onnx.DequantizeLinear/versions/25")
        self.run_and_wait()
        expect(nodes).to_have_count(0)

    def load_network(self, nodes, inputs, outputs):
        self.open()
        one = tensor("one", FLOAT, [], (9, struct.pack("<f", 1)))
        zero = tensor("zero", UINT8, [], (9, b"\0"))
        self.load("net", model(13, nodes, [one, zero], inputs, outputs))
        expect(self.page.locator("#model")).to_have_value("net")
        self.program_url()
        return self.page.get_by_role("listbox", name="Nodes of the network")

    def test_a_drawing(self):
        """A table that reads an input, and a sum of the table and that input."""
        def table(x, y):
            return [node("DequantizeLinear", [x, "one", "zero"], [x + "d"]),
                    node("Sigmoid", [x + "d"], [x + "s"]),
                    node("QuantizeLinear", [x + "s", "one", "zero"], [y])]
        net = self.load_network(
            table("x", "a") + [node("Concat", ["x", "a"], ["c"], axis=0), *table("c", "y"),
                               node("Sigmoid", ["cd"], ["nobody"]),
                               node("Identity", ["ring1"], ["ring2"]),
                               node("Identity", ["ring2"], ["ring1"])],
            [value_info("x", UINT8, [2])], [value_info("y", UINT8, [4])])
        boxes = net.get_by_role("option")
        expect(self.page.locator("#network-about")).to_have_text(
            "10 nodes in the file: 4 in table, 3 left out, 2 table, 1 computed.")
        for box, name in zip(boxes.all(), ("2 QuantizeLinear table with Sigmoid",
                                           "3 Concat computed",
                                           "6 QuantizeLinear table with Sigmoid"), strict=True):
            expect(box).to_have_accessible_name(name)
        self.assertEqual(net.locator(".edges").get_attribute("d").count("M"), 2)
        self.run_and_wait()
        expect(boxes.nth(1)).to_contain_text("%")
        net.focus()
        details = self.page.locator("#node")
        expect(details).to_contain_text("0 DequantizeLinear, 1 Sigmoid")
        for key, active in (("ArrowUp", 0), ("ArrowDown", 1), ("ArrowLeft", 1), ("ArrowDown", 2),
                            ("ArrowUp", 1)):
            self.page.keyboard.press(key)
            expect(boxes.nth(active)).to_have_attribute("aria-selected", "true")
        expect(net.locator("[aria-selected=true]")).to_have_count(1)
        expect(details).to_contain_text(re.compile("Concat.*computed.*2 QuantizeLinear.*µs"))
        boxes.last.hover()
        expect(details).to_contain_text("5 Sigmoid")
        self.page.get_by_label("Also nodes that are a part of another one").check()
        expect(boxes).to_have_count(8)
        expect(boxes.filter(has_text="in table 6 QuantizeLinear")).to_have_count(2)
        expect(boxes.filter(has_text="Concat")).to_contain_text("%")
        self.check_accessible(self.page, "a drawing of all nodes")
        self.choose("onnx.Relu")
        expect(net).to_be_hidden()
        self.choose("net")
        expect(net).to_be_visible()
        self.unload("net")
        expect(net).to_be_hidden()

    def test_a_drawing_of_hostile_nodes(self):
        """Names that are HTML, a node that reads another one twice, and so many long lines that no
        space is kept for them."""
        evil, count = "<img src=x onerror=alert(1)>", 600
        read = [["x"], ["v0", "v0"], *[["v%d" % (i - 1), "v%d" % max(0, i - 64)]
                                       for i in range(2, count)]]
        net = self.load_network([node("Identity", ["x"], ["y"]),
                                 *[node(evil, names, ["v%d" % i]) for i, names in enumerate(read)]],
                                [value_info("x", UINT8, [1])], [value_info("y", UINT8, [1])])
        self.page.get_by_label("Also nodes that are a part of another one").check()
        boxes = net.get_by_role("option")
        expect(boxes).to_have_count(1 + count)
        expect(boxes.nth(2)).to_contain_text("<img")
        self.assertLess(net.locator(".edges").get_attribute("d").count("C"), 20000)
        boxes.nth(2).click()
        expect(self.page.locator("#node")).to_contain_text(evil)
        expect(self.page.locator("img[src=x]")).to_have_count(0)

    def test_a_drawing_of_very_many_nodes(self):
        names = ["x"] + ["v%d" % i for i in range(1, 4096)] + ["y"]
        net = self.load_network([node("Identity", [names[i]], [names[i + 1]])
                                 for i in range(4096)],
                                [value_info("x", UINT8, [1])], [value_info("y", UINT8, [1])])
        about = self.page.locator("#network-about")
        expect(about).to_contain_text("4096 nodes in the file: ")
        unlisted = int(re.search(r"and (\d+) more", about.text_content())[1])
        expect(net.get_by_role("option")).to_have_count(4096 - unlisted)
        net.get_by_role("option").first.click()
        self.page.keyboard.press("ArrowDown")
        expect(self.page.locator("#node")).to_contain_text("0 Identity")

    def test_a_model_given_to_an_input_goes_where_models_go(self):
        self.open()
        self.field("x").locator("input[type=file]").set_input_files(
            {"name": "chain.onnx", "mimeType": "", "buffer": chain_file()})
        expect(self.page.get_by_label("Name")).to_have_value("chain")
        expect(self.page.get_by_label("Name")).to_be_focused()
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#loaded")).to_contain_text("chain is loaded")
        self.unload("chain")

    def test_a_name_follows_its_file_unless_it_was_typed(self):
        self.open()
        name = self.page.get_by_label("Name")
        for file, typed, expected in (("first", None, "first"), ("second", None, "second"),
                                      ("third", "mine", "mine")):
            if typed:
                name.fill(typed)
            self.page.get_by_label("File", exact=True).set_input_files(
                {"name": file + ".onnx", "mimeType": "", "buffer": chain_file()})
            expect(name).to_have_value(expected)

    def test_refusals(self):
        self.open()
        self.load("broken", b"no model")
        expect(self.page.get_by_label("File", exact=True)).to_be_focused()
        expect(self.page.locator("#load-error")).to_contain_text("model.onnx")
        self.load("onnx.Mine")
        expect(self.page.get_by_label("Name")).to_be_focused()
        self.load("")
        expect(self.page.locator("#load-error")).to_have_text("Expected a name, got none.")

    def test_a_name_is_text(self):
        name = "<img src=x onerror=alert(1)>"
        self.open()
        self.load(name)
        expect(self.page.locator("#loaded")).to_contain_text(name)
        expect(self.page.locator("#models")).to_contain_text(name)
        expect(self.page.locator("img")).to_have_count(0)
        self.unload(name)


class NoLoads(PageTest):
    FLAGS = ("--model-repository", str(ROOT / "tests" / "demo" / "digits" / "models"))

    def test_a_server_that_refuses_loads_offers_none(self):
        self.open()
        expect(self.page.locator("#load-hint")).to_contain_text("It runs with none.")
        expect(self.page.locator("#models")).to_contain_text("digits 1")
        expect(self.page.get_by_role("button", name="Load", exact=True)).to_have_count(0)
        expect(self.page.get_by_role("button", name="Unload digits")).to_have_count(0)
        expect(self.page.get_by_text("Load an ONNX file")).to_be_hidden()
