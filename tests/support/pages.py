"""The code blocks of a page: ```sh and ```python, and the ```text right behind one, which is what
it prints."""
import re
from typing import NamedTuple

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n*^```text\n(.*?)^```\n)?",
                   re.MULTILINE | re.DOTALL)
URL_HOST = "127.0.0.1:8000"  # of the server that a page starts


class Block(NamedTuple):
    language: str
    code: str
    expected: str


def blocks(page):
    """Of a page's text, in their order."""
    return [Block(*found) for found in BLOCK.findall(page)]


def blur(text):
    """Times differ from run to run, and the kernel from CPU to CPU."""
    text = re.sub(r'"(receive|queue|decode|compute)_us":[0-9.]+', r'"\1_us":0', text)
    return re.sub(r'"kernel":"[\w+]+"', '"kernel":"k"', text).strip("\n")
