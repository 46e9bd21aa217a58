"""The playground: runs of each operator, errors at their fields, and requests as programs."""
import json
import os
import re
import shutil
import subprocess

from browser import OUT, PageTest, expect

PROGRAMS = {"curl": ["sh"], "python": ["python3"], "javascript": ["node", "--input-type=module"]}


class Operators(PageTest):
    def test_each_version_and_example(self):
        self.open()
        models = self.page.locator("#model optgroup[label=Operators] option")
        names = [option.inner_text() for option in models.all()]
        self.assertGreaterEqual(len(names), 35)
        runs = 0
        for name in names:
            self.choose(name)
            versions = [option.inner_text()
                        for option in self.page.locator("#version option").all()]
            # The examples of these are codes, which only their newer versions take.
            oldest = {"onnx.Clip": 12, "onnx.MaxPool": 12, "onnx.Relu": 14}.get(name, 0)
            for version in versions:
                if int(version) < oldest:
                    continue
                self.choose(name, version)
                examples = self.page.locator("#example option").count()
                for example in range(examples):
                    with self.subTest(model=name, version=version, example=example):
                        self.page.select_option("#example", str(example))
                        self.run_and_wait()
                        expect(self.page.locator("#answered")).to_have_text(
                            re.compile("Answered in .* by .*, version %s;" % version))
                        self.assertGreater(len(self.table()), 0)
                        runs += 1
        self.assertGreater(runs, 100)

    def test_the_numbers_are_right(self):
        self.open()
        self.choose("onnx.DequantizeLinear")
        x = self.field("x")
        x.get_by_label("Shape").fill("[2, 2]")
        x.get_by_label("Values").fill("[[0, 128], [129, 255]]")
        self.run_and_wait()
        self.assertEqual(self.table(), [["-64", "0"], ["0.5", "63.5"]])
        expect(self.page.locator("#stages tbody tr")).to_have_count(5)
        expect(self.page.locator("#stages")).to_contain_text("compute")

    def test_optional_input_left_out(self):
        self.open()
        self.choose("onnx.DequantizeLinear")
        self.field("x_zero_point").get_by_label("send this input").uncheck()
        expect(self.field("x_zero_point").get_by_label("Values")).to_be_disabled()
        self.run_and_wait()
        self.assertEqual(self.table(), [["0", "64", "64.5", "127.5"]])

    def test_numbers_that_are_not_finite(self):
        self.open()
        self.choose("onnx.QuantizeLinear")
        self.field("x").get_by_label("Shape").fill("[3]")
        self.field("x").get_by_label("Values").fill("Infinity -Infinity 1")
        self.run_and_wait()
        self.assertEqual([row[:2] for row in self.table()], [["255", "0"]])

    def test_views(self):
        self.open()
        self.choose("onnx.QLinearConv")
        self.run_and_wait()
        output = self.page.locator("#outputs > div")
        for view, label in (("Heat map", "Heat map of y, 4 by 4, from 0 .dark. to 64 .light."),
                            ("Image", "y as an image, 4 by 4"),
                            ("Histogram",
                             "Histogram of 16 values: minimum 0, mean 19.1, maximum 64")):
            output.get_by_label(view).check()
            figure = output.get_by_role("img")
            expect(figure).to_have_attribute("aria-label", re.compile(label))
            if view != "Histogram":
                self.assertGreater(figure.evaluate(
                    """c => new Set(c.getContext("2d").getImageData(0, 0, 4, 4).data).size"""), 4)

    def test_load_is_seen_in_the_charts(self):
        self.open()
        self.run_and_wait()
        model = self.page.locator("#models tbody tr").first
        expect(model).to_contain_text("onnx.DequantizeLinear 25")
        expect(model).to_contain_text("µs")
        for _ in range(3):
            self.run_and_wait()
        chart = self.page.get_by_role("img", name=re.compile("Inferences per second"))
        expect(chart).to_have_attribute("aria-label", re.compile("answered: .*, most [0-9.]*[1-9]"))


class Refusals(PageTest):
    def check(self, field, *words):
        """Checks that the field has an error with these words and the focus, and that a screen
        reader is told."""
        self.page.click("#run")
        expect(self.page.locator("#answered")).to_have_text("Refused, HTTP status 400.")
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        error = self.page.locator("#" + field.get_attribute("aria-describedby").split()[0])
        for word in words:
            expect(error).to_contain_text(word)
        expect(self.page.locator("#try-error")).to_be_empty()
        return error

    def setUp(self):
        super().setUp()
        self.open()
        self.choose("onnx.DequantizeLinear")

    def test_values(self):
        values = self.field("x").get_by_label("Values")
        values.fill("1 2 300 4")
        error = self.check(values, "element 2", "300")
        values.fill("1 2 3 4")
        self.run_and_wait()
        expect(error).to_be_empty()
        expect(values).not_to_have_attribute("aria-invalid", "true")
        values.fill("1 2 three 4")
        self.check(values, "three")

    def test_shape(self):
        shape = self.field("x").get_by_label("Shape")
        shape.fill("[2, two]")
        self.check(shape, "two")

    def test_too_few_values(self):
        self.field("x").get_by_label("Values").fill("1 2 3")
        self.check(self.field("x").get_by_label("Values"), "expected 4")

    def test_datatype_that_does_not_go_with_another(self):
        datatype = self.field("x_zero_point").get_by_label("Datatype")
        datatype.select_option("INT8")
        self.field("x_zero_point").get_by_label("Values").fill("1")
        self.check(datatype, "UINT8")

    def test_attribute(self):
        self.page.click("#attributes summary")
        axis = self.page.get_by_label("axis", exact=True)
        axis.fill("one")
        self.check(axis, "parameters.axis", "one")

    def test_attribute_in_a_closed_box_opens_it(self):
        self.page.click("#attributes summary")
        self.page.get_by_label("block_size", exact=True).fill("-2")
        self.page.click("#attributes summary")
        self.check(self.page.get_by_label("block_size", exact=True), "block_size")

    def test_a_missing_input(self):
        self.choose("directml.ElementWiseDequantizeLinear", "10")
        values = self.field("ScaleTensor").get_by_label("Values")
        values.fill("")
        self.check(values, "ScaleTensor")


class Programs(PageTest):
    def copied(self, language):
        self.page.select_option("#language", language)
        self.page.get_by_role("button", name="Copy").click()
        expect(self.page.locator("#copied")).to_have_text("Copied.")
        return self.page.evaluate("navigator.clipboard.readText()")

    def new_page(self, **options):
        return super().new_page(permissions=["clipboard-read", "clipboard-write"], **options)

    def answers(self, folder):
        """Yields the output of each program."""
        for language, command in PROGRAMS.items():
            with self.subTest(language=language):
                self.assertIsNotNone(shutil.which(command[0]), command[0])
                result = subprocess.run(command, input=self.copied(language), cwd=folder, text=True,
                                        capture_output=True, check=False, timeout=60,
                                        env=dict(os.environ, no_proxy="*"))
                self.assertEqual(result.stderr, "")
                yield result.stdout

    def test_programs_do_what_the_page_does(self):
        self.open()
        self.choose("onnx.DequantizeLinear")
        self.field("x").get_by_label("Values").fill("0 128 129 255")
        self.page.click("#program summary")
        for printed in self.answers(OUT):
            numbers = json.loads("[%s]" % re.findall(r"\[([^\]]*63\.5)\s*\]", printed)[-1])
            self.assertEqual(numbers, [-64, 0, 0.5, 63.5])

    def test_with_bytes_of_a_file(self):
        self.open()
        self.choose("onnx.DequantizeLinear")
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }".ljust(117) + b"\n"
        npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        self.field("x").locator("input[type=file]").set_input_files(
            {"name": "x.npy", "mimeType": "", "buffer": npy + bytes([0, 128, 129, 255])})
        expect(self.field("x")).to_contain_text("From the file: UINT8 [2, 2], 4 B.")
        self.page.click("#program summary")
        folder = OUT / "programs"
        folder.mkdir(exist_ok=True)
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Save request.bin").click()
        download.value.save_as(folder / "request.bin")
        for printed in self.answers(folder):
            numbers = json.loads("[%s]" % re.findall(r"\[([^\]]*63\.5)\s*\]", printed)[-1])
            self.assertEqual(numbers, [-64, 0, 0.5, 63.5])
