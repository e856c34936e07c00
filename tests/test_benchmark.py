"""The benchmarks of `scripts/`: their tables and records, their options, and one line for each mistake."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import benchmark
from engines import DEVICE, ENGINES, Engine, EngineProcess, load_engine
from trainers import TRAINERS, Work, load
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.errors import InputError
from vaswani_transformer.evaluation import score_translations
from vaswani_transformer.translation import load_model
from workload import Workload

SHAPE = "--preset tiny --vocab-size 300 --sentences 3 --source-tokens 4 --target-tokens 5 --num-beams 2"
MINUSCULE = SHAPE.split()
TINY = Workload("tiny", vocab_size=300, sentences=3, source_tokens=4, target_tokens=5, num_beams=2)
TORCH_ROWS = [f"{e}, {p}" for e in ("vaswani_transformer", "MarianMTModel") for p in ("float32", "bfloat16")]
CTRANSLATE2_PRECISIONS = ("float32", "int8") if DEVICE == "cpu" else ("float16", "bfloat16")
INSTALLED = importlib.util.find_spec("ctranslate2") is not None
needs_ctranslate2 = pytest.mark.skipif(not INSTALLED, reason="needs CTranslate2")


def fake_peak_memory(load: Any, warm_up: methodcaller, run: methodcaller) -> int:
    """The measurement without its process: does the work, and tells 3 MiB for each beam, or 7 where there is none."""
    engine = load()
    warm_up(engine)
    method, _, *rest = run.__reduce__()[1]
    return (3 * rest[0] if method == "generate" else 7) * 2**20


def process_of(engine: Engine) -> int:
    return os.getpid()


class InThisProcess(EngineProcess):
    """An engine without its process, which takes seconds to start."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self.engine = load()

    def run(self, work: Callable[[Engine], Any]) -> Any:
        return work(self.engine)

    def __exit__(self, *exception: object) -> None:
        pass


@pytest.fixture(autouse=True)
def measured_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "measure_peak_memory", fake_peak_memory)
    monkeypatch.setattr(benchmark, "EngineProcess", InThisProcess)


@pytest.fixture
def engine_model(tmp_path: Path) -> str:
    folder = str(tmp_path / "random")
    TINY.save_model(folder)
    return folder


def rows_of(output: str) -> dict[str, list[str]]:
    """The table's rows: name to figures."""
    lines = [line for line in output.splitlines() if line.startswith(tuple(ENGINES))]
    return {line[:30].rstrip(): line[30:].split() for line in lines}


def test_one_side_after_the_other_and_the_first_turn_does_not_count() -> None:
    calls = []

    def side(name: str) -> int:
        calls.append(name)
        return len(calls)

    seconds, results = benchmark.time_in_turns({"a": lambda: side("a"), "b": lambda: side("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert results == {"a": [3, 5], "b": [4, 6]}
    assert [len(times) for times in seconds.values()] == [2, 2]
    assert benchmark.rates([10, 10, 30], [1.0, 2.0, 1.0]) == {"median": 10, "min": 5, "max": 30}


def test_an_engine_works_in_a_process_of_its_own(engine_model: str, tmp_path: Path) -> None:
    with EngineProcess(partial(load_engine, "vaswani_transformer", engine_model, "float32")) as process:
        found = process.run(TINY.run())
        assert process.run(process_of) != os.getpid()
    assert found == TINY.run()(load_engine("vaswani_transformer", engine_model, "float32"))
    with pytest.raises(InputError, match="no such model folder"):
        EngineProcess(partial(load_engine, "vaswani_transformer", str(tmp_path / "absent"), "float32"))


@needs_ctranslate2
@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_engine_gives_exactly_the_tokens_asked_for(engine_model: str, engine: str) -> None:
    sources = TINY.sources()
    assert [len(source) for source in sources] == [4, 4, 4]
    assert all(4 <= token < 300 for source in sources for token in source)
    loaded: Engine = load_engine(engine, engine_model, "float32")
    for num_beams in (1, 3):
        assert [len(target) for target in loaded.generate(sources, num_beams, 6)] == [6, 6, 6]


@needs_ctranslate2
def test_the_engines_agree(engine_model: str) -> None:
    # One beam, so that no length penalty matters.
    sources = replace(TINY, sentences=5, source_tokens=8).sources()
    found = [load_engine(engine, engine_model, "float32").generate(sources, 1, 10) for engine in ENGINES]
    assert all(targets == found[0] for targets in found)


def test_the_starred_engine_has_the_others_length_penalty() -> None:
    engine = load_engine("vaswani_transformer*", "tatoeba-en-de", "float32")
    settings = engine.pipeline.model.generation_config
    assert (settings.length_penalty_type, settings.length_penalty, settings.num_beams) == ("transformers", 1.4, 4)


@needs_ctranslate2
@pytest.mark.parametrize("engine", ["MarianMTModel", "CTranslate2"])
def test_the_others_search_as_the_model_does(engine: str, tmp_path: Path) -> None:
    model, tokenizer = load_model("tatoeba-en-de")
    tokenizer.save_pretrained(tmp_path)
    sentence = ["I have been looking for you all day long, and now it is too late."]
    words = []
    for model.generation_config.length_penalty in (-9.0, 9.0):
        model.save_pretrained(tmp_path)
        words.append(len(load_engine(engine, str(tmp_path), "float32").translate(sentence)[0].split()))
    assert words[0] < words[1]


@needs_ctranslate2
@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_engine_translates(engine: str) -> None:
    # More than a batch of Marian's, an empty sentence, and one beyond the model's length.
    sentences = ["Tom forgot to close the window.", *["I see."] * 32, "", "She is a " + "very " * 200 + "good doctor."]
    found = load_engine(engine, "tatoeba-en-de", "float32").translate(sentences)
    assert len(found) == len(sentences)
    assert found[0] == "Tom vergaß, das Fenster zu schließen."
    assert set(found[1:33]) == {found[1]}


@needs_ctranslate2
def test_decode_prints_and_records_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.json"
    assert benchmark.main(["decode", *MINUSCULE, "--rounds", "2", "--json", str(record)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "tiny, 300 entries, random weights; 3 sentences of 4 tokens, 5 target tokens each, beam 2"
    )
    found = json.loads(record.read_text())
    names = [*TORCH_ROWS, *(f"CTranslate2, {precision}" for precision in CTRANSLATE2_PRECISIONS)]
    assert list(rows_of(output)) == list(found["rows"]) == names
    assert asdict(TINY).items() <= found.items()
    assert (found["device"], found["threads"]) == (DEVICE, torch.get_num_threads())
    assert found["versions"]["transformers"] == transformers.__version__
    reference = found["rows"]["MarianMTModel, float32"]["target_tokens_per_second"]["median"]
    for name, figures in found["rows"].items():
        tokens, sentences = figures["target_tokens_per_second"], figures["sentences_per_second"]
        assert 0 < tokens["min"] <= tokens["median"] <= tokens["max"]
        assert tokens["median"] == pytest.approx(5 * sentences["median"])
        assert figures["ratio"] == tokens["median"] / reference
        assert figures["peak_memory_bytes"] == 6 * 2**20
        assert rows_of(output)[name][-2:] == [f"{figures['ratio']:.2f}", "6"]


def test_decode_goes_on_without_ctranslate2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    assert benchmark.main(["decode", *MINUSCULE, "--rounds", "1"]) == 0
    captured = capsys.readouterr()
    assert list(rows_of(captured.out)) == TORCH_ROWS
    assert captured.err == (
        "benchmark.py: CTranslate2 is not installed; pip install 'vaswani-transformer[ctranslate2]' brings it; going "
        "on without it\n"
    )


def test_decode_of_a_real_model_has_bleu(
    corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.json"
    pairs = corpus_files["validation"].read_text(encoding="utf-8").splitlines()[:6]
    sources, references = zip(*(pair.split("\t") for pair in pairs), strict=True)
    files = [tmp_path / "test.en", tmp_path / "test.de"]
    for file, side in zip(files, (sources, references), strict=True):
        file.write_text("\n".join(side) + "\n", encoding="utf-8")
    arguments = ["--model", "tatoeba-en-de", "--test-file", *map(str, files), "--rounds", "1", "--json", str(record)]
    assert benchmark.main(["decode", *arguments]) == 0
    found = json.loads(record.read_text())
    names = [f"vaswani_transformer{row}" for row in (", float32", ", bfloat16", "*, float32")]
    names.append("MarianMTModel, float32")
    names += [f"CTranslate2, {precision}" for precision in CTRANSLATE2_PRECISIONS if INSTALLED]
    assert (found["model"], found["sentences"], list(found["rows"])) == ("tatoeba-en-de", 6, names)
    rows = rows_of(capsys.readouterr().out)
    for name, figures in found["rows"].items():
        engine, precision = name.split(", ")
        translations = load_engine(engine, "tatoeba-en-de", precision).translate(list(sources))
        assert figures["bleu"] == score_translations(translations, list(references))["bleu"] > 0
        assert rows[name][-2:] == ["7", f"{figures['bleu']:.2f}"]


def test_memory_prints_and_records_both_beams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.json"
    assert benchmark.main(["memory", *MINUSCULE, "--json", str(record)]) == 0
    found = json.loads(record.read_text())
    names = ["vaswani_transformer, float32", "MarianMTModel, float32"]
    assert found["rows"] == {
        name: {"beam_bytes": 6 * 2**20, "greedy_bytes": 3 * 2**20, "ratio": 2.0} for name in names
    }
    assert rows_of(capsys.readouterr().out) == {name: ["6", "3", "2.00"] for name in names}


def test_the_defaults_are_those_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert Workload() == Workload("base", 16_000, 32, 20, 24, 4)
    assert Workload("base", 16_000, 64, 200, 24, 4) == benchmark.MEMORY_WORKLOAD
    for name, sentences in (("decode", 32), ("memory", 64)):
        with pytest.raises(SystemExit, match="0"):
            benchmark.main([name, "--help"])
        assert f"in one batch (default: {sentences})" in " ".join(capsys.readouterr().out.split())


class FakeTrainer:
    """Knows what an update amounts to."""

    def __init__(self, name: str, settings: Any, folder: Path, bf16: bool) -> None:
        assert (settings.preset, settings.batch_tokens, len(load(folder)[1])) == ("tiny", 300, 500)
        self.scale = (1 + list(TRAINERS).index(name)) * (2 if bf16 else 1)

    def update(self) -> Work:
        return Work(target_tokens=10 * self.scale, tokens=15, positions=20, flops=10**9 * self.scale)


def test_train_compares_all_loops(
    corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each side takes a second for an update.
    clock = itertools.count()
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(benchmark, "load_trainer", FakeTrainer)
    monkeypatch.setattr(benchmark, "train_for", lambda trainer, seconds: trainer.update())
    monkeypatch.setattr(benchmark, "measure_peak_memory", lambda *arguments: 3 * 2**20)
    files = ["--train-file", str(corpus_files["train"]), "--preset", "tiny", "--vocab-size", "500"]
    record = tmp_path / "record.json"
    flags = ["--batch-tokens", "300", "--seconds", "1", "--rounds", "2", "--json", str(record)]
    assert benchmark.main(["train", *files, *flags]) == 0
    found = json.loads(record.read_text())
    loops = list(TRAINERS)[:-1]
    assert list(found["rows"]) == [f"{loop}, {precision}" for loop in loops for precision in ("bfloat16", "float32")]
    products = found["matrix_product_flops_per_second"]
    assert [products[name]["median"] for name in ("bfloat16", "float32")] == [8e9, 4e9]
    lines = capsys.readouterr().out.splitlines()
    for number, (loop, row) in enumerate(found["rows"].items()):
        speed = 10 * (1 + number // 2) * (1 if number % 2 else 2)
        assert row["target_tokens_per_second"] == {"median": speed, "min": speed, "max": speed}
        assert row["ratio"] == speed / 20  # Marian's in float32
        assert row["model_flop_utilisation"] == (1 + number // 2) / 4
        assert (row["padding"], row["peak_memory_bytes"]) == (0.25, 3 * 2**20)
        (line,) = (line for line in lines if line.startswith(loop))
        assert line[40:].split()[-4:] == [f"{speed / 20:.2f}", f"{(1 + number // 2) / 4:.0%}", "3", "25.0%"]


REAL = ["decode", "--model", "tatoeba-en-de", "--test-file"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "BENCHMARK"),
        (["decoding"], "decoding"),
        (["decode", "--beams", "4"], "unknown argument --beams"),
        (["decode", "--preset", "huge"], "huge"),
        (["decode", "--rounds", "0"], "--rounds: expected a whole number of at least 1, got 0"),
        (["train", "--train-file", "x", "--seconds", "-1"], "--seconds: expected a whole number of at least 1"),
        (["train", "--train-file", "x", "--preset", "huge"], "huge"),
        (["memory", "--sentences", "many"], "--sentences: expected a whole number of at least 1, got many"),
        (["decode", "--vocab-size", "4"], "--vocab-size must be above 4"),
        (["decode", "--target-tokens", "1025"], "--target-tokens must be at most 1,024"),
        (["memory", "--source-tokens", "2000"], "--source-tokens must be at most 1,024"),
        (["decode", "--model", "tatoeba-en-de"], "--model and --test-file go together"),
        (["decode", "--test-file", "test.tsv"], "--model and --test-file go together"),
        ([*REAL, "test.tsv", "--num-beams", "2"], "--num-beams is for random weights"),
        ([*REAL, "nowhere.tsv"], "nowhere.tsv"),
        (["train", "--train-file", "nowhere.tsv"], "nowhere.tsv"),
        (["memory", "--json", "nowhere/x.json"], "nowhere/x.json: there is no folder"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    arguments: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("benchmark.py: ")
    assert captured.err.count("\n") == 1
    assert text in captured.err
    assert captured.out == ""


def test_a_model_that_marian_cannot_hold_is_told_in_one_line(
    model_folder: Path, corpus_files: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for file in model_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = VaswaniConfig.from_pretrained(model_folder)
    config.norm_first = True
    VaswaniForConditionalGeneration(config).save_pretrained(tmp_path)
    files = ["--test-file", str(corpus_files["validation"])]
    assert benchmark.main(["decode", "--model", str(tmp_path), *files]) == 2
    assert "MarianMTModel cannot hold this model" in capsys.readouterr().err
    assert benchmark.main(["decode", "--model", str(tmp_path / "nowhere"), *files]) == 2
    assert "nowhere: no such model folder" in capsys.readouterr().err


def test_memory_that_cannot_be_measured_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "measure_peak_memory", lambda *arguments: None)
    assert benchmark.main(["memory", *MINUSCULE]) == 2
    assert "cannot be measured here" in capsys.readouterr().err
    assert benchmark.main(["decode", *MINUSCULE, "--rounds", "1"]) == 0
    assert {figures[-1] for figures in rows_of(capsys.readouterr().out).values()} == {"-"}


def test_the_pipeline_against_translate(
    corpus_files: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "pipeline.json"
    flags = [
        "--test-file",
        str(corpus_files["validation"]),
        "--sentences",
        "3",
        "--rounds",
        "1",
        "--json",
        str(record),
    ]
    assert benchmark.main(["pipeline", *flags]) == 0
    figures = json.loads(record.read_text())
    assert figures["sentences"] == 3
    assert list(figures["rows"]) == ["translate", "a list", "a list, batch_size=32", "a generator, batch_size=32"]
    assert figures["rows"]["translate"]["ratio"] == 1
    assert {row["translated_as_by_translate"] for row in figures["rows"].values()} == {1}
    assert len(capfd.readouterr().out.splitlines()) == 2 + 4
