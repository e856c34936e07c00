"""Translation of many sentences: one line in, one line out, in order, whatever the line holds."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vaswani_transformer import TranslationPipeline
from vaswani_transformer.cli import main
from vaswani_transformer.translation import load_model, load_pipeline, translate

SENTENCES = ["Tom is here.", "", "a", "The old woman opens the window because it is warm.", "  ", "x" * 30, "Yes."]


@pytest.fixture(scope="module")
def pipeline(model_folder: Path) -> TranslationPipeline:
    return load_pipeline(str(model_folder))


def one_by_one(folder: Path, sentences: list[str], **options: int) -> list[str]:
    """Translations of each sentence alone, by `generate()` itself."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for sentence in sentences:
        batch = tokenizer(sentence, return_tensors="pt")
        text = tokenizer.decode(model.generate(**batch, **options)[0], skip_special_tokens=True)
        found.append(" ".join(text.split()) if sentence.strip() else "")
    return found


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("batch_tokens", [1, 40, 2048])
def test_batches_equal_single_sentences(
    pipeline: TranslationPipeline, model_folder: Path, batch_tokens: int, num_beams: int
) -> None:
    options = {"num_beams": num_beams, "max_new_tokens": 12}
    found = list(translate(pipeline, SENTENCES, batch_tokens=batch_tokens, **options))
    assert found == one_by_one(model_folder, SENTENCES, **options)
    assert found[1] == found[4] == ""
    assert found[0]


def test_windows_keep_the_order(pipeline: TranslationPipeline) -> None:
    options = {"num_beams": 1, "max_new_tokens": 5}
    assert list(translate(pipeline, iter(SENTENCES), window=2, **options)) == list(
        translate(pipeline, SENTENCES, **options)
    )


def test_a_long_sentence_is_cut_with_a_warning(
    pipeline: TranslationPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="vaswani_transformer"):
        found = list(translate(pipeline, ["Tom.", "x y " * 25_000, "Tom."], num_beams=1, max_new_tokens=3))
    assert len(found) == 3
    assert found[0] == found[2]
    assert [record.getMessage() for record in caplog.records] == [
        f"sentence 2: cut from {len(pipeline.tokenizer('x y ' * 25_000)['input_ids']):,} to 40 tokens, the longest "
        "that the model was trained on"
    ]


def test_a_translation_is_one_line(pipeline: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(pipeline.tokenizer), "decode", lambda *_, **__: " a\nb\r\n\tc ")
    assert list(translate(pipeline, ["Tom."], num_beams=1, max_new_tokens=2)) == ["a b c"]


def command(arguments: list[str], text: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    return main(["translate", *arguments])


def test_the_command_keeps_lines_apart(
    model_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["Tom.", "", "a\x00b\x00", "Zeile\u2028mit\x85Trennern\x0b", "\tTab\t", "日本語 😀", "</s> <pad>"] + [
        ""
    ] * 50
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = [str(model_folder), "--num-beams", "1"]
    assert main(["translate", *flags, "--input", str(source), "--output", str(target)]) == 0
    written = target.read_text(encoding="utf-8").split("\n")
    assert len(written) == len(lines) + 1
    assert [bool(line) for line in written[:-1]] == [bool(line) for line in lines]
    assert command(flags, source.read_bytes(), monkeypatch) == 0
    assert capfd.readouterr().out == target.read_text(encoding="utf-8")


def test_ten_thousand_empty_lines(model_folder: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n" * 10_000)
    assert main(["translate", str(model_folder), "--input", str(source), "--output", str(target)]) == 0
    assert target.read_text() == "\n" * 10_000


def test_lines_of_several_sentences(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencex")
    one, two = "Where is the book?", "My father drinks coffee."
    source = tmp_path / "in.txt"
    source.write_text(f"{one} {two}\n\n{one}\n{two}\n{f'{two} ' * 40}\n")
    assert main(["translate", "tatoeba-en-de", "--input", str(source), "--split-sentences", "en"]) == 0
    captured = capfd.readouterr()
    both, nothing, first, second, many = captured.out.splitlines()
    assert (both, nothing) == (f"{first} {second}", "")
    assert many == " ".join([second] * 40)
    assert "cut" not in captured.err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["translate", "tatoeba-en-de", "--input", str(source), "--split-sentences", "en"]) == 2
    assert capfd.readouterr().err.endswith("--split-sentences needs the package sentencex: pip install sentencex\n")


def test_no_input_gives_no_output(
    model_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command([str(model_folder)], b"", monkeypatch) == 0
    assert capfd.readouterr().out == ""


def test_a_reader_that_stops_early_is_no_error(model_folder: Path) -> None:
    shell = f"yes 'a b' | {sys.executable} -m vaswani_transformer translate {model_folder} --num-beams 1 | head -n 2"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120)
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr


def test_half_precision_weights_are_float32_in_memory(model_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(str(model_folder))
    model.half().save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    assert {parameter.dtype for parameter in load_model(str(tmp_path / "half"))[0].parameters()} == {torch.float32}
