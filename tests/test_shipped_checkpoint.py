"""The checkpoint that ships: it loads, fits, and keeps giving the translations that it was published with."""

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
from vaswani_transformer.translation import PRETRAINED, load_pipeline, translate

NAME = "tatoeba-en-de"
TEST_FILE = Path(__file__).parents[2] / "shared" / "data" / NAME / "test.tsv.gz"


def test_it_gives_the_translations_that_it_was_published_with() -> None:
    expected = {
        "Where did you learn to speak German so well?": "Wo hast du gelernt, so gut Deutsch zu sprechen?",
        "If it rains tomorrow, we will stay at home.": "Wenn es morgen regnet, bleiben wir zu Hause.",
        "Tom forgot to close the window.": "Tom vergaß, das Fenster zu schließen.",
    }
    # The settings of its generation_config.json: 4 beams, alpha 1.4.
    assert list(translate(load_pipeline(NAME), expected)) == list(expected.values())


def test_it_is_half_precision_on_the_disk_and_float32_in_memory() -> None:
    with safe_open(PRETRAINED / NAME / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    model = AutoModelForSeq2SeqLM.from_pretrained(PRETRAINED / NAME)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.num_parameters() == 4_697_600


def test_its_card_ships_with_it_and_the_metadata_agree_with_the_table() -> None:
    card = PRETRAINED / NAME / "README.md"
    assert card.resolve() == Path(__file__).parents[1] / "model_cards" / f"{NAME}.md"
    text = card.read_text(encoding="utf-8")
    bleu, chrf = ModelCard.load(card).data.eval_results
    assert f"| test | 2,000 | beam 4 | **{bleu.metric_value:.2f}** | **{chrf.metric_value:.2f}** |" in text
    for result in (bleu, chrf):
        assert f"`{result.metric_args['signature']}`" in text
    sent = prepare(NAME, "user/name")
    assert sent["README.md"].decode() == text


@pytest.mark.slow
@pytest.mark.skipif(not TEST_FILE.is_file(), reason="the Tatoeba test set is not in ../shared/data")
def test_it_scores_what_its_card_says(tmp_path: Path) -> None:
    record = tmp_path / "scores.json"
    assert main(["evaluate", NAME, "--test-file", str(TEST_FILE), "--json", str(record)]) == 0
    scores = json.loads(record.read_text())
    card = (Path(__file__).parents[1] / "model_cards" / f"{NAME}.md").read_text(encoding="utf-8")
    assert f"| test | 2,000 | beam 4 | **{scores['bleu']:.2f}** | **{scores['chrf++']:.2f}** |" in card
    for metric in ("bleu", "chrf++"):
        assert scores[f"{metric}_signature"] in card
