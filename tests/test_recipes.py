"""Every shipped recipe loads, and the paper's hold the paper's values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest
import torch
from datasets import Dataset, Features, Translation

from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.training_arguments import TranslationTrainingArguments, parse_training_arguments

RECIPES = sorted((Path(__file__).parents[1] / "scripts" / "recipes").glob("*.yaml"))


def load(path: Path) -> TranslationTrainingArguments:
    flags = ["--config", str(path), "--output-dir", "runs/x"]
    if path.stem.startswith(("tatoeba", "multi30k")):
        flags += ["--train-file", "train.tsv.gz", "--validation-file", "valid.tsv.gz"]
    return parse_training_arguments(flags)


def test_there_are_recipes() -> None:
    names = {path.stem for path in RECIPES}
    assert {"builtin-en-de", "tatoeba-en-de", "wmt14-en-de-base", "wmt14-en-de-big"} <= names


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_loads_and_its_model_is_valid(path: Path) -> None:
    arguments = load(path)
    assert arguments.model_config().vocab_size > 0
    # One pair of the longest kind must fit into each of eight devices' parts of an update.
    if path.stem.startswith("wmt14"):
        assert arguments.max_length * 8 <= arguments.batch_tokens


@pytest.mark.parametrize(
    ("size", "width", "dropout", "steps"), [("base", 512, 0.1, 100_000), ("big", 1024, 0.3, 300_000)]
)
def test_the_papers_recipes(size: str, width: int, dropout: float, steps: int) -> None:
    arguments = load(Path(__file__).parents[1] / "scripts" / "recipes" / f"wmt14-en-de-{size}.yaml")
    config = arguments.model_config()
    assert (config.d_model, config.d_ff, config.num_attention_heads) == (width, 4 * width, width // 64)
    assert (config.encoder_layers, config.decoder_layers, config.vocab_size) == (6, 6, 37_000)
    assert (config.dropout, config.norm_first, config.positional_encoding) == (dropout, False, "sinusoidal")
    assert (arguments.max_steps, arguments.warmup_steps, arguments.label_smoothing_factor) == (steps, 4000, 0.1)
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert arguments.learning_rate is None
    assert arguments.batch_tokens == 25_000
    # Section 6.1: the last 5 or 20 checkpoints, ten minutes of 0.4 seconds (base) or one (big) an update apart.
    assert (arguments.save_steps, arguments.keep_checkpoints) == ({"base": 1500, "big": 600}[size], 20)
    assert (arguments.dataset_name, arguments.dataset_config_name) == ("wmt/wmt14", "de-en")


def test_the_papers_recipe_for_french() -> None:
    arguments = load(Path(__file__).parents[1] / "scripts" / "recipes" / "wmt14-en-fr-big.yaml")
    config = arguments.model_config()
    assert (config.d_model, config.d_ff, config.num_attention_heads, config.dropout) == (1024, 4096, 16, 0.1)
    assert (config.vocab_size, arguments.max_steps, arguments.batch_tokens) == (32_000, 300_000, 25_000)
    assert (arguments.dataset_name, arguments.dataset_config_name) == ("wmt/wmt14", "fr-en")
    assert (arguments.source_lang, arguments.target_lang) == ("en", "fr")


@pytest.mark.parametrize("name", ["multi30k-en-de", "multi30k-en-fr", "multi30k-en-de-raw"])
def test_the_small_model_of_multi30k(name: str) -> None:
    arguments = load(Path(__file__).parents[1] / "scripts" / "recipes" / f"{name}.yaml")
    config = arguments.model_config()
    assert (config.d_model, config.d_ff, config.num_attention_heads, config.dropout) == (128, 256, 4, 0.3)
    assert (config.encoder_layers, config.decoder_layers) == (4, 4)
    assert config.tie_word_embeddings
    assert not config.norm_first
    assert config.vocab_size == 10_000
    with torch.device("meta"):
        assert VaswaniForConditionalGeneration(config).num_parameters() == 2_598_912


@pytest.mark.parametrize("size", ["base", "big"])
def test_the_papers_recipes_train_on_a_sample_in_wmt14s_format(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_dataset(name: str, config: str, split: str, streaming: bool) -> Dataset:
        asked.append((name, config, split, streaming))
        features = Features({"translation": Translation(["de", "en"])})

        def rows() -> Iterator[dict]:
            for pair in generate_pairs(split, {"train": 400, "validation": 30, "test": 30}[split]):
                yield {"translation": {"de": pair["de"], "en": pair["en"]}}

        return Dataset.from_list(list(rows()), features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    recipe = Path(__file__).parents[1] / "scripts" / "recipes" / f"wmt14-en-de-{size}.yaml"
    shape = "--d-model 32 --d-ff 64 --encoder-layers 1 --decoder-layers 1 --num-attention-heads 2 --vocab-size 500"
    pace = "--batch-tokens 400 --max-length 50 --max-steps 2 --eval-sentences 4"
    run = RunFolder(tmp_path / "run")
    assert main(["train", "--config", str(recipe), "--output-dir", str(run.path), *shape.split(), *pace.split()]) == 0
    assert run.weights.is_file()
    source = ["--dataset-name", "wmt/wmt14", "--dataset-config-name", "de-en"]
    assert main(["evaluate", str(run.path), *source, "--num-beams", "1"]) == 0
    wanted = [("wmt/wmt14", "de-en", split, False) for split in ("train", "validation", "test")]
    assert asked == wanted
    assert run.read_records(run.evaluations)[0]["dataset_name"] == "wmt/wmt14"
