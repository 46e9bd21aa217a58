"""/v2/logging: Triton's extension, which shows and changes the settings of the log."""
import json
import unittest

from quantd import ONE_IO_THREAD, Server, ServerTest

PATH = "/v2/logging"
DEFAULT = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True,
           "log_verbose_level": 0, "log_format": "default"}


class Logging(unittest.TestCase):
    def start(self, *flags):
        # A test may start several servers; each is stopped at the end.
        server = self.server = Server(*flags)
        self.addCleanup(lambda: server.terminated or server.stop())

    def change(self, **settings):
        answer = self.server.request("POST", PATH, json.dumps(settings))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        return answer.json()

    def settings(self):
        answer = self.server.get(PATH)
        self.assertEqual(answer.status, 200)
        return answer.json()

    def test_only_what_is_given_changes(self):
        self.start()
        self.assertEqual(self.settings(), DEFAULT)
        self.assertEqual(self.change(), DEFAULT)
        changed = self.change(log_warning=False, log_verbose_level=2)
        self.assertEqual(changed, dict(DEFAULT, log_warning=False, log_verbose_level=2))
        changed = self.change(log_warning=True, log_error=None, log_format="ISO8601")
        self.assertEqual(changed, dict(DEFAULT, log_verbose_level=2, log_format="ISO8601"))
        self.assertEqual(self.settings(), changed)
        self.assertEqual(self.change(**DEFAULT), DEFAULT)  # the answer to GET may be sent back

    def test_the_flags_are_its_begin(self):
        for level, settings in (("debug", {"log_verbose_level": 1}), ("warn", {"log_info": False}),
                                ("error", {"log_info": False, "log_warning": False})):
            with self.subTest(level):
                self.start("--log-level", level)
                self.assertEqual(self.settings(), dict(DEFAULT, **settings))

    def test_lines_come_and_go(self):
        self.start("--model-control-mode", "explicit", "--log-level", "warn", *ONE_IO_THREAD)

        def unload(name):  # loading an unknown name logs a warning
            self.server.request("POST", "/v2/repository/models/%s/load" % name, b"{}")

        unload("silent")
        self.change(log_warning=False)
        unload("none")
        self.change(log_warning=True, log_info=True, log_verbose_level=1)
        self.server.get("/v2/nowhere-verbose")
        self.change(log_verbose_level=0)
        self.server.get("/v2/nowhere-again")
        log = self.server.stop()
        self.assertIn("nowhere-verbose", log)
        self.assertNotIn("nowhere-again", log)
        self.assertIn('level=info msg="a call changes what is logged"', log)
        self.assertIn('level=info msg="quantd ends"', log)
        self.assertNotIn("quantd starts", log)
        self.assertIn('model="silent"', log)
        self.assertNotIn('model="none"', log)

    def test_formats(self):
        self.start("--log-format", "json")
        for log_format in ("ISO8601", "json", "ISO8601", "default"):
            self.change(log_format=log_format)
        lines = self.server.stop().splitlines()
        kinds = [line[0] for line in lines if "a call changes" in line]
        # The line is written before the format changes.
        self.assertEqual(kinds, ["{", "t", "{", "t"])
        self.assertEqual(json.loads(lines[-1])["msg"], "quantd ends")


class Refusals(ServerTest):
    def test_what_is_wrong_changes_nothing(self):
        for body, *words in (
                ({"log_verbose": 1}, "log_verbose", "log_verbose_level"),
                ({"log_info": False, "a\"b": 1}, "a"),
                ({"log_info": "yes"}, "log_info", "true or false", "yes"),
                ({"log_info": False, "log_error": 1}, "log_error", "1"),
                ({"log_verbose_level": -1}, "log_verbose_level", "-1"),
                ({"log_verbose_level": 1.5}, "log_verbose_level", "1.5"),
                ({"log_verbose_level": True}, "log_verbose_level", "true"),
                ({"log_format": "xml"}, "log_format", "xml", "ISO8601"),
                ({"log_format": 1}, "log_format", "1"),
                ([], "object")):
            with self.subTest(body=body):
                answer = self.server.request("POST", PATH, json.dumps(body))
                self.assert_error(answer, 400, *words)
        for body in (b'{"log_info": false, "log_info": false}', b'{"log_info":', b"1", b"{} {}"):
            with self.subTest(body=body):
                self.assert_error(self.server.request("POST", PATH, body), 400)
        self.assertEqual(self.server.get(PATH).json(), DEFAULT)

    def test_the_file_is_not_for_calls(self):
        for value in ("/etc/passwd", 1):
            answer = self.server.request("POST", PATH, json.dumps({"log_file": value}))
            self.assert_error(answer, 501, "log_file")

    def test_methods(self):
        answer = self.server.request("PUT", PATH, b"{}")
        self.assert_error(answer, 405, "GET, HEAD, POST")
        self.assertEqual(answer.headers["Allow"], "GET, HEAD, POST")
        self.assertEqual(self.server.request("HEAD", PATH).status, 200)

    def test_encoded(self):
        answer = self.server.request("POST", PATH, b"{}", {"Content-Encoding": "gzip"})
        self.assert_error(answer, 415, "gzip")

    def test_it_is_told(self):
        self.assertIn("logging", self.server.get("/v2").json()["extensions"])


if __name__ == "__main__":
    unittest.main()
