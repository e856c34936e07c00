"""The demo as it is served: its port, calls and malformed requests, and many visitors at once."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from demo_server import MARKUP, MODEL, NO_NUMBERS, TEXTS, Page, call, free_port, post, serve

from vaswani_transformer import TranslationPipeline, demo
from vaswani_transformer.attention import read_attention
from vaswani_transformer.attention_picture import AttentionPicture
from vaswani_transformer.demo_page import show_translations
from vaswani_transformer.demo_translation import DemoTranslator
from vaswani_transformer.errors import InputError
from vaswani_transformer.pictures import to_svg


@pytest.fixture(scope="module")
def url(pipeline: TranslationPipeline) -> Iterator[str]:
    with serve(pipeline, MODEL) as address:
        yield address


def test_a_port_that_is_taken_or_none_is_refused(pipeline: TranslationPipeline) -> None:
    pytest.importorskip("gradio", reason="needs Gradio: pip install gradio")
    for port in (0, 70_000):
        with pytest.raises(InputError, match=f"--port: expected a number from 1 to 65535, got {port}"):
            demo.run_demo(pipeline, MODEL, port)
    with socket.socket() as other:
        other.bind((demo.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"--port: {port} is taken"):
            demo.run_demo(pipeline, MODEL, port)


def test_it_runs_until_ctrl_c(
    pipeline: TranslationPipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gradio", reason="needs Gradio: pip install gradio")
    port = free_port()
    seen = []

    def interrupt(seconds: float) -> None:
        event, answer = call(f"http://127.0.0.1:{port}/", "translate", "Hi.", 1, 0)
        seen.append((event, "Hallo!" in Page(answer[0]).lines))
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "time", SimpleNamespace(sleep=interrupt))
    demo.run_demo(pipeline, MODEL, port)
    assert seen == [("complete", True)]
    output = capsys.readouterr()
    assert output.err == f"{MODEL} translates at http://127.0.0.1:{port}/ until Ctrl-C\n"
    assert output.out == ""
    with socket.socket() as freed:
        assert freed.connect_ex((demo.HOST, port)) != 0


def test_a_call_gives_the_translation_and_the_sentences_to_choose_from(url: str, translator: DemoTranslator) -> None:
    text = "Where is the book? Привет! She has two cats."
    event, (html, chosen, heads, picture) = call(url, "translate", text, 4, 1.4)
    assert event == "complete"
    assert html == show_translations(translator.translate(text, 4, 1.4), 1.4)
    assert [value for _, value in chosen["choices"]] == ["Where is the book?", "She has two cats."]
    assert chosen["value"] == "Where is the book?"
    assert (heads["open"], picture) == (False, "")


def test_heads_are_drawn_as_by_the_command(url: str, pipeline: TranslationPipeline) -> None:
    sentence = "She has two cats."
    pieces, words = (read_attention(pipeline, sentence, words=each) for each in (False, True))
    for values, picture in (
        (("alignment", 1, demo.EVERY, False), AttentionPicture(words)),
        (("encoder", 3, demo.MEAN, True), AttentionPicture(words, "encoder", layers=[3], average=True)),
        (("cross", 7, 2, False), AttentionPicture(pieces, "cross", layers=[1], heads=[2])),
    ):
        event, (layer, head, _, html) = call(url, "attention", sentence, *values, 4, 1.4)
        svg = to_svg(picture.draw())
        assert event == "complete"
        assert svg[svg.index("<svg") :] in html
        of_heads = values[0] != "alignment"
        assert (layer["visible"], head["visible"]) == (of_heads, of_heads)
        assert len(layer["choices"]) == (3 if values[0] == "encoder" else 1)


def test_whatever_is_sent_meets_a_message(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    for values, text in (
        (("", 4, 1), "Write something"),
        ((None, 4, 1), "Expected a text"),
        ((7, 4, 1), "Expected a text"),
        (("secret" * 1_000, 4, 1), "6,000 characters"),
        *((("secret", value, 1), "Beams must be") for value in NO_NUMBERS),
        *((("secret", 4, value), "Alpha must be") for value in NO_NUMBERS if value != ""),
        (("secret\ud800\0", 4, 1), "score"),
    ):
        event, answer = call(url, "translate", *values)
        assert (event, text in answer[0]) == ("complete", True), values
    for values, text in (
        ((None,) * 7, "Translate something first"),
        (("", "cross", 1, 1, True, 4, 1), "Write something"),
        (("Привет", "cross", 1, 1, True, 4, 1), "hardly knows"),
        (("secret", None, None, None, None, 4, 1), "unknown kind of attention None"),
        (("secret", "self", 1, 1, True, 4, 1), "unknown kind of attention self"),
        (("secret", "cross", 1, 99, True, 4, 1), "head 99: this attention has heads 1 to 4"),
        (("secret", "cross", 1, "all", True, 4, 1), "Heads must be one of those"),
        (("secret", "cross", 1, 1.5, True, 4, 1), "Heads must be one of those"),
        (("secret", "cross", 1, 1, True, 0, 1), "Beams must be"),
    ):
        event, answer = call(url, "attention", *values)
        assert (event, text in answer[-1]) == ("complete", True), values
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    for values in ((), ("secret",), (["secret"], 4, 1), ({"secret": 1}, 4, 1), (file, 4, 1)):
        assert call(url, "translate", *values) == (
            "error",
            {"error": "Expected 3 texts, numbers or truth values.", "duration": 10, "visible": True, "title": "Error"},
        )
    api = f"{url}gradio_api/"
    for path, body in (
        ("call/translate", b"{secret"),
        ("call/translate", {"data": "secret"}),
        ("call/secret", {"data": []}),
        ("call/v2/secret", {"text": "x"}),
        ("call/v2/translate", {"secret": "x"}),
        ("run/translate", {"data": ["secret", 4, 1]}),
        ("queue/join", {"data": ["secret"], "fn_index": 999, "session_hash": "x"}),
        ("queue/join", {"data": None, "fn_index": 0, "session_hash": "x"}),
        ("queue/join", {}),
    ):
        status, answer = post(api + path, body)
        assert 400 <= status < 500, (path, status)
        assert "Traceback" not in answer
    # Neither an error of ours nor a word of a visitor is left in the terminal.
    output = capfd.readouterr()
    assert "Traceback" not in output.out + output.err
    assert "secret" not in output.out + output.err


def test_nothing_is_asked_of_others(pipeline: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []
    connect = socket.socket.connect
    monkeypatch.setattr(
        socket.socket, "connect", lambda self, address: (hosts.append(address[0]), connect(self, address))[1]
    )
    with serve(pipeline, MODEL) as address:
        call(address, "translate", "Hi.", 4, 1)
    assert set(hosts) == {demo.HOST}


def visit_together(url: str, pipeline: TranslationPipeline, seconds: float) -> tuple[Counter[str], float]:
    """What 8 visitors, each with texts of its own, got in so many seconds, and how long the slowest answer took.

    Each asks four times at least, and one time of four for something malformed.
    """
    expected = {text: pipeline(text)[0]["translation_text"] for text in TEXTS}
    malformed: list[tuple[Any, ...]] = [
        ("", 4, 1.4), ("x" * 9_000, 4, 1.4), ("Hi.", "x", None), (None,) * 3, ("Привет!", 4, 1.4), (MARKUP, 4, 1.4),
        ("Hi.",), ([], {}, 1), ("Hi. " * 300, 10, 1.4), ("\ud800\0\u202e", 4, 1.4),
    ]  # fmt: skip
    kinds: list[str] = []
    times: list[float] = []
    ends = time.monotonic() + seconds

    def visit(visitor: int) -> None:
        turn = visitor
        while turn < visitor + 4 or time.monotonic() < ends:
            turn += 1
            started = time.monotonic()
            if turn % 4 == 0:
                event, answer = call(url, "translate", *malformed[turn // 4 % len(malformed)])
                fine = answer["error"] is not None if event == "error" else bool(answer[0])
                kind = "malformed"
            else:
                # A number of its own tells an answer from those of all others.
                text = TEXTS[(visitor + turn) % len(TEXTS)]
                event, answer = call(url, "translate", f"{text}\nNumber {visitor} {turn}", 4, 1.4)
                lines = Page(answer[0]).lines if event == "complete" else []
                fine = lines[:2] == [text, expected[text]] and f"Number {visitor} {turn}" in lines
                kind = "translated"
            times.append(time.monotonic() - started)
            kinds.append(kind if fine else f"{kind} wrongly")
        kinds.append("visitors")

    threads = [threading.Thread(target=visit, args=(visitor,)) for visitor in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=seconds + 120)
    return Counter(kinds), max(times)


def check_visits(counts: Counter[str], slowest: float) -> None:
    print(f"{dict(counts)}, the slowest answer after {slowest:.2f} seconds")
    assert counts["visitors"] == 8
    assert set(counts) == {"visitors", "translated", "malformed"}
    assert counts["translated"] >= 8 * 3
    assert slowest < 60


def test_eight_visitors_each_get_their_own(url: str, pipeline: TranslationPipeline) -> None:
    check_visits(*visit_together(url, pipeline, 0))


@pytest.mark.slow
def test_eight_visitors_for_a_minute(
    url: str, pipeline: TranslationPipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    counts, slowest = visit_together(url, pipeline, 60)
    assert "Traceback" not in capfd.readouterr().err
    check_visits(counts, slowest)
