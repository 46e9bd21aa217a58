"""A page of the console in Debian's chromium. In every test, the page must not log an error or a
warning to the browser's console, and must send requests only to its own server."""
import atexit
import os
import re
import shutil
import unittest

from playwright.sync_api import Error, expect, sync_playwright

from quantd import ROOT, SLOW, Server, exchange  # noqa: F401  (exchange: for the tests)

OUT = ROOT / "build" / "console"
AXE = OUT / "node_modules" / "axe-core" / "axe.min.js"
WAIT_MS = 40_000 * SLOW  # for what the page does at once, on a busy machine
expect.set_options(timeout=WAIT_MS)


class Chromium:
    """One browser for all tests, started by the first test that needs it."""

    browser = None

    @classmethod
    def get(cls):
        if cls.browser is None:
            driver = sync_playwright().start()
            # Chromium's sandbox does not work for root, as in a container.
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []
            cls.browser = driver.chromium.launch(executable_path=shutil.which("chromium"),
                                                 args=flags, timeout=60_000 * SLOW)
            atexit.register(lambda: (cls.browser.close(), driver.stop()))
        return cls.browser


class PageTest(unittest.TestCase):
    FLAGS = ("--model-control-mode", "explicit")
    # What chromium itself logs about an answer that is an error, or about a missing answer.
    EXPECTED = re.compile(r"Failed to load resource: (net::ERR_(CONNECTION_\w+|EMPTY_RESPONSE)"
                          r"|the server responded with a status of [45]\d\d)")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS)
        cls.url = cls.server.addresses[0]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        self.complaints, self.outside = [], []
        self.page = self.new_page()

    def new_page(self, **options):
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = Chromium.get().new_context(**options)
        self.addCleanup(context.close)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("console", self.on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self.on_request)
        return page

    def on_console(self, message):
        if message.type in ("error", "warning") and not self.EXPECTED.match(message.text):
            self.complaints.append(message.text)

    def on_request(self, request):
        if not request.url.startswith((self.url + "/", "data:", "blob:" + self.url)):
            self.outside.append(request.url)

    def tearDown(self):
        self.assertEqual(self.complaints, [])
        self.assertEqual(self.outside, [])

    # ---- What a person does and sees ---------------------------------------------------------

    def open(self, page=None):
        page = page or self.page
        page.goto(self.url + "/")
        expect(page.locator("#state")).to_have_text("The server answers.")
        expect(page.locator("#inputs fieldset").first).to_be_visible()

    def choose(self, model, version=None):
        self.page.select_option("#model", model)
        if version is not None:
            self.page.select_option("#version", version)
        name = re.escape(model) + (r"/versions/%s$" % version if version else "")
        self.assertRegex(self.program_url(), name)

    def program_url(self):
        """Returns the path that a run would use, once the fields are those of the chosen model."""
        model = self.page.locator("#model").input_value()
        version = self.page.locator("#version").input_value()
        expect(self.page.locator("#try")).to_have_attribute("data-shown", model + " " + version)
        return "/v2/models/%s/versions/%s" % (model, version)

    def field(self, name):
        """Returns the box of an input."""
        legend = self.page.locator("legend").filter(has_text=re.compile("^%s( |$)" % name))
        return self.page.locator("#inputs fieldset").filter(has=legend)

    def run_and_wait(self):
        self.page.click("#run")
        expect(self.page.locator("#answered")).to_have_text(re.compile("Answered in|Refused"))

    def table(self, output=0):
        """Returns the numbers of an output's table, row by row."""
        box = self.page.locator("#outputs > div").nth(output)
        box.get_by_label("Table").check()
        return box.locator("tbody").evaluate(
            "body => [...body.rows].map(row => [...row.cells].slice(1).map(c => c.textContent))")

    def check_accessible(self, page, what):
        """Checks axe-core's rules of WCAG 2.2, A and AA, and its best practices."""
        page.evaluate(AXE.read_text())  # the page's policy does not apply to the debugger
        found = page.evaluate("axe.run({resultTypes: ['violations']})")
        self.assertEqual(["%s: %s" % (rule["id"], [node["html"] for node in rule["nodes"]])
                          for rule in found["violations"]], [], what)

    def shoot(self, page, name):
        page.screenshot(path=str(OUT / (name + ".png")), full_page=True)


__all__ = ["Error", "PageTest", "Server", "expect", "exchange", "OUT", "ROOT", "WAIT_MS"]
