"""The page as a whole: accessibility, and a server that ends or asks for a token."""
import signal
import tempfile
import unittest

from browser import OUT, PageTest, ROOT, Server, expect
from test_files import png

DEQUANTIZE = {"inputs": [
    {"name": "x", "datatype": "UINT8", "shape": [4], "data": [0, 128, 129, 255]},
    {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.5]}]}
TOKEN = "a-token-of-more-than-32-characters"


def read_ppm(name):
    """Returns width, height, and the bytes of red, green and blue."""
    data = (ROOT / "tests" / "data" / name).read_bytes()
    width, height = map(int, data.split(None, 4)[1:3])
    return width, height, data[-3 * width * height:]


class Looks(PageTest):
    def fill_page(self, page):
        """Fills the page with a run, with all boxes open, and with values that will be refused."""
        self.page = page
        self.open()
        self.choose("onnx.QLinearConv")
        self.run_and_wait()
        for box in page.locator("main details > summary").all():
            if not box.evaluate("summary => summary.parentElement.open"):
                box.click()
        self.field("w").get_by_label("Values").fill("1, 2, 3")

    def test_light_and_dark(self):
        colours = set()
        for scheme in ("light", "dark"):
            page = self.new_page(color_scheme=scheme)
            self.fill_page(page)
            self.check_accessible(page, scheme + ", answered")
            self.shoot(page, scheme)
            page.click("#run")
            expect(page.locator("[aria-invalid=true]")).to_be_visible()
            self.check_accessible(page, scheme + ", refused")
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(colours), 2)

    def test_phone(self):
        for width in (320, 390):
            page = self.new_page(viewport={"width": width, "height": 720}, is_mobile=True,
                                 has_touch=True, device_scale_factor=2)
            self.fill_page(page)
            for view in ("Heat map", "Image", "Histogram", "Table"):
                page.locator("#outputs").get_by_label(view).tap()
                self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), width)
            self.shoot(page, "phone-%d" % width)
            small = page.evaluate("""() => [...document.querySelectorAll("button, select, input")]
                .filter(e => e.type !== "checkbox" && e.type !== "radio" && e.offsetHeight > 0 &&
                             e.offsetHeight < 38).map(e => e.id || e.textContent)""")
            self.assertEqual(small, [], "too small for a finger")
        self.check_accessible(page, "phone")

    def test_phone_shows_what_came(self):
        self.page = page = self.new_page(viewport={"width": 360, "height": 740}, is_mobile=True)
        self.open()
        self.choose("onnx.QLinearConv")
        self.run_and_wait()
        top, bottom = page.evaluate("""() => {
            const {top, bottom} = document.getElementById("answer").getBoundingClientRect();
            return [top, bottom];
        }""")
        self.assertTrue(-1 < top < 740 and (bottom < 741 or top < 1), (top, bottom))

    def test_photograph(self):
        """Takes the README's picture: an edge filter, after two minutes that the page's clock
        skips."""
        self.page = page = self.new_page(viewport={"width": 1200, "height": 1150})
        page.clock.install()
        self.open()
        for i in range(40):
            for _ in range(6 + i % 7 + i // 3):
                self.server.infer("onnx.DequantizeLinear", DEQUANTIZE)
            looks = page.evaluate("live.points.good.length")
            page.clock.run_for(2000)
            while page.evaluate("live.points.good.length") == looks:
                page.wait_for_timeout(10)
        self.choose("onnx.QLinearConv")
        self.field("x").locator("input[type=file]").set_input_files(
            {"name": "cat.png", "mimeType": "", "buffer": png(*read_ppm("cat.ppm"))})
        for name, datatype, values in (
                ("x_scale", "FP32", "1"), ("x_zero_point", "UINT8", "0"),
                ("w", "INT8", "-1, -1, -1,  -1, 8, -1,  -1, -1, -1"), ("w_scale", "FP32", "1"),
                ("w_zero_point", "INT8", "0"), ("y_scale", "FP32", "1"),
                ("y_zero_point", "UINT8", "0")):
            self.field(name).get_by_label("Datatype").select_option(datatype)
            self.field(name).get_by_label("Values").fill(values)
        self.run_and_wait()
        page.locator("#outputs").get_by_label("Image").check()
        expect(page.get_by_role("img", name="y as an image")).to_be_visible()
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=str(OUT / "console.jpg"), type="jpeg", quality=60)

    def test_text_twice_as_large(self):
        page = self.new_page(viewport={"width": 640, "height": 900})
        self.fill_page(page)
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 640)


class Keyboard(PageTest):
    def focused(self):
        return self.page.evaluate("document.activeElement.id")

    def tab_to(self, wanted):
        """Presses Tab until the element has the focus. Returns the ids of the elements on the
        way."""
        way = []
        while self.focused() != wanted:
            self.page.keyboard.press("Tab")
            way.append(self.focused())
            self.assertLess(len(way), 100, way)
            self.assertNotEqual(self.page.evaluate(
                "getComputedStyle(document.activeElement.classList.contains('over')"
                " ? document.activeElement.nextElementSibling : document.activeElement)"
                ".outlineStyle"), "none", "nobody sees where the focus is: " + way[-1])
        return way

    def test_choose_fill_run_look(self):
        self.open()
        self.page.keyboard.press("Tab")
        self.page.keyboard.press("Enter")  # the link that skips to the content
        way = self.tab_to("model")
        self.assertLess(len(way), 3)
        self.page.keyboard.type("onnx.Qu")
        self.page.keyboard.press("Tab")
        self.assertEqual(self.program_url(), "/v2/models/onnx.QuantizeLinear/versions/25")
        self.tab_to("input-0-shape")
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type("2")
        self.tab_to("input-0-data")
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type("1 -1")
        self.tab_to("run")
        self.page.keyboard.press("Enter")
        expect(self.page.locator("#answered")).to_contain_text("Answered")
        self.tab_to("view-0-0")
        self.page.keyboard.press("ArrowRight")
        expect(self.page.get_by_role("img", name="Heat map of y")).to_be_visible()
        self.page.locator("#input-0-data").focus()
        self.page.keyboard.type("x")
        self.page.keyboard.press("Control+Enter")
        expect(self.page.locator("#input-0-error")).to_contain_text("x")

    def test_nothing_hides_what_has_the_focus(self):
        self.page = page = self.new_page(viewport={"width": 1280, "height": 500})
        self.open()
        self.choose("onnx.QLinearConv")
        page.focus("#model")
        hidden = []
        while self.focused() != "run":
            page.keyboard.press("Tab")
            hidden += page.evaluate("""() => {
                const focused = document.activeElement, box = focused.getBoundingClientRect();
                const at = document.elementFromPoint(box.left + box.width / 2, box.bottom - 1);
                return at?.closest("#go") && !focused.closest("#go") ? [focused.id] : [];
            }""")
        self.assertEqual(hidden, [])

    def test_each_field_has_a_name(self):
        self.open()
        self.page.click("#attributes summary")
        nameless = self.page.evaluate("""() => [...document.querySelectorAll(
            "input, select, textarea")].filter(e => !e.hidden && e.labels.length === 0)
            .map(e => e.id)""")
        self.assertEqual(nameless, [])


class Away(unittest.TestCase):
    """A server that ends while the page is open, and a server that hangs."""

    def test_killed_and_back(self):
        server = Server("--model-control-mode", "explicit")
        try:
            test = PageTest()
            self.addCleanup(test.doCleanups)
            test.url, test.complaints, test.outside = server.addresses[0], [], []
            test.page = page = test.new_page()
            test.open()
            test.run_and_wait()
            server.process.kill()
            server.process.wait()
            state = page.locator("#state")
            expect(state).to_contain_text("The server has not answered since")
            page.click("#run")
            expect(page.locator("#try-error")).to_contain_text("The server does not answer")
            test.shoot(page, "away")
            test.check_accessible(page, "away")
        finally:
            server.process.kill()
            server.process.stdout.close()
            server.stderr_file.close()
        server = Server(listen=("127.0.0.1:%d" % server.port,))
        try:
            expect(state).to_contain_text("The server is back.")
            test.run_and_wait()
            expect(page.locator("#answered")).to_contain_text("Answered")
            # This is another server, without the history.
            expect(page.locator("#load-hint")).to_contain_text("none")
            server.process.send_signal(signal.SIGSTOP)
            expect(state).to_contain_text("no answer within")
            server.process.send_signal(signal.SIGCONT)
            expect(state).to_contain_text("The server is back.")
            test.tearDown()
        finally:
            server.process.send_signal(signal.SIGCONT)
            server.stop()


class Tokens(unittest.TestCase):
    def test_asks_for_it_and_keeps_it_to_itself(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(TOKEN + "\n")
            file.flush()
            server = Server("--token-file", file.name)
        self.addCleanup(server.stop)
        test = PageTest()
        self.addCleanup(test.doCleanups)
        test.url, test.complaints, test.outside = server.addresses[0], [], []
        test.page = page = test.new_page()
        page.goto(test.url + "/")
        token = page.get_by_label("Bearer token")
        expect(page.locator("#state")).to_have_text("The server requires a token.")
        expect(token).to_be_focused()
        test.check_accessible(page, "token")
        test.shoot(page, "token")
        page.keyboard.type("another one")
        page.keyboard.press("Enter")
        expect(page.locator("#token-error")).to_contain_text("header Authorization")
        expect(token).to_be_focused()
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_text("The server answers.")
        expect(token).to_be_hidden()
        test.run_and_wait()
        page.click("#program summary")
        expect(page.locator("#snippet")).to_contain_text("$QUANTD_TOKEN")
        self.assertNotIn(TOKEN, page.content())
        self.assertEqual(page.evaluate("localStorage.length + document.cookie.length"), 0)
        page.reload()  # the tab keeps the token
        expect(page.locator("#state")).to_have_text("The server answers.")
        test.tearDown()
