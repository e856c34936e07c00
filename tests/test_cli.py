"""The command line: help, settings from recipes and flags, and one clear line with exit code 2 for each mistake."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import torch
from conftest import Refused
from transformers import BartConfig, BartForConditionalGeneration

from vaswani_transformer import translation
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.cli import COMMANDS, load_command, main
from vaswani_transformer.corpora import open_corpora
from vaswani_transformer.errors import InputError
from vaswani_transformer.training_arguments import (
    TranslationTrainingArguments,
    create_training_parser,
    parse_training_arguments,
)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in text
        assert summary in text
    for name in COMMANDS:
        assert name in load_command(name).create_parser().format_help()
    text = create_training_parser().format_help()
    for setting in fields(TranslationTrainingArguments):
        assert f"--{setting.name}" in text


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_tells_a_default_where_there_is_one(name: str) -> None:
    text = " ".join(load_command(name).create_parser().format_help().split())
    assert not re.search(r"default: (None|False|\[\]|==SUPPRESS==)", text)
    if name in ("translate", "evaluate"):
        assert "1 is greedy. (default: 4)" in text


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_each_command_as_a_person_calls_it(name: str) -> None:
    command = [sys.executable, "-m", "vaswani_transformer", name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert f"usage: vaswani-transformer {name}" in done.stdout
    assert done.stderr == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from vaswani_transformer import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vaswani-transformer {__version__}\n"
    setup = (Path(__file__).parents[1] / "setup.py").read_text(encoding="utf-8")
    assert f'version="{__version__}"' in setup


def test_flags_win_over_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "a.yaml"
    recipe.write_text(
        "dataset_name: builtin:en-de\nmax_steps: 5\nadam_epsilon: 1e-8\nnorm_first: true\noutput_dir: x\nd_ff:\n"
    )
    settings = parse_training_arguments(["--config", str(recipe), "--max-steps", "7"])
    assert settings.max_steps == 7
    assert (settings.adam_epsilon, settings.norm_first, settings.d_ff) == (1e-8, True, None)
    for flag in ("--max-steps", "--max_steps"):
        flags = [flag, "7", "--dataset-name", "builtin:en-de", "--output-dir", "x"]
        assert parse_training_arguments(flags).max_steps == 7


def test_every_setting_has_help_and_a_default() -> None:
    for setting in fields(TranslationTrainingArguments):
        assert setting.metadata["help"].endswith("."), setting.name
        assert setting.default is not MISSING or setting.default_factory is not MISSING


def test_model_settings_reach_the_model() -> None:
    shape = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 1, "num_attention_heads": 6, "head_dim": 5}
    more = {"d_ff": 96, "activation_function": "gelu", "dropout": 0.2, "attention_dropout": 0.3, "vocab_size": 300}
    rest = {"activation_dropout": 0.4, "attention_bias": True, "norm_first": True, "tie_word_embeddings": False}
    wanted = {**shape, **more, **rest, "positional_encoding": "learned"}
    flags = [text for name, value in wanted.items() for text in (f"--{name}", str(value))]
    base = ["--output-dir", "x", "--dataset-name", "builtin:en-de", "--max-steps", "1", "--max-length", "77"]
    config = parse_training_arguments([*base, *flags]).model_config()
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert config.max_position_embeddings == 77


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--max-step", "3"], "unknown argument --max-step; did you mean --max-steps?"),
        (["--max-steps", "many"], "--max-steps"),
        (["--max-steps", "0"], "max_steps must be at least 1, got 0"),
        (["--max-minutes", "0"], "max_minutes must be above 0"),
        (["--max-minutes", "nan"], "max_minutes must be above 0"),
        (["--label-smoothing-factor", "1"], "label_smoothing_factor must be at least 0 and below 1, got 1.0"),
        (["--dropout", "1.5"], "dropout must be"),
        (["--num-attention-heads", "7"], "num_attention_heads"),
        (["--positional-encoding", "rotary"], "positional_encoding"),
        (["--preset", "huge"], "huge"),
        (["--target-lang", "en"], "must differ"),
        (["--train-file", "a.tsv"], "either train_file or dataset_name"),
        (["--validation-file", "a.tsv"], "validation_file goes with train_file"),
        (["--eval-sentences", "0"], "eval_sentences"),
        (["--max-length-ratio", "0.5"], "max_length_ratio must be at least 1"),
        (["--eval-sentences", "-1"], "eval_sentences must be at least 0"),
        (["--output-dir", ""], "output_dir is missing"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: no such recipe"),
        (["--vocab-size", "100"], "vocab_size must be at least 260"),
        (["--vocab-size", "30000"], "lower vocab_size"),
        (["--max-length", "2"], "no pairs are left"),
        (["--batch-tokens", "9999999"], "less than one batch"),
        (["--batch-tokens", "5"], "raise batch_tokens"),
        (["--train-split", "dev"], "splits are"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--num-train-epochs", "inf"], "num_train_epochs must be above 0 and finite"),
        (["--learning-rate", "inf"], "learning_rate must be above 0 and finite"),
        (["--max-grad-norm", "nan"], "max_grad_norm must be at least 0 and finite"),
        (["--activation-function", "rela"], "unknown activation_function rela; did you mean relu"),
        (["--mixed-precision", "fp16"], "fp16"),
        (["--average-last", "7"], "keep_checkpoints of at least 6, got 5"),
    ],
)
def test_mistakes_in_settings(
    flags: list[str], text: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vaswani_transformer.corpora.BUILTIN_SIZES", {"train": 200, "validation": 20, "test": 20})
    base = ["--dataset-name", "builtin:en-de", "--preset", "tiny", "--max-steps", "1", "--vocab-size", "400"]
    refused(["train", *base, "--output-dir", str(tmp_path / "run"), *flags], text)
    assert not (tmp_path / "run").exists()


def test_mistakes_without_a_limit_or_a_corpus(refused: Refused) -> None:
    refused(["train", "--output-dir", "x", "--dataset-name", "builtin:en-de"], "say when to stop")
    refused(["train", "--output-dir", "x", "--max-steps", "1"], "train_file or dataset_name", "neither")
    refused(["train", "--output-dir", "x", "--max-steps", "1", "--train-file", "a.tsv"], "needs validation_file")
    refused(["trane"], "unknown command trane; did you mean train?")


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("warmup_step: 3", "unknown key warmup_step; did you mean warmup_steps?"),
        ("- a", "expected lines of `key: value`, found list"),
        ("a: [", "not YAML"),
        ("", "found NoneType"),
        ("max_steps: soon", "max_steps"),
        ("source_lang: no", "source_lang takes no yes or no; put the word in quotes"),
        ("target_lang: {a: 1}", "target_lang takes one value"),
        ("max_steps: [1, 2]", "max_steps takes one value"),
        ("max_steps: 1\nmax_steps: 2", "the key max_steps stands there 2 times"),
    ],
)
def test_mistakes_in_a_recipe(recipe: str, text: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(recipe)
    refused(["train", "--config", str(tmp_path / "a.yaml"), "--output-dir", "x"], text)


def test_mistakes_in_a_corpus(refused: Refused, tmp_path: Path, corpus_files: dict[str, Path]) -> None:
    def train(*files: Path) -> list[str]:
        flags = ["train", "--output-dir", str(tmp_path / "run"), "--max-steps", "1", "--train-file"]
        return [*flags, *map(str, files), "--validation-file", str(corpus_files["validation"])]

    one, two, table = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "a.tsv"
    one.write_text("a\nb\n")
    two.write_text("a\nb\nc\n")
    refused(train(tmp_path / "none.tsv"), "none.tsv: no such file")
    refused(train(one, two), "has 2 lines", "has 3")
    for columns, count in (("a", 1), ("a\tb\tc", 3)):
        table.write_text(f"x\ty\n{columns}\n")
        refused(train(table), "line 2", f"found {count}")
    table.write_bytes(b"x\ty\na\xff\tb\n")
    refused(train(table), "byte offset 5")
    table.write_bytes(b"")
    refused(train(table), "corpus is empty")
    assert not (tmp_path / "run").exists()


def test_an_output_folder_that_holds_something_is_not_touched(
    refused: Refused, small_run: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    flags = ["train", *small_run, "--max-steps", "1", "--output-dir", str(folder)]
    refused(flags, "is not empty")
    refused([*flags, "--resume"], "no run to resume")
    (folder / "training_args.yaml").write_text("a: b")
    refused(flags, "holds another run", "--resume")
    assert (folder / "thesis.txt").read_text() == "precious"
    beside = ["train", *small_run, "--max-steps", "1", "--output-dir"]
    refused([*beside, str(folder / "thesis.txt")], "is a file")
    refused([*beside, str(folder / "thesis.txt" / "run")], "cannot be made")


def test_mistakes_about_a_model(refused: Refused, model_folder: Path, tmp_path: Path) -> None:
    def without(name: str) -> str:
        copy = tmp_path / f"without-{name}"
        shutil.copytree(model_folder, copy)
        (copy / name).unlink()
        return str(copy)

    for name, what in (
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "settings"),
        ("model.safetensors", "weights"),
        ("config.json", "configuration"),
    ):
        refused(["translate", without(name)], f"no {name}", what)

    truncated = tmp_path / "truncated"
    shutil.copytree(model_folder, truncated)
    data = (truncated / "model.safetensors").read_bytes()
    for length in (0, 7, len(data) // 2):
        (truncated / "model.safetensors").write_bytes(data[:length])
        refused(["translate", str(truncated)], "model.safetensors is damaged")

    shutil.copytree(model_folder, tmp_path / "broken")
    (tmp_path / "broken" / "config.json").write_text("{")
    refused(["translate", str(tmp_path / "broken")], "broken")

    shutil.copytree(model_folder, tmp_path / "mismatch")
    config = json.loads((model_folder / "config.json").read_text())
    (tmp_path / "mismatch" / "config.json").write_text(json.dumps({**config, "d_ff": 128}))
    refused(["translate", str(tmp_path / "mismatch")], "mismatch")
    (tmp_path / "mismatch" / "config.json").write_text(json.dumps({**config, "decoder_layers": 2}))
    refused(["translate", str(tmp_path / "mismatch")], "mismatch")

    for change in ({"d_model": "x"}, {"d_model": 33}, {"dropout": 2}, {"vocab_size": 400}, {"pad_token_id": 7}):
        (tmp_path / "mismatch" / "config.json").write_text(json.dumps({**config, **change}))
        refused(["translate", str(tmp_path / "mismatch")], "mismatch")

    torch.manual_seed(0)
    other = BartConfig(vocab_size=500, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16)
    other.decoder_ffn_dim = 16
    BartForConditionalGeneration(other).save_pretrained(tmp_path / "bart")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder / file, tmp_path / "bart")
    refused(["translate", str(tmp_path / "bart")], "type vaswani, found bart")

    refused(["translate", "nobody/nothing"], "nobody/nothing", "unset it to look on the Hub")
    refused(["translate", str(tmp_path / "nowhere")], "no such model folder")
    refused(["translate"], "MODEL")


def test_mistakes_in_translating_and_evaluating(refused: Refused, model_folder: Path, tmp_path: Path) -> None:
    model = str(model_folder)
    text = tmp_path / "a.txt"
    text.write_bytes(b"good\nbad \xe4\n")
    refused(["translate", model, "--input", str(tmp_path / "none.txt")], "no such file")
    refused(["translate", model, "--input", str(text)], "expected UTF-8", "byte offset 9")
    refused(["translate", model, "--input", str(text), "--output", str(text)], "is the input too")
    assert text.read_bytes() == b"good\nbad \xe4\n"
    text.write_text("a\n")
    refused(["translate", model, "--input", str(text), "--output", str(tmp_path / "no" / "b")], "No such file")
    refused(["translate", model, "--num-beams", "0"], "--num-beams", "at least 1")
    refused(["translate", model, "--batch-tokens", "x"], "--batch-tokens")
    refused(["translate", model, "--length-penalty", "nan"], "--length-penalty", "from -10 to 10, got nan")
    refused(["translate", model, "--length-penalty", "1000"], "--length-penalty", "from -10 to 10, got 1000")
    refused(["translate", model, "--dtype", "float8"], "--dtype", "bfloat16")
    refused(["translate", model, "--num-beam", "4"], "did you mean --num-beams?")
    refused(["evaluate", model, "--dataset-name", "builtin:en-de", "--json", str(tmp_path / "no" / "b")], "no folder")
    refused(["translate", model, "--input", str(tmp_path)], "is a folder, expected a file")
    refused(["evaluate", model], "files or a data set name")
    refused(["evaluate", model, "--test-file", str(tmp_path / "none.tsv")], "no such file")
    refused(["average", str(tmp_path), "--output", str(tmp_path / "b")], "has 0 checkpoints")
    refused(["average", str(tmp_path), "--output", str(tmp_path)], "exists already")


def test_evaluate_prints_and_writes_the_scores(
    model_folder: Path, corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "scores.json"
    flags = ["--test-file", str(corpus_files["validation"]), "--num-beams", "1", "--json", str(record)]
    assert main(["evaluate", str(model_folder), *flags]) == 0
    scores = json.loads(record.read_text())
    text = capsys.readouterr().out
    assert f"BLEU    {scores['bleu']:.2f}  {scores['bleu_signature']}" in text
    assert f"chrF++  {scores['chrf++']:.2f}  {scores['chrf++_signature']}" in text
    assert (scores["sentences"], scores["num_beams"]) == (30, 1)


def test_bleu_takes_the_words_that_are_asked_for(
    model_folder: Path, corpus_files: dict[str, Path], tmp_path: Path, refused: Refused
) -> None:
    record = tmp_path / "scores.json"
    for tokenize in ("13a", "none"):
        flags = ["--test-file", str(corpus_files["validation"]), "--num-beams", "1", "--json", str(record)]
        assert main(["evaluate", str(model_folder), *flags, "--tokenize", tokenize]) == 0
        scores = json.loads(record.read_text())
        assert scores["tokenize"] == tokenize
        assert f"tok:{tokenize}|" in scores["bleu_signature"]
    refused(["evaluate", str(model_folder), *flags, "--tokenize", "moses"], "moses", "'13a', 'none', 'intl'")


def test_the_columns_of_a_tsv_are_those_that_are_told(
    model_folder: Path, corpus_files: dict[str, Path], tmp_path: Path
) -> None:
    table = corpus_files["validation"]
    sides = list(zip(*(line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()), strict=True))
    files = [tmp_path / "de", tmp_path / "en"]
    for file, side in zip(files, sides[::-1], strict=True):
        file.write_text("\n".join(side) + "\n", encoding="utf-8")
    found = []
    for flags in (["--test-file", str(table), "--tsv-columns", "en", "de"], ["--test-file", *map(str, files)]):
        record = tmp_path / "scores.json"
        flags += ["--source-lang", "de", "--target-lang", "en", "--num-beams", "1", "--json", str(record)]
        assert main(["evaluate", str(model_folder), *flags]) == 0
        found.append({key: value for key, value in json.loads(record.read_text()).items() if key != "seconds"})
    assert found[0] == found[1]
    flags = ["--output-dir", "x", "--source-lang", "de", "--target-lang", "en", "--max-steps", "1"]
    flags += ["--train-file", str(table), "--validation-file", str(table), "--tsv-columns", "en", "de"]
    for text in open_corpora(parse_training_arguments(flags)):
        assert list(text) == list(zip(*sides[::-1], strict=True))


def test_the_length_penalty_reaches_the_search(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(pair["en"] for pair in generate_pairs("test", 40)))
    sizes = []
    for alpha in ("-5", "0.6", "5"):
        output = tmp_path / f"{alpha}.txt"
        files = ["--input", str(tmp_path / "in.txt"), "--output", str(output)]
        assert main(["translate", "tatoeba-en-de", *files, "--length-penalty", alpha]) == 0
        sizes.append(output.stat().st_size)
    assert sizes[0] < sizes[1] < sizes[2]


def test_the_precision_is_the_one_asked_for(
    model_folder: Path, corpus_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    original = translation.load_model
    monkeypatch.setattr(translation, "load_model", lambda *options: loaded.append(original(*options)) or loaded[-1])
    flags = ["--test-file", str(corpus_files["validation"]), "--json", str(tmp_path / "scores.json")]
    for precision in ("float32", "bfloat16"):
        assert main(["evaluate", str(model_folder), *flags, "--dtype", precision, "--length-penalty", "1"]) == 0
        assert loaded.pop()[0].dtype == getattr(torch, precision)
        record = json.loads((tmp_path / "scores.json").read_text())
        assert (record["dtype"], record["length_penalty"]) == (precision, 1.0)


def test_input_error_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)
