"""HAProxy accepts haproxy.cfg with the variables of its README and of compose.yaml."""
import os
import re
import subprocess
import unittest

from fleet import CONFIGURATION, HAPROXY
from pages import blocks

PATH = os.path.dirname(HAPROXY) + ":" + os.environ["PATH"]
VARIABLES = set(re.findall(r"^ *presetenv (\w+) ", CONFIGURATION.read_text(), re.MULTILINE))


class Configuration(unittest.TestCase):
    def check(self, variables):
        """Checks the configuration with these variables. Returns HAProxy's warnings."""
        self.assertLessEqual(set(variables), VARIABLES)
        result = subprocess.run([HAPROXY, "-c", "-f", str(CONFIGURATION)],
                                env={"PATH": PATH, **variables}, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return re.findall(r"^\[(?:WARNING|ALERT)\].*", result.stderr, re.MULTILINE)

    def test_as_it_is(self):
        self.assertEqual(self.check({}), [])

    def test_of_the_readme(self):
        page = (CONFIGURATION.parent / "README.md").read_text()
        code, = [block.code for block in blocks(page) if "REPLICA_1=" in block.code]
        self.assertEqual(self.check(dict(re.findall(r"(\w+)=(\S+)", code))), [])
        result = subprocess.run(["sh", "-euc", code.replace(" -dMglobal ", " -dMglobal -c ")],
                                cwd=CONFIGURATION.parent.parent.parent, env={"PATH": PATH},
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, "Configuration file is valid\n"),
                         result.stderr)

    def test_of_compose(self):
        text = (CONFIGURATION.parent / "compose.yaml").read_text()
        part = re.search(r"^    environment:\n((?:      .*\n)+)", text, re.MULTILINE)[1]
        variables = dict(re.findall(r"^      (\w+): (\S+)$", part, re.MULTILINE))
        self.assertEqual(set(variables), {"LISTEN", "REPLICA_1", "REPLICA_2", "REPLICA_3"})
        for name, value in variables.items():
            if name != "LISTEN":
                self.assertIn("\n  %s: *quantd\n" % value.partition(":")[0], text)
        # The containers' names cannot be resolved here. HAProxy only warns of that.
        for warning in self.check(variables):
            self.assertIn("could not resolve address 'quantd-", warning)

    def test_a_mistake_is_found(self):
        with self.assertRaisesRegex(AssertionError, "nowhere"):
            self.check({"LISTEN": "nowhere"})


if __name__ == "__main__":
    unittest.main()
