"""What the demo computes and shows, against the model: translations, scores, alignments, messages; and the Space."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from conftest import Refused
from demo_server import MARKUP, MODEL, NO_NUMBERS, SENTENCE, TEXTS, Page

from vaswani_transformer import TranslationPipeline, demo
from vaswani_transformer.cli import main
from vaswani_transformer.ctranslate2_export import export_ctranslate2
from vaswani_transformer.demo_page import show_message, show_translations
from vaswani_transformer.demo_translation import (
    MOST_BEAMS,
    MOST_CANDIDATES,
    DemoTranslator,
    clean,
    known_characters,
    search_settings,
)
from vaswani_transformer.errors import InputError
from vaswani_transformer.translation import load_model

SPACE = Path(__file__).parents[1] / "scripts" / "space"


@pytest.mark.parametrize("alpha", [0.0, 1.4])
def test_scores_are_those_of_the_search_and_of_the_forced_translation(
    pipeline: TranslationPipeline, translator: DemoTranslator, alpha: float
) -> None:
    model, tokenizer = pipeline.model, pipeline.tokenizer
    for sentence in TEXTS[:3]:
        [found] = translator.translate(sentence, 4, alpha)
        batch = tokenizer([sentence], return_tensors="pt")
        searched = model.generate(
            **batch,
            num_beams=4,
            num_return_sequences=4,
            length_penalty=alpha,
            return_dict_in_generate=True,
            output_scores=True,
        )
        expected: dict[str, tuple[float, torch.Tensor]] = {}
        for sequence, score in zip(searched.sequences, searched.sequences_scores.tolist(), strict=True):
            expected.setdefault(tokenizer.decode(sequence, skip_special_tokens=True), (score, sequence))
        assert [each.text for each in found.candidates] == list(expected)
        for each in found.candidates:
            score, sequence = expected[each.text]
            assert each.score == pytest.approx(score, abs=1e-4)
            # One token after the other, each given those before it, up to the end.
            total, tokens = 0.0, 0
            for place, token in enumerate(sequence.tolist()[1:], 1):
                with torch.no_grad():
                    logits = model(**batch, decoder_input_ids=sequence[None, :place]).logits[0, -1]
                total, tokens = total + float(logits.log_softmax(dim=-1)[token]), tokens + 1
                if token == tokenizer.eos_token_id:
                    break
            assert (each.log_probability, each.tokens) == (pytest.approx(total, abs=1e-4), tokens)
            assert each.score == pytest.approx(total / ((5 + tokens) / 6) ** alpha, abs=1e-4)


def test_words_are_aligned_as_by_the_pipeline(pipeline: TranslationPipeline, translator: DemoTranslator) -> None:
    for sentence in (*TEXTS, "Tom's naïve cat isn't in 東京 for $5."):
        [found] = translator.translate(sentence, 4, 1.4)
        [record] = pipeline(sentence, return_alignments=True)
        best = found.candidates[0]
        assert best.text == record["translation_text"]
        aligned = [(start, end, found.words[source][0]) for start, end, source in best.words]
        keys = ("target_start", "target_end", "source_start")
        assert aligned == [tuple(each[key] for key in keys) for each in record["alignments"]]
        assert [best.text[start:end] for start, end, _ in best.words] == [
            each["target"] for each in record["alignments"]
        ]


def test_a_text_is_translated_sentence_by_sentence(pipeline: TranslationPipeline, translator: DemoTranslator) -> None:
    sentences = translator.translate("  Where is Mr. Smith? \n\n He left. ", 4, 1.4)
    assert [each.source for each in sentences] == ["Where is Mr. Smith?", "He left."]
    expected = pipeline([each.source for each in sentences])
    assert [each.candidates[0].text for each in sentences] == [each["translation_text"] for each in expected]


@pytest.mark.parametrize("beams", [1, 4, MOST_BEAMS])
def test_the_best_translations_are_different_and_in_order(translator: DemoTranslator, beams: int) -> None:
    for sentence in translator.translate(" ".join(TEXTS), beams, 1.4):
        scores = [each.score for each in sentence.candidates]
        assert 1 <= len(scores) <= min(beams, MOST_CANDIDATES)
        assert scores == sorted(scores, reverse=True)
        assert len({each.text for each in sentence.candidates}) == len(scores)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\0\x01", "\ud800\udfff", "\u200f\u202e\u2066\ufeff", "\u00a0\u3000"], ids=ascii
)
def test_there_must_be_a_text(translator: DemoTranslator, text: str) -> None:
    with pytest.raises(InputError, match="Write something to translate, or take one of the examples"):
        translator.translate(text, 4, 1.4)


@pytest.mark.parametrize("text", [None, 5, ["Hi."], {"text": "Hi."}, b"Hi."])
def test_a_text_must_be_a_text(translator: DemoTranslator, text: object) -> None:
    with pytest.raises(InputError, match="Expected a text"):
        translator.translate(text, 4, 1.4)


def test_too_much_is_refused_with_the_numbers(translator: DemoTranslator) -> None:
    with pytest.raises(InputError, match="6,000 characters, and the demo takes 5,000"):
        translator.translate("a" * 6_000, 4, 1.4)
    with pytest.raises(InputError, match="1,000 sentences, and the demo takes 100"):
        translator.translate("Hi. " * 1_000, 4, 1.4)
    long = "a " * 120 + "end."
    first, second = translator.translate(f"Hi. {long}", 4, 1.4)
    assert first.candidates
    assert not first.problem
    assert not second.candidates
    assert re.search(r"12\d tokens are more than the 100 that the model was trained on", second.problem)


@pytest.mark.parametrize("value", [*NO_NUMBERS, [], {}, 2.5])
def test_beams_must_be_a_whole_number_in_the_range(value: Any) -> None:
    with pytest.raises(InputError, match="Beams must be a whole number from 1 to 10"):
        search_settings(value, 1.0)


@pytest.mark.parametrize("value", [*NO_NUMBERS, [], {}])
def test_alpha_must_be_a_number_in_the_range(value: Any) -> None:
    if value != "":
        with pytest.raises(InputError, match="Alpha must be a number from 0 to 3"):
            search_settings(4, value)
    assert search_settings(4.0, 2) == {"num_beams": 4, "length_penalty": 2.0, "length_penalty_type": "gnmt"}


@pytest.mark.parametrize(
    "sentence",
    [
        "Привет, мир!",
        "我不知道他想買什麼。",
        "שלום עולם",
        "مرحبا بالعالم",
        "नमस्ते दुनिया",
        "Γειά σου κόσμε",
        "😀😀",
        "٣٤",
    ],
)
def test_foreign_text_is_not_translated(translator: DemoTranslator, sentence: str) -> None:
    [found] = translator.translate(sentence, 4, 1.4)
    assert not found.candidates
    assert "the model hardly knows these characters" in found.problem
    assert clean(sentence)[0] in found.problem


def test_a_little_that_is_foreign_is_translated_with_a_warning(translator: DemoTranslator) -> None:
    [found] = translator.translate("Tom's naïve cat is in 東京 😀.", 4, 1.4)
    assert found.candidates
    assert found.remark == "The model hardly knows ï 東 京 😀, and may garble it."
    [found] = translator.translate("Über die Straße, “Tom” – a well-known word: 12 %.", 4, 1.4)
    assert (found.problem, found.remark) == ("", "")


def test_known_characters_are_those_of_a_token_of_their_own(pipeline: TranslationPipeline) -> None:
    known = known_characters(pipeline.tokenizer)

    def pieces(text: str) -> int:
        return len(pipeline.tokenizer.tokenize(f"x{text}")) - len(pipeline.tokenizer.tokenize("x"))

    for character in [*map(chr, range(0x21, 0x7F)), *"äöüßÄÖÜ–“éïñ東П😀"]:
        fewest = min(pieces(character), pieces(f" {character}"))
        assert (fewest <= 1) == (character in known), character


def test_what_is_not_seen_is_left_out() -> None:
    assert clean("a\0b\x07c\ud800d\u202ee\u200ff\ufeffg") == "abcdefg"
    assert clean("e\u0301") == "é"
    assert clean("a\tb\nc\u2028d \u3000") == "a\tb\nc\u2028d \u3000"
    assert clean("नि\u200dष") == "नि\u200dष"


@pytest.mark.parametrize(
    "text",
    ["x" * 90, "1", "<s> </s> <pad> <unk>", "\u0301a", "...", '"' * 50, "(" * 50, "a\u2028b\x85c", MARKUP, "$$"],
)
def test_odd_texts_are_translated_and_shown(translator: DemoTranslator, text: str) -> None:
    sentences = translator.translate(text, 4, 1.4)
    page = Page(show_translations(sentences, 1.4))
    assert page.lines[0] == sentences[0].source


def test_no_text_is_taken_for_markup(translator: DemoTranslator) -> None:
    sentences = translator.translate(f"{MARKUP} Привет!", 4, 1.4)
    html = show_translations(sentences, 1.4)
    page = Page(html)
    ours = {"ol", "li", "p", "span", "details", "summary", "table", "tr", "th", "td", "sup"}
    assert set(page.tags) <= ours
    assert {sentence.source for sentence in sentences} <= set(page.lines)
    message = Page(show_message(MARKUP))
    assert (message.text, set(message.tags)) == (MARKUP, {"p"})


def test_the_page_shows_scores_and_what_each_word_is_aligned_with(translator: DemoTranslator) -> None:
    [sentence] = translator.translate(SENTENCE, 4, 1.4)
    page = Page(show_translations([sentence], 1.4))
    best = sentence.candidates[0]
    assert page.lines == [SENTENCE, best.text, *(each.text for each in sentence.candidates)]
    source = [(str(number), SENTENCE[start:end]) for number, (start, end) in enumerate(sentence.words)]
    target = [(str(number), best.text[start:end]) for start, end, number in best.words]
    assert page.words[: len(source) + len(target)] == source + target
    assert ("3", "tomorrow") in source
    assert ("3", "morgen") in target
    for each in sentence.candidates:
        assert f"{each.score:.3f}".replace("-", "−") in page.text
    assert "((5 + n) / 6)1.4" in page.text


@pytest.mark.parametrize("package", ["gradio", "matplotlib", "sentencex"])
def test_without_a_package_the_extra_is_named(
    pipeline: TranslationPipeline, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for attempt in (
        demo.require_gradio,
        lambda: demo.create_demo(pipeline, MODEL),
        lambda: demo.run_demo(pipeline, MODEL),
    ):
        with pytest.raises(InputError, match=re.escape("pip install 'vaswani-transformer[demo]'")) as raised:
            attempt()
        assert package in str(raised.value).lower()
        assert "\n" not in str(raised.value)


def test_mistakes_of_the_command(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    for arguments, text in (
        ([str(tmp_path / "no")], "no such model folder"),
        ([str(model_folder), "--port", "0"], "expected a whole number of at least 1, got 0"),
        ([str(model_folder), "--port", "65536"], "--port: expected a number from 1 to 65535, got 65536"),
        ([str(model_folder), "--prot", "1"], "unknown argument --prot"),
    ):
        refused(["demo", *arguments], text)
    pytest.importorskip("ctranslate2")
    export_ctranslate2(*load_model(str(model_folder)), tmp_path / "exported")
    refused(["demo", str(tmp_path / "exported")], "an exported model gives translations alone")
    monkeypatch.setitem(sys.modules, "gradio", None)
    refused(["demo", "no/such-model"], "the demo needs Gradio: pip install 'vaswani-transformer[demo]'")


def test_the_command_serves_the_model(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(demo, "run_demo", lambda *arguments, **more: served.append((arguments, more)))
    assert main(["demo", str(model_folder), "--port", "8123", "--source-lang", "fr"]) == 0
    assert main(["demo", str(model_folder)]) == 0
    (first, second), (pipeline, *_) = served, served[0][0]
    assert isinstance(pipeline, TranslationPipeline)
    assert (first[0][1:], first[1]) == ((str(model_folder), 8123), {"source_lang": "fr"})
    assert (second[0][1:], second[1]) == ((str(model_folder), 7860), {"source_lang": None})


def test_languages_are_read_from_the_name() -> None:
    names = {
        "tatoeba-de-en": "de",
        "user/my-model-fr-en": "fr",
        "runs/my-model": "en",
        "de-en": "de",
        "x.de-en2": "en",
    }
    assert {name: demo.source_language(name) for name in names} == names


def read_header() -> dict[str, Any]:
    text = (SPACE / "README.md").read_text(encoding="utf-8")
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, flags=re.DOTALL)[1])


def read_pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith(("#", "-")))


def test_the_header_of_the_space_is_valid() -> None:
    header = read_header()
    colors = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {header["colorFrom"], header["colorTo"]} <= colors
    assert header["sdk"] == "gradio"
    assert (SPACE / header["app_file"]).is_file()
    assert header["license"] == "apache-2.0"
    assert len(header["title"]) <= 40
    assert len(header["short_description"]) <= 60
    assert re.fullmatch(r"3\.\d+", header["python_version"])


def test_the_space_takes_the_versions_that_are_tested() -> None:
    pins = read_pins(SPACE / "requirements.txt")
    assert pins["gradio"] == str(read_header()["sdk_version"])
    repository = read_pins(SPACE.parents[1] / "requirements.txt")
    for name, version in pins.items():
        if name in repository:
            assert version.removesuffix("+cpu") == repository[name], name
    assert {"torch", "transformers", "gradio", "matplotlib", "sentencex", "vaswani-transformer"} <= set(pins)


@pytest.mark.parametrize("named", [False, True])
def test_the_space_builds_the_app(named: bool, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradio = pytest.importorskip("gradio", reason="needs Gradio: pip install gradio")
    monkeypatch.delenv("MODEL", raising=False)
    if named:
        monkeypatch.setenv("MODEL", str(model_folder))
    app = load_app()
    assert isinstance(app.demo, gradio.Blocks)
    assert app.demo.title == f"{model_folder if named else MODEL}: translation"


def load_app() -> ModuleType:
    specification = importlib.util.spec_from_file_location("space_app", SPACE / "app.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
