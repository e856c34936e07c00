"""The checkpoints that ship: they load, fit, and keep giving the translations that they were published with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM

from vaswani_transformer.cli import main
from vaswani_transformer.sharing import prepare
from vaswani_transformer.translation import PRETRAINED, load_pipeline, shipped_checkpoints, translate

NAMES = ["tatoeba-en-de", "tatoeba-de-en"]
CARDS = Path(__file__).parents[1] / "model_cards"
TEST_FILE = Path(__file__).parents[2] / "shared" / "data" / "tatoeba-en-de" / "test.tsv.gz"
MEGABYTES = 20


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "tatoeba-en-de",
            {
                "Where did you learn to speak German so well?": "Wo hast du gelernt, so gut Deutsch zu sprechen?",
                "If it rains tomorrow, we will stay at home.": "Wenn es morgen regnet, bleiben wir zu Hause.",
                "Tom forgot to close the window.": "Tom vergaß, das Fenster zu schließen.",
            },
        ),
        (
            "tatoeba-de-en",
            {
                "Wo hast du so gut Deutsch gelernt?": "Where did you learn German so well?",
                "Wenn es morgen regnet, bleiben wir zu Hause.": "If it rains tomorrow, we stay at home.",
                "Tom vergaß, das Fenster zu schließen.": "Tom forgot to close the window.",
            },
        ),
    ],
)
def test_it_gives_the_translations_that_it_was_published_with(name: str, expected: dict[str, str]) -> None:
    # By the settings of its generation_config.json.
    assert list(translate(load_pipeline(name), expected)) == list(expected.values())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_half_precision_on_the_disk_and_float32_in_memory(name: str) -> None:
    with safe_open(PRETRAINED / name / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    model = AutoModelForSeq2SeqLM.from_pretrained(PRETRAINED / name)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.num_parameters() == 4_697_600


def test_all_that_ships_is_small() -> None:
    assert shipped_checkpoints() == sorted(NAMES)
    assert sum(path.stat().st_size for path in PRETRAINED.glob("*/*")) <= MEGABYTES * 1e6


@pytest.mark.parametrize("name", NAMES)
def test_its_card_ships_with_it_and_the_metadata_agree_with_the_table(name: str) -> None:
    card = PRETRAINED / name / "README.md"
    assert card.resolve() == CARDS / f"{name}.md"
    text = card.read_text(encoding="utf-8")
    bleu, chrf = ModelCard.load(card).data.eval_results
    assert f"| test | 2,000 | beam 4 | **{bleu.metric_value:.2f}** | **{chrf.metric_value:.2f}** |" in text
    for result in (bleu, chrf):
        assert f"`{result.metric_args['signature']}`" in text
    sent = prepare(name, "user/name")
    assert sent["README.md"].decode() == text


@pytest.mark.slow
@pytest.mark.skipif(not TEST_FILE.is_file(), reason="the Tatoeba test set is not in ../shared/data")
@pytest.mark.parametrize("name", NAMES)
def test_it_scores_what_its_card_says(name: str, tmp_path: Path) -> None:
    record = tmp_path / "scores.json"
    card = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    command = next(line for line in card.splitlines() if line.startswith("vaswani-transformer evaluate"))
    arguments = [str(TEST_FILE) if word == "test.tsv.gz" else word for word in command.split()[1:]]
    assert main([*arguments, "--json", str(record)]) == 0
    scores = json.loads(record.read_text())
    assert f"| test | 2,000 | beam 4 | **{scores['bleu']:.2f}** | **{scores['chrf++']:.2f}** |" in card
    for metric in ("bleu", "chrf++"):
        assert scores[f"{metric}_signature"] in card
