"""The card that a run's records become: what it says, what it leaves out, and whose text it is."""

from __future__ import annotations

import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Refused
from huggingface_hub import ModelCard

from vaswani_transformer import training
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.model_card import CURVE_WIDTH, MARKER, MOST_ROWS, render_card, update_card, weights_digest
from vaswani_transformer.translation import PRETRAINED


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(trained_run, tmp_path / "my-run"))


def card_of(run: RunFolder) -> ModelCard:
    return ModelCard(render_card(run.path, "user/name"))


def section(card: ModelCard, title: str) -> str:
    """The text under a heading."""
    return card.text.split(f"# {title}\n")[1].split("\n#")[0]


def table(card: ModelCard, title: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    lines = [line for line in section(card, title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def evaluation(run: RunFolder, **changes: Any) -> dict[str, Any]:
    data = {"data": "test.tsv.gz", "dataset_name": None, "dataset_config_name": None, "split": None}
    search = {"num_beams": 4, "length_penalty": None, "dtype": "float32", "flags": "--test-file test.tsv.gz"}
    scores = {"bleu": 20.123, "chrf++": 40.456, "bleu_signature": "b|v:1", "chrf++_signature": "c|v:1", "sentences": 9}
    languages = {"source_lang": "en", "target_lang": "de"}
    return {"weights": weights_digest(run.path), **data, **languages, **search, **scores, **changes}


def validations(run: RunFolder, *bleu: float) -> None:
    """Replace the run's records: a loss and a validation at each hundredth update."""
    run.metrics.unlink()
    for number, score in enumerate(bleu, 1):
        place = {"step": 100 * number, "epoch": number // 3, "seconds": 61.0 * number}
        run.record(**place, loss=10 - number / 10, learning_rate=1e-3, target_tokens_per_second=1.0)
        run.record(**place, validation_loss=9 - number / 10, **{"bleu": score, "chrf++": 2 * score})


def test_training_writes_the_card(run: RunFolder, corpus_files: dict[str, Path]) -> None:
    card = ModelCard.load(run.path / "README.md")
    data = card.data.to_dict()
    assert data == {
        "language": ["en", "de"],
        "library_name": "transformers",
        "pipeline_tag": "translation",
        "tags": ["vaswani", "translation"],
    }
    assert MARKER in card.text
    assert table(card, "Data") == [["training", "`train.tsv`"], ["validation", "`validation.tsv`"]]
    shape = dict(table(card, "small"))
    assert shape["N, layers of encoder and decoder"] == "1 + 1"
    assert (shape["d_model"], shape["d_ff"], shape["h, heads"], shape["d_k = d_v"]) == ("32", "64", "2", "16")
    assert len(table(card, "Training results")) == 2
    assert "No test set has been scored" in card.text
    for place in (str(run.path), str(corpus_files["train"].parent), str(Path.home()) + "/"):
        assert place not in str(card)


def test_the_recipe_is_what_differs_from_the_defaults(run: RunFolder) -> None:
    recipe = yaml.safe_load(section(card_of(run), "Training").split("```yaml")[1].split("```")[0])
    assert recipe["train_file"] == ["train.tsv"]
    assert (recipe["d_model"], recipe["max_steps"], recipe["mixed_precision"]) == (32, 6, "no")
    assert not {"output_dir", "resume", "adam_beta1", "seed", "dataset_name", "learning_rate"} & set(recipe)


def test_an_interrupted_training_leaves_a_card_if_there_is_a_model(
    small_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = training.TranslationTrainer.train

    def stop(self: training.TranslationTrainer) -> None:
        original(self)
        raise training.TrainingInterrupted

    monkeypatch.setattr(training.TranslationTrainer, "train", stop)
    folder = tmp_path / "run"
    assert main(["train", *small_run, "--max-steps", "1", "--output-dir", str(folder)]) == 130
    assert "# run\n" in (folder / "README.md").read_text(encoding="utf-8")

    def stop_at_once(self: training.TranslationTrainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training.TranslationTrainer, "train", stop_at_once)
    folder = tmp_path / "other"
    assert main(["train", *small_run, "--max-steps", "1", "--output-dir", str(folder)]) == 130
    assert not (folder / "README.md").exists()


def test_the_table_of_results_is_thinned_and_shows_the_best(run: RunFolder) -> None:
    validations(run, *range(1, 40), 50, *range(2, 22))
    rows = table(card_of(run), "Training results")
    assert len(rows) <= MOST_ROWS
    steps = [int(row[0].strip("*").replace(",", "")) for row in rows]
    assert (steps[0], steps[-1]) == (100, 6000)
    assert [row for row in rows if row[0].startswith("**")] == [
        ["**4,000**", "**13**", "**6.000**", "**5.000**", "**50.00**", "**100.00**"]
    ]
    assert "6,000 updates in 61 minutes" in card_of(run).text
    # As training chooses: the later of two that are equally good; the loss where the loss was to decide.
    validations(run, 7, 7, 3)
    assert [row[0] for row in table(card_of(run), "Training results")] == ["100", "**200**", "300"]
    settings = run.read_settings()
    run.save_settings({**settings, "metric_for_best_model": "loss"})
    assert [row[0] for row in table(card_of(run), "Training results")] == ["100", "200", "**300**"]


def test_the_training_curve(run: RunFolder) -> None:
    run.curve.unlink(missing_ok=True)  # the picture stands in its place
    validations(run, 0, 10, 20, 35)
    curves = section(card_of(run), "Training results").split("```")[1].strip().splitlines()
    assert curves[-1] == "BLEU            ▁▃▅█  0.00 to 35.00"
    assert [line[:16].strip() for line in curves] == ["training loss", "validation loss", "BLEU"]
    validations(run, *range(500))
    curve = section(card_of(run), "Training results").split("```")[1].strip().splitlines()[-1].split()[1]
    assert len(curve) == CURVE_WIDTH
    assert list(curve) == sorted(curve)
    assert curve.count("▁") < curve.count("▄")
    # All the same, one alone, and none.
    validations(run, 7, 7)
    assert "BLEU            ▁▁  7.00 to 7.00" in card_of(run).text
    validations(run, 7)
    assert "From the first record to the last" not in card_of(run).text
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 200, "epoch": 1, "seconds": 2.0, "loss": math.nan}) + "\n")
    assert "nan" not in card_of(run).text


def test_records_of_an_older_version_and_of_changed_settings(run: RunFolder) -> None:
    settings = run.read_settings()
    del settings["eval_sentences"], settings["average_last"]
    run.save_settings({**settings, "metric_for_best_model": "bleu"})
    validations(run, 5)
    # A validation without BLEU, as a resumed run without it makes.
    run.record(step=200, epoch=1, seconds=2.0, validation_loss=3.0)
    rows = table(card_of(run), "Training results")
    assert [row[0] for row in rows] == ["**100**", "200"]


def test_half_a_record_is_no_obstacle(run: RunFolder) -> None:
    with run.evaluations.open("a") as file:
        file.write('{"weights": "ab')
    run.record_evaluation(**evaluation(run))
    assert [record["data"] for record in run.read_records(run.evaluations)] == ["test.tsv.gz"]
    assert len(table(card_of(run), "Scores")) == 1


def test_a_folder_or_a_link_in_the_cards_place(run: RunFolder, tmp_path: Path) -> None:
    card = run.path / "README.md"
    card.rename(tmp_path / "card.md")
    card.symlink_to(tmp_path / "card.md")
    run.record_evaluation(**evaluation(run))
    update_card(run.path)
    assert card.is_symlink()
    assert "20.12" in (tmp_path / "card.md").read_text(encoding="utf-8")
    card.unlink()
    card.mkdir()
    (card / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is a folder, expected the card"):
        render_card(run.path, "user/name")
    update_card(run.path)
    assert (card / "mine.txt").read_text() == "mine"


def test_languages_with_scripts_and_regions(run: RunFolder) -> None:
    run.save_settings({**run.read_settings(), "source_lang": "zh-CN", "target_lang": "deu_Latn"})
    assert card_of(run).data.language == ["zh", "deu"]


def test_names_are_quoted_in_the_examples(run: RunFolder) -> None:
    run.record_evaluation(**evaluation(run))
    text = ModelCard(render_card(run.path, 'my "best" run')).text
    assert 'model="my \\"best\\" run")' in text
    assert "evaluate 'my \"best\" run' --test-file" in text


def test_only_evaluations_of_these_weights_count(run: RunFolder) -> None:
    run.record_evaluation(**evaluation(run, weights="0" * 64, bleu=99.0))
    assert "99.0" not in str(card_of(run))
    assert card_of(run).data.eval_results is None
    run.record_evaluation(**evaluation(run, bleu=1.0))
    run.record_evaluation(**evaluation(run))
    run.record_evaluation(**evaluation(run, num_beams=1, bleu=19.0, flags="--num-beams 1 --test-file test.tsv.gz"))
    card = card_of(run)
    assert table(card, "Scores") == [
        ["`test.tsv.gz`", "9", "beam 4", "20.12", "40.46"],
        ["`test.tsv.gz`", "9", "greedy", "19.00", "40.46"],
    ]
    bleu, chrf = card.data.eval_results
    # The model's own search, though another was scored later.
    assert (bleu.metric_type, bleu.metric_value, bleu.metric_args) == ("bleu", 20.12, {"signature": "b|v:1"})
    assert (chrf.metric_type, chrf.metric_name, chrf.metric_value) == ("chrf", "chrF++", 40.46)
    assert (bleu.task_type, bleu.dataset_type, bleu.dataset_name) == ("translation", "text", "test.tsv.gz")
    assert "vaswani-transformer evaluate user/name --num-beams 1 --test-file test.tsv.gz\n" in card.text
    assert "BLEU `b|v:1`,\nchrF++ `c|v:1`." in card.text


def test_data_sets_of_the_hub_alone_are_in_the_metadata(run: RunFolder, tmp_path: Path) -> None:
    settings = {**run.read_settings(), "train_file": [], "validation_file": []}
    run.save_settings({**settings, "dataset_name": "wmt/wmt14", "dataset_config_name": "de-en"})
    card = card_of(run)
    assert card.data.datasets == ["wmt/wmt14"]
    assert table(card, "Data")[0] == ["training", "`wmt/wmt14` (de-en), split train"]
    run.record_evaluation(**evaluation(run, data="wmt/wmt14", dataset_name="wmt/wmt14", split="test"))
    assert card_of(run).data.eval_results[0].dataset_type == "wmt/wmt14"
    run.save_settings({**settings, "dataset_name": "builtin:en-de"})
    card = card_of(run)
    assert card.data.datasets is None
    assert "a demonstration" in section(card, "Limits")
    # A folder is no data set of the Hub, whatever it is called.
    (tmp_path / "secret").mkdir()
    run.save_settings({**settings, "dataset_name": str(tmp_path / "secret")})
    card = card_of(run)
    assert card.data.datasets is None
    assert table(card, "Data")[0][1] == "`secret`, split train"
    assert str(tmp_path) not in str(card)


def test_what_is_not_the_papers_is_said(run: RunFolder) -> None:
    path = run.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "norm_first": True, "positional_encoding": "learned"}))
    card = card_of(run)
    assert dict(table(card, "name"))["not the paper's"] == "`norm_first=True`, `positional_encoding=learned`"
    assert "cannot be\ntranslated whole" in card.text.replace("  ", "")


def test_a_folder_without_records_says_what_is_known(model_folder: Path) -> None:
    card = ModelCard(render_card(model_folder, "user/name"))
    assert "language" not in card.data.to_dict()
    assert "Translates: the Transformer" in card.text.replace("\n", " ")
    for title in ("Data", "Training", "Training results", "Scores"):
        assert f"# {title}\n" not in card.text
    assert "None" not in str(card)


def test_the_licence_and_the_users_own_text_stay(run: RunFolder) -> None:
    path = run.path / "README.md"
    path.write_text(render_card(run.path, "user/name", "cc-by-4.0"), encoding="utf-8")
    update_card(run.path)
    assert ModelCard.load(path).data.license == "cc-by-4.0"
    own = path.read_text(encoding="utf-8").replace(MARKER, "<!--")
    path.write_text(own, encoding="utf-8")
    update_card(run.path)
    assert path.read_text(encoding="utf-8") == own


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("README.md", b"---\nlanguage: [\n---\n" + MARKER.encode()),
        ("README.md", b"\xff"),
        ("metrics.jsonl", b"{\n"),
        ("metrics.jsonl", b"3\n"),
        ("evaluations.jsonl", b"{}\n"),
        ("training_args.yaml", b"a: ["),
        ("training_args.yaml", b"a: b\n"),
        ("metrics.jsonl", b'{"validation_loss": 1}\n'),
        ("averaged.json", b"{}"),
        ("generation_config.json", b"{"),
        ("model.safetensors", b""),
    ],
)
def test_damaged_records_are_named_and_stop_neither_training_nor_evaluation(
    file: str, content: bytes, run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    before = (run.path / "README.md").read_bytes()
    (run.path / file).write_bytes(content)
    with pytest.raises(InputError, match=str(run.path)):
        render_card(run.path, "user/name")
    with caplog.at_level(logging.WARNING, logger="vaswani_transformer"):
        update_card(run.path)
    assert "The model card is left as it was" in caplog.text
    assert (run.path / "README.md").read_bytes() == (content if file == "README.md" else before)


def test_evaluate_records_and_rewrites_the_card(
    run: RunFolder, corpus_files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--test-file", str(corpus_files["validation"])]
    for more in (["--num-beams", "1", "--tokenize", "none"], ["--length-penalty", "1", "--batch-tokens", "99"]):
        assert main(["evaluate", str(run.path), *data, *more]) == 0
    records = run.read_records(run.evaluations)
    assert [record["flags"] for record in records] == [
        "--num-beams 1 --test-file validation.tsv --tokenize none",
        "--length-penalty 1.0 --batch-tokens 99 --test-file validation.tsv",
    ]
    assert {record["weights"] for record in records} == {weights_digest(run.path)}
    card = ModelCard.load(run.path / "README.md")
    assert [row[2] for row in table(card, "Scores")] == ["greedy, tokenize none", "beam 4, alpha 1"]
    assert len(card.data.eval_results) == 2
    assert str(corpus_files["validation"].parent) not in str(card) + run.evaluations.read_text()
    # A folder that cannot be written to is no reason to fail.
    run.evaluations.unlink()
    run.evaluations.mkdir()
    assert main(["evaluate", str(run.path), *data, "--num-beams", "1"]) == 0
    assert "not recorded" in capsys.readouterr().err


def test_evaluate_leaves_other_folders_alone(
    model_folder: Path, tmp_path: Path, corpus_files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = corpus_files["validation"].read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "two.tsv").write_text("".join(lines[:2]), encoding="utf-8")
    shipped = sorted(path.name for path in (PRETRAINED / "tatoeba-en-de").iterdir())
    before = sorted(path.name for path in model_folder.iterdir())
    for model in (str(model_folder), "tatoeba-en-de"):
        assert main(["evaluate", model, "--test-file", str(tmp_path / "two.tsv"), "--num-beams", "1"]) == 0
    assert sorted(path.name for path in model_folder.iterdir()) == before
    assert sorted(path.name for path in (PRETRAINED / "tatoeba-en-de").iterdir()) == shipped


def test_an_averaged_model_has_the_runs_records_and_cannot_be_resumed(
    run: RunFolder,
    small_run: list[str],
    tmp_path: Path,
    refused: Refused,
) -> None:
    output = tmp_path / "mean"
    assert main(["average", str(run.path), "--last", "2", "--output", str(output)]) == 0
    card = ModelCard.load(output / "README.md")
    assert "The weights are the mean of the checkpoints after updates 3, 6." in card.text
    assert "**" not in section(card, "Training results")
    assert json.loads((output / "averaged.json").read_text()) == {"checkpoints": ["step-000003", "step-000006"]}
    assert (output / "metrics.jsonl").read_text() == run.metrics.read_text()
    for more in (["--resume"], []):
        flags = ["train", *small_run, "--max-steps", "6", "--output-dir", str(output), *more]
        refused(flags, "mean of a run's checkpoints", "--output-dir")
