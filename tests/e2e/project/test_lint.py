"""The linter finds each kind of fault."""
import sys
import unittest

from quantd import ROOT

sys.path.insert(0, str(ROOT / "tests" / "lint"))
import lint  # noqa: E402  pylint: disable=wrong-import-position

# As clang-format leaves these lists if one of their lines is too long.
FILLED_TABLE = """/* Calls:
 *
 *   create   checks the call and packs
 * what is constant plan     works out the shape
 */
"""
FILLED_LIST = """/* Ways:
 *
 * - first: by products of
 *   integers, which
 * are packed
 */
"""
WHOLE_LIST = """/* Ways:
 *
 * - first: by products of
 *   integers
 * - second: by floats
 *
 *   create   checks the call
 *   plan     works out the shape,
 *            and the units
 *
 * One for each.
 */
"""

LONG_FUNCTION = "int f(void)\n{\n" + "    g();\n" * 71 + "}\n"


class Lint(unittest.TestCase):
    def findings(self, path, text):
        """Returns the rules that complain about a tree with only this file and a Makefile."""
        contents = {"Makefile": "", path: text}
        return {rule for rule, found in lint.check_text(list(contents), contents)
                if any(line.startswith(path + ":") for line in found)}

    def test_what_is_refused(self):
        for rule, path, text in (
                ("text", "tests/a.py", "x = 1 \n"),
                ("text", "tests/a.py", "\tx = 1\n"),
                ("text", "tests/a.py", "x = 1\r\n"),
                ("text", "tests/a.py", "x" * 101 + "\n"),
                ("measured", "README.md",
                 "<!-- a: by make bench -->\n| target | of |\n<!-- end of a -->\n"),
                ("measured", "tests/bench/README.md",
                 "<!-- a: by make bench -->\n| target | of |\n<!-- end of a -->\n"),
                ("links", "README.md", "[a](kernels/moved.md)\n"),
                ("links", "tests/README.md", "[a](b.md)\n"),
                ("links", "README.md", "# A\n[a](#b)\n"),
                ("links", "README.md", "```\n# b\n```\n[a](#b)\n"),
                ("machine paths", "README.md", "see /" + "home/me/notes\n"),
                ("includes", "kernels/a.c", '#include "server/base/file.h"\n'),
                ("includes", "kernels/a.c", "#include <cblas.h>\n"),
                ("includes", "server/base/file.c", '#include "server/http/api/server.h"\n'),
                ("includes", "server/http/api/route.c", '#include "kernels/cpu.h"\n'),
                ("includes", "server/http/api/route.c", "#include <microhttpd.h>\n"),
                ("includes", "server/http/listener.c", "#  include <uv.h>\n"),
                ("includes", "server/new.c", '#include "server/base/file.h"\n'),
                ("gathers", "kernels/a.c", "v = _mm256_i32gather_ps(table, indices, 4);\n"),
                ("environment", "kernels/a.c", 'const char *threads = getenv("THREADS");\n'),
                ("include guards", "server/base/file.h", "#ifndef LOG_H\n#define LOG_H\n#endif\n"),
                ("typedefs", "server/base/file.c", "typedef struct log log;\n"),
                ("sends", "server/base/file.c", "    if (x)\n        send(fd, bytes, count, 0);\n"),
                ("sends", "server/base/file.c", "    (void)gnutls_record_send(s, bytes, count);\n"),
                ("sizes", "server/base/file.c", LONG_FUNCTION),
                ("comment lists", "server/base/file.c", FILLED_TABLE),
                ("comment lists", "server/base/file.c", FILLED_TABLE.split("w")[0] + "w */\n"),
                ("comment lists", "server/base/file.c", "/* a first   checks */\n"),
                ("comment lists", "server/base/file.c", FILLED_LIST),
                ("sizes", "server/base/file.c", "int x;\n" * 1001),
                ("includes", "server/work/scheduler/a.c", '#include "server/work/request.h"\n'),
                ("includes", "server/http/wire/a.c", '#include "server/http/path.h"\n'),
                ("layout", "notes.txt", "x\n"),
                ("named files", "README.md", "see `kernels/moved.c`\n"),
                ("final newline", "tests/a.py", "x = 1"),
                ("final newline", "tests/a.py", "x = 1\n\n"),
                ("sources listed", "kernels/forgotten.c", "int x;\n")):
            with self.subTest(rule=rule, text=text[:40]):
                self.assertIn(rule, self.findings(path, text))

    def test_what_is_fine(self):
        for path, text in (("tests/a.c", '#include <microhttpd.h>\n#include "kernels/qk.h"\n'),
                           ("tests/a.py", "x = 1\n"),
                           ("tests/a.c", WHOLE_LIST),
                           ("tests/README.md", "see `tests/README.md` and `x.c`\n"),
                           ("tests/README.md", "# A `b`, c\n[a](../Makefile) [b](#a-b-c)\n"
                                               "[c](https://example.org/x#y) [d](README.md)\n"),
                           ("tests/a.go", "\tx()\n"),
                           ("server/base/file.h",
                            '#pragma once\n\n#include "server/base/status.h"\n')):
            self.assertEqual(self.findings(path, text), set())

    def test_long_files_are_asked_about(self):
        contents = {"Makefile": "", "server/base/file.c": "int x;\n" * 601}
        self.assertEqual(self.findings("server/base/file.c", contents["server/base/file.c"]),
                         {"sources listed"})
        self.assertEqual(list(lint.long_files(contents)),
                         ["note: server/base/file.c: 601 lines. Is it one idea?"])

    def test_folder_sizes(self):
        for count, expected in ((25, 0), (26, 1)):
            files = ["kernels/a/%d.h" % i for i in range(count)]
            self.assertEqual(len(list(lint.rule_folder_sizes(files, {}))), expected)

    def test_circles(self):
        def found(*pairs):
            contents = {"server/%s.h" % name: "".join('#include "server/%s.h"\n' % other
                                                      for other in others.split())
                        for name, others in pairs}
            return [path for path, _, _ in lint.rule_circles(list(contents), contents)]
        self.assertEqual(found(("a/a", "b/b"), ("b/b", "a/c"), ("a/c", "a/a")), ["server/a/a.h"])
        self.assertEqual(found(("a/a", "a/b"), ("a/b", "a/a b/c"), ("b/c", "")), [])

    def test_mutation(self):
        """Finds names in mutation testing that lead nowhere, and only these."""
        text = (ROOT / lint.MUTATION).read_text()  # its last TESTS and AREAS count
        files = ["server/oip/raw.c", "tests/e2e/oip/test_infer.py", lint.MUTATION]
        contents = {lint.MUTATION: text + """
AREAS = ("server/oip/", "server/gone/")
TESTS = (Tests("server/oip/", "raw|ra*|gone_*", (), ("test_infer", "test_gone")),)
""", "tests/unit/oip/test_raw.c": "Test(raw, a)\n{\n}\n"}
        self.assertEqual(sorted(what for _, _, what in lint.rule_mutation(files, contents)),
                         ["there is no file server/gone/", "there is no module test_gone",
                          "there is no suite gone_*"])


if __name__ == "__main__":
    unittest.main()
