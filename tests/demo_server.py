"""The demo, served for a test: what a visitor without a browser sends to it, and reads in its HTML."""

from __future__ import annotations

import json
import math
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import pytest

from vaswani_transformer import TranslationPipeline
from vaswani_transformer.demo import HOST, create_demo, launch_demo

MODEL = "tatoeba-en-de"
SENTENCE = "If it rains tomorrow, we will stay at home."
TEXTS = [
    SENTENCE,
    "Where is the book?",
    "I don't know what Tom wants to buy.",
    "She has two cats.",
    "We are learning German.",
    "The train was late yesterday.",
    "He closed the door.",
    "My brother lives in Boston.",
]
MARKUP = "<script>alert(1)</script> <img src=x onerror=alert(2)> ${alert(3)} {{value}} \"'&amp; </p>"
# What a visitor may send in place of a number or a text.
NO_NUMBERS = [None, "4", "", True, math.nan, math.inf, -math.inf, 10**400, -1, 99]


class Page(HTMLParser):
    """The elements of a piece of HTML, and the text of each line of words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.lines: list[str] = []
        self.words: list[tuple[str, str]] = []
        self.text = ""
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if ("data-line", None) in attributes:
            self.lines.append("")
            self.inside = tag
        if "data-source" in dict(attributes):
            self.words.append((dict(attributes)["data-source"], ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside:
            self.lines[-1] += data
        if self.lasttag == "span" and self.words and not self.words[-1][1]:
            self.words[-1] = (self.words[-1][0], data)


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


@contextmanager
def serve(pipeline: TranslationPipeline, name: str) -> Iterator[str]:
    """The address of the demo of a model."""
    pytest.importorskip("gradio", reason="the demo's tests need Gradio: pip install gradio")
    demo = create_demo(pipeline, name)
    launch_demo(demo, server_name=HOST, server_port=free_port(), prevent_thread_lock=True)
    try:
        yield demo.local_url
    finally:
        demo.close(verbose=False)


def post(url: str, body: Any) -> tuple[int, Any]:
    """The status and the answer to `body`, bytes or what becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def call(url: str, name: str, *values: Any) -> tuple[str, Any]:
    """The last event of a call of the demo's function `name`, `complete` or `error`, and what came with it."""
    status, answer = post(f"{url}gradio_api/call/{name}", {"data": values})
    assert status == 200, answer
    with urllib.request.urlopen(f"{url}gradio_api/call/{name}/{answer['event_id']}", timeout=120) as events:
        *_, last = events.read().decode().strip().split("\n\n")
    event, data = (line.split(": ", 1)[1] for line in last.splitlines())
    return event, json.loads(data)
