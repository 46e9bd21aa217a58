"""Finds the code blocks of a page: ```sh and ```python, each with the ```text right after it, which
is its expected output."""
import re
from typing import NamedTuple

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n*^```text\n(.*?)^```\n)?",
                   re.MULTILINE | re.DOTALL)
URL_HOST = "127.0.0.1:8000"  # the server that a page starts


class Block(NamedTuple):
    language: str
    code: str
    expected: str


def blocks(page):
    """Returns the code blocks of a page's text, in their order."""
    return [Block(*found) for found in BLOCK.findall(page)]


def blur(text):
    """Replaces times, which differ between runs, and the kernel, which differs between CPUs."""
    text = re.sub(r'"(receive|queue|decode|compute)_us":[0-9.]+', r'"\1_us":0', text)
    return re.sub(r'"kernel":"[\w+]+"', '"kernel":"k"', text).strip("\n")
